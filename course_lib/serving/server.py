"""The loop of a server: requests arrive, a scheduler plans each step, a worker carries it out, a clock says how long.

The one idea: worker and clock can be exchanged, the loop and its decisions cannot. The worker is a real engine
(`worker.EngineWorker`) or one that counts tokens (`simulation.CountingWorker`); time goes by itself (`WallClock`) or
each step takes what a cost model says (`simulation.SimulatedClock`). A request ends in one of three ways, and its
record says which: finished, cancelled (its client left, or left too much unread), or refused when it came as it could
never run.
"""

from __future__ import annotations

import time
from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from typing import Protocol

from course_lib.caches.contract import whole
from course_lib.metrics import clock as clock_of
from course_lib.serving.record import Arrival, Follow, Log, Outcome, Read, RequestRecord, StepRecord
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Job, Memory, Plan, Scheduler, check


class Worker(Protocol):
    """Whoever carries out plans, and keeps the numbers of each job true."""

    memory: Memory

    def take(self, job: Job, request: Request) -> None:
        """Know a request from now on. Raises ValueError, with the reason in words, if it could never be served."""

    def carry_out(self, plan: Plan) -> None:
        """Do one step. Whoever has read its whole text gets a token, and whoever is finished gives its memory back."""

    def drop(self, job: Job) -> None:
        """Give up a job that was cancelled, whether it runs or waits."""

    def mend(self, jobs: Iterable[Job]) -> None:
        """A call was interrupted: make the numbers of these jobs true again, and forget any other."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the run began."""

    def spend(self, reads: tuple[Read, ...]) -> None:
        """A step was done in which these were read."""

    def wait_until(self, time_s: float) -> None:
        """Nothing is to be done before."""


class WallClock:
    """Real seconds, from the moment at which it is made."""

    def __init__(self, device: str = "cpu") -> None:
        self.clock = clock_of(device)
        self.start_s = self.clock()

    def now(self) -> float:
        return self.clock() - self.start_s

    def spend(self, reads: tuple[Read, ...]) -> None:
        pass  # the time went by itself

    def wait_until(self, time_s: float) -> None:
        time.sleep(max(0.0, time_s - self.now()))


