"""Generation: the cache changes no token, every choice is the request's own, and what is refused is refused by its
numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import nan
from typing import Any

import numpy
import pytest
import torch
from engine_report import Record, report_difference
from shapes import (
    SHAPES,
    TOLERANCE,
    bits,
    difference,
    feed,
    model_of,
    poisoned_cache,
    random_weights,
    same_bits,
    text_of,
    truth,
)

from course_lib import generation, speculative
from course_lib.caches import CacheFull, ContiguousCache, NoCache
from course_lib.drafters import PromptLookup
from course_lib.generation import Sampling, TokenEvent, choose, decode, generate, prefill, stream
from course_lib.model import Transformer

SHAPE, MODEL = "gqa", model_of("gqa")
PROMPT = text_of(SHAPE, 9)
each_shape = pytest.mark.parametrize("shape", SHAPES)


def greedy_by_full_passes(model: Transformer, prompt: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    """Read everything again for each token: the definition."""
    text = list(prompt)
    for _ in range(new_tokens):
        text.append(int(feed(model, None, {0: text})[0][-1].argmax()))
    return tuple(text[len(prompt) :])


# --- Greedy


@each_shape
@pytest.mark.parametrize("length", [1, 2, 17])
def test_greedy_tokens_are_the_same_with_and_without_a_cache(shape: str, length: int) -> None:
    model, prompt = model_of(shape), text_of(shape, length)
    expected = greedy_by_full_passes(model, prompt, 40)
    for use_cache in (True, False):
        got = generate(model, prompt, max_new_tokens=40, use_cache=use_cache)
        assert got.tokens == expected and got.prompt == tuple(prompt) and not got.stopped, f"use_cache={use_cache}"
    assert len(set(expected)) > 1, "one token over and over could come out of any cache"


@each_shape
@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 40, 1000, None])
def test_a_prompt_read_in_chunks_gives_the_logits_of_one_pass(
    shape: str, chunk: int | None, record_property: Record
) -> None:
    """Ragged prompts; 14, 21 and 1 are multiples of chunks, 40 is the longest."""
    model, lengths = model_of(shape), (14, 1, 40, 21, 5)
    prompts = [text_of(shape, length, seed=row) for row, length in enumerate(lengths)]
    cache = poisoned_cache(model, 6, 41)
    got = prefill(model, prompts, cache, rows=[4, 0, 5, 2, 1], chunk=chunk)
    assert got.shape == (5, SHAPES[shape].vocab_size)
    assert cache.lengths == (1, 5, 21, 0, 14, 40)
    for row, prompt in enumerate(prompts):
        apart = difference(got[row], truth(shape, tuple(prompt))[-1])
        report_difference(record_property, "prefill in chunks, oracle", torch.float64, apart)
        assert apart <= TOLERANCE[torch.float64], f"row {row}"
    new = decode(model, [1, 2, 3, 4, 5], cache, rows=[4, 0, 5, 2, 1])
    for row, prompt in enumerate(prompts):
        assert difference(new[row], truth(shape, (*prompt, row + 1))[-1]) <= TOLERANCE[torch.float64], f"row {row}"


@pytest.mark.parametrize("new_tokens", [1, 2, 12])
def test_n_new_tokens_leave_prompt_and_n_minus_1_in_the_cache(new_tokens: int) -> None:
    cache = poisoned_cache(MODEL, 2, len(PROMPT) + new_tokens - 1)  # exactly as large as needed
    got = generate(MODEL, PROMPT, max_new_tokens=new_tokens, cache=cache)
    assert len(got.tokens) == new_tokens
    assert cache.lengths == (len(PROMPT) + new_tokens - 1, 0)
    # What was read is what is stored: the last token continues the text.
    cache_logits = (
        feed(MODEL, grown(cache), {0: got.tokens[-1:]})[0][-1],
        truth(SHAPE, (*PROMPT, *got.tokens))[-1],
    )
    assert difference(*cache_logits) <= TOLERANCE[torch.float64]


def grown(cache: ContiguousCache) -> ContiguousCache:
    """A copy of a full cache with room for one more token."""
    larger = poisoned_cache(MODEL, cache.rows, cache.capacity + 1)
    larger.keys[:, :, :, :-1], larger.values[:, :, :, :-1] = cache.keys, cache.values
    larger.lengths = cache.lengths
    return larger


def test_a_text_may_fill_the_model_to_its_last_position() -> None:
    model = Transformer(replace(SHAPES[SHAPE], max_positions=20)).to(torch.float64)
    model.load_state_dict(MODEL.state_dict())
    expected = greedy_by_full_passes(MODEL, PROMPT, 12)
    for use_cache in (True, False):
        assert generate(model, PROMPT, max_new_tokens=12, use_cache=use_cache).tokens == expected
        with pytest.raises(ValueError, match="9 prompt tokens and 13 new ones need 21 positions, the model knows 20"):
            generate(model, PROMPT, max_new_tokens=13, use_cache=use_cache)


# --- The stream


def test_the_stream_gives_the_first_token_out_of_prefill_and_the_others_out_of_decode() -> None:
    for use_cache in (True, False):
        events = list(stream(MODEL, PROMPT, max_new_tokens=6, use_cache=use_cache))
        assert [event.phase for event in events] == ["prefill", *["decode"] * 5]
        assert tuple(event.token for event in events) == greedy_by_full_passes(MODEL, PROMPT, 6)
        times = [event.time_s for event in events]
        assert times[0] > 0 and times == sorted(times)


def test_a_token_is_given_before_the_next_is_computed(passes: Callable[[], int]) -> None:
    events = stream(MODEL, PROMPT, max_new_tokens=5, warm_up=False)
    assert passes() == 0, "nothing runs before the first token is asked for"
    for number, _ in enumerate(events, start=1):
        assert passes() == number
    assert passes() == 5, "the last token is never read"


def test_a_stream_that_is_left_early_leaves_a_cache_that_can_be_used() -> None:
    cache = poisoned_cache(MODEL, 1, 32)
    events = stream(MODEL, PROMPT, max_new_tokens=20, cache=cache)
    first = [next(events).token for _ in range(3)]
    events.close()
    assert cache.lengths == (len(PROMPT) + 2,)
    got = feed(MODEL, cache, {0: first[-1:]})[0]
    assert difference(got[-1], truth(SHAPE, (*PROMPT, *first))[-1]) <= TOLERANCE[torch.float64]


def test_stop_tokens_end_the_text_and_are_part_of_it() -> None:
    free = greedy_by_full_passes(MODEL, PROMPT, 30)
    stop = next(token for i, token in enumerate(free) if i >= 3 and free.index(token) == i)
    where = free.index(stop)
    for use_cache in (True, False):
        got = generate(MODEL, PROMPT, max_new_tokens=30, stop_tokens={stop, 10_000}, use_cache=use_cache)
        assert got.tokens == free[: where + 1] and got.stopped
    at_once = generate(MODEL, PROMPT, max_new_tokens=30, stop_tokens=[free[0]])
    assert at_once.tokens == free[:1] and at_once.stopped and at_once.timing.tpot_s is None
    at_the_limit = generate(MODEL, PROMPT, max_new_tokens=where + 1, stop_tokens=(stop,))
    assert at_the_limit.stopped
    one_less = generate(MODEL, PROMPT, max_new_tokens=where, stop_tokens=(stop,))
    assert one_less.tokens == free[:where] and not one_less.stopped


# --- Warm-up and clock


@pytest.fixture
def passes() -> Iterator[Callable[[], int]]:
    """How many forward passes the model has made so far."""
    made = []
    hook = MODEL.register_forward_hook(lambda *_: made.append(None))
    yield lambda: len(made)
    hook.remove()


@pytest.mark.parametrize("use_cache", [True, False])
def test_the_warm_up_is_not_counted(
    use_cache: bool, passes: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock here counts forward passes, one second each, so that each time is exact."""
    monkeypatch.setattr(generation, "clock", lambda device: lambda: float(passes()))
    plain = generate(MODEL, PROMPT, max_new_tokens=4, use_cache=use_cache, warm_up=False)
    assert passes() == 4
    warm = generate(MODEL, PROMPT, max_new_tokens=4, use_cache=use_cache, warm_up=True)
    assert passes() == 4 + 2 + 4, "the warm-up is a prefill and a decode"
    for got in (plain, warm):
        assert got.timing.ttft_s == 1 and got.timing.itl_s == [1, 1, 1] and got.timing.arrival_s == 0
    assert warm.tokens == plain.tokens


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.5)])
def test_the_warm_up_leaves_no_trace(sampling: Sampling) -> None:
    left = []
    for warm_up in (True, False):
        cache = ContiguousCache(MODEL.config, 2, 24, MODEL.dtype)
        cache.keys.zero_(), cache.values.zero_()
        got = generate(MODEL, PROMPT, max_new_tokens=8, cache=cache, sampling=sampling, seed=5, warm_up=warm_up)
        left.append((got.tokens, cache.lengths, bits(cache.keys, cache.values)))
    assert left[0][:2] == left[1][:2] and same_bits(left[0][2], left[1][2])


