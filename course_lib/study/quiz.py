"""The questions on a notebook's page: `Quiz` at its end, `warm_up` at its head.

The one idea: a line in a cell, and everything that was answered before stands there again. Where no kernel runs the
questions stand there as text, without the key. Questions come from `course_lib.quizzes`, which judges them, too.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from IPython.display import display

from course_lib.progress.store import store
from course_lib.quizzes.bank import (
    QUESTIONS,
    BadQuestions,
    Choices,
    Number,
    Order,
    Question,
    as_own,
    load_bank,
    notebooks_with_questions,
)
from course_lib.quizzes.repetition import MOST, SITTING, Asked, Seen, due_names, last_asked
from course_lib.quizzes.text import as_html, as_plain
from course_lib.study.page import show
from course_lib.study.quiz_sheet import SKIPPED, Sheet, is_skipped, recorded
from course_lib.study.quiz_widget import QuestionsWidget

NOTHING_YET = "Warm-up: nothing to repeat yet. The questions that you answer at the end of a notebook come back here."
NOTHING_DUE = "Warm-up: nothing to repeat today."
HOW_TO_ANSWER = "To answer, open this notebook in Jupyter and run this cell."


class Quiz:
    """All questions of a notebook, "03_the_kv_cache"; the value of the last line of a cell.

    A path instead of a name shows the questions of that file. If it is not one of the course's, what is answered there
    is saved and comes back, and counts nowhere else: not on the map, not in a warm-up, not as a finished notebook, even
    if a question there has the name of one of the course. Raises BadQuestions.
    """

    def __init__(self, notebook: str | Path) -> None:
        bank = load_bank(notebook)
        self.bank = as_own(bank, notebook) if isinstance(notebook, Path) else bank

    def _ipython_display_(self) -> None:
        title = f"Questions on notebook {self.bank.notebook[:2]}"
        show(QuestionsWidget(Sheet(self.bank.questions), title), without_kernel(title, self.bank.questions))


def warm_up(notebook: str, *, folder: Path = QUESTIONS) -> None:
    """Ask up to two questions of earlier notebooks than `notebook`, "03", that are due; say so in a line if none is.

    Which questions are due, and which of them come first, is said in `course_lib.quizzes.repetition`: those missed,
    and those not seen for long. A warm-up holds for twelve hours: run again, the cell shows the same questions with
    what was answered, and nothing but that if the rest was skipped. Raises BadQuestions, a ValueError, if `notebook` is
    no text that begins with a number.
    """
    number = re.match("[0-9]{2}", notebook) if isinstance(notebook, str) else None
    if number is None:
        given = repr(notebook[:60]) if isinstance(notebook, str) else f"a value of type {type(notebook).__name__}"
        raise BadQuestions(f'warm_up got {given}; write the notebook\'s number as text, such as warm_up("03")')
    here, now = number.group(), datetime.now(UTC)
    since = (now - SITTING).isoformat(timespec="microseconds")
    questions, problems = earlier_questions(here, folder)
    for problem in problems:
        say(f"Warm-up: some questions are left out. {problem}")
    names = names_for_today(questions, here, since, now)
    if not names and is_skipped(here, since):
        say(SKIPPED)
        return
    if not names:
        answered = any(event.name in questions for event in store().events("answer"))
        say(NOTHING_DUE if answered else NOTHING_YET)
        return
    asked = [questions[name] for name in names]
    sources = {question.name: f"From notebook {question.notebook[:2]}" for question in asked}
    title = f"Warm-up before notebook {here}"
    show(QuestionsWidget(Sheet(asked, here, since), title, sources), without_kernel(title, asked))


def earlier_questions(here: str, folder: Path) -> tuple[dict[str, Question], list[str]]:
    """The questions of the notebooks before `here`, by name, and what is wrong with files that cannot be read."""
    questions, problems = {}, []
    for notebook in notebooks_with_questions(folder):
        if notebook[:2] < here:
            try:
                questions.update({question.name: question for question in load_bank(notebook, folder).questions})
            except BadQuestions as error:
                problems.append(str(error))
    return questions, problems


def names_for_today(questions: Mapping[str, Question], here: str, since: str, now: datetime) -> list[str]:
    """What was answered in this sitting's warm-up, filled up with what is due unless the rest was skipped.

    What is dated after `now` was recorded while a clock was ahead. It counts when its time has come, not before.
    """
    until = now.isoformat(timespec="microseconds")
    history: dict[str, list[Seen]] = {name: [] for name, question in questions.items() if question.repeat}
    today: list[str] = []
    for answer in recorded("answer"):
        if answer.name in history and answer.at <= until:
            history[answer.name].append(Seen(datetime.fromisoformat(answer.at), answer.data.get("right") is True))
            mine = answer.data.get("warm_up") == here and answer.version == questions[answer.name].version
            if mine and answer.at >= since and answer.name not in today:
                today.append(answer.name)
    today = today[:MOST]
    if is_skipped(here, since):
        return today
    others = [(name, answers) for name, answers in history.items() if name not in today]
    return today + due_names(others, now, MOST - len(today), last_asked(earlier_warm_ups(here, since, until)))


def earlier_warm_ups(here: str, since: str, until: str) -> list[Asked]:
    """What warm-ups asked, as far as it was answered or skipped there, without the one of `here` from `since` on.

    What is dated after `until` is left out.
    """
    found = []
    for record in recorded("answer") + recorded("skip"):
        skipped = record.kind == "skip"
        warm_up = record.name if skipped else record.data.get("warm_up")
        names = record.data.get("asked", []) if skipped else [record.name]
        earlier = record.at < since if warm_up == here else record.at <= until
        if isinstance(warm_up, str) and isinstance(names, list) and earlier:
            texts = tuple(name for name in names if isinstance(name, str))  # a file that was edited by hand
            found.append(Asked(datetime.fromisoformat(record.at), warm_up, texts))
    return found


def say(text: str) -> None:
    """A line of the course's own, in a page and in a terminal."""
    display({"text/html": f"<p>{html.escape(text)}</p>", "text/plain": text}, raw=True)


