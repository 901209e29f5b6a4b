"""A Hugging Face folder made from a GGUF file is the same model to this course and to transformers, and is never half
made."""

import json
import os
from dataclasses import replace
from pathlib import Path

import gguf_files as files
import pytest
import torch
from gguf import GGMLQuantizationType

from course_lib.checkpoints import MODELS, Checkpoint, CheckpointError, download, export, load
from course_lib.checkpoints.export import LIST, huggingface_folder, is_whole, write_folder

transformers = pytest.importorskip("transformers", minversion="5.0")

CHATS = [
    [{"role": "user", "content": "What is a key-value cache?"}],
    [
        {"role": "system", "content": "Answer in French."},
        {"role": "user", "content": "naïve 日本 \N{GRINNING FACE}\n\n  12345 don't"},
        {"role": "assistant", "content": "Oui."},
        {"role": "user", "content": ""},
    ],
]


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A random model, quantised as SmolLM2 is."""
    model = files.llama(tie_word_embeddings=request.param, rope_parameters={"rope_type": "default", "rope_theta": 5e4})
    kind = GGMLQuantizationType.Q4_1
    return files.write_gguf(tmp_path / "tiny.gguf", files.gguf_metadata(model), files.gguf_tensors(model), kind)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_folder_is_the_same_model_to_us_and_to_transformers(source: Path, dtype: str, tmp_path: Path) -> None:
    write_folder(source, tmp_path / "folder", dtype)
    ours, again = load(source, export.DTYPES[dtype]), load(tmp_path / "folder", export.DTYPES[dtype])
    assert again.model.config == ours.model.config
    for name, weight in ours.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight), f"{name}: rounded once, by the same rule"
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "folder")
    assert theirs.dtype == export.DTYPES[dtype], "as config.json says"
    tokens = torch.tensor([[5, 17, 250, 3, 99, 6, 6, 42]])
    expected = load(tmp_path / "folder", torch.float32).model(tokens)
    with torch.no_grad():
        found = theirs.float()(tokens).logits
    assert found.shape == expected.shape == (1, 8, 320)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)  # float32, sums in another order


def test_smollm2_as_a_folder_has_the_weights_the_tokens_and_the_chats_of_the_file(smollm2: Checkpoint) -> None:
    folder = huggingface_folder("smollm2", "bf16")
    again = load(folder, torch.bfloat16)
    assert again.model.config == smollm2.model.config
    for name, weight in smollm2.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], weight.bfloat16()), name
    assert again.tokenizer.stop_tokens == smollm2.tokenizer.stop_tokens
    theirs = transformers.AutoProcessor.from_pretrained(folder)  # what its server asks
    stops = transformers.GenerationConfig.from_pretrained(folder).eos_token_id
    assert set(stops) == smollm2.tokenizer.stop_tokens
    for chat in CHATS:
        expected = smollm2.tokenizer.chat(chat)
        assert again.tokenizer.chat(chat) == expected
        assert theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=True)["input_ids"] == expected
        text = chat[-2 % len(chat)]["content"]
        assert theirs(text)["input_ids"] == smollm2.tokenizer.encode(text)
        assert theirs.decode(smollm2.tokenizer.encode(text)) == text


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small model that can be fetched, and an empty cache folder."""
    cache, model = tmp_path / "cache", files.llama(num_hidden_layers=1)
    cache.mkdir()
    path = files.write_gguf(tmp_path / "tiny.gguf", files.gguf_metadata(model), files.gguf_tensors(model))
    monkeypatch.setenv("COURSE_CACHE", str(cache))
    monkeypatch.setitem(MODELS, "tiny", replace(MODELS["smollm2"], title="Tiny", file_sha256=download.sha256(path)))
    monkeypatch.setattr(export, "fetch", lambda name: path)
    return cache


@pytest.mark.parametrize("listed", ["{}", '["config.json"]', "[" * 100_000, "null"])
def test_a_folder_without_weights_is_not_whole_whatever_its_list_says(listed: str, tmp_path: Path) -> None:
    (tmp_path / LIST).write_text(listed)
    assert not is_whole(tmp_path)


def test_it_is_made_once_and_made_again_when_it_is_damaged(tiny: Path) -> None:
    folder = huggingface_folder("tiny", "bf16")
    assert folder.parent == tiny and is_whole(folder) and load(folder).tokenizer
    before = (folder / "config.json").stat().st_mtime_ns
    assert huggingface_folder("tiny", "bf16") == folder
    assert (folder / "config.json").stat().st_mtime_ns == before, "it was there"
    assert huggingface_folder("tiny", "fp32") != folder
    original = (folder / "model.safetensors").read_bytes()
    for damage in (
        lambda: (folder / "model.safetensors").write_bytes(original[:-1] + b"\1"),
        lambda: (folder / "tokenizer.json").unlink(),
        lambda: (folder / "more.json").write_text("{}"),
        lambda: (folder / LIST).write_text("[]"),
        lambda: (folder / LIST).unlink(),
    ):
        damage()
        assert not is_whole(folder)
        assert huggingface_folder("tiny", "bf16") == folder and is_whole(folder)
        assert (folder / "model.safetensors").read_bytes() == original
    assert sorted(path.name[:5] for path in tiny.iterdir()) == ["Tiny-", "Tiny-"]


