"""From the config.json of a model to its cache, layer by layer, by nine rules.

The one idea: which fields tell the size of a cache depends on the family of the model, and every shortcut around that
has been a bug of a public calculator. A known `model_type` is read as the code of its family reads it; an unknown one
only if its fields say enough, with what was assumed. Nothing is downloaded, and no code of a model is run.

The rules, where they are applied (numbers in the code):
  1  head_dim is read; only where it is absent it is hidden_size / num_attention_heads.
  2  KV heads: num_key_value_heads, else one with multi_query, else all heads. Falcon has its own rule.
  3  With kv_lora_rank the cache is latent, whatever num_key_value_heads says.
  4  A sliding_window alone does not say that a layer slides; layer_types does.
  5  Scales of a quantised cache are bytes (bytes.py).        6  Ranks beyond the KV heads copy them (bytes.py).
  7  Experts and the quantisation of weights change nothing.  8  GB and GiB are both named (quantities.py).
  9  What a library stores may exceed what is needed; both are told.
Sources: the configuration and modelling files of transformers 5.24; LMCache issues 688 and 694, hf-mem issue 60 and
LLMs-from-scratch issue 922 are the bugs behind rules 1 to 4.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.sizing.bytes import CacheShape
from course_lib.sizing.families import FAMILIES, read_unknown
from course_lib.sizing.fields import Fields
from course_lib.sizing.known import INSIDE, check_family, check_kind
from course_lib.sizing.quantities import SizingError, shown
from course_lib.sizing.rules import N_HEADS
from course_lib.strict_json import strict_json

LARGEST_CONFIG = 16 << 20  # bytes
NESTED = ("text_config", "llm_config", "language_config")  # where multimodal models keep their language model
MODEL_OF_OUTER = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "llava": "llama",
    "clip": "clip_text_model",
}  # if the inner one does not say


def read_config(config: Mapping[str, Any], name: str = "config") -> CacheShape:
    """The cache of the model that a config.json describes, in bf16.

    Raises SizingError, naming field and value, for whatever is missing, contradictory or no number of that kind.
    """
    if not isinstance(config, Mapping):
        raise SizingError(f"{name}: a config is an object of fields, not {shown(config)}", "config", config)
    fields, assumptions = _language_model(config, name)
    kind = fields.text("model_type")
    check_kind(fields, kind)
    reader = None if kind is None else FAMILIES.get(kind)
    if reader is not None and kind is not None:
        check_family(fields, kind)
        layers, stored = reader(fields)
    else:
        fields.assume(
            f"{'The config names no model_type' if kind is None else f'The model_type {shown(kind)} is not known'}: "
            "it is read like a model of the Llama family, from the fields that are there."
        )
        layers, stored = read_unknown(fields)
    trained = fields.maybe(("max_position_embeddings", "n_positions", "max_target_positions"), "positions")
    heads = fields.maybe(("decoder_attention_heads",) if kind == "whisper" else N_HEADS, "heads")
    for values in (config, fields.values):
        quantised = values.get("quantization_config")
        if isinstance(quantised, Mapping) and quantised.get("kv_cache_scheme") is not None:
            fields.assume(
                "quantization_config.kv_cache_scheme names a format for the cache, which is not read here: choose the "
                "element type yourself (--dtype)."
            )
    notes = (*assumptions, *fields.notes)
    return CacheShape(name, tuple(layers), notes, tuple(stored) if stored else None, trained, heads)


def _language_model(config: Mapping[str, Any], name: str) -> tuple[Fields, list[str]]:
    """The fields of the language model, and what is assumed if it lies inside a multimodal one."""
    outer = Fields(config, name)
    inside = [key for key in NESTED if key in outer]
    if not inside:
        return outer, []
    if len(inside) > 1:
        raise outer.fail(inside[0], f"and {inside[1]} are both there: which of them is the language model?")
    inner = config[inside[0]]
    if not isinstance(inner, Mapping):
        raise outer.fail(inside[0], "is not an object of fields")
    kind = inner.get("model_type")
    if kind is None and isinstance(parent := config.get("model_type"), str):
        kind = MODEL_OF_OUTER.get(parent)
    known = {} if kind is None else {"model_type": kind}
    # A nested config is saved without the fields that its class fills in, so a gap there is no damage.
    defaults = INSIDE.get(kind, {}) if isinstance(kind, str) else {}
    return Fields({**inner, **known}, f"{name}: {inside[0]}", defaults), [
        f"The sizes are those of {inside[0]}; encoders of images or sound keep no KV cache."
    ]


def read_config_file(path: Path) -> CacheShape:
    """The cache of the model in a config.json, in a folder that has one, or in a GGUF file.

    Raises SizingError if there is none that can be read.
    """
    try:
        path = path.expanduser()
        path = path / "config.json" if path.is_dir() else path
        if path.exists() and not path.is_file():  # opening a pipe would wait for somebody to write into it
            raise SizingError(f"{path} cannot be read: it is not a regular file", "config")
        with path.open("rb") as file:
            start = file.read(4)
            if start != b"GGUF":
                start += file.read(LARGEST_CONFIG)
    except SizingError:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # no such file or user; a zero byte in the name
        raise SizingError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}", "config") from error
    if start == b"GGUF":
        from course_lib.sizing.gguf import read_gguf_file

        return read_gguf_file(path)
    if len(start) > LARGEST_CONFIG:
        raise SizingError(f"{path} has more than {LARGEST_CONFIG:,} bytes, which no config has", "config")
    return read_config(_parsed(start, path), str(path))


def _parsed(text: bytes, path: Path) -> Any:
    try:
        return strict_json(text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise SizingError(f"{path} is not a valid JSON file: {error}", "config") from error
