"""The check of ex02.prompt_rate: a benchmark that called prompts per second tokens per second, mended by the learner.

The one idea: that of `ex02_benchmarks`. Prompts of the same length hide who counts only one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_benchmarks import NOT_CHECKED, TOLERANCE, BenchmarkCase, call_of, prefill_s, tokens
from course_lib.checks.ex02_figures import Belief, Figure
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_prompt_rate import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "prompt_rate", "prompt_rate(machine, prompts)"
SAME, DIFFERENT = "prompts of the same length", "prompts of different lengths"
CASES = {"a single prompt": 1, SAME: 3, DIFFERENT: 4}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"machine", "busy", "given": [prompts]}]}}."""
    rng = np.random.default_rng(seed)
    cases = {}
    for name, count in CASES.items():
        lengths = rng.permutation(np.arange(40, 180))[:count]
        if name == SAME:
            lengths[:] = lengths[0]
        if name == DIFFERENT:  # the first is neither the shortest nor the longest, nor the mean of all
            lengths = np.sort(lengths)[[1, 0, 2, 3]]
        prompts = [rng.integers(0, 100, int(length)).tolist() for length in lengths]
        cases[name] = [call_of(rng, prompts)]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those that the machine should give?"""
    return verdict(PromptRate, inputs, outputs)


class PromptRate(BenchmarkCase):
    CALL = CALL
    FIGURE = "prompt_tokens_per_s"
    MEANING = "The figure is prompt tokens per second: how many were read, divided by how long that took."

    def went_in(self, call: dict[str, Any]) -> str:
        return " and ".join(f"a prompt of {tokens(len(prompt))}" for prompt in call["given"][0])

    def right(self, call: dict[str, Any]) -> Figure:
        total = sum(len(prompt) for prompt in call["given"][0])
        return total / prefill_s(call, total)

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        lengths = [len(prompt) for prompt in call["given"][0]]
        seconds = prefill_s(call, sum(lengths))
        yield "These are prompts per second. The name says tokens: count those.", len(lengths) / seconds
        yield "These are passes per second. The name says tokens: count those.", 1 / seconds
        padded = "The prompts are of different lengths: add up the length of each."
        yield from ((padded, len(lengths) * each / seconds) for each in (lengths[0], max(lengths), min(lengths)))
        yield "Only the tokens of one prompt were counted.", lengths[0] / seconds
        yield "Only the tokens of one prompt were counted.", lengths[-1] / seconds
        yield (
            "This is the mean over prompts. All of them are read in the same time.",
            sum(lengths) / len(lengths) / seconds,
        )
