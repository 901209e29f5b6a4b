"""Who runs next: given who waits, who runs and how much memory there is, a plan for one step. It computes nothing else.

The one idea: a scheduler sees whole numbers only (tokens unread, tokens that may still come, order of arrival, blocks),
never a token, a tensor or a clock. So the same plan is made for a simulation that only counts and for the real model,
and it can be read, tested and graded without either. The policies are those of the field: one at a time, static
batches, continuous batching (Orca, Yu et al. 2022) with preemption (vLLM, Kwon et al. 2023), and chunked prefill under
a budget of tokens (Sarathi-Serve, Agrawal et al. 2024).

Nobody waits for ever. Those that run and those that wait are ranked, and a rank never changes. Whoever runs and ranks
first is never preempted and reads in every step; nobody overtakes the first of the queue; and only so many of those
that come later can get a better rank (see `Scheduler.ageing`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from course_lib.caches import PagedCache
from course_lib.caches.contract import whole
from course_lib.serving.record import Phase


@dataclass(eq=False, slots=True)
class Job:
    """What a scheduler may know of a request: numbers of tokens. Never what they say, or when it will stop.

    number: its place in the order of arrival. prompt: how many were asked. most: of its text, with all new tokens that
    it may get. length: of its text so far. held: of these, how many its row of the cache holds. runs: whether it has a
    row. preempted: how many times it lost one.
    """

    number: int
    name: str
    prompt: int
    most: int
    length: int
    held: int = 0
    runs: bool = False
    finished: bool = False
    preempted: int = 0

    @property
    def unread(self) -> int:
        """Tokens of its text that it has to read before its next token can be chosen: 1 while it decodes."""
        return self.length - self.held

    @property
    def phase(self) -> Phase:
        """A job decodes when all it has to read is a token of its own; reading its text again is a prefill, too."""
        return "decode" if self.unread == 1 and self.length > self.prompt else "prefill"


@dataclass(frozen=True)
class Memory:
    """A pool of `blocks` blocks of `block_size` tokens, and `rows` sequences that may hold some: all that a paged cache
    looks like from outside. ValueError for a number below 1.
    """

    rows: int
    blocks: int
    block_size: int = 16

    def __post_init__(self) -> None:
        for name in ("rows", "blocks", "block_size"):
            if whole(getattr(self, name), name) < 1:
                raise ValueError(f"a memory has at least 1 of everything, not {name} = {getattr(self, name)}")

    @classmethod
    def of(cls, cache: PagedCache) -> Memory:
        return cls(cache.rows, len(cache.pool.references), cache.block_size)

    @property
    def slots(self) -> int:
        return self.blocks * self.block_size

    def blocks_for(self, tokens: int) -> int:
        """How many blocks hold so many tokens of one sequence."""
        return -(-tokens // self.block_size)


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: who gives its memory back, who gets a row, and how many tokens each reads, at least one.

    Whoever runs and is not in `reads` pauses. Everybody has room for what it reads: see `check`.
    """

    reads: dict[Job, int]
    admit: Sequence[Job] = ()
    preempt: Sequence[Job] = ()


@dataclass(frozen=True)
class Scheduler(ABC):
    """The base of all policies: an order, and a plan.

    `ageing` None is first come, first served. A number is shortest first, where a place in the queue counts as so many
    tokens: whoever comes i places later overtakes only if it is more than i · ageing tokens shorter. So of those that
    come later fewer than most / ageing overtake a request of at most `most` tokens. ValueError for less than 1.
    """

    ageing: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.ageing is not None and whole(self.ageing, "ageing") < 1:
            raise ValueError(f"ageing = {self.ageing}: without at least 1 token a place, long requests may never run")

    def rank(self, job: Job) -> tuple[int, int]:
        """The smaller, the earlier its turn. It never changes, whatever becomes of the job."""
        return (job.number if self.ageing is None else job.most + self.ageing * job.number, job.number)

    @abstractmethod
    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        """The next step. Both lists are in the order of rank, they are not empty together, and stay as they are."""


@dataclass(frozen=True)
class StaticBatches(Scheduler):
    """A batch of all that find room is run to its end, and nobody joins before the last of it is finished.

    Room for all that may come is set aside, so nobody has to be preempted.
    """

    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        admit = [] if running else fitting(waiting, memory.rows, memory.blocks, memory, reserve=True)
        return Plan({job: job.unread for job in (*running, *admit)}, admit)


