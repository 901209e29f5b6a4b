"""`course grade`: marks for a class from its folder to its files, for one notebook, and what is refused."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from sample_assignment import NAME as EX03
from sample_assignment import ROOT, SAMPLE
from small_assignment import ASSIGNMENT, RIGHT, WRONG, Double, handed_in, needs_sandbox, notebook, use_small_check
from test_grading_group import SmallRoom

from course_lib.commands import grade as command
from course_lib.commands.grade import Asked, grade_submissions
from course_lib.commands.output import CommandError
from course_lib.grading import bubblewrap

SMALL = ASSIGNMENT.name


def with_small_assignment(patch: pytest.MonkeyPatch) -> None:
    """The command knows the small assignment, and no other one."""
    use_small_check(patch)
    patch.setattr(command, "known_assignments", lambda word: ({SMALL: Path(SMALL)}, ""))
    patch.setattr(command, "read_assignment", lambda path: ASSIGNMENT)
    patch.setattr(command, "Room", SmallRoom)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder to work in, and the small assignment."""
    with_small_assignment(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def lay(folder: Path, **cells: Any) -> Path:
    """A class with a notebook for each student."""
    for name, source in cells.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        handed_in(folder / name, notebook(source), f"{SMALL}.ipynb")
    return folder


def refused(**asked: Any) -> str:
    with pytest.raises(CommandError) as error:
        grade_submissions(Asked(**asked))
    return f"{error.value} [{error.value.status}]"


@needs_sandbox
def test_a_class_gets_a_table_a_page_each_and_an_exit_status(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(small / "class", ada=RIGHT, bob=WRONG)
    (small / "class.csv").write_text("student;name;email\nada;Ada [red]L\u00f6ve;a@x.org\ncy;=Cy;", "utf-8-sig")
    (small / "class" / "empty").mkdir()
    asked = Asked([Path("class")], names=Path("class.csv"), json="marks-all.json")
    assert grade_submissions(asked) == 0
    came = capsys.readouterr()
    assert re.search(r"ada +Ada \[red\]L\u00f6ve +4 of 4 +1 to do +- +[\d.]+ +\d+ +graded *\n", came.out)
    assert re.search(r"bob +bob +1 of 4 +1 to do +- +[\d.]+ +\d+ +graded *\n", came.out)
    assert "cy: Nothing was handed in." in came.out and "2 graded, 2 nothing handed in" in came.out
    assert "not in the list of names: bob, empty" in came.err
    assert re.search(r"ada: 4 of 4 points, [\d.]+ s\n", came.err)
    folder = small / "grades" / SMALL
    assert sorted(path.name for path in folder.glob("*/*")) == ["ada.html", "ada.json", "bob.html", "bob.json"]
    assert "Ada [red]L\u00f6ve" in (folder / "feedback" / "ada.html").read_text("utf-8")
    assert "cy,'=Cy,,nothing handed in" in (folder / "marks.csv").read_text("utf-8-sig")
    found = json.loads((small / "marks-all.json").read_bytes())
    assert (found["graded"], found["not_graded"], found["nothing_handed_in"], found["kept"]) == (2, 0, 2, 0)
    assert found["peak_bytes"] == max(each.get("peak_bytes", 0) for each in found["submissions"]) > 0
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "marks.json"}
    assert grade_submissions(asked) == 0
    assert {path: path.read_bytes() for path in files} == files
    assert "(2 kept from before; course grade … --again marks all anew)" in capsys.readouterr().out


@needs_sandbox
def test_one_trouble_is_told_and_hides_nobody(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(small / "class", ada=RIGHT, eve=RIGHT)
    (small / "class/eve" / f"{SMALL}.ipynb").unlink()
    (small / "class/eve" / f"{SMALL}.ipynb").symlink_to(small / "class/ada" / f"{SMALL}.ipynb")
    shutil.copy(small / "class/ada" / f"{SMALL}.ipynb", small / "class/ada/b.ipynb")
    assert grade_submissions(Asked([small / "class"], to=small / "class" / "results")) == 1
    came = capsys.readouterr()
    assert f"eve: eve/{SMALL}.ipynb is a link; links are not followed." in came.out
    assert f"ada: Of 2 notebooks ada/{SMALL}.ipynb was marked" in " ".join(came.out.split())
    assert "1 graded, 1 not graded" in came.out
    assert f"ada/{SMALL}.ipynb was marked" in (small / "class/results" / SMALL / "feedback/ada.html").read_text("utf-8")
    assert grade_submissions(Asked([small / "class"], to=small / "class" / "results")) == 1
    assert "2 nothing" not in capsys.readouterr().out  # the results are no student


@needs_sandbox
def test_what_is_not_a_notebook_is_asked_for_again_and_not_graded_0(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(small / "class", ada=RIGHT)
    for name, content in (("eve", "my answer"), ("fay", "")):
        (small / "class" / name).mkdir()
        handed_in(small / "class" / name, content, f"{SMALL}.ipynb")
    for name in ("ivy.pdf", "notes.txt"):
        (small / "class" / name).write_text("%PDF")
    (small / "class.csv").write_text("student,name\nivy,Ivy I.")
    assert grade_submissions(Asked([Path("class")], names=Path("class.csv"))) == 1
    came = capsys.readouterr()
    shown = " ".join(came.out.split())
    assert f"eve: eve/{SMALL}.ipynb is not a notebook: ask for it again (it cannot be read as JSON)." in shown
    assert f"fay: fay/{SMALL}.ipynb is not a notebook: ask for it again (the file is empty)." in shown
    assert "ivy: ivy.pdf is not a notebook: ask for it again." in shown
    assert "ivy Ivy I. - - - - - not a notebook" in shown and "1 graded, 3 not a notebook" in shown
    assert "ignored: notes.txt (not a notebook)" in came.err and "eve: not a notebook\n" in came.err
    assert (came.out + came.err).count("cannot be read as JSON") == 1
    page = (small / "grades" / SMALL / "feedback" / "eve.html").read_text("utf-8")
    assert "is not a notebook" in page and "of 4" not in page
    data = json.loads((small / "grades" / SMALL / "marks.json").read_bytes())
    assert [each["total"] for each in data["submissions"][1:]] == [None] * 3
    assert data["submissions"][1]["earned"] == 0 and data["not_a_notebook"] == 3
    assert grade_submissions(Asked([small / "class/eve" / f"{SMALL}.ipynb"])) == 1
    assert capsys.readouterr().out.count("is not a notebook") == 1


@needs_sandbox
def test_odd_names_get_pages_tables_and_json(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = ["<script>alert(1)<x", "=1+1", "a\nb", "x\udcff", "\x1b[2J", "[bold]", "Ada", "ada", "y" * 200]
    lay(small / "class", **{name.replace("/", ""): "1" for name in odd})
    assert grade_submissions(Asked([small / "class"])) == 0
    came = capsys.readouterr()
    assert "\x1b" not in came.out + came.err and f"{len(odd)} graded" in came.out
    pages = list((small / "grades" / SMALL / "feedback").iterdir())
    assert len(pages) == len(odd) and not any("<script>alert" in page.read_text("utf-8") for page in pages)
    assert len(json.loads((small / "grades" / SMALL / "marks.json").read_bytes())["submissions"]) == len(odd)


@needs_sandbox
def test_points_by_hand_come_back_and_a_wrong_one_stops_before_anything_is_run(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = Asked([lay(small / "class", ada=RIGHT)])
    grade_submissions(asked)
    path = small / "grades" / SMALL / "marks.csv"
    path.write_text(path.read_text("utf-8-sig").replace("4,4,,,", "4,4,1.5,,"), "utf-8")
    capsys.readouterr()
    assert grade_submissions(asked) == 0
    came = capsys.readouterr()
    assert re.search(r"ada +4 of 4 +1.5 +5.5 of 6 ", came.out) and "kept in marks-by-hand-1.csv" in came.err
    assert "4,4,1.5,5.5," in path.read_text("utf-8-sig")
    page = (small / "grades" / SMALL / "feedback" / "ada.html").read_text("utf-8")
    assert "5.5 of 6 points</strong> (4 of 4 for code, 1.5 of 2 for written answers)." in page
    path.write_text(path.read_text("utf-8-sig").replace("4,4,1.5", "4,4,15"), "utf-8")
    assert "line 2 (ada): '15' for ex99_why_answer should be a number from 0 to 2" in refused(paths=asked.paths)


@needs_sandbox
def test_a_defect_of_ours_makes_the_exit_status_1(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Double, "judge", staticmethod(lambda inputs, outputs: 1 / 0))
    assert grade_submissions(Asked([lay(small / "class", ada=RIGHT)])) == 1


@needs_sandbox
def test_one_notebook_is_marked_and_shown_and_nothing_is_written(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = handed_in(small, notebook("1 / 0", WRONG))
    assert grade_submissions(Asked([path], json="-")) == 0
    found = json.loads(capsys.readouterr().out)["submissions"][0]
    assert (found["earned"], found["points"], found["tasks"][0]["check"]) == (1, 4, "ex99.double")
    assert grade_submissions(Asked([path])) == 0
    came = capsys.readouterr()
    assert re.search(r"Double +1 of 4\nWhy +by hand, of 2\n", came.out) and came.err == ""
    assert "  small: These are not the doubled numbers.\n" in came.out and "raised ZeroDivisionError" in came.out
    assert os.listdir(small) == [path.name]


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine on which bubblewrap is not installed."""
    monkeypatch.setenv("PATH", "/nowhere")
    bubblewrap.why_not.cache_clear()
    yield
    bubblewrap.why_not.cache_clear()


def test_without_a_sandbox_the_work_of_others_is_refused_unless_it_is_trusted(
    no_sandbox: None, small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay(small / "class", ada=RIGHT)
    said = refused(paths=[folder])
    assert "There is no sandbox" in said and "--trust runs what strangers wrote with your rights" in said
    assert said.endswith("[1]") and "\n" not in said and not list(small.rglob("*.html"))
    assert grade_submissions(Asked([folder], trust=True)) == 0
    assert "What was handed in is run with your rights." in capsys.readouterr().err
    assert grade_submissions(Asked([folder / "ada" / f"{SMALL}.ipynb"])) == 0  # one's own
    came = capsys.readouterr()
    assert "What was handed in is run with your rights." in came.err and "4 of 4" in came.out


def test_what_is_wrong_with_a_call_is_said_before_anything_is_run(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = lay(small / "class", ada=RIGHT)
    (small / "empty").mkdir()
    (small / "names.csv").write_text("name\nx")
    (small / "short.key").write_text("abc")
    for asked, said in (
        ({"paths": [small / "nosuch"]}, "nosuch is not there (name a notebook, or a folder)"),
        ({"paths": [small / "names.csv"]}, "names.csv is not a notebook (.ipynb)"),
        ({"paths": [small / "empty"]}, "there is no notebook in empty"),
        ({"paths": [folder], "names": small / "names.csv"}, "names.csv has no column student"),
        ({"paths": [folder], "names": small / "nosuch.csv"}, "nosuch.csv cannot be read: No such file"),
        ({"paths": [folder], "key": small / "nosuch.key"}, "there is no key"),
        ({"paths": [folder], "key": small / "short.key"}, "has 3 bytes; it needs 16 or more"),
        ({"paths": [folder], "to": folder}, "results cannot lie where class/ex99_small was handed in"),
    ):
        message = refused(**asked)
        assert said in message and message.endswith("[2]"), message
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refused(paths=[folder], gradebook=Path("x.db"))
    assert "a gradebook needs nbgrader" in message and "[class]" in message and message.endswith("[2]")
    assert not list(small.rglob("results"))


def test_of_several_assignments_one_has_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for student, name in (("ada", EX03), ("bob", EX03), ("bob", "ex04_cache_sizing"), ("cy", "")):
        source = ROOT / "exercises" / name / f"{name}.ipynb" if name else handed_in(tmp_path, notebook(RIGHT))
        (tmp_path / "class" / student).mkdir(parents=True, exist_ok=True)
        shutil.copy(source, tmp_path / "class" / student)
    said = refused(paths=[Path("class")])
    assert "there are notebooks of several assignments: ex03_kv_cache (2), ex04_cache_sizing (1)" in said
    assert "--assignment ex03_kv_cache" in said
    assert "no notebook says which assignment it is" in refused(paths=[Path("class/cy")])
    capsys.readouterr()
    for assignment in (
        "ex03",
        str(SAMPLE),
    ):  # bob has one of another assignment alone
        (tmp_path / "class" / "bob" / f"{EX03}.ipynb").unlink(missing_ok=True)
        assert grade_submissions(Asked([Path("class/bob")], assignment, trust=True)) == 0
        assert "1 nothing handed in" in capsys.readouterr().out
    assert "there is no assignment ex42" in refused(paths=[Path("class")], assignment="ex42")


STOPPABLE = """
import sys
from pathlib import Path
import pytest
import test_grade_command
from course_lib.commands.grade import Asked, grade_submissions
test_grade_command.with_small_assignment(pytest.MonkeyPatch())
sys.exit(grade_submissions(Asked([Path("class")], jobs=1)))
"""
SLEEPS = "import time\ntime.sleep(25)\n" + RIGHT


def program(folder: Path, **options: Any) -> subprocess.Popen[str]:
    paths = os.pathsep.join((str(ROOT / "tests"), str(ROOT)))
    environment = os.environ | {"PYTHONPATH": paths, "TMPDIR": str(folder / "tmp")}
    return subprocess.Popen(
        [sys.executable, "-c", STOPPABLE],
        cwd=folder,
        env=environment,
        encoding="utf-8",
        stdout=subprocess.PIPE,
        **options,
    )


@needs_sandbox
def test_ctrl_c_stops_what_runs_and_the_next_run_goes_on(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(small / "class", ada=RIGHT, bob=SLEEPS, cy=RIGHT)
    (small / "tmp").mkdir()
    with program(small, stderr=subprocess.PIPE) as run:
        assert run.stderr and "ada: 4 of 4 points" in run.stderr.readline()
        children = psutil.Process(run.pid).children(recursive=True)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode == 130, err
    assert err == "1 of 3 are marked and kept; the same command goes on with the others\n" and out == ""
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)
    assert sorted(path.relative_to(small / "grades").as_posix() for path in (small / "grades").rglob("*.*")) == [
        f"{SMALL}/results/ada.json", "grading.key", "grading.lock"
    ]  # fmt: skip
    assert not list((small / "tmp").iterdir())
    lay(small / "class", bob=WRONG)
    assert grade_submissions(Asked([Path("class")])) == 0
    assert "3 graded (1 kept from before" in capsys.readouterr().out


@needs_sandbox
@pytest.mark.skipif(os.name != "posix", reason="this system has no pseudo-terminals")
def test_on_a_terminal_there_is_a_bar_instead_of_lines(small: Path) -> None:
    lay(small / "class", ada=RIGHT)
    (small / "tmp").mkdir()
    ours, theirs = os.openpty()
    with program(small, stderr=theirs) as run:
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
        assert run.stdout and "1 graded" in run.stdout.read()
    os.close(ours)
    assert b"1/1" in shown and b"submissions" in shown and b"ada: 4 of 4" not in shown


@needs_sandbox
def test_ex03_from_folders_of_nbgrader_into_its_gradebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for student, source in (("ada", SAMPLE), ("bob", ROOT / "exercises" / EX03 / f"{EX03}.ipynb")):
        (tmp_path / "submitted" / student / EX03).mkdir(parents=True)
        shutil.copy(source, tmp_path / "submitted" / student / EX03)
    asked = Asked([Path("submitted")], gradebook=Path("gradebook.db"), to=Path(tempfile.mkdtemp(dir=tmp_path)))
    assert grade_submissions(asked) == 0
    assert re.search(r"ada +18 of 18 +2 to do .*\nbob +0 of 18 +0 ", capsys.readouterr().out)
    with sqlite3.connect("gradebook.db") as book:
        scores = book.execute(
            "SELECT a.student_id, SUM(g.auto_score) FROM grade g JOIN submitted_notebook n ON g.notebook_id = n.id "
            "JOIN submitted_assignment a ON n.assignment_id = a.id GROUP BY 1 ORDER BY 1"
        ).fetchall()
    assert scores == [("ada", 18.0), ("bob", 0.0)]
    typed = asked.to / EX03 / "marks.csv"  # type: ignore[operator]
    text = typed.read_text("utf-8-sig")
    assert text.count("18,,,,") == 1, text
    typed.write_text(text.replace("18,,,,", "18,3,2.5,,"), "utf-8")
    assert grade_submissions(asked) == 0
    with sqlite3.connect("gradebook.db") as book:
        by_hand = "SELECT manual_score FROM grade WHERE manual_score IS NOT NULL ORDER BY 1"
        assert book.execute(by_hand).fetchall() == [(2.5,), (3.0,)]
