"""The half of the sandbox that is inside: it runs a notebook's cells and calls what they define, as it is told.

The one idea: questions come in through one pipe and plain data goes out through another; there is nothing else to talk
to. Anything a submission does to this process (it can do everything) spoils its own answers only: what is right is not
known here, and what goes out is read by somebody who trusts none of it. This file is started as a program; it lies in
the trimmed copy of the library.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import io
import json
import os
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType
from typing import Any

MOST_NAMES, LONGEST_NAME = 500, 200
ADDRESSES = 16 << 30  # bytes that libraries may reserve without using them


def main() -> None:
    settings = json.loads(sys.argv[1])
    receive, send = channel()
    confine(settings)
    sys.path[:] = dict.fromkeys([str(Path(__file__).parents[1]), *sys.path, *settings["packages"]])
    from course_lib.checks.plain import NotPlain, pack, unpack

    desk, own = Desk(), os.getpid()
    send(pack({"ready": True}))
    while question := receive():
        answer = desk.answer(unpack(question))
        if os.getpid() != own:  # a child that a cell has forked, and that came back here
            os._exit(0)
        try:
            packed = pack(answer)
        except NotPlain as reason:
            packed = pack({"too much": str(reason)})
        if len(packed) > settings["answer_bytes"]:
            packed = pack({"too much": f"{len(packed):,} bytes"})
        send(packed)
    os._exit(0)


def channel() -> tuple[Callable[[], bytes], Callable[[bytes], None]]:
    """Ways to receive and to send, over the pipes that this process was started with; what prints goes nowhere."""
    incoming, outgoing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)

    def receive() -> bytes:
        """The next question; nothing at the end."""
        head = incoming.read(4)
        return incoming.read(struct.unpack(">I", head)[0]) if len(head) == 4 else b""

    def send(packed: bytes) -> None:
        outgoing.write(struct.pack(">I", len(packed)) + packed)
        outgoing.flush()

    return receive, send


def confine(settings: dict[str, Any]) -> None:
    """Become the account of this submission, and set limits that it cannot lift."""
    if settings["account"] is not None:
        os.setgroups([])
        os.setresgid(*[settings["account"]] * 3)
        os.setresuid(*[settings["account"]] * 3)
    try:
        import resource
    except ImportError:  # a system that knows no limits; here it is the learner's own work
        return
    limits = {
        "RLIMIT_DATA": settings["memory_bytes"],
        "RLIMIT_AS": settings["memory_bytes"] + ADDRESSES,
        "RLIMIT_NPROC": settings["processes"],
        "RLIMIT_FSIZE": settings["file_bytes"],
        "RLIMIT_CPU": settings["cpu_s"],
        "RLIMIT_NOFILE": 256,
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    for name, limit in limits.items():
        if limit is not None and hasattr(resource, name):
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(getattr(resource, name), (limit, limit))


class Nowhere(io.BufferedIOBase):
    """Where cells print to: it counts and keeps nothing."""

    count = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.count += len(data)
        return len(data)


class Desk:
    """Answers one question after the other, in the notebook's namespace."""

    def __init__(self) -> None:
        import builtins

        from course_lib.checks import beside

        self.beside = beside
        self.printed = Nowhere()
        sys.stdout = sys.stderr = io.TextIOWrapper(self.printed, "utf-8", "backslashreplace", write_through=True)
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115 (for as long as the process lives)
        builtins.input = nobody_answers
        self.shell = make_shell()
        self.at_work = False
        signal.signal(signal.SIGINT, self.interrupted)

    def interrupted(self, number: int, frame: FrameType | None) -> None:
        if self.at_work:
            raise KeyboardInterrupt

    def answer(self, question: Any) -> dict[str, Any]:
        """The answer to a question, which is a dictionary with the name of a method of this class under "do"."""
        try:
            self.at_work = True
            answer: dict[str, Any] = getattr(self, question.pop("do"))(**question)
        except KeyboardInterrupt:
            answer = {"stopped": True}
        except BaseException as error:
            answer = {"broke": self.what(error)}
        finally:
            self.at_work = False
        return answer

    def what(self, error: BaseException) -> str:
        """An error in words, whoever made it."""
        raised = self.beside.raised(error)
        return f"{raised['type']}: {raised['message']}"

    def prepare(self, stems: list[str]) -> dict[str, Any]:
        """Import what checks need: it takes seconds, and no cell's time."""
        for stem in stems:
            run_of(stem)
        return {}

    def read(self, source: str) -> dict[str, Any]:
        """What a cell imports and defines, read without running it."""
        trees = list(self.trees(source))
        imports = [name for tree in trees for name in imported(tree)]
        defines = [name for tree in trees for name in defined(tree.body)]
        return {"imports": names(imports), "defines": names(defines)}

    def trees(self, source: str) -> Iterator[ast.Module]:
        """The syntax of a cell, and of what a cell magic is put in front of."""
        parts = [source]
        if source.lstrip().startswith("%%"):
            parts.append(source.lstrip().partition("\n")[2])
        for part in parts:
            try:
                yield ast.parse(self.shell.transform_cell(part))
            except Exception:  # it is no Python, and running it will say so
                continue

    def run(self, source: str) -> dict[str, Any]:
        """Run a cell: what it raised, if it did, and how many characters it printed."""
        before = self.printed.count
        result = self.shell.run_cell(source, store_history=False, silent=False)
        error = result.error_before_exec or result.error_in_exec
        answer: dict[str, Any] = {"printed": self.printed.count - before, "raised": None}
        if isinstance(error, KeyboardInterrupt):
            return answer | {"stopped": True}
        if isinstance(error, SyntaxError):
            answer["raised"] = {"type": type(error).__name__, "message": str(error.msg), "line": error.lineno}
        elif error is not None:
            answer["raised"] = self.beside.raised(error)
        return answer

    def task(self, stem: str, function: str, inputs: Any) -> dict[str, Any]:
        """What the run of a check wrote down about the learner's function, and where that function is from."""
        code = self.shell.user_ns.get(function)
        if code is None:
            return {"missing": True}
        if not callable(code):
            return {"no function": self.beside.what(code)}
        return {"elsewhere": elsewhere(code), "outputs": run_of(stem)(code, inputs)}


