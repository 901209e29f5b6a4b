"""Runs a learner's `capacity(...)` on some machines and writes down what came back.

The one idea: it only feeds and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called, pair
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

GIVEN = ("memory_gb", "weights", "reserve", "token_bytes", "tokens", "block")
RESULTS = ("sequences", "left")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls map each name in GIVEN to a number: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    both = pair(called(code, *(call[name] for name in GIVEN)), RESULTS)
    return {name: as_plain(value, name) for name, value in zip(RESULTS, both, strict=True)}
