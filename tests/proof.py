"""The proof of the engine in one second: the checks of the other tests, each in its smallest form, for any engine.

The one idea: what is true of the library must be false of each library with a bug in it, so the checks take the engine
that they judge as an argument. All memory that nobody has written holds NaN, and all logits are compared with the
oracle. A check raises whatever it raises; only coming through without an error counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from mutants import Engine
from shapes import (
    SHAPES,
    TOLERANCE,
    bits,
    compositions,
    difference,
    feed,
    feed_in,
    model_of,
    poison,
    poisoned_cache,
    same_bits,
    text_of,
    truth,
)
from torch import Tensor, nn


@dataclass(frozen=True)
class Bench:
    """An engine with one model of its own, and what its logits should be."""

    engine: Engine
    shape: str
    model: nn.Module

    def cache(self, rows: int, capacity: int) -> object:
        return poisoned_cache(self.model, rows, capacity, self.engine.caches.ContiguousCache)

    def near(self, got: Tensor, text: Sequence[int]) -> None:
        """`got` [k, V] are the logits of the last k tokens of `text`."""
        apart = difference(got, truth(self.shape, tuple(text))[len(text) - len(got) :])
        assert apart <= TOLERANCE[torch.float64], f"{apart} from the oracle"

    def text(self, length: int, seed: int = 0) -> list[int]:
        return text_of(self.shape, length, seed)


def bench(engine: Engine, shape: str = "gqa", **changed: object) -> Bench:
    config = engine.model.ModelConfig(**{**vars(SHAPES[shape]), **changed})
    model = engine.model.Transformer(config).double().requires_grad_(False)
    model.load_state_dict(model_of(shape).state_dict())
    return Bench(engine, shape, model)


def must_raise(kind: type[Exception], call: Callable[[], object]) -> Exception:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


# --- The checks


def oracle(engine: Engine) -> None:
    """Full pass = oracle, for three kinds of heads."""
    for shape in ("mha", "gqa", "mqa"):
        b = bench(engine, shape)
        text = b.text(9)
        b.near(feed(b.model, None, {0: text})[0], text)


def ragged_without_cache(engine: Engine) -> None:
    b = bench(engine)
    texts = {0: b.text(4), 1: b.text(9, 1), 2: b.text(1, 2)}
    for row, got in feed(b.model, None, texts).items():
        b.near(got, texts[row])


def cuts(engine: Engine) -> None:
    """Cached = oracle in every cut of five tokens, and in some of thirty."""
    b = bench(engine)
    for length, ways in ((5, compositions(5)), (30, [(12, 12, 6), (25, *(1,) * 5)])):
        text = b.text(length)
        for chunks in ways:
            cache = b.cache(1, 32)
            b.near(feed_in(b.model, cache, 0, text, chunks), text)
            assert tuple(cache.lengths) == (length,)


def ragged_prompts(engine: Engine) -> None:
    """`prefill` of prompts of different lengths, in one pass and in chunks that divide the longest, then `decode`."""
    b = bench(engine)
    for lengths, chunk in (((7, 2, 12), None), ((12, 5, 6), 3), ((1, 12, 4), 4)):
        cache = b.cache(3, 16)
        texts = [b.text(length, row) for row, length in enumerate(lengths)]
        logits = engine.generation.prefill(b.model, texts, cache, chunk=chunk)
        for token in (1, 2, 3):
            for row in range(3):
                b.near(logits[row][None], texts[row])
                texts[row] = [*texts[row], token]
            logits = engine.generation.decode(b.model, [token] * 3, cache)


def rows_of_equal_length(engine: Engine) -> None:
    """Several rows in step, whose decode needs no mask, in a cache with room to spare."""
    b = bench(engine)
    cache, texts = b.cache(3, 16), {row: b.text(9, row) for row in range(3)}
    got = feed(b.model, cache, {row: text[:6] for row, text in texts.items()})
    for end in range(7, 10):
        got = feed(b.model, cache, {row: text[end - 1 : end] for row, text in texts.items()})
    for row in range(3):
        b.near(got[row], texts[row])


def rows_in_any_order(engine: Engine) -> None:
    """Rows of a larger cache in any order and choice, some with no new token."""
    b = bench(engine)
    cache, texts = b.cache(4, 24), {row: [] for row in range(4)}
    passes = (  # counts, rows
        ((2, 3), (0, 2)),
        ((1, 1), (2, 0)),
        ((0, 2, 1), (1, 3, 0)),
        ((1, 1, 1), (3, 1, 0)),
        ((2, 0, 5, 1), (0, 1, 2, 3)),
    )
    for number, (counts, rows) in enumerate(passes):
        pieces = {row: b.text(count, 7 * number + row) for count, row in zip(counts, rows, strict=True)}
        for row, got in feed(b.model, cache, pieces).items():
            texts[row] = [*texts[row], *pieces[row]]
            if pieces[row]:
                b.near(got, texts[row])
        assert list(cache.lengths) == [len(text) for text in texts.values()]


def reuse(engine: Engine) -> None:
    """Release, truncate and copy, with everything that was freed filled with NaN, beside a longer row."""
    b = bench(engine)
    cache, old, new = b.cache(3, 32), b.text(12, 1), b.text(5, 2)
    feed(b.model, cache, {0: old, 1: b.text(20, 3), 2: old[:7]})
    cache.release(0)
    cache.truncate(2, 3)
    assert tuple(cache.lengths) == (0, 20, 3)
    for row in range(3):
        poison(cache, row)
    longer = b.text(20, 3)
    for piece in (new[:3], new[3:]):
        longer = [*longer, 1]
        got = feed(b.model, cache, {0: piece, 1: [1], 2: piece})
        b.near(got[1], longer)
    b.near(got[0], new)
    b.near(got[2], [*old[:3], *new])
    cache.release(2)
    feed(b.model, cache, {2: [9]})
    cache.copy_row(1, 2)
    poison(cache, 2)
    assert tuple(cache.lengths) == (5, 22, 22)
    got = feed(b.model, cache, {2: [3, 4], 0: [1], 1: [5]})
    b.near(got[2], [*longer, 3, 4])
    b.near(got[1], [*longer, 5])


def failure(engine: Engine) -> None:
    """A pass that fails in any layer, or misses the last, leaves lengths and later logits as they were."""
    b = bench(engine)
    texts = {0: b.text(9), 1: b.text(3, 1)}

    class Failure(Exception):
        pass

    def fail(*_: object) -> None:
        raise Failure

    for layer in b.model.layers:
        cache = b.cache(2, 16)
        feed(b.model, cache, texts)
        hook = layer.register_forward_hook(fail)
        for pieces in ({0: [1, 2], 1: [3]}, {1: [4]}):
            must_raise(Failure, lambda pieces=pieces, cache=cache: feed(b.model, cache, pieces))
            assert tuple(cache.lengths) == (9, 3)
            for row in pieces:
                poison(cache, row)
        hook.remove()
        for row, got in feed(b.model, cache, {1: [5, 6], 0: [7]}).items():
            b.near(got, [*texts[row], *([5, 6] if row else [7])])

    def one_layer_too_few() -> None:
        with cache.step((1,)) as step:
            for layer in range(len(b.model.layers) - 1):
                step.write(layer, *torch.zeros(2, 1, 2, 1, 8, dtype=torch.float64))

    must_raise(ValueError, one_layer_too_few)
    assert tuple(cache.lengths) == (10, 5)


def full(engine: Engine) -> None:
    """What does not fit is refused before anything is written."""
    b = bench(engine)
    cache = b.cache(2, 8)
    feed(b.model, cache, {0: b.text(3), 1: b.text(6)})
    poison(cache, 0)
    poison(cache, 1)
    before = bits(cache.keys, cache.values)
    for pieces in ({1: [1, 2, 3]}, {0: [1], 1: [1, 2, 3]}):
        must_raise(engine.caches.CacheFull, lambda pieces=pieces: feed(b.model, cache, pieces))
        assert tuple(cache.lengths) == (3, 6) and same_bits(before, bits(cache.keys, cache.values))


def last_position(engine: Engine) -> None:
    """The model's last position can be used, and the next is refused with nothing changed, however small the chunks."""
    b = bench(engine, max_positions=8)
    cache, text = b.cache(1, 16), b.text(9)
    b.near(feed_in(b.model, cache, 0, text[:8], (5, 2, 1)), text[:8])
    must_raise(ValueError, lambda: feed(b.model, cache, {0: text[8:]}))
    assert tuple(cache.lengths) == (8,)
    cache, other = b.cache(2, 16), b.text(8, 1)  # padding beyond the last position is no position
    feed(b.model, cache, {0: text[:7]})
    got = feed(b.model, cache, {0: text[7:8], 1: other})
    b.near(got[0], text[:8])
    b.near(got[1], other)


