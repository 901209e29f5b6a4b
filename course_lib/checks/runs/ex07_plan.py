"""Runs a learner's `plan(running, waiting, rows, budget)` on some moments of a server and writes down what came back.

The one idea: it only feeds and watches. Both dictionaries are copied afterwards as well, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case: see `run_calls`. A call is {"running": [[name, unread tokens]], "waiting":
    [[name, unread tokens]], "rows": int, "budget": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    running, waiting = dict(call["running"]), dict(call["waiting"])
    reads = as_plain(called(code, running, waiting, call["rows"], call["budget"]), "the reads")
    after = [[list(each) for each in requests.items()] for requests in (running, waiting)]
    return {"reads": reads, "after": as_plain(after, "the requests")}
