"""Exhibits in which the engine mixes up its sequences, or loses some of what it knows about them.

Each class is an engine that does one thing in its own way. Do not read on if you want to find out by yourself.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import Any

import torch
from torch import Tensor

from course_lib.serving import Engine, Request, Sequence
from course_lib.serving.engine import row_of


class InOrderOfArrival(Engine):
    """Goes through its sequences as they came in: first come, first served."""

    def choose(self, group: list[Sequence], logits: Tensor) -> list[Sequence]:
        group = [sequence for sequence in self.running if sequence in group]
        return super().choose(group, logits)


class LastColumn(Engine):
    """The logits after the last token of a piece are the last ones of a pass."""

    def forward(self, group: list[Sequence], pieces: Many[list[int]]) -> Tensor:
        counts = [len(piece) for piece in pieces]
        padded = [piece + [0] * (max(counts) - len(piece)) for piece in pieces]  # [B, T], padding on the right
        tokens = torch.tensor(padded, device=self.model.device)
        rows = [row_of(sequence) for sequence in group]
        logits = self.model(tokens, self.cache, counts=counts, rows=rows)  # [B, T, V]
        last = [max(counts) - 1 for _ in counts]
        return logits[torch.arange(len(group), device=logits.device), last]


class Decodes(Engine):
    """A sequence that has new tokens is past its prompt: it reads the newest one, and nothing else."""

    def unread(self, sequence: Sequence) -> list[int]:
        if sequence.tokens:
            return sequence.text[-1:]
        return super().unread(sequence)


class KeepsTheRead(Engine):
    """A sequence that is put off keeps what it has read, and will read again."""

    def preempt(self) -> Sequence:
        youngest = self.running[-1]
        kept = self.cache.lengths[row_of(youngest)]
        sequence = super().preempt()
        sequence.text = sequence.text[:kept]
        return sequence


class OneGenerator(Engine):
    """Draws what is random from a seeded generator, so that a day can be repeated."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.generator = torch.Generator().manual_seed(0)

    def submit(self, request: Request) -> Sequence:
        sequence = super().submit(request)
        sequence.generator = self.generator
        return sequence
