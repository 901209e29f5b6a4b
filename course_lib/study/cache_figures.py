"""Figures about the cache: who looks at whom, what is stored, how it grows, what it costs and what it saves.

The one idea: a figure draws what it is given, numbers and names, and computes nothing about a model. Each kind of line
has its own colour, dash and marker, each kind of box its own hatch, so that nothing is said by colour alone. How
pictures look and travel is in `style.py`; the figures about time stand in `figures.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import floor, isfinite, log10
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_lib.study.style import (
    BLUE,
    DECODE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PALE,
    PREFILL,
    VERMILION,
    Picture,
    milliseconds,
    picture,
    styled,
)

HELD: dict[str, Any] = {"facecolor": PALE, "edgecolor": GREY, "hatch": "...", "linewidth": 0.8}  # lies in the cache
HIDDEN: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "linewidth": 0.5}
GONE: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "linewidth": 1.2, "linestyle": "--"}
LINES: tuple[dict[str, Any], ...] = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": ORANGE, "linestyle": "--", "marker": "s"},
    {"color": VERMILION, "linestyle": "-.", "marker": "^"},
    {"color": GREEN, "linestyle": ":", "marker": "D"},
    {"color": INK, "linestyle": "-", "marker": "x"},
)
BARS: tuple[dict[str, Any], ...] = (PREFILL, DECODE, {"facecolor": PALE, "edgecolor": INK, "hatch": "..."})
MOST_POSITIONS = 48  # more columns than this are too fine to tell apart
MOST_LAYERS, MOST_HEADS = 3, 6  # what is_stored draws; the rest is said in words
LEGEND: dict[str, Any] = {"loc": "outside upper left", "columnspacing": 1.2, "handletextpad": 0.5}


@styled
def attention_mask(prompt_tokens: int, new_tokens: int, cached: bool = True) -> Picture:
    """Who looks at whom when `new_tokens` are read after a prompt: a row for each query, a column for each position.

    With a cache, keys and values of the prompt are in it, and only the queries of the new tokens are computed. Without
    one, everything is computed again. Crosses are positions that the causal mask hides. ValueError if there is
    nothing to read or too much to draw.
    """
    positions = prompt_tokens + new_tokens
    first = prompt_tokens if cached else 0
    queries = positions - first
    if prompt_tokens < 0 or new_tokens < 0 or queries < 1:
        raise ValueError(f"{prompt_tokens} prompt tokens and {new_tokens} new ones leave no query to draw: add a token")
    if positions > MOST_POSITIONS:
        raise ValueError(f"{positions} positions are too many for one picture: draw at most {MOST_POSITIONS}")
    figure, (axes,) = picture(1.15 + min(0.36, 5 / queries) * queries, alt=told_mask(prompt_tokens, new_tokens, cached))
    computed = DECODE if queries == 1 else PREFILL if positions <= 24 else PREFILL | {"hatch": "", "linewidth": 0.3}
    for row, query in enumerate(range(first, positions)):
        for key in range(positions):
            look = HIDDEN if key > query else computed if key >= first else HELD
            axes.add_patch(Rectangle((key - 0.45, row - 0.43), 0.9, 0.86, **look))
            if key > query:
                axes.plot(key, row, "x", color=GREY, markersize=min(6, 140 / positions))
    axes.set(xlim=(-0.6, positions - 0.4), ylim=(queries - 0.4, -0.6))
    axes.set_xlabel("key and value, position in the text")
    axes.set_xticks(range(0, positions, 1 + (positions - 1) // 24))
    rows = range(0, queries, 1 + (queries - 1) // 16)
    axes.set_yticks(rows, labels=[f"query {first + row}" for row in rows])
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    handles: list[Any] = [Patch(label="looked at: computed now", **computed)]
    if cached and prompt_tokens:
        handles.append(Patch(label="looked at: from the cache", **HELD))
    if queries > 1:
        (cross,) = axes.plot([], [], "x", color=GREY, label="hidden by the mask")
        handles.append(cross)
    figure.legend(handles=handles, ncols=3, **LEGEND)
    return figure


def told_mask(prompt_tokens: int, new_tokens: int, cached: bool) -> str:
    positions = prompt_tokens + new_tokens
    first = prompt_tokens if cached else 0
    seen = sum(query + 1 for query in range(first, positions))
    where = f"{prompt_tokens} of the {positions} positions are in the cache" if cached else "Nothing is in a cache"
    return (
        f"Attention mask. {where}; the pass computes {positions - first} {plural('query', positions - first)}. Each "
        f"looks at its own position and all earlier ones, none to the right: {seen} {plural('cell', seen)} filled."
    )


@styled
def what_is_stored(n_layers: int, n_kv_heads: int, tokens: int, head_dim: int, n_heads: int | None = None) -> Picture:
    """What a cache holds: in each layer and KV head a box K and a box V, `tokens` rows of `head_dim` numbers each.

    The queries (`n_heads` a layer, by default as many as KV heads) are drawn dashed, one row of the newest token: they
    are used in their own pass and not kept. Of many layers and heads the first and the last are drawn.
    """
    n_heads = n_heads or n_kv_heads
    if min(n_layers, n_kv_heads, tokens, head_dim) < 1:
        raise ValueError(f"{n_layers=}, {n_kv_heads=}, {tokens=}, {head_dim=}: each must be at least 1")
    numbers = 2 * n_layers * n_kv_heads * tokens * head_dim
    product = f"2 × {n_layers} × {n_kv_heads} × {tokens} × {head_dim} = {numbers:,} numbers"
    alt = (
        f"What is stored: in each of {n_layers} {plural('layer', n_layers)}, for each of {n_kv_heads} KV "
        f"{plural('head', n_kv_heads)}, keys and values of {tokens} {plural('token', tokens)}, {head_dim} numbers "
        f"each: {product}. Queries, of {n_heads} {plural('head', n_heads)} a layer, are not kept."
    )
    layers = some(n_layers, MOST_LAYERS)
    heights = [0.42 if layer is None else 1.0 for layer in layers]
    lows = [sum(heights[: row + 1]) for row in range(len(layers))]  # where each layer's boxes stand
    figure, (axes,) = picture(1.35 + 0.66 * lows[-1], alt=alt)
    axes.set_title(f"K and V · layers · KV heads · tokens · head_dim:\n{product}")
    left, names = 0.0, ("not kept", "kept", "kept")
    for title, heads, look, kept in zip("QKV", (n_heads, n_kv_heads, n_kv_heads), (GONE, PREFILL, DECODE), names):
        shown = some(heads, MOST_HEADS)
        of = "" if title == "Q" else "KV "
        axes.text(left, -0.06, f"{title}: {heads} {of}{plural('head', heads)}, {kept}", fontsize=10, va="bottom")
        for low, layer in zip(lows, layers):
            for column, head in enumerate(shown):
                if layer is not None:
                    box(axes, left + column, low, look, tokens if head is not None else 0)
        left += max(len(shown), 4.2) + 0.6
    axes.set(xlim=(-0.05, left - 0.5), ylim=(lows[-1] + 0.06, -0.45), xticks=[])
    middles = [low - height / 2 for low, height in zip(lows, heights)]
    axes.set_yticks(middles, labels=["⋮" if layer is None else f"layer {layer}" for layer in layers])
    axes.set_xlabel(f"each box of K and V: {tokens} {plural('row', tokens)} (tokens) of {head_dim} numbers (head_dim)")
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    return figure


def box(axes: Axes, left: float, low: float, look: dict[str, Any], tokens: int) -> None:
    """A head's box in one layer, cut into rows of tokens if these are few; a query has one row. 0 tokens: left out."""
    height = 0.2 if look is GONE else 0.84
    if not tokens:
        axes.text(left + 0.43, low - 0.08 - height / 2, "…", ha="center", va="center", color=INK)
        return
    axes.add_patch(Rectangle((left, low - 0.08 - height), 0.86, height, **look))
    if look is not GONE and tokens <= 8:
        for cut in range(1, tokens):
            y = low - 0.08 - height * cut / tokens
            axes.plot([left, left + 0.86], [y, y], color="white", linewidth=1.4)


