"""What the tests of speculative decoding share: a small model, drafts that are right, poor, wrong, random or written by
hand, and how a round went.

The one idea: a drafter here knows what it does, so a test can say beforehand what has to come of it.
"""

from collections.abc import Sequence

import torch
from shapes import random_weights, text_of

from course_lib.drafters import Drafter, Guess, certain
from course_lib.generation import Sampling, generate
from course_lib.model import ModelConfig, Transformer
from course_lib.speculative import SpeculativeGeneration

SMALL = ModelConfig(23, 1, 8, 2, 1, 4, 8, max_positions=64)
TARGET = random_weights(Transformer(SMALL).double(), seed=5)
PROMPT = [token % SMALL.vocab_size for token in text_of("gqa", 9, seed=1)]

RIGHT = generate(TARGET, PROMPT, max_new_tokens=12).tokens


def wrong(token: int) -> int:
    """Another token."""
    return (token + 1) % SMALL.vocab_size


def other_model(distance: float) -> Transformer:
    """TARGET, its weights mixed with those of another model: 0 is itself, 1 has nothing to do with it."""
    model, stranger = Transformer(SMALL).double(), random_weights(Transformer(SMALL).double(), seed=2)
    mixed = {name: w.lerp(stranger.state_dict()[name], distance) for name, w in TARGET.state_dict().items()}
    model.load_state_dict(mixed)
    return model.requires_grad_(False)


class Scripted(Drafter):
    """Proposes, call by call, what it was told to; notes for how many tokens it was asked."""

    def __init__(self, *drafts: Sequence[int]) -> None:
        self.drafts, self.asked = list(drafts), []

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        self.asked.append(count)
        tokens = self.drafts.pop(0) if self.drafts else []
        return [Guess(token, certain(token, self.vocab_size)) for token in tokens]


class Dice(Drafter):
    """Knows nothing, and says so: every token is as likely."""

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        alike = torch.full((self.vocab_size,), 1 / self.vocab_size, dtype=torch.float64)
        return [Guess(int(alike.multinomial(1, generator=generator)), alike) for _ in range(count)]


class AlwaysWrong(Drafter):
    """Knows the right text and never proposes its next token."""

    def __init__(self, right: Sequence[int]) -> None:
        self.right = right

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        wrong = [(self.right[at] + 1 + at % 3) % self.vocab_size for at in range(len(text), len(text) + count)]
        return [Guess(token, certain(token, self.vocab_size)) for token in wrong]


def gains(got: SpeculativeGeneration) -> list[tuple[int, int, int]]:
    """Of each round: drafted, accepted, new."""
    return [(len(one.drafted), one.accepted, len(one.tokens)) for one in got.rounds]
