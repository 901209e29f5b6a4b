"""What a cache holds and shows: lengths that are values, bytes that are those of its tensors, positions and a mask that
say who sees what, keys of its own model only, and rows that do not notice each other.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from random import Random

import pytest
import torch
from cache_kinds import Contiguous, Kind, Paged, each_kind, filled
from shapes import (
    SHAPES,
    TOLERANCE,
    bits,
    difference,
    feed,
    full_pass_of,
    model_of,
    random_weights,
    same_bits,
    text_of,
    truth,
)

from course_lib.caches import Cache, NoCache, visible
from course_lib.model import ModelConfig, Transformer

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]


class Failure(Exception):
    """What the tests raise to leave a step that they have looked at."""


# --- Lengths, slots, bytes


@each_kind
def test_lengths_that_somebody_holds_do_not_change(kind: Kind) -> None:
    cache = filled(kind, SHAPE)
    operations = (
        lambda: feed(MODEL, cache, {0: [1, 2]}),
        lambda: cache.truncate(0, 3),
        lambda: cache.copy_row(0, 2),
        lambda: cache.release(0),
        lambda: cache.move_row(2, 1),
    )
    expected = ((5, 2, 0), (7, 2, 0), (3, 2, 0), (3, 2, 3), (0, 2, 3), (0, 3, 0))
    held = [cache.lengths]
    for operation in operations:
        operation()
        held.append(cache.lengths)
        assert tuple(held) == expected[: len(held)]
    assert all(type(lengths) is tuple for lengths in held)


@each_kind
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_bytes_are_those_of_the_formula_and_of_the_tensors(kind: Kind, shape: str, dtype: torch.dtype) -> None:
    c, model = SHAPES[shape], model_of(shape, dtype)
    cache = kind.make(c, 3, 10, dtype)
    one_token = 2 * c.n_layers * c.n_kv_heads * c.head_dim * torch.finfo(dtype).bits // 8
    reserved = kind.reserved(3, 10) * one_token
    assert kind.lines(cache.keys).shape[::3] == kind.lines(cache.values).shape[::3] == (c.n_layers, c.n_kv_heads)
    assert cache.keys.dtype == cache.values.dtype == dtype
    tensors = [t for t in vars(cache).values() if isinstance(t, torch.Tensor)]
    assert cache.reserved_bytes == sum(t.untyped_storage().nbytes() for t in tensors) == reserved
    assert cache.used_bytes == 0
    for operation, tokens in (
        (lambda: feed(model, cache, {0: [1] * 7, 2: [2]}), 8),
        (lambda: feed(model, cache, {2: [2]}), 9),
        (lambda: cache.truncate(0, 4), 6),
        (lambda: cache.move_row(2, 1), 6),
        (lambda: cache.release(1), 4),
    ):
        operation()
        assert cache.used_bytes == tokens * one_token
        assert cache.reserved_bytes == reserved
    cache.copy_row(0, 1)
    assert cache.used_bytes == (8 if isinstance(kind, Contiguous) else 4) * one_token, "pages are shared"


@each_kind
@pytest.mark.parametrize("rows", [(0,), (0, 1), (1, 2), (2, 0), (1, 0), (0, 1, 2), (0, 2)], ids=str)
def test_copied_bytes_are_those_of_what_had_to_be_brought_together(kind: Kind, rows: tuple[int, ...]) -> None:
    """A contiguous cache copies what does not lie side by side; pages that lie in one piece are one row's alone."""
    cache = filled(kind, SHAPE, (6, 2, 0), capacity=16)
    before = cache.copied_bytes
    feed(MODEL, cache, {row: [1] for row in rows})
    slots = max(cache.lengths[row] for row in rows)
    if isinstance(kind, Contiguous):
        copied = 0 if rows in ((0,), (0, 1), (1, 2), (0, 1, 2)) else len(rows) * slots
    else:
        assert isinstance(kind, Paged)
        copied = len(rows) * -(-slots // kind.size) * kind.size if len(rows) > 1 else 0
    if kind == Paged(1) and rows == (0,):
        copied = slots  # row 1 took the blocks behind the first six
    one_token = 2 * CONFIG.n_layers * CONFIG.n_kv_heads * CONFIG.head_dim * 8
    assert cache.copied_bytes - before == copied * one_token


# --- Where everything lies


def at_random(kind: Kind, seed: int) -> Iterator[tuple[Cache, list[list[int]]]]:
    """A cache that is used in every way, after each use, with the texts of its first three rows; a fourth is empty."""
    random, cache = Random(seed), kind.poisoned(MODEL, 4, 20)
    texts: list[list[int]] = [[] for _ in range(3)]
    for _ in range(60):
        row, other = random.sample(range(3), 2)
        operation = random.choice(("step", "step", "truncate", "copy", "move", "release"))
        if operation == "step":
            pieces = {r: random.choices(range(5), k=min(3, 20 - len(texts[r]))) for r in (row, other)}
            if any(pieces.values()):
                feed(MODEL, cache, pieces)
            for r, piece in pieces.items():
                texts[r] += piece
        elif operation == "truncate":
            texts[row] = texts[row][: len(texts[row]) * 2 // 3]
            cache.truncate(row, len(texts[row]))
        elif operation == "release":
            cache.release(row)
            texts[row] = []
        elif operation == "copy":
            cache.copy_row(row, other)
            texts[other] = list(texts[row])
        else:
            cache.move_row(row, other)
            texts[other], texts[row] = texts[row], []
        yield cache, texts


@each_kind
def test_each_token_lies_where_the_cache_says(kind: Kind) -> None:
    """The keys and values in the slots of a row are those that a pass over its text computes."""
    for cache, texts in at_random(kind, seed=1):
        for row, text in enumerate(texts):
            places = cache.places(row)
            assert list(places) == list(range(len(text))) and max(places.values(), default=0) < cache.slots
            if text:
                wanted = full_pass_of(MODEL, tuple(text))[1]
                assert difference(kind.content(cache, places.values()), wanted) <= TOLERANCE[torch.float64]
        assert cache.places(3) == {}


@each_kind
def test_all_that_nobody_may_read_can_be_filled_and_nothing_else_is(kind: Kind) -> None:
    touched = 0
    for cache, _ in at_random(kind, seed=2):
        readable = sorted(kind.readable(cache))
        free = sorted(set(range(cache.slots)) - set(readable))
        beyond = bits(*(kind.lines(memory)[:, cache.slots // cache.line :] for memory in (cache.keys, cache.values)))
        held = bits(kind.content(cache, readable))
        cache.fill_free(7.25)
        assert same_bits(held, bits(kind.content(cache, readable)))
        assert (kind.content(cache, free) == 7.25).all()
        after = bits(*(kind.lines(memory)[:, cache.slots // cache.line :] for memory in (cache.keys, cache.values)))
        assert same_bits(beyond, after), "memory that is no slot"
        touched += len(free)
        cache.fill_free(torch.nan)  # and nobody minds: the next pass and the next texts are right
    assert touched > 60 * 20


@each_kind
def test_a_step_reads_no_further_than_its_longest_row(kind: Kind) -> None:
    """How many slots are attended to follows from the rows of the step, not from what is reserved or others hold."""
    cache = filled(kind, SHAPE, (5, 2, 0), capacity=64)
    for pieces, slots in (({1: 1}, 3), ({1: 1, 2: 4}, 4), ({0: 2, 2: 1}, 7)):
        with suppress(Failure), cache.step(tuple(pieces.values()), tuple(pieces)) as step:
            shape = (len(pieces), CONFIG.n_kv_heads, max(pieces.values()), CONFIG.head_dim)
            k, v = step.write(0, *torch.zeros(2, *shape, dtype=MODEL.dtype))
            assert k.shape == v.shape == (len(pieces), CONFIG.n_kv_heads, slots, CONFIG.head_dim)
            raise Failure
    assert kind.lines(cache.keys).shape[3] == CONFIG.n_kv_heads == 2 and CONFIG.n_heads == 6  # cached unrepeated


# --- Positions and mask


@each_kind
def test_positions_and_mask_say_who_sees_what(kind: Kind) -> None:
    cache = filled(kind, SHAPE, (3, 1, 0), capacity=8)
    with suppress(Failure), cache.step((1, 2, 2)) as step:
        positions, mask = step.positions.tolist(), step.mask
        raise Failure
    assert positions[0][0] == 3 and positions[1] == [1, 2] and positions[2] == [0, 1]
    assert mask.shape == (3, 1, 2, 4)
    T, F = True, False
    assert mask[0, 0, 0].tolist() == [T, T, T, T]
    assert mask[1, 0].tolist() == [[T, T, F, F], [T, T, T, F]]
    assert mask[2, 0].tolist() == [[T, F, F, F], [T, T, F, F]]
    with suppress(Failure), cache.step((1, 2, 0)) as step:
        assert not step.mask[2].any(), "no slot of an empty row is filled"
        raise Failure


@pytest.mark.parametrize("window", [None, 1, 2, 3, 32])
def test_the_mask_equals_its_definition(window: int | None) -> None:
    """Every query and key is asked one by one; keys lie in no order, and some slots are empty."""
    queries, keys = [[5, 40, 7], [0, 1, 2]], [[4, 5, 6, -1, 0, 2, 9, 39], [1, -1, 0, 2, -1, 3, 8, 7]]
    mask = visible(torch.tensor(queries), torch.tensor(keys), window)
    assert mask.shape == (2, 1, 3, 8) and mask.dtype == torch.bool
    for row, query, key in product(range(2), range(3), range(8)):
        q, k = queries[row][query], keys[row][key]
        wanted = k in range(q + 1) if window is None else k in range(max(0, q - window + 1), q + 1)
        assert mask[row, 0, query, key].item() == wanted, (q, k)


# --- A cache for another model


OTHERS = {
    "fewer layers": replace(CONFIG, n_layers=2),
    "more layers": replace(CONFIG, n_layers=4),
    "one head, which would be repeated": replace(CONFIG, n_kv_heads=1),
    "more heads": replace(CONFIG, n_kv_heads=3),
    "smaller heads": replace(CONFIG, head_dim=6, rope_factors=None),
}


@each_kind
@pytest.mark.parametrize("pieces", [{0: [1]}, {0: [1, 2, 3], 1: [1]}], ids=["one token", "ragged rows"])
@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
def test_a_cache_made_for_another_shape_is_refused_by_its_numbers(
    kind: Kind, config: ModelConfig, pieces: dict
) -> None:
    other = random_weights(Transformer(config)).double()
    cache = filled(kind, SHAPE)
    with pytest.raises(
        ValueError, match=r"layers|this step of the cache takes .* of shape \[\d, 2, \d, 8\] on cpu, not"
    ):
        feed(other, cache, pieces)
    assert cache.lengths == (5, 2, 0)


@each_kind
@pytest.mark.parametrize("pieces", [{0: [1]}, {0: [1, 2, 3], 1: [1]}], ids=["one token", "ragged rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cache_of_another_dtype_is_refused_and_nothing_is_converted(
    kind: Kind, dtype: torch.dtype, pieces: dict
) -> None:
    cache = kind.make(CONFIG, 3, 8, dtype)
    with pytest.raises(ValueError, match=rf"takes {dtype} of shape .*, not torch.float64 of"):
        feed(MODEL, cache, pieces)
    assert cache.lengths == (0, 0, 0)


@each_kind
@pytest.mark.parametrize("counts", [(3,), (5, 3)], ids=["one slice", "ragged"])
def test_a_step_takes_only_what_has_its_shape_in_every_layer_and_both_of_keys_and_values(
    kind: Kind,
    counts: tuple[int, ...],
) -> None:
    shape = (len(counts), CONFIG.n_kv_heads, max(counts), CONFIG.head_dim)
    right = torch.zeros(shape, dtype=torch.float64)
    wrong = [right[:, :, :1], right[:, :1], right[:, :, :, :1], right[:1, :1, :1, :1], right.float()]
    for layer in range(CONFIG.n_layers):
        for bad in wrong:
            for pair in ((bad, right), (right, bad)):
                cache = kind.make(CONFIG, 2, 8)
                with pytest.raises(ValueError, match="this step of the cache takes"), cache.step(counts) as step:
                    for earlier in range(layer):
                        step.write(earlier, right, right)
                    step.write(layer, *pair)
                assert cache.lengths == (0, 0)


@each_kind
def test_a_cache_made_for_inference_can_be_used_elsewhere(kind: Kind) -> None:
    with torch.inference_mode():
        cache = kind.make(CONFIG, 2, 8)
    MODEL(torch.tensor([[1, 2]]), cache, rows=[0])
    cache.copy_row(0, 1)
    assert cache.lengths == (2, 2)


@each_kind
def test_a_pass_that_records_gradients_is_refused_by_a_cache(kind: Kind) -> None:
    """The cache would hold on to every pass for the sake of a backward that cannot come."""
    model = Transformer(CONFIG)
    cache, tokens = kind.make(CONFIG, 1, 8, torch.float32), torch.tensor([[1, 2]])
    with pytest.raises(ValueError, match=r"inference_mode\(\), or train without a cache"):
        model(tokens, cache)
    assert cache.lengths == (0,) and not cache.keys.requires_grad
    with torch.no_grad():
        model(tokens, cache)
    with torch.inference_mode():
        model(tokens, cache)
    assert cache.lengths == (4,) and cache.keys.grad_fn is None


# --- No cache


def test_no_cache_keeps_nothing_and_starts_every_row_at_its_beginning() -> None:
    nothing = NoCache(CONFIG.n_layers, 2, torch.device("cpu"))
    assert nothing.reserved_bytes == nothing.used_bytes == 0
    k = torch.rand(2, CONFIG.n_kv_heads, 3, CONFIG.head_dim)
    with nothing.step((3, 2)) as step:
        assert step.positions.tolist() == [[0, 1, 2], [0, 1, 2]]
        assert step.mask[1, 0, 2].tolist() == [True, True, False]  # padding is no key, not even for padding
        for layer in range(CONFIG.n_layers):
            got = step.write(layer, k, -k)
            assert got[0] is k and torch.equal(got[1], -k)
    assert nothing.reserved_bytes == nothing.used_bytes == 0


# --- Neighbours in the cache


@each_kind
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_neighbours_hold_changes_no_bit(kind: Kind, shape: str, dtype: torch.dtype) -> None:
    """Other text of the same lengths beside a row, and even neighbours whose memory is no number any more."""
    model, mine = model_of(shape, dtype), text_of(shape, 12)
    logits = []
    for neighbour in (1, 2, None):
        cache = kind.poisoned(model, 3, 24)
        for start, stop in ((0, 7), (7, 8), (8, 12)):
            if neighbour is None:
                kind.write(cache, [*cache.places(0).values(), *cache.places(2).values()], torch.nan)
            seed = neighbour or 0
            left, right = text_of(shape, 12, seed=seed), text_of(shape, 12, seed=seed + 10)
            got = feed(model, cache, {0: left[start:stop], 1: mine[start:stop], 2: right[start:stop][:-1] or right[:1]})
        logits.append(bits(got[1]))
        assert difference(got[1], truth(shape, tuple(mine))[8:]) <= TOLERANCE[dtype]
    assert same_bits(logits[0], logits[1]) and same_bits(logits[0], logits[2])
