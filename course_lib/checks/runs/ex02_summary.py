"""Runs a learner's `summary(requests, ttft_target_s, tpot_target_s)` on some logs and writes down what came back.

The one idea: it only feeds and watches. The requests are copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"requests": [{"arrival_s": float,
    "token_times_s": [float]}], "ttft_target_s": float, "tpot_target_s": float}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    requests = copy.deepcopy(call["requests"])
    figures = as_plain(called(code, requests, call["ttft_target_s"], call["tpot_target_s"]), "the figures")
    return {"figures": figures, "requests": as_plain(requests, "the requests")}
