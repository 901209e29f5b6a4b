"""Solutions of ex03.positions: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex03_positions import CASES

PROMPT, SINGLE, DECODE, CHUNKS, CACHES, WINDOW = CASES
ALL = frozenset(CASES)
SEVERAL_PASSES = ALL - {PROMPT}
MORE_AT_ONCE = ALL - {SINGLE}

PLAIN = """
    def positions(cache, held, n):
        start = cache.get("seen", 0)
        cache["seen"] = start + n
        return list(range(start, start + n))
    """

RIGHT = {
    "a number in the dictionary, a list": PLAIN,
    "a tensor": """
        import torch
        def positions(cache, held, n):
            cache["next"] = cache.get("next", 0) + n
            return torch.arange(cache["next"] - n, cache["next"])
        """,
    "all positions kept, NumPy": """
        import numpy as np
        def positions(cache, held, n):
            old = cache.setdefault("all", np.zeros(0, dtype=np.int32))
            cache["all"] = np.arange(len(old) + n, dtype=np.int32)
            return cache["all"][len(old):]
        """,
    "a range": """
        from itertools import count
        def positions(cache, held, n):
            start = cache.pop("end", 0)
            cache["end"] = start + n
            return range(start, start + n)
        """,
    "an endless counter, a tuple": """
        from itertools import count, islice
        def positions(cache, held, n):
            return tuple(islice(cache.setdefault("counter", count()), n))
        """,
    "what was dropped is counted": """
        def positions(cache, held, n):
            held_before, dropped = cache.get("state", (0, 0))
            dropped += held_before - held
            cache["state"] = held + n, dropped
            return [dropped + held + i for i in range(n)]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


ONCE = ("list(range(start, start + n))", "[start] * n")

WRONG = {
    "what is held is taken for the position": Wrong(
        changed(('cache.get("seen", 0)', "held")), frozenset({WINDOW}), ("holds was taken for the position",)
    ),
    "from 0 in each pass": Wrong(
        changed(('cache["seen"] = start + n', "pass")), SEVERAL_PASSES, ("began at 0 again", "call 2 of 4")
    ),
    "counted twice": Wrong(changed(("= start + n", "= start + 2 * n")), SEVERAL_PASSES, ("counted twice", "[1]")),
    "the prompt counted twice": Wrong(
        changed(("= start + n", "= start + n + (n if n > 1 and not start else 0)")),
        SEVERAL_PASSES - {SINGLE},
        ("counted twice",),
    ),
    "one too far": Wrong(changed(('("seen", 0)', '("seen", 1)')), ALL, ("one too far", "[0, ")),
    "one too few after the first pass": Wrong(
        changed(("= start + n", "= start + n - (start == 0)")), SEVERAL_PASSES, ("[1]", "[0]")
    ),
    "passes counted, not tokens": Wrong(
        changed(("= start + n", "= start + 1")), MORE_AT_ONCE - {PROMPT}, ("Passes were counted",)
    ),
    "every token of a chunk at its first position": Wrong(changed(ONCE), MORE_AT_ONCE, ("the same position",)),
    "every token of a chunk at its last position": Wrong(
        changed((ONCE[0], "[start + n - 1] * n")), MORE_AT_ONCE, ("the same position",)
    ),
    "after the tokens of the pass": Wrong(
        changed(("range(start, start + n)", "range(start + n, start + 2 * n)")), ALL, ("before their positions",)
    ),
    "backwards": Wrong(
        changed(("range(start, start + n)", "range(start, start + n)[::-1]")), MORE_AT_ONCE, ("follow",)
    ),
    "one counter for all caches": Wrong(
        """
        seen = 0
        def positions(cache, held, n):
            global seen
            seen += n
            return list(range(seen - n, seen))
        """,
        ALL - {PROMPT},
        ("as many tokens come before it", "call 1 of 4"),
    ),
    "one store that every new cache empties": Wrong(
        """
        kept = {}
        def positions(cache, held, n):
            if not cache:
                kept.clear()
            cache["used"] = True
            kept["seen"] = kept.get("seen", 0) + n
            return list(range(kept["seen"] - n, kept["seen"]))
        """,
        frozenset({CACHES}),
        ("of the other cache", "cache A has seen"),
    ),
    "only the first position": Wrong(changed((ONCE[0], "[start]")), MORE_AT_ONCE, ("came in",)),
    "a number, not a list": Wrong(changed((ONCE[0], "start")), ALL, ("as a list",)),
    "everything so far": Wrong(changed(("range(start, start + n)", "range(start + n)")), SEVERAL_PASSES, ("came in",)),
    "floats": Wrong(changed((ONCE[0], "__import__('torch').arange(start, start + n) * 1.0")), ALL, ("whole numbers",)),
    "texts": Wrong(changed((ONCE[0], "[str(start + i) for i in range(n)]")), ALL, ("as a list",)),
    "return forgotten": Wrong(changed(("return list", "list")), ALL, ("Did you forget `return`?",)),
    "a window of its own": Wrong(
        changed(("return ", "start = min(start, 4)\n        return ")),
        frozenset({DECODE, CHUNKS, CACHES, WINDOW}),
        ("[4]",),
    ),
}
