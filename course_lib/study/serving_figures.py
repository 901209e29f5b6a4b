"""Figures of serving: who did what when, how long the queue was, and how waits and throughput change with the load.

The one idea: all are drawn from the records that a run leaves behind, so a simulation and a real engine give the same
pictures. States differ in hatch and height as well as in colour; where the server can do no more is marked in every
panel, since throughput alone does not show it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf, nan
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from course_lib.serving.load_metrics import (
    OverTime,
    Percentiles,
    Summary,
    in_system_over_time,
    summary,
    waiting_over_time,
    window,
)
from course_lib.serving.record import Log
from course_lib.serving.timeline import Span, State, timeline
from course_lib.study.cache_figures import LINES
from course_lib.study.slot_figures import plain, write_above
from course_lib.study.style import (
    DECODE,
    GREEN,
    GREY,
    INK,
    PALE,
    PREFILL,
    VERMILION,
    Picture,
    milliseconds,
    picture,
    styled,
)

MOST_ROWS = 24
FINE = 0.004  # of the width of a picture: steps that are mostly shorter are drawn as one
KEPT_UP = 0.9  # of the requests that come in a second have to finish in one, or the server does not keep up
LOOKS: dict[State, tuple[float, dict[str, Any]]] = {  # height and look of each state
    "waiting": (0.2, {"facecolor": "#bbbbbb", "edgecolor": "none"}),
    "prefill": (0.7, PREFILL | {"linewidth": 0.5}),  # the edge is between steps
    "decode": (0.7, DECODE | {"linewidth": 0.5}),
    "paused": (0.7, {"facecolor": "white", "edgecolor": GREY, "hatch": "...", "linewidth": 0.8}),
    "preempted": (0.34, {"facecolor": "white", "edgecolor": VERMILION, "hatch": "xxx", "linewidth": 0.8}),
}
ENDS: dict[str, dict[str, Any]] = {
    "cancelled": {"marker": "x", "color": INK, "markeredgewidth": 2},
    "refused": {"marker": "D", "color": VERMILION},
}


@styled
def states(log: Log, now_s: float | None = None, names: Sequence[str] | None = None) -> Picture:
    """One row for each request, in the order in which they came: when it waited, read its prompt, decoded, was put off.

    White lines are the ends of steps, unless there are too many to be seen. `now_s` is a moment to look at: a line, and
    above the picture how many do what. `names` chooses the requests to draw. ValueError for a name or a moment that is
    not there, or for more rows than can be read.
    """
    begin, end = window(log)
    known = [record.name for record in log.requests]
    drawn = known if names is None else [name for name in known if name in set(names)]
    if missing := set(names or ()).difference(known):
        raise ValueError(f"there is no request {min(missing)!r} in this run: it has {', '.join(known[:5])} …")
    if not 1 <= len(drawn) <= MOST_ROWS:
        raise ValueError(f"{len(drawn)} requests: draw 1 to {MOST_ROWS}, chosen with `names`")
    if now_s is not None and not begin <= now_s <= end:
        raise ValueError(f"{now_s} s is not in this run: it goes from {begin:.3g} s to {end:.3g} s")
    spans, edges = timeline(log), [step.begin_s for step in log.steps]
    figure, (axes,) = picture(1.35 + 0.27 * len(drawn), alt="States of requests.")
    lengths = [length for name in drawn for span in spans.get(name, []) for _, length in steps_of(span, edges)]
    if lengths and median(lengths) < FINE * (end - begin):
        edges = []
    for row, name in enumerate(drawn):
        for span in spans.get(name, []):
            height, look = LOOKS[span.state]
            bars = steps_of(span, edges) or [(span.begin_s, span.end_s - span.begin_s)]
            axes.broken_barh(bars, (row - height / 2, height), **look)
        record = log[name]
        if record.outcome in ENDS and record.ended_s is not None:
            axes.plot([record.ended_s], [row], linestyle="none", markersize=7, zorder=4, **ENDS[record.outcome])
        told = [f"{span.state} {milliseconds(span.end_s - span.begin_s)}" for span in spans.get(name, [])]
        figure.alt += f" {name}: {', '.join([*told, record.outcome or 'still under way'])}."
    axes.set(xlim=(begin, end + 0.01 * (end - begin or 1)), ylim=(len(drawn) - 0.4, -0.6), xlabel="time (s)")
    axes.set_yticks(range(len(drawn)), labels=[plain(name) for name in drawn])
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    if now_s is not None:
        axes.axvline(now_s, color=INK, linewidth=1.5)
        axes.set_title(told_moment(spans, now_s))
        figure.alt = f"{told_moment(spans, now_s)} {figure.alt}"
    seen = {span.state for name in drawn for span in spans.get(name, [])}
    ends = {log[name].outcome for name in drawn}
    known_looks: list[Patch | Line2D] = [Patch(label=state, **LOOKS[state][1]) for state in LOOKS if state in seen]
    known_looks += [Line2D([], [], linestyle="none", label=end, **ENDS[end]) for end in ENDS if end in ends]
    figure.legend(handles=known_looks, loc="outside lower left", ncols=4, columnspacing=1.4)
    return figure


def steps_of(span: Span, edges: Sequence[float]) -> list[tuple[float, float]]:
    """The steps of a span in which a request read, as (begin, length); none of another. `edges`: when steps begin."""
    if span.state not in ("prefill", "decode"):
        return []
    inside = edges[bisect_right(edges, span.begin_s) : bisect_left(edges, span.end_s)]
    return [(begin, end - begin) for begin, end in pairwise([span.begin_s, *inside, span.end_s])]


def told_moment(spans: Mapping[str, Sequence[Span]], now_s: float) -> str:
    """How many are in which state at a moment; a state that begins with it has begun."""
    number = Counter(span.state for row in spans.values() for span in row if span.begin_s <= now_s < span.end_s)
    said = ", ".join(f"{number[state]} {state}" for state in LOOKS if number[state])
    return f"At {milliseconds(now_s)}: {said or 'nobody is here'}."


@styled
def queue_and_cache(log: Log) -> Picture:
    """How many requests there are and how many of them wait for memory, over time; below, how full the cache is.

    ValueError for a run without steps, since these say how full it was.
    """
    if not log.steps:
        raise ValueError("no steps were recorded: nobody knows how full the cache was")
    run, (begin, end) = summary(log), window(log)
    there = in_system_over_time(log)
    said = [
        told_over_time("Waiting", run.waiting, 1, ""),
        told_over_time("Cache", run.blocks_used_share, 100, " % full"),
    ]
    figure, (above, below) = picture(4.7, 2, sharex=True, alt=f"Queue and cache over time. {' '.join(said)}")
    write_above(figure, said)
    looks: list[dict[str, Any]] = [{"facecolor": "white", "edgecolor": INK}, LOOKS["waiting"][1]]
    for series, label, look in zip((there, waiting_over_time(log)), ("all that are there", "waiting"), looks):
        changes, counted = zip(*series)
        above.fill_between([*changes, end], [*counted, counted[-1]], step="post", label=label, **look)
    times, shares = [], []
    for step in log.steps:
        somebody = there[bisect_right(there, (step.end_s, inf)) - 1][1]
        share = 100 * step.blocks_used / step.blocks_total
        times += [step.begin_s, step.end_s]
        shares += [share, share if somebody else 0]
    below.fill_between(times, shares, step="post", facecolor=GREEN)
    above.set(ylabel="requests", ylim=(0, None))
    figure.legend(loc="outside lower left", ncols=2)
    below.set(
        xlabel="time (s)", ylabel="blocks held (%)", ylim=(0, 105), xlim=(begin, end if end > begin else begin + 1)
    )
    return figure


def told_over_time(what: str, number: OverTime | None, factor: float, unit: str) -> str:
    if number is None or number.mean is None:
        return f"{what}: no time passed."
    return f"{what}: {factor * number.mean:.3g}{unit} on average, {factor * number.most:.3g}{unit} at most."


@styled
def sweep(runs: Mapping[float, Summary], chosen: float | None = None) -> Picture:
    """What requests wait for and what gets done, at each arrival rate (requests/s) of a sweep; rates ascend.

    If less than `KEPT_UP` of what came at the highest rate finished in time, a line marks the most that ever finished
    in a second, and what lies beyond it is grey: whatever comes faster than that can only queue. `chosen` is one of the
    rates, with its numbers above. ValueError for fewer than two rates, or a run that cannot be drawn.
    """
    rates = list(runs)
    if len(rates) < 2 or rates != sorted(rates) or rates[0] <= 0:
        raise ValueError(f"rates of {rates}: draw at least two, above 0, the smallest first")
    if chosen is not None and chosen not in runs:
        raise ValueError(f"{chosen} requests/s is not among the rates {rates}")
    for rate, run in runs.items():
        if run.finished_per_s is None or not (run.ttft_s.p50 and run.ttft_s.p50 > 0):
            raise ValueError(f"at {rate} requests/s nobody waited or no time passed: it has no place in the figure")
    most = max(run.finished_per_s or 0 for run in runs.values())
    could = [(run.offered_per_s or 0) * (1 - run.refused / run.arrived) for run in runs.values()]
    saturated = most < KEPT_UP * max(could)
    said = f"No more than {most:.3g} requests/s finished, however fast they came (dashed line)."
    above = [said if saturated else "All that were let in were kept up with, at every rate of this sweep."]
    if chosen is not None:
        above += told_run(chosen, runs[chosen])
    told = " ".join(line for rate, run in runs.items() for line in told_run(rate, run))
    figure, (ttft, tpot, done) = picture(7.4, 3, sharex=True, alt=f"{' '.join(above)} Load sweep. {told}")
    write_above(figure, above)
    draw_waits(ttft, rates, [run.ttft_s for run in runs.values()])
    ttft.set_yscale("log")
    ttft.set(ylabel="TTFT (s)")
    draw_waits(tpot, rates, [run.tpot_over_requests_s for run in runs.values()])
    tpot.set(ylabel="TPOT (s)")
    tpot.set_ylim(bottom=0)
    done.plot(
        rates, numbers(run.offered_per_s for run in runs.values()), color=GREY, linestyle=":", label="all that come"
    )
    done.plot(rates, numbers(run.finished_per_s for run in runs.values()), **LINES[0], label="finished")
    if any(run.targets is not None for run in runs.values()):
        done.plot(rates, numbers(run.goodput_per_s for run in runs.values()), **LINES[1], label="goodput")
    end = 1.02 * rates[-1]
    done.set(xlabel="arrival rate (requests/s)", ylabel="requests/s", xlim=(0, end), ylim=(0, 1.6 * most))
    for axes in (ttft, tpot, done):
        if saturated:
            axes.axvspan(most, end, color=PALE, zorder=0)
            axes.axvline(most, color=VERMILION, linestyle="--", linewidth=1.4)
        if chosen is not None:
            axes.axvline(chosen, color=INK, linewidth=1.5)
        axes.legend(loc="upper left")
    return figure


def draw_waits(axes: Axes, rates: Sequence[float], figures: Sequence[Percentiles]) -> None:
    """The median and the 99th percentile at each rate; nothing where there is none."""
    axes.plot(rates, numbers(each.p50 for each in figures), **LINES[0], label="p50")
    axes.plot(rates, numbers(each.p99 for each in figures), **LINES[1], label="p99")


def numbers(values: Iterable[float | None]) -> list[float]:
    """What matplotlib draws: it leaves a gap for nan."""
    return [nan if value is None else value for value in values]


def told_run(rate: float, run: Summary) -> tuple[str, str]:
    """What was done at a rate and how long it took, in a sentence each."""
    good = "" if run.goodput_per_s is None else f", {run.goodput_per_s:.3g} of them within the targets"
    lost = run.arrived - run.finished
    never = f" {lost} of {run.arrived} never did." if lost else ""
    ttft, tpot = (
        " / ".join("–" if value is None else milliseconds(value) for value in (each.p50, each.p99))
        for each in (run.ttft_s, run.tpot_over_requests_s)
    )
    done = f"At {rate:g} requests/s, {run.finished_per_s or 0:.3g} finished in a second{good}.{never}"
    return done, f"TTFT {ttft}, TPOT {tpot} (p50 / p99)."
