"""Checkpoints: what loads equals transformers, and what cannot be loaded whole is refused by name.

The reference is transformers, which shares no code with the loader; files are written by the libraries that define
their formats.
"""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf_files as files
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from course_lib import checkpoints
from course_lib.checkpoints import Checkpoint, CheckpointError, load
from course_lib.checkpoints.weights import empty_weight
from course_lib.model import ModelConfig

SHAPES: dict[str, dict[str, Any]] = {
    "grouped query": {},
    "multi head": {"num_key_value_heads": 4, "head_dim": 16},
    "multi query": {"num_key_value_heads": 1},
    "tied head": {"tie_word_embeddings": True},
    "llama3 scaling": {"rope_parameters": {**files.LLAMA3, "rope_theta": 500_000.0}},
    "linear scaling": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
}


def tokens_for(config: Any, length: int = 100) -> torch.Tensor:
    return torch.randint(0, config.vocab_size, (2, length), generator=torch.Generator().manual_seed(7))


def assert_same_logits(ours: torch.nn.Module, theirs: torch.nn.Module, tolerance: float) -> None:
    tokens = tokens_for(theirs.config)
    with torch.no_grad():
        found, expected = ours(tokens), theirs(tokens).logits
    assert found.shape == expected.shape == (2, 100, theirs.config.vocab_size)
    assert expected.std() > 0.3  # logits that are all alike would agree whatever the weights
    difference = (found.double() - expected.double()).abs().max().item()
    assert difference < tolerance, difference


# --- SmolLM2, the same file read by both ----------------------------------------------------------------------------


@pytest.fixture(scope="session")
def reference(smollm2: Checkpoint) -> LlamaForCausalLM:
    """The same file read by transformers. (Its `from_pretrained` does this too, but wants the accelerate package.)"""
    model = LlamaForCausalLM(AutoConfig.from_pretrained(smollm2.path.parent, gguf_file=smollm2.path.name))
    weights = load_gguf_checkpoint(str(smollm2.path), return_tensors=True, model_to_load=model)["tensors"]
    outcome = model.load_state_dict(weights, strict=False)
    assert outcome.missing_keys == ["lm_head.weight"] and not outcome.unexpected_keys  # the head is the embedding
    return model.eval()


TEXT = """The key-value cache of a transformer stores, for every layer and every position, the key and the value vectors
that attention has computed, so that the next token need not compute them again. In 2017 nobody called it that. Its size
is 2 x layers x heads x head_dim x bytes for each token: 45 kB here, but 0.3 MB for a large model.
def size(n): return 2 * n
"""


@pytest.mark.slow
def test_smollm2_gives_the_logits_of_transformers(smollm2: Checkpoint, reference: LlamaForCausalLM) -> None:
    tokens = torch.tensor([smollm2.tokenizer.encode(TEXT)])
    assert 90 < tokens.shape[1] < 140
    with torch.no_grad():
        found, expected = smollm2.model(tokens), reference(tokens).logits
    assert found.shape == expected.shape
    # float32 rounding through 30 layers, on logits that reach 30
    assert (found - expected).abs().max().item() < 1e-3


@pytest.mark.slow
def test_smollm2_continues_with_the_64_tokens_of_transformers(smollm2: Checkpoint, reference: LlamaForCausalLM) -> None:
    prompt = torch.tensor([smollm2.tokenizer.encode(TEXT)])
    expected = reference.generate(prompt, max_new_tokens=64, min_new_tokens=64, do_sample=False)[0, prompt.shape[1] :]
    tokens = torch.cat([prompt, expected[None]], dim=1)
    with torch.no_grad():  # one pass over the continuation says what a greedy choice would be at each of its positions
        choices = smollm2.model(tokens)[0, prompt.shape[1] - 1 : -1].argmax(dim=-1)
    assert expected.shape == choices.shape == (64,)
    assert choices.tolist() == expected.tolist()


def test_smollm2_has_the_shape_that_its_authors_published(smollm2: Checkpoint) -> None:
    assert smollm2.model.config == ModelConfig(
        vocab_size=49_152,
        n_layers=30,
        d_model=576,
        n_heads=9,
        n_kv_heads=3,
        head_dim=64,
        d_ff=1536,
        max_positions=8192,
        rope_theta=100_000.0,
        norm_eps=1e-5,
        tied_head=True,
    )
    assert sum(parameter.numel() for parameter in smollm2.model.parameters()) == 134_515_008


