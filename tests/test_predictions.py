"""Predictions: what counts as a number, what is said about it, and that nothing ever waits for one."""

from collections.abc import Iterator
from typing import Any

import ipywidgets
import pytest

from course_lib.study import predictions
from course_lib.study.predictions import Question, apart, compare, number, plain, predict, side_by_side, with_unit


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[Any, dict[str, str]]]]:
    """What was shown: each widget, and what stands there without a kernel. Nothing is kept for the next test."""
    shown: list[tuple[Any, dict[str, str]]] = []
    monkeypatch.setattr(predictions, "show", lambda widget, without_kernel: shown.append((widget, without_kernel)))
    for kept in ("store", "asked", "followers"):
        monkeypatch.setattr(predictions, kept, {})
    yield shown


def field_of(box: Any) -> Any:
    _, row, _ = box.children
    field, _ = row.children
    assert isinstance(field, ipywidgets.Text)
    return field


def button_of(box: Any) -> Any:
    return box.children[1].children[1]


def reply_of(box: Any) -> str:
    return str(box.children[-1].value)


@pytest.mark.parametrize(
    ("typed", "value"),
    [("12", 12), (" 1.5 ", 1.5), ("1e3", 1000), ("5 tokens", 5), ("7%", 7), ("-3", -3), ("\N{MINUS SIGN}3", -3)],
)
def test_a_number_may_come_with_spaces_and_its_unit(typed: str, value: float) -> None:
    assert number(typed, "%" if "%" in typed else "tokens") == value


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", "Write a number"),
        ("eight", "“eight” is not a number"),
        ("1,5", "comma"),
        ("1,000", "comma"),
        ("nan", "finite"),
        ("inf", "finite"),
        ("5 seconds", "is not a number"),
        ("<b>", "“<b>” is not a number"),
    ],
)
def test_anything_else_gets_a_sentence(typed: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        number(typed, "tokens")


@pytest.mark.parametrize(
    ("value", "text"),
    [(8, "8"), (8.0, "8"), (12.76, "12.76"), (9.6612, "9.66"), (0.1, "0.1"), (11677.3, "11,677"), (0, "0")],
)
def test_numbers_are_written_as_one_would_say_them(value: float, text: str) -> None:
    assert plain(value) == text


def test_one_has_a_singular() -> None:
    assert [with_unit(1, unit) for unit in ("tokens", "passes", "×", "s", "%")] == [
        "1 token", "1 pass", "1 ×", "1 s", "1 %",
    ]  # fmt: skip
    assert with_unit(2, "tokens") == "2 tokens"


@pytest.mark.parametrize(
    ("predicted", "measured", "text"),
    [
        (8, 8, "Exactly."),
        (9, 8, "Off by 1."),
        (0, 7.5, "Off by 7.5."),
        (50, 0, "Off by 50."),
        (-2, 3, "Off by 5."),
        (0.98, 1.05, "Less than a tenth off."),
        (1, 9.66, "Off by a factor of 9.66."),
        (12.76, 0.76, "Off by a factor of 16.8."),
    ],
)
def test_how_far_a_prediction_is_off(predicted: float, measured: float, text: str) -> None:
    assert apart(predicted, measured) == text


def test_without_an_answer_a_common_first_guess_stands_in(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9, unit="tokens")
    compare("q", measured=8)
    (_, question), (_, comparison) = page
    assert question["text/plain"] == "How many?"
    assert "9" not in question["text/html"], "the guess would be an anchor"
    assert comparison["text/plain"] == "A common first guess: 9 tokens. Measured: 8 tokens."
    assert "A common first guess" in comparison["text/html"] and "Write your own" not in comparison["text/html"]


def test_an_answer_stands_beside_what_was_measured(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9, unit="tokens")
    field = field_of(page[0][0])
    assert field.description == "How many?"
    field.value = "8"
    assert "Noted: 8 tokens." in reply_of(page[0][0])
    compare("q", measured=8)
    assert page[1][1]["text/plain"] == "Your prediction: 8 tokens. Measured: 8 tokens."
    assert "Exactly." in page[1][0].value


def test_a_comparison_follows_an_answer_that_comes_late(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9, unit="tokens")
    compare("q", measured=8)
    field, comparison = field_of(page[0][0]), page[1][0]
    assert "A common first guess" in comparison.value
    field.value = "7"
    assert "Your prediction" in comparison.value and "7 tokens" in comparison.value
    field.value = "seven"
    assert "“seven” is not a number" in reply_of(page[0][0])
    assert "A common first guess" in comparison.value, "what is no number replaces what was written before"


def test_nobody_is_told_how_far_off_a_guess_is_that_nobody_made(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9)
    compare("q", measured=3)
    comparison = page[1][0]
    for shown in (comparison.value, page[1][1]["text/html"], page[1][1]["text/plain"]):
        assert "Off by" not in shown and "9" in shown and "3" in shown
    field_of(page[0][0]).value = "9"
    assert "Off by a factor of 3." in comparison.value


def test_enter_gives_the_keys_back_and_what_is_no_number_keeps_them(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9)
    field, button = field_of(page[0][0]), button_of(page[0][0])
    assert button.tabbable is False, "one press of Shift+Tab leads to the field"
    focused: list[str] = []
    field.focus, button.focus = lambda: focused.append("field"), lambda: focused.append("button")

    def enter(text: str) -> None:
        field._handle_custom_msg({"event": "submit"}, [])  # the page sends this first
        field.value = text

    enter("eight")
    assert focused == ["button", "field"]
    enter("8")
    assert focused == ["button", "field", "button"]
    field.value = "nine"  # left with Tab: the focus is where the learner put it
    assert focused == ["button", "field", "button"]


def test_the_button_says_when_there_is_nothing_to_note(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9)
    button_of(page[0][0]).click()
    assert "Write a number" in reply_of(page[0][0])


def test_an_answer_survives_when_the_cell_is_run_again(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "How many?", default=9)
    field_of(page[0][0]).value = "1.5"
    predict("q", "How many?", default=9)
    assert field_of(page[1][0]).value == "1.5" and "Noted: 1.5." in reply_of(page[1][0])


def test_what_was_typed_is_never_markup(page: list[tuple[Any, dict[str, str]]]) -> None:
    predict("q", "<b>?", default=1, unit="<u>")
    field_of(page[0][0]).value = "<img src=x>"
    assert "<img" not in reply_of(page[0][0])
    assert "<b>" not in page[0][1]["text/html"] and "<u>" not in page[0][1]["text/html"]
    assert "<u>" not in side_by_side(Question("?", 1, "<u>"), 2, 3, "<i>")


def test_a_comparison_nobody_was_asked_for_says_which_cell_to_run(page: list[tuple[Any, dict[str, str]]]) -> None:
    with pytest.raises(KeyError, match="run the cell with predict"):
        compare("nobody", measured=1)
