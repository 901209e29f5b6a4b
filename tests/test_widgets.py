"""Knobs: what is a good position, what is said of a bad one, and that a picture is never lost."""

import re
from typing import Any

import pytest
from small_quiz import record_displays

from course_lib.study import widgets
from course_lib.study.page import show
from course_lib.study.style import Picture, picture, styled
from course_lib.study.widgets import Choice, Knob, Knobs, explore

TOKENS = Knob("Prompt (tokens)", low=16, high=2048, start=256, step=16)


@styled
def draw(tokens: int, kind: str = "float32") -> Picture:
    figure, (axes,) = picture(1, alt=f"{tokens} tokens in {kind}.")
    axes.barh(kind, tokens)
    if tokens == 32:
        raise ValueError("32 tokens do not fit: take fewer.")
    if tokens == 48:
        raise ZeroDivisionError("division by zero")
    return figure


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, dict[str, str]]]:
    """What was shown: each widget, and what stands there without a kernel."""
    shown: list[tuple[Any, dict[str, str]]] = []
    monkeypatch.setattr(widgets, "show", lambda widget, data, metadata: shown.append((widget, data)))
    return shown


@pytest.fixture
def widget(page: list[tuple[Any, dict[str, str]]]) -> Knobs:
    explore(draw, tokens=TOKENS, kind=Choice("Number format", ("float32", "float16")))
    return page[0][0]


def turn(widget: Knobs, **values: object) -> dict[str, Any]:
    """Turn knobs as the page does; what the page is given to show."""
    asked = widget.asked
    widget.asked = {"number": asked["number"] + 1, "values": {**asked["values"], **values}}
    assert widget.shown["number"] == widget.asked["number"], "every question is answered"
    return widget.shown


def test_the_first_picture_is_on_the_page_and_in_the_file(
    page: list[tuple[Any, dict[str, str]]], widget: Knobs
) -> None:
    _, stored = page[0]
    assert widget.shown["alt"] == stored["text/plain"] == "256 tokens in float32."
    assert widget.shown["src"] == "data:image/png;base64," + stored["image/png"]
    assert widget.shown["problem"] == "" and widget.shown["problems"] == {}


def test_the_page_is_told_names_and_ranges_of_all_knobs(widget: Knobs) -> None:
    number, choice = widget.knobs
    assert number == {
        "name": "tokens", "label": "Prompt (tokens)", "low": 16, "high": 2048, "start": 256, "step": 16
    }  # fmt: skip
    assert choice["options"] == ("float32", "float16") and choice["start"] == "float32"


def test_turning_a_knob_draws_again(widget: Knobs) -> None:
    before = widget.shown["src"]
    assert turn(widget, tokens=272)["alt"] == "272 tokens in float32."
    assert turn(widget, kind="float16")["alt"] == "272 tokens in float16."
    assert turn(widget, tokens=256, kind="float32")["src"] == before


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "Write a number from 16 to 2048."),
        ("256", "Write a number from 16 to 2048."),
        (True, "Write a number from 16 to 2048."),
        (4096, "4096 is outside the range: write a number from 16 to 2048."),
        (-16, "-16 is outside the range: write a number from 16 to 2048."),
        (100, "100 is between two steps. This goes in steps of 16: write 96 or 112."),
        (10**400, "This is outside the range: write a number from 16 to 2048."),
        (-(10**400), "This is outside the range: write a number from 16 to 2048."),
        (float("nan"), "This is outside the range: write a number from 16 to 2048."),
        ([], "Write a number from 16 to 2048."),
        (16.5, "16.5 is between two steps. This goes in steps of 16: write 16 or 32."),
    ],
    ids=range(11),
)
def test_a_bad_value_gets_a_sentence_and_the_picture_stays(widget: Knobs, value: object, sentence: str) -> None:
    before = widget.shown
    shown = turn(widget, tokens=value)
    assert shown["problems"] == {"tokens": sentence}
    assert (shown["src"], shown["alt"]) == (before["src"], before["alt"])
    assert turn(widget, tokens=272)["problems"] == {}, "the sentence goes when the value is good again"


