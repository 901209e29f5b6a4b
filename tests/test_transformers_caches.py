"""Each kind of cache that this course and `transformers` both have: the same logits, the same greedy tokens, and bytes
counted in the tensors of both.

The one idea: both models get the same random weights and read the same text in the same pieces, each into its own
cache. Where the two keep different things on purpose, the test says what each of them keeps.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from engine_report import Record, report_difference
from shapes import difference, feed, feed_in, poisoned_cache, random_weights
from torch import Tensor

from course_lib.caches import (
    Cache,
    CacheFull,
    ContiguousCache,
    Floats,
    ForgettingCache,
    Integers,
    PagedCache,
    RoundedCache,
    Window,
)
from course_lib.generation import generate
from course_lib.model import ModelConfig, Transformer
from course_lib.sizing import CacheShape, Kind, LayerCache, element_type

transformers = pytest.importorskip(
    "transformers",
    minversion="5.24",
    reason="the cache classes of transformers 5.24 are compared: older ones crop to a length and have no `cache=`",
)
from benchmarks.peers import as_transformers, peer_config, peer_weights  # noqa: E402

CONFIG = ModelConfig(61, 2, 32, 4, 2, 8, 48, max_positions=128, tied_head=False)
TEXT = [(7 * i * i + 3 * i + 5) % 61 for i in range(40)]
CHUNKS = (9, 1, 1, 14, 1, 1, 1, 3, *(1,) * 9)  # a prompt, single tokens, a second prompt that is longer than a window
# transformers computes norms and rotations in float32 whatever the dtype: logits of about 10, of a right model in
# float64, lie up to 5e-6 apart. A wrong mask or position is seen from 1e-3 up.
NEAR = 2e-5


def our_model(config: ModelConfig = CONFIG, dtype: torch.dtype = torch.float64) -> Transformer:
    return random_weights(Transformer(config).to(dtype))


def sliding_peer(model: Transformer, window: int) -> Any:
    """The same weights in a model of transformers that slides in each layer."""
    shape = peer_config(model.config).to_dict()
    for name in ("model_type", "architectures", "transformers_version"):
        shape.pop(name, None)
    peer = transformers.MistralForCausalLM(transformers.MistralConfig(**shape, sliding_window=window))
    peer.load_state_dict(peer_weights(model))
    return peer.to(model.dtype).eval()


@torch.inference_mode()
def theirs(peer: Any, cache: Any, tokens: list[int]) -> Tensor:
    """One pass of their model over the next tokens of one sequence; logits [T, V]."""
    return peer(torch.tensor([tokens]), cache=cache).logits[0]


def pieces(text: list[int], chunks: tuple[int, ...]) -> Iterator[list[int]]:
    ends = [sum(chunks[:i]) for i in range(len(chunks) + 1)]
    return (text[start:end] for start, end in pairwise(ends))


def held_bytes(cache: Any) -> int:
    """Bytes of the tensors that their cache holds for keys and values."""
    return sum(t.nbytes for layer in cache.layers for t in (layer.keys, layer.values))


def shape_of(config: ModelConfig, window: int | None = None) -> CacheShape:
    kind = Kind.FULL if window is None else Kind.SLIDING
    layer = LayerCache(kind, config.n_kv_heads, config.head_dim, config.head_dim, window)
    return CacheShape("tiny", (replace(layer, key_type=FP64, value_type=FP64),) * config.n_layers)


FP64 = element_type("fp64")


@dataclass(frozen=True)
class Pair:
    """One kind of cache, theirs and ours, and what each of the two should hold once `seen` tokens are read."""

    window: int | None
    static: bool

    def models(self) -> tuple[Transformer, Any]:
        ours = our_model()
        return ours, as_transformers(ours) if self.window is None else sliding_peer(ours, self.window)

    def caches(self, ours: Transformer, peer: Any, room: int) -> tuple[Cache, Any]:
        if self.window is None:
            mine: Cache = poisoned_cache(ours, 1, room)
        else:
            mine = ForgettingCache(ours.config, 1, Window(self.window), ours.dtype)
            mine.fill_free(torch.nan)
        if self.static:
            return mine, transformers.StaticCache(config=peer.config, max_cache_len=room)
        return mine, transformers.DynamicCache(config=peer.config)

    def check_bytes(self, mine: Cache, their: Any, seen: int) -> None:
        shape = shape_of(CONFIG, self.window)
        assert mine.used_bytes == shape.bytes(seen) > 0
        if self.static:  # both reserve everything at once
            assert held_bytes(their) == mine.reserved_bytes
        else:  # theirs keeps a row less than the window, since the newest token brings its own
            assert held_bytes(their) == shape.bytes_in_transformers(seen)
            rows = seen if self.window is None else min(seen, self.window - 1)
            assert held_bytes(their) == mine.used_bytes // len(mine.places(0)) * rows


KINDS = {
    "dynamic, contiguous": Pair(None, static=False),
    "static, contiguous": Pair(None, static=True),
    "dynamic window of 2": Pair(2, static=False),
    "dynamic window of 7": Pair(7, static=False),
    "static window of 2": Pair(2, static=True),
    "static window of 7": Pair(7, static=True),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_same_text_in_the_same_pieces_gives_the_same_logits_and_bytes(kind: str, record_property: Record) -> None:
    pair = KINDS[kind]
    ours, peer = pair.models()
    mine, their = pair.caches(ours, peer, room=len(TEXT))
    seen = 0
    for piece in pieces(TEXT, CHUNKS):
        expected, got = theirs(peer, their, piece), feed(ours, mine, {0: piece})[0]
        seen += len(piece)
        apart = difference(got, expected)
        report_difference(record_property, f"{kind}, transformers", torch.float64, apart)
        assert apart <= NEAR, f"after {seen} tokens"
        assert mine.lengths[0] == int(their.get_seq_length()) == seen
        pair.check_bytes(mine, their, seen)
    assert seen == len(TEXT)


@every_kind
def test_greedy_tokens_equal_those_of_generate_with_that_cache(kind: str) -> None:
    pair = KINDS[kind]
    ours, peer = pair.models()
    mine, their = pair.caches(ours, peer, room=40)
    prompt = TEXT[:11]  # longer than the windows
    with torch.inference_mode():
        expected = peer.generate(
            torch.tensor([prompt]), cache=their, max_new_tokens=25, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    tokens = generate(ours, prompt, max_new_tokens=25, cache=mine).tokens
    assert tokens == tuple(expected[0, 11:].tolist())
    assert len(set(tokens)) > 3, "a text that repeats one token would hide a wrong position"
    assert mine.lengths[0] == int(their.get_seq_length()) == 11 + 25 - 1, "the last token was never read"


def test_a_window_and_one_more_differ_from_the_same_position_on_in_both() -> None:
    ours = our_model()
    logits: dict[tuple[str, int], Tensor] = {}
    for window in (6, 7):
        peer = sliding_peer(ours, window)
        cache = transformers.DynamicCache(config=peer.config)
        logits["theirs", window] = torch.cat([theirs(peer, cache, piece) for piece in pieces(TEXT, CHUNKS)])
        logits["ours", window] = feed_in(ours, ForgettingCache(CONFIG, 1, Window(window), ours.dtype), 0, TEXT, CHUNKS)
    for side in ("theirs", "ours"):
        apart = (logits[side, 6] - logits[side, 7]).abs().amax(1)  # [T]
        assert apart[:6].max() <= NEAR < 1e-3 < apart[6], f"{side}: token 6 is the first with 7 tokens to look at"
    assert difference(logits["theirs", 6], logits["ours", 7]) > 1e-3


def test_without_a_config_a_dynamic_cache_keeps_what_no_query_may_see() -> None:
    ours = our_model()
    peer = sliding_peer(ours, 7)
    told, untold = transformers.DynamicCache(config=peer.config), transformers.DynamicCache()
    for piece in pieces(TEXT, CHUNKS):
        assert difference(theirs(peer, told, piece), theirs(peer, untold, piece)) <= NEAR
    assert held_bytes(told) == shape_of(CONFIG, 7).bytes_in_transformers(len(TEXT))
    assert held_bytes(untold) == shape_of(CONFIG).bytes(len(TEXT)) > 6 * held_bytes(told)


def test_both_refuse_what_does_not_fit_and_only_ours_is_as_it_was() -> None:
    ours, peer = KINDS["static, contiguous"].models()
    mine, their = KINDS["static, contiguous"].caches(ours, peer, room=12)
    theirs(peer, their, TEXT[:10])
    feed(ours, mine, {0: TEXT[:10]})
    with pytest.raises(IndexError):
        theirs(peer, their, TEXT[10:13])
    with pytest.raises(CacheFull):
        feed(ours, mine, {0: TEXT[10:13]})
    assert [int(layer.get_seq_length()) for layer in their.layers] == [13, 10], "its first layer has moved on"
    assert mine.lengths == (10,)
    got, whole = feed(ours, mine, {0: TEXT[10:12]})[0], feed(ours, None, {0: TEXT[:12]})[0]
    assert difference(got, whole[10:]) <= 1e-10


@pytest.mark.parametrize("kind", ["dynamic, contiguous", "static, contiguous"])
def test_cropping_is_truncating_and_counts_the_other_way_round(kind: str) -> None:
    """Theirs is told how many tokens go, as a negative number; ours how many stay."""
    ours, peer = KINDS[kind].models()
    mine, their = KINDS[kind].caches(ours, peer, room=40)
    theirs(peer, their, TEXT[:20])
    feed(ours, mine, {0: TEXT[:20]})
    for gone, more in ((5, [40, 41, 42]), (1, [43]), (12, TEXT[:9])):
        their.crop(-gone)
        mine.truncate(0, mine.lengths[0] - gone)
        assert difference(feed(ours, mine, {0: more})[0], theirs(peer, their, more)) <= NEAR
        assert mine.lengths[0] == int(their.get_seq_length())
    with pytest.raises((ValueError, RuntimeError), match="positive|negative"):
        their.crop(9)  # the length to keep, as older versions took it
    with torch.inference_mode():
        their.reset()
    mine.release(0)
    assert difference(feed(ours, mine, {0: TEXT})[0], theirs(peer, their, TEXT)) <= NEAR


def test_a_full_window_goes_back_only_as_far_as_it_still_holds_what_is_needed() -> None:
    ours, window = our_model(), 7
    peer = sliding_peer(ours, window)
    mine = ForgettingCache(CONFIG, 1, Window(window), ours.dtype)
    forgets, records = (transformers.DynamicCache(config=peer.config) for _ in range(2))
    records.activate_past_recording()
    for cache in (forgets, records):
        theirs(peer, cache, TEXT[:20])
    feed(ours, mine, {0: TEXT[:20]})
    with pytest.raises(RuntimeError, match="past"):
        forgets.crop(-1)
    with pytest.raises(ValueError, match="no longer held"):
        mine.truncate(0, 18)
    mine.truncate(0, 19)  # ours holds one token more than the next query sees
    records.crop(-1)
    assert difference(feed(ours, mine, {0: [40, 41]})[0], theirs(peer, records, [40, 41])) <= NEAR
    records.crop(-2)
    assert records.get_seq_length() == 19 and records.layers[0].keys.shape[2] == window - 1


def test_a_cache_in_fp8_cannot_go_back_and_ours_can() -> None:
    ours = our_model(dtype=torch.float32)
    their = transformers.QuantizedCache("fp8", (peer := as_transformers(ours)).config)
    mine = RoundedCache(CONFIG, 1, 40, *[Floats(torch.float8_e4m3fn)] * 2, dtype=ours.dtype)
    theirs(peer, their, TEXT[:20])
    feed(ours, mine, {0: TEXT[:20]})
    with pytest.raises(IndexError, match="too many indices"):
        their.crop(-4)
    mine.truncate(0, 16)
    again = feed(ours, mine, {0: TEXT[16:20]})[0]
    mine.truncate(0, 16)
    assert mine.lengths == (16,) and difference(feed(ours, mine, {0: TEXT[16:20]})[0], again) == 0


@pytest.mark.parametrize("kind", ["dynamic, contiguous", "dynamic window of 7"])
def test_repeated_and_selected_rows_are_copied_and_named_rows(kind: str) -> None:
    pair = KINDS[kind]
    ours, peer = pair.models()
    _, their = pair.caches(ours, peer, 40)
    mine: Cache
    if pair.window is None:
        mine = poisoned_cache(ours, 3, 40)
    else:
        mine = ForgettingCache(CONFIG, 3, Window(pair.window), ours.dtype)

    def step(rows: list[int], tokens: list[int]) -> None:
        with torch.inference_mode():
            expected = peer(torch.tensor(tokens)[:, None], cache=their).logits[:, 0]
        got = feed(ours, mine, {row: [token] for row, token in zip(rows, tokens, strict=True)})
        for i, row in enumerate(rows):
            assert difference(got[row][0], expected[i]) <= NEAR, f"row {row}"

    theirs(peer, their, TEXT[:10])
    feed(ours, mine, {0: TEXT[:10]})
    their.batch_repeat_interleave(3)
    mine.copy_row(0, 1)
    mine.copy_row(0, 2)
    step([0, 1, 2], [4, 5, 6])
    step([0, 1, 2], [7, 8, 9])
    their.batch_select_indices(torch.tensor([2, 0]))  # theirs drops row 1, ours leaves it alone
    step([2, 0], [10, 11])
    their.reorder_cache(torch.tensor([1, 1]))  # both go on from what was row 0, as beam search does
    mine.copy_row(0, 1)
    step([0, 1], [12, 13])


@dataclass(frozen=True)
class Scaled(Floats):
    """Eight-bit floats that are divided by one scale first, as their fp8 backend does."""

    scale: float = 1.0

    def encode(self, x: Tensor) -> Tensor:
        return super().encode(x.float() / self.scale)

    def decode(self, packed: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
        return (super().decode(packed, head_dim, torch.float32) * self.scale).to(dtype)


def parts(packed: Any) -> list[Tensor]:
    """The tensors that a key or value of their quantised cache is made of: codes, scales, and shifts if there are."""
    if isinstance(packed, tuple):  # fp8
        return list(packed)
    return [packed._data._data, packed._scale, packed._shift]  # quanto


@pytest.mark.parametrize("backend", ["fp8", "quanto"])
def test_a_quantised_cache_rounds_as_a_rounded_cache_with_its_groups(backend: str) -> None:
    """In a model of one layer, whose keys and values follow from the tokens alone. In a deeper one the two differ on
    purpose: theirs computes the prompt unrounded, ours lets no query see an old token as it came.
    """
    if backend == "quanto":
        pytest.importorskip("optimum.quanto", reason="QuantizedCache('quanto') needs optimum-quanto: not installed")
    config = ModelConfig(61, 1, 48, 4, 2, 64, 64, max_positions=128, tied_head=False)
    ours = our_model(config, torch.float32)
    peer = as_transformers(ours)
    options = {} if backend == "fp8" else {"nbits": 4, "q_group_size": 64, "residual_length": 20}
    their, prompt = transformers.QuantizedCache(backend, peer.config, **options), 16
    got = theirs(peer, their, TEXT[:prompt])
    assert difference(got, feed(ours, None, {0: TEXT[:prompt]})[0]) <= 1e-4, "the prompt itself is read unrounded"
    layer = their.layers[0]
    stored = [layer._quantized_keys, layer._quantized_values]
    size = sum(tensor.nbytes for packed in stored for tensor in parts(packed))
    codecs: list[Any] = [Integers(4, group=64, scale_dtype=torch.float32)] * 2
    if backend == "fp8":  # one scale for a whole tensor, from the prompt
        codecs = [Scaled(torch.float8_e4m3fn, scale.item()) for _, scale in stored]
    for k in range(1, 9):  # new tokens: quanto keeps them as they came, fp8 rounds them at once
        logits = theirs(peer, their, [TEXT[prompt + k - 1]])[-1]
        residual = 0 if backend == "fp8" else k
        mine = RoundedCache(config, 1, len(TEXT), *codecs, residual, ours.dtype)
        expected = feed(ours, mine, {0: TEXT[: prompt + k]})[0][-1]
        assert difference(logits, expected) <= 1e-4, f"new token {k}"  # float32, logits of about 10
        plain = feed(ours, None, {0: TEXT[: prompt + k]})[0][-1]
        assert difference(logits, plain) > 3e-3, "rounding shows"
    mine = RoundedCache(config, 1, len(TEXT), *codecs, 0, ours.dtype)
    feed(ours, mine, {0: TEXT[:prompt]})
    assert size == mine.used_bytes + (8 if backend == "fp8" else 0)  # fp8: the two scales are no part of our rows
    assert size == sum(codec.size(64) for codec in codecs) * prompt * 2 + (8 if backend == "fp8" else 0)


def test_the_paged_cache_of_continuous_batching_gives_the_tokens_of_ours_and_reserves_as_much() -> None:
    ours = our_model()
    peer, blocks, block = as_transformers(ours), 16, 4
    prompts = [
        TEXT[:11],
        TEXT[5:8],
        TEXT[:11],
        TEXT[20:33],
    ]  # one of them twice, some end inside a block
    wanted = transformers.GenerationConfig(max_new_tokens=9, do_sample=False, eos_token_id=-1, pad_token_id=0)
    paging = transformers.ContinuousBatchingConfig(page_size=block, num_blocks=blocks, max_batch_tokens=32)
    answers = {}
    with peer.continuous_batching_context_manager(
        generation_config=wanted, continuous_batching_config=paging, block=True, timeout=5
    ) as manager:
        manager.add_requests(inputs=prompts, max_new_tokens=9)
        for _ in range(600):
            answer = manager.get_result(timeout=0.1)
            if answer is not None and answer.is_finished():
                answers[tuple(answer.prompt_ids), answer.request_id] = answer.generated_tokens
            if len(answers) == len(prompts):
                break
        cache = manager.batch_processor.cache
        held, sector = cache.cache_tensor.nbytes, cache.bytes_per_sector
    assert len(answers) == len(prompts)
    for (prompt, _), tokens in answers.items():
        mine = PagedCache(CONFIG, 1, blocks, block, ours.dtype)
        mine.fill_free(torch.nan)
        assert generate(ours, list(prompt), max_new_tokens=9, cache=mine).tokens == tuple(tokens)
    one = shape_of(CONFIG).bytes(block)
    assert sector == one, "with one kind of layer, what they call a sector is a block of all layers"
    assert held == (blocks + 2) * one, "two spare blocks for padding"
    assert PagedCache(CONFIG, 4, blocks, block, ours.dtype).reserved_bytes == (blocks + 1) * one, "ours has one"


def test_keys_and_values_of_both_are_the_same_numbers_in_the_same_order() -> None:
    """Heads, tokens and dimensions lie alike: [B, H, T, D], keys after RoPE and before heads are repeated."""
    ours, peer = KINDS["dynamic, contiguous"].models()
    mine, their = ContiguousCache(CONFIG, 1, 40, ours.dtype), transformers.DynamicCache(config=peer.config)
    theirs(peer, their, TEXT[:20])
    feed(ours, mine, {0: TEXT[:20]})
    for index, layer in enumerate(their.layers):
        assert layer.keys.shape == (1, CONFIG.n_kv_heads, 20, CONFIG.head_dim)
        assert difference(mine.keys[index, :, :, :20], layer.keys) <= NEAR
        assert difference(mine.values[index, :, :, :20], layer.values) <= NEAR
