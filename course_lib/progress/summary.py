"""Where a learner stands: counts by notebook, worked out from the events and the questions that there are.

The one idea: nothing here is stored, so it cannot disagree with what was recorded. Only that a notebook was finished is
also an event, because the time of it is worth keeping when questions are added later. This shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from course_lib.checks import names as exercise_checks
from course_lib.progress.course import QUESTIONS, exercises_near, full_name, notebooks_here, way_to_notebooks
from course_lib.progress.event import Event, notebook_of
from course_lib.progress.faults import NotSaved
from course_lib.progress.store import store
from course_lib.quizzes.bank import Bank, load_bank, notebooks_with_questions


@dataclass(frozen=True)
class Standing:
    """One notebook. What is counted is "of how many" of what there is now. `finished_at` is a time in UTC, ISO 8601,
    or empty; `next` says what to do, `problem` why the questions could not be counted.

    `checks` are those that the notebook itself asks for, `exercises` all of the exercises that belong to it; those are
    not needed to finish it.
    """

    notebook: str
    question: str
    here: bool
    predictions: int = 0
    questions: int = 0
    answered: int = 0
    right_first_try: int = 0
    checks: int = 0
    checks_passed: int = 0
    finished_at: str = ""
    next: str = ""
    problem: str = ""
    exercises: int = 0
    exercises_passed: int = 0

    @property
    def begun(self) -> bool:
        return bool(self.predictions or self.answered or self.checks_passed or self.finished_at)


def first_attempts(events: Iterable[Event], versions: Mapping[str, str] | None = None) -> dict[str, Event]:
    """The first answer to each question, by its name; the events are in order.

    Where `versions` tells how a question reads now and it was answered like that, the first answer to that counts;
    a question that was only answered as it read earlier keeps that answer.
    """
    first: dict[str, Event] = {}
    present: dict[str, Event] = {}
    for event in events:
        if event.kind == "answer":
            first.setdefault(event.name, event)
            if versions is not None and event.version == versions.get(event.name):
                present.setdefault(event.name, event)
    return first | present


def standings(events: list[Event] | None = None) -> list[Standing]:
    """Every notebook of the course, in order. Without `events`, those of this process's store."""
    events = store().events() if events is None else events
    here, with_questions = notebooks_here(), notebooks_with_questions()
    found = [standing(name, events, name in here, name in with_questions) for name in QUESTIONS]
    solved = {event.name for event in events if event.kind == "check" and event.data.get("passed") is True}
    exercises = exercises_near(way_to_notebooks()[0])
    return [with_exercises(one, exercises.get(one.notebook[:2], []), solved) for one in found]


def with_exercises(one: Standing, exercises: list[str], solved: set[str]) -> Standing:
    """The same, with the checks of its exercises counted, and how many of them are among those `solved`."""
    numbers = {name.partition("_")[0] for name in exercises}
    checks = [check for check in exercise_checks() if check.partition(".")[0] in numbers]
    return replace(one, exercises=len(checks), exercises_passed=len(solved.intersection(checks)))


def standing(name: str, events: list[Event], here: bool, has_questions: bool) -> Standing:
    mine = [event for event in events if notebook_of(event.name) == name[:2]]
    predictions = len({event.name for event in mine if event.kind == "prediction"})
    finished = next((event.at for event in mine if event.kind == "notebook"), "")
    bank, problem = None, ""
    if has_questions:
        try:
            bank = load_bank(name)
        except (ValueError, OSError) as error:
            problem = str(error)
    if bank is None:
        todo = "" if finished else ("open it" if here else "to come")
        return Standing(name, QUESTIONS[name], here, predictions, finished_at=finished, next=todo, problem=problem)
    answers, passed, checks = _pieces(bank, mine)
    if not finished:
        finished = _complete_at(bank, answers, passed, checks)
    left, failing = len(bank.questions) - len(answers), [check for check in checks if check not in passed]
    made = Standing(
        name,
        QUESTIONS[name],
        here,
        predictions,
        len(bank.questions),
        len(answers),
        sum(event.data.get("right") is True for event in answers.values()),
        len(checks),
        len(passed),
        finished,
    )
    return _with_next(made, left, failing)


def what_next(found: list[Standing]) -> str:
    """The one thing to do now, in words: finish what was begun, go on behind it, or begin what was left out."""
    todo = [one for one in found if one.here and not one.finished_at]
    if not todo:
        return "you have finished every notebook that is here"
    touched = [number for number, one in enumerate(found) if one.begun or one.exercises_passed]
    behind = [one for one in found[max(touched, default=0) :] if one in todo]
    one = next((one for one in todo if one.begun), [*behind, *todo][0])
    return f"{one.notebook}: {one.next}"


def finish_if_complete(notebook: str) -> bool:
    """Record that a notebook is finished if every question has an answer and every check has passed; whether it did.

    `notebook` is "03" or its name. To be called after something was recorded. It happens once, and is worked out again
    from the rest if it cannot be saved, so this raises nothing.
    """
    try:
        bank = load_bank(full_name(notebook))
    except ValueError:  # no such notebook, no questions for it, or damaged ones
        return False
    number = bank.notebook[:2]
    mine = [event for event in store().events() if notebook_of(event.name) == number]
    done = any(event.kind == "notebook" for event in mine)
    if done or not _complete_at(bank, *_pieces(bank, mine)):
        return False
    try:
        store().record("notebook", number, {})
    except NotSaved:
        return False
    return True


def day(at: str) -> str:
    """The date of a time, where the reader is."""
    return datetime.fromisoformat(at).astimezone().date().isoformat()


def _pieces(bank: Bank, events: list[Event]) -> tuple[dict[str, Event], dict[str, Event], list[str]]:
    """The first attempts at the questions of `bank`, the first time that each check passed, and all checks."""
    checks = list(dict.fromkeys(objective.check for objective in bank.objectives if objective.check))
    versions = {question.name: question.version for question in bank.questions}
    answers = {name: event for name, event in first_attempts(events, versions).items() if name in versions}
    passed: dict[str, Event] = {}
    for event in events:
        if event.kind == "check" and event.data.get("passed") is True and event.name in checks:
            passed.setdefault(event.name, event)
    return answers, passed, checks


def _complete_at(bank: Bank, answers: dict[str, Event], passed: dict[str, Event], checks: list[str]) -> str:
    """When the last missing piece came; empty while one is missing."""
    if len(answers) < len(bank.questions) or len(passed) < len(checks):
        return ""
    return max([*answers.values(), *passed.values()], key=lambda event: event.order).at


def _with_next(made: Standing, left: int, failing: list[str]) -> Standing:
    todo = [f"answer {left} question{'' if left == 1 else 's'}"] if left else []
    todo += [f"pass {', '.join(failing)}"] if failing else []
    if made.finished_at and not left:
        text = ""
    elif made.finished_at:
        text = f"{left} new question{'' if left == 1 else 's'}"
    elif not made.here:
        text = "to come"
    else:
        text = " and ".join(todo) if made.begun else "begin"
    return Standing(**vars(made) | {"next": text})