def test_a_loaded_model_is_ready_for_inference(smollm2: Checkpoint) -> None:
    model = smollm2.model
    assert not model.training
    for name, parameter in model.named_parameters():
        assert not parameter.requires_grad, name
        assert parameter.device.type == "cpu" and parameter.dtype == torch.float32, name
    assert not list(model.buffers())


def test_loading_needs_neither_transformers_nor_torchs_compiler(smollm2: Checkpoint) -> None:
    code = (
        "import sys; from course_lib.checkpoints import load; load(sys.argv[1])\n"
        "print([name for name in ('transformers', 'torch._dynamo', 'sympy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(smollm2.path)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


# --- Hugging Face folders -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_a_folder_gives_the_logits_of_transformers(shape: str, tmp_path: Path) -> None:
    model = files.llama(**SHAPES[shape])
    loaded = load(files.save_folder(tmp_path, model))
    assert loaded.model.config.tied_head == model.config.tie_word_embeddings
    assert_same_logits(loaded.model, model, 1e-5)
    assert_same_logits(load(tmp_path, dtype=torch.float64).model, model.double(), 1e-5)  # theirs rotates in float32


@pytest.mark.parametrize("tied", [False, True])
def test_a_sharded_folder_loads_like_a_single_file(tied: bool, tmp_path: Path) -> None:
    model = files.llama(tie_word_embeddings=tied)
    files.save_folder(tmp_path, model, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 3
    assert_same_logits(load(tmp_path).model, model, 1e-5)


def test_a_mistral_without_a_window_loads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = MistralConfig(**{**files.llama_config().to_dict(), "model_type": "mistral"}, sliding_window=None)
    model = MistralForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    model.save_pretrained(tmp_path)
    assert_same_logits(load(tmp_path).model, model, 1e-5)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_stored_in_another_dtype_are_converted(stored: torch.dtype, tmp_path: Path) -> None:
    model = files.llama()
    files.save_folder(tmp_path, copy.deepcopy(model).to(stored))
    model.load_state_dict({name: value.to(stored).float() for name, value in model.state_dict().items()})
    assert_same_logits(load(tmp_path).model, model, 1e-5)
    half = load(tmp_path, dtype=torch.bfloat16).model
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.embedding, model.model.embed_tokens.weight.bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize(
    "scaling", [None, files.LLAMA3, {**files.LLAMA3, "type": "llama3"}, {"type": "linear", "factor": 4.0}]
)
def test_rope_fields_of_older_configurations_mean_the_same(scaling: dict[str, Any] | None, tmp_path: Path) -> None:
    kind = (scaling or {}).get("rope_type") or (scaling or {}).get("type", "default")
    parameters = {**(scaling or {}), "rope_type": kind, "rope_theta": 70_000.0}
    model = files.llama(rope_parameters=parameters)
    files.save_folder(tmp_path, model)
    files.change_config(tmp_path, rope_parameters=None, rope_theta=70_000.0, rope_scaling=scaling)
    assert_same_logits(load(tmp_path).model, model, 1e-5)


def test_a_second_copy_of_a_tied_head_must_be_the_embedding(tmp_path: Path) -> None:
    model = files.llama(tie_word_embeddings=True)
    files.save_folder(tmp_path, model)
    path = tmp_path / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}, path)
    assert_same_logits(load(tmp_path).model, model, 1e-5)
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"] + 1}, path)
    with pytest.raises(CheckpointError, match=r"tie_word_embeddings.*lm_head\.weight"):
        load(tmp_path)


# --- GGUF files -----------------------------------------------------------------------------------------------------

KINDS = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1"]


def as_stored(model: LlamaForCausalLM, kind: GGMLQuantizationType) -> LlamaForCausalLM:
    """The model with its matrices rounded as `kind` rounds them: what a file of that kind means."""
    rounded = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in rounded.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.from_numpy(dequantize(quantize(parameter.numpy(), kind), kind).copy()))
    return rounded


