"""Loads a Llama-family model from a GGUF file: metadata to ModelConfig, quantised tensors to weights.

The one idea: what the file says beyond what our model can do is an error, never ignored. A scaled attention or a
second set of experts that is left out gives fluent nonsense, and nobody would look for the reason here. The metadata
keys and their defaults are those of llama.cpp (`llama_model_base::load_hparams`); the tokenizer is in
`gguf_tokenizer.py`.
"""

from pathlib import Path

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.gguf_header import GGUFHeader, TensorEntry, read_header
from course_lib.checkpoints.weights import MAX_HEAD_DIM, MAX_POSITIONS, Part, assemble, check_plan, plan_weights
from course_lib.model import ModelConfig, Transformer

ARCHITECTURES = ("llama",)

NAMES = {
    "embedding": "token_embd.weight",
    "attention_norm": "blk.{i}.attn_norm.weight",
    "q": "blk.{i}.attn_q.weight",
    "k": "blk.{i}.attn_k.weight",
    "v": "blk.{i}.attn_v.weight",
    "attention_out": "blk.{i}.attn_output.weight",
    "mlp_norm": "blk.{i}.ffn_norm.weight",
    "gate": "blk.{i}.ffn_gate.weight",
    "up": "blk.{i}.ffn_up.weight",
    "down": "blk.{i}.ffn_down.weight",
    "final_norm": "output_norm.weight",
    "head": "output.weight",
}
ROPE_FACTORS = "rope_freqs.weight"

# Keys that change what a model computes in a way ours cannot, with the values that change nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "llama.expert_count": (0,),
    "llama.attention.causal": (True,),
    "llama.attention.clamp_kqv": (0,),
    "llama.attention.max_alibi_bias": (0,),
    "llama.attention.scale": (0,),
    "llama.attention.sliding_window": (0,),
    "llama.attn_logit_softcapping": (0,),
    "llama.final_logit_softcapping": (0,),
    "llama.embedding_scale": (0, 1),
    "llama.logit_scale": (0, 1),
    "llama.residual_scale": (0, 1),
    "llama.rope.scaling.attn_factor": (0, 1),
    "llama.use_parallel_residual": (False,),
    "split.count": (0, 1),  # a model in several files
}
PLAIN = {
    GGMLQuantizationType.F64: np.float64,
    GGMLQuantizationType.F32: np.float32,
    GGMLQuantizationType.F16: np.float16,
}


def load_gguf(path: Path, dtype: torch.dtype, device: torch.device) -> tuple[Transformer, GGUFHeader]:
    """The model in the GGUF file at `path` and the file's header, which the tokenizer is made from.

    Raises CheckpointError for a damaged file, another architecture, a setting or a tensor that the model has no place
    for.
    """
    header = read_header(path)
    config = read_config(header)
    plan = plan_weights(config, NAMES)
    check_plan(plan, {name: entry.shape for name, entry in header.tensors.items() if name != ROPE_FACTORS}, str(path))

    def read(part: Part) -> Tensor:
        weights = read_tensor(header, header.tensors[part.name])
        return unpermute(weights, part.rotated_heads) if part.rotated_heads else weights

    return assemble(config, plan, read, str(path), dtype, device), header


