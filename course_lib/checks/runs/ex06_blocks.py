"""Runs a learner's `Blocks(count)` through some days of taking, sharing and giving back, and writes down what came.

The one idea: it only feeds and watches. Which blocks are shared and given back is said by when they were taken, since
an allocator hands out whichever it likes. After each call it asks how many are free, and who refers to what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.beside import Went, as_plain, called, refusal
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases

NO_ROOM, NO_BLOCK = "MemoryError", "ValueError"


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls: {"do": "make", "count": int}, then {"do": "take", "count": int}, and
    {"do": "share"} or {"do": "give_back"} with "which", the number of a block in the order of taking, or "number", that
    of the block itself. Raises nothing but KeyboardInterrupt.
    """
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call returned or raised, and what was free and referred to after it."""
    taken: list[int] = []
    count = calls[0]["count"]
    pool = called(code, count)
    for call in calls:
        answer: dict[str, Plain] | None = {"refused": ""} if call["do"] == "make" else one(pool, call, taken)
        if answer is None:
            return
        free = as_plain(called(called(getattr, pool, "free")), "free()")  # type: ignore[arg-type]
        references = called(getattr, pool, "references")
        counts: list[Plain] = [
            as_plain(called(references, block), "references(block)")  # type: ignore[arg-type]
            for block in range(count)
        ]
        yield answer | {"free": free, "references": counts}


def one(pool: Any, call: dict[str, Any], taken: list[int]) -> dict[str, Plain] | None:
    """One call of a method, and what it handed out; None if it is about a block that was never handed out."""
    method = called(getattr, pool, call["do"])
    given = call["count"] if call["do"] == "take" else call.get("number")
    if given is None and call["which"] >= len(taken):
        return None
    try:
        came = as_plain(called(method, taken[call["which"]] if given is None else given), call["do"])  # type: ignore[arg-type]
    except Went as reason:
        likely = (NO_ROOM, NO_BLOCK) if call["do"] == "take" else (NO_BLOCK, NO_ROOM)  # an error can be a kind of both
        if not (error := refusal(reason, *likely)):
            raise
        return {"refused": error}
    if call["do"] == "take":
        blocks = came if isinstance(came, list) else came.tolist() if isinstance(came, np.ndarray) and came.ndim else []
        taken += [block for block in blocks if type(block) is int]
    return {"refused": "", "blocks": came if call["do"] == "take" else None}
