"""A request, and the sequence of tokens that it becomes.

The one idea: what is asked for never changes; what has come of it so far is a text that only grows. Whatever happens to
the memory of a sequence (it waits, it is put off, it moves), its text and its generator stay, so nothing is lost and
nothing is drawn twice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor

from course_lib.caches.contract import whole
from course_lib.generation import GREEDY, Sampling, check_positions, check_sampling, draw, stop_set


@dataclass(frozen=True)
class Request:
    """A prompt (token ids) and what is wanted after it.

    The request draws from a generator of its own, seeded with `seed`, so neighbours do not change its tokens. `salt`
    says with whom it may share cached prefixes: only with requests of the same salt. `forced` are tokens to take
    instead of chosen ones, as many as `max_new_tokens`, so that logits can be compared under the same text. Raises
    ValueError, naming field and value, for what makes no sense.
    """

    prompt: tuple[int, ...]
    max_new_tokens: int
    sampling: Sampling = GREEDY
    stop_tokens: Collection[int] = ()
    seed: int = 0
    salt: str = ""
    forced: tuple[int, ...] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(whole(token, "a token of the prompt") for token in self.prompt))
        if not self.prompt:
            raise ValueError("the prompt is empty: a new token needs something to follow")
        object.__setattr__(self, "max_new_tokens", whole(self.max_new_tokens, "max_new_tokens"))
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, not {self.max_new_tokens}")
        check_sampling(self.sampling)
        object.__setattr__(self, "stop_tokens", stop_set(self.stop_tokens))
        object.__setattr__(self, "seed", whole(self.seed, "the seed"))
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"the seed must be a whole number from 0 to 2^63 - 1, not {self.seed}")
        if not isinstance(self.salt, str) or not self.salt.isprintable():
            raise ValueError(f"the salt must be a printable text, not {self.salt!r}")
        if self.forced is not None:
            object.__setattr__(self, "forced", tuple(whole(token, "a forced token") for token in self.forced))
            if len(self.forced) != self.max_new_tokens:
                raise ValueError(f"{len(self.forced)} forced tokens for {self.max_new_tokens} new ones: one for each")

    def check_room(self, max_positions: int, longest: int) -> None:
        """Raise ValueError if it could never be served by a model and a cache with so much room for one sequence."""
        slots = len(self.prompt) + self.max_new_tokens - 1  # the last new token is never read
        for most, what in ((max_positions, "the model knows"), (longest, "a row can have")):
            check_positions(len(self.prompt), self.max_new_tokens, slots, most, what)


@dataclass(eq=False)
class Sequence:
    """A request under way.

    text: the prompt and the new tokens. row: its row of the cache while it runs, else None. reused: tokens of its
    text that were found in the cache when it was last admitted. logits: those that chose each new token, [V] each, if
    the engine keeps them.
    """

    request: Request
    text: list[int] = field(init=False)
    row: int | None = None
    preempted: int = 0  # times
    reused: int = 0
    logits: list[Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.text = list(self.request.prompt)
        self.generator = torch.Generator().manual_seed(self.request.seed)

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def tokens(self) -> list[int]:
        """The new tokens so far, the stop token included if one ended it."""
        return self.text[len(self.request.prompt) :]

    @property
    def stopped(self) -> bool:
        """Whether the last new token is a stop token."""
        return len(self.text) > len(self.request.prompt) and self.text[-1] in self.request.stop_tokens

    @property
    def finished(self) -> bool:
        """Whether its last new token is there: all that are wanted, or a stop token."""
        return self.stopped or len(self.text) == len(self.request.prompt) + self.request.max_new_tokens

    def draw(self, logits: Tensor) -> None:
        """Take a new token, drawn for logits [V]. If that is interrupted, nothing was drawn."""
        before = self.generator.get_state()
        try:
            token = draw(logits, self.request.sampling, self.generator)
        except BaseException:
            self.generator.set_state(before)
            raise
        self.text.append(token)  # an interrupt that comes right after it must not set the generator back
