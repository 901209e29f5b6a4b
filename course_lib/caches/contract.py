"""What every cache promises. A cache maps tokens to positions.

Each row has a *length*: the number of tokens it has seen, which is the position of its next token. What it holds is
another number (a window or an eviction holds fewer), and neither is ever derived from the other. A forward pass
opens one *step*: room is found, or `CacheFull` is raised, before anything is written; positions and mask are made
once; each layer writes once; when the step closes, the lengths advance once. If anything raises before that, the
cache is as it was.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import isfinite
from operator import index

import torch
from torch import Tensor


def whole(value: int, what: str) -> int:
    """`value` as a plain int, so that nobody can change it later; ValueError if it is no whole number.

    NumPy's and torch's integers are taken, too: a 0-d tensor is equal to others but hashes by identity.
    """
    try:
        return int(index(value))  # a bool is a number, too
    except TypeError:
        raise ValueError(f"{what} must be a whole number, not {value!r}") from None


def real(value: float, what: str, least: float | None = None, above: float | None = None) -> float:
    """`value` as a plain float; ValueError unless it is a finite number, at least `least`, or more than `above`."""
    try:
        fine = isfinite(value) and (least is None or value >= least) and (above is None or value > above)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # a text, several numbers, one that is too large
        fine = False
    if not fine:
        bound = "" if least is above is None else f" of at least {least}" if above is None else f" above {above}"
        raise ValueError(f"{what} must be a number{bound}, not {value!r}")
    return float(value)


class CacheFull(Exception):
    """A row needs more slots than are free. Nothing was written."""

    def __init__(self, row: int, needed: int, free: int) -> None:
        super().__init__(
            f"row {row} needs {needed} more slot{'s' * (needed != 1)}, {free} {'is' if free == 1 else 'are'} free: "
            "make the cache larger, release or truncate a row, or generate fewer tokens"
        )
        self.row, self.needed, self.free = row, needed, free


def visible(query_positions: Tensor, key_positions: Tensor, window: int | None = None) -> Tensor:
    """The mask [B, 1, T, S]: True where a query may look at a key.

    A key is seen when its slot is filled, its position is not after the query's, and it is among the last `window`
    positions, the query's own included. One function for prefill, chunk, decode, ragged rows and windows.

    query_positions [B, T]; key_positions [B, S], -1 for a slot that holds nothing of this row.
    """
    query, key = query_positions[:, None, :, None], key_positions[:, None, None, :]
    seen = (key >= 0) & (key <= query)
    return seen if window is None else seen & (key > query - window)


def positions_and_mask(
    starts: Sequence[int], counts: Sequence[int], slots: int, device: torch.device
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """For rows with counts[i] new tokens from position starts[i] on: their positions [B, T], the mask [B, 1, T, S] over
    `slots` slots of each row, of which slot s holds the token at position s, and which tokens are real [B, T].

    The mask is None if nothing is hidden, and the last is None if nothing is padding.
    """
    start = torch.tensor(starts, device=device)[:, None]  # [B, 1]
    positions = start + torch.arange(max(counts), device=device)  # [B, T]
    slot = torch.arange(slots, device=device)[None]  # [1, S]
    if min(counts) < max(counts):  # padding sees no more than what is filled
        end = start + torch.tensor(counts, device=device)[:, None]
        return positions, visible(positions, torch.where(slot < end, slot, -1)), positions < end
    if min(starts) == slots - 1:  # one new token each, in the last slot: it sees every slot
        return positions, None, None
    return positions, visible(positions, slot), None


class Step(ABC):
    """One forward pass over a cache. The model reads `positions` and `mask`, and calls `write` once in each layer; then
    `watch(layer, q, k)`, with the queries [B, H_q, T, D] and all keys that `write` returned, if the step has that.

    positions [B, T]: where each new token stands in its row's text.
    mask [B, 1, T, S]: True where a new token may look; None if it may look at every slot.
    """

    positions: Tensor
    mask: Tensor | None
    end: int  # every position is below it, that of padding included

    def __init__(self, n_layers: int) -> None:
        self.n_layers, self.written = n_layers, 0

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the new keys and values [B, H, T, D] of one layer; return all to attend to, [B, H, S, D], the new
        included.

        Keys come after RoPE and before heads are repeated. Raises ValueError unless layers are written once and in
        order.
        """
        if not layer == self.written < self.n_layers:
            raise ValueError(
                f"layer {layer} was written after {self.written} of the cache's {self.n_layers} layers: "
                "a model of that many layers writes each once, in order"
            )
        attended = self.store(layer, k, v)
        self.written += 1
        return attended

    @abstractmethod
    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """What `write` does with the tensors of a layer, in the way of this cache."""


