"""`course lab`: opens the learner's copies of the notebooks, or the originals, in JupyterLab.

The one idea: JupyterLab runs for one person on this machine. It listens on the loopback address behind its own token,
asks nothing of the network, and its only kernel is the course's interpreter. The user's own settings of Jupyter hold.
"""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from course_lib.commands.output import WRONG, CommandError, say
from course_lib.commands.places import FIRST_NOTEBOOK, find_original, needed_checkout, short, work_folder
from course_lib.commands.work_copies import Action, update_copies
from course_lib.progress import data_folder

ADDRESS = "127.0.0.1"
OPTIONS = (
    f"--ServerApp.ip={ADDRESS}",
    "--ServerApp.kernel_spec_manager_class=course_lib.commands.kernels.CourseKernels",
    "--ServerApp.answer_yes=True",  # Ctrl-C stops at once
    "--ServerApp.log_level=WARN",
    "--LabApp.log_level=WARN",
    "--LanguageServerManager.autodetect=False",  # it would search the system with npm at each start
    "--LabApp.news_url=None",
    "--LabApp.extension_manager=readonly",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)
# A folder of settings that comes before all others. It switches off the extension that asks whether to fetch news: no
# option does that, for without an address for news it asks all the same.
SETTINGS = Path(__file__).with_name("jupyter")
SHORT_NAMES = {"--ip": "--ServerApp.ip", "--port": "--ServerApp.port", "--no-browser": "--ServerApp.open_browser"}


def open_lab(
    word: str | None, *, edit: bool, browser: bool, port: int | None, work: Path | None, extra: list[str]
) -> int:
    """Bring the copies up to date and start JupyterLab on a notebook; on most systems this process becomes it."""
    root = needed_checkout()
    if importlib.util.find_spec("jupyterlab") is None:
        raise CommandError("JupyterLab is not installed here", "python start.py installs what the course needs")
    notebook = find_original(word or FIRST_NOTEBOOK, root)
    if port is not None:
        _check_port(port)
    folder = root
    if not edit:
        folder = work_folder(root, work)
        _update(root, folder)
    opened = notebook.relative_to(root)
    say(f"JupyterLab opens {short(folder / opened)}. Ctrl-C here stops it.")
    return _become(jupyter_command(folder, opened, browser, port, extra))


def jupyter_command(folder: Path, opened: Path, browser: bool, port: int | None, extra: list[str]) -> list[str]:
    """The command line of JupyterLab. Of an option that stands in `extra`, too, only that one is kept: it takes one."""
    options = [*OPTIONS, f"--ServerApp.root_dir={folder}", f"--LabApp.default_url=/lab/tree/{quote(opened.as_posix())}"]
    if not browser:
        options.append("--ServerApp.open_browser=False")
    if port is not None:
        options += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        options.append("--ServerApp.allow_root=True")
    given = [word.split("=")[0] for word in extra]
    named = {SHORT_NAMES.get(name, name) for name in given}
    kept = [option for option in options if option.split("=")[0] not in named]
    return [sys.executable, "-m", "course_lib.commands.server", *kept, *extra]


def jupyter_environment() -> dict[str, str]:
    """The variables of this process, with the course's settings on Jupyter's path.

    Kernels start in other folders: a relative COURSE_DATA is meant from where this was started.
    """
    paths = [str(SETTINGS), os.environ.get("JUPYTER_CONFIG_PATH", "")]
    ours = {"JUPYTER_CONFIG_PATH": os.pathsep.join(filter(None, paths))}
    if os.environ.get("COURSE_DATA"):
        ours["COURSE_DATA"] = str(data_folder())
    return {**os.environ, **ours}


def _update(root: Path, folder: Path) -> None:
    try:
        changes = update_copies(root, folder)
    except OSError as error:
        raise CommandError(
            f"cannot keep your copies in {folder}: {error}", "name another folder with --work or in COURSE_WORK"
        ) from error
    copied = sum(change.action is Action.COPY and not change.line for change in changes)
    if copied:
        say(f"{copied} file{'s' * (copied > 1)} of the course copied into {short(folder)}")
    for change in changes:
        if change.line:
            say(change.line)


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        if os.name != "nt":  # a port that was in use a moment ago is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            raise CommandError(
                f"port {port} cannot be used: {error.strerror}", "leave out --port to get a free one", WRONG
            ) from error


def _become(command: list[str]) -> int:
    """Turn into another program; where the system cannot, run it and leave Ctrl-C to it."""
    if os.name != "nt":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # until the other has a handler for it
        os.execve(command[0], command, jupyter_environment())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.call(command, env=jupyter_environment())
