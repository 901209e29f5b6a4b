"""Predictions: what counts as a number, what is said about it, what is kept, and that nothing ever waits for one."""

import os
from pathlib import Path
from typing import Any

import pytest

from course_lib.progress import Store, data_folder, store
from course_lib.study import predictions
from course_lib.study.predictions import (
    Field,
    Question,
    apart,
    compare,
    number,
    plain,
    predict,
    side_by_side,
    with_unit,
)

Page = list[tuple[Any, dict[str, str]]]


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Page:
    """What was shown: each widget, and what stands there without a kernel; for a comparison no widget, and what stands
    there now. Nothing is kept for the next test."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    shown: Page = []
    monkeypatch.setattr(predictions, "show", lambda widget, without_kernel: shown.append((widget, without_kernel)))

    def show_renewable(data: dict[str, str]) -> Any:
        shown.append((None, data))
        return data.update

    monkeypatch.setattr(predictions, "show_renewable", show_renewable)
    restart_kernel(monkeypatch)
    return shown


def restart_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what only this process knows."""
    for kept in ("asked", "followers", "unsaved", "on_page"):
        monkeypatch.setattr(predictions, kept, type(getattr(predictions, kept))())


def write(field: Field, text: str) -> str:
    """Write into the field as the page does; the sentence that it answers."""
    field.entered = {"number": field.entered["number"] + 1, "text": text}
    assert field.reply["number"] == field.entered["number"], "every entry is answered"
    return str(field.reply["said"])


def recorded() -> list[dict[str, Any]]:
    return [event.data for event in store().events("prediction", "09.q")]


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
        ("-1e301", "finite"),
        ("5 seconds", "is not a number"),
        ("<b>", "“<b>” is not a number"),
        ("1 000", "“1 000” is not a number"),
        *[
            (text, "Write one number, your best guess.")
            for text in ("~50", "50-60", "about 5", "5 or 6", "5 \N{EN DASH} 6.5")
        ],
        *[(text, "Write one number, your best guess.") for text in ("between -1 and 2", "-5 to 5", "≈ 7 tokens", "<5")],
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


