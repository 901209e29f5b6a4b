"""The kinds of caches, as the tests of the contract need them: how one is made, what lies where, and how much fits.

The one idea: the contract is the same for all kinds, so its tests are written once and ask a `Kind` for the little that
differs. What a kind says here is worked out from lengths and tables alone: it judges `fill_free`, `CacheFull` and the
pool, and must not believe them.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, nan

import pytest
import torch
from shapes import feed, model_of, text_of
from torch import Tensor

from course_lib.caches import Cache, contiguous, paged
from course_lib.caches.contiguous import ContiguousCache
from course_lib.caches.paged import PagedCache
from course_lib.model import ModelConfig, Transformer


class Kind(ABC):
    """One kind of cache."""

    step: type  # the step that it opens for ragged rows

    @abstractmethod
    def make(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> Cache:
        """A cache in which each of `rows` rows has room for `capacity` tokens, all at once, and as little more as the
        kind allows.
        """

    @abstractmethod
    def lines(self, memory: Tensor) -> Tensor:
        """A view [L, lines, line, H, D] of keys or values: slot s is [:, s // line, s % line]."""

    @abstractmethod
    def readable(self, cache: Cache) -> set[int]:
        """The slots whose content somebody may read, now or later."""

    @abstractmethod
    def freed(self, cache: Cache, row: int) -> Iterable[int]:
        """The slots that may hold anything after `row` gave some of its tokens up."""

    @abstractmethod
    def room(self, cache: Cache, row: int) -> int:
        """How many tokens fit into a row from now on, if nobody else gets one."""

    @abstractmethod
    def reserved(self, rows: int, capacity: int) -> int:
        """For how many tokens `make(_, rows, capacity)` has memory."""

    @abstractmethod
    def check(self, cache: Cache) -> None:
        """The books of the cache agree with each other."""

    def poisoned(self, model: Transformer, rows: int, capacity: int) -> Cache:
        """A new cache for a model, whose memory, which nobody has written yet, holds NaN."""
        cache = self.make(model.config, rows, capacity, model.dtype, model.device)
        self.write(cache, range(cache.slots), nan)
        return cache

    def poison(self, cache: Cache, row: int) -> None:
        """Fill what a row has just given up with NaN. What else nobody may read stays: the cache may have cleared it
        and count on that.
        """
        self.write(cache, self.freed(cache, row), nan)

    def write(self, cache: Cache, slots: Iterable[int], value: float) -> None:
        line, offset = where(cache, slots)
        for memory in (cache.keys, cache.values):
            self.lines(memory)[:, line, offset] = value

    def content(self, cache: Cache, slots: Iterable[int]) -> Tensor:
        """Keys and values [2, L, slots, H, D] of some slots."""
        line, offset = where(cache, slots)
        return torch.stack([self.lines(memory)[:, line, offset] for memory in (cache.keys, cache.values)])


def where(cache: Cache, slots: Iterable[int]) -> tuple[Tensor, Tensor]:
    slot = torch.tensor(list(slots), dtype=torch.long)
    return slot // cache.line, slot % cache.line


@dataclass(frozen=True)
class Contiguous(Kind):
    step = contiguous.RaggedStep

    def __str__(self) -> str:
        return "contiguous"

    def make(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> ContiguousCache:
        return ContiguousCache(config, rows, capacity, dtype, device)

    def lines(self, memory: Tensor) -> Tensor:
        return memory.transpose(2, 3)

    def readable(self, cache: ContiguousCache) -> set[int]:
        return {row * cache.capacity + position for row in range(cache.rows) for position in range(cache.lengths[row])}

    def freed(self, cache: ContiguousCache, row: int) -> Iterable[int]:
        return range(row * cache.capacity + cache.lengths[row], (row + 1) * cache.capacity)

    def room(self, cache: ContiguousCache, row: int) -> int:
        return cache.capacity - cache.lengths[row]

    def reserved(self, rows: int, capacity: int) -> int:
        return rows * capacity

    def check(self, cache: ContiguousCache) -> None:
        assert all(0 <= length <= cache.capacity for length in cache.lengths)


@dataclass(frozen=True)
class Paged(Kind):
    """Pages of `size` tokens. Rows share one pool of them, so what one row takes is missing for the others."""

    size: int
    step = paged.PagedStep

    def __str__(self) -> str:
        return f"pages of {self.size}"

    def make(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float64,
        device: torch.device | str = "cpu",
    ) -> PagedCache:
        return PagedCache(config, rows, rows * ceil(capacity / self.size), self.size, dtype, device)

    def lines(self, memory: Tensor) -> Tensor:
        return memory

    def slots_of(self, cache: PagedCache, row: int) -> list[int]:
        """The slots of a row's blocks, filled or not, in the order of its text."""
        return [block * self.size + offset for block in cache.tables[row] for offset in range(self.size)]

    def readable(self, cache: PagedCache) -> set[int]:
        """What rows hold, and blocks that can be found again."""
        slots = {slot for row in range(cache.rows) for slot in self.slots_of(cache, row)[: cache.lengths[row]]}
        return slots | {b * self.size + offset for b in cache.pool.findable for offset in range(self.size)}

    def freed(self, cache: PagedCache, row: int) -> Iterable[int]:
        """All blocks that nobody holds, and the end of the row's last one, unless others hold that, too."""
        holders = Counter(block for table in cache.tables for block in table)
        nobodys = [slot for slot in range(cache.slots) if slot // self.size not in holders]
        end = [s for s in self.slots_of(cache, row)[cache.lengths[row] :] if holders[s // self.size] == 1]
        return {*nobodys, *end} - self.readable(cache)

    def room(self, cache: PagedCache, row: int) -> int:
        holders = Counter(block for table in cache.tables for block in table)
        free = cache.slots - self.size * len(holders)  # slots of free blocks
        left = self.size * len(cache.tables[row]) - cache.lengths[row]  # slots of the row's own last block
        if left and holders[cache.tables[row][-1]] > 1:  # which it must copy first, and for which it needs another
            return max(0, free - self.size + left)
        return free + left

    def reserved(self, rows: int, capacity: int) -> int:
        return (rows * ceil(capacity / self.size) + 1) * self.size  # one block of zeros fills up short tables

    def check(self, cache: PagedCache) -> None:
        """References are those of the tables, each block is held or free and never both, and no row has too many."""
        pool, holders = cache.pool, Counter(block for table in cache.tables for block in table)
        assert pool.references == [holders[block] for block in range(len(pool.references))]
        assert sorted([*holders, *pool.blank, *pool.kept]) == list(range(len(pool.references)))
        assert pool.free == len(pool.blank) + len(pool.kept) and cache.blocks_in_use == len(holders)
        assert set(pool.kept) == set(pool.findable) - set(holders)
        for table, length in zip(cache.tables, cache.lengths, strict=True):
            assert len(table) == len(set(table)) == ceil(length / self.size)
        assert not cache.planned and not cache.torn
        for memory in (cache.keys, cache.values):
            assert not memory[:, -1].any(), "the block that fills up short tables holds zeros"


PAGES = (Paged(1), Paged(4), Paged(16))
KINDS = (Contiguous(), *PAGES)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)


def filled(kind: Kind, shape: str, lengths: Sequence[int] = (5, 2, 0), capacity: int = 8) -> Cache:
    """A cache of a float64 model whose rows hold `text_of(shape, length, seed=row)`."""
    cache = kind.poisoned(model_of(shape), len(lengths), capacity)
    feed(model_of(shape), cache, {row: text_of(shape, length, row) for row, length in enumerate(lengths) if length})
    assert cache.lengths == tuple(lengths)
    return cache
