"""Whoever does nothing earns nothing: functions that return a constant, or what they were given, pass no case at all.

All exercises are tried, a new one by itself. Points are a share of the cases, so a case that a constant passes would
pay for it as soon as an exercise is worth more.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from course_lib.checks import check_named, names
from course_lib.checks.contract import answer

SEEDS = (1, 20)


class Silent:
    """Where a class is asked for: one with any method at all, each of which takes anything and returns None."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *given: None


def raises(*given: Any) -> None:
    raise ValueError("no")


NOTHING: dict[str, Callable[..., Any]] = {
    "None": lambda *given: None,
    "True": lambda *given: True,
    "0": lambda *given: 0,
    "an empty text": lambda *given: "",
    "an empty list": lambda *given: [],
    "an empty dictionary": lambda *given: {},
    "two zeros": lambda *given: (0, 0),
    "two empty lists": lambda *given: ([], []),
    "the first argument": lambda *given: given[0],
    "the last argument": lambda *given: given[-1],
    "the last two arguments": lambda *given: given[-2:],
    "all arguments": lambda *given: given,
    "each argument made zeros": lambda *given: [g * 0 if hasattr(g, "shape") else 0 for g in given],
    "a NumPy zero": lambda *given: np.zeros(()),
    "a table of one True": lambda *given: np.ones((1, 1), dtype=bool),
    "a tensor of zeros": lambda *given: torch.zeros(1),
    "two tensors of zeros": lambda *given: (torch.zeros(1, 1), torch.zeros(1, 1)),
    "many zeros": lambda *given: [0] * 40,
    "NaN": lambda *given: float("nan"),
    "an object that does nothing": lambda *given: Silent(),
    "an error": raises,
}


@pytest.mark.parametrize("name", names())
def test_whoever_does_nothing_passes_no_case(name: str) -> None:
    check = check_named(name)
    passed = {
        (said, line.case)
        for said, code in NOTHING.items()
        for seed in SEEDS
        for line in answer(check, code, seed).lines
        if line.passed
    }
    assert passed == set()
