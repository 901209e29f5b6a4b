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

from course_lib.caches.contract import Cache, CacheFull, Step, visible

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
        if capacity < 1:
            raise ValueError(f"a row needs room for at least one token, not {capacity}")
        self.capacity = capacity
        shape = (config.n_layers, rows, config.n_kv_heads, capacity, config.head_dim)
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
    """One pass over some rows of a contiguous cache: where the new tokens go, and how far everybody looks."""

    def __init__(self, cache: ContiguousCache, rows: tuple[int, ...], counts: tuple[int, ...], slots: int) -> None:
        super().__init__(cache.n_layers)
        self.cache, self.slots = cache, slots
        device, starts = cache.keys.device, [cache.lengths[row] for row in rows]
        tokens = torch.arange(max(counts), device=device)  # [T]
        self.positions = torch.tensor(starts, device=device)[:, None] + tokens  # [B, T]
        even = len(set(starts)) == len(set(counts)) == 1
        # Rows that lie side by side are a view; others are copied together for each layer.
        adjacent = rows == tuple(range(rows[0], rows[0] + len(rows)))
        self.rows = slice(rows[0], rows[0] + len(rows)) if adjacent else torch.tensor(rows, device=device)
        # Where to write: a slice if all rows continue at the same slot, else row, token and slot of each new token.
        self.new = slice(starts[0], slots) if even and adjacent else None
        if self.new is None:
            real = tokens < torch.tensor(counts, device=device)[:, None]  # [B, T], the rest is padding
            batch, token = real.nonzero(as_tuple=True)  # [new tokens]
            self.scatter = (batch, token, torch.tensor(rows, device=device)[batch], self.positions[batch, token])
            self.positions = self.positions.where(real, 0)  # padding may not stand beyond the model's last position
        # Which slots are filled: a decode step of rows of equal length sees them all.
        self.mask = None
        if not (even and max(counts) == 1):
            slot = torch.arange(slots, device=device)
            ends = torch.tensor([s + c for s, c in zip(starts, counts, strict=True)], device=device)[:, None]
            self.mask = visible(self.positions, torch.where(slot < ends, slot, -1))  # [B, 1, T, S]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.keys[layer], self.cache.values[layer]  # [rows, H, capacity, D]
        if self.new is not None:
            keys[self.rows, :, self.new], values[self.rows, :, self.new] = k, v
        else:
            batch, token, row, slot = self.scatter
            keys[row, :, slot], values[row, :, slot] = k[batch, :, token], v[batch, :, token]
        return keys[self.rows][:, :, : self.slots], values[self.rows][:, :, : self.slots]  # [B, H, S, D]
