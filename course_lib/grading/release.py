"""The notebook that learners get, made from the source with its solutions.

The one idea: it is what nbgrader itself would make, byte for byte, so a class can release with either and find the same
checksums; but making it needs no nbgrader. Solutions become a stub, written answers an empty one, what is only to be
read is locked, and every cell is sealed. A source that could give something away, or that would not be what its author
meant, is refused with the cell named.
"""

from __future__ import annotations

import ast
import hashlib
import re
from copy import deepcopy

import nbformat
from nbformat import NotebookNode

from course_lib.commands.build import METADATA
from course_lib.grading.assignment import ANSWER, STARTER, Assignment, BadAssignment, assignment_of, kind_of, worth

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"  # in a line of its own, as nbgrader looks for them
NOT_HERE = {
    "HIDDEN TESTS": "hidden inputs are drawn by the check",
    "MARK SCHEME": "the mark scheme stands in the written answer, which is replaced as a whole",
    "AUTOTEST": "what is graded is the check",
}
CODE_STUB = ("# YOUR CODE HERE", "raise NotImplementedError()")
ANSWER_STUB = "YOUR ANSWER HERE"
KEPT = ("jupyter", "nbgrader", "tags")  # metadata of a cell that somebody meant


def normal_source(notebook: NotebookNode) -> NotebookNode:
    """A copy of a source notebook without what differs for no reason: its own normal form.

    A cell's id is its grade_id, so it stays the same whatever is edited; outputs and what an editor notes go.
    """
    cells = []
    for old in notebook.cells:
        cell = NotebookNode(cell_type=old.cell_type, source=old.source.rstrip(), metadata=NotebookNode())
        for key in KEPT:
            if key in old.metadata:
                cell.metadata[key] = deepcopy(old.metadata[key])
        meta = cell.metadata.get("nbgrader", {})
        cell.id = meta.get("grade_id") or old.id
        meta.pop("checksum", None)  # of the release
        meta.pop("cell_type", None)
        meta.setdefault("task", False)
        points = meta.get("points")
        if isinstance(points, float) and points.is_integer():
            meta["points"] = int(points)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        cells.append(cell)
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": deepcopy(METADATA), "cells": cells}
    return nbformat.from_dict(made)


def released(source: NotebookNode, name: str) -> tuple[Assignment, NotebookNode]:
    """The assignment in a source notebook, and what learners get of it. Raises BadAssignment."""
    faults = source_faults(source)
    try:
        assignment = assignment_of(source, name)
    except BadAssignment as problem:
        raise BadAssignment(problem.faults + faults) from None
    if faults:
        raise BadAssignment(faults)
    notebook = normal_source(source)
    for cell in notebook.cells:
        kind = kind_of(cell)
        if kind == STARTER:
            cell.source = without_solutions(cell.source)
        elif kind == ANSWER:
            cell.source = ANSWER_STUB
        cell.metadata.deletable = False
        if kind not in (STARTER, ANSWER):
            cell.metadata.editable = False
        cell.metadata.nbgrader |= {"cell_type": cell.cell_type, "checksum": checksum(cell)}
    return assignment, notebook


def without_solutions(source: str) -> str:
    """A learner's cell with a stub in the place of each solution region."""
    lines, inside = [], False
    for line in source.split("\n"):
        if BEGIN in line:
            indent, inside = line[: len(line) - len(line.lstrip())], True
            lines += [indent + stub for stub in CODE_STUB]
        elif END in line:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def checksum(cell: NotebookNode) -> str:
    """nbgrader's seal of a cell: MD5 over its source, its kind, its grade_id and its points."""
    meta = cell.metadata.nbgrader
    locked = (meta.grade or meta.locked) and not meta.solution
    sealed = f"{cell.source}{cell.cell_type}{meta.grade}{meta.solution}{locked}{meta.grade_id}"
    if meta.grade:
        sealed += str(float(meta.points))
    return hashlib.md5(sealed.encode(), usedforsecurity=False).hexdigest()


def source_faults(notebook: NotebookNode) -> list[str]:
    """What is wrong with the solutions in a source notebook: regions, and what would be left of them."""
    faults = []
    for number, cell in enumerate(notebook.cells, start=1):
        kind = kind_of(cell)
        found = [f"has a line with {word}: {why}" for word, why in NOT_HERE.items() if word in cell.source]
        if kind == STARTER:
            found += region_faults(cell.source)
        elif BEGIN in cell.source or END in cell.source:
            found.append(f"has a line with {BEGIN} or {END}, but only a learner's code has solutions")
        if kind == ANSWER:
            found += scheme_faults(cell.source, cell.metadata.nbgrader.get("points"))
        named = cell.metadata.nbgrader.get("grade_id") if kind else "without a role"
        faults += [f"cell {number} ({named}): {fault}" for fault in found]
    return faults


def region_faults(source: str) -> list[str]:
    """What is wrong with the solution regions of a learner's cell; they have to stand inside of functions, so that the
    released cell can be run."""
    faults, opened, regions = [], 0, 0
    for number, line in enumerate(source.split("\n"), start=1):
        if BEGIN in line:
            regions += 1
            if opened:
                faults.append(f"line {number} begins a solution inside of that of line {opened}")
            if not line.startswith(" "):
                faults.append(f"line {number} begins a solution outside of a function: the released cell would raise")
            opened = number
        elif END in line:
            if not opened:
                faults.append(f"line {number} ends a solution that never began")
            opened = 0
    if opened:
        faults.append(f"the solution that begins in line {opened} has no {END}")
    if not regions:
        faults.append(f"it has no solution: write ### {BEGIN} and ### {END} around it")
    if not faults:
        try:
            ast.parse(without_solutions(source))
        except SyntaxError as error:
            faults.append(f"what is released of it is no Python: {error.msg}, line {error.lineno} of that")
    return faults


def scheme_faults(source: str, points: object) -> list[str]:
    """A written answer is followed by its mark scheme, whose points add up to those of the cell."""
    answer, found, scheme = source.partition("**Mark scheme**")
    if not found or not answer.strip():
        return ["should be an answer, then **Mark scheme** and a list: - 1 point: what it is given for"]
    given = sum(float(each) for each in re.findall(r"^- (\d+(?:\.5)?) points?: .", scheme, re.MULTILINE))
    if isinstance(points, int | float) and given != points:
        return [f"its mark scheme gives {worth(given)}, the cell {worth(points)}"]
    return []
