"""What a cache holds and shows: lengths that are values, bytes that are those of its tensors, positions and a mask that
say who sees what, keys of its own model only, and rows that do not notice each other.
"""

from contextlib import suppress
from dataclasses import replace
from itertools import product

import pytest
import torch
from shapes import (
    SHAPES,
    TOLERANCE,
    bits,
    difference,
    feed,
    filled_cache,
    model_of,
    poisoned_cache,
    random_weights,
    same_bits,
    text_of,
    truth,
)

from course_lib.caches import ContiguousCache, NoCache, visible
from course_lib.model import ModelConfig, Transformer

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]


class Failure(Exception):
    """What the tests raise to leave a step that they have looked at."""


# --- Lengths, slots, bytes


def test_lengths_that_somebody_holds_do_not_change() -> None:
    cache = filled_cache(SHAPE)
    operations = (
        lambda: feed(MODEL, cache, {0: [1, 2]}),
        lambda: cache.truncate(0, 3),
        lambda: cache.copy_row(0, 2),
        lambda: cache.release(0),
    )
    expected = ((5, 2, 0), (7, 2, 0), (3, 2, 0), (3, 2, 3), (0, 2, 3))
    held = [cache.lengths]
    for operation in operations:
        operation()
        held.append(cache.lengths)
        assert tuple(held) == expected[: len(held)]
    assert all(type(lengths) is tuple for lengths in held)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_bytes_are_those_of_the_formula_and_of_the_tensors(shape: str, dtype: torch.dtype) -> None:
    c, model = SHAPES[shape], model_of(shape, dtype)
    cache = ContiguousCache(c, 3, 10, dtype)
    one_token = 2 * c.n_layers * c.n_kv_heads * c.head_dim * torch.finfo(dtype).bits // 8
    assert cache.keys.shape == cache.values.shape == (c.n_layers, 3, c.n_kv_heads, 10, c.head_dim)
    assert cache.keys.dtype == cache.values.dtype == dtype
    tensors = [t for t in vars(cache).values() if isinstance(t, torch.Tensor)]
    assert cache.reserved_bytes == sum(t.untyped_storage().nbytes() for t in tensors) == 30 * one_token
    assert cache.used_bytes == 0
    for operation, tokens in (
        (lambda: feed(model, cache, {0: [1] * 7, 2: [2]}), 8),
        (lambda: feed(model, cache, {2: [2]}), 9),
        (lambda: cache.copy_row(0, 1), 16),
        (lambda: cache.truncate(0, 4), 13),
        (lambda: cache.release(1), 6),
    ):
        operation()
        assert cache.used_bytes == tokens * one_token
        assert cache.reserved_bytes == 30 * one_token


def test_a_step_reads_no_further_than_its_longest_row() -> None:
    """How many slots are attended to follows from the rows of the step, not from what is reserved or others hold."""
    cache = filled_cache(SHAPE, (5, 2, 0), capacity=64)
    for pieces, slots in (({1: 1}, 3), ({1: 1, 2: 4}, 4), ({0: 2, 2: 1}, 7)):
        with suppress(Failure), cache.step(tuple(pieces.values()), tuple(pieces)) as step:
            shape = (len(pieces), CONFIG.n_kv_heads, max(pieces.values()), CONFIG.head_dim)
            k, v = step.write(0, *torch.zeros(2, *shape, dtype=MODEL.dtype))
            assert k.shape == v.shape == (len(pieces), CONFIG.n_kv_heads, slots, CONFIG.head_dim)
            raise Failure
    assert cache.keys.shape[2] == CONFIG.n_kv_heads == 2 and CONFIG.n_heads == 6  # heads are cached unrepeated


# --- Positions and mask


def test_positions_and_mask_say_who_sees_what() -> None:
    cache = filled_cache(SHAPE, (3, 1, 0), capacity=8)
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


