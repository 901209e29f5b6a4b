"""The walls of the sandbox: the command line of bubblewrap, and why there may be no sandbox on this machine.

The one idea: a submission sees an almost empty computer. There are the Python of the course and its packages to read,
the system's libraries, the trimmed copy of the library, and one folder in memory to write to. There is no network, no
other process, no name or environment of the host, and no right to get any of it. Whoever grades as root (in a
container, say) starts bubblewrap as root, and what runs inside becomes an account that exists nowhere else.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import course_lib

COURSE, BOX = Path("/course"), Path("/tmp")  # the trimmed copy and the folder to write to, as they are called inside
SHARED_MEMORY = 32 << 20  # bytes of /dev/shm, for processes that share arrays
NOBODY = 65534
FIRST_ACCOUNT = 1_000_000_000  # far above those that systems give to people
SYSTEM = ("lib", "lib64", "lib32")


def account() -> int | None:
    """The account that a submission runs as if whoever grades is root: each its own, so that their limits are apart."""
    return FIRST_ACCOUNT + secrets.randbelow(FIRST_ACCOUNT) if os.geteuid() == 0 else None


def walls(course: Path, folder_bytes: int, rules_out: Iterable[str] = (), filter_at: int | None = None) -> list[str]:
    """The command line up to the program. `course` is the folder with the trimmed copy.

    `filter_at` is the number of an open file with the filter of system calls.
    """
    command = [shutil.which("bwrap") or "bwrap", "--die-with-parent", "--new-session", "--hostname", "sandbox"]
    command += ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    if os.geteuid() == 0:
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY)]
    # The folder to write to comes first: what is bound afterwards may lie in a folder of that name.
    command += ["--perms", "1777", "--size", str(folder_bytes), "--tmpfs", str(BOX)]
    bound = [Path("/usr", name) for name in SYSTEM] + [Path("/etc/ld.so.cache"), *environment()]
    for name in SYSTEM:
        if Path("/", name).is_symlink():
            command += ["--symlink", os.readlink(f"/{name}"), f"/{name}"]
        else:
            bound.append(Path("/", name))
    bound = [path for path in bound if path.exists()]
    parents = {parent for path in bound for parent in path.parents} - {Path("/"), BOX}
    for parent in sorted(parents):  # what bubblewrap makes on its own account only root may enter
        command += ["--perms", "0755", "--dir", str(parent)]
    for path in bound:
        command += ["--ro-bind", str(path), str(path)]
    for path in hidden(rules_out):
        command += emptied(path)
    command += ["--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--size", str(SHARED_MEMORY), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    command += ["--ro-bind", str(course), str(COURSE), "--remount-ro", "/", "--chdir", str(BOX)]
    return [*command, *([] if filter_at is None else ["--seccomp", str(filter_at)]), "--"]


def emptied(path: Path) -> list[str]:
    """Something is laid over `path`, so that nothing of it can be read."""
    if path.is_file():
        return ["--ro-bind", "/dev/null", str(path)]
    return ["--perms", "0555", "--size", "4096", "--tmpfs", str(path), "--remount-ro", str(path)]


def environment() -> list[Path]:
    """What this Python needs to run with its packages: no more of its folders than that."""
    paths: list[Path] = []
    for prefix in dict.fromkeys((sys.base_prefix, sys.prefix)):
        paths += [Path(prefix, name) for name in ("pyvenv.cfg", "bin", *SYSTEM)]
    paths += packages()
    found: list[Path] = []
    for path in paths:
        seen = path in (Path("/usr/bin"), Path("/bin")) or any(
            inside(path, each) for each in (*found, Path("/usr/lib"))
        )
        if path.exists() and not path.is_symlink() and not seen:
            found.append(path)
    return found + [link for link in links(Path(sys.executable)) if not any(inside(link, each) for each in found)]


def packages() -> list[Path]:
    """The folders that packages are installed in."""
    return [Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]


def links(path: Path) -> Iterator[Path]:
    """A program and what it is a link to, one after the other."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / os.readlink(path)))
        yield path


def inside(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def hidden(rules_out: Iterable[str]) -> Iterator[Path]:
    """What lies in the environment and must not be seen: the library itself, and packages that are ruled out."""
    package = Path(course_lib.__file__).resolve().parent
    bound = environment()
    own = [package] if package.parent in packages() else [package.parent]
    for name in rules_out:
        if name.partition(".")[0] != package.name:
            stem = name.replace(".", "/")
            own += [folder / each for folder in packages() for each in (stem, f"{stem}.py")]
    for path in own:
        if path.exists() and any(inside(path, each) for each in bound):
            yield path


@lru_cache(maxsize=1)
def why_not() -> str:
    """Why there is no sandbox on this machine, in a sentence that says what to do; empty if there is one."""
    if not sys.platform.startswith("linux"):
        return "There is no sandbox on this system: bubblewrap is a program of Linux."
    if shutil.which("bwrap") is None:
        return "There is no sandbox: bubblewrap is not installed. On Debian or Ubuntu: apt install bubblewrap"
    command = [*walls(Path(course_lib.__file__).parent, 1 << 20), sys.executable, "-I", "-S", "-c", ""]
    try:
        done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"There is no sandbox: bubblewrap could not be tried ({type(error).__name__})."
    said = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
    return "" if done.returncode == 0 else f"There is no sandbox: bubblewrap does not work here ({said[:300]})."
