"""Runs a learner's `read_chunk(cache, layer, q, k, v)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own, dictionaries that are empty at first; what was
handed in is copied after each call, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import Went, as_plain, called, is_starter
from course_lib.checks.plain import Plain

GIVEN = ("q", "k", "v")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls {"cache": int, "layer": int, "q": [H_q, n, D], "k": [H, n, D], "v": [H, n, D]}
    in order. Raises nothing but KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        cases[name] = {"calls": [], "ended": None} if starter else case(code, calls)
    return {"starter": starter, "cases": cases}


def case(code: Callable[..., Any], calls: list[dict[str, Any]]) -> dict[str, Plain]:
    """What each call returned, and why the case ended early if it did."""
    caches: dict[int, dict[Any, Any]] = {}
    answers: list[Plain] = []
    ended: Plain = None
    try:
        for call in calls:
            given = {name: torch.from_numpy(call[name].copy()) for name in GIVEN}
            came = called(code, caches.setdefault(call["cache"], {}), call["layer"], *given.values())
            output = as_plain(came, "the output")
            answers.append({"output": output} | {name: as_plain(given[name], name) for name in GIVEN})
    except Went as reason:
        ended = {"call": len(answers), **reason.data}
    return {"calls": answers, "ended": ended}
