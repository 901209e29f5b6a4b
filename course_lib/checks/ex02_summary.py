"""The check of ex02.summary: the learner's `summary(requests, ttft_target_s, tpot_target_s)` describes many requests.

The one idea: every figure over many requests has a weight in it that its name does not say: a request, a token, a
second. The logs are drawn so that these differ: a few long answers with short gaps among many short ones. A case is a
figure, or a kind of log. The reference is written out in loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import floor
from typing import Any

import numpy as np

from course_lib.checks.compare import Wrong, unchanged, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_figures import TOLERANCE, Belief, Figure, FiguresCase, mean, rate
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex02_summary import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "summary", "summary(requests, ttft_target_s, tpot_target_s)"
NOT_CHECKED = "speed, logs without a request, requests without a token, times that run backwards"
P50, P90, TPOT, ITL = "ttft_p50_s", "ttft_p90_s", "tpot_mean_s", "itl_mean_s"
OUTPUT, GOOD = "output_tokens_per_s", "good_requests_per_s"
NAMES = (P50, P90, TPOT, ITL, OUTPUT, GOOD)
PERCENTILES, GOODPUT = "percentiles of the time to first token", "goodput"
EXACT, SINGLE, ALONE = "a target that is met exactly", "answers of one token", "a single request"
ORDER, INPUTS = "requests in any order", "the requests stay as they were"
# Each case: the figures that it judges.
CASES: dict[str, tuple[str, ...]] = {
    PERCENTILES: (P50, P90),
    "the mean of the requests' TPOT": (TPOT,),
    "the mean of all gaps": (ITL,),
    "output tokens per second": (OUTPUT,),
    GOODPUT: (GOOD,),
    EXACT: (GOOD,),
    SINGLE: (TPOT, ITL, OUTPUT, GOOD),
    ALONE: NAMES,
    ORDER: (P50, P90, OUTPUT, GOOD),
    INPUTS: (P50, OUTPUT),
}
SIZES = {ALONE: (1,), SINGLE: (8, 3), EXACT: (8,), INPUTS: (5,)}  # requests of each call
TTFT_TARGET_S, TPOT_TARGET_S = 0.5, 0.0625


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"requests", "ttft_target_s", "tpot_target_s"}, …]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {name: [drawn(rng, name, size) for size in SIZES.get(name, (11, 8))] for name in CASES}}


def drawn(rng: np.random.Generator, name: str, size: int) -> dict[str, Any]:
    """One call. All times are whole 1/1024 s, so that a target can be met exactly; drawn again until beliefs differ."""
    while True:
        requests = [drawn_request(rng, name, number, size) for number in range(size)]
        if name == ORDER:
            requests = [requests[i] for i in rng.permutation(size)]
        call = {"requests": requests, "ttft_target_s": TTFT_TARGET_S, "tpot_target_s": TPOT_TARGET_S}
        if tells_apart(name, Logs(call)):
            return call


def drawn_request(rng: np.random.Generator, name: str, number: int, size: int) -> dict[str, Any]:
    """Request `number` of `size`: they arrive in turn, and the last one is the last to end."""
    tokens = int(rng.integers(24, 40)) if number % 4 == 1 or number == size - 1 else int(rng.integers(2, 6))
    if name == SINGLE and (size == 3 or number % 3 == 0):
        tokens = 1
    least, most = (8, 30) if tokens > 20 else (50, 80)  # of a gap
    gaps = rng.integers(least, most, tokens)
    gaps[0] = rng.integers(200, 900)
    if name == EXACT and number % 2:
        gaps[0], gaps[1:] = 512, 64
    arrival = 102_400 + 700 * number + int(rng.integers(0, 300)) + 3000 * (number == size - 1)
    times = (arrival + gaps.cumsum()) / 1024
    return {"arrival_s": arrival / 1024, "token_times_s": times.tolist()}


def tells_apart(name: str, log: Logs) -> bool:
    """Whether each wrong belief gives another figure than the right one, where it can."""
    right, requests = log.good(), len(log.ttft)
    if name == ALONE:
        return right == 1
    if requests == 3:  # none of them has a TPOT
        return 0 < right < requests
    same = any(percentile(log.ttft, q) == percentile(sorted(log.ttft), q) for q in (50, 90))
    if same and name in (PERCENTILES, ORDER, INPUTS):
        return False
    if name == ORDER and not (min(log.arrivals) < log.arrivals[0] and max(log.ends) > log.ends[-1]):
        return False
    wrong = log.wrong_counts()
    wrong = {said: count for said, count in wrong.items() if CAN_DIFFER.get(said, name) == name}
    if name == GOODPUT and len(set(list(wrong.values())[:4])) < 4:  # one target, the other, either, none: all different
        return False
    return GOOD not in CASES[name] or (right > 0 and right not in wrong.values() and log.exact() == (name == EXACT))


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are its figures in `outputs` the right ones?"""
    return verdict(SummaryCase, inputs, outputs)


