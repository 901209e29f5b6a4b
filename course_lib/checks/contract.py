"""What a check of an exercise promises: three parts, `draw`, `run` and `judge`, and one line for each named case.

The one idea: the judge reads plain data and nothing else. `draw(seed)` makes the inputs, `run(code, inputs)` calls the
learner's function beside it and writes down what came back, `judge(inputs, outputs)` compares that with a reference of
its own. In a notebook all three run in the kernel; a grader keeps the first and the last to itself and sends only
`run` into a sandbox. So a judge takes any outputs at all, forged ones included, and never calls what a learner wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol
from unicodedata import category

import numpy as np

from course_lib.checks.plain import Plain, pack, unpack

WAITS = "This does not count until the first failed case is mended."  # said of many cases at a time
MOST_SHOWN = 8  # numbers of one vector in a message
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  # names and texts in some scripts need them


@dataclass(frozen=True)
class Line:
    """What the judge says about one case. `said` is a sentence; the others are empty where there is nothing to say.

    `where` is the first place at which expected and found part: call, layer, head, token.
    """

    case: str
    passed: bool
    said: str = ""
    went_in: str = ""
    expected: str = ""
    came_out: str = ""
    where: str = ""


def details(line: Line) -> list[tuple[str, str]]:
    """What there is to say about a failed case, by name."""
    named = (("Went in", line.went_in), ("Expected", line.expected), ("Came out", line.came_out), ("Where", line.where))
    return [(label, said) for label, said in named if said]


@dataclass(frozen=True)
class Verdict:
    """All lines of a check, in the order of its cases; `unsolved` says that there was nothing to judge yet."""

    lines: tuple[Line, ...]
    unsolved: bool = False

    @property
    def passed(self) -> bool:
        return bool(self.lines) and not self.unsolved and all(line.passed for line in self.lines)

    @property
    def share(self) -> float:
        """The share of the lines that passed; 0 for an empty starter."""
        return 0.0 if self.unsolved or not self.lines else sum(line.passed for line in self.lines) / len(self.lines)

    def earned(self, points: float) -> float:
        """What of `points` this verdict earns: its share of them, rounded down to halves."""
        if self.unsolved or not self.lines:
            return 0.0
        return 2 * points * sum(line.passed for line in self.lines) // len(self.lines) / 2


class Check(Protocol):
    """A module such as `ex03_append`: the three parts, and what to say about them."""

    FUNCTION: str  # the name under which the learner's function is looked up
    CALL: str  # how it is called, for messages: "append(cache, layer, k, v)"
    TOLERANCE: str  # how numbers are compared, and why so
    NOT_CHECKED: str  # what a pass says nothing about

    def draw(self, seed: int) -> dict[str, Any]: ...

    def run(self, code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]: ...

    def judge(self, inputs: dict[str, Any], outputs: Plain) -> Verdict: ...


def answer(check: Check, code: Callable[..., Any], seed: int) -> Verdict:
    """The verdict on `code`, with all three parts in this process. What passes between them passes through bytes,
    exactly as it does into a sandbox and out of it."""
    inputs = check.draw(seed)
    outputs = unpack(pack(check.run(code, part(unpack(pack(inputs))))))
    return check.judge(inputs, outputs)


def part(data: Plain, *keys: str) -> dict[str, Plain]:
    """The dictionary found in `data` under `keys`, one after the other; an empty one if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def words(data: Plain, longest: int = 400) -> str:
    """A string out of an answer, for a message: printable and short. Anything else gives an empty one."""
    if not isinstance(data, str):
        return ""
    text = printable(data[:longest])
    return text if len(data) <= longest and len(text) <= longest else f"{text[: longest - 1]}…"


def printable(text: str) -> str:
    """`text` in lines, without control characters and without those that turn the direction of other text."""
    lines = "\n".join(text.expandtabs(4).splitlines())
    return "".join(letter if is_text(letter) else "\N{REPLACEMENT CHARACTER}" for letter in lines)


def is_text(letter: str) -> bool:
    """Whether a character commands nothing: letters and signs, the end of a line, any space, and the joiners."""
    return letter.isprintable() or letter == "\n" or letter in JOINERS or category(letter) == "Zs"


def is_unsolved(outputs: Plain, cases: list[str]) -> bool:
    """Whether the starter is still empty: it says so, or raises NotImplementedError in every case."""
    ends = [part(outputs, "cases", case, "ended") for case in cases]
    return part(outputs).get("starter") is True or all(
        words(end.get("kind")) == "raised" and words(end.get("type")) == "NotImplementedError" for end in ends
    )


def why_it_ended(ended: dict[str, Plain], call: str) -> tuple[str, str]:
    """Why a case ended early, as (sentence, what came out). `call` is how the function is called."""
    function = call.partition("(")[0]
    kind, came = words(ended.get("kind")), words(ended.get("came"))
    if kind == "none":
        return f"{function} returned None. Did you forget `return`?", "None"
    if kind == "no pair":
        return f"{function} should return two things, ({words(ended.get('names')).replace(' and ', ', ')}).", came
    if kind == "not plain":
        return f"What came back as {words(ended.get('which'))} cannot be compared.", came
    if kind == "raised":
        name, message = words(ended.get("type")), words(ended.get("message"))
        said = f"Your code raised an error{in_line(ended)}."
        if name == "TypeError" and not in_line(ended) and "argument" in message:
            said = f"{function} could not be called. The check calls {call}."
        return said, f"{name}: {message}" if message else name
    return "No answer to this case came back.", "nothing"


def in_line(place: dict[str, Plain]) -> str:
    """ " in line 3: `return keys`", as far as it is known."""
    line, text, function = place.get("line"), words(place.get("text"), 120), words(place.get("function"), 60)
    if type(line) is not int:
        return ""
    return f" in line {line}" + (f" of {function}" if function else "") + (f": `{text}`" if text else "")


def first_difference(expected: np.ndarray, came: np.ndarray, order: tuple[int, ...]) -> tuple[int, ...] | None:
    """The index of the first entry that is not equal, walking the axes in `order` (slowest first); None if all are.

    Both arrays have one shape. NaN is equal to nothing.
    """
    apart = (expected != came).transpose(order).nonzero()  # for each axis, the places in the order of the walk
    if not len(apart[0]):
        return None
    index = [0] * expected.ndim
    for axis, places in zip(order, apart, strict=True):
        index[axis] = int(places[0])
    return tuple(index)


def numbers(entries: np.ndarray) -> str:
    """A few numbers as one would write them: [-317, 45]. Digits enough to tell two neighbours apart."""
    shown = [str(int(x)) if float(x).is_integer() and abs(float(x)) < 1e15 else str(x) for x in entries[:MOST_SHOWN]]
    shown += ["…"] * (len(entries) > MOST_SHOWN)
    return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
