"""Ctrl-C at any moment inside a cache that forgets or rounds leaves it as it was, or with all that the step brought;
and such caches serve many texts as they serve each alone.

The one idea: new tokens take the slots of those that leave, so half a step would be no text at all. A profiler is
called where Python looks for a signal (see test_pool_interrupts.py), a tracer at each line that writes; what a cache
shows to the next query, token by token, is compared after each.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from copy import deepcopy
from itertools import count
from math import nan
from types import FrameType

import pytest
import torch
from shapes import SHAPES, TOLERANCE, difference, feed, model_of, text_of
from torch import Tensor

from course_lib.caches.codecs import Floats, Integers
from course_lib.caches.contract import Cache, Step
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import MostSeen, Window
from course_lib.caches.rounded import RoundedCache
from course_lib.generation import generate
from course_lib.serving import Engine, Request

SHAPE, CONFIG, MODEL = "mqa, tied", SHAPES["mqa, tied"], model_of("mqa, tied")
EXACT = torch.float64
FILES = ("contract.py", "forgetting.py", "policies.py", "rounded.py", "writes.py")
CACHES: dict[str, Callable[[int], Cache]] = {
    "a window": lambda rows: ForgettingCache(CONFIG, rows, Window(4), EXACT),
    "a window after first ones, renumbered": lambda rows: ForgettingCache(
        CONFIG, rows, Window(3, 2), EXACT, renumber=True
    ),
    "most seen": lambda rows: ForgettingCache(CONFIG, rows, MostSeen(5, 2), EXACT),
    "most seen, renumbered": lambda rows: ForgettingCache(CONFIG, rows, MostSeen(5, 2), EXACT, renumber=True),
    "float16": lambda rows: RoundedCache(CONFIG, rows, 64, *[Floats(torch.float16)] * 2, 2, EXACT),
    "4 bits per channel": lambda rows: RoundedCache(CONFIG, rows, 64, Integers(4, 3, True), Integers(4, 4), 1, EXACT),
}
each_cache = pytest.mark.parametrize("make", CACHES.values(), ids=CACHES)


class Failure(Exception):
    """What the tests raise to leave a step that they have looked at."""


def new_tokens(rows: int, tokens: int, seed: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For each layer keys, values and queries."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(CONFIG.n_layers):
        k, v = torch.randn(2, rows, CONFIG.n_kv_heads, tokens, CONFIG.head_dim, dtype=EXACT, generator=generator)
        yield k, v, torch.randn(rows, CONFIG.n_heads, tokens, CONFIG.head_dim, dtype=EXACT, generator=generator)


def pass_over(cache: Cache, counts: tuple[int, ...], seed: int) -> None:
    """A step as a model makes it, without one."""
    with cache.step(counts) as step:
        for layer, (k, v, q) in enumerate(new_tokens(len(counts), max(counts), seed)):
            keys = step.write(layer, k, v)[0]
            if hasattr(step, "watch"):
                step.watch(layer, q, keys)


def shown(cache: Cache) -> list[object]:
    """All that a next token of each row would see, in no order, and what the rows say of themselves."""
    rows = range(cache.rows)
    seen: list[object] = [list(cache.places(row)) for row in rows]
    seen += [cache.lengths, cache.used_bytes, [cache.next_position(row) for row in rows]]
    try:
        with cache.step([1] * cache.rows) as step:
            assert step.mask is not None
            seen.append(step.positions.tolist())
            for layer, (k, v, _) in enumerate(new_tokens(cache.rows, 1, seed=99)):
                both = torch.cat(step.write(layer, k, v), dim=-1)  # [B, H, S, 2 D]
                for row in rows:
                    seen.append(sorted(both[row, :, step.mask[row, 0, 0]].transpose(0, 1).flatten(1).tolist()))
            raise Failure
    except Failure:
        return seen


def interrupted(work: Callable[[], object], at: int) -> bool:
    """work(), interrupted at moment number `at` that passes in these files; False if it was done before that.

    Where a loop begins again is a moment, too. No profiler sees it, but a tracer sees each line, where steps write.
    """
    moments, before = count(1), sys.gettrace()

    def moment() -> None:
        if next(moments) == at:
            sys.setprofile(None)
            sys.settrace(before)
            raise KeyboardInterrupt

    def look(frame: FrameType, event: str, _: object) -> None:
        if frame.f_code.co_filename.endswith(FILES) and event in ("call", "c_return"):
            moment()

    def look_at_lines(frame: FrameType, event: str, _: object) -> object:
        if event == "line":
            moment()
        writes = frame.f_code.co_name == "writes" and isinstance(frame.f_locals["self"], Step)
        return look_at_lines if writes or frame.f_code.co_filename.endswith("writes.py") else None

    sys.setprofile(look)
    sys.settrace(look_at_lines)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
        sys.settrace(before)
    return False


WORK: dict[str, Callable[[Cache], object]] = {
    "a step": lambda cache: pass_over(cache, (2, 9, 0), seed=6),
    "a copy": lambda cache: cache.copy_row(0, 1),
    "a copy into an empty row": lambda cache: cache.copy_row(1, 2),
    "a release": lambda cache: cache.release(0),
}


@each_cache
@pytest.mark.parametrize("work", WORK.values(), ids=WORK)
def test_ctrl_c_at_any_moment_leaves_each_row_as_it_was_or_as_it_should_be_or_empty(
    make: Callable[[int], Cache], work: Callable[[Cache], object]
) -> None:
    prepared = make(3)
    for seed, counts in enumerate(((7, 2, 0), (1, 1, 0), (3, 0, 0))):
        pass_over(prepared, counts, seed)
    done, emptied = deepcopy(prepared), deepcopy(prepared)
    work(done)
    emptied.release(1)  # a copy that is cut short leaves its target empty, as in every kind
    allowed = [shown(prepared), shown(emptied)] if work is WORK["a copy"] else [shown(prepared)]
    after = shown(done)
    assert after not in allowed
    for at in count(1):
        cache = deepcopy(prepared)
        if not interrupted(lambda cache=cache: work(cache), at):
            break
        assert not cache.in_step
        cache.fill_free(nan)
        assert shown(cache) in allowed, f"moment {at}"
        if at % 10 == 1:  # and once more, to its end
            work(cache)
            cache.fill_free(nan)
            assert shown(cache) == after, f"moment {at}"
    assert at > 1, "work has to have moments"


@each_cache
def test_a_cache_holds_on_to_nothing_of_a_step_that_is_over(make: Callable[[int], Cache]) -> None:
    cache = make(1)
    for fails in (False, True):
        new = list(new_tokens(1, 6, seed=1))
        watched = [weakref.ref(t) for k, v, _ in new for t in (k, v)]
        try:
            with cache.step((6,)) as step:
                for layer, (k, v, _) in enumerate(new):
                    step.write(layer, k, v)
                if fails:
                    raise Failure
        except Failure:
            pass
        del step, k, v, new
        assert not any(ref() is not None for ref in watched), f"failed: {fails}"


@each_cache
def test_a_step_that_is_over_cannot_be_written_again(make: Callable[[int], Cache]) -> None:
    cache = make(2)
    pass_over(cache, (5, 2), seed=1)
    before = shown(cache)
    with cache.step((1, 1)) as step:
        for layer, (k, v, _) in enumerate(new_tokens(2, 1, seed=2)):
            step.write(layer, k, v)
    after = shown(cache)
    for layer in range(CONFIG.n_layers + 1):
        with pytest.raises(ValueError, match=f"layer {layer} was written after {CONFIG.n_layers} of"):
            step.write(layer, k, v)
    assert shown(cache) == after != before


def beside_padding_of(value: float, cache: Cache) -> list[object]:
    """What the real tokens of a step see beside padding that holds `value`, and what a cache shows after it."""
    pass_over(cache, (7, 2), seed=1)
    seen: list[object] = []
    with cache.step((5, 1)) as step:
        assert step.mask is not None
        for layer, (k, v, q) in enumerate(new_tokens(2, 5, seed=2)):
            for t in (k, v, q):
                t[1, :, 1:] = value
            both = step.write(layer, k, v)
            assert all(t.isfinite().all() for t in both), "0 * NaN is NaN: a weight of 0 is not enough"
            seen += [t[0].tolist() for t in both] + [t[1, :, step.mask[1, 0, 0]].tolist() for t in both]
            if hasattr(step, "watch"):
                step.watch(layer, q, both[0])
    return seen + shown(cache)


@each_cache
def test_padding_may_hold_anything(make: Callable[[int], Cache]) -> None:
    assert beside_padding_of(nan, make(2)) == beside_padding_of(0.0, make(2))


@each_cache
def test_copied_bytes_are_those_of_what_was_brought_together(make: Callable[[int], Cache]) -> None:
    """Each pass brings together what a row held in it and the new tokens, for keys and values of each layer."""
    cache = make(2)
    for counts in ((9, 3), (1, 1), (0, 2)):
        before = cache.copied_bytes
        with cache.step(counts) as step:
            widths = []
            for layer, (k, v, _) in enumerate(new_tokens(2, max(counts), seed=2)):
                both = step.write(layer, k, v)
                widths += [t.shape[2] for t in both]
        assert step.mask is not None and set(widths) == {step.mask.shape[-1]}
        token = CONFIG.n_kv_heads * CONFIG.head_dim * 8
        assert cache.copied_bytes - before == sum(widths) * token * 2 > 0


# --- Many texts


def asked() -> list[Request]:
    lengths = ((3, 9), (14, 6), (1, 12), (22, 4), (9, 9))
    return [Request(tuple(text_of(SHAPE, prompt, seed=i)), new, name=str(i)) for i, (prompt, new) in enumerate(lengths)]


@each_cache
@pytest.mark.parametrize("chunk", (None, 5))
def test_an_engine_serves_many_texts_as_it_serves_each_alone(make: Callable[[int], Cache], chunk: int | None) -> None:
    cache = make(3)
    cache.fill_free(nan)
    engine = Engine(MODEL, cache, chunk=chunk, compact=True, keep_logits=True)
    served = []
    for request in asked():
        served.append(engine.submit(request))
        engine.step()
        cache.fill_free(nan)
    engine.run()
    assert not any(cache.lengths) and not cache.used_bytes and not any(cache.places(row) for row in range(3))
    for request, sequence in zip(asked(), served, strict=True):
        alone = Engine(MODEL, make(1), chunk=chunk, keep_logits=True)
        expected = alone.submit(request)
        alone.run()
        assert sequence.tokens == expected.tokens and len(sequence.tokens) == request.max_new_tokens
        apart = difference(torch.stack(sequence.logits), torch.stack(expected.logits))
        assert apart <= TOLERANCE[EXACT]
        if chunk is None:
            got = generate(MODEL, request.prompt, max_new_tokens=request.max_new_tokens, cache=make(1), warm_up=False)
            assert list(got.tokens) == expected.tokens


@each_cache
def test_rows_held_and_tokens_seen_are_two_numbers(make: Callable[[int], Cache]) -> None:
    """After a long text a row has as many slots as after a short one, and its length goes on."""
    cache = make(2)
    feed(MODEL, cache, {1: text_of(SHAPE, 40)})
    seen, held = cache.lengths[1], len(cache.places(1))
    assert seen == 40 and cache.lengths[0] == 0 == len(cache.places(0))
    if isinstance(cache, ForgettingCache):
        assert held == cache.line == cache.policy.slots < seen and cache.slots == 2 * cache.line
        assert cache.used_bytes * 2 == cache.reserved_bytes and cache.longest == sys.maxsize
        assert cache.next_position(1) == (held if cache.renumber else seen)
        assert cache.fits([0, 1], [10**6, 10**6])
    else:
        assert held == seen == cache.next_position(1) and cache.longest == 64 and not cache.fits([1], [25])
    cache.move_row(1, 0)
    assert cache.lengths == (40, 0) and len(cache.places(0)) == held and not cache.places(1)
