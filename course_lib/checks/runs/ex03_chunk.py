"""Runs a learner's `read_chunk(cache, layer, q, k, v)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own, dictionaries that are empty at first; what was
handed in is copied after each call, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases

GIVEN = ("q", "k", "v")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"cache": int, "layer": int, "q": [H_q, n, D],
    "k": [H, n, D], "v": [H, n, D]} in order: see `run_cases`."""
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call returned."""
    caches: dict[int, dict[Any, Any]] = {}
    for call in calls:
        given = {name: torch.from_numpy(call[name].copy()) for name in GIVEN}
        came = called(code, caches.setdefault(call["cache"], {}), call["layer"], *given.values())
        output = as_plain(came, "the output")
        yield {"output": output} | {name: as_plain(given[name], name) for name in GIVEN}
