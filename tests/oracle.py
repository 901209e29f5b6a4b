"""The transformer once more, from its formulas, as slowly and plainly as possible: one sequence, one token, one head,
one key at a time, in NumPy and float64.

The one idea: what judges the library shares no code and no trick with it. No batch, no mask, no cache, no matrix of
scores: a query looks at the keys 0 … its own position because the loop says so. It is not fast and not complete in
anything but the logits.
"""

from collections.abc import Callable, Mapping
from math import cos, exp, sin, sqrt

import numpy as np

Array = np.ndarray
Seen = Callable[[int, list[Array], list[Array]], tuple[list[Array], list[Array]]]


def rms_norm(x: Array, scale: Array, eps: float) -> Array:
    """x / sqrt(mean(x²) + eps) · scale (Zhang and Sennrich 2019)."""
    return x / sqrt(sum(x * x) / len(x) + eps) * scale


def rotated(head: Array, position: int, theta: float, factors: tuple[float, ...] | None) -> Array:
    """Pair (x_i, x_{i + D/2}) of a head [D] turned by position · theta^(-2i/D), slowed down by factor i if there is one
    (Su et al. 2021, section 3.2.2; the half layout of the published Llama checkpoints).
    """
    half = len(head) // 2
    turned = np.empty_like(head)
    for i in range(half):
        angle = position * theta ** (-2 * i / len(head)) / (factors[i] if factors is not None else 1)
        turned[i] = head[i] * cos(angle) - head[i + half] * sin(angle)
        turned[i + half] = head[i] * sin(angle) + head[i + half] * cos(angle)
    return turned


def attended(query: Array, keys: list[Array], values: list[Array]) -> Array:
    """The mean of `values`, weighted by softmax(query · key / sqrt(D)) (Vaswani et al. 2017, section 3.2.1)."""
    scores = [float(query @ key) / sqrt(len(query)) for key in keys]
    weights = [exp(score - max(scores)) for score in scores]
    return sum(weight * value for weight, value in zip(weights, values, strict=True)) / sum(weights)


def everything(position: int, keys: list[Array], values: list[Array]) -> tuple[list[Array], list[Array]]:
    """What a query at `position` sees of the keys and values of positions 0 … position: all, as they are."""
    return keys, values


def oracle_logits(config: object, weights: Mapping[str, Array], tokens: list[int], seen: Seen = everything) -> Array:
    """Logits [T, V] of one sequence. `weights` are the model's, as float64 arrays under their names.

    `seen` says which of a head's keys and values a query sees, and rounded how.
    """
    c, w = config, weights
    D, group = c.head_dim, c.n_heads // c.n_kv_heads
    stream = [w["embedding"][token] for token in tokens]  # T vectors [d_model]
    for layer in range(c.n_layers):
        p = {name: w[f"layers.{layer}.{name}"] for name in
             ("attention_norm", "qkv", "attention_out", "mlp_norm", "gate_up", "down")}  # fmt: skip
        keys: list[list[Array]] = [[] for _ in range(c.n_kv_heads)]  # keys[h][position]
        values: list[list[Array]] = [[] for _ in range(c.n_kv_heads)]
        for position, x in enumerate(stream):
            projected = p["qkv"] @ rms_norm(x, p["attention_norm"], c.norm_eps)
            heads = [projected[i * D : (i + 1) * D] for i in range(c.n_heads + 2 * c.n_kv_heads)]
            for h in range(c.n_kv_heads):
                keys[h].append(rotated(heads[c.n_heads + h], position, c.rope_theta, c.rope_factors))
                values[h].append(heads[c.n_heads + c.n_kv_heads + h])
            mixed = []
            for h in range(c.n_heads):  # the keys gathered so far are those of positions 0 … position
                query = rotated(heads[h], position, c.rope_theta, c.rope_factors)
                mixed.append(attended(query, *seen(position, keys[h // group], values[h // group])))
            x = x + p["attention_out"] @ np.concatenate(mixed)
            both = p["gate_up"] @ rms_norm(x, p["mlp_norm"], c.norm_eps)
            gate, up = both[: c.d_ff], both[c.d_ff :]
            stream[position] = x + p["down"] @ (gate / (1 + np.exp(-gate)) * up)  # SwiGLU (Shazeer 2020)
    head = w["embedding"] if c.tied_head else w["head"]
    return np.array([head @ rms_norm(x, w["final_norm"], c.norm_eps) for x in stream])
