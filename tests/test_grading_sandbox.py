"""The sandbox: what is inside and what is not, what a notebook may use there, and that everything comes to an end."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_assignment import QUICK, RIGHT, needs_sandbox, room

from course_lib.checks import exercise, file_stem, names
from course_lib.grading.sandbox import Limits, Sandbox
from course_lib.grading.session import Ended, Session, alive
from course_lib.grading.system_calls import REFUSED
from course_lib.grading.trimmed import PACKAGE


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with room(("course_lib.caches.paged", "course_lib.model", "sympy")) as made:
        yield made


@contextlib.contextmanager
def session(sandbox: Sandbox, limits: Limits = QUICK) -> Iterator[Session]:
    begun = sandbox.start(limits)
    try:
        yield begun
    finally:
        begun.close()


def run(session: Session, source: str, seconds: float = 10) -> Any:
    """What a cell raised, as "Type: message"; None if it raised nothing."""
    answer = session.ask({"do": "run", "source": source}, seconds)
    raised = answer.get("raised")
    return f"{raised['type']}: {raised['message']}" if isinstance(raised, dict) else answer.get("stopped")


# What is there


@needs_sandbox
def test_inside_there_is_an_environment_to_read_one_folder_to_write_and_nothing_else(sandbox: Sandbox) -> None:
    with session(sandbox) as at_work:
        looks = f"""
            import os, pathlib, sys
            def writable(folder):
                try:
                    pathlib.Path(folder, "x").write_text("x")
                    return True
                except OSError:
                    return False
            allowed = {{"HOME", "TMPDIR", "PATH", "LANG", "USER", "LOGNAME", "PWD", "IPYTHONDIR", "HF_HUB_OFFLINE",
                "MPLBACKEND", "MPLCONFIGDIR", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}}
            assert set(os.environ) <= allowed | {{"COLUMNS", "LINES", "PAGER", "GIT_PAGER", "CLICOLOR", "FORCE_COLOR",
                "TERM"}}, set(os.environ) - allowed
            assert os.getuid() not in (0, {os.getuid()}) and os.getgroups() in ([], [os.getgid()])
            assert os.listdir("/etc") == ["ld.so.cache"], os.listdir("/etc")
            assert not os.path.exists("/home") and not os.path.exists("/usr/bin/su") and not os.path.exists("/sys")
            assert not os.path.exists({str(PACKAGE)!r})
            assert os.path.isfile(sys.executable)
            assert [f for f in ("/", "/course", "/usr/lib", "/dev", sys.prefix + "/lib", "/proc") if writable(f)] == []
            assert writable("/tmp") and writable("/dev/shm") and os.getcwd() == os.environ["HOME"] == "/tmp"
            status = pathlib.Path("/proc/self/status").read_text()
            assert "CapEff:\\t0000000000000000" in status and "NoNewPrivs:\\t1" in status
            assert len([p for p in os.listdir("/proc") if p.isdigit()]) == 2
            assert [line.split(":")[0].strip() for line in open("/proc/net/dev")][2:] == ["lo"]
            """
        assert run(at_work, "if True:\n" + looks) is None


@needs_sandbox
def test_every_submission_meets_an_empty_folder_and_an_account_of_its_own(sandbox: Sandbox) -> None:
    accounts = set()
    for _ in range(2):
        with session(sandbox) as at_work:
            assert run(at_work, "import os\nassert not os.path.exists('note') and not os.listdir('/dev/shm')") is None
            assert run(at_work, "open('note', 'w').write('for the next one')") is None
            assert at_work.worker is not None
            accounts.add(at_work.worker.uids().real)
    assert len(accounts) == (2 if os.getuid() == 0 else 1) and (0 not in accounts or os.getuid() != 0)


@needs_sandbox
def test_what_is_ruled_out_does_not_exist_and_the_rest_of_the_library_does(sandbox: Sandbox) -> None:
    with session(sandbox, Limits()) as at_work:
        for name in ("caches.paged", "caches.prefix", "model", "generation", "grading", "cli", "quizzes", "progress",
                     "checks.ex03_append", "checks.contract"):  # fmt: skip
            assert "ModuleNotFoundError" in run(at_work, f"import course_lib.{name}"), name
        works = """
            from course_lib.caches import ContiguousCache
            from course_lib.caches.pool import BlockPool
            from course_lib.study import check, hint, points, a_name_of_tomorrow
            from course_lib.study.figures import anything
            import course_lib.metrics, course_lib.sizing.memory, numpy, matplotlib
            with points("x") as nothing: check("y").nothing(hint)
            """
        assert run(at_work, "if True:\n" + works, 60) is None
        assert run(at_work, "from course_lib.caches import *\nassert 'PagedCache' not in dir()") is None
        assert "AttributeError" in run(at_work, "import sympy\nsympy.Symbol")  # a package: an empty folder


@needs_sandbox
@pytest.mark.parametrize("assignment", sorted({name.partition(".")[0] for name in names()}))
def test_what_runs_beside_an_answer_does_without_what_the_exercise_rules_out(assignment: str) -> None:
    checks = [name for name in names() if name.startswith(f"{assignment}.")]
    rules = {rule for name in checks for rule in exercise(name).rules_out}
    with Sandbox(rules) as own, session(own, Limits()) as at_work:
        assert at_work.ask({"do": "prepare", "stems": [file_stem(name) for name in checks]}, 60) == {}


# What a notebook may use

FEATURES = {
    "await": "import asyncio\nx = await asyncio.sleep(0, 3)\nassert x == 3",
    "async functions": "async def f(): return 4\nassert await f() == 4",
    "magics": "%time 1 + 1\n%timeit -n1 -r1 1\n%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n%who",
    "cell magics": "%%capture out\nprint(3)",
    "display": "from IPython.display import HTML, Markdown\ndisplay(HTML('<b>'), Markdown('*'), {1: 2})\n[1, 2]",
    "plots": "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\nplt.savefig('x.png')",
    "commands of the system": "!pip install x\nfiles = !ls\nassert list(files) == []",
    "files": "open('a.txt', 'w').write('x')\nimport tempfile\ntempfile.TemporaryFile().write(b'x')",
    "processes": "import subprocess, sys\nassert subprocess.check_output([sys.executable, '-c', 'print(7)'])",
    "several processes": "from multiprocessing import Pool\nwith Pool(2) as pool: assert pool.map(abs, [-1]) == [1]",
    "threads and processes of torch": """
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(2)
assert torch.ones(300, 300) @ torch.ones(300, 300) is not None
assert [int(x) for x in DataLoader([1, 2, 3], num_workers=1)] == [1, 2, 3]
""",
    "sockets": """
