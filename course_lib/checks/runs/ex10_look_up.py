"""Runs a learner's `look_up(text, n, draft_tokens)` on some texts and writes down what came back.

The one idea: it only feeds and watches. The text is written down afterwards, too, so that a change of it is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"text": [int], "n": int,
    "draft_tokens": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    text = list(call["text"])
    draft = as_plain(called(code, text, call["n"], call["draft_tokens"]), "the draft")
    return {"draft": draft, "text": as_plain(text, "the text")}
