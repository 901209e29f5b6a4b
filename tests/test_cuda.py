"""The engine on an NVIDIA GPU: the same agreements as on the CPU, in float64, float32 and bfloat16.

What judges here is a full pass on the CPU in float64, which other tests compare with the oracle. This file needs torch,
pytest, the library's engine and nothing else:

    PYTHONPATH=tests python -m pytest --noconftest -p engine_report tests/test_cuda.py
"""

from collections.abc import Iterator, Mapping, Sequence

import pytest
import torch
from engine_report import Record, report_difference
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache, PagedCache, PrefixCache
from course_lib.generation import Sampling, decode, generate, prefill
from course_lib.metrics import clock
from course_lib.model import ModelConfig, Transformer
from course_lib.serving import Engine, Request

DEVICE = "cuda"
pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]

# Heads of 64 and rows of some hundred slots, so that the fused attention kernels take them.
SHAPES = {
    "mha": ModelConfig(211, 2, 128, 4, 4, 64, 160, max_positions=512),
    "gqa": ModelConfig(211, 3, 160, 8, 2, 64, 192, max_positions=512, tied_head=False, rope_factors=(1.0, 8.0) * 16),
    "mqa": ModelConfig(211, 2, 96, 6, 1, 32, 128, max_positions=512),
}
# How far from float64, as a root mean square relative to that of the logits. A model of two or three layers rounds each
# number some thirty times by half an eps: 2 to 4 eps are measured on a CPU in half precision, 10 allowed in bfloat16.
# In float32 and float64 the bounds are those of the tests on the CPU. Wrong logits are off by 1.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 10 * torch.finfo(torch.bfloat16).eps}

each_shape = pytest.mark.parametrize("shape", SHAPES)
each_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


