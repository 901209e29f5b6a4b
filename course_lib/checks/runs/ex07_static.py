"""Runs a learner's `static(lengths, rows)` on some requests and writes down what came back.

The one idea: it only feeds and watches. The lengths are copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case, whose calls are {"lengths": [int], "rows": int}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    lengths = list(call["lengths"])
    steps = as_plain(called(code, lengths, call["rows"]), "the steps")
    return {"steps": steps, "lengths": as_plain(lengths, "the lengths")}
