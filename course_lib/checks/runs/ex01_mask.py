"""Runs a learner's `causal_mask(n, T)` on some sizes and writes down what came back.

The one idea: it only feeds and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"n": int, "T": int}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    return {"mask": as_plain(called(code, call["n"], call["T"]), "the mask")}
