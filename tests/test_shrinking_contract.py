"""What every cache promises is asked of those that forget or round, too: what fails, or is cut short at any moment,
changes nothing, and wrong use is refused.

The one idea: one that has room for everything has to pass the tests of the other kinds, as they are. What they cannot
ask, of a cache that does forget, is in test_shrinking_interrupts.py.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import nan
from typing import Any

import pytest
import test_cache_contract
import test_cache_memory as memory
import torch
from cache_kinds import Kind, filled
from shapes import SHAPES, model_of
from torch import Tensor

from course_lib.caches import Cache, forgetting, rounded
from course_lib.caches.codecs import Integers
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import Window
from course_lib.caches.rounded import RoundedCache
from course_lib.model import ModelConfig

SHAPE, CONFIG, MODEL = "gqa", SHAPES["gqa"], model_of("gqa")
EXACT = torch.float64


@dataclass(frozen=True)
class WideWindow(Kind):
    """A window in which every text has room."""

    renumber: bool
    step = forgetting.ForgettingStep

    def __str__(self) -> str:
        return "a wide window" + ", renumbered" * self.renumber

    def make(
        self, config: ModelConfig, rows: int, capacity: int, dtype: torch.dtype = EXACT, device: Any = "cpu"
    ) -> ForgettingCache:
        return ForgettingCache(config, rows, Window(capacity), dtype, device, renumber=self.renumber)

    def lines(self, memory: Tensor) -> Tensor:
        return memory.transpose(2, 3)

    def readable(self, cache: ForgettingCache) -> set[int]:
        held = cache.held.tolist()
        return {row * cache.line + slot for row in range(cache.rows) for slot in range(cache.line)
                if 0 <= held[row][slot] < cache.lengths[row]}  # fmt: skip

    def freed(self, cache: ForgettingCache, row: int) -> Iterable[int]:
        return set(range(row * cache.line, (row + 1) * cache.line)) - self.readable(cache)

    def room(self, cache: ForgettingCache, row: int) -> int:
        raise NotImplementedError

    def reserved(self, rows: int, capacity: int) -> int:
        return rows * capacity

    def check(self, cache: ForgettingCache) -> None:
        assert cache.now is None
        for row, length in enumerate(cache.lengths):
            assert list(cache.places(row)) == list(range(length))


class Open(RoundedCache):
    """With names for its full tensors, as the tests of the other kinds call them."""

    keys, values = property(lambda self: self.recent[0]), property(lambda self: self.recent[1])


@dataclass(frozen=True)
class LongResidual(Kind):
    """A residual in which every text has room."""

    step = rounded.RoundedStep

    def __str__(self) -> str:
        return "a long residual"

    def make(
        self, config: ModelConfig, rows: int, capacity: int, dtype: torch.dtype = EXACT, device: Any = "cpu"
    ) -> RoundedCache:
        keys, values = Integers(2, 4, True), Integers(4, 8)
        return Open(config, rows, capacity, keys, values, capacity, dtype, device)

    def lines(self, memory: Tensor) -> Tensor:
        return memory.transpose(2, 3)

    def poisoned(self, model: Any, rows: int, capacity: int) -> RoundedCache:
        cache = self.make(model.config, rows, capacity, model.dtype)
        cache.fill_free(nan)
        return cache

    def poison(self, cache: RoundedCache, row: int) -> None:
        cache.fill_free(nan)

    def content(self, cache: RoundedCache, slots: Iterable[int]) -> Tensor:
        line = cache.recent[0].shape[3]
        at = [slot // cache.line * line + slot % cache.line - cache.capacity for slot in slots]
        return torch.stack([self.lines(t).flatten(1, 2)[:, at] for t in cache.recent])

    def write(self, cache: RoundedCache, slots: Iterable[int], value: float) -> None:
        for slot in slots:
            for t in cache.recent:
                t[:, slot // cache.line, :, slot % cache.line - cache.capacity] = value

    def readable(self, cache: Cache) -> set[int]:
        raise NotImplementedError

    def freed(self, cache: Cache, row: int) -> Iterable[int]:
        raise NotImplementedError

    def room(self, cache: Cache, row: int) -> int:
        raise NotImplementedError

    def reserved(self, rows: int, capacity: int) -> int:
        raise NotImplementedError

    def check(self, cache: RoundedCache) -> None:
        assert cache.now is None
        for row, length in enumerate(cache.lengths):
            assert list(cache.places(row)) == list(range(length))


KINDS = (WideWindow(False), WideWindow(True), LongResidual())
pytestmark = pytest.mark.parametrize("kind", KINDS, ids=str)
globals().update({name: test for name, test in vars(test_cache_contract).items() if name.startswith("test_")})


@pytest.mark.parametrize(
    "asked",
    [
        memory.test_lengths_that_somebody_holds_do_not_change,
        memory.test_each_token_lies_where_the_cache_says,
        memory.test_a_cache_made_for_inference_can_be_used_elsewhere,
        memory.test_a_pass_that_records_gradients_is_refused_by_a_cache,
    ],
)
def test_what_is_asked_of_the_other_kinds(kind: Kind, asked: Callable[[Kind], None]) -> None:
    asked(kind)


def test_what_does_not_belong_to_its_model_is_refused(kind: Kind) -> None:
    for pieces in ({0: [1]}, {0: [1, 2, 3], 1: [1]}):
        for config in memory.OTHERS.values():
            memory.test_a_cache_made_for_another_shape_is_refused_by_its_numbers(kind, config, pieces)
        for dtype in (torch.float32, torch.bfloat16):
            memory.test_a_cache_of_another_dtype_is_refused_and_nothing_is_converted(kind, dtype, pieces)
    for counts in ((3,), (5, 3)):
        memory.test_a_step_takes_only_what_has_its_shape_in_every_layer_and_both_of_keys_and_values(kind, counts)


def test_what_neighbours_hold_changes_no_bit(kind: Kind) -> None:
    memory.test_what_neighbours_hold_changes_no_bit(kind, SHAPE, EXACT)


def test_what_nobody_may_read_can_be_filled_and_only_that_is(kind: Kind) -> None:
    if isinstance(kind, WideWindow):
        memory.test_all_that_nobody_may_read_can_be_filled_and_nothing_else_is(kind)
    else:
        cache = filled(kind, SHAPE)
        held = kind.content(cache, cache.places(0).values()).clone()
        cache.fill_free(7.0)
        assert kind.content(cache, cache.places(0).values()).equal(held)
        assert (cache.recent[0] == 7).sum() == cache.recent[0].numel() - held[0].numel() * 7 // 5
        assert all((packed == 255).all() for packed in cache.packed)
