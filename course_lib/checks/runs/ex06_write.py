"""Runs a learner's `write(memory, table, length, new, blocks)` on some texts and writes down what became of the memory.

The one idea: it only feeds and watches. The pool that it hands over keeps no order of its own: it gives away blocks in
the order that was drawn, and remembers what was asked of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.beside import Went, as_plain, called, refusal
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


class Lender:
    """Hands out the blocks `free`, one after the other. What is given back to it is noted, and not handed out again."""

    def __init__(self, free: list[int], references: list[int]) -> None:
        self._free, self._references = list(free), list(references)
        self._notes: list[list[str | int]] = []  # [what was done, block]

    def take(self, count: int) -> list[int]:
        """`count` blocks; MemoryError if fewer are left."""
        if count > len(self._free):
            raise MemoryError(f"{count} blocks were asked for, {len(self._free)} are free")
        taken, self._free = self._free[: max(count, 0)], self._free[max(count, 0) :]
        for block in taken:
            self._note("take", block, 1)
        return taken

    def share(self, block: int) -> None:
        self._note("share", block, 1)

    def give_back(self, block: int) -> None:
        self._note("give_back", block, -1)

    def references(self, block: int) -> int:
        return self._references[block]

    def free(self) -> int:
        return len(self._free)

    def _note(self, do: str, block: int, more: int) -> None:
        self._references[block] += more
        self._notes.append([do, int(block)])


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case, whose calls are {"memory": [blocks, block_size, D], "table": [int], "length": int,
    "new": [n, D], "free": [int], "references": [int], of each block}: see `run_calls`."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    memory, new = torch.from_numpy(call["memory"].copy()), torch.from_numpy(call["new"].copy())
    table, pool = list(call["table"]), Lender(call["free"], call["references"])
    refused, came = False, None
    try:
        came = as_plain(called(code, memory, table, call["length"], new, pool), "the table")
    except Went as reason:
        if not refusal(reason, "MemoryError"):
            raise
        refused = True
    after = {"memory": memory, "given": table, "new": new, "notes": pool._notes}
    return {"refused": refused, "table": came} | {name: as_plain(thing, name) for name, thing in after.items()}
