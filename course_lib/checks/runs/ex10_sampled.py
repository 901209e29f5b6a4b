"""Runs a learner's `accept_sampled(p, q, token)` on some distributions and writes down what came back.

The one idea: it only feeds and watches. Nothing is drawn: what is asked for are probabilities, which can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import as_plain, called, pair
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

NAMES = ("chance", "instead")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"p": [V], "q": [V], "token": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    p, q = (torch.from_numpy(call[name].copy()) for name in ("p", "q"))
    chance, instead = pair(called(code, p, q, call["token"]), NAMES)
    answer = {"chance": as_plain(chance, NAMES[0]), "instead": as_plain(instead, NAMES[1])}
    return answer | {"p": as_plain(p, "p"), "q": as_plain(q, "q")}
