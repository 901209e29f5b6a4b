"""The figure about rounding: what right ways to compute logits make in each dtype, what is allowed, and what bugs make.

The one idea: rounding shrinks with the precision and a bug does not. So both are drawn over the dtypes, from the
coarsest to the finest, against the tolerance of each. The figure draws what it is given and measures nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch

from course_lib.noise import Noise
from course_lib.study.cache_figures import LEGEND, LINES
from course_lib.study.style import VERMILION, Picture, picture, styled

WRONG = (LINES[1], LINES[3], LINES[4])  # how the lines of up to three bugs look


@styled
def by_dtype(right: Sequence[Noise], wrong: Sequence[Noise] = ()) -> Picture:
    """The differences of right ways in each dtype as marks, the tolerance as a dash, and a line for each wrong way.

    Differences of 0 lie on the lower edge. ValueError for no marks, too many lines, or what is not a number.
    """
    dtypes = sorted({each.dtype for each in right}, key=lambda dtype: -torch.finfo(dtype).eps)
    names = list(dict.fromkeys(each.way for each in wrong))
    if not right or len(names) > len(WRONG):
        raise ValueError(f"{len(right)} differences, {len(names)} wrong ways: draw one or more, and 0 to {len(WRONG)}")
    for each in (*right, *wrong):
        if not isfinite(each.difference) or each.dtype not in dtypes:
            raise ValueError(f"{each.way}, {each.dtype}: {each.difference} has no place in the figure")
    place = {dtype: number for number, dtype in enumerate(dtypes)}
    floor = torch.finfo(dtypes[-1]).eps / 4
    said = []
    figure, (axes,) = picture(4.2, alt="")
    for number, dtype in enumerate(dtypes):
        there = [each for each in right if each.dtype == dtype]
        allowed, largest = max(each.allowed for each in there), max(each.difference for each in there)
        label = "allowed" if number == 0 else "_"  # one entry in the legend
        axes.plot([number - 0.3, number + 0.3], [allowed, allowed], color=VERMILION, linewidth=2.5, label=label)
        said.append(f"{str(dtype).removeprefix('torch.')}: up to {largest:.1e}, allowed {allowed:.1e}")
    xs, ys = [place[each.dtype] for each in right], [max(each.difference, floor) for each in right]
    axes.plot(xs, ys, **(LINES[0] | {"linestyle": "none"}), markersize=6, label="right ways")
    for name, look in zip(names, WRONG):
        line = sorted((place[each.dtype], max(each.difference, floor)) for each in wrong if each.way == name)
        axes.plot(*zip(*line), **look, markersize=7, label=name)
        said.append(f"{name}: {', '.join(f'{much:.1e}' for _, much in line)}")
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor / 2)
    axes.set_xticks(range(len(dtypes)), [str(dtype).removeprefix("torch.") for dtype in dtypes])
    axes.set(xlim=(-0.5, len(dtypes) - 0.5), ylabel="largest difference,\nas a share of the largest logit")
    axes.grid(axis="y", color="#dddddd")
    figure.legend(ncols=3, **LEGEND)
    figure.alt = f"Differences of logits by dtype. {'; '.join(said)}."
    return figure
