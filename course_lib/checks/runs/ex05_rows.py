"""Runs a learner's `Rows(keys, values)` through some days of work and writes down what came back.

The one idea: it only feeds and watches. The memory is made here and handed to the learner's class; where a case says
so, all of it that nobody may read holds NaN, before the first token and again after a release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from course_lib.checks.beside import Went, as_plain, called, refusal
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_cases`.

    A case is a list of calls {"do": "make", "keys" and "values" [B, S, D], "spoil": bool}, then {"do": "write", "row":
    int, "k" and "v" [n, D]}, {"do": "attend", "q" [B, D]} and {"do": "release", "row": int}; or, which is no call but
    a change of the memory from outside, {"do": "change", "row": int, "slot": int, "k" and "v" [D]}.
    """
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call did to the memory and returned."""
    keys, values = (torch.from_numpy(calls[0][name].copy()) for name in ("keys", "values"))  # [B, S, D]
    rows = called(code, keys, values)
    for call in calls:
        answer = {} if call["do"] in ("make", "change") else one(rows, call)
        if call["do"] == "change":
            place = call["row"], call["slot"]
            keys[place], values[place] = torch.from_numpy(call["k"].copy()), torch.from_numpy(call["v"].copy())
        if call["do"] == "release" and calls[0]["spoil"]:
            keys[call["row"]], values[call["row"]] = torch.nan, torch.nan
        yield answer | {"keys": as_plain(keys, "keys"), "values": as_plain(values, "values")}


def one(rows: Any, call: dict[str, Any]) -> dict[str, Plain]:
    """One call of a method: whether it refused, and what it returned."""
    method = called(getattr, rows, call["do"])
    given = [torch.from_numpy(part.copy()) if not isinstance(part, int) else part for part in list(call.values())[1:]]
    try:
        came = called(method, *given)  # type: ignore[arg-type]
    except Went as reason:
        if not refusal(reason, "ValueError"):
            raise
        return {"refused": True}
    return {"refused": False} | ({"output": as_plain(came, "the output")} if call["do"] == "attend" else {})
