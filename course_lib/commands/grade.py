"""`course grade`: marks for one notebook, or for a class, with what a person has to know about them.

The one idea: everything that may go wrong with the call is found out before the first notebook is run, and what was
marked stays marked whatever happens then. Tables, pages and the gradebook are made from the records at the end.
"""

import importlib.util
import os
import secrets
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from course_lib.commands.grade_tables import class_table, in_short, one_notebook
from course_lib.commands.output import BAD_CALL, DONE, STOPPED, WRONG, CommandError, deliver, say, write_whole
from course_lib.commands.places import checkout, short
from course_lib.commands.release import find_assignments, folders
from course_lib.grading.assignment import SOURCES, Assignment, BadAssignment, read_assignment
from course_lib.grading.class_marks import (
    DATA,
    GRADED,
    NOT_A_NOTEBOOK,
    SHEET,
    STATES,
    UNTOUCHED,
    ByHand,
    Row,
    as_data,
    as_sheet,
    by_hand,
    rows_of,
    write_class,
)
from course_lib.grading.feedback import page
from course_lib.grading.group import (
    BadKey,
    NotKept,
    Records,
    Result,
    Room,
    made_with,
    mark_class,
    processors,
    secret_key,
    sensible_jobs,
)
from course_lib.grading.handed_in import Class, HandedIn, file_names, is_notebook, label, listed
from course_lib.grading.mark import Marks, rules_of
from course_lib.grading.one_run import Busy, alone_in
from course_lib.grading.sheets import BadSheet, Name, class_list

RESULTS, PAGES, KEY = "results", "feedback", "grading.key"
DEFAULT_FOLDER = "grades"


@dataclass(frozen=True)
class Asked:
    """What the command was called with."""

    paths: Sequence[Path]
    assignment: str | None = None
    names: Path | None = None
    to: Path | None = None
    jobs: int | None = None
    key: Path | None = None
    trust: bool = False
    gradebook: Path | None = None
    again: bool = False
    json: str | None = None

    @property
    def alone(self) -> bool:
        """Whether it is about one notebook, and nothing is to be kept."""
        return len(self.paths) == 1 and self.paths[0].is_file() and not (self.to or self.names or self.gradebook)


def grade_submissions(asked: Asked) -> int:
    """Mark what was handed in, and print and write the marks; the exit status."""
    began = time.monotonic()
    for path in asked.paths:
        if not path.exists() or (path.is_file() and not is_notebook(path.name)):
            said = "is not a notebook (.ipynb)" if path.exists() else "is not there"
            raise CommandError(f"{path} {said}", "name a notebook, or a folder", BAD_CALL)
    if asked.gradebook and importlib.util.find_spec("nbgrader") is None:
        raise CommandError("a gradebook needs nbgrader", 'pip install "kv-cache-course[class]"', BAD_CALL)
    book = asked.gradebook
    if book and (book.is_dir() or not os.access(book if book.exists() else book.parent, os.W_OK)):
        raise CommandError(f"{book} cannot be written", "name a file for the gradebook", BAD_CALL)
    if asked.key and not asked.key.is_file():
        raise CommandError(f"there is no key {asked.key}", f"without --key one is made in {DEFAULT_FOLDER}/", BAD_CALL)
    with ExitStack() as held:
        try:
            names = class_list(asked.names) if asked.names else {}
            to = asked.to or Path(DEFAULT_FOLDER)
            known, wanted = known_assignments(asked.assignment)
            found = Class(asked.paths, list(known), to)
            assignment = read_assignment(known[which(found, wanted, asked)])
            handed_in = found.handed_in(assignment.name, names)
            folder = None if asked.alone else results_folder(to / assignment.name, asked.paths)
            if folder:
                held.enter_context(alone_in(to))
                by_hand(folder / SHEET, assignment)  # before an hour of work, not after it
            key = secrets.token_bytes(32) if not folder and not asked.key else secret_key(asked.key or to / KEY)
        except Busy as problem:
            raise CommandError(str(problem), "wait for it, or name another --to") from None
        except OSError as problem:
            said = f"{short(Path(problem.filename))}: {problem.strerror}" if problem.filename else str(problem)
            raise CommandError(said, status=BAD_CALL) from None
        except (BadSheet, BadAssignment, BadKey) as problem:
            raise CommandError(str(problem), status=BAD_CALL) from None
        for line in about_names(found, names):
            say(line)
        results = mark_all(asked, assignment, handed_in, folder, key)
        if results is None:
            return STOPPED
        seconds = time.monotonic() - began
        if folder is None:
            return show_alone(results[0], assignment, asked.json)
        return finish(asked, assignment, known[assignment.name], results, names, folder, seconds)


