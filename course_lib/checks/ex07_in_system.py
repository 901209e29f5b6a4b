"""The check of ex07.in_system: the learner's `in_system(stays, begin_s, end_s)` counts who is there, over time.

The one idea: a mean over time is not one over requests or over moments at which something happens, and a window cuts
through stays. The logs are drawn so that all of these differ. The reference cuts time into pieces in which nothing
changes, and counts heads in each.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from course_lib.checks.compare import Wrong, unchanged, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex02_figures import TOLERANCE, Belief, Figure, FiguresCase, alike, mean
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex07_in_system import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

MOST_TRIES = 5000  # to draw a case; a few dozen at most are likely
FUNCTION, CALL = "in_system", "in_system(stays, begin_s, end_s)"
NOT_CHECKED = "stays and windows that end before they begin, speed"
MEAN, MOST = "mean_in_system", "most_in_system"
INSIDE, PEAK, STILL = "the mean over time", "the most at a time", "some are still there"
BEFORE, AFTER = "some came before the window", "some leave after the window"
EDGE, OUTSIDE = "several come and leave at the same moment", "stays that touch the window, or lie outside"
INPUTS = "the stays stay as they were"
CASES: dict[str, tuple[str, ...]] = {  # the figures that each case judges
    INSIDE: (MEAN,), PEAK: (MOST,), STILL: (MEAN, MOST), BEFORE: (MEAN, MOST), AFTER: (MEAN, MOST), EDGE: (MEAN, MOST),
    OUTSIDE: (MEAN, MOST), INPUTS: (MEAN, MOST),
}  # fmt: skip
TIES = (EDGE, 2)  # a call
Stay = tuple[float, float]


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"stays": [[arrival, end or None]], "begin_s", "end_s"}, …]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {case: [drawn(rng, case, number) for number in range(2 + (case == EDGE))] for case in CASES}}


def drawn(rng: np.random.Generator, case: str, number: int) -> dict[str, Any]:
    """One call, in which each wrong belief that its case is about gives another figure than the right one.

    Times are multiples of 1/8 s, so that moments can be the same; they are only where a case is about that. In two
    cases they are multiples of 1/1024 s instead: whoever looks every now and then misses something.
    """
    for _ in range(MOST_TRIES):
        call = sketched(rng, case, number)
        log = Log(call)
        times = [time for stay in call["stays"] for time in stay if time is not None]
        if case not in (EDGE, OUTSIDE) and len({*times, log.begin, log.end}) < len(times) + 2:
            continue
        shown = SHOWN.get(case, ()) if (case, number) != TIES else (SAME_STAY, SAME_MOMENT)
        wrong = [said for name in CASES[case] for said, came in beliefs(name, log) if not alike(log.figure(name), came)]
        if all(said in wrong for said in shown):
            return call
    raise RuntimeError(f"{MOST_TRIES} tries, and in none the beliefs of the case “{case}” show: mend `sketched`")


def sketched(rng: np.random.Generator, case: str, number: int) -> dict[str, Any]:
    begin, end = 8 * int(rng.integers(40, 60)), 8 * int(rng.integers(90, 99))  # in eighths of a second
    arrivals = rng.integers(begin + 3, end - 100, 6 + number)
    stays: list[list[int | None]] = [[int(a), int(min(a + rng.integers(40, 180), end - 2))] for a in arrivals]
    early = [begin - int(some) for some in rng.integers(60, 200, 3)]
    late = [end + int(some) for some in rng.integers(60, 200, 4)]
    if case == STILL:
        stays[1][1] = stays[4][1] = None
    elif case == BEFORE:  # in the second call most are there when the window begins
        stays = stays if number == 0 else [[begin + 150, begin + 161], [begin + 162, begin + 190]]
        stays += [[early[0], begin + 30], [early[1], begin + 50], [early[2], begin + 11]]
    elif case == AFTER:  # in the second call more are there after its end than ever in it
        stays += [[end - 40, late[0]], [end - 21, late[1]]]
        stays += [[early[0], late[2]], [early[1], late[3]]] if number else []  # what is cut of them is the same
        for later in range(end + 1, end + 1 + 9 * number):
            stays.append([later, later + 39])
    elif case == EDGE:
        moment = begin + 60  # three are there, one leaves, one comes
        stays = [[moment - 20, moment], [moment - 11, moment + 9], [moment, moment + 31], [moment - 5, moment + 50]]
        stays += [[moment + 80, moment + 101 + 20 * number]]
        if (case, number) == TIES:  # all that comes at the same moment counts, and stays that are the same
            stays = [[moment, moment + 40] for _ in range(4)]
            stays += [[moment, moment + 31], [moment + 50, moment + 62]]
    elif case == OUTSIDE:
        stays = [[early[0], begin], [early[1], begin], [end, late[0]], [late[1], None], [early[2], begin - 2]]
        stays += [[begin + 40, begin + 77], [end, late[2]], [end, None]] if number else []
    unit = 1024 if case in (INSIDE, PEAK) else 8  # parts of a second
    if unit == 1024:
        begin, end = 128 * begin, 128 * end
        stays = [[128 * t + int(rng.integers(1, 128)) for t in each] for each in stays]  # type: ignore[operator]
    if case == PEAK and number:  # most are there for 12 thousandths of a second, and for none of its sixteenths
        moment = begin + 64 * int(rng.integers(300, 480)) + int(rng.integers(10, 20))
        stays += [[moment + i, moment + 20 + i] for i in range(8)]
    stays = [stays[i] for i in rng.permutation(len(stays))]
    return {
        "stays": [[a / unit, None if e is None else e / unit] for a, e in stays],  # type: ignore[operator]
        "begin_s": begin / unit,
        "end_s": end / unit,
    }


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the figures in `outputs` those of the window?"""
    return verdict(InSystemCase, inputs, outputs)


