"""The pool of blocks hands out each block once, counts who holds it, and knows in which order kept blocks go.

The one idea: beside the pool stands its model, plain lists that say who is free and in which order, and thousands of
random operations must leave the two equal. What a block holds does not matter here.
"""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from course_lib.caches.pool import BlockPool


def findable(pool: BlockPool, block: int, gone: list[int]) -> None:
    """Somebody could find what `block` holds, and notes in `gone` when it goes."""
    pool.findable[block] = lambda: gone.append(block)


# --- One operation after another


def test_a_new_pool_hands_out_its_blocks_one_after_the_other() -> None:
    pool = BlockPool(4)
    assert (pool.free, pool.references) == (4, [0, 0, 0, 0])
    assert [pool.take() for _ in range(4)] == [0, 1, 2, 3]
    assert (pool.free, pool.references) == (0, [1, 1, 1, 1])


def test_a_pool_without_a_free_block_says_so_and_stays_as_it_is() -> None:
    pool = BlockPool(2)
    pool.take(), pool.take()
    for after in (None, 0, 1):
        with pytest.raises(IndexError, match="all 2 blocks are held"):
            pool.take(after)
    assert (pool.free, pool.references) == (0, [1, 1])


def test_the_next_block_is_preferred_if_it_is_blank() -> None:
    pool = BlockPool(6)
    assert [pool.take(), pool.take(3)] == [0, 4]
    assert pool.take(4) == 5
    assert pool.take(5) == 1, "there is no block 6: the first of the others"
    assert pool.take(3) == 2, "block 4 is held"


def test_a_kept_block_is_not_taken_for_being_next() -> None:
    """What could be found again is worth more than a text in one piece."""
    pool, gone = BlockPool(4), []
    for _ in range(3):
        pool.take()
    findable(pool, 1, gone)
    pool.give_back(1)
    assert pool.take(0) == 3 and gone == []
    assert pool.take(0) == 1 and gone == [1]


def test_a_block_is_free_after_its_last_holder_gave_it_back() -> None:
    pool = BlockPool(3)
    block = pool.take()
    pool.share(block)
    pool.share(block)
    for left in (2, 1):
        pool.give_back(block)
        assert (pool.references[block], pool.free) == (left, 2)
    pool.give_back(block)
    assert (pool.references[block], pool.free) == (0, 3)


def test_blank_blocks_go_before_kept_ones_and_kept_ones_oldest_first() -> None:
    pool, gone = BlockPool(5), []
    for _ in range(5):
        pool.take()
    for block in (3, 1, 4):
        findable(pool, block, gone)
    for block in (4, 0, 3, 1, 2):
        pool.give_back(block)
    assert (list(pool.kept), set(pool.blank), pool.free) == ([4, 3, 1], {0, 2}, 5)
    assert [pool.take() for _ in range(2)] == [0, 2] and gone == []
    for expected in ([4], [4, 3], [4, 3, 1]):
        assert pool.take() == expected[-1] and gone == expected
        assert expected[-1] not in pool.findable
    assert pool.free == 0


def test_a_kept_block_that_is_found_is_the_newest_again_when_it_is_given_back() -> None:
    pool, gone = BlockPool(3), []
    for block in range(3):
        pool.take()
        findable(pool, block, gone)
    for block in range(3):
        pool.give_back(block)
    pool.share(0)
    assert (pool.references[0], list(pool.kept), pool.free) == (1, [1, 2], 2)
    pool.give_back(0)
    assert list(pool.kept) == [1, 2, 0]
    assert [pool.take() for _ in range(3)] == [1, 2, 0] == gone


def test_what_cannot_be_found_before_the_block_is_handed_out_is_gone_before_its_new_owner_has_it() -> None:
    """The one who is told asks the pool: the block is not in anybody's hands yet. If telling is interrupted, it stays
    where it was, and can be told again.
    """
    pool, seen = BlockPool(1), []
    pool.take()
    pool.findable[0] = lambda: seen.append(pool.references[0])
    pool.give_back(0)

    def interrupted() -> None:
        raise KeyboardInterrupt

    told, pool.findable[0] = pool.findable[0], interrupted
    with pytest.raises(KeyboardInterrupt):
        pool.take()
    assert list(pool.kept) == [0] and pool.references == [0]
    pool.findable[0] = told
    pool.take()
    assert seen == [0] and not pool.findable


