"""A run in numbers: cases small enough to do by hand, laws that hold in any run, and an oracle in NumPy."""

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.serving.arrivals import ClosedLoop, poisson
from course_lib.serving.load_metrics import (
    Percentiles,
    Targets,
    counts,
    over_time,
    summary,
    waiting_over_time,
    waits,
)
from course_lib.serving.record import Arrival, Log, Outcome, Read, RequestRecord, StepRecord
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Continuous, Memory, Scheduler, StaticBatches
from course_lib.serving.simulation import CostModel, simulate
from course_lib.serving.workload import Lengths, mix

BLOCKS = 10


def record(
    name: str,
    arrival: float,
    tokens: list[float],
    ended: float | None = None,
    outcome: Outcome = "finished",
    prompt: int = 10,
    admitted: float | None = None,
    preempted: list[float] | None = None,
) -> RequestRecord:
    ended = tokens[-1] if ended is None and tokens and outcome else ended
    why = "" if outcome in ("", "finished") else "for a test"
    return RequestRecord(
        name, arrival, prompt, max(len(tokens), 1), admitted, tokens, preempted or [], ended, outcome, why
    )


def step(begin: float, end: float, *admitted: str, preempted: tuple[str, ...] = (), used: int = 5) -> StepRecord:
    return StepRecord(begin, end, (Read("a", 1, 1, "decode"),), admitted, preempted, 0, 1, used, BLOCKS)


# --- By hand

HAND = Log(
    (
        record("a", 0.0, [2.0, 3.0, 4.0, 5.0], prompt=8, admitted=0.0),
        record("b", 1.0, [4.0, 8.0], prompt=4, admitted=2.0, preempted=[5.0]),
        record("c", 2.0, [], ended=2.0, outcome="refused", prompt=100),
        record("d", 3.0, [9.0], prompt=6, admitted=8.0),
        record("e", 4.0, [], ended=6.0, outcome="cancelled", prompt=3),
        record("f", 9.5, [], outcome="", prompt=7),
    ),
    (
        step(0.0, 2.0, "a", used=2),
        step(2.0, 4.0, "b", used=6),
        step(4.0, 5.0, used=10),
        step(5.0, 6.0, preempted=("b",), used=0),
        step(6.0, 8.0, "b", used=4),
        step(8.0, 9.0, "d", used=1),
        step(9.5, 10.0, used=0),
    ),
)


def test_every_number_of_a_small_run_is_as_computed_by_hand() -> None:
    run = summary(HAND, Targets(ttft_s=3.0, tpot_s=2.0))
    assert run.duration_s == 10
    assert (run.arrived, run.finished, run.cancelled, run.refused, run.unfinished) == (6, 3, 1, 1, 1)
    assert run.without_token == 3 and run.preemptions == 1
    assert run.ttft_s == Percentiles(3, 11 / 3, 3, pytest.approx(5.4), pytest.approx(5.94), 6)  # 2, 3, 6
    assert run.itl_over_tokens_s == Percentiles(4, 7 / 4, 1, pytest.approx(3.1), pytest.approx(3.91), 4)  # 1, 1, 1, 4
    assert run.tpot_over_requests_s == Percentiles(2, 2.5, 2.5, pytest.approx(3.7), pytest.approx(3.97), 4)  # 1, 4
    assert run.end_to_end_s == Percentiles(3, 6, 6, pytest.approx(6.8), pytest.approx(6.98), 7)  # 5, 7, 6
    assert (run.arrived_per_s, run.finished_per_s, run.goodput_per_s, run.met) == (0.6, 0.3, 0.1, 1)
    assert run.offered_per_s == 5 / 9.5, "five gaps between six arrivals"
    assert (run.prompt_tokens_per_s, run.new_tokens_per_s) == (1.8, 0.7)
    # waiting: b from 1 to 2 and 5 to 6, d from 3 to 8, e from 4 to 6, f from 9.5 to the end
    assert run.waiting is not None and run.waiting.mean == pytest.approx((1 + 1 + 5 + 2 + 0.5) / 10)
    assert run.waiting.most == 3
    # in the system: a 5 s, b 7 s, c 0 s, d 6 s, e 2 s, f 0.5 s
    assert run.in_system.mean == pytest.approx(2.05) and run.in_system.most == 4
    assert run.busy_share == pytest.approx(0.95)
    assert run.blocks_used_share is not None and run.blocks_used_share.most == 1
    assert run.blocks_used_share.mean == pytest.approx((0.2 * 2 + 0.6 * 2 + 1 * 1 + 0 * 1 + 0.4 * 2 + 0.1 * 1) / 9.5)
    law = run.littles_law
    assert law is not None and law.mean_in_system == pytest.approx(2.05)
    assert law.arrived_per_s * law.mean_time_in_system_s == pytest.approx(0.6 * 20.5 / 6)


