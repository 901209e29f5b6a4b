"""A run with many requests in numbers: how long they waited, how much was done, how full it was. It reads no clock.

The one idea: a number over many requests needs its population. ITL is taken over tokens: the gaps of all requests in
one heap, so a long answer counts often. TPOT is taken over requests, each once. Their means differ, hence their names.
Who got no token is in neither, so the counts of those who were refused, cancelled or still there stand beside them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise, zip_longest
from math import isfinite
from statistics import fmean

from course_lib.caches.contract import real
from course_lib.metrics import Timing, percentile
from course_lib.serving.record import Log, RequestRecord, StepRecord

Interval = tuple[float, float]  # from a time to a later one, in seconds; the end does not belong to it


@dataclass(frozen=True)
class Percentiles:
    """What `samples` numbers look like. A p99 of fewer than 100 samples says little more than the largest of them."""

    samples: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    largest: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """None for each number if there are no values."""
        if not values:
            return cls(0)
        p50, p90, p99 = (percentile(values, q) for q in (50, 90, 99))
        return cls(len(values), fmean(values), p50, p90, p99, max(values))


@dataclass(frozen=True)
class OverTime:
    """Of a number that changes: its mean, each value weighted with how long it lasted, and its largest value.

    The mean is None if no time passed.
    """

    mean: float | None
    most: float


@dataclass(frozen=True)
class Targets:
    """What a request must keep to count for goodput: TTFT and TPOT at most so long. None: no target of that kind."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            if (target := getattr(self, name)) is not None:
                real(target, f"a target of {name}, if there is one,", above=0)

    def met(self, timing: Timing) -> bool:
        """Whether both were kept. An answer of one token has no TPOT: its TTFT decides alone.

        (An answer without a token has no timing either. It meets no targets.)
        """
        in_time = self.ttft_s is None or timing.ttft_s <= self.ttft_s
        return in_time and (self.tpot_s is None or timing.tpot_s is None or timing.tpot_s <= self.tpot_s)


@dataclass(frozen=True)
class LittlesLaw:
    """Mean number in the system = arrival rate · mean time in the system (Little 1961), each measured on its own.

    The window is the whole run. Nobody is there before it, and who is still there at its end counts up to then, so the
    law is exact, in overload too: `gap` is rounding, or something was counted wrong.
    """

    mean_in_system: float
    arrived_per_s: float
    mean_time_in_system_s: float

    @property
    def gap(self) -> float:
        return self.mean_in_system - self.arrived_per_s * self.mean_time_in_system_s


@dataclass(frozen=True)
class Summary:
    """A whole run, from its first arrival to the last thing that happened, `duration_s` later.

    arrived = finished + cancelled + refused + unfinished; without_token of them got no token. preemptions: how often
    memory was taken away. ttft_s, itl_over_tokens_s, tpot_over_requests_s: of all requests that got tokens, whatever
    became of them; end_to_end_s: of those that finished.

    Rates are over the duration. Into the server: arrived_per_s, and prompt_tokens_per_s of the prompts that were read
    to their end. Out of it: finished_per_s, and new_tokens_per_s of all new tokens. goodput_per_s: requests that
    finished and met the targets. A rate is None if no time passed, goodput also without targets. offered_per_s is the
    rate while requests came: over the gaps between arrivals, not over the time that it took to serve the last of them.

    waiting and in_system: requests without memory, and requests at all. busy_share: of the duration, spent in steps.
    blocks_used_share: of the pool, while steps ran. What steps tell is None if none were recorded.
    """

    duration_s: float
    arrived: int
    finished: int
    cancelled: int
    refused: int
    unfinished: int
    without_token: int
    preemptions: int
    ttft_s: Percentiles
    itl_over_tokens_s: Percentiles
    tpot_over_requests_s: Percentiles
    end_to_end_s: Percentiles
    offered_per_s: float | None
    arrived_per_s: float | None
    prompt_tokens_per_s: float | None
    finished_per_s: float | None
    new_tokens_per_s: float | None
    targets: Targets | None
    met: int | None
    goodput_per_s: float | None
    in_system: OverTime
    waiting: OverTime | None
    busy_share: float | None
    blocks_used_share: OverTime | None
    littles_law: LittlesLaw | None

    def as_dict(self) -> dict[str, object]:
        """All of it, ready for JSON; the unit of percentiles stands in the name of what they are of."""
        law = None if self.littles_law is None else asdict(self.littles_law) | {"gap": self.littles_law.gap}
        return asdict(self) | {"littles_law": law}


def summary(log: Log, targets: Targets | None = None) -> Summary:
    """What the records of a run say. ValueError if nothing arrived, or for records that contradict themselves."""
    for record in log.requests:
        check_record(record)
    check_steps(log.steps)
    begin, end = window(log)
    duration = end - begin
    timed = [(record, timing) for record in log.requests if (timing := record.timing)]
    timings = [timing for _, timing in timed]
    finished = [timing for record, timing in timed if record.outcome == "finished"]
    in_system = over_time(in_system_over_time(log), begin, end)
    outcomes = Counter(record.outcome for record in log.requests)
    met = None if targets is None else sum(map(targets.met, finished))

    def per_s(count: int | None) -> float | None:
        return count / duration if duration > 0 and count is not None else None

    over = max(record.arrival_s for record in log.requests) - min(record.arrival_s for record in log.requests)
    rate, law = per_s(len(log.requests)), None
    if in_system.mean is not None and rate is not None:
        law = LittlesLaw(in_system.mean, rate, fmean(left - came for came, left in stays(log)))
    busy = sum(step.duration_s for step in log.steps)
    return Summary(
        duration_s=duration,
        arrived=len(log.requests),
        finished=outcomes["finished"],
        cancelled=outcomes["cancelled"],
        refused=outcomes["refused"],
        unfinished=outcomes[""],
        without_token=len(log.requests) - len(timings),
        preemptions=sum(len(record.preempted_s) for record in log.requests),
        ttft_s=Percentiles.of([timing.ttft_s for timing in timings]),
        itl_over_tokens_s=Percentiles.of([gap for timing in timings for gap in timing.itl_s]),
        tpot_over_requests_s=Percentiles.of([tpot for timing in timings if (tpot := timing.tpot_s) is not None]),
        end_to_end_s=Percentiles.of([timing.end_to_end_s for timing in finished]),
        offered_per_s=(len(log.requests) - 1) / over if over > 0 else None,
        arrived_per_s=rate,
        prompt_tokens_per_s=per_s(sum(timing.prompt_tokens for timing in timings)),
        finished_per_s=per_s(outcomes["finished"]),
        new_tokens_per_s=per_s(sum(timing.new_tokens for timing in timings)),
        targets=targets,
        met=met,
        goodput_per_s=per_s(met),
        in_system=in_system,
        waiting=over_time(waiting_over_time(log), begin, end) if log.steps else None,
        busy_share=busy / duration if log.steps and duration > 0 else None,
        blocks_used_share=blocks_used_share(log.steps) if log.steps else None,
        littles_law=law,
    )


def window(log: Log) -> Interval:
    """From the first arrival to the last thing that happened, or until the run was stopped. ValueError if nothing
    arrived."""
    if not log.requests:
        raise ValueError("no request arrived: there is nothing to sum up")
    times = [time for record in log.requests for time in known_times(record)]
    times += [time for step in log.steps for time in (step.begin_s, step.end_s)]
    return min(times), max(times if log.until_s is None else [*times, log.until_s])


