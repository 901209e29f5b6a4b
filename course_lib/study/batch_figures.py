"""Figures about sequences that share memory: padded batches, memory that is wasted, beginnings that are shared.

The one idea: a figure draws what it is given, numbers and names, and computes nothing about a model; what is wrong in a
batch is marked where it happens. The figures of single slots, `cells` and `block_tables`, are in `slot_figures.py` and
can be had from here as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_lib.study.cache_figures import BARS, HIDDEN, LEGEND, LINES, UNITS, cycle, plural
from course_lib.study.sizing_figures import LEFT_OUT
from course_lib.study.slot_figures import PLATE, bare, block_tables, cells, plain
from course_lib.study.style import (
    DECODE,
    GREY,
    INK,
    PREFILL,
    VERMILION,
    Picture,
    milliseconds,
    picture,
    styled,
)

__all__ = ["block_tables", "cells", "first_tokens", "padding", "reserved_and_used", "waste_by_block_size"]

SIDES, COUNTED, MASKS = ("left", "right"), ("text", "column"), ("causal and padding", "causal only")
WRONG: dict[str, Any] = {"facecolor": "white", "edgecolor": VERMILION, "hatch": "\\\\\\", "linewidth": 1.5}
QUERY: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 2.6, "zorder": 3}
MOST_COLUMNS, MOST_TEXTS, MOST_REQUESTS = 12, 8, 24


@styled
def padding(
    texts: Mapping[str, Sequence[str]],
    side: str = "left",
    positions: str = "text",
    mask: str = "causal and padding",
    new_tokens: int = 0,
) -> Picture:
    """A padded batch: the tokens of each text, `new_tokens` decoded after them, their positions, and what is hidden.

    Every text gets the columns of the longest one, padded on one `side`, and each new token the next column of all
    rows.
    `positions` are counted in the row's own "text" or by its "column". The newest token of a row is its query; crosses
    are padding that the `mask` hides from it. ValueError for another word, an empty text, or too much to draw.
    """
    for word, known in ((side, SIDES), (positions, COUNTED), (mask, MASKS)):
        if word not in known:
            raise ValueError(f"{word!r} is neither {known[0]!r} nor {known[1]!r}")
    if not texts or not all(texts.values()) or new_tokens < 0:
        raise ValueError(f"texts of {[len(text) for text in texts.values()]} tokens, {new_tokens} new ones: a text "
                         "needs at least one token, and new ones cannot be fewer than 0")  # fmt: skip
    longest = max(map(len, texts.values()))
    columns = longest + new_tokens
    if columns > MOST_COLUMNS or len(texts) > MOST_TEXTS:
        raise ValueError(f"{len(texts)} texts of {columns} columns are too many: draw {MOST_TEXTS} of {MOST_COLUMNS}")
    rows = [padded_row(text, longest, side, positions, mask, new_tokens) for text in texts.values()]
    alt = f"A batch padded on the {side}, {columns} columns a row, mask: {mask}, positions counted by {positions}."
    figure, (axes,) = picture(1.45 + 0.62 * len(rows), alt=alt + told_padding(texts, rows))
    for y, row in enumerate(rows):
        for column, (text, position, state) in enumerate(row):
            draw_padded(axes, column, y, text, position, state, 6.2 / columns)
    axes.set(xlim=(-0.55, columns - 0.45), ylim=(len(rows) - 0.5, -0.5), xlabel="column of the row")
    axes.set_xticks(range(columns))
    axes.set_yticks(range(len(rows)), labels=[plain(name) for name in texts])
    bare(axes)
    (cross,) = axes.plot([], [], "x", color=GREY, label="padding, hidden")
    handles = [  # all of them always, so that turning a knob moves nothing else
        Patch(label="token of the prompt", **PREFILL),
        Patch(label="new token", **DECODE),
        Patch(label="newest: the query", **QUERY),
        Patch(label="wrong position", facecolor=VERMILION),
        cross,
        Patch(label="padding, looked at", **WRONG),
    ]
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


def padded_row(
    text: Sequence[str], longest: int, side: str, positions: str, mask: str, new_tokens: int
) -> list[tuple[str, int | None, str]]:
    """What each column of a row holds: a token's text or "pad", its position, and what becomes of it.

    That is "prompt" or "new", with "query" if it is the newest and "wrong" if its position is not that in its text;
    "hidden" or "seen" for padding.
    """
    before = longest - len(text) if side == "left" else 0
    columns = [*range(before, before + len(text)), *range(longest, longest + new_tokens)]
    row: list[tuple[str, int | None, str]] = []
    for column in range(longest + new_tokens):
        if column not in columns:
            hidden = column > columns[-1] or mask == MASKS[0]
            row.append(("pad", None if positions == "text" else column, "hidden" if hidden else "seen"))
            continue
        true = columns.index(column)
        position = true if positions == "text" else column
        state = ("prompt" if true < len(text) else "new") + " wrong" * (position != true)
        shown = text[true] if true < len(text) else f"+{true - len(text) + 1}"
        row.append((shown, position, state + " query" * (column == columns[-1])))
    return row


def draw_padded(axes: Axes, x: int, y: int, text: str, position: int | None, state: str, inches: float) -> None:
    """One column of a padded batch: the token above, its position below."""
    corner, size = (x - 0.46, y - 0.4), (0.92, 0.8)
    look = {"hidden": HIDDEN, "seen": WRONG}.get(state, DECODE if "new" in state else PREFILL)
    axes.add_patch(Rectangle(corner, *size, **look))
    if "query" in state:
        axes.add_patch(Rectangle(corner, *size, **QUERY))
    padding = state in ("hidden", "seen")
    shown = text.strip().replace("\n", "↵")[: int(inches / 0.085)] or "␣"
    write: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 9.5, "zorder": 4}
    axes.text(x, y - 0.16, plain(shown), color=GREY if padding else INK, bbox=PLATE, **write)
    if state == "hidden":
        axes.plot(x, y + 0.2, "x", color=GREY, markersize=8)
    elif position is not None:
        plate, ink = (PLATE | {"facecolor": VERMILION}, "white") if "wrong" in state else (PLATE, INK)
        weight = "normal" if padding else "bold"
        axes.text(x, y + 0.2, f"{position}", color=ink, bbox=plate, fontweight=weight, **write)


def told_padding(texts: Mapping[str, Sequence[str]], rows: Sequence[Sequence[tuple[str, int | None, str]]]) -> str:
    said = ""
    for name, row in zip(texts, rows, strict=True):
        padding = Counter(state for *_, state in row if state in ("hidden", "seen"))
        tokens = [(position, state) for _, position, state in row if state not in padding]
        wrong = sum("wrong" in state for _, state in tokens)
        said += (
            f" {name}: {len(texts[name])} {plural('token', len(texts[name]))} and {len(tokens) - len(texts[name])} new "
            f"at positions {', '.join(f'{position}' for position, _ in tokens)}, {wrong} of them wrong; "
            f"{padding['hidden']} padding columns hidden, {padding['seen']} looked at."
        )
    return said


@styled
def reserved_and_used(parts: Mapping[str, Mapping[str, int]]) -> Picture:
    """What the reserved bytes of each strategy hold, one bar each: {strategy: {part: bytes}}, at most three parts.

    The first part is what is used, and its share is written beside the bar. All strategies name the same parts.
    ValueError if they do not, and for bytes that are negative, not finite, or none at all.
    """
    if not parts:
        raise ValueError("there is nothing to draw: give at least one strategy with its parts")
    names = list(next(iter(parts.values())))
    looks = cycle((PREFILL, DECODE, LEFT_OUT), len(names))
    for strategy, sizes in parts.items():
        if list(sizes) != names:
            raise ValueError(f"{strategy} has the parts {list(sizes)}, the others have {names}: name the same for all")
        if wrong := [size for size in sizes.values() if not (isfinite(size) and size >= 0)]:
            raise ValueError(f"{strategy}: {wrong[0]} bytes cannot be reserved")
        if not sum(sizes.values()):
            raise ValueError(f"{strategy}: nothing is reserved, so there is no share to draw")
    most = max(sum(sizes.values()) for sizes in parts.values())
    unit, scale = next(((unit, scale) for unit, scale in UNITS.items() if most >= scale), ("bytes", 1))
    alt = "Reserved and used."
    figure, (axes,) = picture(1.25 + 0.5 * len(parts), alt=alt)
    for row, (strategy, sizes) in enumerate(parts.items()):
        left = 0.0
        for size, look in zip(sizes.values(), looks, strict=True):
            if size:
                axes.barh(row, size / scale, left=left, height=0.6, **look)
            left += size / scale
        share = f"{100 * sizes[names[0]] / sum(sizes.values()):.0f} % {names[0]}"
        axes.text(left + 0.015 * most / scale, row, share, va="center", fontsize=10)
        told = ", ".join(f"{size / scale:.4g} {unit} {name}" for name, size in sizes.items())
        figure.alt += f" {strategy}: {told}; {share}."
    axes.set(xlim=(0, 1.2 * most / scale), ylim=(len(parts) - 0.5, -0.5), xlabel=f"reserved ({unit})")
    axes.set_yticks(range(len(parts)), labels=[plain(strategy) for strategy in parts])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    handles = [Patch(label=plain(name), **look) for name, look in zip(names, looks, strict=True)]
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


@styled
def waste_by_block_size(measured: Mapping[int, float], expected: Mapping[int, float] | None = None) -> Picture:
    """Share of the reserved slots that hold nothing (0 to 1) against the block size in tokens.

    `expected` is what a rule says: a line without marks. ValueError for a share or a block size that cannot be.
    """
    if not measured:
        raise ValueError("there is nothing to draw: give at least one block size with its share")
    for size, share in [*measured.items(), *(expected or {}).items()]:
        if size < 1 or not 0 <= share <= 1:
            raise ValueError(f"a share of {share} wasted in blocks of {size}: shares are 0 to 1, blocks 1 or more")
    points = ", ".join(f"{size} {100 * share:.3g} %" for size, share in sorted(measured.items()))
    figure, (axes,) = picture(
        3.3, alt=f"Share of the reserved slots that hold nothing, by block size in tokens: {points}."
    )
    for values, look, label in ((measured, LINES[0], "measured"), (expected or {}, LINES[1], "expected")):
        line = look | ({"linestyle": "", "markersize": 9} if label == "measured" else {"marker": "", "zorder": 1})
        if values:
            shares = [100 * values[size] for size in sorted(values)]
            axes.plot(sorted(values), shares, label=label, linewidth=2, clip_on=False, **line)
    if expected:
        rule = ", ".join(f"{size} {100 * share:.3g} %" for size, share in sorted(expected.items()))
        figure.alt += f" Expected: {rule}."
    sizes = sorted({*measured, *(expected or {})})
    axes.set(xscale="log", xlabel="block size (tokens)", ylabel="reserved, but empty (%)")
    axes.set(xlim=(sizes[0] / 1.2, sizes[-1] * 1.2))
    axes.set_ylim(0, 110 * max(*measured.values(), *(expected or {}).values(), 0.01))
    axes.set_xticks(sizes, labels=[f"{size}" for size in sizes])
    axes.minorticks_off()
    figure.legend(ncols=2, **LEGEND)
    return figure


@styled
def first_tokens(times_s: Mapping[str, Sequence[float]], texts: Sequence[str] = ()) -> Picture:
    """Time to first token (seconds) of successive requests, bars for each name: {"no sharing": […], "shared": […]}.

    `texts` stand in for the numbers of the requests. ValueError unless each name has one time for each request, finite
    and not negative, and there is a text for each or none.
    """
    counts = {name: len(times) for name, times in times_s.items()}
    if not counts or len(set(counts.values())) != 1 or not all(counts.values()):
        raise ValueError(f"each name needs a time for each request, there are {counts}")
    for name, times in times_s.items():
        if wrong := [time for time in times if not (isfinite(time) and time >= 0)]:
            raise ValueError(f"{name}: a request cannot wait {wrong[0]} s")
    requests, longest = max(counts.values()), max(max(times) for times in times_s.values())
    if requests > MOST_REQUESTS:
        raise ValueError(f"{requests} requests are too many for one picture: draw at most {MOST_REQUESTS}")
    if texts and len(texts) != requests:
        raise ValueError(f"{len(texts)} texts for {requests} requests: give one for each, or none")
    unit, scale = ("s", 1.0) if longest >= 1 else ("ms", 1e3)
    told = " ".join(f"{name}: {', '.join(map(milliseconds, times))}." for name, times in times_s.items())
    figure, (axes,) = picture(3.2, alt=f"Time to first token of {requests} {plural('request', requests)}. {told}")
    width = 0.8 / len(times_s)
    for group, ((name, times), look) in enumerate(zip(times_s.items(), cycle(BARS, len(times_s)), strict=True)):
        lefts = [request - 0.4 + width * (group + 0.5) for request in range(1, requests + 1)]
        axes.bar(lefts, [scale * time for time in times], 0.92 * width, label=plain(name), **look)
    axes.set(xlabel="request, in order of arrival", ylabel=f"first token after ({unit})")
    axes.set(xlim=(0.4, requests + 0.6), ylim=(0, 1.08 * scale * longest or 1))
    axes.set_xticks(range(1, requests + 1), labels=[plain(text) for text in texts] or None)
    axes.tick_params(axis="x", length=0)
    figure.legend(ncols=3, **LEGEND)
    return figure
