"""Runs a learner's `slots(table, start, stop, block_size)` on some tables and writes down what came back.

The one idea: it only feeds and watches. A ValueError is an answer like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import Went, as_plain, called, refusal
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case, whose calls are {"table": [int], "start": int, "stop": int, "block_size": int}:
    see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    try:
        came = called(code, list(call["table"]), call["start"], call["stop"], call["block_size"])
    except Went as reason:
        if not refusal(reason, "ValueError"):
            raise
        return {"refused": True, "slots": None}
    return {"refused": False, "slots": as_plain(came, "the slots")}
