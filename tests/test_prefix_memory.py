"""What can be found is right as long as it can be found: memory runs out and the oldest goes first, rows are cut and
written again, passes fail, and nobody reads another content than the tokens say.

The one idea: beside what is found stand the logits, with NaN in all memory that nobody may read, for good and for
colliding digests.
"""

import pytest
import torch
from cache_kinds import Paged
from pages import CONFIG, DIGESTS, MODEL, SHAPE, Digest, near, prefix_cache, read
from shapes import TOLERANCE, bits, difference, feed, full_pass_of, same_bits, text_of

from course_lib.caches import CacheFull

pytestmark = pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)

TEXT = text_of(SHAPE, 13)  # three blocks of 4 and one token
OTHER = text_of(SHAPE, 13, seed=1)


# --- Memory that runs out


def test_what_is_kept_is_free_for_others(digest: Digest) -> None:
    prefix = prefix_cache(digest, rows=2, blocks=4)
    read(prefix, 0, TEXT)
    prefix.cache.release(0)
    assert (prefix.cache.pool.free, prefix.cache.used_bytes, prefix.found(TEXT)) == (4, 0, 12)
    long = text_of(SHAPE, 16)
    assert prefix.cache.fits([1], [16]) and read(prefix, 1, long) == 0
    assert prefix.found(TEXT) == 0 and prefix.statistics.evictions == 3


def test_blank_blocks_are_used_before_what_can_be_found(digest: Digest) -> None:
    prefix = prefix_cache(digest, blocks=6)
    read(prefix, 0, TEXT[:12])
    prefix.cache.release(0)
    read(prefix, 1, OTHER[:12], publish=False)
    assert (prefix.found(TEXT), prefix.statistics.evictions) == (12, 0)
    prefix.cache.release(1)
    read(prefix, 2, OTHER, publish=False)
    assert (prefix.found(TEXT), prefix.statistics.evictions) == (8, 1)


def test_the_end_of_a_text_goes_before_its_beginning(digest: Digest) -> None:
    """Others may begin alike; what comes after a block that is gone could not be found anyway."""
    prefix = prefix_cache(digest, rows=2, blocks=4)
    read(prefix, 0, [*TEXT[:12], 1, 2, 3, 4])
    prefix.cache.release(0)
    for length, left in ((1, 12), (5, 8), (9, 4), (13, 0)):
        assert prefix.found([*TEXT[:12], 1, 2, 3, 4, 5]) == left + 4
        feed(MODEL, prefix.cache, {1: OTHER[prefix.cache.lengths[1] : length]})
        assert prefix.found([*TEXT[:12], 1, 2, 3, 4, 5]) == left
    assert prefix.statistics.evictions == 4


def test_what_was_not_used_for_longest_goes_first(digest: Digest) -> None:
    prefix, texts = prefix_cache(digest, blocks=6), [text_of(SHAPE, 9, seed=seed) for seed in range(3)]
    for text in texts[:2]:
        read(prefix, 0, text[:8])
        prefix.cache.release(0)
    read(prefix, 0, texts[0])  # the older one is used again
    prefix.cache.release(0)
    for new, found in ((8, [8, 8, 0]), (4, [8, 4, 0]), (4, [8, 0, 0]), (4, [4, 0, 0]), (4, [0, 0, 0])):
        feed(MODEL, prefix.cache, {1: texts[2][:1] * new})
        assert [prefix.found(text) for text in texts] == found, "two blocks were blank"


def test_a_beginning_that_is_gone_takes_all_that_came_after_it_along(digest: Digest) -> None:
    """Row 1 still holds the later blocks of the text; without its beginning nobody can find them."""
    prefix = prefix_cache(digest, rows=3, blocks=7)
    feed(MODEL, prefix.cache, {0: TEXT[:4], 1: TEXT})
    prefix.publish(0, TEXT[:4])
    prefix.publish(1, TEXT)
    prefix.cache.release(0)
    assert prefix.found(TEXT) == 12
    read(prefix, 2, OTHER[:12], publish=False)  # three blocks: two blank ones, and the beginning
    assert prefix.found(TEXT) == 0 and not prefix.cache.pool.findable and prefix.statistics.evictions == 3
    near(feed(MODEL, prefix.cache, {1: [3]})[1], [*TEXT, 3])
    prefix.cache.release(1)
    assert len(prefix.cache.pool.blank) == prefix.cache.pool.free == 4
    read(prefix, 0, TEXT)
    assert prefix.found(TEXT) == 12


def test_an_eviction_between_match_and_use_costs_the_hit_and_nothing_else(digest: Digest) -> None:
    prefix = prefix_cache(digest, rows=3, blocks=6)
    read(prefix, 0, TEXT[:12])
    prefix.cache.release(0)
    assert prefix.found(TEXT) == 12
    read(prefix, 1, OTHER, publish=False)  # four blocks: one of the three has to go
    prefix.cache.release(1)
    assert read(prefix, 2, TEXT) == 8 and prefix.found(TEXT) == 12


