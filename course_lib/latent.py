"""Latent attention, as a small module of its own: one short vector a token instead of a key and a value for each head.

The one idea: if keys and values are made from a short *latent* by two matrices, the latent is all that has to be kept,
and the matrices need never be applied to what is kept: the one of the keys goes to the query, the one of the values to
the result. Rotation would stand in between, so a few dimensions, which all heads share, carry the positions alone.
(Multi-head latent attention: DeepSeek-V2, 2024, section 2.1.)

Letters in the shapes: B rows, T new tokens, S tokens in all, H heads, D dimensions of a head that carry content, R of
the rotated part, C of the latent.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor


@dataclass(frozen=True)
class LatentShape:
    """The shape of one layer: d_model in and out, H heads, D, R and C."""

    d_model: int
    n_heads: int  # H
    head_dim: int  # D
    rotated_dim: int  # R
    latent_dim: int  # C
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        for name in ("d_model", "n_heads", "head_dim", "rotated_dim", "latent_dim"):
            if type(value := getattr(self, name)) is not int or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        if self.rotated_dim % 2:
            raise ValueError(f"rotated_dim={self.rotated_dim} must be even: RoPE rotates pairs")
        if not isinstance(self.rope_theta, int | float) or not 0 < self.rope_theta < inf:
            raise ValueError(f"rope_theta must be a positive number, not {self.rope_theta!r}")

    @property
    def cached(self) -> int:
        """Numbers kept for each token: the latent and the rotated key. No factor 2, and no heads."""
        return self.latent_dim + self.rotated_dim

    @property
    def cached_by_heads(self) -> int:
        """Numbers that keys and values of all heads would take."""
        return self.n_heads * (self.head_dim + self.rotated_dim + self.head_dim)


class LatentAttention:
    """One attention layer, its random weights always the same. `cache` is [B, S, C + R], a row for each token seen."""

    def __init__(self, shape: LatentShape) -> None:
        s, generator = shape, torch.Generator().manual_seed(0)

        def weight(*size: int) -> Tensor:
            return torch.randn(size, generator=generator, dtype=torch.float64) / size[-1] ** 0.5

        self.shape = shape
        self.to_cache = weight(s.cached, s.d_model)  # the latent, then the key that will be rotated
        self.to_keys = weight(s.n_heads, s.head_dim, s.latent_dim)
        self.to_values = weight(s.n_heads, s.head_dim, s.latent_dim)
        self.to_queries = weight(s.n_heads, s.head_dim + s.rotated_dim, s.d_model)
        self.out = weight(s.d_model, s.n_heads * s.head_dim)

    def empty(self, rows: int) -> Tensor:
        return self.to_cache.new_empty(rows, 0, self.shape.cached)

    def append(self, x: Tensor, cache: Tensor) -> Tensor:
        """The cache with the rows of new tokens x [B, T, d_model] behind it, [B, S, C + R]."""
        self.check(x, cache)
        latent, key = (x @ self.to_cache.mT).split((self.shape.latent_dim, self.shape.rotated_dim), dim=-1)
        return torch.cat((cache, torch.cat((latent, self.rotated(key, cache.shape[1])), dim=-1)), dim=1)

    def expanded(self, x: Tensor, cache: Tensor) -> Tensor:
        """Attention [B, T, d_model] of the last T tokens of `cache` the long way: keys and values of all heads are made
        again from every latent, in every step."""
        q, r = self.queries(x, cache)  # [B, H, T, D], [B, H, T, R]
        latent, shared = cache.split((self.shape.latent_dim, self.shape.rotated_dim), dim=-1)
        k = torch.einsum("bsc,hdc->bhsd", latent, self.to_keys)
        v = torch.einsum("bsc,hdc->bhsd", latent, self.to_values)
        weights = self.weights(q @ k.mT + r @ shared[:, None].mT)  # [B, H, T, S]
        return self.mixed(weights @ v)

    def absorbed(self, x: Tensor, cache: Tensor) -> Tensor:
        """The same attention on the latents themselves, which all heads share: q · (W c) is (W^T q) · c."""
        q, r = self.queries(x, cache)
        latent, shared = cache.split((self.shape.latent_dim, self.shape.rotated_dim), dim=-1)
        q = torch.einsum("bhtd,hdc->bhtc", q, self.to_keys)  # [B, H, T, C]
        weights = self.weights(q @ latent[:, None].mT + r @ shared[:, None].mT)  # [B, H, T, S]
        return self.mixed(torch.einsum("bhtc,hdc->bhtd", weights @ latent[:, None], self.to_values))

    def check(self, x: Tensor, cache: Tensor) -> None:
        """Raise ValueError unless x [B, T, d_model] can be new tokens of the cache's rows."""
        wanted = (x.shape[0], self.shape.d_model, self.shape.cached)
        if x.dim() != 3 or cache.dim() != 3 or (cache.shape[0], x.shape[2], cache.shape[2]) != wanted:
            raise ValueError(
                f"new tokens are [B, T, {self.shape.d_model}] and their cache is [B, S, {self.shape.cached}], "
                f"not {list(x.shape)} and {list(cache.shape)}"
            )

    def queries(self, x: Tensor, cache: Tensor) -> tuple[Tensor, Tensor]:
        self.check(x, cache)
        if cache.shape[1] < x.shape[1]:
            raise ValueError(f"{x.shape[1]} tokens ask, and the cache holds {cache.shape[1]}: append them first")
        q = torch.einsum("btm,hdm->bhtd", x, self.to_queries)
        q, r = q.split((self.shape.head_dim, self.shape.rotated_dim), dim=-1)
        return q, self.rotated(r, cache.shape[1] - x.shape[1])

    def weights(self, scores: Tensor) -> Tensor:
        """softmax(scores / sqrt(D + R)) [B, H, T, S] of the last T of S tokens, each over those up to itself."""
        T, S = scores.shape[-2:]
        later = torch.ones(T, S, dtype=torch.bool, device=scores.device).triu(S - T + 1)
        scale = (self.shape.head_dim + self.shape.rotated_dim) ** -0.5
        return (scores * scale).masked_fill(later, -torch.inf).softmax(-1)

    def mixed(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(2) @ self.out.mT  # [B, T, d_model]

    def rotated(self, x: Tensor, start: int) -> Tensor:
        """x [..., T, R], rotated to the positions start, start + 1, … (RoPE, pairs i and i + R/2)."""
        half = self.shape.rotated_dim // 2
        turns = self.shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(start, start + x.shape[-2], dtype=torch.float64)[:, None] * turns  # [T, R/2]
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
