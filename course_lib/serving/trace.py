"""A recorded day: when requests came and how long they were, read from a file in the columns of the Azure traces.

The one idea: a trace holds no text, only a time and two lengths a line, and that is all that a schedule depends on; so
prompts of random tokens stand in for what people wrote. The public Azure LLM inference traces (Splitwise, Patel et al.
2024; DynamoLLM, Stojkovic et al. 2025) have the columns TIMESTAMP, ContextTokens and GeneratedTokens, with times of 7
decimals (2023) or of up to 6 and a time zone (2024). A file is not to be trusted: a line is checked before it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from os import PathLike
from pathlib import Path
from random import Random
from typing import BinaryIO, NamedTuple

from course_lib.caches.contract import real, whole
from course_lib.serving.record import Arrival
from course_lib.serving.request import Request

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
MOST_LINES = 1_000_000  # read whole; a part of a longer file can be read
MOST_LETTERS = 1000  # of a line
MOST_TOKENS = 10_000_000  # of one request
MOST_PROMPT_TOKENS = 50_000_000  # of all prompts that are made for one run
TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?", re.ASCII)


class Row(NamedTuple):
    """One line of a trace: seconds after its first line, and two lengths in tokens."""

    time_s: float
    prompt_tokens: int
    new_tokens: int


@dataclass(frozen=True)
class Trace:
    """The requests of a trace file, in order, and how many lines without a token were left out."""

    rows: tuple[Row, ...]
    empty: int = 0

    def arrivals(
        self,
        vocab_size: int,
        *,
        faster: float = 1.0,
        most_prompt: int | None = None,
        most_new: int | None = None,
        seed: int = 0,
    ) -> list[Arrival]:
        """Requests of random tokens below `vocab_size` as the trace has them, named t0, t1, …

        `faster` divides all times, so it multiplies the rate. Longer prompts and answers are cut to `most_prompt` and
        `most_new` tokens, for a model or a cache that is smaller than the one of the trace; `cut` counts them. Another
        `seed` gives other tokens and other seeds of the requests. A longer trace begins as a shorter one does.
        ValueError for what makes no sense, or is too much to make.
        """
        faster = real(faster, "faster (2.0 is twice the rate)", above=0)
        if not 1 <= whole(vocab_size, "the vocabulary") <= MOST_TOKENS:
            raise ValueError(f"a vocabulary has 1 to {MOST_TOKENS:,} tokens, not {vocab_size}")
        for name, most in (("most_prompt", most_prompt), ("most_new", most_new)):
            if most is not None and whole(most, name) < 1:
                raise ValueError(f"{name} must be at least 1 token, not {most}")
        prompts = [
            row.prompt_tokens if most_prompt is None else min(row.prompt_tokens, most_prompt) for row in self.rows
        ]
        if sum(prompts) > MOST_PROMPT_TOKENS:
            raise ValueError(
                f"the prompts hold {sum(prompts):,} tokens in all, more than {MOST_PROMPT_TOKENS:,}: "
                "read a smaller part of the trace, or cut prompts with most_prompt"
            )
        random, seeds, arrivals = Random(whole(seed, "the seed")), Random(seed), []
        tokens = tuple(range(vocab_size))  # one object each, however often it is drawn: that saves most of the memory
        for number, (row, length) in enumerate(zip(self.rows, prompts)):
            prompt = tuple(random.choices(tokens, k=length))
            new = row.new_tokens if most_new is None else min(row.new_tokens, most_new)
            request = Request(prompt, new, seed=seeds.getrandbits(32), name=f"t{number}")
            arrivals.append(Arrival(row.time_s / faster, request))
        return arrivals

    def cut(self, most_prompt: int, most_new: int) -> int:
        """How many requests are longer than that in prompt or answer."""
        return sum(row.prompt_tokens > most_prompt or row.new_tokens > most_new for row in self.rows)


def read_trace(path: str | PathLike[str], first: int | None = None, *, skip_empty: bool = False) -> Trace:
    """The requests of a CSV file with the columns TIMESTAMP, ContextTokens and GeneratedTokens; others are ignored.

    `first` reads only so many lines from the top. A line of 0 prompt tokens or 0 new ones is no request: it is refused,
    or left out and counted with `skip_empty`. Times without a zone are taken as UTC. Raises ValueError, which names
    the line, the value and what to do, for anything else; OSError if the file cannot be read.
    """
    if first is not None and whole(first, "first") < 1:
        raise ValueError(f"first = {first}: read at least 1 line")
    with Path(path).open("rb") as file:
        try:
            return parsed(lines(file), first, skip_empty)
        except ValueError as error:
            raise ValueError(f"{Path(path).name}, {error}") from None


def parsed(lines: Iterator[str], first: int | None, skip_empty: bool) -> Trace:
    """The trace in the lines of a file, the header first."""
    header = next(lines, "")
    names = [name.strip() for name in header.split(",")]
    if any(names.count(column) != 1 for column in COLUMNS):
        raise ValueError(
            f"line 1: {shown(header)} does not name the columns: write {','.join(COLUMNS)} as the first line"
        )
    time, prompt, new = (names.index(column) for column in COLUMNS)
    rows: list[Row] = []
    empty = 0
    begin = before = None  # nanoseconds
    for number, line in enumerate(lines, 2):
        if number - 2 == first:
            break
        if number - 2 == MOST_LINES:
            raise ValueError(f"line {number}: more than {MOST_LINES:,} requests: read a part, such as first=10_000")
        if not line.strip():
            continue
        fields = line.split(",")
        if len(fields) != len(names):
            raise ValueError(f"line {number}: {shown(line)} has {len(fields)} fields, the header {len(names)}")
        now = nanoseconds(fields[time].strip(), number)
        begin = now if begin is None else begin
        if before is not None and now < before:
            raise ValueError(
                f"line {number}: {shown(fields[time])} is {(before - now) / 1e9} s before the line above: "
                "sort the lines by TIMESTAMP"
            )
        before = now
        lengths = [token_count(fields[place].strip(), COLUMNS[n], number) for n, place in ((1, prompt), (2, new))]
        if min(lengths):
            rows.append(Row((now - begin) / 1e9, *lengths))
        elif skip_empty:
            empty += 1
        else:
            raise ValueError(
                f"line {number}: {lengths[0]} prompt tokens and {lengths[1]} new ones: a request has at least 1 of "
                "each; leave such lines out with skip_empty=True"
            )
    if not rows:
        raise ValueError("there is no request in it: the file needs at least one line below the header")
    return Trace(tuple(rows), empty)


def lines(file: BinaryIO) -> Iterator[str]:
    """The lines of a text file, without their ends and a byte order mark; one that is too long is never held whole."""
    number = 0
    while line := file.readline(MOST_LETTERS + 1):
        number += 1
        if len(line) > MOST_LETTERS:
            raise ValueError(f"line {number}: longer than {MOST_LETTERS} bytes: this is no trace of three columns")
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"line {number}: byte {line[error.start]:#04x} is no UTF-8: unpack the file if it is packed, or save "
                "it as CSV in UTF-8"
            ) from None
        yield text


def nanoseconds(text: str, number: int) -> int:
    """A time since 1970, exactly: seconds as floats that large keep no more than 7 decimals."""
    match = TIME.fullmatch(text)
    try:
        moment = datetime.fromisoformat(f"{match[1]}{match[3] or 'Z'}") if match else None
    except ValueError:  # month 13
        moment = None
    if match is None or moment is None:
        raise ValueError(
            f"line {number}: {shown(text)} is no time: write it as 2023-11-16 18:17:03.9799600, without quotes"
        )
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since // timedelta(seconds=1)) * 10**9 + int((match[2] or "").ljust(9, "0"))


def token_count(text: str, column: str, number: int) -> int:
    """A number of tokens; ValueError for anything but digits, or for more than there can be."""
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST_TOKENS):
        raise ValueError(
            f"line {number}: {column} is {shown(text)}: write a whole number from 0 to {MOST_TOKENS:,}, or leave the "
            "line out"
        )
    return int(text)


def shown(text: str) -> str:
    """A text from a file as an error message may say it: in quotes, control characters escaped, not too long."""
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def trace_text(arrivals: Sequence[Arrival]) -> str:
    """Arrivals as the text of a trace file that begins in the year 2000, times to 7 decimals: a trace of your own."""
    start = datetime(2000, 1, 1)
    written = [",".join(COLUMNS)]
    for arrival in arrivals:
        ticks = round(arrival.time_s * 10**7)  # of 100 ns
        moment = start + timedelta(seconds=ticks // 10**7)
        request = arrival.request
        written.append(f"{moment:%Y-%m-%d %H:%M:%S}.{ticks % 10**7:07d},{len(request.prompt)},{request.max_new_tokens}")
    return "\n".join(written) + "\n"
