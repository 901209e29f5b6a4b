"""Loads a Llama-family model from a Hugging Face folder: config.json, safetensors and tokenizer.json.

The one idea: only data is read. Weights come from safetensors files, never from pickles, which are programs; a field of
config.json that changes what the model computes and that ours cannot do is an error that names it.
"""

import json
import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.json_file import Fields, read_json
from course_lib.checkpoints.weights import MAX_HEAD_DIM, MAX_POSITIONS, Part, Shape, assemble, check_plan, plan_weights
from course_lib.model import ModelConfig, Transformer

MODEL_TYPES = ("llama", "mistral")
SAFE_DTYPES = ("F64", "F32", "F16", "BF16")
HEAD = "lm_head.weight"
LAYER = "model.layers.{i}."
NAMES = {
    "embedding": "model.embed_tokens.weight",
    "attention_norm": LAYER + "input_layernorm.weight",
    "q": LAYER + "self_attn.q_proj.weight",
    "k": LAYER + "self_attn.k_proj.weight",
    "v": LAYER + "self_attn.v_proj.weight",
    "attention_out": LAYER + "self_attn.o_proj.weight",
    "mlp_norm": LAYER + "post_attention_layernorm.weight",
    "gate": LAYER + "mlp.gate_proj.weight",
    "up": LAYER + "mlp.up_proj.weight",
    "down": LAYER + "mlp.down_proj.weight",
    "final_norm": "model.norm.weight",
    "head": HEAD,
}
# Fields that change what a model computes in a way ours cannot, with the values that change nothing.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "pretraining_tp": (1, None),
    "quantization_config": (None,),
    "partial_rotary_factor": (1, None),
}


def load_folder(folder: Path, dtype: torch.dtype, device: torch.device) -> Transformer:
    """The model in a Hugging Face folder.

    Raises CheckpointError for a model of another kind, a setting or a tensor that ours has no place for, a damaged or
    missing file.
    """
    fields = Fields(read_json(folder / "config.json"), folder / "config.json")
    placed = weight_files(folder)
    with ExitStack() as opened:
        tensors = _list_tensors({path: _open(path, opened) for path in placed}, placed)
        config = read_config(fields, len(tensors))
        plan = plan_weights(config, NAMES)
        # Old checkpoints hold the rotation frequencies as well, which follow from the configuration.
        found = {name: shape for name, (_, shape) in tensors.items() if not name.endswith("rotary_emb.inv_freq")}
        head = found.pop(HEAD, None) if config.tied_head else None
        check_plan(plan, found, str(folder))
        if head is not None:
            _check_tied_head(tensors, folder)

        def read(part: Part) -> Tensor:
            return tensors[part.name][0].get_tensor(part.name)

        return assemble(config, plan, read, str(folder), dtype, device)


