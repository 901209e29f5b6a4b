"""Solutions of ex05.rows: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex05_rows import CASES, CHUNKS, EMPTY, FULL, HERE, REUSE, SPOILED, STAYS, TOKENS

ALL = frozenset(CASES)

PLAIN = """
    import torch
    class Rows:
        def __init__(self, keys, values):
            self.keys, self.values = keys, values
            self.lengths = [0] * len(keys)

        def write(self, row, k, v):
            old, new = self.lengths[row], self.lengths[row] + len(k)
            if new > self.keys.shape[1]:
                raise ValueError(f"row {row} has {self.keys.shape[1] - old} free slots, {len(k)} tokens came")
            self.keys[row, old:new] = k
            self.values[row, old:new] = v
            self.lengths[row] = new

        def attend(self, q):
            output = torch.zeros_like(q)
            for row, n in enumerate(self.lengths):
                if n:
                    scores = self.keys[row, :n] @ q[row] / q.shape[1] ** 0.5
                    output[row] = scores.softmax(0) @ self.values[row, :n]
            return output

        def release(self, row):
            self.lengths[row] = 0
    """

RIGHT = {
    "lengths, row by row": PLAIN,
    "a mask, all rows at once": """
        import torch
        class Rows:
            def __init__(self, keys, values):
                self.keys, self.values = keys, values
                self.filled = torch.zeros(keys.shape[:2], dtype=torch.bool)
            def write(self, row, k, v):
                free = (~self.filled[row]).nonzero().flatten()[: len(k)]
                if len(free) < len(k):
                    raise ValueError("full")
                self.keys[row, free], self.values[row, free], self.filled[row, free] = k, v, True
            def attend(self, q):
                keys = torch.where(self.filled[..., None], self.keys, 0)
                values = torch.where(self.filled[..., None], self.values, 0)
                scores = torch.einsum("bsd,bd->bs", keys, q) / q.shape[-1] ** 0.5
                weights = scores.masked_fill(~self.filled, -torch.inf).softmax(-1).nan_to_num(0)
                return torch.einsum("bs,bsd->bd", weights, values)
            def release(self, row):
                self.filled[row] = False
        """,
    "NumPy on the same memory": """
        import numpy as np
        class Rows:
            def __init__(self, keys, values):
                self.memory = keys.numpy(), values.numpy()
                self.n = np.zeros(len(keys), dtype=int)
            def write(self, row, k, v):
                end = self.n[row] + len(k)
                if end > self.memory[0].shape[1]:
                    raise ValueError
                for part, new in zip(self.memory, (k, v)):
                    part[row, self.n[row] : end] = new.numpy()
                self.n[row] = end
            def attend(self, q):
                q, out = q.numpy().astype(np.float64), np.zeros(q.shape)
                for b in np.flatnonzero(self.n):
                    keys, values = (part[b, : self.n[b]] for part in self.memory)
                    w = np.exp(keys @ q[b] / np.sqrt(q.shape[1]))
                    out[b] = w @ values / w.sum()
                return out
            def release(self, row):
                self.n[row] = 0
        """,
    "wiped when it is released, token by token": """
        import torch
        from torch.nn.functional import scaled_dot_product_attention
        class Rows:
            def __init__(self, keys, values):
                self.memory, self.held = (keys, values), {}
            def write(self, row, k, v):
                if self.held.get(row, 0) + k.shape[0] > self.memory[0].shape[1]:
                    raise ValueError("no room")
                for key, value in zip(k, v):
                    slot = self.held.get(row, 0)
                    self.memory[0][row, slot].copy_(key)
                    self.memory[1][row, slot].copy_(value)
                    self.held[row] = slot + 1
            def attend(self, q):
                outputs = []
                for row in range(q.shape[0]):
                    if row not in self.held:
                        outputs.append(torch.zeros(1, q.shape[1]))
                        continue
                    keys, values = (part[row, : self.held[row]] for part in self.memory)
                    outputs.append(scaled_dot_product_attention(q[row][None], keys, values))
                return torch.cat(outputs)
            def release(self, row):
                n = self.held.pop(row, 0)
                for part in self.memory:
                    part[row, :n].zero_()
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