def known_assignments(word: str | None) -> tuple[dict[str, Path], str]:
    """The notebooks of assignments by name, and the name of the one that `word` means; a file may be one, too."""
    root = checkout()
    names = [path.name for path in folders(root / SOURCES)] if root else []
    known = {name: root / SOURCES / name / f"{name}.ipynb" for name in names if root}
    if word and is_notebook(word) and Path(word).is_file():
        return known | {Path(word).stem: Path(word)}, Path(word).stem
    if root is None:
        raise CommandError(
            "there are no assignments beside the library", "name one: --assignment ex03_kv_cache.ipynb", BAD_CALL
        )
    return known, find_assignments(root, [word])[0] if word else ""


def which(found: Class, wanted: str, asked: Asked) -> str:
    """The assignment that is to be marked: the one that was named, or the only one that there are notebooks of."""
    if not any(folder.notebooks or folder.troubles for folder in found.students.values()) and not asked.names:
        where = ", ".join(map(short, asked.paths))
        raise CommandError(f"there is no notebook in {where}", "name the folder of a class", BAD_CALL)
    if wanted:
        return wanted
    said = found.assignments()
    if len(said) == 1:
        return next(iter(said))
    of = ", ".join(f"{name} ({said[name]})" for name in sorted(said))
    message = f"there are notebooks of several assignments: {of}" if said else "no notebook says which assignment it is"
    raise CommandError(message, f"say which: --assignment {min(said, default='ex03')}", BAD_CALL)


def results_folder(folder: Path, paths: Sequence[Path]) -> Path:
    """The folder for results, if it can be that."""
    if any(folder.resolve() == path.resolve() or folder.parent.resolve() == path.resolve() for path in paths):
        raise CommandError(f"results cannot lie where {short(folder)} was handed in", "name another --to", BAD_CALL)
    return folder


def made_ready(folder: Path, students: Sequence[str]) -> None:
    """Make the folders for results, and see that nothing stands in the way of what will be written into them."""
    for each in (folder, folder / RESULTS, folder / PAGES):
        try:
            each.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=each):
                pass
        except OSError as error:
            said = f"nothing can be written into {short(each)}: {error.strerror}"
            raise CommandError(said, "make way there, or name another --to", BAD_CALL) from None
    files = file_names(students).values()
    pages = [folder / PAGES / f"{name}.html" for name in files]
    for path in (folder / DATA, *pages, *(folder / RESULTS / f"{name}.json" for name in files)):
        if path.is_dir():
            raise CommandError(f"{short(path)} is a folder", "a file will be written there: move it away", BAD_CALL)


def about_names(found: Class, names: Mapping[str, Name]) -> list[str]:
    """What was found and is of nobody."""
    said = []
    strangers = [label(student) for student in found.students if names and student not in names]
    if strangers:
        said.append(f"not in the list of names: {listed(sorted(strangers))}")
    if found.ignored:
        why = {True: "called as the assignment, so nobody's", False: "not a notebook"}
        said.append(f"ignored: {listed([f'{each} ({why[is_notebook(each)]})' for each in found.ignored])}")
    return said


def mark_all(
    asked: Asked, assignment: Assignment, handed_in: list[HandedIn], folder: Path | None, key: bytes
) -> list[Result] | None:
    """The results in the order of `handed_in`; None if it was stopped."""
    trusted = not Room.available()
    if trusted and not (asked.trust or asked.alone):
        raise CommandError(Room.why_not().rstrip("."), "--trust runs what strangers wrote with your rights", WRONG)
    if trusted:
        say(f"{Room.why_not()} What was handed in is run with your rights.")
    records = None
    if folder:
        students = [each.student for each in handed_in]
        made_ready(folder, students)
        records = Records(folder / RESULTS, made_with(assignment, key, trusted=trusted), students)
    jobs = min(asked.jobs or sensible_jobs(), processors())
    if asked.jobs and asked.jobs > jobs:
        say(f"{jobs} at once, not {asked.jobs}: there are no more processors, and none should wait for another")
    results: dict[str, Result] = {}
    console = Console(stderr=True)
    counted = (BarColumn(24), MofNCompleteColumn(), "submissions", TimeElapsedColumn())
    columns = (*counted, TextColumn("{task.description}", markup=False))
    room = Room(rules_of(assignment), trusted=trusted)
    with room:
        marking = mark_class(handed_in, assignment, key, room, records, jobs=jobs, again=asked.again)
        bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        try:
            with closing(marking), bar:
                task = bar.add_task("", total=len(handed_in))
                for result in marking:
                    student = result.handed_in.student
                    results[student] = result
                    bar.update(task, advance=1, description=label(student))
                    if not console.is_terminal and not asked.alone and not result.kept:
                        say(f"{label(student)}: {in_short(result)}")
        except (KeyboardInterrupt, NotKept) as end:
            kept = sum(result.marks is not None for result in results.values())
            said = f"{kept} of {len(handed_in)} are marked and kept; the same command goes on with the others"
            if isinstance(end, NotKept):
                raise CommandError(f"{short(Path(end.filename))}: {end.strerror}", said) from None
            if folder:
                say(said)
            return None
    return [results[each.student] for each in handed_in]


