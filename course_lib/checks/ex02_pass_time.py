"""The check of ex02.pass_time: a benchmark that read the clock before the work was done, mended by the learner.

The one idea: that of `ex02_benchmarks`. The benchmark warms the machine up and waits, and both matter: on one that was
just started, and on one that still has something to do.
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
from course_lib.checks.runs.ex02_pass_time import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "pass_time", "pass_time(machine)"
# Each case: is the machine warm, and how many steps have been handed to it already?
CASES = {
    "on a machine that was just started": (False, 0),
    "on a machine that is warm already": (True, 0),
    "on a machine that has work to do": (True, 3),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"machine", "busy", "given": []}]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {name: [call_of(rng, busy=busy, warm=warm)] for name, (warm, busy) in CASES.items()}}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those that the machine should give?"""
    return verdict(PassTime, inputs, outputs)


class PassTime(BenchmarkCase):
    CALL = CALL
    FIGURE = "pass_s"
    MEANING = "The figure is how long the second pass took, from handing it over until it was done."

    def went_in(self, call: dict[str, Any]) -> str:
        if busy := call["busy"]:
            return f"a warm machine that {tokens(busy, 'step')} have been handed to"
        return f"a machine that {'is warm already' if call['machine']['warm'] else 'was just started'}"

    def right(self, call: dict[str, Any]) -> Figure:
        step_s: float = call["machine"]["step_s"]
        return step_s

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        machine, busy = call["machine"], call["busy"]
        step, launch = machine["step_s"], machine["launch_s"]
        warm_up = step + (0 if machine["warm"] else machine["first_s"])
        before = busy * step - busy * launch  # what is left of the work that was there
        early = "The clock is still read before the work is done: this is how long it takes to hand a pass over."
        yield early, launch
        yield "No work was timed: the clock was started after it was done.", 0.0
        if not machine["warm"]:
            yield "The pass is the first one on this machine. Leave the warm-up where it was.", warm_up
        yield "The warm-up is in the time. Start the clock after it.", before + warm_up + step
        unwaited = "The warm-up was not waited for, so what was left of it is in the time."
        yield unwaited, before + warm_up + step - launch
        if busy:
            yield "The work that was there before was not waited for, so it is in the time.", before + step
        yield "Two passes were timed.", 2 * step
        yield "Only waiting was timed. Start the clock before the pass is handed over.", step - launch
