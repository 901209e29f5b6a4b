"""`course lab`, `run` and `build` where the course lies: which notebooks a word means, and a real JupyterLab."""

import json
import os
import re
import shutil
import signal
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import nbformat
import psutil
import pytest
from course_command import COURSE, ROOT, as_json, call, start
from jupyter_client.manager import KernelManager
from nbformat import v4

import course_lib
from course_lib.commands.kernels import CourseKernels
from course_lib.commands.lab import jupyter_command, jupyter_environment


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A course of two small notebooks and an exercise around the real library."""
    root = tmp_path / "course"
    for name in ("notebooks/00_start_here", "notebooks/02_prefill_and_decode", "exercises/02_prefill_and_decode"):
        path = root / f"{name}.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(v4.new_notebook(cells=[v4.new_code_cell(f"print({name!r})")]), path)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "course_lib").symlink_to(ROOT / "course_lib")
    return root


@pytest.fixture
def inside(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the place that the library of this process comes from."""
    monkeypatch.setattr(course_lib, "__file__", str(checkout / "course_lib/__init__.py"))
    monkeypatch.chdir(checkout)
    return checkout


def test_run_and_build_take_all_notebooks_of_the_course_or_how_names_begin(inside: Path) -> None:
    sources = {path: path.read_bytes() for path in inside.glob("notebooks/*.ipynb")}
    rows = as_json("run")["notebooks"]
    assert [row["notebook"] for row in rows] == [
        "notebooks/00_start_here.ipynb", "notebooks/02_prefill_and_decode.ipynb",
    ]  # fmt: skip
    assert all(row["result"] == "ok" and row["time_s"] > 0 and row["peak_memory_mb"] > 10 for row in rows)
    assert {path: path.read_bytes() for path in sources} == sources

    built = call("build", "02")
    assert built.exit_code == 0
    assert re.search(r"02_prefill_and_decode +written", built.stdout) and "00_start_here" not in built.stdout
    checked = call("build", "--check")
    assert checked.exit_code == 1, "one of them is not built"
    assert re.search(r"00_start_here +failed", checked.stdout)
    assert re.search(r"02_prefill_and_decode +ok", checked.stdout)


def test_an_assignment_is_not_built_but_released(inside: Path) -> None:
    """Executed in place it would have outputs, other cell ids, and no longer be what its source gives."""
    cell = v4.new_code_cell("1/0", metadata={"nbgrader": {"grade_id": "ex03_append"}})
    path = inside / "exercises/ex03_kv_cache.ipynb"
    nbformat.write(v4.new_notebook(cells=[cell]), path)
    before = {each: each.read_bytes() for each in inside.rglob("*.ipynb")}
    for words in (["ex03"], ["02", "ex03"], ["exercises"], ["ex03", "--check"]):
        result = call("build", *words)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert "exercises/ex03_kv_cache.ipynb is an assignment" in line and "release ex03_kv_cache" in line
    assert {each: each.read_bytes() for each in inside.rglob("*.ipynb")} == before
    assert "ZeroDivisionError" in call("run", "ex03").stdout, "one may run a copy of it"


def test_a_name_is_shown_as_it_is(inside: Path) -> None:
    """Square brackets are markup to the library that draws tables."""
    for name in ("a[red]b", "c["):
        nbformat.write(v4.new_notebook(), inside / f"{name}.ipynb")
        for words in (["run"], ["build", "--check"]):
            assert re.search(rf"^{re.escape(name)} +failed", call(*words, f"{name}.ipynb").stdout, re.MULTILINE)


def test_word_that_means_no_one_notebook_is_a_wrong_call(inside: Path) -> None:
    for word, said in (("0", "any of 00_start_here, 02_prefill_and_decode"), ("00_strat_here", "00_start_here")):
        result = call("lab", word, "--no-browser")
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()
        assert said in line
    assert not (inside / "work").exists()


def test_without_notebooks_there_is_nothing_to_open(inside: Path) -> None:
    shutil.rmtree(inside / "notebooks")
    result = call("lab")
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: there is no notebooks folder")


