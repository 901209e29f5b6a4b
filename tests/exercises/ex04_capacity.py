"""Solutions of ex04.capacity: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex04_capacity import CASES, EXACT, NONE, PART, SHORT, TOKENS, TOO_LARGE, UNIT, WHOLE

ALL = frozenset(CASES)
FITS = ALL - {TOO_LARGE}

PLAIN = """
    def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
        free = max(memory_gb * 10**9 - weights - reserve, 0)
        blocks = -(-tokens // block)
        return divmod(free, blocks * block * token_bytes)
    """

RIGHT = {
    "whole numbers, divmod": PLAIN,
    "a named tuple of decimals": """
        from decimal import Decimal
        from typing import NamedTuple
        class Room(NamedTuple):
            sequences: Decimal
            left: Decimal
        def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
            free = max(Decimal(memory_gb).scaleb(9) - weights - reserve, Decimal(0))
            one = (Decimal(tokens) / block).to_integral_value("ROUND_CEILING") * block * token_bytes
            return Room(free // one, free % one)
        """,
    "ceil and floor": """
        from math import ceil, floor
        def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
            free = int(memory_gb * 1e9) - weights - reserve
            if free < 0:
                return 0, 0
            one = ceil(tokens / block) * block * token_bytes
            sequences = floor(free / one)
            return sequences, free - sequences * one
        """,
    "one after the other": """
        def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
            left, sequences = memory_gb * 10**9 - weights - reserve, 0
            one = (tokens + block - 1) // block * block * token_bytes
            while left >= one:
                left, sequences = left - one, sequences + 1
            return [sequences, max(0, left)]
        """,
    "in blocks": """
        def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
            free = max(0, memory_gb * 1_000_000_000 - (weights + reserve))
            blocks, rest = divmod(free, block * token_bytes)
            sequences, over = divmod(blocks, (tokens - 1) // block + 1)
            return sequences, over * block * token_bytes + rest
        """,
    "NumPy": """
        import numpy as np
        def capacity(memory_gb, weights, reserve, token_bytes, tokens, block):
            free = np.maximum(np.int64(memory_gb) * 10**9 - weights - reserve, 0)
            one = np.int64(np.ceil(tokens / block)) * block * token_bytes
            return np.floor_divide(free, one), float(np.mod(free, one))
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


UP, BACK = "-(-tokens // block)", "return divmod(free, blocks * block * token_bytes)"
RESULT = f"sequences, left = {BACK.removeprefix('return ')}\n        return "
FULL = ALL - {TOO_LARGE, NONE}

WRONG = {
    "GiB for GB": Wrong(changed(("10**9", "2**30")), ALL, ("counted in GiB",)),
    "weights forgotten": Wrong(changed((" - weights", "")), ALL, ("The weights are missing",)),
    "reserve forgotten": Wrong(changed((" - reserve", "")), ALL, ("The reserve is missing",)),
    "all the memory for caches": Wrong(changed((" - weights - reserve", "")), ALL, ("all the memory",)),
    "blocks forgotten": Wrong(
        changed(("blocks * block", "tokens")),
        ALL - {TOKENS, WHOLE, NONE, TOO_LARGE},
        ("a text that ends inside a block",),
    ),
    "blocks rounded down": Wrong(
        changed((UP, "max(1, tokens // block)")), frozenset({PART, EXACT, UNIT}), ("rounded down",)
    ),
    "one block more always": Wrong(
        changed((UP, "tokens // block + 1")), frozenset({TOKENS, WHOLE}), ("no further one",)
    ),
    "the nearest number of blocks": Wrong(
        changed((UP, "max(1, round(tokens / block))")), frozenset({PART, EXACT, UNIT}), ("a block",)
    ),
    "less than nothing": Wrong(
        changed(("max(", "("), (" - reserve, 0)", " - reserve)")), frozenset({TOO_LARGE}), ("more than there is",)
    ),
    "nothing fits, something is left": Wrong(
        changed((BACK, f"{RESULT}sequences, left if free else memory_gb * 10**9 - weights - reserve")),
        frozenset({TOO_LARGE}),
        ("nothing is left",),
    ),
    "rounded up": Wrong(changed((BACK, f"{RESULT}sequences + (left > 0), left")), FITS - {EXACT}, ("round down",)),
    "at least one": Wrong(
        changed((BACK, f"{RESULT}max(1, sequences), left")), frozenset({NONE, TOO_LARGE}), ("round down",)
    ),
    "the last one is not counted": Wrong(
        changed((BACK, f"{RESULT}sequences - (left == 0 < sequences), left")), frozenset({EXACT}), ("Sequences: what",)
    ),
    "parts of a sequence": Wrong(
        changed((BACK, "return free / (blocks * block * token_bytes), 0")), FITS - {EXACT}, ("counted whole",)
    ),
    "left in blocks": Wrong(
        changed((BACK, f"{RESULT}sequences, left // (block * token_bytes)")), FULL - {EXACT} | {NONE}, ("not blocks",)
    ),
    "the unused ends of blocks are left": Wrong(
        changed((BACK, f"{RESULT}sequences, left + sequences * (blocks * block - tokens) * token_bytes")),
        frozenset({PART, SHORT, EXACT, UNIT}),
        ("nobody else can have it",),
    ),
    "the reserve is left": Wrong(changed((BACK, f"{RESULT}sequences, left + reserve")), ALL, ("It is not left",)),
    "only the sequences": Wrong(changed((BACK, f"{RESULT}sequences")), ALL, ("should return two things",)),
    "the two exchanged": Wrong(changed((BACK, f"{RESULT}left, sequences")), ALL, ("Sequences: what",)),
    "return forgotten": Wrong(changed(("return ", "both = ")), ALL, ("Did you forget `return`?",)),
}
