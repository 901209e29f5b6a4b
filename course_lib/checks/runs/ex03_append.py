"""Runs a learner's `append(cache, layer, k, v)` through some sequences of calls and writes down what came back.

The one idea: it only feeds and watches. Each case has caches of its own; what a call returned is copied at once and
again at the end, and so are the tensors that were handed in. What should have come back is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import Went, as_plain, called, is_starter, pair
from course_lib.checks.plain import Plain


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls {"cache": int, "layer": int, "k": [H, n, D], "v": [H, n, D]} in order.
    Raises nothing but KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        cases[name] = {"calls": [], "ended": None} if starter else case(code, calls)
    return {"starter": starter, "cases": cases}


def case(code: Callable[..., Any], calls: list[dict[str, Any]]) -> dict[str, Plain]:
    """One sequence of calls: what each returned, and why it ended early if it did."""
    caches: dict[int, dict[Any, Any]] = {}
    answers: list[dict[str, Plain]] = []
    held: list[dict[str, object]] = []
    ended: Plain = None
    try:
        for number, call in enumerate(calls):
            k, v = torch.from_numpy(call["k"].copy()), torch.from_numpy(call["v"].copy())  # [H, n, D]
            keys, values = pair(
                called(code, caches.setdefault(call["cache"], {}), call["layer"], k, v), ("keys", "values")
            )
            answers.append({"keys": as_plain(keys, "keys"), "values": as_plain(values, "values")})
            answers[number] |= {"k": as_plain(k, "k"), "v": as_plain(v, "v")}
            held.append({"keys": keys, "values": values, "k": k, "v": v})
        for answer, things in zip(answers, held, strict=True):
            answer |= {f"{name}_later": as_plain(thing, name) for name, thing in things.items()}
    except Went as reason:
        ended = {"call": len(answers), **reason.data}
    return {"calls": list(answers), "ended": ended}
