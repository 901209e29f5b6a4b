"""Predict first: the learner commits to a number, and later sees it beside the measured one.

The one idea: nothing ever waits. `predict` shows a field and returns; `compare` shows what is there, and if the
learner writes a prediction afterwards the comparison follows. Where no page answers (an export, a test, `course run`)
a common first guess stands in, so the notebook reads whole. What is written lives in `store`, any mapping from names
to numbers: now a dictionary that ends with the kernel, and whoever keeps answers for longer puts another in its place.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from math import isfinite

import ipywidgets

from course_lib.study.page import show

store: MutableMapping[str, float] = {}


@dataclass(frozen=True)
class Question:
    """What is asked under a name, the first guess that many people have, and the unit of the answer."""

    text: str
    default: float
    unit: str


asked: dict[str, Question] = {}
followers: dict[str, Callable[[], None]] = {}  # for each name, what brings its comparison up to date

# The question is the label of the field. Stock labels are one short line beside it; this one wraps and stands above.
FIELD_STYLE = """<style>
.course-prediction .widget-text { flex-flow: column; align-items: flex-start; height: auto; width: auto; }
.course-prediction .widget-label { white-space: normal; width: auto; text-align: left; height: auto; line-height: 1.5;
  font-weight: 600; }
.course-prediction .widget-text input { width: 11em; flex: none; margin-top: 4px; }
</style>"""


def predict(name: str, question: str, *, default: float, unit: str = "") -> None:
    """Ask for a number under `name`: a labelled field that takes Enter or Tab.

    `default` is a common first guess, preferably a wrong one with a reason; it is not shown in the field, and stands
    in where nothing was written. A text field keeps every key to itself, so once a number was noted, Enter moves on to
    the button beside it. There the keys are JupyterLab's again, and Tab leads to the next field.
    """
    asked[name] = Question(question, default, unit)
    hint = f"in {unit}" if unit.isalpha() or unit == "%" else "a number"
    field = ipywidgets.Text(
        value=f"{store[name]:g}" if name in store else "",
        description=question,
        placeholder=hint,
        continuous_update=False,
        style={"description_width": "initial"},
    )
    reply = ipywidgets.HTML(noted(store[name], unit) if name in store else "")
    # Enter does the same, so the button is no stop of Tab. It is where the focus goes when a number has been entered.
    button = ipywidgets.Button(description="Note it", tabbable=False, layout={"width": "auto"})
    entered = False

    def leave(_: object, message: dict[str, object], __: object) -> None:
        nonlocal entered
        if message.get("event") == "submit":  # Enter; what was typed, if it is new, arrives after this message
            entered = True
            button.focus()

    def read(change: dict[str, str]) -> None:
        nonlocal entered
        try:
            store[name] = number(change["new"], unit)
            reply.value = noted(store[name], unit)
        except ValueError as error:
            store.pop(name, None)
            reply.value = status(str(error))
            if entered:
                field.focus()  # back, to mend it
        entered = False
        if name in followers:
            followers[name]()

    field.observe(read, "value")
    field.on_msg(leave)
    button.on_click(lambda _: read({"new": field.value}))
    row = ipywidgets.HBox([field, button], layout={"flex_flow": "row wrap", "align_items": "flex-end"})
    box = ipywidgets.VBox([ipywidgets.HTML(FIELD_STYLE), row, reply])
    box.add_class("course-prediction")
    fallback = f"<p><strong>{html.escape(question)}</strong><br>Your prediction: ________ {html.escape(unit)}</p>"
    show(box, {"text/html": fallback, "text/plain": question})


def noted(value: float, unit: str) -> str:
    return status(f"Noted: {with_unit(value, unit)}.")


def status(said: str) -> str:
    """A sentence that a screen reader speaks when it changes."""
    return f'<span role="status">{html.escape(said)}</span>'


def compare(name: str, measured: float, *, label: str = "Measured") -> None:
    """Show the prediction made under `name` beside `measured`. Raises KeyError if nobody asked."""
    if name not in asked:
        raise KeyError(f"there is no prediction {name!r}: run the cell with predict({name!r}, …) first")
    shown = ipywidgets.HTML()

    def follow() -> None:
        shown.value = side_by_side(asked[name], store.get(name), measured, label)
        if name not in store:
            shown.value += "<div>Write your own into the field above, and this follows.</div>"

    follow()
    followers[name] = follow
    question, written = asked[name], store.get(name)
    stored = f"{whose(written)}: {with_unit(question.default if written is None else written, question.unit)}. "
    stored += f"{label}: {with_unit(measured, question.unit)}."
    show(shown, {"text/html": side_by_side(question, written, measured, label), "text/plain": stored})


def side_by_side(question: Question, written: float | None, measured: float, label: str) -> str:
    """The two numbers and how far they are apart, as HTML.

    Where nothing was written the common guess stands in, and nothing is said about a prediction that nobody made.
    """
    predicted = question.default if written is None else written
    cell = '<div><div style="font-size: 90%">{}</div><div style="font-size: 150%; line-height: 1.5">{}</div></div>'
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: 0 3em">'
        + cell.format(whose(written), html.escape(with_unit(predicted, question.unit)))
        + cell.format(html.escape(label), html.escape(with_unit(measured, question.unit)))
        + ("</div>" if written is None else f"</div><div>{apart(predicted, measured)}</div>")
    )


def whose(written: float | None) -> str:
    return "A common first guess" if written is None else "Your prediction"


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
        raise ValueError(f"“{text.strip()[:30]}” is not a number. Write one such as 12 or 1.5.") from None
    if not isfinite(value):
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
