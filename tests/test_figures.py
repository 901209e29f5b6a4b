"""The figures of the notebooks: pure, labelled, legible, and readable without colour."""

import io
import subprocess
import sys
from functools import cache
from itertools import combinations, pairwise, product

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.text import Text
from PIL import Image

from course_lib.metrics import Timing
from course_lib.sizing import how_many_fit
from course_lib.study import cache_figures, figures, sizing_figures, style
from course_lib.study.style import Picture

LINE = {"fixed_s": 0.06, "per_prompt_token_s": 0.0017, "tpot_s": 0.05}


def request(ttft_s: float, new_tokens: int, tpot_s: float) -> Timing:
    return Timing(5.0, tuple(5.0 + ttft_s + tpot_s * i for i in range(new_tokens)), prompt_tokens=100)


def all_figures() -> dict[str, Picture]:
    """Every kind of figure with ordinary data, and with data at the edges of what a learner's machine may give."""
    words = [" significant", "$x^{$", "\n", "", " a_b^{c", "<|im_end|>"]
    return {
        "timeline": figures.timeline({"answer": request(0.48, 24, 0.05)}, [" word"] * 24),
        "timeline of two": figures.timeline({"A": request(0.1, 20, 0.1), "B": request(1.05, 20, 0.05)}),
        "timeline, odd texts": figures.timeline({"answer": request(0.2, 6, 0.2)}, words),
        "timeline, long prefill": figures.timeline({"answer": request(60.0, 32, 0.01)}, [" significant"] * 32),
        "timeline, one token": figures.timeline({"answer": request(0.2, 1, 0.0)}, [" Paris"]),
        "timeline, many tokens": figures.timeline({"answer": request(0.2, 400, 0.02)}, [" word"] * 400),
        "passes": figures.passes(5, 4),
        "passes, least": figures.passes(1, 1),
        "ttft": figures.ttft_against_prompt({16: 0.08, 64: 0.17, 128: 0.27, 512: 0.92}, 0.06, 0.0017),
        "ttft, negative": figures.ttft_against_prompt({16: 0.001, 512: 9.0}, -0.4, 0.02),
        "step": figures.step_time_against_position({64: 0.05, 1024: 0.054, 1536: 0.057}, {64: 0.05, 1536: 0.056}),
        "latency": figures.latency_composition(256, 32, **LINE, longest_s=10),
        "latency, least": figures.latency_composition(16, 1, **LINE, longest_s=10),
        "latency, most": figures.latency_composition(2048, 128, **LINE),
        "latency, negative": figures.latency_composition(2048, 128, **(LINE | {"fixed_s": -0.1})),
        **about_the_cache(),
        **about_sizes(),
    }


def about_sizes() -> dict[str, Picture]:
    names = ("llama-3-8b", "qwen3-0.6b", "mistral-7b-v0.1", "gemma-3-27b")
    sizes = {name: {0: 0, 4096: 2**20, 32768: number * 2**30} for number, name in enumerate(names)}
    long_name, sizes_of_it = "a-model-with-a-long-name", {0: 0, 131072: 10**12}
    asked = "80 GB, Llama-3-8B with weights of 16 bits, 131,072 tokens in q8_0"
    split = sizing_figures.memory_split
    return {
        "sizes": sizing_figures.sizes_by_tokens(sizes, "gemma-3-27b", 4096, [4096], "64 sequences, bf16"),
        "sizes, least": sizing_figures.sizes_by_tokens({"empty": {0: 0}}, "empty", 0),
        "sizes, most": sizing_figures.sizes_by_tokens({long_name: sizes_of_it}, long_name, 131072, [128], "fp32"),
        "split": split(how_many_fit(80 * 10**9, 10**9, weights=16 * 10**9, reserve=8 * 10**9), asked),
        "split, nothing fits": split(how_many_fit(8 * 10**9, 10**9, weights=16 * 10**9), "8 GB"),
        "split, many": split(how_many_fit(160 * 10**9, 1000)),
    }


