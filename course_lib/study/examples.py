"""`example` runs the examples of a task, and says what came where one of them does not hold.

The one idea: a bare assertion says that something is wrong and not what. So the part of it that failed is shown as it
stands in the cell, with what its sides are now. They are computed a second time for that, and where they then agree,
nothing is claimed about them.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from IPython.display import display

from course_lib.study.check import sentences

LONGEST = 300  # characters shown of a value


@contextmanager
def example(function: str) -> Iterator[None]:
    """Run examples of a task: `with example("append"): …`, with assertions. That all of them hold is said, and so is,
    calmly, that the function is still the starter; whatever else goes wrong is raised, as anywhere."""
    try:
        yield
    except NotImplementedError:
        display(sentences(f"`{function}` is not written yet: these examples run once it is."))
    except AssertionError as error:
        if said := about(error):
            display(sentences(f"This example of `{function}` does not hold:", *said))
        raise
    else:
        display(sentences(f"These examples of `{function}` hold."))


def about(error: AssertionError) -> list[str]:
    """The part of an example's assertion that failed, and the values in it; nothing if it was not an example's own."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    if trace is None or trace.tb_next is not None or error.args:  # raised further down, or it says itself what is wrong
        return []
    lines = linecache.getlines(trace.tb_frame.f_code.co_filename)
    try:
        tree = ast.parse("".join(lines))
    except SyntaxError:  # the cell has lines that are IPython's own
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) and node.lineno <= trace.tb_lineno <= (node.end_lineno or node.lineno):
            return explained(node.test, trace.tb_frame)
    return []


def explained(test: ast.expr, frame: FrameType) -> list[str]:
    """The first part of a test that is false now, and what its sides are."""
    for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
        try:
            if value_of(part, frame):
                continue
            sides = [side for side in sides_of(part) if not is_written_out(side)]
            values = [f"`{ast.unparse(side)}` is `{shown(value_of(side, frame))}`" for side in sides]
        except Exception:  # whatever the learner's code does when it is called again
            return [f"`{ast.unparse(part)}`"]
        return [f"`{ast.unparse(part)}`", *values]
    return [f"`{ast.unparse(test)}`", "Computed once more, it does hold: your code remembers something between calls."]


def sides_of(part: ast.expr) -> list[ast.expr]:
    if isinstance(part, ast.Compare):
        return [part.left, *part.comparators]
    return part.args if isinstance(part, ast.Call) else []


def is_written_out(side: ast.expr) -> bool:
    """Whether one sees the value by looking at it, such as [0, 1] or -2."""
    try:
        ast.literal_eval(side)
    except ValueError:
        return False
    return True


def value_of(side: ast.expr, frame: FrameType) -> Any:
    return eval(compile(ast.Expression(side), "<example>", "eval"), frame.f_globals, frame.f_locals)


def shown(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
