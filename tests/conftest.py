"""What all tests share: one thread, no model hub, signals that arrive, the real checkpoint loaded once per process, and
a data folder of their own: no test touches the answers of whoever runs it."""

import os
import shutil
import signal
import sys
import tempfile
import threading

# Before torch is imported: test processes side by side are faster with one thread each, and sums keep their order.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

os.environ["COURSE_DATA"] = tempfile.mkdtemp(prefix="course-tests-")

# A shell ignores SIGINT for what it starts in the background, and programs inherit that; tests interrupt programs.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # nohup has SIGHUP ignored, and programs inherit that, too; a handler is not inherited.
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)

import pytest
from engine_report import pytest_terminal_summary  # noqa: F401

from course_lib.checkpoints import Checkpoint, load

DATA = os.environ["COURSE_DATA"]


def pytest_unconfigure() -> None:
    shutil.rmtree(DATA, ignore_errors=True)


@pytest.fixture(scope="session")
def smollm2() -> Checkpoint:
    """SmolLM2-135M-Instruct in float32 on the CPU, from the user's cache folder (fetched if it is not there)."""
    return load("smollm2")
