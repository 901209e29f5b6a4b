"""`course release`: what it makes of a source, with the bytes of nbgrader. (For refusals see test_release_refused.)"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4
from sample_assignment import NAME, ROOT, SAMPLE, SOURCES, cell, course, release_of, sample, source_of

from course_lib.commands.build import serialised
from course_lib.commands.output import CommandError
from course_lib.commands.release import find_assignments, release_assignments, release_one
from course_lib.grading.release import normal_source, released

__all__ = ["course"]  # a fixture

every_assignment = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)


def made_of(notebook: NotebookNode) -> bytes:
    return serialised(released(notebook, NAME)[1])


# --- the same bytes as nbgrader ---------------------------------------------------------------------------------------


def by_nbgrader(path: Path) -> bytes:
    """What nbgrader's own preprocessors make of a source, in the order in which it runs them."""
    preprocessors = pytest.importorskip("nbgrader.preprocessors")
    notebook, resources = nbformat.read(path, as_version=4), {}  # type: ignore[var-annotated]
    for name in ("InstantiateTests", "LockCells", "ClearSolutions", "ClearOutput", "CheckCellMetadata",
                 "ComputeChecksums", "ClearHiddenTests", "ClearMarkScheme", "ComputeChecksums", "CheckCellMetadata",
                 ):  # fmt: skip
        notebook, resources = getattr(preprocessors, name)().preprocess(notebook, resources)
    return (nbformat.writes(notebook).rstrip("\n") + "\n").encode()


@every_assignment
def test_a_release_has_the_bytes_that_nbgraders_preprocessors_give(source: Path) -> None:
    assert (ROOT / "exercises" / source.stem / source.name).read_bytes() == by_nbgrader(source)


TRICKY = '''
class Pool:
    """Two solutions, deeper and deeper, and what stands between them."""

    def take(self):
        ### BEGIN SOLUTION
        for _ in range(3):

            pass
        ### END SOLUTION

    def give(self):
        if True:
            # BEGIN SOLUTION
            return "END of the line: ü, ✓, \\n"
            # END SOLUTION  (whatever stands here goes)
        return None


def append(cache, layer, k, v):
    return 1
    ### BEGIN SOLUTION
    ### END SOLUTION
'''.strip()


def test_regions_of_any_kind_come_out_as_nbgrader_makes_them(tmp_path: Path) -> None:
    notebook = sample()
    cell(notebook, "ex03_append").source = TRICKY
    cell(notebook, "ex03_append").metadata.tags = ["keep"]
    path = tmp_path / f"{NAME}.ipynb"
    path.write_bytes(serialised(normal_source(notebook)))
    made = made_of(nbformat.read(path, as_version=4))
    assert made == by_nbgrader(path)
    assert made.count(b"raise NotImplementedError()") == 3 + 3 + 1 and "✓".encode() not in made


# --- one source, always the same bytes --------------------------------------------------------------------------------


def test_what_an_editor_leaves_behind_changes_nothing() -> None:
    edited = sample()
    edited.metadata = NotebookNode(
        kernelspec={"display_name": "mine", "language": "python", "name": "python3"}, celltoolbar="x", widgets={}
    )
    for number, each in enumerate(edited.cells):
        each.id = f"random-{number}"
        each.metadata |= {"deletable": True, "editable": True, "collapsed": True, "execution": {"iopub": "now"}}
        each.metadata.nbgrader |= {"checksum": "0" * 32, "cell_type": each.cell_type}
        each.source += "\n\n" if number % 2 else ""
        if each.cell_type == "code":
            each.outputs, each.execution_count = [v4.new_output("stream", text="hello")], number
        if "points" in each.metadata.nbgrader:
            each.metadata.nbgrader.points = float(each.metadata.nbgrader.points)
    assert made_of(edited) == made_of(sample())
    assert serialised(normal_source(edited)) == SAMPLE.read_bytes()


def test_the_source_is_not_changed_by_releasing_it() -> None:
    notebook = sample()
    before = serialised(notebook)
    released(notebook, NAME)
    assert serialised(notebook) == before


@every_assignment
def test_a_source_in_normal_form_is_its_own(source: Path) -> None:
    assert serialised(normal_source(nbformat.read(source, as_version=4))) == source.read_bytes()


# --- the command ------------------------------------------------------------------------------------------------------


def release(course: Path, *words: str, check: bool = False) -> int:
    return release_assignments(course, list(words), check, None)


