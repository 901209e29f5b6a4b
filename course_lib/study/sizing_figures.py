"""Figures about the size of caches: how they grow, with the knee of a window, and what is left of a memory for them.
Beside them tables of sizes, in a form that a narrow window shows whole.

The one idea: a figure draws bytes that it is given and says them in full, so that a number can be read back from its
title and from its text. Nothing here knows a model or a rule; bytes come from `course_lib.sizing`. The line that is
asked about is thick and has marks, the others are thin and named at their ends, so that nothing is said by colour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from IPython.display import Markdown
from matplotlib.axes import Axes

from course_lib.sizing import Fit, short_words
from course_lib.study.cache_figures import UNITS, checked, plural
from course_lib.study.style import BLUE, DECODE, FIXED, GREY, INK, PREFILL, VERMILION, Picture, picture, styled

LEFT_OUT: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "hatch": "xx", "linewidth": 0.8}
THICK: dict[str, Any] = {"color": BLUE, "linewidth": 3, "zorder": 4}
THIN: dict[str, Any] = {"color": GREY, "linewidth": 1.3}
NEAREST = 0.062  # of the height: nearer, and the names of two lines would touch


@styled
def sizes_by_tokens(
    bytes_by_tokens: Mapping[str, Mapping[int, int]],
    chosen: str,
    tokens: int,
    windows: Sequence[int] = (),
    asked: str = "",
) -> Picture:
    """Bytes against tokens, a line for each name, and the size of `chosen` at `tokens` in full in the title.

    Lines are straight between the points that are given, so these must include `tokens` and every knee. `windows` are
    the tokens at which a window of `chosen` is full. `asked` says what else the sizes belong to ("8 sequences, bf16").
    ValueError for a name or a number of tokens that is not there.
    """
    checked(bytes_by_tokens)
    if chosen not in bytes_by_tokens:
        raise ValueError(f"{chosen} is not among the lines: {', '.join(bytes_by_tokens)}")
    if tokens not in bytes_by_tokens[chosen]:
        raise ValueError(f"{chosen}: there is no size at {tokens:,} tokens")
    size = bytes_by_tokens[chosen][tokens]
    what = f"{chosen}, {tokens:,} {plural('token', tokens)}" + (f", {asked}" if asked else "")
    number = f"{size:,} bytes = {short_words(size)}"
    figure, (axes,) = picture(4.3, alt=f"{what}: {number}. {told_knees(bytes_by_tokens, chosen, windows)}")
    axes.set_title(f"{what}:\n{number}")
    most = max(max(sizes.values()) for sizes in bytes_by_tokens.values())
    unit, scale = next(((unit, scale) for unit, scale in UNITS.items() if most >= scale), ("bytes", 1))
    ends = {}
    for name, sizes in bytes_by_tokens.items():
        xs = sorted(sizes)
        ys = [sizes[x] / scale for x in xs]
        axes.plot(xs, ys, **(THICK if name == chosen else THIN))
        ends[name] = ys[-1]
    mark(axes, tokens, size / scale)
    for window in windows:
        axes.axvline(window, color=VERMILION, linewidth=1.2, linestyle=":")
        top: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "va": "top"}
        axes.text(window, 1.0, f" window of {window:,} full", fontsize=10, **top)
    longest = max(max(sizes) for sizes in bytes_by_tokens.values())
    axes.set(xlim=(0, longest or 1), ylim=(0, 1.08 * most / scale or 1))
    axes.set(xlabel="length of each sequence (tokens)", ylabel=f"size of the cache ({unit})")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    for name, height in apart(ends, NEAREST * axes.get_ylim()[1]).items():
        weight = "bold" if name == chosen else "normal"
        axes.text(1.02 * longest, height, name, fontsize=10, va="center", fontweight=weight)
    return figure


def mark(axes: Axes, x: float, y: float) -> None:
    """A point on a line, with thin lines to both axes at which it can be read off."""
    axes.plot([x, x, 0], [0, y, y], color=INK, linewidth=0.9, linestyle="--", zorder=3)
    axes.plot(x, y, "o", color=INK, markersize=9, zorder=5, clip_on=False)


def apart(heights: Mapping[str, float], least: float) -> dict[str, float]:
    """The same heights, moved up where two are nearer than `least`."""
    names = sorted(heights, key=lambda name: heights[name])
    placed = dict(heights)
    for below, name in pairwise(names):
        placed[name] = max(placed[name], placed[below] + least)
    return placed


def told_knees(bytes_by_tokens: Mapping[str, Mapping[int, int]], chosen: str, windows: Sequence[int]) -> str:
    """What the picture shows besides the number, in words."""
    sizes = bytes_by_tokens[chosen]
    last = max(sizes)
    if not windows:
        shape = "Its line is straight."
    else:
        after = "level" if sizes[last] == sizes.get(max(windows)) else "flatter"
        where = " and ".join(f"{window:,}" for window in windows)
        shape = f"Its line bends at {where} tokens, where a window is full, and is {after} after."
    others = ", ".join(f"{name} {short_words(line[max(line)])}" for name, line in bytes_by_tokens.items())
    return f"{shape} At {last:,} tokens: {others}."


@styled
def memory_split(fit: Fit, what: str = "") -> Picture:
    """A memory as one bar: weights, reserve, as many whole sequences as fit, and what no sequence fits into.

    `what` names the memory and what a sequence is. The title has the number of sequences, the text the subtraction.
    """
    used = fit.sequences * fit.per_sequence
    rest = max(fit.left, 0) - used
    parts = {
        "weights": (fit.weights, FIXED),
        "reserve": (fit.reserve, PREFILL),
        "caches": (used, DECODE),
        "left over": (rest, LEFT_OUT),
    }
    answer = f"{fit.sequences:,} {plural('sequence', fit.sequences)} of {short_words(fit.per_sequence)} fit"
    alt = (
        f"{what + ': ' if what else ''}memory {fit.memory:,} bytes, minus weights {fit.weights:,}, minus reserve "
        f"{fit.reserve:,}, leaves {fit.left:,}. Divided by {fit.per_sequence:,} for each sequence: {answer}."
    )
    figure, (axes,) = picture(2.3, alt=alt)
    axes.set_title(f"{what}:\n{answer}" if what else answer)
    start = 0.0
    for name, (size, look) in parts.items():
        axes.barh(0, size / 1e9, left=start, height=0.7, label=f"{name}: {size / 1e9:,.1f} GB", **look)
        start += size / 1e9
    for sequence in range(1, fit.sequences if fit.sequences <= 64 else 0):  # more lines would fill the bar
        x = (fit.weights + fit.reserve + sequence * fit.per_sequence) / 1e9
        axes.plot([x, x], [-0.35, 0.35], color="white", linewidth=1)
    axes.axvline(fit.memory / 1e9, color=INK, linewidth=2)
    axes.set(xlim=(0, 1.04 * max(start, fit.memory / 1e9)), ylim=(-0.5, 0.5), yticks=[])
    axes.set_xlabel("memory, the thick line is its end (GB)")
    axes.spines["left"].set_visible(False)
    figure.legend(ncols=4, loc="outside lower left", columnspacing=1.0, handletextpad=0.4)
    return figure


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> Markdown:
    """A table with a line for each of `rows`: a page can scroll it and a screen reader can go through its cells.

    ValueError for a row that is not as long as the head.
    """
    for row in rows:
        if len(row) != len(head):
            raise ValueError(f"a row has {len(row)} cells, the head has {len(head)}: {list(row)}")
    lines = [head, ["---:"] * len(head), *rows]
    return Markdown("\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines))