@pytest.mark.parametrize("held", [True, False])
def test_a_block_whose_content_is_lost_is_no_longer_kept(held: bool) -> None:
    pool, gone = BlockPool(2), []
    pool.take()
    findable(pool, 0, gone)
    if held:
        pool.lose(0)
        assert gone == [0] and pool.references == [1, 0]
        pool.give_back(0)
    else:
        pool.give_back(0)
        pool.lose(0)
        assert gone == [0]
    assert (set(pool.blank), list(pool.kept), pool.findable) == ({0, 1}, [], {})
    pool.lose(0)
    assert gone == [0], "told once"
    assert {pool.take(), pool.take()} == {0, 1}


@pytest.mark.parametrize(
    "operation, said",
    [
        (lambda pool: pool.give_back(0), "block 0 is free already: it was given back twice"),
        (lambda pool: pool.share(0), "block 0 is free and holds nothing"),
        (lambda pool: BlockPool(0), "at least one block, not 0"),
        (lambda pool: BlockPool(1.5), "must be a whole number, not 1.5"),
    ],
)
def test_what_makes_no_sense_is_refused(operation: Callable[[BlockPool], object], said: str) -> None:
    pool = BlockPool(2)
    pool.take()
    pool.give_back(0)
    before = (list(pool.references), list(pool.blank), list(pool.kept))
    with pytest.raises(ValueError, match=said):
        operation(pool)
    assert before == (pool.references, list(pool.blank), list(pool.kept))


def test_taking_and_giving_back_in_any_order_loses_no_block() -> None:
    pool, random = BlockPool(7), Random(0)
    for _ in range(50):
        taken = [pool.take(random.choice((None, 2, 5))) for _ in range(random.randint(1, 7))]
        assert len(set(taken)) == len(taken)
        random.shuffle(taken)
        for block in taken:
            pool.give_back(block)
        assert pool.free == 7


# --- Many operations, against lists


class PoolAndItsModel(RuleBasedStateMachine):
    """A pool of five blocks and the lists that say what it should be."""

    BLOCKS = 5

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(self.BLOCKS)
        self.holders = [0] * self.BLOCKS
        self.blank = list(range(self.BLOCKS))  # the one that is free for longest first
        self.kept: list[int] = []
        self.findable: set[int] = set()
        self.gone: list[int] = []  # what the pool said
        self.expected_gone: list[int] = []

    def held(self) -> list[int]:
        return [block for block in range(self.BLOCKS) if self.holders[block]]

    @precondition(lambda self: self.blank or self.kept)
    @rule(after=st.none() | st.integers(0, BLOCKS - 1))
    def take(self, after: int | None) -> None:
        if after is not None and after + 1 in self.blank:
            expected = after + 1
        elif self.blank:
            expected = self.blank[0]
        else:
            expected = self.kept[0]
            self.forget(expected)
        assert self.pool.take(after) == expected
        self.blank.remove(expected)
        self.holders[expected] = 1

    @precondition(lambda self: not (self.blank or self.kept))
    @rule()
    def take_from_nothing(self) -> None:
        with pytest.raises(IndexError):
            self.pool.take()

    @precondition(lambda self: self.held() or self.kept)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from([*self.held(), *self.kept]))
        self.pool.share(block)
        self.holders[block] += 1
        if block in self.kept:
            self.kept.remove(block)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.pool.give_back(block)
        self.holders[block] -= 1
        if not self.holders[block]:
            (self.kept if block in self.findable else self.blank).append(block)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        findable(self.pool, block, self.gone)
        self.findable.add(block)

    @rule(block=st.integers(0, BLOCKS - 1))
    def lose(self, block: int) -> None:
        self.pool.lose(block)
        self.forget(block)

    def forget(self, block: int) -> None:
        if block in self.findable:
            self.findable.remove(block)
            self.expected_gone.append(block)
        if block in self.kept:
            self.kept.remove(block)
            self.blank.append(block)

    @rule(block=st.integers(0, BLOCKS - 1))
    def nothing_comes_of_nothing(self, block: int) -> None:
        if not self.holders[block]:
            with pytest.raises(ValueError, match="given back twice"):
                self.pool.give_back(block)
        if block in self.blank:
            with pytest.raises(ValueError, match="holds nothing"):
                self.pool.share(block)

    @invariant()
    def pool_and_model_are_equal(self) -> None:
        assert self.pool.references == self.holders
        assert (list(self.pool.blank), list(self.pool.kept)) == (self.blank, self.kept)
        assert set(self.pool.findable) == self.findable
        assert self.gone == self.expected_gone
        everywhere = [*self.held(), *self.pool.blank, *self.pool.kept]
        assert sorted(everywhere) == list(range(self.BLOCKS)), "each block is in one place"
        assert self.pool.free == len(self.blank) + len(self.kept)


TestPoolAndItsModel = PoolAndItsModel.TestCase
TestPoolAndItsModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None, derandomize=True)