def lengths_are_values(engine: Engine) -> None:
    b = bench(engine)
    cache = b.cache(2, 8)
    held = [cache.lengths]
    for operation in (lambda: feed(b.model, cache, {0: [1, 2], 1: [3]}), lambda: cache.truncate(0, 1)):
        operation()
        held.append(cache.lengths)
    assert [tuple(lengths) for lengths in held] == [(0, 0), (2, 1), (1, 1)]


def window(engine: Engine) -> None:
    """The mask function, asked for each pair of positions up to 9 with a window of 1, 4 and none."""
    positions = torch.arange(10)[None]
    for width in (1, 4, None):
        mask = engine.caches.visible(positions, positions, width)[0, 0]
        for query in range(10):
            seen = [query - back for back in range(width or 10) if query >= back]
            assert mask[query].nonzero().flatten().tolist() == sorted(seen)


def counted_bytes(engine: Engine) -> None:
    b = bench(engine)
    cache, one_token = b.cache(3, 10), 2 * 3 * 2 * 8 * 8
    feed(b.model, cache, {0: [1, 2, 3], 2: [4]})
    assert (cache.used_bytes, cache.reserved_bytes) == (4 * one_token, 30 * one_token)


def generation(engine: Engine) -> None:
    """Cached = uncached = full passes, and n new tokens leave prompt + n - 1 in the cache."""
    b = bench(engine)
    prompt, cache = b.text(5), b.cache(2, 16)
    text = list(prompt)
    for _ in range(8):
        text.append(int(truth(b.shape, tuple(text))[-1].argmax()))
    for options in ({}, {"use_cache": False}, {"cache": cache}):
        got = engine.generation.generate(b.model, prompt, max_new_tokens=8, **options)
        assert got.tokens == tuple(text[5:])
    assert tuple(cache.lengths) == (12, 0)


