"""The check of ex02.decode_rate: a benchmark whose clock ran during the prefill, mended by the learner.

The one idea: that of `ex02_benchmarks`. A step takes the longer the more tokens were read before, from the middle on
much longer. So whoever times some of the steps only is found out, and whoever takes a typical one for all.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_benchmarks import NOT_CHECKED, TOLERANCE, BenchmarkCase, call_of, prefill_s, tokens
from course_lib.checks.ex02_figures import Belief, Figure, rate
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_decode_rate import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "decode_rate", "decode_rate(machine, prompt, steps)"
# Each case: from where to where the length of the prompt, and the number of steps, is drawn.
CASES = {
    "several steps": ((10, 60), (4, 12)),
    "a single step": ((10, 60), (1, 1)),
    "after a long prompt": ((300, 600), (3, 6)),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"machine", "busy", "given": [prompt, steps]}]}}."""
    rng = np.random.default_rng(seed)
    cases = {}
    for name, (lengths, steps) in CASES.items():
        prompt = rng.integers(0, 100, int(rng.integers(*lengths))).tolist()
        count = int(rng.integers(*steps, endpoint=True))
        grows: dict[str, Any] = {
            "held_token_s": int(rng.integers(2, 9)) / 10_000,
            "far_token_s": int(rng.integers(5, 20)) / 1000,
            "near_tokens": len(prompt) + count // 2,
        }
        cases[name] = [call_of(rng, prompt, count, **grows)]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those that the machine should give?"""
    return verdict(DecodeRate, inputs, outputs)


def step_times(call: dict[str, Any], first: int = 0) -> list[float]:
    """Seconds of each step, of as many that begin `first` steps later."""
    (prompt, steps), machine = call["given"], call["machine"]
    held = [len(prompt) + first + number for number in range(steps)]  # tokens, before each step
    far = [max(0, tokens - machine["near_tokens"]) for tokens in held]
    growth = machine["held_token_s"], machine["far_token_s"]
    return [machine["step_s"] + growth[0] * all_of_them + growth[1] * some for all_of_them, some in zip(held, far)]


class DecodeRate(BenchmarkCase):
    CALL = CALL
    FIGURE = "decode_tokens_per_s"
    MEANING = "The figure is decode steps, each of which makes a token, divided by the time of these steps alone."

    def went_in(self, call: dict[str, Any]) -> str:
        prompt, steps = call["given"]
        return f"a prompt of {tokens(len(prompt))}, {tokens(steps, 'step')}"

    def right(self, call: dict[str, Any]) -> Figure:
        times = step_times(call)
        return len(times) / sum(times)

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        times, prompt = step_times(call), len(call["given"][0])
        steps, decoding, reading = len(times), sum(times), prefill_s(call, prompt)
        in_it = "The prefill is still in the time. While it runs, no step is made"
        yield f"{in_it}: start the clock after it.", steps / (reading + decoding)
        yield f"{in_it}, and its tokens are not new ones.", (prompt + steps) / (reading + decoding)
        yield "Tokens of the prompt were counted. They are not new ones.", (prompt + steps) / decoding
        yield "One token too many was counted: each step makes one.", (steps + 1) / decoding
        yield "One token too few was counted: each step makes one.", (steps - 1) / decoding
        yield "One step was made without being timed, and counted all the same.", rate(steps, decoding - times[0])
        early = "A step was made before the clock was started. These are the steps after it, which take longer."
        yield early, steps / sum(step_times(call, first=1))
        some = "Only some of the steps were timed. A later step takes longer, since there is more to look at."
        yield from ((some, 1 / each) for each in (times[0], times[-1]))
        yield some, rate(steps - 1, decoding - times[0])
        typical = "This is the rate of a typical step. All were asked for, and some take much longer."
        yield typical, 1 / median(times)
        yield "This is the rate of prefill, not of the steps.", steps / reading
        yield "This is the rate of prefill, not of the steps.", prompt / reading
