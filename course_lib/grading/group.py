"""Marks for a class: several submissions at once, each for itself, and none twice.

The one idea: a mark follows from a notebook, the key and the assignment, not from who is marked beside it, before or
after it. So every submission that has its marks is a record of its own, written whole, with a digest of all that they
follow from; who begins again goes on with the others. What cannot be marked stops nobody else.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from course_lib import __version__, checks
from course_lib.commands.output import write_whole
from course_lib.grading.assignment import Assignment
from course_lib.grading.handed_in import HandedIn, file_names
from course_lib.grading.mark import Marks, mark
from course_lib.grading.record import NoRecord, marks_from, plain
from course_lib.grading.sandbox import Limits, NoSandbox, Sandbox
from course_lib.grading.session import Session
from course_lib.grading.sheets import one_line

SHORTEST_KEY = 16  # bytes
UNJUDGED = "could not be judged"  # how `mark` says that a judge failed


@dataclass(frozen=True)
class Result:
    """What came of one submission: marks, or `why_not`; neither if nothing was handed in."""

    handed_in: HandedIn
    marks: Marks | None = None
    kept: bool = False  # from a run before
    why_not: str = ""

    @property
    def in_order(self) -> bool:
        """Whether no person has to look: nothing failed on this side, and it is a notebook."""
        return not (self.why_not or self.handed_in.not_a_notebook or self.unjudged)

    @property
    def unjudged(self) -> bool:
        """Whether a judge failed."""
        said = [line for task in self.marks.tasks for line in task.said] if self.marks else []
        return any(UNJUDGED in line for line in said)


class BadKey(ValueError):
    """A key that anybody could guess."""


class NotKept(OSError):
    """Marks that could not be written: those of others could not be, either."""


class Stopped(Exception):
    """Nothing is started any more."""


class Room(Sandbox):
    """A sandbox for many submissions that can be stopped, with all that runs in it."""

    def __init__(self, rules_out: Iterable[str] = (), *, trusted: bool = False) -> None:
        super().__init__(rules_out, trusted=trusted)
        self.lock, self.stopped = threading.Lock(), threading.Event()
        self.sessions: list[Session] = []

    def start(self, limits: Limits, seconds: float | None = None) -> Session:
        if self.stopped.is_set():
            raise Stopped
        session = super().start(limits, seconds)
        with self.lock:
            self.sessions = [each for each in self.sessions if not each.why] + [session]
            if not self.stopped.is_set():
                return session
        session.close()
        raise Stopped

    def stop(self) -> None:
        """End everything that runs, and let nothing begin."""
        with self.lock:
            self.stopped.set()
        for session in self.sessions:
            session.end("was stopped")


class Records:
    """The marks that are kept in a folder, one file a student. `made_with` is a digest of all that marks follow from
    besides the notebook: a record of anything else does not count."""

    def __init__(self, folder: Path, made_with: str, students: Sequence[str]) -> None:
        self.folder, self.made_with, self.files = folder, made_with, file_names(students)
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, student: str) -> Path:
        return self.folder / f"{self.files[student]}.json"

    def kept(self, handed_in: HandedIn) -> Marks | None:
        """The marks of exactly this submission, if there are any."""
        with suppress(OSError, ValueError, RecursionError, NoRecord):
            found = json.loads(self.path(handed_in.student).read_bytes())
            if found["made_with"] == self.made_with and found["digest"] == handed_in.digest:
                marks = marks_from(found["marks"])
                return marks if marks.submission == handed_in.student else None
        return None

    def keep(self, handed_in: HandedIn, marks: Marks) -> None:
        record = {"digest": handed_in.digest, "made_with": self.made_with, "marks": plain(marks)}
        try:
            write_whole(self.path(handed_in.student), json.dumps(record, indent=1).encode())
        except OSError as error:
            raise NotKept(error.errno, error.strerror, error.filename) from None


def mark_class(
    handed_in: Sequence[HandedIn],
    assignment: Assignment,
    key: bytes,
    room: Room,
    records: Records | None = None,
    *,
    jobs: int = 1,
    again: bool = False,
    limits: Limits | None = None,
) -> Generator[Result, None, None]:
    """The result of each submission, as soon as it is there; with `again` no earlier one counts.

    Close it to stop: what runs is ended, what is finished is kept. `room` is used up at the end. Raises NotKept.
    """
    todo = []
    for each in handed_in:
        if each.path is None:
            yield Result(each, why_not=each.trouble)
        elif not again and records and (marks := records.kept(each)):
            yield Result(each, marks, kept=True)
        else:
            todo.append((each, each.path))

    def one(each: HandedIn, path: Path) -> Result:
        try:
            marks = mark(path, assignment, key, limits, room, each.student)
            if room.stopped.is_set():
                raise Stopped
            if records:
                records.keep(each, marks)
        except NotKept:
            raise
        except Stopped:
            return Result(each, why_not="It was stopped.")
        except NoSandbox as reason:
            return Result(each, why_not=one_line(str(reason), 400))
        except BaseException as error:  # whatever it is, it is in this thread and about this submission
            return Result(each, why_not=f"Marking it failed: {type(error).__name__}: {one_line(str(error), 300)}.")
        return Result(each, marks)

    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        for future in as_completed([pool.submit(one, each, path) for each, path in todo]):
            yield future.result()
    finally:
        room.stop()
        pool.shutdown(cancel_futures=True)


def made_with(assignment: Assignment, key: bytes, *, trusted: bool, limits: Limits | None = None) -> str:
    """A digest of all that marks follow from besides the notebook: assignment, key, checks, limits, walls."""
    digest = hashlib.sha256(repr((__version__, assignment, limits or Limits(), trusted)).encode())
    digest.update(hmac.digest(key, b"course grade", "sha256"))
    for path in sorted(checks.FOLDER.rglob("*")):
        if path.suffix in (".py", ".toml"):
            digest.update(path.relative_to(checks.FOLDER).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def processors() -> int:
    """How many submissions can be marked at once, each on a processor of its own."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def sensible_jobs(limits: Limits | None = None) -> int:
    """As many as there are processors, if all of them may use as much memory as they are allowed to."""
    return max(1, min(processors(), psutil.virtual_memory().available // (limits or Limits()).memory_bytes))


def secret_key(path: Path) -> bytes:
    """The key in a file that only its owner can read; made if there is none. Raises OSError, BadKey."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32) + "\n")
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    key = path.read_bytes().strip()
    if len(key) < SHORTEST_KEY:
        raise BadKey(f"the key in {path} has {len(key)} bytes; it needs {SHORTEST_KEY} or more")
    return key
