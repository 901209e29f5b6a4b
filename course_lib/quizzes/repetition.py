"""Which questions of earlier notebooks are asked again, and when: spaced retrieval.

The one idea: pure functions of what was answered and of the time. When a question is due is written at `due_at`. Among
what is due, a warm-up asks up to two, in this order (`due_names`):

1. What the last warm-up did not ask comes before what it did.
2. Then what was missed comes before what was known.
3. Of what was missed, the nearest notebook comes first: before 03 that is 02, then 01. Within it, what is due longest.
4. Of what was known, what is due for longest comes first, whatever its notebook.
5. Equal cases go by name. Nothing is drawn by lot, so the same history asks the same questions.

An example: 01.a, 01.b and 02.c were missed, 01.d is known and due. The warm-up of notebook 03 asks 02.c and 01.a. Both
are missed again; the warm-up of notebook 04 asks 01.b and 01.d, and the one after that 02.c and 01.a once more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
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


@dataclass(frozen=True)
class Asked:
    """That the warm-up of a notebook, "03", asked questions: at the time when they were answered or skipped.

    A warm-up that nobody touched leaves no trace, so it counts as not asked.
    """

    at: datetime
    warm_up: str
    names: tuple[str, ...]


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


def last_asked(warm_ups: Iterable[Asked]) -> frozenset[str]:
    """The names of what the last warm-up asked: the latest, and what the same one asked in the same sitting."""
    everything = list(warm_ups)
    if not everything:
        return frozenset()
    last = max(everything, key=lambda asked: (asked.at, asked.warm_up))
    same = (asked for asked in everything if asked.warm_up == last.warm_up and last.at - asked.at < SITTING)
    return frozenset(name for asked in same for name in asked.names)


def due_names(
    history: Iterable[tuple[str, Sequence[Seen]]], now: datetime, most: int = MOST, last: Collection[str] = ()
) -> list[str]:
    """The names of up to `most` questions that are due, in the order that is said at the head of this module.

    `history` gives for each question its name, "02.two_tokens", and its answers in order of time; `last` are the names
    of what the last warm-up asked. A question that was never answered is never due: a warm-up repeats.
    """
    found: list[tuple[bool, bool, int, datetime, str]] = []
    for name, answers in history:
        if answers:
            due, known = due_at(answers)
            if due <= now:
                found.append((name in last, known, 0 if known else -int(name[:2]), due, name))
    return [name for *_, name in sorted(found)[:most]]
