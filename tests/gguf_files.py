"""Tiny checkpoints for the tests of `course_lib.checkpoints`, written by the libraries that define the formats.

Hugging Face folders come from transformers' `save_pretrained`, GGUF files from `gguf.GGUFWriter` with the row order and
the names of llama.cpp's converter. Nothing here uses the loader's own tables.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

CONTROL = ["<|start|>", "<|im_end|>", "<|im_start|>"]
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def llama_config(**changes: Any) -> LlamaConfig:
    """A grouped-query model of 2 layers whose head_dim is not d_model / n_heads and whose rows fill blocks of 32."""
    shape: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    return LlamaConfig(**(shape | changes))


def llama(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """A random model of transformers, with norms that are not all ones: a swapped pair of norms must show."""
    torch.manual_seed(seed)
    model = LlamaForCausalLM(llama_config(**changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.1)
    return model


def byte_letters() -> list[str]:
    """The 256 letters of a byte-level vocabulary, as the tokenizers library spells them."""
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def vocabulary() -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens and merges of a small byte-level vocabulary of 320 tokens."""
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("Ã", "©"), ("Ġ", "a"), ("a", "b"), ("ab", "in")]
    tokens = [*CONTROL, *byte_letters(), *(left + right for left, right in merges)]
    return tokens + [f"[PAD{i}]" for i in range(len(tokens), 320)], merges


def hf_tokenizer(cut: Any = None) -> Tokenizer:
    tokens, merges = vocabulary()
    inner = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    inner.pre_tokenizer = cut or pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROL])
    return inner


def save_folder(folder: Path, model: LlamaForCausalLM, *, tokenizer: bool = False, **options: Any) -> Path:
    model.save_pretrained(folder, **options)
    if tokenizer:
        hf_tokenizer().save(str(folder / "tokenizer.json"))
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        (folder / "tokenizer_config.json").write_text('{"bos_token": "<|start|>", "eos_token": "<|im_end|>"}')
    return folder


def change_config(folder: Path, **changes: Any) -> None:
    """Set fields of the folder's config.json; the value "REMOVED" takes one out."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value != "REMOVED"}))


def permute(weights: np.ndarray, heads: int) -> np.ndarray:
    """The row order that llama.cpp's converter gives to q and k: rows i and i + D/2 side by side."""
    return (
        weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
        .swapaxes(1, 2)
        .reshape(weights.shape)
    )


def gguf_tensors(model: LlamaForCausalLM) -> dict[str, np.ndarray]:
    """The model's weights under llama.cpp's names and in its order."""
    config, state = model.config, {name: value.numpy() for name, value in model.state_dict().items()}
    tensors = {
        "token_embd.weight": state["model.embed_tokens.weight"],
        "output_norm.weight": state["model.norm.weight"],
    }
    if not config.tie_word_embeddings:
        tensors["output.weight"] = state["lm_head.weight"]
    for i in range(config.num_hidden_layers):
        ours, theirs = f"blk.{i}.", f"model.layers.{i}."
        q, k = (state[f"{theirs}self_attn.{name}_proj.weight"] for name in "qk")
        tensors |= {
            ours + "attn_norm.weight": state[theirs + "input_layernorm.weight"],
            ours + "attn_q.weight": permute(q, config.num_attention_heads),
            ours + "attn_k.weight": permute(k, config.num_key_value_heads),
            ours + "attn_v.weight": state[theirs + "self_attn.v_proj.weight"],
            ours + "attn_output.weight": state[theirs + "self_attn.o_proj.weight"],
            ours + "ffn_norm.weight": state[theirs + "post_attention_layernorm.weight"],
            ours + "ffn_gate.weight": state[theirs + "mlp.gate_proj.weight"],
            ours + "ffn_up.weight": state[theirs + "mlp.up_proj.weight"],
            ours + "ffn_down.weight": state[theirs + "mlp.down_proj.weight"],
        }
    return tensors


def gguf_metadata(model: LlamaForCausalLM, *, tokenizer: bool = True) -> dict[str, Any]:
    """Metadata as the converter writes them; whole numbers become uint32, floats float32."""
    config = model.config
    fields: dict[str, Any] = {
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.key_length": config.head_dim,
        "llama.attention.value_length": config.head_dim,
        "llama.rope.dimension_count": config.head_dim,
        "llama.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.vocab_size": config.vocab_size,
    }
    if tokenizer:
        tokens, merges = vocabulary()
        fields |= {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "gpt-2",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if token in CONTROL else 1 for token in tokens],
            "tokenizer.ggml.merges": [" ".join(pair) for pair in merges],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 1,
            "tokenizer.chat_template": TEMPLATE,
        }
    return fields


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, np.ndarray],
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    architecture: str = "llama",
    big_endian: bool = False,
) -> Path:
    """Write a GGUF file. Matrices are stored as `kind`, vectors as float32."""
    from gguf import GGUFEndian

    writer = GGUFWriter(path, architecture, endianess=GGUFEndian.BIG if big_endian else GGUFEndian.LITTLE)
    for key, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32, str: writer.add_string}
        add.get(type(value), writer.add_array)(key, value)
    for name, values in tensors.items():
        if values.ndim == 2 and kind is not GGMLQuantizationType.F32:
            packed = quantize(values, kind)
            writer.add_tensor(name, packed, raw_dtype=kind if packed.dtype == np.uint8 else None)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
