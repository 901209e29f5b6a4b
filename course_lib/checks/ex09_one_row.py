"""The check of ex09.one_row: the learner's `test_one_row(make_cache)` tells right caches of one text from broken ones.

The one idea: each kind of mistake shows in one way of feeding a cache and hides in others, so a test that feeds it in
one way only finds some of them. Right caches differ in all that was not promised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.checks.contract import Verdict
from course_lib.checks.ex09_caches import Family, Kind, fault, sizes
from course_lib.checks.ex09_verdict import TOLERANCE, draw_inputs, judged
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex09_memory import LAYERS, D
from course_lib.checks.runs.ex09_one_row import make, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "test_one_row", "test_one_row(make_cache)"
NOT_CHECKED = "mistakes of other kinds, speed, what a test says, whether it reads how a cache is made"

SHARED, LAST, RESTART = "layers that share a memory", "the newest token overwritten", "positions from 0 again"
ONE_LAYER, CHUNK, POSITIONS = "unseen: in one layer", "unseen: in a later chunk", "unseen: positions"
MANY, VALUES, DIGITS = "unseen: after many tokens", "unseen: values", "unseen: digits"
EARLIER, COUNT = "unseen: what was read earlier", "unseen: how many tokens"
OVER = "max(length - 1, 0)"

FAMILY = Family(
    (
        Kind(
            SHARED,
            "keeps the tokens of layers 1 and 2 in the same memory",
            (fault(to_layer="min(layer, 1)", from_layer="min(layer, 1)"),),
            seen=True,
        ),
        Kind(
            LAST,
            "writes each later chunk over the newest token",
            (fault(slot=f"{OVER} + i", grown=f"{OVER} + count", position=f"{OVER} + i"),),
            seen=True,
        ),
        Kind(RESTART, "lets the positions of each chunk begin at 0", (fault(position="i"),), seen=True),
        Kind(
            ONE_LAYER,
            "goes wrong in one of its layers",
            (
                fault(token="where(layer == {layer}, length - 1 - t, t)"),
                fault(from_layer="where(layer == {layer}, 0, layer)"),
            ),
        ),
        Kind(
            CHUNK,
            "goes wrong when a second chunk of several tokens comes",
            (
                fault(column="where(0 < passes, count - 1 - i, i)"),
                fault(column="where(0 < passes, count - 1, i)"),
            ),
        ),
        Kind(
            POSITIONS,
            "gives wrong positions, to later tokens or after chunks",
            (fault(position="passes + i"), fault(position="length + i + (1 < passes)")),
        ),
        Kind(
            MANY,
            "goes wrong after many tokens, fewer than 32",
            (
                fault(slot="where(length + i < {many}, length + i, length + i - {many})"),
                fault(columns="min(length, {many})"),
            ),
        ),
        Kind(
            VALUES,
            "returns right keys and wrong values",
            (
                fault(token="where((part == 1) * (t == length - 1), max(t - 1, 0), t)"),
                fault(from_part="0"),
            ),
        ),
        Kind(
            DIGITS,
            "keeps fewer digits than was promised",
            (fault(bits="{bits}"), fault(bits="where(part == 1, {bits}, 53)"), fault(bits="{fine}")),
        ),
        Kind(
            EARLIER,
            "changes arrays that it returned earlier",
            (fault(buffer="0"), fault(buffer="where(part == 1, 0, reads + 3)")),
        ),
        Kind(COUNT, "returns a token too many or too few", (fault(columns="length + 1"), fault(columns="length - 1"))),
    ),
    ("single", "fortran", "locked", "full", "listed"),
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
    for chunks in ([1] * 9, sizes(rng, 32), sizes(rng, 32), [32]):
        cache, given, T, earlier = make_cache(), rng.standard_normal((2, LAYERS, 32, D)), 0, []
        for n in chunks:
            new = given[:, :, T : T + n]
            assert list(cache.append(*new)) == list(range(T, T + n))
            T += n
            for layer in range(LAYERS):
                for came, right in zip(cache.read(layer), given[:, layer, :T], strict=True):
                    earlier.append((came, right))
                    assert came.shape == right.shape and (abs(came - right) <= 1e-6 * abs(right)).all()
        assert all((abs(came - right) <= 1e-6 * abs(right)).all() for came, right in earlier)
