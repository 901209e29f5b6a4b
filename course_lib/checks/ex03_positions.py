"""The check of ex03.positions: the learner's `positions(cache, held, n)` says where the tokens of each pass stand.

The one idea: the number of tokens seen, the number that the cache holds and the number of passes are the same in a
short trial, so each case is one in which two of them part. The reference adds up what the calls said.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex03_positions import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "positions", "positions(cache, held, n)"
TOLERANCE = "none. A position is a whole number."
NOT_CHECKED = "more than one row, passes that fail half-way, what the cache itself does"
ALL_HELD = 10**6
# Each case: (which cache, most tokens that it holds), then the sizes of its passes, one after the other. A size is a
# range to draw from: learners see other numbers each time.
SMALL, LARGE, ONE = (2, 4), (5, 9), (1, 1)
CASES: dict[str, tuple[tuple[int, tuple[int, int]], ...]] = {
    "a prompt into an empty cache": ((0, LARGE),),
    "one token after another": ((0, ONE),) * 4,
    "a prompt, then single tokens": ((0, LARGE), *((0, ONE),) * 3),
    "chunks of several sizes": ((0, SMALL), (0, LARGE), (0, ONE), (0, SMALL), (0, (30, 90))),
    "two caches share nothing": ((0, SMALL), (1, LARGE), (0, ONE), (1, ONE), (1, SMALL), (0, LARGE)),
    "a window that drops the oldest tokens": ((0, LARGE), (0, ONE), (0, ONE), (0, SMALL), (0, ONE)),
}
WINDOWS = {"a window that drops the oldest tokens": 4}  # the most tokens that the cache holds when a pass begins


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"cache": int, "held": int, "n": int}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, int]]] = {}
    for name, passes in CASES.items():
        seen: dict[int, int] = {}
        cases[name] = []
        for cache, (least, most) in passes:
            n = int(rng.integers(least, most + 1))
            held = min(seen.get(cache, 0), WINDOWS.get(name, ALL_HELD))
            cases[name].append({"cache": cache, "held": held, "n": n})
            seen[cache] = seen.get(cache, 0) + n
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the positions in `outputs` those of the tokens?"""
    return verdict(PositionsCase, inputs, outputs)


class PositionsCase(Case):
    CALL = CALL

    def number(self, call: dict[str, int]) -> int:
        return next(number for number, each in enumerate(self.calls) if each is call)

    def seen(self, call: dict[str, int], same_cache: bool = True) -> int:
        """How many tokens the cache of a call (or all caches) had seen when the call began."""
        before = self.calls[: self.number(call)]
        return sum(each["n"] for each in before if not same_cache or each["cache"] == call["cache"])

    def went_in(self, call: dict[str, int]) -> str:
        seen, several = self.seen(call), len({each["cache"] for each in self.calls}) > 1
        cache = f"cache {'AB'[call['cache']]}" if several else "the cache"
        return f"n = {call['n']}, held = {call['held']}; {cache} has seen {seen} token{'s' * (seen != 1)}"

    def wrong(self, call: dict[str, int], answer: dict[str, Plain]) -> Wrong | None:
        start, n, came = self.seen(call), call["n"], answer.get("positions")
        expected = listed(list(range(start, start + n)))
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", expected, "None")
        if isinstance(came, list) and all(type(each) is int for each in came):
            came = np.array(came, dtype=np.int64)
        if not isinstance(came, np.ndarray) or came.ndim != 1:
            said = f"{n} positions should come back, as a list of whole numbers or a tensor of shape [n]."
            return Wrong(said, expected, what_came(came))
        if came.dtype.kind not in "iu":
            return Wrong("Positions are whole numbers.", expected, str(came.dtype))
        if came.tolist() == list(range(start, start + n)):
            return None
        return Wrong(self.belief(call, came.tolist()), expected, listed(came.tolist()))

    def belief(self, call: dict[str, int], came: list[int]) -> str:
        """A sentence about what would explain wrong positions."""
        start, held, n = self.seen(call), call["held"], call["n"]
        if len(came) != n:
            return f"{n} token{'s' * (n != 1)} came in, so {n} position{'s' * (n != 1)} should come back."
        if n > 1 and len(set(came)) == 1:
            return "All tokens of the pass got the same position. Each stands one further than the one before."
        if came != list(range(came[0], came[0] + n)):
            return "Positions of one pass follow each other: each token stands one further than the one before."
        if held < start and came[0] == held:
            return (
                "The number of tokens that the cache holds was taken for the position. It has dropped some, and the "
                "text is longer than what is held."
            )
        every = self.seen(call, same_cache=False)
        beliefs = (  # where the pass was said to begin, and what would explain that
            (0, "Positions began at 0 again. They go on where the last pass of this cache ended."),
            (every, "Tokens of the other cache were counted as well."),
            (every - start, "Tokens of the other cache were counted."),
            (self.number(call), "Passes were counted, not tokens."),
            (2 * start, "Tokens were counted twice."),
            (start - 1, "That is one too few: the first token stands at 0, so after T tokens comes position T."),
            (start + 1, "That is one too far: the first token stands at 0, so after T tokens comes position T."),
            (start + n, "The tokens of this pass were counted before their positions were given."),
        )
        said = [said for begins, said in beliefs if came[0] == begins]
        return said[0] if said else "The first token of a pass stands where as many tokens come before it."


def listed(found: list[int]) -> str:
    """A few positions: "[5]", "[5, 6, 7]", "[5, …, 40]"."""
    short = found if len(found) <= 6 else [found[0], "…", found[-1]]
    return f"[{', '.join(map(str, short))}]"
