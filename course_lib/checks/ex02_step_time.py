"""The check of ex02.step_time: a benchmark that counted its warm-up, mended by the learner.

The one idea: that of `ex02_benchmarks`. All warm steps take the same, so any number of them may be left out; on a
machine that is warm already the benchmark was right as it was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_benchmarks import NOT_CHECKED, TOLERANCE, BenchmarkCase, call_of, tokens
from course_lib.checks.ex02_figures import Belief, Figure
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_step_time import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "step_time", "step_time(machine, repeats)"
WARM = "on a machine that is warm already"
CASES = {"several steps": (4, 9), "a single step": (1, 1), WARM: (3, 6)}  # how many steps are drawn


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"machine", "busy", "given": [repeats]}]}}."""
    rng = np.random.default_rng(seed)
    return {
        "cases": {
            name: [call_of(rng, int(rng.integers(*repeats, endpoint=True)), warm=name == WARM)]
            for name, repeats in CASES.items()
        }
    }


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those that the machine should give?"""
    return verdict(StepTime, inputs, outputs)


class StepTime(BenchmarkCase):
    CALL = CALL
    FIGURE = "step_s"
    MEANING = "The figure is the mean time of the steps after the warm-up: their sum, divided by how many they are."

    def went_in(self, call: dict[str, Any]) -> str:
        state = "is warm already" if call["machine"]["warm"] else "was just started"
        return f"{tokens(call['given'][0], 'step')} on a machine that {state}"

    def right(self, call: dict[str, Any]) -> Figure:
        step_s: float = call["machine"]["step_s"]
        return step_s

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        (repeats,), machine = call["given"], call["machine"]
        step = machine["step_s"]
        first = step + (0 if machine["warm"] else machine["first_s"])
        total = first + repeats * step
        longer = "It takes longer, because the machine was not warm."
        yield f"The first step is still in the mean. {longer}", total / (repeats + 1)
        yield "The first step is still in the mean, and one of the others is not.", (total - step) / repeats
        yield "The first step is still in the sum, though not in the number of steps.", total / repeats
        many = "The first step was left out of the sum, but it is still in the number of steps."
        yield many, repeats * step / (repeats + 1)
        yield many, (repeats - 1) * step / repeats
        yield f"This is the first step alone. {longer}", first
        yield "This is the sum of the steps, not their mean.", repeats * step
