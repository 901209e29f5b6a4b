"""What is promised bit for bit holds fifty times, and what is promised within a tolerance holds in fifty shapes.

Same process, same shapes, one thread: no bit may change, whatever was computed in between. Other chunks, other batches,
other threads: logits stay within the contract, as a share of the largest.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest
import torch
from shapes import SHAPES, bits, model_of, same_bits, text_of
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache, PagedCache
from course_lib.departure import departure, run_alone, runs_of
from course_lib.generation import Sampling, decode, generate, prefill
from course_lib.model import Transformer
from course_lib.noise import EPSILONS, threads, tolerance
from course_lib.serving import Engine, Request

REPEATS = 50
PROMPTS = [text_of("gqa", length) for length in (9, 4, 14)]
DRAWN = Sampling(temperature=1.0, top_k=20)


@pytest.fixture(params=EPSILONS, ids=str)
def model(request: pytest.FixtureRequest) -> Iterator[Transformer]:
    with threads(1):
        yield model_of("gqa", request.param)


def something_else(model: Transformer, number: int) -> None:
    """Another pass, of another shape, that leaves other numbers in memory that is given back."""
    with torch.inference_mode():
        model(torch.tensor([text_of("gqa", 1 + number % 7, number)]))


def test_logits_of_prefill_and_decode_are_the_same_bits_fifty_times(model: Transformer) -> None:
    def logits() -> list[Tensor]:
        cache = ContiguousCache(model.config, 3, 16, model.dtype)
        found = [prefill(model, PROMPTS, cache, chunk=5)]
        return bits(*found, *(decode(model, [token, 7, 1], cache) for token in (3, 1)))

    first = logits()
    assert [tensor.shape for tensor in first] == [(3, SHAPES["gqa"].vocab_size)] * 3
    for number in range(REPEATS):
        something_else(model, number)
        assert same_bits(logits(), first), f"repeat {number}"


def test_a_drawn_text_with_a_seed_is_the_same_fifty_times_whatever_others_drew(model: Transformer) -> None:
    def tokens(seed: int) -> tuple[int, ...]:
        return generate(model, PROMPTS[0], max_new_tokens=6, sampling=DRAWN, seed=seed, warm_up=False).tokens

    first = tokens(1)
    assert len({first, tokens(2), tokens(3)}) > 1, "this temperature draws"
    for number in range(REPEATS):
        torch.manual_seed(number)  # the generator that all share is not the request's
        assert tokens(1) == first, f"repeat {number}"


def contiguous(model: Transformer) -> Cache:
    return ContiguousCache(model.config, 3, 24, model.dtype)


def paged(model: Transformer) -> Cache:
    """So few blocks that somebody is put off."""
    return PagedCache(model.config, 3, 8, 4, dtype=model.dtype)


@pytest.mark.parametrize("model", [torch.float32, torch.bfloat16], ids=str, indirect=True)
@pytest.mark.parametrize("made", [contiguous, paged])
def test_runs_of_an_engine_are_the_same_tokens_and_bits_fifty_times(
    model: Transformer, made: Callable[[Transformer], Cache]
) -> None:
    def run() -> tuple[list[list[int]], list[Tensor], int]:
        engine = Engine(model, made(model), chunk=4, keep_logits=True)
        samplings = [DRAWN, Sampling(), DRAWN]
        served = [engine.submit(Request(tuple(p), 4, s, seed=5)) for p, s in zip(PROMPTS, samplings, strict=True)]
        engine.run()
        assert [len(each.tokens) for each in served] == [4, 4, 4]
        logits = [logit for each in served for logit in each.logits]
        return [each.tokens for each in served], bits(*logits), sum(each.preempted for each in served)

    first = run()
    assert (first[2] > 0) == (made is paged)
    for number in range(REPEATS):
        again = run()
        assert again[0] == first[0] and same_bits(again[1], first[1]), f"repeat {number}"


# --- Within a tolerance


@torch.inference_mode()
def in_another_way(model: Transformer, text: list[int], random: Random) -> tuple[Tensor, str]:
    """The logits [T, V] of a text, read in chunks of any sizes, in a batch of any size, by any number of threads."""
    others = [text_of("gqa", random.randint(1, 40), random.randrange(99)) for _ in range(random.randrange(6))]
    row, count = random.randint(0, len(others)), random.choice((1,) * 9 + (2,))
    texts = [*others[:row], text, *others[row:]]
    longest = max(map(len, texts))
    cuts = sorted(random.sample(range(1, longest), random.randint(0, min(longest - 1, 3))))
    cache = ContiguousCache(model.config, len(texts), longest, model.dtype)
    found = []
    with threads(count):
        for start, stop in zip([0, *cuts], [*cuts, longest]):
            pieces = [each[start:stop] for each in texts]
            padded = torch.tensor([piece + [0] * (stop - start - len(piece)) for piece in pieces])
            logits = model(padded, cache, counts=list(map(len, pieces)))
            found.append(logits[row, : len(pieces[row])])
    return torch.cat(found), f"row {row} of {len(texts)}, cut at {cuts}, {count} threads"


def test_in_fifty_other_shapes_logits_stay_within_the_contract_of_their_dtype() -> None:
    random, differed = Random(10), dict.fromkeys(EPSILONS, 0)
    for number in range(REPEATS):
        dtype = list(EPSILONS)[number % len(EPSILONS)]
        model, text = model_of("gqa", dtype), text_of("gqa", random.randint(2, 40), number)
        with torch.inference_mode():
            wanted = model(torch.tensor([text]))[0]
        logits, way = in_another_way(model, text, random)
        assert logits.shape == wanted.shape == (len(text), SHAPES["gqa"].vocab_size)
        apart = float((logits.double() - wanted.double()).abs().max() / wanted.double().abs().max())
        assert apart <= tolerance(dtype), f"{dtype}, {len(text)} tokens, {way}: {apart:.2g}"
        differed[dtype] += apart > 0
    assert all(differed.values()), "bits do differ, so nothing but a tolerance can be promised"


def test_none_of_fifty_pairs_that_only_rounding_makes_is_called_a_bug() -> None:
    """Alone in one piece, and in company in chunks, in blocks: prompts, neighbours and shapes drawn anew for each."""
    random, kinds = Random(11), []
    for number in range(REPEATS):
        shape, dtype = random.choice(list(SHAPES)), list(EPSILONS)[number % len(EPSILONS)]
        model = model_of(shape, dtype)
        asked = [
            Request(tuple(text_of(shape, random.randint(1, 20), random.randrange(999))), 5, name=f"{number} {each}")
            for each in range(random.randint(1, 4))
        ]
        chunk, rows = random.choice((None, 1, 3, 8)), random.randint(1, 4)
        engine = Engine(model, PagedCache(model.config, rows, 12, 4, dtype=dtype), chunk=chunk, keep_logits=True)
        together = runs_of(engine, asked)
        mine = random.choice(asked)
        found = departure(together[mine.name], run_alone(model, mine.prompt, 5))
        kinds.append(found.kind)
        assert found.kind in ("same", "near-tie"), f"{shape}, {dtype}, chunk {chunk}, {rows} rows: {found}"
    assert len(kinds) == REPEATS
