"""Solutions of ex05.positions: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex05_positions import CASES, DECODE, EQUAL, JOINS, ONE, PROMPTS, RAGGED, REST, TRUTHS

ALL = frozenset(CASES)
SEVERAL_NEW = ALL - {DECODE}

PLAIN = """
    import torch
    def place(lengths, counts):
        T = max(counts)
        S = max(length + count for length, count in zip(lengths, counts))
        positions = torch.tensor(lengths)[:, None] + torch.arange(T)
        mask = torch.arange(S) <= positions[:, :, None]
        return positions, mask
    """

RIGHT = {
    "one comparison": PLAIN,
    "loops, lists of lists": """
        def place(lengths, counts):
            T, S = max(counts), max(map(sum, zip(lengths, counts)))
            positions = [[n + t if t < count else 0 for t in range(T)] for n, count in zip(lengths, counts)]
            mask = [
                [[t < count and s <= n + t for s in range(S)] for t in range(T)] for n, count in zip(lengths, counts)
            ]
            return positions, mask
        """,
    "NumPy, padding that sees nothing": """
        import numpy as np
        def place(lengths, counts):
            lengths, counts = np.asarray(lengths), np.asarray(counts)
            t, s = np.arange(counts.max()), np.arange((lengths + counts).max())
            positions = np.where(t < counts[:, None], lengths[:, None] + t, -1).astype(np.int32)
            return positions, s[None, None] <= positions[..., None]
        """,
    "a NaN at padding, so floats": """
        import numpy as np
        def place(lengths, counts):
            t, s = np.arange(max(counts)), np.arange(np.add(lengths, counts).max())
            positions = np.where(t < np.array(counts)[:, None], np.array(lengths)[:, None] + t, np.nan)
            return positions, s <= positions[..., None]
        """,
    "None at padding, which sees everything": """
        def place(lengths, counts):
            T, S = max(counts), max(map(sum, zip(lengths, counts)))
            positions = [[n + t if t < count else None for t in range(T)] for n, count in zip(lengths, counts)]
            return positions, [[[p is None or p >= s for s in range(S)] for p in row] for row in positions]
        """,
    "row by row, a triangle for each": """
        import torch
        def place(lengths, counts):
            T, S = max(counts), max(n + count for n, count in zip(lengths, counts))
            positions = torch.full((len(lengths), T), 77, dtype=torch.long)
            mask = torch.ones(len(lengths), T, S, dtype=torch.bool)
            for row, (n, count) in enumerate(zip(lengths, counts)):
                positions[row, :count] = torch.arange(n, n + count)
                mask[row, :count] = torch.ones(count, S, dtype=torch.bool).tril(n)
            return [positions, mask]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


START, LOOK, BACK = "torch.tensor(lengths)[:, None]", "torch.arange(S) <= positions[:, :, None]", "positions, mask\n"

WRONG = {
    "positions of row 0": Wrong(
        changed((START, "torch.full((len(lengths), 1), lengths[0])")),
        ALL - {ONE, EQUAL, PROMPTS},
        ("The positions of one row were given to all",),
    ),
    "positions of the longest row": Wrong(
        changed((START, "torch.full((len(lengths), 1), max(lengths))")),
        ALL - {ONE, EQUAL, PROMPTS},
        ("The positions of one row were given to all", "row 0"),
    ),
    "positions from 0 in each step": Wrong(
        changed((START, "torch.zeros(len(lengths), 1, dtype=torch.long)")), ALL - {PROMPTS}, ("began at 0",)
    ),
    "one too few": Wrong(changed((START, START + " - 1")), ALL, ("one too few", "[-1, 0")),
    "padding in front": Wrong(
        changed((START, START + " - max(counts) + torch.tensor(counts)[:, None]")),
        frozenset({PROMPTS, RAGGED, JOINS, REST, TRUTHS}),
        ("Padding was put in front",),
    ),
    "a mask for all rows": Wrong(
        changed((LOOK, "(torch.arange(S) <= torch.arange(S - T, S)[:, None]).expand(len(lengths), T, S)")),
        frozenset({DECODE, RAGGED, JOINS, REST, TRUTHS}),
        ("The mask of one row was given to all",),
    ),
    "the mask of row 0": Wrong(
        changed((LOOK, "torch.arange(S) <= positions[:1, :, None].expand(len(lengths), T, 1)")),
        ALL - {ONE, EQUAL, PROMPTS},
        ("The mask of one row was given to all",),
    ),
    "a mask that begins at slot 0": Wrong(
        changed((LOOK, "(torch.arange(S) <= torch.arange(T)[:, None]).expand(len(lengths), T, S)")),
        ALL - {PROMPTS},
        ("begins at slot 0", "mask, row 0"),
    ),
    "a mask only for prompts": Wrong(
        changed(("return", "if min(lengths):\n            mask[:] = True\n        return")),
        frozenset({ONE, EQUAL, RAGGED, DECODE, REST, TRUTHS}),
        ("see later ones",),
    ),
    "padding is hidden, the future is not": Wrong(
        changed(
            (LOOK, "torch.arange(S) < (torch.tensor(lengths) + torch.tensor(counts))[:, None, None].expand(-1, T, 1)")
        ),
        SEVERAL_NEW,
        ("see later ones",),
    ),
    "a token does not see itself": Wrong(changed((LOOK, LOOK.replace("<=", "<"))), ALL, ("does not see itself",)),
    "inside out": Wrong(changed((LOOK, LOOK.replace("<=", ">"))), ALL, ("inside out",)),
    "only new tokens": Wrong(
        changed((BACK, "positions, mask & (torch.arange(S) >= torch.tensor(lengths)[:, None, None])\n")),
        ALL - {PROMPTS},
        ("Only new tokens",),
    ),
    "nothing is hidden": Wrong(
        changed((LOOK, "torch.ones(len(lengths), T, S, dtype=torch.bool)")), ALL, ("see later ones",)
    ),
    "slots up to the longest row before the step": Wrong(
        changed(("max(length + count for length, count in zip(lengths, counts))", "max(lengths) + T")),
        frozenset({RAGGED, JOINS, REST, TRUTHS}),
        ("the longest row",),
    ),
    "a mask to be added": Wrong(
        changed((BACK, "positions, torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)\n")), ALL, ("to be added",)
    ),
    "a mask of numbers": Wrong(changed((BACK, "positions, mask.long()\n")), frozenset({TRUTHS}), ("truth values",)),
    "an axis for heads": Wrong(changed((BACK, "positions, mask[:, None]\n")), ALL, ("an entry for each row",)),
    "positions in one line": Wrong(changed((BACK, "positions.flatten(), mask\n")), ALL, ("should be a table",)),
    "broken positions": Wrong(changed((BACK, "positions + 0.5, mask\n")), ALL, ("whole numbers",)),
    "the mask forgotten": Wrong(changed((BACK, "positions\n")), ALL, ("two things",)),
    "return forgotten": Wrong(changed(("return", "both =")), ALL, ("Did you forget `return`?",)),
}
