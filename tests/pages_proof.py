"""The proof of pages and shared prefixes without an engine: small checks, for the caches of any library.

The one idea: what an engine never does by itself (copy a row and go on with both, cut a text in the middle of a block,
fail in the middle of a pass) is done here, with everything that is freed filled with NaN after each operation.
"""

from collections.abc import Callable
from types import ModuleType

import torch
from shapes import SHAPES, TOLERANCE, difference, feed, model_of, text_of, truth

SHAPE, SIZE = "gqa", 4


class Bench:
    """A paged cache of 4 rows, and beside it the texts that its rows should hold."""

    def __init__(self, caches: ModuleType, blocks: int = 16) -> None:
        self.model = model_of(SHAPE)
        self.cache = caches.PagedCache(SHAPES[SHAPE], 4, blocks, SIZE, torch.float64)
        self.texts: dict[int, list[int]] = {row: [] for row in range(4)}
        self.held = set(range(self.cache.slots))
        self.poison()

    def poison(self) -> None:
        """Fill what was held a moment ago, and is not now, with NaN; not by the cache's own means."""
        held = {slot for row in range(4) for slot in self.cache.places(row).values()}
        found = self.cache.pool.findable
        freed = [slot for slot in self.held - held if slot // SIZE not in found]
        for memory in (self.cache.keys, self.cache.values):
            memory.flatten(1, 2)[:, freed] = torch.nan
        self.held = held

    def read(self, pieces: dict[int, list[int]]) -> None:
        """One pass; every logit of it is the oracle's."""
        logits = feed(self.model, self.cache, pieces)
        for row, piece in pieces.items():
            self.texts[row] += piece
            if piece:
                expected = truth(SHAPE, tuple(self.texts[row]))[-len(piece) :]
                apart = difference(logits[row], expected)
                assert apart <= TOLERANCE[torch.float64], f"row {row}: {apart} from the oracle"
        assert list(self.cache.lengths) == [len(text) for text in self.texts.values()]
        self.poison()

    def fail(self, pieces: dict[int, list[int]]) -> None:
        """A pass that fails in the last layer."""

        def failing(*_: object) -> None:
            raise MemoryError

        hook = self.model.layers[-1].register_forward_hook(failing)
        try:
            feed(self.model, self.cache, pieces)
            raise AssertionError("nothing was raised")
        except MemoryError:
            self.poison()
        finally:
            hook.remove()

    def copy(self, source: int, target: int) -> None:
        self.cache.copy_row(source, target)
        self.texts[target] = list(self.texts[source])
        self.poison()

    def cut(self, row: int, length: int) -> None:
        self.cache.truncate(row, length)
        self.texts[row] = self.texts[row][:length]
        self.poison()


def new(count: int, seed: int) -> list[int]:
    return text_of(SHAPE, count, seed)


def two_continuations(caches: ModuleType) -> None:
    """Rows that share their blocks, the last one partly filled, and go on with other tokens."""
    for length in (3, 4, 5, 6):
        b = Bench(caches)
        b.read({0: new(length, 1)})
        b.copy(0, 1)
        b.copy(0, 3)
        b.read({0: new(2, 2), 1: new(1, 3)})
        b.read({3: new(3, 4), 1: new(2, 5), 0: []})
        b.cut(0, 0)
        b.read({1: new(1, 6), 2: new(9, 7), 3: new(1, 8)})


def cut_in_a_block(caches: ModuleType) -> None:
    """A text that loses its end goes on, beside a longer one, alone and when its blocks are shared."""
    b = Bench(caches)
    b.read({0: new(11, 1), 1: new(14, 2)})
    b.cut(0, 6)
    b.read({0: new(1, 3), 1: new(1, 4)})
    b.copy(1, 2)
    b.cut(1, 9)
    b.cut(2, 10)
    b.read({1: [], 2: [], 0: new(1, 5)})
    b.read({2: new(1, 6), 1: new(3, 7)})


def a_failed_pass(caches: ModuleType) -> None:
    """Tables and free blocks are what they were, and the texts go on."""
    b = Bench(caches, blocks=8)
    b.read({0: new(6, 1), 1: new(3, 2)})
    b.copy(0, 2)
    before, free = b.cache.tables, b.cache.pool.free
    for _ in range(4):
        b.fail({0: new(5, 3), 1: new(2, 4), 2: new(1, 5)})
        assert b.cache.tables == before and b.cache.pool.free == free
    b.read({0: new(5, 3), 1: new(2, 4), 2: new(1, 5)})


def one_row_of_a_pass_is_full(caches: ModuleType) -> None:
    """Rows that fit one by one but not together are refused before anything changes."""
    b = Bench(caches, blocks=4)
    b.read({0: new(4, 1), 1: new(4, 2)})
    held = b.cache.tables, list(b.cache.pool.references)
    try:
        feed(b.model, b.cache, {0: new(5, 3), 1: new(2, 4)})
        raise AssertionError("CacheFull was not raised")
    except caches.CacheFull as full:
        assert (full.row, full.needed, full.free) == (1, 2, 0)
    assert (b.cache.tables, b.cache.pool.references) == held
    b.read({0: new(4, 3), 1: new(4, 4)})


def poisoned_neighbours(caches: ModuleType) -> None:
    """What others hold may be anything: block 0 belongs to a row that is not in the pass, and holds NaN."""
    b = Bench(caches)
    b.read({3: new(3, 1)})
    b.read({0: new(9, 2), 1: new(2, 3)})
    assert b.cache.tables[3] == (0,)
    b.cache.keys[:, 0] = torch.nan
    b.cache.values[:, 0] = torch.nan
    b.read({0: new(1, 4), 1: new(1, 5)})


def written_after_it_could_be_found(caches: ModuleType) -> None:
    """A row cuts its text within a block that others may find, and writes something else there."""
    b = Bench(caches)
    prefix = caches.PrefixCache(b.cache)
    told = new(9, 1)
    b.read({0: told})
    prefix.publish(0, told)
    b.cut(0, 6)
    b.read({0: new(4, 2)})
    found = prefix.reuse(1, told)
    assert found == SIZE, f"{found} tokens found, {SIZE} are still there"
    b.texts[1] = told[:found]
    b.read({1: told[found:]})


def colliding_digests(caches: ModuleType) -> None:
    """All blocks have the same digest: only comparing tells them apart, and what stood before them."""
    b = Bench(caches)
    prefix = caches.PrefixCache(b.cache, digest=lambda data: b"")
    a, c = new(8, 1), new(8, 2)
    for row, told in ((0, [*a, 1]), (1, [*c, 1])):
        b.read({row: told})
        prefix.publish(row, told)
    mixed = [*a[:4], *c[4:], 1]
    for row, told, expected in ((2, mixed, 4), (3, [*c, 2], 8)):
        found = prefix.reuse(row, told)
        assert found == expected
        b.texts[row] = told[:found]
        b.read({row: told[found:]})


def only_full_blocks(caches: ModuleType) -> None:
    """A text that goes on where another ended, in the middle of a block, takes over the full blocks before."""
    for length in range(1, 10):
        b = Bench(caches)
        prefix = caches.PrefixCache(b.cache)
        told = new(12, 1)
        b.read({0: told[:length]})
        prefix.publish(0, told[:length])
        found = prefix.reuse(1, told[: length + 1])
        assert found == length // SIZE * SIZE, f"{found} of {length} tokens found"
        b.texts[1] = told[:found]
        b.read({1: told[found : length + 1]})


def what_came_after_is_forgotten_too(caches: ModuleType) -> None:
    """When a block's memory goes to others, what stood after it can no longer be found under it."""
    b = Bench(caches, blocks=6)
    prefix = caches.PrefixCache(b.cache)
    told = new(13, 1)
    b.read({0: told[:8]})
    prefix.publish(0, told[:8])
    b.read({0: told[8:]})
    prefix.publish(0, told)
    first = b.cache.tables[0][0]
    b.cache.pool.lose(first)
    assert prefix.found(told) == 0 and not b.cache.pool.findable and not prefix.entries
    b.cut(0, 0)
    assert not b.cache.pool.kept and b.cache.pool.free == 6


CHECKS: dict[str, Callable[[ModuleType], None]] = {
    check.__name__: check
    for check in (
        two_continuations,
        cut_in_a_block,
        a_failed_pass,
        one_row_of_a_pass_is_full,
        poisoned_neighbours,
        written_after_it_could_be_found,
        colliding_digests,
        only_full_blocks,
        what_came_after_is_forgotten_too,
    )
}


def pages_proof(caches: ModuleType) -> dict[str, Exception]:
    """Run the checks; return the error of each that fails."""
    failed: dict[str, Exception] = {}
    for name, check in CHECKS.items():
        try:
            check(caches)
        except Exception as error:
            failed[name] = error
    return failed
