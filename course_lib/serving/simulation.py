"""A server without a model: tokens are counted, and each step takes the time that a cost model says.

The one idea: the loop and the schedulers are those of the real server, so what is simulated is only how long a step
takes. That is a formula with three numbers, fitted to steps that were measured on a machine. Everything is exact and
the same in every run: thousands of requests are served in a second, and a load that takes an hour can be repeated with
one thing changed. What a simulation cannot know is when a model would stop by itself: each request gets all its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from course_lib.caches.contract import real, whole
from course_lib.serving.engine import pass_for
from course_lib.serving.record import Arrival, Log, Read
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Job, Memory, Plan, Scheduler
from course_lib.serving.server import Server


@dataclass(frozen=True)
class CostModel:
    """Seconds of a step, as a sum. What is counted is what `course_lib.roofline` counts in FLOPs and bytes.

    pass_s: for each pass, which moves the weights however few tokens meet them. token_s: for each token read, which
    meets every weight. slot_s: for each slot that a sequence of the step holds, whose keys and values are moved.
    pair_s: for each pair of a token and a slot that attention multiplies. ValueError for a number below 0, or if all
    of them are 0.
    """

    pass_s: float
    token_s: float = 0.0
    slot_s: float = 0.0
    pair_s: float = 0.0

    def __post_init__(self) -> None:
        costs = [real(cost, name, least=0) for name, cost in asdict(self).items()]
        if not any(costs):
            raise ValueError(f"costs of {costs} seconds: one of them must be more than 0")

    def seconds(self, reads: Iterable[Read]) -> float:
        """How long a step takes in which these are read."""
        work = Work.of(reads)
        return (
            self.pass_s * work.passes + self.token_s * work.tokens + self.slot_s * work.slots + self.pair_s * work.pairs
        )


class Work(NamedTuple):
    """What there is to do in a step, in the numbers that a cost model goes by."""

    passes: int
    tokens: int
    slots: int
    pairs: int

    @classmethod
    def of(cls, reads: Iterable[Read]) -> Work:
        passes, tokens, slots, pairs = set(), 0, 0, 0
        for _, count, held, _ in reads:
            passes.add(pass_for(count))
            tokens += count
            slots += held
            pairs += count * held
        return cls(len(passes), tokens, slots, pairs)


class SimulatedClock:
    """Time that goes by only when a step is done or when there is nothing to do."""

    def __init__(self, cost: CostModel) -> None:
        self.cost, self.time_s = cost, 0.0

    def now(self) -> float:
        return self.time_s

    def spend(self, reads: tuple[Read, ...]) -> None:
        self.time_s += self.cost.seconds(reads)

    def wait_until(self, time_s: float) -> None:
        self.time_s = max(self.time_s, time_s)


class CountingWorker:
    """A worker that does to the numbers of jobs what an engine does to sequences, and nothing else."""

    def __init__(self, memory: Memory, max_positions: int) -> None:
        self.memory, self.max_positions = memory, whole(max_positions, "max_positions")
        if self.max_positions < 1:
            raise ValueError(f"max_positions must be at least 1, not {max_positions}")

    def take(self, job: Job, request: Request) -> None:
        request.check_room(self.max_positions, self.memory.slots)

    def carry_out(self, plan: Plan) -> None:
        for job in plan.preempt:
            job.preempted += 1
            job.runs, job.held = False, 0
        for job in plan.admit:
            job.runs = True
        for job, count in plan.reads.items():
            job.held += count
            if job.held == job.length:
                job.length += 1
                if job.length == job.most:
                    job.finished, job.runs, job.held = True, False, 0

    def drop(self, job: Job) -> None:
        job.runs, job.held = False, 0

    def mend(self, jobs: Iterable[Job]) -> None:
        """Nothing: the numbers of a job change with no call in between, so an interrupt finds it done or not begun."""


def simulate(
    scheduler: Scheduler,
    memory: Memory,
    arrivals: Iterable[Arrival],
    cost: CostModel,
    *,
    max_positions: int = 2**31,
    **options: Any,
) -> Log:
    """Serve arrivals on a simulated machine for a model that knows `max_positions`. Takes the options of `Server`."""
    return Server(scheduler, CountingWorker(memory, max_positions), SimulatedClock(cost), **options).run(arrivals)
