"""`course run` on small notebooks, with real kernels."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import psutil
import pytest
from nbformat import v4
from small_notebooks import Save, code, nothing, saver

from course_lib.commands.build import build_one
from course_lib.commands.kernels import execute, read_notebook
from course_lib.commands.run import run_one

COURSE = Path(sys.executable).with_name("course")


@pytest.fixture
def save(tmp_path: Path) -> Save:
    return saver(tmp_path)


def run(path: Path, timeout_s: float = 60) -> dict[str, object]:
    return run_one(path, timeout_s, nothing)


def test_notebook_runs_in_this_interpreter_apart_from_everything_else(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A kernel spec of the same name that would start something else, and a folder of answers that must stay as it is.
    spec = tmp_path / "jupyter/kernels/python3/kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(
        json.dumps({"argv": ["/bin/false", "{connection_file}"], "display_name": "x", "language": "python"})
    )
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "answers"))
    path = save(
        v4.new_markdown_cell("# Text"),
        "import os, sys, pathlib\npathlib.Path('left behind').write_text('x')",
        "print(sys.executable)\nprint(os.getcwd())\nprint(os.environ['COURSE_DATA'])\nprint(os.listdir())",
    )
    before = path.read_bytes()
    seen: list[tuple[int, int]] = []
    done = execute(read_notebook(path), 60, lambda *state: seen.append(state))
    assert (done.error, done.cell) == ("", None)
    executable, folder, answers, files = done.notebook.cells[2].outputs[0].text.splitlines()
    assert executable == sys.executable
    assert files == "['left behind']"
    assert not Path(folder).exists(), "the temporary folder is gone"
    assert answers != str(tmp_path / "answers")
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["jupyter", "some.ipynb"]
    assert seen == [(0, 2), (1, 2), (2, 2)]


def test_what_the_user_has_set_for_python_and_figures_changes_no_notebook(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    startup = tmp_path / "ipython/profile_default/startup"
    startup.mkdir(parents=True)
    (startup / "mine.py").write_text("of_the_user = 1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLBACKEND", "agg")
    drawn = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()"
    done = execute(read_notebook(save("'of_the_user' in globals()", drawn)), 60)
    known, figure = (cell.outputs[-1].data for cell in done.notebook.cells)
    assert known["text/plain"] == "False" and "image/png" in figure


def test_failing_cell_is_named_with_one_line_of_its_error(save: Save) -> None:
    path = save(
        "1", v4.new_markdown_cell("text"), "", "raise ValueError('row 2 needs 17 slots\\nand more')", "print(1)"
    )
    row = run(path)
    assert row["result"] == "failed"
    assert row["cell"] == 2, "the number that Jupyter shows: text and empty cells do not count"
    assert row["error"] == "ValueError: row 2 needs 17 slots"


def test_what_a_cell_prints_is_one_output_of_each_stream_and_a_line_may_be_long(save: Save) -> None:
    """A progress bar writes its line over and over; only the last is left. The time grows with the text, no faster."""
    bar = "import sys\nfor n in range(3): print(f'{n} of 2', end='\\r', flush=True)\nprint('done  \\r\\n1')"
    both = "print('e', file=sys.stderr, flush=True)\ndisplay(7)\nprint('a', flush=True)\ndisplay(8)\nprint('b')"
    long = "print('x' * 5_000_000)\nprint('y' * 5_000_000, file=sys.stderr)"
    done = execute(read_notebook(save(bar, both, long)), 60)
    assert done.error == "" and done.time_s < 20, "of the length squared it would take an hour"
    found = [
        [output.get("text") or output.data["text/plain"] for output in cell.outputs] for cell in done.notebook.cells
    ]
    assert found[0] == ["done  \r\n1\n"]
    assert found[1] == ["e\n", "7", "a\nb\n", "8"]
    assert [set(text) for text in found[2]] == [{"x", "\n"}, {"y", "\n"}], "standard output first"
    assert [len(text) for text in found[2]] == [5_000_001, 5_000_001]


def test_tagged_cells_may_fail_or_be_left_out(save: Save) -> None:
    path = save(code("1 / 0", "raises-exception"), code("raise SystemError", "skip-execution"), "x = 1")
    assert run(path)["result"] == "ok"


def test_kernel_that_dies_and_cell_that_hangs_are_reported(save: Save) -> None:
    row = run(save("import os", "os._exit(1)"))
    assert (row["result"], row["cell"]) == ("failed", 2) and "the kernel died" in str(row["error"])
    row = run(save("import time\ntime.sleep(600)"), timeout_s=1)
    assert (row["result"], row["cell"]) == ("failed", 1) and "longer than 1 s" in str(row["error"])
    assert not psutil.Process().children(recursive=True), "no kernel is left"


JULIA = v4.new_notebook(
    cells=[v4.new_code_cell("1")], metadata={"kernelspec": {"name": "julia-1.9", "display_name": "Julia"}}
)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "nbformat"),
        ("\udcff", "not JSON"),
        ('{"nbformat": 4, "nbformat_minor": 5}', "not a valid notebook"),
        ('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{"cell_type": "x"}]}', "not a valid notebook"),
        ('{"nbformat": 99, "metadata": {}, "cells": []}', "not a valid notebook"),
        (nbformat.writes(v4.new_notebook()), "no cells"),
        (nbformat.writes(JULIA), "julia-1.9"),
    ],
    ids=["half", "list", "bytes", "no cells key", "odd cell", "future", "no cells", "kernel"],
)
def test_what_is_no_notebook_gets_a_row_that_says_why(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "odd.ipynb"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    row = run(path)
    assert row["result"] == "failed" and row["cell"] is None
    assert said in str(row["error"]) and "\n" not in str(row["error"])
    row = build_one(path, 60, False, nothing)
    assert row["result"] == "failed" and said in str(row["error"])
    assert path.read_bytes() == content.encode("utf-8", "surrogateescape")


def test_peak_memory_is_that_of_the_kernel_and_its_children(save: Save) -> None:
    hold = "import subprocess, sys, time\n{}block = b'1' * 200_000_000\ntime.sleep(0.4)"
    child = 'subprocess.run([sys.executable, "-c", "import time; block = b\'1\' * 200_000_000; time.sleep(0.6)"])'
    both = run(save(hold.format(""), f"{child}"))
    assert both["result"] == "ok"
    # The kernel itself takes about 60 MB; its block and its child's block live at the same time.
    assert 450 < float(str(both["peak_memory_mb"])) < 650


def test_interrupted_run_leaves_no_kernel_and_no_folder(save: Save, tmp_path: Path) -> None:
    path = save("import os\nopen(os.environ['STARTED'], 'w').write(str(os.getpid()))\nimport time; time.sleep(600)")
    started, scratch = tmp_path / "started", tmp_path / "scratch"
    scratch.mkdir()
    for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        started.unlink(missing_ok=True)
        process = subprocess.Popen(
            [str(COURSE), "run", str(path)],
            env={**os.environ, "STARTED": str(started), "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until(lambda: started.exists() and started.read_text().isdigit())
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == status
        assert (out, err) == ("", "stopped\n" if status == 130 else "")
        until(lambda: not psutil.pid_exists(int(started.read_text())))
        assert list(scratch.iterdir()) == []


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)
