"""The forgetting cache: each row has a fixed number of slots, and a policy says which tokens stay in them.

The one idea: tokens seen and tokens held are two numbers. A slot's place says nothing; the position that is noted for
it says everything, so a new token goes wherever one has left, and the mask is made from positions as in every cache.
What a step leaves behind is decided when it closes: until then nothing is overwritten.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from course_lib.caches.contract import check_match
from course_lib.caches.policies import Policy
from course_lib.caches.writes import ClosingStep, Write, WritesAtClose

if TYPE_CHECKING:
    from course_lib.model import ModelConfig


class ForgettingCache(WritesAtClose):
    """Keys and values of `rows` sequences of any length; of each, `policy.slots` tokens are held between steps.

    `keys` and `values` are tensors [L, rows, H, slots, D] of `dtype` on `device`; `held` [rows, slots] is the position
    of the token in each slot, -1 where there is none (and what is not below the row's length is left over from another
    text); `attention` [rows, slots] is how much attention it has got so far, summed over layers and heads, if the
    policy asks.

    With `renumber`, positions are counted anew in each step: the tokens that a row holds are turned to 0, 1, 2 …, in
    their order, and the new ones follow (as in StreamingLLM, Xiao et al. 2023). Without it they stay what they were.
    """

    def __init__(
        self,
        config: ModelConfig,
        rows: int,
        policy: Policy,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        *,
        renumber: bool = False,
    ) -> None:
        super().__init__(config.n_layers, rows)
        if not isinstance(policy, Policy):
            raise ValueError(f"a policy says what stays, such as Window(64), not {policy!r}")
        self.config, self.policy, self.renumber = config, policy, renumber
        shape = (config.n_layers, rows, config.n_kv_heads, policy.slots, config.head_dim)
        with torch.inference_mode(False):  # a cache made there can be used elsewhere, too
            self.keys = torch.empty(shape, dtype=dtype, device=device)
            self.values = torch.empty(shape, dtype=dtype, device=device)
            self.held = torch.full((rows, policy.slots), -1, device=device)
            self.turned = torch.full((rows, policy.slots), -1, device=device)  # the position that its key is turned to
            self.attention = torch.zeros(rows, policy.slots, dtype=torch.float64, device=device)

    def positions(self, rows: Sequence[int]) -> Tensor:
        """The position of the token in each slot of these rows [B, slots], -1 where there is none."""
        held = self.held[list(rows)]
        lengths = torch.tensor([self.lengths[row] for row in rows], device=held.device)
        return held.masked_fill(held >= lengths[:, None], -1)

    def next_position(self, row: int) -> int:
        """With `renumber`, behind those that are held: read piece by piece, a text may be longer than the model knows
        positions. `generate` goes on for ever then; `Engine`, which may have to read a text again, refuses it.
        """
        return int((self.positions([row]) >= 0).sum()) if self.renumber else self.lengths[row]

    def positions_for(self, prompt: int, more: int) -> int:
        all_of_it = super().positions_for(prompt, more)
        return max(prompt, min(all_of_it, self.policy.slots + 1)) if self.renumber else all_of_it

    def check_room(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        """There always is: what is too much is forgotten."""

    def begin(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> ClosingStep:
        return ForgettingStep(self, rows, counts)

    def free(self, row: int, kept: int) -> None:
        """Refused where a token is missing that the next one would have to see: what is forgotten stays forgotten.

        With `renumber` a token's place depends on how many are held before it, so none of them may be missing.
        """
        if 0 < kept < self.lengths[row]:
            needed = range(kept) if self.renumber and not self.policy.watches else self.policy.needed(kept)
            if needed is None or not set(needed) <= set(self.places(row)):
                raise ValueError(
                    f"row {row} cannot be truncated to {kept} tokens: it has seen {self.lengths[row]}, and some that "
                    "the next token would need are no longer held; release the row and read its text again"
                )

    def copy(self, source: int, target: int) -> None:
        for tensor in (self.keys, self.values):
            tensor[:, target] = tensor[:, source]
        for tensor in (self.held, self.turned, self.attention):
            tensor[target] = tensor[source]

    @property
    def longest(self) -> int:
        """No text is too long for it; the model may have a limit."""
        return sys.maxsize

    @property
    def slots(self) -> int:
        return self.held.numel()

    @property
    def line(self) -> int:
        return self.policy.slots

    def places(self, row: int) -> dict[int, int]:
        held = self.positions([row])[0].tolist()
        return {held[slot]: row * self.line + slot for slot in sorted(range(self.line), key=held.__getitem__)
                if held[slot] >= 0}  # fmt: skip

    def fill_free(self, value: float) -> None:
        self.check_idle()
        for tensor in (self.keys, self.values):  # [L, rows, H, slots, D]
            tensor.transpose(1, 2)[:, :, self.positions(range(self.rows)) < 0] = value

    @property
    def reserved_bytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    @property
    def used_bytes(self) -> int:
        return self.reserved_bytes // self.slots * int((self.positions(range(self.rows)) >= 0).sum())


class ForgettingStep(ClosingStep):
    """A pass over any rows: what they hold first, in whatever slots, then the new tokens."""

    def __init__(self, cache: ForgettingCache, rows: tuple[int, ...], counts: tuple[int, ...]) -> None:
        super().__init__(cache.n_layers)
        self.cache, self.rows, self.counts = cache, list(rows), counts
        device = cache.keys.device
        self.shape = (len(rows), cache.keys.shape[2], max(counts), cache.keys.shape[4])  # of new keys: [B, H, T, D]
        held = cache.positions(rows)  # [B, slots]
        new = torch.arange(max(counts), device=device).expand(len(rows), -1)
        padding = new >= torch.tensor(counts, device=device)[:, None]
        self.true = torch.tensor([cache.lengths[row] for row in rows], device=device)[:, None] + new  # [B, T]
        self.key_positions = torch.cat((held, self.true.masked_fill(padding, -1)), dim=1)  # [B, slots + T]
        self.unfilled = (held < 0)[:, None, :, None]  # [B, 1, slots, 1]
        self.padding = padding[:, None, :, None] if min(counts) < max(counts) else None  # [B, 1, T, 1]
        self.mask = cache.policy.visible(self.true, self.key_positions)  # [B, 1, T, slots + T]
        self.positions, self.turn = self.true, None
        if cache.renumber:
            place = held.masked_fill(held < 0, sys.maxsize).argsort(dim=1).argsort(dim=1)  # among those that are held
            self.positions = (held >= 0).sum(dim=1, keepdim=True) + new
            self.turn = place - cache.turned[self.rows]  # how far each key has to be turned on
            self.turned = torch.cat((cache.turned[self.rows], self.positions), dim=1)
        else:
            self.turned = self.key_positions
        self.attention = torch.zeros(self.key_positions.shape, dtype=torch.float64, device=device)
        self.new: list[tuple[Tensor, Tensor]] = []  # for each layer what came, [B, H, T, D]

    def store(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self.cache.keys[layer], self.cache.values[layer]  # [rows, H, slots, D]
        check_match(k, keys, self.shape)
        check_match(v, values, self.shape)
        old = [t[self.rows].masked_fill(self.unfilled, 0) for t in (keys, values)]
        if self.turn is not None:
            old[0] = turned(self.cache.config, old[0], self.turn)
        self.new.append((k, v))
        if self.padding is not None:  # it may see nothing in its window, and what comes of that need not be a number
            k, v = k.masked_fill(self.padding, 0), v.masked_fill(self.padding, 0)
        k, v = torch.cat((old[0], k), dim=2), torch.cat((old[1], v), dim=2)
        self.cache.copied_bytes += k.nbytes + v.nbytes
        return k, v

    def watch(self, layer: int, q: Tensor, k: Tensor) -> None:
        """Add up what attention each key [B, H, S, D] gets from the queries [B, H_q, T, D], if the policy asks."""
        if self.cache.policy.watches:
            assert self.mask is not None
            B, H, _, D = k.shape
            wide = torch.promote_types(q.dtype, torch.float32)  # as attention does: scores outgrow 16 bits
            q, k = q.to(wide), k.to(wide)
            scores = q.reshape(B, H, -1, q.shape[2], D) @ k[:, :, None].mT / D**0.5  # [B, H, G, T, S]
            weights = scores.masked_fill(~self.mask[:, :, None], -torch.inf).softmax(-1)
            real = torch.tensor(self.counts, device=q.device)[:, None] > torch.arange(q.shape[2], device=q.device)
            weights = weights.masked_fill(~real[:, None, None, :, None], 0)  # what padding looks at counts for nothing
            self.attention += weights.sum(dim=(1, 2, 3), dtype=torch.float64)

    def writes(self) -> list[Write]:
        """Let the policy choose among the held and the new, and put the new that stay where others leave."""
        cache, slots = self.cache, self.cache.policy.slots
        keys, values = (torch.stack(new) for new in zip(*self.new, strict=True))  # [L, B, H, T, D]
        writes: list[Write] = []
        for i, row in enumerate(self.rows):
            positions, turned = self.key_positions[i], self.turned[i]
            attention = self.attention[i]
            attention[:slots] += cache.attention[row]
            stays = cache.policy.stays(positions, attention, cache.lengths[row] + self.counts[i])  # [slots + T]
            came = stays[slots:].nonzero()[:, 0]
            free = (~stays[:slots]).nonzero()[: len(came), 0]
            for book, known, none in (
                (cache.held, positions, -1), (cache.turned, turned, -1), (cache.attention, attention, 0),
            ):  # fmt: skip
                new = known[:slots].masked_fill(~stays[:slots], none)
                new[free] = known[slots + came]
                writes.append((book, row, new))
            for memory, k in ((cache.keys, keys), (cache.values, values)):
                writes.append((memory, (slice(None), row, slice(None), free), k[:, i, :, came]))
        return writes


def turned(config: ModelConfig, keys: Tensor, by: Tensor) -> Tensor:
    """Keys [B, H, S, D] that were turned to their positions, turned on by so many positions [B, S], back if negative.

    Rotations add up: R(p) R(d) = R(p + d) (RoFormer, Su et al. 2021, section 3.2.2).
    """
    from course_lib.model import rotate, rotation  # the model knows caches; this is the one place the other way round

    far = by.abs()
    cos, sin = rotation(config, far, keys.dtype, int(far.max()) + 1)  # [B, S, 1, D]
    sin = sin * by.sign()[:, :, None, None]
    return rotate(keys.transpose(1, 2), cos, sin).transpose(1, 2)
