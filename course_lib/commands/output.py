"""How a command speaks: results on standard output, everything else on standard error, faults in one line.

The one idea: who pipes a result gets only the result. A table goes to standard output unless JSON was asked for there;
a file appears whole or not at all. Nothing here knows what a command does.
"""

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

TEMPORARY = ".course-tmp-"  # how the name of a file begins that is not whole yet
DONE, WRONG, BAD_CALL, STOPPED = 0, 1, 2, 130  # exit statuses; 130 is what a shell reports after Ctrl-C


def program() -> str:
    """How the user calls this program. start.py sets the variable: who uses it has no `course` on the path."""
    return os.environ.get("COURSE_PROGRAM") or "course"


class CommandError(Exception):
    """An expected fault: what is wrong, what helps, and the exit status of the command."""

    def __init__(self, message: str, remedy: str = "", status: int = WRONG) -> None:
        super().__init__(message)
        self.remedy, self.status = remedy, status

    def __str__(self) -> str:
        text = " ".join(str(self.args[0]).split())
        return f"{text} ({self.remedy})" if self.remedy else text


def say(text: str) -> None:
    """A line for the reader that is not a result."""
    print(text, file=sys.stderr, flush=True)


def dash_if_stdout(target: str | None) -> str | None:
    """`target`, or "-" if standard output goes there (/dev/stdout, `> FILE`): two writers would spoil each other."""
    try:
        return "-" if target is not None and os.path.samestat(os.stat(target), os.fstat(1)) else target
    except OSError:  # there is nothing yet, or standard output is closed
        return target


def check_target(target: str | None, what: str = "JSON", remedy: str = "name a file, or - for standard output") -> None:
    """Raise CommandError unless `what` can be written to `target` (None: not asked for, "-": standard output).

    Asked before the work begins: minutes of it should not be lost to a misspelt folder.
    """
    if target in (None, "-"):
        return
    path = place_of(target)
    if path.is_dir() or not path.parent.is_dir():
        reason = "it is a folder" if path.is_dir() else f"there is no folder {path.parent}"
        raise CommandError(f"cannot write {what} to {target}: {reason}", remedy, BAD_CALL)
    written = [path] if path.exists() else []
    if not is_device(path):  # a file is written anew beside the old one: see write_whole
        written.append(path.parent)
    if not all(os.access(each, os.W_OK) for each in written):
        raise CommandError(f"cannot write {what} to {target}: no permission", "name another file", BAD_CALL)


def deliver(data: dict[str, object], shown: RenderableType, target: str | None) -> None:
    """Print what is `shown`, and write `data` as JSON to `target`; with "-" the JSON is all that is printed."""
    if target == "-":  # in ASCII: whatever the encoding of a pipe, nothing is lost
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
        sys.stdout.flush()
        return
    try:
        if target is not None:  # first: what was measured is kept, also if nobody reads what is printed
            write_whole(Path(target), (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
    finally:  # and shown, also if it cannot be written
        Console(highlight=False).print(shown)


def add_lists(page: Table, lists: Mapping[str, Sequence[str]]) -> None:
    """Sentences below a table: each list that has any under its heading."""
    for heading, sentences in lists.items():
        if sentences:
            page.add_row("")
            page.add_row(Text(heading, style="bold"))
        for sentence in sentences:
            page.add_row(Text(f"- {sentence}"))


def is_device(path: Path) -> bool:
    """Whether a pipe or a device is there: that is written to, never replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def place_of(target: str | Path) -> Path:
    """The file that `target` means: what a link points to. A pipe has a name (/dev/stdout), but lies nowhere."""
    path = Path(target)
    return path if is_device(path) else Path(os.path.realpath(path))


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` at `path` whole or not at all, whatever interrupts. A link stays a link, permissions stay."""
    path = place_of(path)
    temporary = path.with_name(TEMPORARY + secrets.token_hex(4))
    try:
        if is_device(path):
            path.write_bytes(data)
            return
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(path.stat().st_mode & 0o777)
        temporary.replace(path)
    except OSError as error:
        if error.filename in (None, str(temporary)):  # a full disk names nothing, and nobody knows that name
            error.filename, error.filename2 = str(path), None
        raise
    finally:
        temporary.unlink(missing_ok=True)
