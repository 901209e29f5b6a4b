"""The figures about smaller caches draw the numbers that they are given, and say them in words."""

from collections.abc import Callable

import pytest
import test_figures as rules
import torch
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from course_lib.caches.policies import Window
from course_lib.quality.measures import Comparison, Mean
from course_lib.study.shrink_figures import MOST_TOKENS, Point, channels, nll_and_kl, plane, seen
from course_lib.study.style import PALE, Picture

HALF = Point(256, 0.5, 0.45, 0.6)
CACHES = {"mha": {"float16": Point(1024, 1, 0.98, 1), "window": HALF}, "mqa": {"float16": Point(256, 1, 0.98, 1)}}


def run(kl: float, added: float, samples: int = 4) -> Comparison:
    spread = float("inf") if samples == 1 else 0.1
    means = [Mean(value, value - spread, value + spread, samples) for value in (kl, 0.9, 3.0, 3.0 + added, added)]
    return Comparison(*means, tokens=64)


def all_figures() -> dict[str, Picture]:
    """Every kind, with ordinary numbers and with those at the edges."""
    ways = ("float16", "float8 e4m3", "4 bits", "2 bits", "1 bit", "window of 64", "eviction to 64")
    line = {way: Point(2.0 ** (9 - place), 0.9, 0.8, 0.95) for place, way in enumerate(ways)}
    runs = {way: run(0.1**place, 0.01 * place) for place, way in enumerate(("f16", "bf16", "e4m3", "e5m2", "4 bits"))}
    return {
        "plane": plane({heads: line for heads in ("MHA, 4 KV heads", "GQA, 2 KV heads", "MQA, 1 KV head")}),
        "plane, chosen": plane({"MHA": line}, ("MHA", "eviction to 64")),
        "plane, one point": plane({"one": {"only": Point(1, 0, 0, 1)}}),
        "plane, far apart": plane({"one": {"small": Point(8, 0, 0, 1), "large": Point(2.0**15, 1, 0, 1)}}),
        "nll and kl": nll_and_kl(runs),
        "nll and kl, ten": nll_and_kl({f"K{place} V{place}": run(2.0**-place, -0.5) for place in range(10)}),
        "nll and kl, one text": nll_and_kl({"4 bits": run(1e-9, 1e-9, samples=1)}),
        "channels": channels({"keys": [2.0, 20.0, 4.0] * 64, "values": [1.0, 1.1] * 96}),
        "channels, one": channels({"keys": [1.0]}),
        "channels, one far out": channels({"keys": [1e6, *[1.0] * 31], "values": [1.0, 2.0]}),
        "seen": seen(12, 4, 2),
        "seen, least": seen(1, 1),
        "seen, most": seen(MOST_TOKENS, 16, 8),
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return all_figures()


@rules.layout_rules
def test_the_figures_keep_to_the_rules_of_all(rule: Callable[..., None], pictures: dict[str, Picture]) -> None:
    rule(pictures)


def test_each_cache_has_its_place_and_its_interval_in_the_plane() -> None:
    (axes,) = plane(CACHES).axes
    points = {
        container.get_label(): [tuple(map(float, point)) for point in container.lines[0].get_xydata()]
        for container in axes.containers
    }
    assert points == {"mha": [(1024, 100), (256, 50)], "mqa": [(256, 100)]}
    ends = [segment.tolist() for segment in axes.containers[0].lines[2][0].get_segments()]
    assert ends[1] == [[256, pytest.approx(45)], [256, pytest.approx(60)]]
    assert len({container.lines[0].get_marker() for container in axes.containers}) == 2, "not by colour alone"


def test_what_was_chosen_has_a_ring_and_stands_in_the_title_and_the_text() -> None:
    figure = plane(CACHES, ("mha", "window"))
    (axes,) = figure.axes
    assert axes.collections[-1].get_offsets().tolist() == [[256, 50]]
    assert axes.get_title(loc="left") == "mha, window: 256 bytes a token, 50.0 % right"
    assert figure.alt.startswith("Chosen: mha, window: 256 bytes a token, 50.0 % right.")
    assert "mqa, float16: 256 bytes, 100 %" in figure.alt


def test_nll_and_kl_stand_above_each_other_each_with_its_interval() -> None:
    figure = nll_and_kl({"4 bits": run(0.05, -0.01), "one text": run(0.5, 0.2, samples=1)})
    above, below = figure.axes
    for axes, values in ((above, [-0.01, 0.2]), (below, [0.05, 0.5])):
        marks = [line.get_ydata()[0] for line in axes.lines if len(line.get_xdata()) == 1]
        assert marks == values
    bars = [line.get_ydata() for line in above.lines if list(line.get_xdata()) == [0, 0]]
    assert [list(bar) for bar in bars] == [[pytest.approx(-0.11), pytest.approx(0.09)]]
    assert not [line for line in above.lines if list(line.get_xdata()) == [1, 1]], "one text has no interval"
    assert below.get_yscale() == "log" and "4 bits -0.0100 and 0.05" in figure.alt


def test_channels_are_drawn_in_units_of_the_middle_one_the_largest_first() -> None:
    figure = channels({"keys": [2.0, 20.0, 4.0], "values": [1.0, 1.0]})
    keys, values, middle = ([float(y) for y in line.get_ydata()] for line in figure.axes[0].lines)
    assert keys == [5, 1, 0.5] and values == [1, 1] and middle == [1, 1]
    assert "keys 5.0, values 1.0" in figure.alt


@pytest.mark.parametrize(("tokens", "window", "first"), [(9, 3, 0), (9, 3, 2), (5, 9, 1), (1, 1, 0), (8, 1, 8)])
def test_a_window_is_drawn_as_the_policy_lets_queries_see(tokens: int, window: int, first: int) -> None:
    (axes,) = seen(tokens, window, first).axes
    positions = torch.arange(tokens)[None]
    expected = Window(window, first).visible(positions, positions)[0, 0]
    drawn = torch.zeros(tokens, tokens, dtype=torch.bool)
    for box in axes.patches:
        if isinstance(box, Rectangle) and to_rgb(box.get_facecolor()) == to_rgb(PALE):
            drawn[round(box.get_y() + 0.5), round(box.get_x() + 0.5)] = True
    assert torch.equal(drawn, expected)
    crosses = {(round(line.get_ydata()[0]), round(line.get_xdata()[0])) for line in axes.lines}
    assert crosses == {(q, k) for q in range(tokens) for k in range(min(first, tokens)) if k <= q - window}


def test_the_text_names_the_positions_that_the_last_query_sees() -> None:
    assert "the last query sees 4: positions 0, 4, 5, 6." in seen(7, 3, 1).alt


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: plane({}), "0 points in 0 series"),
        (lambda: plane({f"{n}": {"a": HALF} for n in range(6)}), "6 points in 6 series"),
        (lambda: plane({"mha": {"a": Point(0, 0.5, 0.4, 0.6)}}), "mha, a: .* has no place in the plane"),
        (lambda: plane({"mha": {"a": Point(1, 0.3, 0.4, 0.6)}}), "has no place in the plane"),
        (lambda: plane({"mha": {"a": Point(1, float("nan"), 0.4, 0.6)}}), "has no place in the plane"),
        (lambda: plane(CACHES, ("mqa", "window")), "mqa, window is not among the points"),
        (lambda: nll_and_kl({}), "0 runs: draw 1 to 10"),
        (lambda: nll_and_kl({"same": run(0.0, 0.0)}), "same: a KL of 0.0 has no place"),
        (lambda: channels({}), "0 lines"),
        (lambda: channels({"keys": []}), "keys: .* no largest numbers of channels"),
        (lambda: channels({"keys": [0.0, 0.0]}), "no largest numbers of channels"),
        (lambda: channels({"keys": [1.0, float("inf")]}), "no largest numbers of channels"),
        (lambda: seen(MOST_TOKENS + 1, 3), f"{MOST_TOKENS + 1} tokens, a window of 3, 0 first ones"),
        (lambda: seen(3, 0), "a window of 0"),
        (lambda: seen(3, 1, -1), "-1 first ones"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call: Callable[[], Picture], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()
