"""Exhibits in which tokens stand at a wrong position or see what they should not: caches with a wrong step.

Each class is a contiguous cache that works out for itself, in one place, what its parent has worked out already. Do not
read on if you want to find out by yourself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.caches import ContiguousCache, Step, visible
from course_lib.caches.contiguous import RaggedStep

Numbers = tuple[int, ...]


def column(numbers: Sequence[int], like: Tensor) -> Tensor:
    """One number for each row of a batch, [B, 1], where `like` lies."""
    return torch.tensor(numbers, device=like.device)[:, None]


class OneRotation(ContiguousCache):
    """In a decode step each row has one new token: one rotation is looked up for the step."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if max(counts) == 1:
            position = [self.lengths[rows[0]] for _ in rows]
            step.positions = column(position, step.positions)
        return step


class Triangle(ContiguousCache):
    """The causal mask is a triangle: query i of a pass sees the keys up to i."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if step.mask is not None and max(counts) > 1:
            key = torch.arange(step.mask.shape[3], device=step.mask.device)
            query = torch.arange(max(counts), device=key.device).expand(len(rows), -1)
            step.mask = step.mask & visible(query, key[None])
        return step


class ShortTable(ContiguousCache):
    """The rotation is known for so many positions; a token beyond them takes the last."""

    table = 32

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        last = self.table - 1
        step.positions = step.positions.clamp(max=last)
        return step


class PastOnly(ContiguousCache):
    """Tokens that have all they may see in the cache need no mask within the pass, only over what is filled."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if step.mask is not None:
            ends = [self.lengths[row] + count for row, count in zip(rows, counts)]
            filled = torch.arange(step.mask.shape[3], device=step.mask.device) < column(ends, step.mask)
            sees_all = [self.lengths[row] > 0 for row in rows]
            step.mask = step.mask | (filled & column(sees_all, step.mask))[:, None, None]
        return step


class LooksBack(ContiguousCache):
    """A new token looks back at what its row holds."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if max(counts) == 1 and all(self.lengths[row] for row in rows):
            held = [self.lengths[row] for row in rows]
            slot = torch.arange(max(self.lengths[row] for row in rows) + 1, device=step.positions.device)
            step.mask = (slot < column(held, slot))[:, None, None]  # [B, 1, 1, S]
        return step


class NoPadding(ContiguousCache):
    """A number of a slot says where a token is kept; padding is not kept anywhere."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        super().open(rows, counts)  # makes sure that there are zeros where rows are shorter than others
        ends = [self.lengths[row] + count for row, count in zip(rows, counts)]
        step = RaggedStep(self, rows, counts, max(ends))
        kept = step.positions > 0
        step.real = kept & (step.positions < column(ends, kept))
        step.row, step.slot = column(rows, kept).expand_as(kept)[step.real], step.positions[step.real]
        return step


class AfterThePrompt(ContiguousCache):
    """A new token stands after its prompt and the new tokens before it."""

    def __init__(self, *shape: Any, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.prompt = [0] * self.rows  # tokens

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if max(counts) > 1:
            for row, count in zip(rows, counts):
                self.prompt[row] = self.lengths[row] + count
        else:
            new = [self.lengths[row] for row in rows]
            step.positions = column([self.prompt[row] + n for row, n in zip(rows, new)], step.positions)
        return step


class EndTogether(ContiguousCache):
    """Pieces of text that are read together end together: the padding of the shorter ones comes first."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if max(counts) > 1:
            first = [self.lengths[row] + max(counts) - count for row, count in zip(rows, counts)]
            step.positions = column(first, step.positions) + torch.arange(max(counts), device=step.positions.device)
        return step


class OneToken(ContiguousCache):
    """One new token comes after everything else: there is nothing to hide from it."""

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        step = super().open(rows, counts)
        if max(counts) == 1:
            step.mask = None
        return step


class HighWater(ContiguousCache):
    """Knows how far each row is filled. That is all that decode needs for a mask, and saves clearing slots."""

    def __init__(self, *shape: Any, **options: Any) -> None:
        super().__init__(*shape, **options)
        self.filled = [0] * self.rows  # slots

    def open(self, rows: Numbers, counts: Numbers) -> Step:
        for row, count in zip(rows, counts):
            self.filled[row] = max(self.filled[row], self.lengths[row] + count)
        step = super().open(rows, counts)
        if max(counts) == 1 and step.mask is not None:
            slot = torch.arange(step.mask.shape[3], device=step.mask.device)
            step.mask = (slot < column([self.filled[row] for row in rows], slot))[:, None, None]  # [B, 1, 1, S]
        return step

    def clear(self, row: int, start: int, stop: int) -> None:
        super().clear(row, max(start, self.filled[row]), stop)


class CopiesTheRead(ContiguousCache):
    """Moves a row: of all tokens but the newest, which nobody has read yet, the keys and values are there."""

    def copy(self, source: int, target: int) -> None:
        held = self.lengths[source] - 1
        for memory in (self.keys, self.values):
            memory[:, target, :, :held] = memory[:, source, :, :held]
