"""Solutions of ex08.bytes: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex08_bytes import ALL_ROUNDED, BITS, CASES, LARGE, RECENT, SHORT, WAITING, YOUNG

ALL = frozenset(CASES)

PLAIN = """
    def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
        rounded = max(tokens - residual, 0) // group * group
        recent = tokens - rounded
        codes = 2 * rounded * head_dim * bits // 8
        key_groups = rounded // group * head_dim
        value_groups = rounded * -(-head_dim // group)
        exact = 2 * recent * head_dim * 2
        return n_layers * n_kv_heads * (codes + 4 * (key_groups + value_groups) + exact)
    """

RIGHT = {
    "four things, each counted": PLAIN,
    "token by token": """
        from collections import deque
        def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
            recent, block = deque(), 0
            key_block = head_dim * (group * bits / 8 + 2 + 2)
            value = head_dim * bits / 8 + (head_dim + group - 1) // group * 4
            for token in range(tokens):
                recent.append(4 * head_dim)
                if len(recent) - group >= residual:
                    block += key_block + group * value
                    for _ in range(group):
                        recent.popleft()
            return (block + sum(recent)) * n_layers * n_kv_heads
        """,
    "NumPy, a scalar": """
        import numpy as np
        def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
            old = np.maximum(np.int64(tokens) - residual, 0)
            rounded = old - old % group
            key = rounded * head_dim * (bits / 8 + 4 / group)
            value = rounded * (head_dim * bits / 8 + np.ceil(head_dim / group) * 4)
            return n_layers * n_kv_heads * (key + value + (tokens - rounded) * head_dim * 4)
        """,
    "bits of everything, and a fraction": """
        from fractions import Fraction
        def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
            blocks = 0
            while (blocks + 1) * group <= tokens - residual:
                blocks += 1
            groups = len(range(0, head_dim, group))
            a_block = group * head_dim * bits * 2 + 32 * (head_dim + group * groups)
            all_bits = blocks * a_block + (tokens - blocks * group) * head_dim * 2 * 16
            return Fraction(all_bits, 8) * n_layers * n_kv_heads
        """,
    "the size of the tensors, in torch": """
        import torch
        def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
            def size(*shape, dtype):
                return torch.empty(n_layers, n_kv_heads, *shape, dtype=dtype, device="meta").nbytes
            rounded = max(0, (tokens - residual) // group * group)
            packed = size(2, rounded, head_dim * bits // 8, dtype=torch.uint8)
            of_keys = size(rounded // group, head_dim, 2, dtype=torch.float16)
            of_values = size(rounded, (head_dim - 1) // group + 1, 2, dtype=torch.float16)
            return packed + of_keys + of_values + size(2, tokens - rounded, head_dim, dtype=torch.bfloat16)
        """,
    "the library's own cache, filled and weighed": """
        import torch
        from course_lib.caches.codecs import Integers
        from course_lib.caches.rounded import RoundedCache
        from course_lib.model import ModelConfig
        def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):
            one = ModelConfig(vocab_size=2, n_layers=1, d_model=2, n_heads=1, n_kv_heads=1, head_dim=head_dim, d_ff=2,
                              max_positions=tokens + 1)
            keys, values = Integers(bits, group, per_channel=True), Integers(bits, group)
            cache = RoundedCache(one, 1, tokens + 1, keys, values, residual, torch.bfloat16)
            cache.lengths = (tokens,)
            return n_layers * n_kv_heads * cache.used_bytes
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


ROUNDED = "rounded = max(tokens - residual, 0) // group * group"
GROUPS = "4 * (key_groups + value_groups)"
SOME = ALL - {YOUNG}

WRONG = {
    "scales forgotten": Wrong(changed((" + " + GROUPS, "")), ALL, ("The scales are missing",)),
    "one scale a group": Wrong(changed(("4 * (key", "2 * (key")), ALL, ("Half of the scales",)),
    "scales in float32": Wrong(changed(("4 * (key", "8 * (key")), ALL, ("have 2 bytes each",)),
    "scales of keys only": Wrong(changed((" + value_groups", "")), ALL, ("Half of the scales",)),
    "scales of values only": Wrong(changed(("key_groups + value", "value")), ALL, ("Half of the scales",)),
    "one pair of scales": Wrong(
        "def stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual):\n"
        "    rounded = max(tokens - residual, 0) // group * group\n"
        "    exact = 4 * (tokens - rounded) * head_dim\n"
        "    return n_layers * n_kv_heads * (2 * rounded * head_dim * bits // 8 + exact) + 4\n",
        ALL,
        ("not one pair for all",),
    ),
    "no residual": Wrong(
        changed(("tokens - residual, 0", "tokens, 0")), frozenset({RECENT, YOUNG, SHORT, BITS, LARGE, WAITING}), ()
    ),
    "everything is rounded": Wrong(
        changed((ROUNDED, "rounded = tokens")), ALL - {ALL_ROUNDED}, ("Nothing is kept as it came",)
    ),
    "the residual takes nothing": Wrong(
        changed((" + exact", "")), ALL - {ALL_ROUNDED}, ("are kept as they came are missing",)
    ),
    "no block waits": Wrong(
        changed((ROUNDED, "rounded = max(tokens - residual, 0)")),
        frozenset({WAITING, YOUNG, LARGE}),
        ("A block waits",),
    ),
    "waiting tokens forgotten": Wrong(
        changed(("recent = tokens - rounded", "recent = min(tokens, residual)")),
        frozenset({WAITING, YOUNG, LARGE}),
        ("tokens that wait for their block are missing",),
    ),
    "always a whole residual": Wrong(
        changed(("recent = tokens - rounded", "recent = residual")), frozenset({WAITING, YOUNG, LARGE}), ()
    ),
    "a block is rounded when it begins": Wrong(
        changed((ROUNDED, "rounded = min(-(-max(tokens - residual, 0) // group) * group, tokens)")),
        frozenset({WAITING, YOUNG, LARGE}),
        ("A block waits until it is full",),
    ),
    "one token later": Wrong(
        changed(("tokens - residual, 0", "tokens - residual - 1, 0")),
        frozenset({ALL_ROUNDED, RECENT, YOUNG, SHORT, BITS}),
        ("one token earlier than here",),
    ),
    "a short text has negative tokens": Wrong(
        changed((ROUNDED, "rounded = (tokens - residual) // group * group")), frozenset({YOUNG}), ()
    ),
    "residual in codes as well": Wrong(changed(("codes = 2 * rounded", "codes = 2 * tokens")), ALL - {ALL_ROUNDED}, ()),
    "all tokens as they came, too": Wrong(
        changed(("recent = tokens - rounded", "recent = tokens")), ALL, ("Old tokens are counted twice",)
    ),
    "residual in float32": Wrong(
        changed(("head_dim * 2\n", "head_dim * 4\n")), ALL - {ALL_ROUNDED}, ("takes 2 bytes, not 4",)
    ),
    "codes a byte each": Wrong(changed(("* bits // 8", "")), ALL, ("and not a byte",)),
    "codes in bits": Wrong(changed(("* bits // 8", "* bits")), ALL, ("Codes were counted in bits",)),
    "always 4 bits": Wrong(changed(("* bits // 8", "// 2")), frozenset({BITS, LARGE})),
    "keys only": Wrong(changed(("return n_layers", "return n_layers / 2")), ALL, ("this is half of it",)),
    "one layer": Wrong(changed(("return n_layers * ", "return ")), ALL, ("one layer",)),
    "one KV head": Wrong(changed(("n_layers * n_kv_heads *", "n_layers *")), ALL, ("one KV head",)),
    "the cache as it was": Wrong(
        changed(("return ", "return n_layers * n_kv_heads * tokens * head_dim * 4\n        return ")),
        ALL,
        ("that is not quantised",),
    ),
    "groups rounded down": Wrong(
        changed(("-(-head_dim // group)", "(head_dim // group)")),
        frozenset({SHORT}),
        ("round the number of groups up",),
    ),
    "both per token": Wrong(
        changed(("rounded // group * head_dim", "rounded * -(-head_dim // group)")),
        frozenset({SHORT}),
        ("Keys are grouped per channel",),
    ),
    "both per channel": Wrong(
        changed(("rounded * -(-head_dim // group)", "rounded // group * head_dim")),
        frozenset({SHORT}),
        ("Values are grouped per token",),
    ),
    "a group for each number": Wrong(
        changed(("rounded // group * head_dim", "rounded * head_dim")), ALL, ("Count apart",)
    ),
    "bits of the whole": Wrong(changed(("return ", "return 8 * ")), ALL, ("These are bits",)),
    "a text": Wrong(changed(("return n", "return 'about %d' % (n"), ("+ exact)", "+ exact))")), ALL, ("One number",)),
    "return forgotten": Wrong(changed(("return ", "total = ")), ALL, ("Did you forget `return`?",)),
}
