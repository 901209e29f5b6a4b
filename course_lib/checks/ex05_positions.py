"""The check of ex05.positions: the learner's `place(lengths, counts)` says where the tokens of several rows stand.

The one idea: in a batch of one row, or of rows of one length, every mistake of a ragged batch is right, so most cases
have rows that differ. What stands at padding is not looked at. The reference is a loop over rows, tokens and slots.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_array, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_positions import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "place", "place(lengths, counts)"
TOLERANCE = "none. Positions are whole numbers, and a slot is looked at or it is not."
NOT_CHECKED = "what you write at places of padding, windows, speed"
ONE, EQUAL, PROMPTS = "a single row", "rows of one length", "prompts of different lengths, into empty rows"
DECODE, RAGGED = "one token each, after texts of different lengths", "different lengths and different counts"
JOINS, REST, TRUTHS = "a prompt beside rows that decode", "a row with no new token", "truth values, not numbers"
CASES = (ONE, EQUAL, PROMPTS, DECODE, RAGGED, JOINS, REST, TRUTHS)
WRONG_ROW = "The positions of one row were given to all. Each row counts its own tokens."
Rows = list[int]


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"lengths": [int], "counts": [int]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Rows]]] = {}
    for name in CASES:
        some = [int(number) for number in rng.permutation(np.arange(3, 10))]
        least, more, most = sorted(int(number) for number in rng.permutation(np.arange(3, 8))[:3])
        short, middle, *_, long = sorted(some)
        batches: dict[str, list[tuple[Rows, Rows]]] = {
            ONE: [([0], [some[0]]), ([some[0]], [1]), ([some[1]], [more])],
            EQUAL: [([some[0]] * 3, [more] * 3)],
            PROMPTS: [([0, 0, 0], [middle, short, long]), ([0, 0, 0], [long, short, middle])],
            DECODE: [([middle, long, short], [1, 1, 1]), ([long, short, middle], [1, 1, 1])],
            RAGGED: [([middle, short, long], [more, most, least]), ([long, middle, short], [least, more, most])],
            JOINS: [([long, 0, short], [1, middle, 1]), ([0, long], [short, 1])],
            REST: [([middle, long, short], [2, 0, 3]), ([0, long, short], [0, 1, 2])],
            TRUTHS: [([middle, short], [2, 3])],
        }
        cases[name] = [{"lengths": lengths, "counts": counts} for lengths, counts in batches[name]]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are positions and mask in `outputs` the right ones?"""
    return verdict(RowsCase, inputs, outputs)


class Batch:
    """The rows of a call, and what follows from them. Places of padding are 0 in every array."""

    def __init__(self, call: dict[str, Rows]) -> None:
        self.lengths, self.counts = call["lengths"], call["counts"]
        self.B, self.T = len(self.lengths), max(self.counts)
        self.S = max(map(sum, zip(self.lengths, self.counts, strict=True)))
        self.real = np.array([[t < count for t in range(self.T)] for count in self.counts])  # [B, T]

    def positions(self, stands: Callable[[int, int], int]) -> Array:
        """[B, T], `stands(row, t)` for each new token."""
        return np.array([[stands(b, t) for t in range(self.T)] for b in range(self.B)]) * self.real

    def mask(self, sees: Callable[[int, int, int], bool]) -> Array:
        """[B, T, S], `sees(row, t, slot)` for each new token."""
        table = [[[sees(b, t, s) for s in range(self.S)] for t in range(self.T)] for b in range(self.B)]
        return np.array(table, dtype=np.int64) * self.real[:, :, None]

    def right_positions(self) -> Array:
        return self.positions(lambda b, t: self.lengths[b] + t)

    def right_mask(self) -> Array:
        return self.mask(lambda b, t, s: s <= self.lengths[b] + t)

    def of_positions(self) -> Iterator[tuple[str, Array]]:
        """Each way to go wrong: what there is to say, and the positions of it."""
        lengths, counts = self.lengths, self.counts
        yield "Positions began at 0. New tokens stand behind those that their row has.", self.positions(lambda b, t: t)
        one_less = "That is one too few: a row of n tokens holds positions 0 to n - 1, so the next one is n."
        yield one_less, self.positions(lambda b, t: lengths[b] - 1 + t)
        yield (
            "That is one too far: the first token of a text stands at 0.",
            self.positions(lambda b, t: lengths[b] + 1 + t),
        )
        for start in (lengths[0], max(lengths), min(lengths), lengths[-1]):
            yield WRONG_ROW, self.positions(lambda b, t, start=start: start + t)  # type: ignore[misc]
        same = "All new tokens of a row got the same position. Each stands one further than the one before."
        yield same, self.positions(lambda b, t: lengths[b])
        padded = "Padding was put in front and counted. The first new token of a row is in column 0, at its length."
        yield padded, self.positions(lambda b, t: lengths[b] + t - (self.T - counts[b]))
        yield padded, self.positions(lambda b, t: self.S - self.T + t)
        after = "The tokens of this step were counted before they were placed."
        yield after, self.positions(lambda b, t: lengths[b] + counts[b] + t)

    def of_mask(self) -> Iterator[tuple[str, Array]]:
        """Each way to go wrong: what there is to say, and the mask of it."""
        lengths, counts = self.lengths, self.counts
        yield "The mask is inside out: True where a token may look.", self.mask(lambda b, t, s: s > lengths[b] + t)
        yield "A token does not see itself. It may.", self.mask(lambda b, t, s: s < lengths[b] + t)
        yield "Each token sees one that comes after it.", self.mask(lambda b, t, s: s <= lengths[b] + t + 1)
        later = "Tokens of a row see later ones of the same step. They may look no further than themselves."
        yield later, self.mask(lambda b, t, s: s < lengths[b] + counts[b])
        early = "The mask begins at slot 0 of each row, as if no row had earlier tokens."
        yield early, self.mask(lambda b, t, s: s <= t)
        all_rows = "The mask of one row was given to all, so others see slots that are not theirs, or miss their own."
        for start in (lengths[0], max(lengths), min(lengths), lengths[-1], self.S - self.T):
            yield all_rows, self.mask(lambda b, t, s, start=start: s <= start + t)  # type: ignore[misc]
        yield (
            "Only new tokens are looked at. Earlier ones may be seen, too.",
            self.mask(lambda b, t, s: lengths[b] <= s <= lengths[b] + t),
        )
        yield "Only earlier tokens are looked at, none of the new ones.", self.mask(lambda b, t, s: s < lengths[b])
        yield "The mask hides nothing, padding included.", self.mask(lambda b, t, s: True)
        yield "The mask hides everything.", self.mask(lambda b, t, s: False)


