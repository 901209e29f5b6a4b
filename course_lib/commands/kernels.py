"""Executes one notebook from its top in a fresh kernel and says what came of it.

The one idea: a run that proves something starts from nothing. The kernel is this very interpreter, whatever kernels are
installed; it works in an empty temporary folder, with empty settings and an empty data folder, so that it can neither
lean on what lies about nor change a learner's progress. The file itself is never written.
"""

import contextlib
import json
import logging
import os
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import nbformat
import nbformat.reader
import psutil
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

KERNEL = "python3"
# A server that stops interrupts its kernels first; one that is still starting would answer with a traceback. (A kernel
# that waits for cells does not hear an interrupt either; in a cell it does.)
START_UNINTERRUPTED = (
    "import runpy, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "runpy.run_module('ipykernel_launcher', run_name='__main__')"
)
SAMPLE_EVERY_S = 0.05
QUIET = logging.getLogger("course_lib.kernels")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


class CourseKernels(KernelSpecManager):
    """Knows one kernel, python3: the interpreter that runs this. Installed kernel specs play no part.

    It warns of nothing, for at each start it would warn that a kernel on this machine's loopback is not encrypted."""

    def _kernel_dirs_default(self) -> list[str]:
        return []

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        spec = super().get_kernel_spec(kernel_name)
        argv = [*spec.argv, f"--log-level={logging.ERROR}"]
        if "ipykernel_launcher" in argv:
            at = argv.index("ipykernel_launcher")
            argv[at - 1 : at + 1] = ["-c", START_UNINTERRUPTED]
        spec.argv = argv
        return spec


class NotebookProblem(Exception):
    """A file that is not a notebook, or one that cannot be executed; the message is one line."""


@dataclass(frozen=True)
class Execution:
    """What came of executing a notebook. `error` is empty if every cell ran, else one line; `cell` is the number that
    Jupyter would show beside the cell that failed (None if it was none of them). Memory is the largest seen, of the
    kernel and its child processes together."""

    notebook: NotebookNode
    time_s: float
    peak_memory_bytes: int
    cell: int | None = None
    error: str = ""


def read_notebook(path: Path) -> NotebookNode:
    """The notebook at `path`, in the current format. Raises NotebookProblem, saying why it is none."""
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotebookProblem(f"not a notebook: not JSON ({error})") from error
    except OSError as error:
        raise NotebookProblem(f"cannot be read: {error.strerror}") from error
    if not isinstance(data, dict) or not isinstance(data.get("nbformat"), int):
        raise NotebookProblem("not a notebook: JSON, but without an nbformat number")
    try:
        notebook = nbformat.convert(nbformat.reader.reads(text), nbformat.current_nbformat)
        with warnings.catch_warnings(action="ignore"):  # cell ids that are missing are made
            nbformat.validate(notebook)
        return notebook
    except Exception as error:  # whatever half a notebook makes the libraries raise
        raise NotebookProblem(f"not a valid notebook: {_first_line(str(error))}") from error


def execute(
    notebook: NotebookNode, timeout_s: float, on_cell: Callable[[int, int], None] = lambda done, total: None
) -> Execution:
    """Run all code cells of `notebook`, in place, in a kernel of their own; stops at the first that fails.

    `timeout_s` is the longest that one cell may take. `on_cell` is told how many code cells are done, of how many.
    Cells tagged raises-exception may fail, those tagged skip-execution are left out. Raises NotebookProblem for a
    notebook without cells or for another kernel. However this ends, the kernel ends with it.
    """
    wanted = notebook.metadata.get("kernelspec", {}).get("name", KERNEL)
    if wanted != KERNEL:
        raise NotebookProblem(f"wants the kernel {wanted!r}; the course has {KERNEL} (Jupyter: Kernel, Change Kernel)")
    if not notebook.cells:
        raise NotebookProblem("it has no cells")
    clear_outputs(notebook)
    total = sum(runs(cell) for cell in notebook.cells)
    start, number, error, memory = time.perf_counter(), 0, "", PeakMemory()
    with tempfile.TemporaryDirectory(prefix="course-", ignore_cleanup_errors=True) as name:
        log = Path(name) / "kernel.log"
        try:
            with _kernel(notebook, Path(name), log, timeout_s) as (client, pid), memory.watching(pid):
                for index, cell in enumerate(notebook.cells):
                    if runs(cell):
                        on_cell(number, total)
                        number += 1
                        client.execute_cell(cell, index, execution_count=number)
                        join_streams(cell)
                on_cell(total, total)
        except (KeyboardInterrupt, SystemExit):
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # it would complain of the tasks cut off here
            raise
        except (CellExecutionError, CellTimeoutError, RuntimeError) as problem:
            error = _explain(problem, timeout_s, log)
    return Execution(notebook, time.perf_counter() - start, memory.bytes, (number or None) if error else None, error)


