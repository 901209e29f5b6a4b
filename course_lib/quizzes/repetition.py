"""Which questions of earlier notebooks are asked again, and when: spaced retrieval.

The one idea: a pure function of what was answered and of the time. A question that was missed is due at once; each time
it is answered rightly when it is due, the pause until the next time grows. The rule is written at `due_at`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

PAUSES = tuple(timedelta(days=days) for days in (1, 3, 7, 21, 60))
FRESH = timedelta(hours=1)
SITTING = timedelta(hours=12)
MOST = 2  # questions in one warm-up


@dataclass(frozen=True)
class Seen:
    """That a question was answered at a time, rightly or not."""

    at: datetime
    right: bool


def due_at(answers: Sequence[Seen]) -> tuple[datetime, bool]:
    """When the question of these answers (one or more, in order of time) is due again, and whether it is known.

    - A wrong answer: due at once.
    - A right answer less than an hour after a wrong one repeats what was just explained. It proves nothing yet, and
      the question stays due.
    - Every other right answer that comes when the question is due takes one step: it is due again after 1, 3, 7, 21,
      then 60 days. One that comes earlier, in a quiz that was run again, changes nothing.
    - A wrong answer starts again from the first step.
    """
    steps, due, last_wrong = 0, answers[0].at, None
    for answer in answers:
        if not answer.right:
            steps, due, last_wrong = 0, answer.at, answer.at
        elif last_wrong is not None and answer.at - last_wrong < FRESH:
            due = answer.at
        elif answer.at >= due:
            due = answer.at + PAUSES[min(steps, len(PAUSES) - 1)]
            steps += 1
    return due, steps > 0


def due_names(history: Iterable[tuple[str, Sequence[Seen]]], now: datetime, most: int = MOST) -> list[str]:
    """The names of up to `most` questions that are due: missed ones first, then those overdue for longest.

    `history` gives for each question its name and its answers in order of time. A question that was never answered is
    never due: a warm-up repeats. Equal cases go by name, so the same history asks the same questions.
    """
    found: list[tuple[bool, datetime, str]] = []
    for name, answers in history:
        if answers:
            due, known = due_at(answers)
            if due <= now:
                found.append((known, due, name))
    return [name for *_, name in sorted(found)[:most]]