class Cache(ABC):
    """The base of all caches: rows, their lengths, and one step at a time."""

    def __init__(self, n_layers: int, rows: int) -> None:
        rows = whole(rows, "the number of rows")
        if rows < 1:
            raise ValueError(f"a cache needs at least one row, not {rows}")
        self.n_layers, self.rows = n_layers, rows
        self.lengths: tuple[int, ...] = (0,) * rows  # tokens seen; rebound, never changed in place
        self.in_step = False
        self.unsettled: tuple[int, ...] = ()  # rows of a step that has neither closed well nor been abandoned yet
        self.copied_bytes = 0  # of keys and values that had to be brought together for attention, since the beginning

    @contextmanager
    def step(
        self, counts: Sequence[int], rows: Sequence[int] | None = None, limit: int | None = None
    ) -> Iterator[Step]:
        """Open a forward pass with counts[i] new tokens for cache row rows[i] (row i by default).

        `limit` is the number of positions that the model knows. Raises CacheFull, or ValueError for rows or counts
        that make no sense or positions beyond `limit`, before anything is written.
        """
        counts = tuple(whole(count, "a count") for count in counts)
        rows = tuple(range(len(counts))) if rows is None else tuple(whole(row, "a row") for row in rows)
        self.check(rows, counts, limit)
        self.check_room(rows, counts)
        added = dict(zip(rows, counts, strict=True))
        lengths = tuple(length + added.get(row, 0) for row, length in enumerate(self.lengths))
        try:
            self.in_step, self.unsettled = True, rows
            step = self.open(rows, counts)
            step.end = max(map(self.next_position, rows)) + max(counts)
            yield step
            if step.written != self.n_layers:
                raise ValueError(f"the step closed after {step.written} of {self.n_layers} layers were written")
            self.keep(rows)
            self.lengths = lengths  # with no call in between: Ctrl-C finds all of the step kept, or nothing
            self.unsettled = ()
        except BaseException:
            self.settle()
            raise
        finally:
            self.in_step = False

    def settle(self) -> None:
        """Abandon the step that failed. Should Ctrl-C come again meanwhile, whatever is done next begins with this."""
        self.abandon(self.unsettled)
        self.unsettled = ()

    def check(self, rows: tuple[int, ...], counts: tuple[int, ...], limit: int | None) -> None:
        """Raise ValueError unless `rows` and `counts` describe a step that this cache can be asked for."""
        self.check_idle()
        if len(rows) != len(counts):
            raise ValueError(f"{len(counts)} counts for {len(rows)} rows: each row needs one")
        if len(set(rows)) != len(rows):
            raise ValueError(f"rows {rows} name a row twice: its tokens belong into one row of the batch")
        for row, count in zip(rows, counts, strict=True):
            self.check_row(row)
            if count < 0:
                raise ValueError(f"row {row} cannot get {count} new tokens")
            end = self.next_position(row) + count
            if limit is not None and end > limit:
                raise ValueError(
                    f"row {row} would reach position {end - 1}, "
                    f"but the model knows positions 0 to {limit - 1}: shorten the prompt or generate fewer tokens"
                )
        if not any(counts):
            raise ValueError("a step needs at least one new token")

    @property
    def goes_back(self) -> bool:
        """Whether a row can always forget its newest tokens one by one and be as if they had never come, as a refused
        draft asks: a cache that gave something up for them cannot."""
        return True

    def next_position(self, row: int) -> int:
        """Where the next token of a row will stand."""
        return self.lengths[row]

    def positions_for(self, prompt: int, more: int) -> int:
        """How many positions a model must know to read `prompt` tokens into an empty row in one pass, and then `more`
        one by one.
        """
        return prompt + more

    def check_row(self, row: int) -> None:
        if not 0 <= row < self.rows:
            raise ValueError(f"there is no row {row}: this cache has rows 0 to {self.rows - 1}")

    def release(self, row: int) -> None:
        """Empty a row. It is as good as new, whatever its memory holds."""
        self.truncate(row, 0)

    def truncate(self, row: int, length: int) -> None:
        """Forget all but the first `length` tokens of a row (a rejected draft, an edited prompt)."""
        row, length = whole(row, "a row"), whole(length, "a length")
        self.check_idle()
        self.check_row(row)
        if not 0 <= length <= self.lengths[row]:
            raise ValueError(f"row {row} holds {self.lengths[row]} tokens and cannot be truncated to {length}")
        self.free(row, length)
        self.set_length(row, length)

    def copy_row(self, source: int, target: int) -> None:
        """Make row `target` a copy of row `source` (a shared prefix); what `target` held is released."""
        source, target = whole(source, "a row"), whole(target, "a row")
        self.check_idle()
        self.check_row(source)
        self.check_row(target)
        if source != target:
            self.free(target, 0)
            self.set_length(target, 0)  # should the copy be cut short, the row is empty, not half a text
            self.copy(source, target)
            self.set_length(target, self.lengths[source])

    def move_row(self, source: int, target: int) -> None:
        """Row `target` takes over what row `source` holds, and `source` is empty: rows side by side are quicker."""
        self.copy_row(source, target)
        if whole(source, "a row") != whole(target, "a row"):
            self.release(source)

    def check_idle(self) -> None:
        if self.in_step:
            raise ValueError("a step is still open on this cache: close it first, or use another cache")
        if self.unsettled:
            self.settle()

    def set_length(self, row: int, length: int) -> None:
        self.lengths = (*self.lengths[:row], length, *self.lengths[row + 1 :])

    def fits(self, rows: Sequence[int], counts: Sequence[int]) -> bool:
        """Whether a step with counts[i] new tokens for row rows[i] would find room now."""
        self.check(tuple(rows), tuple(counts), None)
        try:
            self.check_room(tuple(rows), tuple(counts))
        except CacheFull:
            return False
        return True

    @abstractmethod
    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        """Raise CacheFull unless there is room for all of these new tokens together. Changes nothing."""

    @abstractmethod
    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        """Return the step. There is room for its tokens."""

    def keep(self, rows: tuple[int, ...]) -> None:  # noqa: B027 (most caches have nothing to do here)
        """The step over these rows closed well: what it wrote stays. Lengths advance right after."""

    def abandon(self, rows: tuple[int, ...]) -> None:
        """The step over these rows failed, perhaps while it opened or closed: all that it took is given back."""
        for row in rows:
            self.free(row, self.lengths[row])

    @abstractmethod
    def free(self, row: int, kept: int) -> None:
        """Only the first `kept` tokens of a row are needed: the rest of its memory may hold anything from now on."""

    @abstractmethod
    def copy(self, source: int, target: int) -> None:
        """Copy the keys and values of one row to another, which is free."""

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most tokens that one row can hold, if all other rows are empty."""

    @property
    @abstractmethod
    def slots(self) -> int:
        """How many tokens' keys and values there is memory for. Slots are numbered from 0, `line` of them together."""

    @property
    @abstractmethod
    def line(self) -> int:
        """How many slots lie together: slot s is in line s // line."""

    @abstractmethod
    def places(self, row: int) -> dict[int, int]:
        """Position -> slot of each token that a row holds."""

    @abstractmethod
    def fill_free(self, value: float) -> None:
        """Write `value` into every slot that nobody may read: NaN there shows whoever reads it all the same."""

    @property
    @abstractmethod
    def reserved_bytes(self) -> int:
        """Bytes of the tensors that this cache has allocated for keys and values."""

    @property
    @abstractmethod
    def used_bytes(self) -> int:
        """Bytes of those that hold the keys and values of tokens."""


