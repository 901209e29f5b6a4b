"""Solutions of ex07.static: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex07_static import CASES, INPUTS, REST, SEVERAL, SINGLE, WIDE

ALL = frozenset(CASES)
LATER = frozenset({SEVERAL, REST, SINGLE, INPUTS})  # cases with a second batch

PLAIN = """
    def static(lengths, rows):
        steps, begin = [], 1
        for i in range(0, len(lengths), rows):
            batch = lengths[i : i + rows]
            for length in batch:
                steps.append((begin, begin + length - 1))
            begin += max(batch)
        return steps
    """

RIGHT = {
    "batch by batch": PLAIN,
    "step by step": """
        def static(lengths, rows):
            first, last = [0] * len(lengths), [0] * len(lengths)
            left = dict(enumerate(lengths))
            inside, step = [], 0
            while left:
                step += 1
                inside = inside or list(left)[:rows]
                for i in inside:
                    if left.get(i, 0) > 0:
                        first[i] = first[i] or step
                        last[i] = step
                        left[i] -= 1
                if all(left[i] == 0 for i in inside):
                    for i in inside:
                        del left[i]
                    inside = []
            return list(zip(first, last))
        """,
    "recursive": """
        def static(lengths, rows, begin=1):
            if not lengths:
                return []
            batch, rest = lengths[:rows], lengths[rows:]
            return [[begin, begin + n - 1] for n in batch] + static(rest, rows, begin + max(batch))
        """,
    "NumPy, padded": """
        import numpy as np
        def static(lengths, rows):
            lengths = np.array(lengths, dtype=int)
            padded = np.zeros(-(-len(lengths) // rows) * rows, dtype=int)
            padded[: len(lengths)] = lengths
            ends = padded.reshape(-1, rows).max(axis=1, initial=0).cumsum()
            begin = np.repeat(np.concatenate([[0], ends])[:-1] + 1, rows)[: len(lengths)]
            return np.stack([begin, begin + lengths - 1], axis=1)
        """,
    "a tensor": """
        import torch
        def static(lengths, rows):
            pieces, begin = [torch.tensor([])], 1
            for batch in torch.tensor(lengths).split(rows):
                pieces.append(torch.stack((torch.full_like(batch, begin), begin + batch - 1), dim=1).flatten())
                begin += max(batch, default=0)
            return torch.cat(pieces).view(-1, 2)
        """,
    "an array of pairs, also if there are none": """
        import numpy as np
        def static(lengths, rows):
            pairs, begin = [], 1
            for i in range(0, len(lengths), rows):
                batch = lengths[i : i + rows]
                pairs += [(begin, begin + n - 1) for n in batch]
                begin += max(batch)
            return np.array(pairs)
        """,
    "a named tuple, and a deque": """
        from collections import deque, namedtuple
        Steps = namedtuple("Steps", "first last")
        def static(lengths, rows):
            queue, done, found = deque(lengths), 0, deque()
            while queue:
                batch = [queue.popleft() for _ in range(min(rows, len(queue)))]
                found.extend(Steps(done + 1, done + n) for n in batch)
                done += max(batch)
            return found
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


WRONG = {
    "a row is filled again as soon as it is free": Wrong(
        """
        def static(lengths, rows):
            free, steps = [1] * rows, []
            for length in lengths:
                row = free.index(min(free))
                steps.append((free[row], free[row] + length - 1))
                free[row] += length
            return steps
        """,
        frozenset({SEVERAL, REST, INPUTS}),
        ("nobody joins before the last is finished",),
    ),
    "all tokens of a batch come when it ends": Wrong(
        changed(("begin + length - 1", "begin + max(batch) - 1")), ALL - {SINGLE}, ("ends of whole batches",)
    ),
    "the last of the batch ends it": Wrong(
        changed(("max(batch)", "batch[-1]")), LATER - {SINGLE}, ("need not be the last in the list",)
    ),
    "the shortest ends the batch": Wrong(
        changed(("max(batch)", "min(batch)")), LATER - {SINGLE}, ("wait for the longest",)
    ),
    "all tokens of the batch one after the other": Wrong(
        changed(("max(batch)", "sum(batch)")), LATER - {SINGLE}, ("not as all together",)
    ),
    "the longest of all ends every batch": Wrong(
        changed(("max(batch)", "max(lengths)")), frozenset({SEVERAL, REST, SINGLE, INPUTS}), ("longest request of all",)
    ),
    "steps from 0": Wrong(changed(("begin = [], 1", "begin = [], 0")), ALL, ("numbered from 1",)),
    "reading the prompt gives no token": Wrong(
        changed(("(begin, begin + length - 1)", "(begin + 1, begin + length)")), ALL, ("gives the first token",)
    ),
    "and takes a step of each batch": Wrong(
        changed(
            ("(begin, begin + length - 1)", "(begin + 1, begin + length)"), ("max(batch)", "max(batch) + 1")
        ),
        ALL,
    ),
    "one step too many": Wrong(changed(("begin + length - 1", "begin + length")), ALL, ("one step too far",)),
    "the next batch begins in the last step": Wrong(
        changed(("+= max(batch)", "+= max(batch) - 1")), LATER, ("not in the same",)
    ),
    "the rest is left out": Wrong(
        changed(("range(0, len(lengths), rows)", "range(0, len(lengths) - rows + 1, rows)")),
        frozenset({REST, WIDE, INPUTS}),
        ("one pair for each",),
    ),
    "the shortest first": Wrong(
        changed(("steps, begin = [], 1", "steps, begin, lengths = [], 1, sorted(lengths)")), ALL
    ),
    "taken out of the caller's list": Wrong(
        """
        def static(lengths, rows):
            steps, begin = [], 1
            while lengths:
                batch = [lengths.pop(0) for _ in range(min(rows, len(lengths)))]
                steps += [(begin, begin + length - 1) for length in batch]
                begin += max(batch)
            return steps
        """,
        frozenset({INPUTS}),
        ("changed the list",),
    ),
    "only the ends": Wrong(
        changed(("(begin, begin + length - 1)", "begin + length - 1")), ALL, ("two whole numbers for each request",)
    ),
    "the wrong one first": Wrong(
        changed(("(begin, begin + length - 1)", "(begin + length - 1, begin)")), ALL
    ),
    "rows and batches mixed up": Wrong(
        """
        def static(lengths, rows):
            steps, begin = [], 1
            for i in range(rows):
                batch = lengths[i::rows]
                for length in batch:
                    steps.append((begin, begin + length - 1))
                begin += max(batch, default=0)
            return steps
        """,
        ALL,
    ),
    "nothing is returned": Wrong(changed(("        return steps", "        return None")), ALL, ("Did you forget",)),
}  # fmt: skip
