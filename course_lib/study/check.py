"""`check` judges what a learner wrote, `hint` helps one step at a time.

The one idea: both answer at once, in place, and go on. A wrong solution gets one line for each named case, an empty one
a calm sentence, an endless one ends with an interrupt. What is judged and how lives in `course_lib.checks`; here it is
run, shown and recorded. It is no grader: in a notebook learners could change the judge, and would fool only themselves.
"""

from __future__ import annotations

import hashlib
import html
import re
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

from IPython import get_ipython
from IPython.display import display

from course_lib.checks import BadExercise, UnknownCheck, check_named, exercise
from course_lib.checks.beside import place
from course_lib.checks.contract import WAITS, Check, Line, Verdict, answer, details, in_line
from course_lib.checks.plain import NotPlain, what
from course_lib.checks.ruled_out import COURSE, home, reached
from course_lib.progress import NotSaved, notebook_of, store
from course_lib.progress.event import Event, new_event
from course_lib.progress.faults import Fault
from course_lib.progress.store import visible
from course_lib.progress.summary import finish_if_complete

PATIENCE_S = 10.0  # of a check: most take far less than a second
unsaved_hints: dict[Path, list[Event]] = {}  # hints that could not be recorded, by the folder where they should be


@dataclass(frozen=True)
class Shown:
    """Something to read, as text and as HTML; shows itself as the value of a cell."""

    text: str
    html: str

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": self.text, "text/html": self.html}

    def __repr__(self) -> str:
        return self.text


def check(name: str, function: Callable[..., Any] | None = None) -> None:
    """Judge the learner's solution of exercise `name` and show one line for each case.

    The function is looked up in the notebook under the name that the exercise gives it, unless `function` is handed
    over. The result is recorded, except for an empty starter. Nothing is raised: what is wrong is said.
    """
    display(checked(name, function))


def checked(name: str, function: Callable[..., Any] | None = None) -> Shown:
    """What `check` shows."""
    return outcome(name, function)[0]


def outcome(
    name: str, function: Callable[..., Any] | None = None, seed: int | None = None, record: bool = True
) -> tuple[Shown, Verdict]:
    """What `check` shows, and the verdict: one without lines where nothing was judged.

    The inputs are drawn from `seed`, by default from one that nobody knows. An answer that needs what the exercise
    rules out is judged and shown, but its verdict is empty, too.
    """
    nothing = Verdict(())
    try:
        judge = check_named(name)
    except UnknownCheck as error:
        return sentences(str(error)), nothing
    if function is None and judge.FUNCTION not in namespace():
        return sentences(
            f"There is no `{judge.FUNCTION}` here yet. Run the cell that defines it, then this one again; "
            f"or hand your own over, after the name “{name}”."
        ), nothing
    code = namespace()[judge.FUNCTION] if function is None else function
    if not callable(code):
        kind = "class" if judge.FUNCTION[0].isupper() else "function"
        said = f"`{judge.FUNCTION}` is {what(code)}, not a {kind}. Run the cell that defines it again."
        return sentences(said), nothing
    try:
        with told_how_to_stop(judge.FUNCTION):
            verdict = answer(judge, code, secrets.randbits(32) if seed is None else seed)
    except KeyboardInterrupt as error:
        return sentences(
            f"Stopped{in_line(place(error.__traceback__))}. Nothing was judged or recorded.",
            "If you stopped it because it went on for ever, look at the condition that ends your loop.",
        ), nothing
    except NotPlain as error:
        return sentences(f"What your code returned is too much to compare: {error}."), nothing
    if verdict.unsolved:
        return sentences(
            f"Not solved yet: `{judge.FUNCTION}` is still the starter. Write its body, run its cell, "
            f'then this one again. Stuck? `hint("{name}")` gives a hint.'
        ), verdict
    notes = recorded(name, judge, verdict) if record else []
    if borrowed := not_ones_own(name, code):
        return report(name, judge, verdict, [*notes, borrowed]), Verdict(())
    return report(name, judge, verdict, notes), verdict


@contextmanager
def told_how_to_stop(function: str) -> Iterator[None]:
    """Say how to interrupt, once something has taken longer than a learner can tell from for ever."""
    said = f"{function} is still running. To stop it: menu Kernel, Interrupt; or press Escape, then I twice."
    timer = Timer(PATIENCE_S, print, [said])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def not_ones_own(name: str, code: Callable[..., Any]) -> str:
    """Why an answer earns nothing, whatever it does: a sentence, empty if nothing of that kind is known."""
    try:
        rules = exercise(name).rules_out
    except BadExercise:
        rules = ()
    whose = home(code)
    if whose.partition(".")[0] == COURSE.name:
        said = f"This is the course's own, from {whose}. An answer has to be written in the notebook"
    elif found := reached(code, rules):
        said = f"Your answer needs {' and '.join(found)}, which this exercise rules out"
    else:
        return ""
    return f"{said}: when it is graded it earns nothing."


def namespace() -> dict[str, Any]:
    """The names that the learner has defined: those of the notebook, or of the program where there is none."""
    shell = get_ipython()
    return vars(sys.modules["__main__"]) if shell is None else shell.user_ns


