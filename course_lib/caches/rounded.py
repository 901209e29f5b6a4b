"""The rounded cache: old keys and values are stored in fewer bytes, the newest as they came.

The one idea: a token ages. It is kept as it came while it is among the newest `residual` of its row, and is encoded
together with its neighbours after that. Which tokens a query sees rounded depends on its position alone, so a prompt
read in one pass, in chunks, or token by token leaves the same bytes and gives the same logits.
"""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.caches.codecs import Codec
from course_lib.caches.contract import CacheFull, check_match, whole
from course_lib.caches.writes import ClosingStep, Write, WritesAtClose

if TYPE_CHECKING:
    from course_lib.model import ModelConfig


class RoundedCache(WritesAtClose):
    """Keys and values of `rows` sequences of up to `capacity` tokens, for a model that computes in `dtype`.

    `packed` holds what was encoded, keys and values, uint8 [L, rows, H, capacity / block of the codec, its bytes];
    `recent` holds the newest tokens as they came, two tensors [L, rows, H, residual + block, D]: the token at position
    p is in slot p mod (residual + block). `block` tokens are encoded at a time: 1 unless a codec takes several.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        keys: Codec,
        values: Codec,
        residual: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(config.n_layers, rows)
        self.head_dim, self.codecs = config.head_dim, (keys, values)
        self.capacity, self.residual = whole(capacity, "the capacity"), whole(residual, "the residual")
        if capacity < 1 or residual < 0:
            raise ValueError(
                f"a row needs room for at least one token, and a residual is 0 or more, not {capacity} and {residual}"
            )
        for codec in self.codecs:
            if not isinstance(codec, Codec):
                raise ValueError(f"keys and values are stored by codecs, such as Integers(4), not by {codec!r}")
        self.block = lcm(keys.tokens, values.tokens)
        heads = (config.n_layers, rows, config.n_kv_heads)
        blocks = -(-capacity // self.block)
        with torch.inference_mode(False):  # a cache made there can be used elsewhere, too
            self.packed = tuple(
                torch.empty(*heads, blocks * self.block // codec.tokens, codec.size(config.head_dim), dtype=torch.uint8,
                            device=device)
                for codec in self.codecs
            )  # fmt: skip
            shape = (*heads, self.residual + self.block, config.head_dim)
            self.recent = tuple(torch.empty(shape, dtype=dtype, device=device) for _ in self.codecs)

    @property
    def goes_back(self) -> bool:
        return self.residual == 0 and self.block == 1  # each token is encoded as it comes, whatever follows

    def rounded(self, length: int) -> int:
        """How many tokens of a row are stored rounded once it has seen `length`."""
        return max(0, length - self.residual) // self.block * self.block

    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        for row, count in zip(rows, counts, strict=True):
            if self.lengths[row] + count > self.capacity:
                raise CacheFull(row, count, self.capacity - self.lengths[row])

    def begin(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> ClosingStep:
        """What it encodes before it closes lies where nobody reads."""
        return RoundedStep(self, rows, counts)

    def free(self, row: int, kept: int) -> None:
        if self.rounded(kept) != self.rounded(self.lengths[row]) and self.rounded(kept) != kept:
            raise ValueError(
                f"row {row} cannot be truncated to {kept} tokens: the newest of them are to be kept as they came, and "
                f"of the first {self.rounded(self.lengths[row])} only rounded ones are left"
            )

    def copy(self, source: int, target: int) -> None:
        for tensor in (*self.packed, *self.recent):
            tensor[:, target] = tensor[:, source]

    @property
    def longest(self) -> int:
        return self.capacity

    @property
    def slots(self) -> int:
        return self.rows * self.line

    @property
    def line(self) -> int:
        """First the slots of rounded tokens, then those of recent ones."""
        return self.capacity + self.recent[0].shape[3]

    def places(self, row: int) -> dict[int, int]:
        first, ring = self.rounded(self.lengths[row]), self.recent[0].shape[3]
        at = row * self.line
        old = {position: at + position for position in range(first)}
        return old | {p: at + self.capacity + p % ring for p in range(first, self.lengths[row])}

    def fill_free(self, value: float) -> None:
        """Bytes that nobody may read become 255 (which is NaN in most floats), whatever the value."""
        self.check_idle()
        for row, length in enumerate(self.lengths):
            first = self.rounded(length)
            for codec, packed, recent in zip(self.codecs, self.packed, self.recent, strict=True):
                packed[:, row, :, first // codec.tokens :] = 255
                held = [position % recent.shape[3] for position in range(first, length)]
                kept = recent[:, row][:, :, held].clone()
                recent[:, row] = value
                recent[:, row][:, :, held] = kept

    @property
    def reserved_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in (*self.packed, *self.recent))

    @property
    def used_bytes(self) -> int:
        used = 0
        for codec, packed, recent in zip(self.codecs, self.packed, self.recent, strict=True):
            for length in self.lengths:
                first = self.rounded(length)
                used += packed[:, 0, :, : first // codec.tokens].nbytes + recent[:, 0, :, : length - first].nbytes
        return used


class RoundedStep(ClosingStep):
    """A pass over any rows. First in line are the tokens that are rounded when it ends, then those that were not when
    it began; a token may be there twice, and each query sees it once."""

    def __init__(self, cache: RoundedCache, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        super().__init__(cache.n_layers)
        self.cache, self.rows, self.counts = cache, rows, counts
        self.shape = (len(rows), cache.recent[0].shape[2], max(counts), cache.head_dim)  # of new keys: [B, H, T, D]
        device = cache.recent[0].device
        self.starts = [cache.lengths[row] for row in rows]
        self.ends = [start + count for start, count in zip(self.starts, counts, strict=True)]
        self.before = [cache.rounded(start) for start in self.starts]
        self.after = [cache.rounded(end) for end in self.ends]
        start = torch.tensor(self.starts, device=device)[:, None]  # [B, 1]
        end = torch.tensor(self.ends, device=device)[:, None]
        before = torch.tensor(self.before, device=device)[:, None]
        self.positions = start + torch.arange(max(counts), device=device)  # [B, T]
        # The exact ones, [B, E]: slots of `recent`, and after those the new tokens.
        exact = before + torch.arange(max(e - b for e, b in zip(self.ends, self.before, strict=True)), device=device)
        ring = cache.recent[0].shape[3]
        self.source = torch.where(exact < start, exact % ring, ring + exact - start).clamp(max=ring + max(counts) - 1)
        self.unfilled = (exact >= end)[:, None, :, None]  # [B, 1, E, 1]
        rounded = torch.arange(max(self.after), device=device).expand(len(rows), -1)  # [B, R]
        self.unknown = (rounded >= torch.tensor(self.after, device=device)[:, None])[:, None, :, None]
        # How many tokens are rounded for each query: those that are once it has been read itself.
        line = (self.positions + 1 - cache.residual).clamp(min=0) // cache.block * cache.block
        query, line = self.positions[:, :, None], line[:, :, None]  # [B, T, 1]
        seen = (exact[:, None] >= line) & (exact[:, None] <= query)
        self.mask = torch.cat((rounded[:, None] < line, seen), dim=-1)[:, None]  # [B, 1, T, R + E]
        self.new: list[tuple[Tensor, Tensor]] = []  # for each layer what came, [B, H, T, D]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        both = self.attended(layer, 0, k), self.attended(layer, 1, v)
        self.cache.copied_bytes += sum(t.nbytes for t in both)
        self.new.append((k, v))
        return both

    def attended(self, layer: int, which: int, new: Tensor) -> Tensor:
        """All keys (which = 0) or values (1) of a layer, rounded and exact, [B, H, R + E, D]."""
        cache = self.cache
        codec, packed, recent = cache.codecs[which], cache.packed[which][layer], cache.recent[which][layer]
        check_match(new, recent, self.shape)
        exact = torch.cat((recent[list(self.rows)], new), dim=2)
        source = self.source[:, None, :, None].expand(-1, new.shape[1], -1, new.shape[3])
        exact = exact.gather(2, source).masked_fill(self.unfilled, 0)  # [B, H, E, D]
        for i, row in enumerate(self.rows):
            aged = slice(self.before[i] // codec.tokens, self.after[i] // codec.tokens)
            if aged.start < aged.stop:
                packed[row, :, aged] = codec.encode(exact[i, :, : self.after[i] - self.before[i]])
        packed = packed[list(self.rows), :, : max(self.after) // codec.tokens]
        rounded = codec.decode(packed, cache.head_dim, new.dtype).masked_fill(self.unknown, 0)
        return torch.cat((rounded, exact), dim=2)

    def writes(self) -> list[Write]:
        """Put the new tokens that are still recent where the next steps look for them."""
        ring = self.cache.recent[0].shape[3]
        both = [torch.stack(new) for new in zip(*self.new, strict=True)]  # [L, B, H, T, D]
        writes: list[Write] = []
        for i, row in enumerate(self.rows):
            young = range(max(self.starts[i], self.after[i]), self.ends[i])
            slots = torch.tensor([position % ring for position in young], dtype=torch.long, device=both[0].device)
            here = slice(young.start - self.starts[i], young.stop - self.starts[i])
            for recent, new in zip(self.cache.recent, both, strict=True):
                writes.append((recent, (slice(None), row, slice(None), slots), new[:, i, :, here]))
        return writes
