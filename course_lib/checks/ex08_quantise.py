"""The check of ex08.quantise: the learner's `quantise(x, bits, group, axis)` rounds numbers to a few marks a group.

The one idea: numbers are drawn from their marks outward, so none lies in the middle between two of them and there is
one right code for each, whatever rounds it. Groups on both sides of 0, far from it, short and constant ones part the
wrong scales from the right. The reference goes from group to group and from number to number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_array, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict, numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex08_quantise import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "quantise", "quantise(x, bits, group, axis)"
NEAR = 1e-5
TOLERANCE = (
    "a hundred-thousandth of low and step (and a millionth of the largest number, or 0.000001 if that is less), which "
    "float32 keeps easily. A step of 0 is 0, and codes have to be equal: no number lies near the middle between two "
    "marks."
)
NOT_CHECKED = "numbers that are NaN or infinite, speed, dtypes other than float32"
ONE, SEVERAL, CHANNEL = "one group a token", "several groups a token", "groups of one channel"
BITS, SHORT, EQUAL = "8, 4, 3 and 2 bits", "a last group that is smaller", "groups of equal numbers"
FAR, INPUTS = "numbers far from 0", "x stays as it was"
SCALES = {(EQUAL, 3): 0.02, (EQUAL, 4): 3e-4}  # calls with small numbers: nearly equal is not equal
SMALL = 0.5  # more than these, and less than the largest number of any other call
# Each case: (T, D, bits, group, axis) for one call after the other.
CASES: dict[str, tuple[tuple[int, int, int, int, int], ...]] = {
    ONE: ((1, 8, 4, 8, 1), (3, 10, 3, 10, 1)),
    SEVERAL: ((3, 24, 4, 8, 1), (2, 32, 3, 16, 1)),
    CHANNEL: ((16, 5, 4, 8, 0), (18, 4, 3, 6, 0)),
    BITS: tuple((2, 16, bits, 8, 1) for bits in (8, 4, 3, 2)),
    SHORT: ((3, 20, 4, 8, 1), (11, 4, 3, 8, 0), (2, 5, 4, 8, 1)),
    EQUAL: ((4, 16, 4, 8, 1), (16, 3, 3, 8, 0), (3, 9, 4, 8, 1), (4, 16, 8, 8, 1), (4, 16, 4, 8, 1)),
    FAR: ((2, 16, 4, 8, 1), (3, 16, 3, 8, 1)),
    INPUTS: ((3, 16, 4, 8, 1),),
}
Parts = tuple[Array, ...]  # codes [T, D], then low and step [T, groups] or [groups, D]
Rule = Callable[[Array, int], tuple[Array, float, float]]  # numbers of a group, largest code → codes, low, step
PARTS = ("codes", "low", "step")


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"x" [T, D], "bits", "group", "axis"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, shapes in CASES.items():
        cases[name] = []
        for number, (T, D, bits, group, axis) in enumerate(shapes):
            scale = SCALES.get((name, number), 1.0)
            far = {SHORT: 12.0, FAR: (60.0, -60.0)[number % 2]}.get(name, 0.0)  # a 0 put behind a short group shows
            rows, length = (T, D) if axis else (D, T)
            x: Array = np.empty((rows, length))
            for row in range(rows):
                for place, start in enumerate(range(0, length, group)):
                    stop = min(start + group, length)
                    equal = name == EQUAL and ((row + place) % 2 == 0 or stop - start == 1)
                    drawn = np.full(stop - start, rng.normal()) if equal else group_of(rng, stop - start, bits)
                    x[row, start:stop] = far + drawn * (not (equal and row == rows - 1))  # the last one is 0
            x = (x if axis else x.T).astype(np.float32) * np.float32(scale)
            cases[name].append({"x": np.ascontiguousarray(x), "bits": bits, "group": group, "axis": axis})
    return {"cases": cases}


def group_of(rng: np.random.Generator, count: int, bits: int) -> Array:
    """Numbers of a group: the lowest and the highest mark, two nearly half-way between marks, on either side, and
    others up to 0.4 of a step beside a mark."""
    most = 2**bits - 1
    step = rng.uniform(2.0, 5.0) / most
    low = -step * most * rng.uniform(0.2, 0.4)  # so 0 lies inside, and not in the middle
    codes = rng.integers(1, most, count, endpoint=False)
    aside = rng.uniform(0.15, 0.4, count) * np.where(np.arange(count) % 2, 1, -1)
    aside[2:4] *= 0.48 / abs(aside[2:4])
    codes[:2], aside[:2] = (0, most), 0
    found = low + (codes + aside) * step
    return np.asarray(rng.permutation(found))


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the codes and scales in `outputs` the right ones?"""
    return verdict(QuantiseCase, inputs, outputs)


