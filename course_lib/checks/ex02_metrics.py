"""The check of ex02.metrics: the learner's `metrics(arrival_s, token_times_s, prompt_tokens)` reads a request's log.

The one idea: a case is a figure, so whoever gets one wrong loses that one. Each figure is worked out here by hand from
the times of a log; two more cases are logs that leave some figures undefined.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Wrong, unchanged, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_figures import TOLERANCE, Belief, Figure, FiguresCase, rate
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_metrics import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "metrics", "metrics(arrival_s, token_times_s, prompt_tokens)"
NOT_CHECKED = "logs that make no sense: no token at all, times that run backwards"
NAMES = (
    "ttft_s", "itl_s", "tpot_s", "end_to_end_s", "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s",
)  # fmt: skip
ONE, TOGETHER, INPUTS = (
    "an answer of one token",
    "tokens that come at the same moment",
    "the list of times stays as it was",
)
# Each case: the figures that it judges.
CASES: dict[str, tuple[str, ...]] = {
    "the time to first token": ("ttft_s",),
    "the inter-token latencies": ("itl_s",),
    "the time per output token": ("tpot_s",),
    "the whole time": ("end_to_end_s",),
    "prompt tokens per second": ("prefill_tokens_per_s",),
    "new tokens per second while decoding": ("decode_tokens_per_s",),
    "new tokens per second over the whole": ("output_tokens_per_s",),
    ONE: NAMES,
    TOGETHER: NAMES,
    INPUTS: ("itl_s",),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"arrival_s", "token_times_s", "prompt_tokens"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        cases[name] = []
        for tokens in {ONE: (1, 1), TOGETHER: (5, 4), INPUTS: (4,)}.get(name, (3, 2, 7, 30)):
            gaps = rng.integers(10, 90, tokens) / 1000  # from 0.01 to 0.09 s
            gaps[0] = rng.integers(200, 3000) / 1000
            if name == TOGETHER:  # first two of several, then all of them
                gaps[2 : 4 if tokens == 5 else None] = 0
                gaps[1] = 0 if tokens == 4 else gaps[1]
            arrival = float(rng.integers(1, 100_000)) / 8
            times = (arrival + gaps.cumsum()).tolist()
            cases[name].append(
                {"arrival_s": arrival, "token_times_s": times, "prompt_tokens": int(rng.integers(20, 900))}
            )
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are its figures in `outputs` the right ones?"""
    return verdict(MetricsCase, inputs, outputs)


