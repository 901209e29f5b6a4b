"""A folder of hostile submissions: none forges a mark, none changes the host, and none costs anybody else anything.

What each of them tries stands in hostile_submissions.py. The host here is a class room: a folder with solutions, a key
and other submissions, a program that listens, a variable with a secret.
"""

import hashlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import psutil
import pytest
from hostile_forgeries import FORGERIES
from hostile_submissions import ATTACKS, SECRET, Hostile
from small_assignment import (
    ASSIGNMENT,
    KEY,
    QUICK,
    RIGHT,
    handed_in,
    most_memory,
    needs_sandbox,
    notebook,
    room,
    use_small_check,
)

from course_lib.grading.assignment import Assignment, Task
from course_lib.grading.mark import Marks, mark
from course_lib.grading.sandbox import Sandbox

pytestmark = needs_sandbox
MOST_MEMORY = 300e6  # that marking may take on this side, whatever comes
HOSTILE = ATTACKS | FORGERIES
results: dict[str, Marks] = {}


@dataclass
class Host:
    """What must be as it was, afterwards; and who was connected to."""

    class_room: Path
    port: int
    own: str
    listeners: list[socket.socket]
    sandbox: Sandbox

    def fill(self, hostile: Hostile) -> list[str]:
        """The cells, with the places that they attack. Braces in other cells are as they are."""
        return [
            cell.replace("{class_room}", str(self.class_room))
            .replace("{port}", str(self.port))
            .replace("{own}", self.own)
            .replace("{{", "{")
            .replace("}}", "}")
            if "Reached" in cell
            else cell
            for cell in hostile.cells
        ]

    def state(self) -> dict[str, str]:
        """What everything is that could have been changed."""
        seen = {"temporary": str(sorted(path.name for path in Path(tempfile.gettempdir()).glob("*mark*")))}
        for root in (self.class_room, self.sandbox.course):
            for path in sorted(root.rglob("*")):
                about = f"{path.stat().st_mode:o}"
                seen[str(path)] = about + hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else about
        return seen

    def connected(self) -> bool:
        for listener in self.listeners:
            try:
                listener.accept()[0].close()
                return True
            except OSError:
                continue
        return False

    def left_behind(self) -> list[str]:
        """Processes that a submission has started and that are still there."""
        left, marks_of_ours = [], (self.own, str(self.sandbox.folder))
        for process in psutil.process_iter(["cmdline", "status"]):
            said = " ".join(process.info["cmdline"] or [])
            if any(each in said for each in marks_of_ours) and process.info["status"] != psutil.STATUS_ZOMBIE:
                left.append(str(process))
        return left


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    folder = tmp_path_factory.mktemp("class_room")
    for name in ("solutions/ex99_small.ipynb", "bob/ex99_small.ipynb", "key"):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SECRET)
    for path in (folder, *folder.rglob("*"), *list(folder.parents)[:2]):
        path.chmod(0o777 if path.is_dir() else 0o666)
    own = f"hostile-{os.getpid()}"
    tcp, named = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    named.bind(f"\0{own}")
    named.listen()
    for listener in (tcp, named):
        listener.setblocking(False)
    with room() as sandbox, pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_TEST_SECRET", SECRET)
        sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        yield Host(folder, tcp.getsockname()[1], own, [tcp, named], sandbox)
        sleeper.kill()
        sleeper.wait()
    for listener in (tcp, named):
        listener.close()


@pytest.fixture(autouse=True)
def small_check(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_check(monkeypatch)


def said(marks: Marks) -> str:
    return "\n".join((*marks.notes, *marks.tasks[0].said))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_submission_gets_what_it_deserves_and_leaves_the_host_as_it_was(
    name: str, host: Host, tmp_path: Path
) -> None:
    hostile, before = HOSTILE[name], host.state()
    memory = most_memory()
    marks = results[name] = mark(
        handed_in(tmp_path, notebook(*host.fill(hostile))), ASSIGNMENT, KEY, QUICK, host.sandbox
    )
    assert "Reached" not in said(marks)
    assert marks.earned == hostile.earns and marks.points == 4, said(marks)
    assert any(way in said(marks) for way in hostile.says.split(" or ")), said(marks)
    assert host.state() == before
    assert not host.connected()
    assert host.left_behind() == []
    assert most_memory(memory) < MOST_MEMORY
    assert marks.seconds < QUICK.total_s + 10 and len(said(marks)) < 20_000


@pytest.mark.parametrize("name", [name for name, hostile in HOSTILE.items() if hostile.works_without_walls])
def test_without_walls_the_same_attack_succeeds(name: str, host: Host, tmp_path: Path) -> None:
    """So the walls are what stops it, not a mistake in the attack."""
    spare = tmp_path / "class_room"
    for path in ("solutions", "bob"):
        (spare / path).mkdir(parents=True)
        (spare / path / "ex99_small.ipynb").write_text(SECRET)
    cells = [cell.replace(str(host.class_room), str(spare)) for cell in host.fill(HOSTILE[name])]
    with room(trusted=True) as open_room:
        marks = mark(handed_in(tmp_path, notebook(*cells)), ASSIGNMENT, KEY, QUICK, open_room)
    assert "raised Reached" in said(marks)
    host.connected(), host.connected()


def test_a_patched_torch_does_not_compare_for_the_judge(tmp_path: Path) -> None:
    patch = """
        import torch
        for name in ("allclose", "equal", "isclose", "cat"):
            setattr(torch, name, lambda *a, **k: True)
        torch.Tensor.__eq__ = torch.Tensor.equal = lambda *a: torch.ones(1)
        torch.Tensor.numpy = lambda self: __import__("numpy").zeros(tuple(self.shape), "float32")
        """
    exercise = Assignment("ex03_kv_cache", "", 45, (Task("ex03.append", 5.0, "Append"),), ())
    source = "def append(cache, layer, k, v): return k, v"  # right for the first tokens alone
    marks = mark(handed_in(tmp_path, notebook(dedent(patch), source)), exercise, KEY)
    assert marks.earned <= 1 and marks.points == 5 and marks.tasks[0].lines


def test_an_honest_submission_is_marked_beside_all_others_as_if_it_were_alone(host: Host, tmp_path: Path) -> None:
    assert mark(handed_in(tmp_path, notebook(RIGHT)), ASSIGNMENT, KEY, QUICK, host.sandbox).earned == 4


def test_at_least_25_kinds_were_tried_and_none_forged_anything(host: Host) -> None:
    assert len(HOSTILE) >= 25 and all(hostile.tries for hostile in HOSTILE.values())
    forged = [name for name, marks in results.items() if marks.earned > HOSTILE[name].earns]
    print(f"{len(results)} kinds of hostile submissions, marks forged: {len(forged)}, host changes: 0")
    assert not forged
