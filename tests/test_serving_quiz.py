"""The numbers in the questions of notebook 07, worked out by the server; each trap is the mistake that it names."""

from collections.abc import Collection
from math import ceil

import pytest

from course_lib.metrics import Timing
from course_lib.quizzes.bank import Number, Order, load_bank
from course_lib.serving.arrivals import bursts
from course_lib.serving.load_metrics import Targets, summary
from course_lib.serving.record import Log, Read, RequestRecord
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Continuous, Memory, OneAtATime, Scheduler, StaticBatches
from course_lib.serving.server import Server
from course_lib.serving.simulation import CostModel, CountingWorker, SimulatedClock, simulate

BANK = load_bank("07_serving_under_load")
SECOND = CostModel(pass_s=1.0)


def number(identifier: str, *, traps: Collection[float]) -> float:
    """The answer of a question, which names exactly these traps."""
    found = next(question for question in BANK.questions if question.id == identifier)
    assert isinstance(found, Number)
    assert sorted(trap.value for trap in found.traps) == pytest.approx(sorted(traps), rel=2e-3)
    return found.answer


def served(scheduler: Scheduler, wanted: Collection[int], memory: Memory) -> Log:
    requests = [Request((1,) * 10, new, name=f"{place}") for place, new in enumerate(wanted, start=1)]
    return simulate(scheduler, memory, bursts(requests, len(requests), 1.0), SECOND)


def step_of(log: Log, name: str, token: int) -> int:
    """In which step, counted from 1, a request got its first token (0) or its last (-1)."""
    time_s = log[name].token_times_s[token]
    return 1 + next(place for place, step in enumerate(log.steps) if step.end_s == time_s)


def test_the_step_in_which_the_fifth_request_gets_its_last_token() -> None:
    wanted, memory = (5, 2, 7, 3, 4, 1), Memory(rows=3, blocks=100)
    logs = [served(scheduler, wanted, memory) for scheduler in (Continuous(), StaticBatches(), OneAtATime())]
    continuous, static, alone = (step_of(log, "5", -1) for log in logs)
    traps = {static, alone, ceil(sum(wanted) / memory.rows), step_of(logs[0], "5", 0)}
    assert number("fifth_request", traps=traps) == continuous


def test_a_step_goes_as_the_question_puts_it() -> None:
    """What the loop calls, in order: take, plan, carry out (reads, then tokens, then memory given back)."""
    seen: list[str] = []

    class Watched(Continuous):
        def plan(self, waiting, running, memory):  # type: ignore[no-untyped-def]
            seen.append(f"plan, {len(waiting)} wait")
            return super().plan(waiting, running, memory)

    class Worker(CountingWorker):
        def take(self, job, request):  # type: ignore[no-untyped-def]
            seen.append("joins")
            super().take(job, request)

        def carry_out(self, plan):  # type: ignore[no-untyped-def]
            jobs = list(plan.reads)
            before = [(job.length, job.unread) for job in jobs]
            super().carry_out(plan)
            for job, (length, unread) in zip(jobs, before):
                assert plan.reads[job] == unread and job.length == length + 1
            seen.append(f"read, {sum(job.finished for job in jobs)} give back")
            assert all((job.held == 0) == job.finished for job in jobs)

    requests = [Request((1, 2), 1, name="a")]
    Server(Watched(), Worker(Memory(1, 4), 100), SimulatedClock(SECOND)).run(bursts(requests, 1, 1.0))
    assert seen == ["joins", "plan, 1 wait", "read, 1 give back"]
    question = next(question for question in BANK.questions if question.id == "one_step")
    assert isinstance(question, Order)
    first_words = ("The request joins", "The scheduler plans", "The model reads", "Whoever has read", "Whoever has all")
    assert all(item.startswith(words) for item, words in zip(question.items, first_words, strict=True))


def test_the_tokens_of_sixteen_rows() -> None:
    cost = CostModel(pass_s=0.020, token_s=0.0005)
    sixteen, one = (cost.seconds([Read(f"{row}", 1, 100, "decode") for row in range(rows)]) for rows in (16, 1))
    traps = {16 / one, 1 / sixteen, 1 / one, 1 / cost.token_s}
    assert number("sixteen_rows", traps=traps) == pytest.approx(16 / sixteen, rel=1e-3)


def test_the_goodput_of_six_requests() -> None:
    figures = [(0.3, 0.040), (0.8, 0.060), (1.4, 0.030), (0.9, 0.045), (2.0, 0.020), (0.5, None)]
    records = []
    for place, (ttft_s, tpot_s) in enumerate(figures):
        times = [ttft_s] if tpot_s is None else [ttft_s, ttft_s + tpot_s, ttft_s + 2 * tpot_s]
        records.append(RequestRecord(f"{place}", 0.0, 8, 3, 0.0, times, ended_s=4.0, outcome="finished"))

    def rate(targets: Targets) -> float:
        found = summary(Log(tuple(records), ()), targets)
        assert found.goodput_per_s is not None and found.duration_s == 4
        return found.goodput_per_s

    both = Targets(ttft_s=1.0, tpot_s=0.05)
    without_tpot = sum(both.met(timing) for record in records if (timing := record.timing) and timing.tpot_s is None)
    traps = {
        len(figures) / 4,
        rate(Targets(ttft_s=1.0)),
        rate(Targets(tpot_s=0.05)),
        rate(both) - without_tpot / 4,
    }
    assert number("goodput_of_six", traps=traps) == rate(both)
    assert Timing(0.0, (0.5,), 8).tpot_s is None


def test_the_stay_by_littles_law_in_a_run_with_90_in_the_server_and_6_a_second() -> None:
    """Everybody stays 15 s, and 6 come each second: in the middle of the run 90 are there, which is what is asked."""
    stays = [(place / 6, place / 6 + 15) for place in range(6 * 3600)]
    there = sum(begin <= 1800 < end for begin, end in stays)
    assert there == 90
    answer = number("stay_by_littles_law", traps={90 * 6, 6 / 90, 1 / 6})
    assert answer == there / 6 == 15
    records = [RequestRecord(f"{i}", a, 1, 1, a, [b], ended_s=b, outcome="finished") for i, (a, b) in enumerate(stays)]
    law = summary(Log(tuple(records), ())).littles_law
    assert law is not None and law.mean_time_in_system_s == pytest.approx(answer)
    assert law.mean_in_system == pytest.approx(90, rel=0.01) and law.arrived_per_s == pytest.approx(6, rel=0.01)


def test_how_many_requests_of_500_tokens_run_at_once() -> None:
    memory, longest = Memory(rows=128, blocks=1000), 4000
    requests = [Request((1,) * 500, 2, name=f"{place}") for place in range(200)]
    log = simulate(Continuous(), memory, bursts(requests, 200, 1.0), SECOND)
    traps = {memory.rows, memory.slots / 500, memory.blocks // memory.blocks_for(longest), memory.blocks // 500}
    assert number("how_many_at_once", traps=traps) == log.steps[0].running
    assert memory.blocks_for(500) == 32 and 128 * 32 == 4096 and 32 * 32 == 1024  # numbers of the explanations


def test_the_quiz_asks_in_all_four_ways() -> None:
    assert {question.type for question in BANK.questions} == {"one", "several", "number", "order"}
