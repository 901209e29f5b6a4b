"""The shapes whose arithmetic and bytes are counted: every number is different, so that none can stand for another."""

import dataclasses

import pytest

from course_lib.model import ModelConfig

SHAPE = ModelConfig(
    vocab_size=61, n_layers=3, d_model=40, n_heads=6, n_kv_heads=2, head_dim=8, d_ff=52, max_positions=256
)
SHAPES = {
    "grouped heads, head_dim not d_model / n_heads": SHAPE,
    "as many KV heads as heads": dataclasses.replace(SHAPE, n_kv_heads=6),
    "one KV head, a head of its own": dataclasses.replace(SHAPE, n_kv_heads=1, tied_head=False),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
