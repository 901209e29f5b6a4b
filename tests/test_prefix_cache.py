"""A prompt takes over what an earlier one computed, if and only if the two begin alike, in full blocks, for the same
tenant. What a digest says is never believed.

The one idea: every test runs with a good digest, with one that has two values and with one that always collides, and
nothing may differ. What is reused must give the logits of the whole text, with NaN in all memory that nobody may read.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from cache_kinds import Paged
from pages import CONFIG, DIGESTS, MODEL, ONE_TOKEN, SHAPE, Digest, around, near, prefix_cache, read
from shapes import feed, text_of

pytestmark = pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)

TEXT = text_of(SHAPE, 13)  # three blocks of 4 and one token
OTHER = text_of(SHAPE, 13, seed=1)


# --- What is found


def test_nothing_is_found_before_something_is_published(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    assert prefix.found(TEXT) == 0
    assert read(prefix, 0, TEXT, publish=False) == 0
    assert (prefix.found(TEXT), read(prefix, 1, TEXT)) == (0, 0)
    assert prefix.found(TEXT) == 12


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("boundary", around(4))
def test_a_prompt_that_was_read_before_is_reused_but_for_its_last_token(
    digest: Digest, size: int, boundary: str
) -> None:
    """Around every boundary: full blocks only, and never the whole prompt, so that one pass of one token or more is
    left. A prompt of whole blocks, all of them found, reads its last block again.
    """
    length = around(size)[boundary]
    prefix, text = prefix_cache(digest, 2, 8, size), text_of(SHAPE, length)
    assert read(prefix, 0, text) == 0
    for row in (1, 0):  # beside the first, and after it
        expected = (length - 1) // size * size
        assert prefix.found(text) == expected
        assert read(prefix, row, text) == expected
        prefix.cache.release(0), prefix.cache.release(1)
        prefix.cache.fill_free(torch.nan)
    assert prefix.found([*text, 0]) == length // size * size, "a longer prompt can have the last block, too"


@pytest.mark.parametrize("agree", range(13))
def test_texts_share_the_full_blocks_up_to_where_they_part(digest: Digest, agree: int) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    other = [*TEXT[:agree], (TEXT[agree] + 1) % CONFIG.vocab_size, *TEXT[agree + 1 :]]
    assert read(prefix, 1, other) == agree // 4 * 4
    shared = agree // 4
    assert prefix.cache.tables[1][:shared] == prefix.cache.tables[0][:shared]
    assert not set(prefix.cache.tables[1][shared:]) & set(prefix.cache.tables[0])
    near(feed(MODEL, prefix.cache, {0: [5]})[0], [*TEXT, 5])


def test_a_block_is_found_after_its_own_beginning_only(digest: Digest) -> None:
    """Both texts go on with the same four tokens, whose keys and values differ all the same."""
    prefix = prefix_cache(digest)
    read(prefix, 0, [*TEXT[:4], 7, 7, 7, 7, 1])
    assert prefix.found([*OTHER[:4], 7, 7, 7, 7, 1]) == 0
    assert prefix.found([7, 7, 7, 7, 1]) == 0
    assert read(prefix, 1, [*OTHER[:4], 7, 7, 7, 7, 1]) == 0
    for row, text in ((0, TEXT), (1, OTHER)):
        blocks = prefix.cache.tables[row][:2]
        prefix.cache.release(2)
        assert read(prefix, 2, [*text[:4], 7, 7, 7, 7, 2]) == 8 and prefix.cache.tables[2][:2] == blocks


def test_the_blocks_of_a_row_that_still_runs_are_found(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT[:9])
    near(feed(MODEL, prefix.cache, {0: TEXT[9:]})[0], TEXT)
    assert read(prefix, 1, TEXT) == 8, "what it read since is not published"
    assert read(prefix, 2, TEXT) == 12, "row 1 has published it"
    assert prefix.cache.tables[1] != prefix.cache.tables[0] and prefix.cache.tables[2][:3] == prefix.cache.tables[1][:3]


def test_only_full_blocks_are_published(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT[:7])
    assert prefix.found(TEXT) == 4 and set(prefix.cache.pool.findable) == {prefix.cache.tables[0][0]}
    prefix.cache.release(0)
    assert list(prefix.cache.pool.kept) == [0] and len(prefix.cache.pool.blank) == 11


def test_publishing_says_what_the_row_has_read_and_not_what_comes_after(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    feed(MODEL, prefix.cache, {0: TEXT[:8]})
    prefix.publish(0, TEXT)
    assert prefix.found(TEXT) == 8
    with pytest.raises(ValueError, match="row 0 has read 8 tokens, more than the 7 that were given"):
        prefix.publish(0, TEXT[:7])


def test_what_is_found_already_is_not_published_twice(digest: Digest) -> None:
    """Two rows read the same text side by side, so each has computed it; one copy is enough to keep."""
    prefix = prefix_cache(digest)
    feed(MODEL, prefix.cache, {0: TEXT, 1: TEXT})
    for row in (0, 1, 0, 1):
        prefix.publish(row, TEXT)
    assert set(prefix.cache.pool.findable) == set(prefix.cache.tables[0][:3])
    prefix.cache.release(1)
    assert len(prefix.cache.pool.blank) == 8 and not prefix.cache.pool.kept
    assert read(prefix, 2, TEXT) == 12 and prefix.cache.tables[2][:3] == prefix.cache.tables[0][:3]


def test_a_text_goes_on_where_another_row_has_published_its_beginning(digest: Digest) -> None:
    """The second row computed all of it, the first published the beginning: the second adds what comes after."""
    prefix = prefix_cache(digest)
    feed(MODEL, prefix.cache, {0: TEXT[:8], 1: TEXT})
    prefix.publish(0, TEXT[:8])
    prefix.publish(1, TEXT)
    assert prefix.found(TEXT) == 12
    (a, b), c = prefix.cache.tables[0], prefix.cache.tables[1][2]
    assert read(prefix, 2, TEXT) == 12 and prefix.cache.tables[2][:3] == (a, b, c)


# --- Tenants


def test_salts_share_nothing(digest: Digest) -> None:
    prefix = prefix_cache(digest, blocks=16)
    read(prefix, 0, TEXT, salt="a")
    for salt in ("", "b", "aa"):
        assert prefix.found(TEXT, salt) == 0
    assert read(prefix, 1, TEXT, salt="b") == 0
    assert not set(prefix.cache.tables[0]) & set(prefix.cache.tables[1])
    for row, salt in ((0, "a"), (1, "b")):
        assert read(prefix, 2, TEXT, salt) == 12
        assert prefix.cache.tables[2][:3] == prefix.cache.tables[row][:3]
        prefix.cache.release(2)


def test_a_tenant_cannot_publish_what_another_has_shared_with_it(digest: Digest) -> None:
    """A block is found under one salt only, or one tenant could tell from the time to the first token what another
    has asked.
    """
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT, salt="a")
    prefix.publish(0, TEXT, salt="b")
    assert (prefix.found(TEXT, "a"), prefix.found(TEXT, "b")) == (12, 0)


# --- What it says about itself


def test_statistics_count_lookups_hits_tokens_and_evictions(digest: Digest) -> None:
    prefix = prefix_cache(digest, rows=3, blocks=7)
    read(prefix, 0, TEXT)
    read(prefix, 1, TEXT[:12])
    read(prefix, 2, OTHER[:4])
    for _ in range(3):
        prefix.found(TEXT)  # asks for nothing, counts for nothing
    said = prefix.statistics
    assert (said.lookups, said.hits, said.asked_tokens, said.reused_tokens, said.evictions) == (3, 1, 29, 8, 0)
    assert prefix.reused_bytes == 8 * ONE_TOKEN
    for row in range(3):
        prefix.cache.release(row)
    feed(MODEL, prefix.cache, {0: text_of(SHAPE, 28)})
    assert said.evictions == 4


def test_a_lookup_that_led_to_nothing_can_be_taken_back(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    said = (*vars(prefix.statistics).values(),)
    for text in (TEXT, OTHER):
        prefix.reuse(1, text)
        prefix.cancel(1, text)
        assert (*vars(prefix.statistics).values(),) == said and prefix.cache.tables[1] == ()
    Paged(4).check(prefix.cache)
    assert read(prefix, 1, TEXT) == 12


# --- Calls that make no sense, and tokens of other libraries


def test_a_row_that_holds_a_text_takes_nothing_over(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    said, tables = (*vars(prefix.statistics).values(),), prefix.cache.tables
    with pytest.raises(ValueError, match="row 0 holds 13 tokens: release it first"):
        prefix.reuse(0, TEXT)
    assert (*vars(prefix.statistics).values(),) == said and prefix.cache.tables is tables
    Paged(4).check(prefix.cache)


@pytest.mark.parametrize("row", [-1, 3])
def test_rows_that_do_not_exist_are_refused(digest: Digest, row: int) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    for call in (lambda: prefix.reuse(row, TEXT), lambda: prefix.publish(row, TEXT), lambda: prefix.cancel(row, TEXT)):
        with pytest.raises(ValueError, match=f"no row {row}: this cache has rows 0 to 2"):
            call()
    Paged(4).check(prefix.cache)
    assert prefix.statistics.lookups == 1


def test_nothing_is_shared_in_the_middle_of_a_step(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    with pytest.raises(KeyboardInterrupt), prefix.cache.step((1,)):
        for call in (lambda: prefix.reuse(1, TEXT), lambda: prefix.publish(0, TEXT)):
            with pytest.raises(ValueError, match="a step is still open"):
                call()
        raise KeyboardInterrupt
    assert prefix.found(TEXT) == 12 and prefix.statistics.lookups == 1


@pytest.mark.parametrize("kind", [tuple, np.array, torch.tensor])
def test_tokens_are_numbers_whoever_made_them_and_nobody_can_change_them_later(digest: Digest, kind: Callable) -> None:
    prefix, text = prefix_cache(digest), kind(TEXT)
    feed(MODEL, prefix.cache, {0: TEXT})
    prefix.publish(0, text)
    if kind is not tuple:
        text[:] = 0
    assert prefix.found(TEXT) == 12 and prefix.found([0] * 13) == 0
    assert prefix.reuse(1, kind(TEXT)) == 12
    near(feed(MODEL, prefix.cache, {1: TEXT[12:]})[1], TEXT)


def test_what_is_no_token_or_no_salt_is_refused(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    for call in (lambda *asked: prefix.reuse(0, *asked), prefix.found):
        for token in (2**63, -1):
            with pytest.raises(ValueError, match=rf"a token must be a number from 0 to 2\^63 - 1, not {token}"):
                call([token] * 9)
        for salt in (None, 5):
            with pytest.raises(ValueError, match=f"the salt must be a text, not {salt}"):
                call(TEXT, salt)
    assert prefix.statistics.lookups == 0


def test_blocks_of_which_one_cannot_be_shared_are_all_left_alone(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    with pytest.raises(ValueError, match="block 11 is free and holds nothing"):
        prefix.cache.adopt(1, (prefix.cache.tables[0][0], 11))
    Paged(4).check(prefix.cache)


def test_an_empty_prompt_finds_nothing(digest: Digest) -> None:
    prefix = prefix_cache(digest)
    read(prefix, 0, TEXT)
    assert (prefix.found([]), prefix.reuse(1, [])) == (0, 0) and prefix.cache.lengths == (13, 0, 0)
    prefix.publish(1, [])
