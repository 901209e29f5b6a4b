"""`course progress` as a person meets it: the map, export, import, reset, and what it says when something is wrong."""

import json
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import nbformat
import pytest
from course_command import COURSE, as_json, call
from nbformat import v4

from course_lib.commands.kernels import execute
from course_lib.progress import Store, data_folder, one_file, store
from course_lib.progress.course import QUESTIONS
from course_lib.progress.one_file import connect
from course_lib.progress.transfer import LARGEST
from course_lib.progress.two_files import LOCK


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return store()


def one_line(*words: str, status: int, text: bytes | None = None) -> str:
    """What a command says that fails: one line on standard error, and nothing else."""
    result = call("progress", *words, text=text)
    assert (result.exit_code, result.stdout) == (status, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ") and line.isprintable()
    return line.removeprefix("error: ")


# --- the map --------------------------------------------------------------------------------------------------------


def test_map_fits_80_columns_and_names_every_notebook_and_what_is_next(mine: Store) -> None:
    result = call("progress")
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines[1:14]] == list(QUESTIONS)
    assert lines[-1].rstrip() == "Next: 00_start_here: begin"
    assert not mine.folder.exists(), "looking makes nothing"


def test_map_counts_what_was_done(mine: Store) -> None:
    mine.record("prediction", "02.passes", {"value": 2, "unit": ""})
    mine.record("notebook", "00", {})
    found = as_json("progress")
    assert found["folder"] == str(mine.folder)
    assert set(found) == {"folder", "next", "notebooks"}
    by_name = {one["notebook"]: one for one in found["notebooks"]}
    assert by_name["02_prefill_and_decode"]["predictions"] == 1
    assert by_name["00_start_here"]["finished_at"] == mine.events("notebook")[0].at
    assert re.search(r"^00_start_here .* \d{4}-\d\d-\d\d *$", call("progress").stdout, re.MULTILINE)
    target = Path("map.json")
    assert call("progress", "--json", str(target)).exit_code == 0
    assert json.loads(target.read_text(encoding="utf-8")) == found


def test_map_is_there_at_once() -> None:
    """It loads none of the libraries that take seconds."""
    program = (
        "import sys\nfrom course_lib.cli import main\nsys.argv = ['course', 'progress']\n"
        "try: main()\nexcept SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'numpy', 'ipywidgets', 'IPython', 'matplotlib', 'nbformat'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize("command", [[], ["export"], ["import"], ["reset"]], ids=["map", "export", "import", "reset"])
def test_each_command_explains_itself_with_an_example_that_can_be_typed(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("course", "python start.py"):
        monkeypatch.setenv("COURSE_PROGRAM", name)
        result = call("progress", *command, "--help")
        text = " ".join(result.stdout.split())
        assert result.exit_code == 0 and f"Example: {' '.join([name, 'progress', *command])}" in text
        assert max(map(len, result.stdout.splitlines())) <= 80


# --- export and import ----------------------------------------------------------------------------------------------


def test_export_and_import_move_everything_and_say_how_much(
    mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for right in (False, True):
        mine.record("answer", "03.x", {"right": right})
    result = call("progress", "export", "handin.json")
    assert (result.exit_code, result.stdout) == (0, "2 entries written to handin.json\n")
    printed = call("progress", "export", "-").stdout
    assert json.loads(printed)["events"] == json.loads(Path("handin.json").read_text(encoding="utf-8"))["events"]
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "other"))
    result = call("progress", "import", "handin.json")
    assert (result.exit_code, result.stdout) == (0, "2 entries read, 2 of them new\n")
    assert store().events() == mine.events()
    assert call("progress", "reset", "--yes").exit_code == 0
    result = call("progress", "import", "-", text=printed.encode())
    assert result.stdout == "2 entries read, 0 of them new\n2 of them are older than a reset and stay hidden\n"


def test_export_replaces_no_file(mine: Store) -> None:
    mine.record("answer", "03.x", {"right": True})
    Path("notes.txt").write_text("mine")
    Path("dangling").symlink_to("nowhere")
    for name in ("notes.txt", "dangling", "."):
        assert one_line("export", name, status=2) == f"{name} is there already (name a new file)"
    assert Path("notes.txt").read_text() == "mine"
    assert (
        one_line("export", "nosuch/x.json", status=2)
        == "there is no folder nosuch (name a file in a folder that exists)"
    )


def test_import_says_why_it_refuses(mine: Store) -> None:
    Path("bad\x1b[2J.json").write_text("Dear diary")
    said = one_line("import", "bad\x1b[2J.json", status=1)
    assert "was not imported: it is not JSON" in said and said.endswith("(make one with: course progress export FILE)")
    assert one_line("import", "nosuch.json", status=2).startswith("nosuch.json cannot be read: No such file")
    assert one_line("import", ".", status=2).startswith(". cannot be read: Is a directory")
    assert "it is not JSON" in one_line("import", "-", status=1, text=b"")
    Path("large.json").write_bytes(b" " * (LARGEST + 1))
    assert "it has 16 MB, an export at most 16" in one_line("import", "large.json", status=1)
    assert mine.history() == []


# --- reset ----------------------------------------------------------------------------------------------------------


def test_reset_asks_and_only_yes_resets(mine: Store) -> None:
    for name in ("02.x", "03.x", "ex03.y"):
        mine.record("hint", name, {})
    for reply, status in ((b"n\n", 0), (b"\n", 0), (b"", 130)):
        result = call("progress", "reset", "03", text=reply)
        assert result.exit_code == status
        assert "This resets 03_the_kv_cache: 2 entries." in result.stdout
        assert ("Nothing was reset." in result.stdout) == (status == 0)
        assert len(mine.history()) == 3
    result = call("progress", "reset", "03", text=b"y\n")
    assert result.exit_code == 0
    assert "They stay in data, but nothing shows them any more." in result.stdout
    assert "An export keeps them in your hands: course progress export FILE" in result.stdout
    assert result.stdout.endswith("03_the_kv_cache is reset.\n")
    assert [one.name for one in mine.events()] == ["02.x"]
    result = call("progress", "reset", "03_the_kv_cache")
    assert (result.exit_code, result.stdout) == (0, "Nothing is recorded of 03_the_kv_cache.\n")
    result = call("progress", "reset", "--yes")
    assert (result.exit_code, result.stdout) == (0, "the whole course is reset.\n")
    assert mine.events() == []


def test_reset_of_what_is_no_notebook_is_a_wrong_call(mine: Store) -> None:
    for name in ("99", "3", "nosuch"):
        assert one_line("reset", name, status=2) == (
            f"there is no notebook {name}: write 00 to 12 (or name none to reset the whole course)"
        )


# --- repairs and faults ---------------------------------------------------------------------------------------------


def test_repair_is_told_beside_the_result(mine: Store) -> None:
    mine.record("notebook", "00", {})
    (mine.folder / "progress.sqlite").write_text("Dear diary")
    command = subprocess.run([COURSE, "progress", "--json", "-"], capture_output=True, text=True)
    assert command.returncode == 0 and json.loads(command.stdout)["notebooks"][0]["finished_at"]
    (line,) = command.stderr.splitlines()
    assert line.startswith("Your progress file was damaged and is kept as progress.damaged-")


def test_progress_that_cannot_be_read_is_a_fault_of_the_work(mine: Store) -> None:
    mine.record("notebook", "00", {})
    for name in ("progress.sqlite", "progress.copy.sqlite"):
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"import sqlite3; sqlite3.connect('data/{name}').execute('PRAGMA user_version = 9')",
            ],
            check=True,
        )
    for words in ([], ["export", "x.json"], ["reset", "03"]):
        assert one_line(*words, status=1).startswith(
            "your progress cannot be read: the file is of a newer course (format 9, this one knows 1)"
        )
    assert not Path("x.json").exists()


