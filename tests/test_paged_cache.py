"""What is special to pages: blocks are taken when tokens come, whatever they held before, and copied together for
attention only where they do not lie together.

The one idea: tables say who holds what, so each test looks at them, and at the logits, which would be no numbers if a
row read what it does not hold: freed memory is NaN.
"""

from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from cache_kinds import PAGES, Paged
from pages import CONFIG, MODEL, ONE_TOKEN, SHAPE, Failure, around, near, paged
from shapes import TOLERANCE, difference, feed, full_pass_of, text_of

from course_lib.caches import PagedCache

each_size = pytest.mark.parametrize("size", [1, 4, 16])


# --- Blocks are taken when tokens come


@each_size
@pytest.mark.parametrize("boundary", around(4))
def test_a_prompt_around_a_block_boundary_and_what_follows_it(size: int, boundary: str) -> None:
    """Beside the table, every logit of the prompt and of the next block's worth of tokens, one by one."""
    length = around(size)[boundary]
    text = text_of(SHAPE, length + size + 1)
    cache = paged(2, 6, size)
    got = [feed(MODEL, cache, {1: text[:length]})[1]]
    for token in text[length:]:
        assert len(cache.tables[1]) == -(-cache.lengths[1] // size) == cache.blocks_in_use
        got.append(feed(MODEL, cache, {1: [token]})[1])
        Paged(size).check(cache)
    near(torch.cat(got), text)
    cache.release(1)
    assert (cache.pool.free, cache.tables) == (6, ((), ()))


def test_a_row_has_no_block_before_it_has_a_token() -> None:
    cache = paged(3, 6)
    feed(MODEL, cache, {2: [1, 2], 0: []})
    assert cache.tables == ((), (), (0,)) and cache.blocks_in_use == 1


def test_rows_that_grow_in_turn_have_blocks_in_turn_and_read_their_own() -> None:
    cache, texts = paged(2, 8, 1), [text_of(SHAPE, 4, seed=row) for row in range(2)]
    for end in range(1, 5):
        got = feed(MODEL, cache, {row: text[end - 1 : end] for row, text in enumerate(texts)})
    assert [len(table) for table in cache.tables] == [4, 4] and len({*cache.tables[0], *cache.tables[1]}) == 8
    for row, text in enumerate(texts):
        near(got[row], text)


def test_tables_that_somebody_holds_do_not_change() -> None:
    cache = paged(2, 6)
    held = [cache.tables]
    for operation in (
        lambda: feed(MODEL, cache, {0: [1] * 5}),
        lambda: cache.copy_row(0, 1),
        lambda: feed(MODEL, cache, {0: [1]}),
        lambda: cache.release(0),
    ):
        operation()
        held.append(cache.tables)
    assert held == [((), ()), ((0, 1), ()), ((0, 1), (0, 1)), ((0, 2), (0, 1)), ((), (0, 1))]


def test_a_block_that_is_given_to_others_holds_nothing_of_its_last_owner() -> None:
    """Row 0 is short beside row 1, and reads the rest of its block, which the mask alone would not make harmless."""
    cache, short, long = paged(2, 4), text_of(SHAPE, 2), text_of(SHAPE, 7, seed=1)
    feed(MODEL, cache, {0: [1] * 8, 1: [2] * 8})
    cache.release(0), cache.release(1)
    cache.fill_free(torch.inf)
    got = feed(MODEL, cache, {0: short[:1], 1: long[:6]})
    got = feed(MODEL, cache, {0: short[1:], 1: long[6:]})
    near(got[0], short)
    near(got[1], long)


@pytest.mark.parametrize("kept", [1, 3, 4, 5])
def test_what_a_truncated_row_gave_up_in_its_last_block_is_not_read(kept: int) -> None:
    cache, text, long = paged(2, 6), text_of(SHAPE, 8), text_of(SHAPE, 12, seed=1)
    feed(MODEL, cache, {0: text, 1: long[:10]})
    cache.truncate(0, kept)
    assert len(cache.tables[0]) == -(-kept // 4) and cache.blocks_in_use == len(cache.tables[0]) + 3
    Paged(4).poison(cache, 0)
    got = feed(MODEL, cache, {0: [5], 1: long[10:]})
    near(got[0], [*text[:kept], 5])
    near(got[1], long)


def test_tokens_of_a_failed_pass_are_not_read_in_the_last_block() -> None:
    cache, text, long = paged(2, 6), text_of(SHAPE, 2), text_of(SHAPE, 8, seed=1)
    feed(MODEL, cache, {0: text, 1: long[:5]})
    with suppress(Failure), cache.step((2, 1)) as step:
        new = torch.full((2, CONFIG.n_kv_heads, 2, CONFIG.head_dim), torch.nan, dtype=torch.float64)
        for layer in range(CONFIG.n_layers):
            step.write(layer, new, new)
        raise Failure
    got = feed(MODEL, cache, {0: [3], 1: long[5:]})
    near(got[0], [*text, 3])
    near(got[1], long)


# --- What is read where it lies, and what is copied together


def attended(cache: PagedCache, pieces: dict[int, int]) -> list[torch.Tensor]:
    """Keys and values that a pass over these rows would attend to, layer by layer; the pass is not kept."""
    shape = (len(pieces), CONFIG.n_kv_heads, max(pieces.values()), CONFIG.head_dim)
    tensors = []
    with suppress(Failure), cache.step(tuple(pieces.values()), tuple(pieces)) as step:
        for layer in range(CONFIG.n_layers):
            tensors += step.write(layer, *torch.zeros(2, *shape, dtype=torch.float64))
        raise Failure
    return tensors


def lies_in(memory: torch.Tensor, tensor: torch.Tensor) -> bool:
    return tensor.untyped_storage().data_ptr() == memory.untyped_storage().data_ptr()


@each_size
def test_one_row_in_one_piece_is_read_where_it_lies(size: int) -> None:
    cache = paged(2, 40, size)
    feed(MODEL, cache, {1: text_of(SHAPE, 2, seed=1)})  # so that row 0 does not begin at the first block
    text = text_of(SHAPE, 18)
    for start, stop in ((0, 5), (5, 6), (6, 17)):
        near(feed(MODEL, cache, {0: text[start:stop]})[0], text[:stop])
    for memory, tensor in zip([cache.keys, cache.values] * CONFIG.n_layers, attended(cache, {0: 1}), strict=True):
        assert lies_in(memory, tensor) and tensor.shape == (1, CONFIG.n_kv_heads, 18, CONFIG.head_dim)
    assert cache.copied_bytes == 0


def test_blocks_that_do_not_follow_each_other_are_copied_together_and_counted() -> None:
    cache, text = paged(2, 8), text_of(SHAPE, 10)
    feed(MODEL, cache, {0: text[:4]})
    feed(MODEL, cache, {1: [1]})
    assert cache.copied_bytes == 0, "each lies in one piece so far"
    near(feed(MODEL, cache, {0: text[4:9]})[0], text[:9])
    assert cache.tables == ((0, 2, 3), (1,)), "row 1 has the block between"
    assert cache.copied_bytes == 12 * ONE_TOKEN, "whole blocks are copied: 12 slots for 9 tokens"
    tensors = attended(cache, {0: 1})
    assert not any(lies_in(memory, tensor) for memory in (cache.keys, cache.values) for tensor in tensors)
    assert cache.copied_bytes == 24 * ONE_TOKEN, "what a failed pass copied was copied"


def test_blocks_in_descending_order_do_not_count_as_one_piece() -> None:
    cache, text = paged(3, 2), text_of(SHAPE, 6)
    feed(MODEL, cache, {0: [1]})
    feed(MODEL, cache, {1: [1]})
    cache.release(1), cache.release(0)
    near(feed(MODEL, cache, {2: text})[2], text)
    assert cache.tables[2] == (1, 0) and cache.copied_bytes == 8 * ONE_TOKEN


def test_several_rows_are_copied_together_up_to_the_longest() -> None:
    """Three rows, the longest of 9 tokens: three blocks each, short tables filled up with the block of zeros."""
    cache, texts = paged(3, 8), [text_of(SHAPE, length, seed=length) for length in (9, 2, 5)]
    for row, text in enumerate(texts):
        feed(MODEL, cache, {row: text[:-1]})
    assert cache.copied_bytes == 0
    for row, got in feed(MODEL, cache, {row: text[-1:] for row, text in enumerate(texts)}).items():
        near(got, texts[row])
    assert cache.copied_bytes == 3 * 12 * ONE_TOKEN
    assert attended(cache, {1: 1, 2: 1})[0].shape == (2, CONFIG.n_kv_heads, 6, CONFIG.head_dim)
    assert cache.copied_bytes == (3 * 12 + 2 * 8) * ONE_TOKEN


def test_a_copy_on_write_is_not_counted_as_brought_together_for_attention() -> None:
    cache = paged(2, 4)
    feed(MODEL, cache, {0: [1, 2]})
    cache.copy_row(0, 1)
    feed(MODEL, cache, {1: [3]})
    assert cache.tables == ((0,), (1,)) and cache.copied_bytes == 0


# --- Memory


@pytest.mark.parametrize("kind", PAGES, ids=str)
def test_tensors_have_one_block_more_than_the_pool_and_it_stays_zero(kind: Paged) -> None:
    cache = kind.make(CONFIG, 3, 10)
    blocks = 3 * -(-10 // kind.size)
    assert (cache.slots, cache.line, cache.longest) == (blocks * kind.size, kind.size, blocks * kind.size)
    shape = (CONFIG.n_layers, blocks + 1, kind.size, CONFIG.n_kv_heads, CONFIG.head_dim)
    assert cache.keys.shape == cache.values.shape == shape
    cache.fill_free(torch.nan)
    feed(MODEL, cache, {0: [1] * 10, 1: [1], 2: [1, 2]})
    feed(MODEL, cache, {0: [], 1: [1]})
    assert not cache.keys[:, -1].any() and not cache.values[:, -1].any()
    assert cache.token_bytes == ONE_TOKEN


def test_memory_of_ended_texts_serves_new_ones_whatever_their_lengths() -> None:
    """A row reserves nothing: eight texts of other lengths follow each other in room for a few."""
    cache = paged(2, 6)
    for number, length in enumerate((24, 1, 23, 8, 17, 4, 24, 9)):
        row, text = number % 2, text_of(SHAPE, length, seed=number)
        near(feed(MODEL, cache, {row: text})[row], text)
        cache.release(row)
        cache.fill_free(torch.nan)
        assert cache.pool.free == 6


def test_keys_of_a_table_are_those_of_the_text_in_its_order() -> None:
    cache, text = paged(2, 5), text_of(SHAPE, 11)
    feed(MODEL, cache, {0: text[:3], 1: [1]})
    feed(MODEL, cache, {0: text[3:]})
    assert cache.tables[0] == (0, 2, 3)
    gathered = torch.stack([memory[:, [0, 2, 3]].flatten(1, 2)[:, :11] for memory in (cache.keys, cache.values)])
    assert difference(gathered, full_pass_of(MODEL, tuple(text))[1]) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: PagedCache(CONFIG, 0, 4), "at least one row, not 0"),
        (lambda: PagedCache(CONFIG, 1, 0), "at least one block, not 0"),
        (lambda: PagedCache(CONFIG, 1, 4, 0), "at least one token, not 0"),
        (lambda: PagedCache(CONFIG, 1, 4, 2.5), "must be a whole number, not 2.5"),
        (lambda: PagedCache(CONFIG, 1, 4.5), "must be a whole number, not 4.5"),
        (lambda: PagedCache(CONFIG, 1.5, 4), "must be a whole number, not 1.5"),
    ],
)
def test_a_cache_that_makes_no_sense_is_refused(make: Callable[[], PagedCache], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()
