"""What the tests of pages and prefixes share: caches whose memory is NaN, texts around block boundaries, digests that
collide.
"""

from collections.abc import Callable, Sequence

import torch
from cache_kinds import Paged
from shapes import SHAPES, TOLERANCE, difference, feed, model_of, truth

from course_lib.caches import PagedCache, PrefixCache
from course_lib.caches.prefix import sha256_digest

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]
ONE_TOKEN = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 8  # bytes of keys and values, in float64

Digest = Callable[[bytes], bytes]
DIGESTS: dict[str, Digest] = {
    "sha256": sha256_digest,
    "two values": lambda data: bytes([sum(data) % 2]),
    "always collides": lambda data: b"",
}


class Failure(Exception):
    """What the tests raise in the middle of a pass."""


def paged(rows: int, blocks: int, size: int = 4) -> PagedCache:
    """A cache whose memory holds NaN, but for the block of zeros."""
    cache = PagedCache(CONFIG, rows, blocks, size, torch.float64)
    Paged(size).write(cache, range(cache.slots), torch.nan)
    return cache


def near(got: torch.Tensor, text: Sequence[int]) -> None:
    """`got` [k, V] are the logits of the last k tokens of `text`."""
    assert difference(got, truth(SHAPE, tuple(text))[-len(got) :]) <= TOLERANCE[torch.float64]


def around(size: int) -> dict[str, int]:
    """Lengths of prompts at which off by one shows."""
    return {
        "1": 1,
        "block - 1": max(1, size - 1),
        "block": size,
        "block + 1": size + 1,
        "2 blocks - 1": 2 * size - 1,
        "2 blocks": 2 * size,
        "2 blocks + 1": 2 * size + 1,
        "3 blocks": 3 * size,
    }


def state(cache: PagedCache) -> tuple:
    """What a pass that fails must leave as it was. Which free block is next may change, which are free may not."""
    pool = cache.pool
    return cache.tables, cache.lengths, list(pool.references), set(pool.blank), list(pool.kept), set(pool.findable)


def prefix_cache(digest: Digest, rows: int = 3, blocks: int = 12, size: int = 4) -> PrefixCache:
    return PrefixCache(paged(rows, blocks, size), digest)


def read(prefix: PrefixCache, row: int, text: Sequence[int], salt: str = "", publish: bool = True) -> int:
    """Serve a text: reuse what is found, read the rest, check its logits, publish it. Returns the tokens reused."""
    cache = prefix.cache
    reused = prefix.reuse(row, text, salt)
    assert reused == cache.lengths[row] < len(text) and reused % cache.block_size == 0
    cache.fill_free(torch.nan)
    near(feed(MODEL, cache, {row: text[reused:]})[row], text)
    if publish:
        prefix.publish(row, text, salt)
    Paged(cache.block_size).check(cache)
    return reused
