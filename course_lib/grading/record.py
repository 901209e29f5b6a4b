"""Marks as JSON, and marks from JSON: what a grading run keeps of each submission, so that it can go on and be read.

The one idea: what a file says is taken for marks only if all of it fits. A file that was cut off, edited by hand or
written by something else is no record, and the submission is graded again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, TypeVar

from course_lib.checks.contract import Line
from course_lib.grading.mark import Answer, Marks, TaskMarks

T = TypeVar("T")


class NoRecord(ValueError):
    """A value that holds no marks; the message says where it stops fitting."""


def plain(marks: Marks) -> dict[str, Any]:
    """Marks as what JSON can hold, with the sums `points` and `earned`; `marks_from` gives the marks back."""
    return dataclasses.asdict(marks) | {"points": marks.points, "earned": marks.earned}


def marks_from(data: object) -> Marks:
    """The marks that `plain` made into `data`. Raises NoRecord for anything else."""
    entry = Entry(data, "marks")
    marks = Marks(
        entry.text("assignment"),
        entry.text("submission"),
        entry.each("tasks", task_from),
        entry.each("answers", answer_from),
        entry.texts("notes"),
        entry.number("seconds"),
        int(entry.number("peak_bytes")),
    )
    if (marks.points, marks.earned) != (entry.number("points"), entry.number("earned")):
        raise NoRecord("points and earned are not the sums of the tasks'")
    return marks


def task_from(entry: Entry) -> TaskMarks:
    points, earned = entry.number("points"), entry.number("earned")
    if not 0 <= earned <= points:
        raise NoRecord(f"{entry.where}: {earned:g} of {points:g} points")
    lines = entry.each("lines", line_from)
    return TaskMarks(entry.text("check"), entry.text("title"), points, earned, lines, entry.texts("said"))


def line_from(entry: Entry) -> Line:
    said = (entry.text(name) for name in ("said", "went_in", "expected", "came_out", "where"))
    return Line(entry.text("case"), entry.flag("passed"), *said)


def answer_from(entry: Entry) -> Answer:
    names = (entry.text("cell"), entry.text("title"))
    return Answer(*names, entry.number("points"), entry.text("text"), entry.texts("said"))


class Entry:
    """A dictionary read from JSON, asked for its parts; `where` is what messages call it."""

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, dict):
            raise NoRecord(f"{where} is no dictionary")
        self.data, self.where = data, where

    def part(self, name: str, fits: Callable[[Any], bool], what: str) -> Any:
        if not fits(found := self.data.get(name)):
            raise NoRecord(f"{self.where}: {name} is no {what}")
        return found

    def text(self, name: str) -> str:
        return self.part(name, lambda found: isinstance(found, str), "text")

    def flag(self, name: str) -> bool:
        return self.part(name, lambda found: isinstance(found, bool), "true or false")

    def number(self, name: str) -> float:
        """A finite number that is not negative: nothing else is counted here."""
        return self.part(name, lambda found: type(found) in (int, float) and 0 <= found < math.inf, "number")

    def texts(self, name: str) -> tuple[str, ...]:
        fits = lambda found: isinstance(found, list) and all(isinstance(text, str) for text in found)  # noqa: E731
        return tuple(self.part(name, fits, "list of texts"))

    def each(self, name: str, made: Callable[[Entry], T]) -> tuple[T, ...]:
        found = self.part(name, lambda found: isinstance(found, list), "list")
        return tuple(made(Entry(one, f"{name} {place}")) for place, one in enumerate(found, start=1))
