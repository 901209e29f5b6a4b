"""Marks in a gradebook of nbgrader: everything or nothing of them, and nothing of what a person has given is lost.

(That nbgrader reads, exports and goes on with what was written here is in test_nbgrader.)
"""

import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from sample_assignment import NAME, SAMPLE, cell

from course_lib.grading import gradebook
from course_lib.grading.assignment import read_assignment
from course_lib.grading.gradebook import NoGradebook, write
from course_lib.grading.mark import Answer, Marks, TaskMarks

api = pytest.importorskip("nbgrader.api")
URL = pytest.importorskip("sqlalchemy").URL

EX03 = read_assignment(SAMPLE)
APPEND, COST = "ex03_append_check", "ex03_cost_answer"
NAMES = {"ada": "Ada King Lovelace", "bob": "Möbius, August", "eve": "", "mae": "mae"}


def marks(student: str, *earned: float, text: str = "It grows.") -> Marks:
    """Marks for ex03: points of the four tasks, 0 for those that are left out; the same text for every question."""
    points = (*earned, *[0.0] * (len(EX03.tasks) - len(earned)))
    tasks = tuple(TaskMarks(task.check, task.title, task.points, got) for task, got in zip(EX03.tasks, points))
    answers = tuple(Answer(each.cell, each.title, each.points, text) for each in EX03.questions)
    return Marks(NAME, student, tasks, answers, (), 1.0, 1)


CLASS = [marks("ada", 5, 3, 4, 6), marks("bob", 2.5, text="")]


@contextmanager
def book(path: Path) -> Iterator[Any]:
    with api.Gradebook(URL.create("sqlite", database=str(path))) as opened:
        yield opened


