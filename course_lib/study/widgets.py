"""Knobs above a figure. A widget is a view: it calls a pure drawing function again and shows what comes back.

The one idea: `explore(draw, …)` owns no numbers and computes none. The picture for the first position of the knobs is
also stored as an image, so an exported page shows it. Nothing here knows what is drawn. The page's side is in
`knobs.js`: native controls with names, usable from the keyboard; what is a good value is decided here.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from course_lib.study.page import page_side, show
from course_lib.study.style import SHOWN_DPI, Picture

HERE = Path(__file__).parent


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

    def read(self, value: object) -> int:
        """`value` as a whole number on a step. ValueError, in a sentence for the learner, for anything else."""
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"Write a number from {self.low} to {self.high}.")
        if not self.low <= value <= self.high:
            said = f"{value:g}" if abs(value) < 1e300 else "This"
            raise ValueError(f"{said} is outside the range: write a number from {self.low} to {self.high}.")
        below = self.low + int(value - self.low) // self.step * self.step
        if value != below:
            above = min(below + self.step, self.high)
            near = f"{below} or {above}" if above - below == self.step else f"{below}"
            steps = "Whole numbers only" if self.step == 1 else f"This goes in steps of {self.step}"
            raise ValueError(f"{value:g} is between two steps. {steps}: write {near}.")
        return below


@dataclass(frozen=True)
class Choice:
    """A knob with named positions, such as the names of number formats; it starts at `start`, or else at the first."""

    label: str
    options: Sequence[str]
    start: str = ""

    def __post_init__(self) -> None:
        if len(self.options) < 2 or len(set(self.options)) < len(self.options):
            raise ValueError(f"{self.label}: {list(self.options)} is no choice: name two or more different options")
        if not self.start:
            object.__setattr__(self, "start", self.options[0])
        self.read(self.start)

    def read(self, value: object) -> str:
        """`value` if it is an option; else ValueError with all of them."""
        if not isinstance(value, str) or value not in self.options:
            said = repr(value[:60]) if isinstance(value, str) else "This"
            raise ValueError(f"{said} is none of {', '.join(self.options)}.")
        return value


class Knobs(anywidget.AnyWidget):
    """The knobs and the picture on a page. `asked` comes from the page, `shown` goes to it."""

    _esm = page_side("knobs.js")
    _css = HERE / "controls.css"
    knobs: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)
    asked = traitlets.Dict().tag(sync=True)  # number: counts the questions; values: by name, None for what is no number
    shown = traitlets.Dict().tag(sync=True)  # number of the question; src, alt, width; problem, problems by name

    def set_state(self, sync_data: dict[str, Any]) -> None:
        """A page sets what it asks and nothing else; what is no question is not read."""
        if is_question(sync_data.get("asked")):
            super().set_state({"asked": sync_data["asked"]})


def explore(draw: Callable[..., Picture], **knobs: Knob | Choice) -> None:
    """Show draw(name=value, …) with one knob for each named argument; turning a knob draws again.

    A Knob is a number field and a slider, kept equal, a Choice a list; all have names and answer to the arrow keys.
    A value that cannot be gets a sentence beside its field, a ValueError of `draw` one above the picture, which stays.
    Controls keep the keys to themselves; Esc leads back to the cell, and Tab from the last one to the picture, where
    they are JupyterLab's again.
    """
    start = {name: knob.start for name, knob in knobs.items()}
    first = draw(**start)
    widget = Knobs(
        knobs=[{"name": name, **asdict(knob)} for name, knob in knobs.items()],
        asked={"number": 0, "values": start},
        shown=as_shown(0, first),
    )

    def redraw(change: dict[str, Any]) -> None:
        if not is_question(change["new"]):
            return
        number, given = change["new"]["number"], change["new"]["values"]
        values, problems = read_all(knobs, given)
        try:
            if problems:
                widget.shown = {**widget.shown, "number": number, "problem": "", "problems": problems}
            else:
                widget.shown = as_shown(number, draw(**values))
        except Exception as error:  # whatever the function raises, a learner gets a sentence and keeps the picture
            widget.shown = {**widget.shown, "number": number, "problem": sentence(error), "problems": {}}

    widget.observe(redraw, "asked")
    data, metadata = first._repr_mimebundle_()
    show(widget, data, metadata)


def is_question(asked: object) -> bool:
    """Whether a page asks for a picture: a dict with a number and a dict of values. They may be anything yet."""
    return isinstance(asked, dict) and isinstance(asked.get("number"), int) and isinstance(asked.get("values"), dict)


def read_all(knobs: dict[str, Knob | Choice], given: dict[str, object]) -> tuple[dict[str, int | str], dict[str, str]]:
    """The values that `given` holds for the knobs, and a sentence for each that cannot be."""
    values: dict[str, int | str] = {}
    problems: dict[str, str] = {}
    for name, knob in knobs.items():
        try:
            values[name] = knob.read(given.get(name))
        except ValueError as error:
            problems[name] = str(error)
    return values, problems


def sentence(error: Exception) -> str:
    """What to say of a drawing function that raised: a ValueError is meant for the reader, anything else is not."""
    said = str(error) or type(error).__name__
    return said if isinstance(error, ValueError) else f"This could not be drawn: {said}"


def as_shown(number: int, picture: Picture) -> dict[str, Any]:
    """The answer to question `number`: a picture, and no complaint."""
    source = f"data:image/png;base64,{base64.b64encode(picture.png()).decode()}"
    width = round(picture.get_figwidth() * SHOWN_DPI)
    return {"number": number, "src": source, "alt": picture.alt, "width": width, "problem": "", "problems": {}}
