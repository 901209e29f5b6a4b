"""Blocks that rows share are copied before they are written, one pool serves all rows, and a pass that does not fit or
fails leaves tables, references and free blocks as they were.

The one idea: what a row holds is its own, or nobody changes it. Each test compares the logits of all rows concerned,
with NaN in memory that nobody may read.
"""

from collections.abc import Callable

import pytest
import torch
from cache_kinds import Paged
from pages import CONFIG, MODEL, ONE_TOKEN, SHAPE, Failure, near, paged, state
from shapes import bits, feed, same_bits, text_of

from course_lib.caches import CacheFull, PagedCache

each_size = pytest.mark.parametrize("size", [1, 4, 16])


# --- Shared until somebody writes


@each_size
@pytest.mark.parametrize("filled", [1, 2, 4, 5, 15, 16, 17])
@pytest.mark.parametrize("writer", ["source", "copy", "both"])
def test_a_shared_block_is_copied_before_it_is_written(size: int, filled: int, writer: str) -> None:
    """Only the block that is not full is copied, only for the one who writes, and the other's does not change."""
    text, cache = text_of(SHAPE, filled), paged(2, 40, size)
    feed(MODEL, cache, {0: text})
    shared, before = cache.tables[0], bits(cache.keys, cache.values)
    cache.copy_row(0, 1)
    assert cache.tables == (shared, shared) and same_bits(before, bits(cache.keys, cache.values))
    assert [cache.pool.references[block] for block in shared] == [2] * len(shared)
    slots = list(cache.places(0).values())
    held = bits(Paged(size).content(cache, slots))
    new = {row: text_of(SHAPE, 3, seed=row) for row in {"source": [0], "copy": [1], "both": [1, 0]}[writer]}
    for row, got in feed(MODEL, cache, new).items():
        near(got, text + new[row])
    full = shared[: filled // size]
    for row in (0, 1):
        assert cache.tables[row][: len(full)] == full
        assert (cache.tables[row][len(full) :] == shared[len(full) :]) == (row not in new), "a block of its own"
    if writer != "both":
        assert same_bits(held, bits(Paged(size).content(cache, slots)))
    assert not set(cache.tables[0][len(full) :]) & set(cache.tables[1][len(full) :])
    Paged(size).check(cache)
    cache.fill_free(torch.nan)
    for row, got in feed(MODEL, cache, {0: [7], 1: [8]}).items():
        near(got, [*text, *new.get(row, []), 8 if row else 7])


def test_a_block_that_was_shared_and_is_not_any_more_is_written_where_it_is() -> None:
    cache, text = paged(3, 6), text_of(SHAPE, 6)
    feed(MODEL, cache, {0: text})
    cache.copy_row(0, 1)
    cache.release(0)
    table = cache.tables[1]
    near(feed(MODEL, cache, {1: [1]})[1], [*text, 1])
    assert cache.tables[1] == table and cache.pool.free == 4


def test_a_row_cut_in_a_shared_block_leaves_the_others_what_they_have() -> None:
    cache, text = paged(2, 6), text_of(SHAPE, 8)
    feed(MODEL, cache, {0: text})
    cache.copy_row(0, 1)
    cache.truncate(1, 5)
    assert cache.tables[0] == cache.tables[1], "nothing is written yet"
    cache.fill_free(torch.nan)
    got = feed(MODEL, cache, {1: [9, 9], 0: [1]})
    near(got[1], [*text[:5], 9, 9])
    near(got[0], [*text, 1])
    assert cache.tables[0][:2] == (0, 1) and cache.tables[1][0] == 0 and cache.tables[1][1] not in (0, 1)


def test_what_the_longer_of_two_rows_leaves_in_a_shared_block_is_not_read_by_the_shorter() -> None:
    """Row 1 was cut to one token of the block. Row 0 has three there, until it writes and gets a block of its own."""
    cache, text = paged(2, 6), text_of(SHAPE, 7)
    feed(MODEL, cache, {0: text})
    cache.copy_row(0, 1)
    cache.truncate(1, 5)
    left = set(cache.places(0).values()) - set(cache.places(1).values())
    near(feed(MODEL, cache, {0: [1]})[0], [*text, 1])
    Paged(4).write(cache, left, torch.nan)
    got = feed(MODEL, cache, {0: [3], 1: [2]})
    near(got[1], [*text[:5], 2])
    near(got[0], [*text, 1, 3])


def test_shared_blocks_are_counted_once() -> None:
    cache = paged(3, 8)
    feed(MODEL, cache, {0: [1] * 6})
    for row in (1, 2):
        cache.copy_row(0, row)
    assert (cache.used_bytes, cache.blocks_in_use, cache.pool.free) == (6 * ONE_TOKEN, 2, 6)
    cache.truncate(1, 5)
    assert cache.used_bytes == 6 * ONE_TOKEN
    feed(MODEL, cache, {1: [2]})  # its last block becomes its own: two tokens in it
    assert (cache.used_bytes, cache.blocks_in_use) == (8 * ONE_TOKEN, 3)
    cache.release(0)
    assert cache.used_bytes == 8 * ONE_TOKEN, "row 2 still holds all of it"
    cache.release(2)
    assert (cache.used_bytes, cache.blocks_in_use, cache.pool.free) == (6 * ONE_TOKEN, 2, 6)


def test_moving_a_row_moves_no_key_and_takes_no_block() -> None:
    cache = paged(2, 3)
    feed(MODEL, cache, {1: [1] * 9})
    before = bits(cache.keys, cache.values)
    cache.move_row(1, 0)
    assert cache.tables == ((0, 1, 2), ()) and cache.pool.free == 0
    assert same_bits(before, bits(cache.keys, cache.values))


# --- Full


def test_what_is_free_is_said_in_slots_and_rows_are_counted_together() -> None:
    cache = paged(3, 4)
    feed(MODEL, cache, {0: [1] * 5, 1: [2] * 3})  # 3 of 4 blocks; 3 slots left in row 0's last, 1 in row 1's
    for pieces, row, needed, free in (
        ({0: 8}, 0, 8, 7),
        ({1: 6}, 1, 6, 5),
        ({2: 5}, 2, 5, 4),
        ({0: 4, 1: 2}, 1, 2, 1),
        ({1: 2, 0: 4}, 0, 4, 3),
        ({1: 1, 0: 3, 2: 5}, 2, 5, 4),
    ):
        before, memory = state(cache), bits(cache.keys, cache.values)
        assert not cache.fits(list(pieces), list(pieces.values()))
        with pytest.raises(CacheFull, match=f"row {row} needs {needed} more slots?, {free} (is|are) free: ") as error:
            feed(MODEL, cache, {r: [1] * count for r, count in pieces.items()})
        assert (error.value.row, error.value.needed, error.value.free) == (row, needed, free)
        assert state(cache) == before and same_bits(memory, bits(cache.keys, cache.values))
    assert cache.fits([1, 0, 2], [1, 3, 4])
    feed(MODEL, cache, {1: [1], 0: [1] * 3, 2: [1] * 4})
    assert cache.pool.free == 0


def test_a_copy_on_write_needs_a_free_block() -> None:
    """Two slots of the shared block are empty, and yet nobody can write into them until one of the two lets go."""
    cache, text = paged(2, 2), text_of(SHAPE, 6)
    feed(MODEL, cache, {0: text})
    cache.copy_row(0, 1)
    before, memory = state(cache), bits(cache.keys, cache.values)
    for row in (0, 1):
        with pytest.raises(CacheFull) as error:
            feed(MODEL, cache, {row: [1]})
        assert (error.value.row, error.value.needed, error.value.free) == (row, 1, 0)
        assert state(cache) == before and same_bits(memory, bits(cache.keys, cache.values))
    cache.release(0)
    near(feed(MODEL, cache, {1: [1, 2]})[1], [*text, 1, 2])


def test_room_is_found_as_soon_as_a_row_gives_blocks_back() -> None:
    cache, text = paged(2, 3), text_of(SHAPE, 8)
    feed(MODEL, cache, {0: [1] * 12})
    assert not cache.fits([1], [1])
    cache.truncate(0, 4)
    assert cache.fits([1], [8]) and not cache.fits([1], [9])
    cache.fill_free(torch.nan)
    near(feed(MODEL, cache, {1: text})[1], text)


# --- A pass that fails


def with_shared_rows() -> PagedCache:
    """Rows 0 and 1 share two blocks, the second half full; row 2 has two of its own; five are free."""
    cache = paged(4, 9)
    feed(MODEL, cache, {0: text_of(SHAPE, 6), 2: text_of(SHAPE, 7, seed=1)})
    cache.copy_row(0, 1)
    cache.fill_free(torch.nan)
    return cache


PIECES = ({1: [1]}, {0: [1, 2, 3], 1: [4]}, {3: [1] * 9, 1: [2], 2: [3, 4]}, {2: [1], 0: [2] * 12})


@pytest.mark.parametrize("pieces", PIECES, ids=str)
@pytest.mark.parametrize("layer", [0, CONFIG.n_layers - 1])
def test_a_failed_pass_restores_tables_references_and_free_blocks(layer: int, pieces: dict[int, list[int]]) -> None:
    cache = with_shared_rows()
    before, held = state(cache), bits(Paged(4).content(cache, sorted(Paged(4).readable(cache))))

    def fail(*_: object) -> None:
        raise Failure

    hook = MODEL.layers[layer].register_forward_hook(fail)
    try:
        for _ in range(3):  # nothing is used up by failing again and again
            with pytest.raises(Failure):
                feed(MODEL, cache, pieces)
            assert state(cache) == before
            assert same_bits(held, bits(Paged(4).content(cache, sorted(Paged(4).readable(cache)))))
    finally:
        hook.remove()
    Paged(4).check(cache)
    cache.fill_free(torch.nan)
    texts = {0: text_of(SHAPE, 6), 1: text_of(SHAPE, 6), 2: text_of(SHAPE, 7, seed=1), 3: []}
    for row, got in feed(MODEL, cache, pieces).items():
        near(got, texts[row] + pieces[row])


@pytest.mark.parametrize("where", ["take", "clear", "clean_tail", "PagedStep"])
def test_a_pass_that_fails_while_it_opens_gives_back_what_it_had_taken(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second time that something is taken or cleared, memory runs out."""
    cache, calls = with_shared_rows(), 0
    before = state(cache)

    def fail(right: Callable) -> Callable:
        def second_time(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise MemoryError
            return right(*arguments)

        return second_time

    with monkeypatch.context() as patched:
        if where == "PagedStep":
            calls = 1
            patched.setattr("course_lib.caches.paged.PagedStep", fail(lambda *_: None))
        else:
            patched.setattr(PagedCache, where, fail(getattr(PagedCache, where)))
        with pytest.raises(MemoryError):
            feed(MODEL, cache, {3: [1] * 9, 1: [2], 2: [3]})
    assert calls == 2 and state(cache) == before and not cache.in_step
    Paged(4).check(cache)
    for row in (1, 2, 3):
        Paged(4).poison(cache, row)
    got = feed(MODEL, cache, {3: [1] * 9, 1: [2], 2: [3]})
    near(got[3], [1] * 9)
    near(got[1], [*text_of(SHAPE, 6), 2])
    near(got[2], [*text_of(SHAPE, 7, seed=1), 3])
