"""Solutions of ex02.token_waits: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_token_waits import CASES

SEVERAL, TWO, ONE = CASES
ALL = frozenset(CASES)

FOUND = """
    def token_waits(machine, prompt, new_tokens):
        ttft_s, itl_s = None, []
        latest = machine.now()
        for _token in machine.stream(prompt, new_tokens):
            time_s = machine.now()
            if ttft_s is None:
                ttft_s = time_s - latest
            itl_s.append(time_s - latest)
            latest = time_s
        return ttft_s, itl_s
    """
APPENDED = "            itl_s.append(time_s - latest)"
PLAIN = changed_in(FOUND, (APPENDED, f"            else:\n    {APPENDED}"))

RIGHT = {
    "a line mended": PLAIN,
    "the first is left out at the end": changed_in(FOUND, ("return ttft_s, itl_s", "return ttft_s, itl_s[1:]")),
    "all readings first, NumPy": """
        import numpy as np
        def token_waits(machine, prompt, new_tokens):
            start = machine.now()
            times = np.array([machine.now() for _ in machine.stream(prompt, new_tokens)])
            return times[0] - start, np.diff(times)
        """,
    "an iterator": """
        from itertools import pairwise
        def token_waits(machine, prompt, new_tokens):
            readings = [machine.now()]
            tokens = iter(machine.stream(prompt, new_tokens))
            while next(tokens, None) is not None:
                readings.append(machine.now())
            first, *gaps = (later - earlier for earlier, later in pairwise(readings))
            return [first, gaps]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


RETURNED = "return ttft_s, itl_s"

WRONG = {
    "as it was found": Wrong(FOUND, ALL, ("still among the gaps", "itl_s")),
    "the last gap is left out instead of the first": Wrong(
        changed_in(FOUND, (RETURNED, "return ttft_s, itl_s[:-1]")), ALL - {ONE}, ("still among the gaps",)
    ),
    "left out both in the loop and after it": Wrong(
        changed((RETURNED, "return ttft_s, itl_s[1:]")), ALL - {ONE}, ("first gap is missing",)
    ),
    "the last gap is missing": Wrong(
        changed((RETURNED, "return ttft_s, itl_s[:-1]")), ALL - {ONE}, ("last gap is missing",)
    ),
    "only the first gap": Wrong(changed((RETURNED, "return ttft_s, itl_s[:1]")), frozenset({SEVERAL}), ("",)),
    "nothing for an answer of one token": Wrong(
        changed((RETURNED, "return ttft_s, itl_s or None")), frozenset({ONE}), ("gaps before each token but the first",)
    ),
    "TTFT for an answer of one token": Wrong(
        changed((RETURNED, "return ttft_s, itl_s or [ttft_s]")), frozenset({ONE}), ("still among the gaps",)
    ),
    "an answer of two tokens has no gap yet": Wrong(
        changed((RETURNED, "return ttft_s, itl_s if new_tokens > 2 else []")),
        frozenset({TWO}),
        ("first gap is missing",),
    ),
    "gaps that all begin at the start": Wrong(
        changed(("            latest = time_s\n", "")), ALL - {ONE}, ("begins with the token before",)
    ),
    "latest is set in the first round only": Wrong(
        changed(
            ("            else:\n", "                latest = time_s\n            else:\n"),
            ("            latest = time_s\n        return", "        return"),
        ),
        frozenset({SEVERAL}),
        ("gaps before each token but the first",),
    ),
    "TTFT is a reading of the clock": Wrong(
        changed(("ttft_s = time_s - latest", "ttft_s = time_s")), ALL, ("reading of the clock", "ttft_s")
    ),
    "TTFT is the whole time": Wrong(
        changed((RETURNED, "return ttft_s + sum(itl_s), itl_s")), ALL - {ONE}, ("whole time", "ttft_s")
    ),
    "the clock is started after the first token": Wrong(
        changed(
            ("        latest = machine.now()\n", ""),
            ("            time_s =", "            if ttft_s is None: latest = machine.now()\n            time_s ="),
        ),
        ALL,
        ("No time had passed",),
    ),
    "milliseconds": Wrong(
        changed((RETURNED, "return ttft_s, [1000 * each for each in itl_s]")), ALL - {ONE}, ("in milliseconds",)
    ),
    "the mean gap": Wrong(
        changed((RETURNED, "return ttft_s, sum(itl_s) / len(itl_s) if itl_s else 0.0")), ALL, ("should be a list",)
    ),
    "the gaps alone": Wrong(changed((RETURNED, "return itl_s")), ALL, ("two things, (ttft_s, itl_s)",)),
    "return forgotten": Wrong(changed((RETURNED, "ttft_s, itl_s")), ALL, ("Did you forget `return`?",)),
}
