"""A load test of a real server: sends requests when they are to come, and leaves the log behind that a simulation does.

    report = measure("http://127.0.0.1:8000", "smollm2", poisson(questions(20, 64, 32), rate_per_s=2.0))
    report.log, report.summary(), report.faults

The one idea: the clock of a request begins when it was to come, not when this program got round to sending it, and who
comes at a given rate never waits for an answer. Otherwise a slow server is asked less, and looks quick (coordinated
omission). A client sees a server from outside: what it cannot see, it does not report.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from math import isfinite
from operator import attrgetter
from typing import Any

import httpx

from course_lib.caches.contract import whole
from course_lib.serving.arrivals import ClosedLoop
from course_lib.serving.client import REFUSALS, Asked, ask, counted_again
from course_lib.serving.endpoint import Endpoint, Timeouts
from course_lib.serving.event_stream import Answer
from course_lib.serving.load_metrics import Summary, Targets, summary
from course_lib.serving.prompt_text import prompt_text, questions
from course_lib.serving.record import Arrival, Follow, Log, RequestRecord
from course_lib.serving.request import Request
from course_lib.serving.token_times import Count

__all__ = ["CannotMeasure", "Report", "Timeouts", "measure", "questions"]

WARM_UP = Arrival(0.0, Request((0,) * 8, 2, name="warm-up"))
WRONG_CALLS = ("HTTP 400", "HTTP 401", "HTTP 403", "HTTP 404", "HTTP 405", "HTTP 422")  # the same for every request
NOT_MEASURED = (
    "the server's own queue, and how full its cache is: a client cannot see them",
    "prefill apart from waiting: both are in the TTFT",
)


class CannotMeasure(ValueError):
    """The first request shows that none can work: the server is not there, or refuses what is asked of it.

    `unreachable`: it is not there.
    """

    def __init__(self, message: str, unreachable: bool) -> None:
        super().__init__(message)
        self.unreachable = unreachable


@dataclass(frozen=True)
class Report:
    """What was measured.

    log: a record of each request that came; those that went wrong are in it without tokens, as refused or cancelled,
    and say why. Those under way when the run was stopped have no end. asked: more about each that has ended, in the
    order in which they ended. planned: how many were to come; fewer are in the log of a `partial` run. start_s: what
    `time.perf_counter()` was at 0 s of the log. warm_up: what went wrong with the request before the run, or empty.
    """

    url: str
    model: str
    log: Log
    asked: tuple[Asked, ...]
    planned: int
    partial: bool
    start_s: float
    warm_up: str
    usage_asked: bool

    @property
    def faults(self) -> Counter[str]:
        """How many requests went wrong in which way."""
        return Counter(each.fault for each in self.asked if each.fault)

    @property
    def counted_by(self) -> Counter[str]:
        """How many answers have their token times from what; `token_times.TokenTimes` explains the names."""
        return Counter(each.counted_by for each in self.asked if each.counted_by)

    def summary(self, targets: Targets | None = None) -> Summary:
        """The numbers of `load_metrics`: times and tokens of the good answers, rates over the whole run.

        ValueError if no request came.
        """
        return summary(self.log, targets)

    def as_dict(self, targets: Targets | None = None) -> dict[str, object]:
        """All of it, ready for JSON, with names that say the unit."""
        good = [each for each in self.asked if each.counted_by]
        late = [each.late_s for each in self.asked]
        return {
            "url": self.url,
            "model": self.model,
            "partial": self.partial,
            "planned": self.planned,
            **(self.summary(targets).as_dict() if self.log.requests else {}),
            "faults": dict(sorted(self.faults.items())),
            "warm_up_fault": self.warm_up,
            "usage_asked_for": self.usage_asked,
            "tokens_counted_by": dict(sorted(self.counted_by.items())),
            "prompts_counted_by_server": sum(each.prompt_counted for each in good),
            "pieces": sum(each.pieces for each in good),
            "pieces_with_several_tokens": sum(each.pieces_with_several for each in good),
            "hidden_tokens": sum(each.hidden for each in good),
            "pieces_of_wrong_answers": sum(each.pieces for each in self.asked if each.fault),
            "largest_delay_of_sending_s": max(late, default=None),
            "not_measured": list(NOT_MEASURED),
            "requests": [
                {
                    "name": record.name,
                    "arrival_s": record.arrival_s,
                    "prompt_tokens": record.prompt_tokens,
                    "token_times_s": record.token_times_s,
                    "ended_s": record.ended_s,
                    "outcome": record.outcome,
                    "why": record.why,
                }
                for record in self.log.requests
            ],
        }


def measure(
    url: str,
    model: str,
    arrivals: Sequence[Arrival] | ClosedLoop,
    *,
    timeouts: Timeouts | None = None,
    most_at_once: int | None = None,
    chat: bool = True,
    api_key: str | None = None,
    count: Count | None = None,
    text_of: Callable[[Request], str] = prompt_text,
    warm_up: bool = True,
    on_progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Send requests to an OpenAI-compatible streaming server as `arrivals` say, and measure its answers.

    most_at_once: more than so many are never under way; the others wait here, and their clocks run. chat: chat
    completions, else plain ones. count: tokens of a text, for a server that puts several into one piece. text_of: the
    prompt of a request, by default as many words as that has tokens. warm_up: ask once before the run, which no number
    counts; CannotMeasure is raised if that shows that nothing can work. on_progress: called with how many have ended
    and how many of them went wrong.

    Works in a notebook, too, where a loop is running: it runs in a thread of its own. Ctrl-C ends it: what was measured
    so far is returned, and `partial` is True. Raises ValueError for arguments that make no sense.
    """
    if most_at_once is not None and whole(most_at_once, "most_at_once") < 1:
        raise ValueError(f"most_at_once must be at least 1, not {most_at_once}")
    first = arrivals.first if isinstance(arrivals, ClosedLoop) else list(arrivals)
    requests = arrivals.requests if isinstance(arrivals, ClosedLoop) else [arrival.request for arrival in first]
    if not requests:
        raise ValueError("no request is to come: there is nothing to measure")
    if len({request.name for request in requests}) < len(requests):
        raise ValueError("two requests have one name: give each its own, or nobody can tell whose answer has come")
    if any(isfinite(arrival.reads) for arrival in first):
        raise ValueError("a client that stops reading (Arrival.reads) cannot be sent to a real server: use cancel_s")
    run = Run(
        Endpoint(url, model, chat, api_key, timeouts or Timeouts()),
        first,
        arrivals.follow if isinstance(arrivals, ClosedLoop) else lambda record: None,
        {request.name: text_of(request) for request in requests},
        most_at_once,
        count,
        on_progress or (lambda ended, wrong: None),
    )
    in_own_thread(run.whole(warm_up))
    return run.report(len(requests))


