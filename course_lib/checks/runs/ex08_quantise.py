"""Runs a learner's `quantise(x, bits, group, axis)` on some numbers and writes down what came back.

The one idea: it only feeds and watches. `x` is copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case, whose calls are {"x": [T, D], "bits": int, "group": int, "axis": int}: see
    `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    x = torch.from_numpy(call["x"].copy())
    came = as_plain(called(code, x, call["bits"], call["group"], call["axis"]), "(codes, low, step)")
    return {"came": came, "x": as_plain(x, "x")}