def test_work_folder_that_cannot_be_written_and_port_in_use_are_said_in_a_line(inside: Path) -> None:
    blocked = call("lab", "--no-browser", "--work", str(inside / "pyproject.toml"))
    assert blocked.exit_code == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        busy = call("lab", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert busy.exit_code == 1
    for result, said in ((blocked, "COURSE_WORK"), (busy, "--port")):
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ") and said in line


def test_kernels_keep_progress_in_the_folder_that_the_lab_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel starts in the folder of its notebook, where a relative name would mean another place."""
    monkeypatch.chdir(tmp_path)
    for named, meant in (("of mine 7", tmp_path / "of mine 7"), (str(tmp_path), tmp_path)):
        monkeypatch.setenv("COURSE_DATA", named)
        assert jupyter_environment()["COURSE_DATA"] == str(meant)
    monkeypatch.delenv("COURSE_DATA")
    assert "COURSE_DATA" not in jupyter_environment()


def test_options_of_jupyter_after_two_dashes_win_over_ours(tmp_path: Path) -> None:
    extra = ["--ip=0.0.0.0", "--ServerApp.log_level=DEBUG"]
    command = jupyter_command(tmp_path, Path("notebooks/00 a.ipynb"), browser=False, port=8899, extra=extra)
    assert command[-2:] == extra
    assert not any(word.startswith("--ServerApp.ip=") for word in command)
    assert [word for word in command if "ServerApp.log_level" in word] == ["--ServerApp.log_level=DEBUG"]
    assert "--LabApp.default_url=/lab/tree/notebooks/00%20a.ipynb" in command
    usual = jupyter_command(tmp_path, Path("x.ipynb"), browser=True, port=None, extra=[])
    assert "--ServerApp.ip=127.0.0.1" in usual and not any("open_browser" in word for word in usual)


def ask(url: str, body: dict[str, Any] | None = None, patience_s: float = 0, as_text: bool = False) -> Any:
    """What a server on this machine answers, given `patience_s` to begin to listen. HTTPError if it refuses."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode())
    end = time.monotonic() + patience_s
    while True:
        try:
            with direct.open(request, timeout=20) as answer:
                text = answer.read().decode()
                return text if as_text else json.loads(text)
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def test_lab_serves_the_copies_on_this_machine_only_and_ctrl_c_ends_all_of_it(checkout: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    work = tmp_path / "my work"
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / "jupyter" / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    environment = {**os.environ, "PYTHONPATH": str(checkout), "COURSE_WORK": str(work), **folders}
    own = Path(folders["JUPYTER_CONFIG_DIR"]) / "labconfig/page_config.json"
    own.parent.mkdir(parents=True)
    own.write_text(json.dumps({"disabledExtensions": {"of/the:user": True}}))
    process = start("lab", "02", "--no-browser", "--port", str(port), cwd=checkout, env=environment)
    assert process.stderr is not None
    try:
        said = ""
        while "?token=" not in said:  # Jupyter says it when it serves
            line = process.stderr.readline()
            assert line, said
            said += line
        page, token = re.search(r"(http://\S+)\?token=(\w+)", said).groups()  # type: ignore[union-attr]
        base = f"http://127.0.0.1:{port}"
        assert page == f"{base}/lab/tree/notebooks/02_prefill_and_decode.ipynb"
        assert "3 files of the course copied into" in said
        assert ask(f"{base}/api/status?token={token}", patience_s=30)["kernels"] == 0
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(f"{base}/api/status")
        shown = ask(f"{base}/api/contents/notebooks?token={token}")["content"]
        assert sorted(file["name"] for file in shown) == ["00_start_here.ipynb", "02_prefill_and_decode.ipynb"]
        ask(f"{base}/api/kernels?token={token}", {"name": "python3"})
        children = psutil.Process(process.pid).children(recursive=True)
        page_source = ask(f"{page}?token={token}", as_text=True)
        disabled = json.loads(re.search(r'"disabledExtensions": *(\[.*?\])', page_source)[1])  # type: ignore[index]
        assert "@jupyterlab/apputils-extension:announcements" in disabled, "it does not ask whether to fetch news"
        assert "of/the:user" in disabled, "the user's own settings hold, too"
        (kernel,) = [child.cmdline() for child in children]
        assert "ipykernel_launcher" in " ".join(kernel) and Path(kernel[0]).parent == COURSE.parent
        listening = {c.laddr.ip for c in psutil.Process(process.pid).net_connections() if c.status == "LISTEN"}
        assert listening == {"127.0.0.1"}
    finally:
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in said + rest
    assert not re.search("encryption|ping_timeout|web browser found|Parent appears", said + rest, re.IGNORECASE)
    assert not list(Path(folders["JUPYTER_RUNTIME_DIR"]).glob("*server*")), "it has tidied up"
    assert not psutil.wait_procs(children, timeout=60)[1], "no kernel is left"
    assert (work / "notebooks/02_prefill_and_decode.ipynb").exists() and not (checkout / "work").exists()


@pytest.mark.parametrize("after_s", [0, 0.1, 0.4, 0.8, 1.6, 2.4])
def test_ctrl_c_while_it_starts_is_a_stop_without_a_traceback(checkout: Path, tmp_path: Path, after_s: float) -> None:
    folders = {f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")}
    process = start("lab", "--no-browser", cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout), **folders})
    assert process.stderr is not None
    said = ""
    while "Ctrl-C here stops it" not in said:
        said += process.stderr.readline()
    time.sleep(after_s)
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode in (0, 130), rest
    assert "Traceback" not in rest
    assert process.returncode == 0 or rest == "stopped\n"
    assert not list(tmp_path.glob("RUNTIME/*server*"))


def test_kernel_hears_an_interrupt_in_a_cell_and_at_no_other_time(tmp_path: Path) -> None:
    manager = KernelManager(kernel_name="python3", kernel_spec_manager=CourseKernels())
    with (tmp_path / "log").open("wb") as log:
        manager.start_kernel(stdout=log, stderr=log, cwd=str(tmp_path))
        try:
            for _ in range(10):  # while it starts
                time.sleep(0.1)
                manager.interrupt_kernel()
            client = manager.blocking_client()
            client.start_channels()
            client.wait_for_ready(timeout=60)
            request = client.execute("import sys, time\nprint('' in sys.path, flush=True)\ntime.sleep(60)")
            while (message := client.get_iopub_msg(timeout=60))["msg_type"] != "stream":
                pass
            assert message["content"]["text"].strip() == "True", "the folder of the notebook is on the path"
            manager.interrupt_kernel()
            reply = client.get_shell_msg(timeout=30)
            while reply["parent_header"].get("msg_id") != request:
                reply = client.get_shell_msg(timeout=30)
            assert reply["content"]["ename"] == "KeyboardInterrupt"
            client.stop_channels()
        finally:
            manager.shutdown_kernel()
    assert "Traceback" not in (tmp_path / "log").read_text()