class Run:
    """A run under way. It may be cancelled at any moment, and knows then what has ended so far."""

    def __init__(
        self,
        endpoint: Endpoint,
        first: Sequence[Arrival],
        follow: Follow,
        texts: dict[str, str],
        most_at_once: int | None,
        count: Count | None,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self.endpoint, self.first, self.follow, self.texts = endpoint, first, follow, texts
        self.count, self.on_progress = count, on_progress
        self.turn: AbstractAsyncContextManager[Any] = asyncio.Semaphore(most_at_once) if most_at_once else nullcontext()
        self.records: dict[str, RequestRecord] = {}
        self.asked: list[Asked] = []
        self.answers: list[Answer] = []  # of those in `asked`, to be counted with a tokenizer in the end
        self.warm_up_fault, self.partial = "", True
        self.start_s, self.stopped_s = time.perf_counter(), 0.0

    def now(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self.start_s

    async def whole(self, warm_up: bool) -> None:
        async with self.endpoint.connect() as client:
            if warm_up:
                await self.warm_up(client)
            self.start_s = time.perf_counter()
            try:
                async with asyncio.TaskGroup() as users:
                    for arrival in sorted(self.first, key=attrgetter("time_s")):
                        await self.until(arrival.time_s)
                        users.create_task(self.user(client, arrival))
                self.partial = False
            finally:
                self.stopped_s = self.now()

    async def warm_up(self, client: httpx.AsyncClient) -> None:
        """Ask once. A server that does not like to be asked for its usage is asked without from then on."""
        with_usage, text = self.endpoint, prompt_text(WARM_UP.request)
        record, asked, _ = await ask(client, self.endpoint, WARM_UP, self.now, text=text)
        if asked.fault in ("HTTP 400", "HTTP 422"):
            self.endpoint = replace(with_usage, usage=False)
            again, asked, _ = await ask(client, self.endpoint, WARM_UP, self.now, text=text)
            record = record if asked.fault else again
        if asked.fault in WRONG_CALLS or asked.fault in REFUSALS:
            raise CannotMeasure(f"{self.endpoint.address} gives no answer: {record.why}", asked.fault in REFUSALS)
        self.warm_up_fault = record.why

    async def until(self, time_s: float) -> None:
        if (wait_s := time_s - self.now()) > 0:
            await asyncio.sleep(wait_s)

    async def user(self, client: httpx.AsyncClient, arrival: Arrival | None) -> None:
        """One request, and in a closed loop those that its user asks after it, once the whole answer is there: servers
        say more after the last token."""
        while arrival is not None:
            await self.until(arrival.time_s)
            record = await self.ask(client, arrival)
            arrival = self.follow(replace(record, ended_s=self.now()))

    async def ask(self, client: httpx.AsyncClient, arrival: Arrival) -> RequestRecord:
        request = arrival.request
        under_way = RequestRecord(request.name, arrival.time_s, len(request.prompt), request.max_new_tokens)
        self.records[request.name] = under_way
        text = self.texts[request.name]
        async with self.turn:
            record, asked, answer = await ask(client, self.endpoint, arrival, self.now, text=text)
        self.records[request.name] = record
        self.asked.append(asked)
        if self.count is not None:
            self.answers.append(answer)
        self.on_progress(len(self.asked), sum(bool(each.fault) for each in self.asked))
        return record

    def report(self, planned: int) -> Report:
        """What has been measured so far."""
        if self.count is not None:
            for index, (asked, answer) in enumerate(zip(self.asked, self.answers)):
                self.records[asked.name], self.asked[index] = counted_again(
                    self.records[asked.name], asked, answer, self.count
                )
        records = tuple(sorted(self.records.values(), key=attrgetter("arrival_s")))
        log = Log(records, (), self.stopped_s if self.partial else None)
        return Report(
            self.endpoint.url,
            self.endpoint.model,
            log,
            tuple(self.asked),
            planned,
            self.partial,
            self.start_s,
            self.warm_up_fault,
            self.endpoint.usage,
        )


def in_own_thread(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to its end in an event loop of its own. Ctrl-C cancels it, and waits until it has tidied up."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    errors: list[BaseException] = []
    ended = threading.Event()  # Thread.join, once interrupted, may take a thread that runs for one that has ended

    def live() -> None:
        try:
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        except BaseException as error:
            errors.append(error)
        finally:
            with suppress(RuntimeError):
                loop.run_until_complete(loop.shutdown_asyncgens())  # streams that were left before their end
            loop.close()
            ended.set()

    thread = threading.Thread(target=live, name="load test")
    asked_to_stop: list[int] = []

    def stop_once(number: int, _: object) -> None:
        # An exception, as Ctrl-C raises it, could come in the middle of a wait and break its lock.
        if not asked_to_stop:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(task.cancel)
        asked_to_stop.append(number)

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT) if in_main else None
    if before is not None:
        signal.signal(signal.SIGINT, stop_once)
    try:
        thread.start()
        while not ended.wait(0.1):  # a wait without an end could not be interrupted on every system
            pass
    except BaseException as stop:
        with suppress(RuntimeError):  # it has ended by itself
            loop.call_soon_threadsafe(task.cancel)
        if thread.ident is not None:  # else it could not be started
            ended.wait()
        if not isinstance(stop, KeyboardInterrupt):
            raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    thread.join()
    if errors:
        raise errors[0]
