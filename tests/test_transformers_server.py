"""The server of transformers: it is started, measured and stopped, and nothing of it is left, whatever happens."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import gguf_files as files
import psutil
import pytest
from course_command import call, start

from course_lib.checkpoints import load
from course_lib.checkpoints.export import write_folder
from course_lib.serving import transformers_server
from course_lib.serving.arrivals import poisson
from course_lib.serving.loadtest import measure, questions
from course_lib.serving.prompt_text import prompt_text
from course_lib.serving.transformers_server import ServerError, free_port, options, running_server

LIMIT_S = 240  # a machine with other work to do takes long to import all that a server needs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of two layers; it babbles bytes, many of which are no character."""
    place = tmp_path_factory.mktemp("model")
    model = files.llama(max_position_embeddings=1024)
    source = files.write_gguf(place / "tiny.gguf", files.gguf_metadata(model), files.gguf_tensors(model))
    write_folder(source, place / "tiny", "fp32")
    return place / "tiny"


def answered_whole(url: str, model: str, text: str, new_tokens: int) -> dict[str, Any]:
    """The usage that the server reports if it is asked not to stream."""
    body = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": new_tokens, "temperature": 0}
    asked = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=LIMIT_S) as response:
        usage: dict[str, Any] = json.load(response)["usage"]
    return usage


def check_measured(url: str, model: str, folder: Path) -> None:
    """All answers are good ones, and have as many tokens as the server says when it is asked in another way."""
    requests, tokenizer = questions(6, 12, 20), load(folder).tokenizer
    report = measure(url, model, poisson(requests, 20.0))
    assert not report.faults and report.warm_up == "" and report.usage_asked
    for request in requests:
        record, text = report.log[request.name], prompt_text(request)
        usage = answered_whole(url, model, text, 20)
        assert record.outcome == "finished" and record.timing is not None
        assert record.prompt_tokens == usage["prompt_tokens"]
        assert record.prompt_tokens == len(tokenizer.chat([{"role": "user", "content": text}]))
        assert len(record.token_times_s) == usage["completion_tokens"] <= 20
    assert report.summary().finished == 6


def nobody_listens(url: str) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", int(url.rsplit(":", 1)[1]))) != 0


@pytest.mark.slow
def test_without_continuous_batching_it_serves_until_the_block_ends(folder: Path) -> None:
    pytest.importorskip("fastapi")
    (folder.parent / "random.py").write_text("raise SystemExit('this is not the library of that name')")
    with running_server(folder, continuous_batching=False, wait_s=LIMIT_S) as server:
        assert server.model == "tiny" and server.process.poll() is None
        check_measured(server.url, server.model, folder)
        assert "CB: False" in server.log.read_text()
    assert server.process.poll() is not None and nobody_listens(server.url) and not server.log.exists()


def test_it_is_not_taken_for_another_that_answers_at_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, subprocess.Popen(["sleep", "600"]) as silent:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        assert not transformers_server.listens(transformers_server.RunningServer(url, "m", silent, Path("log")))
        silent.kill()


@pytest.mark.slow
def test_course_serve_prints_the_address_and_ctrl_c_leaves_nothing(folder: Path) -> None:
    pytest.importorskip("fastapi")
    port = free_port(None)
    process = start("serve", "--folder", str(folder), "--port", str(port), "--block-size", "32", "--blocks", "40")
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    assert url == f"http://127.0.0.1:{port}"
    (server,) = [child for child in psutil.Process(process.pid).children() if "serve" in child.cmdline()]
    given = server.cmdline()
    assert given[given.index("--cb-block-size") + 1] == "32" and given[given.index("--cb-num-blocks") + 1] == "40"
    check_measured(url, "tiny", folder)
    result = call("loadtest", "--url", url, "--model", "gpt-9")
    assert result.exit_code == 2 and "HTTP 400" in result.stderr and "gpt-9" in result.stderr, "it is not there"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "stopped" and "in 40 blocks of 32 tokens" in err and "Traceback" not in err
    assert f"loadtest --url {url} --model tiny" in err
    assert not server.is_running() and nobody_listens(url)


def test_it_dies_with_who_started_it_even_if_that_is_killed(folder: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from course_lib.serving.transformers_server import CHILD, start\n"
        "server = start([sys.executable, '-c', CHILD, 'serve', 'tiny'], Path(sys.argv[1]), open(sys.argv[2], 'wb'))\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(folder.parent), str(folder.parent / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as starter:
        assert starter.stdout is not None
        server = psutil.Process(int(starter.stdout.readline()))
        assert server.is_running()
        starter.kill()
    until_s = time.monotonic() + LIMIT_S
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until_s, "it lives on"
        time.sleep(0.05)


@pytest.mark.parametrize(("ends", "wait_s", "said"), [(True, 60.0, "status 3.*no such thing"), (False, 0.3, "0.3 s")])
def test_one_that_does_not_start_is_stopped_and_quoted(
    ends: bool, wait_s: float, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import sys, time; print('no such thing\\n', flush=True)\n" + (
        "sys.exit(3)" if ends else "time.sleep(600)"
    )
    monkeypatch.setattr(transformers_server, "CHILD", program)
    monkeypatch.setattr(transformers_server, "check_installed", lambda: None)
    before = set(psutil.Process().children())
    with pytest.raises(ServerError, match=said), running_server(folder, wait_s=wait_s):
        pass
    assert set(psutil.Process().children()) == before


@pytest.mark.parametrize(("missing", "found"), [("fastapi", "5.24.0"), ("transformers", "5.24.0"), ("", "5.23.1")])
def test_what_is_missing_is_said_in_one_line_with_the_remedy(
    missing: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = transformers_server.importlib.util.find_spec
    there = {name: object() for name in transformers_server.NEEDED if name != missing}
    monkeypatch.setattr(
        transformers_server.importlib.util,
        "find_spec",
        lambda name, package=None: there.get(name) if name in transformers_server.NEEDED else real(name, package),
    )
    monkeypatch.setattr(transformers_server.importlib.metadata, "version", lambda name: found)
    result = call("serve")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert 'pip install "transformers[serving]==5.24.*"' in line and (missing or found) in line


def test_a_place_that_cannot_be_used_is_refused_before_anything_starts(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("fastapi")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with (
            pytest.raises(ServerError, match="port .* cannot be used"),
            running_server(folder, port=taken.getsockname()[1]),
        ):
            pass
    with pytest.raises(ServerError, match="is no Hugging Face folder"), running_server(tmp_path):
        pass
    with pytest.raises(ValueError, match="block_size = 0"), running_server(folder, block_size=0):
        pass
    result = call("serve", "--folder", "/nosuch")
    assert result.exit_code == 2 and "/nosuch" in result.stderr and len(result.stderr.splitlines()) == 1


def test_block_sizes_are_given_only_with_continuous_batching() -> None:
    assert options(False, 16, 256) == ["--no-continuous-batching"]
    assert options(True, 32, 8) == ["--continuous-batching", "--cb-block-size", "32", "--cb-num-blocks", "8"]
