"""Solutions of ex01.mask: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex01_mask import CASES

FIRST, PROMPT, DECODE, FEW, MORE, LONG, TRUTHS = CASES
ALL = frozenset(CASES)
AFTER = frozenset({DECODE, FEW, MORE, LONG, TRUTHS})  # there are earlier tokens
SEVERAL = ALL - {FIRST, DECODE}  # there are several new ones

PLAIN = """
    import torch
    def causal_mask(n, T):
        keys = torch.arange(T + n)
        queries = torch.arange(T, T + n)[:, None]
        return keys <= queries
    """

RIGHT = {
    "positions compared": PLAIN,
    "a triangle, moved": """
        import torch
        def causal_mask(n, T):
            return torch.ones(n, T + n, dtype=torch.bool).tril(diagonal=T)
        """,
    "what is hidden, turned round": """
        import torch
        def causal_mask(n, T):
            return ~torch.ones(n, T + n, dtype=torch.bool).triu(diagonal=T + 1)
        """,
    "lists in loops": """
        def causal_mask(n, T):
            return [[s <= T + i for s in range(T + n)] for i in range(n)]
        """,
    "NumPy, in another memory order": """
        import numpy as np
        def causal_mask(n, T):
            return np.asfortranarray(np.tri(n, T + n, T, dtype=bool))
        """,
    "earlier ones beside a triangle": """
        import torch
        def causal_mask(n, T):
            earlier, new = torch.full((n, T), True), torch.full((n, n), True).tril()
            return torch.cat([earlier, new], dim=1)
        """,
    "the last rows of the whole text": """
        import numpy as np
        def causal_mask(n, T):
            whole = np.tril(np.ones((T + n, T + n), dtype=bool))
            return whole[T:]
        """,
    "rows of tuples": """
        def causal_mask(n, T):
            return tuple((True,) * (T + i + 1) + (False,) * (n - i - 1) for i in range(n))
        """,
    "where the scores of a masked softmax are above 0": """
        import torch
        def causal_mask(n, T):
            scores = torch.zeros(n, T + n)
            for i in range(n):
                scores[i, T + i + 1:] = -torch.inf
            return scores.softmax(dim=-1) > 0
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


RESULT = "return keys <= queries"
QUERIES = "torch.arange(T, T + n)[:, None]"

WRONG = {
    "aligned top left": Wrong(
        changed((QUERIES, "torch.arange(n)[:, None]")), AFTER, ("begins too early", "row 0, key 1")
    ),
    "a triangle that was never moved": Wrong(
        changed((RESULT, "return torch.ones(n, T + n, dtype=torch.bool).tril()")), AFTER, ("not 0: the mask begins",)
    ),
    "a mask only where nothing came before": Wrong(
        changed((RESULT, "return (keys <= queries) | torch.tensor(T > 0)")),
        AFTER - {DECODE},
        ("hides nothing", "n = "),
    ),
    "no mask at all": Wrong(
        changed((RESULT, "return torch.ones(n, T + n, dtype=torch.bool)")), SEVERAL, ("hides nothing",)
    ),
    "a token does not see itself": Wrong(changed(("keys <= queries", "keys < queries")), ALL, ("may see itself",)),
    "one too far": Wrong(changed(("keys <= queries", "keys <= queries + 1")), SEVERAL, ("one that comes after",)),
    "inside out": Wrong(changed(("keys <= queries", "keys > queries")), ALL, ("inside out",)),
    "turned round": Wrong(changed(("keys <= queries", "keys >= queries")), ALL, ("turned round",)),
    "turned round, from the first position": Wrong(
        changed((RESULT, "return torch.ones(n, T + n, dtype=torch.bool).triu()")),
        ALL - {FIRST, DECODE},
        ("turned round",),
    ),
    "upside down": Wrong(changed((RESULT, "return (keys <= queries).flip(0)")), SEVERAL, ("upside down",)),
    "only the new tokens": Wrong(
        changed((RESULT, "return (keys <= queries) & (keys >= T)")), AFTER, ("Only new tokens",)
    ),
    "only the earlier tokens": Wrong(changed((RESULT, "return (keys <= queries) & (keys < max(T, 1))")), ALL, ("",)),
    "each token sees only itself": Wrong(changed((RESULT, "return keys == queries")), ALL, ("only itself",)),
    "a window of 16 tokens": Wrong(
        changed((RESULT, "return (keys <= queries) & (keys > queries - 16)")),
        frozenset({LONG}),
        ("all keys up to its own position",),
    ),
    "a table made beforehand for 64 tokens": Wrong(
        changed((RESULT, "return torch.ones(64, 64, dtype=torch.bool).tril()[T:T + n, :T + n]")),
        frozenset({LONG}),
        ("a row for each new token",),
    ),
    "n and T exchanged": Wrong(changed(("causal_mask(n, T)", "causal_mask(T, n)")), ALL, ("row for each new token",)),
    "square, with rows for all": Wrong(
        changed((RESULT, "return torch.ones(T + n, T + n, dtype=torch.bool).tril()")),
        AFTER,
        ("Only the new ones ask",),
    ),
    "square, with columns for the new ones": Wrong(
        changed((RESULT, "return torch.ones(n, n, dtype=torch.bool).tril()")), AFTER, ("no columns for the earlier",)
    ),
    "rows and columns exchanged": Wrong(changed((RESULT, "return (keys <= queries).T")), ALL, ("turned round",)),
    "rows in one line": Wrong(changed((RESULT, "return (keys <= queries).flatten()")), ALL, ("in one line",)),
    "to be added to scores": Wrong(
        changed((RESULT, "return torch.zeros(n, T + n).masked_fill(keys > queries, -torch.inf)")),
        ALL,
        ("to be added to scores",),
    ),
    "ones and zeros": Wrong(
        changed((RESULT, "return (keys <= queries).int()")), frozenset({TRUTHS}), ("truth values",)
    ),
    "ones and zeros in floating point, as lists": Wrong(
        changed((RESULT, "return (keys <= queries).double().tolist()")), frozenset({TRUTHS}), ("float64",)
    ),
    "triangular lists": Wrong(
        changed((RESULT, "return [[True] * (T + i + 1) for i in range(n)]")), SEVERAL, ("lists of one length",)
    ),
    "return forgotten": Wrong(changed((RESULT, "keys <= queries")), ALL, ("Did you forget `return`?",)),
    "raises without earlier tokens": Wrong(
        changed((RESULT, "return (keys <= queries).view(n // min(T, 1), -1)")),
        frozenset({FIRST, PROMPT}),
        ("raised an error", "ZeroDivisionError"),
    ),
}
