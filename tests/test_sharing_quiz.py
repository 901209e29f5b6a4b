"""The numbers in the questions of notebooks 05 and 06, worked out by the caches; each trap is the mistake it names."""

from collections.abc import Collection, Sequence

import pytest
import torch
from shapes import model_of

from course_lib.caches import Cache, ContiguousCache, PagedCache, PrefixCache
from course_lib.quizzes.bank import Number, load_bank

BATCHES, SHARING = "05_batches_and_slots", "06_paged_cache_and_prefix_sharing"
KIB, MIB = 2**10, 2**20
MODEL = model_of("mqa")


def number(notebook: str, identifier: str, *, traps: Collection[float]) -> float:
    """The answer of a question, which names exactly these traps."""
    found = next(question for question in load_bank(notebook).questions if question.id == identifier)
    assert isinstance(found, Number)
    assert sorted(trap.value for trap in found.traps) == pytest.approx(sorted(traps))
    return found.answer


def words(notebook: str, identifier: str) -> str:
    """Everything that a question says, before and after an answer."""
    return repr(next(question for question in load_bank(notebook).questions if question.id == identifier))


def read(cache: Cache, row: int, tokens: Sequence[int]) -> None:
    """Let a row read `tokens`."""
    with torch.inference_mode():
        MODEL(torch.tensor([list(tokens)]), cache, counts=[len(tokens)], rows=[row])


def paged(rows: int, blocks: int, block_size: int = 16) -> PagedCache:
    return PagedCache(MODEL.config, rows, blocks, block_size, dtype=torch.float64)


def test_the_slot_of_the_fifth_new_token_in_row_2() -> None:
    cache = ContiguousCache(MODEL.config, rows=3, capacity=32, dtype=torch.float64)
    for row, tokens in enumerate((20, 9, 12)):
        read(cache, row, [1] * tokens)
    for _ in range(4):  # the first four new tokens were read; the fifth has just been chosen
        read(cache, 2, [1])
    position = cache.lengths[2]
    read(cache, 2, [1])
    slot = cache.places(2)[position]
    begin = 2 * cache.line
    traps = {begin + position + 1, position, begin + cache.lengths[0], sum(cache.lengths[:2]) + position}
    assert number(BATCHES, "next_slot", traps=traps) == slot


def test_the_columns_that_the_padded_row_is_asked_about() -> None:
    """Of 40 tokens in 64 columns, the first stands in column 24 if padding is on the left, the last in 39 if not."""
    text = words(BATCHES, "padded_row")
    for place in ("column 24 and at position 0", "position 64, as that of the other", "stand in column 39"):
        assert place in text
    assert (64 - 40, 40 - 1) == (24, 39)


def test_a_moved_row_keeps_its_keys_and_its_positions() -> None:
    cache = ContiguousCache(MODEL.config, rows=4, capacity=8, dtype=torch.float64)
    read(cache, 2, [3, 1, 4, 1, 5])
    before = cache.keys[:, 2, :, :5].clone()
    cache.move_row(2, 1)
    assert cache.lengths == (0, 5, 0, 0) and torch.equal(cache.keys[:, 1, :, :5], before)
    assert cache.places(1) == {position: 8 + position for position in range(5)}


def test_what_is_reserved_for_nothing() -> None:
    lengths, most = (448, 96, 352, 128), 2048
    small = model_of("mqa").config
    cache = ContiguousCache(small, rows=4, capacity=most, dtype=torch.float32)
    cache.lengths = lengths
    token = cache.reserved_bytes // cache.slots
    wasted, used, reserved = (
        each / token * 32 * KIB / MIB
        for each in (cache.reserved_bytes - cache.used_bytes, cache.used_bytes, cache.reserved_bytes)
    )
    longest = (len(lengths) * max(lengths) - sum(lengths)) * 32 * KIB / MIB
    traps = {reserved, used, longest, wasted * MIB / 10**6}
    assert number(SHARING, "reserved_for_nothing", traps=traps) == wasted == reserved * 7 / 8


def test_the_slot_that_a_table_leads_to() -> None:
    cache, table, position = paged(rows=1, blocks=12), (7, 5, 11, 4), 40
    cache.tables, cache.lengths = (table,), (55,)
    sorted_table = sorted(table)
    traps = {
        float(position),
        *(block * 16 + position % 16 for block in (table[3], table[1], sorted_table[2])),
    }
    assert number(SHARING, "look_it_up", traps=traps) == cache.places(0)[position]


@pytest.mark.parametrize(("block_size", "shared"), [(16, 96), (64, 64)])
def test_of_100_common_tokens_larger_blocks_share_fewer(block_size: int, shared: int) -> None:
    assert computed(100, 120, common=100, block_size=block_size) == 120 - shared
    text = words(SHARING, "larger_blocks")
    assert "common beginning of 100 tokens" in text and "six blocks of 16 can be shared, 96 tokens" in text


def computed(first: int, second: int, *, common: int, block_size: int = 16) -> int:
    """How many tokens of a second prompt have to be computed after a first one with a common beginning."""
    cache = paged(rows=2, blocks=-(-first // block_size) + -(-second // block_size), block_size=block_size)
    prefix = PrefixCache(cache)
    tokens = [[number % 5 for number in range(common)] + [mine] * 200 for mine in (7, 8)]
    read(cache, 0, tokens[0][:first])
    prefix.publish(0, tokens[0][:first])
    return second - prefix.reuse(1, tokens[1][:second])


def test_the_tokens_after_a_common_beginning() -> None:
    blocks = 70 // 16
    traps = {90 - 70, 90, 90 - 16 * (blocks + 1), 0}
    assert number(SHARING, "common_beginning", traps=traps) == computed(100, 90, common=70) == 90 - 16 * blocks


def test_the_tokens_of_a_prompt_that_comes_again() -> None:
    assert number(SHARING, "the_same_again", traps={0, 1, 64}) == computed(64, 64, common=64)


def test_a_row_that_writes_into_a_shared_block_gets_a_copy_and_the_table_changes_last() -> None:
    """The order that the question asks for."""
    cache = paged(rows=2, blocks=4, block_size=4)
    read(cache, 0, [1, 2, 3, 4, 5, 6])
    cache.copy_row(0, 1)
    shared = cache.tables[1][-1]
    assert cache.pool.references[shared] == 2 and cache.pool.free == 2
    with cache.step([1], rows=[1]) as step:
        copy = cache.planned[1][-1]
        assert cache.pool.free == 1 and torch.equal(cache.keys[:, copy, :2], cache.keys[:, shared, :2])
        new = torch.ones(1, MODEL.config.n_kv_heads, 1, MODEL.config.head_dim, dtype=torch.float64)
        for layer in range(MODEL.config.n_layers):
            step.write(layer, new, new)
            assert cache.keys[layer, copy, 2].eq(1).all() and cache.tables[1][-1] == shared
    assert cache.tables[1][-1] == copy and cache.pool.references[shared] == 1


@pytest.mark.parametrize("name", [BATCHES, SHARING])
def test_each_quiz_asks_in_all_four_ways(name: str) -> None:
    assert {question.type for question in load_bank(name).questions} == {"one", "several", "number", "order"}