import socket
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6): socket.socket(family).close()
a, b = socket.socketpair()
for family in (16, 17, 38, 40, 44):  # those of the kernel, of packets, of its ciphers, of virtual machines, XDP
    try:
        socket.socket(family, socket.SOCK_RAW)
    except OSError as error:
        assert error.errno == 97
    else:
        raise AssertionError(family)
""",
    "exit": "exit()\nquit()",
    "the last result": "x = 1\nx",
    "classes that are pickled": "import pickle\nclass A: pass\npickle.loads(pickle.dumps(A()))",
    "printing": "import sys\nprint('x', file=sys.stderr)\nsys.stdout.buffer.write(b'x')\nsys.stdout.flush()",
    "input": "try:\n    input('Name? ')\nexcept EOFError:\n    x = 3\nassert x == 3",
    "passwords": "import getpass\ntry:\n    getpass.getpass()\nexcept EOFError:\n    pass",
    "reading": "import sys\nassert sys.stdin.read() == ''",
}  # fmt: skip


@needs_sandbox
def test_what_learners_use_works_and_nothing_waits_for_anybody(sandbox: Sandbox) -> None:
    with session(sandbox, Limits()) as at_work:
        assert {name: run(at_work, source, 60) for name, source in FEATURES.items()} == dict.fromkeys(FEATURES)


@needs_sandbox
def test_an_interrupted_cell_leaves_everything_but_what_it_has_started(sandbox: Sandbox) -> None:
    with session(sandbox) as at_work:
        started = len(at_work.family())
        source = (
            "import os, time\nfor _ in range(3): os.fork() or (os.setsid(), os.fork(), time.sleep(99), os._exit(0))"
        )
        assert run(at_work, source + "\ntime.sleep(99)", 1) is True
        until = time.monotonic() + 20
        while sum(map(alive, at_work.family())) > started and time.monotonic() < until:
            time.sleep(0.05)
        assert sum(map(alive, at_work.family())) == started
        assert run(at_work, "x = 1") is None
        assert run(at_work, "import time\nx = 2\ntime.sleep(60)\nx = 3", 0.5) is True
        assert run(at_work, "assert x == 2") is None
        assert at_work.why == ""


@needs_sandbox
def test_what_is_read_of_cells_is_what_they_import_and_define(sandbox: Sandbox) -> None:
    source = """
        %load_ext x
        import a.b as c, d
        if c:
            from e.f import g
            def h(): import i
        try:
            class J:
                def k(self): __import__("l.m")
        except ImportError: n = 1
        importlib.import_module("o")
        """
    with session(sandbox) as at_work:
        read = at_work.ask({"do": "read", "source": source.replace("\n        ", "\n")}, 5)
        assert set(read["imports"]) == {"a.b", "d", "e.f", "e.f.g", "i", "l.m", "o"}  # type: ignore[arg-type]
        assert read["defines"] == ["h", "J"]
        assert at_work.ask({"do": "read", "source": "%%time\nimport p"}, 5)["imports"] == ["p"]
        assert at_work.ask({"do": "read", "source": "def ("}, 5) == {"imports": [], "defines": []}


# Ends


@needs_sandbox
def test_nothing_is_left_of_a_session_and_a_processor_is_free_again(sandbox: Sandbox) -> None:
    with session(sandbox) as one, session(sandbox) as other:
        assert run(one, "import os\nfor _ in range(3): os.fork() or __import__('time').sleep(60)") is None
        families = [*one.family(), *other.family()]
        assert len(families) >= 6
        if len(os.sched_getaffinity(0)) > 1:
            used = [set(each.worker.cpu_affinity()) for each in (one, other) if each.worker]
            assert used[0] != used[1] and all(len(each) == 1 for each in used)
    assert not any(map(alive, families))
    assert threading.active_count() < 20
    with session(sandbox) as again, session(sandbox):
        assert again.worker is not None and len(again.worker.cpu_affinity()) == 1


@needs_sandbox
def test_a_driver_that_is_killed_takes_its_sandbox_with_it(tmp_path: Path) -> None:
    program = """