@pytest.fixture(autouse=True)
def full_float32_products() -> Iterator[None]:
    """Products of float32 in float32, not in the 10 bits of TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


class Pair:
    """A model on the GPU, and the same weights (rounded to its dtype) in float64 on the CPU."""

    def __init__(self, shape: str, dtype: torch.dtype, record: Record) -> None:
        self.dtype, self.record = dtype, record
        self.model = Transformer(SHAPES[shape]).requires_grad_(False)
        generator = torch.Generator().manual_seed(0)
        for name, parameter in self.model.named_parameters():
            parameter.normal_(generator=generator)
            parameter.copy_(1 + 0.3 * parameter if "norm" in name else parameter * 1.5 / parameter.shape[-1] ** 0.5)
        self.model.to(DEVICE, dtype)
        self.judge = Transformer(SHAPES[shape]).requires_grad_(False).double()
        self.judge.load_state_dict(self.model.state_dict())

    def cache(self, rows: int, capacity: int) -> ContiguousCache:
        cache = ContiguousCache(self.model.config, rows, capacity, self.dtype, DEVICE)
        assert cache.keys.device.type == cache.values.device.type == DEVICE
        cache.keys.fill_(torch.nan)
        cache.values.fill_(torch.nan)
        return cache

    @torch.inference_mode()
    def feed(self, cache: Cache | None, pieces: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
        counts = [len(piece) for piece in pieces.values()]
        tokens = torch.full((len(pieces), max(counts)), 210)
        for i, piece in enumerate(pieces.values()):
            tokens[i, : len(piece)] = torch.tensor(piece, dtype=torch.long)
        logits = self.model(tokens.to(DEVICE), cache, counts=counts, rows=None if cache is None else list(pieces))
        assert logits.dtype == self.dtype and logits.device.type == DEVICE
        return {row: logits[i, : counts[i]] for i, row in enumerate(pieces)}

    @torch.inference_mode()
    def check(self, what: str, got: Tensor, text: Sequence[int]) -> None:
        """`got` [k, V] are the logits of the last k tokens of `text`."""
        expected = self.judge(torch.tensor([list(text)]))[0][len(text) - len(got) :]
        assert got.shape == expected.shape and got.numel()
        apart = got.cpu().double() - expected
        report_difference(self.record, f"on the GPU, {what}, float64 on the CPU", self.dtype, apart.abs().max().item())
        relative = apart.square().mean().sqrt() / expected.square().mean().sqrt()
        assert relative <= TOLERANCE[self.dtype], what


@pytest.fixture
def pair(shape: str, dtype: torch.dtype, record_property: Record) -> Pair:
    return Pair(shape, dtype, record_property)


def text_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(210, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@each_shape
@each_dtype
def test_full_pass_equals_the_cpu(pair: Pair) -> None:
    texts = {row: text_of(length, row) for row, length in enumerate((300, 1, 77))}
    for row, got in pair.feed(None, texts).items():
        pair.check("full pass", got, texts[row])


@each_shape
@each_dtype
@pytest.mark.parametrize("chunks", [(300,), (299, 1), (1, 299), (128, 128, 44), (280, *(1,) * 20)], ids=str)
def test_any_cut_equals_the_cpu(pair: Pair, chunks: tuple[int, ...]) -> None:
    text, cache, got = text_of(300), pair.cache(1, 320), []
    for start, stop in zip((sum(chunks[:i]) for i in range(len(chunks))), torch.tensor(chunks).cumsum(0).tolist()):
        got.append(pair.feed(cache, {0: text[start:stop]})[0])
    pair.check("cached", torch.cat(got), text)


@each_shape
@each_dtype
def test_ragged_and_reused_rows_equal_the_cpu(pair: Pair) -> None:
    cache, texts = pair.cache(4, 320), {row: text_of(length, row) for row, length in enumerate((200, 3, 64, 130))}
    for row, got in pair.feed(cache, texts).items():
        pair.check("ragged rows", got, texts[row])
    cache.release(0)
    cache.truncate(3, 100)
    cache.copy_row(2, 1)
    texts |= {0: [], 1: texts[2], 3: texts[3][:100]}
    for row in (0, 1, 3):
        for memory in (cache.keys, cache.values):
            memory[:, row, :, cache.lengths[row] :] = torch.nan
    for step in range(6):
        pieces = {row: text_of(1 + 40 * (step == 0 and row == 0), seed=10 * step + row) for row in (3, 0, 2, 1)}
        if step == 4:
            pieces[2] = []
        got = pair.feed(cache, pieces)
        for row, piece in pieces.items():
            texts[row] = [*texts[row], *piece]
            if piece:
                pair.check("reused rows", got[row], texts[row])
    assert cache.lengths == tuple(len(texts[row]) for row in range(4))


@each_shape
@each_dtype
def test_rows_of_equal_length_need_no_mask_and_equal_the_cpu(pair: Pair) -> None:
    texts = {row: text_of(140, row) for row in range(8)}
    cache = pair.cache(8, 140)
    prompts = [text[:130] for text in texts.values()]
    logits = prefill(pair.model, prompts, cache, chunk=64)
    for row in range(8):
        pair.check("prefill", logits[row : row + 1], prompts[row])
    for end in range(131, 141):
        logits = decode(pair.model, [text[end - 1] for text in texts.values()], cache)
    for row in range(8):
        pair.check("decode", logits[row : row + 1], texts[row])


@each_shape
@each_dtype
def test_pages_equal_the_cpu(pair: Pair) -> None:
    """Ragged rows in blocks, a shared block that is copied before it is written, and blocks of an old text."""
    cache = PagedCache(pair.model.config, 4, 48, 16, pair.dtype, DEVICE)
    cache.fill_free(torch.nan)
    texts = {row: text_of(length, row) for row, length in enumerate((200, 3, 64))}
    for row, got in pair.feed(cache, texts).items():
        pair.check("pages", got, texts[row])
    cache.release(0)
    cache.truncate(2, 37)
    cache.copy_row(2, 3)
    cache.fill_free(torch.nan)
    texts = {0: [], 1: texts[1], 2: texts[2][:37], 3: texts[2][:37]}
    for step in range(3):
        pieces = {row: text_of(1 + 90 * (step == 0 and row == 0), seed=10 * step + row) for row in (3, 0, 2, 1)}
        got = pair.feed(cache, pieces)
        for row, piece in pieces.items():
            texts[row] = [*texts[row], *piece]
            pair.check("pages", got[row], texts[row])
    assert cache.copied_bytes > 0 and cache.lengths == tuple(len(texts[row]) for row in range(4))


@each_shape
@each_dtype
def test_an_engine_on_pages_with_shared_prefixes_equals_the_cpu(pair: Pair) -> None:
    cache = PagedCache(pair.model.config, 3, 24, 16, pair.dtype, DEVICE)
    engine = Engine(pair.model, cache, prefix=PrefixCache(cache), chunk=64, compact=True, keep_logits=True)
    common = text_of(48)
    sequences = [
        engine.submit(Request((*common, *text_of(20 + 30 * i, i)), 12, forced=tuple(text_of(12, 50 + i))))
        for i in range(5)
    ]
    while engine.waiting or engine.running:
        engine.step()
        cache.fill_free(torch.nan)
    assert sum(sequence.reused for sequence in sequences) > 0
    for sequence in sequences:
        for index in (0, 11):
            text = sequence.text[: len(sequence.request.prompt) + index]
            pair.check("engine on pages", sequence.logits[index][None], text)


@each_shape
def test_tokens_equal_the_cpu_in_float64(shape: str, record_property: Record) -> None:
    """Greedy and drawn: the draws come from a generator on the CPU, whatever the device."""
    both = Pair(shape, torch.float64, record_property)
    for sampling in (Sampling(), Sampling(1.5, top_k=50, top_p=0.95)):
        expected = generate(both.judge, text_of(20), max_new_tokens=30, sampling=sampling, seed=3)
        for use_cache in (True, False):
            got = generate(both.model, text_of(20), max_new_tokens=30, sampling=sampling, seed=3, use_cache=use_cache)
            assert got.tokens == expected.tokens
            assert got.timing.ttft_s > 0 and got.timing.tpot_s > 0


def test_bytes_are_those_of_the_tensors() -> None:
    cache = ContiguousCache(SHAPES["gqa"], 3, 10, torch.bfloat16, DEVICE)
    assert cache.reserved_bytes == 2 * 3 * 3 * 2 * 10 * 64 * 2 and cache.used_bytes == 0


def test_a_cache_on_another_device_is_refused() -> None:
    model, cache = Transformer(SHAPES["mha"]).to(DEVICE), ContiguousCache(SHAPES["mha"], 1, 8)
    with torch.inference_mode(), pytest.raises(ValueError, match=r"cuda.*cpu"):
        model(torch.tensor([[1]], device=DEVICE), cache)
    assert cache.lengths == (0,)


def test_the_clock_waits_for_the_gpu() -> None:
    """10^13 multiplications are launched in no time. Before the clock is read they are not done, after it they are."""
    a, now = torch.rand(8192, 8192, device=DEVICE), clock(DEVICE)
    a @ a  # the first product also loads the library
    now()
    for _ in range(20):
        a @ a
    assert not torch.cuda.current_stream().query(), "the work is still under way"
    now()
    assert torch.cuda.current_stream().query()