BELOW = "A target that is met exactly is met."
ALONE_LATE = "An answer of one token has no TPOT, so there is nothing in it that could miss that target."
CAN_DIFFER = {BELOW: EXACT, ALONE_LATE: SINGLE}  # beliefs that only one kind of log can show


class Logs:
    """What the logs of a call say, taken apart."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.arrivals: list[float] = []
        self.ends: list[float] = []
        self.ttft: list[float] = []
        self.whole: list[float] = []
        self.counts: list[int] = []
        self.gaps: list[list[float]] = []
        for request in call["requests"]:
            arrival, times = request["arrival_s"], request["token_times_s"]
            self.arrivals.append(arrival)
            self.ends.append(times[-1])
            self.ttft.append(times[0] - arrival)
            self.whole.append(times[-1] - arrival)
            self.counts.append(len(times))
            self.gaps.append([times[i] - times[i - 1] for i in range(1, len(times))])
        self.all_gaps = [gap for gaps in self.gaps for gap in gaps]
        self.seconds = max(self.ends) - min(self.arrivals)
        self.tpot = [mean(gaps) for gaps in self.gaps]
        self.in_time = [wait <= call["ttft_target_s"] for wait in self.ttft]
        self.in_pace = [tpot is None or tpot <= call["tpot_target_s"] for tpot in self.tpot]
        self.targets = call["ttft_target_s"], call["tpot_target_s"]

    def exact(self) -> bool:
        """Whether a target is met exactly by some request."""
        return self.targets[0] in self.ttft or self.targets[1] in self.tpot

    def good(self) -> int:
        return sum(time and pace for time, pace in zip(self.in_time, self.in_pace))

    def wrong_counts(self) -> dict[str, int]:
        """What is counted as good by each wrong belief, by what there is to say about it."""
        first, pace = self.targets
        every = list(zip(self.in_time, self.in_pace, self.ttft, self.whole, self.counts, self.gaps))
        return {
            BELOW: sum(wait < first and (not gaps or sum(gaps) / len(gaps) < pace) for *_, wait, _, _, gaps in every),
            "Only the target for TTFT was asked about.": sum(self.in_time),
            "Only the target for TPOT was asked about.": sum(self.in_pace),
            "Requests that met one of the targets were counted. They have to meet both.": sum(
                time or steady for time, steady, *_ in every
            ),
            "All requests were counted, whether they met the targets or not.": len(every),
            ALONE_LATE: sum(time and steady and count > 1 for time, steady, _, _, count, _ in every),
            "The tokens of good requests were counted, not the requests.": sum(
                count for time, steady, _, _, count, _ in every if time and steady
            ),
            "Bad requests were counted instead of good ones.": len(every) - self.good(),
            "Every single gap was held against the target. TPOT is the mean gap of an answer.": sum(
                time and max(gaps, default=0) <= pace for time, *_, gaps in every
            ),
            "The whole time was held against the target for TTFT.": sum(
                whole <= first and steady for _, steady, _, whole, *_ in every
            ),
            "The wait for the first token is in the TPOT that was held against the target.": sum(
                time and whole / count <= pace for time, _, _, whole, count, _ in every
            ),
            "Gaps were divided by N for the TPOT that was held against the target; there are N - 1 of them.": sum(
                time and sum(gaps) / count <= pace for time, *_, count, gaps in every
            ),
        }

    def figure(self, name: str) -> Figure:
        if name in (P50, P90):
            return percentile(sorted(self.ttft), 50 if name == P50 else 90)
        if name == TPOT:
            return mean([tpot for tpot in self.tpot if tpot is not None])
        if name == ITL:
            return mean(self.all_gaps)
        return rate(sum(self.counts) if name == OUTPUT else self.good(), self.seconds)


def percentile(ordered: list[float], q: float) -> float:
    """Between the neighbours of place q/100 · (m - 1), in proportion."""
    place = q / 100 * (len(ordered) - 1)
    below = floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


MEANING = {
    P50: "half of the requests wait less for their first token, half wait more",
    P90: "nine of ten requests wait less for their first token",
    TPOT: "the mean over requests, each counted once",
    ITL: "the mean over all gaps of all requests, each gap counted once",
    OUTPUT: "new tokens of all requests, divided by the time from the first arrival to the last token",
    GOOD: "requests that met both targets, divided by the time from the first arrival to the last token",
}


class SummaryCase(FiguresCase):
    CALL = CALL
    JUDGED = CASES
    MEANING = MEANING

    def went_in(self, call: dict[str, Any]) -> str:
        sizes = sorted(len(request["token_times_s"]) for request in call["requests"])
        many = f"{len(sizes)} requests" if len(sizes) > 1 else "1 request"
        answers = (
            f"{sizes[0]} to {sizes[-1]} tokens" if sizes[0] < sizes[-1] else f"{sizes[0]} token{'s' * (sizes[0] != 1)}"
        )
        return f"the logs of {many}, with answers of {answers}"

    def read(self, call: dict[str, Any]) -> Logs:
        return Logs(call)

    def beliefs(self, name: str, log: Logs) -> Iterator[Belief]:
        return beliefs(name, log)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["requests"], answer.get("requests")):
            return None
        return Wrong("The call changed the requests that it was given. Make lists of your own.")


def beliefs(name: str, log: Logs) -> Iterator[Belief]:
    """Each way to get a figure wrong: what there is to say, and the figure of it."""
    defined = [tpot for tpot in log.tpot if tpot is not None]
    m, seconds, total = len(log.ttft), log.seconds, sum(log.counts)
    rates = [count / whole for count, whole in zip(log.counts, log.whole)]
    if name in (P50, P90):
        q, ordered = int(name[6:8]), sorted(log.ttft)
        place = q / 100 * (m - 1)
        yield "The list was not sorted: a percentile lies between neighbours in size.", percentile(log.ttft, q)
        yield "This is the longest wait.", max(log.ttft)
        near = "A percentile lies between two neighbours, in proportion; here one of the two was taken."
        yield from ((near, ordered[at]) for at in (floor(place), min(floor(place) + 1, m - 1)))
        place_said = "With m values the place is q/100 · (m - 1), counted from 0; not q/100 · m."
        yield place_said, ordered[min(floor(q / 100 * m), m - 1)]
        yield place_said, percentile([*ordered, ordered[-1]], q)
        yield "This is the mean. A few long waits move the mean, and not the middle.", mean(log.ttft)
        yield "The list was sorted downwards: this is the percentile from the other end.", percentile(ordered, 100 - q)
        yield "This is a percentile of the whole times, not of the TTFTs.", percentile(sorted(log.whole), q)
    elif name == TPOT:
        yield (
            "This is the mean over all gaps, so long answers count more. Each request counts once here.",
            mean(log.all_gaps),
        )
        zeros = [tpot or 0.0 for tpot in log.tpot]
        yield "Requests without a TPOT were counted as 0. They have none, so they are left out.", mean(zeros)
        yield "There is no TPOT to take the mean of, so the figure is None.", 0.0 if not defined else None
        yield (
            "The wait for the first token went into it: whole times divided by all tokens.",
            mean([whole / count for whole, count in zip(log.whole, log.counts)]),
        )
        yield (
            "There are N - 1 gaps between N tokens; these were divided by N.",
            mean([sum(gaps) / (len(gaps) + 1) for gaps in log.gaps]),
        )
        yield "This is the middle one of the TPOTs, not their mean.", float(np.median(defined)) if defined else None
    elif name == ITL:
        yield (
            "This is the mean of the requests' means: each gap should count once, so long answers count more.",
            mean(defined),
        )
        yield "The waits for the first token are among the gaps.", mean([*log.ttft, *log.all_gaps])
        yield "There is no gap to take the mean of, so the figure is None.", 0.0 if not log.all_gaps else None
        yield (
            "There are fewer gaps than tokens; the sum of the gaps was divided by the tokens.",
            sum(log.all_gaps) / total,
        )
    elif name == OUTPUT:
        yield "These are the rates of the requests added up. They do not all run at the same time.", sum(rates)
        yield "This is the mean of the requests' rates: what a user sees, not what the server does.", mean(rates)
        yield (
            "The times of the requests were added up. Where they overlap, that counts a second twice.",
            rate(total, sum(log.whole)),
        )
        yield "This was divided by the longest request, not by the time of all of them.", rate(total, max(log.whole))
        first = "The time begins with the first arrival, not with the first token."
        yield first, rate(total, max(log.ends) - min(a + wait for a, wait in zip(log.arrivals, log.ttft)))
        yield "The first token of each answer is a new token, too.", rate(len(log.all_gaps), seconds)
        last = "The last request in the list need not end last, nor the first arrive first."
        yield last, rate(total, log.ends[-1] - log.arrivals[0])
        yield last, rate(total, log.ends[-1] - min(log.arrivals))
        yield last, rate(total, max(log.ends) - log.arrivals[0])
        yield "These are requests per second. The figure counts tokens.", rate(m, seconds)
    elif name == GOOD:
        yield from goodput_beliefs(log)


def goodput_beliefs(log: Logs) -> Iterator[Belief]:
    yield "This is a number of requests. Asked are requests per second.", float(log.good())
    yield "This is a share of the requests. Asked are requests per second.", log.good() / len(log.ttft)
    yield from ((said, rate(count, log.seconds)) for said, count in log.wrong_counts().items())