class Log:
    """Stays and a window, and what they come to."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.begin, self.end = call["begin_s"], call["end_s"]
        self.given: list[tuple[float, float | None]] = [(arrival, ended) for arrival, ended in call["stays"]]
        self.open: list[Stay] = [(a, float("inf") if e is None else e) for a, e in self.given]

    @property
    def seconds(self) -> float:
        return float(self.end - self.begin)

    def pieces(self) -> list[tuple[float, int]]:
        """The window in pieces in which nothing changes: how long each is, and how many are there in it."""
        inside = {time for stay in self.open for time in stay if self.begin < time < self.end}
        moments = sorted({self.begin, self.end} | inside)
        found = []
        for first, last in pairwise(moments):
            middle = (first + last) / 2
            found.append((last - first, sum(arrival < middle < ended for arrival, ended in self.open)))
        return found

    def figure(self, name: str) -> Figure:
        if name == MOST:
            return float(max(count for _, count in self.pieces()))
        return sum(length * count for length, count in self.pieces()) / self.seconds

    def cut(self, stays: list[Stay]) -> list[Stay]:
        """What lies of stays in the window."""
        cut = [(max(arrival, self.begin), min(ended, self.end)) for arrival, ended in stays]
        return [(arrival, ended) for arrival, ended in cut if arrival < ended]

    def mean_of(self, stays: list[Stay]) -> float:
        return sum(ended - arrival for arrival, ended in stays) / self.seconds


MEANING = {
    MEAN: "the number of requests that are there, each number weighted with the time for which it lasts",
    MOST: "the largest number of requests that are there at the same moment of the window",
}


class InSystemCase(FiguresCase):
    CALL = CALL
    JUDGED = CASES
    MEANING = MEANING

    def went_in(self, call: dict[str, Any]) -> str:
        window = f"a window from {call['begin_s']:g} s to {call['end_s']:g} s"
        return f"{len(call['stays'])} stays, {window}"

    def read(self, call: dict[str, Any]) -> Log:
        return Log(call)

    def beliefs(self, name: str, log: Log) -> Iterator[Belief]:
        return beliefs(name, log)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["stays"], answer.get("stays")):
            return None
        return Wrong("The call changed the stays that it was given. Make a list of your own.")


OVER_CHANGES = "This is a mean over the moments at which somebody comes or leaves. Weight each number with its time."
OVER_ARRIVALS = "This is a mean over arrivals: what those who came have found. Weight each number with its time."
PER_REQUEST = "This is the mean time that a request was there, not the mean number of requests."
ONLY_BUSY = "Time in which nobody was there counts, too, with the number 0."
WHOLE = "Whole stays were added up. Only what lies in the window counts."
FORGOT_OPEN = "Who is still there was left out. It is there up to the end of the window."
COUNTED = "This is the number of all requests. Not all of them were there at the same time."
EARLY_OUT = "Who came before the window began was left out. It may be there in it."
LATE_OUT = "Who leaves after the window has ended was left out. It is there up to the end of the window."
LATE_KEPT = "The window was not cut off at its end: who leaves later counts up to the end, and no further."
EARLY_KEPT = "The window was not cut off at its beginning: who came earlier counts from there on."
TOUCH = "Who leaves at the moment at which another comes is no longer there, so the two are never there together."
AT_COMING = "The most may be there at the beginning of the window, when nobody arrives."
EVER = "More were there at another time, outside the window."
AT_END = "At its end the window is over: who arrives then was not there in it."
SAME_STAY = "Two requests with the same times are two: a set, or a dictionary, keeps only one of them."
SAME_MOMENT = "Two requests that arrive at the same moment are two: a dictionary of arrivals keeps only one of them."
OWN_WINDOW = "The time is that of the window, not from the first arrival to the last end."
SHOWN = {
    INSIDE: (OVER_CHANGES, OVER_ARRIVALS, PER_REQUEST, ONLY_BUSY, OWN_WINDOW),
    PEAK: (COUNTED,),
    STILL: (FORGOT_OPEN, COUNTED),
    BEFORE: (EARLY_OUT, EARLY_KEPT, COUNTED),
    AFTER: (LATE_OUT, LATE_KEPT, COUNTED),
    EDGE: (TOUCH,),
    INPUTS: (OVER_CHANGES, COUNTED),
}


def beliefs(name: str, log: Log) -> Iterator[Belief]:
    """Each way to get a figure wrong: what there is to say, and the figure of it."""
    stays = log.cut(log.open)
    closed = [(arrival, ended) for arrival, ended in log.given if ended is not None]
    kinds = [
        (FORGOT_OPEN, log.cut(closed)),
        (EARLY_OUT, log.cut([stay for stay in log.open if stay[0] >= log.begin])),
        (LATE_OUT, log.cut([stay for stay in log.open if stay[1] <= log.end])),
        (LATE_OUT, log.cut([stay for stay in closed if stay[1] <= log.end])),
        (SAME_STAY, [*set(stays)]),
        (SAME_MOMENT, log.cut([*dict(log.open).items()])),
    ]
    if name == MOST:
        yield COUNTED, float(len(log.given))
        yield TOUCH, float(most(stays, touch=True))
        arrivals = [arrival for arrival, _ in log.open if log.begin < arrival < log.end]
        yield AT_COMING, float(max((there(log.open, moment) for moment in arrivals), default=0))
        for said, kept in kinds:
            yield said, float(most(kept))
        yield EVER, float(most(log.open))
        yield AT_END, float(sum(arrival <= log.end < ended for arrival, ended in log.open))
        yield (
            "Who leaves at the moment at which the window begins is not there in it.",
            float(sum(arrival <= log.begin <= ended for arrival, ended in log.open)),
        )
        return
    until = [(arrival, log.end if ended is None else ended) for arrival, ended in log.given]
    meets = [stay for stay in until if stay[0] < log.end and stay[1] > log.begin]
    for said, kept in kinds:
        yield said, log.mean_of(kept)
    yield LATE_KEPT, log.mean_of([(max(arrival, log.begin), ended) for arrival, ended in meets])
    yield EARLY_KEPT, log.mean_of([(arrival, min(ended, log.end)) for arrival, ended in meets])
    yield WHOLE, log.mean_of(meets)
    yield WHOLE, log.mean_of(until)
    negative = [(max(arrival, log.begin), min(ended, log.end)) for arrival, ended in log.open]
    yield "A stay that lies outside the window was counted with a time below 0.", log.mean_of(negative)
    counts = [count for _, count in log.pieces()]
    yield OVER_CHANGES, mean([float(count) for count in counts])
    yield OVER_CHANGES, mean([float(there(stays, moment)) for stay in stays for moment in stay])
    yield OVER_ARRIVALS, mean([float(there(stays, arrival)) for arrival, _ in stays])
    yield OVER_ARRIVALS, mean([float(there(stays, arrival) - 1) for arrival, _ in stays])
    yield PER_REQUEST, mean([ended - arrival for arrival, ended in stays])
    area = sum(length * count for length, count in log.pieces())
    busy = sum(length for length, count in log.pieces() if count)
    yield ONLY_BUSY, area / busy if busy else None
    if stays:
        yield OWN_WINDOW, area / (max(ended for _, ended in stays) - min(arrival for arrival, _ in stays))
    yield "The times were added up, and not divided by the length of the window.", area


def there(stays: list[Stay], moment: float) -> int:
    return sum(arrival <= moment < ended for arrival, ended in stays)


def most(stays: list[Stay], touch: bool = False) -> int:
    """The most at a time; with `touch` those are together, too, of whom one leaves as the other comes."""
    return max((sum(a <= moment < e or (touch and e == moment) for a, e in stays) for moment, _ in stays), default=0)
