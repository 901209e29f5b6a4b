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
)  # fmt: skip
HYBRIDS = ("jamba", "zamba", "zamba2")
HYBRID = (
    "attn_layer_period", "layers_block_type", "hybrid_layer_ids", "mamba_d_state", "state_size", "ssm_state_size",
    "kv_channels",
)  # fmt: skip
ENCODED = ("is_encoder_decoder", "decoder_layers", "num_decoder_layers", "decoder_attention_heads", "d_kv")
OF_FALCON = ("new_decoder_architecture", "num_kv_heads", "n_head_kv")
LATENT = ("kv_lora_rank", "v_head_dim")
UNDERSTOOD: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(HYBRIDS, HYBRID), "gemma3n_text": ("num_kv_shared_layers",),
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


def check_family(fields: Fields, kind: str) -> None:
    """Raise SizingError for a field that a known family does not have, and that would change the cache if it did."""
    understood = UNDERSTOOD.get(kind, ())
    strange = [name for name in (*STRANGE, "kv_lora_rank") if name not in understood]
    problem = "is no field of this family, and what it would mean for the cache is not known"
    fields.refuse(strange, problem)
    windows = ("sliding_window", "layer_types") if kind in NO_WINDOW else ("sliding_window",) if kind in HYBRIDS else ()
    for name in windows:
        if name in fields:
            raise fields.fail(name, problem)
