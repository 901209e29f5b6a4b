"""`course progress`: where a learner stands; export, import, reset and its undoing.

The one idea: it shows what `course_lib.progress` worked out. Repairs and faults are told on standard error, so that a
result that is piped stays a result.
"""

import sys
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from course_lib.commands.output import BAD_CALL, DONE, CommandError, deliver, program, say, write_whole
from course_lib.commands.places import short
from course_lib.progress.course import full_name
from course_lib.progress.event import Event, notebook_of
from course_lib.progress.faults import Fault
from course_lib.progress.store import standing_resets, store, visible
from course_lib.progress.summary import Standing, day, standings, what_next
from course_lib.progress.transfer import LARGEST, BadImport, WouldHide, export_text, import_text


def show_map(json_target: str | None) -> int:
    """Print the map of the course with what was done in each notebook."""
    found = standings(_events())
    _tell()
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("notebook", no_wrap=True)
    for heading in ("predicted", "answered", "first\ntry", "exercise\nparts"):
        table.add_column(heading, justify="right")
    table.add_column("finished")
    for one in found:
        table.add_row(*_row(one))
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row("")
    for one in found:
        if one.problem:
            outer.add_row(Text(f"{one.notebook}: its questions cannot be counted: {one.problem}"))
    outer.add_row(Text(f"Next: {what_next(found)}"))
    data: dict[str, object] = {
        "folder": str(store().folder),
        "next": what_next(found),
        "notebooks": [asdict(one) for one in found],
    }
    deliver(data, outer, json_target)
    return DONE


def export(target: str) -> int:
    """Write everything that was recorded to a file that is not there yet, or to standard output."""
    path = Path(target)
    if target != "-" and (path.exists() or path.is_symlink()):
        raise CommandError(f"{target} is there already", "name a new file", BAD_CALL)
    if target != "-" and not path.parent.is_dir():
        raise CommandError(f"there is no folder {path.parent}", "name a file in a folder that exists", BAD_CALL)
    try:
        history = store().history()
    except Fault as problem:
        raise _fault("your progress cannot be read", problem) from None
    _tell()
    text = export_text(history)
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return DONE
    write_whole(path, text.encode())
    print(f"{_counted(len(history), 'entry', 'entries')} written to {short(path.absolute())}")
    return DONE


def take(source: str, with_resets: bool = False) -> int:
    """Merge an export into what is here."""
    shown = source if source.isprintable() else ascii(source)
    try:
        if source == "-":
            text = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(source).open("rb") as file:
                text = file.read(LARGEST + 1)
    except OSError as error:
        raise CommandError(f"{shown} cannot be read: {error.strerror}", "name an export", BAD_CALL) from None
    try:
        done = import_text(text, store(), with_resets)
    except BadImport as problem:
        message = f"{shown} was not imported: {problem}"
        raise CommandError(message, f"make one with: {program()} progress export FILE") from None
    except WouldHide as problem:
        raise CommandError(f"{shown} was not imported: {problem}", "to import it all the same: --with-resets") from None
    except Fault as problem:
        raise _fault("nothing was imported", problem) from None
    _tell()
    print(f"{_counted(done.entries, 'entry', 'entries')} read, {done.new} of them new")
    if done.own_hidden:
        print(f"{_counted(done.own_hidden, 'entry of yours is', 'entries of yours are')} hidden now by a reset in it")
    if done.hidden:
        print(f"{done.hidden} of them are older than a reset and stay hidden")
    if done.hidden or done.own_hidden:
        print(f"To see them again: {program()} progress reset NOTEBOOK --undo")
    return DONE


def reset(notebook: str | None, yes: bool, undo: bool) -> int:
    """Hide what was recorded of one notebook or of all, after asking; or take that back, which asks nothing."""
    try:
        name = None if notebook is None else full_name(notebook)
    except ValueError as problem:
        raise CommandError(str(problem), "or name none to reset the whole course", BAD_CALL) from None
    if undo:
        return _undo(name)
    events = [event for event in _events() if name is None or notebook_of(event.name) == name[:2]]
    _tell()
    what = name or "the whole course"
    if not events:
        print(f"Nothing is recorded of {what}.")
        return DONE
    if not yes:
        print(f"This resets {what}: {_counted(len(events), 'entry', 'entries')}.")
        print(f"They stay in {short(store().folder)}, hidden until you undo it: {_undoing(name and name[:2])}")
        print(f"An export keeps them in your hands: {program()} progress export FILE")
        if not typer.confirm("Reset?"):
            print("Nothing was reset.")
            return DONE
    try:
        store().reset(name)
    except Fault as problem:
        raise _fault("nothing was reset", problem) from None
    print(f"{what} is reset.")
    print(f"To undo this: {_undoing(name and name[:2])}")
    return DONE


def _undo(name: str | None) -> int:
    """Take back the latest reset of a notebook or of the whole course."""
    before, what = len(_events()), name or "the whole course"
    try:
        done = store().undo(name)
        history = store().history()
    except Fault as problem:
        raise _fault("nothing was undone", problem) from None
    _tell()
    others = sorted({event.name for event in standing_resets(history)})
    if done is None:
        remedy = " or ".join(_undoing(one) for one in others) or "nothing is hidden"
        raise CommandError(f"there is no reset of {what} to undo", remedy)
    back = len(visible(history)) - before
    print(f"The latest reset of {what} is undone: {_counted(back, 'entry is', 'entries are')} visible again.")
    if not back and others:
        print(f"Another reset hides them, too. To undo it: {' or '.join(_undoing(one) for one in others)}")
    return DONE


def _undoing(notebook: str | None) -> str:
    """The command that takes back a reset."""
    return " ".join([program(), "progress", "reset", *([notebook] if notebook else []), "--undo"])


def _events() -> list[Event]:
    try:
        return visible(store().history())
    except Fault as problem:
        raise _fault("your progress cannot be read", problem) from None


def _fault(what: str, problem: Fault) -> CommandError:
    remedy = problem.remedy[:1].lower() + problem.remedy[1:].rstrip(".")
    return CommandError(f"{what}: {problem.reason} at {problem.path}", remedy)


def _tell() -> None:
    for notice in store().notices():
        say(notice)


def _row(one: Standing) -> tuple[str, str, str, str, str, str]:
    asked = bool(one.questions)
    return (
        one.notebook,
        str(one.predictions) if one.here or one.predictions else "",
        f"{one.answered} of {one.questions}" if asked else "",
        str(one.right_first_try) if asked else "",
        f"{one.exercises_passed} of {one.exercises}" if one.exercises else "",
        day(one.finished_at) if one.finished_at else ("to come" if not one.here else "-"),
    )


def _counted(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"
