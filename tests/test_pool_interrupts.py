"""Ctrl-C at any moment inside the books of blocks, tables and prefixes: no block is lost, none has an owner too many,
and nothing wrong can be found or read.

The one idea: Python looks for a signal where a call ends and where a function begins. A profiler is called at just
these places, so one that raises KeyboardInterrupt at the first, at the second and so on tries all of them, each time.
"""

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest
import torch
from cache_kinds import Paged
from pages import DIGESTS, MODEL, SHAPE, near, paged, prefix_cache, read
from shapes import feed, text_of

from course_lib.caches import PagedCache, PrefixCache
from course_lib.caches.pool import BlockPool
from course_lib.checkpoints import random_model
from course_lib.generation import generate
from course_lib.model import ModelConfig
from course_lib.serving import Engine, Request

BOOKS = ("contract.py", "paged.py", "pool.py", "prefix.py")
TEXT, LONGER = text_of(SHAPE, 9), text_of(SHAPE, 17)
SMALL = random_model(ModelConfig(31, 1, 8, 1, 1, 4, 8, 64), seed=3)


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


def three_rows() -> PagedCache:
    """Row 0 has read 7 tokens of LONGER, row 1 the first 6 of TEXT, and row 2 is a copy of row 0."""
    cache = paged(3, 12)
    feed(MODEL, cache, {0: LONGER[:7], 1: TEXT[:6]})
    cache.copy_row(0, 2)
    return cache


OF_ROWS: dict[str, tuple[Callable[[PagedCache], Any], set[tuple[int, ...]]]] = {  # and the lengths that may come of it
    "release": (lambda cache: cache.release(1), {(7, 6, 7), (7, 0, 7)}),
    "truncate": (lambda cache: cache.truncate(1, 3), {(7, 6, 7), (7, 3, 7)}),
    "copy": (lambda cache: cache.copy_row(0, 1), {(7, 6, 7), (7, 0, 7), (7, 7, 7)}),
    "move": (lambda cache: cache.move_row(0, 1), {(7, 6, 7), (7, 0, 7), (7, 7, 7), (0, 7, 7)}),
    "take over": (
        lambda cache: (cache.release(2), cache.adopt(2, cache.tables[0][:1])),
        {(7, 6, 7), (7, 6, 0), (7, 6, 4)},
    ),
    "read": (lambda cache: feed(MODEL, cache, {1: TEXT[6:9]}), {(7, 6, 7), (7, 9, 7)}),
    "read into a shared block": (lambda cache: feed(MODEL, cache, {0: LONGER[7:10]}), {(7, 6, 7), (10, 6, 7)}),
}


@pytest.mark.parametrize(("work", "lengths"), OF_ROWS.values(), ids=OF_ROWS)
def test_rows_hold_what_they_say_whenever_somebody_presses_ctrl_c(
    work: Callable[[PagedCache], Any], lengths: set[tuple[int, ...]]
) -> None:
    for cache in every_moment(three_rows, work):
        assert cache.lengths in lengths, "all of it was done, or nothing"
        before = cache.lengths
        cache.fill_free(torch.nan)  # like every call, it first puts in order what was cut short
        Paged(4).check(cache)
        assert cache.lengths == before, "an engine may have looked at it"
        texts = [(TEXT if length in (3, 6, 9) else LONGER)[: length + 1] for length in cache.lengths]
        texts = [text if len(text) == length + 1 else [*text, 5] for text, length in zip(texts, cache.lengths)]
        for row, logits in feed(MODEL, cache, {row: text[-1:] for row, text in enumerate(texts)}).items():
            near(logits, texts[row])
        for row in range(3):
            cache.release(row)
        assert cache.pool.free == 12


def test_a_second_ctrl_c_while_a_step_is_given_up_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = three_rows()
    monkeypatch.setattr(cache.pool, "recount", lambda held: 1 / 0)
    with pytest.raises(ZeroDivisionError), cache.step((3,), (1,)):
        raise InterruptedError
    monkeypatch.undo()
    cache.fill_free(torch.nan)
    Paged(4).check(cache)


def test_an_engine_serves_on_whenever_somebody_presses_ctrl_c() -> None:
    """With too little memory for both to end side by side, though their prompts share a block."""
    requests = [Request((1, 2, 3), 3), Request((1, 2, 5), 3)]
    right = [list(generate(SMALL, each.prompt, max_new_tokens=each.max_new_tokens).tokens) for each in requests]

    def prepare() -> tuple[Engine, list[Any]]:
        cache = PagedCache(SMALL.config, 2, 4, 2)
        engine = Engine(SMALL, cache, prefix=PrefixCache(cache))
        return engine, [engine.submit(request) for request in requests]

    for engine, sequences in every_moment(prepare, lambda prepared: prepared[0].run()):
        engine.run()
        assert [sequence.tokens for sequence in sequences] == right
        assert engine.cache.pool.free == 4
    assert any(sequence.preempted for sequence in sequences)
