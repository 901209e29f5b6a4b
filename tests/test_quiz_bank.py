"""Files of questions: what is read, and the one sentence that every damaged file gets."""

import os
import subprocess
import sys
import threading
from dataclasses import replace
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


def test_a_question_is_repeated_unless_its_file_says_no(tmp_path: Path) -> None:
    before = load_bank(write_bank(tmp_path)).questions
    assert [question.repeat for question in before] == [True] * 4
    for value, repeated in (("false", False), ("true", True)):
        text = ALL.replace('type = "number"', f'type = "number"\nrepeat = {value}')
        questions = load_bank(write_bank(tmp_path, text)).questions
        assert [question.repeat for question in questions] == [True, True, repeated, True]
        assert [question.version for question in questions] == [question.version for question in before]


def test_of_notebook_00_only_what_is_about_models_comes_back() -> None:
    assert [question.id for question in load_bank("00_start_here").questions if question.repeat] == ["five_tokens"]


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


def order_of(*items: str) -> Order:
    return Order("03_small", "steps", 1, "order", "?", "!", items, "no")


def test_an_order_is_never_shown_solved_and_always_shown_the_same_way() -> None:
    """Answers are saved as places in what was shown, so a pinned arrangement must stay for good."""
    assert order_of("first", "second", "third", "last one").shown == ("second", "first", "third", "last one")
    assert order_of("second", "first", "third", "last one").shown == ("first", "third", "last one", "second")
    for two in (("first", "second"), ("second", "first")):
        assert order_of(*two).shown == two[::-1]


def test_every_part_of_a_key_is_in_the_version(tmp_path: Path) -> None:
    one, _, number, order = load_bank(write_bank(tmp_path)).questions
    assert isinstance(one, Choices) and isinstance(number, Number) and isinstance(order, Order)
    first, second, third = one.choices
    moved = replace(one, choices=(replace(first, right=True), replace(second, right=False), third))
    others = [
        moved,
        replace(number, unit="MB"),
        replace(number, answer=1.5),
        replace(number, tolerance=0.02),
        replace(number, tolerance=None, relative_tolerance=0.01),
        replace(order, items=order.items[::-1]),
    ]
    versions = [question.version for question in (one, number, order, *others)]
    assert len(set(versions)) == len(versions)


def choice_without(field: str) -> str:
    return "\n".join(line for line in (HEAD + ONE).splitlines() if not line.startswith(field))


TRAP = "[[question.trap]]\nvalue = {}\nwhy = 'a'\nbelief = 'b'\n"
SHARE = HEAD + NUMBER.split("[[question.trap]]")[0].replace("1.4375", "100").replace(
    "tolerance = 0.01", "relative_tolerance = 0.1"
)
DAMAGED = [
    ("notebook = ", "03_small.toml: is not TOML: Invalid value"),
    ("", "03_small.toml: notebook: is missing; write notebook = "),
    ("notebook = '04_other'", 'notebook: “04_other” is not this file\'s name; write "03_small", or rename the file'),
    ("notebook = 'three'", "notebook: “three” is not the name of a notebook"),
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
    (HEAD + ONE.replace('type = "one"', 'type = "one"\nrepeat = "no"'), "repeat: should be true or false, not text"),
    (HEAD + ONE + "repeat = false", "choice 3: repeat: belongs to the question; write it above the first"),
    (HEAD + ONE.replace("Its row of attention weights", "Its key and its value"), "choice 3: text: is the text of an"),
    (HEAD + ONE.replace("Its key and its value", " "), "choice 2: text: is empty; write a sentence"),
    (HEAD + ONE.replace("Its key and its value", "x" * 5000), "choice 2: text: has 5,000 characters, more than 4,000"),
    (HEAD + NUMBER.replace("answer = 1.4375", 'answer = "1.4375"'), "answer: should be a number without quotation"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = nan"), "answer: should be a finite number, between"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = inf"), "answer: should be a finite number, between"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = 1" + "0" * 400), "answer: should be a finite number"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = 0x1" + "0" * 9000), "answer: should be a finite number"),
    (HEAD + NUMBER.replace("answer = 1.4375", "answer = 1" + "0" * 5000), "03_small.toml: holds a number of too many"),
    (HEAD + ONE.replace("objective = 1", "objective = 0x1" + "0" * 9000), "is far too large; it should be 1 to 1"),
    (HEAD + NUMBER.replace("MiB", "Mib"), "unit: “Mib” can mean bits; if you mean bytes, write MiB"),
    (HEAD + NUMBER.replace("answer = 1.4375\n", ""), "question “size”: answer: is missing; write answer = 1.5"),
    (HEAD + NUMBER.replace("0.01", "-0.01"), "tolerance: is -0.01, and should be 0 or more"),
    (HEAD + NUMBER.replace("tolerance = 0.01\n", ""), "tolerance: write exactly one of"),
    (HEAD + NUMBER.replace("0.01", "0.01\nrelative_tolerance = 0.1"), "tolerance: write exactly one of"),
    (
        HEAD + NUMBER.replace("tolerance = 0.01", "relative_tolerance = 1.0"),
        "relative_tolerance: is 1; 1 or more would",
    ),
    (HEAD + NUMBER.replace("0.01", "0.8"), "trap 1: value: cannot be told from the right answer"),
    (HEAD + NUMBER + TRAP.format(0.72), "trap 2: value: cannot be told from an earlier trap"),
    (SHARE + TRAP.format(90), "trap 1: value: cannot be told from the right answer"),
    (SHARE + TRAP.format(110.5), "trap 1: value: cannot be told from the right answer"),
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
    for number in ("1.4375", "0.71875", "0.72", "110.5", "90"):
        assert number not in said, "a learner reads it, too"


