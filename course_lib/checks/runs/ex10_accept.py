"""Runs a learner's `accept(draft, choices, stop_tokens, most)` on some drafts and writes down what came back.

The one idea: it only feeds and watches. What was handed in is written down afterwards, too, so that a change is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

GIVEN = ("draft", "choices", "stop_tokens")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"draft": [int], "choices": [int],
    "stop_tokens": [int], "most": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    given = {name: list(call[name]) for name in GIVEN}
    new = as_plain(called(code, *given.values(), call["most"]), "the new tokens")
    return {"new": new} | {name: as_plain(given[name], name) for name in GIVEN}
