"""The worker that has a real model: plans become steps of an engine.

The one idea: the engine is the truth. Before and after a step the numbers of each job are read off its sequence and its
row of the cache, never counted along; so even after an interrupt there is nothing that could disagree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from course_lib.caches import PagedCache
from course_lib.serving.engine import Engine
from course_lib.serving.record import Arrival, Log
from course_lib.serving.request import Request, Sequence
from course_lib.serving.scheduler import Job, Memory, Plan, Scheduler
from course_lib.serving.server import Clock, Server, WallClock


class EngineWorker:
    """Carries plans out with `engine`, which has nothing to do yet and a paged cache of its own.

    `sequences` are those of all requests that came, by name: there lie the tokens. How many tokens are read in a pass
    is for the scheduler to say, so the engine's own `chunk` is not asked. Raises ValueError for an engine that shares
    prefixes: how much memory that saves no plan can count on.
    """

    def __init__(self, engine: Engine) -> None:
        if not isinstance(engine.cache, PagedCache):
            raise ValueError(f"plans are made in blocks: give the engine a PagedCache, not {engine.cache}")
        if engine.prefix is not None:
            raise ValueError("plans do not know of shared blocks: make the engine without a prefix cache")
        if engine.waiting or engine.running:
            raise ValueError("the engine has sequences that no scheduler knows of: let them finish, or make a new one")
        self.engine, self.memory = engine, Memory.of(engine.cache)
        self.sequences: dict[str, Sequence] = {}

    def take(self, job: Job, request: Request) -> None:
        self.sequences[job.name] = self.engine.submit(request)

    def carry_out(self, plan: Plan) -> None:
        sequence = self.sequences
        self.engine.carry_out(
            [sequence[job.name] for job in plan.preempt],
            [sequence[job.name] for job in plan.admit],
            {sequence[job.name]: count for job, count in plan.reads.items()},
        )
        for job in (*plan.preempt, *plan.admit, *plan.reads):
            self.look(job)

    def look(self, job: Job) -> None:
        """Read the numbers of a job off its sequence."""
        sequence = self.sequences[job.name]
        job.length, job.finished, job.preempted = len(sequence.text), sequence.finished, sequence.preempted
        job.runs = sequence.row is not None
        job.held = 0 if sequence.row is None else self.engine.cache.lengths[sequence.row]

    def drop(self, job: Job) -> None:
        self.engine.cancel(self.sequences[job.name])
        self.look(job)

    def mend(self, jobs: Iterable[Job]) -> None:
        jobs, engine = list(jobs), self.engine
        engine.dismiss()
        known = [self.sequences[job.name] for job in jobs]
        engine.waiting = deque(s for s in known if s not in engine.running and not s.finished)
        for job, sequence in zip(jobs, known):
            if sequence in engine.running:
                engine.unread(sequence)  # whoever has read all but not chosen goes back by a token
            else:
                sequence.row = None
            self.look(job)


def serve(
    engine: Engine, scheduler: Scheduler, arrivals: Iterable[Arrival], *, clock: Clock | None = None, **options: Any
) -> Log:
    """Serve arrivals with a real model, in real time unless another `clock` is given. Takes the options of `Server`."""
    clock = clock or WallClock(str(engine.model.device))
    return Server(scheduler, EngineWorker(engine), clock, **options).run(arrivals)
