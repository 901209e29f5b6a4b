"""Ctrl-C at any moment of a server's run: it goes on, and nobody is lost, nobody is served twice, no token is drawn
again.

The one idea: Python looks for a signal where a call ends and where a function begins. A profiler is called at just
these places, so one that raises KeyboardInterrupt at the first, at the second and so on tries all of them.
"""

import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from random import Random
from types import FrameType

import pytest
import torch
from test_scheduler import SCHEDULERS, asked
from test_server import COST, MEMORY, MODEL, assert_all_as_alone, both_servers, lone_run, new_engine, request_of

from course_lib.serving.record import Arrival, RequestRecord
from course_lib.serving.scheduler import Continuous, Memory
from course_lib.serving.server import Server
from course_lib.serving.simulation import CountingWorker, SimulatedClock
from course_lib.serving.worker import EngineWorker

FILES = ("server.py", "worker.py", "engine.py", "request.py", "simulation.py")  # those that change something


def interrupted(work: Callable[[], object], moments: Callable[[int], bool]) -> int:
    """work(), interrupted wherever `moments` says so of a moment's number; return how many moments there were."""
    passed = count()

    def look(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename.endswith(FILES) and event in ("call", "c_return") and moments(next(passed)):
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        with suppress(KeyboardInterrupt):
            work()
    finally:
        sys.setprofile(None)
    return next(passed)


def some_arrivals() -> list[Arrival]:
    """Enough for preemption, a refusal, a client that leaves while it waits, one that leaves later, a slow one."""
    arrivals = [Arrival(0.1 * i, request_of(i, 2 + 5 * i % 11, 2 + 3 * i % 7)) for i in range(5)]
    arrivals += [Arrival(1, request_of(5, 30, 3)), Arrival(1, request_of(6, 4, 9), cancel_s=1.5)]
    return [*arrivals, Arrival(2, request_of(7, 3, 12), reads=1), Arrival(2.5, request_of(8, 3, 12), cancel_s=60)]


def asks_again(record: RequestRecord) -> Arrival | None:
    """Whoever was answered first, refused, or left asks something short."""
    number = int(record.name[1:])
    return Arrival(record.ended_s + 0.5, request_of(number + 10, 2, 2)) if number in (0, 5, 6) else None


def check_interrupted(server: Server) -> None:
    """Nobody is lost, and nobody twice; who is finished has all its tokens, one time for each, in order."""
    arrivals = some_arrivals()
    names = [arrival.request.name for arrival in arrivals]
    assert sorted(server.records) == sorted([*names, "r10", "r15", "r16"])
    assert [name for name in server.records if name in names] == names
    assert all(server.records[name].outcome == "finished" for name in ("r10", "r15", "r16"))
    for arrival in arrivals:
        record = server.records[arrival.request.name]
        number = arrivals.index(arrival)
        assert record.outcome == {5: "refused", 6: "cancelled", 7: "cancelled"}.get(number, record.outcome) != ""
        assert number > 4 or record.outcome == "finished", "only who left is not finished"
        assert record.token_times_s == sorted(record.token_times_s)
        assert record.outcome != "finished" or len(record.token_times_s) == record.new_tokens
        if record.token_times_s:
            assert record.arrival_s <= record.admitted_s <= record.token_times_s[0]
    assert not (server.jobs or server.waiting or server.running or server.coming)


@pytest.mark.parametrize("name", ["continuous", "chunked prefill, shortest first"])
def test_ctrl_c_at_any_moment_of_a_simulation_loses_nothing(name: str) -> None:
    for at in count(step=7):
        server = Server(
            SCHEDULERS[name], CountingWorker(MEMORY, 256), SimulatedClock(COST), buffer=4, follow=asks_again
        )
        server.expect(some_arrivals())
        moments = interrupted(server.run, lambda moment, at=at: moment == at)
        server.run()
        check_interrupted(server)
        if moments <= at:
            assert at > 500
            return


def test_ctrl_c_at_any_moment_of_a_short_real_run_loses_nothing() -> None:
    """One that decodes, and one that draws its tokens and is preempted in the third step."""
    memory = Memory(2, 2, 2)
    arrivals = [Arrival(0, request_of(0, 1, 3)), Arrival(0, request_of(1, 1, 3))]
    for at in count():
        server = Server(Continuous(), EngineWorker(new_engine(memory)), SimulatedClock(COST))
        server.expect(arrivals)
        moments = interrupted(server.run, lambda moment, at=at: moment == at)
        server.run()
        assert_all_as_alone(server, arrivals)
        assert all(record.outcome == "finished" for record in server.records.values())
        if moments <= at:
            assert at > 300 and server.records["r1"].preempted_s == [server.steps[1].end_s]
            return


@pytest.mark.parametrize("name", ["A", "B"])
def test_a_cancellation_that_is_interrupted_is_done_or_not_begun(name: str) -> None:
    """A runs and B waits."""
    arrivals = asked((0, 2, 5), (0, 2, 5), (0, 1, 2))
    for at in count():
        interrupts = []
        for server in both_servers(Memory(1, 6, 2)):
            server.expect(arrivals)
            server.step()
            moments = interrupted(lambda server=server: server.cancel(name), lambda moment, at=at: moment == at)
            interrupts.append(moments > at)
            server.run()
            record = server.records[name]
            assert record.outcome in ("finished", "cancelled"), at
            assert record.outcome != "cancelled" or record.ended_s == server.steps[0].end_s
            assert len(record.token_times_s) == (5 if record.outcome == "finished" else int(name == "A"))
            assert all(server.records[other].outcome == "finished" for other in {"A", "B", "C"} - {name})
            if isinstance(server.worker, EngineWorker):
                assert server.worker.engine.cache.pool.free == 6 and not server.worker.engine.waiting
        if not any(interrupts):
            assert at > 5
            return


@pytest.mark.parametrize("compact", [False, True])
def test_ctrl_c_at_many_moments_of_a_real_run_loses_nothing(compact: bool) -> None:
    """In each run it comes again and again, also while what it has left is put in order."""
    random = Random(compact)
    interrupts = 0
    for _ in range(12):
        worker = EngineWorker(new_engine(MEMORY, compact=compact))
        server = Server(Continuous(), worker, SimulatedClock(COST), buffer=4, follow=asks_again)
        server.expect(some_arrivals())
        for _ in range(60):
            after = random.choice((3, 10, 50, 200, 800))
            moments = interrupted(server.run, lambda moment, after=after: moment == after)
            interrupts += moments > after
            server.worker.engine.cache.fill_free(torch.nan)
        server.run()
        check_interrupted(server)
        assert_all_as_alone(server, some_arrivals())
    assert interrupts > 100


def test_ctrl_c_at_any_moment_of_an_engine_without_a_server_loses_nothing() -> None:
    """The same texts, the engine's own rule: also where it lets a sequence in or puts one off."""
    requests = [request_of(0, 1, 3), request_of(1, 1, 3)]
    for at in count():
        engine = new_engine(Memory(2, 2, 2))
        sequences = [engine.submit(request) for request in requests]
        moments = interrupted(engine.run, lambda moment, at=at: moment == at)
        engine.run()
        assert [sequence.tokens for sequence in sequences] == [lone_run(request) for request in requests], at
        assert engine.cache.pool.free == 2 and not engine.waiting and not engine.running
        if moments <= at:
            assert at > 200 and sequences[1].preempted
            return


def test_an_error_in_the_model_is_one_that_a_server_survives() -> None:
    server = Server(Continuous(), EngineWorker(new_engine(MEMORY)), SimulatedClock(COST))
    arrivals = [Arrival(0, request_of(i, 4, 6)) for i in range(4)]
    server.expect(arrivals)
    server.step()

    def fail(*_: object) -> None:
        raise MemoryError

    hook = MODEL.layers[1].register_forward_hook(fail)
    for _ in range(2):
        with pytest.raises(MemoryError):
            server.step()
    hook.remove()
    server.run()
    assert_all_as_alone(server, arrivals)