def test_who_waits_when_is_as_the_steps_say() -> None:
    assert waits(HAND) == {
        "a": [(0, 0)], "b": [(1, 2), (5, 6)], "c": [(2, 2)], "d": [(3, 8)], "e": [(4, 6)], "f": [(9.5, 10)]
    }  # fmt: skip
    queue = [(0, 0), (1, 1), (2, 0), (3, 1), (4, 2), (5, 3), (6, 1), (8, 0), (9.5, 1), (10, 0)]
    assert waiting_over_time(HAND) == queue


def test_a_wait_whose_end_no_step_tells_ends_when_the_record_says() -> None:
    """After an interrupt the step that admitted a request may be missing."""
    torn = record("a", 1.0, [9.0], admitted=2.0, preempted=[4.0])
    assert waits(Log((torn,), (step(0, 2), step(2, 4), step(4, 6, preempted=("a",)), step(6, 9, "a")))) == {
        "a": [(1, 2), (4, 6)]
    }
    assert waits(Log((record("a", 1.0, [9.0], admitted=2.0),), ())) == {"a": [(1, 2)]}


def test_the_offered_rate_is_that_of_the_arrivals_however_long_they_take() -> None:
    slow = [record(f"r{n}", n / 10, [10.0 * (n + 1)]) for n in range(11)]
    run = summary(Log(tuple(slow), ()))
    assert run.offered_per_s == pytest.approx(10) and run.arrived_per_s == pytest.approx(11 / 110)
    assert summary(Log(tuple(slow[:1]), ())).offered_per_s is None


def test_ttft_is_no_inter_token_latency() -> None:
    """Reported in public as a bug: token times of 500, 520 and 540 gave a list of gaps with 500 in it."""
    run = summary(Log((record("a", 0.0, [500.0, 520.0, 540.0]),), ()))
    assert run.ttft_s.mean == 500
    assert (run.itl_over_tokens_s.samples, run.itl_over_tokens_s.mean, run.itl_over_tokens_s.largest) == (2, 20, 20)


def test_prompt_throughput_counts_tokens_and_request_throughput_requests() -> None:
    """Reported in public as a bug: two prompts of 512 tokens in 0.1 s were called 20 tokens per second."""
    run = summary(Log((record("a", 0.0, [0.1], prompt=512), record("b", 0.0, [0.1], prompt=512)), ()))
    assert run.prompt_tokens_per_s == pytest.approx(10_240) and run.finished_per_s == pytest.approx(20)


def test_the_mean_of_tpots_is_not_the_mean_over_tokens() -> None:
    """One answer of 2 tokens with a gap of 1 s; one of 11 tokens with gaps of 0.1 s: 1.1 s / 2, and 2 s / 11."""
    long = [2 + n / 10 for n in range(11)]
    run = summary(Log((record("short", 0.0, [1.0, 2.0]), record("long", 0.0, long)), ()))
    assert run.tpot_over_requests_s.mean == pytest.approx(0.55)
    assert run.itl_over_tokens_s.mean == pytest.approx(2 / 11)


