"""The figures of the notebooks: pure functions of data that return a picture.

The one idea: a figure measures nothing and remembers nothing, so a widget may call it again, an export may store it,
and a test may judge it. How things look is in `style.py`. Every figure carries a text that says what it shows (`alt`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import matplotlib.patches
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from course_lib.metrics import Timing
from course_lib.study.style import (
    BLUE,
    DECODE,
    FIXED,
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

MOST_TEXTS = 32  # more tokens than this and their texts would run into one another
BAR = 0.6  # height of a bar of time, in rows


@styled
def timeline(requests: Mapping[str, Timing], texts: Sequence[str] = ()) -> Picture:
    """When the tokens of one or more requests came: one row each, time in seconds from its arrival to the right.

    A row is a bar up to the first token (TTFT) and one bar for each gap after it (ITL). `texts`, one for each token,
    are written under the bars of a single request.
    """
    if texts and len(requests) > 1:
        raise ValueError(f"texts belong to one request, {len(requests)} are drawn: leave the texts out")
    alt = "Timeline."
    for name, timing in requests.items():
        alt += f" {name}: first token after {milliseconds(timing.ttft_s)}, "
        alt += f"last of {timing.new_tokens} after {milliseconds(timing.end_to_end_s)}."
    written = bool(texts) and len(texts) <= MOST_TEXTS
    figure, (axes,) = picture(0.9 + 0.62 * len(requests) + (0.9 if written else 0), alt=alt)
    for row, timing in enumerate(requests.values()):
        times = [time - timing.arrival_s for time in timing.token_times_s]
        label = None if row else "first token: prefill"
        axes.barh(row, times[0], height=BAR, label=label, **PREFILL)
        for count, (start, end) in enumerate(pairwise(times)):
            label = "each next token: one decode step" if row == count == 0 else None
            axes.barh(row, end - start, left=start, height=BAR, label=label, **DECODE)
    last = max(timing.end_to_end_s for timing in requests.values())
    axes.set(xlim=(0, 1.02 * last), xlabel="time since the request arrived (s)")
    axes.set_yticks(range(len(requests)), labels=list(requests))
    axes.set_ylim(len(requests) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside upper left", ncols=2)
    if written:
        write_tokens(axes, next(iter(requests.values())), texts)
    return figure


def write_tokens(axes: Axes, timing: Timing, texts: Sequence[str]) -> None:
    """The text of each token, upright below the moment at which it came; crowded ones move to the left, on a line."""
    moments = [time - timing.arrival_s for time in timing.token_times_s]
    least = 0.027 * timing.end_to_end_s  # the height of a letter, as time
    places = list(moments)
    for i in reversed(range(len(places) - 1)):
        places[i] = min(places[i], places[i + 1] - least)
    for text, moment, place in zip(texts, moments, places, strict=True):
        axes.plot([moment, place], [BAR / 2, 0.52], color=GREY, linewidth=0.7)
        shown = text.replace("$", r"\$").replace("\n", "↵").strip() or "␣"
        axes.text(place, 0.56, shown[:12], rotation=90, ha="center", va="top", fontsize=9)
    axes.set_ylim(2.25, -0.5)


@styled
def passes(prompt_tokens: int, new_tokens: int) -> Picture:
    """Which tokens each forward pass reads, and which it only looks at in the cache: one row a pass.

    A filled square is a token that the pass reads; a pale one lies in the cache; the ring is the new token that comes
    out, which no pass has read yet.
    """
    alt = (
        f"Grid of {new_tokens} passes. Pass 1 reads {prompt_tokens} prompt tokens at once; each later pass reads one "
        f"token and finds all earlier ones in the cache. The token that comes out of the last pass is never read."
    )
    positions = prompt_tokens + new_tokens
    figure, (axes,) = picture(1.15 + 0.36 * new_tokens, alt=alt)
    for row in range(new_tokens):
        held = 0 if row == 0 else prompt_tokens + row - 1
        read = prompt_tokens if row == 0 else 1
        for column in range(held + read):
            look = PREFILL if row == 0 else DECODE
            look = look if column >= held else {"facecolor": PALE, "edgecolor": "white"}
            axes.add_patch(matplotlib.patches.Rectangle((column - 0.45, row - 0.42), 0.9, 0.84, **look))
        axes.plot(held + read, row, marker="o", markersize=11, markerfacecolor="white", markeredgecolor=INK)
    axes.set(xlim=(-0.6, positions - 0.4), ylim=(new_tokens - 0.4, -0.6), xlabel="position in the text")
    axes.set_xticks(range(positions))
    names = ["pass 1: prefill", *(f"pass {row + 1}: decode" for row in range(1, new_tokens))]
    axes.set_yticks(range(new_tokens), labels=names)
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    kinds = {"read, with others": PREFILL, "read alone": DECODE, "in the cache": {"facecolor": PALE}}
    handles = [matplotlib.patches.Patch(label=label, **look) for label, look in kinds.items()]
    (ring,) = axes.plot([], [], "o", markersize=9, markerfacecolor="white", markeredgecolor=INK, label="comes out")
    figure.legend(handles=[*handles, ring], loc="outside upper left", ncols=4, columnspacing=1.2, handletextpad=0.5)
    return figure


@styled
def ttft_against_prompt(ttft_s: Mapping[int, float], fixed_s: float, per_token_s: float) -> Picture:
    """Measured TTFT (seconds) by prompt length (tokens), and the line fixed_s + tokens * per_token_s."""
    longest = max(ttft_s)
    points = ", ".join(f"{tokens} tokens {milliseconds(seconds)}" for tokens, seconds in ttft_s.items())
    alt = f"TTFT against prompt length: {points}. The line rises by {milliseconds(per_token_s)} a token."
    figure, (axes,) = picture(3.3, alt=alt)
    ends = [0, longest]
    axes.plot(ends, [fixed_s + tokens * per_token_s for tokens in ends], color=BLUE, linewidth=2, label="line fitted")
    axes.axhline(max(fixed_s, 0), color=GREY, linewidth=1, linestyle="--", label="the part that does not grow")
    axes.plot(list(ttft_s), list(ttft_s.values()), "o", color=INK, markersize=8, label="measured (shortest)", zorder=3)
    axes.set(xlabel="prompt length (tokens)", ylabel="TTFT (s)", xlim=(0, 1.04 * longest))
    axes.set_ylim(min(0, 1.1 * fixed_s), 1.12 * max(ttft_s.values()))
    axes.set_xticks([tokens for tokens in ttft_s if tokens >= longest / 32])
    figure.legend(loc="outside upper left", ncols=3)
    return figure


@styled
def step_time_against_position(step_s: Mapping[int, float], expected_s: Mapping[int, float]) -> Picture:
    """Measured time of a decode step (seconds) by position, and what the bytes it reads let expect."""
    points = ", ".join(f"position {position} {milliseconds(seconds)}" for position, seconds in step_s.items())
    figure, (axes,) = picture(3.1, alt=f"Time of one decode step: {points}.")
    in_ms = {"measured (shortest)": step_s, "in proportion to bytes read": expected_s}
    points_look: Any = {"marker": "o", "markersize": 8, "linestyle": "", "color": INK, "zorder": 3}
    looks: list[Any] = [points_look, {"color": ORANGE, "linewidth": 2}]
    for (label, times), look in zip(in_ms.items(), looks, strict=True):
        axes.plot(list(times), [1e3 * seconds for seconds in times.values()], label=label, **look)
    axes.set(xlabel="position of the token (tokens in the cache)", ylabel="one decode step (ms)")
    axes.set_ylim(0, 1.12e3 * max(*step_s.values(), *expected_s.values()))
    axes.set_xticks([position for position in step_s if position >= max(step_s) / 32])
    figure.legend(loc="outside upper left", ncols=2)
    return figure


@styled
def latency_composition(
    prompt_tokens: int,
    new_tokens: int,
    *,
    fixed_s: float,
    per_prompt_token_s: float,
    tpot_s: float,
    longest_s: float | None = None,
) -> Picture:
    """What the wait for an answer is made of, from a line through TTFT and one TPOT: TTFT, then N - 1 gaps.

    `longest_s` keeps the axis of time the same while the lengths change.
    """
    ttft_s = max(fixed_s, 0) + prompt_tokens * per_prompt_token_s
    decode_s = (new_tokens - 1) * tpot_s
    total_s = ttft_s + decode_s
    parts = {
        "fixed part of prefill": (max(fixed_s, 0), FIXED),
        f"{prompt_tokens} prompt tokens": (prompt_tokens * per_prompt_token_s, PREFILL),
        f"{new_tokens - 1} decode steps": (decode_s, DECODE),
    }
    share = 100 * ttft_s / total_s
    numbers = (
        f"TTFT {milliseconds(ttft_s)} ({share:.0f} % of the wait),  end to end {milliseconds(total_s)},  "
        f"{new_tokens / total_s:.3g} output tokens/s"
    )
    figure, (axes,) = picture(2.1, alt=f"Prompt tokens: {prompt_tokens}. New tokens: {new_tokens}. {numbers}.")
    left = 0.0
    for label, (seconds, look) in parts.items():
        axes.barh(0, seconds, left=left, height=BAR, label=label, **look)
        left += seconds
    axes.axvline(ttft_s, ymin=0.08, ymax=0.92, color=VERMILION, linewidth=2.5)
    axes.annotate("first token", (ttft_s, 0.46), color=INK, ha="left", va="top", fontsize=9.5, xytext=(3, 0),
                  textcoords="offset points")  # fmt: skip
    axes.set(xlim=(0, 1.01 * (longest_s or total_s)), ylim=(0.75, -0.45), yticks=[], title=numbers)
    axes.set_xlabel("time since the request arrived (s)")
    axes.xaxis.set_major_locator(MaxNLocator(8))
    axes.spines["left"].set_visible(False)
    figure.legend(loc="outside lower left", ncols=3)
    return figure
