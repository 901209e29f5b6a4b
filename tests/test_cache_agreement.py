"""Every kind of cache gives the logits of one full pass, whatever way it is fed and whatever its memory held before.

The one idea: three ways to the same logits (the whole text at once, piece by piece through the cache, and the oracle)
are compared at every position. All memory that nobody has written, or that a row has given back, holds NaN here: one
read of it and the logits are no numbers.
"""

from collections.abc import Iterable
from itertools import permutations
from random import Random

import pytest
import torch
from cache_kinds import KINDS, Kind
from engine_report import Record, report_difference
from shapes import (
    DTYPES,
    SHAPES,
    TOLERANCE,
    bits,
    compositions,
    difference,
    feed,
    feed_in,
    full_pass_of,
    model_of,
    same_bits,
    text_of,
    truth,
)
from torch import Tensor

from course_lib.caches import Cache, CacheFull, contiguous

pytestmark = [
    pytest.mark.parametrize("kind", KINDS, ids=str),
    pytest.mark.parametrize("shape", SHAPES),
    pytest.mark.parametrize("dtype", DTYPES, ids=str),
]


class Agreement:
    """Compares logits with the full pass and with the oracle, and remembers the largest differences."""

    def __init__(self, kind: Kind, shape: str, dtype: torch.dtype, record: Record, what: str) -> None:
        self.shape, self.dtype, self.record, self.what = shape, dtype, record, (f"cached, {what}", f"{kind}, all ways")
        self.model = model_of(shape, dtype)

    def check(self, got: Tensor, text: Iterable[int], about: str = "") -> None:
        """`got` [k, V] are the logits of the last k tokens of `text`."""
        text = tuple(text)
        assert got.dtype == self.dtype
        ways = {"full pass": full_pass_of(self.model, text)[0], "oracle": truth(self.shape, text)}
        for name, expected in ways.items():
            apart = difference(got, expected[len(text) - len(got) :])
            for what in self.what:
                report_difference(self.record, f"{what}, {name}", self.dtype, apart)
            assert apart <= TOLERANCE[self.dtype], f"{about}: {apart} from the {name}"


# --- One row, cut in every way


