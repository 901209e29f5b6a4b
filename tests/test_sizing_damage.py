"""Ten thousand damaged configs: each gives an error that names a field and its value, or the right answer.

The right answer comes from `reference` below, one plain loop over the layers that was written from the documentation of
the models and shares no code with the library. A field that has nothing to do with the cache may hold anything.
"""

import math
from random import Random
from typing import Any

import pytest

from course_lib.sizing import SizingError, preset_config, read_config
from course_lib.sizing.quantities import shown

TOKENS, SEQUENCES, ENCODER = 5000, 2, 7
NOVEL = {"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}
MODELS = (
    "gpt2", "gpt-neox-20b", "bloom-176b", "starcoder-15.5b", "falcon-7b", "falcon-40b", "llama-3-8b",
    "mistral-7b-v0.1", "mixtral-8x7b", "qwen2.5-7b", "qwen3-4b", "phi-3-mini-4k", "gemma-2-2b", "gemma-3-1b",
    "gemma-3-4b", "gpt-oss-20b", "deepseek-v3", "jamba-v0.1", "zamba2-2.7b", "t5-base", "whisper-large-v3",
)  # fmt: skip
CONFIGS: dict[str, dict[str, Any]] = {name: preset_config(name) for name in MODELS} | {
    "novel": NOVEL | {"model_type": "novel"},
    "nameless": NOVEL | {"head_dim": 24},
}
JUNK: tuple[Any, ...] = (
    None, -1, 0, -(10**30), 10**30, 1.5, 32.0, math.nan, math.inf, True, False, "", "32", "null", [], [4], {}, {"a": 1},
)  # fmt: skip
HARMLESS = ("vocab_size", "hidden_act", "rms_norm_eps", "num_local_experts", "quantization_config", "torch_dtype", "x")
TYPES = ("full_attention", "sliding_attention", "linear_attention", "mamba", "strange")


class Unsound(Exception):
    """The reference can make nothing of it."""


def number(c: dict[str, Any], name: str, default: Any = None, least: int = 1) -> int:
    value = c.get(name)
    value = default if value is None else value
    if type(value) is not int or not least <= value <= 10**12:
        raise Unsound(name)
    return value


def reference(config: dict[str, Any]) -> int:
    """Bytes in bf16 of two sequences of 5000 tokens (and 7 of an encoder)."""
    c, kind = config, config.get("model_type")
    if config.get("text_config") is not None:  # of this course's configs, only Gemma 3 has one; its class fills gaps
        class_fills = {
            "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "hidden_size": 2304, "sliding_window": 4096,
        }  # fmt: skip
        c = {"model_type": "gemma3_text"} | config["text_config"]
        kind = c["model_type"] = c["model_type"] or "gemma3_text"
        if kind == "gemma3_text":
            c = class_fills | c
    if kind == "t5":
        row = 2 * number(c, "num_heads") * number(c, "d_kv") * 2
        return SEQUENCES * number(c, "num_decoder_layers", c.get("num_layers")) * row * (TOKENS + ENCODER)
    if kind == "whisper":
        row = 2 * number(c, "d_model") * 2
        return SEQUENCES * number(c, "decoder_layers") * row * (TOKENS + number(c, "max_source_positions"))
    layers = number(c, "n_layer" if c.get("n_layer") is not None else "num_hidden_layers")
    if c.get("kv_lora_rank") is not None:
        return SEQUENCES * TOKENS * layers * 2 * (number(c, "kv_lora_rank") + number(c, "qk_rope_head_dim"))
    heads = number(c, "n_head" if c.get("n_head") is not None else "num_attention_heads")
    if kind == "qwen3":
        c = {"head_dim": 128} | c
    hidden = number(c, "n_embd" if c.get("n_embd") is not None else "hidden_size", c.get("head_dim"))
    kv = kv_heads(c, kind, heads)
    width = 2 * hidden // heads if kind == "zamba2" else hidden // heads
    width = number(c, "head_dim", width)
    if heads % kv:
        raise Unsound("heads")
    return SEQUENCES * sum(2 * rows(c, kind, i, layers) * kv * width * 2 for i in range(layers))


def kv_heads(c: dict[str, Any], kind: Any, heads: int) -> int:
    if kind == "falcon":
        one = c.get("multi_query") in (True, None) and not c.get("new_decoder_architecture")
        if c.get("multi_query") is None and c.get("new_decoder_architecture") is None:
            one = c.get("num_kv_heads") in (None, 1, heads)  # another number is that of the first Falcon-40B
        return 1 if one else number(c, "num_kv_heads", heads)
    if kind == "gpt_bigcode":
        return heads if c.get("multi_query") is False else 1
    one = c.get("multi_query") is True and c.get("num_key_value_heads") is None
    return 1 if one else number(c, "num_key_value_heads", heads)


def rows(c: dict[str, Any], kind: Any, i: int, layers: int) -> int:
    """How many tokens layer i keeps."""
    types = c.get("layer_types")
    if kind == "mistral":
        c = {"sliding_window": 4096} | c
    if types is not None:
        slides = types[i] == "sliding_attention"
        if types[i] in ("linear_attention", "mamba"):
            return 0
    elif kind in ("gemma2", "gpt_oss"):
        slides = i % 2 == 0
    elif kind == "gemma3_text":
        slides = i % number(c, "sliding_window_pattern", 6) != number(c, "sliding_window_pattern", 6) - 1
    elif kind in ("mistral", "mixtral", "phi3"):
        slides = c.get("sliding_window") is not None
    elif kind in ("qwen2", "qwen3"):
        slides = c.get("use_sliding_window") is True and i >= number(c, "max_window_layers", least=0)
        slides = slides and c.get("sliding_window") is not None
    elif kind == "jamba":
        return TOKENS if i % number(c, "attn_layer_period") == number(c, "attn_layer_offset", least=0) else 0
    elif kind == "zamba2":
        return TOKENS if i in c["hybrid_layer_ids"] else 0
    else:
        slides = False
    return min(TOKENS, number(c, "sliding_window")) if slides else TOKENS


def damaged(random: Random, config: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """A damaged copy, and whether only fields were touched that have nothing to do with the cache."""
    outer = {**config}
    inner = outer
    if "text_config" in outer and random.random() < 0.9:
        inner = outer["text_config"] = {**outer["text_config"]}
    harmless = True
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        told = [name for name in inner if name != "model_type"]
        what = random.randrange(8)
        if what == 0:
            inner[random.choice(HARMLESS)] = random.choice(JUNK)
            continue
        harmless = False
        name = random.choice(told or ["num_hidden_layers"])
        if what == 1:
            inner.pop(name, None)
        elif what in (2, 3):
            inner[name] = random.choice(JUNK)
        elif what in (4, 5):
            inner[name] = random.choice((1, 2, 3, 4, 8, 12, 30, 64, 100, 4096, 10**7, 10**13))
        elif what == 6:
            layers = inner.get("num_hidden_layers")
            count = layers if type(layers) is int and 0 < layers < 100 else 3
            of = TYPES[: random.choice((1, 2, 3, 4, 5))]
            inner["layer_types"] = [random.choice(of) for _ in range(count + random.choice((0, 0, 0, -1, 1)))]
        else:
            extra = (
                "head_dim",
                "sliding_window",
                "num_key_value_heads",
                "use_sliding_window",
                "model_type",
                "text_config",
            )
            inner[random.choice(extra)] = random.choice((*JUNK, 1, 8, 64))
    return outer, harmless


def judge(config: dict[str, Any]) -> str:
    """What the library says of a config: "answer", checked against the reference, or "error", checked for its words."""
    try:
        found = read_config(config).bytes(TOKENS, SEQUENCES, encoder_tokens=ENCODER)
    except SizingError as error:
        text = str(error)
        assert error.field and error.field in text, text
        if error.value is not None:
            assert shown(error.value) in text, text
        assert len(text) < 400 and "\n" not in text
        return "error"
    assert type(found) is int
    assert found == reference(config), config
    return "answer"


def test_the_reference_knows_the_sound_configs() -> None:
    for name, config in CONFIGS.items():
        assert judge(config) == "answer", name


@pytest.mark.parametrize("part", range(4))
def test_a_damaged_config_gives_a_named_error_or_the_right_answer(part: int) -> None:
    random = Random(f"damage {part}")
    names = list(CONFIGS)
    seen = {"answer": 0, "error": 0}
    for _ in range(2500):
        config, harmless = damaged(random, CONFIGS[random.choice(names)])
        outcome = judge(config)
        seen[outcome] += 1
        assert outcome == "answer" or not harmless, config
    assert min(seen.values()) > 400, f"damage of both kinds occurs: {seen}"


ESSENTIAL = {
    name: [key for key in (config.get("text_config") or config) if key != "model_type"]
    for name, config in CONFIGS.items()
}
# Fields that these models do not need, since another tells the same, and fields that may be null or absent.
SPARE = {
    "hidden_size", "num_layers", "d_model", "qk_nope_head_dim", "v_head_dim", "max_window_layers",
    "sliding_window_pattern", "multi_query", "new_decoder_architecture", "use_sliding_window", "sliding_window",
    "num_attention_heads", "num_key_value_heads",
}  # fmt: skip
BAD_COUNTS = (-1, 0, 1.5, 32.0, True, "32", [4], {"a": 1}, 10**30, math.nan)


@pytest.mark.parametrize("value", BAD_COUNTS, ids=repr)
@pytest.mark.parametrize("name", CONFIGS)
def test_a_bad_count_is_named_with_its_value(name: str, value: object) -> None:
    for field in ESSENTIAL[name]:
        if field in SPARE or type((CONFIGS[name].get("text_config") or CONFIGS[name])[field]) is not int:
            continue
        if field in ("attn_layer_offset",) and value == 0 and value is not True:
            continue  # which is a layer
        config = {**CONFIGS[name]}
        inner = config if "text_config" not in config else config.setdefault("text_config", {})
        if "text_config" in config:
            config["text_config"] = inner = {**inner}
        inner[field] = value
        with pytest.raises(SizingError) as caught:
            read_config(config)
        assert caught.value.field == field and field in str(caught.value) and shown(value) in str(caught.value)


@pytest.mark.parametrize(
    "config", [None, 3, "llama", [], [("a", 1)], {}, {"model_type": 3}, {"text_config": {}}], ids=repr
)
def test_what_is_no_config_is_a_named_error(config: Any) -> None:
    with pytest.raises(SizingError) as caught:
        read_config(config)
    assert caught.value.field in str(caught.value)
