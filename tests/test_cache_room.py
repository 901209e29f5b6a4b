"""What fits into a cache and what does not: every kind says so before anything is written, and uses all its room."""

from dataclasses import replace

import pytest
import torch
from cache_kinds import Kind, each_kind, filled
from shapes import SHAPES, TOLERANCE, bits, difference, feed, model_of, same_bits, text_of, truth

from course_lib.caches import CacheFull
from course_lib.model import Transformer

pytestmark = each_kind

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]


@pytest.mark.parametrize("order", [(0,), (1,), (2,), (1, 0), (0, 2), (0, 1, 2), (2, 1, 0)], ids=str)
def test_what_does_not_fit_is_refused_before_anything_is_written(kind: Kind, order: tuple[int, ...]) -> None:
    """The last row of the step asks for one token too many, those before it for one each, which there is room for."""
    cache, full = filled(kind, SHAPE), order[-1]
    held, before, room = cache.lengths, bits(cache.keys, cache.values), kind.room(cache, full)
    pieces = {row: [3] for row in order} | {full: text_of(SHAPE, room + 1)}
    assert not cache.fits(list(pieces), [len(piece) for piece in pieces.values()])
    with pytest.raises(CacheFull) as error:
        feed(MODEL, cache, pieces)
    said, free = str(error.value), error.value.free
    assert (error.value.row, error.value.needed) == (full, room + 1) and said.startswith(
        f"row {full} needs {room + 1} "
    )
    assert f", {free} {'is' if free == 1 else 'are'} free: " in said
    assert free == room if len(order) == 1 else free <= room, "rows before it may have taken of the same memory"
    assert cache.lengths is held and same_bits(before, bits(cache.keys, cache.values)) and not cache.in_step
    kind.check(cache)
    pieces[full] = text_of(SHAPE, free, seed=7)  # and what fits exactly, fits
    assert cache.fits(list(pieces), [len(piece) for piece in pieces.values()])
    for row, got in feed(MODEL, cache, pieces).items():
        text = (*text_of(SHAPE, held[row], seed=row), *pieces[row])
        assert difference(got, truth(SHAPE, text)[held[row] :]) <= TOLERANCE[torch.float64]
    assert kind.room(cache, full) == 0 and not cache.fits([full], [1])


def test_a_row_that_has_the_cache_for_itself_can_be_as_long_as_the_cache_says(kind: Kind) -> None:
    cache = filled(kind, SHAPE)
    for row in range(3):
        cache.release(row)
        kind.poison(cache, row)
    text = text_of(SHAPE, cache.longest)
    assert kind.room(cache, 1) == cache.longest >= 8 and not cache.fits([1], [cache.longest + 1])
    got = feed(MODEL, cache, {1: text})[1]
    assert difference(got, truth(SHAPE, tuple(text))) <= TOLERANCE[torch.float64]
    assert cache.lengths == (0, cache.longest, 0) and kind.room(cache, 1) == 0


def test_every_row_can_be_as_long_as_the_others_at_once(kind: Kind) -> None:
    texts = {row: text_of(SHAPE, 8, seed=row) for row in range(3)}
    cache = kind.poisoned(MODEL, 3, 8)
    for start, stop in ((0, 3), (3, 8)):
        got = feed(MODEL, cache, {row: text[start:stop] for row, text in texts.items()})
    for row, text in texts.items():
        assert difference(got[row], truth(SHAPE, tuple(text))[3:]) <= TOLERANCE[torch.float64]


@pytest.mark.parametrize("cached", [True, False])
def test_the_last_position_of_the_model_can_be_used_and_the_next_is_refused(kind: Kind, cached: bool) -> None:
    """The bound counts what is in the cache: chunks of 3 never reach position 8 by themselves."""
    model = Transformer(replace(CONFIG, max_positions=8)).to(torch.float64)
    model.load_state_dict(MODEL.state_dict())
    text = text_of(SHAPE, 9)
    cache = kind.poisoned(model, 2, 32)
    if not cached:
        with pytest.raises(ValueError, match="would reach position 8, but the model knows positions 0 to 7"):
            feed(model, None, {0: text})
        return
    for start, stop in ((0, 3), (3, 6), (6, 8)):
        got = feed(model, cache, {0: text[start:stop], 1: text[:1]})[0]
    assert difference(got, truth(SHAPE, tuple(text[:8]))[6:]) <= TOLERANCE[torch.float64]
    before, held = bits(cache.keys, cache.values), cache.lengths
    for too_many in (1, 3):
        with pytest.raises(ValueError, match=rf"row 0 would reach position {7 + too_many}.* 0 to 7"):
            feed(model, cache, {1: text[:1], 0: text[:too_many]})
        assert cache.lengths is held and same_bits(before, bits(cache.keys, cache.values))


def test_padding_does_not_count_as_positions(kind: Kind) -> None:
    """A row that gets its last token beside a row that gets many is padded beyond the last position of the model."""
    model = Transformer(replace(CONFIG, max_positions=8)).to(torch.float64)
    model.load_state_dict(MODEL.state_dict())
    text, other = text_of(SHAPE, 8), text_of(SHAPE, 8, seed=1)
    cache = kind.poisoned(model, 2, 16)
    feed(model, cache, {0: text[:7]})
    got = feed(model, cache, {0: text[7:], 1: other})
    assert difference(got[0], truth(SHAPE, tuple(text))[7:]) <= TOLERANCE[torch.float64]
    assert difference(got[1], truth(SHAPE, tuple(other))) <= TOLERANCE[torch.float64]
