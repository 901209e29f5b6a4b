"""Predict first: the learner commits to a number, and later sees it beside the measured one.

The one idea: nothing ever waits. `predict` shows a field and returns; `compare` shows what is there, and if the
learner writes a prediction afterwards the comparison follows. Where no page answers (an export, a test, `course run`)
a common first guess stands in, so the notebook reads whole. What is written is kept by `course_lib.progress`, so it is
there again after a restart. The page's side is in `predictions.js`; what counts as a number is decided here.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from course_lib.progress.store import NotSaved, store
from course_lib.study.page import page_side, show, show_renewable

HERE = Path(__file__).parent
LARGEST = 1e300
HEDGED = r"^[^\d\s.+-][^\d]*\d|\d[^\d.,]*[^\d\s.,][^\d.,]*\d"  # “about 5”, “~50”, “50-60”, “5 or 6”
HOW_TO_LEAVE = "Esc leaves the field."


@dataclass(frozen=True)
class Question:
    """What is asked under a name, the first guess that many people have, and the unit and bounds of the answer."""

    text: str
    default: float
    unit: str
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if not self.admits(self.default):
            raise ValueError(f"the default {self.default:g} of “{self.text}” is not allowed: {self.bounds()}")

    def admits(self, value: float) -> bool:
        return (self.low is None or self.low <= value) and (self.high is None or value <= self.high)

    def bounds(self) -> str:
        """What may be answered, as one would ask for it."""
        if self.high is None:
            return "" if self.low is None else f"{plain(self.low)} or more, please."
        if self.low is None:
            return f"At most {plain(self.high)}, please."
        return f"Between {plain(self.low)} and {plain(self.high)}, please."

    def read(self, text: str) -> float:
        """The number in what somebody typed. ValueError, in words for the learner, if it is no answer."""
        value = number(text, self.unit)
        if not self.admits(value):
            raise ValueError(self.bounds())
        return value

    @property
    def version(self) -> str:
        """Changes when the question does."""
        return hashlib.sha256(f"{self.text}\n{self.unit}".encode()).hexdigest()[:8]


asked: dict[str, Question] = {}
followers: dict[str, Callable[[], None]] = {}  # for each name, what brings its comparison up to date
on_page: set[str] = set()  # whose field somebody can write into
unsaved: dict[str, float] = {}  # what could not be written to disk counts until the kernel ends


class Field(anywidget.AnyWidget):
    """The field on a page. `entered` comes from the page, `reply` goes to it."""

    _esm = page_side("predictions.js")
    _css = HERE / "controls.css"
    question = traitlets.Unicode().tag(sync=True)
    unit = traitlets.Unicode().tag(sync=True)
    text = traitlets.Unicode().tag(sync=True)
    on_page = traitlets.Bool(False).tag(sync=True)  # set by the page
    entered = traitlets.Dict({"number": 0, "text": ""}).tag(sync=True)  # number: counts what was entered
    reply = traitlets.Dict({"number": 0, "said": "", "wrong": False}).tag(sync=True)  # number: of what it answers


def predict(
    name: str,
    question: str,
    *,
    default: float,
    unit: str = "",
    low: float | None = None,
    high: float | None = None,
) -> None:
    """Ask for a number under `name`: a labelled field that takes Enter or Tab.

    `default` is a common first guess, preferably a wrong one with a reason; it is not shown in the field, and stands
    in where nothing was written. What cannot be, such as a share below 0 or above 100, is kept out by `low` and `high`;
    both belong to what is allowed. A text field keeps every key to itself but Esc, which leads back to the cell; and
    once a number was noted, Enter moves on to the sentence that says so. There the keys are JupyterLab's again, and Tab
    leads to the next field. Raises ValueError if `default` is not allowed.
    """
    asked[name] = Question(question, default, unit, low, high)
    before = written(name)
    said = ([] if before is None else [noted(before, unit)]) + store().notices()
    field = Field(
        question=question,
        unit=unit,
        text="" if before is None else f"{before:.15g}",
        reply={"number": 0, "said": " ".join(said), "wrong": False},
    )

    def read(change: dict[str, Any]) -> None:
        field.text, wrong = change["new"]["text"], False
        try:
            said = note(name, asked[name].read(field.text))
        except ValueError as error:
            said, wrong = str(error), True
            if (earlier := written(name)) is not None:
                said += f" Until then {with_unit(earlier, unit)} counts."
            said += f" {HOW_TO_LEAVE}"
        field.reply = {"number": change["new"]["number"], "said": said, "wrong": wrong}
        if name in followers:
            followers[name]()

    def stands(_: object) -> None:
        on_page.add(name)
        if name in followers:
            followers[name]()

    field.observe(read, "entered")
    field.observe(stands, "on_page")
    fallback = f"<p><strong>{html.escape(question)}</strong><br>Your prediction: ________ {html.escape(unit)}</p>"
    show(field, {"text/html": fallback, "text/plain": question})


def note(name: str, value: float) -> str:
    """Keep `value` as the prediction under `name`; what to say of it. The same number again is no new prediction."""
    question = asked[name]
    if name in unsaved or written(name) != value:
        try:
            store().record("prediction", name, {"value": value, "unit": question.unit}, question.version)
            unsaved.pop(name, None)
        except NotSaved as error:
            unsaved[name] = value
            return f"{noted(value, question.unit)} It counts until the kernel is restarted, but was not saved: {error}"
    return noted(value, question.unit)


def written(name: str) -> float | None:
    """What the learner last predicted under `name`, in this session or an earlier one.

    None if nothing, or nothing in its unit and between its bounds.
    """
    if name in unsaved:
        return unsaved[name]
    for event in reversed(store().events("prediction", name)):
        value = float(event.data["value"])
        if event.data.get("unit", "") == asked[name].unit and asked[name].admits(value):
            return value
    return None


def noted(value: float, unit: str) -> str:
    return f"Noted: {with_unit(value, unit)}."


def compare(name: str, measured: float, *, label: str = "Measured") -> None:
    """Show the prediction made under `name` beside `measured`. Raises KeyError if nobody asked.

    It is text on the page, not a widget, so it can still be read when the kernel is gone.
    """
    if name not in asked:
        raise KeyError(f"there is no prediction {name!r}: run the cell with predict({name!r}, …) first")

    def now() -> dict[str, str]:
        question, value = asked[name], written(name)
        page = side_by_side(question, value, measured, label)
        if value is None and name in on_page:
            page += "<div>Write your own into the field above, and this follows.</div>"
        said = f"{whose(value)}: {with_unit(question.default if value is None else value, question.unit)}. "
        return {"text/html": page, "text/plain": f"{said}{label}: {with_unit(measured, question.unit)}."}

    renew = show_renewable(now())
    followers[name] = lambda: renew(now())


def side_by_side(question: Question, given: float | None, measured: float, label: str) -> str:
    """The two numbers and how far they are apart, as HTML.

    Where nothing was written the common guess stands in, and nothing is said about a prediction that nobody made.
    """
    predicted = question.default if given is None else given
    cell = '<div><div style="font-size: 90%">{}</div><div style="font-size: 150%; line-height: 1.5">{}</div></div>'
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: 0 3em">'
        + cell.format(whose(given), html.escape(with_unit(predicted, question.unit)))
        + cell.format(html.escape(label), html.escape(with_unit(measured, question.unit)))
        + ("</div>" if given is None else f"</div><div>{apart(predicted, measured)}</div>")
    )


def whose(given: float | None) -> str:
    return "A common first guess" if given is None else "Your prediction"


def apart(predicted: float, measured: float) -> str:
    """How far a prediction lies from what was measured, in a few words."""
    if predicted == measured:
        return "Exactly."
    ratio = predicted / measured if measured else 0.0
    if ratio <= 0 or (0.5 < ratio < 2 and float(predicted).is_integer() and float(measured).is_integer()):
        return f"Off by {plain(abs(measured - predicted))}."
    factor = max(ratio, 1 / ratio)
    return "Less than a tenth off." if factor < 1.1 else f"Off by a factor of {plain(factor)}."


def number(text: str, unit: str = "") -> float:
    """The number in what somebody typed, with or without its unit. ValueError, in words for the learner, if none."""
    bare = text.strip().removesuffix(unit).strip().replace("\N{MINUS SIGN}", "-")
    if not bare:
        raise ValueError("Write a number, then press Enter.")
    if re.fullmatch(r"[+-]?\d+,\d+", bare):
        raise ValueError("Is that comma a decimal point? Write 1.5 or 1000.")
    try:
        value = float(bare)
    except ValueError:
        if re.search(HEDGED, bare[:100]):
            raise ValueError("Write one number, your best guess.") from None
        raise ValueError(f"“{text.strip()[:30]}” is not a number. Write one such as 12 or 1.5.") from None
    if not abs(value) < LARGEST:
        raise ValueError("Write a finite number.")
    return value


def with_unit(value: float, unit: str) -> str:
    if value == 1 and unit.isalpha() and unit.endswith("s") and len(unit) > 1:
        unit = unit.removesuffix("es") if unit.endswith("sses") else unit.removesuffix("s")
    return f"{plain(value)} {unit}".strip()


def plain(value: float) -> str:
    """A number as one would say it: whole numbers in full, measured ones to three digits."""
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    short = f"{value:.4g}"  # somebody wrote 12.76 on purpose
    return short if float(short) == value else f"{value:.3g}"
