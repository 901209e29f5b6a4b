"""A toy model for the bug hunts of ex05: a cache of whole numbers, in which every mistake of a batch shows at once.

The one idea: what a token leaves in the cache is one whole number, its note, made from the token and its position; the
next token is made from the sum of all notes that may be seen. So a note too many, a note too few or a wrong position
gives other tokens, exactly and without a tolerance. It is no language model, but it asks the same of an engine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

PAD = 0  # fills up shorter rows; a text may hold this token as well
VOCABULARY, NOTES = 50_021, 99_991  # so many that two mistakes hardly ever give the same token


class ToyModel:
    """A model without weights: four numbers make it another one."""

    def __init__(self, a: int = 3, b: int = 5, c: int = 7, d: int = 11) -> None:
        self.a, self.b, self.c, self.d = a, b, c, d

    def notes(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """What tokens leave in the cache: a note for each, of the same shape as `tokens` and `positions`."""
        return (tokens + 1) * (positions * positions + self.a * positions + self.b) % NOTES

    def next_tokens(self, seen: Tensor) -> Tensor:
        """The next tokens; `seen` is the sum of all notes that each of them may look at, and has the same shape."""
        return (self.c * seen + self.d) % VOCABULARY


def run_engine(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What an engine answers in each case of `inputs`: see `run_calls`. A call is {"model": the numbers of a ToyModel,
    "given": the arguments after the model}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    return {"tokens": as_plain(called(code, ToyModel(*call["model"]), *copied(call["given"])), "the tokens")}


def copied(given: list[Any]) -> list[Any]:
    return [copied(part) if isinstance(part, list) else part for part in given]
