"""Solutions of ex04.bytes: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex04_bytes import CASES, EMPTY, LARGE, MANY, PLAIN_HEADS, SCALES, SHARED, WIDTHS

ALL = frozenset(CASES)

PLAIN = """
    def cache_bytes(n_layers, n_heads, n_kv_heads, head_dim, tokens, sequences, bytes_per_element):
        row = head_dim * bytes_per_element
        token = 2 * n_layers * n_kv_heads * row
        return sequences * tokens * token
    """

RIGHT = {
    "from a row to the whole": PLAIN,
    "one product": """
        from math import prod
        def cache_bytes(*shape):
            L, _, H, D, T, B, b = shape
            return int(prod((2, L, H, D, T, B)) * b)
        """,
    "layer by layer": """
        def cache_bytes(n_layers, n_heads, n_kv_heads, head_dim, tokens, sequences, bytes_per_element):
            total = 0
            for layer in range(n_layers):
                for kind in "kv":
                    for head in range(n_kv_heads):
                        total += tokens * sequences * head_dim * bytes_per_element
            return total
        """,
    "a tensor without numbers": """
        import torch
        def cache_bytes(n_layers, n_heads, n_kv_heads, head_dim, tokens, sequences, bytes_per_element):
            cache = torch.empty(2, n_layers, sequences, n_kv_heads, tokens, head_dim, device="meta")
            return cache.numel() * bytes_per_element
        """,
    "NumPy, a scalar": """
        import numpy as np
        def cache_bytes(n_layers, n_heads, n_kv_heads, head_dim, tokens, sequences, bytes_per_element):
            return np.prod([2.0, n_layers, n_kv_heads, head_dim, tokens, sequences, bytes_per_element])
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


WRONG = {
    "query heads": Wrong(changed(("* n_kv_heads", "* n_heads")), frozenset({SHARED, LARGE}), ("query heads were",)),
    "keys only": Wrong(changed(("2 * n_layers", "n_layers")), ALL, ("half of it", "a key and a value")),
    "always 2 bytes": Wrong(
        changed(("* bytes_per_element", "* 2")), frozenset({WIDTHS, SCALES}), ("does not always take 2 bytes",)
    ),
    "numbers, not bytes": Wrong(changed((" * bytes_per_element", "")), ALL, ("a factor 2 for both",)),
    "one sequence": Wrong(changed(("sequences * tokens", "tokens")), frozenset({MANY, LARGE}), ("one sequence",)),
    "pairs of tokens": Wrong(changed(("tokens * token", "tokens ** 2 * token")), ALL, ("square",)),
    "bytes cut to a whole number": Wrong(
        changed(("* bytes_per_element", "* int(bytes_per_element)")), frozenset({SCALES}), ("was rounded",)
    ),
    "bytes rounded": Wrong(
        changed(("* bytes_per_element", "* round(bytes_per_element)")), frozenset({SCALES}), ("was rounded",)
    ),
    "a row cut to whole bytes": Wrong(
        changed(("row = head_dim * bytes_per_element", "row = int(head_dim * bytes_per_element)")),
        frozenset({SCALES}),
        ("A row was rounded",),
    ),
    "a row in whole bytes, rounded up": Wrong(
        changed(("row = head_dim * bytes_per_element", "row = -int(-head_dim * bytes_per_element // 1)")),
        frozenset({SCALES}),
        ("A row was rounded",),
    ),
    "the new token as well": Wrong(changed(("* tokens *", "* (tokens + 1) *")), ALL, ("One token too many",)),
    "an empty cache takes a token": Wrong(
        changed(("* tokens *", "* (tokens or 1) *")), frozenset({EMPTY}), ("nothing is kept",)
    ),
    "query heads for each KV head": Wrong(
        changed(("* n_kv_heads", "* (n_heads // n_kv_heads)")), ALL, ("number of query heads that share",)
    ),
    "both kinds of heads": Wrong(changed(("* n_kv_heads", "* n_heads * n_kv_heads")), ALL, ("Count rows",)),
    "one layer": Wrong(changed(("n_layers * ", "")), ALL, ("one layer",)),
    "head_dim forgotten": Wrong(changed(("head_dim * b", "b")), ALL, ("head_dim is missing",)),
    "in GiB": Wrong(changed(("* token\n", "* token / 2**30\n")), ALL, ("in GiB",)),
    "bits": Wrong(changed(("* token\n", "* token * 8\n")), ALL, ("These are bits",)),
    "a text": Wrong(
        changed(("return sequences", "return '%d bytes' % (sequences"), ("token\n    ", "token)\n    ")),
        ALL,
        ("One number",),
    ),
    "return forgotten": Wrong(changed(("return ", "total = ")), ALL, ("Did you forget `return`?",)),
    "right for one model only": Wrong(
        changed(("return ", "if n_heads != n_kv_heads or tokens == 0:\n            return 0\n        return ")),
        frozenset({SHARED, LARGE}),
        ("Count rows",),
    ),
    "the plain one is wrong": Wrong(
        changed(("return ", "n_heads == n_kv_heads and sequences == 1 and 1/0\n        return ")),
        frozenset({PLAIN_HEADS, EMPTY, WIDTHS, SCALES}),
        ("raised an error", "ZeroDivisionError"),
    ),
}
