"""Make the course's own Python environment beside this file, then hand over to the `course` command inside it.

    python start.py                      install what is missing, fetch the model, open the first notebook
    python start.py test [PYTEST ARGS]   install what the tests need too, and run all of them
    python start.py serve                install what a real serving engine needs too, and start it
    python start.py COMMAND ...          run one of the commands below; COMMAND --help says more about it
    python start.py --help               show this text and install nothing

    --cpu, before the command            take the CPU-only build of torch: on Linux 3 GB instead of 11

Everything goes into the folder .venv, nothing needs an administrator, and a run that was cut short continues when
it is started again. COURSE_TORCH=cpu does what --cpu does; the choice holds until .venv is deleted.
COURSE_TORCH_INDEX names where that build comes from: another index, or a folder that holds the wheel.
"""

# Only the standard library, and only syntax that Python 3.6 parses: an old Python must get far enough to say it is old.
import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VERSION = "{}.{}".format(*sys.version_info)
if sys.version_info < (3, 11):
    sys.exit("Python " + VERSION + " is too old: the course needs 3.11 or newer, get it at python.org")

HERE = Path(__file__).resolve().parent
VENV = HERE / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / ("python.exe" if os.name == "nt" else "python")
COURSE = BIN / ("course.exe" if os.name == "nt" else "course")
LOG = VENV / "install.log"
STAMP = VENV / "course_stamp.json"

CPU_INDEX = "https://download.pytorch.org/whl/cpu"
PIP_WITH_RAW_PROGRESS = (24, 1)

# What an install takes at its peak: the wheels, pip's copies of them, and what they unpack to.
PEAK_GB = {"cpu": 3.0, "default": 11.0 if sys.platform == "linux" else 3.0}
PEAK_GB_BESIDE_TORCH = 2.0

# What pip or venv write when something outside the course is wrong, and what to say of it. The first match counts.
UNREACHABLE = "cannot reach the package index"
CAUSES = {
    r"No space left on device|\[Errno 28\]|not enough space on the disk": "the disk is full: make room",
    r"ensurepip is not|No module named \W?venv": "this Python lacks its venv module: install it "
    "(Debian, Ubuntu: sudo apt install python3-venv) or use the Python of python.org",
    r"contains the PATH separator": f"no environment can lie in a path with a {os.pathsep!r} in it: move the course to "
    "a folder without it",
    r"Long Path support": "a path is too long for Windows: move the course to a short one such as C:\\course",
    r"Could not fetch URL \S+: (proxy )?connection error|ssl certificate|CERTIFICATE_VERIFY_FAILED|name resolution"
    r"|(NewConnection|NameResolution|ConnectTimeout|ReadTimeout|ConnectionReset|Proxy|Protocol|IncompleteRead)Error"
    r"|Connection (refused|timed out|aborted)|Network is unreachable|Read timed out|not enough bytes were received"
    r"|5\d\d Server Error": UNREACHABLE
    + ": check the network or the proxy (pip reads HTTPS_PROXY and PIP_INDEX_URL; what was downloaded is kept)",
    r"DO NOT MATCH THE HASHES": "a download arrived damaged: empty pip's cache (pip cache purge)",
    r"Permission denied|WinError 5\b": "a file cannot be written: close what uses .venv, or delete .venv",
    r"No matching distribution|ResolutionImpossible": "the package index has no version of some package that fits "
    f"Python {VERSION} and this system: use Python 3.11, with which the course is tested",
}


# Known before anything is installed, so that a mistyped word costs no download.
COMMANDS = {
    "lab": "open your copies of the notebooks in JupyterLab",
    "doctor": "check this machine: versions, model, memory, kernel, tools",
    "fetch": "download the weights of a model once, and verify them",
    "generate": "let a model answer, and see where the time goes",
    "run": "execute notebooks from the top in fresh kernels",
    "build": "for authors: execute the committed notebooks and bring them into normal form",
    "release": "for authors: make the exercises that learners open from their solutions",
    "grade": "for those who teach: mark what was handed in, each notebook in a fresh sandbox",
    "progress": "show what you did and what is next; export, import, reset",
    "size": "say how many bytes a model's KV cache takes, and what fits into a memory",
    "serve": "start a real server with SmolLM2, that of Transformers",
    "loadtest": "send requests to a server and measure what its users wait for",
    "test": "run all tests",
}
EXTRAS = {"test": "test", "serve": "serve"}  # of pyproject.toml: what a command needs beside the course


