"""What keeps progress from being saved or read, in words that help: the place, the reason, the remedy.

The one idea: a learner meets no number of an error and no traceback. Nothing here opens a file.
"""

from __future__ import annotations

import errno
import sqlite3
from pathlib import Path

MAKE_ROOM = "Make room there, then do it again."
MAKE_ROOM_OR = "Make room there, then do it again, or name a folder on another disk in COURSE_DATA and start again."
ALLOW = "Allow it, or name another folder in COURSE_DATA and start again."
CLOSE = "Close that program, then do it again."
CLOSE_SOME = "Close other programs, then do it again."
OTHER_DISK = "Name a folder on another disk in COURSE_DATA and start again."
OTHER_NAME = "Name another folder in COURSE_DATA and start again."
UPDATE = "Update the course, or name another folder in COURSE_DATA."

FULL, DENIED, HELD = "the disk is full", "writing is not allowed", "another program holds the file"
QUOTA = "your share of the disk (quota) is full, or a file may not become larger"
NO_LOCKS = "the disk cannot lock files"
OS_REASONS = {
    errno.ENOSPC: (FULL, MAKE_ROOM),
    errno.EFBIG: (QUOTA, MAKE_ROOM_OR),
    errno.EACCES: (DENIED, ALLOW),
    errno.EPERM: (DENIED, ALLOW),
    errno.EROFS: (DENIED, ALLOW),
    errno.EEXIST: ("a file is in the place of the folder", ALLOW),
    errno.ENOTDIR: ("a file is in the place of the folder", ALLOW),
} | ({errno.EDQUOT: (QUOTA, MAKE_ROOM_OR)} if hasattr(errno, "EDQUOT") else {})
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
# SQLite hides which of these it was, unless the disk has no block left: then it says SQLITE_FULL
WRITE_CODES = {sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_TRUNCATE, sqlite3.SQLITE_IOERR_FSYNC}
NOT_WRITTEN = "the disk or your share of it (quota) is full, or the disk fails"
LOCK_CODES = {sqlite3.SQLITE_IOERR_LOCK, sqlite3.SQLITE_IOERR_RDLOCK, sqlite3.SQLITE_IOERR_CHECKRESERVEDLOCK}
DAMAGE = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
DAMAGE |= {sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_EMPTY}
DAMAGE |= {sqlite3.SQLITE_TOOBIG}  # the length of a text, if a byte of it was changed; the gate lets none so large pass


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


# What a file can raise. A UnicodeError comes where SQLite quotes from a damaged schema in the text of its error.
TROUBLE = (sqlite3.Error, NotSound, UnicodeError, MemoryError)


def is_damage(error: Exception) -> bool:
    """Whether it says that the content of a file is wrong, not that the file cannot be had just now."""
    if isinstance(error, sqlite3.Error):
        return _code(error) & 0xFF in DAMAGE
    return isinstance(error, NotSound | UnicodeError)


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
        if code in WRITE_CODES:
            return Fault(path, NOT_WRITTEN, MAKE_ROOM_OR)
        if not is_damage(error):
            return Fault(path, *SQLITE_REASONS.get(code & 0xFF, (f"the disk reports a fault: {error}", OTHER_DISK)))
    if isinstance(error, MemoryError):
        return Fault(path, "there is not enough memory", CLOSE_SOME)
    return Fault(path, "the file was repaired and is damaged again", OTHER_DISK)


def needs_text(folder: Path) -> None:
    """Raise Fault if the name of the folder is no text: SQLite takes only UTF-8, and no sentence could show it."""
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        shown = Path(str(folder).encode(errors="backslashreplace").decode())
        raise Fault(shown, "the name of the folder is not UTF-8", OTHER_NAME) from None


def _code(error: sqlite3.Error) -> int:
    """SQLite's extended code; a text that is no UTF-8 has none, and is damage."""
    return getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_CORRUPT