def some(count: int, most: int) -> list[int | None]:
    """The numbers 0 to count - 1, with None for a gap where there are too many to draw."""
    if count <= most:
        return list(range(count))
    return [*range(most - 2), None, count - 1]


@styled
def cache_growth(bytes_by_tokens: Mapping[str, Mapping[int, int]]) -> Picture:
    """Bytes that caches hold against tokens, a line for each name, in the binary unit that suits the largest."""
    checked(bytes_by_tokens)
    most = max(max(sizes.values()) for sizes in bytes_by_tokens.values())
    unit, size = next(((unit, size) for unit, size in UNITS.items() if most >= size), ("bytes", 1))
    alt = "Size of the cache by tokens. " + told(bytes_by_tokens, "tokens", lambda value: f"{value / size:.4g} {unit}")
    figure, (axes,) = picture(3.3, alt=alt)
    scaled = {name: {x: y / size for x, y in sizes.items()} for name, sizes in bytes_by_tokens.items()}
    draw_lines(axes, scaled, x_label="tokens in the cache", y_label=f"size of the cache ({unit})")
    figure.legend(ncols=3, **LEGEND)
    return figure


UNITS = {"TiB": 2**40, "GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


@styled
def step_times(times_s: Mapping[str, Mapping[int, float]], x_label: str = "tokens so far") -> Picture:
    """Time of one step (seconds) against tokens, a line for each name, in ms unless the longest is over a second."""
    checked(times_s)
    in_ms = max(max(times.values()) for times in times_s.values()) < 1
    scaled = {name: {x: y * (1e3 if in_ms else 1) for x, y in times.items()} for name, times in times_s.items()}
    figure, (axes,) = picture(3.3, alt="Time of one step. " + told(times_s, x_label, milliseconds))
    draw_lines(axes, scaled, x_label=x_label, y_label=f"one step ({'ms' if in_ms else 's'})")
    figure.legend(ncols=3, **LEGEND)
    return figure


@styled
def costs(
    parts: Mapping[str, Mapping[int, float]],
    y_label: str,
    x_label: str = "tokens",
    *,
    expected: Mapping[str, Mapping[int, float]] | None = None,
    points: str = "measured",
    logarithmic: bool = False,
) -> Picture:
    """Parts of a cost against tokens, a line for each; `y_label` names its unit: "one step (ms)", "in all (GFLOP)".

    `expected`, by the same names, is what a formula says: a thin line without markers, and the points of `parts` stand
    alone; `points` says in a word how they were found. With `logarithmic` axes a power of the tokens is a straight
    line, steeper for a higher power.
    """
    checked(parts)
    formula = expected or {}
    if strange := set(formula) - set(parts):
        raise ValueError(f"expected names {sorted(strange)}, but the parts are {list(parts)}")
    figure, (axes,) = picture(3.4, alt=f"{y_label}. " + told(parts, x_label, lambda value: f"{value:.3g}"))
    draw_lines(axes, parts, x_label=x_label, y_label=y_label, alone=dict.fromkeys(formula, points))
    for look, name in zip(looks(parts), parts, strict=True):
        if name in formula:
            thin = look | {"marker": "", "linewidth": 1.5}
            axes.plot(list(formula[name]), list(formula[name].values()), **thin, label=f"{name}, formula")
    if logarithmic:
        stretch(axes, [*parts.values(), *formula.values()])
    figure.legend(ncols=2 if formula else 3, **LEGEND)
    return figure


@styled
def compare_changes(
    changes: Mapping[str, Sequence[float]],
    tolerance: float,
    x_label: str = "position of the token",
    *,
    y_label: str = "largest change (no unit)",
    texts: Sequence[str] = (),
) -> Picture:
    """How much something of each token changed, bars on a logarithmic axis, and a line at the tolerance.

    Bars below the line are rounding. A change of exactly 0 has no place on such an axis: it is written as 0 at its
    foot. `texts` stand in for the positions. ValueError for what is negative or not finite.
    """
    values = {name: [float(value) for value in row] for name, row in changes.items()}
    if not values or len({len(row) for row in values.values()}) != 1 or not all(values.values()):
        raise ValueError(f"one change for each token is needed, got {[len(row) for row in values.values()]} of them")
    every = [value for row in values.values() for value in row]
    if not all(isfinite(value) and value >= 0 for value in every) or not tolerance > 0:
        raise ValueError(
            f"changes {min(every)} to {max(every)}, tolerance {tolerance}: all must be finite, none below 0"
        )
    alt = f"Change of each token on a logarithmic axis, tolerance {tolerance:.0e}."
    for name, row in values.items():
        above = sum(value > tolerance for value in row)
        alt += f" {name}: {min(row):.1g} to {max(row):.1g}, {above} of {len(row)} above the tolerance."
    figure, (axes,) = picture(3.2, alt=alt)
    above_zero = [value for value in [*every, tolerance] if value > 0]
    foot = 10.0 ** floor(log10(min(above_zero) / 2))
    width = 0.8 / len(values)
    for group, ((name, row), look) in enumerate(zip(values.items(), cycle(BARS, len(values)), strict=True)):
        lefts = [token - 0.4 + width * (group + 0.5) for token in range(len(row))]
        axes.bar(lefts, [max(value - foot, 0) for value in row], 0.92 * width, bottom=foot, label=name, **look)
        for left, value in zip(lefts, row, strict=True):
            if value == 0 and len(row) * len(values) <= 32:
                axes.text(left, foot * 1.15, "0", ha="center", va="bottom", fontsize=10)
    line = axes.axhline(tolerance, color=INK, linewidth=1.6, linestyle="--", label=f"tolerance {power(tolerance)}")
    axes.set(yscale="log", ylim=(foot, 4 * max(above_zero)), xlabel=x_label, ylabel=y_label)
    tokens = len(every) // len(values)
    if texts:
        axes.set_xticks(range(tokens), labels=[text.strip().replace("$", r"\$")[:10] or "␣" for text in texts])
    else:
        axes.set_xticks(range(0, tokens, 1 + (tokens - 1) // 24))
    axes.minorticks_off()
    axes.set_xlim(-0.6, tokens - 0.4)
    figure.legend(handles=[*axes.containers, line], ncols=3, **LEGEND)
    return figure


def draw_lines(
    axes: Axes, series: Mapping[str, Mapping[int, float]], *, x_label: str, y_label: str, alone: Mapping[str, str] = {}
) -> None:
    """A line with markers for each name from 0 up; the points of names in `alone` are not joined, and get its word."""
    for look, (name, values) in zip(looks(series), series.items(), strict=True):
        line = look | ({"linestyle": ""} if name in alone else {}) | {"markersize": 7, "markeredgecolor": INK}
        label = f"{name}, {alone[name]}" if name in alone else name
        axes.plot(list(values), list(values.values()), **line, label=label, linewidth=2, zorder=3, clip_on=False)
    longest = max(max(values) for values in series.values())
    highest = max(max(values.values()) for values in series.values())
    axes.set(xlabel=x_label, ylabel=y_label, xlim=(0, 1.04 * longest or 1), ylim=(0, 1.08 * highest or 1))
    ticks = [longest]
    for x in sorted({x for values in series.values() for x in values}, reverse=True):
        if ticks[-1] - x > longest / 14:  # nearer, and their numbers would run into one another
            ticks.append(x)
    axes.set_xticks(ticks)


def looks(series: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [dict(look) for look in cycle(LINES, len(series))]


def cycle(kinds: Sequence[dict[str, Any]], count: int) -> Sequence[dict[str, Any]]:
    if count > len(kinds):
        raise ValueError(f"{count} names are too many to tell apart in one picture: draw at most {len(kinds)}")
    return kinds[:count]


def checked(series: Mapping[str, Mapping[int, float]]) -> None:
    """ValueError, with the name, for a series that is empty or holds what is not a finite number."""
    if not series:
        raise ValueError("there is nothing to draw: give at least one name with values")
    for name, values in series.items():
        if not values:
            raise ValueError(f"{name}: there are no values to draw")
        for x, y in values.items():
            if not isfinite(y):
                raise ValueError(f"{name}: the value at {x} is {y}, not a finite number")


def told(series: Mapping[str, Mapping[int, float]], x_label: str, say: Callable[[float], str]) -> str:
    """The numbers of a figure in words, first and last in full and at most six in between."""
    sentences = []
    for name, values in series.items():
        points = list(values.items())
        if len(points) > 8:
            points = [*points[: -1 : -(-len(points) // 7)], points[-1]]
        sentences.append(f"{name}: " + ", ".join(f"at {x} {say(y)}" for x, y in points) + ".")
    return f"{x_label.capitalize()} to the right. " + " ".join(sentences)


def stretch(axes: Axes, lines: Sequence[Mapping[int, float]]) -> None:
    """Logarithmic axes around all that is positive; a cost of 0 has no place there and is left out."""
    xs = sorted({x for values in lines for x in values if x > 0})
    ys = [y for values in lines for y in values.values() if y > 0]
    if not xs or not ys:
        raise ValueError("logarithmic axes need at least one value above 0")
    axes.set(xscale="log", yscale="log", xlim=(xs[0] / 1.15, 1.15 * xs[-1]), ylim=(min(ys) / 2, 2 * max(ys)))
    axes.set_xticks(xs, labels=[str(x) for x in xs])
    axes.minorticks_off()


def power(value: float) -> str:
    """A small number as it stands on a logarithmic axis."""
    digits, exponent = f"{value:.0e}".split("e")
    return f"$10^{{{int(exponent)}}}$" if digits == "1" else rf"${digits} \cdot 10^{{{int(exponent)}}}$"


def plural(noun: str, count: int) -> str:
    if count == 1:
        return noun
    return f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