AGAIN = "run the same command again"


class Problem(Exception):
    """What stops us, as the one line that the user sees: the cause, then the remedy."""

    def __init__(self, line: str, status: int = 1) -> None:
        super().__init__(line)
        self.status = status


def explain(output: str) -> str:
    """One line for what a failed program printed: a cause that we know, or else its own last word."""
    for pattern, line in CAUSES.items():
        if re.search(pattern, output):
            return f"{line}, then {AGAIN}"
    lines = re.findall(r"ERROR: (.+)", output) or output.strip().splitlines() or ["it gave no reason"]
    return lines[-1].strip()


def say(line: str) -> None:
    """Standard output belongs to the command that is handed over to (it may print JSON there)."""
    print(line, file=sys.stderr, flush=True)


def read_stamp() -> dict[str, Any]:
    try:
        return dict(json.loads(STAMP.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return {}


def write_stamp(torch: str, installed: list[str]) -> None:
    """In one piece or not at all: a stamp cut short must not look like an installed course."""
    half = STAMP.with_suffix(".part")
    stamp = {"folder": str(VENV), "python": VERSION, "torch": torch, "installed": installed}
    half.write_text(json.dumps(stamp), encoding="utf-8")
    os.replace(half, STAMP)


def wanted(torch: str, extra: str) -> str:
    """A hash of all that decides what gets installed, and where."""
    files = [(HERE / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256("\0".join([str(VENV), VERSION, torch, extra, *files]).encode()).hexdigest()


def pip_version() -> tuple[int, ...]:
    """pip's version inside .venv; empty where that Python or its pip does not run."""
    try:
        command = [str(PYTHON), "-I", "-c", "import pip; print(pip.__version__)"]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError:
        return ()
    return tuple(int(part) for part in re.findall(r"\d+", done.stdout)[:2]) if done.returncode == 0 else ()


def why_remake(stamp: dict[str, str], torch: str) -> str:
    """Why the .venv that is there cannot be used; empty if it can."""
    if not pip_version():
        return "is broken or half-made"
    if stamp.get("folder", str(VENV)) != str(VENV):
        return f"was made in another folder ({stamp['folder']})"
    if stamp.get("python", VERSION) != VERSION:
        return f"was made by Python {stamp['python']}, this is {VERSION}"
    if stamp.get("torch", torch) != torch:
        return f"holds the {stamp['torch']} build of torch, not the {torch} one"
    return ""


def make_venv(torch: str) -> list[str]:
    """A .venv with pip in it: the one that is there, or a new one. Its stamp says for what it was made, and that
    nothing is installed; what was, comes back.
    """
    if os.path.lexists(VENV):
        reason = why_remake(read_stamp(), torch)
        if not reason:
            before = list(read_stamp().get("installed", []))
            write_stamp(torch, installed=[])
            return before
        if VENV.is_symlink() or not VENV.is_dir():  # what a link points to may hold more than was ours
            raise Problem("no course can be installed into .venv, a link or a file: delete it, then " + AGAIN)
        say(f".venv {reason}: making it anew")
        STAMP.unlink(missing_ok=True)
    say(f"Making .venv with Python {VERSION} ...")
    # --clear, not a removal of our own: the Python that runs this may be the one in .venv.
    command = [getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--clear", str(VENV)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment())
    if done.returncode or not pip_version():
        raise Problem("cannot make .venv: " + explain(done.stdout + done.stderr))
    write_stamp(torch, installed=[])
    return []


@contextlib.contextmanager
def only_one_installs() -> Iterator[None]:
    """The lock is the system's, so a run that was killed leaves none behind. The pip of that run may go on without it,
    and keeps the lock as long.
    """
    with open(HERE / ".venv.lock", "a+") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.set_inheritable(file.fileno(), True)
        except (BlockingIOError, PermissionError):
            raise Problem("another start.py is installing here: wait until it is done, then run this again") from None
        yield


class Progress:
    """One line that says what pip is doing: rewritten in place on a terminal, printed now and then elsewhere."""

    def __init__(self, title: str) -> None:
        self.name = ""
        self.live = sys.stderr.isatty()
        say(title + " ...")

    def feed(self, line: str) -> None:
        """Takes one line of pip's output."""
        named = re.match(r"\s*(?:Collecting|Downloading|Processing) (?:\S*[/\\])?([\w.]+(?:-[\d.]+)?)", line)
        percent = re.match(r"Progress (\d+) of ([1-9]\d*)", line)
        unpacked = re.match(r"Installing collected packages: (.*)", line)
        if named:
            self.name = named[1]
            size = re.search(r"\(\d{2,}\.\d MB\)", line)  # smaller ones are not worth a line that stays
            self.show(self.name, lasting=f"downloading {self.name} {size[0]}" if size else "")
        elif percent:
            self.show(f"{self.name} {100 * int(percent[1]) // int(percent[2])} %")
        elif unpacked:
            count = unpacked[1].count(",") + 1
            self.show(f"unpacking {count} packages", lasting=f"unpacking {count} packages" if count > 20 else "")

    def show(self, text: str, lasting: str = "") -> None:
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            print("\r" + f"  {text}"[:width].ljust(width), end="\r", file=sys.stderr, flush=True)
        elif lasting:
            say("  " + lasting)


def pip_install(title: str, *arguments: str) -> None:
    """Run pip in .venv, its whole story going to the log; raises Problem with one line of it when pip fails."""
    bar = "raw" if pip_version() >= PIP_WITH_RAW_PROGRESS else "off"
    scratch = VENV / "tmp"  # a small /tmp in memory is no place for torch
    details = scratch / "details.log"  # the only place where pip always says that it could not connect
    options = ["--no-input", "--disable-pip-version-check", "--progress-bar", bar, "--log", str(details)]
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    process = subprocess.Popen(
        [str(PYTHON), "-I", "-u", "-m", "pip", "install", *options, *arguments],
        cwd=HERE,
        env={**environment(), "PIP_USER": "0", **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        # Ctrl-C is for us alone, so that what is said about it is one line.
        start_new_session=True,
        close_fds=False,  # the lock is to be held by pip, too: see only_one_installs
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    progress, output = Progress(title), ""
    try:
        with LOG.open("a", encoding="utf-8") as log:
            for line in process.stdout or ():
                progress.feed(line)
                if not line.startswith("Progress "):
                    log.write(line)
                    output += line
        if process.wait() and details.exists():
            output += details.read_text(encoding="utf-8", errors="replace")
    finally:
        if process.poll() is None:  # with what it started to build packages; the next run drops what is half there
            process.kill() if os.name == "nt" else os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(scratch, ignore_errors=True)
        progress.show("")  # last: a terminal that was closed cannot be written to
    if process.returncode:
        raise Problem(explain(output) + " (details: .venv/install.log)")


def site_packages() -> Path:
    return Path(sysconfig.get_path("purelib", "venv", {"base": str(VENV), "platbase": str(VENV)}))


def drop_half_installed() -> None:
    """pip believes that a package is there as soon as its dist-info is, and writes INSTALLER into that at the end."""
    for info in site_packages().glob("*.dist-info"):
        if not (info / "INSTALLER").exists():
            shutil.rmtree(info)
    for leftover in site_packages().glob("~*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def check_space(free_gb: float, needed_gb: float) -> None:
    if free_gb < needed_gb:
        smaller = ", or take the smaller build: python start.py --cpu" if needed_gb > PEAK_GB["cpu"] else ""
        raise Problem(
            f"the disk is too full: {free_gb:.1f} GB free, about {needed_gb:.0f} GB needed: make room{smaller}"
        )


def torch_source() -> list[str]:
    index = os.environ.get("COURSE_TORCH_INDEX") or CPU_INDEX
    return ["--no-index", "--find-links", index] if os.path.isdir(index) else ["--index-url", index]


def install(torch: str, extra: str) -> None:
    """Make .venv right for this course: nothing but a look at the stamp if it is, else venv, torch, all the rest."""
    if wanted(torch, extra) in read_stamp().get("installed", []) and PYTHON.exists() and COURSE.exists():
        return
    with only_one_installs():
        has_torch = any(site_packages().glob("torch-*.dist-info")) and read_stamp().get("torch") == torch
        free = shutil.disk_usage(VENV if VENV.exists() else HERE).free
        check_space(free / 1e9, PEAK_GB_BESIDE_TORCH if has_torch else PEAK_GB[torch])
        before = make_venv(torch)
        LOG.write_bytes(b"")
        drop_half_installed()
        if pip_version() < PIP_WITH_RAW_PROGRESS:
            try:
                pip_install("Upgrading pip", "pip>=24.1")
            except Problem as problem:
                if UNREACHABLE in str(problem):
                    raise  # for any other reason (a mirror without pip in it) the pip that is there will do
        # torch alone first: it is most of the download, and once unpacked it need not be fetched again.
        source = ["--no-deps", *torch_source()] if torch == "cpu" else []
        pip_install("Installing 1/2: torch", *source, "-c", "constraints.txt", "torch")
        target = f".[{extra}]" if extra else "."
        pip_install("Installing 2/2: the course and its libraries", "-c", "constraints.txt", "-e", target)
        kept = {wanted(torch, each) for each in EXTRAS.values()}.intersection(before)
        write_stamp(torch, installed=[wanted(torch, ""), wanted(torch, extra), *kept])


def show_help() -> None:
    """A reader that goes away (`| head`) is no fault."""
    commands = "\n".join(f"    {name:9} {text}" for name, text in COMMANDS.items())
    try:
        print((__doc__ or "").strip() + "\n\nCommands:\n" + commands, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains as it ends
        if not isinstance(error, BrokenPipeError):
            raise


def environment() -> dict[str, str]:
    """What activating .venv would set: programs that start others by their bare name find those of the course."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}
    return {**variables, "VIRTUAL_ENV": str(VENV), "PATH": str(BIN) + os.pathsep + os.environ.get("PATH", os.defpath)}


def course_environment() -> dict[str, str]:
    """That, and how the user calls `course`: through this file."""
    return {**environment(), "COURSE_PROGRAM": "python start.py"}


def run(command: list[str], variables: dict[str, str]) -> int:
    """Run a command of .venv to its end; it answers Ctrl-C first, then we stop too."""
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        status = subprocess.call(command, env=variables)
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt
    return status


def hand_over(words: list[str]) -> int:
    """Become `course WORDS`: where the system can, the very same process, so that signals and status are its own."""
    command = [str(COURSE), *words]
    if os.name != "nt":
        os.execve(command[0], command, course_environment())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return subprocess.call(command, env=course_environment())


def fetch() -> int:
    return run([str(COURSE), "fetch", "smollm2"], course_environment())


def parse(arguments: list[str]) -> tuple[str, list[str]]:
    """The build of torch asked for (or the one that .venv was made for) and the words after our own options."""
    words = list(arguments)
    asked = os.environ.get("COURSE_TORCH", "")
    if asked not in ("", "cpu", "default"):
        raise Problem(f"COURSE_TORCH={asked} is not known: set it to cpu or to default, or unset it", status=2)
    if words[:1] == ["--cpu"]:
        asked = "cpu"
        del words[0]
    if words and words[0].startswith("-"):
        raise Problem(f"no such option: {words[0]} (python start.py --help shows those there are)", status=2)
    if words and words[0] not in COMMANDS:
        near = [name for name in COMMANDS if name[:2] == words[0][:2]]
        meant = f"; did you mean {near[0]}?" if near else ""
        raise Problem(f"no such command: {words[0]} (python start.py --help shows those there are{meant})", status=2)
    if asked == "cpu" and sys.platform != "linux":
        say("--cpu changes nothing here: only on Linux is there a larger build to avoid")
        asked = ""
    return asked or read_stamp().get("torch", "default"), words


def main(arguments: list[str]) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):  # also where whoever started us had them ignored
        signal.signal(number, signal.default_int_handler)
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which is what nohup does
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        if arguments[:1] in (["-h"], ["--help"], ["help"]):
            show_help()
            return 0
        torch, words = parse(arguments)
        test = words[:1] == ["test"]
        asks = not test and bool({"-h", "--help"}.intersection(words[1:2]))
        if asks and not COURSE.exists():
            say(f"The help of {words[0]} comes with the course, which is not installed yet: installing it first")
        install(torch, EXTRAS.get(words[0], "") if words and not asks else "")
        if test:
            return run([str(PYTHON), str(HERE / "tests" / "run_all.py"), *words[1:]], environment())
        return hand_over(words) if words else fetch() or hand_over(["lab"])
    except KeyboardInterrupt:
        say(f"Stopped; what was downloaded is kept: {AGAIN} to continue")
        return 130
    except Problem as problem:
        say(f"start.py: {problem}")
        return problem.status
    except OSError as error:
        remedy = "make room on the disk" if error.errno == errno.ENOSPC else AGAIN
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            remedy = "close what uses that file, or copy the course to a folder of your own"
        say(f"start.py: {error}: {remedy}")
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
