"""Runs a learner's `serve(requests, rows, slots, budget, cost)` on some days and writes down what came back.

The one idea: it only feeds and watches. Time is what `cost` says, and how many tokens it was asked about is written
down, step by step. Whoever asks far more often than the longest day takes would go on for ever, and is stopped there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain, plain
from course_lib.checks.runs.calls import run_calls

MOST_STEPS = 2000


class Endless(RuntimeError):
    """A day with far more steps than there is to do."""


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case: see `run_calls`. A call is {"requests": [{"arrival_s": float, "prompt_tokens":
    int, "new_tokens": int}], "rows": int, "slots": int, "budget": int, "pass_s": float, "token_s": float}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    asked: list[Plain] = []
    pass_s, token_s = call["pass_s"], call["token_s"]

    def cost(tokens: Any) -> float:
        seconds = float(pass_s + token_s * tokens)
        asked.append(plain(tokens))
        if len(asked) > MOST_STEPS:
            raise Endless(f"{MOST_STEPS} steps, and it is still not done: would it ever end?")
        return seconds

    requests = copy.deepcopy(call["requests"])
    times = as_plain(called(code, requests, call["rows"], call["slots"], call["budget"], cost), "the times")
    return {"times": times, "steps": asked, "requests": as_plain(requests, "the requests")}
