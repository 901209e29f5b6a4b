"""Each objective of a notebook is taught, tried and asked; each wrong choice stands for a belief and is explained.

The rules are functions that return what is wrong, so that the same ones judge the course and, further down, copies of
it that were broken on purpose.
"""

import dataclasses
import re
from itertools import zip_longest
from math import isclose
from pathlib import Path

import nbformat
import pytest
import torch
from nbformat import NotebookNode

from course_lib import checkpoints, checks
from course_lib.caches import ContiguousCache
from course_lib.generation import generate
from course_lib.metrics import Timing
from course_lib.model import ModelConfig
from course_lib.quizzes.bank import (
    BadQuestions,
    Bank,
    Choices,
    Number,
    Objective,
    Order,
    Question,
    load_bank,
    notebooks_with_questions,
)

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
BELIEFS = range(1, 36)  # rows of the list of 35 misconceptions
LEAST_QUESTIONS = 20

every_bank = pytest.mark.parametrize("name", notebooks_with_questions())


def notebook_of(bank: Bank) -> NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{bank.notebook}.ipynb", as_version=4)


def bullets(notebook: NotebookNode) -> list[str]:
    """The objectives in a notebook's first cell, without the bold marks and the punctuation at their end."""
    found = re.findall(r"^- (.*)$", notebook.cells[0].source, re.MULTILINE)
    return [text.replace("**", "").rstrip(";.") for text in found]


def code_by_section(notebook: NotebookNode) -> dict[str, str]:
    """For each heading of the second level: all code below it, as far as the next one."""
    heading, found = "", {"": ""}
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found[heading] += cell.source + "\n"
        else:
            for heading in re.findall(r"^## (.*)$", cell.source, re.MULTILINE):
                found[heading] = ""
    return found


def uses(code: str, name: str) -> bool:
    """Whether `code` asks or compares under `name`, or calls a function of that name."""
    return f'"{name}"' in code if "." in name else bool(re.search(rf"\b{re.escape(name)}\(", code))


def wrong_with_objectives(bank: Bank, notebook: NotebookNode) -> list[str]:
    """What an objective lacks: its bullet, its section, its experiment, a question, its check."""
    wrong = [
        f"the notebook says “{said}”, the questions say “{noted}”"
        for said, noted in zip_longest(bullets(notebook), [objective.text for objective in bank.objectives])
        if said != noted
    ]
    asked = {question.objective for question in bank.questions}
    wrong += [f"no question for objective {n}" for n in range(1, len(bank.objectives) + 1) if n not in asked]
    return wrong + [fault for objective in bank.objectives for fault in wrong_with_one(objective, notebook)]


def wrong_with_one(objective: Objective, notebook: NotebookNode) -> list[str]:
    code = code_by_section(notebook)
    wrong = []
    if objective.section not in code or not objective.section:
        wrong.append(f"there is no section “{objective.section}”")
    elif not uses(code[objective.section], objective.experiment):
        wrong.append(f"“{objective.section}” has no experiment {objective.experiment}")
    if objective.check is not None:
        if not any(f'check("{objective.check}")' in part for part in code.values()):
            wrong.append(f'the notebook never calls check("{objective.check}")')
        if objective.check not in checks.names():
            wrong.append(f"there is no check {objective.check}")
    return wrong


def beliefs(question: Question) -> list[tuple[str, str, int | None, str]]:
    """Of each wrong choice and each trap: what it is, its explanation, its row of the list, its belief in words."""
    if isinstance(question, Choices):
        return [(c.text, c.why, c.misconception, c.belief) for c in question.choices if not c.right]
    if isinstance(question, Number):
        return [(f"{t.value:g} {question.unit}".strip(), t.why, t.misconception, t.belief) for t in question.traps]
    return []


def wrong_with_questions(bank: Bank) -> list[str]:
    """What a question lacks: explanations, beliefs, distractors that differ from one another."""
    wrong = []
    for question in bank.questions:
        if not question.explanation.strip():
            wrong.append(f"{question.name}: no explanation")
        if isinstance(question, Order) and not question.wrong.strip():
            wrong.append(f"{question.name}: nothing is said to a wrong order")
        if isinstance(question, (Choices, Number)) and not beliefs(question):
            wrong.append(f"{question.name}: no wrong answer is explained")
        for text, why, row, belief in beliefs(question):
            if len(why.split()) < 6:
                wrong.append(f"{question.name}: “{text}” has no explanation")
            if row is None and not belief.strip():
                wrong.append(f"{question.name}: “{text}” stands for no belief")
            if row is not None and row not in BELIEFS:
                wrong.append(f"{question.name}: there is no row {row}")
        reasons = [why for _, why, _, _ in beliefs(question)]
        if len(set(reasons)) < len(reasons):
            wrong.append(f"{question.name}: two wrong answers have the same explanation")
    return wrong