def without_kernel(title: str, questions: Sequence[Question]) -> dict[str, str]:
    """The questions as text, by MIME type, for where no kernel runs. Nothing of the key."""
    rows, lines = [f"<p><strong>{html.escape(title)}</strong></p>"], [title]
    for number, question in enumerate(questions, 1):
        head, mark = (f"<strong>{number}.</strong> ", f"{number}. ") if len(questions) > 1 else ("", "")
        rows.append(f"<p>{head}{as_html(question.text)}</p>")
        lines += ["", f"{mark}{as_plain(question.text)}"]
        if isinstance(question, Number):
            rows.append(f"<p>A number: ________ {html.escape(question.unit)}</p>")
            lines.append(f"   A number: ________ {question.unit}".rstrip())
            continue
        lead, offered = offers(question)
        if lead:
            rows.append(f"<p>{lead}</p>")
            lines.append(f"   {lead}")
        rows.append("<ul>" + "".join(f"<li>{as_html(text)}</li>" for text in offered) + "</ul>")
        lines += [f"   - {as_plain(text)}" for text in offered]
    rows.append(f"<p>{HOW_TO_ANSWER}</p>")
    return {"text/html": "<div>" + "".join(rows) + "</div>", "text/plain": "\n".join([*lines, "", HOW_TO_ANSWER])}


def offers(question: Question) -> tuple[str, Sequence[str]]:
    """What there is to choose from or to put in order, and a sentence that says what to do with it."""
    if isinstance(question, Order):
        return "Put these in order:", question.shown
    assert isinstance(question, Choices)
    lead = "Choose all that are right:" if question.type == "several" else ""
    return lead, [choice.text for choice in question.choices]
