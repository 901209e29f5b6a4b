"""What commands write, and where a learner's copies may lie."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from rich.text import Text

from course_lib.commands.output import CommandError, check_target, deliver, write_whole
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
    (tmp_path / "work").mkdir()
    for same in (tmp_path / "work" / "..", tmp_path / "work" / ".." / FOLDERS[1]):
        with pytest.raises(CommandError, match="the originals do") as error:
            work_folder(tmp_path, same)
        assert error.value.status == 2, "the call was wrong"


@pytest.mark.skipif(os.name != "posix", reason="links are made otherwise")
def test_a_link_to_the_originals_is_no_place_for_copies(tmp_path: Path) -> None:
    root, link = tmp_path / "course", tmp_path / "link"
    (root / FOLDERS[0]).mkdir(parents=True)
    for target in (root, root / FOLDERS[0]):
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        with pytest.raises(CommandError, match="the originals do"):
            work_folder(root, link)


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


DELIVER = (
    "import sys; from rich.text import Text; from course_lib.commands.output import check_target, deliver\n"
    "check_target(sys.argv[1]); deliver({'a': 1}, Text('a table'), sys.argv[1])"
)


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="this system names no pipe")
def test_json_may_go_into_a_pipe() -> None:
    """A shell hands over `>(jq .)` as /dev/fd/N; neither that nor /dev/stdout is the name of a file in a folder."""
    read, write = os.pipe()
    with os.fdopen(read, "rb") as other:
        for target in ("/dev/stdout", f"/dev/fd/{write}"):
            command = [sys.executable, "-c", DELIVER, target]
            done = subprocess.run(command, capture_output=True, pass_fds=[write], timeout=120)
            assert (done.returncode, done.stderr) == (0, b"")
            if target == "/dev/stdout":
                assert done.stdout.endswith(b"a table\n") and json.loads(done.stdout.removesuffix(b"a table\n"))
        os.close(write)
        assert json.loads(other.read()) == {"a": 1}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_what_was_measured_is_shown_also_where_the_json_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/full")
    done = subprocess.run([sys.executable, "-c", DELIVER, str(tmp_path / "link")], capture_output=True, timeout=120)
    assert done.returncode != 0 and b"No space left on device" in done.stderr
    assert done.stdout == b"a table\n"
    assert (tmp_path / "link").is_symlink()


@pytest.mark.skipif(os.name != "posix", reason="the permissions of files are others")
def test_json_that_could_not_be_written_is_refused_before_the_work() -> None:
    """A file is replaced by a new one beside it: it takes the permission to write the file and its folder."""
    with tempfile.TemporaryDirectory() as name:  # a folder of pytest nobody else may enter
        Path(name).chmod(0o755)
        _try_permissions(Path(name))


def _try_permissions(root: Path) -> None:
    for name, folder_mode, file_mode, written in (
        ("both", 0o777, 0o666, True),
        ("folder", 0o777, 0o444, False),
        ("file", 0o555, 0o666, False),
    ):
        folder = root / name
        folder.mkdir()
        (folder / "old.json").write_text("{}")
        (folder / "link.json").symlink_to("old.json")
        (folder / "old.json").chmod(file_mode)
        folder.chmod(folder_mode)
        for file in ("old.json", "link.json"):
            assert _as_nobody(folder / file) == written, (name, file)
    assert _as_nobody(root / "both" / "new.json") and not _as_nobody(root / "file" / "new.json")
    assert _as_nobody(Path(os.devnull)), "of a device the folder does not matter"


def _as_nobody(path: Path) -> bool:
    """Whether a user who may write only what everybody may is allowed to write JSON there, and can."""
    process = os.fork()
    if process == 0:
        status = 2
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            try:
                check_target(str(path))
            except CommandError:
                status = 1
            else:
                write_whole(path, b"{}")
                status = 0
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert status < 2, f"{path} was promised, and not written"
    return status == 0
