"""`course grade` and the folder it writes to: what is in its way, a full disk, and two runs at once."""

import os
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest
from small_assignment import RIGHT, WRONG, needs_sandbox
from test_grade_command import SLEEPS, SMALL, lay, program, refused, small

from course_lib.commands.grade import Asked, grade_submissions

__all__ = ["small"]  # a fixture


def test_what_is_in_the_way_of_results_is_found_before_anything_is_run(small: Path) -> None:
    asked = {"paths": [lay(small / "class", ada=RIGHT)], "trust": True}
    (small / "file").write_text("")
    (small / "folder").mkdir()
    for file, folder, said in (
        ("feedback", "", f"nothing can be written into grades/{SMALL}/feedback: File exists"),
        ("results", "", f"nothing can be written into grades/{SMALL}/results: File exists"),
        ("", "marks.json", f"grades/{SMALL}/marks.json is a folder"),
        ("", "feedback/ada.html", f"grades/{SMALL}/feedback/ada.html is a folder"),
        ("", "results/ada.json", f"grades/{SMALL}/results/ada.json is a folder"),
    ):
        shutil.rmtree(small / "grades", ignore_errors=True)
        (small / "grades" / SMALL / folder).mkdir(parents=True)
        if file:
            (small / "grades" / SMALL / file).write_text("")
        message = refused(**asked)
        assert said in message and message.endswith("[2]"), message
        assert not [path for path in (small / "grades").rglob("*.*") if path.is_file() and "grading" not in path.name]
    for to, said in ((small / "file", "file: File exists"), (small / "file" / "x", "file/x: Not a directory")):
        message = refused(to=to, **asked)
        assert said in message and message.endswith("[2]"), message
    for book in (small / "folder", small / "nowhere" / "x.db"):
        assert "cannot be written (name a file for the gradebook) [2]" in refused(gradebook=book, **asked)


@pytest.mark.skipif(os.name != "posix", reason="the permissions of files are others")
def test_a_folder_that_may_not_be_written_to_is_refused(small: Path) -> None:
    asked = {"paths": [lay(small / "class", ada=RIGHT)], "trust": True}
    for folder in (small / "grades" / SMALL / "feedback", small / "grades"):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o555)
    on_the_way = [each for each in small.parents if stat.S_IMODE(each.stat().st_mode) == 0o700]
    for each in (small, *on_the_way):
        each.chmod(0o755)
    (small / "grades" / SMALL).chmod(0o777)
    root = os.geteuid() == 0
    try:
        if root:
            os.seteuid(65534)
        assert "grades/grading.lock: Permission denied" in refused(**asked)
        if root:
            os.seteuid(0)
        (small / "grades").chmod(0o777)
        if root:
            os.seteuid(65534)
        assert f"nothing can be written into grades/{SMALL}/feedback: Permission denied" in refused(**asked)
    finally:
        if root:
            os.seteuid(0)
        for each in on_the_way:
            each.chmod(0o700)


@needs_sandbox
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no disk that is always full")
def test_a_full_disk_is_named_and_what_is_marked_is_kept(small: Path) -> None:
    asked = {"paths": [lay(small / "class", ada=RIGHT, bob=WRONG)], "jobs": 1, "again": True}
    folder = small / "grades" / SMALL
    (folder / "results").mkdir(parents=True)
    (folder / "results" / "bob.json").symlink_to("/dev/full")
    said = "1 of 2 are marked and kept; the same command goes on with the others"
    assert refused(**asked) == f"grades/{SMALL}/results/bob.json: No space left on device ({said}) [1]"
    assert (folder / "results" / "ada.json").is_file()
    (folder / "results" / "bob.json").unlink()
    (folder / "marks.json").symlink_to("/dev/full")
    said = "all marks are kept; the same command writes what is missing"
    assert refused(**asked) == f"grades/{SMALL}/marks.json: No space left on device ({said}) [1]"
    (folder / "marks.json").unlink()
    assert grade_submissions(Asked(asked["paths"])) == 0


@needs_sandbox
def test_of_two_runs_in_one_folder_the_second_says_who_is_at_work(small: Path) -> None:
    lay(small / "class", ada=RIGHT, bob=SLEEPS)
    (small / "tmp").mkdir()
    with program(small, stderr=subprocess.PIPE) as run:
        assert run.stderr and "ada: 4 of 4 points" in run.stderr.readline()
        said = refused(paths=[Path("class")])
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=60)
    wanted = rf"another run is grading in grades \(process {run.pid}, since \d\d:\d\d\) \(wait for it, or name another"
    assert re.match(wanted, said) and said.endswith("[1]")
    lay(small / "class", bob=WRONG)
    assert grade_submissions(Asked([Path("class")])) == 0  # whose end ended the lock
