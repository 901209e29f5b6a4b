"""Files of questions: what is read, and the one sentence that every damaged file gets."""

import subprocess
import sys
from pathlib import Path

import pytest
from small_quiz import ALL, HEAD, NUMBER, ONE, ORDER, SEVERAL, write_bank

from course_lib.quizzes.bank import (
    BadQuestions,
    Choices,
    Number,
    Order,
    load_bank,
    main,
    notebooks_with_questions,
)
from course_lib.quizzes.fields import MOST_BYTES
from course_lib.quizzes.text import as_html, as_plain, spans


def test_a_file_is_read_whole(tmp_path: Path) -> None:
    bank = load_bank(write_bank(tmp_path))
    assert bank.notebook == "03_small"
    assert [objective.text for objective in bank.objectives] == ["say what a cache holds"]
    one, several, number, order = bank.questions
    assert (one.name, one.objective, one.type) == ("03.kept", 1, "one")
    assert isinstance(one, Choices) and [choice.misconception for choice in one.choices] == [1, None, 2]
    assert isinstance(several, Choices) and [choice.right for choice in several.choices] == [True, False, True]
    assert isinstance(number, Number) and (number.answer, number.unit, number.tolerance) == (1.4375, "MiB", 0.01)
    assert number.traps[0].belief == "the cache holds keys only"
    assert isinstance(order, Order) and sorted(order.shown) == sorted(order.items)


def test_the_questions_of_the_course_are_sound() -> None:
    assert notebooks_with_questions(), "no file of questions was found"
    for notebook in notebooks_with_questions():
        assert load_bank(notebook).questions


def test_a_version_changes_with_the_question_and_not_with_its_explanations(tmp_path: Path) -> None:
    def versions(text: str) -> list[str]:
        return [question.version for question in load_bank(write_bank(tmp_path, text)).questions]

    before = versions(ALL)
    assert len(set(before)) == 4 and all(len(version) == 8 for version in before)
    assert versions(ALL.replace("undisclosed: ", "said better: ")) == before
    for old, new in [
        ("Its row of", "A row of"), ("More layers", "Fewer layers"), ("1.4375", "1.5"), ("Read all rows", "Read rows")
    ]:  # fmt: skip
        after = versions(ALL.replace(old, new))
        assert sum(a != b for a, b in zip(before, after)) == 1, old


def test_the_order_in_which_items_are_shown_does_not_depend_on_the_right_one(tmp_path: Path) -> None:
    items = ["Compute K and V of the new token", "Append them to the cache", "Read all rows", "Choose the next token"]
    written = ", ".join(f'"{item}"' for item in items)
    backwards = ", ".join(f'"{item}"' for item in reversed(items))
    shown = []
    for text in (HEAD + ORDER, (HEAD + ORDER).replace(written, backwards)):
        question = load_bank(write_bank(tmp_path, text)).questions[0]
        assert isinstance(question, Order)
        shown.append(question.shown)
    assert written in ORDER and shown[0] == shown[1]


def choice_without(field: str) -> str:
    return "\n".join(line for line in (HEAD + ONE).splitlines() if not line.startswith(field))