def waits(log: Log) -> dict[str, list[Interval]]:
    """When each request waited for memory: first from its arrival on, then from each preemption on.

    A wait ends with the step that admits it, with the request, or with the run.
    """
    admitted: dict[str, list[float]] = defaultdict(list)
    for step in log.steps:
        for name in step.admitted:
            admitted[name].append(step.begin_s)
    last = window(log)[1]
    found = {}
    for record in log.requests:
        over = last if record.ended_s is None else record.ended_s
        begins = (record.arrival_s, *record.preempted_s)
        ends = admitted[record.name]
        if record.admitted_s is not None and record.admitted_s not in ends[:1]:
            ends = [record.admitted_s, *ends]  # the step that admitted it was interrupted, or no steps were recorded
        if len(ends) > len(begins):
            raise ValueError(f"{record.name!r} was admitted {len(ends)} times, preempted {len(begins) - 1} times")
        found[record.name] = [(begin, over if end is None else end) for begin, end in zip_longest(begins, ends)]
        for begin, end in found[record.name]:
            if end < begin:
                raise ValueError(f"{record.name!r} is admitted at {end} s, before it waits at {begin} s")
    return found


def stays(log: Log) -> list[Interval]:
    """From the arrival of each request to its end, or that of the run."""
    last = window(log)[1]
    return [(record.arrival_s, last if record.ended_s is None else record.ended_s) for record in log.requests]


def in_system_over_time(log: Log) -> list[tuple[float, int]]:
    """How many requests there were, whether they waited or ran: a time in seconds, and their number from then on."""
    return counts(stays(log))


def waiting_over_time(log: Log) -> list[tuple[float, int]]:
    """How long the queue was: a time in seconds, and how many waited for memory from then on."""
    return counts(interval for intervals in waits(log).values() for interval in intervals)


def counts(intervals: Iterable[Interval]) -> list[tuple[float, int]]:
    """How many of the intervals hold each moment: (a time, their number from then on), in order, each time once."""
    changes: Counter[float] = Counter()
    for begin, end in intervals:
        changes[begin] += 1
        changes[end] -= 1
    number, series = 0, []
    for time in sorted(changes):
        number += changes[time]
        series.append((time, number))
    return series


def over_time(series: Sequence[tuple[float, int]], begin_s: float, end_s: float) -> OverTime:
    """The mean of a number over a window that holds all its changes, 0 before the first, and its largest value."""
    area = sum(number * (after - time) for (time, number), (after, _) in pairwise([*series, (end_s, 0)]))
    mean = area / (end_s - begin_s) if end_s > begin_s else None
    return OverTime(mean, max((number for _, number in series), default=0))


def blocks_used_share(steps: Sequence[StepRecord]) -> OverTime:
    """How full the pool was, 0 to 1, over the time of the steps."""
    shares = [step.blocks_used / step.blocks_total for step in steps]
    busy = sum(step.duration_s for step in steps)
    area = sum(share * step.duration_s for share, step in zip(shares, steps))
    return OverTime(area / busy if busy > 0 else None, max(shares))


def known_times(record: RequestRecord) -> list[float]:
    """What is known of a request's times, from its arrival to its end."""
    known = [record.arrival_s, *record.token_times_s]
    return known if record.ended_s is None else [*known, record.ended_s]


def check_record(record: RequestRecord) -> None:
    """ValueError for an end without an outcome or an outcome without an end, and for times that run backwards."""
    if (record.ended_s is None) != (record.outcome == ""):
        raise ValueError(
            f"{record.name!r} ended at {record.ended_s} s with outcome {record.outcome!r}: give both or none"
        )
    times = known_times(record)
    for before, after in pairwise([*times, times[-1]]):
        if not (isfinite(before) and before <= after):
            raise ValueError(f"{record.name!r}: {after} s comes after {before} s: times are finite and in order")


def check_steps(steps: Sequence[StepRecord]) -> None:
    """ValueError for steps that overlap or run backwards: then no share of the time would mean anything."""
    times = [time for step in steps for time in (step.begin_s, step.end_s)]
    for before, after in pairwise(times):
        if not before <= after:
            raise ValueError(f"a step begins or ends at {after} s, after {before} s: steps follow one another")