# --- Seeds

HOT = Sampling(temperature=2.0)


def sampled(seed: int, **options: object) -> tuple[int, ...]:
    return generate(MODEL, PROMPT, max_new_tokens=20, sampling=HOT, seed=seed, **options).tokens


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others() -> None:
    assert sampled(1) == sampled(1) == sampled(1, use_cache=False)
    assert len({sampled(seed) for seed in range(5)}) == 5


def test_sampling_neither_reads_nor_disturbs_the_global_generator() -> None:
    expected = sampled(3)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    assert sampled(3) == expected
    assert torch.equal(torch.get_rng_state(), before)


def test_a_request_draws_the_same_tokens_beside_others() -> None:
    """Two requests take turns, and other rows of the cache are full of other text."""
    expected = [sampled(seed) for seed in (1, 2)]
    caches = [poisoned_cache(MODEL, 3, 32) for _ in range(2)]
    for cache in caches:
        feed(MODEL, cache, {1: text_of(SHAPE, 20, seed=1), 2: text_of(SHAPE, 5, seed=2)})
    streams = [
        stream(MODEL, PROMPT, max_new_tokens=20, sampling=HOT, seed=seed, cache=cache)
        for seed, cache in zip((1, 2), caches, strict=True)
    ]
    turns: list[tuple[TokenEvent, ...]] = list(zip_longest(*streams))
    assert [tuple(turn[i].token for turn in turns) for i in range(2)] == expected


