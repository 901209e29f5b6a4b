"""The check of ex03.attend: the learner's `attend(q, keys, values)` mixes cached values for one new token.

The one idea: the cases differ in how query heads and KV heads go together, and each is drawn so that a wrong weight, a
wrong head or a missing token changes the output far beyond rounding. The reference is a loop in `ex03_attention`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, nearest, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex03_attention import TOLERANCE, TOLERANCES, attention, beliefs, near, rounded, same, unlike
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex03_attend import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "attend", "attend(q, keys, values)"
LARGE, INPUTS, PRECISION = "large scores", "what was given stays as it was", "numbers keep their precision"
# Each case: (H_q, H, S, D) for one call after the other.
CASES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "a KV head for each query head": ((2, 2, 5, 4),),
    "two KV heads, each for three query heads": ((6, 2, 5, 4),),
    "one KV head for all query heads": ((4, 1, 6, 4),),
    "other sizes": ((4, 2, 40, 16), (9, 3, 7, 6), (1, 1, 9, 2)),
    "from the first token on": ((4, 2, 1, 8), (4, 2, 2, 8), (4, 2, 3, 8)),
    LARGE: ((4, 2, 6, 16), (4, 2, 6, 16)),
    INPUTS: ((4, 2, 5, 4),),
    PRECISION: ((4, 2, 5, 8),),
}
NOT_CHECKED = "speed, memory, more than one row or one new token, dtypes other than float32 and float64"


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"q" [H_q, D], "keys" [H, S, D], "values" [H, S, D]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, shapes in CASES.items():
        dtype = np.float64 if name == PRECISION else np.float32
        cases[name] = []
        for number, (H_q, H, S, D) in enumerate(shapes):
            q, keys, values = (1.5 * rng.standard_normal(shape) for shape in ((H_q, D), (H, S, D), (H, S, D)))
            if name == LARGE:
                q, keys = apart(rng, H_q, H, S, D) if number else large(rng, H_q, H, S, D)
                values = values / 10 if number else values  # such scores leave the weights of float32 fewer digits
            given = (q, keys, values)
            cases[name].append({key: array.astype(dtype) for key, array in zip(GIVEN, given, strict=True)})
    return {"cases": cases}


def large(rng: np.random.Generator, H_q: int, H: int, S: int, D: int) -> tuple[Array, Array]:
    """Queries and keys whose scores reach 100, beyond what exp takes in float32, and nearly reach it once more.

    All are whole numbers and √D is one, so every way to compute the scores gives exactly the same ones.
    """
    keys = rng.choice((-5.0, 5.0), (H, S, D))  # a key's score with itself is 25 D / √D
    keys[:, 3] = keys[:, 1]
    keys[:, 3, 0] *= 4 / 5  # 1.25 less
    return keys[np.arange(H_q) // (H_q // H), 1], keys


def apart(rng: np.random.Generator, H_q: int, H: int, S: int, D: int) -> tuple[Array, Array]:
    """Queries and keys whose scores reach 1200 in every other head and 240 in the rest: exp of the former is infinite
    in float64 as well, and exp of what the latter are below it is 0. Whole numbers again."""
    q, keys = large(rng, H_q, H, S, D)
    keys *= 12
    keys[:, 3, 0] = keys[:, 1, 0] * 59 / 60
    q[1::2] /= 5
    return q, keys


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the `outputs` that `run` wrote down near the reference's?"""
    return verdict(AttendCase, inputs, outputs)


class AttendCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        (H, S, D), H_q = call["keys"].shape, len(call["q"])
        return f"q of shape [{H_q}, {D}], keys and values of shape [{H}, {S}, {D}]"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        q, keys, values = (call[name] for name in GIVEN)
        query, seen = q[:, None], np.ones((1, keys.shape[1]), dtype=bool)  # [H_q, 1, D]: one new token, that sees all
        expected = attention(query, keys, values, seen)[:, 0]  # [H_q, D]
        came, dtype, tolerance = answer.get("output"), str(q.dtype), TOLERANCES[str(q.dtype)]
        said, what_came = unlike(expected, came, dtype, FUNCTION)
        if said:
            return Wrong(said, f"shape {list(expected.shape)}", what_came)
        assert isinstance(came, np.ndarray)
        if self.name == PRECISION and came.dtype != q.dtype:
            return Wrong(f"{dtype} went in, another dtype came out.", dtype, str(came.dtype))
        if near(expected, came, tolerance):
            return None
        if self.name == PRECISION and near(expected, came, TOLERANCES["float32"]):
            said = "The output is nearly right: something has rounded it to fewer digits."
            return Wrong(said, f"an error below {tolerance}", f"{abs(expected - came).max():.1g}")
        if np.isnan(came).any():
            said = "There is a NaN (no number) in the output."
            if self.name == LARGE:
                said += (
                    " exp of a large score is infinite, and 0 of one far below the largest: subtract the largest score "
                    "of each head from its own, or use softmax."
                )
        else:
            said = nearest(came[:, None], expected[:, None], beliefs(query, keys, values, seen), 10 * tolerance)
        head = int((~(abs(expected - came) <= tolerance)).any(axis=1).argmax())  # NaN is apart from everything
        said = said or "The output is not the mean of the values, weighted by softmax(q · k / √D)."
        return Wrong(said, rounded(expected[head]), rounded(came[head]), f"head {head}")

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in GIVEN if told_in == INPUTS and not same(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make something new of it instead.") if changed else None
