"""Caches that forget or round on purpose give the logits of an oracle that forgets or rounds the same way, however they
are fed and whatever their memory held before.

The one idea: the oracle is a loop over tokens in NumPy. What a query sees there is written down once more, from the
definition: which positions, and of those which ones as they came.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from math import nan
from random import Random

import numpy as np
import pytest
import torch
from engine_report import Record, report_difference
from oracle import Array, oracle_logits
from shapes import SHAPES, TOLERANCE, compositions, difference, feed, feed_in, model_of, text_of, weights_of
from test_codecs import by_hand
from torch import Tensor

from course_lib.caches.codecs import Codec, Floats, Integers
from course_lib.caches.contract import Cache, CacheFull
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import Window
from course_lib.caches.rounded import RoundedCache

EXACT = torch.float64


@dataclass(frozen=True)
class Forgetting:
    """A window of so many tokens, and so many first ones."""

    window: int
    first: int = 0

    def make(self, shape: str, rows: int, capacity: int) -> Cache:
        return ForgettingCache(SHAPES[shape], rows, Window(self.window, self.first), EXACT)

    def seen(self, position: int, keys: list[Array], values: list[Array]) -> tuple[list[Array], list[Array]]:
        there = [j for j in range(position + 1) if position - j < self.window or j < self.first]
        return [keys[j] for j in there], [values[j] for j in there]

    def held(self, length: int) -> list[int]:
        return [j for j in range(length) if j >= length - self.window or j < self.first]


@dataclass(frozen=True)
class Rounding:
    """Keys and values in a codec each, the newest `residual` as they came, `block` rounded at a time."""

    keys: Codec
    values: Codec
    residual: int
    block: int

    def make(self, shape: str, rows: int, capacity: int) -> Cache:
        return RoundedCache(SHAPES[shape], rows, capacity, self.keys, self.values, self.residual, EXACT)

    def seen(self, position: int, keys: list[Array], values: list[Array]) -> tuple[list[Array], list[Array]]:
        old = 0
        while old + self.block <= position + 1 - self.residual:
            old += self.block
        return rounded(self.keys, keys, old), rounded(self.values, values, old)

    def held(self, length: int) -> list[int]:
        return list(range(length))


def rounded(codec: Codec, vectors: list[Array], old: int) -> list[Array]:
    at = range(0, old, codec.tokens)
    return [x for i in at for x in together(codec, np.stack(vectors[i : i + codec.tokens]).tobytes())] + vectors[old:]


@cache
def together(codec: Codec, data: bytes) -> list[Array]:
    """The vectors of tokens that are stored together, as they come back. Each query meets them again."""
    vectors = np.frombuffer(data).reshape(codec.tokens, -1)
    if isinstance(codec, Integers):
        return list(by_hand(codec, vectors))
    return list(torch.tensor(vectors).to(codec.dtype).double().numpy())


KINDS = {
    "a window of 1": Forgetting(1),
    "a window of 5": Forgetting(5),
    "a window of 6": Forgetting(6),
    "a window of 64": Forgetting(64),
    "a window of 4 after 3 first ones": Forgetting(4, 3),
    "8 bits": Rounding(Integers(8, 8), Integers(8, 8), 0, 1),
    "4 bits per token, groups of 3": Rounding(Integers(4, 3), Integers(4, 3), 2, 1),
    "2-bit keys per channel, 3-bit values": Rounding(Integers(2, 4, True), Integers(3, 8), 0, 4),
    "4-bit keys per channel of 4, values of 6": Rounding(Integers(4, 4, True), Integers(4, 6, True), 5, 12),
    "float16": Rounding(Floats(torch.float16), Floats(torch.float16), 0, 1),
    "fp8": Rounding(Floats(torch.float8_e4m3fn), Floats(torch.float8_e5m2), 3, 1),
}
Kind = Forgetting | Rounding
pytestmark = [
    pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS),
    pytest.mark.parametrize("shape", ("gqa", "mqa, tied")),
]


@lru_cache(maxsize=256)
def truth(kind: Kind, shape: str, text: tuple[int, ...]) -> Tensor:
    weights = weights_of(model_of(shape))
    return torch.from_numpy(oracle_logits(SHAPES[shape], weights, list(text), kind.seen))


def poisoned(kind: Kind, shape: str, rows: int, capacity: int) -> Cache:
    cache = kind.make(shape, rows, capacity)
    cache.fill_free(nan)
    return cache


@pytest.fixture
def agree(kind: Kind, shape: str, record_property: Record) -> Callable[[Tensor, list[int]], None]:
    def check(got: Tensor, text: list[int]) -> None:
        apart = difference(got, truth(kind, shape, tuple(text))[len(text) - len(got) :])
        report_difference(record_property, "forgetting or rounding, its own oracle", EXACT, apart)
        assert apart <= TOLERANCE[EXACT]

    return check


def test_a_text_gives_the_oracles_logits_in_whatever_chunks_it_comes(
    kind: Kind, shape: str, agree: Callable[[Tensor, list[int]], None]
) -> None:
    text = text_of(shape, 32)
    for chunks in ((32,), (1,) * 32, (3, 1, 16, 1, 11), (13, 19), (5, 5, 6, 4, 12)):
        cache = poisoned(kind, shape, 2, 32)
        agree(feed_in(model_of(shape), cache, 1, text, chunks), text)
        assert cache.lengths == (0, 32)
        assert list(cache.places(1)) == kind.held(32) and cache.places(0) == {}
    for chunks in compositions(5):
        agree(feed_in(model_of(shape), poisoned(kind, shape, 1, 5), 0, text[:5], chunks), text[:5])


def test_ragged_rows_in_any_order_released_and_copied_and_used_again(
    kind: Kind, shape: str, agree: Callable[[Tensor, list[int]], None]
) -> None:
    random, cache = Random(f"{kind} {shape}"), poisoned(kind, shape, 3, 48)
    texts: list[list[int]] = [[], [], []]
    for turn in range(24):
        rows = random.sample(range(3), random.randint(1, 3))
        for row in rows:
            if len(texts[row]) > 22 or random.random() < 0.05:
                cache.release(row)
                texts[row] = []
                cache.fill_free(nan)
        if turn % 7 == 6:
            source, target = random.sample(range(3), 2)
            cache.copy_row(source, target)
            texts[target] = list(texts[source])
        pieces = {row: text_of(shape, random.choice((0, 1, 1, 2, 7)), turn) for row in rows}
        if any(pieces.values()):
            got = feed(model_of(shape), cache, pieces)
            for row, logits in got.items():
                texts[row] += pieces[row]
                if pieces[row]:
                    agree(logits, texts[row])
        assert cache.lengths == tuple(map(len, texts))
        assert [list(cache.places(row)) for row in range(3)] == [kind.held(len(text)) for text in texts]


def test_truncation_is_right_or_refused_and_then_nothing_has_changed(
    kind: Kind, shape: str, agree: Callable[[Tensor, list[int]], None]
) -> None:
    text, more = text_of(shape, 18), text_of(shape, 5, seed=1)
    done = 0
    for length in range(19):
        cache = poisoned(kind, shape, 2, 60)
        feed_in(model_of(shape), cache, 0, text, (7, 11))
        try:
            cache.truncate(0, length)
        except ValueError as refused:
            assert "row 0 cannot be truncated" in str(refused) and cache.lengths == (18, 0)
            agree(feed(model_of(shape), cache, {0: more})[0], text + more)
        else:
            done += 1
            cache.fill_free(nan)
            agree(feed(model_of(shape), cache, {0: more})[0], text[:length] + more)
    assert done >= 2, "to nothing, and to what it is"
    every = isinstance(kind, Forgetting) and (kind.window >= 18 or kind == Forgetting(1))
    every |= isinstance(kind, Rounding) and (kind.residual, kind.block) == (0, 1)
    assert (done == 19) == every


def test_a_pass_that_fails_leaves_the_cache_as_it_was(
    kind: Kind, shape: str, agree: Callable[[Tensor, list[int]], None]
) -> None:
    text, more = text_of(shape, 23), text_of(shape, 14, seed=1)
    cache = poisoned(kind, shape, 2, 40)
    feed(model_of(shape), cache, {0: text, 1: text[:3]})
    before = cache.places(0), cache.lengths, cache.used_bytes
    for layers in range(SHAPES[shape].n_layers):
        with pytest.raises(KeyboardInterrupt), cache.step((14, 2), (0, 1)) as step:
            new = torch.full((2, SHAPES[shape].n_kv_heads, 14, SHAPES[shape].head_dim), 7.0, dtype=EXACT)
            for layer in range(layers):
                step.write(layer, new, new)
            raise KeyboardInterrupt
        assert (cache.places(0), cache.lengths, cache.used_bytes) == before
    agree(feed(model_of(shape), cache, {0: more})[0], text + more)


def test_bytes_are_those_of_the_tensors_and_of_what_is_held(kind: Kind, shape: str) -> None:
    c, cache = SHAPES[shape], poisoned(kind, shape, 2, 48)
    feed_in(model_of(shape), cache, 0, text_of(shape, 31), (31,))
    heads = c.n_layers * c.n_kv_heads
    if isinstance(kind, Forgetting):
        token = 2 * heads * c.head_dim * 8
        assert cache.used_bytes == token * min(31, len(kind.held(31)))
        assert cache.reserved_bytes == token * 2 * (kind.window + kind.first)
    else:
        old = (31 - kind.residual) // kind.block * kind.block
        bits = sum(old // codec.tokens * codec.size(c.head_dim) for codec in (kind.keys, kind.values))
        assert cache.used_bytes == heads * (bits + 2 * (31 - old) * c.head_dim * 8)
    assert cache.reserved_bytes >= cache.used_bytes > 0


def test_what_does_not_fit_is_refused_or_there_is_always_room(kind: Kind, shape: str) -> None:
    cache = kind.make(shape, 1, 24)
    if isinstance(kind, Forgetting):
        assert cache.fits([0], [10_000])
        return
    feed_in(model_of(shape), cache, 0, text_of(shape, 20), (20,))
    with pytest.raises(CacheFull, match="row 0 needs 5 more slots, 4 are free"):
        feed(model_of(shape), cache, {0: text_of(shape, 5)})
    assert cache.lengths == (20,)
