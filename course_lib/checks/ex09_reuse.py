"""The check of ex09.reuse: the learner's `test_reuse(make_cache)` tells right caches whose rows are used again from
broken ones.

The one idea: what a row held before must not show in anything it does later. Most mistakes hide while the next text
covers what the last one has left, or while a row is used again only once.
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
from course_lib.checks.runs.ex09_reuse import make, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "test_reuse", "test_reuse(make_cache)"
NOT_CHECKED = "mistakes of other kinds, speed, what a test says, whether it reads how a cache is made"

ONE_MORE, EVERY = "a token too many after truncate", "release empties every row"
OLD, POSITIONS, FEWER = "unseen: old tokens", "unseen: positions", "unseen: how many truncate keeps"
AFTER, OTHERS = "unseen: tokens after truncate", "unseen: other rows"
ROOM, AGAIN = "unseen: memory not given back", "unseen: a row released more than once"

FAMILY = Family(
    (
        Kind(
            ONE_MORE,
            "keeps a token too many in truncate",
            (fault(cut="where(row == target, min(n + 1, length), length)"),),
            seen=True,
        ),
        Kind(EVERY, "empties every row in release", (fault(released="0"),), seen=True),
        Kind(
            OLD,
            "lets tokens of a released text be read, at once or beside new ones",
            (
                fault(columns="where(0 < releases, highest, length)"),
                fault(columns="where((0 < releases) * (0 < length), highest, length)"),
            ),
        ),
        Kind(
            POSITIONS,
            "gives wrong positions in a row that was released once or more",
            (
                fault(position="where(0 < releases, highest, 0) + length + i"),
                fault(position="length + i + (1 < releases)"),
            ),
        ),
        Kind(
            FEWER,
            "keeps another number of tokens in truncate than it was told",
            (
                fault(cut="where(row == target, max(n - 1, 0), length)"),
                fault(cut="where((row == target) * (0 < n), n, length)"),
            ),
        ),
        Kind(
            AFTER,
            "goes wrong with tokens that come after truncate",
            (
                fault(slot="where(0 < cuts, highest, length) + i"),
                fault(position="where(0 < cuts, highest, length) + i"),
            ),
        ),
        Kind(
            OTHERS,
            "changes another row than the one it was asked to",
            (
                fault(released="where((row == target) + (target == {row}) * (row == {other}), 0, length)"),
                fault(cut="min(n, length)"),
            ),
        ),
        Kind(
            ROOM,
            "has no room for 32 tokens in a row that was released or truncated",
            (fault(small=True, used="ever"), fault(small=True, used="where(0 < cuts, highest, length)")),
        ),
        Kind(
            AGAIN,
            "goes wrong when a row has been released more than once",
            (
                fault(released="where((row == target) * (releases < 1), 0, length)"),
                fault(columns="where(1 < releases, highest, length)"),
            ),
        ),
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
    day, rng = Day(make_cache()), np.random.default_rng(9)
    for row in range(ROWS):
        day.append(row, 9 + row)
    for row in (1, 0, 2):
        for n in (32, 3, 1, 5):
            day.release(row)
            day.append(row, n)
        day.release(row)
        day.append(row, 12 - row)
    for row in (2, 0, 1):
        day.truncate(row, 7)
        day.append(row, 2)
        day.append(row, 23)
        day.truncate(row, 32)
        day.truncate(row, 31)
        day.append(row, 1)
        day.truncate(row, 0)
        day.append(row, 4)
    for _ in range(20):
        row = int(rng.integers(ROWS))
        T = day.texts[row].shape[1]
        if rng.integers(3):
            day.append(row, int(rng.integers(0, 33 - T)))
        elif rng.integers(2):
            day.truncate(row, int(rng.integers(0, T + 1)))
        else:
            day.release(row)


class Day:
    """A cache at work, and the texts that its rows should hold; after each call all of them are read."""

    def __init__(self, cache: Any) -> None:
        self.cache, self.texts, self.rng = cache, [np.zeros((2, 0, D))] * ROWS, np.random.default_rng(3)
        self.read()

    def append(self, row: int, n: int) -> None:
        new, T = self.rng.standard_normal((2, n, D)), self.texts[row].shape[1]
        assert list(self.cache.append(row, *new)) == list(range(T, T + n))
        self.texts[row] = np.concatenate([self.texts[row], new], axis=1)
        self.read()

    def truncate(self, row: int, n: int) -> None:
        self.cache.truncate(row, n)
        self.texts[row] = self.texts[row][:, :n]
        self.read()

    def release(self, row: int) -> None:
        self.cache.release(row)
        self.texts[row] = self.texts[row][:, :0]
        self.read()

    def read(self) -> None:
        for row, text in enumerate(self.texts):
            came = np.stack(self.cache.read(row))
            assert came.shape == text.shape and (abs(came - text) <= 1e-6 * abs(text)).all()
