"""The marks of a class in one table: what was marked here, and what a person gave for the written answers.

The one idea: marks.csv has two authors, and a new run replaces only what is its own. The points of written answers,
columns that somebody added and rows of others are carried over; a file that a person saved is kept as it was, too.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from course_lib.commands.output import write_whole
from course_lib.commands.places import short
from course_lib.grading.assignment import Assignment, Question
from course_lib.grading.group import Result
from course_lib.grading.handed_in import HandedIn, label
from course_lib.grading.record import plain
from course_lib.grading.sheets import (
    WORTH,
    BadSheet,
    Name,
    Sheet,
    column,
    one_cell,
    one_line,
    read_sheet,
    written_sheet,
)

SHEET, DATA = "marks.csv", "marks.json"
LONGEST = 1_000  # characters of a cell
MOST_FAULTS = 20  # that are named
GRADED, NOT_GRADED, NOT_A_NOTEBOOK, NOTHING = "graded", "not graded", "not a notebook", "nothing handed in"
STATES = (GRADED, NOT_GRADED, NOT_A_NOTEBOOK, NOTHING)


@dataclass(frozen=True)
class ByHand:
    """A marks.csv as a person left it: the points of written answers by student and question, and all else."""

    sheet: Sheet
    points: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def row(self, student: str) -> dict[str, str]:
        return next((row for _, row in self.sheet.rows if row["student"] == student), {})


UNTOUCHED = ByHand(Sheet((), ()))


@dataclass(frozen=True)
class Row:
    """One student: what came of the submission, and the points that a person gave."""

    student: str  # as in tables and in names of files
    name: Name
    result: Result
    by_hand: Mapping[str, float | None]
    anew: bool  # handed in anew since marks.csv was written

    @property
    def state(self) -> str:
        if self.result.why_not:
            return NOT_GRADED
        if self.result.handed_in.not_a_notebook:
            return NOT_A_NOTEBOOK
        return GRADED if self.result.marks else NOTHING

    @property
    def waiting(self) -> list[str]:
        """The written answers that a person has still to mark; where nothing was written there is nothing to do."""
        answers = self.result.marks.answers if self.result.marks else ()
        return [answer.cell for answer in answers if answer.text and self.by_hand.get(answer.cell) is None]

    @property
    def total(self) -> float | None:
        """All points, once a person has marked what has to be marked by one; for what is not a notebook a person
        decides."""
        if self.result.marks is None or self.state == NOT_A_NOTEBOOK or self.waiting:
            return None
        return self.result.marks.earned + sum(points or 0 for points in self.by_hand.values())

    @property
    def about(self) -> list[str]:
        """What a person should know who looks at the whole class."""
        why_not = self.result.why_not
        about = [why_not] if why_not else []
        handed_in = self.result.handed_in
        about += [said for said in (handed_in.not_a_notebook, *handed_in.said) if said and said not in why_not]
        if self.result.unjudged:
            about.append("A task could not be judged; see its feedback.")
        if self.anew and any(points is not None for points in self.by_hand.values()):
            about.append("Handed in anew since the written answers were marked: look at them again.")
        return about

    @property
    def notes(self) -> list[str]:
        """All there is to say about a submission, but for its tasks."""
        marks = self.result.marks
        if marks is None or self.state == NOT_A_NOTEBOOK:
            return self.about
        empty = [f"{answer.title or answer.cell}: nothing written." for answer in marks.answers if not answer.text]
        return [*self.about, *marks.notes, *empty]


def by_hand(path: Path, assignment: Assignment) -> ByHand:
    """What stands in a marks.csv. Raises BadSheet with all that cannot be kept."""
    if not path.exists():
        return UNTOUCHED
    sheet = read_sheet(path, ("student",))
    questions = {column(question.cell): question for question in assignment.questions}
    points: dict[str, dict[str, float]] = {}
    faults: list[str] = []
    for line, row in sheet.rows:
        if not row["student"]:  # a sum, say
            continue
        if row["student"] in points:
            faults.append(f"line {line}: {one_line(row['student'])} is there twice; delete one line")
        given = points.setdefault(row["student"], {})
        for name, question in questions.items():
            try:
                if row.get(name):
                    given[question.cell] = number(row[name], question)
            except ValueError as fault:
                faults.append(f"line {line} ({one_line(row['student'])}): {fault}")
    if faults:
        more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
        raise BadSheet(f"{path.name}, {'; '.join(faults[:MOST_FAULTS])}{more}")
    return ByHand(sheet, points)


def number(cell: str, question: Question) -> float:
    """Points that a person typed, with a point or a comma. Raises ValueError."""
    given = math.nan
    with suppress(ValueError):
        given = float(cell.replace(",", "."))
    if not 0 <= given <= question.points:
        said = f"{one_line(cell, 40)!r} for {question.cell} should be a number from 0 to {question.points:g}"
        raise ValueError(f"{said}, or empty")
    return given


def rows_of(results: Sequence[Result], assignment: Assignment, names: Mapping[str, Name], before: ByHand) -> list[Row]:
    """A row for each student, in the order of `results`. Who is not in `names` is called as in marks.csv."""
    rows = []
    for result in results:
        student, handed_in = label(result.handed_in.student), result.handed_in
        there, given = before.row(student), before.points.get(student, {})
        as_before = Name(
            handed_in.student, one_line(there.get("name", "")) or student, one_line(there.get("email", ""))
        )
        name = names.get(handed_in.student, as_before)
        points = {question.cell: given.get(question.cell) for question in assignment.questions}
        version = there.get("version")
        rows.append(Row(student, name, result, points, anew=version not in (None, "", version_of(handed_in))))
    return rows


def version_of(handed_in: HandedIn) -> str:
    """What was handed in, in short; no spreadsheet takes it for a number."""
    return f"v-{handed_in.digest[:12]}" if handed_in.digest else ""


def as_sheet(rows: Sequence[Row], assignment: Assignment, before: ByHand) -> bytes:
    """The table as CSV. What others added to it stays: columns at its right, rows at its end."""
    tasks, questions = assignment.tasks, assignment.questions
    automatic = sum(task.points for task in tasks)
    headings = ["student", "name", "email", "result"]
    headings += [f"{task.check}{WORTH}{task.points:g})" for task in tasks]
    headings += [f"tasks{WORTH}{automatic:g})"]
    headings += [f"{question.cell}{WORTH}{question.points:g})" for question in questions]
    headings += [f"total{WORTH}{assignment.points:g})", "notes", "notebook", "version"]
    own = [column(heading) for heading in headings]
    of_points = [name for name, heading in zip(own, headings) if WORTH in heading]
    comma = before.sheet.decimal_comma(of_points)
    added = [heading for heading in before.sheet.headings if heading and column(heading) not in own]
    lines = []
    for row in rows:
        marks, there = row.result.marks, before.row(row.student)
        earned = {task.check: task.earned for task in marks.tasks} if marks else {}
        path = row.result.handed_in.path
        lines.append(
            [
                *(row.student, one_cell(row.name.name), one_cell(row.name.email), row.state),
                *(shown(earned.get(task.check), comma) for task in tasks),
                shown(marks.earned if marks else None, comma),
                *(shown(row.by_hand[question.cell], comma) for question in questions),
                *(shown(row.total, comma), one_cell(one_line(" ".join(row.notes), LONGEST))),
                *(one_cell(one_line(path.name)) if path else "", version_of(row.result.handed_in)),
                *(there.get(column(heading), "") for heading in added),
            ]
        )
    here = {row.student for row in rows}
    columns = [column(heading) for heading in (*headings, *added)]
    lines += [[row.get(name, "") for name in columns] for row in others(before, here)]
    return written_sheet([*headings, *added], lines, before.sheet.delimiter)


def others(before: ByHand, here: set[str]) -> list[dict[str, str]]:
    """The rows of those who are not here now."""
    return [row for _, row in before.sheet.rows if row["student"] not in here]


def shown(points: float | None, comma: bool = False) -> str:
    """Points for a cell; with `comma` as 2,5."""
    return "" if points is None else f"{points:g}".replace(".", "," if comma else ".")


def as_data(row: Row) -> dict[str, Any]:
    """A row for JSON: points by task and question, seconds and the most memory, and all that was said."""
    marks = row.result.marks
    path = row.result.handed_in.path
    data: dict[str, Any] = {"student": row.student, "name": row.name.name, "email": row.name.email}
    data |= {"result": row.state, "kept": row.result.kept, "file": short(path) if path else None}
    data |= {"total": row.total, "by_hand": dict(row.by_hand), "said": row.notes}
    found = plain(marks) if marks else {}
    return data | {key: found[key] for key in found if key not in ("assignment", "submission", "notes")}


def write_class(folder: Path, sheet: bytes, data: Mapping[str, Any], before: ByHand, rows: Sequence[Row]) -> list[str]:
    """Write marks.csv and marks.json; says what a person should know about that."""
    path, said = folder / SHEET, []
    raw = path.read_bytes() if path.exists() else b""
    if raw and raw != sheet and digest_of(raw) != last_written(folder / DATA):
        kept = next(each for n in count(1) if not (each := folder / f"marks-by-hand-{n}.csv").exists())
        write_whole(kept, raw)
        said.append(f"{SHEET} was changed by hand: what is yours in it stays; as it was it is kept in {kept.name}")
    if rest := others(before, {row.student for row in rows}):
        names = ", ".join(one_line(row["student"], 40) or "(no name)" for row in rest[:5]) + ", …" * (len(rest) > 5)
        said.append(f"{SHEET} has {len(rest)} more of an earlier run, who were not looked at now: {names}")
    digest = {"marks_csv_sha256": digest_of(sheet)}
    write_whole(folder / DATA, (json.dumps(dict(data) | digest, indent=1) + "\n").encode())
    if raw != sheet:
        write_whole(path, sheet)
    return said


def digest_of(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def last_written(path: Path) -> str:
    """The digest of the marks.csv that was written last."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_bytes())
        return str(found.get("marks_csv_sha256")) if isinstance(found, dict) else ""
    return ""
