"""Who did what from when to when: the log of a run as bars that can be drawn, one row of them for each request.

The one idea: a request is always in exactly one state, so its bars lie end to end from its arrival to its end. A state
is not written down anywhere: it follows from who read in which step. A log without steps comes from a client, who sees
a server from outside: until the first token it waits, and after that it is decoded for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from course_lib.serving.record import Log, RequestRecord

State = Literal["waiting", "prefill", "decode", "paused", "preempted"]


@dataclass(frozen=True)
class Span:
    """A time in which one request was in one state, and how many tokens it read.

    waiting: it has come and has no memory yet. prefill: it reads its prompt, or after a preemption its text so far.
    decode: it reads a token of its own in each step. paused: it has memory, and others were let read. preempted: its
    memory was taken away, and it waits to be let in again.
    """

    begin_s: float
    end_s: float
    state: State
    tokens: int = 0


def timeline(log: Log) -> dict[str, list[Span]]:
    """The bars of each request by its name, in the order of arrival. Whoever was refused has none.

    The little time that goes by between two steps on a real clock belongs to the first of them.
    """
    records = {record.name: record for record in log.requests if record.outcome != "refused"}
    if not log.steps:
        return {name: seen_from_outside(record) for name, record in records.items()}
    bars: dict[str, list[Span]] = {name: [] for name in records}
    idle: dict[str, State] = dict.fromkeys(records, "waiting")  # what it is in while it does not read

    def wait(name: str, until_s: float) -> None:
        row = bars[name]
        add(row, Span(row[-1].end_s if row else records[name].arrival_s, until_s, idle[name]))

    last_s = log.steps[-1].end_s
    for step, edge_s in zip(log.steps, [*(step.begin_s for step in log.steps[1:]), last_s]):
        for name in step.preempted:
            wait(name, step.begin_s)
            idle[name] = "preempted"
        for name in step.admitted:
            wait(name, step.begin_s)
            idle[name] = "paused"
        for read in step.reads:
            wait(read.name, step.begin_s)
            ended_s = records[read.name].ended_s
            end_s = edge_s if ended_s is None else min(edge_s, ended_s)
            add(bars[read.name], Span(step.begin_s, end_s, read.phase, read.tokens))
    for name, record in records.items():
        wait(name, last_s if record.ended_s is None else record.ended_s)
    return bars


def seen_from_outside(record: RequestRecord) -> list[Span]:
    """The bars of one request as its client sees them, up to the last that is known of it."""
    times = record.token_times_s
    last_s = record.ended_s if record.ended_s is not None else [record.arrival_s, *times][-1]
    first_s = times[0] if times else last_s
    row: list[Span] = []
    add(row, Span(record.arrival_s, first_s, "waiting"))
    add(row, Span(first_s, last_s, "decode", max(0, len(times) - 1)))
    return row


def add(row: list[Span], span: Span) -> None:
    """Put a span at the end of a row: one that takes no time is left out, and one like the last makes that longer."""
    if span.end_s <= span.begin_s:
        return
    if row and row[-1].state == span.state:
        row[-1] = replace(row[-1], end_s=span.end_s, tokens=row[-1].tokens + span.tokens)
    else:
        row.append(span)