def test_traps_just_outside_the_tolerance_either_way_are_sound(tmp_path: Path) -> None:
    for value in (89.9, 111.2):
        assert load_bank(write_bank(tmp_path, SHARE + TRAP.format(value))).questions


ESCAPE = "\x1b]0;title\x07"
WRITTEN = r"\u001b]0;title\u0007"  # in TOML


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"kept"', f'"{WRITTEN}"'), ('"one"', f'"{WRITTEN}"'), ("explanation", f'"{WRITTEN}"'),
        ("Its key and its value", WRITTEN), ("text = ", f'"{WRITTEN}" = "a"\ntext = '),
    ],
)  # fmt: skip
def test_no_text_of_a_file_commands_a_terminal(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(BadQuestions) as caught:
        load_bank(write_bank(tmp_path, HEAD + ONE.replace(old, new, 1)))
    assert str(caught.value).isprintable()
    with pytest.raises(BadQuestions) as caught:
        load_bank(tmp_path / f"{ESCAPE}.toml")
    assert str(caught.value).isprintable() and r"\x1b]0;title\x07.toml: cannot be read" in str(caught.value)


@pytest.mark.parametrize("part", ["a", '"a"', "'b'", "a . b"])
def test_a_key_of_very_many_parts_is_refused_before_it_is_read(tmp_path: Path, part: str) -> None:
    path = tmp_path / "03_small.toml"
    for line in (".".join([part] * 20_000) + " = 1", "[" + ".".join([part] * 20_000) + "]"):
        path.write_text(f"{ALL}\n{line}", encoding="utf-8")
        with pytest.raises(BadQuestions, match=rf"line {ALL.count(chr(10)) + 2}: more than 20 names are joined"):
            load_bank(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_of_a_file_without_end_no_more_is_read_than_the_limit(tmp_path: Path) -> None:
    path, refused, waited = tmp_path / "03_small.toml", threading.Event(), []
    os.mkfifo(path)

    def endless() -> None:
        with path.open("wb", buffering=0) as file:
            content = b"#" * (MOST_BYTES + 1)
            while content:
                content = content[file.write(content) :]
            waited.append(refused.wait(5))  # whoever reads on gets nothing until then

    writer = threading.Thread(target=endless)
    writer.start()
    with pytest.raises(BadQuestions, match="is larger than"):
        load_bank(path)
    refused.set()
    writer.join()
    assert waited == [True]


def test_what_is_no_text_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "03_small.toml"
    with pytest.raises(BadQuestions, match="03_small.toml: cannot be read"):
        load_bank(path)
    path.write_bytes(ALL.encode() + "# naïve".encode("latin-1"))
    with pytest.raises(BadQuestions, match=r"line \d+ is not UTF-8 text; save the file as UTF-8"):
        load_bank(path)
    path.write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(BadQuestions, match="is larger than 200,000 bytes"):
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


@pytest.mark.parametrize("notebook", [3, None, b"03_small", ["03_small"], float("nan")])
def test_what_is_no_name_of_a_notebook_gets_a_sentence(notebook: object) -> None:
    with pytest.raises(BadQuestions, match='named by text, not by a value of type .*; write its name, such as "03_'):
        load_bank(notebook)  # type: ignore[arg-type]
    with pytest.raises(BadQuestions, match="cannot be read: embedded null"):
        load_bank(Path("03_small\0.toml"))


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
