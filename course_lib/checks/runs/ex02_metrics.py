"""Runs a learner's `metrics(arrival_s, token_times_s, prompt_tokens)` on some logs and writes down what came back.

The one idea: it only feeds and watches. The list of times is copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"arrival_s": float, "token_times_s": [float],
    "prompt_tokens": int}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    times = list(call["token_times_s"])
    figures = as_plain(called(code, call["arrival_s"], times, call["prompt_tokens"]), "the figures")
    return {"figures": figures, "token_times_s": as_plain(times, "the times")}
