"""Bars that are counted by hand, and what must hold of those of any run."""

from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from test_scheduler import A_PASS, A_TOKEN, SCHEDULERS, ByTurns, asked

from course_lib.serving.record import Arrival, Log
from course_lib.serving.scheduler import Continuous, Memory
from course_lib.serving.simulation import simulate
from course_lib.serving.timeline import timeline


def bars(log: Log) -> dict[str, list[tuple[str, float, float, int]]]:
    return {
        name: [(span.state, span.begin_s, span.end_s, span.tokens) for span in row]
        for name, row in timeline(log).items()
    }


def test_a_prompt_in_chunks_and_a_request_that_waits() -> None:
    """A token takes a second, a step reads four. C waits for one of the two rows."""
    log = simulate(Continuous(budget=4), Memory(2, 20, 2), asked((0, 1, 5), (1, 10, 2), (2, 2, 1)), A_TOKEN)
    assert bars(log) == {
        "A": [("prefill", 0, 1, 1), ("decode", 1, 15, 4)],
        "B": [("prefill", 1, 15, 10), ("decode", 15, 18, 1)],
        "C": [("waiting", 2, 15, 0), ("prefill", 15, 18, 2)],
    }


def test_who_is_preempted_reads_its_text_again() -> None:
    log = simulate(Continuous(), Memory(2, 4, 2), asked((0, 3, 4), (0, 3, 3)), A_PASS)
    assert bars(log) == {
        "A": [("prefill", 0, 1, 3), ("decode", 1, 4, 3)],
        "B": [("prefill", 0, 1, 3), ("decode", 1, 2, 1), ("preempted", 2, 4, 0), ("prefill", 4, 5, 5)],
    }


def test_who_holds_memory_and_is_not_let_read_is_paused() -> None:
    log = simulate(ByTurns(), Memory(2, 20, 2), asked((0, 3, 3), (0, 6, 1)), A_PASS)
    assert bars(log) == {
        "A": [
            ("prefill", 0, 1, 1), ("paused", 1, 2, 0), ("prefill", 2, 3, 1), ("paused", 3, 4, 0), ("prefill", 4, 5, 1),
            ("paused", 5, 6, 0), ("decode", 6, 7, 1), ("paused", 7, 11, 0), ("decode", 11, 12, 1),
        ],
        "B": [
            ("paused", 0, 1, 0), ("prefill", 1, 2, 1), ("paused", 2, 3, 0), ("prefill", 3, 4, 1), ("paused", 4, 5, 0),
            ("prefill", 5, 6, 1), ("preempted", 6, 7, 0), ("prefill", 7, 11, 4), ("paused", 11, 12, 0),
            ("prefill", 12, 14, 2),
        ],
    }  # fmt: skip


def test_who_leaves_and_who_is_refused() -> None:
    early = asked((0, 1, 9), (0, 1, 9), (0, 90, 1))
    log = simulate(Continuous(), Memory(1, 20, 2), [Arrival(0, a.request, cancel_s=3.5) for a in early], A_PASS)
    assert bars(log) == {
        "A": [("prefill", 0, 1, 1), ("decode", 1, 4, 3)],
        "B": [("waiting", 0, 4, 0)],
    }


def test_the_time_between_two_steps_belongs_to_those_who_are_still_there() -> None:
    """On a real clock: each step begins a quarter of a second later than it could. A is finished with the first."""
    log = simulate(Continuous(), Memory(2, 20, 2), asked((0, 1, 1), (0, 1, 3)), A_PASS)
    late = [replace(step, begin_s=step.begin_s + 0.25 * (step.begin_s > 0)) for step in log.steps]
    assert bars(Log(log.requests, tuple(late))) == {
        "A": [("prefill", 0, 1, 1)],
        "B": [("prefill", 0, 1.25, 1), ("decode", 1.25, 3, 2)],
    }


@pytest.mark.parametrize("name", SCHEDULERS)
def test_bars_lie_end_to_end_and_tokens_are_all_there(name: str) -> None:
    random = Random(name)
    sizes = [(random.randint(0, 20), random.randint(1, 10), random.randint(1, 12)) for _ in range(12)]
    log = simulate(SCHEDULERS[name], Memory(3, 12, 2), asked(*sizes), A_PASS)
    rows = timeline(log)
    for record in log.requests:
        if record.outcome == "refused":
            continue
        row = rows[record.name]
        assert row[0].begin_s == record.arrival_s and row[-1].end_s == record.ended_s
        for span, after in pairwise(row):
            assert span.end_s == after.begin_s and span.state != after.state
        assert [s.begin_s for s in row if s.state == "preempted"] == record.preempted_s
        assert sum(s.end_s - s.begin_s for s in row if s.state == "waiting") == record.admitted_s - record.arrival_s
        read = sum(r.tokens for step in log.steps for r in step.reads if r.name == record.name)
        assert sum(span.tokens for span in row) == read
        assert all((span.tokens > 0) == (span.state in ("prefill", "decode")) for span in row)
