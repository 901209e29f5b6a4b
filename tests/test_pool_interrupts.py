"""Ctrl-C at any moment inside the books of blocks and prefixes: no block is lost, and nothing wrong can be found.

The one idea: Python looks for a signal where a call ends and where a function begins. A profiler is called at just
these places, so one that raises KeyboardInterrupt at the first, at the second and so on tries all of them, each time.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest
from pages import DIGESTS, SHAPE, prefix_cache, read
from shapes import text_of

from course_lib.caches.pool import BlockPool

BOOKS = ("pool.py", "prefix.py")
TEXT, LONGER = text_of(SHAPE, 9), text_of(SHAPE, 17)


def interrupted(work: Callable[[], Any], at: int) -> bool:
    """work(), interrupted at moment number `at` that passes in the books; False if it was done before that."""
    moments = count(1)

    def look(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename.endswith(BOOKS) and event in ("call", "c_return") and next(moments) == at:
            raise KeyboardInterrupt

    sys.setprofile(look)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False


def every_moment(prepare: Callable[[], Any], work: Callable[[Any], Any]) -> Iterator[Any]:
    """What `prepare` gives, after work() on it was interrupted: at its first moment, at its second, until its end."""
    for at in count(1):
        prepared = prepare()
        if not interrupted(lambda prepared=prepared: work(prepared), at):
            assert at > 1, "work has to have moments"
            return
        yield prepared


def some_pool() -> BlockPool:
    """Block 0 is held twice, 1 and 2 are kept, 3 is blank."""
    pool = BlockPool(4)
    for _ in range(3):
        pool.findable[pool.take()] = lambda: None
    del pool.findable[0]
    pool.share(0)
    pool.give_back(1), pool.give_back(2)
    return pool


def take_all(pool: BlockPool) -> None:
    while pool.free:
        pool.take()


WORK: dict[str, Callable[[BlockPool], Any]] = {
    "take a blank one": lambda pool: pool.take(),
    "take the next one": lambda pool: pool.take(after=2),
    "take a kept one": lambda pool: (pool.take(), pool.take()),
    "take all": take_all,
    "share a held one": lambda pool: pool.share(0),
    "share a kept one": lambda pool: pool.share(1),
    "give back": lambda pool: (pool.give_back(0), pool.give_back(0)),
    "lose": lambda pool: pool.lose(1),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_every_block_is_held_or_free_whenever_somebody_presses_ctrl_c(work: Callable[[BlockPool], Any]) -> None:
    for pool in every_moment(some_pool, work):
        held = {block for block, references in enumerate(pool.references) if references}
        assert sorted([*held, *pool.blank, *pool.kept]) == [0, 1, 2, 3]
        taken = [pool.take() for _ in range(pool.free)]
        assert sorted([*held, *taken]) == [0, 1, 2, 3], "what is free can be taken, once"


@pytest.mark.parametrize("digest", DIGESTS.values(), ids=DIGESTS)
def test_what_can_be_found_is_known_to_the_pool_whenever_somebody_presses_ctrl_c(digest: Any) -> None:
    """Else the pool would give the block to another text, and the first one would be found in it."""

    def prepare() -> Any:
        prefix = prefix_cache(digest, 3, 12)
        read(prefix, 0, TEXT)
        read(prefix, 1, LONGER, publish=False)
        return prefix

    def work(prefix: Any) -> None:
        prefix.publish(1, LONGER)
        prefix.cache.release(0), prefix.cache.release(1)
        for block in list(prefix.cache.pool.kept):
            prefix.cache.pool.lose(block)

    for prefix in every_moment(prepare, work):
        found = {entry.block for entries in prefix.entries.values() for entry in entries}
        assert found <= set(prefix.cache.pool.findable)