class Server:
    """Serves requests as `scheduler` plans.

    A request is cancelled when its client has left more than `buffer` tokens unread: it may have gone, and others need
    the memory. `follow` is asked what comes next when a request has ended, for users who ask again; asked twice about
    the same one, it must say the same.
    """

    def __init__(
        self, scheduler: Scheduler, worker: Worker, clock: Clock, *, buffer: int = 64, follow: Follow | None = None
    ) -> None:
        if whole(buffer, "buffer") < 1:
            raise ValueError(f"a buffer of {buffer} tokens: a client must be allowed to leave at least 1 unread")
        self.scheduler, self.worker, self.clock = scheduler, worker, clock
        self.buffer, self.follow = buffer, follow
        self.coming: deque[Arrival] = deque()  # the next one first
        self.leaving: list[tuple[float, str]] = []  # a heap: when which client leaves
        self.clients: dict[str, float] = {}  # how many tokens a client takes, if not all
        self.jobs: dict[str, Job] = {}  # all that wait or run
        self.waiting: list[Job] = []  # in the order of rank, as is the next
        self.running: list[Job] = []
        self.records: dict[str, RequestRecord] = {}
        self.steps: list[StepRecord] = []
        self.torn = False  # while something is half done; if that stays, it was interrupted

    @property
    def log(self) -> Log:
        return Log(tuple(self.records.values()), tuple(self.steps))

    def run(self, arrivals: Iterable[Arrival] = ()) -> Log:
        """Serve these, and all that came before, to their ends. After an interrupt, `run()` goes on."""
        self.expect(arrivals)
        while self.step():
            pass
        return self.log

    def step(self) -> StepRecord | None:
        """One step; before it, those come and leave whose time it is. With nothing to do it waits for the next arrival.

        None if none is to come. Raises ValueError for a plan that cannot be carried out.
        """
        begin_s = self.come_and_leave()
        while not self.jobs:
            if not self.coming:
                return None
            self.clock.wait_until(self.coming[0].time_s)
            begin_s = self.come_and_leave()
        plan = self.scheduler.plan(self.waiting, self.running, self.worker.memory)
        used = check(plan, self.waiting, self.running, self.worker.memory)
        reads = tuple([Read(job.name, count, job.held + count, job.phase) for job, count in plan.reads.items()])

        self.torn = True
        self.worker.carry_out(plan)
        self.clock.spend(reads)
        end_s = self.clock.now()
        self.move(plan)
        step = StepRecord(
            begin_s,
            end_s,
            reads,
            tuple([job.name for job in plan.admit]),
            tuple([job.name for job in plan.preempt]),
            len(self.waiting),
            len(self.running),
            used,
            self.worker.memory.blocks,
        )
        self.steps.append(step)
        for job in dict.fromkeys((*plan.preempt, *plan.admit, *plan.reads)):
            self.note(job, begin_s, end_s)
        self.torn = False
        return step

    def move(self, plan: Plan) -> None:
        """Bring queue and running up to what a plan has changed. Whoever has finished still counts as running."""
        if plan.preempt:
            self.running = [job for job in self.running if job not in plan.preempt]
            for job in plan.preempt:
                insort(self.waiting, job, key=self.scheduler.rank)
        for job in plan.admit:
            self.waiting.remove(job)
            insort(self.running, job, key=self.scheduler.rank)

    def note(self, job: Job, begin_s: float, end_s: float) -> None:
        """Write down what has become of a job in a step. Doing so twice changes nothing."""
        record = self.records[job.name]
        new = job.length - job.prompt
        if record.admitted_s is None and (job.runs or new):
            record.admitted_s = begin_s
        if job.preempted > len(record.preempted_s):
            record.preempted_s += [begin_s] * (job.preempted - len(record.preempted_s))
        record.token_times_s += [end_s] * (new - len(record.token_times_s))
        if job.finished:
            self.end(job, "finished", "", end_s)
        elif new - self.clients.get(job.name, inf) > self.buffer:
            self.end(job, "cancelled", f"its client has left more than {self.buffer} tokens unread", end_s)

    def mend(self) -> None:
        """After an interrupt: make the numbers of all jobs true, and lists and records what follows from them."""
        now = self.clock.now()
        self.jobs = {name: job for name, job in self.jobs.items() if name in self.records}
        self.worker.mend(self.jobs.values())
        ranked = sorted(self.jobs.values(), key=self.scheduler.rank)
        self.running = [job for job in ranked if job.runs]
        self.waiting = [job for job in ranked if not job.runs and not job.finished]
        for job in ranked:
            record = self.records[job.name]
            if record.outcome:
                self.end(job, record.outcome, record.why, now if record.ended_s is None else record.ended_s)
            else:
                self.note(job, now, now)
        self.torn = False

    # --- Requests come and leave

    def expect(self, arrivals: Iterable[Arrival]) -> None:
        """These will come at their times. Raises ValueError for a name that somebody else has."""
        arrivals = list(arrivals)
        self.check_names(arrivals)
        self.coming = deque(sorted([*self.coming, *arrivals], key=lambda arrival: arrival.time_s))

    def check_names(self, arrivals: Iterable[Arrival]) -> None:
        names = {arrival.request.name for arrival in self.coming}
        for arrival in arrivals:
            name = arrival.request.name
            if name in names or name in self.records:
                raise ValueError(f"two requests are called {name!r}: give each a name of its own")
            names.add(name)

    def come_and_leave(self) -> float:
        """Let those come and leave whose time it is, and return what time it is."""
        if self.torn:
            self.mend()
        now = self.clock.now()
        while self.coming and self.coming[0].time_s <= now:
            if self.coming[0].request.name not in self.records:  # else it came, and an interrupt came, too
                self.enter(self.coming[0])
            self.coming.popleft()
        while self.leaving and self.leaving[0][0] <= now:
            self.cancel(self.leaving[0][1])
            heappop(self.leaving)
        return now

    def submit(self, request: Request, reads: float = inf) -> RequestRecord:
        """Put a request into the queue now. What can never be served is refused: its record says why.

        `reads` is how many tokens its client takes, whom `took` can let take more: 0 for one that takes them by hand.
        """
        if self.torn:
            self.mend()
        arrival = Arrival(self.clock.now(), request, reads=reads)
        self.check_names([arrival])
        return self.enter(arrival)

    def enter(self, arrival: Arrival) -> RequestRecord:
        request = arrival.request
        prompt, new = len(request.prompt), request.max_new_tokens
        record = RequestRecord(request.name, arrival.time_s, prompt, new)
        job = Job(len(self.records), request.name, prompt, prompt + new, prompt)
        self.torn = True
        try:
            self.worker.take(job, request)
        except ValueError as reason:
            record.ended_s, record.outcome, record.why = arrival.time_s, "refused", str(reason)
            self.ask_next(record)
            self.records[request.name] = record
        else:
            if arrival.cancel_s < inf:
                heappush(self.leaving, (arrival.cancel_s, request.name))
            if arrival.reads < inf:
                self.clients[request.name] = arrival.reads
            self.jobs[request.name] = job
            self.records[request.name] = record  # last: from here on it has come
            insort(self.waiting, job, key=self.scheduler.rank)
        self.torn = False
        return record

    def took(self, name: str, tokens: int) -> None:
        """The client of a request has taken so many tokens more. Nothing changes for one that takes all there are."""
        if name not in self.records:
            raise ValueError(f"there is no request {name!r} whose client could take tokens")
        if whole(tokens, "the number of tokens") < 0:
            raise ValueError(f"the client of {name!r} cannot take {tokens} tokens")
        if name in self.clients:
            self.clients[name] += tokens

    def cancel(self, name: str, why: str = "its client has left") -> None:
        """Give up a request, whether it waits or runs. One that has ended stays as it is."""
        if self.torn:
            self.mend()
        if name not in self.records:
            raise ValueError(f"there is no request {name!r} to cancel")
        if name in self.jobs:
            self.torn = True
            self.end(self.jobs[name], "cancelled", why, self.clock.now())
            self.torn = False

    def end(self, job: Job, outcome: Outcome, why: str, time_s: float) -> None:
        """A job ends. Doing so twice changes nothing."""
        record = self.records[job.name]
        record.ended_s, record.why, record.outcome = time_s, why, outcome
        if outcome == "cancelled":
            self.worker.drop(job)
        if job in self.running:
            self.running.remove(job)
        elif job in self.waiting:
            self.waiting.remove(job)
        self.ask_next(record)
        del self.jobs[job.name]  # with no call in between: it is asked again, or it has been answered

    def ask_next(self, ended: RequestRecord) -> None:
        """Expect what the same user asks next."""
        if self.follow and (arrival := self.follow(ended)):
            self.expect([arrival])