def recorded(name: str, judge: Check, verdict: Verdict) -> list[str]:
    """Record the result; what there is to say about that, in sentences."""
    cases = {line.case: line.passed for line in verdict.lines}
    version = hashlib.sha256("\n".join((judge.CALL, *cases)).encode()).hexdigest()[:8]
    try:
        store().record("check", name, {"passed": verdict.passed, "cases": cases}, version=version)
        finish_if_complete(notebook_of(name))
    except NotSaved as error:
        return [f"This result is not saved. {error}", *store().notices()]
    return store().notices()


def report(name: str, judge: Check, verdict: Verdict, notes: list[str]) -> Shown:
    """A verdict as text and as HTML. Words carry the meaning; the colour at the side only repeats it."""
    failed = sum(not line.passed for line in verdict.lines)
    passed = len(verdict.lines) - failed
    cases = f"{passed} case{'s' * (passed != 1)}"
    head = f"{name}: {cases} passed." if not failed else f"{name}: {failed} of {len(verdict.lines)} cases failed."
    shown = [line for line in verdict.lines if line.said != WAITS]
    waiting = len(verdict.lines) - len(shown)
    after = [f"The other {waiting} do not count until this is mended."] * (waiting > 0)
    after += [f"Tolerance: {judge.TOLERANCE}", f"Not checked: {judge.NOT_CHECKED}.", *notes]
    text = [head, *map(as_text, shown), *after]
    first = next((line for line in shown if not line.passed), None)
    items = "".join(as_html(line, unfolded=line is first) for line in shown)
    page = (
        f'<p role="status" style="margin: 0 0 .5em"><strong>{html.escape(head)}</strong></p>'
        f'<ul style="list-style: none; margin: 0 0 .5em; padding: 0">{items}</ul>'
        + "".join(f'<p style="margin: 0">{html.escape(note)}</p>' for note in after)
    )
    return Shown("\n".join(text), boxed(page, passed=not failed))


def as_text(line: Line) -> str:
    if line.passed:
        return f"  passed  {line.case}"
    rows = [f"          {label + ':':<10}{said}" for label, said in details(line)]
    return "\n".join([f"  FAILED  {line.case}", f"          {line.said}", *rows])


def as_html(line: Line, unfolded: bool) -> str:
    """One item of the list. Of the failed cases the first is unfolded: the others often have the same cause."""
    if line.passed:
        return f'<li style="margin: .15em 0"><span aria-hidden="true">✓ </span>passed: {html.escape(line.case)}</li>'
    rows = "".join(
        f'<p style="margin: .1em 0; overflow-wrap: anywhere"><strong>{label}:</strong> {html.escape(said)}</p>'
        for label, said in details(line)
    )
    return (
        f'<li style="margin: .3em 0"><details{" open" * unfolded}><summary style="cursor: pointer">'
        f'<span aria-hidden="true">✗ </span><strong>failed: {html.escape(line.case)}</strong></summary>'
        f'<div style="margin: .2em 0 .4em 1.2em">'
        f'<p style="margin: 0">{marked(line.said)}</p>{rows}</div></details></li>'
    )


def boxed(page: str, passed: bool | None = None) -> str:
    """`page` beside a bar: green, red, or grey where nothing passed or failed."""
    colour = {
        True: "var(--jp-success-color1, #2e7d32)",
        False: "var(--jp-error-color1, #c62828)",
        None: "var(--jp-border-color1, #8a8a8a)",
    }[passed]
    return f'<div style="border-left: 4px solid {colour}; padding-left: .8em; line-height: 1.5">{page}</div>'


def sentences(*said: str) -> Shown:
    """One paragraph for each text, spoken by a screen reader."""
    page = "".join(f'<p style="margin: 0">{marked(text)}</p>' for text in said)
    return Shown("\n".join(said), boxed(f'<div role="status">{page}</div>'))


def marked(text: str) -> str:
    """`code` and *emphasis* as HTML; everything else as it is."""
    parts = re.split(r"`([^`]+)`", text)
    return "".join(
        f"<code>{html.escape(part)}</code>"
        if number % 2
        else re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", html.escape(part))
        for number, part in enumerate(parts)
    )


def hint(name: str) -> None:
    """Show the next of the three hints of exercise `name`; after the third, where the worked solution is.

    How many were given is recorded, so that it goes on where one was after a restart.
    """
    display(hinted(name))


def hinted(name: str) -> Shown:
    """What `hint` shows."""
    try:
        asked = exercise(name)
    except (UnknownCheck, BadExercise) as error:
        return sentences(str(error))
    number = hints_given(name) + 1
    if number > len(asked.hints):
        return sentences(
            f"You have had all {len(asked.hints)} hints for {name}.",
            f"The worked solution is {asked.solution}. Read it, close it, and write your own.",
        )
    notes = []
    try:
        store().record("hint", name, {"number": number})
    except NotSaved as error:
        unsaved_hints.setdefault(store().folder, []).append(new_event("hint", name, {"number": number}))
        notes = [f"That you had this hint is not saved. {error}"]
    return sentences(f"Hint {number} of {len(asked.hints)}. {asked.hints[number - 1]}", *notes, *store().notices())


def hints_given(name: str) -> int:
    """The latest hint of an exercise that was given, recorded or not, and that no reset has hidden since."""
    try:
        past = store().history()
    except Fault:  # said with the hint, which cannot be saved either
        past = []
    past = sorted([*past, *unsaved_hints.get(store().folder, [])], key=lambda event: event.order)
    given = [event.data.get("number") for event in visible(past) if (event.kind, event.name) == ("hint", name)]
    return max((number for number in given if type(number) is int), default=0)
