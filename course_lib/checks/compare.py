"""What judges share whose cases are calls that stand for themselves: going through them, and comparing numbers.

The one idea: a judge says what is wrong with one answer; the way to a line for each case is the same for all. A wrong
answer is held against what each wrong belief would give, and a belief that explains one answer by chance is not told
if another answer of the case speaks against it. Nothing here knows a subject, and whatever came back may be forged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from course_lib.checks.contract import Line, Verdict, is_unsolved, part, why_it_ended
from course_lib.checks.plain import Plain, pack

Array = np.ndarray
NUMBERED = re.compile(r"\d+( \w+)?")  # "3 tokens", "1 token"


@dataclass(frozen=True)
class Wrong:
    """What is wrong with an answer: a sentence, and what stands beside it."""

    said: str
    expected: str = ""
    came: str = ""
    where: str = ""
    about: str = ""  # which part of the answer, where beliefs are about parts


class Case:
    """One case under judgement: the calls that were drawn, and the answers that came back. A check makes a class of
    its own from this one."""

    CALL = ""  # how the function is called, for messages
    IDLE: frozenset[str] = frozenset()  # cases in which a constant, or what was handed in, is right

    def __init__(self, name: str, calls: list[dict[str, Any]], answer: dict[str, Plain]) -> None:
        self.name, self.calls, self.answer = name, calls, answer

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with the answer to one call, if anything is."""
        raise NotImplementedError

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with the answer in the respect that the case `told_in` is about, whichever case it is from."""
        return None

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        """What there is to say to each wrong belief, and whether it would give this answer, or the part `about` of it.
        Of beliefs with the same sentence, one has to."""
        return iter(())

    def went_in(self, call: dict[str, Any]) -> str:
        """The inputs of a call in a few words, without giving them away."""
        raise NotImplementedError

    @cached_property
    def answers(self) -> list[dict[str, Plain]]:
        answers = self.answer.get("calls")
        return [part(answer) for answer in answers] if isinstance(answers, list) else []

    @cached_property
    def first_wrong(self) -> tuple[int, Wrong] | None:
        """The first call that went wrong by itself, and how."""
        for number, call in enumerate(self.calls):
            if number >= len(self.answers):
                return number, self.ended()
            if wrong := self.wrong(call, self.answers[number]):
                return number, wrong
        if self.answer.get("ended") is not None or len(self.answers) > len(self.calls):
            return len(self.calls) - 1, self.ended()
        return None

    def ended(self) -> Wrong:
        """Why answers are missing."""
        said, came = why_it_ended(part(self.answer, "ended"), self.CALL)
        return Wrong(said, came=came)

    def line(self, cases: Iterable[Case]) -> Line:
        """The line of this case among all `cases`: its own calls, then what it stands for in every case."""
        if self.first_wrong:
            number, first = self.first_wrong
            return self.failed(number, replace(first, said=self.explained(number, first.about) or first.said))
        for case in (self, *cases):
            for number, (call, answer) in enumerate(zip(case.calls, case.answers)):
                if wrong := case.also(self.name, call, answer):
                    line = case.failed(number, wrong)
                    where = f"in the case “{case.name}”" if case is not self else ""
                    return replace(line, case=self.name, where=", ".join(filter(None, (where, line.where))))
        return Line(self.name, True)

    def explained(self, first: int, about: str) -> str:
        """What there is to say to a belief that explains answer number `first`, if no other answer of the case speaks
        against it: it has to explain all that are wrong in the same part, and must not make a right one wrong."""
        pairs = list(zip(self.calls, self.answers))
        if first >= len(pairs) or self.wrong(*pairs[first]) is None:  # nothing came, or too much
            return ""
        found = {alike(said): said for said, fits in reversed([*self.explains(*pairs[first], about)]) if fits}
        for call, answer in pairs:
            if not found:
                break
            wrong, fitting = self.wrong(call, answer), {}  # type: Wrong | None, dict[str, bool]
            for said, fits in self.explains(call, answer, about):
                fitting[alike(said)] = fitting.get(alike(said), False) or fits
            needed = wrong is not None and wrong.about == about
            found = {kind: said for kind, said in found.items() if fitting.get(kind, not needed)}
        return next(reversed(found.values()), "")

    def failed(self, number: int, wrong: Wrong) -> Line:
        """The line of this case, which failed at call `number`."""
        several = f"call {number + 1} of {len(self.calls)}" if len(self.calls) > 1 else ""
        return Line(
            self.name,
            passed=False,
            said=wrong.said,
            went_in=self.went_in(self.calls[number]),
            expected=wrong.expected,
            came_out=wrong.came,
            where=", ".join(filter(None, (several, wrong.where))),
        )


def verdict(kind: type[Case], inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`, judged as `kind` says."""
    drawn: dict[str, list[dict[str, Any]]] = inputs["cases"]
    if is_unsolved(outputs, list(drawn)):
        return Verdict((), unsolved=True)
    cases = [kind(name, drawn[name], part(outputs, "cases", name)) for name in drawn]
    with np.errstate(all="ignore"):  # forged numbers may be of any size
        return beside_others([case.line(cases) for case in cases], kind.IDLE)