def read_config(fields: Fields, n_tensors: int) -> ModelConfig:
    """The shape of the model as config.json tells it."""
    kind = fields.text("model_type")
    if kind not in MODEL_TYPES:
        raise fields.fail("model_type", f"is not supported; supported: {', '.join(MODEL_TYPES)}")
    for name, neutral in NEUTRAL.items():
        if name in fields.values and fields.values[name] not in neutral:
            raise fields.fail(name, "is not supported by this model")
    max_positions = fields.count("max_position_embeddings")
    if max_positions > MAX_POSITIONS:
        raise fields.fail("max_position_embeddings", f"is not believed: it is more than {MAX_POSITIONS:,}")
    # A Mistral configuration that says nothing about its window has one.
    window = fields.values.get("sliding_window", 4096) if kind == "mistral" else None
    if window is not None and window != max_positions:
        raise CheckpointError(
            f"{fields.where}: sliding_window = {window!r}, a window is not supported here; only null is"
        )
    n_layers, n_heads = fields.count("num_hidden_layers"), fields.count("num_attention_heads")
    if n_layers * 2 > n_tensors:
        raise fields.fail("num_hidden_layers", f"does not fit the {n_tensors} tensors that are there")
    d_model = fields.count("hidden_size")
    try:
        head_dim = fields.count("head_dim", d_model // n_heads if n_heads else 0)
        if head_dim > MAX_HEAD_DIM:
            raise CheckpointError(f"{fields.where}: heads of {head_dim:,} dimensions are not believed")
        rope_theta, rope_factors = read_rope(fields, head_dim)
        return ModelConfig(
            vocab_size=fields.count("vocab_size"),
            n_layers=n_layers,
            d_model=d_model,
            n_heads=n_heads,
            n_kv_heads=fields.count("num_key_value_heads", n_heads if kind == "llama" else None),
            head_dim=head_dim,
            d_ff=fields.count("intermediate_size"),
            max_positions=max_positions,
            rope_theta=rope_theta,
            rope_factors=rope_factors,
            norm_eps=fields.number("rms_norm_eps"),
            tied_head=fields.flag("tie_word_embeddings", False),
        )
    except CheckpointError:
        raise
    except ValueError as error:
        raise CheckpointError(f"{fields.where} describes no possible model: {error}") from error


def read_rope(fields: Fields, head_dim: int) -> tuple[float, tuple[float, ...] | None]:
    """theta and the divisors of the rotation frequencies, from `rope_parameters` or the older `rope_scaling`."""
    rope = fields.object("rope_scaling" if "rope_scaling" in fields else "rope_parameters")
    theta = rope.number("rope_theta", fields.number("rope_theta", 10_000.0))
    if rope.values.get("partial_rotary_factor", 1) not in (1, None):
        raise rope.fail("partial_rotary_factor", "is not supported: heads are rotated whole")
    name = "rope_type" if "rope_type" in rope or "type" not in rope else "type"
    kind = rope.text(name, "default")
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, (rope.number("factor"),) * (head_dim // 2)
    if kind == "llama3":
        return theta, _llama3_factors(rope, theta, head_dim)
    raise rope.fail(name, "is not supported; default, linear and llama3 are")


def _llama3_factors(rope: Fields, theta: float, head_dim: int) -> tuple[float, ...]:
    """Llama 3.1's scaling: slow frequencies are divided by `factor`, fast ones kept, those between blended.

    Source: `apply_scaling` in Meta's llama-models, models/llama3/model.py.
    """
    factor, low, high = (rope.number(name) for name in ("factor", "low_freq_factor", "high_freq_factor"))
    trained = rope.count("original_max_position_embeddings")
    if not (factor > 0 and 0 < low < high and trained > 0 and theta > 0):
        raise CheckpointError(
            f"{rope.where}: factor = {factor}, low_freq_factor = {low}, high_freq_factor = {high}, "
            f"original_max_position_embeddings = {trained} are no llama3 scaling (0 < low < high, the others positive)"
        )
    divisors = []
    for pair in range(head_dim // 2):
        turns = trained * theta ** (-2 * pair / head_dim) / (2 * math.pi)  # full turns within the trained context
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        divisors.append(1 / ((1 - kept) / factor + kept))
    return tuple(divisors)


def weight_files(folder: Path) -> dict[Path, frozenset[str]]:
    """Each safetensors file of the folder, with the tensors that the index of a sharded model places there."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        return {single: frozenset()}
    if not index.is_file():
        pickled = sorted(path.name for path in folder.glob("pytorch_model*.bin"))
        reason = (
            f"{pickled[0]} is a pickle, a program that could do anything when loaded, and is never opened; "
            "convert it to safetensors"
            if pickled
            else "it needs model.safetensors, or model.safetensors.index.json and its shards"
        )
        raise CheckpointError(f"{folder} has no weights that can be loaded: {reason}.")
    placed: dict[Path, set[str]] = {}
    for name, shard in Fields(read_json(index), index).object("weight_map").values.items():
        # A shard is a file beside the index. Anything else would open files elsewhere on the machine.
        if (
            not isinstance(shard, str)
            or shard != Path(shard).name
            or "\\" in shard
            or not shard.endswith(".safetensors")
        ):
            raise CheckpointError(f"{index}: tensor {name!r} lies in {shard!r:.80}, which is not the name of a shard")
        if not (folder / shard).is_file():
            raise CheckpointError(f"{folder} lacks the shard {shard!r} with the tensor {name!r}")
        placed.setdefault(folder / shard, set()).add(name)
    if not placed:
        raise CheckpointError(f"{index}: weight_map names no tensors")
    return {path: frozenset(names) for path, names in placed.items()}


def _open(path: Path, opened: ExitStack) -> Any:
    try:
        return opened.enter_context(safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {_shortfall(path) or error}. Get it again.") from error


def _shortfall(path: Path) -> str | None:
    """How many bytes a safetensors file lacks, where that is what is wrong with it."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            size = path.stat().st_size
            if length > size:
                return f"its header needs {8 + length:,} bytes, the file has {size:,}"
            header = json.loads(file.read(length))
            end = max(entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__")
            return (
                f"its tensors need {8 + length + end:,} bytes, the file has {size:,}"
                if 8 + length + end != size
                else None
            )
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return None


def _list_tensors(files: Mapping[Path, Any], placed: Mapping[Path, frozenset[str]]) -> dict[str, tuple[Any, Shape]]:
    """Every tensor with the open file it lies in and its shape."""
    tensors: dict[str, tuple[Any, Shape]] = {}
    for path, file in files.items():
        names = set(file.keys())
        if lost := placed[path] - names:
            raise CheckpointError(f"{path} lacks the tensor {min(lost)!r}, which the index places there")
        for name in names:
            part = file.get_slice(name)
            if name in tensors:
                raise CheckpointError(f"{path}: the tensor {name!r} lies in another shard, too")
            if part.get_dtype() not in SAFE_DTYPES:
                raise CheckpointError(
                    f"{path}: tensor {name!r} is stored as {part.get_dtype()}; {', '.join(SAFE_DTYPES)} can be read"
                )
            tensors[name] = (file, tuple(part.get_shape()))
    return tensors


def _check_tied_head(tensors: Mapping[str, tuple[Any, Shape]], where: Path) -> None:
    """A tied model may store its head a second time; then it must be the embedding."""
    head, embedding = (tensors[name][0].get_tensor(name) for name in (HEAD, NAMES["embedding"]))
    if not torch.equal(head, embedding):
        raise CheckpointError(
            f"{where}: config.json says tie_word_embeddings = true, but {HEAD!r} differs from {NAMES['embedding']!r}"
        )
