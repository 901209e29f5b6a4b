"""start.py as its user meets it: real runs of a copy beside a tiny course, with real pip and no network.

What cannot be provoked here (a proxy that refuses, Windows) is checked on the texts that pip prints then.
"""

import ast
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tiny_course import Course, make_course, make_wheel
from typer.main import get_command

from course_lib.cli import app

ROOT = Path(__file__).resolve().parents[1]
ONE_LINE = re.compile(r"start\.py: .+\n")


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


start = load(ROOT / "start.py")


@pytest.fixture
def fresh(tmp_path: Path) -> Course:
    return make_course(tmp_path)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> tuple[Course, subprocess.CompletedProcess[str]]:
    """A course that was started once where a half-made .venv lay, and what that first run said."""
    course = make_course(tmp_path_factory.mktemp("ready"))
    (course.folder / ".venv" / "bin").mkdir(parents=True)
    (course.folder / ".venv" / "leftover").touch()
    return course, course.run("doctor", "two words")


# --- before anything is installed -------------------------------------------------------------------------------------


def test_source_parses_under_python_3_6() -> None:
    ast.parse((ROOT / "start.py").read_text(encoding="utf-8"), feature_version=(3, 6))
    with pytest.raises(SyntaxError):  # the check itself can fail
        ast.parse("match x:\n    case 1: pass", feature_version=(3, 6))


def old_pythons() -> list[str]:
    found = [
        path for minor in range(6, 11) if (path := shutil.which(f"python3.{minor}")) and ".pyenv/shims" not in path
    ]
    found += [str(path) for path in Path.home().glob(".pyenv/versions/3.*/bin/python")]
    return sorted(path for path in found if not re.search(r"3\.1[1-9]", path))