@pytest.mark.parametrize("pieces", [{0: [1]}, {0: [1, 2, 3], 1: [1]}], ids=["one token", "ragged rows"])
@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS)
def test_a_cache_made_for_another_shape_is_refused_by_its_numbers(config: ModelConfig, pieces: dict) -> None:
    other = random_weights(Transformer(config)).double()
    cache = filled_cache(SHAPE)
    with pytest.raises(
        ValueError, match=r"layers|this step of the cache takes .* of shape \[\d, 2, \d, 8\] on cpu, not"
    ):
        feed(other, cache, pieces)
    assert cache.lengths == (5, 2, 0)


@pytest.mark.parametrize("pieces", [{0: [1]}, {0: [1, 2, 3], 1: [1]}], ids=["one token", "ragged rows"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_cache_of_another_dtype_is_refused_and_nothing_is_converted(dtype: torch.dtype, pieces: dict) -> None:
    cache = ContiguousCache(CONFIG, 3, 8, dtype)
    with pytest.raises(ValueError, match=rf"takes {dtype} of shape .*, not torch.float64 of"):
        feed(MODEL, cache, pieces)
    assert cache.lengths == (0, 0, 0)


@pytest.mark.parametrize("counts", [(3,), (5, 3)], ids=["one slice", "ragged"])
def test_a_step_takes_only_what_has_its_shape_in_every_layer_and_both_of_keys_and_values(
    counts: tuple[int, ...],
) -> None:
    shape = (len(counts), CONFIG.n_kv_heads, max(counts), CONFIG.head_dim)
    right = torch.zeros(shape, dtype=torch.float64)
    wrong = [right[:, :, :1], right[:, :1], right[:, :, :, :1], right[:1, :1, :1, :1], right.float()]
    for layer in range(CONFIG.n_layers):
        for bad in wrong:
            for pair in ((bad, right), (right, bad)):
                cache = ContiguousCache(CONFIG, 2, 8, torch.float64)
                with pytest.raises(ValueError, match="this step of the cache takes"), cache.step(counts) as step:
                    for earlier in range(layer):
                        step.write(earlier, right, right)
                    step.write(layer, *pair)
                assert cache.lengths == (0, 0)


def test_a_cache_made_for_inference_can_be_used_elsewhere() -> None:
    with torch.inference_mode():
        cache = ContiguousCache(CONFIG, 2, 8, torch.float64)
    MODEL(torch.tensor([[1, 2]]), cache, rows=[0])
    cache.copy_row(0, 1)
    assert cache.lengths == (2, 2)


def test_a_pass_that_records_gradients_is_refused_by_a_cache() -> None:
    """The cache would hold on to every pass for the sake of a backward that cannot come."""
    model = Transformer(CONFIG)
    cache, tokens = ContiguousCache(CONFIG, 1, 8), torch.tensor([[1, 2]])
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


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_what_neighbours_hold_changes_no_bit(shape: str, dtype: torch.dtype) -> None:
    """Other text of the same lengths beside a row, and even neighbours whose memory is no number any more."""
    model, mine = model_of(shape, dtype), text_of(shape, 12)
    logits = []
    for neighbour in (1, 2, None):
        cache = poisoned_cache(model, 3, 24)
        for start, stop in ((0, 7), (7, 8), (8, 12)):
            if neighbour is None:
                for memory in (cache.keys, cache.values):
                    memory[:, ::2, :, : cache.lengths[0]] = torch.nan
            seed = neighbour or 0
            left, right = text_of(shape, 12, seed=seed), text_of(shape, 12, seed=seed + 10)
            got = feed(model, cache, {0: left[start:stop], 1: mine[start:stop], 2: right[start:stop][:-1] or right[:1]})
        logits.append(bits(got[1]))
        assert difference(got[1], truth(shape, tuple(mine))[8:]) <= TOLERANCE[dtype]
    assert same_bits(logits[0], logits[1]) and same_bits(logits[0], logits[2])
