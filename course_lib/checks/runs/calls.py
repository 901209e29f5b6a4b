"""How a check runs beside a learner's code: case by case, one call after the other.

The one idea: a check says only how its calls are made and what is written down of each. What a case does when the code
raises, returns nothing or is still the starter is the same everywhere. What would be right is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from course_lib.checks.beside import Went, is_starter
from course_lib.checks.plain import Plain

Code = Callable[..., Any]
Call = dict[str, Any]
Answer = dict[str, Plain]


def run_cases(code: Code, inputs: Call, session: Callable[[Code, list[Call]], Iterator[Answer]]) -> Answer:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    `session` goes through the calls of a case and yields what is to be written down of each, or raises Went, which ends
    the case. Raises nothing but KeyboardInterrupt.
    """
    cases: Answer = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        answers: list[Plain] = []
        ended: Plain = None
        try:
            for answer in () if starter else session(code, calls):
                answers.append(answer)
        except Went as reason:
            ended = {"call": len(answers), **reason.data}
        cases[name] = {"calls": answers, "ended": ended}
    return {"starter": starter, "cases": cases}


def run_calls(code: Code, inputs: Call, one: Callable[[Code, Call], Answer]) -> Answer:
    """`run_cases` where every call stands for itself: `one` makes it and returns what is to be written down of it."""
    return run_cases(code, inputs, lambda code, calls: (one(code, call) for call in calls))
