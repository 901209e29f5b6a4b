"""One request to an OpenAI-compatible server, and what became of it: an answer, or a fault with a name.

The one idea: whatever a server does, it becomes a record. It may refuse, stall, break off, talk nonsense or never end:
each of these is a `Fault`, whose tokens count for nothing, and none of them stops the others. Every request has a
connection of its own, as visitors have, so connecting is part of what they wait for. `loadtest.py` decides when who
asks.
"""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx

from course_lib.serving.endpoint import Endpoint
from course_lib.serving.event_stream import Answer, EventParser, Fault, shown
from course_lib.serving.record import Arrival, Outcome, RequestRecord
from course_lib.serving.token_times import Count, CountedBy, TokenTimes, token_times

MOST_ERROR_BYTES = 4096  # of what a server says when it refuses
# An answer of n tokens in more than 16 n + 256 pieces, or in more than 4096 bytes for each, has no end in sight.
PIECES_PER_TOKEN, PIECES_BESIDES, BYTES_PER_PIECE = 16, 256, 4096
REFUSALS = (
    "no connection",
    "no connection in time",
    "too many connections",
)  # and whatever begins with "HTTP": nothing was begun


@dataclass(frozen=True)
class Asked:
    """One request as its client saw it, beside its record: what went wrong, and what its token times rest on.

    fault: the name of what went wrong, or empty. late_s: how long after its arrival it was sent, because this program
    was busy or waited for its turn. pieces: of text that came; if something went wrong, they are not in the record.
    pieces_with_several: those that held more than one token. hidden: tokens that the server counted and did not send.
    """

    name: str
    fault: str
    late_s: float
    counted_by: CountedBy | None = None
    prompt_counted: bool = False  # by the server
    pieces: int = 0
    pieces_with_several: int = 0
    hidden: int = 0


async def ask(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    arrival: Arrival,
    now: Callable[[], float],
    *,
    text: str,
) -> tuple[RequestRecord, Asked, Answer]:
    """Send one request and read its answer to the end. `now` is the clock of the run, in seconds.

    The record begins at the arrival, also if that is some time ago. It has no tokens if anything went wrong.
    """
    request, answer, sent_s, asked = arrival.request, Answer(), now(), arrival.request.max_new_tokens
    record = RequestRecord(request.name, arrival.time_s, len(request.prompt), asked)
    leaves_s = arrival.cancel_s - sent_s
    whole_s = min(endpoint.timeouts.whole_s, leaves_s)
    first_s = min(endpoint.timeouts.first_token_s, whole_s)
    fault, found = None, None
    try:
        async with asyncio.timeout(first_s) as limit:
            await read(client, endpoint, endpoint.body(text, asked), answer, now, limit, whole_s - first_s)
        found = counted(answer, asked)
    except Fault as error:
        fault = error
    except TimeoutError:
        # Which limit it was: the clock cannot tell, because on Windows a timer may ring 16 ms early.
        if (endpoint.timeouts.whole_s if answer.pieces else first_s) < leaves_s:
            fault = Fault("no end in time" if answer.pieces else "no first token in time")
    record.prompt_tokens = answer.prompt_tokens or record.prompt_tokens
    record.ended_s = max(now(), arrival.time_s)
    if found is not None:
        record.outcome, record.token_times_s, record.ended_s = "finished", found.times_s, found.times_s[-1]
    elif fault is not None:
        record.outcome, record.why = outcome_of(fault), str(fault)
    else:
        record.outcome, record.why = "cancelled", "its client has left"
        record.token_times_s = [piece.time_s for piece in answer.pieces]
    told = Asked(
        request.name,
        "" if fault is None else fault.name,
        max(0.0, sent_s - arrival.time_s),
        None if found is None else found.counted_by,
        bool(answer.prompt_tokens),
        len(answer.pieces),
        0 if found is None else found.pieces_with_several,
        answer.hidden,
    )
    return record, told, answer


def counted_again(record: RequestRecord, told: Asked, answer: Answer, count: Count) -> tuple[RequestRecord, Asked]:
    """A finished request with its tokens laid out by a tokenizer; others as they are.

    Apart from `ask`, for when no answer is under way: a tokenizer takes its time, and nobody reads a clock meanwhile.
    """
    if record.outcome != "finished":
        return record, told
    found = token_times(answer, count)
    return (
        replace(record, token_times_s=found.times_s, ended_s=found.times_s[-1]),
        replace(told, counted_by=found.counted_by, pieces_with_several=found.pieces_with_several),
    )


