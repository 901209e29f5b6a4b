"""How a check runs beside a learner's code, where every call of a case stands for itself: one after the other.

The one idea: a check says only how one call is made and what is written down of it. What a case does when the code
raises, returns nothing or is still the starter is the same everywhere. What would be right is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course_lib.checks.beside import Went, is_starter
from course_lib.checks.plain import Plain

Code = Callable[..., Any]
Call = dict[str, Any]


def run_calls(code: Code, inputs: Call, one: Callable[[Code, Call], dict[str, Plain]]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    `one` makes a single call and returns what is to be written down of it, or raises Went, which ends the case. Raises
    nothing but KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        answers: list[Plain] = []
        ended: Plain = None
        try:
            for call in () if starter else calls:
                answers.append(one(code, call))
        except Went as reason:
            ended = {"call": len(answers), **reason.data}
        cases[name] = {"calls": answers, "ended": ended}
    return {"starter": starter, "cases": cases}
