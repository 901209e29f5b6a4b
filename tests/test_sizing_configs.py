"""Reading configs: what each rule decides, what is refused and in which words, files, and GGUF metadata."""

import json
import os
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import gguf_files
import numpy as np
import pytest

from course_lib.checkpoints import Checkpoint
from course_lib.sizing import (
    CacheShape,
    Kind,
    SizingError,
    cache_shape,
    kv_cache_bytes,
    preset,
    preset_config,
    read_config,
    read_config_file,
)
from course_lib.sizing.gguf import read_gguf_metadata

BASE = {"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 64}


def config(kind: str | None, **changes: Any) -> dict[str, Any]:
    """A small config; the value "REMOVED" takes a field out."""
    made = {"model_type": kind} | BASE | changes
    return {key: value for key, value in made.items() if not (isinstance(value, str) and value == "REMOVED")}


def kinds(shape: CacheShape) -> str:
    """A letter for each layer: f(ull), s(liding), l(atent), c(ross), n(othing)."""
    letters = {Kind.FULL: "f", Kind.SLIDING: "s", Kind.LATENT: "l", Kind.CROSS: "c"}
    return "".join(letters.get(layer.kind, "n") for layer in shape.layers)


# --- rules ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "mistral", "qwen2", "phi3", "novel"])
def test_head_dim_is_read_and_else_divided(kind: str) -> None:
    told = read_config(config(kind, head_dim=24, sliding_window=None))
    divided = read_config(config(kind, sliding_window=None))
    assert {layer.key_dim for layer in told.layers} == {24} and {layer.key_dim for layer in divided.layers} == {8}


def test_a_null_head_dim_is_divided_too() -> None:
    assert read_config(config("llama", head_dim=None)).layers == read_config(config("llama")).layers


@pytest.mark.parametrize(
    ("changes", "heads"),
    [
        ({}, 2),
        ({"num_key_value_heads": "REMOVED"}, 8),
        ({"num_key_value_heads": None}, 8),
        ({"num_key_value_heads": "REMOVED", "multi_query": True}, 1),
        ({"num_key_value_heads": "REMOVED", "multi_query": False}, 8),
        ({"num_key_value_heads": "REMOVED", "n_kv_heads": 4}, 4),
    ],
)
def test_kv_heads_are_those_that_are_told(changes: dict[str, Any], heads: int) -> None:
    assert {layer.n_kv_heads for layer in read_config(config("novel", **changes)).layers} == {heads}


@pytest.mark.parametrize(
    ("changes", "heads", "stored"),
    [
        ({"multi_query": True, "num_kv_heads": 8}, 1, 1),  # as transformers saves it: the field alone lies
        ({"multi_query": True}, 1, 1),
        ({"multi_query": False}, 8, 8),
        ({"multi_query": False, "num_kv_heads": 4}, 4, 4),
        ({"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 2}, 2, 8),
        ({"new_decoder_architecture": True, "n_head_kv": 4}, 4, 8),
        ({"n_head_kv": 4}, 4, 8),  # the first Falcon-40B names neither switch
        ({"n_head_kv": 8}, 1, 1),
        ({"n_head_kv": 4, "new_decoder_architecture": False}, 1, 1),
    ],
)
def test_falcon_has_a_rule_of_its_own(changes: dict[str, Any], heads: int, stored: int) -> None:
    shape = read_config(config("falcon", num_key_value_heads="REMOVED", **changes))
    assert {layer.n_kv_heads for layer in shape.layers} == {heads}
    assert shape.bytes_in_transformers(3) == shape.bytes(3) * stored // heads


def test_the_first_config_of_falcon_40b_has_eight_heads() -> None:
    first = {"model_type": "RefinedWeb", "alibi": False, "hidden_size": 8192, "n_head": 128, "n_head_kv": 8}
    shape = read_config(first | {"n_layer": 60, "parallel_attn": True})
    assert shape.bytes_per_token() == 122_880 and shape.layers == preset("falcon-40b").layers
    assert "Neither multi_query nor new_decoder_architecture" in " ".join(shape.assumptions)


@pytest.mark.parametrize(
    ("kind", "changes", "heads"),
    [
        ("gpt2", {"attention_head_type": "multiquery"}, 1),
        ("gpt2", {"attention_head_type": "multihead"}, 16),
        ("gpt_bigcode", {"attention_head_type": "multiquery"}, 1),
        ("gpt_bigcode", {"attention_head_type": "multihead"}, 16),
        ("gpt_bigcode", {"multi_query": False}, 16),
    ],
)
def test_santacoder_tells_its_heads_by_their_type(kind: str, changes: dict[str, Any], heads: int) -> None:
    shape = read_config({"model_type": kind, "n_embd": 2048, "n_head": 16, "n_layer": 24} | changes)
    assert shape.bytes_per_token() == heads * 12_288


def test_only_qwen3_without_experts_has_a_head_dim_by_default() -> None:
    assert {layer.key_dim for layer in read_config(config("qwen3")).layers} == {128}
    assert {layer.key_dim for layer in read_config(config("qwen3_moe")).layers} == {8}


def test_a_format_of_the_cache_in_the_config_is_told() -> None:
    scheme = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}}
    for given in (config("llama", **scheme), {"text_config": config("llama")} | scheme):
        assert "--dtype" in " ".join(read_config(given).assumptions)
    assert "--dtype" not in " ".join(read_config(config("llama", quantization_config={"bits": 4})).assumptions)


def test_a_latent_cache_does_not_ask_for_kv_heads() -> None:
    for kind in ("deepseek_v2", "deepseek_v3", "novel"):
        for heads in ("REMOVED", 2, 8):
            shape = read_config(config(kind, num_key_value_heads=heads, kv_lora_rank=16, qk_rope_head_dim=4))
            assert kinds(shape) == "llllll" and shape.bytes_per_token() == 6 * 20 * 2


WINDOWS = {
    "a number is enough for Mistral": (config("mistral", sliding_window=9), "ssssss"),
    "null is none": (config("mistral", sliding_window=None), "ffffff"),
    "Mixtral": (config("mixtral", sliding_window=9), "ssssss"),
    "Mixtral that says nothing": (config("mixtral"), "ffffff"),
    "Phi-3": (config("phi3", sliding_window=9), "ssssss"),
    "Qwen2 whose window is switched off": (config("qwen2", sliding_window=9, use_sliding_window=False), "ffffff"),
    "Qwen2 that says nothing of a switch": (config("qwen2", sliding_window=9), "ffffff"),
    "Qwen2 from a layer on": (
        config("qwen2", sliding_window=9, use_sliding_window=True, max_window_layers=4),
        "ffffss",
    ),
    "Qwen2 from the first layer on": (
        config("qwen2", sliding_window=9, use_sliding_window=True, max_window_layers=0),
        "ssssss",
    ),
    "Gemma 2": (config("gemma2", sliding_window=9, head_dim=8), "sfsfsf"),
    "Gemma 3": (config("gemma3_text", sliding_window=9, head_dim=8), "sssssf"),
    "Gemma 3 with another pattern": (
        config("gemma3_text", sliding_window=9, head_dim=8, sliding_window_pattern=2),
        "sfsfsf",
    ),
    "Gemma 3n": (config("gemma3n_text", sliding_window=9, head_dim=8, num_kv_shared_layers=1), "ssssfn"),
    "gpt-oss": (config("gpt_oss", sliding_window=9, head_dim=8), "sfsfsf"),
    "layer types before the pattern": (
        config("gpt_oss", sliding_window=9, head_dim=8, layer_types=["full_attention"] * 5 + ["sliding_attention"]),
        "fffffs",
    ),
    "a model not known, with layer types": (
        config("novel", sliding_window=9, layer_types=["sliding_attention", "full_attention", "mamba"] * 2),
        "sfnsfn",
    ),
    "a model not known, whose window is switched off": (
        config("novel", sliding_window=9, use_sliding_window=False),
        "ffffff",
    ),
    "Jamba": (config("jamba", attn_layer_period=3, attn_layer_offset=1), "nfnnfn"),
    "Zamba, whose pattern begins at the fourth layer": (
        config("zamba", num_hidden_layers=10, attn_layer_period=4, attn_layer_offset=1),
        "nnfnfnnnfn",
    ),
    "Zamba2": (config("zamba2", hybrid_layer_ids=[1, 4]), "nfnnfn"),
    "Zamba2 with block types": (
        config("zamba2", layers_block_type=["mamba", "hybrid", "mamba"] * 2, hybrid_layer_ids=[1, 4]),
        "nfnnfn",
    ),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_which_layers_slide_or_keep_nothing(name: str) -> None:
    given, expected = WINDOWS[name]
    shape = read_config(given)
    assert kinds(shape) == expected
    assert {layer.window for layer in shape.layers if layer.kind is Kind.SLIDING} <= {9}


def test_a_multimodal_config_is_read_inside_and_says_so() -> None:
    inner = config("llama", head_dim=24)
    outer = {"model_type": "llava", "text_config": inner, "vision_config": {"num_hidden_layers": 99}}
    shape = read_config(outer)
    assert shape.layers == read_config(inner).layers
    assert "text_config" in shape.assumptions[0]
    assert read_config({"llm_config": inner}).layers == shape.layers


def test_an_unknown_model_says_what_was_assumed() -> None:
    told = " ".join(read_config(config("novel", num_key_value_heads="REMOVED")).assumptions)
    assert "'novel' is not known" in told and "num_key_value_heads" in told and "head_dim" in told
    assert "no model_type" in read_config(config(None)).assumptions[0]
    assert read_config(config("llama", head_dim=8)).assumptions == ()


# --- what is refused ------------------------------------------------------------------------------------------------

REFUSED = {
    "layers missing": (config("llama", num_hidden_layers="REMOVED"), "num_hidden_layers"),
    "heads missing": (config("llama", num_attention_heads="REMOVED"), "num_attention_heads"),
    "no width and no head_dim": (config("llama", hidden_size="REMOVED"), "head_dim"),
    "KV heads missing where a class has a default": (config("mistral", num_key_value_heads="REMOVED"), "num_key_value"),
    "head_dim missing where it is no quotient": (config("gemma2", sliding_window=9), "head_dim"),
    "heads that KV heads do not divide": (config("llama", num_key_value_heads=3), "num_key_value_heads = 3"),
    "more KV heads than heads": (config("llama", num_key_value_heads=16), "num_key_value_heads = 16"),
    "a width that heads do not divide": (config("llama", hidden_size=65), "hidden_size = 65"),
    "a fraction": (config("llama", num_hidden_layers=6.5), "num_hidden_layers = 6.5"),
    "a truth value": (config("llama", num_key_value_heads=True), "num_key_value_heads = True"),
    "a text": (config("llama", num_hidden_layers="6"), "num_hidden_layers = '6'"),
    "a negative number": (config("llama", head_dim=-64), "head_dim = -64"),
    "an absurd number": (config("llama", num_hidden_layers=10**30), f"num_hidden_layers = {10**30}"),
    "an absurd context": (config("llama", max_position_embeddings=10**30), "max_position_embeddings"),
    "two names that disagree": (config("llama", n_layer=7), "num_hidden_layers = 6 contradicts n_layer = 7"),
    "layer types of wrong length": (config("llama", layer_types=["full_attention"] * 5), "layer_types.*5 entries"),
    "layer types that are not known": (config("llama", layer_types=["odd"] * 6), "'odd'"),
    "layer types that are no list": (config("llama", layer_types="full_attention"), "layer_types"),
    "sliding layers without a window": (config("novel", layer_types=["sliding_attention"] * 6), "sliding_window"),
    "sliding layers that are switched off": (
        config("qwen2", layer_types=["sliding_attention"] * 6, sliding_window=9, use_sliding_window=False),
        "use_sliding_window is false",
    ),
    "a window of nothing": (config("mistral", sliding_window=0), "sliding_window = 0"),
    "a window of no known layers": (config("novel", sliding_window=9), "sliding_window = 9"),
    "a window for Llama": (config("llama", sliding_window=9), "sliding_window = 9"),
    "a window for GPT-2": (config("gpt2", num_key_value_heads="REMOVED", sliding_window=9), "sliding_window = 9"),
    "KV heads for GPT-2": (config("gpt2"), "num_key_value_heads = 2"),
    "a switch that is no truth value": (config("qwen2", use_sliding_window="yes"), "use_sliding_window = 'yes'"),
    "Jamba's offset outside its period": (
        config("jamba", attn_layer_period=3, attn_layer_offset=3),
        "attn_layer_offset = 3",
    ),
    "Zamba2's layers that are not there": (config("zamba2", hybrid_layer_ids=[1, 6]), "hybrid_layer_ids"),
    "Zamba2's two lists that disagree": (
        config("zamba2", layers_block_type=["mamba", "hybrid", "mamba"] * 2, hybrid_layer_ids=[2]),
        "hybrid_layer_ids",
    ),
    "sharing all layers": (
        config("gemma3n_text", sliding_window=9, head_dim=8, num_kv_shared_layers=6),
        "num_kv_shared_layers = 6",
    ),
    "a latent without its rotated part": (config("deepseek_v3", kv_lora_rank=16), "qk_rope_head_dim"),
    "a latent in a family that has none": (config("llama", kv_lora_rank=16), "kv_lora_rank = 16"),
    "an encoder in a family that has none": (config("llama", is_encoder_decoder=True), "is_encoder_decoder"),
    "an unknown encoder and decoder": (config("bart", is_encoder_decoder=True), "is_encoder_decoder"),
    "an unknown hybrid": (config("novel", mamba_d_state=16), "mamba_d_state"),
    "an unknown way to share": (config("gemma9", num_kv_shared_layers=2), "num_kv_shared_layers"),
    "chunks": (config("llama4_text", attention_chunk_size=8192), "attention_chunk_size"),
    "an indexer": (config("deepseek_v32", kv_lora_rank=16, qk_rope_head_dim=4, index_head_dim=8), "index_head_dim"),
    "two language models": ({"text_config": config("llama"), "llm_config": config("llama")}, "text_config"),
    "a text_config that is none": ({"text_config": 7}, "text_config = 7"),
    "a model_type that is none": (config("llama") | {"model_type": ["llama"]}, "model_type"),
    "many queries for one head, in a family without": (config("llama", multi_query=True), "multi_query = True"),
    "many queries for one head, and two heads": (config("novel", multi_query=True), "multi_query = True contradicts 2"),
    "a head type that is not known": (config("gpt_bigcode", attention_head_type="odd"), "attention_head_type = 'odd'"),
    "a head type that is contradicted": (
        config("gpt_bigcode", attention_head_type="multihead", multi_query=True),
        "attention_head_type",
    ),
    "cross-attention in a known family": (config("llama", add_cross_attention=True), "add_cross_attention = True"),
    "a latent that is not used": (
        config("deepseek_v3", kv_lora_rank=16, qk_rope_head_dim=4, use_mla=False),
        "use_mla = False",
    ),
    "chunks that are not told": (config("llama4_text"), "attention_chunk_size"),
    "an encoder inside": ({"model_type": "clip", "text_config": {"num_hidden_layers": 2}}, "clip_text_model"),
    "values of NumPy": (config("novel", layers_block_type=np.array(["a", "b"])), "layers_block_type"),
    "bidirectional Gemma": (
        config("gemma3_text", sliding_window=9, head_dim=8, use_bidirectional_attention=True),
        "use_bidirectional_attention",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_tell_a_cache_is_refused_by_name(name: str) -> None:
    given, words = REFUSED[name]
    with pytest.raises(SizingError, match=words):
        read_config(given)


UNLIKE_LLAMA: dict[str, Any] = {
    "attn_type_list": [0, 1], "num_attention_groups": 2, "num_query_groups": 2, "num_key_value_groups": 4,
    "num_kv_groups": 2, "num_key_value_heads_per_layer": [2, 4], "hybrid_layer_pattern": [0, 1],
    "sliding_window_size": 9, "swa_num_key_value_heads": 4, "sliding_window_pattern": 4, "use_cla": True,
    "cla_share_factor": 2, "global_attn_every_n_layers": 4, "dense_attention_every_n_layers": 2, "attention_window": 9,
    "add_cross_attention": True, "cross_attention_hidden_size": 64, "cross_attention_layers": [1],
    "attention_types": [[["global", "local"], 3]], "is_decoder": False, "use_mla": False,
}  # fmt: skip


@pytest.mark.parametrize("name", UNLIKE_LLAMA)
def test_an_unknown_model_that_is_not_like_llama_is_refused(name: str) -> None:
    with pytest.raises(SizingError, match=name) as caught:
        read_config(config("novel", **{name: UNLIKE_LLAMA[name]}))
    assert caught.value.field == name


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert", "vit", "clip_text_model", "longformer"])
def test_an_encoder_has_no_cache(kind: str) -> None:
    with pytest.raises(SizingError, match=f"model_type = '{kind}' is an encoder"):
        read_config(config(kind))


@pytest.mark.parametrize("value", [None, 42, b"gpt2", ["gpt2"], 1.5], ids=repr)
def test_what_is_neither_name_nor_path_nor_config_is_an_error(value: Any) -> None:
    with pytest.raises(SizingError, match="model = ") as caught:
        cache_shape(value)
    assert caught.value.field == "model"


def test_any_mapping_of_fields_is_a_config() -> None:
    assert cache_shape(MappingProxyType(config("llama"))).layers == read_config(config("llama")).layers


def test_the_inner_config_is_named_in_an_error() -> None:
    with pytest.raises(SizingError, match="text_config: num_hidden_layers = -1"):
        read_config({"text_config": config("llama", num_hidden_layers=-1)})


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_and_its_folder_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(preset_config("gemma-3-4b")))
    assert read_config_file(path).layers == read_config_file(tmp_path).layers == preset("gemma-3-4b").layers
    assert cache_shape(str(path)).layers == cache_shape(path).layers == preset("gemma-3-4b").layers
    assert str(path) in read_config_file(path).name


BROKEN = {
    "empty": (b"", "not a valid JSON"),
    "no JSON": (b"{", "not a valid JSON"),
    "a list": (b"[1]", "an object of fields"),
    "a key twice": (
        json.dumps(config("llama"))[:-1].encode() + b', "num_hidden_layers": 7}',
        "'num_hidden_layers' appears 2 times",
    ),
    "NaN": (json.dumps(config("llama", rope_theta=float("nan"))).encode(), "NaN is not a JSON number"),
    "not UTF-8": (b'{"a": "\xff"}', "not a valid JSON"),
    "very deep": (b"[" * 100_000, "not a valid JSON"),
    "a GGUF file cut short": (b"GGUF\x03\x00\x00\x00", "cut short"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    content, words = BROKEN[name]
    path.write_bytes(content)
    with pytest.raises(SizingError, match=words) as caught:
        read_config_file(path)
    assert str(path) in str(caught.value)


def test_a_pipe_is_not_waited_for_and_a_mark_of_byte_order_is_skipped(tmp_path: Path) -> None:
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(SizingError, match="pipe cannot be read: it is not a regular file"):
            read_config_file(tmp_path / "pipe")
    (tmp_path / "config.json").write_text(json.dumps(config("llama")), encoding="utf-8-sig")
    assert read_config_file(tmp_path).layers == read_config(config("llama")).layers


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nosuch.json", Path("a\0b"), Path("~nosuchuser/config.json")):
        with pytest.raises(SizingError, match="cannot be read"):
            read_config_file(path)


# --- GGUF -----------------------------------------------------------------------------------------------------------


def metadata(architecture: str, **changes: Any) -> dict[str, Any]:
    keys = {
        "block_count": 6, "context_length": 512, "embedding_length": 64, "attention.head_count": 8,
        "attention.head_count_kv": 2, "attention.key_length": 24, "attention.value_length": 16,
    } | {key.replace("__", "."): value for key, value in changes.items()}  # fmt: skip
    return {"general.architecture": architecture} | {
        f"{architecture}.{key}": value for key, value in keys.items() if not isinstance(value, str)
    }


def test_a_gguf_file_tells_what_its_config_would(tmp_path: Path) -> None:
    model = gguf_files.llama(num_hidden_layers=3)
    path = gguf_files.write_gguf(
        tmp_path / "model.gguf", gguf_files.gguf_metadata(model), gguf_files.gguf_tensors(model)
    )
    assert read_config_file(path).layers == read_config(model.config.to_dict()).layers
    assert cache_shape(path).bytes(10) == 10 * 2 * 3 * 2 * 32 * 2


def test_smollm2_is_what_its_file_and_its_model_say(smollm2: Checkpoint) -> None:
    c = smollm2.model.config
    formula = kv_cache_bytes(
        n_layers=c.n_layers, tokens=100, n_kv_heads=c.n_kv_heads, head_dim=c.head_dim, bytes_per_element=2
    )
    assert preset("smollm2-135m").bytes(100) == cache_shape(smollm2.path).bytes(100) == formula


GGUF = {
    "llama": (metadata("llama"), "ffffff"),
    "qwen3": (metadata("qwen3"), "ffffff"),
    "gemma2": (metadata("gemma2", attention__sliding_window=9), "sfsfsf"),
    "gemma3": (metadata("gemma3", attention__sliding_window=9), "sssssf"),
    "gpt-oss": (metadata("gpt-oss", attention__sliding_window=9), "sfsfsf"),
    "phi3": (metadata("phi3", attention__sliding_window=9), "ssssss"),
    "phi3 without a window": (metadata("phi3", attention__sliding_window=0), "ffffff"),
    "deepseek2": (
        metadata("deepseek2", attention__kv_lora_rank=16, rope__dimension_count=4, attention__head_count_kv=1),
        "llllll",
    ),
    "jamba": (metadata("jamba", attention__head_count_kv=np.array([0, 2, 0, 0, 2, 0]), ssm__state_size=16), "nfnnfn"),
    "gemma3n": (
        metadata(
            "gemma3n",
            attention__sliding_window=9,
            attention__shared_kv_layers=2,
            attention__sliding_window_pattern=[True, True, False] * 2,
        ),
        "ssfsnn",
    ),
}


@pytest.mark.parametrize("name", GGUF)
def test_gguf_metadata_tell_each_layer(name: str) -> None:
    given, expected = GGUF[name]
    shape = read_gguf_metadata(given)
    assert kinds(shape) == expected and shape.trained_tokens == 512
    for layer in shape.layers:
        if layer.kind in (Kind.FULL, Kind.SLIDING):
            assert (layer.n_kv_heads, layer.key_dim, layer.value_dim) == (2, 24, 16)


def test_gguf_metadata_may_leave_out_what_follows() -> None:
    given = metadata(
        "llama", attention__head_count_kv="REMOVED", attention__key_length="REMOVED", attention__value_length="REMOVED"
    )
    assert read_gguf_metadata(given).bytes_per_token() == 2 * 6 * 8 * 8 * 2


GGUF_REFUSED = {
    "no architecture": ({}, "general.architecture"),
    "no layers": (metadata("llama", block_count="REMOVED"), "block_count"),
    "a negative count": (metadata("llama", attention__head_count=-1), "head_count = -1"),
    "heads that do not fit": (metadata("llama", attention__head_count_kv=3), "head_count_kv = 3"),
    "too few layers in a list": (metadata("llama", attention__head_count_kv=[2, 2]), "2 entries"),
    "no layer that attends": (metadata("jamba", attention__head_count_kv=[0] * 6), "gives no layer a head"),
    "a window in an unknown place": (metadata("novel", attention__sliding_window=9), "sliding_window = 9"),
    "a state": (metadata("mamba", ssm__state_size=16), "ssm.state_size"),
    "a decoder": (metadata("t5", decoder_block_count=6), "decoder_block_count"),
    "a window that is missing": (metadata("gemma2"), "sliding_window"),
    "an encoder": (metadata("nomic", attention__causal=False), "attention.causal = False"),
    "T5 without the depth of its decoder": (metadata("t5"), "decoder_block_count"),
    "Llama 4 without its chunk": (metadata("llama4"), "attention.chunk_size"),
    "a width that does not fit": (metadata("llama", attention__key_length="REMOVED", embedding_length=65), "65"),
}


@pytest.mark.parametrize("name", GGUF_REFUSED)
def test_gguf_metadata_that_do_not_tell_are_refused_by_name(name: str) -> None:
    given, words = GGUF_REFUSED[name]
    with pytest.raises(SizingError, match=words):
        read_gguf_metadata(given)


def test_gguf_metadata_tell_the_query_heads_that_ranks_share() -> None:
    shape = read_gguf_metadata(metadata("llama", attention__head_count=[8, 0, 12, 8, 8, 8]))
    assert shape.query_heads == 4 and shape.bytes(1, tensor_parallel=4) > 0
    with pytest.raises(SizingError, match="tensor_parallel = 8"):
        shape.bytes(1, tensor_parallel=8)


def test_damaged_gguf_metadata_give_a_named_error_or_a_whole_number() -> None:
    random = Random(5)
    junk = (None, -1, 0, 10**30, 1.5, True, "8", [], [2] * 6, np.array([1.5] * 6), {}, 1, 2, 8)
    outcomes = set()
    for _ in range(1500):
        given = dict(random.choice(list(GGUF.values()))[0])
        for _ in range(random.choice((1, 1, 2))):
            given[random.choice(list(given))] = random.choice(junk)
        try:
            assert type(read_gguf_metadata(given).bytes(100)) is int
            outcomes.add("answer")
        except SizingError as error:
            assert error.field in str(error)
            outcomes.add("error")
    assert outcomes == {"answer", "error"}
