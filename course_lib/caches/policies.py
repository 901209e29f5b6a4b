"""Which tokens a forgetting cache holds on to: a window, the first ones and a window, or those most looked at.

The one idea: a policy answers three questions from positions alone: what may a query see, what stays when a step
closes, and what must still be there for the row to go on from an earlier length.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.caches.contract import visible, whole


class Policy(ABC):
    """What a row holds between two steps: at most `slots` tokens."""

    slots: int
    watches = False  # whether it has to know how much attention tokens get

    @abstractmethod
    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """The mask [B, 1, T, S] of queries [B, T] over keys [B, S], -1 for a slot that holds nothing."""

    @abstractmethod
    def stays(self, positions: Tensor, attention: Tensor, length: int) -> Tensor:
        """Which of the tokens at `positions` [S] (-1: none) stay, at most `slots`, once the row has seen `length`."""

    @abstractmethod
    def needed(self, length: int) -> range | None:
        """The positions below `length` that a token at `length` sees, and that may be missing by the time that more
        have come; None if it depends on what has come.
        """


@dataclass(frozen=True)
class Window(Policy):
    """The last `window` tokens: each query sees so many, itself included. `first` tokens of the text are seen for ever
    (attention sinks; StreamingLLM, Xiao et al. 2023)."""

    window: int
    first: int = 0

    def __post_init__(self) -> None:
        if whole(self.window, "the window") < 1 or whole(self.first, "the number of first tokens") < 0:
            raise ValueError(
                f"a window has at least 1 token and no fewer than 0 sinks, not {self.window}, {self.first}"
            )

    @property
    def slots(self) -> int:  # type: ignore[override]
        return self.first + self.window

    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        mask = visible(query_positions, key_positions, self.window)
        if self.first:
            mask |= visible(query_positions, key_positions.masked_fill(key_positions >= self.first, -1))
        return mask

    def stays(self, positions: Tensor, attention: Tensor, length: int) -> Tensor:
        return (positions >= length - self.window) & (positions >= 0) | (positions < self.first) & (positions >= 0)

    def needed(self, length: int) -> range:
        return range(max(0, length - self.window + 1), length)


@dataclass(frozen=True)
class MostSeen(Policy):
    """The last `recent` tokens, and of the others those that got most attention so far, `slots` in all.

    Attention is added up over queries, layers and heads (H2O, Zhang et al. 2023, decides for each head; here all
    layers and heads hold the same tokens). What was looked at depends on what was read together: a prompt in one pass
    is forgotten from only at its end.
    """

    slots: int
    recent: int
    watches = True

    def __post_init__(self) -> None:
        if not 0 <= whole(self.recent, "the recent tokens") <= whole(self.slots, "the slots") or self.slots < 1:
            raise ValueError(f"of {self.slots} slots, {self.recent} cannot be for recent tokens")

    def visible(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return visible(query_positions, key_positions)

    def stays(self, positions: Tensor, attention: Tensor, length: int) -> Tensor:
        rank = attention.masked_fill(positions >= length - self.recent, torch.inf).masked_fill(
            positions < 0, -torch.inf
        )
        best = rank.argsort(descending=True, stable=True)[: self.slots]
        return torch.zeros_like(positions, dtype=torch.bool).index_fill(0, best, True) & (positions >= 0)

    def needed(self, length: int) -> None:
        return None
