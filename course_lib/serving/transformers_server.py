"""`transformers serve` as a server to measure: a real engine, started on this machine only and stopped without a trace.

The one idea: it is another program, and lives no longer than who started it. It listens on the loopback address, asks
no model hub, and ends when its standard input does: that is a pipe held by this process, so even if this one is killed
nothing is left. Nothing here imports `transformers`; the options are those of version 5.24.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import psutil

from course_lib.caches.contract import whole

HOST = "127.0.0.1"
VERSION = "5.24."  # the options below are those of this version; others may have others
NEEDED = ("transformers", "fastapi", "uvicorn", "openai", "accelerate")
PATIENCE_S = 1.0  # after Ctrl-C, and again after a stronger word
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
CHILD = """
import os, sys, threading
def leave():
    sys.stdin.read()
    os._exit(1)
threading.Thread(target=leave, daemon=True).start()
sys.argv[0] = "transformers"
from transformers.cli.transformers import main
main()
"""


class ServerError(ValueError):
    """The server cannot be started, or did not; the message says why, and what helps."""


@dataclass(frozen=True)
class RunningServer:
    """A server that answers: its address, the name that requests must give to its model, and its process."""

    url: str
    model: str
    process: subprocess.Popen[bytes]
    log: Path

    def end_of_log(self) -> str:
        """The last line that it said."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def check_installed() -> None:
    """Raise ServerError, with the remedy, unless the version of `transformers` that is known here can serve."""
    remedy = f'install it with `{Path(sys.executable).name} -m pip install "transformers[serving]=={VERSION}*"`'
    if missing := [name for name in NEEDED if importlib.util.find_spec(name) is None]:
        raise ServerError(f"the server of transformers is not installed here ({missing[0]} is missing): {remedy}")
    if not (found := importlib.metadata.version("transformers")).startswith(VERSION):
        raise ServerError(f"transformers {found} is installed, and the course knows the server of {VERSION}*: {remedy}")


def options(continuous_batching: bool, block_size: int, blocks: int) -> list[str]:
    """The options of `transformers serve`. ValueError for a block or a number of blocks below 1."""
    if min(whole(block_size, "block_size"), whole(blocks, "blocks")) < 1:
        raise ValueError(f"block_size = {block_size} and blocks = {blocks}: both must be at least 1")
    if not continuous_batching:
        return ["--no-continuous-batching"]
    return ["--continuous-batching", "--cb-block-size", str(block_size), "--cb-num-blocks", str(blocks)]


@contextmanager
def running_server(
    folder: Path,
    *,
    continuous_batching: bool = True,
    block_size: int = 16,
    blocks: int = 256,
    port: int | None = None,
    wait_s: float = 180.0,
) -> Iterator[RunningServer]:
    """`transformers serve` on the Hugging Face folder `folder`, from when it answers until the block ends.

    With continuous batching its cache has `blocks` blocks of `block_size` tokens; without, there are none, and it
    answers one request after the other. It takes a free port unless one is given. Raises ServerError if it is not
    installed, if the folder or the port cannot be used, or if it does not answer within `wait_s` seconds.
    """
    check_installed()
    folder = folder.absolute()
    if not (folder / "config.json").is_file():
        raise ServerError(f"{folder} is no Hugging Face folder: it has no config.json")
    port = free_port(port)
    # Requests must name the model exactly as it is named here: by the folder's name, not by its path.
    command = [
        sys.executable,
        "-P",
        "-c",
        CHILD,
        "serve",
        folder.name,
        "--host",
        HOST,
        "--port",
        str(port),
        "--device",
        "cpu",
    ]
    command += options(continuous_batching, block_size, blocks)
    with tempfile.TemporaryDirectory(prefix="course-serve-") as private:
        log = Path(private) / "server.log"
        with log.open("wb") as output:
            process = start(command, folder.parent, output)
        server = RunningServer(f"http://{HOST}:{port}", folder.name, process, log)
        try:
            wait_until_it_answers(server, wait_s)
            yield server
        finally:
            stop(process)


def free_port(wanted: int | None) -> int:
    """The port if nobody listens there, or any that is free."""
    with socket.socket() as probe:
        if os.name != "nt":  # a port that was in use a moment ago is free
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, wanted or 0))
        except (OSError, OverflowError) as error:
            raise ServerError(f"port {wanted} cannot be used ({error}): name another, or none") from error
        port: int = probe.getsockname()[1]
        return port


def start(command: Sequence[str], folder: Path, output: IO[bytes]) -> subprocess.Popen[bytes]:
    """The program in a session of its own: Ctrl-C in a terminal reaches this process, which passes it on."""
    return subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | OFFLINE,
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def wait_until_it_answers(server: RunningServer, wait_s: float) -> None:
    until_s = time.monotonic() + wait_s
    ask = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy between this machine and itself
    while True:
        with suppress(OSError), ask.open(f"{server.url}/health", timeout=5):
            if listens(server):  # another program may have been quicker, and answers
                return
        if (status := server.process.poll()) is not None:
            raise ServerError(
                f"transformers serve ended with status {status} before it answered: {server.end_of_log()}"
            )
        if time.monotonic() > until_s:
            raise ServerError(f"transformers serve gave no answer for {wait_s:g} s: {server.end_of_log()}")
        time.sleep(0.1)


def listens(server: RunningServer) -> bool:
    """Whether it is this server that listens at its address, as far as one can know."""
    port = urlsplit(server.url).port
    try:
        connections = psutil.Process(server.process.pid).net_connections("tcp")
    except psutil.Error:  # it has ended, or the system does not tell
        return server.process.poll() is None
    return any(each.status == psutil.CONN_LISTEN and each.laddr.port == port for each in connections)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End the server: ask it as Ctrl-C does, then more firmly."""
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            if os.name != "nt":
                process.send_signal(number)
            else:
                process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE_S)
                return
    finally:  # also if Ctrl-C came again
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
