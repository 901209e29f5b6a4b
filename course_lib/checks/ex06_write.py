"""The check of ex06.write: the learner's `write(memory, table, length, new, blocks)` adds tokens to a text in blocks.

The one idea: memory and pool are the grader's. Afterwards every token of the text has to lie where the new table says,
every block that somebody else holds as it was, and the pool has to have been asked for what is needed and no more. What
nobody may read is NaN. The reference counts tokens one by one, and knows no rule about edges of blocks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict, numbers, words
from course_lib.checks.ex06_tables import listed, scattered, several, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex06_write import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "write", "write(memory, table, length, new, blocks)"
TOLERANCE = "none. Numbers are moved, not computed."
NOT_CHECKED = "speed, in which order blocks are asked for, tables with more blocks than their text needs"
ROOM, NEED, MANY = "there is room in the last block", "a block when it is needed, not before", "several new blocks"
SHARED, FULL = "another text refers to the last block", "full blocks that are shared"
FEW, NOTHING, INPUTS = "too few blocks are free", "no new token", "what was handed in stays as it was"
CASES = (ROOM, NEED, MANY, SHARED, FULL, FEW, NOTHING, INPUTS)
REFUSE = "There are fewer free blocks than are needed: let the MemoryError of the pool through."
D, BLOCKS = 3, 12


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"memory", "table", "length", "new", "free", "references"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        b, full = int(rng.integers(4, 7)), int(rng.integers(1, 3))  # slots of a block, full blocks before the last one
        end, part = full * b, int(rng.integers(2, b - 1))  # tokens in full blocks, and in the last one
        n = end + part
        texts: dict[
            str, list[tuple[int, int, int, int | None]]
        ] = {  # length, new tokens, references to the last, blocks free
            ROOM: [(n, 1, 1, None), (n, b - part, 1, None), (part, 1, 1, None), (n, 1, 1, 0)],
            NEED: [(0, 1, 1, None), (end, 1, 1, None), (0, b, 1, None), (end, b - 1, 1, None), (n, b - part + 1, 1, 1)],
            MANY: [(0, 2 * b + 1, 1, None), (n, 2 * b, 1, None), (end, 2 * b, 1, 2)],
            SHARED: [(n, 1, 2, None), (part, 1, 3, None), (n, b - part, 2, 1), (n, 2 * b, 2, None)],
            FULL: [(end, 1, 2, None), (end, b, 3, 1), (end + b, 1, 2, None)],
            FEW: [(n, b - part, 1, 0), (end, 1, 1, 0), (0, b + 1, 1, 1), (n, 1, 2, 0), (n, b, 2, 1), (n, 2 * b, 1, 1)],
            NOTHING: [(n, 0, 1, None), (n, 0, 2, None), (0, 0, 1, None), (end, 0, 2, 0), (n, 1, 1, None)],
            INPUTS: [(end, 2, 1, None), (n, 1, 2, None)],
        }
        cases[name] = [text(rng, b, *each) for each in texts[name]]
    return {"cases": cases}


def text(rng: np.random.Generator, b: int, length: int, new: int, last: int, free: int | None) -> dict[str, Any]:
    """A call: a text of `length` tokens among others, `last` references to its last block, and `free` blocks free."""
    own = sum(1 for p in range(length) if p % b == 0)
    free = int(rng.integers(4, 6)) if free is None else free
    order = scattered(rng, range(BLOCKS), own + free)
    table, free_blocks = order[:own], order[own:]
    references = [0 if block in free_blocks else int(rng.integers(1, 3)) for block in range(BLOCKS)]
    memory = rng.standard_normal((BLOCKS, b, D)).astype(np.float32)
    memory[free_blocks] = np.nan
    for block in table:
        references[block] = 3 - min(last, 2)  # others share the beginning of the text, or its end
    if table:
        references[table[-1]] = last
        memory[table[-1], length - b * (own - 1) :] = np.nan
    return {
        "memory": memory,
        "table": table,
        "length": length,
        "new": rng.standard_normal((new, D)).astype(np.float32),
        "free": free_blocks,
        "references": references,
    }


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do table, memory and pool in `outputs` follow from what went in?"""
    return verdict(WriteCase, inputs, outputs)


