"""An assignment as a notebook: which tasks it has, how many points each is worth, and what is wrong with the file.

The one idea: the notebook itself says all of it. A cell's role is read from its nbgrader metadata (may it be edited, is
it graded) and from the end of its grade_id, so the same reader serves the source with its solutions and the released
notebook without them. What a task asks and what it is worth also stands with its check; the two must agree. It neither
runs nor changes anything.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from nbformat import NotebookNode

from course_lib.checks import BadExercise, UnknownCheck, exercise
from course_lib.commands.kernels import NotebookProblem, read_notebook

SOURCES, RELEASED = "solutions", "exercises"  # folders of the checkout, with one folder an assignment
NAME = re.compile(r"(ex\d\d)_[a-z0-9_]+")
GRADE_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what nbgrader takes, and an id of a cell, too
TEXT, STARTER, CHECK, ANSWER = "text", "starter", "check", "answer"
KINDS = {  # type of the cell, nbgrader's grade, locked and solution → what it is
    ("markdown", False, True, False): TEXT,
    ("code", False, True, False): TEXT,
    ("code", False, False, True): STARTER,
    ("code", True, True, False): CHECK,
    ("markdown", True, False, True): ANSWER,
}
FLAGS, SCHEMA = ("grade", "locked", "solution"), 3  # of nbgrader 0.9


class BadAssignment(ValueError):
    """A notebook that is no assignment as it is; `faults` has a sentence for each thing that is wrong."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


@dataclass(frozen=True)
class Task:
    """Something to write in code, judged by a check: `cell` is the grade_id of the learner's cell."""

    check: str  # "ex03.append"
    points: float
    title: str

    @property
    def cell(self) -> str:
        return self.check.replace(".", "_")

    @property
    def check_cell(self) -> str:
        return f"{self.cell}_check"


@dataclass(frozen=True)
class Question:
    """Something to answer in words, marked by a person: `cell` is the grade_id of the answer."""

    cell: str
    points: float
    title: str


@dataclass(frozen=True)
class Assignment:
    """What there is to do in a notebook, in its order."""

    name: str  # "ex03_kv_cache", of the folder and of the file
    title: str
    minutes: int
    tasks: tuple[Task, ...]
    questions: tuple[Question, ...]

    @property
    def points(self) -> float:
        return sum(task.points for task in self.tasks) + sum(question.points for question in self.questions)


def read_assignment(path: Path) -> Assignment:
    """The assignment in a file, a source or a released one. Raises BadAssignment."""
    try:
        notebook = read_notebook(path)
    except NotebookProblem as problem:
        raise BadAssignment([str(problem)]) from None
    return assignment_of(notebook, path.stem)


def assignment_of(notebook: NotebookNode, name: str) -> Assignment:
    """The assignment in a notebook of that name. Raises BadAssignment with everything that is wrong with it."""
    reader = Reader(notebook, name)
    made = reader.read()
    if reader.faults:
        raise BadAssignment(reader.faults)
    return made


def sources(root: Path) -> list[Path]:
    """The source notebooks of a checkout, in order."""
    return sorted(path for path in (root / SOURCES).glob("ex*/ex*.ipynb") if path.stem == path.parent.name)


def kind_of(cell: NotebookNode) -> str:
    """What nbgrader's flags make of a cell: text, starter, check or answer; empty for anything else."""
    meta = cell.metadata.get("nbgrader")
    flags = [meta.get(flag) for flag in FLAGS] if isinstance(meta, dict) else []
    return KINDS.get((cell.cell_type, *flags), "") if all(isinstance(flag, bool) for flag in flags) else ""


def role(grade_id: str) -> tuple[str, str]:
    """What a cell belongs to, and as what: ("ex03_append", "check"). A learner's own cell has an empty role."""
    stem, _, end = grade_id.rpartition("_")
    return (stem, end) if stem and end in ("task", "examples", "check", "question", "answer") else (grade_id, "")


def worth(points: float) -> str:
    """ "1 point", "2.5 points"."""
    return f"{points:g} point{'s' * (points != 1)}"