def test_a_cache_that_hands_out_unwritten_memory_is_noticed() -> None:
    cache = poisoned_cache(MODEL, 1, 32)
    prefill(MODEL, [PROMPT], cache)
    cache.values[0, 0, 0, 3] = nan
    with pytest.raises(ValueError, match="something that was read was never written"):
        choose(decode(MODEL, [1], cache)[0])


# --- Errors


@pytest.mark.parametrize(
    "options, said",
    [
        ({"max_new_tokens": 0}, "max_new_tokens .* not 0"),
        ({"prompt": [1], "max_new_tokens": 258}, "1 prompt token and 258 new ones need 258 positions"),
        ({"max_new_tokens": 249}, "9 prompt tokens and 249 new ones need 257 positions, the model knows 256"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [], "max_new_tokens": 1}, "the prompt is empty"),
        ({"prompt": [3, 31]}, "the prompt holds token 31, the model has 0 to 30"),
        ({"prompt": [-1, 3]}, "the prompt holds token -1"),
        ({"prompt": [1.7, 2.2]}, "a token of the prompt must be a whole number, not 1.7"),
        ({"prompt": "hello"}, "must be token ids, not the text 'hello': encode it first"),
        ({"prompt": 5}, "the prompt must be a sequence of token ids, not 5"),
        ({"max_new_tokens": 2.5}, "max_new_tokens must be a whole number, not 2.5"),
        ({"seed": 2**70}, "the seed must be a whole number from 0 to"),
        ({"seed": -1}, "the seed must be a whole number from 0 to"),
        ({"use_cache": False, "cache": ContiguousCache(SHAPES[SHAPE], 1, 32)}, "use_cache=False and a cache contradict")
    ],
)  # fmt: skip
@pytest.mark.parametrize("warm_up", [True, False])
def test_a_request_that_makes_no_sense_is_refused_before_any_token(options: dict, said: str, warm_up: bool) -> None:
    request = {"prompt": PROMPT, "max_new_tokens": 4, "warm_up": warm_up, **options}
    with pytest.raises(ValueError, match=said):
        next(stream(MODEL, request.pop("prompt"), **request))