def test_other_weights_under_the_same_name_get_a_folder_of_their_own(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = huggingface_folder("tiny", "bf16")
    monkeypatch.setitem(MODELS, "tiny", replace(MODELS["tiny"], file_sha256="0" * 64))
    assert huggingface_folder("tiny", "bf16") != folder, "what lies there may be of the old ones"


@pytest.mark.parametrize("at", range(8))
def test_an_interrupt_leaves_nothing_half_made(at: int, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written or moved when it comes: the weights, a text, the list, or the folder itself."""
    calls = 0

    def interrupting(real: object) -> object:
        def call(*arguments: object, **options: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise KeyboardInterrupt
            return real(*arguments, **options)  # type: ignore[operator]

        return call

    with monkeypatch.context() as patch:
        patch.setattr(export, "save_file", interrupting(export.save_file))
        patch.setattr(Path, "write_bytes", interrupting(Path.write_bytes))
        patch.setattr(Path, "write_text", interrupting(Path.write_text))
        patch.setattr(os, "replace", interrupting(os.replace))
        with pytest.raises(KeyboardInterrupt):
            huggingface_folder("tiny", "bf16")
    assert not list(tiny.iterdir())
    assert is_whole(huggingface_folder("tiny", "bf16"))


def test_another_process_may_be_quicker(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.replace

    def late(source: Path, target: Path) -> None:
        if source.name == "new":
            write_folder(export.fetch("tiny"), target, "bf16")
        real(source, target)

    monkeypatch.setattr(os, "replace", late)
    assert is_whole(huggingface_folder("tiny", "bf16")) and len(list(tiny.iterdir())) == 1


def test_what_cannot_be_a_folder_is_refused(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CheckpointError, match="'q4' cannot be made: choose one of fp32, bf16, fp16"):
        huggingface_folder("tiny", "q4")
    model = files.llama(num_hidden_layers=1)
    silent, tensors = files.gguf_metadata(model, tokenizer=False), files.gguf_tensors(model)
    with pytest.raises(CheckpointError, match="has no tokenizer"):
        write_folder(files.write_gguf(tmp_path / "a.gguf", silent, tensors), tmp_path / "x", "bf16")
    scaled = files.gguf_metadata(model) | {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    with pytest.raises(CheckpointError, match="scales its rotations"):
        write_folder(files.write_gguf(tmp_path / "b.gguf", scaled, tensors), tmp_path / "y", "bf16")
    assert not (tmp_path / "x").exists() and not (tmp_path / "y").exists()
    (tmp_path / "blocked").write_text("")
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "blocked" / "cache"))
    with pytest.raises(CheckpointError, match="could not be written.*COURSE_CACHE"):
        huggingface_folder("tiny", "bf16")
    monkeypatch.undo()
    with pytest.raises(CheckpointError, match="gpt-9"):
        huggingface_folder("gpt-9")


def test_answers_end_where_those_of_the_file_do(tmp_path: Path) -> None:
    model = files.llama(num_hidden_layers=1)
    fields = files.gguf_metadata(model) | {"tokenizer.ggml.eos_token_id": 0, "tokenizer.ggml.padding_token_id": 2}
    write_folder(files.write_gguf(tmp_path / "a.gguf", fields, files.gguf_tensors(model)), tmp_path / "folder", "bf16")
    ends = transformers.GenerationConfig.from_pretrained(tmp_path / "folder")
    assert set(ends.eos_token_id) == load(tmp_path / "a.gguf").tokenizer.stop_tokens == {0, 1}
    assert ends.pad_token_id == 2 and not ends.do_sample


def test_its_config_says_what_the_file_says(source: Path, tmp_path: Path) -> None:
    write_folder(source, tmp_path / "folder", "bf16")
    fields = json.loads((tmp_path / "folder/config.json").read_text(encoding="utf-8"))
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "folder")
    assert (fields["num_key_value_heads"], fields["head_dim"], fields["hidden_size"]) == (2, 32, 64)
    assert theirs.rope_parameters["rope_theta"] == 5e4 and theirs.architectures == ["LlamaForCausalLM"]
    assert (theirs.bos_token_id, theirs.eos_token_id) == (0, 1)
