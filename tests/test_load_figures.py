"""The figure of what a batch gives and takes draws the steps that it is given, and says them in words."""

from collections.abc import Callable
from typing import Any

import pytest
import test_figures as rules

from course_lib.study.load_figures import batch_gain, some
from course_lib.study.style import Picture

STEPS = {1: 0.010, 2: 0.012, 4: 0.016}


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    """Ordinary numbers, and those at the edges of the knobs."""
    many = {rows: 0.010 + 2e-5 * rows for rows in range(1, 129)}
    return {
        "ordinary": batch_gain(many, 32),
        "one row": batch_gain(many, 1),
        "all rows": batch_gain(many, 128),
        "nothing gained": batch_gain({rows: 1.5 * rows for rows in range(1, 65)}, 64),
        "two points": batch_gain({1: 1e-3, 2: 1e-3}, 2),
    }


@rules.layout_rules
def test_the_figures_keep_to_the_rules_of_all(rule: Callable[..., None], pictures: dict[str, Picture]) -> None:
    rule(pictures)


def test_no_legend_lies_over_data(pictures: dict[str, Picture]) -> None:
    rules.test_no_legend_lies_over_data(pictures)


def points(line: Any) -> list[list[float]]:
    return [[float(x), float(y)] for x, y in line.get_xydata()]


def test_all_rows_get_a_token_in_each_step_and_each_waits_for_it() -> None:
    figure = batch_gain(STEPS, 4)
    above, below = figure.axes
    assert points(above.lines[0]) == [[1, 100], [2, pytest.approx(2 / 0.012)], [4, 250]]
    assert points(above.lines[1]) == [[0, 0], [4, 400]], "four rows in the time of one"
    assert points(below.lines[0]) == [[1, 10], [2, 12], [4, 16]]
    assert figure.alt.startswith("4 rows: 250 tokens/s for all, 16 ms between two tokens of one.")
    assert "1 row 100 tokens/s and 10 ms" in figure.alt


def test_what_was_chosen_is_marked_in_both_panels() -> None:
    for axes in batch_gain(STEPS, 2).axes:
        line, ring = axes.lines[-2:]
        assert [x for x, _ in points(line)] == [2, 2] and [x for x, _ in points(ring)] == [2]


def test_of_many_rows_seven_are_told_with_both_ends() -> None:
    assert some(list(range(1, 65))) == sorted(some(list(range(1, 65))))
    assert len(some(list(range(1, 65)))) == 7 and {1, 64} <= set(some(list(range(1, 65))))
    assert some([3, 5]) == [3, 5]


@pytest.mark.parametrize(
    ("steps", "chosen", "sentence"),
    [
        ({1: 0.01}, 1, "draw two numbers of rows"),
        ({0: 0.01, 1: 0.01}, 1, "at least 1"),
        ({1: 0.01, 2: 0.0}, 1, "times above 0"),
        ({1: 0.01, 2: float("nan")}, 1, "times above 0"),
        (STEPS, 3, "3 rows are not among"),
    ],
)
def test_what_cannot_be_drawn_is_said(steps: dict[int, float], chosen: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        batch_gain(steps, chosen)
