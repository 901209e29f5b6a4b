"""One of the two SQLite files: how it is made, what it holds, and whether that can be trusted.

The one idea: a file is judged by what it says, row by row. Each row carries a seal, so that a sound row in a damaged
file is still known to be sound, and a changed one in a sound file is noticed. What becomes of the file is not decided
here.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from course_lib.progress.event import Event, as_json, seal_of
from course_lib.progress.faults import TROUBLE, UPDATE, NewerFormat, NotSound, is_damage

FORMAT = 1  # of the table; a file with a higher number is of a later course
WAIT_S = 4.0  # for another process that writes; it needs milliseconds, and a repair a second
SIDECARS = ("-journal", "-wal", "-shm")  # what SQLite lays beside a file: it belongs to that file alone
PAGE = 4096  # bytes, SQLite's default
LARGEST_SALVAGED = 64_000_000  # bytes; a thousand events have less than one million
SMALLEST_ROW = 100  # bytes; a row has more, so a file cannot have more rows than its size in these
COLUMNS = 'arrival, id, at, kind, name, version, data, "order", seal'
INSERT = f"INSERT INTO {{}}.events ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
TABLE = """CREATE TABLE events (
    arrival INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL,
    version TEXT NOT NULL, data TEXT NOT NULL, "order" TEXT NOT NULL, seal TEXT NOT NULL)"""

SCHEMA = [
    ("table", "events", TABLE),
    ("index", "sqlite_autoindex_events_1", None),
]  # and nothing else, such as triggers

Row = tuple[int, str, str, str, str, str, str, str, str]


@dataclass(frozen=True)
class Found:
    """What was found at a path: how it stands (missing, empty, a link, damaged or sound), the sound events in it in the
    order of their arrival, and whether they are numbered without a gap."""

    state: str
    events: list[Event] = field(default_factory=list)
    in_order: bool = False


def connect(path: Path, patience_s: float = math.inf) -> sqlite3.Connection:
    """A connection without transactions of its own making, that waits for others as long as `patience_s` or WAIT_S."""
    return sqlite3.connect(path, timeout=min(WAIT_S, patience_s), isolation_level=None)


def is_file(path: Path) -> bool:
    """Whether it is a file itself, not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def has_known_head(path: Path) -> bool:
    """Whether SQLite knows the file's versions for writing and reading. It takes any other for a later file, which may
    not be written, and says that writing is not allowed."""
    with path.open("rb") as file:
        return set(file.read(20)[18:]) <= {1, 2}


def is_ours(db: sqlite3.Connection, schema: str) -> bool:
    """Whether the file is of this format, with our table and nothing else that could act or hold something."""
    return format_of(db, schema) == FORMAT and has_our_table(db, schema)


def format_of(db: sqlite3.Connection, schema: str) -> int:
    (number,) = db.execute(f"PRAGMA {schema}.user_version").fetchone()
    return int(number)


def has_our_table(db: sqlite3.Connection, schema: str) -> bool:
    return db.execute(f"SELECT type, name, sql FROM {schema}.sqlite_master").fetchall() == SCHEMA


def rows_of(events: Iterable[Event], first: int) -> list[Row]:
    """The rows to insert, numbered from `first`."""
    return [
        (number, e.id, e.at, e.kind, e.name, e.version, as_json(e.data), e.order, seal_of(e))
        for number, e in enumerate(events, first)
    ]


def event_of(row: Row) -> Event:
    """The event in a row. Raises NotSound if it is not what was written."""
    _, id, at, kind, name, version, data, order, seal = row
    try:
        event = Event(id, at, kind, name, version, json.loads(data), order)
        if seal_of(event) == seal:
            return event
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise NotSound(f"row {row[0]} was changed")


def all_events(db: sqlite3.Connection) -> list[Event]:
    """Every event of the main file of `db`, in the order of arrival. Raises NotSound or sqlite3.Error at damage."""
    return [event_of(row) for row in db.execute(f"SELECT {COLUMNS} FROM main.events ORDER BY arrival")]


