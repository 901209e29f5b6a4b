"""Writes a GGUF file as a Hugging Face folder, for programs that read no other: `transformers serve`, for one.

The one idea: a folder is there whole or not at all. It is written beside its place, with a list of the SHA-256 of every
file, and moved there by a rename; it is used only while every file is still what the list says, and the name says which
weights it was made from. Nothing of `transformers` is needed: the weights are those that `load` reads, under other
names.
"""

import hashlib
import json
import os
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from course_lib.checkpoints import gguf_file, huggingface
from course_lib.checkpoints.download import MODELS, cache_folder, fetch, remove_stale, sha256, temporary_folder
from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.gguf_header import GGUFHeader, read_header
from course_lib.checkpoints.gguf_tokenizer import gguf_tokenizer
from course_lib.checkpoints.weights import plan_weights
from course_lib.model import ModelConfig

FORMAT = 1  # of what is written here: another number is another folder
LIST, WEIGHTS = "sha256.json", "model.safetensors"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def huggingface_folder(name: str = "smollm2", dtype: str = "bf16") -> Path:
    """The Hugging Face folder of a model that can be fetched, made in the user's cache folder if it is not there.

    It is checked on every call: one that is damaged is made again. `dtype` is fp32 (what the file says, exactly), bf16
    or fp16. Raises CheckpointError for an unknown name or dtype, or if it cannot be fetched or written.
    """
    if dtype not in DTYPES:
        raise CheckpointError(f"a folder of {dtype!r} cannot be made: choose one of {', '.join(DTYPES)}")
    source = fetch(name)
    made_from = f"{FORMAT} {MODELS[name].file_sha256} {dtype}"
    digest = hashlib.sha256(made_from.encode()).hexdigest()[:8]
    folder = cache_folder() / f"{MODELS[name].title}-{dtype}-{digest}"
    if is_whole(folder):
        return folder
    try:
        remove_stale(folder.parent)
        with temporary_folder(folder.parent) as work:
            write_folder(source, work / "new", dtype)
            if folder.exists():
                os.replace(folder, work / "damaged")
            os.replace(work / "new", folder)
    except (OSError, SafetensorError) as error:  # the latter for a full disk
        if is_whole(folder):  # another process was quicker
            return folder
        raise CheckpointError(
            f"the folder {folder} could not be written: {error}. Free some space or allow writing there, or name "
            "another cache folder in the variable COURSE_CACHE."
        ) from error
    return folder


def is_whole(folder: Path) -> bool:
    """Whether every file that was written into `folder` is there and unaltered."""
    try:
        listed = json.loads((folder / LIST).read_text(encoding="utf-8"))
        return {LIST, *listed} == {path.name for path in folder.iterdir()} >= {"config.json", WEIGHTS} and all(
            sha256(folder / name) == digest for name, digest in listed.items()
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return False


def write_folder(source: Path, folder: Path, dtype: str) -> None:
    """Write the GGUF file `source` as a new Hugging Face folder, with the list of what was written as its last file.

    Raises CheckpointError for a file that `load` would not read, has no tokenizer, or has scaled rotations.
    """
    header = read_header(source)
    config, tokenizer = gguf_file.read_config(header), gguf_tokenizer(header)
    if tokenizer is None or config.rope_factors is not None:
        lacks = "has no tokenizer" if tokenizer is None else "scales its rotations"
        raise CheckpointError(f"{source} {lacks}: such a file is not written as a folder here")
    folder.mkdir(parents=True)
    save_file(tensors(header, config, DTYPES[dtype]), folder / WEIGHTS, {"format": "pt"})
    ids = {
        f"{name}_id": tokenizer.encode(tokenizer.named[name], special=True, add_bos=False)[0]
        for name in ("bos_token", "eos_token", "pad_token")
        if name in tokenizer.named
    }
    texts = {
        "config.json": as_text(config_fields(config, dtype) | ids),
        "generation_config.json": as_text(ids | {"eos_token_id": sorted(tokenizer.stop_tokens)}),
        "tokenizer_config.json": as_text({"tokenizer_class": "PreTrainedTokenizerFast"} | tokenizer.named),
        "tokenizer.json": tokenizer.to_json(),
    }
    if tokenizer.template is not None:
        texts["chat_template.jinja"] = tokenizer.template
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    listed = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    (folder / LIST).write_text(as_text(listed), encoding="utf-8")


def tensors(header: GGUFHeader, config: ModelConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """Every weight under the name that it has in a Hugging Face folder, in the order of its rows there."""
    plans = (plan_weights(config, module.NAMES) for module in (gguf_file, huggingface))
    found = {}
    for ours, theirs in zip(*(plan.values() for plan in plans)):
        for part, named in zip(ours, theirs):
            weights = gguf_file.read_tensor(header, header.tensors[part.name])
            if part.rotated_heads:
                weights = gguf_file.unpermute(weights, part.rotated_heads)
            found[named.name] = weights.to(dtype).contiguous()
    return found


def config_fields(config: ModelConfig, dtype: str) -> dict[str, object]:
    """The shape of a model as config.json has it."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": str(DTYPES[dtype]).removeprefix("torch."),
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "intermediate_size": config.d_ff,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "tie_word_embeddings": config.tied_head,
    }


def as_text(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