def test_without_an_answer_a_common_first_guess_stands_in(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    compare("09.q", measured=8)
    (field, question), (_, comparison) = page
    assert question["text/plain"] == "How many?"
    assert "9" not in question["text/html"] and field.text == "", "the guess would be an anchor"
    assert comparison["text/plain"] == "A common first guess: 9 tokens. Measured: 8 tokens."
    assert "A common first guess" in comparison["text/html"] and "Write your own" not in comparison["text/html"]
    assert not data_folder().exists(), "nobody acted, nothing is recorded"


def test_an_answer_stands_beside_what_was_measured(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    field = page[0][0]
    assert (field.question, field.unit) == ("How many?", "tokens")
    assert write(field, "8 tokens") == "Noted: 8 tokens." and not field.reply["wrong"]
    compare("09.q", measured=8)
    assert page[1][1]["text/plain"] == "Your prediction: 8 tokens. Measured: 8 tokens."
    assert "Exactly." in page[1][1]["text/html"]


def test_a_comparison_follows_an_answer_that_comes_late(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    compare("09.q", measured=8)
    field, comparison = page[0][0], page[1][1]
    assert "A common first guess" in comparison["text/html"] and "Write your own" not in comparison["text/html"]
    field.on_page = True  # now there is a field that somebody can write into
    assert "A common first guess" in comparison["text/html"] and "Write your own" in comparison["text/html"]
    write(field, "7")
    assert "Your prediction" in comparison["text/html"] and "7 tokens" in comparison["text/html"]
    assert "Write your own" not in comparison["text/html"]


def test_what_is_no_number_gets_a_sentence_and_changes_nothing(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    compare("09.q", measured=8)
    field, comparison = page[0][0], page[1][1]
    assert write(field, "seven") == "“seven” is not a number. Write one such as 12 or 1.5. Esc leaves the field."
    assert field.reply["wrong"] and recorded() == []
    write(field, "7")
    assert write(field, "") == "Write a number, then press Enter. Until then 7 tokens counts. Esc leaves the field."
    assert "7 tokens" in comparison["text/html"] and len(recorded()) == 1


@pytest.mark.parametrize(
    ("low", "high", "bad", "good", "sentence"),
    [
        (0, 5, ("-1", "77 keys", "5.01"), ("0", "5", "2.5"), "Between 0 and 5, please. Esc leaves the field."),
        (0, None, ("-3",), ("0", "1e9"), "0 or more, please. Esc leaves the field."),
        (None, 1.5, ("2",), ("-3", "1.5"), "At most 1.5, please. Esc leaves the field."),
        (None, None, (), ("-3", "1e9"), ""),
    ],
)
def test_what_cannot_be_is_no_prediction(
    page: Page, low: float | None, high: float | None, bad: tuple[str, ...], good: tuple[str, ...], sentence: str
) -> None:
    predict("09.q", "How many?", default=1, unit="keys", low=low, high=high)
    field = page[0][0]
    for text in bad:
        assert write(field, text) == sentence and field.reply["wrong"]
    assert recorded() == []
    for text in good:
        assert write(field, text).startswith("Noted: ") and not field.reply["wrong"]
    assert len(recorded()) == len(good)


def test_a_prediction_from_before_there_were_bounds_counts_only_within_them(page: Page) -> None:
    predict("09.q", "How many?", default=1, unit="keys")
    write(page[0][0], "4")
    write(page[0][0], "77")
    predict("09.q", "How many?", default=1, unit="keys", low=0, high=5)
    assert page[1][0].text == "4"


def test_a_default_beyond_the_bounds_is_the_writers_mistake() -> None:
    with pytest.raises(ValueError, match="default 6 of “How many.” is not allowed: Between 0 and 5"):
        predict("09.q", "How many?", default=6, unit="keys", low=0, high=5)


def test_nobody_is_told_how_far_off_a_guess_is_that_nobody_made(page: Page) -> None:
    predict("09.q", "How many?", default=9)
    compare("09.q", measured=3)
    comparison = page[1][1]
    for shown in (comparison["text/html"], page[1][1]["text/html"], page[1][1]["text/plain"]):
        assert "Off by" not in shown and "9" in shown and "3" in shown
    write(page[0][0], "9")
    assert "Off by a factor of 3." in comparison["text/html"]


def test_a_prediction_is_recorded_with_its_unit_and_the_version_of_its_question(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    write(page[0][0], "1.5")
    (event,) = store().events("prediction", "09.q")
    assert event.data == {"value": 1.5, "unit": "tokens"}
    assert event.version == Question("How many?", 12, "tokens").version != Question("How few?", 9, "tokens").version


def test_the_same_number_again_is_no_new_prediction_another_one_is(page: Page) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    for text in ("8", "8", "8.0", "7", "8"):
        write(page[0][0], text)
    assert [data["value"] for data in recorded()] == [8, 7, 8]


def test_what_was_written_is_there_again_after_a_restart(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    predict("09.q", "How many?", default=9, unit="tokens")
    write(page[0][0], "1234567.5")
    restart_kernel(monkeypatch)
    predict("09.q", "How many?", default=9, unit="tokens")
    compare("09.q", measured=8)
    assert page[1][0].text == "1234567.5" and page[1][0].reply["said"] == "Noted: 1,234,568 tokens."
    assert page[2][1]["text/plain"] == "Your prediction: 1,234,568 tokens. Measured: 8 tokens."


def test_a_number_in_another_unit_is_no_answer_to_the_present_question(page: Page) -> None:
    predict("09.q", "How much?", default=9, unit="ms")
    write(page[0][0], "50")
    predict("09.q", "How much?", default=9, unit="%")
    assert page[1][0].text == "" and page[1][0].reply["said"] == ""


def test_a_reset_takes_a_prediction_back(page: Page) -> None:
    predict("09.q", "How many?", default=9)
    write(page[0][0], "3")
    store().reset("09")
    predict("09.q", "How many?", default=9)
    assert page[1][0].text == ""


def test_what_cannot_be_saved_counts_in_this_session_and_this_is_said(
    page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    predict("09.q", "How many?", default=9, unit="tokens")
    compare("09.q", measured=8)
    said = write(page[0][0], "8")
    assert said.startswith("Noted: 8 tokens. It counts until the kernel is restarted, but was not saved: ")
    assert str(tmp_path / "data") in said and not page[0][0].reply["wrong"]
    assert "Your prediction" in page[1][1]["text/html"]

    os.remove(tmp_path / "data")  # the remedy
    assert write(page[0][0], "8") == "Noted: 8 tokens."
    write(page[0][0], "7")
    assert "7 tokens" in page[1][1]["text/html"]
    restart_kernel(monkeypatch)
    predict("09.q", "How many?", default=9, unit="tokens")
    assert page[2][0].text == "7"


def test_a_repair_of_the_saved_answers_is_told(page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    predict("09.q", "How many?", default=9)
    write(page[0][0], "3")
    (tmp_path / "data" / "progress.sqlite").write_bytes(b"damage" * 1000)
    restart_kernel(monkeypatch)
    store_of_the_next_kernel = Store(tmp_path / "data")
    monkeypatch.setattr(predictions, "store", lambda: store_of_the_next_kernel)
    predict("09.q", "How many?", default=9)
    assert page[1][0].text == "3"
    assert "damaged" in page[1][0].reply["said"]


def test_what_was_typed_is_never_markup(page: Page) -> None:
    predict("09.q", "<b>?", default=1, unit="<u>")
    compare("09.q", measured=2)
    assert "<b>" not in page[0][1]["text/html"] and "<u>" not in page[0][1]["text/html"]
    assert "<u>" not in page[1][1]["text/html"]
    assert "<u>" not in side_by_side(Question("?", 1, "<u>"), 2, 3, "<i>")


def test_a_comparison_nobody_was_asked_for_says_which_cell_to_run(page: Page) -> None:
    with pytest.raises(KeyError, match="run the cell with predict"):
        compare("nobody", measured=1)
