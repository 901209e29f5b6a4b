"""What a scheduler plans: cases counted by hand with exact steps and times, orders and their bounds, plans refused.

The one idea: with a cost model of one second a pass, or one a token, the clock counts what a hand can count, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_audit import audit, cost_of, first_come_first_served, overtaken

from course_lib.serving import Request
from course_lib.serving.record import Arrival, Log
from course_lib.serving.scheduler import Continuous, Job, Memory, OneAtATime, Plan, Scheduler, StaticBatches, check
from course_lib.serving.simulation import CostModel, simulate

A_PASS, A_TOKEN = CostModel(pass_s=1), CostModel(pass_s=0, token_s=1)
ROOMY = Memory(rows=4, blocks=100, block_size=4)

SCHEDULERS = {
    "one at a time": OneAtATime(),
    "one at a time, shortest first": OneAtATime(ageing=2),
    "static batches": StaticBatches(),
    "static batches, shortest first": StaticBatches(ageing=3),
    "continuous": Continuous(),
    "continuous, shortest first": Continuous(ageing=2),
    "continuous, room reserved": Continuous(reserve=True),
    "chunked prefill": Continuous(budget=6),
    "chunked prefill, room reserved": Continuous(budget=5, reserve=True),
    "chunked prefill, shortest first": Continuous(budget=5, ageing=4),
}


@dataclass(frozen=True)
class ByTurns(Scheduler):
    """Lets everybody in, and reads one token of whoever has read least. Who came last is put off at its fourth."""

    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        if running and running[-1].held == 3 and not running[-1].preempted:
            return Plan({running[0]: 1}, (), running[-1:])
        return Plan({min((*running, *waiting), key=lambda job: job.held): 1}, tuple(waiting))


def asked(*sizes: tuple[float, int, int]) -> list[Arrival]:
    """Arrivals of (time, prompt tokens, new tokens), called A, B, C, …"""
    return [Arrival(time, Request((1,) * prompt, new, name=chr(65 + i))) for i, (time, prompt, new) in enumerate(sizes)]


def token_times(log: Log) -> dict[str, list[float]]:
    return {record.name: record.token_times_s for record in log.requests}


def ends(log: Log) -> str:
    """When everybody was finished, as "A4 B1"."""
    return " ".join(f"{record.name}{record.ended_s:g}" for record in log.requests)


# --- Counted by hand


@pytest.mark.parametrize(
    "scheduler, steps, expected",
    [
        (OneAtATime(), 15, "A4 B5 C6 D7 E10 F12 G14 H15"),
        (OneAtATime(ageing=1), 15, "A6 B1 C2 D7 E10 F12 G14 H15"),
        (StaticBatches(), 7, "A4 B1 C1 D1 E7 F6 G6 H5"),
        (Continuous(), 4, "A4 B1 C1 D1 E4 F3 G3 H4"),
    ],
    ids=str,
)
def test_eight_answers_in_four_rows(scheduler: Scheduler, steps: int, expected: str) -> None:
    """All come at once, each prompt is one token, so a step is one pass and takes a second.

    Static: A keeps three rows empty for three seconds, then E keeps others waiting. Continuous: E, F and G join after
    the first second, H after the third. Shortest first, ageing 1: B and C (2 tokens in all, one and two places behind)
    overtake A (5 tokens), D (2, three places behind) has the rank of A and does not.
    """
    arrivals = asked(*((0, 1, new) for new in (4, 1, 1, 1, 3, 2, 2, 1)))
    log = simulate(scheduler, ROOMY, arrivals, A_PASS)
    assert len(log.steps) == steps and ends(log) == expected
    audit(log, arrivals, ROOMY, cost_of(1))


def test_a_long_prompt_stalls_those_who_decode_unless_it_is_read_in_chunks() -> None:
    """A token takes a second. B's prompt of ten comes while A decodes."""
    arrivals, memory = asked((0, 1, 5), (1, 10, 2)), Memory(rows=2, blocks=20, block_size=2)
    whole = token_times(simulate(Continuous(), memory, arrivals, A_TOKEN))
    assert whole == {"A": [1, 12, 14, 15, 16], "B": [12, 14]}
    chunked = token_times(simulate(Continuous(budget=4), memory, arrivals, A_TOKEN))
    assert chunked == {"A": [1, 5, 9, 13, 15], "B": [15, 16]}


