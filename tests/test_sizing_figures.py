"""The figures about sizes draw the bytes that they are given, say them in full, and can be read without colour."""

from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from course_lib.sizing import cache_shape, how_many_fit
from course_lib.study.sizing_figures import apart, memory_split, sizes_by_tokens, table
from course_lib.study.style import Picture

GB = 10**9
KNEE = {"windows": {0: 0, 4: 400, 10: 400}, "plain": {0: 0, 4: 400, 10: 1000}}


def lines(figure: Picture) -> list[list[tuple[float, float]]]:
    """The points of all lines, drawn from at least two points of data."""
    (axes,) = figure.axes
    return [[(float(x), float(y)) for x, y in line.get_xydata()] for line in axes.lines]


def names_at_the_ends(figure: Picture) -> dict[str, Text]:
    (axes,) = figure.axes
    return {text.get_text(): text for text in axes.texts if not text.get_text().startswith(" window")}


def stripes(figure: Picture) -> list[tuple[float, float]]:
    (axes,) = figure.axes
    boxes = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    return [(box.get_x(), box.get_width()) for box in boxes]


def test_the_number_that_is_asked_for_stands_in_title_and_text_in_full() -> None:
    figure = sizes_by_tokens({"a": {0: 0, 8: 3 * 2**30, 16: 5 * 2**30}}, "a", 8, asked="2 sequences, bf16")
    (axes,) = figure.axes
    for told in (axes.get_title(loc="left"), figure.alt):
        assert "a, 8 tokens, 2 sequences, bf16:" in told
        assert "3,221,225,472 bytes = 3.000 GiB = 3.221 GB" in told
    assert axes.get_ylabel() == "size of the cache (GiB)"


def test_lines_go_through_the_given_points_and_bend_nowhere_else() -> None:
    figure = sizes_by_tokens(KNEE, "windows", 10, windows=[4])
    windows, plain, marks, *_ = lines(figure)
    assert windows == [(0, 0), (4, 400), (10, 400)]
    assert plain == [(0, 0), (4, 400), (10, 1000)]
    assert marks == [(10, 0), (10, 400), (0, 400)]  # both axes lead to the point


def test_a_window_has_its_line_and_its_word_and_only_for_the_chosen_one() -> None:
    with_window, without = (
        sizes_by_tokens(KNEE, name, 10, windows) for name, windows in (("windows", [4]), ("plain", []))
    )
    assert [text.get_text() for text in with_window.axes[0].texts].count(" window of 4 full") == 1
    assert "bends at 4 tokens" in with_window.alt and "level after" in with_window.alt
    assert not [text for text in without.axes[0].texts if text.get_text().startswith(" window")]
    assert "Its line is straight." in without.alt


def test_a_line_that_goes_on_climbing_after_its_window_is_called_flatter_not_level() -> None:
    shape = cache_shape("gemma-2-2b")
    sizes = {tokens: shape.bytes(tokens) for tokens in (0, 4096, 8192, 32768)}
    assert "flatter after" in sizes_by_tokens({"gemma-2-2b": sizes}, "gemma-2-2b", 8192, [4096]).alt


def test_the_chosen_line_stands_out_without_colour() -> None:
    figure = sizes_by_tokens(KNEE, "plain", 10)
    widths = {tuple(line.get_ydata()): line.get_linewidth() for line in figure.axes[0].lines}
    assert widths[(0, 400, 1000)] > 2 * widths[(0, 400, 400)]
    ends = names_at_the_ends(figure)
    assert ends["plain"].get_fontweight() == "bold" and ends["windows"].get_fontweight() == "normal"


def test_names_at_the_ends_of_lines_do_not_touch_and_keep_their_order() -> None:
    sizes = [300, 302, 301, 303, 1000]  # four ends at nearly the same height
    figure = sizes_by_tokens({f"model-{size}": {0: 0, 9: size} for size in sizes}, "model-300", 9)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    boxes = {name: text.get_window_extent() for name, text in names_at_the_ends(figure).items()}
    assert len(boxes) == 5
    assert not [pair for pair in combinations(boxes, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]
    assert sorted(boxes, key=lambda name: boxes[name].y0) == [f"model-{size}" for size in sorted(sizes)]
    assert max(box.x1 for box in boxes.values()) <= figure.bbox.width


def test_heights_that_are_far_apart_stay_where_they_are() -> None:
    assert apart({"a": 3.0, "b": 1.0}, 0.5) == {"a": 3.0, "b": 1.0}
    assert apart({"a": 1.2, "b": 1.0, "c": 1.1}, 0.5) == {"b": 1.0, "c": 1.5, "a": 2.0}


@pytest.mark.parametrize(("name", "tokens", "said"), [("b", 8, "b is not among"), ("a", 7, "no size at 7 tokens")])
def test_a_size_that_was_not_given_is_refused_by_name(name: str, tokens: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        sizes_by_tokens({"a": {0: 0, 8: 1}}, name, tokens)


def test_the_parts_of_a_memory_stand_side_by_side_and_fill_it() -> None:
    fit = how_many_fit(80 * GB, 5 * GB, weights=16 * GB, reserve=8 * GB)
    figure = memory_split(fit, "80 GB")
    assert stripes(figure) == [(0, 16), (16, 8), (24, 55), (79, 1)]
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "80 GB:\n11 sequences of 4.657 GiB = 5.000 GB fit"
    for number in ("80,000,000,000", "16,000,000,000", "8,000,000,000", "leaves 56,000,000,000", "5,000,000,000"):
        assert number in figure.alt
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["weights: 16.0 GB", "reserve: 8.0 GB", "caches: 55.0 GB", "left over: 1.0 GB"]


def test_each_sequence_is_a_stripe_while_they_can_be_told_apart() -> None:
    def cuts(per_sequence: int) -> int:
        return len(memory_split(how_many_fit(80 * GB, per_sequence)).axes[0].lines) - 1  # one is the end of the memory

    assert cuts(8 * GB) == 9  # between ten sequences
    assert cuts(GB // 100) == 0  # 8,000 would be a wall of white


def test_a_memory_too_small_for_the_weights_has_no_sequences_and_shows_its_end() -> None:
    figure = memory_split(how_many_fit(8 * GB, GB, weights=16 * GB, reserve=GB))
    (axes,) = figure.axes
    assert stripes(figure) == [(0, 16), (16, 1), (17, 0), (17, 0)]
    assert axes.lines[-1].get_xdata()[0] == 8 and axes.get_xlim()[1] > 17
    assert "leaves -9,000,000,000" in figure.alt and "0 sequences" in figure.alt


def test_figures_of_the_same_bytes_are_the_same_to_the_last_byte() -> None:
    assert sizes_by_tokens(KNEE, "plain", 4).png() == sizes_by_tokens(KNEE, "plain", 4).png()


def test_a_table_has_a_line_for_its_head_and_one_for_each_row() -> None:
    lines = table(("model", "KiB"), [("a", 1.5), ("b", 2)]).data.splitlines()
    assert lines == ["| model | KiB |", "| ---: | ---: |", "| a | 1.5 |", "| b | 2 |"]
    with pytest.raises(ValueError, match="a row has 3 cells, the head has 2"):
        table(("model", "KiB"), [("a", 1, 2)])
