"""What commands write, and where a learner's copies may lie."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from course_lib.commands.output import CommandError, deliver, write_whole
from course_lib.commands.places import FOLDERS, work_folder


def test_json_on_standard_output_survives_a_pipe_of_any_encoding(
    capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    data: dict[str, object] = {"text": "naïve 日本 \N{GRINNING FACE} \ufffd"}
    deliver(data, Text("a table"), "-")
    printed = capsysbinary.readouterr().out
    assert printed.isascii() and json.loads(printed) == data
    deliver(data, Text("a table"), str(tmp_path / "found.json"))
    assert json.loads((tmp_path / "found.json").read_text(encoding="utf-8")) == data


def test_copies_cannot_lie_where_the_originals_do(tmp_path: Path) -> None:
    for folder in (tmp_path, *(tmp_path / name for name in FOLDERS), tmp_path / FOLDERS[0] / "mine"):
        with pytest.raises(CommandError, match="your copies cannot lie in .*: the originals do"):
            work_folder(tmp_path, folder)
    assert work_folder(tmp_path) == tmp_path / "work"
    assert work_folder(tmp_path, tmp_path / "mine") == tmp_path / "mine"


@pytest.mark.skipif(sys.platform == "win32", reason="this system has no limit to the size of files")
def test_a_disk_that_is_full_is_named_by_the_file_that_did_not_fit(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            write_whole(tmp_path / "marks.csv", b"x" * 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.filename == str(tmp_path / "marks.csv") and not list(tmp_path.iterdir())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_the_json_is_there_even_if_nobody_could_read_the_table(tmp_path: Path) -> None:
    program = (
        "import sys; from rich.text import Text; from course_lib.commands.output import deliver\n"
        "deliver({'a': 1}, Text('a table'), sys.argv[1])"
    )
    target = tmp_path / "out.json"
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-c", program, str(target)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.DEVNULL, timeout=120)
    assert done.returncode != 0 and json.loads(target.read_text()) == {"a": 1}
