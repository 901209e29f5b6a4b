"""The check of ex07.static: the learner's `static(lengths, rows)` says when tokens come in static batches.

The one idea: a batch ends with its longest request, wherever that stands in it, so where it stands is drawn. The
reference walks through the steps one by one and looks who is in the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_array, is_empty, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex07_static import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "static", "static(lengths, rows)"
TOLERANCE = "none. Steps are whole numbers."
NOT_CHECKED = "lengths below 1, fewer rows than 1, speed"
ONE, SEVERAL, REST = "a single batch", "full batches, one after the other", "a last batch that is not full"
SINGLE, WIDE, INPUTS = "one row", "more rows than requests", "the lengths stay as they were"
CASES = (ONE, SEVERAL, REST, SINGLE, WIDE, INPUTS)
Steps = list[tuple[int, int]]  # the first and the last token of each request


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"lengths": [int], "rows": int}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        cases[name] = []
        for number in range(2):
            rows = {SINGLE: 1, WIDE: 9}.get(name, 3 + number)
            requests = {ONE: rows, SINGLE: 4, WIDE: 4 + number, SEVERAL: 3 * rows}.get(name, 2 * rows + 1 + number)
            cases[name].append({"lengths": drawn(rng, requests, min(rows, requests)), "rows": rows})
        if name == ONE:
            cases[name].append({"lengths": [], "rows": 2})
    return {"cases": cases}


def drawn(rng: np.random.Generator, requests: int, rows: int) -> list[int]:
    """New tokens of each. Several batches are not sorted, and the longest of all is not in the first of them."""
    while True:
        batches = [mixed(rng, min(rows, requests - i)) for i in range(0, requests, rows)]
        lengths = [length for batch in batches for length in batch]
        if len(batches) == 1 or (max(batches[0]) < max(lengths) and lengths != sorted(lengths)):
            return lengths


def mixed(rng: np.random.Generator, size: int) -> list[int]:
    """A batch in which all differ and the last is far from the longest and, of three or more, not the shortest."""
    while True:
        batch = [int(length) for length in rng.permutation(range(1, 10))[:size]]
        if size == 1 or (batch[-1] < max(batch) - 1 and (size == 2 or min(batch) < batch[-1] < batch[0])):
            return batch


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the steps in `outputs` those of static batches?"""
    return verdict(StaticCase, inputs, outputs)


def by_steps(lengths: list[int], rows: int) -> Steps:
    """Step by step: who is in the machine, who gets a token, and whether the next may come in."""
    tokens: list[list[int]] = [[] for _ in lengths]  # the steps in which each got one
    inside: list[int] = []
    step, coming = 0, list(range(len(lengths)))
    while coming or inside:
        step += 1
        if not inside:
            inside, coming = coming[:rows], coming[rows:]
        for request in inside:
            if len(tokens[request]) < lengths[request]:
                tokens[request].append(step)
        if all(len(tokens[request]) == lengths[request] for request in inside):
            inside = []
    return [(steps[0], steps[-1]) for steps in tokens]


class StaticCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return f"lengths = {call['lengths']}, rows = {call['rows']}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        lengths, rows = call["lengths"], call["rows"]
        expected, came = by_steps(lengths, rows), pairs(answer.get("steps"))
        if came is None:
            said = "A list is asked for, with two whole numbers for each request: its first and its last step."
            if answer.get("steps") is None:
                said = f"{FUNCTION} returned None. Did you forget `return`?"
            return Wrong(said, f"{len(lengths)} pairs", what_came(answer.get("steps")))
        if came == expected:
            return None
        if len(came) != len(expected):
            return Wrong("There should be one pair for each request.", f"{len(expected)} pairs", f"{len(came)} pairs")
        at = next(i for i, pair in enumerate(expected) if came[i] != pair)
        said = (
            "A batch begins in the step after the one in which the longest request of the batch before it is finished, "
            "and a request gets one token in each step from there on until it has all."
        )
        return Wrong(said, shown(expected[at]), shown(came[at]), f"request {at}")

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came = pairs(answer.get("steps"))
        return ((said, belief == came) for said, belief in beliefs(call["lengths"], call["rows"]))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["lengths"], answer.get("lengths")):
            return None
        return Wrong("The call changed the list of lengths that it was given. Make a list of your own.")


def pairs(data: Plain) -> Steps | None:
    """Two whole numbers for each request; None for anything else."""
    if is_empty(data):
        return []
    array = as_array(data)
    if array is None or array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind == "b":
        return None
    return [(first, last) for first, last in array.tolist()]


def shown(pair: tuple[int, int]) -> str:
    return f"({pair[0]:g}, {pair[1]:g})"


def beliefs(lengths: list[int], rows: int) -> Iterator[tuple[str, Steps]]:
    """Each way to go wrong: what there is to say, and the steps of it."""
    right = by_steps(lengths, rows)
    batches = [lengths[i : i + rows] for i in range(0, len(lengths), rows)]
    yield "Steps are numbered from 1.", [(first - 1, last - 1) for first, last in right]
    yield (
        "Reading the prompt gives the first token, in the first step of the batch.",
        [(first + 1, last + 1) for first, last in right],
    )
    yield "That is one step too far: n tokens from step s on end with step s + n - 1.", [(a, b + 1) for a, b in right]
    ends = [begin + max(batch) - 1 for begin, batch in begun(batches) for _ in batch]
    yield (
        "These are the ends of whole batches. A request that is finished keeps its row, but its own last token came "
        "in the step in which it had all.",
        [(first, end) for (first, _), end in zip(right, ends)],
    )
    free = [1] * rows  # the step in which each row can begin something new
    joined = []
    for length in lengths:
        row = free.index(min(free))
        joined.append((free[row], free[row] + length - 1))
        free[row] += length
    yield (
        "Here a row is filled again as soon as it is free. In static batches nobody joins before the last is finished.",
        joined,
    )
    said = "The next batch begins when the last of the batch is finished, which need not be the last in the list."
    yield said, stepped([(batch, batch[-1]) for batch in batches])
    yield (
        "The next batch begins when the first of the batch is finished. It has to wait for the longest.",
        stepped([(batch, min(batch)) for batch in batches]),
    )
    yield (
        "Requests of a batch run side by side: it takes as many steps as its longest, not as all together.",
        stepped([(batch, sum(batch)) for batch in batches]),
    )
    yield (
        "A batch begins in the step after the last one of the batch before, not in the same.",
        stepped([(batch, max(batch) - 1) for batch in batches]),
    )
    yield "All batches took as long as the longest request of all.", stepped([(b, max(lengths)) for b in batches])


def begun(batches: list[list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Each batch with its first step."""
    begin = 1
    for batch in batches:
        yield begin, batch
        begin += max(batch)


def stepped(batches: list[tuple[list[int], int]]) -> Steps:
    """Batches that take so many steps each."""
    found, begin = [], 1
    for batch, steps in batches:
        found += [(begin, begin + length - 1) for length in batch]
        begin += steps
    return found
