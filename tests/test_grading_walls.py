"""The parts of the sandbox one by one: the copy of the library, the filter of system calls, what is read of answers."""

import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from course_lib.checks.plain import pack
from course_lib.grading import bubblewrap, inside
from course_lib.grading.sandbox import NoSandbox, Sandbox
from course_lib.grading.session import MOST_PARTS, Session
from course_lib.grading.system_calls import REFUSED, seccomp_filter
from course_lib.grading.trimmed import NAME, module, trimmed, without


def test_the_trimmed_copy_holds_no_judge_no_key_and_no_solution(tmp_path: Path) -> None:
    trimmed(tmp_path, ("course_lib.caches.paged",))
    copied = {path.relative_to(tmp_path / NAME) for path in tmp_path.rglob("*") if path.is_file()}
    texts = {path: (tmp_path / NAME / path).read_text("utf-8", "replace") for path in copied}
    assert Path("caches/contiguous.py") in copied and Path("checks/runs/ex03_append.py") in copied
    assert Path("caches/paged.py") not in copied and "PagedCache" not in texts[Path("caches/__init__.py")]
    signs = ("def judge(inputs", "def verdict(kind", "BEGIN SOLUTION")
    assert [path for path, text in texts.items() if any(sign in text for sign in signs)] == []
    assert not any(path.parts[0] in ("grading", "quizzes", "commands", "progress") for path in copied)
    assert not [
        path for path in copied if path.parts[0] == "checks" and path.name.startswith("ex") and len(path.parts) < 3
    ]
    assert all(path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644) for path in tmp_path.rglob("*"))
    assert module(Path("caches/__init__.py")) == "course_lib.caches" and module(Path("model.py")) == "course_lib.model"
    kept = "from a.b import (\n    x,\n    y,\n)\n"
    source = kept + "from a.c import z\n__all__ = [\n    'x',\n    'z',\n]\nfrom a.cd import v\n"
    assert without(source, ["a.c"]) == kept + "__all__ = ['x']\nfrom a.cd import v\n"
    assert without(source, ["a.e"]) == source


