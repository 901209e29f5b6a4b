"""A simulated server beside what is known without it: a queue with a closed form, costs that are found again.

The one idea: one at a time, with answers that all take equally long and people who know nothing of each other, is the
queue M/D/1, whose mean wait was worked out a hundred years ago, and whose single waits follow from one another by a
recursion of one line. A simulation that is right for it got its clock, its queue and its arrivals right.
"""

from dataclasses import astuple, replace
from itertools import accumulate
from math import isclose
from random import Random
from statistics import fmean, stdev

import pytest
import torch
from serving_audit import audit, cost_of, littles_law
from shapes import model_of
from test_scheduler import SCHEDULERS, asked

from course_lib.serving import Request
from course_lib.serving.calibration import FEWEST, calibrate, fit, measure
from course_lib.serving.record import Arrival, Log, StepRecord
from course_lib.serving.scheduler import Continuous, Memory, OneAtATime
from course_lib.serving.simulation import CostModel, Work, simulate
from course_lib.serving.workload import mix

MEMORY = Memory(rows=8, blocks=64, block_size=16)
COST = CostModel(pass_s=0.008, token_s=0.0004, slot_s=1e-6, pair_s=1e-7)


def poisson(count: int, rate_per_s: float, new_tokens: int, seed: int) -> list[Arrival]:
    random = Random(seed)
    times = accumulate(random.expovariate(rate_per_s) for _ in range(count))
    return [Arrival(time, Request((1,), new_tokens, name=f"{i}")) for i, time in enumerate(times)]


def waits(log: Log) -> list[float]:
    return [record.admitted_s - record.arrival_s for record in log.requests]


@pytest.mark.parametrize("rate_per_s, new_tokens", [(0.3, 1), (0.7, 1), (0.16, 5)])
def test_one_at_a_time_waits_as_long_as_the_m_d_1_queue_does(rate_per_s: float, new_tokens: int) -> None:
    """Mean wait = rho D / (2 (1 - rho)) with rho = rate · D (Pollaczek and Khinchine, for a service time of exactly D).

    Each wait depends on those before it, so the error of their mean is taken from means over stretches of 500, long
    enough to know little of each other. It must be within 4 standard errors, which here are a few per cent.
    """
    arrivals = poisson(10_000, rate_per_s, new_tokens, seed=1)
    log = simulate(OneAtATime(), Memory(1, 4, 16), arrivals, CostModel(pass_s=1))
    service_s = float(new_tokens)
    load = rate_per_s * service_s
    expected = load * service_s / (2 * (1 - load))

    got = waits(log)
    stretches = [fmean(got[begin : begin + 500]) for begin in range(0, len(got), 500)]
    error = stdev(stretches) / len(stretches) ** 0.5
    assert error < 0.1 * expected and abs(fmean(got) - expected) < 4 * error

    time, lindley = 0.0, []  # each waits until the one before it is finished
    for arrival in arrivals:
        lindley.append(max(0.0, time - arrival.time_s))
        time = max(time, arrival.time_s) + service_s
    assert got == pytest.approx(lindley, abs=1e-6)

    busy = sum(step.duration_s for step in log.steps) / log.steps[-1].end_s
    assert isclose(busy, load, rel_tol=0.05), "utilisation: the share of time in which somebody is served"


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("rate_per_s", [1, 6, 60])
def test_littles_law_and_utilisation_hold_at_every_load(name: str, rate_per_s: float) -> None:
    """From nearly idle to hopeless overload. Nobody is idle while somebody is there, so the busy time is the cost."""
    random = Random(name)
    requests = mix(60, 100, seed=3)
    times = accumulate(random.expovariate(rate_per_s) for _ in requests)
    arrivals = [Arrival(time, request) for time, request in zip(times, requests)]
    scheduler = SCHEDULERS[name]
    if isinstance(scheduler, Continuous) and scheduler.budget:
        scheduler = replace(scheduler, budget=32)
    log = simulate(scheduler, MEMORY, arrivals, COST)
    seconds = cost_of(0.008, 0.0004, 1e-6, 1e-7)
    audit(log, arrivals, MEMORY, seconds)
    busy = sum(seconds(step.reads) for step in log.steps)
    idle = sum(step.begin_s - before for before, step in zip([0.0, *(s.end_s for s in log.steps)], log.steps))
    assert isclose(busy + idle, log.steps[-1].end_s, rel_tol=1e-9)
    read = sum(step.tokens for step in log.steps)
    least = sum(record.prompt_tokens + record.new_tokens - 1 for record in log.requests)
    assert read >= least and (read == least) == (not any(record.preempted_s for record in log.requests))


def test_the_same_run_comes_out_the_same() -> None:
    arrivals = [Arrival(i / 9, request) for i, request in enumerate(mix(80, 50))]
    runs = [simulate(Continuous(budget=24), MEMORY, arrivals, COST) for _ in range(2)]
    assert runs[0] == runs[1]
    shuffled = Random(0).sample(arrivals, len(arrivals))
    assert simulate(Continuous(budget=24), MEMORY, shuffled, COST) == runs[0], "it is the times that count"


def test_ten_thousand_requests_are_served_to_their_ends() -> None:
    random = Random(5)
    sizes = [(i / 70, random.randint(1, 40), random.randint(1, 12)) for i in range(10_000)]
    arrivals = [Arrival(time, Request((1,) * prompt, new, name=f"{i}")) for i, (time, prompt, new) in enumerate(sizes)]
    log = simulate(Continuous(), MEMORY, arrivals, CostModel(0.002, 0.0001))
    assert all(record.outcome == "finished" for record in log.requests)
    assert sum(len(record.token_times_s) for record in log.requests) == sum(a.request.max_new_tokens for a in arrivals)