@pytest.mark.parametrize("python", old_pythons() or [pytest.param("", marks=pytest.mark.skip("no Python below 3.11"))])
def test_old_python_is_told_so_in_one_line(python: str) -> None:
    done = subprocess.run([python, str(ROOT / "start.py")], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(
        r"Python 3\.\d+ is too old: the course needs 3\.11 or newer, get it at python\.org\n", done.stderr
    )


def test_help_explains_and_installs_nothing(fresh: Course) -> None:
    done = fresh.run("--help")
    assert done.returncode == 0
    assert all(word in done.stdout for word in ("start.py test", "start.py COMMAND", "--cpu", "COURSE_TORCH_INDEX"))
    assert fresh.run("help").stdout == fresh.run("-h").stdout == done.stdout
    assert not (fresh.folder / ".venv").exists()


def test_help_lists_every_command_in_a_line() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "start.py"), "--help"], capture_output=True, text=True)
    listed = re.findall(r"^    (\w+) +\w.*$", done.stdout.partition("Commands:\n")[2], re.MULTILINE)
    assert listed == list(start.COMMANDS)
    assert sorted(listed) == sorted([*get_command(app).commands, "test"])  # type: ignore[attr-defined]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_help_that_does_not_fit_is_one_line(fresh: Course) -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "start.py", "--help"]
        done = subprocess.run(command, cwd=fresh.folder, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert ONE_LINE.fullmatch(done.stderr) and "No space left on device: make room" in done.stderr


def test_reader_of_the_help_may_go_away(fresh: Course) -> None:
    process = fresh.popen("--help")
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(
    ("words", "variables", "complaint"),
    [
        (["--gpu"], {}, "no such option: --gpu"),
        (
            ["docter"],
            {},
            "no such command: docter (python start.py --help shows those there are; did you mean doctor?)",
        ),
        (["02", "--help"], {}, "no such command: 02 (python start.py --help shows those there are)"),
        (["doctor"], {"COURSE_TORCH": "gpu"}, "COURSE_TORCH=gpu is not known"),
    ],
)
def test_wrong_call_exits_with_2(fresh: Course, words: list[str], variables: dict[str, str], complaint: str) -> None:
    done = fresh.run(*words, **variables)
    assert done.returncode == 2
    assert ONE_LINE.fullmatch(done.stderr) and complaint in done.stderr
    assert not (fresh.folder / ".venv").exists()


# --- installing and handing over --------------------------------------------------------------------------------------


def test_half_made_environment_is_remade_and_said_so(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    course, first = ready
    assert ".venv is broken or half-made: making it anew\n" in first.stderr
    assert first.returncode == 0
    assert not (course.folder / ".venv" / "leftover").exists()


def test_words_reach_the_course_command_inside_the_environment(
    ready: tuple[Course, subprocess.CompletedProcess[str]],
) -> None:
    course, first = ready
    answer = json.loads(first.stdout)  # nothing but the command's own output
    assert answer["words"] == ["doctor", "two words"]
    assert Path(answer["path"]).parent == course.folder / ".venv"


def test_command_is_told_how_its_user_calls_it(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    course, first = ready
    assert json.loads(first.stdout)["program"] == "python start.py"
    assert all(json.loads(line)["program"] == "python start.py" for line in course.run().stdout.splitlines())


def test_help_of_a_command_says_that_it_installs_first(fresh: Course) -> None:
    done = fresh.run("lab", "--help")
    assert done.stderr.splitlines()[0] == (
        "The help of lab comes with the course, which is not installed yet: installing it first"
    )
    assert json.loads(done.stdout)["words"] == ["lab", "--help"]
    assert fresh.run("lab", "--help").stderr == ""


def test_second_run_installs_nothing(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    course, first = ready
    assert "Installing 2/2" in first.stderr
    assert course.run("doctor").stderr == ""


def test_exit_status_of_the_command_is_passed_on(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    assert ready[0].run("doctor", FAIL_DOCTOR="7").returncode == 7


def test_no_word_fetches_the_model_and_opens_the_lab(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    words = [json.loads(line)["words"] for line in ready[0].run().stdout.splitlines()]
    assert words == [["fetch", "smollm2"], ["lab"]]


def test_failed_fetch_opens_nothing(ready: tuple[Course, subprocess.CompletedProcess[str]]) -> None:
    done = ready[0].run(FAIL_FETCH="1")
    assert done.returncode == 1
    assert [json.loads(line)["words"] for line in done.stdout.splitlines()] == [["fetch", "smollm2"]]


def test_test_installs_its_extra_and_passes_words_and_status(
    ready: tuple[Course, subprocess.CompletedProcess[str]],
) -> None:
    course, _ = ready
    assert course.installed("checker") == ""
    done = course.run("test", "-k", "cache")
    assert (done.stdout, done.returncode) == ("tests ['-k', 'cache']\n", 3)
    assert course.installed("checker") == "1.0"
    assert course.run("doctor").stderr == "", "what the tests needed must not make the course stale"


def test_serve_installs_its_extra_and_keeps_that_of_the_tests(
    ready: tuple[Course, subprocess.CompletedProcess[str]],
) -> None:
    course, _ = ready
    assert course.run("serve", "--help").stderr == "" and course.installed("server") == ""
    done = course.run("serve", "--port", "8001")
    assert json.loads(done.stdout)["words"] == ["serve", "--port", "8001"]
    assert course.installed("server") == "1.0"
    for words in (["serve"], ["test"], ["doctor"]):
        assert course.run(*words).stderr == "", "nothing is installed again"


def test_changed_constraints_and_half_installed_packages_are_mended(
    ready: tuple[Course, subprocess.CompletedProcess[str]],
) -> None:
    """A package whose installation was killed has a dist-info without INSTALLER, and pip alone believes in it. What it
    moved aside to replace, with a `~` before the name, is there for ever.
    """
    course, _ = ready
    assert course.installed("torch") == "1.0"
    (notes,) = (course.folder / ".venv").glob("[Ll]ib/**/checker-1.0.dist-info")
    (notes.parent / "checker.py").unlink()
    (notes / "INSTALLER").unlink()
    (notes.parent / "~orch" / "lib").mkdir(parents=True)
    (notes.parent / "~hecker.py").touch()
    (course.folder / "constraints.txt").write_text("torch==2.0\n")
    assert "Installing" in course.run("test").stderr
    assert not list(notes.parent.glob("~*"))
    assert course.installed("torch") == "2.0"
    assert (notes.parent / "checker.py").exists()


def test_moved_folder_is_installed_anew(ready: tuple[Course, subprocess.CompletedProcess[str]], tmp_path: Path) -> None:
    course, _ = ready
    moved = Course(tmp_path / "elsewhere", course.wheels)
    shutil.copytree(course.folder, moved.folder, symlinks=True)
    done = moved.run("doctor")
    assert f".venv was made in another folder ({course.folder}/.venv): making it anew\n" in done.stderr
    assert Path(json.loads(done.stdout)["path"]).parent == moved.folder / ".venv"


def test_environment_of_another_python_or_torch_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "pip_version", lambda: (26, 3))
    stamp = {"folder": str(start.VENV), "python": start.VERSION, "torch": "cpu"}
    assert start.why_remake(stamp, "cpu") == ""
    assert "Python 3.9" in start.why_remake({**stamp, "python": "3.9"}, "cpu")
    assert "cpu build of torch" in start.why_remake(stamp, "default")


def test_settings_for_another_python_or_pip_change_nothing(fresh: Course, tmp_path: Path) -> None:
    """`python -E`, which pays no heed to PYTHONHOME, hands it on all the same."""
    elsewhere = fresh.environment(PYTHONHOME=str(tmp_path), PIP_USER="1", PYTHONUSERBASE=str(tmp_path / "user"))
    command = [sys.executable, "-E", str(fresh.folder / "start.py"), "doctor"]
    done = subprocess.run(command, env=elsewhere, capture_output=True, text=True)
    assert json.loads(done.stdout)["words"] == ["doctor"] and fresh.installed("torch") == "1.0"
    assert not (tmp_path / "user").exists()


def test_pip_unpacks_beside_what_it_installs(fresh: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    """A /tmp in memory is too small for torch. What pip would use is asked of Python itself, in the place of pip."""
    course = load(fresh.folder / "start.py")
    fresh.run("doctor")
    asked = [str(course.PYTHON), "-c", "import tempfile; print(tempfile.gettempdir())"]
    real, said = subprocess.Popen, []
    monkeypatch.setattr(course.subprocess, "Popen", lambda command, **options: real(asked, **options))
    monkeypatch.setattr(course.Progress, "feed", lambda self, line: said.append(line.strip()))
    course.pip_install("nothing")
    assert said == [str(course.VENV / "tmp")] and not (course.VENV / "tmp").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a larger build to avoid")
def test_cpu_build_comes_from_its_own_index_and_stays(fresh: Course, tmp_path: Path) -> None:
    index = tmp_path / "cpu wheels"
    index.mkdir()
    make_wheel(index, "torch", "1.0+cpu", {"torch.py": "build = 'cpu'"})
    done = fresh.run("--cpu", "doctor", COURSE_TORCH_INDEX=str(index))
    assert json.loads(done.stdout)["words"] == ["doctor"]
    assert fresh.installed("torch") == "1.0+cpu"
    assert fresh.run("doctor").stderr == "", "a later plain start must not ask for another build"
    (fresh.folder / "constraints.txt").write_text("torch==1.0\n# changed\n")
    fresh.run("doctor", COURSE_TORCH_INDEX=str(index))
    assert fresh.installed("torch") == "1.0+cpu"


def test_torch_index_may_be_an_address_or_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("COURSE_TORCH_INDEX", raising=False)
    assert start.torch_source() == ["--index-url", "https://download.pytorch.org/whl/cpu"]
    monkeypatch.setenv("COURSE_TORCH_INDEX", "https://mirror.example/cpu")
    assert start.torch_source() == ["--index-url", "https://mirror.example/cpu"]
    monkeypatch.setenv("COURSE_TORCH_INDEX", str(tmp_path))
    assert start.torch_source() == ["--no-index", "--find-links", str(tmp_path)]


# --- what can go wrong ------------------------------------------------------------------------------------------------


def test_unreachable_index_is_one_line_with_the_remedy(fresh: Course) -> None:
    """Port 9 of the loopback refuses; without retries pip prints no warning, so this is the hardest case to tell."""
    done = fresh.run(
        "doctor", PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="0"
    )
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("start.py:")]
    assert "cannot reach the package index: check the network or the proxy" in line
    assert "run the same command again" in line and "install.log" in line
    assert (fresh.folder / ".venv" / "install.log").read_text()


def wait_for(path: Path) -> str:
    """The text of a file that another process is about to write."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline, f"{path} was not written within 60 s"
        time.sleep(0.02)
    return path.read_text()


def is_running(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def held(fresh: Course) -> Iterator[Course]:
    """A course whose installation waits, half done, for as long as the file `block` is there."""
    block = fresh.folder / "block"
    block.touch()
    yield fresh
    block.unlink(missing_ok=True)  # whatever still waits goes on and ends


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_interrupted_install_leaves_no_process_and_a_second_run_continues(held: Course) -> None:
    first = held.popen("doctor")
    builder = int(wait_for(held.folder / "blocked"))

    second = held.run("doctor")
    assert second.returncode == 1
    assert ONE_LINE.fullmatch(second.stderr) and "another start.py is installing here" in second.stderr

    assert is_running(builder)
    first.send_signal(signal.SIGINT)
    output, errors = first.communicate(timeout=60)
    assert first.returncode == 130
    assert errors.splitlines()[-1].startswith("Stopped; what was downloaded is kept: run the same command again")
    assert "Traceback" not in errors and output == ""
    assert not is_running(builder)

    (held.folder / "block").unlink()
    third = held.run("doctor")
    assert "Making .venv" not in third.stderr, "the environment is kept, only what is missing is done"
    assert json.loads(third.stdout)["words"] == ["doctor"]


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
def test_closed_terminal_ends_the_install_and_one_that_is_killed_keeps_others_out(held: Course) -> None:
    """Nobody can act on SIGKILL: pip goes on alone, and no second one may write to the same .venv."""
    first = held.popen("doctor")
    builder = int(wait_for(held.folder / "blocked"))
    first.send_signal(signal.SIGHUP)
    first.communicate(timeout=60)
    assert first.returncode == 130 and not is_running(builder)

    (held.folder / "blocked").unlink()
    second = held.popen("doctor")
    builder = int(wait_for(held.folder / "blocked"))
    second.kill()
    second.communicate(timeout=60)
    assert is_running(builder)
    third = held.run("doctor")
    assert third.returncode == 1 and "another start.py is installing here" in third.stderr
    assert is_running(builder)


@pytest.mark.skipif(os.name != "posix", reason="links are made otherwise")
@pytest.mark.parametrize("there", ["file", "link to a folder", "link to nothing"])
def test_what_is_not_a_folder_of_ours_is_to_be_deleted(fresh: Course, there: str) -> None:
    """Behind a link may be a whole disk, and to make .venv anew means to clear what is there."""
    venv, other = fresh.folder / ".venv", fresh.folder.parent / "other"
    if there == "file":
        venv.write_text("x")
    else:
        venv.symlink_to(other)
    if there == "link to a folder":
        other.mkdir()
        (other / "letter").write_text("x")
    done = fresh.run("doctor")
    assert done.returncode == 1 and ONE_LINE.fullmatch(done.stderr)
    assert done.stderr.endswith("delete it, then run the same command again\n")
    assert there != "link to a folder" or (other / "letter").exists()


@pytest.mark.skipif(os.name != "posix", reason="no name of a folder holds this system's separator")
def test_folder_in_which_no_environment_can_lie_is_named(fresh: Course) -> None:
    moved = Course(fresh.folder.parent / "a:b", fresh.wheels)
    fresh.folder.rename(moved.folder)
    done = moved.run("doctor")
    assert done.returncode == 1
    assert "a path with a ':' in it: move the course to a folder without it" in done.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 45 MB: enough for an environment with pip in it, not for much more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=45m", "tmpfs", str(folder)]
    if sys.platform != "linux" or os.geteuid() or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root on Linux")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_found_before_and_during_the_install(fresh: Course, small_disk: Path) -> None:
    course = Course(small_disk / "course", fresh.wheels)
    shutil.copytree(fresh.folder, course.folder)
    before = course.run("doctor")
    assert before.returncode == 1
    assert ONE_LINE.fullmatch(before.stderr) and "0.0 GB free, about" in before.stderr
    assert not (course.folder / ".venv").exists()

    with zipfile.ZipFile(fresh.wheels / "torch-1.0-py3-none-any.whl", "a", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("torch_big.bin", bytes(60_000_000))
    lenient = "import start; start.PEAK_GB['default'] = 0; raise SystemExit(start.main(['doctor']))"
    (course.folder / "lenient.py").write_text(lenient)
    during = course.run(program="lenient.py")
    assert during.returncode == 1
    (line,) = [line for line in during.stderr.splitlines() if line.startswith("start.py:")]
    assert "the disk is full: make room" in line


def test_missing_space_names_the_smaller_build_only_where_there_is_one() -> None:
    start.check_space(free_gb=3.1, needed_gb=3.0)
    with pytest.raises(start.Problem, match=r"2\.9 GB free, about 3 GB needed: make room$"):
        start.check_space(free_gb=2.9, needed_gb=3.0)
    with pytest.raises(start.Problem, match=r"about 11 GB needed: make room, or take the smaller build: .* --cpu$"):
        start.check_space(free_gb=2.9, needed_gb=11.0)


def test_folder_that_cannot_be_written_is_one_line(fresh: Course, small_disk: Path) -> None:
    """Root may write wherever the file system lets anybody: so a disk that is mounted read-only."""
    course = Course(small_disk / "course", fresh.wheels)
    shutil.copytree(fresh.folder, course.folder)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    done = course.run("doctor")
    assert done.returncode == 1
    assert ONE_LINE.fullmatch(done.stderr) and "copy the course to a folder of your own" in done.stderr


DEBIAN_WITHOUT_VENV = """The virtual environment was not created successfully because ensurepip is not
available.  On Debian/Ubuntu systems, you need to install the python3-venv
package using the following command.

    apt install python3.11-venv
"""


@pytest.mark.parametrize(
    "venv_main", [f"print({DEBIAN_WITHOUT_VENV!r}); raise SystemExit(1)", "raise ImportError('No module named venv')"]
)
def test_python_without_venv_is_told_what_to_install(fresh: Course, tmp_path: Path, venv_main: str) -> None:
    """Debian splits the module off; here another module of that name stands before it and says what Debian's says."""
    package = tmp_path / "path" / "venv"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(venv_main)
    done = fresh.run("doctor", PYTHONPATH=str(package.parent))
    assert done.returncode == 1
    assert "lacks its venv module: install it (Debian, Ubuntu: sudo apt install python3-venv)" in done.stderr


# As pip 23.2 and 26.3 print them, with other host names; the two of Windows as people quote them.
PIP_TEXTS = [
    ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
    (
        "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3."
        "connection.HTTPSConnection object>: Failed to establish a new connection: [Errno -3] Temporary failure in "
        "name resolution')': /simple/torch/\nERROR: No matching distribution found for torch",
        "cannot reach the package index",
    ),
    (
        "2026-11-29T14:28:31,965 Could not fetch URL http://127.0.0.1:9/simple/torch/: connection error: [Errno 111] "
        "Connection refused - skipping\nERROR: No matching distribution found for torch",
        "cannot reach the package index",
    ),
    (
        "Could not fetch URL https://index.example/torch/: proxy connection error: ('Unable to connect to proxy', "
        "OSError('Tunnel connection failed: 403 Forbidden')) - skipping",
        "check the network or the proxy",
    ),
    (
        "Could not fetch URL https://index.example/torch/: There was a problem confirming the ssl certificate: [SSL: "
        "CERTIFICATE_VERIFY_FAILED] certificate verify failed: self signed certificate - skipping",
        "check the network or the proxy",
    ),
    (
        "pip._vendor.urllib3.exceptions.ReadTimeoutError: HTTPSConnectionPool(host='files.example', port=443): "
        "Read timed out.",
        "what was downloaded is kept",
    ),
    (
        "ERROR: Could not find a version that satisfies the requirement torch==2.13.0 (from versions: none)\n"
        "ERROR: No matching distribution found for torch==2.13.0",
        "use Python 3.11",
    ),
    (
        "HINT: This error might have occurred since this system does not have Windows Long Path support enabled.",
        "such as C:",
    ),
    (
        "ERROR: Could not install packages due to an OSError: [WinError 5] Access is denied: 'torch.dll'",
        "close what uses",
    ),
    ("Building wheel\nERROR: Failed building wheel for psutil", "Failed building wheel for psutil"),
]


@pytest.mark.parametrize(("text", "said"), PIP_TEXTS)
def test_what_pip_says_becomes_one_line_with_the_remedy(text: str, said: str) -> None:
    line = start.explain(text)
    assert said in line
    assert "\n" not in line


def test_terminal_line_names_the_package_and_its_percent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = start.Progress("Installing 1/2: torch")
    progress.live = True
    for line in (
        "Collecting torch==2.13.0\n",
        "  Downloading torch-2.13.0-cp311-linux.whl (180.4 MB)\n",
        "Progress 45 of 180",
    ):
        progress.feed(line)
    shown = [part.strip() for part in capsys.readouterr().err.split("\r") if part.strip()]
    assert shown == ["Installing 1/2: torch ...", "torch", "torch-2.13.0", "torch-2.13.0 25 %"]
