"""Ten thousand random operations on pool, tables and prefix cache, against a model of them in plain dictionaries.

The one idea: if each page of the model lies in one block as long as anybody can read it, and that block holds the keys
and values of the page's text, then nobody reads what belongs to others. After each operation memory that nobody may
read is filled with NaN.
"""

from collections import Counter

import pytest
import torch
from cache_kinds import Paged
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from pages import DIGESTS, Failure
from pages_model import Pages
from shapes import TOLERANCE, bits, difference, feed, full_pass_of, random_weights, same_bits

from course_lib.caches import CacheFull, PagedCache, PrefixCache
from course_lib.model import ModelConfig, Transformer

MODEL = random_weights(Transformer(ModelConfig(3, 2, 8, 2, 1, 4, 8, max_positions=64)).double())
ROWS, BLOCKS = 4, 10
EVENTS: Counter[str] = Counter()  # what has happened, over all examples

row_numbers = st.integers(0, ROWS - 1)
tokens = st.lists(st.integers(0, 1), max_size=4)
salts = st.sampled_from(["", "tenant"])


class PagedCacheAndItsModel(RuleBasedStateMachine):
    @initialize(size=st.sampled_from([4, 3, 2, 1, 6]), digest=st.sampled_from(sorted(DIGESTS)), by_hand=st.booleans())
    def begin(self, size: int, digest: str, by_hand: bool) -> None:
        self.kind, self.model, self.by_hand = Paged(size), Pages(ROWS, BLOCKS, size), by_hand
        self.cache = PagedCache(MODEL.config, ROWS, BLOCKS, size, torch.float64)
        self.kind.write(self.cache, range(self.cache.slots), torch.nan)
        self.prefix = PrefixCache(self.cache, DIGESTS[digest])
        self.blocks: dict[int, int] = {}  # page -> block, of all pages that somebody may read
        self.asked = {"lookups": 0, "hits": 0, "asked_tokens": 0, "reused_tokens": 0}
        self.readable: set[int] = set()  # slots that somebody may read
        self.failed: list[int] = []  # rows of a pass that has just failed

    def happened(self, event: str, times: int = 1) -> None:
        EVENTS[event] += times

    # --- Passes

    def attempt(self, pieces: dict[int, list[int]]) -> None:
        """A pass that must go well if there is room."""
        if not any(pieces.values()):
            return
        if not self.model.fits(pieces):
            self.refused(pieces)
            return
        copied = [row for row, piece in pieces.items() if piece and self.model.must_copy(row)]
        self.happened("copied on write", len(copied))
        after = self.model.open(pieces)
        got = feed(MODEL, self.cache, pieces)
        self.model.close(pieces, after)
        for row, piece in pieces.items():
            if piece:
                expected = full_pass_of(MODEL, tuple(self.model.texts[row]))[0][-len(piece) :]
                assert difference(got[row], expected) <= TOLERANCE[torch.float64]

    def refused(self, pieces: dict[int, list[int]]) -> None:
        self.happened("full")
        free, tables, lengths = self.model.free(), self.cache.tables, self.cache.lengths
        before = bits(self.cache.keys, self.cache.values)
        assert not self.cache.fits(list(pieces), [len(piece) for piece in pieces.values()])
        with pytest.raises(CacheFull) as error:
            feed(MODEL, self.cache, pieces)
        for row, piece in pieces.items():
            free -= self.model.needed(row, len(piece))
            if free < 0:
                assert (error.value.row, error.value.needed) == (row, len(piece)) and error.value.free < len(piece)
                break
        assert same_bits(before, bits(self.cache.keys, self.cache.values))
        assert self.cache.tables is tables and self.cache.lengths is lengths

    @rule(pieces=st.dictionaries(row_numbers, tokens, min_size=1))
    def step(self, pieces: dict[int, list[int]]) -> None:
        self.happened("step")
        self.attempt(pieces)

    @rule(new=st.permutations(range(ROWS)), token=st.integers(0, 1))
    def decode(self, new: list[int], token: int) -> None:
        """One token for each row that holds a text, in any order."""
        self.happened("decode")
        self.attempt({row: [token] for row in new if self.model.texts[row]})

    @rule(pieces=st.dictionaries(row_numbers, tokens, min_size=1), layer=st.integers(0, 1), early=st.booleans())
    def failing_step(self, pieces: dict[int, list[int]], layer: int, early: bool) -> None:
        if not any(pieces.values()) or not self.model.fits(pieces):
            self.attempt(pieces)
            return
        self.happened("failed step")
        self.model.open(pieces)
        tables, lengths = self.cache.tables, self.cache.lengths

        def fail(*_: object) -> None:
            raise Failure

        module = MODEL.layers[layer]
        hook = module.register_forward_pre_hook(fail) if early else module.register_forward_hook(fail)
        try:
            with pytest.raises(Failure):
                feed(MODEL, self.cache, pieces)
        finally:
            hook.remove()
        assert self.cache.tables == tables and self.cache.lengths is lengths
        self.failed = list(pieces)

    # --- Rows

    def some_row(self, data: st.DataObject) -> int:
        """A row that holds a text."""
        return data.draw(st.sampled_from([row for row, text in enumerate(self.model.texts) if text]))

    @precondition(lambda self: any(self.model.texts))
    @rule(data=st.data(), share=st.sampled_from([0, 0, 0.3, 0.6, 0.9]))
    def truncate_or_release(self, data: st.DataObject, share: float) -> None:
        row = self.some_row(data)
        kept = int(share * len(self.model.texts[row]))
        if kept:
            self.cache.truncate(row, kept)
        else:
            self.cache.release(row)
        self.model.cut(row, kept)
        self.happened("truncate" if kept else "release")

    @precondition(lambda self: any(self.model.texts))
    @rule(data=st.data(), onto=row_numbers, move=st.booleans())
    def copy_or_move(self, data: st.DataObject, onto: int, move: bool) -> None:
        source = self.some_row(data)
        self.copied(source, onto, move)
        self.happened("move" if move else "copy")

    def copied(self, source: int, onto: int, move: bool = False) -> None:
        before = bits(self.cache.keys, self.cache.values)
        (self.cache.move_row if move else self.cache.copy_row)(source, onto)
        assert same_bits(before, bits(self.cache.keys, self.cache.values)), "pages are shared, not copied"
        if source != onto:
            self.model.cut(onto, 0)
            self.model.texts[onto] = list(self.model.texts[source])
            self.model.tables[onto] = list(self.model.tables[source])
            if move:
                self.model.cut(source, 0)

    @precondition(lambda self: any(self.model.texts))
    @rule(data=st.data(), onto=row_numbers, cut=st.integers(0, 3), token=st.integers(0, 1))
    def fork(self, data: st.DataObject, onto: int, cut: int, token: int) -> None:
        """Two rows share a block, one perhaps less of it than the other, which goes on alone; then both go on."""
        source = self.some_row(data)
        self.copied(source, onto)
        kept = max(0, len(self.model.texts[onto]) - cut)
        self.cache.truncate(onto, kept)
        self.model.cut(onto, kept)
        self.attempt({source: [token]})
        self.look()
        self.attempt({source: [token], onto: [1 - token]})
        self.happened("fork")

    # --- Prefixes

    @precondition(lambda self: any(self.model.texts))
    @rule(data=st.data(), salt=salts, more=tokens)
    def publish(self, data: st.DataObject, salt: str, more: list[int]) -> None:
        row = self.some_row(data)
        self.prefix.publish(row, [*self.model.texts[row], *more], salt)
        self.model.publish(row, salt)
        self.happened("publish")

    @rule(data=st.data(), row=row_numbers, salt=salts, more=tokens, read=st.booleans(), publish=st.booleans())
    def reuse(self, data: st.DataObject, row: int, salt: str, more: list[int], read: bool, publish: bool) -> None:
        """A new text for a row, as a server would do it. Most prompts begin as something that is held or known."""
        known = [(), *map(tuple, self.model.texts), *(text for _, text in self.model.found)]
        prompt = [*data.draw(st.sampled_from(known)), *more]
        if self.model.texts[row]:
            with pytest.raises(ValueError, match="release it first"):
                self.prefix.reuse(row, prompt, salt)
            self.cache.release(row)
            self.model.cut(row, 0)
        pages = self.model.beginning(prompt, salt)
        reused = len(pages) * self.model.size
        assert self.prefix.found(prompt, salt) == reused
        assert self.prefix.reuse(row, prompt, salt) == reused
        assert reused < len(prompt) or not prompt, "at least one token is read again"
        self.model.texts[row], self.model.tables[row] = prompt[:reused], pages
        self.model.kept = [page for page in self.model.kept if page not in pages]
        for name, added in zip(self.asked, (1, reused > 0, len(prompt), reused)):
            self.asked[name] += added
        self.happened("reuse")
        self.happened("hit", reused > 0)
        self.happened("hit of all that may be found", 0 < len(prompt) - reused <= self.model.size <= reused)
        if read:
            self.attempt({row: prompt[reused:]})
        if publish:
            self.prefix.publish(row, self.model.texts[row], salt)
            self.model.publish(row, salt)

    @precondition(lambda self: self.model.kept)
    @rule(row=row_numbers)
    def use_all_memory(self, row: int) -> None:
        """One row takes all there is: nothing that nobody holds can be found after that."""
        room = self.kind.room(self.cache, row)
        held = len(self.model.texts[row])
        text = [number % 2 for number in range(held, held + room)]
        evictions = self.model.evictions
        self.attempt({row: text})
        assert not self.model.kept and self.model.free() == 0
        self.happened("eviction", self.model.evictions - evictions)
        self.cache.truncate(row, held)
        self.model.cut(row, held)

    # --- What is true after each

    @invariant()
    def the_cache_is_as_its_model(self) -> None:
        if hasattr(self, "model"):
            self.happened("operation")
            self.look()

    def look(self) -> None:
        """Fill memory with NaN, then hold the cache against its model."""
        self.poison()
        cache, model = self.cache, self.model
        self.kind.check(cache)
        assert cache.lengths == tuple(map(len, model.texts))
        readable: dict[int, int] = {}
        for table, pages in zip(cache.tables, model.tables, strict=True):
            assert len(table) == len(pages)
            for block, page in zip(table, pages, strict=True):
                assert readable.setdefault(page, block) == block, "one page, one block, whoever holds it"
        for page in model.found.values():
            if page not in readable:
                readable[page] = self.blocks[page]  # where it lay when a row held it
        assert all(self.blocks.get(page, block) == block for page, block in readable.items()), "pages do not move"
        assert len(set(readable.values())) == len(readable), "no block is two pages"
        self.blocks = readable
        assert list(cache.pool.kept) == [readable[page] for page in model.kept]
        assert set(cache.pool.findable) == {readable[page] for page in model.found.values()}
        assert cache.pool.free == model.free()
        slots_held = {(page, offset) for row in range(ROWS) for page, offset in self.filled(row)}
        assert cache.used_bytes == len(slots_held) * cache.token_bytes
        said = self.prefix.statistics
        assert {name: getattr(said, name) for name in self.asked} == self.asked and said.evictions == model.evictions
        self.contents_are_right()

    def poison(self) -> None:
        """NaN into all that nobody may read; or, unknown to the cache, only into what somebody could read until now, or
        what a failed pass has written: it must not count on what it knew of those. What it has just given to another
        page it has cleared.
        """
        kind, cache = self.kind, self.cache
        if not self.by_hand:
            cache.fill_free(torch.nan)
        before = {block: page for page, block in self.blocks.items()}
        now = {b: page for t, pages in zip(cache.tables, self.model.tables) for b, page in zip(t, pages)}
        readable = kind.readable(cache)
        written = {slot for row in self.failed for slot in kind.freed(cache, row)}
        gone = {
            slot for slot in self.readable - readable if now.get(slot // kind.size) in (None, before[slot // kind.size])
        }
        kind.write(cache, gone | written, torch.nan)
        self.readable, self.failed = readable, []

    def filled(self, row: int) -> list[tuple[int, int]]:
        size, table = self.model.size, self.model.tables[row]
        return [(table[position // size], position % size) for position in range(len(self.model.texts[row]))]

    def contents_are_right(self) -> None:
        """All that rows hold and all that can be found is the keys and values of the text that it stands for."""
        slots: list[int] = []
        wanted = []
        for row, text in enumerate(self.model.texts):
            if text:
                slots += self.cache.places(row).values()
                wanted.append(full_pass_of(MODEL, tuple(text))[1])
        for (_, text), page in self.model.found.items():
            start = self.blocks[page] * self.model.size
            slots += range(start, start + self.model.size)
            wanted.append(full_pass_of(MODEL, text)[1][:, :, -self.model.size :])
        if slots:
            apart = difference(self.kind.content(self.cache, slots), torch.cat(wanted, dim=2))
            assert apart <= TOLERANCE[torch.float64]

    def teardown(self) -> None:
        if hasattr(self, "cache"):
            for row in range(ROWS):
                self.cache.release(row)
            pool = self.cache.pool
            assert pool.free == BLOCKS and not any(pool.references) and self.cache.used_bytes == 0, "nothing leaks"


@pytest.mark.slow
def test_ten_thousand_operations_leave_no_leak_no_double_owner_and_no_stale_read() -> None:
    EVENTS.clear()
    run_state_machine_as_test(
        PagedCacheAndItsModel,
        settings=settings(
            max_examples=260,
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert EVENTS["operation"] >= 10_000
    rare = ("full", "failed step", "copied on write", "hit", "hit of all that may be found", "eviction", "fork", "move")
    assert min(EVENTS[event] for event in rare) >= 50, EVENTS
