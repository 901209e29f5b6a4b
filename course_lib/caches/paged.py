"""The paged cache: memory in blocks of a few slots, and for each row a table that says which blocks are its own.

The one idea: a row takes a block when it has tokens for it, from one pool for all rows, so what a row does not use
others can (Kwon et al. 2023, "PagedAttention", section 4). Rows with a common beginning may refer to the same blocks; a
block that others refer to as well is copied before it is written. Attention in plain torch wants the keys of a row in
one piece: where a row's blocks lie one after the other they are read where they lie, otherwise they are copied together
for each layer, and `copied_bytes` counts it. A kernel that follows the tables itself, as in vLLM, copies nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.caches.contiguous import EvenStep, side_by_side
from course_lib.caches.contract import Cache, CacheFull, Step, check_match, positions_and_mask, whole
from course_lib.caches.pool import BlockPool

if TYPE_CHECKING:
    from course_lib.model import ModelConfig


class PagedCache(Cache):
    """Keys and values of up to `rows` sequences in `blocks` blocks of `block_size` tokens each.

    `keys` and `values` are tensors [L, blocks + 1, block_size, H, D] of `dtype` on `device`; the last block belongs to
    nobody, holds zeros, and fills up the tables of shorter rows. `tables[row]` are the blocks of a row, in the order of
    its text; `pool` knows which are free.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: int,
        blocks: int,
        block_size: int = 16,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(config.n_layers, rows)
        self.pool = BlockPool(blocks)
        self.block_size = whole(block_size, "the block size")
        if self.block_size < 1:
            raise ValueError(f"a block has room for at least one token, not {block_size}")
        shape = (config.n_layers, blocks + 1, self.block_size, config.n_kv_heads, config.head_dim)
        with torch.inference_mode(False):  # a cache made there can be used elsewhere, too
            self.keys = torch.empty(shape, dtype=dtype, device=device)
            self.values = torch.empty(shape, dtype=dtype, device=device)
        self.clear(blocks, 0)
        self.tables: tuple[tuple[int, ...], ...] = ((),) * self.rows  # rebound, never changed in place
        self.planned: dict[int, tuple[int, ...]] = {}  # in a step: the tables that rows will have if it closes well
        self.torn = False  # while tables, lengths and references change; if that stays, it was interrupted
        self.clean: set[int] = set()  # held blocks whose slots that no row has filled are known to hold zeros

    # --- Ctrl-C

    def check_idle(self) -> None:
        super().check_idle()
        if self.torn:
            self.mend()

    def mend(self) -> None:
        """After an interrupt, or a step that failed: make tables and references fit the lengths again.

        No length changes. None ever says more than its table holds, since a row that shrinks loses tokens before
        blocks, and one that grows gets blocks before tokens.
        """
        self.planned, self.clean = {}, set()
        self.tables = tuple(table[: self.blocks_for(n)] for table, n in zip(self.tables, self.lengths, strict=True))
        self.pool.recount(block for table in self.tables for block in table)
        self.torn = False

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    # --- A step

    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        free = self.pool.free
        for row, count in zip(rows, counts, strict=True):
            copied = self.block_size if count and self.must_copy(row) else 0  # slots of a block that only moves
            held = self.block_size * len(self.tables[row]) - copied
            needed = -(-max(0, self.lengths[row] + count - held) // self.block_size)
            if needed > free:
                raise CacheFull(row, count, max(0, held + self.block_size * free - self.lengths[row]))
            free -= needed

    def must_copy(self, row: int) -> bool:
        """Whether the next token of a row would be written into a block that another row refers to as well."""
        partly_filled = self.lengths[row] % self.block_size > 0
        return partly_filled and self.pool.references[self.tables[row][-1]] > 1

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        self.torn = True
        for row, count in zip(rows, counts, strict=True):
            if self.lengths[row] % self.block_size:
                self.clean_tail(self.tables[row][-1])
            if count:
                self.planned[row] = self.table_for(row, self.lengths[row] + count)
        if len(rows) == 1 and side_by_side(table := self.planned[rows[0]]):  # one row that lies in one piece
            first, start = table[0] * self.block_size, self.lengths[rows[0]]  # its first slot, its next position
            piece = slice(first, first + start + counts[0])
            # As a contiguous cache would hold it: [L, 1, H, S, D].
            keys, values = (t.flatten(1, 2)[:, None, piece].transpose(2, 3) for t in (self.keys, self.values))
            return EvenStep(keys, values, start, counts[0])
        return PagedStep(self, rows, counts)

    def table_for(self, row: int, length: int) -> tuple[int, ...]:
        """The table that a row needs for `length` tokens: what it has, its last block copied if that is shared, and
        new blocks.
        """
        table = list(self.tables[row])
        filled = self.lengths[row] % self.block_size
        if self.must_copy(row):
            shared = table.pop()
            copy = self.take(table)
            self.keys[:, copy, :filled] = self.keys[:, shared, :filled]
            self.values[:, copy, :filled] = self.values[:, shared, :filled]
        elif filled:
            self.pool.lose(table[-1])  # it was full once and could be found; it is about to hold something else
        while len(table) * self.block_size < length:
            self.take(table)
        return tuple(table)

    def take(self, table: list[int]) -> int:
        """Add a free block to a table, filled with zeros: whatever it held, 0 times that must be 0."""
        block = self.pool.take(after=table[-1] if table else None)
        self.clear(block, 0)
        self.clean.add(block)
        table.append(block)
        return block

    def clear(self, block: int, start: int) -> None:
        self.keys[:, block, start:] = 0
        self.values[:, block, start:] = 0

    def clean_tail(self, block: int) -> None:
        """Zero the slots of a block that nobody has filled. The mask hides them, but 0 * NaN is NaN."""
        if block not in self.clean and block not in self.pool.findable:
            self.clear(block, self.filled(block))
            self.clean.add(block)

    def filled(self, block: int) -> int:
        """How many slots of a block hold tokens of rows."""
        places = [(row, table.index(block)) for row, table in enumerate(self.tables) if block in table]
        return max((min(self.lengths[row] - place * self.block_size, self.block_size) for row, place in places))

    def keep(self, rows: tuple[int, ...]) -> None:
        planned = self.planned
        replaced = [table[-1] for row, new in planned.items() if (table := self.tables[row]) and table[-1] not in new]
        self.tables = tuple(planned.get(row, table) for row, table in enumerate(self.tables))
        self.clean.difference_update(replaced)  # what only this row had filled of it is nobody's now
        for block in replaced:  # the row has a copy of its own now
            self.pool.give_back(block)
        self.planned = {}
        self.torn = False

    def abandon(self, rows: tuple[int, ...]) -> None:
        self.mend()

    # --- Rows

    def free(self, row: int, kept: int) -> None:
        self.torn = True
        self.set_length(row, kept)  # tokens before blocks: see `mend`
        table, blocks = self.tables[row], self.blocks_for(kept)
        self.set_table(row, table[:blocks])
        self.clean.difference_update(table[kept // self.block_size :])
        for block in reversed(table[blocks:]):  # the end of a text is of use to fewer than its beginning: it goes first
            self.pool.give_back(block)
        self.torn = False

    def copy(self, source: int, target: int) -> None:
        """No key is copied: both rows refer to the same blocks, until one of them writes."""
        self.hand_over(self.tables[source], target, self.lengths[source])

    def adopt(self, row: int, blocks: tuple[int, ...]) -> None:
        """Let an empty row begin with full blocks that others hold, or that are kept. See `prefix.py`."""
        self.check_idle()
        self.check_row(row)
        if self.lengths[row]:
            raise ValueError(f"row {row} holds {self.lengths[row]} tokens: release it first")
        for block in blocks:
            self.pool.check_held(block)
        self.hand_over(blocks, row, len(blocks) * self.block_size)

    def hand_over(self, blocks: tuple[int, ...], row: int, length: int) -> None:
        """Let an empty row refer to blocks that hold its first `length` tokens."""
        self.torn = True
        for block in blocks:
            self.pool.share(block)
        self.set_table(row, blocks)
        self.set_length(row, length)
        self.torn = False

    def set_table(self, row: int, table: tuple[int, ...]) -> None:
        self.tables = (*self.tables[:row], table, *self.tables[row + 1 :])

    # --- Memory

    @property
    def longest(self) -> int:
        return self.slots

    @property
    def slots(self) -> int:
        return len(self.pool.references) * self.block_size

    @property
    def line(self) -> int:
        return self.block_size

    @property
    def blocks_in_use(self) -> int:
        """Blocks that rows refer to, each counted once."""
        return sum(references > 0 for references in self.pool.references)

    def places(self, row: int) -> dict[int, int]:
        table, size = self.tables[row], self.block_size
        return {position: slot_of(table, position, size) for position in range(self.lengths[row])}

    def fill_free(self, value: float) -> None:
        self.check_idle()
        held = {slot for row in range(self.rows) for slot in self.places(row).values()}
        free = [s for s in range(self.slots) if s not in held and s // self.block_size not in self.pool.findable]
        self.keys.flatten(1, 2)[:, free] = value
        self.values.flatten(1, 2)[:, free] = value
        self.clean.clear()

    @property
    def token_bytes(self) -> int:
        """Bytes of the keys and values of one token."""
        return self.keys[:, 0, 0].nbytes + self.values[:, 0, 0].nbytes

    @property
    def reserved_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the slots that rows have filled, those of shared blocks counted once."""
        return self.token_bytes * len({slot for row in range(self.rows) for slot in self.places(row).values()})


class PagedStep(Step):
    """A pass over any rows: new tokens are written to the slots that the tables name, and the blocks of each row are
    brought together for attention.
    """

    def __init__(self, cache: PagedCache, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        super().__init__(cache.n_layers)
        self.cache, size, device = cache, cache.block_size, cache.keys.device
        heads, head_dim = cache.keys.shape[3:]
        self.shape = (len(rows), heads, max(counts), head_dim)  # of new keys: [B, H, T, D]
        starts = [cache.lengths[row] for row in rows]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        self.slots, width = max(ends), -(-max(ends) // size)
        tables = [cache.planned.get(row, cache.tables[row])[:width] for row in rows]
        self.positions, self.mask, self.real = positions_and_mask(starts, counts, self.slots, device)
        spans = zip(tables, starts, ends, strict=True)
        new = [slot_of(table, position, size) for table, *span in spans for position in range(*span)]
        self.slot = torch.tensor(new, device=device)  # where each new token goes; padding goes nowhere
        nobody = (len(cache.pool.references),)  # the block that fills up
        self.table = torch.tensor([b for t in tables for b in t + nobody * (width - len(t))], device=device)

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return self.store_one(self.cache.keys[layer], k), self.store_one(self.cache.values[layer], v)

    def store_one(self, held: Tensor, new: Tensor) -> Tensor:
        """Write `new` [B, H, T, D] into the blocks `held` [blocks + 1, block_size, H, D] of a layer; return what the
        rows hold, [B, H, S, D].
        """
        B, H, _, D = self.shape
        check_match(new, held, self.shape)
        new = new.transpose(1, 2)  # [B, T, H, D]
        held.flatten(0, 1)[self.slot] = new.flatten(0, 1) if self.real is None else new[self.real]
        together = held.index_select(0, self.table)  # [B * blocks, block_size, H, D]
        self.cache.copied_bytes += together.nbytes
        return together.view(B, -1, H, D)[:, : self.slots].transpose(1, 2)


def slot_of(table: tuple[int, ...], position: int, size: int) -> int:
    """The slot that a table of blocks of `size` tokens gives to a position."""
    return table[position // size] * size + position % size
