"""An auditor of servers: it goes through the log of a run with books of its own, and shares no code with them.

The one idea: a log says who was let in, who read how much and when. From that alone follows what everybody must have
held, which blocks were full, who must have got a token at which moment, and how long everybody was there; so each
number of the log is worked out a second time. Whether a decision was wise it cannot say, only whether it was possible.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import ceil, inf, isclose

from course_lib.serving.record import Arrival, Log, Read, RequestRecord
from course_lib.serving.scheduler import Memory

Seconds = Callable[[Sequence[Read]], float]


def cost_of(pass_s: float, token_s: float = 0, slot_s: float = 0, pair_s: float = 0) -> Seconds:
    """What a step takes by a cost model's own definition: 1, 2 to 15, 16 to 31, 32 to 63, … tokens share a pass."""

    def seconds(reads: Sequence[Read]) -> float:
        def pass_of(tokens: int) -> int:
            return next(n for n, most in enumerate((1, 15, 31, 63, 127, 255, 511, 1023)) if tokens <= most)

        passes = len({pass_of(read.tokens) for read in reads})
        tokens = sum(read.tokens for read in reads)
        return (
            pass_s * passes
            + token_s * tokens
            + slot_s * sum(read.held for read in reads)
            + pair_s * sum(read.tokens * read.held for read in reads)
        )

    return seconds


def audit(log: Log, arrivals: Sequence[Arrival], memory: Memory, seconds: Seconds | None = None) -> None:
    """Raise AssertionError unless every number of the log is what it must be. `seconds` says how long a step takes."""
    came = sorted(arrivals, key=lambda arrival: arrival.time_s)
    assert [record.name for record in log.requests] == [a.request.name for a in came], "someone is lost, or there twice"
    for record, arrival in zip(log.requests, came, strict=True):
        request = arrival.request
        assert (record.arrival_s, record.prompt_tokens) == (arrival.time_s, len(request.prompt))
        assert record.new_tokens == request.max_new_tokens
    served = [record for record in log.requests if record.outcome != "refused"]
    for record in log.requests:
        slots = record.prompt_tokens + record.new_tokens - 1
        if slots > memory.blocks * memory.block_size:
            assert record.outcome == "refused" and record.ended_s == record.arrival_s, record
        assert bool(record.why) == (record.outcome in ("refused", "cancelled")), record

    now, running = 0.0, set[str]()
    length = {record.name: record.prompt_tokens for record in served}
    held = dict.fromkeys(length, 0)
    times: dict[str, list[float]] = {name: [] for name in length}
    preempted: dict[str, list[float]] = {name: [] for name in length}
    admitted: dict[str, float] = {}
    for step in log.steps:
        here = {r.name for r in served if r.arrival_s <= step.begin_s and (r.ended_s or inf) > step.begin_s}
        assert here, "a step with nobody there"
        if step.begin_s > now:  # there was nothing to do in between
            idle = [r for r in served if r.arrival_s < step.begin_s and (r.ended_s or inf) > max(now, r.arrival_s)]
            assert not idle or seconds is None, f"{idle} waited from {now} to {step.begin_s} s, and nobody ran"
        assert step.begin_s >= now
        running &= here
        assert running.issuperset(step.preempted) and len(set(step.preempted)) == len(step.preempted)
        assert not running & set(step.admitted) and here.issuperset(step.admitted)
        for name in step.preempted:
            held[name] = 0
            preempted[name].append(step.begin_s)
        running = running.difference(step.preempted) | set(step.admitted)
        for name in step.admitted:
            admitted.setdefault(name, step.begin_s)
            assert held[name] == 0
        assert step.running == len(running) <= memory.rows and step.waiting == len(here - running)
        assert len({read.name for read in step.reads}) == len(step.reads) > 0
        for name, tokens, after, phase in step.reads:
            assert name in running and 1 <= tokens <= length[name] - held[name]
            own = length[name] > next(r.prompt_tokens for r in served if r.name == name)
            assert phase == ("decode" if own and held[name] == length[name] - 1 else "prefill")
            held[name] += tokens
            assert after == held[name]
        used = sum(ceil(held[name] / memory.block_size) for name in running)
        assert step.blocks_used == used <= step.blocks_total == memory.blocks
        if seconds is not None:
            assert isclose(step.end_s - step.begin_s, seconds(step.reads), rel_tol=1e-6)
        for read in step.reads:
            if held[read.name] == length[read.name]:
                length[read.name] += 1
                times[read.name].append(step.end_s)
        for record in served:
            if len(times[record.name]) == record.new_tokens:
                held[record.name] = 0
        now = step.end_s

    for record in served:
        assert record.token_times_s == times[record.name], record
        assert record.preempted_s == preempted[record.name], record
        assert record.admitted_s == admitted.get(record.name), record
        done = len(times[record.name]) == record.new_tokens
        assert done == (record.outcome == "finished") and record.outcome in ("finished", "cancelled"), record
        assert record.ended_s == times[record.name][-1] if done else record.ended_s is not None
    littles_law(log, exact=seconds is not None)


def littles_law(log: Log, exact: bool = True) -> None:
    """How many were there, added up over the steps, is how long everybody was there: L T = N W.

    The server sees who has come when its next step begins, so that is where they begin to be counted. On a real clock
    some time goes by between steps, in which people are there, too.
    """
    there = sum((step.waiting + step.running) * (step.end_s - step.begin_s) for step in log.steps)
    begins = [step.begin_s for step in log.steps]

    def stay(record: RequestRecord) -> float:
        seen = next((begin for begin in begins if begin >= record.arrival_s), inf)
        return max(0.0, record.ended_s - seen)

    stays = sum(stay(record) for record in log.requests if record.outcome != "refused")
    alike = isclose(there, stays, rel_tol=1e-9, abs_tol=1e-9)
    assert alike or (not exact and there < stays), f"{there} and {stays} seconds"


def first_come_first_served(log: Log) -> None:
    """Nobody was let in before somebody who came earlier and was still there; the first of all always reads."""
    served = [record for record in log.requests if record.admitted_s is not None]
    for earlier, later in pairwise(served):
        assert earlier.admitted_s <= later.admitted_s, f"{later.name} overtook {earlier.name}"
    order = {record.name: number for number, record in enumerate(log.requests)}
    for step, after in pairwise(log.steps):
        first = min((read.name for read in step.reads), key=order.__getitem__)
        record = log[first]
        if record.ended_s > after.begin_s:
            assert first not in after.preempted and first in {read.name for read in after.reads}, first


def overtaken(log: Log, name: str) -> int:
    """How many that came after a request were let in while it was still waiting for the first time."""
    own = list(r.name for r in log.requests).index(name)
    until = log[name].admitted_s if log[name].admitted_s is not None else log[name].ended_s
    return sum(1 for r in log.requests[own + 1 :] if r.admitted_s is not None and r.admitted_s < until)