@pytest.mark.parametrize("value", [None, [], {}, 3, 10**5000, "x" * 100_000], ids=range(6))
def test_what_is_no_option_gets_a_short_sentence(widget: Knobs, value: object) -> None:
    said = turn(widget, kind=value)["problems"]["kind"]
    assert said.endswith("is none of float32, float16.") and len(said) < 100


@pytest.mark.parametrize(
    "asked",
    [{}, {"number": 1}, {"number": 1, "values": []}, {"number": None, "values": {}}, {"values": {}}, [], None, 3],
)
def test_what_is_no_question_is_met_with_silence(
    widget: Knobs, asked: object, capsys: pytest.CaptureFixture[str]
) -> None:
    before = widget.shown
    widget.set_state({"asked": asked})
    if isinstance(asked, dict):
        widget.asked = asked
    assert widget.shown == before and capsys.readouterr() == ("", "")
    widget.set_state({"asked": {"number": 7, "values": {"tokens": 272, "kind": "float32"}}})
    assert (widget.shown["number"], widget.shown["alt"]) == (7, "272 tokens in float32.")
    widget.set_state({"asked": {"number": 8, "values": {}}})
    assert set(widget.shown["problems"]) == {"tokens", "kind"}, "every knob has its sentence"


def test_a_page_sets_what_it_asks_and_nothing_else(widget: Knobs) -> None:
    before = widget.get_state()
    widget.set_state({"shown": {}, "knobs": [], "layout": "x"})
    assert widget.get_state() == before


def test_what_stands_there_without_a_kernel_is_not_the_name_of_a_widget(
    widget: Knobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = record_displays(monkeypatch)
    show(widget, {"text/plain": "256 tokens in float32."})
    assert outputs[0]["text/plain"] == "256 tokens in float32."
    assert "application/vnd.jupyter.widget-view+json" in outputs[0]


def test_whole_numbers_only_is_said_as_such() -> None:
    with pytest.raises(ValueError, match=re.escape("2.5 is between two steps. Whole numbers only: write 2 or 3.")):
        Knob("Layers", low=1, high=8, start=1).read(2.5)


def test_a_last_step_that_would_lead_beyond_the_end_is_not_offered() -> None:
    with pytest.raises(ValueError, match=re.escape("steps of 4: write 8.")):
        Knob("n", low=0, high=10, start=0, step=4).read(9)


def test_a_value_read_is_a_whole_number_however_the_page_wrote_it() -> None:
    value = TOKENS.read(272.0)
    assert value == 272 and isinstance(value, int)


def test_both_ends_of_the_range_are_good_values() -> None:
    assert [TOKENS.read(value) for value in (16, 2048)] == [16, 2048]


def test_what_the_figure_refuses_is_said_and_the_picture_stays(widget: Knobs) -> None:
    before = turn(widget, tokens=288)["src"]
    shown = turn(widget, tokens=32)
    assert shown["problem"] == "32 tokens do not fit: take fewer." and shown["src"] == before
    assert turn(widget, tokens=272)["problem"] == ""


def test_a_figure_that_breaks_shows_no_traceback(widget: Knobs) -> None:
    before = turn(widget, tokens=288)["src"]
    shown = turn(widget, tokens=48)
    assert shown["problem"] == "This could not be drawn: division by zero" and shown["src"] == before


def test_a_figure_that_breaks_at_once_fails_its_cell() -> None:
    with pytest.raises(ZeroDivisionError):
        explore(draw, tokens=Knob("Prompt (tokens)", low=16, high=2048, start=48, step=16))


def test_a_choice_names_what_it_offers() -> None:
    choice = Choice("Number format", ("float32", "float16"))
    assert choice.start == choice.read("float32") == "float32"
    with pytest.raises(ValueError, match="'int3' is none of float32, float16"):
        choice.read("int3")
    with pytest.raises(ValueError, match="'int3' is none of"):
        Choice("Number format", ("float32", "float16"), start="int3")
    with pytest.raises(ValueError, match="two or more"):
        Choice("Number format", ("float32",))


def test_a_knob_that_cannot_be_turned_is_refused() -> None:
    with pytest.raises(ValueError, match="Prompt: the start 5 lies outside 16 to 32"):
        Knob("Prompt", low=16, high=32, start=5)
    with pytest.raises(ValueError, match="never gets anywhere"):
        Knob("Prompt", low=16, high=32, start=16, step=0)
