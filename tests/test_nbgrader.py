"""A class that keeps nbgrader: what it makes of every assignment, and that its marks are those of `course grade`.

Twelve mixed submissions of ex03 get the same marks in the notebook, in the sandbox and from `nbgrader autograde`, and
so do the worked solutions and the starters of all assignments. (That those earn everything and nothing in the notebook
itself is in test_assignments; the bytes of a release, and `validate` for ex03, are in test_release.)

Where the three cannot agree, it is because the notebook's own cells judge in the notebook and in nbgrader:

* A check that its learner has replaced (`5.0` instead of `points("ex03.append")`) gives 5 points in the notebook.
  nbgrader puts the original cell back, the sandbox never runs it: both judge the answer.
* A check that is gone gives nothing in the notebook; nbgrader leaves its points to a person; the sandbox judges the
  answer all the same. (nbgrader's own remedy, `add_missing_cells`, stops at cells that are only to be read.)
* An answer that stands below its check comes too late in the notebook and in nbgrader, and counts in the sandbox,
  which asks after the last cell. An empty copy of the starter below an answer undoes it there, and not in the sandbox.
* A doubled cell stops nbgrader with all that it has still to grade (its issue 1083). Without its check of metadata at
  the end, which an nbgrader_config.py can leave out, it grades such a notebook as the others do; so it does here.
* A cell that ends its process, or does not end, costs one submission its marks in nbgrader; in the sandbox what works
  counts (test_grading_marks). A judge that was forged is believed by nbgrader (test_grading_hostile).
"""

import csv
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from mixed_submissions import DOUBLED, MIXED, NAME, TASKS, cell
from nbclient import NotebookClient
from nbformat import NotebookNode
from small_assignment import KEY, needs_sandbox
from warm_kernels import warm_kernels

from course_lib.grading.assignment import Assignment, read_assignment, sources
from course_lib.grading.gradebook import write
from course_lib.grading.mark import Marks, mark, rules_of
from course_lib.grading.sandbox import Sandbox

pytest.importorskip("nbgrader")
from nbgrader.api import Gradebook
from nbgrader.apps.api import NbGraderAPI
from nbgrader.converters import Autograde
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import CheckCellMetadata
from nbgrader.utils import capture_log, temp_attrs
from nbgrader.validator import Validator
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {path.stem: path for path in sources(ROOT)}
QUICKEST = "ex04_cache_sizing"  # its notebook does without torch
SOLVED, EMPTY = "solved", "empty"  # students who hand in the worked solution and the starter
pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="nbgrader does less there")]


@dataclass
class Course:
    """A course of nbgrader in a folder of its own, with all assignments."""

    root: Path
    exchange: Path
    takes_doubled_cells: bool = False
    api: Any = field(init=False)

    def __post_init__(self) -> None:
        config = Config()
        config.CourseDirectory.root, config.CourseDirectory.course_id = str(self.root), "kv"
        config.NbGraderAPI.log_level = "WARN"
        config.Exchange.root, config.Exchange.cache = str(self.exchange), str(self.exchange / "cache")
        if self.takes_doubled_cells:
            for stage in ("sanitize_preprocessors", "autograde_preprocessors"):
                config.Autograde[stage] = [
                    each for each in getattr(Autograde(), stage) if each is not CheckCellMetadata
                ]
        self.api = NbGraderAPI(CourseDirectory(config=config), config=config)

    def did(self, result: dict[str, Any]) -> str:
        """What nbgrader said, if it did what it was told."""
        assert result["success"], f"{result.get('error')}\n{result.get('log')}"
        return str(result.get("log"))

    def hand_in(self, assignment: str, student: str, notebook: NotebookNode) -> None:
        path = self.submitted(assignment, student)
        path.parent.mkdir(parents=True)
        nbformat.write(notebook, path)

    def submitted(self, assignment: str, student: str) -> Path:
        return self.root / "submitted" / student / assignment / f"{assignment}.ipynb"

    @property
    def book(self) -> Path:
        return self.root / "gradebook.db"

    def grades(self, assignment: str, file: Path | None = None) -> dict[str, dict[str, tuple[Any, ...]]]:
        """Student → cell → automatic score, score by hand, and whether a person has to look."""
        with Gradebook(f"sqlite:///{file or self.book}") as book:
            return {
                submission.student.id: {
                    grade.name: (grade.auto_score, grade.manual_score, grade.needs_manual_grade)
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                }
                for submission in book.assignment_submissions(assignment)
            }


