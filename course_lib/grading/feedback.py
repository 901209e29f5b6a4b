"""One page of feedback for one student: what was judged, what came out, and what a person gave or has still to mark.

The one idea: nearly every word on it comes from strangers, so it is text and nothing but text. The template
(feedback.html) escapes whatever is put in, and even if something got through, the page forbids itself to run or to
fetch anything. It is one file that needs no network, so it can be sent, printed and kept.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup

from course_lib.checks import UnknownCheck, check_named
from course_lib.checks.contract import Line, details, printable
from course_lib.grading.assignment import worth
from course_lib.grading.mark import Answer, Marks, TaskMarks
from course_lib.quizzes.text import as_html

TEMPLATE = Path(__file__).with_name("feedback.html")


def page(
    marks: Marks,
    name: str,
    by_hand: Mapping[str, float | None] | None = None,
    title: str = "",
    *,
    missing: bool = False,
) -> str:
    """The page for the student who is called `name`, as HTML in UTF-8.

    `by_hand` are the points that a person gave for written answers, by cell; `title` is the assignment's; `missing`
    says that what was handed in is not a notebook, so that there is nothing to judge.
    """
    given = {answer.cell: points_of(answer, by_hand or {}) for answer in marks.answers}
    return template().render(
        marks=marks,
        name=name,
        title=f"{marks.assignment.partition('_')[0]}, {title}" if title else marks.assignment,
        missing=missing,
        given=given,
        settled=None not in given.values(),
        got=sum(points or 0.0 for points in given.values()),
        for_answers=sum(answer.points for answer in marks.answers),
        waiting=sum(answer.points for answer in marks.answers if given[answer.cell] is None),
        head=head,
        details=details,
        about=about,
    )


def points_of(answer: Answer, by_hand: Mapping[str, float | None]) -> float | None:
    """What a written answer earned; None if a person has still to mark it. Where there is none it is nothing."""
    given = by_hand.get(answer.cell)
    return 0.0 if given is None and not answer.text else given


@cache
def template() -> Template:
    """The page, made ready once: nothing can be put into it that is not escaped."""
    made = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=finalized
    )
    made.filters |= {"sentence": sentence, "digest": digest, "worth": worth}
    return made.from_string(TEMPLATE.read_text(encoding="utf-8"))


def finalized(value: object) -> object:
    """What the template puts in, before it is escaped: finished HTML as it is, text without what only a terminal or
    a forger would want, numbers as people write them."""
    if isinstance(value, Markup):
        return value
    return f"{value:g}" if isinstance(value, float) else printable(value) if isinstance(value, str) else value


def sentence(text: str) -> Markup:
    """A sentence in which `code` and *emphasis* are understood."""
    return Markup(as_html(printable(text)))


def digest(style: str) -> str:
    """What a page's policy calls a style sheet that it allows; no other one is."""
    return "sha256-" + base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def head(lines: tuple[Line, ...]) -> str:
    """How many cases failed, or that none did, as `check` says it in a notebook."""
    failed = sum(not line.passed for line in lines)
    return f"{failed} of {len(lines)} cases failed" if failed else f"{len(lines)} case{'s' * (len(lines) != 1)} passed"


def about(task: TaskMarks) -> list[str]:
    """What the check of a task says about itself, where anything was judged."""
    try:
        check = check_named(task.check) if task.lines else None
    except UnknownCheck:  # marks of an assignment that this course does not have (any more)
        check = None
    return [f"Tolerance: {check.TOLERANCE}", f"Not checked: {check.NOT_CHECKED}."] if check else []