def test_what_a_row_took_over_cannot_be_taken_away(digest: Digest) -> None:
    """Between `reuse` and the pass that reads the rest, others need all the memory there is."""
    prefix = prefix_cache(digest, rows=3, blocks=6)
    read(prefix, 0, TEXT[:12])
    prefix.cache.release(0)
    assert prefix.reuse(2, TEXT) == 12
    feed(MODEL, prefix.cache, {1: OTHER[:12]})
    with pytest.raises(CacheFull):
        feed(MODEL, prefix.cache, {1: OTHER[12:]})
    prefix.cache.release(1)
    prefix.cache.fill_free(torch.nan)
    near(feed(MODEL, prefix.cache, {2: TEXT[12:]})[2], TEXT)


def test_a_pass_that_does_not_fit_evicts_nothing(digest: Digest) -> None:
    prefix = prefix_cache(digest, rows=2, blocks=4)
    read(prefix, 0, TEXT[:12])
    prefix.cache.release(0)
    before = bits(prefix.cache.keys, prefix.cache.values)
    with pytest.raises(CacheFull):
        feed(MODEL, prefix.cache, {1: text_of(SHAPE, 17)})
    assert (prefix.found(TEXT), prefix.statistics.evictions) == (12, 0)
    assert same_bits(before, bits(prefix.cache.keys, prefix.cache.values))


# --- Content that changes


@pytest.mark.parametrize("kept", [9, 10, 11, 12])
def test_a_published_block_that_is_written_again_is_not_found_with_its_old_tokens(digest: Digest, kept: int) -> None:
    """A row is cut in the middle of a block that can be found, and goes on with other tokens."""
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    prefix.cache.truncate(0, kept)
    prefix.cache.fill_free(torch.nan)
    assert prefix.found(TEXT) == 12, "nothing is overwritten yet"
    new = [*TEXT[:kept], *OTHER[:6]]
    near(feed(MODEL, prefix.cache, {0: OTHER[:6]})[0], new)
    assert prefix.found(TEXT) == (12 if kept == 12 else 8)
    assert read(prefix, 1, TEXT, publish=False) == kept // 4 * 4
    prefix.publish(0, new)
    assert read(prefix, 2, new) == (len(new) - 1) // 4 * 4


def test_a_cut_row_leaves_a_block_that_others_took_over_meanwhile(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    prefix.cache.truncate(0, 10)
    assert read(prefix, 1, TEXT) == 12
    prefix.cache.fill_free(torch.nan)
    near(feed(MODEL, prefix.cache, {0: [9, 9]})[0], [*TEXT[:10], 9, 9])
    near(feed(MODEL, prefix.cache, {1: [4]})[1], [*TEXT, 4])
    assert read(prefix, 2, TEXT) == 12


def test_a_row_that_was_cut_in_a_block_and_gets_nothing_in_a_pass_leaves_it_as_it_was(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    prefix.cache.truncate(0, 10)
    other = OTHER[:5]
    near(feed(MODEL, prefix.cache, {1: other})[1], other)
    MODEL(torch.tensor([[0], [7]]), prefix.cache, counts=[0, 1], rows=[0, 1])
    prefix.cache.release(0)
    assert read(prefix, 2, TEXT) == 12


def test_one_of_two_rows_that_were_cut_in_a_block_writes_and_the_block_stays_as_it_was(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    prefix.cache.copy_row(0, 1)
    for row in (0, 1):
        prefix.cache.truncate(row, 10)
    near(feed(MODEL, prefix.cache, {0: [9]})[0], [*TEXT[:10], 9])
    for row in (0, 1):
        prefix.cache.release(row)
    assert read(prefix, 2, TEXT) == 12


def test_a_pass_that_fails_leaves_found_what_can_still_be_trusted(digest: Digest) -> None:
    """The failed pass has overwritten the end of a block that could be found: whatever is found now is right."""
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    prefix.cache.truncate(0, 10)
    with pytest.raises(KeyboardInterrupt), prefix.cache.step((2,), (0,)) as step:
        new = torch.full((1, CONFIG.n_kv_heads, 2, CONFIG.head_dim), torch.nan, dtype=torch.float64)
        step.write(0, new, new)
        raise KeyboardInterrupt
    assert read(prefix, 1, TEXT) == 8
    near(feed(MODEL, prefix.cache, {0: TEXT[10:]})[0], TEXT)


def test_memory_of_what_can_be_found_is_not_free_to_be_overwritten(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    blocks = prefix.cache.tables[0][:3]
    prefix.cache.release(0)
    slots = [block * 4 + offset for block in blocks for offset in range(4)]
    held = bits(Paged(4).content(prefix.cache, slots))
    prefix.cache.fill_free(torch.nan)
    assert same_bits(held, bits(Paged(4).content(prefix.cache, slots)))
    wanted = full_pass_of(MODEL, tuple(TEXT[:12]))[1]
    assert difference(Paged(4).content(prefix.cache, slots), wanted) <= TOLERANCE[torch.float64]
    others = sorted(set(range(prefix.cache.slots)) - set(slots))
    assert Paged(4).content(prefix.cache, others).isnan().all()