def test_an_answer_of_one_token_has_no_tpot_and_counts_for_goodput_by_its_ttft() -> None:
    log = Log((record("quick", 0.0, [1.0]), record("slow", 0.0, [3.0])), ())
    run = summary(log, Targets(ttft_s=1.0, tpot_s=0.001))
    assert run.tpot_over_requests_s == Percentiles(0) and run.itl_over_tokens_s == Percentiles(0)
    assert run.met == 1 and run.goodput_per_s == pytest.approx(1 / 3)


def test_goodput_needs_both_targets_to_be_kept_and_the_answer_to_be_finished() -> None:
    log = Log(
        (
            record("both", 0.0, [1.0, 1.5]),
            record("late", 0.0, [1.1, 1.2]),
            record("slow", 0.0, [0.5, 1.1]),
            record("left", 0.0, [0.5, 0.6], outcome="cancelled"),
            record("under way", 0.0, [0.5, 0.6], outcome=""),
            record("refused", 0.0, [], ended=0.0, outcome="refused"),
            record("empty", 0.0, [], ended=0.1),
        ),
        (),
    )
    assert summary(log, Targets(1.0, 0.5)).met == 1, "a target that is just reached is kept"
    assert summary(log, Targets(ttft_s=1.0)).met == summary(log, Targets(tpot_s=0.5)).met == 2
    assert summary(log, Targets()).met == 3 and summary(log).met is None and summary(log).goodput_per_s is None


def test_those_who_never_got_a_token_are_counted_beside_the_percentiles() -> None:
    """An overloaded server that serves one in ten at once would look quick otherwise."""
    late = [record(f"r{n}", 0.0, [], outcome="") for n in range(9)]
    run = summary(Log((record("lucky", 0.0, [0.1]), *late), ()))
    assert run.ttft_s.p99 == pytest.approx(0.1) and run.ttft_s.samples == 1
    assert (run.arrived, run.unfinished, run.without_token) == (10, 9, 9)


def test_what_only_steps_tell_is_missing_without_them() -> None:
    run = summary(Log(HAND.requests, ()))
    assert run.waiting is run.busy_share is run.blocks_used_share is None
    assert run.ttft_s == summary(HAND).ttft_s and run.littles_law is not None


def test_where_no_time_passes_there_are_no_rates() -> None:
    run = summary(Log((record("a", 5.0, [], ended=5.0, outcome="refused"),), ()), Targets(1.0))
    assert run.duration_s == 0 and run.refused == 1 and run.in_system.mean is None
    assert run.arrived_per_s is run.finished_per_s is run.goodput_per_s is run.littles_law is None
    stood = summary(Log((record("a", 5.0, [5.0], admitted=5.0),), (step(5.0, 5.0, "a"),)))
    assert stood.busy_share is None and stood.blocks_used_share is not None
    assert stood.blocks_used_share.mean is None and stood.blocks_used_share.most == 0.5


def test_all_of_it_goes_into_json_under_names_that_say_the_unit() -> None:
    written = summary(HAND, Targets(3.0, 2.0)).as_dict()
    assert json.loads(json.dumps(written, allow_nan=False)) == written
    assert written["littles_law"]["gap"] == pytest.approx(0, abs=1e-12)  # type: ignore[index]
    plain = {"arrived", "finished", "cancelled", "refused", "unfinished", "without_token", "preemptions", "met"}
    grouped = {"targets", "in_system", "waiting", "littles_law"}
    units = ("_s", "_per_s", "_share")
    assert all(name in plain | grouped or name.endswith(units) for name in written)
    assert set(written["ttft_s"]) == {"samples", "mean", "p50", "p90", "p99", "largest"}  # type: ignore[call-overload]


# --- Any run