class Log:
    """What a log says, taken apart."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.arrival, self.times, self.prompt = call["arrival_s"], call["token_times_s"], call["prompt_tokens"]
        self.tokens = len(self.times)
        self.first = self.times[0] - self.arrival
        self.whole = self.times[-1] - self.arrival
        self.gaps = [self.times[i] - self.times[i - 1] for i in range(1, self.tokens)]
        self.decode = sum(self.gaps)

    def figure(self, name: str) -> Figure:
        figures: dict[str, Figure] = {
            "ttft_s": self.first,
            "itl_s": self.gaps,
            "tpot_s": self.decode / len(self.gaps) if self.gaps else None,
            "end_to_end_s": self.whole,
            "prefill_tokens_per_s": rate(self.prompt, self.first),
            "decode_tokens_per_s": rate(self.tokens - 1, self.decode),
            "output_tokens_per_s": rate(self.tokens, self.whole),
        }
        return figures[name]


MEANING = {
    "ttft_s": "from the arrival to the first token",
    "itl_s": "the gap before each token but the first",
    "tpot_s": "the time after the first token, divided by the number of tokens after the first",
    "end_to_end_s": "from the arrival to the last token",
    "prefill_tokens_per_s": "prompt tokens, divided by the time to the first new token",
    "decode_tokens_per_s": "tokens after the first, divided by the time after the first",
    "output_tokens_per_s": "new tokens, divided by the whole time",
}


class MetricsCase(FiguresCase):
    CALL = CALL
    JUDGED = CASES
    MEANING = MEANING

    def went_in(self, call: dict[str, Any]) -> str:
        tokens = len(call["token_times_s"])
        return f"the times of {tokens} token{'s' * (tokens != 1)}, {call['prompt_tokens']} prompt tokens"

    def read(self, call: dict[str, Any]) -> Log:
        return Log(call)

    def beliefs(self, name: str, log: Log) -> Iterator[Belief]:
        return beliefs(name, log)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["token_times_s"], answer.get("token_times_s")):
            return None
        return Wrong("The call changed the list of times that it was given. Copy it before you change it.")


def beliefs(name: str, log: Log) -> Iterator[Belief]:
    """Each way to get a figure wrong: what there is to say, and the figure of it."""
    N, times, gaps = log.tokens, log.times, log.gaps
    undefined = "After a single token there is no gap" if N == 1 else "No time passes after the first token"
    if log.figure(name) is None:
        yield f"{undefined}, so this is undefined: None, not 0.", 0.0
        yield f"{undefined}, so this is undefined. Nothing of the wait for the first token belongs in it.", log.first
        yield f"{undefined}, so there are no tokens to count here: the figure is undefined, None.", rate(N, log.whole)
    if name == "ttft_s":
        yield "This is a reading of the clock. TTFT is a duration: it begins when the request arrives.", times[0]
        yield "This is the whole time, to the last token.", log.whole
        yield "This is the first gap between tokens, not the wait for the first token.", gaps[0] if gaps else None
        yield "This goes from the first token to the last. TTFT ends with the first token.", log.decode
    elif name == "itl_s":
        yield (
            "The wait for the first token is among the gaps. It is TTFT and no inter-token latency.",
            [log.first, *gaps],
        )
        yield from (("These are readings of the clock, not gaps.", some) for some in (times, times[1:]))
        yield "The last gap is missing.", gaps[:-1]
        yield "The first gap is missing: the one between the first and the second token.", gaps[1:]
        yield "These are later minus earlier with the sign turned round.", [-gap for gap in gaps]
        yield "These are the times since the first token, not the gaps.", [time - times[0] for time in times[1:]]
        yield "These are the times since the arrival, not the gaps.", [time - log.arrival for time in times]
    elif name == "tpot_s":
        yield "The wait for the first token went into it: the whole time was divided by all tokens.", log.whole / N
        yield "The wait for the first token went into it, before dividing by N - 1.", rate(log.whole, N - 1)
        yield "There are N - 1 gaps between N tokens; this was divided by N.", log.decode / N
        yield "This is the middle one of the gaps, not their mean.", float(np.median(gaps)) if gaps else None
    elif name == "end_to_end_s":
        yield "The wait for the first token is missing: the whole time begins when the request arrives.", log.decode
        yield "This is a reading of the clock, not a duration.", times[-1]
        yield "This is the time to the first token only.", log.first
    elif name == "prefill_tokens_per_s":
        yield "This counts requests, not tokens: one request divided by its TTFT.", rate(1, log.first)
        yield "New tokens were counted. Prefill reads the tokens of the prompt.", rate(N, log.first)
        yield (
            "Decoding went into the time. The prompt has been read when the first token comes.",
            rate(log.prompt, log.whole),
        )
        yield (
            "The first new token was counted as well. Only prompt tokens are read here.",
            rate(log.prompt + 1, log.first),
        )
    elif name == "decode_tokens_per_s":
        yield "The first token comes from prefill. After it, there are N - 1 tokens.", rate(N, log.decode)
        yield "The wait for the first token went into the time.", rate(N - 1, log.whole)
        yield "This is the rate over the whole time, with the wait for the first token in it.", rate(N, log.whole)
    elif name == "output_tokens_per_s":
        yield "The wait for the first token is missing in the time. This figure is over the whole.", rate(N, log.decode)
        yield "This is the rate while decoding, without the first token and the wait for it.", rate(N - 1, log.decode)
        yield "The first token is a new token, too.", rate(N - 1, log.whole)
        yield "Prompt tokens were counted. They are read, not put out.", rate(log.prompt + N, log.whole)
