"""What a config may say, family by family: fields that would change the cache, and defaults that a class fills in.

The one idea: a field that a reader does not read must not be one that matters. Where a family does not have it, it is
an error, not ignored.
"""

from collections.abc import Mapping
from typing import Any

from course_lib.sizing.fields import Fields

# What changes a cache in ways that only the code of the model tells: a config with one of these must be a known one.
STRANGE = (
    "is_encoder_decoder", "encoder", "decoder", "decoder_layers", "num_decoder_layers", "decoder_attention_heads",
    "d_kv", "new_decoder_architecture", "num_kv_heads", "n_head_kv", "attn_config", "multi_query_attention",
    "multi_query_group_num", "kv_channels", "dim_head", "n_recurrent_loops", "zero_expert_num", "chunkwise_kernel",
    "cross_attention_layers", "num_kv_shared_layers", "attention_chunk_size", "attn_layer_period", "attn_layer_indices",
    "layers_block_type", "hybrid_layer_ids", "hybrid_override_pattern", "block_types", "full_attention_interval",
    "full_attn_idxs", "linear_attn_config", "linear_num_key_heads", "ssm_cfg", "ssm_state_size", "state_size",
    "mamba_d_state", "mamba_d_ssm", "rwkv_version", "index_head_dim", "compress_ratios", "num_global_key_value_heads",
    "global_head_dim", "attention_k_eq_v", "per_layer_config", "block_configs", "v_head_dim", "swa_head_dim",
    # Heads, windows and layers under other names, caches that layers share, and encoders:
    "attn_type_list", "attention_types", "num_attention_groups", "num_query_groups", "num_key_value_groups",
    "num_kv_groups", "num_key_value_heads_per_layer", "swa_num_key_value_heads", "hybrid_layer_pattern",
    "sliding_window_size", "attention_window", "use_cla", "cla_share_factor", "global_attn_every_n_layers",
    "dense_attention_every_n_layers", "add_cross_attention", "cross_attention_hidden_size",
)  # fmt: skip
# What is refused if it is false: it takes away what the family, or an unknown model read like Llama, is taken to have.
NOT_FALSE: Mapping[str, str] = {
    "is_decoder": "makes an encoder of it, which keeps no cache",
    "use_mla": "says that the latent is not used, and what is kept instead only the model's code tells",
}
# Models that read the whole text at once and keep nothing of it for a next token.
ENCODERS = (
    "albert", "bert", "big_bird", "camembert", "clip", "clip_text_model", "clip_vision_model", "deberta", "deberta-v2",
    "distilbert", "electra", "longformer", "modernbert", "mpnet", "roberta", "siglip", "siglip_text_model",
    "siglip_vision_model", "vit", "wav2vec2", "xlm-roberta",
)  # fmt: skip
CHUNKED = ("llama4", "llama4_text")  # with or without attention_chunk_size, which their class fills in
MAY_SHARE = ("gpt_bigcode", "falcon", "RefinedWeb", "RefinedWebModel")  # the families with multi_query
HYBRIDS = ("jamba", "zamba", "zamba2")
HYBRID = (
    "attn_layer_period", "layers_block_type", "hybrid_layer_ids", "mamba_d_state", "state_size", "ssm_state_size",
    "kv_channels",
)  # fmt: skip
ENCODED = ("is_encoder_decoder", "decoder_layers", "num_decoder_layers", "decoder_attention_heads", "d_kv")
OF_FALCON = ("new_decoder_architecture", "num_kv_heads", "n_head_kv")
LATENT = ("kv_lora_rank", "v_head_dim")
UNDERSTOOD: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(HYBRIDS, HYBRID), "zamba2": (*HYBRID, "num_query_groups"),
    "gemma3n_text": ("num_kv_shared_layers",),
    "deepseek_v2": LATENT, "deepseek_v3": LATENT, "t5": ENCODED, "mt5": ENCODED, "whisper": ENCODED,
    "falcon": OF_FALCON, "RefinedWeb": OF_FALCON, "RefinedWebModel": OF_FALCON,
}  # fmt: skip
NO_WINDOW = (
    "gpt2", "opt", "bloom", "gpt_neox", "gpt_bigcode", "falcon", "RefinedWeb", "RefinedWebModel", "deepseek_v2",
    "deepseek_v3", "t5", "mt5", "whisper",
)  # fmt: skip

# What the classes of transformers 5.24 fill in where a nested config is silent.
LLAMA_7B = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096}
INSIDE: Mapping[str, Mapping[str, Any]] = {
    "llama": LLAMA_7B,
    "mistral": LLAMA_7B | {"num_key_value_heads": 8, "sliding_window": 4096},
    "mixtral": LLAMA_7B | {"num_key_value_heads": 8},
    "qwen2": LLAMA_7B | {"num_key_value_heads": 32, "max_window_layers": 28, "sliding_window": 4096},
    "qwen3": LLAMA_7B | {"num_key_value_heads": 32, "head_dim": 128, "max_window_layers": 28, "sliding_window": 4096},
    "phi3": LLAMA_7B | {"hidden_size": 3072},
    "gemma2": {
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_size": 2304, "sliding_window": 4096,
    },
    "gemma3_text": {
        "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "hidden_size": 2304, "sliding_window": 4096,
    },
    "gemma3n_text": {
        "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
        "hidden_size": 2048, "sliding_window": 512, "num_kv_shared_layers": 15,
    },
}  # fmt: skip


def check_kind(fields: Fields, kind: str | None) -> None:
    """Raise SizingError for a kind of model that keeps no cache, or one that no reader describes."""
    if kind in ENCODERS and fields.values.get("is_decoder") is not True:
        raise fields.fail("model_type", "is an encoder: it reads a text at once and keeps no KV cache")
    if kind in CHUNKED:
        raise fields.fail(
            "attention_chunk_size" if "attention_chunk_size" in fields else "model_type",
            "attends within chunks (attention_chunk_size), and what its layers keep is not known here",
        )


def refuse_contradictions(fields: Fields) -> None:
    """Raise SizingError if a field of a model not known says that it is not like Llama."""
    for name in NOT_FALSE:
        _refuse_false(fields, name)
    if fields.value("sliding_window") is None:
        fields.refuse(
            ("sliding_window_pattern",), "says that layers slide, but no sliding_window says how far they see"
        )


def _refuse_false(fields: Fields, name: str) -> None:
    if fields.flag(name, True) is False:
        raise fields.fail(name, NOT_FALSE[name])


def check_family(fields: Fields, kind: str) -> None:
    """Raise SizingError for a field that a known family does not have, and that would change the cache if it did."""
    understood = UNDERSTOOD.get(kind, ())
    strange = [name for name in (*STRANGE, "kv_lora_rank") if name not in understood]
    problem = "is no field of this family, and what it would mean for the cache is not known"
    fields.refuse(strange, problem)
    if kind not in MAY_SHARE:
        fields.refuse(("multi_query",), problem)
    if "kv_lora_rank" in understood:
        _refuse_false(fields, "use_mla")
    windows = ("sliding_window", "layer_types") if kind in NO_WINDOW else ("sliding_window",) if kind in HYBRIDS else ()
    for name in windows:
        if name in fields:
            raise fields.fail(name, problem)
