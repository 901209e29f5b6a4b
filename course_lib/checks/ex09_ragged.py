"""The check of ex09.ragged: the learner's `test_ragged(make_cache)` tells right caches of three rows from broken ones.

The one idea: with rows of one length nearly every mistake hides, so a test has to feed rows of different lengths, more
than once, and one of them nothing. Where the tokens of a row lie is not promised: only the mask says it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.checks.contract import Verdict
from course_lib.checks.ex09_caches import Family, Kind, fault
from course_lib.checks.ex09_verdict import TOLERANCE, draw_inputs, judged
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex09_memory import ROWS, D
from course_lib.checks.runs.ex09_ragged import make, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "test_ragged", "test_ragged(make_cache)"
NOT_CHECKED = "mistakes of other kinds, speed, what a test says, whether it reads how a cache is made"

PADDING, LONGEST = "padding kept as tokens", "positions of the longest row"
MASK, LATER, POSITIONS = "unseen: the mask", "unseen: in a later step", "unseen: positions"
NOTHING, MIXED = "unseen: a row that gets nothing", "unseen: rows mixed up"
FRONT, MANY = "unseen: rows of few new tokens", "unseen: after many tokens"

FAMILY = Family(
    (
        Kind(
            PADDING,
            "keeps the padding of a step as tokens",
            (fault(tokens="width", grown="length + width"),),
            seen=True,
        ),
        Kind(
            LONGEST,
            "gives every row the positions of the longest",
            (fault(position="longest + i"),),
            seen=True,
        ),
        Kind(
            MASK,
            "shows a slot too many or too few in its mask",
            (
                fault(shown="(-1 - left < t) * (t < length + 1 - left)"),
                fault(shown="(-1 < t) * (t < where(length < longest, length - 1, length))"),
            ),
        ),
        Kind(
            LATER,
            "goes wrong in the second step, if the rows were of different lengths by then",
            (
                fault(grown="length + where(0 < passes, width, count)"),
                fault(slot="where(0 < passes, longest, length) + i"),
            ),
        ),
        Kind(
            POSITIONS,
            "gives wrong positions to some rows",
            (fault(position="first + i"), fault(position="where(1 < passes, longest, length) + i")),
        ),
        Kind(
            NOTHING,
            "goes wrong when a row gets no token in a step",
            (fault(grown="length + max(count, 1)"), fault(grown="where(count == 0, 0, length + count)")),
        ),
        Kind(
            MIXED,
            "mixes up rows",
            (fault(to_row="where(row == {row}, {other}, row)"), fault(from_row="where(part == 1, 2 - row, row)")),
        ),
        Kind(
            FRONT,
            "takes padding for tokens in rows that get fewer new ones than others",
            (fault(column="width - count + i"), fault(column="where(0 < passes, width - count + i, i)")),
        ),
        Kind(
            MANY,
            "goes wrong after many tokens in a row, fewer than 32",
            (
                fault(shown="(-1 < t) * (t < min(length, {many}))"),
                fault(shown="(length - {many} - 1 < t) * (t < length)"),
            ),
        ),
    ),
    ("single", "left", "extra", "fill", "fortran", "locked", "full", "listed"),
    {"columns": "longest + extra"},
)


def draw(seed: int) -> dict[str, Any]:
    """The caches of all cases, right and broken ones mixed: {"cases": {name: [{"numbers": [[int]]}]}}."""
    return draw_inputs(FAMILY, seed)


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each kind of broken cache."""
    return judged(FAMILY, CALL, make, promise, inputs, outputs)


def promise(make_cache: Callable[[], Any]) -> None:
    """What every right cache keeps. Raises AssertionError."""
    rng = np.random.default_rng(9)
    for steps in (
        ((5, 2, 7), (1, 1, 1), (3, 0, 6), (0, 4, 2), (2, 2, 1)),
        ((1, 6, 0), (4, 3, 2), (8, 1, 1)),
        ((26,) * 3,),
    ):
        cache, texts = make_cache(), [np.zeros((2, 0, D))] * ROWS
        for counts in steps:
            new = rng.standard_normal((2, ROWS, max(counts), D))
            positions = cache.append(*new, counts)
            for b, n in enumerate(counts):
                assert list(positions[b]) == list(range(texts[b].shape[1], texts[b].shape[1] + n))
                texts[b] = np.concatenate([texts[b], new[:, b, :n]], axis=1)
            keys, values, mask = cache.read()
            for b, text in enumerate(texts):
                came = np.stack([keys[b][mask[b]], values[b][mask[b]]])
                assert came.shape == text.shape and (abs(came - text) <= 1e-6 * abs(text)).all()
