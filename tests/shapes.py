"""What the tests of the engine share: a few small models that are unlike each other, how near is near enough, memory
that nobody may read, and ways to feed a cache.

The one idea: every helper speaks in whole texts, a list of token ids for each row of the cache, and the tests compare
logits position by position with those of the whole text. Nothing here judges.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import Random

import numpy as np
import torch
from oracle import oracle_logits
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache, NoCache, Step
from course_lib.caches.contract import OwnTokensOnly
from course_lib.model import ModelConfig, Transformer

SHAPES = {
    # H = H_q, head_dim = d_model / n_heads, as in the first transformers
    "mha": ModelConfig(29, 2, 24, 4, 4, 6, 20, max_positions=256, tied_head=False),
    # 1 < H < H_q, heads wider than d_model / n_heads, some frequencies slowed down
    "gqa": ModelConfig(31, 3, 20, 6, 2, 8, 28, max_positions=256, rope_theta=500.0, rope_factors=(1.0, 1.0, 2.5, 8.0)),
    # H = 1, heads narrower than d_model / n_heads
    "mqa": ModelConfig(23, 2, 32, 3, 1, 4, 24, max_positions=256, tied_head=False, rope_factors=(1.0, 4.0)),
    "mqa, tied": ModelConfig(37, 2, 16, 4, 1, 10, 18, max_positions=256, norm_eps=1e-3),
}
DTYPES = (torch.float64, torch.float32)

# How far logits of about 10 may lie apart when the same sums are made in another order. One rounding is 1e-15 in
# float64 and 6e-7 in float32 at that size, and a logit here is a sum over a few hundred roundings; what is measured is
# a tenth of these or less. A wrong mask, position or slot is seen from 1e-3 up, mostly at 1.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


@lru_cache(maxsize=32)
def model_of(shape: str, dtype: torch.dtype = torch.float64) -> Transformer:
    """A model with random weights, the same in every dtype, whose attention looks somewhere in particular."""
    model = random_weights(Transformer(SHAPES[shape]).to(torch.float64))
    return model.to(dtype)


def random_weights(model: Transformer, seed: int = 0) -> Transformer:
    """Fill a model with numbers large enough that each part matters: logits of a few units, peaked attention."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(generator=generator)
            if "norm" in name:
                parameter.mul_(0.3).add_(1)
            else:
                parameter.mul_(1.5 / parameter.shape[-1] ** 0.5)
    return model.requires_grad_(False)


def weights_of(model: Transformer) -> dict[str, np.ndarray]:
    return {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}


@lru_cache(maxsize=256)
def truth(shape: str, tokens: tuple[int, ...]) -> Tensor:
    """The oracle's logits [T, V] of a text, for the float64 weights of a shape."""
    return torch.from_numpy(oracle_logits(SHAPES[shape], weights_of(model_of(shape)), list(tokens)))


def text_of(shape: str, length: int, seed: int = 0) -> list[int]:
    random = Random(f"{shape} {length} {seed}")
    return [random.randrange(SHAPES[shape].vocab_size) for _ in range(length)]


def poisoned_cache(
    model: Transformer, rows: int, capacity: int, kind: type[ContiguousCache] = ContiguousCache
) -> ContiguousCache:
    """A new cache whose memory, which nobody has written yet, holds NaN."""
    cache = kind(model.config, rows, capacity, model.dtype, model.device)
    cache.keys.fill_(torch.nan)
    cache.values.fill_(torch.nan)
    return cache


def poison(cache: ContiguousCache, row: int) -> None:
    """Fill what a row has just freed with NaN."""
    for memory in (cache.keys, cache.values):
        memory[:, row, :, cache.lengths[row] :] = torch.nan


@torch.inference_mode()
def feed(model: Transformer, cache: Cache | None, pieces: Mapping[int, Sequence[int]]) -> dict[int, Tensor]:
    """One pass: row -> its new tokens, in the order given. Returns row -> the logits [new tokens, V] of those."""
    counts = [len(piece) for piece in pieces.values()]
    tokens = torch.full((len(pieces), max(counts)), model.config.vocab_size - 1)  # padding is a token like any other
    for i, piece in enumerate(pieces.values()):
        tokens[i, : len(piece)] = torch.tensor(piece, dtype=torch.long)
    logits = model(tokens.to(model.device), cache, counts=counts, rows=None if cache is None else list(pieces))
    assert logits.shape == (len(pieces), max(counts), model.config.vocab_size)
    return {row: logits[i, : counts[i]] for i, row in enumerate(pieces)}


def feed_in(model: Transformer, cache: Cache, row: int, text: Sequence[int], chunks: Sequence[int]) -> Tensor:
    """Read a text into one row in chunks of the given sizes; return its logits [T, V]."""
    assert sum(chunks) == len(text)
    ends = np.cumsum(chunks)
    pieces = [text[end - chunk : end] for end, chunk in zip(ends, chunks, strict=True)]
    return torch.cat([feed(model, cache, {row: piece})[row] for piece in pieces])


class Recording(NoCache):
    """No cache, but `passed` keeps the keys and values of each layer that a pass hands over, [B, H, T, D]."""

    passed: list[tuple[Tensor, Tensor]]

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        self.passed = passed = []

        class Noted(OwnTokensOnly):
            def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
                passed.append((k, v))
                return k, v

        return Noted(self.n_layers, counts, self.device)


@lru_cache(maxsize=4096)
def full_pass_of(model: Transformer, text: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The logits [T, V] of one pass over a whole text, without a cache, and all keys and values that a cache should
    hold of it, [2, L, T, H, D].
    """
    recording = Recording(model.config.n_layers, 1, model.device)
    logits = feed(model, recording, {0: text})[0]
    layers = [torch.stack(pair)[:, 0].transpose(1, 2) for pair in recording.passed]  # L times [2, T, H, D]
    return logits, torch.stack(layers, dim=1)


def compositions(total: int) -> Iterator[tuple[int, ...]]:
    """Every way to write `total` as an ordered sum: 2^(total - 1) of them."""
    for first in range(1, total):
        for rest in compositions(total - first):
            yield (first, *rest)
    if total:
        yield (total,)


def bits(*tensors: Tensor) -> list[Tensor]:
    """Copies of the tensors as whole numbers, so that NaN equals itself and -0 is not 0."""
    as_int = {8: torch.int64, 4: torch.int32, 2: torch.int16}
    return [tensor.clone().view(as_int[tensor.element_size()]) for tensor in tensors]


def same_bits(before: Sequence[Tensor], after: Sequence[Tensor]) -> bool:
    return len(before) == len(after) > 0 and all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def difference(a: Tensor, b: Tensor) -> float:
    """The largest difference of two tensors of one shape, neither of them empty; NaN if either holds one."""
    assert a.shape == b.shape and a.numel(), f"{tuple(a.shape)} against {tuple(b.shape)}"
    return (a.double() - b.double()).abs().max().item()
