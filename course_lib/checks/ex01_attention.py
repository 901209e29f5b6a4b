"""The check of ex01.attention: the learner's `attention(q, k, v)`, one head with a causal mask and a stable softmax.

The one idea: a formula that is right on paper fails in two places, and each has its cases: where there are fewer
queries than keys, and where scores are large. In the latter q and k are small whole numbers, so that every way to
compute the scores gives exactly the same ones. The reference is the loop in `ex03_attention`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, nearest, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex03_attention import (
    TOLERANCE,
    TOLERANCES,
    causal,
    mixed,
    near,
    rounded,
    same,
    unlike,
    unweighted,
)
from course_lib.checks.ex03_attention import attention as over_heads
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex01_attention import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "attention", "attention(q, k, v)"
NOT_CHECKED = "speed, memory, several heads, batches, dtypes other than float32 and float64"
LARGE, SMALL, HIDDEN = "large scores", "scores far below zero", "the largest score is a hidden one"
INPUTS, PRECISION = "what was given stays as it was", "numbers keep their precision"
# Each case: (n, S, D) for one call after the other.
CASES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "a prompt": ((5, 5, 4),),
    "one new token": ((1, 6, 4),),
    "a few new tokens after earlier ones": ((3, 7, 4),),
    "other sizes": ((1, 1, 3), (4, 5, 8), (20, 33, 16), (9, 9, 2)),
    LARGE: ((4, 6, 16),),
    SMALL: ((4, 6, 16), (4, 6, 16)),  # the second in float64, which has room for scores far below -1e9
    HIDDEN: ((4, 6, 16),),
    INPUTS: ((3, 5, 4),),
    PRECISION: ((4, 6, 8),),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"q" [n, D], "k" [S, D], "v" [S, D]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, shapes in CASES.items():
        dtype = np.float64 if name == PRECISION else np.float32
        cases[name] = []
        for number, (n, S, D) in enumerate(shapes):
            q, k, v = (1.5 * rng.standard_normal(shape) for shape in ((n, D), (S, D), (S, D)))
            if name in (LARGE, SMALL, HIDDEN):
                (q, k), v = extreme(rng, name, n, S, D, 16 if not number else 40_000), v / 3
            if number and name == SMALL:  # spaces between float64s are larger out there: weights have fewer digits
                dtype, v = np.float64, v / 1000
            cases[name].append({key: array.astype(dtype) for key, array in zip(GIVEN, (q, k, v), strict=True)})
    return {"cases": cases}


def extreme(rng: np.random.Generator, name: str, n: int, S: int, D: int, size: int) -> tuple[Array, Array]:
    """Queries and keys of whole numbers, with scores so large or so far below zero that exp of them is infinite or 0
    even in float64. The scores of one query are near each other, so several of its weights count. `size` is that of the
    numbers: -1000 and -6e9 are what scores are below, for 16 and 40 000.

    SMALL: every other query is an ordinary one. HIDDEN: what a query may see is ordinary, but the last key, which only
    the last token may see, has a large score.
    """
    q, k = rng.integers(-2, 3, (n, D)), rng.integers(-2, 3, (S, D))
    if name == HIDDEN:
        q[:, 0], k[:, 0] = 40, 0
        q[-1, 0], k[-1, 0] = 0, 90
        return q, k
    base = rng.integers(size - 1, size + 1, D) * rng.choice((-1, 1), D)
    k[:], k[:, -1] = base, rng.permutation(S)  # so scores of neighbours differ by a quarter to three quarters
    extremes = slice(None) if name == LARGE else slice(None, None, 2)
    q[extremes] = base if name == LARGE else -base
    q[:, -1] = rng.integers(1, 4, n)
    if name == SMALL:
        q[1::2, :-1] = 0
    return q, k


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the `outputs` that `run` wrote down near the reference's?"""
    return verdict(AttentionCase, inputs, outputs)


class AttentionCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        (n, D), S = call["q"].shape, len(call["k"])
        return f"q of shape [{n}, {D}], k and v of shape [{S}, {D}]"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        q, k, v = (call[name] for name in GIVEN)
        n, S, dtype = len(q), len(k), str(q.dtype)
        expected = over_heads(q[None], k[None], v[None], causal(S - n, n))[0]  # [n, D]
        came, tolerance = answer.get("output"), TOLERANCES[dtype]
        said, what_came = unlike(expected, came, dtype, FUNCTION)
        if said:
            return Wrong(said, f"shape {list(expected.shape)}", what_came)
        assert isinstance(came, np.ndarray)
        if dtype == "float64" and came.dtype != q.dtype:
            return Wrong(f"{dtype} went in, another dtype came out.", dtype, str(came.dtype))
        if near(expected, came, tolerance):
            return None
        said = self.about_nan(came) or nearest(came, expected, beliefs(q, k, v), tolerance)
        if not said and near(expected, came, 100 * tolerance if self.name != PRECISION else TOLERANCES["float32"]):
            said = "The output is nearly right: something has rounded it to fewer digits."
            return Wrong(said, f"an error below {tolerance}", f"{abs(expected - came).max():.1g}")
        i = int((~(abs(expected - came) <= tolerance)).any(axis=1).argmax())  # NaN is apart from everything
        said = said or "The output is not the mean of the values that may be seen, weighted by softmax(q · k / √D)."
        return Wrong(said, rounded(expected[i]), rounded(came[i]), f"new token {i}")

    def about_nan(self, came: Array) -> str:
        """A sentence about an output with a NaN in it; empty if there is none."""
        if not np.isnan(came).any():
            return ""
        causes = {
            LARGE: "exp of a large score is infinite. Subtract the largest score of a row from all of it before exp.",
            SMALL: "exp of a score far below zero is 0, and 0 / 0 is no number. Subtract the largest score of a row.",
            HIDDEN: "The largest score of a row is one that the mask hides, and beside it all others vanish. Mask the "
            "scores first, then look for the largest.",
        }
        return "There is a NaN (no number) in the output. " + causes.get(
            self.name, "Is there a token that sees nothing?"
        )

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in GIVEN if told_in == INPUTS and not same(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make something new of it instead.") if changed else None


def beliefs(q: Array, k: Array, v: Array) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Each way to go wrong in one place: what there is to say, and the output [n, D] of it."""
    (n, D), S = q.shape, len(k)
    q, k, v = (part.astype(np.float64)[None] for part in (q, k, v))  # [1, tokens, D]: a single head
    T, one, everything = S - n, np.zeros(1, dtype=int), np.ones((n, S), dtype=bool)
    seen = causal(T, n)
    mean = "These are plain averages of the values: the keys and the query play no part."
    yield mean, lambda: mixed(0 * q, k, v, seen, one)[0]
    yield "The scores were not divided by √D.", lambda: mixed(q * sqrt(D), k, v, seen, one)[0]
    yield "The scores were divided by D, not by √D.", lambda: mixed(q / sqrt(D), k, v, seen, one)[0]
    yield "The keys were mixed, not the values.", lambda: mixed(q, k, k, seen, one)[0]
    yield "The roles of keys and values are exchanged.", lambda: mixed(q, v, k, seen, one)[0]
    yield "The softmax is missing: the scores themselves were the weights.", lambda: unweighted(q, k, v, seen, one)[0]
    down = "The softmax ran over the queries. For each query, the weights of its keys add up to 1."
    yield down, lambda: mixed(q, k, v, seen, one, axis=1)[0]
    if T:
        left = (
            f"The first new token stands at position {T}, not 0: the mask begins too early, and hides earlier tokens."
        )
        yield left, lambda: mixed(q, k, v, np.tri(n, S, dtype=bool), one)[0]
    others = seen & ~np.eye(n, S, T, dtype=bool)
    others[0, 0] = True  # a token that sees nothing gets no output at all
    yield "A token does not see itself. It may.", lambda: mixed(q, k, v, others, one)[0]
    yield "The mask is missing: a token sees later ones.", lambda: mixed(q, k, v, everything, one)[0]
    yield "Each token sees one that comes after it.", lambda: mixed(q, k, v, np.tri(n, S, T + 1, dtype=bool), one)[0]
    zeroed = "Weights were set to 0 after the softmax, so they no longer add up to 1. Mask the scores before it."
    yield zeroed, lambda: mixed(q, k, v, everything, one, after=seen)[0]
    added = "The mask was added as zeros and ones, which hides nothing. What is hidden gets a score of -inf."
    yield added, lambda: mixed(q, k, v, everything, one, bonus=seen * 1.0)[0]
    zero = "What is hidden got a score that still counts, such as 0: exp(0) is 1. It should get -inf."
    scores = np.where(seen, q @ k.swapaxes(1, 2) / sqrt(D), 0)
    yield zero, lambda: mixed(scores * sqrt(S), np.eye(S)[None], v, everything, one)[0]
    fill = "What is hidden got a large negative number, and there are scores below it. Only -inf is below all of them."
    filled = np.where(seen, q @ k.swapaxes(1, 2) / sqrt(D), -1e4)
    yield fill, lambda: mixed(filled * sqrt(S), np.eye(S)[None], v, everything, one)[0]
    short = "The scores were rounded to float32. Scores as large as these are told apart by what that leaves out."
    single = (q @ k.swapaxes(1, 2) / sqrt(D)).astype(np.float32)
    yield short, lambda: mixed(single * sqrt(S), np.eye(S)[None], v, seen, one)[0]
    old = "Only new tokens were looked at. The earlier ones may be seen as well."
    yield old, lambda: mixed(q, k, v, seen & (np.arange(S) >= T), one)[0]
    turned = "The mask is turned round: tokens see later ones, and no earlier ones."
    yield turned, lambda: mixed(q, k, v, ~np.tri(n, S, T - 1, dtype=bool), one)[0]
    yield "The mask is inside out: tokens see what they may not.", lambda: mixed(q, k, v, ~seen, one)[0]
