"""The server with a real model: tokens as if alone, decisions as in the simulation, and what clients can do to it.

The one idea: the model decides what is said, the scheduler who runs, the clock how long it takes; so each can be held
against what knows nothing of the others: lone runs, the auditor, and a simulation with the same costs.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from math import inf
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_audit import audit, cost_of, first_come_first_served
from shapes import SHAPES, model_of, text_of
from test_scheduler import SCHEDULERS, ByTurns, asked, memories

from course_lib.caches import CacheFull, ContiguousCache, PagedCache, PrefixCache
from course_lib.generation import Sampling, generate
from course_lib.serving import Engine, Request
from course_lib.serving.record import Arrival, Log, RequestRecord
from course_lib.serving.scheduler import Continuous, Memory, OneAtATime, Scheduler
from course_lib.serving.server import Server, WallClock
from course_lib.serving.simulation import CostModel, CountingWorker, SimulatedClock, simulate
from course_lib.serving.worker import EngineWorker, serve

SHAPE, MODEL = "mqa, tied", model_of("mqa, tied")
CONFIG = SHAPES[SHAPE]
HOT = Sampling(temperature=2.0, top_k=12)
COST, SECONDS = CostModel(0.5, 0.25, 0.125, 0.0625), cost_of(0.5, 0.25, 0.125, 0.0625)


def new_engine(memory: Memory, **options: bool) -> Engine:
    cache = PagedCache(CONFIG, memory.rows, memory.blocks, memory.block_size, torch.float64)
    cache.fill_free(torch.nan)
    return Engine(MODEL, cache, **options)


def request_of(number: int, prompt: int, new: int) -> Request:
    sampling = HOT if number % 2 else Sampling()
    return Request(tuple(text_of(SHAPE, prompt, seed=number)), new, sampling, seed=number, name=f"r{number}")


@lru_cache(maxsize=4096)
def lone_run(request: Request) -> list[int]:
    options = {"sampling": request.sampling, "seed": request.seed, "stop_tokens": request.stop_tokens}
    got = generate(MODEL, request.prompt, max_new_tokens=request.max_new_tokens, warm_up=False, **options)
    return list(got.tokens)


def assert_all_as_alone(server: Server, arrivals: list[Arrival]) -> None:
    """Whoever was finished has the tokens of its lone run, whoever left a beginning of them; nothing is held."""
    for arrival in arrivals:
        record, request = server.records[arrival.request.name], arrival.request
        if record.outcome == "refused":
            assert request.name not in server.worker.sequences
            continue
        tokens = server.worker.sequences[request.name].tokens
        assert len(tokens) == len(record.token_times_s)
        if record.outcome == "finished":
            assert tokens == lone_run(request), request.name
        else:
            assert record.outcome == "cancelled" and tokens == lone_run(request)[: len(tokens)]
    engine = server.worker.engine
    assert not (server.jobs or server.waiting or server.running or server.coming or engine.waiting or engine.running)
    assert set(engine.cache.lengths) == {0} and engine.cache.pool.free == len(engine.cache.pool.references)


def serve_both_ways(
    scheduler: Scheduler, sizes: Iterable[tuple[int, int, int, float]], memory: Memory, compact: bool, buffer: int
) -> Log:
    """Serve requests of (arrival, prompt, new tokens, seconds until the client leaves), of which every third client
    stops reading after a token; check all that must hold, and that a simulation decides alike.
    """
    arrivals = [
        Arrival(time, request_of(i, prompt, new), time + stays, reads=1 if i % 3 == 2 else inf)
        for i, (time, prompt, new, stays) in enumerate(sizes)
    ]
    worker = EngineWorker(new_engine(memory, compact=compact))
    server = Server(scheduler, worker, SimulatedClock(COST), buffer=buffer)
    real = server.run(arrivals)
    assert_all_as_alone(server, arrivals)
    audit(real, arrivals, memory, SECONDS)
    if scheduler.ageing is None:
        first_come_first_served(real)
    positions = CONFIG.max_positions
    simulated = simulate(scheduler, memory, arrivals, COST, max_positions=positions, buffer=buffer)
    assert simulated.steps == real.steps and simulated.requests == real.requests
    return real


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(SCHEDULERS)),
    st.lists(
        st.tuples(st.integers(0, 20), st.integers(1, 10), st.integers(1, 12), st.sampled_from([inf, inf, inf, 9])),
        min_size=1,
        max_size=8,
    ),
    memories,
    st.booleans(),
    st.sampled_from([2, 64]),
)
def test_each_request_gets_its_tokens_and_the_simulation_decides_alike(
    name: str, sizes: list[tuple[int, int, int, float]], memory: Memory, compact: bool, buffer: int
) -> None:
    serve_both_ways(SCHEDULERS[name], sizes, memory, compact, buffer)


@pytest.mark.parametrize("name", SCHEDULERS)
def test_so_it_is_for_every_scheduler_when_memory_is_short_and_clients_are_rude(name: str) -> None:
    """Cases from a fixed seed, in which all that can happen happens: hypothesis prefers small ones."""
    random, seen = Random(name), Counter[str]()
    for case in range(8):
        size = random.randint(1, 5)
        memory = Memory(random.randint(2, 4), random.randint(14, 22) // size, size)
        sizes = [
            (random.randint(0, 8), random.randint(1, 10), random.randint(1, 12), random.choice((inf, inf, 4, 12)))
            for _ in range(8)
        ]
        log = serve_both_ways(SCHEDULERS[name], sizes, memory, case % 2 == 0, buffer=(3, 64)[case // 2 % 2])
        seen.update(record.outcome for record in log.requests)
        seen.update(record.why.replace("more than 3", "some") for record in log.requests if record.token_times_s)
        seen.update(preempted=sum(len(record.preempted_s) for record in log.requests))
    may_preempt = isinstance(SCHEDULERS[name], Continuous) and not SCHEDULERS[name].reserve
    for what in ("finished", "refused", "its client has left", "its client has left some tokens unread"):
        assert seen[what] > 0, f"{what} did not come up: {seen}"
    assert (seen["preempted"] > 0) == may_preempt, seen


@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_plan_and_the_pool_count_the_same_blocks(name: str) -> None:
    """After every step the pool has as many free blocks as the numbers of the jobs say, rows held and all."""
    memory = Memory(rows=3, blocks=7, block_size=3)
    server = Server(SCHEDULERS[name], EngineWorker(new_engine(memory)), SimulatedClock(COST))
    server.expect(Arrival(i / 2, request_of(i, 1 + 5 * i % 12, 1 + 4 * i % 9)) for i in range(8))
    pool = server.worker.engine.cache.pool
    while server.step():
        held = [memory.blocks_for(job.held) for job in server.running]
        assert pool.free == memory.blocks - sum(held)
        assert [job.held for job in server.running] == [
            server.worker.engine.cache.lengths[server.worker.sequences[job.name].row] for job in server.running
        ]


def test_a_scheduler_of_your_own_runs_in_both() -> None:
    """One that lets everybody in and reads with one at a time, so that others hold memory and pause."""
    memory = Memory(4, 30, 2)
    arrivals = [Arrival(i, request_of(i, 3 + i, 4)) for i in range(4)]
    server = Server(ByTurns(), EngineWorker(new_engine(memory)), SimulatedClock(COST))
    real = server.run(arrivals)
    assert_all_as_alone(server, arrivals)
    audit(real, arrivals, memory, SECONDS)
    assert simulate(ByTurns(), memory, arrivals, COST) == real
    assert any(step.running > len(step.reads) for step in real.steps)


def test_a_real_clock_runs_the_same_requests() -> None:
    """How long it takes is not judged: times follow one another, and nobody is served before it has come."""
    memory = Memory(2, 8, 4)
    arrivals = [Arrival(i * 0.02, request_of(i, 3 + i, 4)) for i in range(4)]
    server = Server(Continuous(budget=6), EngineWorker(new_engine(memory)), WallClock())
    log = server.run(arrivals)
    assert_all_as_alone(server, arrivals)
    audit(log, arrivals, memory)
    assert all(record.timing.ttft_s > 0 for record in log.requests)
    assert serve(new_engine(memory), OneAtATime(), arrivals).requests[3].outcome == "finished"


def test_a_stop_token_ends_a_sequence_that_might_have_gone_on() -> None:
    tokens = lone_run(request_of(0, 6, 9))
    stop = tokens[4]
    request = Request(request_of(0, 6, 9).prompt, 9, stop_tokens=(stop,), name="r0")
    server = Server(Continuous(), EngineWorker(new_engine(Memory(2, 8, 4))), SimulatedClock(COST))
    record = server.run([Arrival(0, request)])["r0"]
    assert server.worker.sequences["r0"].tokens == tokens[: tokens.index(stop) + 1]
    assert record.outcome == "finished" and len(record.token_times_s) < record.new_tokens
    assert server.worker.engine.cache.pool.free == 8


# --- Clients


def both_servers(memory: Memory, scheduler: Scheduler = Continuous(), **options: object) -> Iterator[Server]:  # noqa: B008
    for worker in (EngineWorker(new_engine(memory)), CountingWorker(memory, CONFIG.max_positions)):
        yield Server(scheduler, worker, SimulatedClock(CostModel(1)), **options)


def test_a_client_that_leaves_gives_its_memory_to_others_at_once() -> None:
    """One row. B waits and leaves; A leaves while it decodes; C gets the row in the step after."""
    arrivals = asked((0, 2, 20), (0, 2, 3), (0, 2, 3))
    leaves = {"A": 3.5, "B": 1.5}
    arrivals = [Arrival(a.time_s, a.request, leaves.get(a.request.name, inf)) for a in arrivals]
    for server in both_servers(Memory(1, 12, 2)):
        log = server.run(arrivals)
        assert [(r.name, r.outcome, r.ended_s, len(r.token_times_s)) for r in log.requests] == [
            ("A", "cancelled", 4, 4),
            ("B", "cancelled", 2, 0),
            ("C", "finished", 7, 3),
        ]
        assert log["A"].why == "its client has left" and log["B"].admitted_s is None and log["C"].admitted_s == 4
        audit(log, arrivals, Memory(1, 12, 2), cost_of(1))


def test_a_client_that_stops_reading_is_cancelled_and_others_do_not_notice() -> None:
    """It takes two tokens. Three more may lie there unread; with the sixth it is over, its memory given back."""
    memory = Memory(2, 12, 2)
    asked_for = asked((0, 2, 20), (0, 3, 10))
    slow = [Arrival(0, asked_for[0].request, reads=2), asked_for[1]]
    for server in both_servers(memory, buffer=3):
        log = server.run(slow)
        assert log["A"].outcome == "cancelled" and log["A"].token_times_s == [1, 2, 3, 4, 5, 6]
        assert log["A"].why == "its client has left more than 3 tokens unread"
        assert [step.running for step in log.steps] == [2] * 6 + [1] * 4
        usual = simulate(Continuous(), memory, asked_for, CostModel(1))
        assert log["B"] == usual["B"], "B was to notice nothing"


def test_a_client_may_take_its_tokens_by_hand() -> None:
    for server in both_servers(Memory(2, 12, 2), buffer=2):
        server.submit(Request((1, 2), 8, name="A"), reads=0)
        server.submit(Request((1, 2), 8, name="B"))
        for _ in range(4):
            server.step()
            server.took("A", 1)
            server.took("B", 0)
        assert server.jobs["A"].length == 2 + 4 and not server.records["A"].outcome
        server.run()
        assert len(server.records["A"].token_times_s) == 7 and server.records["A"].outcome == "cancelled"
        assert server.records["B"].outcome == "finished", "it takes all that there are"
        with pytest.raises(ValueError, match="there is no request 'C' whose client could take tokens"):
            server.took("C", 1)


def test_an_answer_that_is_finished_is_finished_however_much_of_it_was_read() -> None:
    for server in both_servers(Memory(2, 12, 2), buffer=2):
        assert server.run([Arrival(0, Request((1,), 3, name="A"), reads=0)])["A"].outcome == "finished"


def test_cancelling_what_has_ended_changes_nothing_and_what_never_was_is_an_error() -> None:
    for server in both_servers(Memory(2, 12, 2)):
        record = server.run(asked((0, 2, 3)))["A"]
        server.cancel("A")
        assert record.outcome == "finished" and record.why == ""
        with pytest.raises(ValueError, match="there is no request 'B' to cancel"):
            server.cancel("B")


def test_whoever_is_refused_is_told_why_and_others_are_served() -> None:
    for server in both_servers(Memory(2, 4, 2)):
        record = server.submit(Request((1,) * 7, 3, name="long"))
        assert record.outcome == "refused" and record.ended_s == record.arrival_s
        assert record.why == "7 prompt tokens and 3 new ones need 9 positions, a row can have 8: shorten one of them"
        assert server.submit(Request((1,) * 7, 2, name="fits")).outcome == ""
        assert server.run()["fits"].outcome == "finished"
    for server in both_servers(Memory(2, 200, 2)):
        record = server.submit(Request((1,) * 200, 58, name="long"))
        assert record.outcome == "refused" and "need 257 positions, the model knows 256" in record.why


def test_users_in_a_closed_loop_ask_again_when_they_were_answered_refused_or_gave_up() -> None:
    def follow(record: RequestRecord) -> Arrival | None:
        user, turn = record.name.split(".")
        if int(turn) == 4:
            return None
        request = Request((1,) * (99 if turn == "1" else 3), 4, name=f"{user}.{int(turn) + 1}")
        leaves = record.ended_s + 2 + 1.5 if turn == "2" else inf
        return Arrival(record.ended_s + 2, request, cancel_s=leaves)

    first = [Arrival(0, Request((1,) * 3, 4, name=f"{user}.0")) for user in "ab"]
    for server in both_servers(Memory(1, 12, 2), follow=follow):
        log = server.run(first)
        outcomes = {record.name: record.outcome for record in log.requests}
        assert outcomes == {
            f"{user}.{turn}": ("finished", "finished", "refused", "cancelled", "finished")[turn]
            for user in "ab"
            for turn in range(5)
        }
        for user in "ab":
            turns = [log[f"{user}.{turn}"] for turn in range(5)]
            assert [after.arrival_s - before.ended_s for before, after in pairwise(turns)] == [2] * 4


def test_two_requests_of_one_name_are_refused() -> None:
    first, second = (asked((time, 1, 1))[0] for time in (0, 1))
    said = "two requests are called 'A': give each a name of its own"
    for server in both_servers(Memory(1, 12, 2)):
        with pytest.raises(ValueError, match=said):
            server.expect([first, second])
        assert not server.coming, "none of them, or all"
        server.expect([first])
        with pytest.raises(ValueError, match=said):
            server.submit(second.request)
        server.run()
        with pytest.raises(ValueError, match=said):
            server.run([second])


# --- Engines

MEMORY = Memory(rows=3, blocks=6, block_size=4)


def test_an_engine_moves_rows_together_when_one_is_cancelled() -> None:
    engine = new_engine(Memory(3, 9, 2), compact=True)
    first, second, third = (engine.submit(request_of(i, 2, 4)) for i in range(3))
    engine.step()
    engine.cancel(second)
    assert [first.row, second.row, third.row] == [0, None, 1] and not second.finished
    engine.run()
    assert third.tokens == lone_run(third.request)


def test_an_engine_that_plans_do_not_fit_is_refused() -> None:
    paged = PagedCache(CONFIG, 2, 8, 4, torch.float64)
    with pytest.raises(ValueError, match="plans do not know of shared blocks"):
        EngineWorker(Engine(MODEL, paged, prefix=PrefixCache(paged)))
    with pytest.raises(ValueError, match="plans are made in blocks: give the engine a PagedCache"):
        EngineWorker(Engine(MODEL, ContiguousCache(CONFIG, 2, 8, torch.float64)))
    engine = Engine(MODEL, paged)
    engine.submit(Request((1,), 1))
    with pytest.raises(ValueError, match="the engine has sequences that no scheduler knows of"):
        EngineWorker(engine)
    with pytest.raises(ValueError, match="a buffer of 0 tokens"):
        Server(Continuous(), CountingWorker(MEMORY, 9), SimulatedClock(COST), buffer=0)
    for wrong in (float("nan"), 1.5):  # nothing is less than NaN, so no client would be too slow
        with pytest.raises(ValueError, match=f"buffer must be a whole number, not {wrong}"):
            Server(Continuous(), CountingWorker(MEMORY, 9), SimulatedClock(COST), buffer=wrong)
    for wrong in (0, float("nan")):
        with pytest.raises(ValueError, match=f"max_positions must be .* not {wrong}"):
            CountingWorker(MEMORY, wrong)


def test_a_client_takes_a_number_of_tokens() -> None:
    server = Server(Continuous(), CountingWorker(MEMORY, 99), SimulatedClock(COST))
    server.submit(request_of(0, 4, 2), reads=0)
    for wrong, said in ((float("nan"), "a whole number, not nan"), (-1, "'r0' cannot take -1 tokens")):
        with pytest.raises(ValueError, match=said):
            server.took("r0", wrong)


def test_memory_that_somebody_else_holds_is_noticed_before_anything_is_read() -> None:
    server = Server(Continuous(), EngineWorker(new_engine(MEMORY)), SimulatedClock(COST))
    cache = server.worker.engine.cache
    others = [cache.pool.take() for _ in range(5)]
    server.expect([Arrival(0, request_of(i, 4, 2)) for i in range(2)])
    with pytest.raises(CacheFull):
        server.step()
    assert set(cache.lengths) == {0}
    for block in others:
        cache.pool.give_back(block)
    server.run()
    assert_all_as_alone(server, [Arrival(0, request_of(i, 4, 2)) for i in range(2)])
