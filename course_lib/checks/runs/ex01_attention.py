"""Runs a learner's `attention(q, k, v)` on some inputs and writes down what came back.

The one idea: it only feeds and watches. What was handed in is copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

GIVEN = ("q", "k", "v")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"q": [n, D], "k": [S, D], "v": [S, D]}: see
    `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    given = {name: torch.from_numpy(call[name].copy()) for name in GIVEN}
    output = as_plain(called(code, *given.values()), "the output")
    return {"output": output} | {name: as_plain(given[name], name) for name in GIVEN}
