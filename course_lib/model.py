"""A decoder-only transformer of the Llama family, read from top to bottom in one sitting.

The one idea: a forward pass does not know whether it trains, prefills or decodes. It opens one *step* on a cache,
asks it for the positions of the new tokens and for the mask, and in each layer hands over the new keys and values
and gets back everything to attend to. Without a cache the same code runs on a step that holds only the new tokens.

The model keeps no cache and no position of its own. Letters in the shapes: B rows, T new tokens, S slots attended to,
H_q query heads, H key/value heads, G = H_q / H query heads that share one of them, D head_dim, V vocab_size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.caches.contract import Cache, NoCache, Step


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a model, in the vocabulary of the course.

    `head_dim` is given, never derived: in several real models it is not d_model / n_heads. `rope_factors` divides
    each of the D / 2 rotation frequencies (the long-context scaling of Llama 3.1); None leaves them alone.

    Raises ValueError, naming field and value, for a shape that no model can have.
    """

    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int  # H_q
    n_kv_heads: int  # H
    head_dim: int  # D
    d_ff: int
    max_positions: int
    rope_theta: float = 10_000.0
    rope_factors: tuple[float, ...] | None = None
    norm_eps: float = 1e-5
    tied_head: bool = True

    def __post_init__(self) -> None:
        for name in (
            "vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff", "max_positions",
        ):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in ("rope_theta", "norm_eps"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or not isfinite(value) or value <= 0:
                raise ValueError(f"{name} must be a positive number, not {value!r}")
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_heads={self.n_heads} must be a multiple of n_kv_heads={self.n_kv_heads}: "
                "each key/value head serves equally many query heads"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim={self.head_dim} must be even: RoPE rotates pairs")
        if self.rope_factors is not None:
            if not isinstance(self.rope_factors, tuple):
                raise ValueError(f"rope_factors must be a tuple of numbers, not {self.rope_factors!r}")
            if len(self.rope_factors) != self.head_dim // 2:
                raise ValueError(
                    f"rope_factors has {len(self.rope_factors)} entries, head_dim={self.head_dim} needs "
                    f"{self.head_dim // 2}: one for each rotated pair"
                )
            for factor in self.rope_factors:
                if not isfinite(factor) or factor <= 0:
                    raise ValueError(f"rope_factors must be positive numbers, not {factor!r}")


@lru_cache(maxsize=8)
def rotation_table(config: ModelConfig, positions: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Cosine and signed sine of the first `positions` positions, side by side, [positions, 2 D].

    RoPE turns pair i of a head by theta^(-2i/D) radians a position (RoFormer, section 3.2.2). Angles are float64
    whatever the dtype: in float32 an angle of 8,000 radians is off by 5e-4.
    """
    turns = config.rope_theta ** (-torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim)
    if config.rope_factors is not None:
        turns = turns / torch.tensor(config.rope_factors, dtype=torch.float64)
    angles = torch.arange(positions)[:, None] * turns  # [positions, D/2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos, -sin, sin), dim=-1).to(device, dtype)


def rotation(config: ModelConfig, positions: Tensor, dtype: torch.dtype, end: int) -> tuple[Tensor, Tensor]:
    """Cosine and signed sine for positions [B, T], all below `end`; each [B, T, 1, D]. `rotate` applies them."""
    size = 1 << max(end - 1, 255).bit_length()  # the table doubles when it is outgrown
    table = rotation_table(config, size, dtype, positions.device)
    cos, sin = F.embedding(positions, table).unsqueeze(2).chunk(2, dim=-1)
    return cos, sin


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each head of x [B, T, heads, D] to its position. Pair i of a head is its entries i and i + D/2.

    Rolling the head by D/2 brings each entry's partner to its place: (a, b) becomes (a cos - b sin, b cos + a sin).
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q k^T / sqrt(D)) v for q [B, H_q, T, D] over k and v [B, H, S, D]; returns [B, H_q, T, D].

    The G query heads that share a key/value head stand side by side as G * T queries of that head, so the cached
    heads are read once and never repeated. `mask` [B, 1, G * T, S] is True where a query may look ([B, 1, 1, S] is for
    all of them), None hides nothing. Formula and mask: Attention Is All You Need, section 3.2; the grouping: GQA,
    Ainslie et al. 2023.
    """
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # [B, H, G * T, D]
    return F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask).reshape(q.shape)


class Layer(nn.Module):
    """One transformer layer: six tensors. Attention mixes tokens, the MLP works on each token alone."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        c, heads = config, config.n_heads + 2 * config.n_kv_heads
        self.attention_norm = nn.Parameter(torch.ones(c.d_model))
        self.qkv = weight(heads * c.head_dim, c.d_model)  # queries, then keys, then values
        self.attention_out = weight(c.d_model, c.n_heads * c.head_dim)
        self.mlp_norm = nn.Parameter(torch.ones(c.d_model))
        self.gate_up = weight(2 * c.d_ff, c.d_model)  # gate, then up
        self.down = weight(c.d_model, c.d_ff)

    def forward(
        self, x: Tensor, index: int, cos: Tensor, sin: Tensor, mask: Tensor | None, step: Step
    ) -> Tensor:  # [B, T, d_model]
        c, (B, T, d_model) = self.config, x.shape
        # Attention. Keys are rotated before they are stored: a cached key stays right for ever.
        qkv = F.linear(F.rms_norm(x, (d_model,), self.attention_norm, c.norm_eps), self.qkv)
        qkv = qkv.view(B, T, -1, c.head_dim)  # [B, T, H_q + 2 H, D]
        qk, v = qkv.tensor_split((c.n_heads + c.n_kv_heads,), dim=2)
        q, k = rotate(qk, cos, sin).transpose(1, 2).tensor_split((c.n_heads,), dim=1)  # [B, heads, T, D]
        k, v = step.write(index, k, v.transpose(1, 2))  # [B, H, S, D], the new tokens included
        if hasattr(step, "watch"):  # a cache that forgets what is looked at least has to know
            step.watch(index, q, k)
        mixed = attend(q, k, v, mask)  # [B, H_q, T, D]
        x = x + F.linear(mixed.transpose(1, 2).reshape(B, T, -1), self.attention_out)
        # MLP: SwiGLU (Shazeer 2020).
        gate, up = F.linear(F.rms_norm(x, (d_model,), self.mlp_norm, c.norm_eps), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Transformer(nn.Module):
    """Token ids in, logits out; see `forward`. Its matrices are zero until `course_lib.checkpoints` fills them."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = weight(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.n_layers))
        self.final_norm = nn.Parameter(torch.ones(config.d_model))
        self.head = None if config.tied_head else weight(config.vocab_size, config.d_model)

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.dtype

    @property
    def device(self) -> torch.device:
        return self.embedding.device

    def forward(
        self,
        tokens: Tensor,
        cache: Cache | None = None,
        *,
        counts: Sequence[int] | None = None,
        rows: Sequence[int] | None = None,
        last_only: bool = False,
    ) -> Tensor:
        """Logits [B, T, V] of `tokens` [B, T], each row continuing where its row of the cache stands.

        `counts` says how many tokens of each row are real (all T by default); the rest is padding on the right, is
        not cached, and its logits mean nothing. `rows` names the rows of the cache that the B rows belong to (0 …
        B-1 by default). `last_only` computes the logits of each row's last real token alone, [B, 1, V]: all that
        generation reads.

        Raises CacheFull if a row does not fit and ValueError if a position is beyond max_positions; both before
        anything is written. If anything raises, the cache is as it was.
        """
        if tokens.dim() != 2 or tokens.is_floating_point():
            raise ValueError(
                f"tokens must be whole numbers of shape [B, T], not {tokens.dtype} of {list(tokens.shape)}"
            )
        B, T = tokens.shape
        counts = (T,) * B if counts is None else tuple(counts)
        if len(counts) != B or max(counts, default=0) != T:
            raise ValueError(f"counts {counts} do not describe tokens of shape [{B}, {T}]: {B} counts, the largest {T}")
        cache = cache if cache is not None else NoCache(self.config.n_layers, B, self.device)
        with cache.step(counts, rows, limit=self.config.max_positions) as step:
            cos, sin = rotation(self.config, step.positions, self.dtype, step.end)  # [B, T, 1, D]
            mask = step.mask  # [B, 1, T, S]
            if mask is not None and T > 1:  # one copy for each of the G query heads that share a key/value head
                mask = mask.repeat(1, 1, self.config.n_heads // self.config.n_kv_heads, 1)
            x = F.embedding(tokens, self.embedding)  # [B, T, d_model]
            for index, layer in enumerate(self.layers):
                x = layer(x, index, cos, sin, mask, step)
            if last_only and T > 1:
                last = torch.tensor(counts, device=x.device) - 1
                x = x[torch.arange(B, device=x.device), last].unsqueeze(1)  # [B, 1, d_model]
            x = F.rms_norm(x, (self.config.d_model,), self.final_norm, self.config.norm_eps)
            return F.linear(x, self.embedding if self.head is None else self.head)


def weight(rows: int, columns: int) -> nn.Parameter:
    """A matrix [rows, columns] as `F.linear` takes it; `checkpoints.load` or `checkpoints.random` fills it."""
    return nn.Parameter(torch.zeros(rows, columns))