def read_config(header: GGUFHeader) -> ModelConfig:
    """The shape of the model as the metadata tell it, compared with the tensors that are there."""
    architecture = header.text("general.architecture")
    if architecture not in ARCHITECTURES:
        raise CheckpointError(
            f"{header.path}: the architecture {architecture!r} is not supported; supported: {', '.join(ARCHITECTURES)}"
        )
    for key, neutral in NEUTRAL.items():
        value = header.metadata.get(key, neutral[0])
        if isinstance(value, np.ndarray) or value not in neutral:
            raise CheckpointError(f"{header.path}: {key} = {value!r:.80} is not supported by this model")
    n_heads, d_model = header.count("llama.attention.head_count"), header.count("llama.embedding_length")
    n_layers = header.count("llama.block_count")
    if n_layers * 2 > len(header.tensors):
        raise CheckpointError(
            f"{header.path}: llama.block_count is {n_layers:,}, but there are {len(header.tensors)} tensors"
        )
    try:
        head_dim = _head_dim(header, d_model // n_heads if n_heads else 0)
        return ModelConfig(
            vocab_size=_vocab_size(header),
            n_layers=n_layers,
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=header.count("llama.attention.head_count_kv", n_heads),
            head_dim=head_dim,
            d_ff=header.count("llama.feed_forward_length"),
            max_positions=_max_positions(header),
            rope_theta=header.number("llama.rope.freq_base", 10_000.0),
            rope_factors=_rope_factors(header, head_dim),
            norm_eps=header.number("llama.attention.layer_norm_rms_epsilon"),
            tied_head=NAMES["head"] not in header.tensors,
        )
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{header.path}: the metadata describe no possible model: {error}") from error


def _head_dim(header: GGUFHeader, default: int) -> int:
    head_dim = header.count("llama.attention.key_length", header.count("llama.rope.dimension_count", default))
    if head_dim > MAX_HEAD_DIM:
        raise CheckpointError(f"{header.path}: heads of {head_dim:,} dimensions are not believed")
    for key in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if header.count(key, head_dim) != head_dim:
            raise CheckpointError(
                f"{header.path}: {key} is {header.count(key)}, the heads have {head_dim} dimensions; a model with "
                "heads that are rotated in part, or whose values have another size than their keys, is not supported"
            )
    return head_dim


def _vocab_size(header: GGUFHeader) -> int:
    """The rows of the embedding. What else claims a number of tokens must say the same."""
    name = NAMES["embedding"]
    if name not in header.tensors:
        raise CheckpointError(f"{header.path} lacks the tensor {name!r}")
    rows = header.tensors[name].shape[0]
    claimed = header.count("llama.vocab_size", rows)
    if claimed != rows:
        raise CheckpointError(f"{header.path}: llama.vocab_size is {claimed}, but {name!r} has {rows} rows")
    return rows


def _max_positions(header: GGUFHeader) -> int:
    length = header.count("llama.context_length")
    if length > MAX_POSITIONS:
        raise CheckpointError(
            f"{header.path}: llama.context_length is {length:,}; more than {MAX_POSITIONS:,} is not believed"
        )
    return length


def _rope_factors(header: GGUFHeader, head_dim: int) -> tuple[float, ...] | None:
    """One divisor per rotation frequency: the tensor of Llama 3.1 files, times a linear scaling if there is one."""
    scale = header.number("llama.rope.scaling.factor", header.number("llama.rope.scale_linear", 0.0)) or 1.0
    kind = header.text("llama.rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        raise CheckpointError(
            f"{header.path}: llama.rope.scaling.type = {kind!r} is not supported; none and linear are"
        )
    scale = scale if kind == "linear" else 1.0
    if (entry := header.tensors.get(ROPE_FACTORS)) is None:
        return None if scale == 1.0 else (scale,) * (head_dim // 2)
    if entry.shape != (head_dim // 2,):
        raise CheckpointError(
            f"{header.path}: tensor {ROPE_FACTORS!r} has shape {list(entry.shape)}, expected [{head_dim // 2}]"
        )
    return tuple(float(factor) * scale for factor in read_tensor(header, entry))


def read_tensor(header: GGUFHeader, entry: TensorEntry) -> Tensor:
    """The values of one tensor: as stored if it is a plain float, else dequantised to float32."""
    raw = header.data[entry.start : entry.start + entry.n_bytes].view(np.ndarray)
    if entry.kind in PLAIN:
        return torch.from_numpy(raw.view(PLAIN[entry.kind]).reshape(entry.shape))
    try:
        values = dequantize(raw.reshape(*entry.shape[:-1], -1), entry.kind)
    except NotImplementedError as error:
        raise CheckpointError(
            f"{header.path}: tensor {entry.name!r} is stored as {entry.kind.name}, which cannot be read here. "
            "Get the model in another quantisation, for example Q8_0, Q4_K or F16."
        ) from error
    return torch.from_numpy(values.reshape(entry.shape))


def unpermute(weights: Tensor, heads: int) -> Tensor:
    """Rows of q or k [heads * D, d_model] from GGUF's order to ours.

    GGUF keeps the two rows that rotate together side by side (0, 1), (2, 3), …; our RoPE, like Hugging Face's,
    rotates row i with row i + D/2. The converter moved them when it wrote the file (`LlamaModel.permute` in
    llama.cpp).
    """
    return weights.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weights.shape)
