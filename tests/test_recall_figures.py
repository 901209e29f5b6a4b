"""The figures of recall draw every share with its interval, sort every question, and say it in words."""

from collections.abc import Callable

import pytest
import test_figures as rules
from matplotlib.patches import Rectangle

from course_lib.quality.measures import Rate
from course_lib.study import style
from course_lib.study.recall_figures import FATES, fates, shares
from course_lib.study.style import Picture

DEPTHS = tuple(f"{8 * part} to {8 * part + 7}" for part in range(8))
HALF = {"0 to 7": Rate(2, 64), "8 to 15": Rate(64, 64)}


def all_figures() -> dict[str, Picture]:
    """Both kinds, with ordinary numbers and with those at the edges."""
    three = {name: {mark: Rate(right, 60) for mark in DEPTHS} for name, right in (("window of 64", 2), ("2 bits", 59))}
    every = {name: {mark: Rate(60, 60) for mark in DEPTHS} for name in ("all kept", "eviction to 64", "float16", "ß$")}
    return {
        "shares": shares(three | {"all kept": dict.fromkeys(DEPTHS, Rate(60, 60))}, "number of the pair", 1 / 128),
        "shares, one": shares({"all kept": {"128": Rate(0, 1)}}, "tokens"),
        "shares, five": shares(every | {"nothing": dict.fromkeys(DEPTHS, Rate(0, 0))}, "number of the pair"),
        "fates": fates({"all kept": (512, 0, 0), "window of 64": (181, 0, 331), "all kept, 640 tokens": (340, 172, 0)}),
        "fates, one": fates({"$x^{$": (0, 0, 1)}),
        "fates, eight": fates({f"cache {number}": (number, 1, 7) for number in range(8)}),
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return all_figures()


@rules.layout_rules
def test_the_figures_keep_to_the_rules_of_all(rule: Callable[..., None], pictures: dict[str, Picture]) -> None:
    rule(pictures)


def test_each_share_stands_where_it_belongs_and_its_bar_is_its_interval() -> None:
    (axes,) = shares({"window": HALF}, "pair").axes
    line, _caps, bars = axes.containers[0]
    assert line.get_ydata() == pytest.approx([100 * 2 / 64, 100])
    (segments,) = bars
    for segment, rate in zip(segments.get_segments(), HALF.values(), strict=True):
        assert segment[:, 1] == pytest.approx([100 * end for end in rate.interval])
    assert [label.get_text() for label in axes.get_xticklabels()] == list(HALF)


def test_names_at_one_mark_stand_beside_each_other_and_a_mark_without_questions_stays_empty() -> None:
    (axes,) = shares({"one": HALF, "other": HALF | {"0 to 7": Rate(0, 0)}}, "pair", chance=0.25).axes
    one, other = (container[0] for container in axes.containers)
    assert len(one.get_xdata()) == 2 and len(other.get_xdata()) == 1
    assert other.get_xdata()[0] - one.get_xdata()[1] == pytest.approx(0.24)
    assert other.get_xdata()[0] + one.get_xdata()[1] == pytest.approx(2)  # around the mark
    (guessing,) = (line for line in axes.lines if line.get_label() == "guessing")
    assert guessing.get_ydata() == [25, 25]


def test_the_words_beside_a_picture_hold_its_numbers() -> None:
    told = shares({"window": HALF | {"16": Rate(0, 0)}}, "pair", chance=1 / 128).alt
    for rate in (*HALF.values(), Rate(0, 0)):
        assert str(rate) in told
    assert "Guessing: 0.8 %." in told
    assert fates({"window": (181, 0, 331)}).alt.endswith(
        "window: of 512, 181 right, 0 held, and wrong, 331 not held, and wrong."
    )


def test_the_parts_of_a_bar_are_shares_of_what_was_asked_one_after_the_other() -> None:
    (axes,) = fates({"window": (1, 1, 2), "all kept": (5, 0, 0)}).axes
    bars = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    parts = [(bar.get_x(), bar.get_width()) for bar in bars]
    assert parts == [(0, 25), (25, 25), (50, 50), (0, 100), (100, 0), (100, 0)]
    looks = {(bar.get_facecolor(), bar.get_hatch()) for bar in axes.patches}
    assert len(looks) == len(FATES)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: shares({}, "pair"), "there is nothing to draw"),
        (lambda: shares({"one": {}}, "pair"), "there is nothing to draw"),
        (lambda: shares({"one": HALF, "other": {"0 to 7": Rate(1, 2)}}, "pair"), "other has shares at .*0 to 7"),
        (lambda: shares({"one": {str(n): Rate(1, 1) for n in range(11)}}, "pair"), "11 marks are too many"),
        (lambda: shares({"one": HALF}, "pair", chance=50), "chance is a share from 0 to 1, not 50"),
        (lambda: shares({str(n): HALF for n in range(6)}, "pair"), "6 names are too many"),
        (lambda: fates({}), "0 bars: draw 1 to 8"),
        (lambda: fates({"one": (1, 2)}), r"one: \[1, 2\] should be how many were right"),
        (lambda: fates({"one": (0, 0, 0)}), "one at least"),
        (lambda: fates({"one": (1, -1, 0)}), "one at least"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call: Callable[[], Picture], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_the_same_data_give_the_same_picture() -> None:
    first, again = (shares({"window": HALF}, "pair", 1 / 128) for _ in range(2))
    assert first.png() == again.png() and first.get_figwidth() == style.WIDTH
