"""The figures about the cache draw what they are given. How they look is judged with all others in test_figures."""

import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from course_lib.study import style
from course_lib.study.cache_figures import (
    BARS,
    HELD,
    LINES,
    attention_mask,
    cache_growth,
    compare_changes,
    costs,
    step_times,
    what_is_stored,
)
from course_lib.study.style import Picture


def cells(figure: Picture, look: dict) -> list[tuple[int, int]]:
    """(row, column) of the filled cells of a mask that have this colour."""
    (axes,) = figure.axes
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [
        (round(box.get_y() + 0.43), round(box.get_x() + 0.45))
        for box in boxes
        if to_rgb(box.get_facecolor()) == to_rgb(look["facecolor"])
    ]


def lines(figure: Picture) -> dict[str, list[tuple[float, float]]]:
    (axes,) = figure.axes
    return {
        str(line.get_label()): [(float(x), float(y)) for x, y in line.get_xydata()]
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
    }


def test_a_query_looks_at_itself_and_everything_before_it() -> None:
    figure = attention_mask(2, 3, cached=False)
    assert cells(figure, style.PREFILL) == [(query, key) for query in range(5) for key in range(query + 1)]
    assert cells(figure, HELD) == []
    assert "computes 5 queries" in figure.alt and "Nothing is in a cache" in figure.alt and "15 cells" in figure.alt


def test_with_a_cache_only_the_new_queries_are_computed() -> None:
    figure = attention_mask(2, 3)
    assert cells(figure, HELD) == [(row, key) for row in range(3) for key in range(2)]
    assert cells(figure, style.PREFILL) == [(row, key) for row in range(3) for key in range(2, 2 + row + 1)]
    assert "2 of the 5 positions are in the cache; the pass computes 3 queries" in figure.alt
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["query 2", "query 3", "query 4"]


def test_one_token_alone_looks_at_all_of_the_cache() -> None:
    figure = attention_mask(5, 1)
    assert cells(figure, style.DECODE) == [(0, 5)] and len(cells(figure, HELD)) == 5


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: attention_mask(5, 0), "5 prompt tokens and 0 new ones leave no query"),
        (lambda: attention_mask(-1, 3), "-1 prompt tokens"),
        (lambda: attention_mask(40, 9), "49 positions are too many"),
        (lambda: what_is_stored(0, 3, 5, 64), "n_layers=0.*at least 1"),
        (lambda: cache_growth({}), "nothing to draw"),
        (lambda: cache_growth({"float32": {}}), "float32: there are no values"),
        (lambda: step_times({"cached": {8: float("nan")}}), "cached: the value at 8 is nan"),
        (lambda: step_times({str(i): {1: 1.0} for i in range(6)}), "6 names are too many"),
        (lambda: costs({"attention": {8: 1.0}}, "ms", expected={"atention": {8: 1.0}}), r"\['atention'\]"),
        (lambda: costs({"attention": {8: 0.0}}, "ms", logarithmic=True), "above 0"),
        (lambda: compare_changes({}, 1e-5), "one change for each token"),
        (lambda: compare_changes({"a": [1.0], "b": [1.0, 2.0]}, 1e-5), r"\[1, 2\]"),
        (lambda: compare_changes({"a": [-1.0]}, 1e-5), "none below 0"),
        (lambda: compare_changes({"a": [1.0]}, 0.0), "tolerance 0"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call, sentence: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=sentence):
        call()


def test_growth_is_drawn_in_the_binary_unit_that_suits_the_largest() -> None:
    figure = cache_growth({"float32": {0: 0, 1024: 45 * 2**20}, "float16": {0: 0, 1024: 45 * 2**19}})
    assert lines(figure) == {"float32": [(0, 0), (1024, 45)], "float16": [(0, 0), (1024, 22.5)]}
    assert figure.axes[0].get_ylabel() == "size of the cache (MiB)"
    assert "at 1024 45 MiB" in figure.alt and "at 1024 22.5 MiB" in figure.alt
    assert cache_growth({"one token": {1: 1023}}).axes[0].get_ylabel().endswith("(bytes)")
    assert cache_growth({"one token": {1: 1024}}).axes[0].get_ylabel().endswith("(KiB)")


def test_the_stored_numbers_are_counted_from_the_shape() -> None:
    figure = what_is_stored(30, 3, 5, 64, 9)
    (axes,) = figure.axes
    assert "2 × 30 × 3 × 5 × 64 = 57,600 numbers" in axes.get_title(loc="left")
    assert "57,600" in figure.alt and "Queries, of 9 heads a layer, are not kept" in figure.alt
    kept = [patch for patch in axes.patches if to_rgb(patch.get_facecolor()) == to_rgb(style.BLUE)]
    assert len(kept) == 2 * 3, "two of the 30 layers are drawn, all three KV heads"


def test_times_of_steps_are_in_ms_unless_one_takes_a_second() -> None:
    assert lines(step_times({"cached": {64: 0.02, 128: 0.03}})) == {"cached": [(64, 20), (128, 30)]}
    figure = step_times({"cached": {64: 0.02, 128: 1.5}}, "prompt (tokens)")
    assert lines(figure) == {"cached": [(64, 0.02), (128, 1.5)]}
    assert figure.axes[0].get_ylabel() == "one step (s)" and figure.axes[0].get_xlabel() == "prompt (tokens)"


def test_on_logarithmic_axes_the_formula_stands_whole_beside_points_that_say_how_they_were_found() -> None:
    parts, formula = {"attention": {8: 1.0, 16: 4.0}}, {"attention": {8: 0.01, 16: 400.0}}
    figure = costs(parts, "MFLOP", expected=formula, points="counted", logarithmic=True)
    low, high = figure.axes[0].get_ylim()
    assert low < 0.01 and high > 400
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["attention, counted", "attention, formula"]


def test_measured_costs_are_points_and_the_formula_is_a_line() -> None:
    parts = {"projections": {8: 1.0, 16: 2.0}, "attention": {8: 0.5, 16: 2.0}}
    figure = costs(parts, "in all (ms)", expected={"attention": {8: 0.5, 16: 2.1}})
    assert set(lines(figure)) == {"projections", "attention, measured", "attention, formula"}
    assert lines(figure)["attention, formula"] == [(8, 0.5), (16, 2.1)]
    looks = {line.get_label(): (line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert looks["attention, measured"] == ("None", "s") and looks["attention, formula"] == ("--", "")


def test_a_change_of_exactly_nothing_is_written_as_0() -> None:
    figure = compare_changes({"causal": [0.0, 2e-7], "both directions": [1.0, 2.0]}, 1e-5)
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.texts] == ["0"]
    tops = [patch.get_y() + patch.get_height() for patch in axes.patches]
    assert tops[1:] == pytest.approx([2e-7, 1.0, 2.0])
    assert "causal: 0 to 2e-07, 0 of 2 above the tolerance." in figure.alt
    assert "both directions: 1 to 2, 2 of 2 above the tolerance." in figure.alt


def test_lines_and_bars_differ_in_more_than_colour() -> None:
    assert len({line["marker"] for line in LINES}) == len(LINES)
    assert len({bar.get("hatch") for bar in BARS}) == len(BARS)
