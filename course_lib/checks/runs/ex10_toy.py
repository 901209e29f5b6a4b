"""Two toy models that guess and check, each with a cache of its own, and an account of every pass.

The one idea: the models are those of `ex05_toy`, where a wrong token in a cache gives other tokens at once. A draft
makes the target's choices, except that it slips now and then. Who reads what, and after how many tokens, is noted, so
that not only the answer counts but also what it took.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from operator import index

import torch

from course_lib.checks.runs.ex05_toy import VOCABULARY, ToyModel

MOST_PASSES = 400  # of one model: more than any answer needs
Note = Callable[[int, int, list[int]], None]  # cache, tokens that it held, tokens that were read


class Cache:
    """What a model has read of one text. `model.new_cache()` makes an empty one."""

    def __init__(self, owner: Model, number: int, room: int) -> None:
        self._owner, self._number, self._room = owner, number, room
        self._notes: list[int] = []  # one for each token

    @property
    def length(self) -> int:
        """How many tokens it holds."""
        return len(self._notes)

    def truncate(self, length: int) -> None:
        """Keep the first `length` tokens and forget the others."""
        if not 0 <= length <= self.length:
            raise ValueError(f"the cache holds {self.length} tokens: it cannot be truncated to {length}")
        del self._notes[length:]


class Model:
    """A toy model, made of four numbers. The same tokens in its cache always lead to the same choice.

    One in `slips` of its choices is another token than the one that four such numbers give, for `slips=1` each of them.
    Its caches have room for `room` tokens.
    """

    new_cache: Callable[[], Cache]

    def __init__(self, *numbers: int, slips: int = 0, room: int = 1000, note: Note | None = None) -> None:
        toy, caches, passes = ToyModel(*numbers), count(), 0

        def new_cache() -> Cache:
            """An empty cache, into which only this model can read."""
            return Cache(self, next(caches), room)

        def read(tokens: Sequence[int], cache: Cache) -> list[int]:
            nonlocal passes
            ids = whole_numbers(tokens)
            if not isinstance(cache, Cache) or cache._owner is not self:
                raise ValueError("this model did not make this cache: each model needs one of its own, new_cache()")
            held = cache.length
            if held + len(ids) > room:
                raise MemoryError(f"the cache has room for {room} tokens: it holds {held}, and {len(ids)} more came")
            if (passes := passes + 1) > MOST_PASSES:
                raise RuntimeError(f"this is pass {passes} of one model: where does your loop end?")
            if note is not None:
                note(cache._number, held, ids)
            cache._notes += toy.notes(torch.tensor(ids), torch.arange(held, held + len(ids))).tolist()
            seen = torch.tensor(cache._notes).cumsum(0)[held:]  # [T], what each of the tokens can look at
            choices = toy.next_tokens(seen)
            return ((choices + (seen % slips == 0)) % VOCABULARY if slips else choices).tolist()

        self.new_cache, self._read, self._passes = new_cache, read, lambda: passes

    def __call__(self, tokens: Sequence[int], cache: Cache) -> list[int]:
        """Read tokens behind those in the cache, all in one pass; the model's choice after each of them."""
        return self._read(tokens, cache)

    @property
    def passes(self) -> int:
        """How many passes it has made."""
        return self._passes()


def whole_numbers(tokens: Sequence[int]) -> list[int]:
    """Tokens as plain ints; ValueError for anything that a model cannot read."""
    try:
        ids = [index(token) for token in tokens]
    except TypeError:
        raise ValueError(f"a model reads a list of tokens, not {str(tokens)[:40]}") from None
    if not ids:
        raise ValueError("a pass reads at least one token, and no token was handed over")
    if wrong := [token for token in ids if not 0 <= token < VOCABULARY]:
        raise ValueError(f"there is no token {wrong[0]}: they are 0 to {VOCABULARY - 1}")
    return ids