def rows_used(banks: list[Bank]) -> dict[int, list[str]]:
    """For each row of the list that the questions use: the wrong answers that stand for it."""
    used: dict[int, list[str]] = {}
    for bank in banks:
        for question in bank.questions:
            for text, _, row, _ in beliefs(question):
                if row is not None:
                    used.setdefault(row, []).append(f"{question.name}: {text}")
    return dict(sorted(used.items()))


def table(banks: list[Bank]) -> str:
    """The rows of the list that the questions use, one line for each wrong answer."""
    lines = [f"{row:>3}  {text}" for row, texts in rows_used(banks).items() for text in texts]
    return "\n".join(["row  wrong answer", *lines])


@every_bank
def test_each_objective_is_a_bullet_with_a_section_an_experiment_a_question_and_its_check(name: str) -> None:
    bank = load_bank(name)
    assert wrong_with_objectives(bank, notebook_of(bank)) == []


@every_bank
def test_each_wrong_answer_is_explained_and_stands_for_a_belief(name: str) -> None:
    assert wrong_with_questions(load_bank(name)) == []


def test_the_course_asks_at_least_twenty_questions_and_a_table_names_the_beliefs_that_they_test() -> None:
    banks = [load_bank(name) for name in notebooks_with_questions()]
    assert sum(len(bank.questions) for bank in banks) >= LEAST_QUESTIONS
    printed = table(banks)
    print("\n" + printed)  # shown by pytest -rP
    used = {row for bank in banks for question in bank.questions for _, _, row, _ in beliefs(question)} - {None}
    assert used and {int(row) for row in re.findall(r"^ *(\d+)  ", printed, re.MULTILINE)} == used


def test_from_one_kind_of_question_to_the_next_a_learner_meets_all_four_in_notebook_00() -> None:
    assert sorted(question.type for question in load_bank("00_start_here").questions) == [
        "number",
        "one",
        "order",
        "several",
    ]


# The same rules on notebook 02 as it is, then broken in one place.

GOOD = load_bank("02_prefill_and_decode")


def with_objective(number: int, **changes: str) -> Bank:
    objectives = list(GOOD.objectives)
    objectives[number - 1] = dataclasses.replace(objectives[number - 1], **changes)
    return dataclasses.replace(GOOD, objectives=tuple(objectives))


def without_questions_of(number: int) -> Bank:
    return dataclasses.replace(GOOD, questions=tuple(q for q in GOOD.questions if q.objective != number))


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (with_objective(1, text="say what a model is"), "say what a model is"),
        (dataclasses.replace(GOOD, objectives=GOOD.objectives[::-1]), "the notebook says"),
        (dataclasses.replace(GOOD, objectives=GOOD.objectives[:-1]), "the questions say “None”"),
        (dataclasses.replace(GOOD, objectives=(*GOOD.objectives, GOOD.objectives[0])), "the notebook says “None”"),
        (with_objective(1, section="Three kinds of pass"), "there is no section “Three kinds of pass”"),
        (with_objective(1, section="Practice"), "there is no section"),  # the heading goes on
        (with_objective(1, experiment="02.pass"), "has no experiment 02.pass"),
        (with_objective(1, experiment="02.half"), "has no experiment 02.half"),  # it is in another section
        (with_objective(1, experiment="pass"), "has no experiment pass"),
        (with_objective(1, check="ex02.nothing"), "there is no check ex02.nothing"),
        (with_objective(1, check="ex03.append"), 'never calls check("ex03.append")'),
        (without_questions_of(3), "no question for objective 3"),
    ],
)
def test_a_broken_objective_is_found(broken: Bank, fault: str) -> None:
    notebook = notebook_of(GOOD)
    assert wrong_with_objectives(GOOD, notebook) == []
    assert any(fault in found for found in wrong_with_objectives(broken, notebook))


def test_a_function_that_a_section_calls_counts_as_an_experiment_and_one_that_it_only_names_does_not() -> None:
    assert uses("figures.passes(P, N)\n", "passes")
    assert not uses("passes = 4\nbypasses(3)\n", "passes")
    assert not uses('explore("02.passes_made")\n', "02.passes")


FIRST_CHOICES = next(question for question in GOOD.questions if isinstance(question, Choices))
FIRST_NUMBER = next(question for question in GOOD.questions if isinstance(question, Number))
FIRST_ORDER = next(question for question in GOOD.questions if isinstance(question, Order))


def with_wrong_choice(**changes: object) -> Question:
    """A question whose wrong choices are all changed."""
    return dataclasses.replace(
        FIRST_CHOICES,
        choices=tuple(c if c.right else dataclasses.replace(c, **changes) for c in FIRST_CHOICES.choices),
    )


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        (with_wrong_choice(why=""), "has no explanation"),
        (with_wrong_choice(why="No."), "has no explanation"),
        (with_wrong_choice(misconception=None, belief=""), "stands for no belief"),
        (with_wrong_choice(misconception=36), "there is no row 36"),
        (with_wrong_choice(why="It is not like that at all, is it?"), "the same explanation"),
        (with_wrong_choice(right=True), "no wrong answer is explained"),
        (dataclasses.replace(FIRST_NUMBER, traps=()), "no wrong answer is explained"),
        (dataclasses.replace(FIRST_NUMBER, explanation=" "), "no explanation"),
        (dataclasses.replace(FIRST_ORDER, wrong=""), "nothing is said to a wrong order"),
    ],
)
def test_a_broken_question_is_found(broken: Question, fault: str) -> None:
    assert wrong_with_questions(GOOD) == []
    questions = tuple(broken if question.id == broken.id else question for question in GOOD.questions)
    assert any(fault in found for found in wrong_with_questions(dataclasses.replace(GOOD, questions=questions)))


