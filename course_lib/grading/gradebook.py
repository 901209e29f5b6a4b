"""Marks into a gradebook of nbgrader, so that a class keeps its tools: the formgrader, marks by hand, the export.

The one idea: what a person has marked is theirs. Written are the assignment, just as `nbgrader generate_assignment`
enters it, the students, what the checks gave, and points given by hand elsewhere where nbgrader has none; a score or a
comment that was given by hand in nbgrader is never touched. All of it is one transaction: whatever goes wrong, and
whoever has the file open, it holds all marks of a run or none.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nbformat import NotebookNode

from course_lib.commands.kernels import read_notebook
from course_lib.commands.output import write_whole
from course_lib.grading.assignment import ANSWER, CHECK, STARTER, Assignment, assignment_of, kind_of
from course_lib.grading.mark import Marks
from course_lib.grading.release import released

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

PATIENCE_S = 5.0  # for whoever else is writing to the file
OURS = {"alembic_version", "submitted_notebook"}  # tables of every gradebook; JupyterHub, for one, has the first, too
NO_ANSWER = "No response."  # as nbgrader says it


class NoGradebook(RuntimeError):
    """There is no gradebook to write to; the message says why and what to do. Nothing was written."""


def write(
    path: Path,
    assignment: Path,
    marks: Iterable[Marks],
    names: Mapping[str, str],
    emails: Mapping[str, str] | None = None,
    changed: Collection[str] = (),
    by_hand: Mapping[str, Mapping[str, float | None]] | None = None,
) -> list[str]:
    """Put marks into the gradebook at `path`, which is made if it is not there.

    `assignment` is its notebook, released or source. `names` are the students, whose id is what the submission is
    called, also those who handed in nothing; a name or an address that the gradebook has already stays. What nobody can
    judge automatically waits to be marked by hand. Where that has been done it is kept, but marked for another look if
    the automatic mark is another one now, or if the student is one of those who `changed` what they had handed in.
    `by_hand` are points that a person gave elsewhere, by student and grade_id: they are entered where the gradebook has
    no score by hand. Where it has another one that one stays, and a sentence of those that are returned says so.

    Raises NoGradebook; NotebookProblem or BadAssignment if `assignment` is none.
    """
    notebook = read_notebook(assignment)
    if not any("checksum" in cell.metadata.get("nbgrader", {}) for cell in notebook.cells):
        notebook = released(notebook, assignment.stem)[1]
    of = assignment_of(notebook, assignment.stem)
    found = list(marks)
    if others := [one.assignment for one in found if one.assignment != of.name]:
        raise ValueError(f"these are marks for {others[0]}, not for {of.name}")
    if len({one.submission for one in found}) < len(found):
        raise ValueError("there are two marks for one student")
    students = dict.fromkeys((one.submission for one in found), "") | dict(names)
    for student in students:
        if student.encode(errors="replace").decode() != student:
            raise NoGradebook(f"A gradebook cannot hold the name {student!a}. Rename what was handed in under it.")
    path = path.resolve()
    if path.is_dir():
        raise NoGradebook(f"{path} is a folder. Name a file in it, like gradebook.db.")
    with tempfile.TemporaryDirectory(prefix="course-gradebook-") as folder:
        file = path if path.exists() else Path(folder) / "gradebook.db"
        with opened(file, path) as db:
            book = registered(db, of, notebook, path)
            for student, name in students.items():
                enrolled(db, student, name, (emails or {}).get(student, ""))
            said = []
            for one in found:
                grades = enter(db, book, of, one, one.submission in changed)
                for answer in one.answers:
                    given = (by_hand or {}).get(one.submission, {}).get(answer.cell)
                    if given is not None:
                        there = carry(grades[answer.cell], given, one.submission in changed)
                        if there != given:
                            what = f"{one.submission}: {answer.title or answer.cell}"
                            said.append(f"{what}: {path.name} has {there:g}, marks.csv {given:g}; each keeps its own")
        if file != path:
            try:
                write_whole(path, file.read_bytes())
            except OSError as error:
                raise NoGradebook(f"{path} cannot be written: {error.strerror}. Name another file.") from None
    return said


@contextmanager
def opened(file: Path, named: Path) -> Iterator[Session]:
    """A gradebook, in a transaction that ends with this; a new one if there is no such file. `named` is what messages
    call it."""
    try:
        from alembic.script import ScriptDirectory
        from nbgrader import api, dbutil  # type: ignore[import-untyped]
        from sqlalchemy import URL, create_engine, text
        from sqlalchemy.exc import DBAPIError
        from sqlalchemy.orm import Session
    except ImportError as error:
        raise NoGradebook(
            f"Writing a gradebook needs nbgrader, which cannot be imported ({error}). Install it into the environment "
            "of the course: pip install nbgrader"
        ) from None
    version = str(ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head())
    is_new = not file.exists()
    if not is_new:
        check_version(file, version)
    engine = create_engine(URL.create("sqlite", database=str(file)), connect_args={"timeout": PATIENCE_S})
    try:
        with Session(engine, autoflush=False) as db, db.begin():
            if is_new:  # nbgrader's own class calls a program for the version, and fails where that is not on the path
                api.Base.metadata.create_all(db.connection())
                db.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
                db.execute(text("INSERT INTO alembic_version VALUES (:version)"), {"version": version})
            yield db
    except DBAPIError as error:
        raise because(named, error.orig) from None
    finally:
        engine.dispose()


def check_version(path: Path, version: str) -> None:
    """Raise NoGradebook unless this is a gradebook of the nbgrader that is installed. The file is only read."""
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S)) as db:
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            found = db.execute("SELECT version_num FROM alembic_version").fetchone() if tables >= OURS else None
    except sqlite3.Error as error:
        raise because(path, error) from None
    if not tables >= OURS:
        raise NoGradebook(f"{path} is no gradebook: nbgrader did not make this file. Name another one, or a new one.")
    if found != (version,):
        raise NoGradebook(
            f"{path} was made by another version of nbgrader (layout {str(found and found[0])[:40]}, here it is "
            f'{version}). If that was an older one, run: nbgrader db upgrade --db "sqlite:///{path}" (it keeps a copy).'
        )


def because(path: Path, error: BaseException | None) -> NoGradebook:
    """What an error of the database means."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what only says more about it
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        said = "is being written by another program. Wait until it has finished, or close it"
    elif code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        said = f"is no gradebook, or a damaged one ({error}). Name another one, or a new one"
    elif code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        said = f"cannot be written ({error}). It has to be a file that is yours, in a folder that is yours"
    else:
        said = f"could not be written: {error}"
    return NoGradebook(f"{path} {said}. Nothing was changed.")