TRAP = "[[question.trap]]\nvalue = {}\nwhy = 'a'\nbelief = 'b'\n"
DAMAGED = [
    ("notebook = ", "03_small.toml: is not TOML: Invalid value"),
    ("", "03_small.toml: notebook: is missing; write notebook = "),
    ("notebook = '04_other'", 'notebook: “04_other” is not this file\'s name; write "03_small", or rename the file'),
    ("notebook = 'three'", "notebook: “three” is no notebook's name"),
    ("notebook = 3", "notebook: should be text in quotation marks, not a whole number"),
    ("notebook = '03_small'\nquestions = 1", "questions: is not known here; did you mean question?"),
    ("notebook = '03_small'\nquestion = 1", "question: should be one or more tables, .*not a whole number"),
    ("notebook = '03_small'\nobjective = [1]", "objective 1: should be a table, not a whole number"),
    ("notebook = '03_small'" + ONE, "objective: is missing; write at least one"),
    (HEAD, "question: is missing; write at least one"),
    (HEAD.replace("section", "chapter") + ONE, "objective 1: chapter: is not known here; did you mean"),
    (HEAD + ONE + ONE, "question 2: id: “kept” is the id of an earlier question, too"),
    (HEAD + ONE.replace('"kept"', '"Kept!"'), "question 1: id: “Kept!” should be small letters"),
    (choice_without("id"), 'question 1: id: is missing; write id = "…"'),
    (HEAD + ONE.replace("objective = 1", "objective = 2"), "question “kept”: objective: is 2, and should be 1 to 1"),
    (HEAD + ONE.replace("objective = 1", "objective = true"), "objective: should be a whole number, not true or false"),
    (HEAD + ONE.replace('"one"', '"several_"'), "type: “several_” is none of .*; did you mean several?"),
    (choice_without("type"), "type: is missing"),
    (choice_without("explanation"), "question “kept”: explanation: is missing"),
    (HEAD + ONE.replace("explanation", "explanaton"), "explanaton: is not known here; did you mean explanation?"),
    (
        HEAD + ONE.replace('type = "one"', 'type = "one"\nexplanaton = ""'),
        "explanaton: is not known here; did you mean explanation?",
    ),
    (choice_without("right"), "choice: no choice is right; write right = true in one of them"),
    (HEAD + SEVERAL.replace("several", "one"), 'choice: 2 choices are right; leave one, or write type = "several"'),
    (HEAD + ONE.split("[[question.choice]]")[0], "choice: there should be two or more, not 0"),
    (choice_without("why"), "question “kept”: choice 1: why: is missing"),
    (choice_without("misconception"), "choice 1: misconception: is missing; .*or belief = "),
    (HEAD + ONE.replace("= 2", "= 36"), "choice 3: misconception: is 36, and should be 1 to 35"),
    (HEAD + ONE.replace("right = true", 'right = "yes"'), "choice 2: right: should be true or false, not text"),
    (HEAD + ONE.replace("right = true", "rigth = true"), "choice 2: rigth: is not known here; did you mean right?"),
    (HEAD + ONE.replace("Its row of attention weights", "Its key and its value"), "choice 3: text: is the text of an"),
    (HEAD + ONE.replace("Its key and its value", " "), "choice 2: text: is empty; write a sentence"),
    (HEAD + ONE.replace("Its key and its value", "x" * 5000), "choice 2: text: has 5,000 characters, more than 4,000"),
    (HEAD + NUMBER.replace("answer = 1.4375", 'answer = "1.4375"'), "answer: should be a number without quotation"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = nan"), "answer: should be a finite number, not nan"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = inf"), "answer: should be a finite number, not inf"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = 1" + "0" * 400), "answer: should be a finite number"),
    (HEAD + NUMBER.replace("answer = 1.4375\n", ""), "question “size”: answer: is missing; write answer = 1.5"),
    (HEAD + NUMBER.replace("0.01", "-0.01"), "tolerance: is -0.01, and should be 0 or more"),
    (HEAD + NUMBER.replace("tolerance = 0.01\n", ""), "tolerance: write exactly one of"),
    (HEAD + NUMBER.replace("0.01", "0.01\nrelative_tolerance = 0.1"), "tolerance: write exactly one of"),
    (
        HEAD + NUMBER.replace("tolerance = 0.01", "relative_tolerance = 1.0"),
        "relative_tolerance: is 1; 1 or more would",
    ),
    (HEAD + NUMBER.replace("0.01", "0.8"), "trap 1: value: 0.71875 cannot be told from the right answer"),
    (HEAD + NUMBER + TRAP.format(0.72), "trap 2: value: 0.72 cannot be told from an earlier trap"),
    (HEAD + NUMBER + TRAP.format("1979-05-27"), "trap 2: value: should be a number .*not a date or time"),
    (HEAD + NUMBER + "tolerance = 1.0", "trap 1: tolerance: belongs to the question; write it above the first"),
    (HEAD + NUMBER.replace("belief = ", "beleif = "), "trap 1: beleif: is not known here; did you mean belief?"),
    (HEAD + ORDER.replace("items = [", "items = 3 #"), "question “steps”: items: should be a list of texts"),
    (HEAD + ORDER.replace('"Read all rows"', "3"), "items, number 3: should be text in quotation marks"),
    (HEAD + ORDER.replace("Read all rows", "Append them to the cache"), "items: two of them are the same"),
    (HEAD + ORDER.replace("wrong = ", "# "), "question “steps”: wrong: is missing"),
    (
        HEAD + ORDER.replace("wrong = ", "unit = 'B'\nwrong = "),
        "unit: is not for a question of type order; take it out",
    ),
    (HEAD + ORDER.replace("wrong = ", "wrongs = "), "wrongs: is not known here; did you mean wrong?"),
]