def everything(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def grade(path: Path, student: str, name: str) -> tuple[float | None, float | None, bool]:
    """The automatic score, the one given by hand, and whether a person has to look."""
    with book(path) as opened:
        found = opened.find_grade(name, NAME, NAME, student)
        return found.auto_score, found.manual_score, found.needs_manual_grade


def by_hand(path: Path, student: str, name: str, score: float) -> None:
    """What a person does in the formgrader."""
    with book(path) as opened:
        found = opened.find_grade(name, NAME, NAME, student)
        found.manual_score, found.needs_manual_grade, found.extra_credit = score, False, 0.5
        if name == COST:
            opened.find_comment(name, NAME, NAME, student).manual_comment = "Which part?"
        opened.db.commit()


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "gradebook.db"
    write(path, SAMPLE, CLASS, NAMES, {"ada": "ada@example.org"})
    return path


@pytest.fixture(scope="module")
def of_nbgrader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A gradebook that nbgrader has made, with the students of a class and no assignment yet."""
    path = tmp_path_factory.mktemp("of-nbgrader") / "gradebook.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))  # for alembic
        with api.Gradebook(f"sqlite:///{path}", "kv") as made:
            made.add_student("ada", first_name="Ada", last_name="of Lovelace", email="ada@old.example.org")
            made.add_assignment("warm_up")
    return path


# --- what is written --------------------------------------------------------------------------------------------------


def test_points_are_entered_for_each_check_and_answers_wait_for_a_person(written: Path) -> None:
    assert grade(written, "ada", APPEND) == (5, None, False)
    assert grade(written, "bob", APPEND) == (2.5, None, False)
    assert grade(written, "bob", "ex03_chunk_check") == (0, None, False)
    assert grade(written, "ada", COST) == (None, None, True)
    assert grade(written, "bob", COST) == (0, None, False)  # nothing was written
    with book(written) as opened:
        assert opened.find_comment(COST, NAME, NAME, "bob").auto_comment == "No response."
        assert opened.find_comment(COST, NAME, NAME, "ada").auto_comment is None
        assert [(each.score, each.max_score) for each in opened.assignment_submissions(NAME)] == [(18, 24), (2.5, 24)]


def test_students_have_their_names_and_those_who_handed_in_nothing_are_there(written: Path) -> None:
    with book(written) as opened:
        found = {each.id: (each.first_name, each.last_name, each.email) for each in opened.students}
        assert found == {
            "ada": ("Ada King", "Lovelace", "ada@example.org"),
            "bob": ("August", "Möbius", None),
            "eve": (None, None, None),
            "mae": (None, None, None),  # nobody said a name
        }
        with pytest.raises(api.MissingEntry):
            opened.find_submission(NAME, "eve")


def test_a_source_is_entered_as_what_is_released_of_it(tmp_path: Path) -> None:
    one, other = tmp_path / "source.db", tmp_path / "release.db"
    write(one, SAMPLE, [], {})
    write(other, SAMPLE.parents[2] / "exercises" / NAME / f"{NAME}.ipynb", [], {})
    with book(one) as a, book(other) as b:
        cells = [
            {(c.name, c.source, c.checksum, c.locked) for c in opened.find_notebook(NAME, NAME).source_cells}
            for opened in (a, b)
        ]
    assert {name for name, *_, locked in cells[0] if not locked} == {
        *(task.cell for task in EX03.tasks),
        *(question.cell for question in EX03.questions),
    }
    assert cells[0] == cells[1] and not [source for _, source, *_ in cells[0] if "SOLUTION" in source]


@pytest.mark.parametrize("start", ["new", "of nbgrader"])
def test_writing_twice_changes_nothing(start: str, of_nbgrader: Path, tmp_path: Path) -> None:
    path = tmp_path / "a class #1 ü?.db"
    if start != "new":
        path.write_bytes(of_nbgrader.read_bytes())
    write(path, SAMPLE, CLASS, NAMES)
    before = everything(path)
    write(path, SAMPLE, CLASS, NAMES)
    assert everything(path) == before and grade(path, "ada", APPEND) == (5, None, False)


def test_what_a_gradebook_of_nbgrader_says_of_students_and_other_assignments_stays(
    of_nbgrader: Path, tmp_path: Path
) -> None:
    path = tmp_path / "gradebook.db"
    path.write_bytes(of_nbgrader.read_bytes())
    write(path, SAMPLE, CLASS, NAMES, {"ada": "ada@example.org", "bob": "bob@example.org"})
    with book(path) as opened:
        ada, bob = opened.find_student("ada"), opened.find_student("bob")
        assert (ada.first_name, ada.last_name, ada.email) == ("Ada", "of Lovelace", "ada@old.example.org")
        assert (bob.last_name, bob.email) == ("Möbius", "bob@example.org")
        assert {each.name: each.course_id for each in opened.assignments} == {"warm_up": "kv", NAME: "kv"}


# --- what a person has given ------------------------------------------------------------------------------------------


def test_marks_by_hand_stay_with_their_comments_and_are_not_asked_for_again(written: Path) -> None:
    by_hand(written, "ada", COST, 2.5)
    by_hand(written, "bob", APPEND, 3.0)
    before = everything(written)
    write(written, SAMPLE, CLASS, NAMES)
    assert everything(written) == before


def test_a_mark_by_hand_is_kept_and_looked_at_again_if_the_automatic_one_is_another_now(written: Path) -> None:
    by_hand(written, "bob", APPEND, 3.0)
    write(written, SAMPLE, [marks("bob", 5, 3)], NAMES)
    assert grade(written, "bob", APPEND) == (5, 3.0, True)
    assert grade(written, "bob", "ex03_positions_check") == (3, None, False)
    assert grade(written, "ada", APPEND) == (5, None, False), "of whom nothing was handed over, nothing changes"


def test_a_mark_for_an_answer_is_looked_at_again_if_something_else_was_handed_in(written: Path) -> None:
    by_hand(written, "ada", COST, 2.5)
    write(written, SAMPLE, [marks("ada", 5, 3, 4, 6, text="Another answer.")], NAMES, changed=["ada"])
    assert grade(written, "ada", COST) == (None, 2.5, True)
    with book(written) as opened:
        assert opened.find_comment(COST, NAME, NAME, "ada").manual_comment == "Which part?"
        assert opened.find_grade(COST, NAME, NAME, "ada").extra_credit == 0.5


# --- another assignment of the same name ------------------------------------------------------------------------------


@pytest.fixture
def other_assignment(tmp_path: Path) -> Path:
    """The assignment as it might have been before: other points, and a cell to read that is no longer there."""
    notebook = nbformat.read(SAMPLE.parents[2] / "exercises" / NAME / f"{NAME}.ipynb", as_version=4)
    extra = nbformat.from_dict(cell(notebook, "ex03_end"))
    extra.id = extra.metadata.nbgrader.grade_id = "ex03_thanks"
    notebook.cells.append(extra)
    path = tmp_path / "before" / f"{NAME}.ipynb"
    path.parent.mkdir()
    nbformat.write(notebook, path)
    return path


def test_an_assignment_without_marks_is_replaced_by_the_one_of_today(other_assignment: Path, tmp_path: Path) -> None:
    path = tmp_path / "gradebook.db"
    write(path, other_assignment, [], {})
    write(path, SAMPLE, CLASS, {})
    with book(path) as opened:
        names = [each.name for each in opened.find_notebook(NAME, NAME).source_cells]
    assert "ex03_thanks" not in names and "ex03_end" in names and grade(path, "ada", APPEND)[0] == 5


def test_marks_for_other_cells_are_not_mixed_with_these(other_assignment: Path, tmp_path: Path) -> None:
    path = tmp_path / "gradebook.db"
    write(path, other_assignment, CLASS, {})
    before = everything(path)
    with pytest.raises(NoGradebook, match=rf"{path} holds marks for another {NAME}, with other cells \(ex03_thanks\)"):
        write(path, SAMPLE, CLASS, NAMES)
    assert everything(path) == before


def test_points_are_those_of_the_assignment(written: Path) -> None:
    with book(written) as opened:
        opened.find_grade_cell(APPEND, NAME, NAME).max_score = 50
        opened.db.commit()
    write(written, SAMPLE, CLASS, NAMES)
    with book(written) as opened:
        assert opened.find_assignment(NAME).max_score == 24


# --- what cannot be done ----------------------------------------------------------------------------------------------


def sqlite(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as db:
        for statement in statements:
            db.execute(statement)
        db.commit()


def of_a_hub(path: Path) -> None:
    sqlite(path, "CREATE TABLE alembic_version (version_num)", "CREATE TABLE users (id)")


def older(path: Path) -> None:
    write(path, SAMPLE, CLASS, {})
    sqlite(path, "UPDATE alembic_version SET version_num = '167914646830'")


def without_version(path: Path) -> None:
    write(path, SAMPLE, CLASS, {})
    sqlite(path, "DELETE FROM alembic_version")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (
            lambda path: path.write_text("student,points\n" * 99),
            "is no gradebook, or a damaged one (file is not a data",
        ),
        (lambda path: path.write_bytes(b""), "is no gradebook: nbgrader did not make this file. Name another one"),
        (of_a_hub, "is no gradebook: nbgrader did not make this file"),
        (lambda path: path.mkdir(), "is a folder. Name a file in it"),
        (older, "was made by another version of nbgrader (layout 167914646830, here it is "),
        (older, 'run: nbgrader db upgrade --db "sqlite:///'),
        (without_version, "was made by another version of nbgrader (layout None, here"),
    ],
)
def test_a_file_that_is_no_gradebook_of_this_nbgrader_is_refused_and_left_alone(
    made: Any, said: str, tmp_path: Path
) -> None:
    path = tmp_path / "marks.db"
    made(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(NoGradebook) as refused:
        write(path, SAMPLE, CLASS, NAMES)
    assert said in str(refused.value) and str(refused.value).startswith(str(path))
    assert path.is_dir() if before is None else path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        NoGradebook, match=r"nowhere/marks.db cannot be written: No such file or directory. Name another"
    ):
        write(tmp_path / "nowhere" / "marks.db", SAMPLE, CLASS, NAMES)


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])  # somebody else writes, or has just finished
def test_a_gradebook_that_another_program_writes_is_left_to_it(
    lock: str, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gradebook, "PATIENCE_S", 0.05)
    before = everything(written)
    with closing(sqlite3.connect(written, isolation_level=None)) as other:
        other.execute(lock)
        with pytest.raises(NoGradebook, match="gradebook.db is being written by another program. Wait until it has"):
            write(written, SAMPLE, [marks("ada", 1)], NAMES)
        other.execute("ROLLBACK")
    assert everything(written) == before
    write(written, SAMPLE, [marks("ada", 1)], NAMES)
    assert grade(written, "ada", APPEND) == (1, None, False)


@pytest.mark.parametrize("there", [True, False])
def test_ctrl_c_leaves_all_marks_or_none(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gradebook.db"
    if there:
        write(path, SAMPLE, CLASS, NAMES)
    before, given = everything(path) if there else [], []

    def interrupted(*of: Any) -> None:
        given.append(of)
        if len(given) == 8:
            raise KeyboardInterrupt

    monkeypatch.setattr(gradebook, "give", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, SAMPLE, [marks("carl", 5), marks("ada", 1)], NAMES)
    assert list(tmp_path.iterdir()) == [path] * there
    assert not there or everything(path) == before


def test_without_nbgrader_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbgrader", None)
    with pytest.raises(NoGradebook, match="needs nbgrader, which cannot be imported .*: pip install nbgrader"):
        write(tmp_path / "marks.db", SAMPLE, CLASS, NAMES)
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_is_no_text_is_refused_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(NoGradebook, match=r"cannot hold the name 'ad\\udce4'. Rename what was handed in under it."):
        write(tmp_path / "marks.db", SAMPLE, [*CLASS, marks("ad\udce4", 5)], NAMES)
    assert list(tmp_path.iterdir()) == []


def test_marks_of_another_assignment_and_two_of_one_student_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    for wrong in ([replace(CLASS[0], assignment="ex04_cache_sizing")], [CLASS[0], CLASS[0]]):
        with pytest.raises(ValueError, match="these are marks for ex04|two marks for one student"):
            write(tmp_path / "marks.db", SAMPLE, wrong, {})