def registered(db: Session, assignment: Assignment, notebook: NotebookNode, path: Path) -> Any:
    """The notebook of the assignment in the gradebook, with all cells as nbgrader keeps them; entered if need be."""
    from nbgrader import api

    entry = db.query(api.Assignment).filter_by(name=assignment.name).first()
    if entry is None:
        other = db.query(api.Assignment).first()
        course = other.course_id if other else "default_course"
        if db.get(api.Course, course) is None:
            db.add(api.Course(id=course))
        entry = api.Assignment(assignment.name, course_id=course)
        db.add(entry)
    book = next((each for each in entry.notebooks if each.name == assignment.name), None)
    if book is None:
        kernel = json.dumps(notebook.metadata.get("kernelspec", {}))
        book = api.Notebook(name=assignment.name, assignment=entry, kernelspec=kernel)
        db.add(book)
    wanted = cells_of(notebook)
    there = {(type(each).__name__, each.name): each for each in (*book._base_cells, *book.source_cells)}
    if differ := sorted({name for _, name in wanted.keys() ^ there.keys()}):
        if book.submissions:
            raise NoGradebook(
                f"{path} holds marks for another {assignment.name}, with other cells ({', '.join(differ[:3])}"
                f"{', …' * (len(differ) > 3)}). Name another file, or bring back the assignment that they are for."
            )
        for key in there.keys() - wanted.keys():
            db.delete(there[key])
    for (kind, name), values in wanted.items():
        cell = there.get((kind, name))
        if cell is None:
            db.add(getattr(api, kind)(name=name, notebook=book, **values))
        else:
            for value in values:
                setattr(cell, value, values[value])
    db.flush()  # what is new has an id from here on
    return book


