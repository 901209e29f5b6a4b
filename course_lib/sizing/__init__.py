"""Bytes of a KV cache: from a model's shape, from its config.json, and what then fits into a memory.

    kv_cache_bytes(n_layers=32, tokens=8192, n_kv_heads=8, head_dim=128, bytes_per_element=2)
    cache_shape("llama-3-8b").bytes(tokens=8192, sequences=8)

The one idea: a sum over layers of slots times the bytes of a slot, in whole numbers. Nothing here needs torch.
"""

from course_lib.sizing.bytes import (
    TYPE_NAMES,
    CacheShape,
    ElementType,
    Kind,
    LayerCache,
    LayerGroup,
    element_type,
    kv_cache_bytes,
)
from course_lib.sizing.config import read_config, read_config_file
from course_lib.sizing.memory import Fit, how_many_fit, left_out
from course_lib.sizing.models import cache_shape, model_names, preset, preset_config
from course_lib.sizing.quantities import SizingError, in_unit, in_words, parse_size, short_words

__all__ = [
    "TYPE_NAMES", "CacheShape", "ElementType", "Fit", "Kind", "LayerCache", "LayerGroup", "SizingError", "cache_shape",
    "element_type", "how_many_fit", "in_unit", "in_words", "kv_cache_bytes", "left_out", "model_names", "parse_size",
    "preset", "preset_config", "read_config", "read_config_file", "short_words",
]  # fmt: skip
