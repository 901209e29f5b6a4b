"""Runs a learner's `test_ragged(make_cache)` on caches of three texts and writes down which of them it rejects.

The one idea: every cache here is of one class, whatever it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls
from course_lib.checks.runs.ex09_memory import ROWS, Array, D, Memory, maker, numbers_in, tried


class Cache:
    """The cache of three texts that take each step together."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def append(self, k: object, v: object, counts: Any) -> list[list[int] | Array]:
        """Keep the first counts[b] tokens of each row b of k and v [3, T, 4]; the positions of each row's."""
        k, v = (numbers_in(part, name, f"[{ROWS}, T, {D}]") for part, name in ((k, "k"), (v, "v")))
        counts = [int(count) for count in counts]
        if len(counts) != ROWS or not all(0 <= count <= k.shape[1] for count in counts):
            raise ValueError(f"counts should be {ROWS} numbers from 0 to {k.shape[1]}, not {counts}")
        positions = self._memory.write(np.stack([k, v])[:, None], range(ROWS), counts)
        return [self._memory.told(row) for row in positions]

    def read(self) -> tuple[Array, Array, Array]:
        """Keys and values [3, S, 4], and the mask [3, S]: where it is True lie the tokens of a row, oldest first."""
        memory = self._memory
        both = (np.stack([memory.read(part, 0, row) for row in range(ROWS)]) for part in (0, 1))
        keys, values = (memory.locked(np.array(part, memory.dtype, order=memory.order)) for part in both)
        return keys, values, memory.locked(np.stack([memory.mask(row) for row in range(ROWS)]))


def make(numbers: Sequence[Sequence[int]]) -> Callable[[], object]:
    return maker(Cache, numbers, rows=ROWS)


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` says of each cache, of which a call is {"numbers": …}: see `run_calls`."""
    return run_calls(code, inputs, lambda code, call: tried(code, make(call["numbers"])))
