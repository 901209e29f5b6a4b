"""Knobs under a figure. A widget is a view: it calls a pure drawing function again and shows what comes back.

The one idea: `explore(draw, …)` owns no numbers and computes none. The picture for the first position of the knobs is
also stored as an image, so an exported page shows it. Nothing here knows what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ipywidgets

from course_lib.study.page import show
from course_lib.study.style import Picture

STYLE = """<style>
.course-knob .widget-label { white-space: normal; width: 13em; text-align: left; height: auto; line-height: 1.4; }
</style>"""


@dataclass(frozen=True)
class Knob:
    """A whole number that the learner turns: what it is called (with its unit), its range, and where it starts."""

    label: str
    low: int
    high: int
    start: int
    step: int = 1

    def __post_init__(self) -> None:
        if not self.low <= self.start <= self.high:
            raise ValueError(f"{self.label}: the start {self.start} lies outside {self.low} to {self.high}")
        if self.step < 1:
            raise ValueError(f"{self.label}: a step of {self.step} never gets anywhere")


def explore(draw: Callable[..., Picture], **knobs: Knob) -> None:
    """Show draw(name=value, …) with one knob for each named argument; moving a knob draws again.

    Each knob is a number field with the label and a slider, kept equal; both work with the arrow keys. The
    picture is redrawn when a change is complete, not at every pixel of a drag. Fields and sliders keep the keys to
    themselves; Tab leads from the last one to the picture, where they are JupyterLab's again.
    """
    first = draw(**{name: knob.start for name, knob in knobs.items()})
    image = ipywidgets.HTML(reachable(first))
    rows, sliders = [ipywidgets.HTML(STYLE)], {}
    for name, knob in knobs.items():
        ends = {"min": knob.low, "max": knob.high, "step": knob.step, "value": knob.start}
        slider = ipywidgets.IntSlider(**ends, continuous_update=False, readout=False, tooltip=knob.label)
        # A slider's handle has no name for a screen reader; the field beside it has, and does the same.
        field = ipywidgets.BoundedIntText(
            **ends, description=knob.label, style={"description_width": "13em"}, layout={"width": "20em"}
        )
        ipywidgets.link((slider, "value"), (field, "value"))
        row = ipywidgets.HBox([field, slider], layout={"flex_flow": "row wrap"})
        row.add_class("course-knob")
        rows.append(row)
        sliders[name] = slider

    def redraw(_: object) -> None:
        image.value = reachable(draw(**{name: slider.value for name, slider in sliders.items()}))

    for slider in sliders.values():
        slider.observe(redraw, "value")
    data, metadata = first._repr_mimebundle_()
    show(ipywidgets.VBox([*rows, image]), data, metadata)


def reachable(picture: Picture) -> str:
    """The picture as HTML that Tab stops at."""
    return f'<div tabindex="0">{picture.html()}</div>'
