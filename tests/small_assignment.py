"""An assignment of one task and one question, with a check that needs no torch: for tests of marking.

The task is `double(numbers)`, whose check has four cases and is worth 4 points. The notebook around it is made here.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course_lib.checks import Exercise
from course_lib.checks.contract import Line, Verdict, is_unsolved, part
from course_lib.checks.plain import Plain
from course_lib.grading import mark as marking
from course_lib.grading.assignment import Assignment, Question, Task
from course_lib.grading.sandbox import Limits, Sandbox

needs_sandbox = pytest.mark.skipif(not Sandbox.available(), reason=Sandbox.why_not() or "there is a sandbox")

NAME, STEM = "ex99.double", "ex99_double"
KEY = b"a secret of whoever teaches, long enough"
QUICK = Limits(cell_s=2, task_s=2, total_s=40, grace_s=0.3, memory_bytes=1 << 30, folder_bytes=32 << 20)
ASSIGNMENT = Assignment(
    "ex99_small", "Small", 5, (Task(NAME, 4.0, "Double"),), (Question("ex99_why_answer", 2.0, "Why"),)
)
CASES = ("small", "negative", "many", "none")
RUN = """
from course_lib.checks.beside import Went, as_plain, called, is_starter


def run(code, inputs):
    starter = is_starter(code)
    return {"starter": starter, "cases": {name: case(code, given) for name, given in inputs["cases"].items()}}


def case(code, given):
    try:
        return {"came": as_plain(called(code, list(given)), "the list"), "ended": None}
    except Went as reason:
        return {"came": None, "ended": reason.data}
"""
RIGHT = "def double(numbers):\n    return [2 * each for each in numbers]"
WRONG = "def double(numbers):\n    return [each + 1 for each in numbers]"  # right for an empty list alone
STARTER = "def double(numbers):\n    # YOUR CODE HERE\n    raise NotImplementedError()"


class Double:
    """The check of the task, on the trusted side."""

    FUNCTION, CALL, TOLERANCE, NOT_CHECKED = "double", "double(numbers)", "none", "speed"

    @staticmethod
    def draw(seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        sizes = {"small": (3, 2, 9), "negative": (4, -999, -1), "many": (50, 10**6, 10**9), "none": (0, 1, 2)}
        return {"cases": {name: rng.integers(low, high, n).tolist() for name, (n, low, high) in sizes.items()}}

    @staticmethod
    def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
        if is_unsolved(outputs, list(inputs["cases"])):
            return Verdict((), unsolved=True)
        lines = []
        for name, given in inputs["cases"].items():
            came = part(outputs, "cases", name).get("came")
            right = isinstance(came, list) and [type(each) for each in came] == [int] * len(given)
            passed = right and came == [2 * each for each in given]
            lines.append(Line(name, passed, "" if passed else "These are not the doubled numbers."))
        return Verdict(tuple(lines))


def use_small_check(patch: pytest.MonkeyPatch, rules_out: tuple[str, ...] = ("course_lib.caches",)) -> None:
    """Marking finds the check of the small assignment, and all others as before."""
    known = marking.check_named, marking.exercise, marking.file_stem
    patch.setattr(marking, "check_named", lambda name: Double if name == NAME else known[0](name))
    patch.setattr(marking, "file_stem", lambda name: STEM if name == NAME else known[2](name))
    patch.setattr(
        marking,
        "exercise",
        lambda name: Exercise(NAME, "", ("", "", ""), "", 4.0, rules_out) if name == NAME else known[1](name),
    )


@contextmanager
def room(rules_out: tuple[str, ...] = ("course_lib.caches",), *, trusted: bool = False) -> Iterator[Sandbox]:
    """A sandbox that holds the inner part of the small check, too."""
    with Sandbox(rules_out, trusted=trusted) as sandbox:
        (sandbox.course / "course_lib/checks/runs" / f"{STEM}.py").write_text(RUN)
        yield sandbox


def code(source: str, **meta: Any) -> dict[str, Any]:
    """A cell of code; with `meta` one of an assignment."""
    return {
        "cell_type": "code",
        "id": "c",
        "metadata": {"nbgrader": meta} if meta else {},
        "source": source,
        "outputs": [],
        "execution_count": None,
    }


def text(source: str, **meta: Any) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": "m", "metadata": {"nbgrader": meta} if meta else {}, "source": source}


def graded(
    grade_id: str, points: float | None = None, *, locked: bool = False, solution: bool = False
) -> dict[str, Any]:
    """The metadata of a cell of an assignment."""
    own = {"grade_id": grade_id, "grade": points is not None, "locked": locked, "solution": solution}
    return own | {"schema_version": 3, "task": False} | ({"points": points} if points is not None else {})


def notebook(*cells: str | dict[str, Any], answer: str = "Because.", **changed: Any) -> dict[str, Any]:
    """A notebook of the small assignment, in which the cells stand where the learner's cell is.

    The first of them, if it is text, has the metadata of the learner's cell.
    """
    own = [cell if isinstance(cell, dict) else code(cell) for cell in cells]
    if own and isinstance(cells[0], str):
        own[0]["metadata"]["nbgrader"] = graded("ex99_double", solution=True)
    before = [
        text("## 1. Double (4 points)", **graded("ex99_double_task", locked=True)),
        code("from course_lib.study import check, example, hint, points"),
    ]
    after = [
        code('with example("double"):\n    print(double([1, 2]))', **graded("ex99_double_examples", locked=True)),
        code(f'points("{NAME}")', **graded("ex99_double_check", 4, locked=True)),
        text("## 2. Why? (2 points)", **graded("ex99_why_question", locked=True)),
        text(answer, **graded("ex99_why_answer", 2, solution=True)),
    ]
    made = {"cells": [*before, *own, *after], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return made | changed


def older(version: int) -> dict[str, Any]:
    """The notebook as an old Jupyter saved it."""
    made = notebook(RIGHT)
    for cell in made["cells"]:
        del cell["id"]
        cell["source"] = cell["source"].splitlines(keepends=True)
        if version == 3 and cell["cell_type"] == "code":
            cell["input"] = cell.pop("source")
            cell |= {"language": "python", "collapsed": False, "prompt_number": cell.pop("execution_count")}
    if version == 3:
        return {"worksheets": [{"cells": made["cells"]}], "metadata": {}, "nbformat": 3, "nbformat_minor": 0}
    return made | {"nbformat_minor": 0}


def handed_in(folder: Path, content: dict[str, Any] | str | bytes, name: str = "ex99_small.ipynb") -> Path:
    """A file with that content."""
    path = folder / name
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
    return path


def most_memory(since: int | None = None) -> int:
    """Bytes that this process held at the most since it was asked before, above `since`. Linux counts that."""
    if not sys.platform.startswith("linux"):
        return 0
    if since is None:
        Path("/proc/self/clear_refs").write_text("5")
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found
    return (int(found[1]) << 10) - (since or 0)
