"""The bytes that the library tells against the cache objects of `transformers`, filled by its own models.

The models have their real shapes and no weights: they run on torch's meta device, which computes shapes only. What
their caches then hold is counted tensor by tensor, by nobody's formula.
"""

import json
from typing import Any

import pytest
import torch

from course_lib.sizing import Kind, preset, preset_config, read_config

transformers = pytest.importorskip("transformers", minversion="5.0")

# One model of each architecture, and a second where they differ in what the cache rests on.
MODELS = (
    "gpt2", "opt-6.7b", "bloom-176b", "gpt-neox-20b", "falcon-7b", "falcon-40b", "starcoder-15.5b", 
    "llama-3-8b", "mistral-7b-v0.1", "mixtral-8x7b", "qwen2.5-7b", "qwen3-0.6b", "phi-3-mini-4k",
    "gemma-2-2b", "gemma-3-1b", "gpt-oss-20b", "deepseek-v2-lite", "deepseek-v3", "jamba-v0.1",
    "zamba-7b-v1", "zamba2-2.7b", "t5-base", "whisper-large-v3",
)  # fmt: skip
# Fields that have nothing to do with the cache, and that the classes want or that make a model quick to build.
ALSO: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    "deepseek_v3": {"n_routed_experts": 8, "n_group": 1, "topk_group": 1},
    "whisper": {"encoder_layers": 1, "encoder_attention_heads": 20},
}


def their_model(config: dict[str, Any]) -> torch.nn.Module:
    """The model of transformers for a config, without weights. Of a multimodal one the language model."""
    config = config.get("text_config", config)
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(**(config | ALSO.get(kind, {})))
    with torch.device("meta"):
        return transformers.AutoModel.from_config(made, dtype=torch.bfloat16).eval()


def fill(model: torch.nn.Module, rows: int, tokens: int, cache: Any = None, encoder_tokens: int = 7) -> Any:
    """The cache after a pass over so many new tokens of each row."""
    ids = torch.zeros(rows, tokens, dtype=torch.long, device="meta")
    words: dict[str, Any] = {"input_ids": ids}
    if model.config.model_type == "t5":
        words = {
            "input_ids": torch.zeros(rows, encoder_tokens, dtype=torch.long, device="meta"),
            "decoder_input_ids": ids,
        }
    elif model.config.model_type == "whisper":
        sound = torch.zeros(rows, model.config.num_mel_bins, 3000, dtype=torch.bfloat16, device="meta")
        words = {"input_features": sound, "decoder_input_ids": ids}
    with torch.no_grad():
        return model(**words, cache=cache, use_cache=True).cache


def held_bytes(cache: Any) -> int:
    """Bytes of all keys and values that a cache of transformers holds; the states of Mamba layers are neither."""
    if isinstance(cache, transformers.EncoderDecoderCache):
        return held_bytes(cache.self_attention_cache) + held_bytes(cache.cross_attention_cache)
    tensors = [getattr(layer, part, None) for layer in cache.layers for part in ("keys", "values")]
    return sum(tensor.nbytes for tensor in tensors if tensor is not None)


@pytest.mark.parametrize("name", MODELS)
def test_the_cache_of_transformers_holds_the_bytes_that_the_library_tells(name: str) -> None:
    shape, model = preset(name), their_model(preset_config(name))
    encoder = 7 if name == "t5-base" else None
    cache = fill(model, rows=2, tokens=9)
    held = held_bytes(cache)
    assert held == shape.bytes_in_transformers(9, 2, encoder_tokens=encoder) > 0
    if shape.in_transformers is None:  # no window is full, nothing is repeated: it holds what is needed
        assert held == shape.bytes(9, 2, encoder_tokens=encoder)
    else:
        assert held > shape.bytes(9, 2, encoder_tokens=encoder)
    windows = [layer.window for layer in shape.layers if layer.window is not None]
    for more in [windows[0] - 10, 1, 6] if windows else []:  # one row less than the window, the window, past it
        before = cache.get_seq_length()
        cache = fill(model, 2, more, cache)
        assert held_bytes(cache) == shape.bytes_in_transformers(before + more, 2), f"{before + more} tokens"
    if windows:
        assert cache.get_seq_length() == windows[0] + 6
        assert held_bytes(cache) < shape.bytes(windows[0] + 6, 2)


def test_only_falcon_40b_is_stored_with_repeated_heads() -> None:
    repeats = {name for name in MODELS if preset(name).in_transformers is not None}
    assert repeats == {"falcon-40b"}


