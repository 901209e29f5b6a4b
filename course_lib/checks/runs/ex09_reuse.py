"""Runs a learner's `test_reuse(make_cache)` on caches whose rows are used again, and writes down which it rejects.

The one idea: every cache here is of one class, whatever it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls
from course_lib.checks.runs.ex09_memory import ROWS, Array, D, Memory, maker, numbers_in, row_in, tried


class Cache:
    """A cache with three rows, each for one text after the other."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def append(self, row: int, k: object, v: object) -> list[int] | Array:
        """Keep the keys and values [n, 4] of the next n tokens of a row; the n positions at which they stand."""
        k, v = (numbers_in(part, name, f"[n, {D}]") for part, name in ((k, "k"), (v, "v")))
        return self._memory.told(self._memory.write(np.stack([k, v])[:, None, None], [row_in(row)], [len(k)])[0])

    def read(self, row: int) -> tuple[Array, Array]:
        """The keys and values [T, 4] of a row, oldest first."""
        memory, row = self._memory, row_in(row)
        keys, values = (memory.lend(memory.read(part, 0, row), part, 0, row) for part in (0, 1))
        memory.reads += 1
        return keys, values

    def release(self, row: int) -> None:
        """Forget all tokens of a row."""
        self._memory.shorten("released", row_in(row), "releases")

    def truncate(self, row: int, n: int) -> None:
        """Keep the first n tokens of a row."""
        self._memory.shorten("cut", row_in(row), "cuts", int(n))


def make(numbers: Sequence[Sequence[int]]) -> Callable[[], object]:
    return maker(Cache, numbers, rows=ROWS)


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` says of each cache, of which a call is {"numbers": …}: see `run_calls`."""
    return run_calls(code, inputs, lambda code, call: tried(code, make(call["numbers"])))