def test_when_the_pool_is_full_the_last_in_rank_gives_its_memory_back() -> None:
    """Four blocks of two. After two steps A and B hold four tokens each, in all four blocks, and both need one more."""
    arrivals, memory = asked((0, 3, 4), (0, 3, 3)), Memory(rows=2, blocks=4, block_size=2)
    log = simulate(Continuous(), memory, arrivals, A_PASS)
    assert token_times(log) == {"A": [1, 2, 3, 4], "B": [1, 2, 5]}
    assert log["B"].preempted_s == [2] and log["A"].preempted_s == []
    assert [step.blocks_used for step in log.steps] == [4, 4, 3, 3, 3]
    assert [(read.name, read.tokens, read.phase) for read in log.steps[4].reads] == [("B", 5, "prefill")]


def test_room_that_is_reserved_is_waited_for_and_never_lost() -> None:
    """The same four blocks: A may need three of them, so B, which may need three, comes when A is finished."""
    arrivals, memory = asked((0, 3, 4), (0, 3, 3)), Memory(rows=2, blocks=4, block_size=2)
    log = simulate(Continuous(reserve=True), memory, arrivals, A_PASS)
    assert token_times(log) == {"A": [1, 2, 3, 4], "B": [5, 6, 7]}
    assert log["B"].preempted_s == []


def test_nobody_joins_a_static_batch_and_it_does_not_wait_to_be_full() -> None:
    arrivals = asked((0, 1, 3), (0.5, 1, 1), (0.5, 1, 1))
    log = simulate(StaticBatches(), ROOMY, arrivals, A_PASS)
    assert ends(log) == "A3 B4 C4"
    assert [(step.admitted, step.waiting) for step in log.steps] == [(("A",), 0), ((), 2), ((), 2), (("B", "C"), 0)]


def test_a_budget_bounds_every_step_and_decodes_go_first() -> None:
    arrivals = asked((0, 1, 9), (0, 1, 9), (0, 11, 2), (0, 7, 1))
    log = simulate(Continuous(budget=6), ROOMY, arrivals, A_TOKEN)
    assert all(step.tokens <= 6 for step in log.steps)
    reads = [{read.name: read.tokens for read in step.reads} for step in log.steps]
    assert reads[:5] == [
        {"A": 1, "B": 1, "C": 4},
        {"A": 1, "B": 1, "C": 4},
        {"A": 1, "B": 1, "C": 3, "D": 1},
        {"A": 1, "B": 1, "C": 1, "D": 3},
        {"A": 1, "B": 1, "D": 3},
    ]


@pytest.mark.parametrize("scheduler", SCHEDULERS.values(), ids=SCHEDULERS)
def test_a_prompt_of_exactly_the_pool_runs_and_one_token_more_is_refused(scheduler: Scheduler) -> None:
    memory = Memory(rows=3, blocks=4, block_size=2)
    arrivals = asked((0, 8, 1), (0, 9, 1), (0, 8, 2), (0, 1, 8), (0, 1, 9), (0, 2, 1))
    log = simulate(scheduler, memory, arrivals, A_PASS)
    outcomes = [record.outcome for record in log.requests]
    assert outcomes == ["finished", "refused", "refused", "finished", "refused", "finished"]
    assert log["B"].why == ("9 prompt tokens and 1 new one need 9 positions, a row can have 8: shorten one of them")
    audit(log, arrivals, memory, cost_of(1))


def test_an_answer_of_no_tokens_cannot_be_asked_for_and_one_of_one_token_takes_a_step() -> None:
    with pytest.raises(ValueError, match="max_new_tokens must be at least 1, not 0"):
        Request((1,), 0)
    log = simulate(Continuous(), ROOMY, asked((2, 5, 1)), A_PASS)
    assert token_times(log) == {"A": [3]} and len(log.steps) == 1


# --- Orders, and what they promise


