"""What `course release` refuses: each way to break a source is told with the cell named, and nothing is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode, v4
from sample_assignment import NAME, cell, course, release_of, sample, source_of

from course_lib.commands.release import release_one
from course_lib.grading.assignment import BadAssignment, read_assignment

__all__ = ["course"]  # a fixture

Change = Callable[[NotebookNode], Any]


def meta(of: str, /, **changes: Any) -> Change:
    return lambda notebook: cell(notebook, of).metadata.nbgrader.update(changes)


def replaced(grade_id: str, old: str, new: str) -> Change:
    def change(notebook: NotebookNode) -> None:
        there = cell(notebook, grade_id)
        assert old in there.source
        there.source = there.source.replace(old, new, 1)

    return change


def removed(grade_id: str) -> Change:
    return lambda notebook: notebook.cells.remove(cell(notebook, grade_id))


def moved(grade_id: str, before: str) -> Change:
    def change(notebook: NotebookNode) -> None:
        there = cell(notebook, grade_id)
        notebook.cells.remove(there)
        notebook.cells.insert(notebook.cells.index(cell(notebook, before)), there)

    return change


def without(grade_id: str, key: str) -> Change:
    return lambda notebook: cell(notebook, grade_id).metadata.nbgrader.pop(key)


def plain_cell(notebook: NotebookNode) -> None:
    notebook.cells.insert(3, v4.new_markdown_cell("a note"))


END_OF_SOLUTION = "    ### END SOLUTION"
BROKEN: dict[str, tuple[Change, str]] = {
    "no end": (
        replaced("ex03_append", END_OF_SOLUTION, ""),
        "cell 4 (ex03_append): the solution that begins in line 3 has no END SOLUTION",
    ),
    "an end without a beginning": (
        replaced("ex03_append", "    ### BEGIN SOLUTION\n", ""),
        "cell 4 (ex03_append): line 13 ends a solution that never began",
    ),
    "one inside another": (
        replaced("ex03_append", "    if layer", "    ### BEGIN SOLUTION\n    if layer"),
        "line 7 begins a solution inside of that of line 3",
    ),
    "no solution": (
        lambda notebook: cell(notebook, "ex03_append").update(source="def append(cache, layer, k, v): ..."),
        "cell 4 (ex03_append): it has no solution",
    ),
    "a solution outside of a function": (
        lambda notebook: cell(notebook, "ex03_append").update(source="### BEGIN SOLUTION\nx = 1\n### END SOLUTION"),
        "cell 4 (ex03_append): line 1 begins a solution outside of a function: the released cell would raise",
    ),
    "a release that is no Python": (
        replaced("ex03_append", "-> tuple:", "-> tuple"),
        "cell 4 (ex03_append): what is released of it is no Python",
    ),
    "a solution in the examples": (
        replaced("ex03_append_examples", "cache = {}", "### BEGIN SOLUTION"),
        "cell 5 (ex03_append_examples): has a line with BEGIN SOLUTION or END SOLUTION, but only a learner's code",
    ),
    "hidden tests": (
        replaced("ex03_append_examples", "cache = {}", "### BEGIN HIDDEN TESTS"),
        "cell 5 (ex03_append_examples): has a line with HIDDEN TESTS: hidden inputs are drawn by the check",
    ),
    "the same grade_id twice": (
        meta("ex03_positions_examples", grade_id="ex03_append_examples"),
        "cells 5 and 9 have the same grade_id, ex03_append_examples",
    ),
    "other points than the check": (
        meta("ex03_append_check", points=6),
        "cell 6 (ex03_append_check): gives 6 points, ex03_append.toml says 5 points",
    ),
    "no points": (without("ex03_append_check", "points"), "cell 6 (ex03_append_check): has no points"),
    "points that are a text": (
        meta("ex03_append_check", points="5"),
        "cell 6 (ex03_append_check): its points should be a number above 0, not '5'",
    ),
    "points where nobody grades": (
        meta("ex03_append", points=5),
        "cell 4 (ex03_append): has points, but nobody grades it",
    ),
    "an unknown check": (
        lambda notebook: [
            cell(notebook, f"ex03_append{end}").metadata.nbgrader.update(grade_id=f"ex03_apend{end}")
            for end in ("_task", "", "_examples", "_check")
        ],
        "cell 6 (ex03_apend_check): There is no check “ex03.apend”. Did you mean “ex03.append”",
    ),
    "another check in the cell": (
        replaced("ex03_append_check", "append", "attend"),
        'cell 6 (ex03_append_check): should be points("ex03.append") and nothing else',
    ),
    "more than the points in the cell": (
        replaced("ex03_append_check", "points", "float(5)  # points"),
        "cell 6 (ex03_append_check): should be points(",
    ),
    "another statement": (
        replaced("ex03_append_task", "oldest first", "newest first"),
        "cell 3 (ex03_append_task): its text below the heading is not the statement in ex03_append.toml",
    ),
    "other points in the heading": (
        replaced("ex03_append_task", "(5 points)", "(6 points)"),
        "cell 3 (ex03_append_task): should begin with a heading like “## 1. What to do (5 points)”",
    ),
    "another number in the heading": (
        replaced("ex03_attend_task", "## 3.", "## 4."),
        "cell 11 (ex03_attend_task): is number 3; its heading says another",
    ),
    "no examples": (
        removed("ex03_append_examples"),
        "cell 5 (ex03_append_check): there is no cell ex03_append_examples before it",
    ),
    "no check": (removed("ex03_append_check"), "cell 4 (ex03_append): nothing judges it: there is no cell ex03"),
    "examples before the code": (
        moved("ex03_append_examples", "ex03_append"),
        "cell 4 (ex03_append_examples): stands too early: the order is task, code, examples, check",
    ),
    "a task inside another": (
        moved("ex03_positions_task", "ex03_append"),
        "cell 4 (ex03_positions_task): begins before ex03_append has ended",
    ),
    "a cell without a role": (plain_cell, "cell 4 (without a grade_id): every cell of an assignment has nbgrader"),
    "dots in a grade_id": (
        meta("ex03_append_examples", grade_id="ex03.append.examples"),
        "cell 5 (without a grade_id): its grade_id should be letters, digits, - and _, not 'ex03.append.examples'",
    ),
    "the grade_id of another assignment": (
        meta("ex03_end", grade_id="ex04_end"),
        "cell 23 (ex04_end): its grade_id should begin with ex03_",
    ),
    "an old schema": (
        meta("ex03_append", schema_version=2),
        "cell 4 (ex03_append): its nbgrader metadata should be of schema_version 3",
    ),
    "flags that make no sense": (
        meta("ex03_append_check", locked=False),
        "cell 6 (ex03_append_check): a code cell with grade True, locked False, solution False is no part",
    ),
    "flags that are no flags": (
        meta("ex03_append_check", locked=[1]),
        "cell 6 (ex03_append_check): a code cell with grade True, locked [1], solution False is no part",
    ),
    "metadata that is none": (
        lambda notebook: cell(notebook, "ex03_end").metadata.update(nbgrader=[1]),
        "cell 23 (without a grade_id): every cell of an assignment has nbgrader metadata",
    ),
    "no title": (replaced("ex03", "# A KV", "A KV"), "cell 1 (ex03): the first cell does not say a title"),
    "no time": (replaced("ex03", "about 75", "75"), "how long it takes (about 45 minutes)"),
    "nothing to build on": (replaced("ex03", "notebook 03", "what you know"), "what it builds on (notebook 03)"),
    "another sum of points": (replaced("ex03", "24 points", "25 points"), "what it is worth (24 points)"),
    "no mark scheme": (
        replaced("ex03_cost_answer", "**Mark scheme**", "Marks"),
        "cell 20 (ex03_cost_answer): should be an answer, then **Mark scheme** and a list",
    ),
    "a mark scheme that gives more": (
        replaced("ex03_cost_answer", "- 1 point:", "- 2 points:"),
        "cell 20 (ex03_cost_answer): its mark scheme gives 4 points, the cell 3 points",
    ),
    "no question": (removed("ex03_cost_question"), "(ex03_cost_answer): there is no cell ex03_cost_question before it"),
    "no cells": (lambda notebook: notebook.cells.clear(), "it has no task"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "said"), BROKEN.values(), ids=BROKEN)
def test_a_broken_source_is_refused_with_the_cell_named(change: Change, said: str, course: Path) -> None:
    assert release_one(course, NAME, check=False)["result"] == "written"
    before = release_of(course).read_bytes()
    notebook = sample()
    change(notebook)
    nbformat.write(notebook, source_of(course))
    source = source_of(course).read_bytes()
    row = release_one(course, NAME, check=False)
    assert row["result"] == "failed" and said in str(row["error"]), row["error"]
    assert f"{NAME}.ipynb: " in str(row["error"])
    assert (release_of(course).read_bytes(), source_of(course).read_bytes()) == (before, source)
    assert release_one(course, NAME, check=True)["result"] == "failed"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"cells": []}', b"\xff\xfe", b'{"nbformat": 4}'])
def test_a_file_that_is_no_notebook_is_refused(content: bytes, course: Path) -> None:
    source_of(course).write_bytes(content)
    row = release_one(course, NAME, check=False)
    assert row["result"] == "failed" and f"{NAME}.ipynb: " in str(row["error"])
    with pytest.raises(BadAssignment):
        read_assignment(source_of(course))
