"""What came of serving: when each request arrived, got its tokens and ended, and what each step did. Plain data.

The one idea: a run leaves two lists behind, one of requests and one of steps, and everything that is drawn or counted
afterwards is made from them: whether a clock on the wall or a simulated one gave the times, nobody can tell. Nothing
here decides anything or reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple

from course_lib.caches.contract import real
from course_lib.metrics import Timing
from course_lib.serving.request import Request

Outcome = Literal["", "finished", "cancelled", "refused"]  # empty while it is under way
Phase = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Arrival:
    """A request and when it comes, in seconds of the run's clock.

    A client may leave at `cancel_s`; and it may stop reading after its first `reads` tokens, without a word. Raises
    ValueError for times that are none.
    """

    time_s: float
    request: Request
    cancel_s: float = inf
    reads: float = inf

    def __post_init__(self) -> None:
        if not isinstance(self.request, Request):
            raise ValueError(f"what arrives must be a Request, not {self.request!r}")
        real(self.time_s, f"the seconds at which {self.request.name!r} arrives", least=0)
        for name in ("cancel_s", "reads"):
            if getattr(self, name) != inf:
                real(getattr(self, name), f"{name} of {self.request.name!r}", least=0)
        if self.cancel_s < self.time_s:
            raise ValueError(f"{self.request.name!r} arrives at {self.time_s} s and leaves at {self.cancel_s} s")


@dataclass
class RequestRecord:
    """One request from its arrival to its end, on the clock of the run.

    new_tokens: how many it asked for at most. admitted_s: the begin of the first step in which it held memory.
    preempted_s: when it lost that again, and had to wait and to read its text once more. ended_s: when it was finished,
    cancelled or refused, and `why` in words if it was not finished.
    """

    name: str
    arrival_s: float
    prompt_tokens: int
    new_tokens: int
    admitted_s: float | None = None
    token_times_s: list[float] = field(default_factory=list)
    preempted_s: list[float] = field(default_factory=list)
    ended_s: float | None = None
    outcome: Outcome = ""
    why: str = ""

    @property
    def timing(self) -> Timing | None:
        """TTFT, ITL and the like, as `course_lib.metrics` defines them; None if no token came."""
        if not self.token_times_s:
            return None
        return Timing(self.arrival_s, tuple(self.token_times_s), self.prompt_tokens)


Follow = Callable[[RequestRecord], Arrival | None]  # a closed loop: what a user asks next when a request has ended


class Read(NamedTuple):
    """What one sequence read in a step: `tokens` tokens, after which `held` of its text were in the cache."""

    name: str
    tokens: int
    held: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step: who read, who came, who was put off, and how much was waiting and full while it ran.

    waiting and running: how many waited for memory and how many held some, during the step. blocks_used: blocks of the
    pool that were held when all had read, before whoever was finished gave its own back.
    """

    begin_s: float
    end_s: float
    reads: tuple[Read, ...]
    admitted: tuple[str, ...]
    preempted: tuple[str, ...]
    waiting: int
    running: int
    blocks_used: int
    blocks_total: int

    @property
    def duration_s(self) -> float:
        return self.end_s - self.begin_s

    @property
    def tokens(self) -> int:
        """Tokens read, prompts and answers together."""
        return sum(read.tokens for read in self.reads)


@dataclass(frozen=True)
class Log:
    """A whole run: all requests in the order in which they arrived, and all steps.

    until_s: when it was stopped, if that was while requests were under way: nothing may have happened for a while then.
    """

    requests: tuple[RequestRecord, ...]
    steps: tuple[StepRecord, ...]
    until_s: float | None = None

    def __getitem__(self, name: str) -> RequestRecord:
        return next(request for request in self.requests if request.name == name)