def beside_others(lines: Sequence[Line], idle: Collection[str]) -> Verdict:
    """A verdict in which the cases named in `idle` count only if another one is right: alone they would pay for doing
    nothing. Otherwise they tell what is wrong first with the others."""
    others = [line for line in lines if line.case not in idle]
    if any(line.passed for line in others):
        return Verdict(tuple(lines))
    where = ", ".join(filter(None, (f"in the case “{others[0].case}”", others[0].where)))
    return Verdict(tuple(replace(others[0], case=line.case, where=where) if line.passed else line for line in lines))


def alike(said: str) -> str:
    """What two sentences about the same belief have in common: all but the numbers."""
    return NUMBERED.sub("", said)


def unchanged(before: Plain, after: Plain) -> bool:
    """Whether data came back as it was given. As bytes: an array would answer a comparison with an array."""
    return pack(before) == pack(after)


def is_empty(data: Plain) -> bool:
    """Whether there is nothing in a list or an array, of whatever shape and dtype."""
    return data.size == 0 if isinstance(data, np.ndarray) else data == []


def as_array(data: Plain) -> Array | None:
    """Numbers, in an array or in lists of one length, as an array; None for anything else."""
    if not isinstance(data, np.ndarray | list):
        return None
    try:
        array = np.array(data)
    except ValueError:  # lists of different lengths
        return None
    return array if array.dtype.kind in "biuf" else None


def as_number(data: Plain) -> float | int | None:
    """A single number, alone or as an array of no or one axis; None for anything else, truth values included."""
    if isinstance(data, np.ndarray) and data.shape in ((), (1,)) and data.dtype.kind in "iuf":
        data = data.reshape(()).item()
    return data if type(data) is int or type(data) is float else None


def what_came(data: Plain) -> str:
    """What somebody returned instead of what was asked for, in a few words."""
    if data is None:
        return "None"
    if isinstance(data, np.ndarray):
        return f"an array of shape {list(data.shape)}"
    if isinstance(data, list):
        return f"a list of {len(data)}"
    kinds = {bool: "a truth value", str: "a text", dict: "a dictionary", int: "a whole number", float: "a number"}
    return kinds[type(data)]


def nearest(came: Array, expected: Array, beliefs: Iterable[tuple[str, Callable[[], Array]]], tolerance: float) -> str:
    """The sentence of the belief whose result lies nearest to `came`, the first of those that are the same here; empty
    if none lies within `tolerance`. A belief that makes no difference to what is expected explains nothing."""
    best, distance = "", tolerance
    for said, result in beliefs:
        given = result()
        if given.shape == came.shape and not (abs(given - expected) <= tolerance).all():
            apart = float(abs(given - came).max(initial=0))
            if apart <= distance and (not best or apart < distance - tolerance / 1000):
                best, distance = said, apart
    return best
