"""`course progress` as a person meets it: the map, export, import, reset, and what it says when something is wrong."""

import errno
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

from course_lib.checks import names
from course_lib.commands.kernels import execute
from course_lib.commands.output import TEMPORARY
from course_lib.progress import Store, data_folder, one_file, store
from course_lib.progress.course import QUESTIONS
from course_lib.progress.one_file import connect
from course_lib.progress.transfer import LARGEST, export_text
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
    assert [line.split()[0] for line in lines[2:15]] == list(QUESTIONS)
    assert lines[-1].rstrip() == "Next: 00_start_here: begin"
    assert not mine.folder.exists(), "looking makes nothing"


def test_map_counts_what_was_done(mine: Store) -> None:
    mine.record("prediction", "02.passes", {"value": 2, "unit": ""})
    mine.record("notebook", "00", {})
    mine.record("check", "ex03.attend", {"passed": True, "cases": {}})
    found = as_json("progress")
    assert found["folder"] == str(mine.folder)
    assert set(found) == {"folder", "next", "notebooks"}
    by_name = {one["notebook"]: one for one in found["notebooks"]}
    assert by_name["02_prefill_and_decode"]["predictions"] == 1
    checks = [name for name in names() if name.startswith("ex03.")]
    assert (by_name["03_the_kv_cache"]["exercises"], by_name["03_the_kv_cache"]["exercises_passed"]) == (len(checks), 1)
    assert re.search(rf"^03_the_kv_cache .* 1 of {len(checks)} - *$", call("progress").stdout, re.MULTILINE)
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
    assert result.stdout == (
        "2 entries read, 0 of them new\n2 of them are older than a reset and stay hidden\n"
        "To see them again: course progress reset NOTEBOOK --undo\n"
    )


def test_import_with_a_reset_that_would_hide_entries_of_yours_asks_for_an_option(
    mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.record("answer", "03.x", {"right": True})
    other = Store(tmp_path / "other")
    other.reset("03")
    Path("theirs.json").write_text(export_text(other.history()))
    assert one_line("import", "theirs.json", status=1) == (
        "theirs.json was not imported: a reset in it would hide 1 entry of yours "
        "(to import it all the same: --with-resets)"
    )
    assert len(mine.history()) == 1
    result = call("progress", "import", "theirs.json", "--with-resets")
    assert result.exit_code == 0 and "1 entry of yours is hidden now by a reset in it\nTo see them" in result.stdout
    assert mine.events() == [] and "1 entry is visible again" in undone("03")


def test_export_to_a_place_that_cannot_be_written_names_the_file_that_was_asked_for(
    mine: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.record("answer", "03.x", {"right": True})
    opened = Path.open

    def refused(path: Path, mode: str = "r", *rest: object, **more: object) -> object:
        if mode == "xb":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode, *rest, **more)

    monkeypatch.setattr(Path, "open", refused)
    said = one_line("export", "x.json", status=1)
    assert "x.json" in said and "Permission denied" in said and TEMPORARY not in said


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
    assert "it has more than 16,000,000 bytes, the most that an export" in one_line("import", "large.json", status=1)
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
    assert "They stay in data, hidden until you undo it: course progress reset 03 --undo" in result.stdout
    assert "An export keeps them in your hands: course progress export FILE" in result.stdout
    assert result.stdout.endswith("03_the_kv_cache is reset.\nTo undo this: course progress reset 03 --undo\n")
    assert [one.name for one in mine.events()] == ["02.x"]
    result = call("progress", "reset", "03_the_kv_cache")
    assert (result.exit_code, result.stdout) == (0, "Nothing is recorded of 03_the_kv_cache.\n")
    result = call("progress", "reset", "--yes")
    said = "the whole course is reset.\nTo undo this: course progress reset --undo\n"
    assert (result.exit_code, result.stdout) == (0, said)
    assert mine.events() == []


def test_reset_of_what_is_no_notebook_is_a_wrong_call(mine: Store) -> None:
    for name in ("99", "3", "nosuch"):
        assert one_line("reset", name, status=2) == (
            f"there is no notebook {name}: write 00 to 12 (or name none to reset the whole course)"
        )


def undone(*words: str) -> str:
    """What a reset that is taken back says; it asks nothing."""
    result = call("progress", "reset", *words, "--undo", text=b"")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return result.stdout


def test_reset_is_undone_one_at_a_time(mine: Store) -> None:
    mine.record("answer", "03.x", {"right": True})
    call("progress", "reset", "03", "--yes")
    mine.record("answer", "03.x", {"right": False})
    mine.record("hint", "ex03.y", {})
    mine.record("hint", "ex02.y", {})
    call("progress", "reset", "03", "--yes")
    assert undone("03") == "The latest reset of 03_the_kv_cache is undone: 2 entries are visible again.\n"
    assert [one.name for one in mine.events()] == ["03.x", "ex03.y", "ex02.y"]
    assert undone("03_the") == "The latest reset of 03_the_kv_cache is undone: 1 entry is visible again.\n"
    assert [one.data.get("right") for one in mine.events("answer")] == [True, False]
    assert one_line("reset", "03", "--undo", status=1) == (
        "there is no reset of 03_the_kv_cache to undo (nothing is hidden)"
    )
    assert len(mine.events()) == 4 and len(mine.history()) == 8, "nothing was deleted, nothing more was added"


def test_reset_of_the_whole_course_and_that_of_a_notebook_are_undone_each_by_itself(mine: Store) -> None:
    mine.record("hint", "03.x", {})
    call("progress", "reset", "03", "--yes")
    mine.record("hint", "02.x", {})
    call("progress", "reset", "--yes")
    assert one_line("reset", "02", "--undo", status=1) == (
        "there is no reset of 02_prefill_and_decode to undo "
        "(course progress reset --undo or course progress reset 03 --undo)"
    )
    assert undone("03") == (
        "The latest reset of 03_the_kv_cache is undone: 0 entries are visible again.\n"
        "Another reset hides them, too. To undo it: course progress reset --undo\n"
    )
    assert undone() == "The latest reset of the whole course is undone: 2 entries are visible again.\n"


def test_export_from_before_a_reset_or_after_it_can_be_shown_again(
    mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.record("answer", "03.x", {"right": True})
    call("progress", "export", "before.json")
    call("progress", "reset", "03", "--yes")
    call("progress", "export", "hidden.json")
    call("progress", "import", "before.json")
    assert mine.events() == []
    assert "1 entry is visible again" in undone("03")
    call("progress", "export", "undone.json")
    for name, seen in (("hidden.json", 0), ("undone.json", 1), ("hidden.json", 1)):
        monkeypatch.setenv("COURSE_DATA", str(tmp_path / "other"))
        result = call("progress", "import", name)
        assert result.exit_code == 0 and ("stay hidden" in result.stdout) == (not seen)
        assert len(store().events()) == seen


def test_undoing_what_is_no_notebook_is_a_wrong_call(mine: Store) -> None:
    assert one_line("reset", "99", "--undo", status=2).startswith("there is no notebook 99: write 00 to 12")
    assert one_line("reset", "--undo", status=1) == "there is no reset of the whole course to undo (nothing is hidden)"
    assert not mine.folder.exists()


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
                "import sqlite3\n"
                f"sqlite3.connect('data/{name}').executescript('PRAGMA user_version = 9; CREATE TABLE mood (x)')",
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
