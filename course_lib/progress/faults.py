"""What keeps progress from being saved or read, in words that help: the place, the reason, the remedy.

The one idea: a learner meets no number of an error and no traceback. Nothing here opens a file.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

MAKE_ROOM = "Make room there, then do it again."
ALLOW = "Allow it, or name another folder in COURSE_DATA and start again."
CLOSE = "Close that program, then do it again."
OTHER_DISK = "Name a folder on another disk in COURSE_DATA and start again."
UPDATE = "Update the course, or name another folder in COURSE_DATA."

FULL, DENIED, HELD = "the disk is full", "writing is not allowed", "another program holds the file"
NO_LOCKS = "the disk cannot lock files"
OS_REASONS = {
    errno.ENOSPC: (FULL, MAKE_ROOM),
    errno.EFBIG: (FULL, MAKE_ROOM),
    errno.EACCES: (DENIED, ALLOW),
    errno.EPERM: (DENIED, ALLOW),
    errno.EROFS: (DENIED, ALLOW),
    errno.EEXIST: ("a file is in the place of the folder", ALLOW),
    errno.ENOTDIR: ("a file is in the place of the folder", ALLOW),
} | ({errno.EDQUOT: (FULL, MAKE_ROOM)} if hasattr(errno, "EDQUOT") else {})
SQLITE_REASONS = {  # by the primary code, the low byte: https://sqlite.org/rescode.html
    sqlite3.SQLITE_FULL: (FULL, MAKE_ROOM),
    sqlite3.SQLITE_READONLY: (DENIED, ALLOW),
    sqlite3.SQLITE_CANTOPEN: (DENIED, ALLOW),
    sqlite3.SQLITE_PERM: (DENIED, ALLOW),
    sqlite3.SQLITE_AUTH: (DENIED, ALLOW),
    sqlite3.SQLITE_BUSY: (HELD, CLOSE),
    sqlite3.SQLITE_LOCKED: (HELD, CLOSE),
    sqlite3.SQLITE_PROTOCOL: (NO_LOCKS, OTHER_DISK),
}
LOCK_CODES = {sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK}
DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
DAMAGE |= {sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_EMPTY}


class Fault(Exception):
    """Progress cannot be read or written: the file or folder, the reason and the remedy, each in words."""

    def __init__(self, path: Path, reason: str, remedy: str) -> None:
        super().__init__(path, reason, remedy)
        self.path, self.reason, self.remedy = path, reason, remedy

    def __str__(self) -> str:
        return f"{self.reason[:1].upper()}{self.reason[1:]} ({self.path}). {self.remedy}"


class NotSaved(Fault):
    """What was to be recorded is not, and nobody was told that it is. Who says so to a learner begins the sentence."""


class NewerFormat(Fault):
    """The file is sound, but of a later version of the course."""


class NotSound(Exception):
    """A file can be opened, and what it says contradicts itself or the other file."""


def is_damage(error: Exception) -> bool:
    """Whether it says that the content of a file is wrong, not that the file cannot be had just now."""
    if isinstance(error, sqlite3.Error):
        return _code(error) & 0xFF in DAMAGE
    return isinstance(error, NotSound)


def fault(error: Exception, path: Path) -> Fault:
    """What `error`, met at `path`, means to a learner."""
    if isinstance(error, Fault):
        return error
    if isinstance(error, OSError):
        reason, remedy = OS_REASONS.get(
            error.errno or 0, (f"the disk reports a fault: {error.strerror or error}", OTHER_DISK)
        )
        return Fault(Path(error.filename) if isinstance(error.filename, str) else path, reason, remedy)
    if isinstance(error, sqlite3.Error):
        code = _code(error)
        if code in LOCK_CODES:
            return Fault(path, NO_LOCKS, OTHER_DISK)
        if not is_damage(error):
            return Fault(path, *SQLITE_REASONS.get(code & 0xFF, (f"the disk reports a fault: {error}", OTHER_DISK)))
    return Fault(path, "the file was repaired and is damaged again", OTHER_DISK)


def _code(error: sqlite3.Error) -> int:
    """SQLite's extended code; a text that is no UTF-8 has none, and is damage."""
    return getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