def runs(cell: NotebookNode) -> bool:
    """Whether executing a notebook executes this cell."""
    is_code = cell.cell_type == "code" and bool(cell.source.strip())
    return is_code and "skip-execution" not in cell.metadata.get("tags", [])


def clear_outputs(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def join_streams(cell: NotebookNode) -> None:
    """Make all that a cell wrote to a stream one output, where its first piece was, standard output first. Of a line
    that was written over (`\\r`, as progress bars do), only the last is left.

    nbclient can do this, but in a time that grows with the square of the length of a line.
    """
    pieces: dict[str, list[str]] = {}
    kept = []
    for output in cell.outputs:
        if output.output_type != "stream" or output.name not in pieces:
            kept.append(output)
        if output.output_type == "stream":
            pieces.setdefault(output.name, []).append(output.text)
    for output in kept:
        if output.output_type == "stream":
            output.text = "\n".join(map(_last_written, "".join(pieces[output.name]).split("\n")))
    for place, pair in enumerate(pairwise(kept)):
        if [output.get("name") for output in pair] == ["stderr", "stdout"]:
            kept[place : place + 2] = reversed(pair)
            break
    cell.outputs = kept


def _last_written(line: str) -> str:
    text = line.rstrip("\r")
    return text.rpartition("\r")[2] + line[len(text) :]


class PeakMemory:
    """The most resident memory that a process and its children were seen to hold together, in bytes. What they share is
    counted once for each; a peak shorter than the sampling interval can be missed."""

    def __init__(self) -> None:
        self.bytes = 0

    @contextlib.contextmanager
    def watching(self, pid: int) -> Iterator[None]:
        """Sample in a thread while the body runs, and once more at its end."""
        done = threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_EVERY_S):
                self._sample(pid)

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._sample(pid)

    def _sample(self, pid: int) -> None:
        total = 0
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            for one in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.Error):  # a child may be gone by now
                    total += one.memory_info().rss
        self.bytes = max(self.bytes, total)


@contextlib.contextmanager
def _kernel(notebook: NotebookNode, folder: Path, log: Path, timeout_s: float) -> Iterator[tuple[NotebookClient, int]]:
    """A client, and the process id of its own kernel, which works in `folder`; what that says outside of cells goes to
    `log`."""
    manager = AsyncKernelManager(
        kernel_name=KERNEL, kernel_spec_manager=CourseKernels(), connection_file=str(folder / "kernel.json")
    )
    client = NotebookClient(
        notebook,
        km=manager,
        timeout=max(1, round(timeout_s)),
        record_timing=False,
        store_widget_state=False,
        log=QUIET,
    )
    (folder / "work").mkdir()
    environment = {
        **os.environ,
        "COURSE_DATA": str(folder / "data"),
        "IPYTHONDIR": str(folder / "ipython"),
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
    }
    try:
        with log.open("wb") as said:
            run_sync(manager.start_kernel)(cwd=str(folder / "work"), env=environment, stdout=said, stderr=said)
        client.start_new_kernel_client()
        yield client, getattr(manager.provisioner, "pid", 0)
    finally:
        if client.kc is not None:
            client.kc.stop_channels()
        if manager.has_kernel:
            run_sync(manager.shutdown_kernel)(now=True)


def _explain(problem: Exception, timeout_s: float, log: Path) -> str:
    """What stopped a notebook, in one line."""
    if isinstance(problem, CellExecutionError):
        return _first_line(f"{problem.ename}: {problem.evalue}")
    if isinstance(problem, CellTimeoutError):
        return f"the cell took longer than {timeout_s:g} s (--timeout allows more)"
    said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    reason = _first_line("\n".join(line for line in said.splitlines() if "WARNING" not in line))
    if isinstance(problem, DeadKernelError):
        return f"the kernel died: {reason or 'often the memory was used up'}"
    return f"the kernel did not start: {reason or _first_line(str(problem))}"


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
