"""Latent attention: both ways of computing it agree with a loop in NumPy, in every way of feeding, and the bytes with
the sizes of real models."""

from math import cos, exp, sin, sqrt

import numpy as np
import pytest
import torch

from course_lib.latent import LatentAttention, LatentShape

SHAPE = LatentShape(d_model=20, n_heads=3, head_dim=6, rotated_dim=4, latent_dim=7)
Array = np.ndarray


def turned(x: Array, position: int) -> Array:
    half, out = len(x) // 2, np.empty_like(x)
    for i in range(half):
        angle = position * SHAPE.rope_theta ** (-2 * i / len(x))
        out[i], out[i + half] = (
            x[i] * cos(angle) - x[i + half] * sin(angle),
            x[i] * sin(angle) + x[i + half] * cos(angle),
        )
    return out


def by_hand(layer: LatentAttention, text: Array) -> Array:
    """Attention [T, d_model] of one row, one token, one head and one key at a time."""
    down, keys, values, queries, out = (
        w.numpy() for w in (layer.to_cache, layer.to_keys, layer.to_values, layer.to_queries, layer.out)
    )
    C, D = SHAPE.latent_dim, SHAPE.head_dim
    results, seen = [], []
    for position, x in enumerate(text):
        made = down @ x
        seen.append((made[:C], turned(made[C:], position)))
        heads = []
        for h in range(SHAPE.n_heads):
            q = queries[h] @ x
            content, rotated = q[:D], turned(q[D:], position)
            scores = [
                float(content @ (keys[h] @ latent) + rotated @ key) / sqrt(D + SHAPE.rotated_dim)
                for latent, key in seen
            ]
            weights = [exp(score - max(scores)) for score in scores]
            heads.append(sum(w * (values[h] @ latent) for w, (latent, _) in zip(weights, seen)) / sum(weights))
        results.append(out @ np.concatenate(heads))
    return np.array(results)


@pytest.mark.parametrize("way", ["expanded", "absorbed"])
@pytest.mark.parametrize("chunks", [(9,), (1,) * 9, (4, 1, 3, 1), (1, 8)])
def test_both_ways_give_what_a_loop_gives_however_the_text_is_fed(way: str, chunks: tuple[int, ...]) -> None:
    layer = LatentAttention(SHAPE)
    text = torch.randn(2, 9, SHAPE.d_model, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    cache, got = layer.empty(2), []
    for piece in text.split(chunks, dim=1):
        cache = layer.append(piece, cache)
        got.append(getattr(layer, way)(piece, cache))
    assert cache.shape == (2, 9, 11)
    for row in range(2):
        expected = by_hand(layer, text[row].numpy())
        assert np.abs(torch.cat(got, dim=1)[row].numpy() - expected).max() < 1e-12


def test_what_is_kept_has_no_factor_two_and_no_heads() -> None:
    """DeepSeek-V2: 512 + 64 numbers a token and layer, where 128 heads of 128 + 64 and 128 would take 40,960."""
    real = LatentShape(d_model=5120, n_heads=128, head_dim=128, rotated_dim=64, latent_dim=512)
    assert (real.cached, real.cached_by_heads) == (576, 40_960)
    layer = LatentAttention(SHAPE)
    cache = layer.append(torch.zeros(1, 5, SHAPE.d_model, dtype=torch.float64), layer.empty(1))
    assert cache.nbytes == 5 * SHAPE.cached * 8


@pytest.mark.parametrize("change", [{"rotated_dim": 3}, {"latent_dim": 0}, {"n_heads": 2.0}])
def test_a_shape_that_no_layer_has_is_refused_by_name(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        LatentShape(**{**SHAPE.__dict__, **change})  # type: ignore[arg-type]
