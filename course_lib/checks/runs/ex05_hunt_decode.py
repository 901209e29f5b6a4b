"""Runs a learner's `continue_together(model, prompts, new_tokens)` on toy models and writes down what came back.

The one idea: it only feeds and watches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_toy import run_engine


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_engine`."""
    return run_engine(code, inputs)
