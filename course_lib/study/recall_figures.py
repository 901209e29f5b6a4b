"""Figures of what a model recalls: shares of right answers with their intervals, and what became of each question.

The one idea: a share is never drawn alone. Its interval is, so that you see which differences are worth a word; and a
wrong answer is sorted by whether the cache still held what was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from course_lib.quality.measures import Rate
from course_lib.study.cache_figures import BARS, LEGEND, LINES, cycle
from course_lib.study.style import GREY, INK, Picture, picture, styled

FATES = ("right", "held, and wrong", "not held, and wrong")
MOST_MARKS, MOST_BARS = 10, 8
HALF = 0.24  # of the room of a mark, over which several names are spread


@styled
def shares(series: Mapping[str, Mapping[str, Rate]], x_label: str, chance: float | None = None) -> Picture:
    """The share of right answers of each name, with its 95 % interval, at the marks of the x axis, in their order.

    All names have the same marks. `chance` is the share (0 to 1) that guessing would reach: a dotted line. A mark at
    which nothing was asked stays empty. ValueError for marks that differ, or too many of them.
    """
    if not series or not all(series.values()):
        raise ValueError("there is nothing to draw: give at least one name with its shares")
    looks, marks = cycle(LINES, len(series)), list(next(iter(series.values())))
    for name, rates in series.items():
        if list(rates) != marks:
            raise ValueError(f"{name} has shares at {list(rates)}, the others at {marks}: ask all at the same")
    if len(marks) > MOST_MARKS:
        raise ValueError(f"{len(marks)} marks are too many to read: draw at most {MOST_MARKS}")
    if chance is not None and not 0 <= chance <= 1:
        raise ValueError(f"chance is a share from 0 to 1, not {chance}")
    alt = f"Share of right answers with 95 % interval, by {x_label}."
    figure, (axes,) = picture(3.4, alt=alt)
    handles: list[Any] = []  # of the legend, in the order of the names
    for place, (name, rates) in enumerate(series.items()):
        asked = {number: rates[mark] for number, mark in enumerate(marks) if rates[mark].asked}
        xs = [number + HALF * (2 * place - len(series) + 1) / len(series) for number in asked]
        ys = [100 * rate.share for rate in asked.values()]
        low, high = zip(*(rate.interval for rate in asked.values())) if asked else ((), ())
        around = [[y - 100 * a for y, a in zip(ys, low)], [100 * b - y for y, b in zip(ys, high)]]
        line: dict[str, Any] = looks[place] | {"markersize": 6, "linewidth": 1.4, "elinewidth": 1.6, "capsize": 3}
        handles.append(axes.errorbar(xs, ys, yerr=around if xs else None, label=plain(name), clip_on=False, **line))
        figure.alt += f" {name}: " + ", ".join(f"at {mark} {rates[mark]}" for mark in marks) + "."
    if chance is not None:
        handles.append(axes.axhline(100 * chance, color=GREY, linestyle=":", linewidth=1.4, label="guessing", zorder=0))
        figure.alt += f" Guessing: {100 * chance:.1f} %."
    axes.set(xlabel=plain(x_label), ylabel="right answers (%)", xlim=(-0.5, len(marks) - 0.5), ylim=(0, 104))
    axes.set_xticks(range(len(marks)), labels=[plain(mark) for mark in marks])
    figure.legend(handles=handles, ncols=4, **LEGEND)
    return figure


@styled
def fates(counts: Mapping[str, Sequence[int]]) -> Picture:
    """What became of the questions, one bar a name: {name: (right, held and wrong, not held and wrong)}, as shares.

    ValueError for other than three counts, for a negative one, or if nothing was asked.
    """
    if not counts or len(counts) > MOST_BARS:
        raise ValueError(f"{len(counts)} bars: draw 1 to {MOST_BARS}")
    for name, parts in counts.items():
        if len(parts) != len(FATES) or min(parts) < 0 or not sum(parts):
            raise ValueError(f"{name}: {list(parts)} should be how many were {'; '.join(FATES)}: one at least")
    figure, (axes,) = picture(1.25 + 0.42 * len(counts), alt="What became of the questions.")
    for row, (name, parts) in enumerate(counts.items()):
        left, asked = 0.0, sum(parts)
        for part, look in zip(parts, BARS, strict=True):
            axes.barh(row, 100 * part / asked, left=left, height=0.62, **look)
            left += 100 * part / asked
        told = ", ".join(f"{part} {fate}" for part, fate in zip(parts, FATES, strict=True))
        figure.alt += f" {name}: of {asked}, {told}."
        axes.text(101, row, f"n = {asked}", va="center", fontsize=9.5, color=INK)
    axes.set(xlabel="share of the questions (%)", xlim=(0, 100), ylim=(len(counts) - 0.5, -0.5))
    axes.set_yticks(range(len(counts)), labels=[plain(name) for name in counts])
    axes.tick_params(axis="y", length=0)
    handles: list[Any] = list(axes.containers[: len(FATES)])
    figure.legend(handles, FATES, ncols=3, **LEGEND)
    return figure


def plain(text: str) -> str:
    """A text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")
