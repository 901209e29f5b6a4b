"""Runs a learner's `append(cache, layer, k, v)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own, and each call gets a new dictionary with all
that the call before left in its own, so what was kept elsewhere is not found again. What a call returned is copied at
once and again at the end, and so are the tensors that were handed in. What should have come back is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called, pair
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`, whose calls are {"cache": int, "layer": int, "k": [H, n, D],
    "v": [H, n, D]} in order: see `run_cases`."""
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call returned; when all are done, what became of that is added."""
    caches: dict[int, list[dict[Any, Any]]] = {}  # earlier dictionaries stay, so that each has a place of its own
    answers: list[dict[str, Plain]] = []
    held: list[dict[str, object]] = []
    for call in calls:
        k, v = torch.from_numpy(call["k"].copy()), torch.from_numpy(call["v"].copy())  # [H, n, D]
        cache = caches.setdefault(call["cache"], [{}])
        cache.append(cache[-1].copy())
        came = called(code, cache[-1], call["layer"], k, v)
        keys, values = pair(came, ("keys", "values"))
        held.append({"keys": keys, "values": values, "k": k, "v": v})
        answers.append({name: as_plain(thing, name) for name, thing in held[-1].items()})
        yield answers[-1]
    for answer, things in zip(answers, held, strict=True):
        answer |= {f"{name}_later": as_plain(thing, name) for name, thing in things.items()}