@dataclass(frozen=True)
class Cell:
    """A cell with a role; `number` counts from 1 at the top."""

    number: int
    grade_id: str
    kind: str  # empty if nbgrader's flags make no cell of an assignment
    source: str
    points: float | None

    def __str__(self) -> str:
        return f"cell {self.number} ({self.grade_id or 'without a grade_id'})"


class Reader:
    """One reading of a notebook; `faults` has everything that was found to be wrong, in order."""

    def __init__(self, notebook: NotebookNode, name: str) -> None:
        self.name, self.faults = name, []  # type: str, list[str]
        self.cells = [self.cell(number, node) for number, node in enumerate(notebook.cells, start=1)]

    def read(self) -> Assignment:
        named = NAME.fullmatch(self.name)
        if not named:
            self.faults.append(f"its name should be like ex03_kv_cache, not {self.name}")
        else:
            for cell in self.cells:
                if cell.grade_id and not re.match(rf"{named[1]}(_|$)", cell.grade_id):
                    self.fault(cell, f"its grade_id should begin with {named[1]}_")
        for grade_id, count in Counter(cell.grade_id for cell in self.cells).items():
            if count > 1 and grade_id:
                numbers = [str(cell.number) for cell in self.cells if cell.grade_id == grade_id]
                self.faults.append(f"cells {' and '.join(numbers)} have the same grade_id, {grade_id}")
        tasks = tuple(self.task(cell) for cell in self.cells if cell.kind == CHECK)
        questions = tuple(self.question(cell) for cell in self.cells if cell.kind == ANSWER)
        graded = {task.cell for task in tasks}
        for cell in self.cells:
            if cell.kind == STARTER and cell.grade_id not in graded:
                self.fault(cell, f"nothing judges it: there is no cell {cell.grade_id}_check")
        if not tasks:
            self.faults.append("it has no task: no autograded cell")
        self.in_order()
        title, minutes = self.opening(Assignment(self.name, "", 0, tasks, questions).points)
        return Assignment(self.name, title, minutes, tasks, questions)

    def fault(self, cell: Cell, said: str) -> None:
        self.faults.append(f"{cell}: {said}")

    def cell(self, number: int, node: NotebookNode) -> Cell:
        """A cell with what its metadata says, and whether nbgrader would take that."""
        meta = node.metadata.get("nbgrader")
        if not isinstance(meta, dict):
            cell = Cell(number, "", "", node.source, None)
            self.fault(cell, "every cell of an assignment has nbgrader metadata, those to read are locked")
            return cell
        grade_id, points = meta.get("grade_id"), meta.get("points")
        kind = kind_of(node)
        known = grade_id if isinstance(grade_id, str) and GRADE_ID.fullmatch(grade_id) else ""
        is_number = isinstance(points, int | float) and not isinstance(points, bool) and points > 0
        cell = Cell(number, known, kind, node.source, float(points) if is_number else None)  # type: ignore[arg-type]
        if not known:
            self.fault(cell, f"its grade_id should be letters, digits, - and _, not {str(grade_id)[:60]!r}")
        if meta.get("schema_version") != SCHEMA:
            self.fault(cell, f"its nbgrader metadata should be of schema_version {SCHEMA}")
        if not kind or meta.get("task"):
            named = ", ".join(f"{flag} {meta.get(flag)}" for flag in FLAGS)
            self.fault(cell, f"a {node.cell_type} cell with {named} is no part of an assignment")
        elif (kind in (CHECK, ANSWER)) != (points is not None):
            self.fault(cell, "has points, but nobody grades it" if points is not None else "has no points")
        elif points is not None and not is_number:
            self.fault(cell, f"its points should be a number above 0, not {points!r}")
        return cell

    @cached_property
    def by_id(self) -> dict[str, Cell]:
        return {cell.grade_id: cell for cell in reversed(self.cells) if cell.grade_id}

    def task(self, cell: Cell) -> Task:
        """The task that an autograded cell judges."""
        stem, end = role(cell.grade_id)
        check = stem.replace("_", ".", 1)
        if end != "check":
            self.fault(cell, "the grade_id of an autograded cell should end with _check")
        elif cell.source.strip() != f'points("{check}")':
            self.fault(cell, f'should be points("{check}") and nothing else')
        title = self.parts(cell, stem, {"task": TEXT, "": STARTER, "examples": TEXT, "check": CHECK})
        try:
            asked = exercise(check)
        except (UnknownCheck, BadExercise) as error:
            self.fault(cell, str(error))
        else:
            if cell.points is not None and cell.points != asked.points:
                self.fault(cell, f"gives {worth(cell.points)}, {stem}.toml says {worth(asked.points)}")
            statement = self.by_id.get(f"{stem}_task")
            if statement and " ".join(statement.source.split("\n", 1)[-1].split()) != asked.statement:
                self.fault(statement, f"its text below the heading is not the statement in {stem}.toml")
        return Task(check, cell.points or 0, title)

    def question(self, cell: Cell) -> Question:
        """The question that a cell for a written answer belongs to."""
        stem, end = role(cell.grade_id)
        if end != "answer":
            self.fault(cell, "the grade_id of a written answer should end with _answer")
        return Question(cell.grade_id, cell.points or 0, self.parts(cell, stem, {"question": TEXT, "answer": ANSWER}))

    def parts(self, graded: Cell, stem: str, wanted: dict[str, str]) -> str:
        """The title of a task or a question whose cells are `wanted`, role → kind, in this order."""
        before = 0
        for end, kind in wanted.items():
            grade_id = f"{stem}_{end}" if end else stem
            cell = self.by_id.get(grade_id)
            if cell is None:
                self.fault(graded, f"there is no cell {grade_id} before it")
            elif cell.kind != kind and cell.kind:
                self.fault(cell, f"should be a {kind} cell, not one of the kind {cell.kind}")
            elif cell.number < before:
                self.fault(cell, f"stands too early: the order is {', '.join(end or 'code' for end in wanted)}")
            before = cell.number if cell else before
        first = self.by_id.get(f"{stem}_{next(iter(wanted))}")
        heading = re.match(r"## \d+\. (.+) \(([\d.]+ points?)\)$", (first or graded).source, re.MULTILINE)
        if first and (not heading or (graded.points and heading[2] != worth(graded.points))):
            said = worth(graded.points or 0)
            self.fault(first, f"should begin with a heading like “## 1. What to do ({said})”")
        return heading[1] if heading else ""

    def in_order(self) -> None:
        """Tasks and questions come one after the other and are numbered."""
        number, open_stem = 0, ""
        for cell in self.cells:
            stem, end = role(cell.grade_id)
            if end in ("task", "question"):
                number += 1
                if cell.source.startswith("## ") and not cell.source.startswith(f"## {number}. "):
                    self.fault(cell, f"is number {number}; its heading says another")
                if open_stem:
                    self.fault(cell, f"begins before {open_stem} has ended")
                open_stem = stem
            elif end in ("check", "answer"):
                open_stem = ""

    def opening(self, points: float) -> tuple[str, int]:
        """Title and minutes, from the first cell."""
        first = self.cells[0] if self.cells else Cell(1, "", "", "", None)
        title = re.match(r"# (.+)", first.source)
        minutes = re.search(r"\babout (\d+) minutes\b", first.source)
        builds_on = re.search(r"\bnotebooks? \d\d\b", first.source)
        total = re.search(r"\b([\d.]+ points?)\b", first.source)
        missing = [
            named
            for named, found in (
                ("a title (# …)", title),
                ("how long it takes (about 45 minutes)", minutes),
                ("what it builds on (notebook 03)", builds_on),
                (f"what it is worth ({worth(points)})", total and total[1] == worth(points)),
            )
            if not found
        ]
        if missing:
            self.fault(first, f"the first cell does not say {', '.join(missing)}")
        return title[1] if title else "", int(minutes[1]) if minutes else 0