import time
from course_lib.grading.sandbox import Limits, Sandbox
session = Sandbox().start(Limits())
print(session.worker.pid, flush=True)
session.ask({"do": "run", "source": "import os; os.fork(); os.setsid()\\nwhile True: pass"}, 60)
"""
    root = str(Path(__file__).parents[1])
    command, environment = [sys.executable, "-c", program], os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, env=environment) as driver:
        assert driver.stdout is not None
        worker = psutil.Process(int(driver.stdout.readline()))
        time.sleep(0.3)
        driver.send_signal(signal.SIGKILL)
    until = time.monotonic() + 20
    while alive(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not alive(worker)


@needs_sandbox
def test_total_time_ends_a_session_even_when_nobody_asks(sandbox: Sandbox) -> None:
    at_work = sandbox.start(QUICK, 1.0)
    until = time.monotonic() + 20
    while not at_work.why and time.monotonic() < until:
        time.sleep(0.05)
    with pytest.raises(Ended, match="used up the time that there is for the whole notebook"):
        at_work.ask({"do": "run", "source": "1"}, 5)
    at_work.close()


@needs_sandbox
def test_a_sandbox_that_does_not_start_says_so_and_leaves_nothing(sandbox: Sandbox) -> None:
    with pytest.raises(Ended, match="nothing came within 0.001 s"):
        sandbox.start(Limits(start_s=0.001))
    assert psutil.Process().children() == [] or all(
        "bwrap" not in child.name() for child in psutil.Process().children()
    )


@needs_sandbox
@pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine")
def test_the_filter_is_in_force(sandbox: Sandbox) -> None:
    column = ("x86_64", "aarch64").index(platform.machine())
    numbers = {name: each[column] for name, each in REFUSED.items()}
    with session(sandbox) as at_work:
        asks = f"""
            import ctypes
            call = ctypes.CDLL(None, use_errno=True).syscall
            for name, number in {numbers}.items():
                assert call(number, 0, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 38, name
            """
        assert run(at_work, "if True:\n" + asks) is None


def test_trusted_work_runs_the_same_way_in_a_folder_of_its_own() -> None:
    with room(("course_lib.caches",), trusted=True) as mine:
        with session(mine) as at_work:
            assert run(at_work, "import os\nassert os.getcwd() == os.environ['HOME']\nopen('note', 'w')") is None
            assert "ModuleNotFoundError" in run(at_work, "import course_lib.caches")
            assert run(at_work, "while True: pass", 0.3) is True
            assert run(at_work, RIGHT) is None
            answer = at_work.ask(
                {"do": "task", "stem": "ex99_double", "function": "double", "inputs": {"cases": {"a": [1, 2]}}}, 5
            )
            assert answer["elsewhere"] == ""
            assert answer["outputs"] == {"starter": False, "cases": {"a": {"came": [2, 4], "ended": None}}}
            with pytest.raises(Ended):
                run(at_work, "import os\nos.fork() or __import__('time').sleep(100)\nos._exit(0)")
            family = at_work.family()
        assert not any(process.is_running() for process in family)
    assert not mine.folder.exists()