async def read(
    client: httpx.AsyncClient,
    endpoint: Endpoint,
    body: dict[str, Any],
    answer: Answer,
    now: Callable[[], float],
    limit: asyncio.Timeout,
    rest_s: float,
) -> None:
    """Send a request and let `answer` take what comes. With the first token `limit` is put off by `rest_s`.

    Raises Fault for whatever is not a stream of events that the server itself ends.
    """
    parser, size, most_pieces = EventParser(), 0, PIECES_PER_TOKEN * body["max_tokens"] + PIECES_BESIDES
    try:
        async with client.stream("POST", endpoint.address, json=body) as response:
            await check_begin(response)
            async for data in response.aiter_raw():
                time_s, waited = now(), not answer.pieces
                for event in parser.feed(data):
                    answer.take(event, time_s)
                if answer.done:
                    return
                if waited and answer.pieces and (until := limit.when()) is not None:
                    limit.reschedule(until + rest_s)
                size += len(data)
                if len(answer.pieces) > most_pieces or size > BYTES_PER_PIECE * most_pieces:
                    raise Fault("endless stream", f"{len(answer.pieces):,} pieces of text in {size:,} bytes so far")
            take_rest(parser, answer, now())
    except httpx.ConnectTimeout:
        raise Fault("no connection in time") from None
    except httpx.ConnectError as error:
        if out_of_files(error):
            raise Fault(
                "too many connections", "this machine allows no more open files: ulimit -n raises that"
            ) from None
        raise Fault("no connection", shown(str(error))) from None
    except (httpx.HTTPError, httpx.StreamError, OSError) as error:
        raise Fault("dropped connection", shown(str(error) or type(error).__name__)) from None


def out_of_files(error: BaseException | None) -> bool:
    """Whether it was this machine that could open no more connections, as errors beneath this one say."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            return True
        error = error.__cause__ or error.__context__
    return False


def take_rest(parser: EventParser, answer: Answer, time_s: float) -> None:
    """What is left at the end of a stream. Half a line is not worth a fault of its own: then the stream ended early."""
    half = bool(parser.line)
    try:
        for event in parser.close():
            answer.take(event, time_s)
    except Fault:
        if not half:
            raise


async def check_begin(response: httpx.Response) -> None:
    """Raise Fault unless the server begins a stream of events."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.status_code != 200:
        raise Fault(f"HTTP {response.status_code}", await said(response))
    if kind == "application/json":
        raise Fault("not streamed", f"it came as one {kind}: {await said(response)}")
    if (packed := response.headers.get("content-encoding", "identity")) != "identity":
        raise Fault("packed stream", f"as {shown(packed)}, though identity was asked for")


async def said(response: httpx.Response) -> str:
    """What a server says instead of an answer, or the begin of it."""
    data = b""
    async for part in response.aiter_raw():
        data += part
        if len(data) > MOST_ERROR_BYTES:
            break
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = data.decode(errors="replace")
    if isinstance(value, dict):
        value = value.get("error") or value.get("detail") or value
    return shown(value)


def counted(answer: Answer, asked: int) -> TokenTimes:
    """The token times of an answer that has come to its end. Raises Fault if it has not, or has no tokens."""
    if not answer.complete:
        raise Fault("ended early", "the stream closed without a finish reason and without [DONE]")
    if (answer.new_tokens or 0) > PIECES_PER_TOKEN * asked + PIECES_BESIDES:
        raise Fault("endless stream", f"the server counted {answer.new_tokens:,} tokens where {asked:,} were asked for")
    found = token_times(answer)
    if not found.times_s:
        raise Fault("no token", f"the answer is empty (finish reason: {shown(answer.finish_reason or 'none')})")
    return found


def outcome_of(fault: Fault) -> Outcome:
    """Refused if nothing was begun; an answer that went wrong on its way is one that its client gives up."""
    return "refused" if fault.name in REFUSALS or fault.name.startswith("HTTP ") else "cancelled"