def as_id(name: str) -> str:
    return re.sub(r"\W+", "-", name)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    """All assignments released, submissions of each, and all of them graded by nbgrader."""
    folder = tmp_path_factory.mktemp("class")
    (folder / "exchange").mkdir()
    with warm_kernels() as environment, pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", environment["JUPYTER_PATH"])
        patch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))  # for alembic
        patch.setenv("COURSE_GRADING_SEED", "a secret")
        patch.setenv("COURSE_DATA", str(folder / "data"))
        made = Course(folder / "course", folder / "exchange")
        for name, source in SOURCES.items():
            shutil.copytree(source.parent, made.root / "source" / name)
            made.did(made.api.generate_assignment(name))
            if name == NAME:
                for student in MIXED.keys() - {DOUBLED}:
                    made.hand_in(name, as_id(student), MIXED[student].notebook())
            else:
                made.hand_in(name, SOLVED, nbformat.read(source, as_version=4))
                made.hand_in(name, EMPTY, nbformat.read(released(made, name), as_version=4))
            made.did(made.api.autograde(name, "*"))
        made.hand_in(NAME, as_id(DOUBLED), MIXED[DOUBLED].notebook())
        other = Course(made.root, made.exchange, takes_doubled_cells=True)
        other.did(other.api.autograde(NAME, as_id(DOUBLED)))
        yield made


def released(course: Course, name: str) -> Path:
    return course.root / "release" / name / f"{name}.ipynb"


def assignment(name: str) -> Assignment:
    return read_assignment(SOURCES[name])


def marked(course: Course, name: str, students: list[str]) -> dict[str, Marks]:
    """Student → marks from the sandbox."""
    of = assignment(name)
    with Sandbox(rules_of(of)) as sandbox:
        return {
            student: mark(course.submitted(name, student), of, KEY, sandbox=sandbox, name=student)
            for student in students
        }


@pytest.fixture(scope="module")
def mixed_marks(course: Course) -> dict[str, Marks]:
    return marked(course, NAME, [as_id(student) for student in MIXED])


def earned(marks: Marks) -> dict[str, float]:
    return {task.check.partition(".")[2]: task.earned for task in marks.tasks}


def in_the_notebook(notebook: NotebookNode) -> dict[str, float]:
    """What the checks of ex03 end with when all cells are run from the top, whatever raises."""
    notebook.metadata.pop("kernelspec", None)  # that of the machine that saved it
    NotebookClient(notebook, allow_errors=True, timeout=120).execute()
    return {
        task: float(out.data["text/plain"])
        for task in TASKS
        for out in cell(notebook, f"ex03_{task}_check").outputs
        if out.output_type == "execute_result"
    }


# --- the marks --------------------------------------------------------------------------------------------------------


def test_the_mixed_submissions_are_twelve_and_earn_everything_nothing_and_what_lies_between() -> None:
    totals = [sum(mixed.earned.values()) for mixed in MIXED.values()]
    assert len(totals) == 12 and len(set(totals)) >= 8
    assert min(totals) == 0 and max(totals) == sum(task.points for task in assignment(NAME).tasks)


@needs_sandbox
def test_mixed_submissions_get_the_same_marks_in_the_notebook_in_the_sandbox_and_in_nbgrader(
    course: Course, mixed_marks: dict[str, Marks]
) -> None:
    graded = course.grades(NAME)
    for name, mixed in MIXED.items():
        run = in_the_notebook(mixed.notebook())
        by_nbgrader = {task: graded[as_id(name)][f"ex03_{task}_check"][0] for task in TASKS}
        assert run == earned(mixed_marks[as_id(name)]) == by_nbgrader == mixed.earned, name


@needs_sandbox
@pytest.mark.parametrize("name", [name for name in SOURCES if name != NAME])  # ex03 is among the mixed submissions
def test_a_worked_solution_gets_full_marks_and_a_starter_none_in_the_sandbox_and_in_nbgrader(
    name: str, course: Course
) -> None:
    marks, graded = marked(course, name, [SOLVED, EMPTY]), course.grades(name)
    for task in assignment(name).tasks:
        assert graded[SOLVED][task.check_cell][0] == task.points
        assert graded[EMPTY][task.check_cell][0] == 0
    assert (marks[SOLVED].earned, marks[EMPTY].earned) == (marks[SOLVED].points, 0)
    for question in assignment(name).questions:
        assert graded[SOLVED][question.cell] == (None, None, True), "a person marks it"
        assert graded[EMPTY][question.cell] == (0, None, False)


def test_grading_others_is_no_progress_of_ones_own(course: Course) -> None:
    assert course.grades(NAME) and not (course.root.parent / "data").exists()


def test_a_doubled_cell_stops_nbgrader_as_it_comes(course: Course) -> None:
    notebook = nbformat.read(SOURCES[QUICKEST], as_version=4)
    notebook.cells.insert(4, notebook.cells[3].copy())
    notebook.cells[4].id = "copied"
    course.hand_in(QUICKEST, "doubled", notebook)
    result = course.api.autograde(QUICKEST, "doubled")
    assert not result["success"] and "Outdated schema version: 0" in result["error"]


# --- what else nbgrader does with the assignments ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SOURCES)
def test_nbgrader_releases_what_lies_in_exercises(name: str, course: Course) -> None:
    assert released(course, name).read_bytes() == (ROOT / "exercises" / name / f"{name}.ipynb").read_bytes()