@pytest.mark.parametrize(
    ("there", "instead"),
    [
        ("misconception = 24", "misconception = 36"),
        ("misconception = 24", "misconception = 0"),
        ("misconception = 24\n", ""),
        ("objective = 4", "objective = 5"),
        ('why = "That is the length of the whole text.', 'reason = "That is the length of the whole text.'),
    ],
)
def test_a_copy_of_the_file_with_a_fault_is_refused_when_it_is_read(there: str, instead: str, tmp_path: Path) -> None:
    text = (Path(checks.__file__).parents[1] / f"quizzes/{GOOD.notebook}.toml").read_text(encoding="utf-8")
    copy = tmp_path / f"{GOOD.notebook}.toml"
    copy.write_text(text, encoding="utf-8")
    assert load_bank(copy) == GOOD
    assert text.count(there) >= 1
    copy.write_text(text.replace(there, instead), encoding="utf-8")
    with pytest.raises(BadQuestions, match=re.escape(copy.name)):
        load_bank(copy)


# The numbers in the questions of notebooks 00 and 02, worked out by the engine.


def number(notebook: str, identifier: str) -> Number:
    found = next(question for question in load_bank(notebook).questions if question.id == identifier)
    assert isinstance(found, Number)
    return found


def test_the_cache_holds_as_many_tokens_as_the_question_of_notebook_02_says() -> None:
    shape = ModelConfig(
        vocab_size=50, n_layers=1, d_model=16, n_heads=2, n_kv_heads=1, head_dim=8, d_ff=16, max_positions=128
    )
    small = checkpoints.random_model(shape, seed=0, dtype=torch.float64)
    question = number("02_prefill_and_decode", "tokens_in_the_cache")
    prompt, new = map(int, re.findall(r"\d+", question.text))
    cache = ContiguousCache(shape, rows=1, capacity=int(question.answer), dtype=torch.float64)
    result = generate(small, [1] * prompt, max_new_tokens=new, cache=cache)
    assert len(result.tokens) == new
    assert cache.lengths == (question.answer,) == (119,)
    assert {trap.value for trap in question.traps} == {prompt + new, new, new - 1, prompt}


def test_the_log_in_the_question_of_notebook_02_gives_its_tpot_and_each_trap_is_the_mistake_that_it_names() -> None:
    question = number("02_prefill_and_decode", "tpot_of_a_log")
    arrival_s, *times_s = map(float, re.findall(r"\d+\.\d+", question.text))
    log = Timing(arrival_s, tuple(times_s), prompt_tokens=10)
    assert log.new_tokens == 4 and log.tpot_s is not None
    assert isclose(question.answer, 1000 * log.tpot_s) and question.unit == "ms"
    assert [round(1000 * gap) for gap in log.itl_s] == [100, 80, 120]
    after_first_s = log.end_to_end_s - log.ttft_s
    mistakes = [1000 * log.end_to_end_s / 4, 1000 * after_first_s / 4, 1000 * log.ttft_s, log.tpot_s]
    assert [trap.value for trap in question.traps] == pytest.approx(mistakes)


def test_the_rates_that_the_questions_of_notebook_02_name_are_right() -> None:
    by_id = {question.id: question for question in GOOD.questions}
    whole_s = 100 / 40
    log = Timing(0.0, tuple(1 + (whole_s - 1) * i / 99 for i in range(100)), prompt_tokens=10)
    assert isclose(log.output_tokens_per_s or 0, 40) and isclose(log.end_to_end_s, 2.5)
    assert log.tpot_s is not None and log.tpot_s < 0.025  # later than 25 ms, and the gaps are shorter
    assert "2.5 s" in next(c.text for c in by_id["forty_per_second"].choices if c.right)
    assert isclose(8 / 1.6, 5) and "8 / 1.6 = 5" in by_id["eight_at_once"].explanation


def test_the_five_tokens_of_notebook_00_take_as_long_as_the_question_says() -> None:
    question = number("00_start_here", "five_tokens")
    log = Timing(0.0, tuple(1.2 + 0.05 * i for i in range(5)), prompt_tokens=10)
    assert isclose(question.answer, log.end_to_end_s) and question.unit == "s"
    mistakes = [5 * 1.2, 5 * 0.05, 1.2 + 5 * 0.05, 1.2 + 0.05, 1.4e3]
    assert [trap.value for trap in question.traps] == pytest.approx(mistakes)
