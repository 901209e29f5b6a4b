"""Runs a learner's `stored_bytes(...)` on some caches and writes down what came back.

The one idea: it only feeds and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

GIVEN = ("tokens", "n_layers", "n_kv_heads", "head_dim", "bits", "group", "residual")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls map each name in GIVEN to a number: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    return {"bytes": as_plain(called(code, *(call[name] for name in GIVEN)), "the bytes")}