def test_folder_that_cannot_be_made_is_said_by_import_and_reset(monkeypatch: pytest.MonkeyPatch, mine: Store) -> None:
    mine.record("answer", "03.x", {"right": True})
    assert call("progress", "export", "x.json").exit_code == 0
    Path("place").write_text("")
    monkeypatch.setenv("COURSE_DATA", "place/data")
    assert one_line("import", "x.json", status=1) == (
        f"nothing was imported: a file is in the place of the folder at {Path('place/data').absolute()} "
        "(allow it, or name another folder in COURSE_DATA and start again)"
    )


def test_doctor_says_where_progress_lies_and_whether_it_can_be_saved(
    mine: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> tuple[str, str, str]:
        checks = json.loads(call("doctor", "--json", "-").stdout)["checks"]
        (check,) = [check for check in checks if check["check"] == "data folder"]
        return check["state"], check["value"], check["remedy"]

    assert found() == ("ok", "data (made when needed), your progress: 0 entries", "")
    assert not mine.folder.exists()
    mine.record("notebook", "00", {})
    assert found() == ("ok", "data, your progress: 1 entry", "")
    (mine.folder / "progress.copy.sqlite").write_text("Dear diary")
    state, value, remedy = found()
    assert state == "warning" and "The copy of your progress file was damaged" in value
    assert remedy == "look at the disk, if this comes more than once"
    monkeypatch.setattr(one_file, "WAIT_S", 0.1)
    with closing(connect(mine.folder / LOCK)) as other:
        other.execute("BEGIN EXCLUSIVE")
        state, value, remedy = found()
    assert (state, remedy) == ("problem", "Close that program, then do it again.")
    assert value == f"your progress cannot be saved: another program holds the file ({mine.folder})"
    assert mine.events("skip") == [], "trying to save saves nothing"


# --- nobody writes but the learner ----------------------------------------------------------------------------------


def test_kernel_of_a_headless_run_writes_into_a_data_folder_of_its_own(mine: Store) -> None:
    mine.record("notebook", "00", {})
    before = mine.history()
    cell = v4.new_code_cell("from course_lib.progress import store\nstore().record('notebook', '01', {}).name")
    done = execute(nbformat.from_dict(v4.new_notebook(cells=[cell])), timeout_s=60)
    assert done.error == "" and "'01'" in str(done.notebook.cells[0].outputs)
    assert mine.history() == before


def test_the_tests_themselves_write_into_a_folder_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # what this file sets
    assert data_folder().name.startswith("course-tests-")