def random_log(random: Random) -> Log:
    """A run as a server might leave it: steps one after the other, some requests refused, cancelled or still there."""
    times = sorted(random.choice((0.0, random.uniform(0, 20))) for _ in range(random.randint(1, 12)))
    records = [RequestRecord(f"r{n}", time, random.randint(1, 9), random.randint(1, 6)) for n, time in enumerate(times)]
    coming, waiting, running = list(records), [], []  # type: ignore[var-annotated]
    steps, now = [], times[0]
    for _ in range(random.randint(0, 25)):
        while coming and coming[0].arrival_s <= now:
            waiting.append(coming.pop(0))
            if random.random() < 0.1:
                end(waiting.pop(), now, "refused")
        for requests in (waiting, running):
            if requests and random.random() < 0.1:
                end(requests.pop(random.randrange(len(requests))), now, "cancelled")
        put_off = [running.pop()] if running and random.random() < 0.2 else []
        admitted = waiting[: random.randint(0, 2)] if not put_off else []
        for request in put_off:
            request.preempted_s.append(now)
        for request in admitted:
            request.admitted_s = now if request.admitted_s is None else request.admitted_s
        waiting = [*put_off, *waiting[len(admitted) :]]
        running += admitted
        if not running and not put_off:
            now = max([now, *(request.arrival_s for request in coming[:1])])
            continue
        begin, now = now, now + random.choice((0.0, random.uniform(0, 3)))
        for request in list(running):
            if random.random() < 0.7:
                request.token_times_s.append(now)
            if len(request.token_times_s) == request.new_tokens:
                end(request, now, "finished")
                running.remove(request)
        names = tuple(request.name for request in admitted)
        put_off_names = tuple(request.name for request in put_off)
        used = random.randint(0, BLOCKS)
        steps.append(StepRecord(begin, now, (), names, put_off_names, len(waiting), len(running), used, BLOCKS))
        now += random.choice((0.0, 0.0, random.uniform(0, 2)))
    return Log(tuple(records), tuple(steps))


def end(request: RequestRecord, now: float, outcome: Outcome) -> None:
    request.ended_s, request.outcome = now, outcome


logs = st.integers(0, 10**9).map(lambda seed: random_log(Random(seed)))
targets = st.builds(Targets, *[st.none() | st.floats(0.01, 10)] * 2)
every_log = settings(max_examples=150, deadline=None)


@given(logs)
@every_log
def test_littles_law_is_exact_in_any_run(log: Log) -> None:
    """To rounding: float64 keeps 16 digits, the sums here have some dozens of terms."""
    law = summary(log).littles_law
    if law is not None:
        assert law.gap == pytest.approx(0, abs=1e-9)
        assert law.mean_in_system == pytest.approx(law.arrived_per_s * law.mean_time_in_system_s, rel=1e-9, abs=1e-12)


@given(logs, targets)
@every_log
def test_nobody_is_lost_and_no_rate_is_above_what_bounds_it(log: Log, target: Targets) -> None:
    run = summary(log, target)
    assert run.arrived == len(log.requests) == run.finished + run.cancelled + run.refused + run.unfinished
    assert run.ttft_s.samples + run.without_token == run.arrived and run.end_to_end_s.samples == run.finished
    assert run.met is not None and 0 <= run.met <= run.finished
    if run.duration_s > 0:
        assert run.goodput_per_s <= run.finished_per_s <= run.arrived_per_s  # type: ignore[operator]
        if log.steps:
            assert 0 <= run.busy_share <= 1 + 1e-12  # type: ignore[operator]
            assert 0 <= run.waiting.mean <= run.in_system.mean + 1e-12  # type: ignore[operator, union-attr]
            assert run.waiting.most <= run.in_system.most  # type: ignore[union-attr]
    for figures in (run.ttft_s, run.itl_over_tokens_s, run.tpot_over_requests_s, run.end_to_end_s):
        if figures.samples:
            order = (figures.p50, figures.p90, figures.p99, figures.largest)
            assert all(low <= high for low, high in pairwise(order))  # type: ignore[operator]


