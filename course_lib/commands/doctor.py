"""`course doctor`: looks at everything the course needs from a machine and says what to do about what is missing.

The one idea: a problem stops the course, a warning does not. Each check really tries what it reports: it computes in
each dtype, starts a kernel, writes a file.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from rich.table import Table
from rich.text import Text

from course_lib.commands.output import DONE, WRONG, CommandError, deliver, program
from course_lib.commands.places import at_home, checkout, short, work_folder
from course_lib.progress.faults import Fault
from course_lib.progress.store import data_folder, store

OK, WARNING, PROBLEM = "ok", "warning", "problem"
STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}
DISTRIBUTION = "kv-cache-course"
OLDEST_PYTHON = (3, 11)
MEMORY_NEEDED = 2.5e9  # bytes, of one notebook
DISK_NEEDED = 0.5e9  # bytes, for weights and answers
CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "msedge")
BROWSERS = (*CHROMIUM, "firefox", "brave-browser", "safari")
INSTALL = "run: python start.py"


@dataclass(frozen=True)
class Check:
    """What was looked at, how it stands (ok, warning or problem), what was found, and what to do about it."""

    check: str
    state: str
    value: str
    remedy: str = ""


def examine(json_target: str | None) -> int:
    """Make all checks and print them; the exit status is 1 if one of them is a problem."""
    checks = list(all_checks())
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for check in checks:
        found = Text(check.value)
        if check.remedy:
            found.append(f"\n-> {check.remedy}", style="italic")
        table.add_row(check.check, Text(check.state, style=STYLES[check.state]), found)
    problems, warnings = (sum(check.state == state for check in checks) for state in (PROBLEM, WARNING))
    data: dict[str, object] = {"checks": [asdict(c) for c in checks], "problems": problems, "warnings": warnings}
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row("")
    outer.add_row(f"{_counted(problems, PROBLEM)}, {_counted(warnings, WARNING)}" + _meaning(problems))
    deliver(data, outer, json_target)
    return WRONG if problems else DONE


def all_checks() -> Iterator[Check]:
    """Every check, in the order in which they are printed. One that breaks is a problem, not an end."""
    for make in (
        python, packages, torch_build, dtypes, weights, memory, disk, jupyterlab, kernel, browser, bubblewrap,
        cache_writable, data_writable, work_writable,
    ):  # fmt: skip
        name = make.__name__.replace("_writable", " folder")
        try:
            yield make()
        except CommandError as error:  # a variable that names no folder
            yield Check(name, PROBLEM, str(error.args[0]), error.remedy)
        except Exception as error:  # a broken installation can raise anything
            yield Check(name, PROBLEM, f"{type(error).__name__}: {str(error).strip()[:200]}", INSTALL)


def python() -> Check:
    value = f"{platform.python_version()} on {platform.system()} {platform.machine()}, {short(Path(sys.executable))}"
    if sys.version_info < OLDEST_PYTHON:
        return Check("Python", PROBLEM, value, "install Python 3.11 or newer, then run: python start.py")
    return Check("Python", OK, value)


def packages() -> Check:
    """What is installed against what the course needs and, in a checkout, the versions that it is tested with."""
    needed = [line for line in importlib.metadata.requires(DISTRIBUTION) or [] if "extra ==" not in line]
    installed = {name: _version(name) for name in map(_name, needed)}
    missing = [name for name, version in installed.items() if version is None]
    if missing:
        return Check("packages", PROBLEM, f"missing: {', '.join(missing)}", INSTALL)
    root = checkout()
    if root is None or not (root / "constraints.txt").is_file():
        return Check("packages", OK, f"all {len(installed)} there")
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", (root / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    found = [(name, version, _version(name)) for name, version in pins]
    others = [f"{name} {here}, not {pin}" for name, pin, here in found if here and here.split("+")[0] != pin]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        value = f"other versions than tested: {'; '.join(others[:3])}{more}"
        return Check("packages", WARNING, value, f"{INSTALL} (installs the tested versions)")
    return Check("packages", OK, f"{sum(here is not None for *_, here in found)} at the tested versions")


def torch_build() -> Check:
    import torch

    value = f"{torch.__version__}, {torch.get_num_threads()} CPU threads"
    if torch.cuda.is_available():
        return Check("torch", OK, f"{value}, {torch.cuda.get_device_name()} (CUDA {torch.version.cuda})")
    return Check("torch", OK, f"{value}, no CUDA GPU (the course runs on the CPU)")


def dtypes() -> Check:
    """A linear layer and the attention kernel in each dtype of the course."""
    import torch

    failing, tried = [], ("float32", "bfloat16", "float16", "float64")
    for device in ["cpu", "cuda"][: 1 + torch.cuda.is_available()]:
        for name in tried:
            try:
                x = torch.ones(1, 1, 4, 8, dtype=getattr(torch, name), device=device)
                torch.nn.functional.scaled_dot_product_attention(
                    x, x, torch.nn.functional.linear(x, x[0, 0].T @ x[0, 0])
                )
            except RuntimeError:
                failing.append(f"{name} on {device}")
    if failing:
        return Check("dtypes", WARNING, f"not supported: {', '.join(failing)}", "use --dtype float32 instead")
    return Check("dtypes", OK, f"{', '.join(tried[:-1])} and {tried[-1]} all compute")


def weights() -> Check:
    from course_lib.checkpoints import MODELS, cache_folder, fetched

    check_variable("COURSE_CACHE")
    path = fetched("smollm2")
    if path is not None:
        return Check("weights", OK, f"{short(path)}, {path.stat().st_size / 1e6:.0f} MB, hash right")
    damaged = (cache_folder() / MODELS["smollm2"].file_name).exists()
    value = "SmolLM2: the file is damaged" if damaged else "SmolLM2 was not fetched yet"
    return Check("weights", WARNING, value, f"run: {program()} fetch (a download of 93 MB)")


def memory() -> Check:
    free, total = psutil.virtual_memory().available, psutil.virtual_memory().total
    limit = Path("/sys/fs/cgroup/memory.max")  # a container may have less than its machine
    if limit.is_file() and (text := limit.read_text().strip()).isdigit():
        total, free = min(total, int(text)), min(free, int(text))
    value = f"{free / 1e9:.1f} GB free of {total / 1e9:.1f} GB"
    if total < MEMORY_NEEDED:
        return Check("memory", PROBLEM, value, f"use a machine with more than {MEMORY_NEEDED / 1e9:.1f} GB")
    if free < MEMORY_NEEDED:
        return Check("memory", WARNING, value, f"close programs: a notebook may need {MEMORY_NEEDED / 1e9:.1f} GB")
    return Check("memory", OK, value)


def disk() -> Check:
    from course_lib.checkpoints import cache_folder

    check_variable("COURSE_CACHE")
    free = shutil.disk_usage(_nearest(cache_folder())).free
    value = f"{free / 1e9:.1f} GB free for weights"
    if free < DISK_NEEDED:
        return Check("disk", WARNING, value, "make room, or name another folder in COURSE_CACHE")
    return Check("disk", OK, value)


def jupyterlab() -> Check:
    version = _version("jupyterlab")
    return Check("JupyterLab", OK, version) if version else Check("JupyterLab", PROBLEM, "not found", INSTALL)


def kernel() -> Check:
    """Start one, as a notebook does, and ask it which interpreter it is."""
    from nbformat import v4

    from course_lib.commands.kernels import execute

    cell = v4.new_code_cell("import sys, course_lib\nprint(sys.executable)")
    done = execute(v4.new_notebook(cells=[cell]), timeout_s=60)
    if done.error:
        return Check("kernel", PROBLEM, done.error, INSTALL)
    answer = cell.outputs[0].text.strip()
    if answer != sys.executable:
        return Check("kernel", PROBLEM, f"another interpreter answers: {answer}", INSTALL)
    return Check("kernel", OK, f"starts and answers in {done.time_s:.1f} s")


def browser() -> Check:
    if path := next(filter(None, map(shutil.which, CHROMIUM)), None):
        return Check("browser", OK, short(Path(path)))
    other = next(filter(None, map(shutil.which, BROWSERS)), None)
    value = f"{short(Path(other))}, but no Chromium" if other else "no Chromium found"
    return Check("browser", WARNING, value, "only the tests in a browser need it: install chromium to run them")


def bubblewrap() -> Check:
    """Only graders need it, and it must be allowed to make namespaces, which some containers forbid."""
    if sys.platform != "linux":
        return Check("bubblewrap", WARNING, "only Linux has it", "only graders need it: grade on Linux")
    path = shutil.which("bwrap")
    if path is None:
        return Check("bubblewrap", WARNING, "not found", "only graders need it: install the package bubblewrap")
    tried = subprocess.run([path, "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, text=True)
    if tried.returncode:
        reason = (tried.stderr.strip().splitlines() or ["it failed"])[-1]
        return Check("bubblewrap", WARNING, f"{path}: {reason}", "only graders need it: allow user namespaces")
    return Check("bubblewrap", OK, path)


def cache_writable() -> Check:
    from course_lib.checkpoints import cache_folder

    check_variable("COURSE_CACHE")
    return _writable("cache folder", cache_folder(), "COURSE_CACHE")


def data_writable() -> Check:
    """The folder of the learner's progress and, once there is some, whether it is sound and can be added to."""
    check_variable("COURSE_DATA")
    place = _writable("data folder", data_folder(), "COURSE_DATA")
    if place.state != OK:
        return place
    try:
        entries = len(store().history())
    except Fault as problem:
        return Check(place.check, PROBLEM, f"your progress cannot be read: {problem.reason}", problem.remedy)
    repairs = store().notices()
    if entries and (found := store().trouble()):
        return Check(
            place.check, PROBLEM, f"your progress cannot be saved: {found.reason} ({found.path})", found.remedy
        )
    if repairs:
        return Check(place.check, WARNING, " ".join(repairs), "look at the disk, if this comes more than once")
    return Check(place.check, OK, f"{place.value}, your progress: {entries} {'entry' if entries == 1 else 'entries'}")


def work_writable() -> Check:
    root = checkout()
    if root is None:
        return Check("work folder", WARNING, "no notebooks here", "get the whole course to open its notebooks")
    check_variable("COURSE_WORK")
    return _writable("work folder", work_folder(root), "COURSE_WORK")


def check_variable(name: str) -> None:
    """Raise CommandError if a variable that names a folder begins with the home of a user who is not here."""
    try:
        at_home(os.environ.get(name, ""))
    except CommandError as error:
        raise CommandError(f"{name}={error.args[0]}", f"{error.remedy} into {name}, or unset it") from None


def _writable(name: str, folder: Path, variable: str) -> Check:
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)) as file:
            file.write(b"x")
    except OSError as error:
        return Check(name, PROBLEM, f"{short(folder)}: {error.strerror}", f"name another folder in {variable}")
    return Check(name, OK, f"{short(folder)}" + ("" if folder.exists() else " (made when needed)"))


def _nearest(folder: Path) -> Path:
    """`folder`, or the nearest folder above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.exists())


def _name(requirement: str) -> str:
    found = re.match(r"[\w.-]+", requirement)
    return found.group() if found else requirement


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _meaning(problems: int) -> str:
    return ": the course cannot run until a problem is gone" if problems else ": the course can run"
