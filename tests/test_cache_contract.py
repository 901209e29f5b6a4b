"""What every cache promises beside right logits: nothing changes when anything fails, and a step is used as a step
should be. All of it is asked of every kind of cache.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from cache_kinds import Kind, each_kind, filled
from shapes import SHAPES, TOLERANCE, bits, difference, feed, model_of, same_bits, text_of, truth

from course_lib.caches import Cache, Step

pytestmark = each_kind

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]


class Failure(Exception):
    """What the tests raise in the middle of a pass."""


def write_all(step: Step, tokens: int, rows: int = 1) -> None:
    """Write every layer of a step as a model does."""
    for layer in range(CONFIG.n_layers):
        new = torch.ones(rows, CONFIG.n_kv_heads, tokens, CONFIG.head_dim, dtype=MODEL.dtype)
        step.write(layer, new, new)


# --- A pass that fails


@pytest.mark.parametrize("layer", range(CONFIG.n_layers))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failure_in_any_layer_leaves_the_cache_as_it_was(kind: Kind, layer: int, moment: str) -> None:
    texts = {row: text_of(SHAPE, length, seed=row) for row, length in enumerate((5, 2, 0))}
    cache = filled(kind, SHAPE)
    held = cache.lengths

    def fail(*_: object) -> None:
        raise Failure

    module = MODEL.layers[layer]
    hook = module.register_forward_pre_hook(fail) if moment == "before" else module.register_forward_hook(fail)
    try:
        for pieces in ({0: [1, 2, 3], 2: [4]}, {1: [1], 0: [2]}, {0: [1], 1: [2], 2: [3]}):
            with pytest.raises(Failure):
                feed(MODEL, cache, pieces)
            assert cache.lengths is held and not cache.in_step
            kind.check(cache)
            for row in pieces:
                kind.poison(cache, row)
    finally:
        hook.remove()
    new = {2: [3, 1, 4, 1], 0: [5], 1: [9, 2]}
    for row, logits in feed(MODEL, cache, new).items():
        whole = truth(SHAPE, (*texts[row], *new[row]))
        assert difference(logits, whole[-len(new[row]) :]) <= TOLERANCE[torch.float64], f"row {row}"


def test_a_failure_in_the_head_leaves_the_cache_as_it_was(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody saw a logit, so the token has not been read: it may be read again."""
    cache, text = kind.poisoned(MODEL, 2, 16), text_of(SHAPE, 6)
    feed(MODEL, cache, {0: text[:5], 1: text[:2]})
    linear = F.linear

    def interrupted(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if weight.shape[0] == CONFIG.vocab_size:
            raise KeyboardInterrupt
        return linear(x, weight)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(F, "linear", interrupted)
        feed(MODEL, cache, {0: text[5:]})
    assert cache.lengths == (5, 2)
    got = feed(MODEL, cache, {0: text[5:]})[0]
    assert difference(got, truth(SHAPE, tuple(text))[5:]) <= TOLERANCE[torch.float64]


def test_a_copy_that_is_cut_short_leaves_an_empty_row(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = filled(kind, SHAPE)

    def cut_short(source: int, target: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cache, "copy", cut_short)
    held = cache.lengths
    with pytest.raises(KeyboardInterrupt):
        cache.copy_row(2, 0)
    assert cache.lengths == (0, *held[1:])
    kind.check(cache)


def test_rows_counts_and_lengths_may_be_integers_of_any_library_and_nobody_can_change_them_later(kind: Kind) -> None:
    cache, text = kind.poisoned(MODEL, 2, 16), text_of(SHAPE, 6)
    counts, row = torch.tensor([5]), torch.tensor([1])
    MODEL(torch.tensor([text[:5]]), cache, counts=counts, rows=row)
    counts += 1
    row -= 1
    assert cache.lengths == (0, 5) and all(type(length) is int for length in cache.lengths)
    got = MODEL(torch.tensor([text[5:]]), cache, rows=np.array([1]))[0]
    assert difference(got, truth(SHAPE, tuple(text))[5:]) <= TOLERANCE[torch.float64]
    kept = torch.tensor(2)
    cache.truncate(np.int64(1), kept)
    kept -= 2
    assert cache.lengths == (0, 2) and type(cache.lengths[1]) is int
    with pytest.raises(ValueError, match="name a row twice"):
        MODEL(torch.tensor([[1], [2]]), cache, rows=torch.tensor([0, 0]))


@pytest.mark.parametrize(
    "call",
    [
        lambda cache: cache.truncate(0, 2.5),
        lambda cache: cache.release(0.0),
        lambda cache: cache.copy_row(0, "1"),
        lambda cache: MODEL(torch.tensor([[1]]), cache, rows=[0.0]),
        lambda cache: MODEL(torch.tensor([[1]]), cache, counts=[1.0]),
        lambda cache: cache.move_row(0, 1.0),
    ],
)
def test_what_is_no_whole_number_is_refused(kind: Kind, call: Callable[[Cache], object]) -> None:
    cache = filled(kind, SHAPE)
    held = cache.lengths
    with pytest.raises(ValueError, match="must be a whole number, not"):
        call(cache)
    assert cache.lengths == held


@pytest.mark.parametrize("tokens", [torch.tensor([1, 2]), torch.tensor([[1.0, 2.0]])])
def test_tokens_of_another_shape_or_kind_are_refused(kind: Kind, tokens: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"tokens must be whole numbers of shape \[B, T\], not"):
        MODEL(tokens)


def test_an_interrupt_is_a_failure_too(kind: Kind) -> None:
    """Row 2's free slots are cleared for row 0 and then written, before the learner stops the cell."""
    cache = filled(kind, SHAPE)
    held = cache.lengths
    with pytest.raises(KeyboardInterrupt), cache.step((1, 2), (0, 2)) as step:
        new = torch.full((2, CONFIG.n_kv_heads, 2, CONFIG.head_dim), torch.nan, dtype=MODEL.dtype)
        step.write(0, new, new)
        raise KeyboardInterrupt
    assert cache.lengths is held and not cache.in_step
    kind.check(cache)
    got = feed(MODEL, cache, {0: [1], 2: [6]})
    assert difference(got[2], truth(SHAPE, (6,))) <= TOLERANCE[torch.float64]
    assert difference(got[0], truth(SHAPE, (*text_of(SHAPE, 5), 1))[5:]) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("then", ["read", "truncate", "release", "copy"])
@pytest.mark.parametrize("moment", ["in a layer", "as it closes"])
def test_ctrl_c_again_while_a_step_is_abandoned_changes_nothing_either(
    kind: Kind, moment: str, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is done next first abandons the step: what it left is NaN, beside rows that may not see it."""
    cache = filled(kind, SHAPE)
    MODEL(torch.tensor([[3], [0]]), cache, counts=(1, 0), rows=(0, 2))  # row 2 is cleared for its longer neighbour
    held, keep = cache.lengths, cache.keep

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    def kept(rows: tuple[int, ...]) -> None:
        keep(rows)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(cache, "abandon", interrupted)
        patched.setattr(cache, "keep", kept)
        with cache.step((1, 6), (1, 2)) as step:
            new = torch.full((2, CONFIG.n_kv_heads, 6, CONFIG.head_dim), torch.nan, dtype=MODEL.dtype)
            for layer in range(CONFIG.n_layers if moment == "as it closes" else 1):
                step.write(layer, new, new)
            interrupted()
    assert cache.lengths is held and not cache.in_step
    told = [*text_of(SHAPE, 2, seed=1)]
    if then == "truncate":
        cache.truncate(1, 1)
        told = told[:1]
    elif then == "release":
        cache.release(1)
        told = []
    elif then == "copy":
        cache.copy_row(1, 2)
        got = feed(MODEL, cache, {2: [8]})[2]
        assert difference(got, truth(SHAPE, (*told, 8))[-1:]) <= TOLERANCE[torch.float64]
        cache.release(2)
    got = feed(MODEL, cache, {0: [1], 1: [6], 2: [9]})
    kind.check(cache)
    assert difference(got[1], truth(SHAPE, (*told, 6))[-1:]) <= TOLERANCE[torch.float64]
    assert difference(got[2], truth(SHAPE, (9,))) <= TOLERANCE[torch.float64]
    assert difference(got[0], truth(SHAPE, (*text_of(SHAPE, 5), 3, 1))[-1:]) <= TOLERANCE[torch.float64]


def test_memory_that_runs_out_while_a_step_opens_changes_nothing(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short row's free slots are cleared for its longer neighbour; if the step then does not come to be, they may
    not count as cleared.
    """
    cache = filled(kind, SHAPE)
    held = cache.lengths

    def fail(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(kind.step, "__init__", fail)
    with pytest.raises(MemoryError):
        feed(MODEL, cache, {0: [1], 2: [1, 2]})
    monkeypatch.undo()
    assert cache.lengths is held and not cache.in_step
    kind.check(cache)
    for row in (0, 2):
        kind.poison(cache, row)
    got = feed(MODEL, cache, {0: [1], 2: [6]})[2]
    assert difference(got, truth(SHAPE, (6,))) <= TOLERANCE[torch.float64]


# --- How a step is used


def test_layers_are_written_once_and_in_order(kind: Kind) -> None:
    cache = filled(kind, SHAPE)
    held = cache.lengths
    new = torch.zeros(1, CONFIG.n_kv_heads, 1, CONFIG.head_dim, dtype=MODEL.dtype)
    for order in ((1,), (0, 0), (0, 2), (0, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3), (-1,)):
        said = f"layer {order[-1]} was written after {len(order) - 1} of"
        with pytest.raises(ValueError, match=said), cache.step((1,)) as step:
            for layer in order:
                step.write(layer, new, new)
        assert cache.lengths is held, order


@pytest.mark.parametrize("written", [0, 1, 2])
def test_a_step_that_misses_layers_does_not_count(kind: Kind, written: int) -> None:
    cache = filled(kind, SHAPE)
    held = cache.lengths
    new = torch.zeros(1, CONFIG.n_kv_heads, 1, CONFIG.head_dim, dtype=MODEL.dtype)
    with pytest.raises(ValueError, match=f"after {written} of 3 layers"), cache.step((1,)) as step:
        for layer in range(written):
            step.write(layer, new, new)
    assert cache.lengths is held


def test_lengths_advance_once_when_the_step_closes(kind: Kind) -> None:
    cache = filled(kind, SHAPE)
    with cache.step((2, 0, 1)) as step:
        write_all(step, tokens=2, rows=3)
        assert cache.lengths == (5, 2, 0)
    assert cache.lengths == (7, 2, 1)


@pytest.mark.parametrize(
    "operation",
    [
        lambda cache: feed(MODEL, cache, {1: [1]}),
        lambda cache: cache.step((1,)).__enter__(),
        lambda cache: cache.release(1),
        lambda cache: cache.truncate(0, 1),
        lambda cache: cache.copy_row(0, 1),
        lambda cache: cache.move_row(0, 1),
        lambda cache: cache.fill_free(0.0),
    ],
    ids=["pass", "step", "release", "truncate", "copy_row", "move_row", "fill_free"],
)
def test_nothing_else_happens_to_a_cache_in_a_step(kind: Kind, operation: Callable[[Cache], object]) -> None:
    cache = filled(kind, SHAPE)
    with cache.step((1,)) as step:
        with pytest.raises(ValueError, match="a step is still open"):
            operation(cache)
        write_all(step, tokens=1)
    assert cache.lengths == (6, 2, 0), "the step that was open is not disturbed"
    operation(cache)


BAD_STEPS = {
    "a row below 0": ((1,), (-1,), "no row -1: this cache has rows 0 to 2"),
    "a row beyond the last": ((1, 1), (0, 3), "no row 3: this cache has rows 0 to 2"),
    "more counts than the cache has rows": ((1, 1, 1, 1), None, "no row 3"),
    "a row twice": ((1, 1), (1, 1), r"rows \(1, 1\) name a row twice"),
    "a negative count": ((1, -1), (0, 1), "row 1 cannot get -1 new tokens"),
    "no new token at all": ((0, 0), (0, 1), "at least one new token"),
    "no row at all": ((), (), "at least one new token"),
    "fewer counts than rows": ((1,), (0, 1), "1 counts for 2 rows"),
}


@pytest.mark.parametrize("counts, rows, said", BAD_STEPS.values(), ids=BAD_STEPS)
def test_a_step_that_makes_no_sense_is_refused(kind: Kind, counts: tuple, rows: tuple | None, said: str) -> None:
    cache = filled(kind, SHAPE)
    before = bits(cache.keys, cache.values)
    with pytest.raises(ValueError, match=said), cache.step(counts, rows):
        pytest.fail("the step was opened")
    assert cache.lengths == (5, 2, 0) and not cache.in_step
    assert same_bits(before, bits(cache.keys, cache.values))


@pytest.mark.parametrize(
    "operation, said",
    [
        (lambda cache: cache.truncate(0, 6), "row 0 holds 5 tokens and cannot be truncated to 6"),
        (lambda cache: cache.truncate(0, -1), "cannot be truncated to -1"),
        (lambda cache: cache.truncate(3, 0), "no row 3"),
        (lambda cache: cache.release(-1), "no row -1"),
        (lambda cache: cache.copy_row(0, 3), "no row 3"),
        (lambda cache: cache.copy_row(3, 0), "no row 3"),
        (lambda cache: cache.move_row(0, -1), "no row -1"),
        (lambda cache: cache.move_row(3, 3), "no row 3"),
    ],
)
def test_other_calls_that_make_no_sense_are_refused(
    kind: Kind, operation: Callable[[Cache], object], said: str
) -> None:
    cache = filled(kind, SHAPE)
    with pytest.raises(ValueError, match=said):
        operation(cache)
    assert cache.lengths == (5, 2, 0)
