"""What a learner reads where an example of a task does not hold: cells run in a real kernel, as in a notebook."""

from typing import Any

import pytest
from test_checks_notebook import kernel, run_cell

__all__ = ["kernel"]  # a fixture

CELL = """
from course_lib.study import example
import torch
log = []
def double(n):
    return n + (n != 0)
def fails():
    assert double(3) == 6
def once():
    log.append(1)
    return 1 / (2 - len(log))
with example("double"):
    assert double(0) == 0
    """
NOT_HELD = "This example of `double` does not hold:"


def said_by(kernel: Any, example: str) -> list[str]:
    """What a cell that ends with this example shows above its error, which has to be an AssertionError."""
    status, texts = run_cell(kernel, CELL + example)
    assert status == "error" and "AssertionError" in texts[-1]
    return "\n".join(texts[:-1]).splitlines()


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("double(3) == 6", ["`double(3)` is `4`"]),
        ("[double(3)] == [6, 7][:1]", ["`[double(3)]` is `[4]`", "`[6, 7][:1]` is `[6]`"]),
        ("double(3) is None", ["`double(3)` is `4`"]),
        ("not double(3)", []),
        (
            "torch.equal(torch.ones(2) * double(3), torch.tensor([6.0, 6.0]))",
            ["`torch.ones(2) * double(3)` is `tensor([4., 4.])`", "`torch.tensor([6.0, 6.0])` is `tensor([6., 6.])`"],
        ),
        ("'x' * 1000 == ''", ["`'x' * 1000` is `'" + "x" * 299 + "…`"]),
        (
            "log.append(1) or len(log) != 1",
            ["Computed once more, it does hold: your code remembers something between calls."],
        ),
        ("once() == 2", []),  # it raises when it is called again
    ],
)
def test_what_does_not_hold_is_shown_with_what_came(kernel: Any, test: str, said: list[str]) -> None:
    assert said_by(kernel, f"assert {test}") == [NOT_HELD, f"`{test}`", *said]


def test_of_several_parts_the_first_that_fails_is_shown(kernel: Any) -> None:
    said = [NOT_HELD, "`double(3) == 6`", "`double(3)` is `4`"]
    assert said_by(kernel, "assert double(1) == 2 and double(3) == 6 and double(5) == 10") == said


@pytest.mark.parametrize(
    "inside",
    [
        "assert double(3) == 6, 'it says so itself'",
        "fails()",  # the assertion is not the example's
        "raise AssertionError",
    ],
)
def test_assertions_that_are_not_the_examples_own_are_raised_as_they_are(kernel: Any, inside: str) -> None:
    assert said_by(kernel, inside) == []


def test_a_cell_with_lines_that_are_ipythons_own_says_the_same(kernel: Any) -> None:
    assert said_by(kernel, "assert double(3) == 6\n%precision 3") == said_by(kernel, "assert double(3) == 6")