def looked_at(data: Plain, real: Array) -> Array | None:
    """The table [B, T, …] that came back with 0 where nobody looks, at places of padding; None if it is no table."""
    if isinstance(data, list) and len(data) == len(real):
        data = [
            [entry if seen or isinstance(entry, list | np.ndarray) else 0 for entry, seen in zip(row, places)]
            if isinstance(row, list) and len(row) == len(places) else row
            for row, places in zip(data, real)
        ]  # fmt: skip
    table = as_array(data)
    if table is not None and table.shape[:2] == real.shape:
        table[~real] = 0
    return table


class RowsCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return f"lengths = {call['lengths']}, counts = {call['counts']}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        batch = Batch(call)
        return positions_wrong(batch, answer.get("positions")) or mask_wrong(batch, answer.get("mask"))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        mask = as_array(answer.get("mask"))
        if told_in != TRUTHS or mask is None or mask.dtype.kind == "b":
            return None
        return Wrong("The mask should hold truth values. Compare numbers, and you get them.", "bool", str(mask.dtype))


def positions_wrong(batch: Batch, data: Plain) -> Wrong | None:
    came, shape = looked_at(data, batch.real), (batch.B, batch.T)
    if came is None or came.shape != shape:
        said = (
            "positions should be a table: a row for each row of the batch, a column for each of its new tokens, padded."
        )
        return Wrong(said, f"shape {list(shape)}", what_came(data) if came is None else f"shape {list(came.shape)}")
    if not (came % 1 == 0).all():  # whole ones may be floats: a NaN at padding makes floats of all
        return Wrong("Positions are whole numbers.", "whole numbers", f"{came[came % 1 != 0][0]:.4g}")
    expected, came = batch.right_positions(), came.astype(np.int64)
    if (came == expected).all():
        return None
    said = next((said for said, belief in batch.of_positions() if (belief == came).all()), "")
    said = said or "New token t of a row that has n tokens stands at position n + t."
    b = int((came != expected).any(axis=1).argmax())
    count = batch.counts[b]
    return Wrong(said, str(expected[b, :count].tolist()), str(came[b, :count].tolist()), f"positions, row {b}")


def mask_wrong(batch: Batch, data: Plain) -> Wrong | None:
    came, shape = looked_at(data, batch.real), (batch.B, batch.T, batch.S)
    if came is None or came.shape != shape:
        said = "mask should have an entry for each row, each new token, and each slot up to the end of the longest row."
        return Wrong(said, f"shape {list(shape)}", what_came(data) if came is None else f"shape {list(came.shape)}")
    if came.dtype.kind != "b" and not np.isin(came, (0, 1)).all():
        said = "This is a mask to be added to scores. Asked is only where a token may look: True, or it may not: False."
        return Wrong(said, "True and False", str(came.dtype))
    expected, came = batch.right_mask(), came.astype(np.int64)
    if (came == expected).all():
        return None
    said = next((said for said, belief in batch.of_mask() if (belief == came).all()), "")
    said = said or "A token sees the slots of its own row, up to its own position and no further."
    b, t, s = (int(place[0]) for place in (came != expected).nonzero())
    right, wrong = (str(bool(table[b, t, s])) for table in (expected, came))
    return Wrong(said, right, wrong, f"mask, row {b}, new token {t}, slot {s}")
