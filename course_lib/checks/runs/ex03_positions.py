"""Runs a learner's `positions(cache, held, n)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own, dictionaries that are empty at first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import Went, as_plain, called, is_starter
from course_lib.checks.plain import Plain


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls {"cache": int, "held": int, "n": int} in order. Raises nothing but
    KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        cases[name] = {"calls": [], "ended": None} if starter else case(code, calls)
    return {"starter": starter, "cases": cases}


def case(code: Callable[..., Any], calls: list[dict[str, int]]) -> dict[str, Plain]:
    """What each call returned, and why the case ended early if it did."""
    caches: dict[int, dict[Any, Any]] = {}
    answers: list[Plain] = []
    ended: Plain = None
    try:
        for call in calls:
            came = called(code, caches.setdefault(call["cache"], {}), call["held"], call["n"])
            if type(came) is range:  # as good as a list, but it may be endless
                came = list(came[: call["n"] + 1])
            answers.append({"positions": as_plain(came, "the positions")})
    except Went as reason:
        ended = {"call": len(answers), **reason.data}
    return {"calls": answers, "ended": ended}