class Text:
    """What should become of a call, token by token."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.memory: Array = call["memory"]
        self.size = self.memory.shape[1]
        self.table, self.length, self.new = list(call["table"]), call["length"], call["new"]
        self.tokens = [self.memory[self.table[p // self.size], p % self.size] for p in range(self.length)] + [*self.new]
        room = self.size * len(self.table) - self.length
        shared = bool(self.table) and call["references"][self.table[-1]] > 1
        self.writable = [self.table[-1]] if room and not shared else []  # of the blocks that it has
        self.copied = bool(len(self.new) and room and shared)  # whether the last block has to be
        self.taken = int(self.copied)  # blocks, that of the copy included
        for _ in self.new:
            if not room:
                self.taken, room = self.taken + 1, self.size
            room -= 1
        self.kept = self.table[: len(self.table) - self.copied]
        self.refused = self.taken > len(call["free"])


class WriteCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        size = call["memory"].shape[1]
        before = f"a text of {several(call['length'], 'token')} in blocks of {size}"
        for block in call["table"][-1:]:
            before += f"; its last block has {several(call['references'][block], 'reference')}"
        return f"{before}; {several(len(call['new']), 'new token')}, {several(len(call['free']), 'free block')}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        text, memory = Text(call), answer.get("memory")
        if not isinstance(memory, np.ndarray) or memory.shape != text.memory.shape:
            return Wrong("The memory is not what it was.", came=what_came(memory))
        held = changes(answer.get("notes"))
        if answer.get("refused") is True:
            return self.refused_wrong(text, memory, held)
        if text.refused:
            return Wrong(REFUSE, "MemoryError", f"the table {listed(answer.get('table'))}")
        came = whole_numbers(answer.get("table"))
        if came is None:
            said = "write returns the table of the text as it is then, a list of whole numbers."
            said = "write returned None. Did you forget `return`?" if answer.get("table") is None else said
            return Wrong(said, "a list", what_came(answer.get("table")))
        return (
            table_wrong(text, came, held)
            or tokens_wrong(text, came, memory)
            or others_wrong(text, came, memory)
            or pool_wrong(text, came, held)
        )

    def ended(self) -> Wrong:
        """Why answers are missing; where the pool had too few blocks, with what should have come."""
        wrong, number = super().ended(), len(self.answers)
        if number < len(self.calls) and Text(self.calls[number]).refused:
            return replace(wrong, said=f"{wrong.said} {REFUSE}", expected="MemoryError")
        return wrong

    def refused_wrong(self, text: Text, memory: Array, held: dict[int, int]) -> Wrong | None:
        """What is wrong where MemoryError was raised."""
        if not text.refused:
            said = "It raised MemoryError, though there are as many free blocks as are needed."
            return Wrong(said, f"{several(text.taken, 'block')} taken", "MemoryError")
        if not np.array_equal(memory, text.memory, equal_nan=True):
            return Wrong("It refused, but something had been written by then. Take all blocks before you write.")
        if taken := [block for block, more in held.items() if more > 0]:
            said = "It refused, but kept blocks that it had taken by then. take(count) gives all of them or none."
            return Wrong(said, "no block taken", listed(list(taken)))
        if lost := [block for block, more in held.items() if more < 0]:
            said = "It refused, but had given up a block that the text still needs. Take first, give back later."
            return Wrong(said, "no block given back", listed(list(lost)))
        return None

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS:
            return None
        if not unchanged(call["table"], answer.get("given")):
            said = "The table that was handed in has changed. Its caller needs it if a step fails: return a new list."
            return Wrong(said, listed(call["table"]), listed(answer.get("given")))
        if not unchanged(call["new"], answer.get("new")):
            return Wrong("The new tokens that were handed in have changed.")
        return None


def changes(notes: Plain) -> dict[int, int]:
    """How many references more each block has than before the call, by what was asked of the pool."""
    held: dict[int, int] = {}
    for note in notes if isinstance(notes, list) else ():
        if isinstance(note, list) and len(note) == 2 and type(note[1]) is int:
            held[note[1]] = held.get(note[1], 0) + (-1 if words(note[0]) == "give_back" else 1)
    return {block: more for block, more in held.items() if more}


def table_wrong(text: Text, came: list[int], held: dict[int, int]) -> Wrong | None:
    """What is wrong with the new table."""
    kept, size = text.kept, len(text.table) + text.taken - text.copied
    expected = f"{several(size, 'block')}, of which {text.taken} new" if text.taken else listed(list(text.table))
    if text.copied and came[: len(text.table)] == text.table:
        said = "Another text refers to the last block, too. Copy it into a block of your own before you write into it."
        return Wrong(said, expected, listed(list(came)))
    if came[: len(kept)] != kept:
        said = "Blocks that the text had are not at the beginning of its table any more."
        if not text.copied and came[: len(kept) - 1] == kept[:-1] and len(came) >= len(kept):
            said = "The last block was replaced. That is needed only if it is shared *and* gets a token."
        return Wrong(said, expected, listed(list(came)))
    if len(came) != size:
        tokens = several(text.length + len(text.new), "token")
        said = f"{tokens} in blocks of {text.size}: that takes {several(size, 'block')}, and no other number."
        return Wrong(said, expected, listed(list(came)))
    for block in came[len(kept) :]:
        if held.get(block, 0) <= 0 or came.count(block) > 1 or not 0 <= block < len(text.memory):
            said = "A block in the table was not taken from the pool for this text."
            return Wrong(said, expected, listed(list(came)))
    return None


def tokens_wrong(text: Text, came: list[int], memory: Array) -> Wrong | None:
    """What is wrong with the tokens of the text, each of which should lie where the table says."""
    for p, token in enumerate(text.tokens):
        block, place = came[p // text.size], p % text.size
        found = memory[block, place]
        if np.array_equal(found, token):
            continue
        where = f"position {p}, which is place {place} of block {block}"
        if p < text.length:
            said = "A token that the text had before is not there any more."
            if text.copied and p // text.size == len(text.kept):
                said = "The last block was copied without what was in it: its earlier tokens have to come along."
            elif any(np.array_equal(found, new) for new in text.new):
                said = "A token that the text had before was written over. New ones go behind it."
        else:
            lies = [(int(b), int(i)) for b, i in np.argwhere((memory == token).all(axis=2))]
            said = f"A new token lies at place {lies[0][1]} of block {lies[0][0]}." if lies else ""
            said = said or "A new token is nowhere in this memory. Write into the tensor that was handed in."
        return Wrong(said, numbers(token), numbers(found), where)
    return None


def others_wrong(text: Text, came: list[int], memory: Array) -> Wrong | None:
    """What is wrong with the blocks that the text may not write into."""
    own = {*came[len(text.kept) :], *text.writable}
    for block in range(len(memory)):
        if block not in own and not np.array_equal(memory[block], text.memory[block], equal_nan=True):
            said = "A block was written into that is not this text's alone: others read what lies there."
            if block in text.table[len(text.kept) :]:
                said = "The shared block was copied, and then written into all the same. Others read what lies there."
            return Wrong(said, "as it was", "other numbers", f"block {block}")
    return None


def pool_wrong(text: Text, came: list[int], held: dict[int, int]) -> Wrong | None:
    """What is wrong with what was asked of the pool."""
    expected = {block: 1 for block in came[len(text.kept) :]} | {block: -1 for block in text.table[len(text.kept) :]}
    for block in sorted({*held, *expected}, key=lambda block: (block not in expected, block)):
        right, more = expected.get(block, 0), held.get(block, 0)
        if right == more:
            continue
        said = "The references to a block are not what they should be."
        if right < 0 and more == 0:
            said = (
                "The text refers to its copy now, and no longer to the old block. Give that reference back: otherwise "
                "the block is never freed."
            )
        elif right < 0:
            said = "The old block was given back more than once: only the reference of this text is gone."
        elif not right and more > 0:
            said = "More blocks were taken than are in the table. Nobody can give them back."
        elif not right:
            said = "A block was given back that the text still has."
        return Wrong(said, f"{right:+d} for block {block}", f"{more:+d}")
    return None
