"""From the metadata of a GGUF file to the cache of its model.

The one idea: the file says for each layer how many KV heads it has and how wide they are, but not always which layers
slide; that is known for some architectures, and for others a window is an error. How the weights are quantised changes
nothing (rule 7 of `config.py`).

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and llama.cpp's `llama_model::load_hparams`.
"""

from collections.abc import Mapping
from math import gcd
from pathlib import Path
from typing import Any

from course_lib.sizing.bytes import CacheShape, Kind, LayerCache
from course_lib.sizing.fields import MOST, Fields
from course_lib.sizing.quantities import SizingError, shown, whole
from course_lib.sizing.rules import SHARED, STATE, Layers

# Rule 4: of so many layers the last attends to everything, the others slide. 1: all of them slide.
EVERY = {"gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2, "phi3": 1, "mistral": 1}
KNOWN = (*EVERY, "llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma", "falcon", "gpt2", "bloom", "gptneox",
         "starcoder", "starcoder2", "deepseek2", "jamba")  # fmt: skip
# Keys that give some layers a state or an encoder, or keep more than keys and values: only a known model may have them.
STRANGE = (
    "ssm.state_size", "wkv.head_size", "decoder_block_count", "full_attention_interval", "attention.chunk_size",
    "attention.indexer.head_count", "attention.sliding_window_pattern", "attention.key_length_swa",
)  # fmt: skip
ENCODER = "reads a text at once, as an encoder, and keeps no KV cache"
UNREAD = {
    "t5": "has an encoder and a decoder (decoder_block_count), which are not read from GGUF files",
    "llama4": "attends within chunks (attention.chunk_size), and what its layers keep is not known here",
    "t5encoder": ENCODER, "bert": ENCODER, "nomic-bert": ENCODER, "jina-bert-v2": ENCODER, "modern-bert": ENCODER,
}  # fmt: skip
UNDERSTOOD = {"jamba": ("ssm.state_size",)} | dict.fromkeys(EVERY, ("attention.sliding_window_pattern",))


def read_gguf_file(path: Path) -> CacheShape:
    """The cache of the model in a GGUF file; only its header is read. Raises SizingError if that cannot be done."""
    from course_lib.checkpoints.gguf_header import read_header  # brings torch with it, which nothing else here needs

    try:
        metadata = read_header(path).metadata
    except ValueError as error:  # CheckpointError, which names the file and what is wrong with it
        raise SizingError(str(error), "config") from error
    return read_gguf_metadata(metadata, str(path))


def read_gguf_metadata(metadata: Mapping[str, Any], name: str = "metadata") -> CacheShape:
    """The cache of the model that the metadata of a GGUF file describe, in bf16.

    Raises SizingError, naming key and value, for what is missing, contradictory or no number of that kind.
    """
    if not isinstance(metadata, Mapping):
        raise SizingError(f"{name}: metadata are an object of keys, not {shown(metadata)}", "metadata", metadata)
    fields = Fields({key: _plain(value) for key, value in metadata.items()}, name)
    architecture = fields.text("general.architecture")
    if architecture is None:
        raise fields.missing("general.architecture")
    return CacheShape(
        name,
        tuple(_layers(fields, architecture)),
        tuple(fields.notes),
        trained_tokens=fields.maybe(f"{architecture}.context_length", "positions"),
        query_heads=_query_heads(fields, architecture),
    )


def _plain(value: Any) -> Any:
    """A NumPy array, as the header gives lists of numbers, as a list."""
    return value.tolist() if hasattr(value, "tolist") else value


def _layers(fields: Fields, architecture: str) -> Layers:
    key = f"{architecture}.".__add__
    if not fields.flag(key("attention.causal"), True):
        raise fields.fail(key("attention.causal"), "makes an encoder of it, which keeps no cache")
    if architecture in UNREAD:
        raise fields.fail("general.architecture", UNREAD[architecture])
    n_layers = fields.count(key("block_count"), "layers")
    strange = [key(name) for name in STRANGE if name not in UNDERSTOOD.get(architecture, ())]
    fields.refuse(strange, "is a key whose meaning for the cache only the model's code tells")
    if architecture not in KNOWN:
        fields.assume(
            f"The architecture {architecture!r} is not known: it is read like llama, from the keys there are."
        )
    latent = fields.maybe(key("attention.kv_lora_rank"), "dimensions")
    if latent is not None:  # rule 3
        rope = fields.count(key("rope.dimension_count"), "dimensions")
        fields.assume(
            "Keys and values are kept as one latent vector; code that expands them into heads stores far more."
        )
        return [LayerCache(Kind.LATENT, 1, latent, rope)] * n_layers
    heads = _each(fields, key("attention.head_count"), n_layers)
    if heads is None:
        raise fields.missing(key("attention.head_count"))
    kv_heads = _each(fields, key("attention.head_count_kv"), n_layers) or heads  # rule 2; llama.cpp's default
    key_dim, value_dim = _dimensions(fields, architecture, heads)
    slides = _slides(fields, architecture, n_layers)
    window = fields.count(key("attention.sliding_window"), "positions") if any(slides) else None
    shared = fields.maybe(key("attention.shared_kv_layers"), "layers", least=0) or 0
    if shared >= n_layers:
        raise fields.fail(key("attention.shared_kv_layers"), f"leaves none of the {n_layers} layers with a cache")
    layers: Layers = []
    attends = {False: (Kind.FULL, None), True: (Kind.SLIDING, window)}
    for i, (query, kv) in enumerate(zip(heads, kv_heads, strict=True)):
        if kv and query % kv:
            raise fields.fail(key("attention.head_count_kv"), f"does not divide the {query} query heads of layer {i}")
        kind, seen = attends[slides[i]]
        own = LayerCache(kind, kv, key_dim, value_dim, seen) if kv else STATE
        layers.append(own if i < n_layers - shared else SHARED)
    return layers


def _query_heads(fields: Fields, architecture: str) -> int | None:
    """What divides the query heads of every layer."""
    n_layers = fields.count(f"{architecture}.block_count", "layers")
    heads = _each(fields, f"{architecture}.attention.head_count", n_layers)
    return None if heads is None else gcd(*heads)


def _each(fields: Fields, name: str, n_layers: int) -> list[int] | None:
    """A number for each layer: one for all of them, or a list. 0 in a list: a layer that does not attend."""
    value = fields.value(name)
    if not isinstance(value, list):
        number = fields.maybe(name, "heads")
        return None if number is None else [number] * n_layers
    if len(value) != n_layers:
        raise fields.fail(name, f"has {len(value)} entries, but there are {n_layers} layers")
    numbers = [whole(entry, name, 0, MOST["heads"], f"{fields.where}: ") for entry in value]
    if not any(numbers):
        raise fields.fail(name, "gives no layer a head")
    return numbers


def _dimensions(fields: Fields, architecture: str, heads: list[int]) -> tuple[int, int]:
    """Rule 1: of keys and values apart, where the file gives them; else the width divided by the heads."""
    given = [fields.maybe(f"{architecture}.attention.{part}_length", "dimensions") for part in ("key", "value")]
    if given[0] is not None and given[1] is not None:
        return given[0], given[1]
    name, most = f"{architecture}.embedding_length", max(heads)
    width = fields.count(name, "dimensions")
    if width % most:
        raise fields.fail(name, f"is not a multiple of the {most} heads, and no key_length and value_length are given")
    return given[0] or width // most, given[1] or width // most


def _slides(fields: Fields, architecture: str, n_layers: int) -> list[bool]:
    """Which layers slide (rule 4)."""
    name = f"{architecture}.attention.sliding_window"
    every = EVERY.get(architecture)
    if every is None:
        if fields.maybe(name, "positions", least=0):
            raise fields.fail(name, f"does not say which layers slide, and for {architecture!r} that is not known")
        return [False] * n_layers
    if architecture in ("phi3", "mistral") and not fields.maybe(name, "positions", least=0):
        return [False] * n_layers
    given = fields.value(f"{architecture}.attention.sliding_window_pattern")
    slides = [every == 1 or (i + 1) % every != 0 for i in range(n_layers)]
    if isinstance(given, list):
        if len(given) != n_layers or any(type(entry) is not bool for entry in given):
            raise fields.fail(
                f"{architecture}.attention.sliding_window_pattern", f"is no list of {n_layers} truth values"
            )
        slides = list(given)
    elif given is not None:
        period = fields.count(f"{architecture}.attention.sliding_window_pattern", "layers")
        slides = [(i + 1) % period != 0 for i in range(n_layers)]
    fields.assume("llama.cpp pads the slots of sliding layers, and keeps a batch beside the window.")
    return slides
