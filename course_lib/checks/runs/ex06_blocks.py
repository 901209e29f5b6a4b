"""Runs a learner's `Blocks(count)` through some days of taking, sharing and giving back, and writes down what came.

The one idea: it only feeds and watches. Which blocks are shared and given back is said by when they were taken, since
an allocator hands out whichever it likes. After each call it asks how many are free, and who refers to what.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from course_lib.checks.beside import Went, as_plain, called, is_starter
from course_lib.checks.plain import Plain

REFUSALS = ("MemoryError", "ValueError")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls: {"do": "make", "count": int}, then {"do": "take", "count": int}, and
    {"do": "share"} or {"do": "give_back"} with "which", the number of a block in the order of taking, or "number", that
    of the block itself. Raises nothing but KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        cases[name] = {"calls": [], "ended": None} if starter else case(code, calls)
    return {"starter": starter, "cases": cases}


def case(code: Callable[..., Any], calls: list[dict[str, Any]]) -> dict[str, Plain]:
    """What each call returned or raised, what was free and referred to after it, and why the case ended early."""
    answers: list[Plain] = []
    taken: list[int] = []
    ended: Plain = None
    count = calls[0]["count"]
    try:
        pool = called(code, count)
        for call in calls:
            answer: dict[str, Plain] | None = {"refused": ""} if call["do"] == "make" else one(pool, call, taken)
            if answer is None:
                break
            free = as_plain(called(called(getattr, pool, "free")), "free()")  # type: ignore[arg-type]
            references = called(getattr, pool, "references")
            counts: list[Plain] = [
                as_plain(called(references, block), "references(block)")  # type: ignore[arg-type]
                for block in range(count)
            ]
            answers.append(answer | {"free": free, "references": counts})
    except Went as reason:
        ended = {"call": len(answers), **reason.data}
    return {"calls": answers, "ended": ended}


def one(pool: Any, call: dict[str, Any], taken: list[int]) -> dict[str, Plain] | None:
    """One call of a method, and what it handed out; None if it is about a block that was never handed out."""
    method = called(getattr, pool, call["do"])
    given = call["count"] if call["do"] == "take" else call.get("number")
    if given is None and call["which"] >= len(taken):
        return None
    try:
        came = as_plain(called(method, taken[call["which"]] if given is None else given), call["do"])  # type: ignore[arg-type]
    except Went as reason:
        if reason.data.get("type") not in REFUSALS:
            raise
        return {"refused": reason.data["type"]}
    if call["do"] == "take":
        blocks = came if isinstance(came, list) else came.tolist() if isinstance(came, np.ndarray) and came.ndim else []
        taken += [block for block in blocks if type(block) is int]
    return {"refused": "", "blocks": came if call["do"] == "take" else None}
