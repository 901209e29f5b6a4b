"""Runs a learner's `cost(full, quantised, tokens)` on some logits and writes down what came back.

The one idea: it only feeds and watches. What was handed in is copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

GIVEN = ("full", "quantised", "tokens")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"full" and "quantised": [n, V],
    "tokens": [n]}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    given = {name: torch.from_numpy(call[name].copy()) for name in GIVEN}
    figures = as_plain(called(code, *given.values()), "the figures")
    return {"figures": figures} | {name: as_plain(given[name], name) for name in GIVEN}
