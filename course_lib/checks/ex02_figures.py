"""Figures for the judges of ex02: is a number the right one, and if not, which belief gives it?

The one idea: a figure has a name that says its unit, and there are few ways to get it wrong; each gives a number of its
own. So a wrong number is held against those, and against the right one in another unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_array, as_number, is_empty, what_came
from course_lib.checks.contract import part
from course_lib.checks.plain import Plain

Figure: TypeAlias = "float | list[float] | None"
Belief: TypeAlias = "tuple[str, Figure]"  # what there is to say, and the figure that it gives
NEAR = 1e-6
TOLERANCE = "a millionth of the number. Sums made in another order differ by far less, another formula by far more."
MOST_SHOWN = 8


def alike(expected: Figure, came: Figure) -> bool:
    """Whether two figures are the same up to rounding."""
    if expected is None or came is None:
        return expected is None and came is None
    if isinstance(expected, list) or isinstance(came, list):
        if not isinstance(expected, list) or not isinstance(came, list):
            return False
        return len(expected) == len(came) and all(map(alike, expected, came))
    return abs(expected - came) <= NEAR * max(abs(expected), 1e-3)


def figure_of(data: Plain, is_list: bool) -> tuple[Figure, bool]:
    """A figure that came back, and whether it is one: a number, or a list of numbers where `is_list`, or None."""
    if data is None:
        return None, True
    if not is_list:
        number = as_number(data)
        return (None, False) if number is None else (float(number), True)
    if is_empty(data):
        return [], True
    array = as_array(data)
    if array is None or array.ndim != 1 or array.dtype.kind == "b":
        return None, False
    return array.astype(np.float64).tolist(), True


def unlike(name: str, expected: Figure, data: Plain, beliefs: Iterable[Belief], otherwise: str) -> Wrong | None:
    """What is wrong with `data` as the figure `name`, if anything is; `otherwise` is said where no belief fits."""
    came, is_figure = figure_of(data, isinstance(expected, list))
    if not is_figure:
        kind = "a list of numbers" if isinstance(expected, list) else "one number"
        return Wrong(f"{name} should be {kind}.", shown(expected), what_came(data))
    if alike(expected, came):
        return None
    if isinstance(came, float) and came != came:
        return Wrong("This is a NaN (no number). What is not defined is None.", shown(expected), "nan")
    said = next((said for said, figure in beliefs if alike(figure, came)), "")
    return Wrong(said or in_another_unit(name, expected, came) or otherwise, shown(expected), shown(came))


class FiguresCase(Case):
    """One case under judgement whose answers are dictionaries of figures. A check says which of them a case judges,
    what each means, and how logs are read: what comes of that gives each figure by its name."""

    JUDGED: ClassVar[dict[str, tuple[str, ...]]]
    MEANING: ClassVar[dict[str, str]]

    def read(self, call: dict[str, Any]) -> Any:
        raise NotImplementedError

    def beliefs(self, name: str, log: Any) -> Iterable[Belief]:
        raise NotImplementedError

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        figures = answer.get("figures")
        if figures is None:
            return Wrong(f"{self.CALL.partition('(')[0]} returned None. Did you forget `return`?", came="None")
        if not isinstance(figures, dict):
            return Wrong("The figures should come back in a dictionary, by name.", came=what_came(figures))
        log = self.read(call)
        for name in self.JUDGED[self.name]:
            if name not in figures:
                there = ", ".join(str(key)[:30] for key in list(figures)[:8]) or "nothing"
                return Wrong(f"There is no “{name}” in the dictionary.", came=there)
            otherwise = f"This is not what {name} means: {self.MEANING[name]}."
            if wrong := unlike(name, log.figure(name), figures[name], (), otherwise):
                return replace(wrong, where=name, about=name)
        return None

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        log, figures = self.read(call), part(answer, "figures")
        if about:
            came, is_figure = figure_of(figures.get(about), isinstance(log.figure(about), list))
            for said, figure in self.beliefs(about, log):
                if figure is not None or came is None:  # otherwise this belief has nothing to say here
                    yield said, is_figure and alike(figure, came)


def in_another_unit(name: str, expected: Figure, came: Figure) -> str:
    """A sentence about a figure that is right but for its unit; empty if it is wrong otherwise."""
    if expected is None or came is None:
        return ""
    pair = np.array(expected, dtype=np.float64), np.array(came, dtype=np.float64)
    if pair[0].shape != pair[1].shape or not pair[0].size:
        return ""
    right, given = pair[0].tolist(), pair[1].tolist()
    per_second = "_per_s" in name
    if alike((pair[0] * 1000).tolist(), given) and not per_second:
        return "This is in milliseconds. A name that ends with _s promises seconds."
    if alike((pair[0] / 1000).tolist(), given) and per_second:
        return "This is per millisecond. A name that ends with _per_s promises seconds."
    if isinstance(right, float) and right and alike(1 / right, given):
        return "This is turned round: " + ("tokens per second are asked." if per_second else "seconds are asked.")
    return ""


def shown(figure: Figure) -> str:
    """A figure as one would write it: "0.25", "[0.25, 0.5]", "None"."""
    if isinstance(figure, list):
        parts = [f"{each:.6g}" for each in figure[:MOST_SHOWN]] + ["…"] * (len(figure) > MOST_SHOWN)
        return f"[{', '.join(parts)}]"
    return "None" if figure is None else f"{figure:.6g}"


def mean(values: list[float]) -> float | None:
    """None if there is none."""
    return sum(values) / len(values) if values else None


def rate(count: float, seconds: float) -> float | None:
    """None over no time."""
    return count / seconds if seconds > 0 else None