@pytest.mark.parametrize("prompt, new_tokens", [(1, 1), (9, 1), (9, 6)])
def test_the_cache_of_a_request_is_as_large_as_its_text_needs(
    prompt: int, new_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prompt and all new tokens but the last, which nobody reads."""
    made: list[ContiguousCache] = []

    class Noted(ContiguousCache):
        def __init__(self, *shape: Any) -> None:
            super().__init__(*shape)
            made.append(self)

    monkeypatch.setattr(generation, "ContiguousCache", Noted)
    generate(MODEL, PROMPT[:prompt], max_new_tokens=new_tokens, warm_up=False)
    assert [(cache.rows, cache.capacity, cache.lengths) for cache in made] == [
        (1, prompt + new_tokens - 1, (prompt + new_tokens - 1,))
    ]


def test_a_cache_with_another_text_in_row_0_is_refused() -> None:
    cache = poisoned_cache(MODEL, 2, 32)
    feed(MODEL, cache, {0: [1, 2, 3]})
    with pytest.raises(ValueError, match="row 0 of the cache holds 3 tokens of another text: release it first"):
        generate(MODEL, PROMPT, max_new_tokens=2, cache=cache)
    cache.release(0)
    assert generate(MODEL, PROMPT, max_new_tokens=9, cache=cache).tokens == greedy_by_full_passes(MODEL, PROMPT, 9)


def test_no_cache_is_not_taken_for_one() -> None:
    nothing = NoCache(MODEL.config.n_layers, 1, MODEL.device)
    with pytest.raises(ValueError, match="row 0 has read 9 tokens, and NoCache keeps none: pass another cache"):
        generate(MODEL, PROMPT, max_new_tokens=2, cache=nothing)


def test_prompts_may_be_tensors_and_are_told_in_plain_numbers() -> None:
    cache = poisoned_cache(MODEL, 2, 8)
    prompts = torch.tensor([[1, 2], [3, 4]])
    expected = prefill(MODEL, prompts.tolist(), None)
    assert torch.equal(prefill(MODEL, prompts, cache), expected) and cache.lengths == (2, 2)
    for made in (
        generate(MODEL, prompts[0], max_new_tokens=2),
        speculative.generate(MODEL, prompts[0], max_new_tokens=2, drafter=PromptLookup()),
    ):
        assert made.prompt == (1, 2) and {type(token) for token in made.prompt} == {int}


def test_a_cache_that_fills_up_ends_the_text_and_keeps_it() -> None:
    cache = poisoned_cache(MODEL, 1, len(PROMPT) + 3)
    events: list[int] = []
    with pytest.raises(CacheFull, match="row 0 needs 1 more slot, 0 are free"):
        for event in stream(MODEL, PROMPT, max_new_tokens=20, cache=cache):
            events.append(event.token)
    assert tuple(events) == greedy_by_full_passes(MODEL, PROMPT, 4) and cache.lengths == (len(PROMPT) + 3,)


def test_a_prompt_that_a_cache_cannot_take_is_refused_before_any_token() -> None:
    cache = poisoned_cache(MODEL, 2, 8)
    with pytest.raises(CacheFull, match="row 0 needs 9 more slots, 8 are free"):
        next(stream(MODEL, PROMPT, max_new_tokens=1, cache=cache))
    assert cache.lengths == (0, 0)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"chunk": 0}, "a chunk has at least one token, not 0"),
        ({"chunk": 2, "cache": None}, "leave out chunk, or pass a cache"),
        ({"prompts": [[1], []]}, "prompt 1 is empty"),
        ({"prompts": [[1], [2, 31]]}, "prompt 1 holds token 31"),
        ({"prompts": [1, 2]}, "prompt 0 must be a sequence of token ids, not 1"),
        ({"prompts": [[1.7, 2.2]]}, "a token of prompt 0 must be a whole number, not 1.7"),
        ({"prompts": []}, "there is no prompt to read"),
    ],
)
def test_a_prefill_that_makes_no_sense_is_refused(options: dict, said: str) -> None:
    cache = poisoned_cache(MODEL, 2, 8)
    request = {"prompts": [[1], [2]], "cache": cache, **options}
    with pytest.raises(ValueError, match=said):
        prefill(MODEL, **request)
    assert cache.lengths == (0, 0)


def test_generation_works_in_every_number_type() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        model = random_weights(Transformer(SHAPES[SHAPE])).to(dtype)
        for options in ({}, {"use_cache": False}, {"sampling": Sampling(1.0, 5, 0.9)}):
            got = generate(model, PROMPT, max_new_tokens=5, **options)
            assert len(got.tokens) == 5 and all(0 <= token < 31 for token in got.tokens)


@pytest.mark.parametrize(
    "tokens, said",
    [
        ([31], "the batch holds token 31, the model has 0 to 30"),
        ([-1], "the batch holds token -1"),
        ([], "the batch is empty"),
        ([0.5], "a token of the batch must be a whole number, not 0.5"),
    ],
)
def test_a_decode_that_makes_no_sense_is_refused(tokens: list, said: str) -> None:
    cache = poisoned_cache(MODEL, 1, 8)
    feed(MODEL, cache, {0: [1, 2]})
    with pytest.raises(ValueError, match=said):
        decode(MODEL, tokens, cache)
    assert cache.lengths == (2,)
    with pytest.raises(ValueError, match="decode continues a text that a cache holds"):
        decode(MODEL, [1], None)


def test_whole_numbers_of_any_library_are_token_ids() -> None:
    expected = greedy_by_full_passes(MODEL, PROMPT, 3)
    for prompt in (torch.tensor(PROMPT), numpy.array(PROMPT), tuple(PROMPT)):
        assert generate(MODEL, prompt, max_new_tokens=3).tokens == expected


def test_a_model_of_a_single_position_makes_one_token() -> None:
    model = Transformer(replace(SHAPES[SHAPE], max_positions=1))
    assert len(generate(model, [1], max_new_tokens=1).tokens) == 1