@given(logs)
@every_log
def test_tpots_weighted_with_their_gaps_are_the_mean_over_tokens(log: Log) -> None:
    run = summary(log)
    weighted = [(t.tpot_s, t.new_tokens - 1) for r in log.requests if (t := r.timing) and t.tpot_s is not None]
    gaps = sum(weight for _, weight in weighted)
    assert run.itl_over_tokens_s.samples == gaps and run.tpot_over_requests_s.samples == len(weighted)
    if gaps:
        mean = sum(tpot * weight for tpot, weight in weighted) / gaps
        assert run.itl_over_tokens_s.mean == pytest.approx(mean, abs=1e-9)


@given(logs)
@every_log
def test_percentiles_and_means_over_time_agree_with_numpy(log: Log) -> None:
    """The oracle counts, in the middle between any two times of the run, whoever is there or waits."""
    run = summary(log)
    records = log.requests
    first = [r.token_times_s[0] - r.arrival_s for r in records if r.token_times_s]
    gaps = np.concatenate([np.diff(r.token_times_s) for r in records])
    for figures, values in ((run.ttft_s, first), (run.itl_over_tokens_s, gaps)):
        assert figures.samples == len(values)
        if len(values):
            expected = [np.mean(values), *np.quantile(values, [0.5, 0.9, 0.99]), np.max(values)]
            got = [figures.mean, figures.p50, figures.p90, figures.p99, figures.largest]
            assert got == pytest.approx(expected, rel=1e-12, abs=1e-12)
    edges = np.array([t for r in records for t in (r.arrival_s, *r.token_times_s, r.ended_s) if t is not None])
    edges = np.unique(np.append(edges, [t for s in log.steps for t in (s.begin_s, s.end_s)]))
    assert run.duration_s == edges[-1] - edges[0]
    if run.duration_s == 0:
        return
    middles, widths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    there, queued = np.zeros(len(middles)), np.zeros(len(middles))
    for r in records:
        here = (middles > r.arrival_s) & (middles < (inf if r.ended_s is None else r.ended_s))
        there += here
        entered = [s.begin_s for s in log.steps if r.name in s.admitted]
        left = [s.begin_s for s in log.steps if r.name in s.preempted]
        times_in, times_out = ((middles[:, None] > np.array([*moments, inf])).sum(1) for moments in (entered, left))
        queued += here & (times_in == times_out)
    assert run.in_system.mean == pytest.approx((there * widths).sum() / widths.sum(), abs=1e-9)
    assert run.in_system.most == there.max()
    if log.steps:
        assert run.waiting is not None
        assert run.waiting.mean == pytest.approx((queued * widths).sum() / widths.sum(), abs=1e-9)
        assert run.waiting.most == queued.max()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted), max_size=9))
def test_a_count_over_time_is_right_in_every_moment(intervals: list[list[int]]) -> None:
    series = counts([(begin, end) for begin, end in intervals])
    for moment in range(10):
        expected = sum(begin <= moment < end for begin, end in intervals)
        assert next((number for time, number in reversed(series) if time <= moment), 0) == expected
    assert [time for time, _ in series] == sorted({time for interval in intervals for time in interval})


def test_a_mean_over_time_weighs_each_value_with_how_long_it_lasted() -> None:
    assert over_time([(1.0, 4), (2.0, 1), (5.0, 0)], 0.0, 10.0).mean == pytest.approx((4 * 1 + 1 * 3) / 10)
    assert over_time([], 0.0, 2.0).mean == 0 and over_time([(3.0, 2)], 3.0, 3.0).mean is None


# --- Runs of the simulation


COST, REQUESTS = CostModel(0.03, 0.002), mix(60, 9, prompts=Lengths(20, 0.8, 60), answers=Lengths(8, 0.8, 30))


