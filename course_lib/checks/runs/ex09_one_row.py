"""Runs a learner's `test_one_row(make_cache)` on caches of one text and writes down which of them it rejects.

The one idea: every cache here is of one class, whatever it does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls
from course_lib.checks.runs.ex09_memory import LAYERS, Array, D, Memory, maker, numbers_in, tried


class Cache:
    """The cache of one text, for a model with three layers."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def append(self, k: object, v: object) -> list[int] | Array:
        """Keep the keys and values [3, n, 4] of the next n tokens; the n positions at which they stand."""
        k, v = (numbers_in(part, name, f"[{LAYERS}, n, {D}]") for part, name in ((k, "k"), (v, "v")))
        return self._memory.told(self._memory.write(np.stack([k, v])[:, :, None], [0], [k.shape[1]])[0])

    def read(self, layer: int) -> tuple[Array, Array]:
        """The keys and values [T, 4] of a layer, oldest first."""
        if not 0 <= layer < LAYERS:
            raise ValueError(f"there is no layer {layer}: the layers are 0 to {LAYERS - 1}")
        memory = self._memory
        keys, values = (memory.lend(memory.read(part, layer, 0), part, layer, 0) for part in (0, 1))
        memory.reads += 1
        return keys, values


def make(numbers: Sequence[Sequence[int]]) -> Callable[[], object]:
    return maker(Cache, numbers, rows=1)


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` says of each cache, of which a call is {"numbers": …}: see `run_calls`."""
    return run_calls(code, inputs, lambda code, call: tried(code, make(call["numbers"])))