def finish(
    asked: Asked,
    assignment: Assignment,
    source: Path,
    results: list[Result],
    names: Mapping[str, Name],
    folder: Path,
    seconds: float,
) -> int:
    """Write pages, tables and the gradebook, and print the marks; the exit status."""
    try:
        before = by_hand(folder / SHEET, assignment)  # somebody may have written in it meanwhile
    except BadSheet as problem:
        raise CommandError(f"{problem}; then run this again", "all marks are kept") from None
    rows = rows_of(results, assignment, names, before)
    try:
        data = write_all(assignment, rows, before, folder, seconds)
    except OSError as error:
        said = "all marks are kept; the same command writes what is missing"
        raise CommandError(f"{short(Path(error.filename or folder))}: {error.strerror or error}", said) from None
    if asked.gradebook:
        for line in fill_gradebook(asked.gradebook, source, rows):
            say(line)
    say(f"{SHEET}, {DATA} and {PAGES}/ are in {short(folder.absolute())}")
    deliver(data, class_table(rows, counted(rows)), asked.json)
    return DONE if all(row.result.in_order for row in rows) else WRONG


def write_all(
    assignment: Assignment, rows: Sequence[Row], before: ByHand, folder: Path, seconds: float
) -> dict[str, object]:
    """Write the pages and the tables; what marks.json says. Raises OSError."""
    files = file_names([row.result.handed_in.student for row in rows])
    for row in rows:
        if row.result.marks:
            path = folder / PAGES / f"{files[row.result.handed_in.student]}.html"
            missing = row.state == NOT_A_NOTEBOOK
            html = page(with_notes(row), row.name.name, row.by_hand, assignment.title, missing=missing).encode()
            if not path.exists() or path.read_bytes() != html:
                write_whole(path, html)
    data: dict[str, object] = {
        "assignment": assignment.name,
        "points": assignment.points,
        "folder": short(folder),
        **{state.replace(" ", "_"): n for state, n in counted(rows).items()},
        "kept": sum(row.result.kept for row in rows),
        "seconds": round(seconds, 3),
        "peak_bytes": max((row.result.marks.peak_bytes for row in rows if row.result.marks), default=0),
        "submissions": [as_data(row) for row in rows],
    }
    for line in write_class(folder, as_sheet(rows, assignment, before), data, before, rows):
        say(line)
    return data


def counted(rows: Sequence[Row]) -> dict[str, int]:
    return {state: sum(row.state == state for row in rows) for state in STATES}


def with_notes(row: Row) -> Marks:
    """The marks of a row for its page, with what there is to say about how they were handed in."""
    assert row.result.marks
    said = tuple(said for said in row.result.handed_in.said if said not in row.result.marks.notes)
    return replace(row.result.marks, notes=said + row.result.marks.notes, submission=row.student)


def fill_gradebook(path: Path, source: Path, rows: Sequence[Row]) -> list[str]:
    """Enter what is graded; what is not a notebook would be 0 points there. Says what a person should know."""
    from course_lib.grading.gradebook import NoGradebook, write

    graded = [row for row in rows if row.state == GRADED]
    try:
        return write(
            path,
            source,
            [replace(row.result.marks, submission=row.student) for row in graded if row.result.marks],
            {row.student: row.name.name for row in rows},
            {row.student: row.name.email for row in rows if row.name.email},
            {row.student for row in rows if row.anew},
            {row.student: row.by_hand for row in graded},
        )
    except NoGradebook as problem:
        raise CommandError(str(problem), "all else is written") from None


def show_alone(result: Result, assignment: Assignment, target: str | None) -> int:
    """Print the marks of one notebook, of which nothing is kept."""
    if result.marks is None:
        raise CommandError(result.why_not or " ".join(result.handed_in.said))
    (row,) = rows_of([result], assignment, {}, UNTOUCHED)
    data: dict[str, object] = {"assignment": assignment.name, "submissions": [as_data(row)]}
    deliver(data, one_notebook(row), target)
    return DONE if result.in_order else WRONG