def test_every_composition_of_a_short_prompt_gives_the_logits_of_one_pass(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    agreement, text = Agreement(kind, shape, dtype, record_property, "short prompt in all 32 cuts"), text_of(shape, 6)
    ways = list(compositions(6))
    assert len(set(ways)) == 32 and {(k, 6 - k) for k in range(1, 6)} <= set(ways)
    for chunks in ways:
        cache = kind.poisoned(agreement.model, 1, 6)  # exactly as large as needed
        agreement.check(feed_in(agreement.model, cache, 0, text, chunks), text, f"chunks {chunks}")
        assert cache.lengths == (6,)


def test_a_sample_of_cuts_of_a_long_prompt_gives_the_logits_of_one_pass(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    agreement, text = Agreement(kind, shape, dtype, record_property, "200 tokens in 8 cuts"), text_of(shape, 200)
    random = Random(f"{shape} {dtype}")
    ways = [(200,), (1, 199), (199, 1), (100, 100), (150, *(1,) * 50), (64, 64, 64, 8)]
    for parts in (5, 17):
        ends = sorted(random.sample(range(1, 200), parts))
        ways.append(tuple(b - a for a, b in zip([0, *ends], [*ends, 200], strict=True)))
    for chunks in ways:
        cache = kind.poisoned(agreement.model, 1, 256)
        agreement.check(feed_in(agreement.model, cache, 0, text, chunks), text, f"chunks {chunks}")


# --- Several rows


def test_right_padded_prompts_then_decode_steps(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    agreement = Agreement(kind, shape, dtype, record_property, "ragged prompts and decode steps")
    texts = [text_of(shape, 20, seed=row) for row in range(4)]
    prompts = (9, 3, 1, 14)
    cache = kind.poisoned(agreement.model, 4, 20)
    got = [[logits] for logits in feed(agreement.model, cache, {r: texts[r][: prompts[r]] for r in range(4)}).values()]
    for step in range(6):
        pieces = {row: [texts[row][prompts[row] + step]] for row in range(4)}
        for row, logits in feed(agreement.model, cache, pieces).items():
            got[row].append(logits)
    for row in range(4):
        agreement.check(torch.cat(got[row]), texts[row][: prompts[row] + 6], f"row {row}")
    assert cache.lengths == tuple(length + 6 for length in prompts)


def test_any_rows_in_any_order_with_any_counts(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    """Every subset of three rows in every order, twice, with counts that include 0; then all texts are compared."""
    agreement = Agreement(kind, shape, dtype, record_property, "any rows in any order")
    random = Random(f"{shape} {dtype}")
    cache = kind.poisoned(agreement.model, 3, 64)
    texts: dict[int, list[int]] = {row: [] for row in range(3)}
    got: dict[int, list[Tensor]] = {row: [] for row in range(3)}
    orders = [order for size in (1, 2, 3) for order in permutations(range(3), size)] * 2
    assert len(orders) == 30
    random.shuffle(orders)
    for order in orders:
        counts = [random.choice((0, 1, 1, 2, 3)) for _ in order]
        counts[0] = counts[0] or 1
        pieces = {row: random.choices(range(SHAPES[shape].vocab_size), k=n) for row, n in zip(order, counts)}
        for row, logits in feed(agreement.model, cache, pieces).items():
            assert logits.shape[0] == len(pieces[row])
            texts[row] += pieces[row]
            got[row].append(logits)
        assert cache.lengths == tuple(len(texts[row]) for row in range(3))
    for row in range(3):
        agreement.check(torch.cat(got[row]), texts[row], f"row {row}")


def test_a_row_far_ahead_of_its_neighbours(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shorter row clears some slots at once and, when the longer row has grown past those, the next ones."""
    monkeypatch.setattr(contiguous, "CLEARED_AHEAD", 3)
    agreement = Agreement(kind, shape, dtype, record_property, "one row 30 slots ahead")
    long, short = text_of(shape, 45), text_of(shape, 16, seed=1)
    cache = kind.poisoned(agreement.model, 2, 48)
    feed(agreement.model, cache, {0: long[:4], 1: short[:1]})
    feed(agreement.model, cache, {0: long[4:30]})
    for step in range(15):
        got = feed(agreement.model, cache, {1: [short[1 + step]], 0: [long[30 + step]]})
        agreement.check(got[1], short[: 2 + step], f"step {step}")
        agreement.check(got[0], long[: 31 + step], f"step {step}")


# --- A row used again


def test_a_released_row_is_as_good_as_new(kind: Kind, shape: str, dtype: torch.dtype, record_property: Record) -> None:
    agreement = Agreement(kind, shape, dtype, record_property, "released row")
    first, second, other = text_of(shape, 15), text_of(shape, 11, seed=1), text_of(shape, 18, seed=2)
    cache = kind.poisoned(agreement.model, 2, 24)
    feed(agreement.model, cache, {0: first, 1: other[:10]})
    cache.release(0)
    kind.poison(cache, 0)
    assert cache.lengths == (0, 10)
    got = [feed(agreement.model, cache, {0: second[:3], 1: other[10:15]})]
    got += [feed(agreement.model, cache, {0: second[3:4], 1: other[15:16]})]
    got += [feed(agreement.model, cache, {0: second[4:], 1: other[16:]})]
    agreement.check(torch.cat([pass_[0] for pass_ in got]), second)
    agreement.check(torch.cat([pass_[1] for pass_ in got]), other)


@pytest.mark.parametrize("kept", [0, 1, 7, 14, 15])
def test_a_truncated_row_continues_from_what_it_kept(
    kind: Kind, shape: str, dtype: torch.dtype, kept: int, record_property: Record
) -> None:
    agreement = Agreement(kind, shape, dtype, record_property, "truncated row")
    first, second, other = text_of(shape, 15), text_of(shape, 9, seed=1), text_of(shape, 22, seed=2)
    cache = kind.poisoned(agreement.model, 2, 32)
    feed(agreement.model, cache, {0: first, 1: other[:18]})
    cache.truncate(0, kept)
    kind.poison(cache, 0)
    assert cache.lengths == (kept, 18)
    got = feed(agreement.model, cache, {0: second[:5], 1: other[18:20]})
    agreement.check(got[0], first[:kept] + second[:5])
    got = feed(agreement.model, cache, {1: other[20:], 0: second[5:]})
    agreement.check(got[0], first[:kept] + second)
    agreement.check(got[1], other)


def test_a_copied_row_and_its_source_go_separate_ways(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    agreement = Agreement(kind, shape, dtype, record_property, "copied row")
    shared, old = text_of(shape, 8), text_of(shape, 17, seed=1)
    a, b = text_of(shape, 6, seed=2), text_of(shape, 6, seed=3)
    cache = kind.poisoned(agreement.model, 3, 24)
    feed(agreement.model, cache, {0: shared, 2: old})
    cache.copy_row(0, 2)
    kind.poison(cache, 2)
    assert cache.lengths == (8, 0, 8)
    for pieces in ({0: a[:4], 2: b[:1]}, {2: b[1:], 0: a[4:]}):
        got = feed(agreement.model, cache, pieces)
    agreement.check(got[0], shared + a)
    agreement.check(got[2], shared + b)
    before = bits(cache.keys, cache.values)
    cache.copy_row(2, 2)
    assert cache.lengths == (14, 0, 14) and same_bits(before, bits(cache.keys, cache.values))


def test_a_moved_row_goes_on_and_leaves_an_empty_one(
    kind: Kind, shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    agreement = Agreement(kind, shape, dtype, record_property, "moved row")
    text, old, new = text_of(shape, 21), text_of(shape, 17, seed=1), text_of(shape, 8, seed=2)
    cache = kind.poisoned(agreement.model, 3, 24)
    feed(agreement.model, cache, {2: text[:18], 0: old})
    cache.move_row(2, 0)
    kind.poison(cache, 2)
    assert cache.lengths == (18, 0, 0)
    got = feed(agreement.model, cache, {0: text[18:], 2: new})
    agreement.check(got[0], text)
    agreement.check(got[2], new)
    cache.move_row(2, 2)
    assert cache.lengths == (21, 0, 8)


# --- Everything at once


def test_a_random_walk_over_all_operations(kind: Kind, shape: str, dtype: torch.dtype, record_property: Record) -> None:
    """Five hundred operations on four rows; beside the cache stands its model, a list of tokens for each row. After
    each operation all that it freed is filled with NaN, and each pass is compared with full passes of whole texts.
    """
    random = Random(f"{shape} {dtype}")
    model, vocab, rows, capacity = model_of(shape, dtype), SHAPES[shape].vocab_size, 4, 20
    # Where rows share memory, two that share a last block both copy it, and hold one more for a moment: the fifth row,
    # always empty, leaves room for that.
    cache = kind.poisoned(model, rows + 1, capacity)
    texts: list[list[int]] = [[] for _ in range(rows)]
    done = dict.fromkeys(("step", "full", "failed", "release", "truncate", "copy", "move"), 0)
    largest = 0.0
    for _ in range(500):
        operation = random.choices(("step", "failed", "release", "truncate", "copy", "move"), (11, 4, 2, 3, 2, 1))[0]
        row, other = random.randrange(rows), random.randrange(rows)
        if operation in ("step", "failed"):
            chosen = random.sample(range(rows), random.randint(1, rows))
            counts = [random.choice((0, 1, 1, 1, 2, 5)) for _ in chosen]
            counts[0] = counts[0] or 1
            pieces = {r: random.choices(range(vocab), k=n) for r, n in zip(chosen, counts)}
            long = [r for r, piece in pieces.items() if len(texts[r]) + len(piece) > capacity]
            if long:
                pieces[long[0]] = random.choices(range(vocab), k=kind.room(cache, long[0]) + 1)
                before = bits(cache.keys, cache.values)
                with pytest.raises(CacheFull):
                    feed(model, cache, pieces)
                assert same_bits(before, bits(cache.keys, cache.values))
                operation = "full"
            elif operation == "failed":
                fail_in_a_layer(model, cache, pieces, random.randrange(model.config.n_layers))
                for r in chosen:
                    kind.poison(cache, r)
            else:
                for r, logits in feed(model, cache, pieces).items():
                    texts[r] += pieces[r]
                    if pieces[r]:
                        full = full_pass_of(model, tuple(texts[r]))[0][-len(logits) :]
                        largest = max(largest, difference(logits, full))
                        assert largest <= TOLERANCE[dtype], f"after {done}"
        else:
            if operation == "release":
                cache.release(row)
                texts[row] = []
            elif operation == "truncate":
                kept = random.randint(0, len(texts[row]))
                cache.truncate(row, kept)
                texts[row] = texts[row][:kept]
            elif operation == "copy":
                cache.copy_row(other, row)
                texts[row] = list(texts[other])
            elif row != other:
                cache.move_row(other, row)
                texts[row], texts[other] = texts[other], []
                row = other
            kind.poison(cache, row)
        done[operation] += 1
        assert cache.lengths == (*map(len, texts), 0)
        kind.check(cache)
    report_difference(record_property, "cached, random walk, full pass", dtype, largest)
    assert min(done.values()) >= 10, f"every operation came often: {done}"
    # The full passes that judged the walk are judged by the oracle elsewhere; the texts it ended with, here.
    agreement = Agreement(kind, shape, dtype, record_property, "end of the random walk")
    for row, text in enumerate(texts):
        if len(text) == capacity:
            cache.truncate(row, capacity - 1)
            text.pop()
        agreement.check(feed(model, cache, {row: [1]})[row], [*text, 1])


class Failure(Exception):
    """What the tests raise in the middle of a pass."""


def fail_in_a_layer(model: torch.nn.Module, cache: Cache, pieces: dict[int, list[int]], layer: int) -> None:
    def fail(*_: object) -> None:
        raise Failure

    hook = model.layers[layer].register_forward_hook(fail)  # after it has written
    try:
        with pytest.raises(Failure):
            feed(model, cache, pieces)
    finally:
        hook.remove()
