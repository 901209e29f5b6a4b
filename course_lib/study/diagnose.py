"""`diagnose` asks what is wrong with a broken engine of the museum, and shows the wrong line and its mend.

The one idea: a diagnosis is a question like any other. The wrong causes lie in `museum/causes.toml`, each with the
evidence that contradicts it; the cause, the wrong line and its mend are the exhibit's own, so they cannot disagree with
the code that runs. Answers are saved under "05.museum.…": they come back after a restart and go with the
progress of notebook 05 when that is reset. They count neither for a finished notebook, because nobody has to see every
exhibit, nor for warm-ups, because a diagnosis needs the broken engine at hand.
"""

from __future__ import annotations

import hashlib
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import course_lib
from course_lib.quizzes.bank import BadQuestions, Choice, Choices, Question
from course_lib.quizzes.fields import Fields, nearest, read_table
from course_lib.quizzes.text import Spans
from course_lib.study.page import show
from course_lib.study.quiz import without_kernel
from course_lib.study.quiz_sheet import Message, Sheet
from course_lib.study.quiz_widget import QuestionsWidget

if TYPE_CHECKING:
    from course_lib.museum import Exhibit

CAUSES = Path(course_lib.__file__).parent / "museum" / "causes.toml"
NOTEBOOK = "05_batches_and_slots"
OBJECTIVE = 3  # of that notebook: to diagnose a wrong cache from its symptoms
WHAT_IS_ASKED = "What is the cause?"
TOOLS = re.compile(r"\b(against_fresh|where|with_poison|with_other_neighbours|compare):")


@dataclass(frozen=True)
class Diagnosis(Choices):
    """The question of one exhibit. `exhibit` has what is shown after the right answer."""

    exhibit: Exhibit

    @property
    def name(self) -> str:
        """It differs from the name of every question of the notebook, whatever that is called."""
        return f"{self.notebook[:2]}.museum.{self.id}"

    @property
    def diff(self) -> Spans:
        """The wrong line and its mend, each line of code a span."""
        lines = [("removed", self.exhibit.wrong), ("added", self.exhibit.mend)]
        return [[kind, line] for kind, code in lines for line in textwrap.dedent(code).strip("\n").splitlines()]


class ExhibitSheet(Sheet):
    """A sheet of diagnoses: once a cause may be seen, the wrong line and its mend stand below it."""

    def states(self, *questions: Question) -> dict[str, Message]:
        found = super().states(*questions)
        for name, state in found.items():
            question = self.questions[name]
            if state["explanation"] and isinstance(question, Diagnosis):
                state["explanation"] = [*state["explanation"], *question.diff]
        return found


def diagnose(name: str) -> None:
    """Ask for the cause of exhibit `name` of the museum. Raises BadQuestions, a ValueError, if there is none."""
    questions = diagnoses()
    if not isinstance(name, str) or name not in questions:
        given = f"“{name[:60]}”" if isinstance(name, str) else f"a value of type {type(name).__name__}"
        hint = nearest(name, list(questions)) if isinstance(name, str) else ""
        raise BadQuestions(f"there is no exhibit {given}{hint}; the museum has {', '.join(questions)}")
    question = questions[name]
    title = f"Exhibit “{name}”: {question.exhibit.title}"
    show(QuestionsWidget(ExhibitSheet([question]), title), without_kernel(title, [question]))


def diagnoses(path: Path = CAUSES) -> dict[str, Diagnosis]:
    """The question of each exhibit, by its name, in the order of the museum. Raises BadQuestions."""
    from course_lib.museum import EXHIBITS  # it imports torch, which nothing else on a notebook's page needs

    by_name = {exhibit.name: exhibit for exhibit in EXHIBITS}
    fields = Fields(read_table(path), path.name, ("exhibit",))
    found: dict[str, Diagnosis] = {}
    for number, table in enumerate(fields.tables("exhibit", 100), 1):
        question = read_diagnosis(table, by_name, f"{path.name}: exhibit {number}")
        if question.id in found:
            raise BadQuestions(f"{path.name}: exhibit {number}: name: “{question.id}” stands there twice")
        found[question.id] = question
    if missing := [name for name in by_name if name not in found]:
        raise BadQuestions(f"{path.name}: has nothing for {', '.join(missing)}; write [[exhibit]] for each")
    return {name: found[name] for name in by_name}


def read_diagnosis(table: object, exhibits: dict[str, Exhibit], where: str) -> Diagnosis:
    fields = Fields(table, where, ("name", "wrong"))
    name = fields.one_of("name", list(exhibits))
    fields.where = f"{where} “{name}”"
    exhibit = exhibits[name]
    choices = [Choice(exhibit.cause, right=True, why="", misconception=None, belief="")]
    for number, wrong in enumerate(fields.tables("wrong", 4), 1):
        inner = Fields(wrong, f"{fields.where}: wrong {number}", ("cause", "why"))
        cause = inner.text("cause")
        if cause in [choice.text for choice in choices]:
            inner.fail("cause", "is the exhibit's own cause, or an earlier one")
        choices.append(Choice(cause, right=False, why=inner.text("why"), misconception=None, belief=cause))
    if len(choices) < 4:
        fields.fail("wrong", f"there should be three or four wrong causes, not {len(choices) - 1}")
    choices.sort(key=lambda choice: hashlib.sha256(choice.text.encode()).digest())  # the order tells nothing
    tells = TOOLS.sub(r"`\1`:", exhibit.tells)
    explanation = f"Told by {tells}. Others had it, too: {exhibit.seen_in}. The wrong line, and its mend:"
    common = (NOTEBOOK, name, OBJECTIVE, "one", WHAT_IS_ASKED, explanation)
    return Diagnosis(*common, tuple(choices), exhibit, repeat=False)
