"""Ways to store a key or a value in fewer bytes, and to get a number near it back.

The one idea: a codec turns numbers into bytes, scales included, and bytes into numbers. So what a cache holds is one
tensor of bytes, and its size is the whole truth about what was saved. NaN and what is too large for the scales come
back as NaN or infinity, never as another number.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import ceil

import torch
from torch import Tensor

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
E4M3_END = 464  # half-way from 448, the largest, to where the next one would be: up to here 448 is the nearest


class Codec(ABC):
    """How keys (or values) are stored; `tokens` consecutive ones of a head together."""

    tokens: int = 1

    @abstractmethod
    def size(self, head_dim: int) -> int:
        """Bytes of the keys (or values) of so many tokens of one head, scales included."""

    @abstractmethod
    def encode(self, x: Tensor) -> Tensor:
        """Bytes [..., T / tokens, size] of x [..., T, D]; T is a multiple of `tokens`."""

    @abstractmethod
    def decode(self, packed: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
        """The numbers [..., T, D] that bytes [..., T / tokens, size] stand for."""


@dataclass(frozen=True)
class Floats(Codec):
    """Each number as a shorter float: float16, bfloat16, or one of eight bits (e4m3: 3 bits of mantissa, up to 448;
    e5m2: 2 bits, up to 57,344; FP8 Formats for Deep Learning, Micikevicius et al. 2022)."""

    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.dtype not in FLOATS:
            raise ValueError(f"{self.dtype} is no float to store numbers in; there are {', '.join(map(str, FLOATS))}")

    def size(self, head_dim: int) -> int:
        return head_dim * self.dtype.itemsize

    def encode(self, x: Tensor) -> Tensor:
        if self.dtype == torch.float8_e4m3fn:  # it has no infinity, and torch makes all that is too large 448
            x = x.masked_fill(x.abs() > E4M3_END, torch.nan)
        return as_bytes(x.to(self.dtype))

    def decode(self, packed: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
        return packed.view(self.dtype).to(dtype)


@dataclass(frozen=True)
class Integers(Codec):
    """Each number as one of 2^bits steps between the smallest and the largest of its group.

    A group is `group` neighbouring channels of one token, or, `per_channel`, one channel of `group` consecutive
    tokens. It stores its smallest number and the size of a step in `scale_dtype`, and a code of `bits` bits for each
    number (asymmetric round-to-nearest, as in KIVI, Liu et al. 2024). A number comes back within half a step, plus
    what `scale_dtype` rounds off the two.
    """

    bits: int
    group: int = 32
    per_channel: bool = False
    scale_dtype: torch.dtype = torch.float16

    def __post_init__(self) -> None:
        if type(self.bits) is not int or not 1 <= self.bits <= 8:
            raise ValueError(f"a code has 1 to 8 bits, a plain int, not {self.bits!r}")
        if type(self.group) is not int or self.group < 1:
            raise ValueError(f"a group has at least one number, a plain int, not {self.group!r}")
        if self.scale_dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise ValueError(f"scales are float16, bfloat16 or float32, not {self.scale_dtype}")

    @property
    def tokens(self) -> int:  # type: ignore[override]
        return self.group if self.per_channel else 1

    def groups(self, head_dim: int) -> int:
        """How many groups are stored together: the last one may be smaller."""
        return head_dim if self.per_channel else ceil(head_dim / self.group)

    def code_bytes(self, head_dim: int) -> int:
        return ceil(self.tokens * head_dim * self.bits / 8)

    def size(self, head_dim: int) -> int:
        return self.code_bytes(head_dim) + 2 * self.groups(head_dim) * self.scale_dtype.itemsize

    def encode(self, x: Tensor) -> Tensor:
        head_dim, steps = x.shape[-1], 2**self.bits - 1
        groups = self.in_groups(x.to(torch.promote_types(x.dtype, torch.float32)))  # [..., n, groups, numbers]
        low = groups.amin(-1)
        step = ((groups.amax(-1) - low) / steps).to(self.scale_dtype)  # [..., n, groups]
        low = low.to(self.scale_dtype)
        # A constant group has no steps: whatever it is divided by, its codes are 0.
        codes = (groups - low.unsqueeze(-1)) / step.where(step > 0, 1).unsqueeze(-1)
        codes = codes.round().clamp(0, steps).nan_to_num(0)
        codes = self.out_of_groups(codes, head_dim).flatten(-2)  # [..., n, tokens * D]
        return torch.cat((pack(codes.to(torch.uint8), self.bits), as_bytes(low), as_bytes(step)), dim=-1)

    def decode(self, packed: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
        groups, end = self.groups(head_dim), self.code_bytes(head_dim)
        codes = unpack(packed[..., :end], self.bits, self.tokens * head_dim)
        scales = packed[..., end:].clone(memory_format=torch.contiguous_format)  # codes may take an odd number of bytes
        scales = scales.view(self.scale_dtype)
        wide = torch.promote_types(dtype, torch.float32)
        low, step = scales.to(wide).split(groups, dim=-1)
        found = self.in_groups(codes.unflatten(-1, (self.tokens, head_dim)).flatten(-3, -2).to(wide))
        numbers = torch.addcmul(low.unsqueeze(-1), found, step.unsqueeze(-1))  # [..., n, groups, numbers]
        return self.out_of_groups(numbers, head_dim).flatten(-3, -2).to(dtype)

    def in_groups(self, x: Tensor) -> Tensor:
        """[..., T, D] as [..., n, groups, numbers]; a last group that is short repeats its last number."""
        if self.per_channel:
            return x.unflatten(-2, (-1, self.tokens)).transpose(-1, -2)
        missing = -x.shape[-1] % self.group
        x = torch.cat((x, x[..., -1:].expand(*x.shape[:-1], missing)), dim=-1)
        return x.unflatten(-1, (-1, self.group))

    def out_of_groups(self, x: Tensor, head_dim: int) -> Tensor:
        """[..., n, groups, numbers] as [..., n, tokens, D]."""
        return x.transpose(-1, -2) if self.per_channel else x.flatten(-2)[..., :head_dim].unsqueeze(-2)


def as_bytes(x: Tensor) -> Tensor:
    """[..., D] as its bytes [..., D * itemsize]."""
    return x.contiguous().view(torch.uint8)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes [..., N] of `bits` bits each, one after the other, in ceil(N * bits / 8) bytes. The lowest bit is first."""
    where = torch.arange(bits, device=codes.device, dtype=torch.uint8)
    stream = (codes.unsqueeze(-1) >> where & 1).flatten(-2)  # [..., N * bits]
    missing = -stream.shape[-1] % 8
    stream = torch.cat((stream, stream.new_zeros(*stream.shape[:-1], missing)), dim=-1).unflatten(-1, (-1, 8))
    return (stream << torch.arange(8, device=codes.device, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)


def unpack(packed: Tensor, bits: int, count: int) -> Tensor:
    """The first `count` codes in bytes that `pack` made."""
    if bits == 8:
        return packed[..., :count]
    stream = packed.unsqueeze(-1) >> torch.arange(8, device=packed.device, dtype=torch.uint8) & 1
    stream = stream.flatten(-2)[..., : count * bits].unflatten(-1, (count, bits))
    return (stream << torch.arange(bits, device=packed.device, dtype=torch.uint8)).sum(-1, dtype=torch.uint8)
