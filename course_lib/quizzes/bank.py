"""The questions of a notebook, read from a text file that needs no Python to be edited, and checked when read.

The one idea: a file is right as a whole or it is refused, with a sentence that names file, question and field. What
comes out are frozen values that nothing needs to check again. To check files by hand:
`python -m course_lib.quizzes.bank [FILE.toml …]`. How each kind of question is written is said at its class below.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from course_lib.quizzes.fields import BadQuestions, Fields, nearest, read_table
from course_lib.quizzes.quantities import if_bits

QUESTIONS = Path(__file__).parent
TYPES = ("one", "several", "number", "order")
MISCONCEPTIONS = 35  # rows of the course's list of beliefs that people really hold
OF_A_QUESTION = (
    "id", "objective", "type", "text", "explanation", "repeat",
    "choice", "answer", "unit", "tolerance", "relative_tolerance", "trap", "items", "wrong",
)  # fmt: skip
OF_A_CHOICE = ("text", "right", "why", "misconception", "belief")
OF_A_TRAP = ("value", "why", "misconception", "belief")
IDENTIFIER = re.compile("[a-z][a-z0-9_]{0,59}")
NOTEBOOK = re.compile("[0-9]{2}_[a-z0-9_]{1,60}")


@dataclass(frozen=True)
class Objective:
    """What a learner can do after a notebook, and where that is taught, tried and checked."""

    text: str
    section: str
    experiment: str
    check: str | None


@dataclass(frozen=True)
class Choice:
    """Something to choose. A wrong one has its explanation and the belief that it stands for: a row, or in words."""

    text: str
    right: bool
    why: str
    misconception: int | None
    belief: str


@dataclass(frozen=True)
class Trap:
    """A wrong number that a belief leads to."""

    value: float
    why: str
    misconception: int | None
    belief: str


@dataclass(frozen=True)
class Question:
    """What all kinds of questions have. `objective` counts from 1.

    `repeat = false` keeps a question out of the warm-ups of later notebooks, such as one about how the course is used.
    `own`: it is from somebody's own file (see `as_own`).
    """

    notebook: str
    id: str
    objective: int
    type: str
    text: str
    explanation: str
    repeat: bool = field(default=True, kw_only=True)
    own: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """Under which answers are saved: "03.queries_cached"; "own.03_the_kv_cache.queries_cached" for an own file."""
        return f"own.{self.notebook}.{self.id}" if self.own else f"{self.notebook[:2]}.{self.id}"

    @property
    def version(self) -> str:
        """Eight hex digits of what is asked and what counts as right; an explanation may be mended without a change."""
        return hashlib.sha256(json.dumps([self.type, self.text, *self.key()]).encode()).hexdigest()[:8]

    def key(self) -> list[object]:
        raise NotImplementedError


@dataclass(frozen=True)
class Choices(Question):
    """`type = "one"`: exactly one choice is right. `type = "several"`: one or more are, any may be ticked."""

    choices: tuple[Choice, ...]

    def key(self) -> list[object]:
        return [[choice.text, choice.right] for choice in self.choices]


@dataclass(frozen=True)
class Number(Question):
    """`type = "number"`: a value in `unit`, right if at most `tolerance`, or `relative_tolerance` of it, away.

    `wrong` is said to a wrong number that is no trap.
    """

    answer: float
    unit: str
    tolerance: float | None
    relative_tolerance: float | None
    traps: tuple[Trap, ...]
    wrong: str

    def near(self, value: float, target: float) -> bool:
        """Whether `value` counts as `target`. The last digits of a float never decide."""
        allowed = self.tolerance if self.tolerance is not None else (self.relative_tolerance or 0.0) * abs(target)
        return abs(value - target) <= allowed + 1e-9 * abs(target)

    def key(self) -> list[object]:
        return [self.answer, self.unit, self.tolerance, self.relative_tolerance]


@dataclass(frozen=True)
class Order(Question):
    """`type = "order"`: `items` in the right order; `wrong` is said to every other order."""

    items: tuple[str, ...]
    wrong: str

    @property
    def shown(self) -> tuple[str, ...]:
        """The items as they are shown, always the same way: what was answered is saved as places in this order.

        They are sorted by a hash of each text, so the order tells nothing; if that is the right one, the first goes
        to the end, so a question is never shown solved.
        """
        hashed = tuple(sorted(self.items, key=lambda item: hashlib.sha256(item.encode()).digest()))
        return hashed if hashed != self.items else (*hashed[1:], hashed[0])

    def key(self) -> list[object]:
        return list(self.items)


@dataclass(frozen=True)
class Bank:
    """All questions of one notebook, "03_the_kv_cache", with its objectives."""

    notebook: str
    objectives: tuple[Objective, ...]
    questions: tuple[Question, ...]


def notebooks_with_questions(folder: Path = QUESTIONS) -> list[str]:
    """The names of the notebooks that have a file of questions, in the order of the course."""
    return sorted(path.stem for path in folder.glob("[0-9][0-9]_*.toml"))


def load_bank(notebook: str | Path, folder: Path = QUESTIONS) -> Bank:
    """The questions of a notebook of the course, or of the file at a path. Raises BadQuestions."""
    if not isinstance(notebook, str | Path):
        raise BadQuestions(
            f"a notebook is named by text, not by a value of type {type(notebook).__name__}; "
            'write its name, such as "03_the_kv_cache", or Path("…") for a file of your own'
        )
    if isinstance(notebook, Path):
        path = notebook
    else:
        path = folder / f"{notebook}.toml"
        known = notebooks_with_questions(folder)
        if notebook not in known:
            there_are = ", ".join(known) or "none yet"
            hint = nearest(notebook, known) or f"; there are questions for: {there_are}"
            raise BadQuestions(f"there are no questions for a notebook “{notebook[:60]}”{hint}")
    fields = Fields(read_table(path), path.name, ("notebook", "objective", "question"))
    name = fields.text("notebook")
    if not NOTEBOOK.fullmatch(name):
        fields.fail("notebook", f'“{name[:60]}” is not the name of a notebook; write one such as "03_the_kv_cache"')
    if name != path.stem:
        fields.fail("notebook", f'“{name}” is not this file\'s name; write "{path.stem}", or rename the file')
    objectives = tuple(
        read_objective(table, f"{path.name}: objective {number}")
        for number, table in enumerate(fields.tables("objective", 12), 1)
    )
    tables = fields.tables("question", 100)
    if not objectives:
        fields.fail("objective", "is missing; write at least one after [[objective]]")
    if not tables:
        fields.fail("question", "is missing; write at least one after [[question]]")
    questions: dict[str, Question] = {}
    for number, table in enumerate(tables, 1):
        question = read_question(table, name, len(objectives), path.name, number)
        if question.id in questions:
            raise BadQuestions(
                f"{path.name}: question {number}: id: “{question.id}” is the id of an earlier question, too; "
                "give each its own"
            )
        questions[question.id] = question
    return Bank(name, objectives, tuple(questions.values()))


def as_own(bank: Bank, path: Path) -> Bank:
    """`bank`, read from `path`; if that is no file of the course, its answers are saved under names of their own.

    Such a file may carry the names of the course's questions. What is answered there must not count as an answer to
    them, so it is recorded as "own.…", which belongs to no notebook: the map of the course and the warm-ups pass it by.
    """
    if path.resolve().parent == QUESTIONS.resolve():
        return bank
    return replace(bank, questions=tuple(replace(question, own=True) for question in bank.questions))


def read_objective(table: object, where: str) -> Objective:
    fields = Fields(table, where, ("text", "section", "experiment", "check"))
    return Objective(
        fields.text("text"),
        fields.text("section"),
        fields.text("experiment"),
        fields.text("check", needed=False) or None,
    )


def read_question(table: object, notebook: str, n_objectives: int, file: str, number: int) -> Question:
    fields = Fields(table, f"{file}: question {number}", OF_A_QUESTION)
    identifier = fields.text("id")
    if not IDENTIFIER.fullmatch(identifier):
        fields.fail("id", f'“{identifier[:60]}” should be small letters, digits and _, such as "queries_cached"')
    fields.where = f"{file}: question “{identifier}”"
    objective = fields.whole("objective", 1, n_objectives)
    assert objective is not None
    kind = fields.one_of("type", TYPES)
    common = (notebook, identifier, objective, kind, fields.text("text"), fields.text("explanation"))
    repeat = fields.flag("repeat", missing=True)
    question: Question
    if kind == "number":
        question = read_number(fields, common)
    elif kind == "order":
        question = read_order(fields, common)
    else:
        question = Choices(*common, read_choices(fields, kind))
    fields.refuse_others(f"a question of type {kind}")
    return replace(question, repeat=repeat)


def read_choices(fields: Fields, kind: str) -> tuple[Choice, ...]:
    tables = fields.tables("choice", 10)
    if len(tables) < 2:
        fields.fail("choice", f"there should be two or more, not {len(tables)}; write each after [[question.choice]]")
    inner = [
        Fields(table, f"{fields.where}: choice {number}", OF_A_CHOICE, OF_A_QUESTION)
        for number, table in enumerate(tables, 1)
    ]
    right = [choice.flag("right") for choice in inner]
    if sum(right) == 0:
        fields.fail("choice", "no choice is right; write right = true in one of them")
    if kind == "one" and sum(right) > 1:
        fields.fail("choice", f'{sum(right)} choices are right; leave one, or write type = "several"')
    choices: list[Choice] = []
    for choice, is_right in zip(inner, right):
        text = choice.text("text")
        if text in [earlier.text for earlier in choices]:
            choice.fail("text", "is the text of an earlier choice, too")
        why = choice.text("why", needed=not is_right)
        choices.append(Choice(text, is_right, why, *read_belief(choice, needed=not is_right)))
    return tuple(choices)


def read_belief(fields: Fields, *, needed: bool) -> tuple[int | None, str]:
    """The row of the list of misconceptions, or the belief in words: a wrong answer stands for one of them."""
    row = fields.whole("misconception", 1, MISCONCEPTIONS, needed=False)
    belief = fields.text("belief", needed=False)
    if needed and row is None and not belief:
        fields.fail(
            "misconception",
            f'is missing; write misconception = 1 to {MISCONCEPTIONS}, or belief = "…" if none of these fits',
        )
    return row, belief


def read_number(fields: Fields, common: tuple[str, str, int, str, str, str]) -> Number:
    answer = fields.needed_number("answer")
    unit = fields.text("unit", needed=False)
    if bytes_name := if_bits(unit):
        fields.fail("unit", f"“{unit[:60]}” can mean bits; if you mean bytes, write {bytes_name}")
    tolerance = fields.number("tolerance", needed=False, least=0.0)
    relative = fields.number("relative_tolerance", needed=False, least=0.0)
    if (tolerance is None) == (relative is None):
        fields.fail(
            "tolerance",
            "write exactly one of tolerance = 0.01 (in the unit) and relative_tolerance = 0.02 (a share of the answer)",
        )
    if relative is not None and relative >= 1:
        fields.fail("relative_tolerance", f"is {relative:g}; 1 or more would accept nearly every number")
    traps: list[Trap] = []
    tables = fields.tables("trap", 10)
    question = Number(*common, answer, unit, tolerance, relative, (), "")
    for number, table in enumerate(tables, 1):
        inner = Fields(table, f"{fields.where}: trap {number}", OF_A_TRAP, OF_A_QUESTION)
        trap = Trap(inner.needed_number("value"), inner.text("why"), *read_belief(inner, needed=True))
        if question.near(trap.value, answer) or question.near(answer, trap.value):
            inner.fail("value", "cannot be told from the right answer; make the tolerance smaller")
        if any(question.near(trap.value, other.value) for other in traps):
            inner.fail("value", "cannot be told from an earlier trap; make the tolerance smaller")
        traps.append(trap)
    return Number(*common, answer, unit, tolerance, relative, tuple(traps), fields.text("wrong", needed=False))


def read_order(fields: Fields, common: tuple[str, str, int, str, str, str]) -> Order:
    items = fields.texts("items")
    if not 2 <= len(items) <= 10:
        fields.fail("items", f"there should be 2 to 10, not {len(items)}")
    if len(set(items)) < len(items):
        fields.fail("items", "two of them are the same")
    return Order(*common, items, fields.text("wrong"))


def main(files: list[str]) -> int:
    """Check files, or all of the course: one line for each. Returns 1 if one is wrong."""
    paths = [Path(file) for file in files] or [QUESTIONS / f"{name}.toml" for name in notebooks_with_questions()]
    wrong = 0
    for path in paths:
        try:
            print(f"{path.name}: {len(load_bank(path).questions)} questions, all sound")
        except BadQuestions as error:
            wrong += 1
            print(error)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
