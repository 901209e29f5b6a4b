"""A fresh sandbox for each submission: walls around one process, which answers questions in plain data.

The one idea: a learner's code can do what it likes where nothing is worth taking and nobody else is met. `Sandbox`
prepares once what all submissions of a grading run may see; `start` then makes an empty room with a process of its own
in it, and what that process may use is limited from inside (`inside`) and from outside (`session`).

Why no Jupyter kernel: a kernel talks through five sockets in a protocol of many messages, signed with a key that the
learner's code has as well, and its driver keeps whatever it displays. Nothing of that is needed to give marks. Here
there are two pipes, one answer to each question, and one size that no answer exceeds. Cells still run in IPython, so
`await`, `%magics`, `display` and plots work; commands of the system (`!pip install`) do nothing, `input()` raises
EOFError at once.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from course_lib.grading import bubblewrap
from course_lib.grading.session import Limits, Session
from course_lib.grading.system_calls import seccomp_filter
from course_lib.grading.trimmed import NAME, trimmed

__all__ = ["Limits", "NoSandbox", "Sandbox"]

INSIDE = Path(__file__).with_name("inside.py")
PASSED_ON = ("SYSTEMROOT", "TEMP", "TMP")  # without these Python does not start on Windows


class NoSandbox(RuntimeError):
    """There is no sandbox on this machine; the message says why and what to do."""


class Sandbox:
    """What a grading run starts submissions in. Use it in a `with`; it removes its temporary folder at the end.

    `rules_out` are modules that do not exist inside. `trusted` means no walls: the same process with the same limits,
    but with the rights of whoever starts it; for one's own work only. Otherwise raises NoSandbox where there is none.
    """

    def __init__(self, rules_out: Iterable[str] = (), *, trusted: bool = False) -> None:
        if not trusted and (why := Sandbox.why_not()):
            raise NoSandbox(why)
        self.rules_out = tuple(sorted(set(rules_out)))
        self.trusted = trusted
        self.folder = Path(tempfile.mkdtemp(prefix="course-grading-"))
        self.course = self.folder / "course"
        self.course.mkdir()
        trimmed(self.course, self.rules_out)
        shutil.copyfile(INSIDE, self.course / NAME / INSIDE.name)
        (self.course / NAME / INSIDE.name).chmod(0o644)

    @staticmethod
    def why_not() -> str:
        """Why there is no sandbox on this machine; empty if there is one. It is tried out once."""
        return bubblewrap.why_not()

    @staticmethod
    def available() -> bool:
        return not Sandbox.why_not()

    def start(self, limits: Limits, seconds: float | None = None) -> Session:
        """A new process in a new sandbox, which lives for `seconds` (`limits.total_s`).

        Raises session.Ended, or OSError, if it did not start: no learner's code has been run by then.
        """
        settings = {
            "account": None if self.trusted or os.name != "posix" else bubblewrap.account(),
            "memory_bytes": limits.memory_bytes,
            "file_bytes": limits.file_bytes,
            "answer_bytes": limits.answer_bytes,
            "processes": None if self.trusted else limits.processes,
            "cpu_s": int(limits.total_s) + 10,
            "packages": [str(folder) for folder in bubblewrap.packages()],
        }
        at_the_end = ExitStack()
        if self.trusted:
            own = Path(tempfile.mkdtemp(prefix="box-", dir=self.folder))
            at_the_end.callback(shutil.rmtree, own, ignore_errors=True)
            command = [*python(self.course), json.dumps(settings)]
            return Session(
                command,
                environment(own),
                limits,
                walled=False,
                at_the_end=at_the_end,
                folder=str(own),
                seconds=seconds,
            )
        with filter_file() as files:
            walls = bubblewrap.walls(self.course, limits.folder_bytes, self.rules_out, *files)
            return Session(
                [*walls, *python(bubblewrap.COURSE), json.dumps(settings)],
                environment(bubblewrap.BOX),
                limits,
                walled=True,
                at_the_end=at_the_end,
                open_files=files,
                cpu=self.processor(at_the_end),
                seconds=seconds,
            )

    def processor(self, until: ExitStack) -> int | None:
        """A processor that no other sandbox of this grading run is on: whoever keeps one busy slows nobody down.

        None if all are taken, by threads of this process or by others.
        """
        import fcntl

        for cpu in sorted(os.sched_getaffinity(0)):
            taken = os.open(self.folder / f"processor-{cpu}", os.O_CREAT | os.O_RDWR, 0o600)
            try:
                fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(taken)
            else:
                until.callback(os.close, taken)
                return cpu
        return None

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@contextmanager
def filter_file() -> Iterator[list[int]]:
    """An open file with the filter of system calls; none where there is no filter."""
    program = seccomp_filter()
    if not program:
        yield []
        return
    read, write = os.pipe()
    try:
        os.write(write, program)
        os.close(write)
        yield [read]
    finally:
        os.close(read)


def python(course: Path) -> list[str]:
    """The program inside: this Python, which takes nothing from its surroundings (-I) and writes no bytecode (-B)."""
    return [sys.executable, "-I", "-B", str(course / NAME / INSIDE.name)]


def environment(box: Path) -> dict[str, str]:
    """All environment variables of a submission. One thread each: many are marked at once."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return threads | {
        "HOME": str(box),
        "TMPDIR": str(box),
        "IPYTHONDIR": str(box / ".ipython"),
        "MPLCONFIGDIR": str(box / ".matplotlib"),
        "MPLBACKEND": "agg",
        "USER": "learner",
        "LOGNAME": "learner",
        "LANG": "C.UTF-8",
        "PATH": os.path.dirname(sys.executable),
        "HF_HUB_OFFLINE": "1",
        **{name: os.environ[name] for name in PASSED_ON if name in os.environ and os.name == "nt"},
    }