def test_an_installed_copy_of_the_library_is_covered_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    packages = tmp_path / "site-packages"
    for name in ("course_lib/__init__.py", "sympy/__init__.py", "six.py"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text("")
    monkeypatch.setattr(sys, "path", [str(packages)])
    monkeypatch.setattr(bubblewrap.course_lib, "__file__", str(packages / "course_lib/__init__.py"))
    covered = list(bubblewrap.hidden(["sympy", "six", "course_lib.caches", "missing.module"]))
    assert covered == [packages / "course_lib", packages / "sympy", packages / "six.py"]
    command = " ".join(bubblewrap.walls(tmp_path, 1, ["sympy", "six"]))
    assert f"--tmpfs {packages / 'course_lib'} --remount-ro" in command
    assert f"--ro-bind /dev/null {packages / 'six.py'}" in command


FRAMES = {
    "no JSON": b"\x80\x04K\x03.",
    "no UTF-8": b'{"dict": {"\xff": 1}}',
    "no plain data": b'{"a": 1, "b": 2}',
    "a list": pack([1, 2]),
    "a number": b"1" * 9999,
    "no dictionary": b'{"dict": [1]}',
    "an array of a kind that is none": b'{"array": ["object", [1], "AAAA"]}',
    "an array that is larger than it says": b'{"array": ["float32", [67108864, 67108864], ""]}',
    "an array of negative size": b'{"array": ["float32", [-1], ""]}',
    "nested without end": b"[" * 100_000,
    "nested too deep for plain data": b'{"dict": {"a": ' + b"[" * 50 + b"]" * 50 + b"}}",
    "far too many parts": b"[" + b"[]," * (MOST_PARTS // 2) + b"[]]",
    "nothing": b"",
}


@pytest.mark.parametrize("name", FRAMES)
def test_what_is_no_answer_is_none(name: str) -> None:
    assert Session.opened(FRAMES[name]) is None
    assert Session.opened(pack({"a": [1, {"b": None}]})) == {"a": [1, {"b": None}]}


def follow(program: bytes, machine: int, number: int, argument: int = 0) -> int:
    """What a seccomp filter answers, by following its steps as the kernel would."""
    steps = list(struct.iter_unpack("<HBBI", program))
    data = struct.pack("<iIQQ", number & 0x7FFFFFFF, machine, 0, argument)
    at = loaded = 0
    while True:
        operation, yes, no, value = steps[at]
        at += 1
        if operation == 0x20:
            (loaded,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[operation]
            at += yes if holds else no


@pytest.mark.parametrize(
    ("name", "column", "machine", "clone"), [("x86_64", 0, 0xC000003E, 56), ("aarch64", 1, 0xC00000B7, 220)]
)
def test_the_filter_refuses_what_it_names_and_lets_the_rest_through(
    name: str, column: int, machine: int, clone: int
) -> None:
    program, socket, pair = seccomp_filter(name), (41, 198)[column], (53, 199)[column]
    refused = {numbers[column] for numbers in REFUSED.values()}
    allow, no_such_call, no_such_family = 0x7FFF0000, 0x00050026, 0x00050061
    for number in sorted({*range(500)} - {socket, pair}):
        assert follow(program, machine, number) == (no_such_call if number in refused else allow), number
    for family in range(-1, 50):
        wanted = allow if family in (1, 2, 10) else no_such_family
        for number in (socket, pair):
            assert follow(program, machine, number, family & 0xFFFFFFFF) == wanted, family
    assert follow(program, machine, clone, 0x01200011) == allow  # fork
    assert follow(program, machine, clone, 0x003D0F00) == allow  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert follow(program, machine, clone, flag | 17) == no_such_call
    assert follow(program, machine, 0x40000000 + 1) == no_such_call
    assert follow(program, 0x40000003, 1) == 0x80000000  # another machine's calls: the process is killed
    assert seccomp_filter("riscv64") == b""


def test_where_there_is_no_sandbox_it_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def why_not() -> str:
        bubblewrap.why_not.cache_clear()
        return Sandbox.why_not()

    try:
        with monkeypatch.context() as patch:
            patch.setattr(sys, "platform", "darwin")
            assert why_not() == "There is no sandbox on this system: bubblewrap is a program of Linux."
            assert not Sandbox.available()
        with monkeypatch.context() as patch:
            patch.setenv("PATH", "/nowhere")
            assert why_not().endswith("bubblewrap is not installed. On Debian or Ubuntu: apt install bubblewrap")
            with pytest.raises(NoSandbox, match="not installed"):
                Sandbox()
        with monkeypatch.context() as patch:
            patch.setattr(bubblewrap.shutil, "which", lambda name: "/bin/false")
            assert why_not() == "There is no sandbox: bubblewrap does not work here (it ended with status 1)."
    finally:
        bubblewrap.why_not.cache_clear()


def test_where_a_function_comes_from() -> None:
    import copy
    import functools

    space: dict[str, Any] = {"__name__": "__main__"}
    exec("def f(): pass\nclass A:\n    def m(self): pass\n    def __call__(self): pass\ng = lambda: 1", space)

    @functools.wraps(space["f"])
    def wrapped() -> None: ...

    class Trap:
        def __getattribute__(self, name: str) -> Any:
            raise SystemExit

    ours = (space["f"], space["g"], space["A"], space["A"](), space["A"]().m, wrapped)
    assert [inside.elsewhere(each) for each in (*ours, functools.partial(space["f"]), Trap())] == [""] * 8
    assert inside.elsewhere(copy.copy) == "the module copy" and inside.elsewhere(len) == "the module builtins"
    assert inside.elsewhere([].append) == "Python itself"
