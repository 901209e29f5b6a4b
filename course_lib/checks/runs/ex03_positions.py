"""Runs a learner's `positions(cache, held, n)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own, dictionaries that are empty at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"cache": int, "held": int, "n": int} in order: see
    `run_cases`."""
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call returned."""
    caches: dict[int, dict[Any, Any]] = {}
    for call in calls:
        came = called(code, caches.setdefault(call["cache"], {}), call["held"], call["n"])
        if type(came) is range:  # as good as a list, but it may be endless
            came = list(came[: call["n"] + 1])
        yield {"positions": as_plain(came, "the positions")}