@pytest.mark.parametrize("kind", KINDS)
def test_a_gguf_file_of_every_kind_gives_the_logits_of_its_rounded_weights(kind: str, tmp_path: Path) -> None:
    model, stored = files.llama(), GGMLQuantizationType[kind]
    path = files.write_gguf(tmp_path / "x.gguf", files.gguf_metadata(model), files.gguf_tensors(model), stored)
    assert_same_logits(load(path).model, as_stored(model, stored), 1e-5)


@pytest.mark.parametrize("shape", ["multi head", "multi query", "tied head"])
def test_a_gguf_file_of_every_shape_gives_the_logits_of_transformers(shape: str, tmp_path: Path) -> None:
    model = files.llama(**SHAPES[shape])
    path = files.write_gguf(tmp_path / "x.gguf", files.gguf_metadata(model), files.gguf_tensors(model))
    loaded = load(path)
    assert loaded.name == "x" and loaded.path == path
    assert_same_logits(loaded.model, model, 1e-5)


@pytest.mark.parametrize(
    "left_out",
    [("dimension_count",), ("key_length", "value_length"), ("key_length", "value_length", "dimension_count")],
)
def test_head_dim_is_found_where_the_file_says_it(left_out: tuple[str, ...], tmp_path: Path) -> None:
    # Without any of the keys it is d_model / n_heads, so then the model has such heads.
    model = files.llama(**({"head_dim": 16} if len(left_out) == 3 else {}))
    metadata = {k: v for k, v in files.gguf_metadata(model).items() if not k.endswith(left_out)}
    loaded = load(files.write_gguf(tmp_path / "x.gguf", metadata, files.gguf_tensors(model)))
    assert loaded.model.config.head_dim == model.config.head_dim
    assert_same_logits(loaded.model, model, 1e-5)


def test_a_gguf_file_with_rotation_factors_is_a_llama3_scaling(tmp_path: Path) -> None:
    model = files.llama(**SHAPES["llama3 scaling"])
    plain = 500_000.0 ** -(torch.arange(0, 32, 2) / 32)
    factors = (plain / model.model.rotary_emb.inv_freq).numpy().astype(np.float32)
    assert factors.max() > 7 and factors.min() < 1.1
    tensors = files.gguf_tensors(model) | {"rope_freqs.weight": factors}
    path = files.write_gguf(tmp_path / "x.gguf", files.gguf_metadata(model), tensors)
    assert_same_logits(load(path).model, model, 1e-5)
    tensors["rope_freqs.weight"] = factors[:-1]
    path = files.write_gguf(tmp_path / "y.gguf", files.gguf_metadata(model), tensors)
    with pytest.raises(CheckpointError, match=r"'rope_freqs\.weight' has shape \[15\], expected \[16\]"):
        load(path)


@pytest.mark.parametrize(
    "keys",
    [
        {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
        {"llama.rope.scaling.factor": 4.0},
        {"llama.rope.scale_linear": 4.0},
    ],
)
def test_a_gguf_file_with_linear_scaling_gives_the_logits_of_transformers(keys: dict[str, Any], tmp_path: Path) -> None:
    model = files.llama(**SHAPES["linear scaling"])
    path = files.write_gguf(tmp_path / "x.gguf", files.gguf_metadata(model) | keys, files.gguf_tensors(model))
    assert_same_logits(load(path).model, model, 1e-5)


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_rotation_factors_and_a_linear_scaling_multiply(scale: float, tmp_path: Path) -> None:
    model = files.llama()
    factors = np.linspace(1, 8, 16, dtype=np.float32)
    tensors = files.gguf_tensors(model) | {"rope_freqs.weight": factors}
    metadata = files.gguf_metadata(model) | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": scale}
    loaded = load(files.write_gguf(tmp_path / "x.gguf", metadata, tensors))
    assert loaded.model.config.rope_factors == tuple((factors * np.float32(scale)).tolist())


# --- What load takes and random makes -------------------------------------------------------------------------------


RANDOM = ModelConfig(
    vocab_size=500, n_layers=4, d_model=128, n_heads=4, n_kv_heads=2, head_dim=32, d_ff=256, max_positions=128
)


def test_a_random_model_depends_on_its_seed_alone() -> None:
    torch.manual_seed(1)
    expected_draw = torch.rand(1)
    torch.manual_seed(1)
    first = checkpoints.random(RANDOM, seed=3)
    assert torch.rand(1) == expected_draw, "the global generator was used"
    torch.manual_seed(2)
    second, other = checkpoints.random(RANDOM, seed=3), checkpoints.random(RANDOM, seed=4)
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters()):
        assert torch.equal(a, b), name
    assert not torch.equal(first.embedding, other.embedding)
    # Measured once: another machine, or another version of a library, must make the same model.
    assert first.embedding.double().sum().item() == pytest.approx(17.9407061, rel=1e-6)


