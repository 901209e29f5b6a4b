"""The answer of an OpenAI-compatible server as it comes: bytes become events, events become pieces of text.

The one idea: what arrives in one read is not one event, and one event is not one token. So bytes are put together to
whole events first, however they were cut, and each event only then becomes a piece of text with the time of its last
byte. What is no such event raises a `Fault` that has a name. Nothing here opens a connection or reads a clock.

Format of the events: https://html.spec.whatwg.org/multipage/server-sent-events.html, section 9.2.6.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

MOST_EVENT_BYTES = 1 << 20  # of one event; a piece of an answer has some hundred
MOST_TOKENS = 10_000_000  # of one prompt or answer: a server that reports more is not believed
THOUGHTS = ("reasoning_content", "reasoning")  # of a delta: what a model thinks aloud are tokens, too


class Fault(Exception):
    """An answer that went wrong: `name` says in which way, the same for all of that kind, and `detail` how exactly."""

    def __init__(self, name: str, detail: str = "") -> None:
        super().__init__(f"{name}: {detail}" if detail else name)
        self.name, self.detail = name, detail


class EventParser:
    """Puts the bytes of a stream together to events; the data of each come out once it is whole."""

    def __init__(self) -> None:
        self.line = b""  # the begin of a line whose end has not come
        self.data: list[bytes] = []  # of the event under way
        self.size = 0  # of both, in bytes
        self.begun = False
        self.after_return = False  # the last byte was CR: an LF that follows belongs to it

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that these bytes complete. Raises Fault for one that is too long to be one."""
        if not data:
            return []
        if self.after_return and data.startswith(b"\n"):
            data = data[1:]
            self.after_return = False
        if data:
            self.after_return = data.endswith(b"\r")
        *lines, self.line = (self.line + data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")).split(b"\n")
        events = [event for line in lines if (event := self.take(line)) is not None]
        if len(self.line) + self.size > MOST_EVENT_BYTES:
            raise Fault("event too long", f"more than {MOST_EVENT_BYTES:,} bytes without an end")
        return events

    def close(self) -> list[bytes]:
        """The same for the end of the stream: servers forget the empty line behind the last event."""
        return self.feed(b"\n\n")

    def take(self, line: bytes) -> bytes | None:
        """One line; the data of an event if that ends it."""
        if not self.begun:
            self.begun, line = True, line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            data, self.data, self.size = b"\n".join(self.data), [], 0
            return data or None
        name, _, value = line.partition(b":")
        if name == b"data":  # a line that begins with a colon is a comment: it keeps the connection alive
            self.data.append(value.removeprefix(b" "))
            self.size += len(value)
            if self.size > MOST_EVENT_BYTES:
                raise Fault("event too long", f"more than {MOST_EVENT_BYTES:,} bytes of data")
        return None


class Piece(NamedTuple):
    """Some text of an answer, and when it was there."""

    time_s: float
    text: str


@dataclass
class Answer:
    """What has come of one answer: pieces of text, why and when it ended, and what the server counted itself.

    prompt_tokens and new_tokens are None until the server says them. thoughts: how many of the new tokens it counted as
    a model's thinking; `thinks_aloud`: some of these came. `done`: the stream said that it is at its end.
    """

    pieces: list[Piece] = field(default_factory=list)
    finish_reason: str | None = None
    finish_s: float | None = None
    prompt_tokens: int | None = None
    new_tokens: int | None = None
    thoughts: int = 0
    thinks_aloud: bool = False
    done: bool = False

    @property
    def hidden(self) -> int:
        """How many of its new tokens a server thought, and kept to itself."""
        return 0 if self.thinks_aloud else min(self.thoughts, self.new_tokens or 0)

    @property
    def complete(self) -> bool:
        return self.done or self.finish_reason is not None

    def take(self, data: bytes, time_s: float) -> None:
        """One event, which came at `time_s`. Raises Fault for what is none of an answer, or says that it failed."""
        if data.strip() == b"[DONE]":
            self.done = True
            self.finish_s = time_s if self.finish_s is None else self.finish_s
            return
        event = parsed(data)
        if event.get("error") is not None:
            raise Fault("error in the stream", shown(event["error"]))
        choices = event.get("choices")
        if not isinstance(choices, list):
            raise Fault("unknown event", shown(event))
        for choice in choices[:1]:  # one answer was asked for; the event with the usage has none
            self.take_choice(choice, time_s)
        self.take_usage(event.get("usage"))

    def take_choice(self, choice: Any, time_s: float) -> None:
        if not isinstance(choice, dict):
            raise Fault("unknown event", shown(choice))
        delta = choice.get("delta") or {}
        texts: list[Any] = [delta]
        if isinstance(delta, dict):
            thought = next((delta[name] for name in THOUGHTS if delta.get(name)), None)  # some say it under both names
            self.thinks_aloud = self.thinks_aloud or thought is not None
            texts = [choice.get("text"), delta.get("content"), thought]
        if not all(text is None or isinstance(text, str) for text in texts):
            raise Fault("unknown event", shown(choice))
        if text := "".join(filter(None, texts)):
            self.pieces.append(Piece(time_s, text))
        if choice.get("finish_reason"):
            self.finish_reason, self.finish_s = str(choice["finish_reason"]), time_s

    def take_usage(self, usage: Any) -> None:
        """What the server counted; some say it again in every event, and the last is the whole."""
        if isinstance(usage, dict):
            self.prompt_tokens = token_count(usage.get("prompt_tokens"), self.prompt_tokens)
            self.new_tokens = token_count(usage.get("completion_tokens"), self.new_tokens)
            if isinstance(details := usage.get("completion_tokens_details"), dict):
                self.thoughts = token_count(details.get("reasoning_tokens"), self.thoughts) or 0


def token_count(value: Any, otherwise: int | None) -> int | None:
    """A number of tokens from a stranger; another value is as good as none."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS
    return value if known else otherwise


def parsed(data: bytes) -> dict[str, Any]:
    """The JSON object of an event. Raises Fault if it is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise Fault("invalid JSON", shown(data.decode(errors="replace"))) from None
    if not isinstance(value, dict):
        raise Fault("unknown event", shown(value))
    return value


def shown(value: Any) -> str:
    """Something from a stranger as a message may say it: in one line, control characters escaped, not too long."""
    if isinstance(value, dict) and isinstance(value.get("message"), str):
        value = value["message"]
    text = value if isinstance(value, str) else repr(value)
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    line = " ".join(line.split())
    return line if len(line) <= 200 else f"{line[:200]}…"
