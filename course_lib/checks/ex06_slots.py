"""The check of ex06.slots: the learner's `slots(table, start, stop, block_size)` finds positions through a table.

The one idea: where a row's blocks lie one after the other from block 0, every mistake is right, so they never do. The
reference walks the memory of a row slot by slot and divides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex06_tables import listed, scattered, several, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex06_slots import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "slots", "slots(table, start, stop, block_size)"
TOLERANCE = "none. Slots are whole numbers."
NOT_CHECKED = "negative positions, a stop before the start, speed"
ONE, TEXT, LATER = (
    "positions in one block",
    "a whole text, its last block partly full",
    "new tokens behind earlier ones",
)
EDGES, NOTHING, SHORT = "from edge to edge of blocks", "no position at all", "a table that does not reach so far"
SIZES = "other block sizes"
CASES = (ONE, TEXT, LATER, EDGES, NOTHING, SHORT, SIZES)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"table": [int], "start", "stop", "block_size"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        size, more = int(rng.integers(5, 8)), int(rng.integers(3, 5))  # slots of a block, blocks of a text
        end = more * size
        within = int(rng.integers(2, size - 1))
        ranges: list[tuple[int, int, int]] = {  # start, stop, block size
            ONE: [(0, within, size), (0, size, size), (size + 1, size + 3, size), (end - 1, end, size)],
            TEXT: [(0, end - within, size), (0, end - size + 1, size)],
            LATER: [(within, end - 1, size), (size - 1, size + 2, size), (end - size - 1, end - size + 1, size)],
            EDGES: [(0, end, size), (size, 2 * size, size), (size, end, size)],
            NOTHING: [(0, 0, size), (within, within, size), (end, end, size), (within, within + 1, size)],
            SHORT: [
                (0, end + 1, size),
                (end, end + 1, size),
                (end - 1, end + size, size),
                (0, 1, size),
                (1, end, size),
                (end + 1, end + 1, size),
            ],
            SIZES: [(2, 5, 1), (7, 9, 2), (14, 35, 16), (250, 260, 256)],
        }[name]
        cases[name] = []
        for number, (start, stop, block) in enumerate(ranges):
            blocks = -(-stop // block) if name == SIZES else more
            if name == SHORT and number == 3:
                blocks = 0
            table = scattered(rng, range(5, 17), blocks)
            cases[name].append({"table": table, "start": start, "stop": stop, "block_size": block})
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the slots in `outputs` those that the tables name?"""
    return verdict(SlotsCase, inputs, outputs)


def memory(table: list[int], block_size: int) -> list[int]:
    """The slots of a row in the order of its text: all those of its first block, then of the next."""
    found: list[int] = []
    for block in table:
        first = sum(block_size for _ in range(block))
        found += range(first, first + block_size)
    return found


class SlotsCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {value}" for name, value in call.items())

    def ended(self) -> Wrong:
        """Why answers are missing; where the table is too short, with what should have come."""
        wrong, number = super().ended(), len(self.answers)
        if number < len(self.calls):
            call = self.calls[number]
            if call["stop"] > len(call["table"]) * call["block_size"]:
                return replace(wrong, expected="ValueError")
        return wrong

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        table, start, stop, size = call.values()
        there = memory(table, size)
        refused, came = answer.get("refused") is True, whole_numbers(answer.get("slots"))
        if stop > len(there):
            if refused:
                return None
            said = (
                f"{several(len(table), 'block')} of {size} have no slot for position {stop - 1}: raise ValueError. "
                "Whatever is read or written instead belongs to nobody, or to another text."
            )
            if start == stop:
                said = "The table has to reach as far as stop, even if no position is asked for: raise ValueError."
            return Wrong(said, "ValueError", listed(answer.get("slots")))
        expected = there[start:stop]
        if refused:
            said = "It raised ValueError, though the table reaches as far as that."
            return Wrong(said, listed(list(expected)), "ValueError")
        if came is None:
            said = "A list of whole numbers is asked for, one slot for each position."
            return Wrong(said, listed(list(expected)), what_came(answer.get("slots")))
        if came == expected:
            return None
        said = next((said for said, belief in beliefs(table, start, stop, size) if belief == came), "")
        if not said and len(came) != len(expected):
            said = f"{several(len(came), 'slot')} came back for {several(len(expected), 'position')}."
        at = next((i for i, pair in enumerate(zip(came, expected)) if pair[0] != pair[1]), min(len(came), stop - start))
        said = said or "The token at position p lies in block table[p // block_size], at place p % block_size in it."
        return Wrong(said, listed(list(expected)), listed(answer.get("slots")), f"position {start + at}")


def beliefs(table: list[int], start: int, stop: int, size: int) -> Iterator[tuple[str, list[int]]]:
    """Each way to go wrong: what there is to say, and the slots of it. The call is one that the table reaches."""
    positions = range(start, stop)
    if not table:
        return
    there = memory(table, size)
    yield "These are positions. The table says where in the memory they lie.", list(positions)
    in_a_row = "The blocks of a text need not lie one after the other: look each of them up in the table."
    yield in_a_row, [table[0] * size + p for p in positions]
    yield "These are the numbers of the blocks, without the place in the block.", [table[p // size] for p in positions]
    yield (
        "The number of a block was taken for its first slot. Block b begins at slot b · block_size.",
        [table[p // size] + p % size for p in positions],
    )
    yield (
        "The first position was taken to lie at the beginning of a block.",
        [table[(start // size + i // size) % len(table)] * size + i % size for i in range(stop - start)],
    )
    yield "start was left out: these are the slots of the first positions.", there[: stop - start]
    yield "The earlier positions came back, too. Asked is from start on.", there[:stop]
    yield "stop is the first position that is not asked for, as in range.", there[start : stop + 1]
    yield "The last position is missing: it is stop - 1.", there[start : stop - 1]
    yield "That is one too far: position 0 lies in the first slot of the first block.", there[start + 1 : stop + 1]
    yield (
        "All slots of the blocks came back, and not those of the positions alone.",
        [slot for i in range(start // size, -(-stop // size)) for slot in there[i * size : (i + 1) * size]],
    )
    yield (
        "Place and block are mixed up: p // block_size counts blocks, p % block_size slots in one.",
        [table[(p % size) % len(table)] * size + p // size for p in positions],
    )