@pytest.mark.parametrize("tied", [True, False])
def test_the_logits_of_a_random_model_are_neither_flat_nor_certain(tied: bool) -> None:
    config = ModelConfig(**{**RANDOM.__dict__, "tied_head": tied})
    logits = checkpoints.random(config, seed=0)(tokens_for(config, 60))
    assert logits.shape == (2, 60, 500)
    assert 2 < logits.std() < 5
    assert 0.1 < logits.softmax(-1).amax(-1).mean() < 0.8


def test_random_models_of_two_dtypes_are_the_same_up_to_rounding() -> None:
    double, single = (checkpoints.random(RANDOM, seed=0, dtype=dtype) for dtype in (torch.float64, torch.float32))
    tokens = tokens_for(RANDOM, 60)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single(tokens).double(), double(tokens), rtol=0, atol=1e-4)


# --- Where weights lie -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["folder", "gguf", "random"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_matrices_lie_by_columns_where_that_decodes_faster(made: str, dtype: torch.dtype, tmp_path: Path) -> None:
    theirs = files.llama()
    if made == "random":
        model = checkpoints.random(RANDOM, dtype=dtype)
    elif made == "folder":
        model = load(files.save_folder(tmp_path, theirs), dtype=dtype).model
    else:
        path = files.write_gguf(tmp_path / "x.gguf", files.gguf_metadata(theirs), files.gguf_tensors(theirs))
        model = load(path, dtype=dtype).model
    matrices = [(name, weight) for name, weight in model.named_parameters() if weight.ndim == 2]
    assert len(matrices) == 2 + 4 * model.config.n_layers - model.config.tied_head
    for name, weight in matrices:
        rows, columns = weight.shape
        assert rows > 1 < columns
        by_columns = dtype in (torch.float32, torch.float64) and rows * dtype.itemsize % 4096  # all of them are small
        assert weight.stride() == ((1, rows) if by_columns else (columns, 1)), name


@pytest.mark.parametrize(
    ("shape", "dtype", "by_columns"),
    [
        ((1024, 192), torch.float32, False),  # columns a page apart, 768 KiB
        ((512, 192), torch.float64, False),
        ((1024, 256), torch.float32, False),  # 1 MiB, the largest that is small
        ((1024, 257), torch.float32, True),
        ((1023, 192), torch.float32, True),
        ((1536, 160), torch.float32, True),  # one and a half pages apart
        ((1024, 192), torch.float64, True),  # 1.5 MiB
        ((1024, 192), torch.bfloat16, False),
    ],
)
def test_small_matrices_whose_columns_would_lie_whole_pages_apart_lie_by_rows(
    shape: tuple[int, int], dtype: torch.dtype, by_columns: bool
) -> None:
    weight = empty_weight(shape, dtype, torch.device("cpu"))
    assert weight.shape == shape
    assert weight.stride() == ((1, shape[0]) if by_columns else (shape[1], 1))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_the_same_weights_by_rows_give_the_same_logits(dtype: torch.dtype, tolerance: float) -> None:
    model = checkpoints.random(RANDOM, dtype=dtype)
    by_rows = copy.deepcopy(model)
    for weight in by_rows.parameters():
        weight.data = weight.data.contiguous()
        assert weight.is_contiguous()
    assert not model.embedding.is_contiguous()
    tokens = tokens_for(RANDOM, 60)
    torch.testing.assert_close(model(tokens), by_rows(tokens), rtol=0, atol=tolerance)
    torch.testing.assert_close(model(tokens[:, :1]), by_rows(tokens[:, :1]), rtol=0, atol=tolerance)