def run_of(stem: str) -> Callable[[Any, Any], Any]:
    """The part of a check that is here."""
    run: Callable[[Any, Any], Any] = importlib.import_module(f"course_lib.checks.runs.{stem}").run
    return run


def nobody_answers(*prompt: object) -> str:
    raise EOFError("nobody is here to answer input()")


def make_shell() -> Any:
    """IPython without a terminal, a history, or commands of the system."""
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.text import SList
    from traitlets.config import Config

    class Shell(InteractiveShell):
        def showtraceback(self, *given: Any, **named: Any) -> None:
            pass

        def showsyntaxerror(self, *given: Any, **named: Any) -> None:
            pass

        def system(self, command: str) -> None:
            self.user_ns["_exit_code"] = 0

        system_raw = system_piped = system

        def getoutput(self, command: str, split: bool = True, depth: int = 0) -> Any:
            return SList() if split else ""

        def enable_gui(self, gui: Any = None) -> None:
            pass

        def ask_exit(self) -> None:
            pass

    config = Config()
    config.HistoryManager.enabled = False
    config.InteractiveShell.colors = "NoColor"
    return Shell.instance(config=config)


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that a piece of Python imports, by whatever spelling can be read."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in ("__import__", "import_module") and isinstance(node.args[0].value, str):
                yield node.args[0].value


def defined(body: list[ast.stmt]) -> Iterator[str]:
    """The names that a cell defines with `def` or `class`, not those inside of other functions and classes."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from defined(getattr(node, inner, []))


def names(found: list[str]) -> list[str]:
    return [name[:LONGEST_NAME] for name in dict.fromkeys(found)][:MOST_NAMES]


def elsewhere(code: Any) -> str:
    """Where a function comes from that no cell has made; empty if one has, or if the object does not tell."""
    try:
        for _ in range(10):
            if type(code) is functools.partial:
                code = code.func
            elif type(code) is MethodType:
                code = code.__func__
            elif type(code) is FunctionType and "__wrapped__" in code.__dict__:  # decorated
                code = code.__dict__["__wrapped__"]
            else:
                break
        made = type(code).__module__ if not isinstance(code, type | FunctionType | BuiltinFunctionType) else ""
        module = "__main__" if made == "__main__" else code.__module__
        return "" if module == "__main__" else f"the module {module}" if module else "Python itself"
    except KeyboardInterrupt:
        raise
    except BaseException:
        return ""


if __name__ == "__main__":
    main()
