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

from course_lib.caches.contract import Cache, CacheFull, Step, check_match, positions_and_mask, visible, whole

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

    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        for row, count in zip(rows, counts, strict=True):
            if self.lengths[row] + count > self.capacity:
                raise CacheFull(row, count, self.capacity - self.lengths[row])

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        ends = [self.lengths[row] + count for row, count in zip(rows, counts, strict=True)]
        longest = max(ends)
        for row, end in zip(rows, ends, strict=True):
            if end < longest:
                self.clear(row, end, longest)
        if len(set(ends)) == len(set(counts)) == 1 and side_by_side(rows):
            keys, values = (t.narrow(1, rows[0], len(rows)).narrow(3, 0, ends[0]) for t in (self.keys, self.values))
            return EvenStep(keys, values, ends[0] - counts[0], counts[0])
        return RaggedStep(self, rows, counts, longest)

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
    def longest(self) -> int:
        return self.capacity

    @property
    def slots(self) -> int:
        return self.rows * self.capacity

    @property
    def line(self) -> int:
        return self.capacity

    def places(self, row: int) -> dict[int, int]:
        return {position: row * self.capacity + position for position in range(self.lengths[row])}

    def fill_free(self, value: float) -> None:
        self.check_idle()
        for row, held in enumerate(self.lengths):
            self.keys[:, row, :, held:] = value
            self.values[:, row, :, held:] = value
        self.cleared = [0] * self.rows

    @property
    def reserved_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def used_bytes(self) -> int:
        return sum(
            t[:, row, :, :held].nbytes for t in (self.keys, self.values) for row, held in enumerate(self.lengths)
        )


class EvenStep(Step):
    """A pass over rows that stand at the same length and lie in one piece: one slice to write, one slice to read.

    This is what one sequence alone always is, so nothing here asks for more than a view.
    """

    def __init__(self, keys: Tensor, values: Tensor, start: int, count: int) -> None:
        """`keys` and `values` are the memory [L, B, H, S, D] of what the rows hold, with slots for `count` new tokens,
        the first of them at position `start`.
        """
        layers, rows, heads, _, head_dim = keys.shape
        super().__init__(layers)
        self.start, self.count, end = start, count, start + count
        self.shape = (rows, heads, count, head_dim)  # of new keys: [B, H, T, D]
        self.keys, self.values = keys.unbind(), values.unbind()  # L times [B, H, S, D], views
        self.positions = torch.arange(start, end, device=keys.device).expand(rows, -1)  # [B, T]
        # One new token sees every slot: nothing to hide.
        self.mask = None if count == 1 else visible(self.positions, torch.arange(end, device=keys.device)[None])

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[layer], self.values[layer]
        check_match(k, keys, self.shape)
        check_match(v, values, self.shape)
        keys.narrow(2, self.start, self.count).copy_(k)
        values.narrow(2, self.start, self.count).copy_(v)
        return keys, values


class RaggedStep(Step):
    """A pass over any rows, each at its own length: written token by token.

    Rows that lie side by side are attended to where they lie; others are collected for each layer.
    """

    def __init__(self, cache: ContiguousCache, rows: tuple[int, ...], counts: tuple[int, ...], slots: int) -> None:
        super().__init__(cache.n_layers)
        self.cache, self.slots, device = cache, slots, cache.keys.device
        self.shape = (len(rows), cache.keys.shape[2], max(counts), cache.keys.shape[4])  # of new keys: [B, H, T, D]
        starts = [cache.lengths[row] for row in rows]
        self.positions, self.mask, self.real = positions_and_mask(starts, counts, slots, device)
        row = torch.tensor(rows, device=device)  # [B]
        self.attended = slice(rows[0], rows[-1] + 1) if side_by_side(rows) else row
        self.row, self.slot = row[:, None], self.positions  # where each new token goes
        if self.real is not None:  # padding goes nowhere
            self.row, self.slot = self.row.expand_as(self.real)[self.real], self.slot[self.real]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        k, v = self.store_one(self.cache.keys[layer], k), self.store_one(self.cache.values[layer], v)
        if isinstance(self.attended, Tensor):
            self.cache.copied_bytes += k.nbytes + v.nbytes
        return k, v

    def store_one(self, held: Tensor, new: Tensor) -> Tensor:
        """Write `new` [B, H, T, D] into `held` [rows, H, capacity, D]; return what the rows hold, [B, H, S, D]."""
        check_match(new, held, self.shape)
        new = new.transpose(1, 2)  # [B, T, H, D]
        held.transpose(1, 2)[self.row, self.slot] = new if self.real is None else new[self.real]
        return held[self.attended, :, : self.slots]


def side_by_side(rows: tuple[int, ...]) -> bool:
    """Whether these rows, or blocks, lie one after the other, in this order: then a slice of the memory holds them."""
    return rows == tuple(range(rows[0], rows[0] + len(rows)))
