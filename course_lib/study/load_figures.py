"""What a batch gives to all and takes from each: tokens per second of all rows, and the time between two of one row.

The one idea: both panels come from one number, the time of a decode step by the number of rows in it. All rows get a
token in that time, and each of them waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from matplotlib.ticker import MaxNLocator

from course_lib.study.cache_figures import LINES, plural
from course_lib.study.slot_figures import write_above
from course_lib.study.style import GREY, INK, Picture, milliseconds, picture, styled

PLAIN = [look | {"marker": "", "linewidth": 2.2} for look in LINES]  # there are too many points for marks


@styled
def batch_gain(step_s: Mapping[int, float], chosen: int) -> Picture:
    """Throughput and ITL against the rows that decode in a step; `step_s` gives the seconds of a step of so many rows.

    `chosen` is one of the numbers of rows, with its numbers above. The dotted line is a batch that costs no more than
    one row. ValueError for fewer than two numbers of rows, a number below 1, or a step that takes no time.
    """
    rows = sorted(step_s)
    if len(rows) < 2 or rows[0] < 1 or not all(isfinite(s) and s > 0 for s in step_s.values()):
        raise ValueError(f"steps of {rows} rows: draw two numbers of rows or more, at least 1, and times above 0")
    if chosen not in step_s:
        raise ValueError(f"{chosen} rows are not among {rows}")
    rate = {row: row / step_s[row] for row in rows}
    said = [
        f"{chosen} {plural('row', chosen)}: {rate[chosen]:,.0f} tokens/s for all,",
        f"{milliseconds(step_s[chosen])} between two tokens of one.",
    ]
    told = ", ".join(
        f"{row} {plural('row', row)} {rate[row]:,.0f} tokens/s and {milliseconds(step_s[row])}" for row in some(rows)
    )
    figure, (above, below) = picture(4.9, 2, sharex=True, alt=f"{' '.join(said)} Throughput and ITL by rows: {told}.")
    write_above(figure, [" ".join(said)])
    most, longest = 1.12 * max(rate.values()), max(step_s.values())
    unit, scale = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    above.plot(rows, [rate[row] for row in rows], **PLAIN[0], label="all rows together")
    least = rate[rows[0]] / rows[0]
    above.plot([0, rows[-1]], [0, least * rows[-1]], color=GREY, linestyle=":", label="if more rows took no more time")
    above.set(ylabel="tokens/s", ylim=(0, most))
    below.plot(rows, [scale * step_s[row] for row in rows], **PLAIN[1], label="ITL of each")
    below.set(xlabel="rows that decode in a step", ylabel=f"ITL ({unit})", xlim=(0, 1.02 * rows[-1]))
    below.set_ylim(0, 1.3 * scale * longest)
    for axes, value in ((above, rate[chosen]), (below, scale * step_s[chosen])):
        axes.yaxis.set_major_locator(MaxNLocator(4))  # as many before the layout as after it
        axes.axvline(chosen, color=INK, linewidth=1.5, zorder=1)
        axes.plot([chosen], [value], marker="o", markersize=9, markerfacecolor="white", markeredgecolor=INK, zorder=5)
    figure.legend(loc="outside lower left", ncols=3, columnspacing=1.2)
    return figure


def some(rows: list[int]) -> list[int]:
    """At most seven of them, the first and the last included."""
    return sorted({rows[round(i * (len(rows) - 1) / 6)] for i in range(7)})