def group_by_group(call: dict[str, Any], rule: Rule) -> Parts:
    """All three parts, by a rule for one group."""
    x, group, axis = call["x"].astype(np.float64), call["group"], call["axis"]
    rows = x if axis else x.T
    most, starts = 2 ** call["bits"] - 1, range(0, rows.shape[1], group)
    codes, low, step = np.zeros(rows.shape), *(np.zeros((len(rows), len(starts))) for _ in range(2))
    for row in range(len(rows)):
        for place, start in enumerate(starts):
            here = slice(start, start + group)
            codes[row, here], low[row, place], step[row, place] = rule(rows[row, here], most)
    return (codes, low, step) if axis else (codes.T, low.T, step.T)


def nearest_marks(group: Array, most: int) -> tuple[Array, float, float]:
    """The rule itself: each number's distance to every mark, and the code of the nearest."""
    low, high = float(min(group)), float(max(group))
    marks = np.array([low + code * (high - low) / most for code in range(most + 1)])
    codes = [int(abs(number - marks).argmin()) for number in group]
    return np.array(codes), low, (high - low) / most


class QuantiseCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return f"x of shape {list(call['x'].shape)}, " + ", ".join(
            f"{k} = {call[k]}" for k in ("bits", "group", "axis")
        )

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        data = answer.get("came")
        if data is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        if not isinstance(data, list) or len(data) != 3:
            return Wrong(f"{FUNCTION} should return three things, (codes, low, step).", came=what_came(data))
        expected = group_by_group(call, nearest_marks)
        for name, part, right in zip(PARTS, data, expected):
            array = as_array(part)
            if array is None or array.dtype.kind == "b":
                return Wrong(f"{name} should be a tensor or an array of numbers.", came=what_came(part))
            if array.shape != right.shape:
                said = other_shape(name, call, array.shape)
                return Wrong(said, f"{name} of shape {list(right.shape)}", f"shape {list(array.shape)}")
        came, least = as_parts(data), smallest(call)
        unequal = [~near(mine, right, least) for mine, right in zip(came, expected)]
        unequal[2] |= (expected[2] == 0) & (came[2] != 0)
        if not any(part.any() for part in unequal):
            return None
        which = next(which for which in (1, 2, 0) if unequal[which].any())  # scales first: the codes follow from them
        at = tuple(int(i) for i in np.argwhere(unequal[which])[0])
        return Wrong(
            otherwise(call, PARTS[which], came, expected, at),
            f"{PARTS[which]} {shown(expected[which][at])}",
            f"{PARTS[which]} {shown(came[which][at])}",
            place(call["axis"], which, at),
        )

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came, least = as_parts(answer.get("came")), smallest(call)
        for said, parts in beliefs(call):
            pairs = [*zip(parts, came)]
            yield said, len(came) == 3 and all(a.shape == b.shape and near(a, b, least).all() for a, b in pairs)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["x"], answer.get("x")):
            return None
        return Wrong("The call changed x. Make something new of it instead.")


def as_parts(data: Plain) -> Parts:
    """The arrays in an answer; none if one of them is no array."""
    arrays = [as_array(part) for part in data] if isinstance(data, list) else []
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays if array is not None)


def smallest(call: dict[str, Any]) -> float:
    """How far apart two numbers may be that are nearly 0: less among small numbers."""
    return 1e-6 * min(1.0, float(abs(call["x"]).max()))


def near(came: Array, right: Array, least: float) -> Array:
    """Where two arrays of one shape agree; NaN agrees with nothing."""
    return np.asarray(abs(came - right) <= NEAR * abs(right) + least)


def shown(number: float) -> str:
    return numbers(np.array([float(f"{number:.6g}")]))


