"""Who guesses what comes next: a small model, or the text itself. The large model checks the guesses (speculative.py).

The one idea: a drafter is handed the whole text so far, each time, and says of every token that it proposes with what
probability it would have proposed any other. It keeps no history that could go wrong: what it remembers is compared
with the text, and what differs is forgotten. A wrong guess costs time and changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache
from course_lib.caches.contract import whole
from course_lib.generation import Sampling, check_empty, choose, prefill
from course_lib.model import Transformer


@dataclass(frozen=True, eq=False)
class Guess:
    """A proposed token, and the distribution [V] (float64, CPU) from which it was drawn."""

    token: int
    drawn_from: Tensor


class Drafter(ABC):
    """Proposes tokens. One drafter serves one request at a time; `passes` counts forward passes of a model of its own,
    since the beginning."""

    passes: int = 0

    def begin(self, target: Transformer, cache: Cache, slots: int) -> None:
        """A new request begins, on `target` with `cache`; its text will have at most `slots` tokens to be read. Raises
        ValueError if this drafter cannot draft for it.
        """
        self.vocab_size = target.config.vocab_size

    @abstractmethod
    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        """At most `count` tokens to follow `text`, in order; none is a fine answer."""


class PromptLookup(Drafter):
    """Looks for the last few tokens of the text earlier in the text, and proposes what followed there.

    It tries the last `longest` tokens, then fewer, down to `shortest`, and takes the latest place that it finds. This
    is prompt lookup decoding (Saxena 2023), for answers that repeat what they were asked. It never draws: each of its
    guesses has probability 1.
    """

    def __init__(self, longest: int = 3, shortest: int = 2) -> None:
        self.longest, self.shortest = whole(longest, "longest"), whole(shortest, "shortest")
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"a look-up of {longest} down to {shortest} tokens finds nothing: 1 <= shortest <= longest"
            )

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        source = self.found(list(text))
        if source is None:
            return []
        copied = list(text)
        for at in range(source, source + count):  # a copy may run on into what it has just copied
            copied.append(copied[at])
        return [Guess(token, certain(token, self.vocab_size)) for token in copied[len(text) :]]

    def found(self, text: list[int]) -> int | None:
        """Where the text goes on after the latest place that ends as all of it does; None if there is no such place."""
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            ending = text[-size:]
            for end in range(len(text) - 1, size - 1, -1):
                if text[end - size : end] == ending:
                    return end
        return None


class DraftModel(Drafter):
    """A smaller model with the same tokens, which reads along with a cache of its own and runs ahead.

    `cache` is one with an empty row 0 (by default one is made that fits). Where the model has no positions left, or
    its cache no room, it drafts fewer tokens. Raises ValueError for a cache that cannot be truncated.
    """

    def __init__(self, model: Transformer, cache: Cache | None = None) -> None:
        check_empty(cache, "the draft's cache")
        if cache is not None:
            check_goes_back(cache, "the draft's cache")
        self.model, self.given = model, cache

    def begin(self, target: Transformer, cache: Cache, slots: int) -> None:
        super().begin(target, cache, slots)
        draft = self.model.config
        if draft.vocab_size != self.vocab_size:
            raise ValueError(
                f"the draft model has {draft.vocab_size} tokens, the model that checks it {self.vocab_size}: "
                "a token must mean the same to both, so take a draft model with the same tokenizer"
            )
        if cache is self.given:
            raise ValueError("draft and target cannot write into one cache: each needs keys and values of its own")
        check_empty(self.given, "the draft's cache")
        capacity = min(slots, draft.max_positions)
        self.cache = self.given or ContiguousCache(draft, 1, capacity, self.model.dtype, self.model.device)
        self.read: list[int] = []  # what the cache holds, or the beginning of it

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        agrees = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self.read, text[:-1])))
        self.read = list(text[: min(agrees, self.cache.lengths[0])])
        self.cache.truncate(0, len(self.read))  # a refused guess goes, and everything after it
        unread = list(text[len(self.read) :])  # never none: the last one's logits choose the first guess
        count = min(count, self.model.config.max_positions + 1 - len(text))  # the last guess is not read
        count = room(self.cache, len(unread) - 1, count)
        guesses: list[Guess] = []
        while len(guesses) < count:
            logits = prefill(self.model, [unread], self.cache, rows=[0])[0]  # [V]
            self.passes += 1
            self.read += unread
            drawn_from = distribution(logits, sampling)
            guesses.append(Guess(draw_from(drawn_from, generator), drawn_from))
            unread = [guesses[-1].token]
        return guesses


def room(cache: Cache, unread: int, count: int) -> int:
    """How many guesses, at most `count`, row 0 of a cache has room for after `unread` tokens."""
    while count > 0 and not cache.fits([0], [unread + count]):
        count -= 1
    return count


def distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """What `choose` takes its token from, [V] (float64, CPU): greedy is a distribution, too, all of it on one token.

    Raises ValueError if the logits [V] are not numbers.
    """
    likeliest = choose(logits)
    return certain(likeliest, len(logits)) if sampling.temperature == 0 else sampling.probabilities(logits)


def certain(token: int, vocab_size: int) -> Tensor:
    """The distribution [V] in which `token` has probability 1."""
    chances = torch.zeros(vocab_size, dtype=torch.float64)
    chances[token] = 1
    return chances


def draw_from(chances: Tensor, generator: torch.Generator) -> int:
    """A token drawn in proportion to `chances` [V], which need not add up to 1."""
    return int(torch.multinomial(chances, 1, generator=generator))


def check_goes_back(cache: Cache, what: str) -> None:
    """Raise ValueError if a cache cannot forget the tokens of a refused draft."""
    if not cache.goes_back:
        raise ValueError(
            f"{what} is a {type(cache).__name__}, which cannot take back what it has given up for tokens that are "
            "refused: use a ContiguousCache or a PagedCache"
        )
