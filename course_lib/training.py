"""Trains a small model on letters, in seconds: enough to see what training teaches and what it does not.

The one idea: this file draws pieces of a text and takes steps downhill; what is to be learned comes from outside, as
a function from a model and pieces of text to a loss. It is no way to train a large model: no epochs, no checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pydoc_data.topics import topics

import torch
from torch import Tensor

from course_lib.checkpoints import random_model
from course_lib.model import ModelConfig, Transformer

WARM_UP = 20  # steps in which the learning rate rises


@dataclass(frozen=True)
class Letters:
    """A text as numbers, one for each letter (any character): the tokens of a model that fits into a notebook."""

    alphabet: str
    ids: Tensor  # [length of the text]

    @classmethod
    def of(cls, text: str) -> Letters:
        """All of `text`. Raises ValueError if it is empty."""
        if not text:
            raise ValueError("the text is empty: there is nothing to learn")
        alphabet = "".join(sorted(set(text)))
        number = {letter: index for index, letter in enumerate(alphabet)}
        return cls(alphabet, torch.tensor([number[letter] for letter in text]))

    def text(self, ids: Tensor | list[int]) -> str:
        return "".join(self.alphabet[int(index)] for index in ids)


def python_help() -> str:
    """The help texts on the Python language that come with every Python, as one line: some 400,000 letters.

    They differ a little from one version of Python to the next.
    """
    return " ".join(" ".join(topics[name] for name in sorted(topics)).split())


def pieces(ids: Tensor, starts: Tensor, length: int) -> Tensor:
    """Pieces [rows, length + 1] of ids [N] that begin at `starts` [rows]: `length` tokens, each with its next one."""
    has_a_piece(ids, length)
    return ids[starts[:, None] + torch.arange(length + 1)]


def has_a_piece(ids: Tensor, length: int) -> None:
    """Raises ValueError if ids [N] are too few for a piece of `length` tokens, each with its next one."""
    if length < 1 or len(ids) <= length:
        raise ValueError(
            f"a text of {len(ids)} tokens has no piece of {length} and one more: "
            "take a longer text, and pieces of at least 1"
        )


def spread(ids: Tensor, length: int, rows: int) -> Tensor:
    """`rows` pieces [rows, length + 1] evenly spread over ids [N], the same ones each time."""
    return pieces(ids, torch.linspace(0, len(ids) - length - 1, rows).long(), length)


def train(
    config: ModelConfig,
    loss: Callable[[Transformer, Tensor], Tensor],
    ids: Tensor,
    *,
    length: int = 64,
    rows: int = 16,
    steps: int = 250,
    rate: float = 1e-2,
    seed: int = 0,
) -> Transformer:
    """A model of the given shape, trained from seeded random weights on random pieces of ids [N].

    `loss(model, pieces [rows, length + 1])` is what each of the `steps` makes smaller (Adam). One thread does the
    work: for so small a model that is no slower, and sums keep their order, so a run can be repeated on its machine.
    Raises ValueError for a text without a piece, no rows, or a token that the model does not know.
    """
    has_a_piece(ids, length)
    if rows < 1:
        raise ValueError(f"{rows} rows of pieces teach nothing: take at least 1")
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= config.vocab_size:
        strange = low if low < 0 else high
        raise ValueError(
            f"token {strange} is not among the {config.vocab_size} of the model: 0 to {config.vocab_size - 1}"
        )
    model = random_model(config, seed).requires_grad_(True)
    with torch.no_grad():
        model.final_norm.mul_(1 / 3)  # a random model has a clear favourite for each token; training starts without
    generator = torch.Generator().manual_seed(seed)

    def loss_of_a_draw(step: int) -> Tensor:
        starts = torch.randint(len(ids) - length, (rows,), generator=generator)
        return loss(model, pieces(ids, starts, length))

    for _ in descend(model, loss_of_a_draw, steps=steps, rate=rate):
        pass
    return model.requires_grad_(False)


def descend(model: Transformer, loss: Callable[[int], Tensor], *, steps: int, rate: float) -> Iterator[float]:
    """Change `model` in `steps` steps, each of which makes `loss(step)` smaller; yields that loss after each (Adam)."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.95), fused=True)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for step in range(steps):
            for group in optimizer.param_groups:  # up, then down to nothing in a straight line
                group["lr"] = rate * min((step + 1) / WARM_UP, 1 - step / steps)
            optimizer.zero_grad()
            here = loss(step)
            here.backward()
            optimizer.step()
            yield here.item()
    finally:
        torch.set_num_threads(threads)