sizes = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 12)), min_size=1, max_size=14)
memories = st.builds(
    lambda rows, slots, size: Memory(rows, max(1, slots // size), size),
    st.integers(1, 4),
    st.integers(6, 30),
    st.integers(1, 5),
)


@settings(max_examples=250, deadline=None)
@given(st.sampled_from(list(SCHEDULERS)), sizes, memories)
def test_every_run_is_possible_and_ends_whatever_comes(
    name: str, sizes: list[tuple[int, int, int]], memory: Memory
) -> None:
    scheduler, arrivals = SCHEDULERS[name], asked(*sizes)
    log = simulate(scheduler, memory, arrivals, CostModel(0.5, 0.25, 0.125, 0.0625))
    audit(log, arrivals, memory, cost_of(0.5, 0.25, 0.125, 0.0625))
    if scheduler.ageing is None:
        first_come_first_served(log)
    else:
        for record in log.requests:
            most = record.prompt_tokens + record.new_tokens
            assert overtaken(log, record.name) < most / scheduler.ageing, record.name
    if isinstance(scheduler, OneAtATime):
        assert all(step.running == 1 for step in log.steps)
    if not isinstance(scheduler, Continuous) or scheduler.reserve:
        assert not any(record.preempted_s for record in log.requests)
    if isinstance(scheduler, Continuous) and scheduler.budget:
        assert all(step.tokens <= scheduler.budget for step in log.steps)
    if isinstance(scheduler, StaticBatches):
        for before, step in pairwise(log.steps):
            left = {read.name for read in before.reads if log[read.name].ended_s > before.end_s}
            assert not (step.admitted and left), "somebody joined a batch"


@pytest.mark.parametrize("ageing, before", [(1, 5), (2, 2), (3, 1), (5, 1), (6, 0)])
def test_a_stream_of_short_requests_overtakes_a_long_one_only_so_often(ageing: int, before: int) -> None:
    """X, of 8 tokens, comes while S0 runs; then comes a request of 2 tokens every quarter of a second.

    The i-th after X overtakes it if 2 + i · ageing < 8. Shortest first with nothing against it would never run X.
    """
    arrivals = [Arrival(0, Request((1,), 1, name="S0")), Arrival(0.1, Request((1,), 7, name="X"))]
    arrivals += [Arrival(0.2 + i / 4, Request((1,), 1, name=f"S{i + 1}")) for i in range(40)]
    log = simulate(OneAtATime(ageing=ageing), Memory(1, 8, 4), arrivals, A_PASS)
    assert overtaken(log, "X") == before < 8 / ageing


def test_the_order_of_arrival_holds_for_those_who_come_at_the_same_moment() -> None:
    for scheduler in (OneAtATime(), OneAtATime(ageing=1)):
        log = simulate(scheduler, ROOMY, asked(*[(3, 2, 2)] * 6), A_PASS)
        assert ends(log) == "A5 B7 C9 D11 E13 F15"


def test_a_request_that_was_preempted_comes_before_those_that_came_later() -> None:
    arrivals = asked((0, 3, 6), (0, 3, 6), *[(0, 2, 2)] * 4)
    log = simulate(Continuous(), Memory(rows=2, blocks=5, block_size=2), arrivals, A_PASS)
    assert log["B"].preempted_s
    first_come_first_served(log)
    again = [step.begin_s for step in log.steps if "B" in step.admitted][1]
    assert all(log[name].admitted_s >= again for name in "CDEF")


# --- What cannot be carried out


@dataclass(frozen=True)
class Bad(Scheduler):
    """Admits everybody who waits and then does what it is told to."""

    wrong: str = ""

    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        everybody = [*running, *waiting]
        reads, admit, preempt = {job: job.unread for job in everybody}, list(waiting), []
        if self.wrong == "nobody reads":
            reads = {}
        elif self.wrong == "reads without a row":
            admit = []
        elif self.wrong == "reads too much":
            reads = {job: job.unread + 1 for job in everybody}
        elif self.wrong == "reads nothing":
            reads = {job: 0 for job in everybody}
        elif self.wrong == "admits twice":
            admit = [*waiting, *waiting]
        elif self.wrong == "preempts who waits":
            preempt = list(waiting)
        elif self.wrong == "preempts twice":
            preempt = [*running, *running]
        return Plan(reads, admit, preempt)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ("nobody reads", "nobody reads, 2 wait and 0 run: it would never end"),
        ("reads without a row", "'A' reads 3 tokens: it must run, and has 3 unread"),
        ("reads too much", "'A' reads 4 tokens: it must run, and has 3 unread"),
        ("reads nothing", "'A' reads 0 tokens"),
        ("admits twice", "'A' is admitted, but it does not wait, or is named twice"),
        ("preempts who waits", "A, B are preempted: each must run, and be named once"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(wrong: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        simulate(Bad(wrong), ROOMY, asked((0, 3, 2), (0, 4, 2)), A_PASS)


def test_a_plan_for_more_memory_than_there_is_is_refused() -> None:
    with pytest.raises(ValueError, match="2 would run, there are 1 rows: admit fewer"):
        simulate(Bad(), Memory(1, 9, 2), asked((0, 3, 2), (0, 4, 2)), A_PASS)
    with pytest.raises(ValueError, match="the plan needs 4 blocks, there are 3: preempt somebody"):
        simulate(Bad(), Memory(2, 3, 2), asked((0, 3, 2), (0, 4, 2)), A_PASS)
    with pytest.raises(ValueError, match="A, A are preempted"):
        simulate(Bad("preempts twice"), ROOMY, asked((0, 3, 2)), A_PASS)


def test_those_who_pause_hold_their_blocks() -> None:
    running = [Job(0, "A", 6, 9, 7, held=6, runs=True), Job(1, "B", 4, 9, 5, held=4, runs=True)]
    assert check(Plan({running[0]: 1}), [], running, Memory(2, 6, 2)) == 6
    with pytest.raises(ValueError, match="needs 6 blocks, there are 5"):
        check(Plan({running[0]: 1}), [], running, Memory(2, 5, 2))


def test_who_leaves_as_a_step_begins_gets_nothing_from_it() -> None:
    arrival = Arrival(0, Request((1,), 5, name="A"), cancel_s=2)
    (record,) = simulate(OneAtATime(), ROOMY, [arrival], A_PASS).requests
    assert (record.token_times_s, record.ended_s, record.outcome) == ([1, 2], 2, "cancelled")


def test_of_those_who_come_at_one_moment_the_first_in_the_list_came_first() -> None:
    later, sooner = (Arrival(0, Request((1,), 2, name=name)) for name in "AB")
    assert ends(simulate(OneAtATime(), ROOMY, [sooner, later], A_PASS)) == "B2 A4"


def test_the_last_in_rank_is_preempted_though_another_was_admitted_last() -> None:
    """Shortest first: B comes after A, is shorter, and the two do not fit together to their ends."""
    log = simulate(Continuous(ageing=1), Memory(2, 8, 1), asked((0, 3, 6), (0.5, 3, 3)), A_PASS)
    assert {record.name: record.preempted_s for record in log.requests} == {"A": [3], "B": []}


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: Continuous(reserve="no"), "reserve must be True or False, not 'no'"),
        (lambda: Arrival(0, "what?"), "what arrives must be a Request, not 'what\\?'"),
        (lambda: Arrival("soon", Request((1,), 1)), "must be a number of at least 0, not 'soon'"),
        (lambda: Arrival(0, Request((1,), 1), reads=float("nan")), "reads of '' must be a number"),
        (lambda: Memory(0, 4), "at least 1 of everything, not rows = 0"),
        (lambda: Memory(2, 4, 0), "not block_size = 0"),
        (lambda: Memory(2, 1.5), "blocks must be a whole number, not 1.5"),
        (lambda: OneAtATime(ageing=0), "without at least 1 token a place, long requests may never run"),
        (lambda: Continuous(budget=0), "a budget of 0 tokens: nobody could ever read"),
        (lambda: Continuous(budget=2.5), "the budget must be a whole number"),
        (
            lambda: simulate(Continuous(budget=3), ROOMY, asked((0, 1, 1)), A_PASS),
            "a budget of 3 tokens for 4 rows: each may decode one in a step",
        ),
        (lambda: CostModel(0, 0), "one of them must be more than 0"),
        (lambda: CostModel(1, -1), "token_s must be a number of at least 0, not -1"),
        (lambda: CostModel(float("nan")), "pass_s must be a number of at least 0, not nan"),
        (
            lambda: Arrival(-1, Request((1,), 1, name="x")),
            "at which 'x' arrives must be a number of at least 0, not -1",
        ),
        (lambda: Arrival(float("inf"), Request((1,), 1)), "arrives must be a number of at least 0, not inf"),
        (lambda: Arrival(3, Request((1,), 1, name="x"), cancel_s=2), "'x' arrives at 3 s and leaves at 2 s"),
        (
            lambda: Arrival(0, Request((1,), 1, name="x"), reads=-1),
            "reads of 'x' must be a number of at least 0, not -1",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