def examine(path: Path, patience_s: float = math.inf) -> Found:
    """Read the whole file and judge it. A transaction that a kill cut off is rolled back by that.

    Raises NewerFormat for a sound file of a later course, and sqlite3.Error if the file cannot be had just now (held,
    forbidden, a failing disk): then nothing is known about it.
    """
    if path.is_symlink():  # whatever it points to is not ours to write into
        size = path.stat().st_size if path.is_file() else 0
        return Found("link", examine_elsewhere(path).events if 0 < size < LARGEST_SALVAGED else [])
    if not path.exists():
        return Found("missing")
    if not path.is_file():
        return Found("damaged")
    if path.stat().st_size == 0:
        return Found("empty")
    with closing(connect(path, patience_s)) as db:
        try:
            intact = has_known_head(path) and db.execute("PRAGMA main.integrity_check(1)").fetchall() == [("ok",)]
            version = format_of(db, "main")
            if intact and version > FORMAT and not has_our_table(db, "main"):  # else only the number was changed
                raise NewerFormat(
                    path, f"the file is of a newer course (format {version}, this one knows {FORMAT})", UPDATE
                )
            if intact and is_ours(db, "main"):
                (highest,) = db.execute("SELECT max(arrival) FROM main.events").fetchone()
                events = all_events(db)
                return Found("sound", events, in_order=(highest or 0) == len(events))
        except TROUBLE as error:
            if not is_damage(error):
                raise
    return Found("damaged", salvage(path))


def salvage(path: Path) -> list[Event]:
    """The events of a damaged file that can still be read and bear their seal, in the order of arrival.

    This works on a copy that gets the first page of a new file: there are no events on it, but without it none can be
    found. Each row is looked up by itself, so that a broken page hides only what it holds.
    """
    size = path.stat().st_size
    if not PAGE < size < LARGEST_SALVAGED:
        return []
    found = []
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        copy = Path(folder) / "copy.sqlite"
        write_new(copy, [])
        head = bytearray(copy.read_bytes()[:PAGE])
        head[92:96] = bytes(4)  # then SQLite takes the number of pages from the size of the file
        copy.write_bytes(head + path.read_bytes()[PAGE:] + bytes(-size % PAGE))
        with closing(connect(copy)) as db:
            for arrival in range(1, size // SMALLEST_ROW + 2):
                try:
                    row = db.execute(f"SELECT {COLUMNS} FROM events WHERE arrival = ?", (arrival,)).fetchone()
                    if row is not None:
                        found.append(event_of(row))
                except TROUBLE as error:
                    if not is_damage(error):  # want of memory, say: a repair would lose a row that is sound
                        raise
    return found


def examine_elsewhere(path: Path) -> Found:
    """Examine a copy of the file in a temporary folder, where what was cut off can be rolled back."""
    with tempfile.TemporaryDirectory(prefix="course-") as name:
        for suffix in ("", *SIDECARS):
            beside = path.with_name(path.name + suffix)
            if beside.is_file():
                shutil.copyfile(beside, Path(name) / beside.name)
        return examine(Path(name) / path.name)


def write_new(path: Path, events: Iterable[Event]) -> None:
    """Make a file with `events` at `path`, whole and on the disk, or leave none there."""
    remove(path)
    try:
        with closing(connect(path)) as db:
            db.execute(f"PRAGMA page_size = {PAGE}")
            db.execute("PRAGMA journal_mode = MEMORY")  # nobody knows this file yet: it is good when it is whole
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN")
            db.execute(TABLE)
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.executemany(INSERT.format("main"), rows_of(events, 1))
            db.execute("COMMIT")
        with path.open("r+b") as file:
            os.fsync(file.fileno())
    except BaseException:
        remove(path)
        raise


def remove(path: Path) -> None:
    for suffix in ("", *SIDECARS):
        beside = path.with_name(path.name + suffix)
        if beside.exists():  # asking to delete is refused in a read-only folder, even where there is nothing
            beside.unlink()


def second_name(path: Path, name: Path) -> None:
    """Let a file be found under `name` as well; where a disk knows no second names, a copy is."""
    try:
        os.link(path, name)
    except OSError:
        shutil.copyfile(path, name)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` last. Windows has no such call and needs none."""
    if os.name == "posix":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)
