"""A server for load tests that does exactly what a script says, and writes down when it did it.

The one idea: what the load test reports is compared with what was really sent and when, by the server's own log on the
same clock (`time.perf_counter`), so a busy machine makes both late together. A script is an async function that gets a
`Visit`; the bytes on the wire are its own affair, right or wrong. Nothing of the course's client is used here.
"""

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Visit:
    """One request: what was asked, when it was there, and what was sent when: (time, tokens in that piece)."""

    number: int
    body: dict[str, Any]
    head: str
    writer: asyncio.StreamWriter = field(repr=False)
    received_s: float = field(default_factory=time.perf_counter)
    sent: list[tuple[float, int]] = field(default_factory=list)

    @property
    def token_times_s(self) -> list[float]:
        return [time_s for time_s, tokens in self.sent for _ in range(tokens)]

    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def begin(self, status: str = "200 OK", kind: str = "text/event-stream", extra: str = "") -> None:
        self.raw(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n{extra}\r\n".encode())

    def chunk(self, data: bytes) -> None:
        """One chunk of the HTTP body: whatever stands in it."""
        self.raw(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def whole(self, status: str, text: str, kind: str = "application/json") -> None:
        """A whole answer that is no stream."""
        data = text.encode()
        self.raw(f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)

    def piece(self, text: str, tokens: int = 1, **more: Any) -> None:
        """An event with some text, of which the log says that it is so many tokens."""
        self.sent.append((time.perf_counter(), tokens))
        self.chunk(event(text, **more))

    def finish(self, reason: str = "length", tokens: int | None = None, prompt: int = 40) -> None:
        """Finish reason, usage (of the tokens that were sent, unless told otherwise), [DONE] and the end."""
        self.chunk(event(None, finish_reason=reason))
        used = sum(tokens for _, tokens in self.sent) if tokens is None else tokens
        self.chunk(b"data: " + json.dumps({"choices": [], "usage": usage(prompt, used)}).encode() + b"\n\n")
        self.chunk(b"data: [DONE]\n\n")
        self.end()


def usage(prompt: int, new: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": new, "total_tokens": prompt + new}


def event(text: str | None, finish_reason: str | None = None, **more: Any) -> bytes:
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"object": "chat.completion.chunk", "choices": [choice], **more}).encode() + b"\n\n"


Script = Callable[[Visit], Awaitable[None]]


@dataclass
class ScriptedServer:
    url: str
    visits: list[Visit]


@contextmanager
def scripted_server(*scripts: Script) -> Iterator[ScriptedServer]:
    """A server on the loopback address, in a thread: request n is answered by script n, from the first again at the
    end."""
    visits: list[Visit] = []
    ready, stop = threading.Event(), asyncio.Event()
    found: dict[str, Any] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(":")[1]) for line in head.lower().split("\r\n") if "content-length" in line)
            visit = Visit(len(visits), json.loads(await reader.readexactly(length)), head, writer)
            visits.append(visit)
            await scripts[visit.number % len(scripts)](visit)
            await writer.drain()
        writer.close()

    async def live() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        found.update(loop=asyncio.get_running_loop(), port=server.sockets[0].getsockname()[1])
        ready.set()
        await stop.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    thread = threading.Thread(target=lambda: asyncio.run(live()))
    thread.start()
    ready.wait(30)
    try:
        yield ScriptedServer(f"http://127.0.0.1:{found['port']}", visits)
    finally:
        found["loop"].call_soon_threadsafe(stop.set)
        thread.join()


def plan(tokens: list[int], first_s: float = 0.03, gap_s: float = 0.01) -> Script:
    """After `first_s`, a piece of so many tokens every `gap_s` (give or take: the log says when they were sent)."""

    async def script(visit: Visit) -> None:
        visit.begin()
        visit.chunk(event(None, extra="a chunk with a role only"))
        await asyncio.sleep(first_s)
        for number, held in enumerate(tokens):
            visit.piece("".join(f" w{number}" for _ in range(held)), held)
            visit.chunk(b": keep-alive\n\n")
            await asyncio.sleep(gap_s * (1 + number % 3))
        visit.finish()

    return script


def answers(status: str, text: str, kind: str = "application/json") -> Script:
    async def script(visit: Visit) -> None:
        visit.whole(status, text, kind)

    return script


def after_two(then: Callable[[Visit], object], wait_s: float = 0.0) -> Script:
    """Two pieces of text, and then something."""

    async def script(visit: Visit) -> None:
        visit.begin()
        visit.piece(" one")
        visit.piece(" two")
        await visit.writer.drain()
        then(visit)
        await visit.writer.drain()
        await asyncio.sleep(wait_s)

    return script
