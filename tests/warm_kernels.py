"""Kernels of Jupyter that have torch in memory when they start: each is forked from one process that has loaded it.

The one idea: a kernel that runs a notebook of the course spends most of its time with imports. In all else these are
ordinary kernels, called python3 and found by their kernelspec, so that whatever starts kernels starts these; one for
each notebook, which ends with it. What Jupyter takes for the kernel is a small process that stands for it.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def warm_kernels() -> Iterator[dict[str, str]]:
    """What has to stand in the environment of whoever starts a kernel."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        yield from started(Path(folder))


def started(folder: Path) -> Iterator[dict[str, str]]:
    address = str(folder / "socket")
    spec = folder / "kernels" / "python3"
    spec.mkdir(parents=True)
    argv = [sys.executable, "-I", "-S", __file__, address, "-f", "{connection_file}"]
    text = {"argv": argv, "display_name": "Python 3", "language": "python", "interrupt_mode": "message"}
    (spec / "kernel.json").write_text(json.dumps(text))
    with subprocess.Popen([sys.executable, __file__, address], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None and parent.stdout.readline() == b"ready\n"
        try:
            yield {"JUPYTER_PATH": str(folder)}
        finally:
            parent.kill()


def stand_for_a_kernel(address: str, *arguments: str) -> None:
    """Ask for a kernel and stay until it ends. If this process is ended, the kernel ends."""
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(address)
        asked.sendall(json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode() + b"\n")
        asked.recv(1)


def fork_kernels(address: str) -> None:
    """Load everything once, then give a kernel to everybody who asks."""
    import ipykernel.kernelapp
    import torch  # noqa: F401

    import course_lib.study  # noqa: F401

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels that have ended
        print("ready", flush=True)
        while True:
            asked, _ = server.accept()
            if os.fork() == 0:
                server.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                become_a_kernel(asked, ipykernel.kernelapp)
            asked.close()


def become_a_kernel(asked: socket.socket, kernelapp: object) -> None:
    arguments, folder, environment = json.loads(asked.makefile().readline())
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    threading.Thread(target=lambda: (asked.recv(1), os._exit(0)), daemon=True).start()
    try:
        kernelapp.launch_new_instance([*arguments, "--log-level=40"])  # type: ignore[attr-defined]
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
    fork_kernels(*sys.argv[1:]) if len(sys.argv) == 2 else stand_for_a_kernel(*sys.argv[1:])
