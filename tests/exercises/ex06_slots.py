"""Solutions of ex06.slots: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex06_slots import CASES, EDGES, LATER, NOTHING, SHORT, TEXT

ALL = frozenset(CASES)

PLAIN = """
    def slots(table, start, stop, block_size):
        if stop > len(table) * block_size:
            raise ValueError(f"{len(table)} blocks of {block_size} do not reach position {stop - 1}")
        found = []
        for p in range(start, stop):
            found.append(table[p // block_size] * block_size + p % block_size)
        return found
    """

RIGHT = {
    "position by position": PLAIN,
    "all slots of the row, then those that are asked for": """
        def slots(table, start, stop, block_size):
            every = [block * block_size + place for block in table for place in range(block_size)]
            if len(every) < stop:
                raise ValueError("too short")
            return every[start:stop]
        """,
    "a deque, and an error of one's own": """
        from collections import deque
        class TooShort(ValueError): ...
        def slots(table, start, stop, block_size):
            found = deque(range(block * block_size, (block + 1) * block_size) for block in table)
            if len(found) * block_size < stop:
                raise TooShort(f"{len(found)} blocks")
            every = deque(slot for block in found for slot in block)
            for _ in range(start):
                every.popleft()
            while len(every) > stop - start:
                every.pop()
            return every
        """,
    "NumPy": """
        import numpy as np
        def slots(table, start, stop, block_size):
            memory = np.array(table, dtype=int).reshape(-1, 1) * block_size + np.arange(block_size)
            if stop > memory.size:
                raise ValueError
            return memory.flatten()[start:stop]
        """,
    "torch": """
        import torch
        def slots(table, start, stop, block_size):
            p = torch.arange(start, stop)
            if -(-stop // block_size) > len(table):
                raise ValueError("too few blocks")
            table = torch.tensor(table, dtype=torch.long)
            return table[torch.div(p, block_size, rounding_mode="floor")] * block_size + p % block_size
        """,
    "divmod, and the error of the list translated": """
        def slots(table, start, stop, block_size):
            try:
                pairs = [divmod(p, block_size) for p in range(start, stop)]
                if stop:
                    table[(stop - 1) // block_size]
                return [block_size * table[i] + place for i, place in pairs]
            except IndexError:
                raise ValueError("the table does not reach so far") from None
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


SLOT = "table[p // block_size] * block_size + p % block_size"
CHECK = "if stop > len(table) * block_size:"
RANGE = "range(start, stop)"

WRONG = {
    "blocks one after the other": Wrong(
        changed((SLOT, "table[0] * block_size + p")),
        ALL - {NOTHING},
        ("need not lie one after the other",),
    ),
    "no table": Wrong(changed((SLOT, "p")), ALL, ("These are positions",)),
    "the numbers of blocks": Wrong(changed((SLOT, "table[p // block_size]")), ALL, ("without the place",)),
    "a block begins at its number": Wrong(
        changed((SLOT, "table[p // block_size] + p % block_size")), ALL, ("begins at slot b · block_size",)
    ),
    "one too far": Wrong(
        changed(("range(start, stop)", "range(start + 1, min(stop + 1, len(table) * block_size))")),
        ALL,
        ("one too far",),
    ),
    "counted from the start": Wrong(
        changed(
            (SLOT, "table[start // block_size + (p - start) // block_size] * block_size + (p - start) % block_size")
        ),
        ALL - {TEXT, EDGES},
        ("at the beginning of a block",),
    ),
    "start is left out": Wrong(changed((RANGE, "range(stop - start)")), ALL - {TEXT}, ("start was left out",)),
    "from the beginning of the text": Wrong(
        changed((RANGE, "range(stop)")), ALL - {TEXT}, ("The earlier positions came back, too",)
    ),
    "stop is in it": Wrong(
        changed((RANGE, "range(start, min(stop + 1, len(table) * block_size))")),
        ALL - {SHORT},
        ("as in range",),
    ),
    "the last one is missing": Wrong(changed((RANGE, "range(start, stop - 1)")), ALL, ("is missing",)),
    "whole blocks": Wrong(
        changed((RANGE, "range(start // block_size * block_size, -(-stop // block_size) * block_size)")),
        ALL - {EDGES},
        ("All slots of the blocks",),
    ),
    "place and block mixed up": Wrong(
        changed((SLOT, "table[p % block_size % len(table)] * block_size + p // block_size")), ALL, ("mixed up",)
    ),
    "the last block for all that is beyond": Wrong(
        changed((CHECK, "if False:"), ("table[p // block_size] *", "table[min(p // block_size, len(table) - 1)] *")),
        frozenset({SHORT}),
        ("raise ValueError",),
    ),
    "what there is, and no error": Wrong(
        changed((CHECK, "if False:"), (RANGE, "range(start, min(stop, len(table) * block_size))")),
        frozenset({SHORT}),
        ("have no slot for position",),
    ),
    "around again": Wrong(
        changed((CHECK, "if False:"), ("table[p // block_size] *", "table[p // block_size % len(table)] *")),
        frozenset({SHORT}),
        ("belongs to nobody",),
    ),
    "refused only if a position is asked for": Wrong(
        changed((CHECK, CHECK.replace("if ", "if start < stop and "))),
        frozenset({SHORT}),
        ("The table has to reach as far as stop",),
    ),
    "an error of the list": Wrong(changed((CHECK, "if False:")), frozenset({SHORT}), ("IndexError",)),
    "a full table is refused": Wrong(
        changed((CHECK, "if stop >= len(table) * block_size:")), ALL - {TEXT, LATER}, ("reaches as far",)
    ),
    "one block more than needed is asked for": Wrong(
        changed((CHECK, "if stop // block_size >= len(table):")), ALL - {TEXT, LATER}, ("reaches as far",)
    ),
    "blocks of 4": Wrong(changed((SLOT, "table[p // 4] * 4 + p % 4")), ALL, ()),
    "pairs": Wrong(changed((SLOT, "(table[p // block_size], p % block_size)")), ALL, ("A list of whole numbers",)),
    "nothing is returned": Wrong(changed(("return found", "pass")), ALL, ("A list of whole numbers", "None")),
    "an empty answer": Wrong(changed(("return found", "return []")), ALL, ("0 slots came back",)),
}