def cells_of(notebook: NotebookNode) -> dict[tuple[str, str], dict[str, Any]]:
    """What nbgrader enters of each cell, by nbgrader's name of such an entry and the cell's grade_id."""
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in notebook.cells:
        kind, meta = kind_of(cell), cell.metadata.nbgrader
        if kind in (CHECK, ANSWER):
            cells["GradeCell", meta.grade_id] = {"max_score": float(meta.points), "cell_type": cell.cell_type}
        if kind in (STARTER, ANSWER):
            cells["SolutionCell", meta.grade_id] = {}
        cells["SourceCell", meta.grade_id] = {
            "cell_type": cell.cell_type,
            "locked": kind not in (STARTER, ANSWER),
            "source": cell.source,
            "checksum": meta.checksum,
        }
    return cells


def enrolled(db: Session, student: str, name: str, email: str) -> None:
    """See to it that a student is in the gradebook; a name and an address are added where there is none."""
    from nbgrader import api

    entry = db.get(api.Student, student)
    if entry is None:
        entry = api.Student(id=student)
        db.add(entry)
    if name not in ("", student) and not (entry.first_name or entry.last_name):
        last, comma, first = name.partition(",")
        if not comma:
            first, _, last = name.strip().rpartition(" ")
        entry.first_name, entry.last_name = first.strip() or None, last.strip() or None
    if email and not entry.email:
        entry.email = email


def enter(db: Session, book: Any, assignment: Assignment, marks: Marks, changed: bool) -> dict[str, Any]:
    """Enter the marks of one submission; its grades by the names of their cells."""
    from nbgrader import api

    whole = db.query(api.SubmittedAssignment).filter_by(assignment_id=book.assignment_id, student_id=marks.submission)
    submission = whole.first()
    if submission is None:
        submission = api.SubmittedAssignment(assignment_id=book.assignment_id, student_id=marks.submission)
        db.add(submission)
        db.flush()
    handed_in = next((each for each in submission.notebooks if each.notebook_id == book.id), None)
    if handed_in is None:
        handed_in = api.SubmittedNotebook(notebook_id=book.id, assignment_id=submission.id)
        db.add(handed_in)
        db.flush()
    grades = entries(db, api.Grade, handed_in, book.grade_cells)
    comments = entries(db, api.Comment, handed_in, book.solution_cells)
    cells = {task.check: task.check_cell for task in assignment.tasks}
    for task in marks.tasks:
        give(grades[cells[task.check]], task.earned, changed)
    for answer in marks.answers:
        give(grades[answer.cell], None if answer.text else 0.0, changed)
        comments[answer.cell].auto_comment = None if answer.text else NO_ANSWER
    return grades


def entries(db: Session, kind: Any, handed_in: Any, cells: Sequence[Any]) -> dict[str, Any]:
    """The grades, or the comments, of a submitted notebook by the names of its cells; added where there are none."""
    found = {each.cell_id: each for each in db.query(kind).filter_by(notebook_id=handed_in.id)}
    for cell in cells:
        if cell.id not in found:
            found[cell.id] = kind(cell_id=cell.id, notebook_id=handed_in.id)
            db.add(found[cell.id])
    return {cell.name: found[cell.id] for cell in cells}


def give(grade: Any, score: float | None, changed: bool) -> None:
    """Give an automatic score, or None for one that only a person can give."""
    moved = changed or grade.auto_score != score
    grade.auto_score = score
    if grade.manual_score is None:
        grade.needs_manual_grade = score is None
    elif moved:  # the score given by hand counts; nbgrader asks for another look, too
        grade.needs_manual_grade = True


def carry(grade: Any, given: float, changed: bool) -> float:
    """Enter points that a person gave elsewhere unless there are some; those that are there now."""
    if grade.manual_score is None:
        grade.manual_score, grade.needs_manual_grade = given, changed
    return float(grade.manual_score)
