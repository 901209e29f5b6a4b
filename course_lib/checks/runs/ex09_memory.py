"""Caches that are made of numbers, for learners' tests to accept or to reject.

The one idea: a right cache and a broken one are the same class and the same code. What they do (where a token goes, how
many are read, which position it is told) is said by rules, and a rule is a list of whole numbers that was drawn
elsewhere. Nothing here knows a mistake, nor which caches have one; that shows in what a cache does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from types import CodeType
from typing import Any

import numpy as np

from course_lib.checks.beside import Went, called
from course_lib.checks.plain import Plain, what

Array = np.ndarray
LAYERS, ROWS, D = 3, 3, 4
STYLE = ("single", "fill", "fortran", "locked", "room", "listed", "left", "extra")  # what a right cache may choose
RULES = (
    "used", "tokens", "column", "to_layer", "to_row", "slot", "bits", "position", "grown",
    "columns", "from_part", "from_layer", "from_row", "token", "shown", "buffer", "released", "cut",
)  # fmt: skip
VARIABLES = (
    "part", "layer", "row", "i", "t", "n", "target", "count", "width", "length", "longest", "first", "highest", "ever",
    "passes", "reads", "releases", "cuts", "left", "extra", "room",
)  # fmt: skip
FORMS = ("({0} + {1})", "({0} - {1})", "({0} * {1})", "max({0}, {1})", "min({0}, {1})", "({0} < {1})", "({0} == {1})",
         "({1} if {0} else {2})")  # fmt: skip
CONSTANT, VARIABLE, FIRST_FORM = 0, 1, 2
FILLS = (0.0, np.nan, -1.5)  # what memory holds where no token was kept
EXACT = 53  # binary digits of a float64
CODE: dict[str, Any] = {"__builtins__": {"max": max, "min": min}}


class Rules:
    """Rules by name, each a list of numbers in Polish notation; made ready to be evaluated when it is first needed."""

    def __init__(self, numbers: Sequence[Sequence[int]]) -> None:
        self.numbers = dict(zip(RULES, numbers, strict=True))
        self.ready: dict[str, CodeType] = {}

    def says(self, name: str, known: dict[str, int]) -> int:
        if name not in self.ready:
            self.ready[name] = compile(spelt(iter(self.numbers[name])), "<rule>", "eval")
        return int(eval(self.ready[name], CODE, known))


def spelt(numbers: Iterator[int]) -> str:
    kind = next(numbers)
    if kind == CONSTANT:
        return f"({next(numbers)})"
    if kind == VARIABLE:
        return VARIABLES[next(numbers)]
    form = FORMS[kind - FIRST_FORM]
    return form.format(*[spelt(numbers) for _ in range(form.count("{"))])


class Memory:
    """What a cache keeps: vectors in slots, and a few counts for each row."""

    def __init__(self, style: dict[str, int], rules: Rules, rows: int = ROWS) -> None:
        self.style, self.says = style, rules.says
        self.slots: dict[tuple[int, ...], Array] = {}  # (part, layer, row, slot) -> [D]
        self.counts = [dict.fromkeys(("length", "highest", "ever", "releases", "cuts"), 0) for _ in range(rows)]
        self.passes = self.reads = 0
        self.lent: dict[tuple[int, ...], Array] = {}

    def known(self, row: int, **more: int) -> dict[str, int]:
        """What rules may ask about a row."""
        lengths = [counts["length"] for counts in self.counts]
        whole = {"longest": max(lengths), "first": lengths[0], "passes": self.passes, "reads": self.reads}
        return {**self.style, **self.counts[row], **whole, "row": row, **more}

    def write(self, given: Array, rows: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """Keep the first counts[b] tokens of rows[b], of `given` [2, L, rows, T, 4]; the positions of each row's.

        Raises ValueError, and keeps nothing, if they do not fit.
        """
        layers, width = given.shape[1], given.shape[3]
        asked = [self.known(row, count=count, width=width) for row, count in zip(rows, counts, strict=True)]
        for known in asked:
            used = self.says("used", known)
            if used + known["count"] > self.style["room"]:
                raise ValueError(f"row {known['row']} holds {used} tokens, there is no room for {known['count']} more")
        positions = []
        for b, known in enumerate(asked):
            tokens = range(self.says("tokens", known))
            positions.append([self.says("position", known | {"i": i}) for i in range(known["count"])])
            for part, layer, i in product(range(2), range(layers), tokens):
                here = known | {"part": part, "layer": layer, "i": i}
                place = (part, *(self.says(name, here) for name in ("to_layer", "to_row", "slot")))
                vector = given[part, layer, b, self.says("column", here)]
                self.slots[place] = rounded(vector, self.says("bits", here))
            counts_of = self.counts[known["row"]]
            counts_of["length"] = self.says("grown", known)
            counts_of["highest"] = max(counts_of["highest"], counts_of["length"])
            counts_of["ever"] += known["count"]
        self.passes += 1
        return positions

    def read(self, part: int, layer: int, row: int) -> Array:
        """Keys (part 0) or values (part 1) of a row, in its columns: [S, D]."""
        known = self.known(row, part=part, layer=layer)
        S = max(self.says("columns", known), 0)
        found = np.full((S, D), FILLS[self.style["fill"]])
        place = [self.says(name, known) for name in ("from_part", "from_layer", "from_row")]
        for j in range(S):
            known["t"] = j - self.style["left"] * (S - known["length"])  # the number of the token there
            slot = self.slots.get((*place, self.says("token", known)))
            if slot is not None:
                found[j] = slot
        return found

    def mask(self, row: int) -> Array:
        """In which columns of a row there are tokens: [S]."""
        known = self.known(row)
        S = self.says("columns", known)
        before = self.style["left"] * (S - known["length"])
        return np.array([self.says("shown", known | {"t": j - before}) for j in range(S)], dtype=bool)

    def lend(self, found: Array, part: int, layer: int, row: int) -> Array:
        """An array for whoever reads, in the manner of this cache."""
        place = (part, self.says("buffer", self.known(row, part=part, layer=layer)))
        held = self.lent.get(place)
        if held is None or len(held) < len(found):
            held = self.lent[place] = np.empty((max(len(found), 64), D), self.dtype, order=self.order)
        held[: len(found)] = found
        return self.locked(held[: len(found)])

    @property
    def dtype(self) -> Any:
        return np.float32 if self.style["single"] else np.float64

    @property
    def order(self) -> Any:
        return "F" if self.style["fortran"] else "C"

    def locked(self, array: Array) -> Array:
        """The array, which nobody may write into where this cache is of that manner."""
        view = array.view()
        view.flags.writeable = not self.style["locked"]
        return view

    def told(self, positions: list[int]) -> list[int] | Array:
        return positions if self.style["listed"] else np.array(positions, dtype=np.int64)

    def shorten(self, name: str, row: int, count: str, n: int = 0) -> None:
        """Release a row, or truncate it to n tokens: `name` is the rule, `count` what is counted."""
        lengths = [self.says(name, self.known(other, target=row, n=n)) for other in range(len(self.counts))]
        for counts, length in zip(self.counts, lengths, strict=True):
            counts["length"] = length
        self.counts[row][count] += 1


def rounded(vector: Array, bits: int) -> Array:
    """A copy of a vector with so many binary digits."""
    if bits >= EXACT:
        return vector.copy()
    part, power = np.frexp(vector)
    return np.ldexp(np.round(np.ldexp(part, bits)), power - bits)


def numbers_in(given: object, name: str, shape: str) -> Array:
    """What was handed to a cache, as an array of as many axes as `shape` names, for example "[3, n, 4]"."""
    array = np.array(given, dtype=np.float64)
    axes = shape.strip("[]").split(", ")
    if array.ndim != len(axes) or any(a.isdigit() and int(a) != n for a, n in zip(axes, array.shape)):
        raise ValueError(f"{name} should be of shape {shape}, not {list(array.shape)}")
    return array


def row_in(row: Any) -> int:
    if not 0 <= row < ROWS:
        raise ValueError(f"there is no row {row}: the rows are 0 to {ROWS - 1}")
    return int(row)


def maker(face: Callable[[Memory], object], numbers: Sequence[Sequence[int]], rows: int) -> Callable[[], object]:
    """A function that makes one more empty cache, of the kind that the numbers say."""
    style, rules = dict(zip(STYLE, numbers[0], strict=True)), Rules(numbers[1:])
    return lambda: face(Memory(style, rules, rows))


def tried(code: Callable[..., Any], make_cache: Callable[[], object]) -> dict[str, Plain]:
    """Whether a learner's test rejects a cache, by raising anything at all, and how."""
    try:
        came = called(code, make_cache)
    except Went as reason:
        if reason.data.get("type") == "NotImplementedError":
            raise
        return {"rejected": True, **reason.data}
    return {"rejected": False, "returned": "" if came is None else what(came)[:100]}
