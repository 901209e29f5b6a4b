"""A sheet of questions as the kernel knows it: takes messages from a page, records answers, says what may be seen.

The one idea: the page holds the questions and nothing else. What was answered lies in the progress store, and each
reply is worked out anew from there, so two sheets, two browsers or a new kernel all tell the same. Nothing here draws,
and nothing that a page sends is believed before it was checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from course_lib.progress.store import NotSaved, store
from course_lib.progress.summary import finish_if_complete
from course_lib.quizzes.bank import Choices, Number, Order, Question
from course_lib.quizzes.judge import NotAnAnswer, Standing, check_given, judge, standing
from course_lib.quizzes.text import Spans, spans

Message = dict[str, Any]  # JSON
DONE = "Warm-up: done for today."
SKIPPED = "Warm-up: skipped for today."
REST_SKIPPED = "Warm-up: the rest is skipped for today."


@dataclass(frozen=True)
class Record:
    """Something that was saved or is to be: what Store.record takes, and when it happened (UTC, ISO 8601)."""

    kind: str
    name: str
    data: dict[str, Any]
    version: str
    at: str


TRIES_AGAIN = "Your next answer tries again to save it."
unsaved: list[Record] = []  # of this kernel, in their order, while the store cannot be written


def save(kind: str, name: str, data: dict[str, Any], version: str = "") -> str:
    """Save what is waiting, then this. Returns a sentence for the learner if that fails, else an empty text.

    What is not saved waits, whatever the reason.
    """
    unsaved.append(Record(kind, name, data, version, present()))
    problem = ""
    for waiting in tuple(unsaved):
        try:
            store().record(waiting.kind, waiting.name, waiting.data, waiting.version)
        except NotSaved as error:
            return f"This was not saved. {error} {TRIES_AGAIN}"
        except (
            Exception
        ) as error:  # a fault of the course: it must cost neither this answer nor those that wait behind it
            problem = (
                f"This was not saved: the course met a fault of its own, {type(error).__name__}: {error}. {TRIES_AGAIN}"
            )
        else:
            unsaved.remove(waiting)
    return problem


def present() -> str:
    """What the clock says, as records have it."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def recorded(kind: str) -> list[Record]:
    """Everything of a kind that was saved or waits to be, in order."""
    saved = [Record(event.kind, event.name, event.data, event.version, event.at) for event in store().events(kind)]
    return saved + [record for record in unsaved if record.kind == kind]


def is_skipped(warm_up: str, since: str) -> bool:
    """Whether the warm-up of a notebook, "03", was skipped from `since` on, a time in UTC in ISO 8601.

    A skip of the future does not count: it was recorded while a clock was ahead, and would hold until that time.
    """
    until = present()
    return any(record.name == warm_up and since <= record.at <= until for record in recorded("skip"))


class Sheet:
    """The questions of one display. `warm_up` is the number of the notebook whose warm-up it is, "" for a quiz.

    A warm-up shows what was answered in it from `since` on, a time in UTC in ISO 8601; a quiz shows what was answered
    in quizzes. A warm-up is over when each of its questions was answered rightly or its answer shown, or when it was
    skipped; to skip takes away what was not answered, and nothing else.
    """

    def __init__(self, questions: Sequence[Question], warm_up: str = "", since: str = "") -> None:
        self.questions = {question.name: question for question in questions}
        self.warm_up, self.since = warm_up, since

    def receive(self, message: object) -> Message | None:
        """What is answered to a message from the page: None if it means nothing."""
        if not isinstance(message, dict):
            return None
        kind, name = message.get("kind"), message.get("question")
        if kind == "hello":
            return {"kind": "state", "questions": self.states(), "notices": store().notices(), **self.left()}
        if kind == "skip" and self.warm_up:
            return self.skip()
        question = self.questions.get(name) if isinstance(name, str) else None
        if question is None:
            return None
        if kind == "answer":
            return self.take_answer(question, message.get("given"))
        if kind == "show":
            return self.show_answer(question)
        return None

    def take_answer(self, question: Question, given: object) -> Message:
        try:
            answer = check_given(question, given)
            right = judge(question, answer).right
        except NotAnAnswer as error:
            return {"kind": "problem", "question": question.name, "text": str(error)}
        data = self.marked({"given": answer, "right": right})
        problem = save("answer", question.name, data, question.version)
        finish_if_complete(question.notebook)
        return {"kind": "state", "questions": self.states(question), "problem": problem, **self.left()}

    def show_answer(self, question: Question) -> Message:
        problem = ""
        if self.standing(question).may_ask:
            problem = save("shown", question.name, self.marked({}), question.version)
        return {"kind": "state", "questions": self.states(question), "problem": problem, **self.left()}

    def skip(self) -> Message:
        """Skip what is not answered. The record says what was asked: the next warm-up asks something else."""
        over = self.left()["warmUp"]["over"]  # a page that has not heard of it yet
        problem = "" if over else save("skip", self.warm_up, {"asked": list(self.questions)})
        return {"kind": "skipped", "problem": problem, **self.left()}

    def left(self) -> Message:
        """What the page of a warm-up shows: which questions, whether it is over, and a line about that."""
        if not self.warm_up:
            return {}
        found = self.standings(tuple(self.questions.values()))
        skipped = is_skipped(self.warm_up, self.since)
        kept = [name for name, each in found.items() if each.given is not None or not skipped]
        done = all(each.done for each in found.values())
        line = (REST_SKIPPED if kept else SKIPPED) if skipped else DONE if done else ""
        return {"warmUp": {"kept": kept, "over": skipped or done, "line": line}}

    def marked(self, data: dict[str, Any]) -> dict[str, Any]:
        return data | {"warm_up": self.warm_up} if self.warm_up else data

    def standing(self, question: Question) -> Standing:
        return self.standings([question])[question.name]

    def standings(self, questions: Sequence[Question]) -> dict[str, Standing]:
        answers, shown = self.mine("answer"), self.mine("shown")
        found = {}
        for question in questions:
            given = [(each.version, each.data.get("given")) for each in answers if each.name == question.name]
            asked = any(each.name == question.name and each.version == question.version for each in shown)
            found[question.name] = standing(question, given, asked)
        return found

    def mine(self, kind: str) -> list[Record]:
        """What was given in this quiz, whenever, or in this sitting of this warm-up."""
        mine = [record for record in recorded(kind) if record.data.get("warm_up", "") == self.warm_up]
        until = present()
        return [record for record in mine if self.since <= record.at <= until] if self.warm_up else mine

    def states(self, *questions: Question) -> dict[str, Message]:
        """For the page: how each of `questions` stands, or each of all."""
        return {
            name: as_message(self.questions[name], found)
            for name, found in self.standings(questions or tuple(self.questions.values())).items()
        }


def as_message(question: Question, found: Standing) -> Message:
    return {
        "given": found.given,
        "right": found.right,
        "said": [spans(sentence) for sentence in found.said],
        "mayAsk": found.may_ask,
        "answer": [spans(part) for part in found.answer],
        "explanation": spans(found.explanation),
        "changed": found.changed,
    }


def for_page(question: Question, source: str = "") -> Message:
    """What the page gets to know of a question before it is answered: what is asked, and nothing of the key."""
    offered: list[Spans] = []
    if isinstance(question, Choices):
        offered = [spans(choice.text) for choice in question.choices]
    elif isinstance(question, Order):
        offered = [spans(item) for item in question.shown]
    return {
        "name": question.name,
        "type": question.type,
        "text": spans(question.text),
        "source": source,
        "offered": offered,
        "unit": question.unit if isinstance(question, Number) else "",
    }