def about_the_cache() -> dict[str, Picture]:
    tokens = (0, 256, 512, 1024, 2048)
    parts = {
        "projections and MLP": {64: 1.9, 128: 3.8, 256: 7.5, 512: 15.0},
        "attention": {64: 0.1, 128: 0.4, 256: 1.7, 512: 6.7},
    }
    formula = {"attention": {tokens: 6.5 * (tokens / 512) ** 2 for tokens in range(64, 513, 64)}}
    rounding, real = [0, 2e-7, 1e-7, 4e-7, 3e-7], [1.2, 3.0, 0.8, 2.2, 1.9]
    words = [" significant", "$x^{$", "\n", "", " a_b^{c"]
    return {
        "mask": cache_figures.attention_mask(6, 4),
        "mask, decode": cache_figures.attention_mask(5, 1),
        "mask, no cache": cache_figures.attention_mask(5, 1, cached=False),
        "mask, least": cache_figures.attention_mask(0, 1),
        "mask, most": cache_figures.attention_mask(24, 24, cached=False),
        "growth": cache_figures.cache_growth({str(n): {t: 46080 * t // n for t in tokens} for n in (1, 2, 8)}),
        "growth, least": cache_figures.cache_growth({"empty": {0: 0}}),
        "growth, most": cache_figures.cache_growth({"a large model": {t: 2**31 * t for t in range(1, 65)}}),
        "stored": cache_figures.what_is_stored(30, 3, 5, 64, 9),
        "stored, least": cache_figures.what_is_stored(1, 1, 1, 8),
        "stored, most": cache_figures.what_is_stored(128, 128, 1_000_000, 128, 128),
        "steps": cache_figures.step_times({"without": {64: 0.03, 1024: 0.41}, "with": {64: 0.020, 1024: 0.026}}),
        "steps, slow": cache_figures.step_times({"without": {64: 0.3, 65: 0.31, 1024: 4.1}}),
        "costs": cache_figures.costs(parts, "one step (ms)"),
        "costs, formula": cache_figures.costs(parts, "one step (ms)", expected=formula),
        "costs, logarithmic": cache_figures.costs(parts, "one step (ms)", expected=formula, logarithmic=True),
        "changes": cache_figures.compare_changes({"causal": rounding, "both directions": real}, 1e-5),
        "changes, texts": cache_figures.compare_changes({"causal": rounding}, 2e-5, "token", texts=words),
        "changes, none": cache_figures.compare_changes({"causal": [0.0] * 4}, 1e-5),
        "changes, many": cache_figures.compare_changes({"causal": [1e-14 * 2**i for i in range(64)]}, 1e-5),
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return all_figures()


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    """Each figure as a file, as when it is shown for the first time."""
    return {name: figure.png() for name, figure in all_figures().items()}


@cache
def texts(figure: Picture) -> list[Text]:
    """Everything written in a figure, placed as it will be drawn."""
    figure.set_dpi(style.DRAWN_DPI)
    with matplotlib.rc_context(style.STYLE):
        FigureCanvasAgg(figure).draw()
    found = [artist for artist in figure.findobj(Text) if artist.get_text().strip() and artist.get_visible()]
    ticks = {label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()}
    # matplotlib keeps labels of ticks beyond the axis, and does not draw them
    return [text for text in found if text not in ticks or drawn(text, figure)]


def drawn(label: Text, figure: Picture) -> bool:
    (axes,) = [axes for axes in figure.axes if label in axes.findobj(Text)]
    x, y = label.get_position()
    along_x = label in axes.get_xticklabels()
    low, high = sorted(axes.get_xlim() if along_x else axes.get_ylim())
    return low <= (x if along_x else y) <= high


def test_every_text_stands_inside_its_figure(pictures: dict[str, Picture]) -> None:
    for name, figure in pictures.items():
        edge = figure.bbox
        for text in texts(figure):
            box = text.get_window_extent()
            inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= edge.x1 + 1 and box.y1 <= edge.y1 + 1
            assert inside, f"{name}: {text.get_text()!r} at {box} sticks out of {edge}"


def test_no_two_texts_overlap(pictures: dict[str, Picture]) -> None:
    for name, figure in pictures.items():
        boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
        for (one, box), (other, beside) in combinations(boxes, 2):
            overlap_x = min(box.x1, beside.x1) - max(box.x0, beside.x0)
            overlap_y = min(box.y1, beside.y1) - max(box.y0, beside.y0)
            # the boxes hold the space of the tallest letter too: two pixels of it may be shared
            assert min(overlap_x, overlap_y) <= 2, f"{name}: {one!r} and {other!r} overlap"


def test_no_legend_lies_over_data(pictures: dict[str, Picture]) -> None:
    for name, figure in pictures.items():
        texts(figure)  # places everything
        legends = [*figure.legends, *filter(None, (axes.get_legend() for axes in figure.axes))]
        for legend, axes in product(legends, figure.axes):
            assert not legend.get_window_extent().overlaps(axes.bbox), name


def test_text_is_at_least_six_points_when_the_page_is_half_as_wide(pictures: dict[str, Picture]) -> None:
    narrow = 500 / (style.WIDTH * style.SHOWN_DPI)  # the width of a notebook's text in a window of 800 pixels, 0.69
    for name, figure in pictures.items():
        for text in texts(figure):
            assert text.get_fontsize() * narrow >= 6, f"{name}: {text.get_text()!r} has {text.get_fontsize()} points"


# What holds for the figures of other files, too: there a test takes `rule` and calls it with its own pictures.
layout_rules = pytest.mark.parametrize(
    "rule",
    [
        test_every_text_stands_inside_its_figure,
        test_no_two_texts_overlap,
        test_text_is_at_least_six_points_when_the_page_is_half_as_wide,
    ],
)


def test_every_axis_with_numbers_has_a_label_with_a_unit(pictures: dict[str, Picture]) -> None:
    units = ("(s)", "(ms)", "(tokens)", "(tokens in the cache)", "position in the text", "tokens in the cache")
    units += ("(bytes)", "(MiB)", "(GiB)", "(GB)", "tokens", "tokens so far", "position of the token", "(no unit)")
    for name, figure in pictures.items():
        for axes in figure.axes:
            for axis in (axes.xaxis, axes.yaxis):
                numbers = [label for label in axis.get_ticklabels() if label.get_text().strip("−0123456789.") == ""]
                if any(label.get_text() for label in numbers):
                    assert axis.get_label_text().endswith(units), f"{name}: {axis.get_label_text()!r} names no unit"


def test_prefill_and_decode_stay_apart_in_grey() -> None:
    def grey(look: dict) -> float:
        red, green, blue = to_rgb(look["facecolor"])
        return 0.299 * red + 0.587 * green + 0.114 * blue

    greys = sorted(map(grey, (style.FIXED, style.PREFILL, style.DECODE, {"facecolor": style.PALE})))
    assert all(lighter - darker > 0.15 for darker, lighter in pairwise(greys)), greys
    assert style.PREFILL["hatch"] and "hatch" not in style.DECODE


def test_the_background_is_white_on_every_theme(files: dict[str, bytes]) -> None:
    for name, file in files.items():
        image = Image.open(io.BytesIO(file)).convert("RGBA")
        corners = [(0, 0), (image.width - 1, 0), (0, image.height - 1)]
        assert [image.getpixel(corner) for corner in corners] == [(255, 255, 255, 255)] * 3, name


def test_the_same_data_gives_the_same_bytes(files: dict[str, bytes]) -> None:
    for name, figure in all_figures().items():
        assert figure.png() == files[name], name


def test_drawing_leaves_nothing_behind() -> None:
    program = (
        "import sys, matplotlib; before = matplotlib.rcParams.copy();"
        "from course_lib.study import figures; picture = figures.passes(5, 4); picture.png();"
        "assert 'matplotlib.pyplot' not in sys.modules;"
        "assert matplotlib.rcParams.copy() == before"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_every_figure_says_in_words_what_it_shows(
    pictures: dict[str, Picture], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Picture, "png", lambda figure: b"")  # what it shows was drawn often enough
    for name, figure in pictures.items():
        data, metadata = figure._repr_mimebundle_()
        assert set(data) == {"image/png", "text/plain"}
        assert len(figure.alt) > 20, name
        assert data["text/plain"] == metadata["image/png"]["alt"] == figure.alt
        assert figure.alt.replace("<", "&lt;").replace(">", "&gt;") in figure.html()


def test_the_timeline_draws_what_the_timing_says() -> None:
    timing = request(0.5, 4, 0.1)
    (axes,) = figures.timeline({"answer": timing}).axes
    bars = [(patch.get_x(), patch.get_width()) for patch in axes.patches]
    assert len(bars) == timing.new_tokens
    assert bars[0] == pytest.approx((0, timing.ttft_s))
    assert [width for _, width in bars[1:]] == pytest.approx(timing.itl_s)
    assert sum(bars[-1]) == pytest.approx(timing.end_to_end_s)


def test_a_timeline_of_two_requests_takes_no_texts() -> None:
    with pytest.raises(ValueError, match="2 are drawn"):
        figures.timeline({"A": request(1, 2, 1), "B": request(1, 2, 1)}, ["a", "b"])


def test_the_grid_of_passes_shows_p_plus_n_minus_1_cached_tokens_at_the_end() -> None:
    (axes,) = figures.passes(5, 4).axes
    last_row = [patch for patch in axes.patches if 2.5 < patch.get_y() + 0.42 < 3.5]
    assert len(last_row) == 5 + 4 - 1
    assert sum(to_rgb(patch.get_facecolor()) == to_rgb(style.ORANGE) for patch in last_row) == 1


def test_latency_is_ttft_plus_n_minus_1_gaps() -> None:
    (axes,) = figures.latency_composition(100, 11, **LINE).axes
    widths = [patch.get_width() for patch in axes.patches]
    assert widths == pytest.approx([0.06, 0.17, 0.5])
    assert "TTFT 230 ms (32 % of the wait)" in axes.get_title(loc="left")
