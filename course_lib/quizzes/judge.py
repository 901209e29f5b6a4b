"""Judges an answer, and says what a learner may see of a question after everything they gave so far.

The one idea: pure functions of the question and of what was given. The right answer and its explanation come out only
after a right answer or after the learner asked to see them; of the wrong choices only those that were chosen are
explained. Whatever a page sends is checked here before it means anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.quizzes.bank import Choice, Choices, Number, Order, Question
from course_lib.quizzes.quantities import LONGEST, NotAnAnswer, parse, with_the_other_thousand

Given = int | str | list[int]
TRIES_BEFORE_SHOWING = 2
MORE_ARE_RIGHT = "Not all that are right are chosen yet."  # one or more: how many, it does not tell


@dataclass(frozen=True)
class Verdict:
    """Whether an answer is right, and what is said to it: one sentence or more."""

    right: bool
    said: tuple[str, ...]


def check_given(question: Question, given: object) -> Given:
    """`given` as an answer to `question`: the number of a choice, numbers of choices, a typed number, an order.

    Choices are counted from 0 as they stand in the file, items of an order as they are shown. Raises NotAnAnswer.
    """
    if isinstance(question, Number):
        if not isinstance(given, str):
            raise NotAnAnswer("Write a number first.")
        check_unit(question, given)
        return " ".join(given.split())[:LONGEST]
    if isinstance(question, Order):
        return check_order(given, len(question.items))
    assert isinstance(question, Choices)
    n_choices = len(question.choices)
    if question.type == "one":
        if not is_index(given, n_choices):
            raise NotAnAnswer("Choose one of the answers first.")
        assert isinstance(given, int)
        return given
    if not isinstance(given, list) or not 0 < len(given) <= n_choices:
        raise NotAnAnswer("Choose at least one of the answers first.")
    if not all(is_index(each, n_choices) for each in given):
        raise NotAnAnswer("Choose among the answers that are shown.")
    return sorted(set(given))


def check_unit(question: Number, typed: str) -> None:
    """Raises NotAnAnswer for the right number in MB where MiB are asked for, or the other way round.

    That is read in two ways: as another size, and as the right one with the name that many give it. The learner found
    the number, so it counts neither as right nor as wrong: a sentence says what is asked for, and nothing is recorded.
    Whoever meant the other size, and has it right, is right in either unit.
    """
    value, _ = parse(typed, question.unit)
    other = with_the_other_thousand(typed, question.unit)
    if other is not None and question.near(other[0], question.answer) and not question.near(value, question.answer):
        raise NotAnAnswer(f"The number is right, the unit is not: {other[1]}.")


def check_order(given: object, n_items: int) -> list[int]:
    if not isinstance(given, list) or len(given) != n_items:
        raise NotAnAnswer("Give every item a place first.")
    if not all(is_index(each, n_items) for each in given) or len(set(given)) != n_items:
        raise NotAnAnswer("Give every item a place of its own.")
    return list(given)


def is_index(value: object, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def judge(question: Question, given: object) -> Verdict:
    """What `given` is worth. Raises NotAnAnswer where there is nothing to judge."""
    answer = check_given(question, given)
    if isinstance(question, Number):
        assert isinstance(answer, str)
        return judge_number(question, answer)
    if isinstance(question, Order):
        assert isinstance(answer, list)
        right = tuple(question.shown[index] for index in answer) == question.items
        return Verdict(right, () if right else (question.wrong,))
    assert isinstance(question, Choices)
    chosen = [question.choices[index] for index in (answer if isinstance(answer, list) else [answer])]  # type: ignore[index]
    return judge_choices(question, chosen)


def judge_choices(question: Choices, chosen: Sequence[Choice]) -> Verdict:
    wrong = [choice for choice in chosen if not choice.right]
    missing = len(chosen) - len(wrong) < sum(choice.right for choice in question.choices)
    if wrong:
        if question.type == "one":
            return Verdict(False, tuple(choice.why for choice in wrong))
        said = tuple(f"“{choice.text}”: {choice.why}" for choice in wrong)
        return Verdict(False, (*said, MORE_ARE_RIGHT) if missing else said)
    if missing:
        return Verdict(False, ("What you chose is right, and something is missing.",))
    return Verdict(True, tuple(choice.why for choice in chosen if choice.why))


def judge_number(question: Number, typed: str) -> Verdict:
    value, converted = parse(typed, question.unit)
    said = (converted,) if converted else ()
    if question.near(value, question.answer):
        return Verdict(True, said)
    for trap in question.traps:
        if question.near(value, trap.value):
            return Verdict(False, (*said, trap.why))
    return Verdict(False, (*said, question.wrong or "That is not the number."))


def right_answer(question: Question) -> tuple[str, ...]:
    """The key in words: one text, or several."""
    if isinstance(question, Number):
        return (f"{question.answer:.10g} {question.unit}".strip(),)
    if isinstance(question, Order):
        return question.items
    assert isinstance(question, Choices)
    return tuple(choice.text for choice in question.choices if choice.right)


@dataclass(frozen=True)
class Standing:
    """What a learner sees of a question. `given` is their last answer, None if it is open; `tries` counts all.

    `answer` and `explanation` are empty until they may be seen. `changed`: they answered an earlier version only.
    """

    given: Given | None = None
    right: bool = False
    said: tuple[str, ...] = ()
    tries: int = 0
    may_ask: bool = False
    answer: tuple[str, ...] = ()
    explanation: str = ""
    changed: bool = False

    @property
    def done(self) -> bool:
        """Whether nothing is left to try: it was answered rightly, or its answer was shown."""
        return self.right or bool(self.answer)


def standing(question: Question, answers: Sequence[tuple[str, object]], shown: bool = False) -> Standing:
    """How a question stands after `answers`, pairs of a version and what was given, in their order.

    `shown`: the learner asked to see the answer. What was given to another version of the question counts no more,
    and neither does what cannot be an answer to it.
    """
    verdicts: list[tuple[Given, Verdict]] = []
    for version, given in answers:
        if version == question.version:
            try:
                verdicts.append((check_given(question, given), judge(question, given)))
            except NotAnAnswer:
                continue  # a file that was edited by hand
    if not verdicts:
        return Standing(changed=bool(answers))
    given, verdict = verdicts[-1]
    tries = len(verdicts)
    seen = verdict.right or shown
    return Standing(
        given=given,
        right=verdict.right,
        said=verdict.said,
        tries=tries,
        may_ask=not seen and tries >= TRIES_BEFORE_SHOWING,
        answer=right_answer(question) if shown and not verdict.right else (),
        explanation=question.explanation if seen else "",
    )