def sampling(engine: Engine) -> None:
    """Top-k and top-p leave what they say, and the draws of a seed are always the same."""
    Sampling = engine.generation.Sampling
    logits = torch.tensor([0.5, 0.2, 0.2, 0.1]).log()
    for options, expected in (
        ({}, [0.5, 0.2, 0.2, 0.1]),
        ({"top_k": 1}, [1, 0, 0, 0]),
        ({"top_p": 0.6}, [5 / 7, 2 / 7, 0, 0]),
        ({"top_k": 3, "top_p": 0.95}, [5 / 9, 2 / 9, 2 / 9, 0]),
    ):
        np.testing.assert_allclose(Sampling(1.0, **options).probabilities(logits).numpy(), expected, atol=1e-6)
    b = bench(engine)
    drawn = [
        engine.generation.generate(b.model, [1, 2], max_new_tokens=12, sampling=Sampling(3.0), seed=seed).tokens
        for seed in (4, 4, 5)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


CHECKS: dict[str, Callable[[Engine], None]] = {
    "oracle": oracle,
    "ragged, no cache": ragged_without_cache,
    "cuts": cuts,
    "ragged prompts": ragged_prompts,
    "rows of equal length": rows_of_equal_length,
    "rows in any order": rows_in_any_order,
    "reuse": reuse,
    "failure": failure,
    "full": full,
    "last position": last_position,
    "lengths are values": lengths_are_values,
    "window": window,
    "bytes": counted_bytes,
    "generation": generation,
    "sampling": sampling,
}


def proof(engine: Engine) -> dict[str, Exception]:
    """Run all checks; return the error of each that failed, by its name. Empty for a right engine."""
    failed = {}
    for name, check in CHECKS.items():
        try:
            check(engine)
        except Exception as error:
            failed[name] = error
    return failed
