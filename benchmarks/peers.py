"""The same weights in the transformers library, which the benchmarks are measured against."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from course_lib.model import Transformer


def as_transformers(model: Transformer) -> LlamaForCausalLM:
    """A LlamaForCausalLM with the weights, dtype and device of `model`, in memory as transformers keeps them."""
    c = model.config
    if c.rope_factors is not None:
        raise ValueError("rope_factors are not translated: measure a model without them")
    config = LlamaConfig(
        vocab_size=c.vocab_size,
        hidden_size=c.d_model,
        num_hidden_layers=c.n_layers,
        num_attention_heads=c.n_heads,
        num_key_value_heads=c.n_kv_heads,
        head_dim=c.head_dim,
        intermediate_size=c.d_ff,
        max_position_embeddings=c.max_positions,
        rope_parameters={"rope_type": "default", "rope_theta": c.rope_theta},
        rms_norm_eps=c.norm_eps,
        tie_word_embeddings=c.tied_head,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=0,
    )
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
