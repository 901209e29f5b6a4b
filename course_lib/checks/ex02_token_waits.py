"""The check of ex02.token_waits: a benchmark that put TTFT among the inter-token latencies, mended by the learner.

The one idea: that of `ex02_benchmarks`. An answer of one token has no gap at all, so it has a case of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Wrong, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_benchmarks import NOT_CHECKED, TOLERANCE, BenchmarkCase, call_of, prefill_s, tokens
from course_lib.checks.ex02_figures import Belief, unlike
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_token_waits import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "token_waits", "token_waits(machine, prompt, new_tokens)"
CASES = {"an answer of several tokens": (4, 12), "an answer of two tokens": (2, 2), "an answer of one token": (1, 1)}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"machine", "busy", "given": [prompt, new_tokens]}]}}."""
    rng = np.random.default_rng(seed)
    cases = {}
    for name, (least, most) in CASES.items():
        prompt = rng.integers(0, 100, int(rng.integers(10, 200))).tolist()
        gaps = (rng.permutation(np.arange(15, 60))[:5] / 1000).tolist()
        cases[name] = [call_of(rng, prompt, int(rng.integers(least, most, endpoint=True)), gaps_s=gaps)]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those that the machine should give?"""
    return verdict(TokenWaits, inputs, outputs)


class TokenWaits(BenchmarkCase):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        prompt, new = call["given"]
        return f"a prompt of {tokens(len(prompt))}, {tokens(new, 'new token')}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        (prompt, new), repeated = call["given"], call["machine"]["gaps_s"]
        ttft = prefill_s(call, len(prompt))
        gaps = [repeated[number % len(repeated)] for number in range(new - 1)]
        came = answer.get("figure")
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        if not isinstance(came, list) or len(came) != 2:
            return Wrong(f"{FUNCTION} should return two things, (ttft_s, itl_s), as it did.", came=what_came(came))
        first = unlike("ttft_s", ttft, came[0], of_ttft(call, ttft, gaps), "TTFT is the wait for the first token.")
        if first:
            return replace(first, where="ttft_s")
        later = unlike("itl_s", gaps, came[1], of_itl(ttft, gaps), "ITLs are the gaps before each token but the first.")
        return later and replace(later, where="itl_s")


def of_ttft(call: dict[str, Any], ttft: float, gaps: list[float]) -> Iterator[Belief]:
    yield "This is a reading of the clock, not a duration.", call["machine"]["clock_s"] + ttft
    yield "This is the whole time, to the last token.", ttft + sum(gaps)
    yield "No time had passed yet: the clock was read before the first token was there.", 0.0


def of_itl(ttft: float, gaps: list[float]) -> Iterator[Belief]:
    among = "The wait for the first token is still among the gaps. It is TTFT, and no inter-token latency."
    yield among, [ttft, *gaps]
    yield among, [ttft, *gaps[:-1]]
    yield "The first gap is missing: the one between the first and the second token.", gaps[1:]
    yield "The last gap is missing.", gaps[:-1]
    since = [ttft + sum(gaps[: number + 1]) for number in range(len(gaps))]
    yield "These are times since the beginning. Each gap begins with the token before.", since
