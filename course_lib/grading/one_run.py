"""One run at a time in a folder of results.

The one idea: two runs at once would mark everybody twice, so the second one is refused and says who is at work. The
lock is SQLite's own, on a file that holds who has it: it works on every system and ends with its process.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from course_lib.commands.output import say

LOCK = "grading.lock"
WAIT_S = 1.0  # for who has just begun, too, and has still to write who it is
BEGIN = "BEGIN IMMEDIATE"  # others may read who it is


class Busy(RuntimeError):
    """Somebody else is at work."""


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Nobody else works in `folder` as long as this lasts. Raises Busy, or OSError if there can be no such folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LOCK
    path.open("ab").close()  # what SQLite says if that fails helps nobody
    with closing(sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)) as db:
        try:
            db.execute(BEGIN)
            db.execute("CREATE TABLE IF NOT EXISTS holder (process, since)")
            db.execute("DELETE FROM holder")
            db.execute("INSERT INTO holder VALUES (?, ?)", (os.getpid(), f"{datetime.now():%H:%M}"))
            db.execute("COMMIT")
            db.execute(BEGIN)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise Busy(f"another run is grading in {folder}{holder(db)}") from None
            say(f"{path} cannot be locked ({error}): see that no other run grades there")
        yield


def holder(db: sqlite3.Connection) -> str:
    """Who has the lock, as far as that can be read."""
    with suppress(sqlite3.Error):
        for process, since in db.execute("SELECT process, since FROM holder"):
            return f" (process {process}, since {since})"
    return ""