def place(axis: int, which: int, at: tuple[int, ...]) -> str:
    if which == 0:
        return f"token {at[0]}, channel {at[1]}"
    return f"token {at[0]}, group {at[1]}" if axis else f"group {at[0]}, channel {at[1]}"


def other_shape(name: str, call: dict[str, Any], shape: tuple[int, ...]) -> str:
    """What there is to say about a part of a wrong shape."""
    (T, D), group, axis = call["x"].shape, call["group"], call["axis"]
    length, along = (D, "channels of a token") if axis else (T, "tokens of a channel")
    if name == "codes":
        return "There is a code for each number: codes have the shape of x."
    known = {
        (T, -(-D // group)): "axis = 0: a group is one channel of several tokens, so tokens are counted in groups.",
        (-(-T // group), D): "axis = 1: a group is several channels of one token, so channels are counted in groups.",
    }
    if length % group and shape == ((T, D // group) if axis else (T // group, D)):
        return f"The last group, of {length % group} {along}, has scales, too."
    if shape == ((-(-D // group), T) if axis else (D, -(-T // group))):
        return f"{name} is turned round: it has the axes of x in their order, tokens first."
    if shape in known:
        return known[shape]
    if int(np.prod(shape, dtype=np.int64)) == 1 or shape in ((T,), (D,), (T, 1), (1, D)):
        return f"There are more groups than that: each {group} {along} have a {name} of their own."
    return f"There is one {name} a group, and `axis` is the axis that is counted in groups."


def otherwise(call: dict[str, Any], name: str, came: Parts, expected: Parts, at: tuple[int, ...]) -> str:
    """What there is to say where no belief gives what came."""
    most = 2 ** call["bits"] - 1
    codes = came[0]
    if any(np.isnan(part).any() for part in came):
        said = "There is a NaN (no number) among them."
        equal = " In a group of equal numbers the step is 0: look before you divide by it."
        return said + equal * bool((expected[2] == 0).any())
    if name == "low":
        return "low is the smallest number of its group: the lowest mark lies on it."
    if name == "step" and expected[2][at] == 0:
        return "A group of equal numbers has step 0. What keeps you from dividing by it is for the codes alone."
    if name == "step":
        return f"step is the distance of two marks: {most + 1} marks reach from the smallest number to the largest."
    if (codes != codes.round()).any():
        return "Codes are whole numbers: round them."
    if codes.min() < 0 or codes.max() > most:
        return f"With {call['bits']} bits there are the codes 0, 1, …, {most}, from the lowest mark to the highest."
    if sorted(codes.ravel()) == sorted(expected[0].ravel()):
        return "These codes stand at the wrong places: each has to stand where its number does in x."
    if abs(call["x"]).max() < SMALL:
        return (
            "These numbers lie close together, but they are not equal: their marks do, too. Only a step of exactly 0 "
            "needs care, and a small number that is added to all steps, or put in their place, changes the codes."
        )
    return "This is not the code of the nearest mark. Mark number `code` lies at low + code · step."


def beliefs(call: dict[str, Any]) -> Iterator[tuple[str, Parts]]:
    """Each way to go wrong: what there is to say, and the three parts of it."""
    for said, rule in RULES:
        yield said, group_by_group(call, rule)
    yield from wrong_groups(call)


def marks(
    ends: Callable[[Array], tuple[float, float]] = lambda group: (group.min(), group.max()),
    distances: Callable[[int], int] = lambda most: most,
    round_to: Callable[[Array], Array] = np.round,
    clip: bool = True,
) -> Rule:
    """A rule with marks from one end on, so many distances of which reach to the other."""

    def rule(group: Array, most: int) -> tuple[Array, float, float]:
        low, high = ends(group)
        step = (high - low) / (distances(most) or 1)
        codes = round_to((group - low) / (step or 1))
        return np.clip(codes, 0, most) if clip else codes, low, step

    return rule


def changed(change: Callable[[Array, float, float, int], tuple[Array, float, float]]) -> Rule:
    """The right rule, and something done to what it gives; the largest code is handed over, too."""

    def rule(group: Array, most: int) -> tuple[Array, float, float]:
        return change(*nearest_marks(group, most), most)

    return rule


def without_low(group: Array, most: int) -> tuple[Array, float, float]:
    _, low, step = nearest_marks(group, most)
    return np.clip(np.round(group / (step or 1)), 0, most), low, step


BETWEEN = "2^bits marks have 2^bits - 1 distances between them: step is the span of a group divided by that."
ZERO = "The marks reach from the smallest number to the largest, wherever 0 lies."
RULES: tuple[tuple[str, Rule], ...] = (
    ("The codes were cut down, not rounded: then a number is up to a whole step away from its mark.",
     marks(round_to=lambda codes: np.floor(codes + 1e-9))),
    ("The codes were rounded up: the nearest mark may lie below.",
     marks(round_to=lambda codes: np.ceil(codes - 1e-9))),
    (BETWEEN, marks(distances=lambda most: most + 1)),
    (BETWEEN, marks(distances=lambda most: most + 1, clip=False)),
    (BETWEEN, marks(distances=lambda most: most - 1)),
    (ZERO + " Here they lie alike on both sides of it, and some stay unused.",
     marks(lambda group: (-abs(group).max(), abs(group).max()))),
    (ZERO + " Here it was always among them.", marks(lambda group: (min(group.min(), 0), max(group.max(), 0)))),
    (ZERO + " Here they begin at 0.", marks(lambda group: (0.0, group.max()))),
    ("low is missing from the codes: subtract it before you divide.", without_low),
    ("step is upside down: these are marks a unit, asked is the distance of the marks.",
     changed(lambda codes, low, step, most: (codes, low, 1 / step if step else 0))),
    ("This step is the span of the group. It is divided by the number of distances.",
     changed(lambda codes, low, step, most: (codes, low, step * most))),
    ("low is the largest number. The lowest mark has the code 0.",
     changed(lambda codes, low, step, most: (codes, low + most * step, step))),
    ("Instead of low came the code of 0, which some libraries call the zero point. Asked is the smallest number.",
     changed(lambda codes, low, step, most: (codes, np.round(-low / (step or 1)), step))),
    ("Codes begin at 0, and these are counted from the middle.",
     changed(lambda codes, low, step, most: (codes - (most + 1) // 2, low, step))),
    ("Half of the codes are never used: codes have no sign.",
     lambda group, most: nearest_marks(group, most // 2)),
    ("low and step were rounded to float16. Here they keep their digits.",
     changed(lambda codes, low, step, most: (codes, float(np.float16(low)), float(np.float16(step))))),
    *((f"These are codes of {bits} bits: `bits` says how many there are.",
       lambda group, most, bits=bits: nearest_marks(group, 2**bits - 1)) for bits in (8, 4)),
)  # fmt: skip


def wrong_groups(call: dict[str, Any]) -> Iterator[tuple[str, Parts]]:
    """Right rules for numbers that are no groups."""
    group, axis, most = call["group"], call["axis"], 2 ** call["bits"] - 1
    rows = call["x"] if axis else call["x"].T  # groups lie in rows
    length, count = rows.shape[1], -(-rows.shape[1] // group)

    def turned(*parts: Array) -> Parts:
        return parts if axis else tuple(part.T for part in parts)

    def in_rows(rows: Array) -> Parts:
        return group_by_group({**call, "x": rows, "axis": 1}, nearest_marks)

    for whose, axes in (("all numbers", None), (f"a whole {'token' if axis else 'channel'}", 1)):
        ends = (end(rows, axis=axes, keepdims=True) for end in (np.min, np.max))
        low, high = (np.broadcast_to(end, (len(rows), count)).astype(np.float64) for end in ends)
        step, of = (high - low) / most, np.arange(length) // group
        codes = np.round((rows - low[:, of]) / np.where(step > 0, step, 1)[:, of])
        yield f"These are scales of {whose}. Each group has its own.", turned(codes, low, step)
    if length % group:
        codes, *scales = in_rows(np.pad(rows, ((0, 0), (0, -length % group))))
        said = "Zeros were put behind the last group, and went into its scales. They are none of its numbers."
        yield said, turned(codes[:, :length], *scales)
    else:
        order = np.arange(length).reshape(group, count).T.ravel()  # every count-th number
        codes, *scales = in_rows(rows[:, order])
        said = "A group is neighbours: here the numbers of a group lie far apart."
        yield said, turned(codes[:, np.argsort(order)], *scales)