def test_a_starter_fails_validation_where_something_is_to_be_written_and_a_solution_nowhere(course: Course) -> None:
    """For one assignment; what `validate` looks at in the others is what `autograde` gives points for, above."""
    of = assignment(QUICKEST)
    found = Validator().validate(str(course.submitted(QUICKEST, EMPTY)))
    assert list(found) == ["failed"]  # and no cell that has changed
    assert [each["source"] for each in found["failed"]] == [
        *(f'points("{task.check}")' for task in of.tasks),
        *["YOUR ANSWER HERE"] * len(of.questions),
    ]
    assert Validator().validate(str(course.submitted(QUICKEST, SOLVED))) == {}


def test_an_assignment_goes_out_and_comes_back_and_marks_by_hand_outlast_a_second_grading(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through nbgrader's exchange: released, fetched, solved, handed in, collected, graded, marked, graded again."""
    api, name = course.api, QUICKEST
    monkeypatch.chdir(tmp_path)
    course.did(api.release_assignment(name))
    as_a_student(course, "FetchAssignment", name)
    fetched = tmp_path / name / f"{name}.ipynb"
    assert fetched.read_bytes() == released(course, name).read_bytes()
    shutil.copy(SOURCES[name], fetched)
    as_a_student(course, "Submit", name)
    before = set((course.root / "submitted").iterdir())
    course.did(api.collect(name))
    [student] = [path.name for path in set((course.root / "submitted").iterdir()) - before]
    assert course.submitted(name, student).read_bytes() == SOURCES[name].read_bytes()

    course.did(api.autograde(name, student))
    asked = assignment(name).questions[0].cell
    with Gradebook(f"sqlite:///{course.book}") as book:
        book.find_grade(asked, name, name, student).manual_score = 2.5
        book.find_comment(asked, name, name, student).manual_comment = "The second half is missing."
        book.db.commit()
    marked = course.grades(name)[student]
    course.did(api.autograde(name, student))
    assert course.grades(name)[student] == marked and marked[asked] == (None, 2.5, True)

    course.did(api.generate_feedback(name, student))
    page = (course.root / "feedback" / student / name / f"{name}.html").read_text(encoding="utf-8")
    total = sum(task.points for task in assignment(name).tasks) + 2.5
    assert f"(Score: {total:g} / {assignment(name).points:.1f})" in page and "The second half is missing." in page
    course.did(api.release_feedback(name, student))


def as_a_student(course: Course, app: str, name: str) -> None:
    """Fetch or hand in an assignment, in the working folder."""
    api = course.api
    with temp_attrs(api.coursedir, assignment_id=name):
        made = getattr(api.exchange, app)(coursedir=api.coursedir, authenticator=api.authenticator, parent=api)
        course.did(capture_log(made))


# --- marks of `course grade` in a gradebook ---------------------------------------------------------------------------


def everything(book: Path) -> list[str]:
    with closing(sqlite3.connect(book)) as db:
        return list(db.iterdump())


@needs_sandbox
def test_a_gradebook_written_here_says_what_nbgraders_own_says(
    course: Course, mixed_marks: dict[str, Marks], tmp_path: Path
) -> None:
    ours, export = tmp_path / "ours.db", tmp_path / "marks.csv"
    write(ours, SOURCES[NAME], mixed_marks.values(), {})
    assert course.grades(NAME, ours) == course.grades(NAME)
    nbgrader = [sys.executable, "-m", "nbgrader", "export", f"--db=sqlite:///{ours}", f"--to={export}"]
    subprocess.run(nbgrader, check=True, capture_output=True)
    with export.open(encoding="utf-8") as rows:
        totals = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(rows)}
    assert totals == {as_id(name): (sum(mixed.earned.values()), 24.0) for name, mixed in MIXED.items()}


@needs_sandbox
def test_marks_that_nbgrader_has_given_already_are_left_as_they_are_to_the_last_byte_of_the_gradebook(
    course: Course, mixed_marks: dict[str, Marks], tmp_path: Path
) -> None:
    book = Path(shutil.copy(course.book, tmp_path / "copy.db"))
    before = everything(book)
    write(book, SOURCES[NAME], mixed_marks.values(), {})
    assert everything(book) == before


@needs_sandbox
def test_nbgrader_goes_on_with_a_gradebook_that_was_written_here(
    course: Course, mixed_marks: dict[str, Marks], tmp_path: Path
) -> None:
    """It registers the same assignment again, though there are submissions; that needs the same cells."""
    root = tmp_path / "course"
    shutil.copytree(SOURCES[NAME].parent, root / "source" / NAME)
    write(root / "gradebook.db", SOURCES[NAME], mixed_marks.values(), {})
    other = Course(root, course.exchange)
    before = other.grades(NAME)
    other.did(other.api.generate_assignment(NAME))
    assert other.grades(NAME) == before