class NoCache(Cache):
    """What `cache=None` means: one step, which starts at position 0, attends to its own tokens, and keeps nothing."""

    reserved_bytes = used_bytes = longest = slots = 0
    line = 1

    def __init__(self, n_layers: int, rows: int, device: torch.device) -> None:
        super().__init__(n_layers, rows)
        self.device = device

    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        for row in rows:
            if self.lengths[row]:
                said = f"row {row} has read {self.lengths[row]} tokens, and NoCache keeps none"
                raise ValueError(f"{said}: pass another cache, or None and the whole text")

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        return OwnTokensOnly(self.n_layers, counts, self.device)

    def free(self, row: int, kept: int) -> None:
        pass

    def copy(self, source: int, target: int) -> None:
        pass

    def places(self, row: int) -> dict[int, int]:
        return {}

    def fill_free(self, value: float) -> None:
        pass


class OwnTokensOnly(Step):
    """The step of a forward pass without a cache: what is written is what is attended to."""

    def __init__(self, n_layers: int, counts: tuple[int, ...], device: torch.device) -> None:
        super().__init__(n_layers)
        self.positions, self.mask, _ = positions_and_mask([0] * len(counts), counts, max(counts), device)

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        return k, v


def check_match(new: Tensor, held: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless new keys or values can be kept as they are: torch would convert and repeat them."""
    if new.shape != shape or new.dtype != held.dtype or new.device != held.device:
        raise ValueError(
            f"this step of the cache takes {held.dtype} of shape {list(shape)} on {held.device}, not {new.dtype} of "
            f"{list(new.shape)} on {new.device}: make the cache from the model's config, dtype and device"
        )
    if new.requires_grad:  # the cache would keep the graph of every pass alive
        raise ValueError("a cache keeps no gradients: run under torch.inference_mode(), or train without a cache")