@dataclass(frozen=True)
class OneAtATime(Scheduler):
    """One request after the other: static batches of one."""

    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        admit = [] if running else waiting[:1]
        return Plan({job: job.unread for job in (*running, *admit)}, admit)


@dataclass(frozen=True)
class Continuous(Scheduler):
    """Whoever waits joins as soon as a row and the memory for its text are free.

    With a `budget` at most so many tokens are read in a step: those that decode take one each, and what is left goes to
    prompts, in order, which are thus read in chunks. It must be at least the number of rows. With `reserve` room for
    all that may come is set aside, too. Without, more run at once, and when the pool is full the last in rank is
    preempted: it gives all its memory back, waits in its place in the queue, and reads its text again.
    """

    budget: int | None = None
    reserve: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and whole(self.budget, "the budget") < 1:
            raise ValueError(f"a budget of {self.budget} tokens: nobody could ever read")
        if not isinstance(self.reserve, bool):
            raise ValueError(f"reserve must be True or False, not {self.reserve!r}")

    def plan(self, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> Plan:
        budget = self.budget or memory.rows * memory.slots  # more than anybody could read
        if budget < memory.rows:
            raise ValueError(f"a budget of {budget} tokens for {memory.rows} rows: each may decode one in a step")
        stay, preempt = list(running), []
        reads = shares(stay, budget)
        while sum(memory.blocks_for(job.held + reads.get(job, 0)) for job in stay) > memory.blocks:
            preempt.append(stay.pop())
            reads = shares(stay, budget)
        if preempt:  # nobody joins: who was preempted comes first
            return Plan(reads, (), preempt)
        free = memory.blocks - sum(needed(job, memory, self.reserve) for job in stay)
        admit, left = [], budget - sum(reads.values())
        for job in fitting(waiting, memory.rows - len(stay), free, memory, self.reserve):
            if left == 0:
                break
            admit.append(job)
            reads[job] = min(job.unread, left)
            left -= reads[job]
        return Plan(reads, admit)


def shares(running: Sequence[Job], budget: int) -> dict[Job, int]:
    """How many tokens each reads: first one for each that decodes, then all that is left to prompts, in order."""
    reads = {job: 1 for job in running if job.unread == 1}
    left = budget - len(reads)
    for job in running:
        if job.unread > 1 and left:
            reads[job] = min(job.unread, left)
            left -= reads[job]
    return reads


def needed(job: Job, memory: Memory, reserve: bool) -> int:
    """Blocks for the text of a job so far, or with `reserve` for all that it may become.

    The last new token is never read, so it needs no slot.
    """
    return memory.blocks_for(job.most - 1 if reserve else job.length)


def fitting(waiting: Iterable[Job], rows: int, blocks: int, memory: Memory, reserve: bool) -> list[Job]:
    """The first of the queue that fit into so many free rows and blocks together. Nobody overtakes who does not fit."""
    found: list[Job] = []
    for job in waiting:
        blocks -= needed(job, memory, reserve)
        if blocks < 0 or len(found) == rows:
            break
        found.append(job)
    return found


def check(plan: Plan, waiting: Sequence[Job], running: Sequence[Job], memory: Memory) -> int:
    """How many blocks are held when all have read. Raises ValueError, saying what is wrong, for a plan that cannot be
    carried out or that leads nowhere.
    """
    stay = set(running).difference(plan.preempt)
    if len(stay) != len(running) - len(plan.preempt):
        raise ValueError(f"{names(plan.preempt)} are preempted: each must run, and be named once")
    for job in plan.admit:
        if job.runs or job in stay or job.finished:
            raise ValueError(f"{job.name!r} is admitted, but it does not wait, or is named twice")
        stay.add(job)
    if len(stay) > memory.rows:
        raise ValueError(f"{len(stay)} would run, there are {memory.rows} rows: admit fewer")
    used = 0
    for job, tokens in plan.reads.items():
        if job not in stay or not 1 <= tokens <= job.unread:
            raise ValueError(f"{job.name!r} reads {tokens} tokens: it must run, and has {job.unread} unread")
        stay.remove(job)
        used += memory.blocks_for(job.held + tokens)
    used += sum(memory.blocks_for(job.held) for job in stay)  # those that pause
    if used > memory.blocks:
        raise ValueError(f"the plan needs {used} blocks, there are {memory.blocks}: preempt somebody, or admit fewer")
    if not plan.reads:
        raise ValueError(f"nobody reads, {len(waiting)} wait and {len(running)} run: it would never end")
    return used


def names(jobs: Iterable[Job]) -> str:
    return ", ".join(job.name for job in jobs)