# --- Costs that are measured


def steps_that_cost(cost: CostModel, noise: float = 0.0) -> list[StepRecord]:
    """Steps of a varied run, each with the duration that `cost` gives, a share of `noise` longer or shorter."""
    random = Random(0)
    arrivals = [Arrival(i / 5, request) for i, request in enumerate(mix(60, 50, seed=2))]
    whole, chunked = (simulate(Continuous(budget=b), MEMORY, arrivals, cost).steps for b in (None, 24))
    steps = [*whole, *chunked]
    return [replace(s, begin_s=0, end_s=s.duration_s * random.uniform(1 - noise, 1 + noise)) for s in steps]


@pytest.mark.parametrize(
    "cost",
    [
        COST,
        CostModel(0.02),
        CostModel(0, 0.001),
        CostModel(0.01, 0.002, 0, 3e-6),
        CostModel(0.01, 0, 4e-6),
    ],
    ids=str,
)
def test_costs_are_found_again_from_steps_that_cost_them(cost: CostModel) -> None:
    found = calibrate(steps_that_cost(cost))
    for name in ("pass_s", "token_s", "slot_s", "pair_s"):
        assert getattr(found.cost, name) == pytest.approx(getattr(cost, name), rel=1e-5, abs=1e-10), name
    assert found.large_error < 1e-4 and abs(found.total_error) < 1e-4


def test_noise_shows_as_error_and_not_as_bias() -> None:
    """A uniform noise of up to 20 % has a median of 10 % and a 90th percentile of 18 %."""
    found = calibrate(steps_that_cost(COST, noise=0.2))
    assert 0.07 < found.typical_error < 0.13 and 0.14 < found.large_error < 0.23
    assert abs(found.total_error) < 0.05


def test_errors_are_those_of_steps_that_were_not_fitted() -> None:
    """Every second step takes twice as long as the costs that the others tell: it is said to take half of its time."""
    steps = steps_that_cost(COST)
    steps[1::2] = [replace(step, end_s=2 * step.end_s) for step in steps[1::2]]
    found = calibrate(steps)
    assert found.cost.pass_s == pytest.approx(COST.pass_s)
    assert [found.typical_error, found.large_error, found.total_error] == pytest.approx([0.5, 0.5, -0.5])


def test_no_cost_is_below_zero_and_none_could_be_better() -> None:
    """The conditions of Karush, Kuhn and Tucker for least squares without numbers below 0: where a cost is above 0 the
    error no longer changes with it, and where it is 0 a larger one would only make the error larger.
    """
    steps = [replace(step, end_s=0.1 - 1e-5 * sum(read.held for read in step.reads)) for step in steps_that_cost(COST)]
    found = torch.tensor(astuple(fit(steps)), dtype=torch.float64)
    counts = [Work.of(step.reads) for step in steps]
    shares = torch.tensor([[n / step.end_s for n in count] for count, step in zip(counts, steps)], dtype=torch.float64)
    error = shares @ found - 1  # [steps], relative
    gradient = (shares * error[:, None]).sum(0) / shares.norm(dim=0) / error.norm()  # [4], cosines
    assert found.min() == 0, "these steps get shorter with the slots that they hold: some cost would go below 0"
    assert gradient[found > 0].abs().max() < 1e-6 and gradient[found == 0].min() > 1e-6


def test_steps_that_tell_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="7 steps are too few to fit four numbers"):
        calibrate(steps_that_cost(COST)[:7])
    with pytest.raises(ValueError, match="fitted to steps that took time"):
        fit([replace(step, end_s=0) for step in steps_that_cost(COST)])
    for without_time in (0, 1):  # among those that are fitted, and among those that judge
        steps = steps_that_cost(COST)
        steps[without_time] = replace(steps[without_time], end_s=0)
        with pytest.raises(ValueError, match="fitted to steps that took time"):
            calibrate(steps)
    with pytest.raises(ValueError, match="fitted to steps that took time"):
        fit([])
    with pytest.raises(ValueError, match="0 s: measuring takes time"):
        measure(model_of("mqa"), MEMORY, seconds=0)


def test_a_real_model_is_measured_and_its_costs_fitted() -> None:
    """How long steps take is not judged here: only that a real run is measured, and the fit says how good it is."""
    steps = measure(model_of("mqa", torch.float32), Memory(4, 48, 8), seconds=0.5)
    assert all(step.duration_s > 0 for step in steps)
    assert len({step.running for step in steps}) > 1, "rows fill up and empty"
    assert any(read.tokens > 20 for step in steps for read in step.reads), "prompts are read whole"
    found = calibrate(steps)
    assert found.steps == (len(steps) + 1) // 2
    assert 0 <= found.typical_error <= found.large_error and found.total_error > -1
    littles_law(simulate(Continuous(), MEMORY, asked((0, 5, 5), (0.001, 9, 3)), found.cost))


def test_on_a_machine_however_slow_enough_steps_are_measured_to_fit() -> None:
    steps = measure(model_of("mqa", torch.float32), Memory(4, 48, 8), seconds=1e-9)
    assert len(steps) == 2 * FEWEST and calibrate(steps).steps == FEWEST
