"""Figures about smaller caches: bytes against answers, NLL beside KL, channels that stand out, and what a window sees.

The one idea: what is saved and what it costs are drawn together, each number with its interval where it has one. A
figure draws what it is given and measures nothing; series differ in marker as well as in colour, and whatever was
chosen has a ring around it and its numbers in the title.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from course_lib.quality.measures import Comparison, Mean
from course_lib.study.cache_figures import HELD, HIDDEN, LINES
from course_lib.study.style import BLUE, GREY, INK, VERMILION, Picture, picture, styled

MOST_TOKENS = 40  # more columns than this are too fine to tell apart
RING: dict[str, Any] = {"marker": "o", "s": 260, "facecolors": "none", "edgecolors": INK, "linewidths": 2, "zorder": 5}


@dataclass(frozen=True)
class Point:
    """One cache: what a token of text takes, and the share of right answers with its interval, 0 to 1."""

    bytes: float
    right: float
    low: float
    high: float


@styled
def plane(caches: Mapping[str, Mapping[str, Point]], chosen: tuple[str, str] | None = None) -> Picture:
    """Bytes a token against right answers: a marker for each series, a point for each of its caches.

    `chosen` names a series and one of its caches. ValueError for what is not there or cannot be drawn.
    """
    points = [(series, name, point) for series, named in caches.items() for name, point in named.items()]
    if not points or len(caches) > len(LINES):
        raise ValueError(f"{len(points)} points in {len(caches)} series: draw 1 to {len(LINES)} series with a point")
    for series, name, point in points:
        if not (0 < point.bytes < float("inf") and 0 <= point.low <= point.right <= point.high <= 1):
            raise ValueError(f"{series}, {name}: {point} has no place in the plane")
    told = "; ".join(f"{s}, {n}: {p.bytes:,.0f} bytes, {100 * p.right:.0f} %" for s, n, p in points)
    figure, (axes,) = picture(4.6, alt=f"Bytes a token of text and right answers. {told}.")
    for (series, named), look in zip(caches.items(), LINES):
        xs, ys = [p.bytes for p in named.values()], [100 * p.right for p in named.values()]
        spread = [[100 * (p.right - p.low) for p in named.values()], [100 * (p.high - p.right) for p in named.values()]]
        axes.errorbar(xs, ys, yerr=spread, **(look | {"linestyle": "none"}), elinewidth=1, markersize=7, label=series)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set(xlabel="bytes a token of text (each line is twice the last)", ylabel="right answers (%)", ylim=(-3, 105))
    axes.grid(axis="x", color="#dddddd")
    axes.legend(loc="lower right")
    axes.set_title("Up is better, left is smaller")
    if chosen is not None:
        series, name = chosen
        if name not in caches.get(series, {}):
            raise ValueError(f"{series}, {name} is not among the points")
        point = caches[series][name]
        axes.scatter([point.bytes], [100 * point.right], **RING)
        said = f"{series}, {name}: {point.bytes:,.0f} bytes a token, {100 * point.right:.1f} % right"
        axes.set_title(said)
        figure.alt = f"Chosen: {said}. {figure.alt}"
    return figure


@styled
def nll_and_kl(runs: Mapping[str, Comparison]) -> Picture:
    """Of each run against the same reference: what it adds to the NLL, and below it the KL divergence, with intervals.

    ValueError for no runs, too many, or a KL that a logarithmic axis cannot show.
    """
    if not 1 <= len(runs) <= 10:
        raise ValueError(f"{len(runs)} runs: draw 1 to 10")
    for name, run in runs.items():
        if not run.kl.value > 0:
            raise ValueError(f"{name}: a KL of {run.kl.value} has no place on a logarithmic axis")
    told = "; ".join(f"{name} {run.nll_added.value:+.4f} and {run.kl.value:.2g}" for name, run in runs.items())
    figure, (above, below) = picture(5.2, 2, sharex=True, alt=f"Added NLL and KL, nats a token. {told}.")
    marks(above, [run.nll_added for run in runs.values()], 0)
    above.axhline(0, color=INK, linewidth=1)
    above.set_title("What NLL says: added to the reference, with its interval")
    marks(below, [run.kl for run in runs.values()], 1)
    smallest = min(run.kl.value for run in runs.values())
    below.set_yscale("log")
    below.set_ylim(bottom=smallest / 3)
    below.set_title("What KL says (each line is ten times the last)")
    below.set_xticks(range(len(runs)), list(runs))
    for axes in (above, below):
        axes.set_ylabel("nats a token")
        axes.grid(axis="y", color="#dddddd")
    return figure


def marks(axes: Axes, means: Sequence[Mean], series: int) -> None:
    """A mark for each mean, and the line of its interval if it has an end."""
    look = LINES[series] | {"linestyle": "none", "markersize": 7}
    for place, mean in enumerate(means):
        axes.plot([place], [mean.value], **look)
        if isfinite(mean.low) and isfinite(mean.high):
            axes.plot([place, place], [mean.low, mean.high], color=look["color"], linewidth=1.5)


@styled
def channels(largest: Mapping[str, Sequence[float]]) -> Picture:
    """The largest number of each channel, the largest channel first, in units of the middle one; a line for each name.

    ValueError for a channel that cannot be compared with the middle one.
    """
    if not 1 <= len(largest) <= len(LINES):
        raise ValueError(f"{len(largest)} lines: draw 1 to {len(LINES)}")
    relative = {}
    for name, values in largest.items():
        if not values or not all(isfinite(value) and value >= 0 for value in values) or not median(values) > 0:
            raise ValueError(f"{name}: {list(values)[:5]} … are no largest numbers of channels")
        relative[name] = sorted((value / median(values) for value in values), reverse=True)
    told = ", ".join(f"{name} {values[0]:.1f}" for name, values in relative.items())
    figure, (axes,) = picture(3.8, alt=f"Largest channel over the middle one: {told}.")
    for (name, values), look in zip(relative.items(), LINES):
        places = [100 * place / max(len(values) - 1, 1) for place in range(len(values))]
        axes.plot(places, values, **look, markevery=max(len(values) // 12, 1), markersize=5, label=name)
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set(xlabel="channels, the largest first (% of them)", ylabel="times the middle channel")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper right")
    return figure


@styled
def seen(tokens: int, window: int, first: int = 0) -> Picture:
    """Which positions each query sees with a window, itself included, and with so many first tokens kept.

    Below, in the last line, stands what the cache holds for the next token. ValueError for what is too fine to draw.
    """
    if not 1 <= tokens <= MOST_TOKENS or window < 1 or first < 0:
        raise ValueError(f"{tokens} tokens, a window of {window}, {first} first ones: draw 1 to {MOST_TOKENS} tokens")
    rows = [
        [key <= query and (key > query - window or key < first) for key in range(tokens)] for query in range(tokens)
    ]
    held = sum(rows[-1])
    said = f"{tokens} tokens, window {window}, {first} first: the last query sees {held}"
    figure, (axes,) = picture(4.8, alt=f"{said}: positions {', '.join(str(k) for k in range(tokens) if rows[-1][k])}.")
    for query, row in enumerate(rows):
        for key, sees in enumerate(row):
            look = HELD if sees else HIDDEN
            axes.add_patch(Rectangle((key - 0.5, query - 0.5), 1, 1, **look))
            if sees and key < first and key <= query - window:
                axes.plot(key, query, "x", color=VERMILION, markersize=5)
    axes.add_patch(Rectangle((-0.5, tokens - 1.5), tokens, 1, facecolor="none", edgecolor=BLUE, linewidth=2))
    axes.set(xlim=(-0.6, tokens - 0.4), ylim=(tokens - 0.4, -0.6), aspect="equal")
    axes.set(xlabel="position that is looked at", ylabel="query")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(said)
    return figure