# Configs that are small and odd: what a class fills in or takes from elsewhere, and shapes no published model has.
BASE = {"num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32}
SMALL: dict[str, dict[str, Any]] = {
    "llama without KV heads": {"model_type": "llama"} | {k: v for k, v in BASE.items() if "key" not in k},
    "llama with wide heads": {"model_type": "llama", "head_dim": 24} | BASE,
    "mistral without a window": {"model_type": "mistral", "sliding_window": None} | BASE,
    "mistral that says nothing of its window": {"model_type": "mistral"} | BASE,
    "qwen2 with a window from the third layer on": {
        "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 2,
    } | BASE,
    "qwen2 with layer types": {
        "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 6,
        "layer_types": ["full_attention", *["sliding_attention"] * 5, "full_attention"],
    } | BASE,
    "qwen3 without head_dim": {"model_type": "qwen3"} | BASE,
    "qwen3 of experts": {"model_type": "qwen3_moe", "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2} | BASE,
    "qwen3 of experts without head_dim": {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2} | BASE,
    "gemma": {"model_type": "gemma", "head_dim": 20} | BASE,
    "gemma 2 of seven layers": {"model_type": "gemma2", "head_dim": 10, "sliding_window": 6} | BASE,
    "gemma 3 with every third layer global": {
        "model_type": "gemma3_text", "head_dim": 10, "sliding_window": 6, "sliding_window_pattern": 3,
    } | BASE,
    "gemma 3n that shares layers": {
        "model_type": "gemma3n_text", "head_dim": 8, "sliding_window": 6, "num_kv_shared_layers": 2,
        "num_hidden_layers": 12, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 32,
        "intermediate_size": 16,
    },
    "gpt-oss with layer types": {
        "model_type": "gpt_oss", "head_dim": 8, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1,
        "layer_types": ["full_attention"] * 3 + ["sliding_attention"] * 4,
    } | BASE,
    "starcoder of many KV heads": {
        "model_type": "gpt_bigcode", "multi_query": False, "n_layer": 3, "n_head": 4, "n_embd": 32,
    },
    "starcoder 2 with a window": {"model_type": "starcoder2", "sliding_window": 5} | BASE,
    "falcon with a KV head for each": {
        "model_type": "falcon", "multi_query": False, "num_hidden_layers": 3, "num_attention_heads": 4,
        "hidden_size": 32,
    },
    "falcon whose num_kv_heads lies": {
        "model_type": "falcon", "multi_query": True, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_kv_heads": 4, "hidden_size": 32,
    },
    "jamba that attends at odd places": {
        "model_type": "jamba", "attn_layer_period": 3, "attn_layer_offset": 2, "num_experts": 2, "mamba_d_state": 4,
        "intermediate_size": 16,
    } | BASE,
    "zamba of ten layers": {
        "model_type": "zamba", "num_hidden_layers": 10, "num_attention_heads": 4, "num_key_value_heads": 4,
        "hidden_size": 32, "attn_layer_period": 4, "attn_layer_offset": 1, "intermediate_size": 16, "mamba_d_state": 4,
    },
    "a model not known, with layer types": {
        "model_type": "olmo3", "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention"] * 3 + ["full_attention"],
    } | BASE,
    "a model not known, without windows": {"model_type": "granite"} | BASE,
    "a model not known, latent": {
        "model_type": "minicpm3", "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 8,
        "q_lora_rank": 8,
    } | BASE | {"num_key_value_heads": 4},
    "a model not known, latent in some layers": {
        "model_type": "bailing_hybrid", "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
        "v_head_dim": 8, "num_experts": 16, "layer_types": ["linear_attention"] * 3 + ["full_attention"] * 4,
        "num_hidden_layers": 7, "num_attention_heads": 4, "num_key_value_heads": 4, "hidden_size": 32,
        "intermediate_size": 16, "moe_intermediate_size": 16,
    },
    "t5 of two depths": {
        "model_type": "t5", "num_layers": 2, "num_decoder_layers": 5, "num_heads": 3, "d_kv": 6, "d_model": 16,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL)
def test_small_and_odd_models_agree_too(name: str) -> None:
    config = SMALL[name]
    shape, model = read_config(config), their_model(config)
    encoder = 7 if config["model_type"] == "t5" else None
    cache = None
    for tokens in (3, 1, 9):  # 13 in all
        cache = fill(model, 2, tokens, cache)
    assert held_bytes(cache) == shape.bytes_in_transformers(13, 2, encoder_tokens=encoder) > 0


def test_a_nested_config_that_leaves_out_what_its_class_fills_in() -> None:
    """google/gemma-3-4b-it: its text_config gives neither heads nor head_dim."""
    inner = {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}
    shape = read_config({"model_type": "gemma3", "text_config": inner})
    assert shape.layers == preset("gemma-3-4b").layers
    assert sum("num_attention_heads" in sentence or "head_dim" in sentence for sentence in shape.assumptions) == 2
    assert held_bytes(fill(their_model(inner), 2, 9)) == shape.bytes(9, 2)


@pytest.mark.parametrize(
    "kind", ["llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text", "gemma3n_text"]
)
def test_an_empty_nested_config_is_what_its_class_says(kind: str) -> None:
    """Only the class knows such a model: layers, heads, dimension and windows of its default."""
    shape = read_config({"model_type": "something_multimodal", "text_config": {"model_type": kind}})
    theirs = transformers.AutoConfig.for_model(kind)
    cache = transformers.DynamicCache(config=theirs)
    own = [layer for layer in shape.layers if layer.kind is not Kind.SHARED]
    assert len(own) == sum(not type(layer).__name__.startswith("Dummy") for layer in cache.layers)
    assert len(shape.layers) == theirs.num_hidden_layers
    assert [layer.window for layer in own] == [
        getattr(layer, "sliding_window", None) for layer in cache.layers[: len(own)]
    ]
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert {(layer.n_kv_heads, layer.key_dim, layer.value_dim) for layer in own} == {
        (theirs.num_key_value_heads, head_dim, head_dim)
    }


@pytest.mark.parametrize("name", [*MODELS, *SMALL])
def test_a_config_that_transformers_saved_tells_the_same(name: str) -> None:
    """It writes down what its classes fill in, also where that misleads: 71 num_kv_heads for Falcon-7B's one."""
    config = SMALL[name] if name in SMALL else preset_config(name)
    inner = config.get("text_config", config)
    saved = transformers.AutoConfig.for_model(**(inner | ALSO.get(inner["model_type"], {}))).to_json_string()
    told, expected = read_config(json.loads(saved)), read_config(config)
    assert told.layers == expected.layers and told.in_transformers == expected.in_transformers