@pytest.mark.parametrize("scheduler", [StaticBatches(), Continuous(), Continuous(budget=6), Continuous(ageing=4)])
@pytest.mark.parametrize("rate", [1.0, 20.0])
def test_the_queue_between_arrivals_and_admissions_is_the_one_that_the_server_saw(
    scheduler: Scheduler, rate: float
) -> None:
    """Two sources: names that steps admit and preempt, and the length of the queue that the server wrote down."""
    arrivals = poisson(REQUESTS, rate)
    arrivals[30] = replace(arrivals[30], cancel_s=arrivals[30].time_s + 0.5)
    log = simulate(scheduler, Memory(4, 8), [*arrivals, Arrival(1.0, Request((1,) * 200, 1, name="too long"))], COST)
    series = waiting_over_time(log)
    for step in log.steps:
        queue = [number for time, number in series if time <= step.begin_s]
        assert queue[-1] == step.waiting
    run = summary(log)
    assert (run.refused, run.unfinished, run.finished + run.cancelled) == (1, 0, 60)
    assert run.littles_law is not None and run.littles_law.gap == pytest.approx(0, abs=1e-9)
    assert run.new_tokens_per_s == pytest.approx(sum(len(r.token_times_s) for r in log.requests) / run.duration_s)


def test_a_closed_loop_never_has_more_requests_under_way_than_users() -> None:
    """And without think times exactly as many, until the first of them has nothing left to ask."""
    for users, think in ((3, 0.5), (6, 0.0)):
        loop = ClosedLoop(REQUESTS, users, think, seed=1)
        log = simulate(Continuous(), Memory(4, 8), loop.first, COST, follow=loop.follow)
        run = summary(log)
        assert run.finished == len(REQUESTS) and run.in_system.most == users
        stays = [(r.arrival_s, inf if r.ended_s is None else r.ended_s) for r in log.requests]
        until = min(end for (_, end), r in zip(stays, log.requests) if loop.follow(r) is None)
        if not think:
            assert {number for time, number in counts(stays) if time < until} == {users}


# --- What makes no sense


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: summary(Log((), ())), "no request arrived"),
        (lambda: summary(Log((record("a", 2.0, [1.0]),), ())), "'a': 1.0 s comes after 2.0 s"),
        (lambda: summary(Log((record("a", 0.0, [3.0], ended=2.0),), ())), "'a': 2.0 s comes after 3.0 s"),
        (lambda: summary(Log((record("a", 0.0, [nan]),), ())), "'a': nan s comes after 0.0 s"),
        (lambda: summary(Log((record("a", 0.0, [1.0], ended=inf),), ())), "'a': inf s comes after inf s"),
        (lambda: summary(Log((record("a", nan, [], outcome=""),), ())), "'a': nan s comes after nan s"),
        (lambda: summary(Log((record("a", 0.0, [], ended=1.0, outcome=""),), ())), "'a' ended at 1.0 s with outcome"),
        (lambda: summary(Log((record("a", 0.0, [], outcome="refused"),), ())), "'a' ended at None s"),
        (lambda: summary(Log(HAND.requests[:1], (step(0, 2), step(1, 3)))), "a step begins or ends at 1 s, after 2 s"),
        (lambda: summary(Log(HAND.requests[:1], (step(0, 2, "a"), step(2, 3, "a")))), "admitted 2 times, preempted 0"),
        (lambda: waits(Log((record("a", 1.0, [2.0]),), (step(0, 2, "a"),))), "'a' is admitted at 0 s, before it waits"),
        (lambda: Targets(ttft_s=0.0), "ttft_s, if there is one, must be a number above 0, not 0.0"),
        (lambda: Targets(tpot_s=-1.0), "tpot_s, .* not -1.0"),
        (lambda: Targets(ttft_s=nan), "ttft_s, .* not nan"), (lambda: Targets(tpot_s=inf), "tpot_s, .* not inf"),
    ],
)  # fmt: skip
def test_records_that_contradict_themselves_are_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