CHECK = "if new > self.keys.shape[1]:"
LOOP = "for row, n in enumerate(self.lengths):"
ATTEND = PLAIN[PLAIN.index("            output = torch.zeros_like(q)") : PLAIN.index("        def release")]
MASKED = """
            S = self.keys.shape[1]
            filled = torch.arange(S) < torch.tensor(self.lengths)[:, None]
            scores = (self.keys * q[:, None]).sum(2) / q.shape[1] ** 0.5
            weights = scores.masked_fill(~filled, -torch.inf).softmax(1).nan_to_num(0)
            return (weights[:, None] @ self.values)[:, 0]

"""
RELEASES = frozenset({STAYS, REUSE, SPOILED, EMPTY, FULL})

WRONG = {
    "a weight of 0 hides it": Wrong(changed((ATTEND, MASKED)), frozenset({SPOILED}), ("0 · NaN is NaN",)),
    "release does nothing": Wrong(
        changed(("self.lengths[row] = 0", "pass")),
        frozenset({REUSE, SPOILED, EMPTY, FULL}),
        ("behind the tokens that",),
    ),
    "all slots are attended to": Wrong(
        changed((LOOP, "for row, n in enumerate([self.keys.shape[1]] * len(self.lengths)):")),
        ALL,
        ("Slots that hold nothing of this row",),
    ),
    "up to the longest row": Wrong(
        changed((LOOP, "for row, n in enumerate([max(self.lengths)] * len(self.lengths)):")),
        ALL - {TOKENS, CHUNKS},
        ("Slots that hold nothing of this row",),
    ),
    "one slot too far": Wrong(
        changed(("if n:", "if n:\n                    n = min(n + 1, self.keys.shape[1])")), ALL, ("a row ends at",)
    ),
    "the newest token is missing": Wrong(
        changed(("if n:", "if n > 1:\n                    n -= 1")), ALL, ("The newest token is missing", "call 3 of 7")
    ),
    "the most that a row ever held": Wrong(
        changed(
            (
                "self.lengths = [0] * len(keys)",
                "self.lengths = [0] * len(keys)\n            self.most = [0] * len(keys)",
            ),
            (
                "self.lengths[row] = new",
                "self.lengths[row] = new\n            self.most[row] = max(self.most[row], new)",
            ),
            (LOOP, "for row, n in enumerate(self.most):"),
        ),
        frozenset({REUSE, SPOILED, EMPTY}),
        ("Tokens of the text that was released",),
    ),
    "nothing is refused": Wrong(
        changed(
            (CHECK, "if False:"), ("k\n", "k[: self.keys.shape[1] - old]\n"), ("v\n", "v[: self.keys.shape[1] - old]\n")
        ),
        frozenset({FULL}),
        ("do not fit", "no error"),
    ),
    "it wraps around": Wrong(
        changed((CHECK, "if new > self.keys.shape[1]:\n                old, new = 0, len(k)\n            if False:")),
        frozenset({FULL}),
        ("do not fit",),
    ),
    "what fits is kept before it refuses": Wrong(
        changed(
            (
                "                raise",
                """                room = self.keys.shape[1] - old
                self.keys[row, old:], self.values[row, old:] = k[:room], v[:room]
                self.lengths[row] += room
                raise""",
            )
        ),
        frozenset({FULL}),
        ("call 5 of",),
    ),
    "one slot is never used": Wrong(
        changed((CHECK, "if new >= self.keys.shape[1]:")), frozenset({FULL}), ("nothing to refuse",)
    ),
    "a full row is an error of torch": Wrong(
        changed((CHECK, "if False:")), frozenset({FULL}), ("raised an error", "RuntimeError")
    ),
    "one length for all rows": Wrong(
        changed(("self.lengths[row] = new", "self.lengths[:] = [new] * len(self.lengths)")),
        ALL - {TOKENS, CHUNKS},
        ("belongs in slot 0; it lies in slot 5",),
    ),
    "release empties all rows": Wrong(
        changed(("self.lengths[row] = 0", "self.lengths = [0] * len(self.lengths)")),
        frozenset({STAYS, REUSE, SPOILED, FULL}),
        ("The row was emptied", "row 0"),
    ),
    "release wipes the wrong row": Wrong(
        changed(("self.lengths[row] = 0", "self.lengths[row] = 0\n            self.keys[row - 1] = 0")),
        frozenset({STAYS, REUSE, SPOILED, FULL}),
        ("A token of row 0 was changed",),
    ),
    "written at the front": Wrong(
        changed(("self.keys[row, old:new] = k", "self.keys[row, : len(k)] = k")),
        ALL - {EMPTY},
        ("was written over", "keys[0, 0]"),
    ),
    "always row 0": Wrong(
        changed(("self.values[row, old:new] = v", "self.values[0, old:new] = v")),
        ALL - {TOKENS, CHUNKS},
        ("lies in row 0",),
    ),
    "keys and values exchanged": Wrong(
        changed(("new] = k", "new] = v"), ("self.values[row, old:new] = v", "self.values[row, old:new] = k")),
        ALL,
        ("exchanged",),
    ),
    "a memory of its own": Wrong(
        changed(("self.values = keys, values", "self.values = keys.clone(), values.clone()")),
        ALL,
        ("nowhere in this memory",),
    ),
    "lists of its own, and a memory that nobody reads": Wrong(
        changed(
            (
                "self.lengths = [0] * len(keys)",
                "self.lengths = [0] * len(keys)\n            self.own = [[] for _ in keys]",
            ),
            (
                "self.lengths[row] = new",
                "self.lengths[row] = new\n            self.own[row] += zip(k.clone(), v.clone())",
            ),
            (
                "if n:",
                "if n:\n                    keys, values = (torch.stack(part) for part in zip(*self.own[row]))",
            ),
            ("scores = self.keys[row, :n]", "scores = keys"),
            ("self.values[row, :n]", "values"),
            ("self.lengths[row] = 0", "self.lengths[row], self.own[row] = 0, []"),
        ),
        frozenset({HERE}),
        ("kept there and nowhere else", "call 7 of 10"),
    ),
    "values of its own": Wrong(
        changed(
            (
                "self.keys, self.values = keys, values",
                "self.keys, self.values, self.own = keys, values, torch.zeros_like(values)",
            ),
            ("self.values[row, old:new] = v", "self.values[row, old:new] = self.own[row, old:new] = v"),
            ("@ self.values[row, :n]", "@ self.own[row, :n]"),
        ),
        frozenset({HERE}),
        ("kept there and nowhere else",),
    ),
    "not divided": Wrong(changed((" / q.shape[1] ** 0.5", "")), ALL, ("not divided by √D", "call 5 of 7")),
    "an empty row gives NaN": Wrong(
        changed(("if n:", "if not n:\n                    output[row] = torch.nan\n                else:")),
        frozenset({EMPTY}),
        ("its output is zeros",),
    ),
    "an empty row raises": Wrong(
        changed(("if n:", "if not n:\n                    raise IndexError(row)\n                else:")),
        frozenset({STAYS, EMPTY}),
        ("raised an error", "IndexError"),
    ),
    "outputs of the rows that hold something": Wrong(
        changed(("return output", "return output[[n > 0 for n in self.lengths]]")),
        frozenset({STAYS, EMPTY}),
        ("an output for each row",),
    ),
    "attend returns nothing": Wrong(changed(("return output", "pass")), ALL, ("Did you forget `return`?",)),
    "no release": Wrong(changed(("def release", "def free")), RELEASES, ("raised an error", "AttributeError")),
}