@pytest.mark.parametrize(("text", "message"), DAMAGED, ids=[f"{n}" for n in range(len(DAMAGED))])
def test_a_damaged_file_is_refused_with_file_question_and_field(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "03_small.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(BadQuestions, match=message) as caught:
        load_bank(path)
    said = str(caught.value)
    assert said.startswith("03_small.toml: ") and "\n" not in said and len(said) < 400


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "03_small.toml"
    with pytest.raises(BadQuestions, match="03_small.toml: cannot be read"):
        load_bank(path)
    path.write_bytes(ALL.encode() + "# naïve".encode("latin-1"))
    with pytest.raises(BadQuestions, match=r"line \d+ is not UTF-8 text; save the file as UTF-8"):
        load_bank(path)
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(BadQuestions, match="is larger than 1,000,000 bytes"):
        load_bank(path)
    path.write_text("a = " + "[" * 50_000, encoding="utf-8")
    with pytest.raises(BadQuestions, match="is not TOML that a person wrote|is not TOML"):
        load_bank(path)
    path.write_bytes(b"\xef\xbb\xbf" + ALL.encode())  # as some editors save it
    assert len(load_bank(path).questions) == 4


def test_an_unknown_notebook_gets_the_nearest_name(tmp_path: Path) -> None:
    write_bank(tmp_path)
    with pytest.raises(BadQuestions, match="no questions for a notebook “03_smal”; did you mean 03_small?"):
        load_bank("03_smal", tmp_path)
    with pytest.raises(BadQuestions, match="there are questions for: 03_small"):
        load_bank("../../etc/passwd", tmp_path)


def test_in_a_notebook_an_error_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadQuestions) as caught:
        load_bank(write_bank(tmp_path, HEAD))
    assert caught.value._render_traceback_() == [f"BadQuestions: {caught.value}"]


def test_files_can_be_checked_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_bank(tmp_path)
    assert main([str(good)]) == 0
    assert capsys.readouterr().out == "03_small.toml: 4 questions, all sound\n"
    assert main([str(good), str(write_bank(tmp_path, HEAD + SEVERAL.replace("several", "one"), "04_bad"))]) == 1
    assert "04_bad.toml: question “grows”: choice: 2 choices are right" in capsys.readouterr().out


def test_reading_questions_needs_neither_torch_nor_widgets() -> None:
    code = "import sys, course_lib.quizzes.bank; print({'torch', 'ipywidgets', 'IPython'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_texts_know_code_and_emphasis_and_nothing_else() -> None:
    assert spans("a `K*V*` and *two words*, 2 * 3 * 4") == [
        ["text", "a "], ["code", "K*V*"], ["text", " and "], ["em", "two words"], ["text", ", 2 * 3 * 4"]
    ]  # fmt: skip
    assert as_html("<script>`<b>` *&*") == "&lt;script&gt;<code>&lt;b&gt;</code> <em>&amp;</em>"
    assert as_plain("`x` is *not* `y`") == "`x` is not `y`"
    assert spans("one ` alone and a * too") == [["text", "one ` alone and a * too"]]
