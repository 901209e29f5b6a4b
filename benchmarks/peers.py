"""The same weights in the transformers library, which the benchmarks are measured against."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from course_lib.model import ModelConfig, Transformer


def peer_config(config: ModelConfig, rope: dict[str, object] | None = None) -> LlamaConfig:
    """The same shape as transformers describes it; `rope` are its rope_parameters where rotations are scaled."""
    return LlamaConfig(
        vocab_size=config.vocab_size,
        hidden_size=config.d_model,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        num_key_value_heads=config.n_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.d_ff,
        max_position_embeddings=config.max_positions,
        rope_parameters=rope or {"rope_type": "default", "rope_theta": config.rope_theta},
        rms_norm_eps=config.norm_eps,
        tie_word_embeddings=config.tied_head,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )


def as_transformers(model: Transformer) -> LlamaForCausalLM:
    """A LlamaForCausalLM with the weights, dtype and device of `model`, in memory as transformers keeps them."""
    if model.config.rope_factors is not None:
        raise ValueError("rope_factors are not translated: measure a model without them")
    config = peer_config(model.config)
    peer = AutoModelForCausalLM.from_config(config, dtype=model.dtype).to(model.device).eval()
    peer.load_state_dict(peer_weights(model), strict=True)
    return peer


def peer_weights(model: Transformer) -> dict[str, torch.Tensor]:
    """The weights of `model` under the names that transformers gives them, the fused matrices taken apart."""
    c, weights = model.config, {"model.embed_tokens.weight": model.embedding, "model.norm.weight": model.final_norm}
    weights["lm_head.weight"] = model.embedding if model.head is None else model.head
    heads = (c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim, c.n_kv_heads * c.head_dim)
    for index, layer in enumerate(model.layers):
        prefix = f"model.layers.{index}."
        for name, part in zip("qkv", layer.qkv.split(heads), strict=True):
            weights[f"{prefix}self_attn.{name}_proj.weight"] = part
        for name, part in zip(("gate", "up"), layer.gate_up.chunk(2), strict=True):
            weights[f"{prefix}mlp.{name}_proj.weight"] = part
        weights[f"{prefix}self_attn.o_proj.weight"] = layer.attention_out
        weights[f"{prefix}mlp.down_proj.weight"] = layer.down
        weights[f"{prefix}input_layernorm.weight"] = layer.attention_norm
        weights[f"{prefix}post_attention_layernorm.weight"] = layer.mlp_norm
    return weights
