"""Runs a learner's `in_system(stays, begin_s, end_s)` on some logs and writes down what came back.

The one idea: it only feeds and watches. The stays are copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case, whose calls are {"stays": [[arrival, end or None]], "begin_s": float, "end_s":
    float}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    stays = [tuple(stay) for stay in call["stays"]]
    figures = as_plain(called(code, stays, call["begin_s"], call["end_s"]), "the figures")
    return {"figures": figures, "stays": as_plain(stays, "the stays")}
