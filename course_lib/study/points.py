"""`points` ends a task of an assignment: it shows what `check` shows and gives back how many points that earns.

The one idea: one cell serves three readers. A learner sees each case and the points; nbgrader takes the number that the
cell ends with as its mark, partial credit included; a grader that trusts nobody does not run the cell at all and judges
outside.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr
from typing import Any

from IPython.display import display

from course_lib.checks import BadExercise, UnknownCheck, exercise
from course_lib.checks.ruled_out import in_sight
from course_lib.study.check import Shown, boxed, namespace, outcome, sentences

SEED = (
    "COURSE_GRADING_SEED"  # set where a class is graded: each run then draws the same inputs, and nothing is recorded
)


COUNTED = "Points are the share of the cases that pass, rounded down to halves."


class Points(float):
    """What a task earned: a number where there is only text, which nbgrader reads, and a sentence on a page."""

    said: str

    def __new__(cls, earned: float, said: str) -> Points:
        made = super().__new__(cls, earned)
        made.said = said
        return made

    def _repr_html_(self) -> str:
        return boxed(f'<p role="status" style="margin: 0"><strong>{self.said}</strong></p>')


def points(name: str, function: Callable[..., Any] | None = None) -> Points:
    """Judge the learner's solution of exercise `name`, show one line for each case, and return the points it earns.

    The points are those of the exercise times the share of its cases that pass, rounded down to halves. Nothing is
    raised: what is wrong is said, and earns 0.
    """
    try:
        asked = exercise(name)
    except (UnknownCheck, BadExercise) as error:
        display(sentences(str(error)))
        return Points(0.0, "Nothing was judged.")
    with redirect_stderr(sys.stdout):  # nbgrader gives 0 to a cell that warns, whatever it is worth
        shown, verdict = outcome(name, function, seed_of(name), record=not is_graded())
    earned, worth = verdict.earned(asked.points), asked.points
    said = f"{earned:g} of {worth:g} points."
    notes = [
        f"Your notebook imports {rule}, which this exercise rules out: when it is graded, the cell that does so fails."
        for rule in in_sight(namespace(), asked.rules_out)
    ]
    notes += [COUNTED] * (0 < earned < worth)
    text = "\n".join([shown.text, *notes, said])
    page = shown.html + (sentences(*notes).html if notes else "")
    display(Shown(text, page))  # on a page the sentence is what the cell ends with
    return Points(earned, said)


def is_graded() -> bool:
    """Whether somebody else's notebook is being graded here: that is no progress of whoever grades it."""
    return SEED in os.environ or os.environ.get("NBGRADER_EXECUTION") == "autograde"


def seed_of(name: str) -> int | None:
    """The seed of a check's inputs where a class is graded, another for each check; None where nobody said one."""
    secret = os.environ.get(SEED)
    if secret is None:
        return None
    return int.from_bytes(hashlib.sha256(f"{secret}\0{name}".encode()).digest()[:8], "big")
