"""Caches whose steps write when they close, all together or not at all.

The one idea: new tokens take the slots of tokens that leave, so half a step would be no text at all. What is about to
be overwritten is set aside first, and put back if anything comes in between, Ctrl-C included.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from course_lib.caches.contract import Cache, Step

Write = tuple[Tensor, Any, Tensor]  # tensor[place] = new


class ClosingStep(Step):
    """A step that changes nothing that anybody reads before it closes."""

    @abstractmethod
    def writes(self) -> list[Write]:
        """All that is to be written, once the pass has gone well."""


class WritesAtClose(Cache):
    """A cache with such steps: one that fails has nothing to undo."""

    now: ClosingStep | None = None  # the step that is open, with the keys and values that came

    @property
    def goes_back(self) -> bool:
        return False  # new tokens take the slots of others, or change how others are stored

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        self.now = self.begin(rows, counts)
        return self.now

    @abstractmethod
    def begin(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> ClosingStep:
        """The step, as `open` returns it."""

    def keep(self, rows: tuple[int, ...]) -> None:
        assert self.now is not None
        step, self.now = self.now, None
        write_all(step.writes())  # and nothing after it: Ctrl-C finds all of it done, or nothing

    def abandon(self, rows: tuple[int, ...]) -> None:
        self.now = None


def write_all(writes: Sequence[Write]) -> None:
    before = [(tensor, place, tensor[place].clone()) for tensor, place, _ in writes]
    try:
        for tensor, place, new in writes:
            tensor[place] = new
    except BaseException:
        for tensor, place, old in before:
            tensor[place] = old
        raise