def test_it_is_written_once_and_then_unchanged(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release(course) == 0 and "written" in capsys.readouterr().out
    assert release_of(course).read_bytes() == made_of(sample())
    stamp = release_of(course).stat().st_mtime_ns
    assert release(course) == 0 and "unchanged" in capsys.readouterr().out
    assert release_of(course).stat().st_mtime_ns == stamp
    assert release(course, check=True) == 0


@pytest.mark.parametrize("which", ["release", "source", "gone"])
def test_check_names_what_is_out_of_step_and_changes_nothing(
    which: str, course: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(course)
    release(course)
    capsys.readouterr()
    if which == "gone":
        release_of(course).unlink()
    else:
        path = source_of(course) if which == "source" else release_of(course)
        notebook = nbformat.read(path, as_version=4)
        cell(notebook, "ex03_end").source += " And wait."
        nbformat.write(notebook, path)
    files = {path: path.read_bytes() for path in course.rglob("*.ipynb")}
    assert release(course, check=True) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert f"out of step: exercises/{NAME}/{NAME}.ipynb: run course release {NAME}" in shown
    assert {path: path.read_bytes() for path in course.rglob("*.ipynb")} == files
    assert release(course) == 0 and release(course, check=True) == 0


def test_a_source_that_an_editor_saved_is_brought_into_normal_form(course: Path) -> None:
    release(course)
    notebook = sample()
    notebook.cells[1].outputs = [v4.new_output("stream", text="hello")]
    nbformat.write(notebook, source_of(course))
    assert release(course, check=True) == 1
    assert release(course) == 0
    assert source_of(course).read_bytes() == SAMPLE.read_bytes()


def test_other_files_go_with_it_and_leftovers_are_named(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = course / "solutions" / NAME / "data" / "times.csv"
    data.parent.mkdir()
    data.write_bytes(b"1,2\r\n")
    (course / "solutions" / NAME / ".ipynb_checkpoints").mkdir()
    (course / "solutions" / NAME / ".ipynb_checkpoints" / "x.ipynb").write_text("{}")
    assert release(course) == 0
    there = {path.relative_to(course / "exercises").as_posix() for path in (course / "exercises").rglob("*.*")}
    assert there == {f"{NAME}/{NAME}.ipynb", f"{NAME}/data/times.csv"}
    assert (course / "exercises" / NAME / "data" / "times.csv").read_bytes() == b"1,2\r\n"
    data.unlink()
    for check in (True, False):
        capsys.readouterr()
        assert release(course, check=check) == 1
        assert "no source has made this; delete it" in " ".join(capsys.readouterr().out.split())


def test_an_exercise_without_a_source_is_named_and_kept(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (course / "exercises" / "ex99_old").mkdir(parents=True)
    assert release(course, NAME) == 0
    assert release(course) == 1
    assert "there is no solutions/ex99_old that makes it; delete it" in " ".join(capsys.readouterr().out.split())
    assert (course / "exercises" / "ex99_old").is_dir()


def test_a_broken_source_hides_no_other(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (course / "solutions" / "ex01_broken").mkdir()
    assert release(course) == 1
    shown = capsys.readouterr().out
    assert "ex01_broken" in shown and "written" in shown and release_of(course).is_file()


def test_a_second_notebook_is_refused(course: Path) -> None:
    shutil.copy(source_of(course), source_of(course).with_name("more.ipynb"))
    row = release_one(course, NAME, check=False)
    assert "an assignment is one notebook, named as its folder; there is also more.ipynb" in str(row["error"])


def test_assignments_are_found_by_number_name_and_folder(course: Path) -> None:
    (course / "solutions" / "ex10_capstone").mkdir()
    (course / "solutions" / "ex11_other").mkdir()
    for word in ("ex03", "03", NAME, f"solutions/{NAME}", f"solutions/{NAME}/{NAME}.ipynb", "ex03_kv"):
        assert find_assignments(course, [word]) == [NAME]
    assert find_assignments(course, ["10", "ex03", "ex10"]) == ["ex10_capstone", NAME]
    assert len(find_assignments(course, [])) == 3
    for word, said in (
        ("ex1", "ex1 may be any of several"),
        ("ex04_kv_cache", "there is no assignment ex04"),
        ("", "there is no assignment"),
    ):
        with pytest.raises(CommandError, match=said) as refused:
            find_assignments(course, [word])
        assert refused.value.status == 2 and "there is: " in str(refused.value)


def test_without_assignments_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="there are no assignments in "):
        release(tmp_path)


def test_the_result_as_json(course: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release_assignments(course, [], False, "-") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == 0 and found["assignments"] == [
        {"notebook": NAME, "result": "written", "cell": None, "tasks": 4, "questions": 2, "points": 24.0,
         "minutes": 75, "error": ""}
    ]  # fmt: skip


def test_releasing_needs_no_nbgrader() -> None:
    program = (
        "import sys; sys.modules['nbgrader'] = None\n"
        "import course_lib.commands.release, course_lib.grading.release\n"
        "from pathlib import Path\n"
        f"print(course_lib.commands.release.release_one(Path({str(ROOT)!r}), {NAME!r}, True)['result'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr
