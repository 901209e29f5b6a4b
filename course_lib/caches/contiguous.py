"""The contiguous cache: for each row one run of slots, reserved when the cache is made. Slot s holds the token at
position s.

The one idea: two tensors, and in each layer one write and one view. Rows may have different lengths; what a row has
not filled is hidden by the mask and holds zeros, never what was left there. It wastes what a row does not use; the
paged cache does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.caches.contract import Cache, CacheFull, Step, visible, whole

if TYPE_CHECKING:
    from course_lib.model import ModelConfig

CLEARED_AHEAD = 256  # slots: a shorter row beside a growing longer one is cleared this often, not at every token


class ContiguousCache(Cache):
    """Keys and values of `rows` sequences of up to `capacity` tokens each, for a model of shape `config`.

    `keys` and `values` are tensors [L, rows, H, capacity, D] of `dtype` on `device`.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(config.n_layers, rows)
        self.capacity = whole(capacity, "the capacity")
        if capacity < 1:
            raise ValueError(f"a row needs room for at least one token, not {capacity}")
        shape = (config.n_layers, rows, config.n_kv_heads, capacity, config.head_dim)
        with torch.inference_mode(False):  # a cache made there can be used elsewhere, too
            self.keys = torch.empty(shape, dtype=dtype, device=device)
            self.values = torch.empty(shape, dtype=dtype, device=device)
        self.cleared = [0] * rows  # slots from a row's length up to here are known to hold zeros

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        for row, count in zip(rows, counts, strict=True):
            if self.lengths[row] + count > self.capacity:
                raise CacheFull(row, count, self.capacity - self.lengths[row])
        ends = [self.lengths[row] + count for row, count in zip(rows, counts, strict=True)]
        for row, end in zip(rows, ends, strict=True):
            if end < max(ends):
                self.clear(row, end, max(ends))
        return ContiguousStep(self, rows, counts, max(ends))

    def clear(self, row: int, start: int, stop: int) -> None:
        """Zero the slots start … stop - 1 of a row, which a longer neighbour brings into view.

        The mask gives them weight 0, but 0 * NaN is NaN: freed memory must not reach the sum even so.
        """
        if self.cleared[row] < stop:
            start, stop = max(start, self.cleared[row]), min(stop + CLEARED_AHEAD, self.capacity)
            self.keys[:, row, :, start:stop] = 0
            self.values[:, row, :, start:stop] = 0
            self.cleared[row] = stop

    def free(self, row: int, kept: int) -> None:
        self.cleared[row] = 0

    def copy(self, source: int, target: int) -> None:
        held = self.lengths[source]
        self.keys[:, target, :, :held] = self.keys[:, source, :, :held]
        self.values[:, target, :, :held] = self.values[:, source, :, :held]

    @property
    def reserved_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def used_bytes(self) -> int:
        return sum(
            t[:, row, :, :held].nbytes for t in (self.keys, self.values) for row, held in enumerate(self.lengths)
        )


class ContiguousStep(Step):
    """One pass over some rows of a contiguous cache: where the new tokens go, and how far everybody looks.

    Rows that lie side by side are attended to where they lie; others are collected for each layer. Rows that stand at
    the same length are written as one slice; others token by token.
    """

    def __init__(self, cache: ContiguousCache, rows: tuple[int, ...], counts: tuple[int, ...], slots: int) -> None:
        super().__init__(cache.n_layers)
        self.cache, self.slots, device = cache, slots, cache.keys.device
        starts = [cache.lengths[row] for row in rows]
        tokens = torch.arange(max(counts), device=device)  # [T]
        self.positions = torch.tensor(starts, device=device)[:, None] + tokens  # [B, T]
        self.rows = torch.tensor(rows, device=device)  # [B]
        self.shape = (len(rows), cache.keys.shape[2], max(counts), cache.keys.shape[4])  # of new keys: [B, H, T, D]
        even = len(set(starts)) == len(set(counts)) == 1
        self.side_by_side = rows == tuple(range(rows[0], rows[0] + len(rows)))
        self.one_slice = even and self.side_by_side
        if self.side_by_side:  # views, of all layers at once
            run = slice(rows[0], rows[0] + len(rows))
            self.seen = [t[:, run, :, :slots].unbind() for t in (cache.keys, cache.values)]  # L times [B, H, S, D]
        if self.one_slice:
            self.new = [t[:, run, :, starts[0] : slots].unbind() for t in (cache.keys, cache.values)]
        else:
            real = tokens < torch.tensor(counts, device=device)[:, None]  # [B, T], the rest is padding
            self.batch, self.token = real.nonzero(as_tuple=True)  # one entry for each new token
            self.slot = self.positions[self.batch, self.token]
        self.mask = None
        if not even or max(counts) > 1:  # one new token in rows of equal length sees every slot: nothing to hide
            slot = torch.arange(slots, device=device)
            ends = torch.tensor([s + c for s, c in zip(starts, counts, strict=True)], device=device)[:, None]
            self.mask = visible(self.positions, torch.where(slot < ends, slot, -1))  # [B, 1, T, S]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.keys[layer], self.cache.values[layer]  # [rows, H, capacity, D]
        check_match(k, keys, self.shape)
        check_match(v, values, self.shape)
        if k.requires_grad:  # the cache would keep the graph of every pass alive
            raise ValueError("a cache keeps no gradients: run under torch.inference_mode(), or train without a cache")
        if self.one_slice:
            self.new[0][layer].copy_(k)
            self.new[1][layer].copy_(v)
        else:
            row = self.rows[self.batch]
            keys[row, :, self.slot] = k[self.batch, :, self.token]
            values[row, :, self.slot] = v[self.batch, :, self.token]
        if self.side_by_side:
            return self.seen[0][layer], self.seen[1][layer]
        return keys[self.rows, :, : self.slots], values[self.rows, :, : self.slots]  # [B, H, S, D]


def check_match(new: Tensor, held: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless new keys or values can be kept as they are: torch would convert and repeat them."""
    if new.shape != shape or new.dtype != held.dtype or new.device != held.device:
        raise ValueError(
            f"this step of the cache takes {held.dtype} of shape {list(shape)} on {held.device}, not {new.dtype} of "
            f"{list(new.shape)} on {new.device}: make the cache from the model's config, dtype and device"
        )
