"""Folders that cannot be loaded whole are refused, and the refusal names what is wrong.

Each test makes one thing wrong in a checkpoint that loads otherwise; the last ones damage files at random. The error
is always a CheckpointError, never another exception, an endless loop or a model with wrong weights.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf_files as files
import pytest
import torch
from damage import damaged, survives
from safetensors.torch import load_file, save_file

from course_lib.checkpoints import CheckpointError, load
from course_lib.checkpoints.weights import check_destination


@pytest.fixture(scope="module")
def folder_master(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files.save_folder(tmp_path_factory.mktemp("master"), files.llama(), tokenizer=True)


@pytest.fixture
def folder(folder_master: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(folder_master, tmp_path / "model"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("model_type", "gpt2", "model_type = 'gpt2'.*llama, mistral"),
        ("model_type", "REMOVED", "lacks the field 'model_type'"),
        ("model_type", "mistral", "sliding_window = 4096"),
        ("hidden_act", "gelu", "hidden_act = 'gelu'"),
        ("attention_bias", True, "attention_bias = True"),
        ("mlp_bias", True, "mlp_bias = True"),
        ("pretraining_tp", 2, "pretraining_tp = 2"),
        ("quantization_config", {"quant_method": "gptq"}, "quantization_config = .*gptq"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 2.0}, "rope_type = 'yarn'"),
        ("rope_scaling", {"type": "dynamic", "factor": 2.0}, "type = 'dynamic'"),
        ("rope_scaling", {**files.LLAMA3, "factor": 0.0}, "factor = 0.0"),
        ("rope_scaling", {**files.LLAMA3, "low_freq_factor": None}, "lacks the field 'low_freq_factor'"),
        ("rope_scaling", [1], r"rope_scaling = \[1\] is not an object"),
        ("rope_scaling", {"rope_type": "linear", "factor": -1}, "rope_factors.*-1"),
        ("partial_rotary_factor", 0.5, "partial_rotary_factor = 0.5"),
        ("hidden_size", "64", "hidden_size = '64' is not a whole number"),
        ("hidden_size", True, "hidden_size = True is not a whole number"),
        ("hidden_size", -64, "hidden_size = -64 cannot be negative"),
        ("hidden_size", 128, r"embed_tokens\.weight' has shape \[320, 64\], expected \[320, 128\]"),
        ("head_dim", 31, "head_dim=31 must be even"),
        ("head_dim", 10**15, "heads of 1,000,000,000,000,000 dimensions are not believed"),
        ("num_attention_heads", 0, "n_heads must be .* not 0"),
        ("num_key_value_heads", 3, "n_heads=4 must be a multiple of n_kv_heads=3"),
        ("num_hidden_layers", 10**9, "num_hidden_layers = 1000000000 does not fit"),
        ("num_hidden_layers", 1, r"9 tensors .* no place for: .*model\.layers\.1\."),
        ("num_hidden_layers", 3, r"lacks the tensor 'model\.layers\.2\."),
        ("vocab_size", 10**15, r"expected \[1000000000000000, 64\]"),
        ("max_position_embeddings", 10**12, "max_position_embeddings = 1000000000000 is not believed"),
        ("rms_norm_eps", 10**400, "rms_norm_eps .* not a finite number"),
        ("rms_norm_eps", "REMOVED", "lacks the field 'rms_norm_eps'"),
        ("tie_word_embeddings", "yes", "tie_word_embeddings = 'yes' is neither true nor false"),
    ],
)
def test_a_configuration_that_is_not_supported_is_named(folder: Path, field: str, value: Any, message: str) -> None:
    files.change_config(folder, **({"rope_parameters": None} if field == "rope_scaling" else {}), **{field: value})
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "config.json is not a valid JSON file"),
        ("[]", "must hold a JSON object, found list"),
        ('{"a": 1, "a": 2}', "the key 'a' appears 2 times"),
        ('{"rms_norm_eps": NaN}', "NaN is not a JSON number"),
        ("[" * 100_000, "not a valid JSON file"),
        ('{"a": ' + "9" * 5000 + "}", "not a valid JSON file"),
        ("\udcff", "not a valid JSON file"),
    ],
)
def test_a_config_that_is_not_plain_json_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_folder_that_may_not_be_entered_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:  # as for a user without the right to enter it
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(CheckpointError, match="cannot be a path here: .*Permission denied"):
        load(folder)


def test_a_config_of_gigabytes_is_not_read(folder: Path) -> None:
    with (folder / "config.json").open("r+b") as file:
        file.truncate(1 << 33)  # sparse: takes no space
    with pytest.raises(CheckpointError, match=r"8,589,934,592 bytes"):
        load(folder)


def change_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path)


NORM, DOWN = "model.norm.weight", "model.layers.1.mlp.down_proj.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(DOWN), rf"lacks the tensor '{DOWN}' \(expected shape \[64, 96\]\)"),
        (lambda w: w.pop("lm_head.weight"), r"lacks the tensor 'lm_head\.weight'"),
        (lambda w: w.update({DOWN: torch.zeros(96, 64)}), rf"'{DOWN}' has shape \[96, 64\], expected \[64, 96\]"),
        (lambda w: w.update({NORM: torch.zeros(64, 1)}), rf"'{NORM}' has shape \[64, 1\], expected \[64\]"),
        (lambda w: w.update({"model.layers.0.self_attn.q_proj.bias": torch.zeros(128)}), r"q_proj\.bias' \[128\]"),
        (lambda w: w.update({"model.layers.0.mlp.experts.0.w1.weight": torch.zeros(2)}), r"experts\.0\.w1"),
        (lambda w: w.update({DOWN: torch.zeros(64, 96, dtype=torch.int8)}), rf"'{DOWN}' is stored as I8"),
        (lambda w: w.update({DOWN: torch.zeros(64, 96).to(torch.float8_e4m3fn)}), rf"'{DOWN}' is stored as F8_E4M3"),
        (lambda w: w[NORM].fill_(float("nan")), rf"'{NORM}' holds values that are not finite"),
        (lambda w: w[DOWN][3, 5].fill_(float("inf")), rf"'{DOWN}' holds values that are not finite"),
    ],
)
def test_a_wrong_tensor_in_a_folder_is_named(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], None], message: str
) -> None:
    change_weights(folder, change)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_weights_too_large_for_the_dtype_are_refused_rather_than_made_infinite(folder: Path) -> None:
    change_weights(folder, lambda weights: weights[DOWN][0, 0].fill_(70_000.0))
    assert load(folder).model.layers[1].down.max() == 70_000
    with pytest.raises(CheckpointError, match=rf"'{DOWN}' .* torch\.float16"):
        load(folder, dtype=torch.float16)


def test_rotation_frequencies_in_old_checkpoints_are_ignored(folder: Path) -> None:
    before = load(folder).model(torch.tensor([[1, 2, 3]]))
    change_weights(folder, lambda w: w.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(16)}))
    torch.testing.assert_close(load(folder).model(torch.tensor([[1, 2, 3]])), before, rtol=0, atol=0)


def test_a_truncated_safetensors_file_says_how_many_bytes_are_missing(folder: Path) -> None:
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for kept in (len(whole) - 1, len(whole) // 2):
        path.write_bytes(whole[:kept])
        with pytest.raises(CheckpointError, match=f"need {len(whole):,} bytes, the file has {kept:,}"):
            load(folder)
    for kept in (100, 7, 0):
        path.write_bytes(whole[:kept])
        with pytest.raises(CheckpointError, match=r"model\.safetensors cannot be read"):
            load(folder)


def test_a_folder_of_pickles_is_refused_with_the_reason(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cposix\nsystem\n(S'touch owned'\ntR.")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin is a pickle, a program"):
        load(folder)


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return files.save_folder(tmp_path / "sharded", files.llama(), max_shard_size="60KB")


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", "x.bin", 7]
)
def test_a_shard_outside_its_folder_is_refused(sharded: Path, name: Any) -> None:
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"][NORM] = name
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=rf"'{NORM}' lies in .* not the name of a shard"):
        load(sharded)


def test_missing_shards_and_tensors_that_lie_elsewhere_are_named(sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    shards = sorted(set(index["weight_map"].values()))
    elsewhere = next(shard for shard in shards if shard != index["weight_map"][NORM])
    moved = {"weight_map": index["weight_map"] | {NORM: elsewhere}}
    path.write_text(json.dumps(moved))
    with pytest.raises(CheckpointError, match=rf"lacks the tensor '{NORM}', which the index places there"):
        load(sharded)
    path.write_text(json.dumps(index))
    (sharded / shards[1]).unlink()
    with pytest.raises(CheckpointError, match=f"lacks the shard '{shards[1]}'"):
        load(sharded)
    path.write_text('{"weight_map": {}}')
    with pytest.raises(CheckpointError, match="weight_map names no tensors"):
        load(sharded)


def test_two_shards_with_the_same_tensor_are_refused(sharded: Path) -> None:
    index = json.loads((sharded / "model.safetensors.index.json").read_text())
    other = sharded / next(shard for shard in index["weight_map"].values() if shard != index["weight_map"][NORM])
    save_file(load_file(other) | {NORM: torch.ones(64)}, other)
    with pytest.raises(CheckpointError, match=rf"'{NORM}' lies in another shard"):
        load(sharded)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
def test_a_damaged_folder_loads_or_is_refused_but_never_crashes(name: str, folder: Path) -> None:
    whole = (folder / name).read_bytes()
    loaded, refused = survives(folder, folder / name, damaged(whole, 120, min(len(whole), 2500)))
    assert refused > 30, (loaded, refused)


# --- What load takes ------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_told_with_what_there_is(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"'nothing' is neither a known model \(smollm2\)"):
        load("nothing")
    (tmp_path / "a.gguf").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no config\.json; name one of its GGUF files: a\.gguf"):
        load(tmp_path)
    with pytest.raises(CheckpointError, match="not a GGUF file"):
        load(tmp_path / "a.gguf")


def test_a_dtype_or_device_that_cannot_be_used_is_named_before_anything_is_read(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"dtype torch\.int8"):
        load(folder, dtype=torch.int8)
    for device in ("meta", "nowhere", "cuda:77", "mps"):
        with pytest.raises(CheckpointError, match=f"device '{device}' .*use device='cpu'"):
            load(folder, device=device)
    with pytest.raises(CheckpointError, match="device 'None'"):
        load(folder, device=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["mps", "mps:0", "meta", "xpu"])
def test_a_device_on_which_the_model_cannot_run_is_refused_even_where_it_is_there(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "empty", lambda *_, **__: None)
    with pytest.raises(CheckpointError, match=rf"device '{device}' .*runs on cpu and cuda only.*use device='cpu'"):
        check_destination(torch.float32, device)


def test_a_folder_without_a_tokenizer_loads_and_says_so_when_one_is_wanted(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    loaded = load(str(folder))
    assert loaded.model(torch.tensor([[1, 2]])).shape == (1, 2, 320)
    with pytest.raises(CheckpointError, match=r"has no tokenizer: put its tokenizer\.json"):
        _ = loaded.tokenizer


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(
        path.read_text().replace('"[PAD319]":319', '"[PAD319]":320').replace('"[PAD319]": 319', '"[PAD319]": 320')
    )
    with pytest.raises(CheckpointError, match="ids up to 320, but the model knows 320 tokens"):
        load(folder)


@pytest.mark.parametrize("place", [None, 5, b"smollm2", ["smollm2"], {}])
def test_what_is_neither_a_name_nor_a_path_is_refused(place: Any) -> None:
    with pytest.raises(CheckpointError, match=r"load takes the name of a model \(smollm2\) or the path .*, not "):
        load(place)


@pytest.mark.parametrize("place", ["~nosuchuser/x", "~nosuchuser/x.gguf", "a\0b", "a\0b.gguf"])
def test_a_path_that_cannot_be_is_refused(place: str) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be a path here: .*Name a \.gguf file|nothing is there"):
        load(place)


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize("name", ["loop", "loop.gguf"])
def test_a_loop_of_links_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).symlink_to(name)
    with pytest.raises(CheckpointError, match=rf"{name}' (cannot be a path here|is neither a known model)"):
        load(tmp_path / name)
