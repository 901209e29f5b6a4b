"""A manifest holds what may change a run: the same one gives the same tokens, and each difference has its field."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
from shapes import SHAPES, model_of, random_weights
from tokenizers import decoders, models, pre_tokenizers

from course_lib import reproducibility
from course_lib.checkpoints import CheckpointError, Tokenizer
from course_lib.generation import Sampling, generate
from course_lib.model import Transformer
from course_lib.reproducibility import MACHINE, Manifest, differences, digest_of_weights, replay, run

PROMPT = (3, 1, 4, 1, 5)
DRAWN = Sampling(temperature=1.5, top_k=9, top_p=0.9)
OTHER: dict[str, Any] = {
    "weights": "0" * 64, "tokenizer": "1" * 64, "prompt": (3, 1, 4, 1, 6), "max_new_tokens": 9, "stop_tokens": (2,),
    "temperature": 0.5, "top_k": None, "top_p": None, "seed": 8, "cache": False, "dtype": "float16", "device": "cpu",
    "threads": 99, "versions": {"torch": "1.0"}, "flags": {"mkldnn": "maybe"}, "tokens": (0,),
}  # fmt: skip


def tokenizer_of(vocabulary: dict[str, int], **options: Any) -> Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.decoder = decoders.ByteLevel()
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return Tokenizer(inner, **options)


@pytest.fixture(scope="module")
def manifest() -> Manifest:
    return run(model_of("gqa"), PROMPT, max_new_tokens=8, sampling=DRAWN, stop_tokens={30}, seed=7)


def test_a_manifest_says_what_was_asked_and_what_came(manifest: Manifest) -> None:
    made = generate(model_of("gqa"), PROMPT, max_new_tokens=8, sampling=DRAWN, stop_tokens={30}, seed=7)
    assert manifest.tokens == made.tokens and len(manifest.tokens) > 1
    assert (manifest.prompt, manifest.max_new_tokens, manifest.stop_tokens, manifest.seed) == (PROMPT, 8, (30,), 7)
    assert Sampling(manifest.temperature, manifest.top_k, manifest.top_p) == DRAWN
    assert manifest.dtype == "float64" and manifest.device.startswith("cpu ") and manifest.cache
    assert manifest.versions["torch"] == torch.__version__


def test_a_replay_makes_the_same_run(manifest: Manifest) -> None:
    assert differences(manifest, replay(manifest, model_of("gqa"))) == []


def test_a_replay_runs_on_as_many_threads_and_leaves_none_behind(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, used = torch.get_num_threads(), []
    asked = replace(manifest, threads=before + 1)
    assert replay(asked, model_of("gqa")) == asked and torch.get_num_threads() == before

    def stopped(*_: Any, **__: Any) -> None:
        used.append(torch.get_num_threads())
        raise KeyboardInterrupt

    monkeypatch.setattr(reproducibility, "generate", stopped)
    with pytest.raises(KeyboardInterrupt):
        replay(asked, model_of("gqa"))
    assert used == [before + 1] and torch.get_num_threads() == before


@pytest.mark.parametrize("field", [field.name for field in fields(Manifest)])
def test_each_field_in_which_two_runs_differ_is_named(manifest: Manifest, field: str) -> None:
    other = replace(manifest, **{field: OTHER[field]})
    found = differences(manifest, other)
    assert {each.field.partition(".")[0] for each in found} == {field} and differences(manifest, manifest) == []
    assert all(each.machine == (field in MACHINE) for each in found)
    assert str(found[0]).startswith(f"{found[0].field}: ") and " / " in str(found[0])


def test_what_a_file_says_cannot_reach_the_terminal(manifest: Manifest) -> None:
    (found,) = differences(manifest, replace(manifest, device="\x1b[31mcpu"))
    assert str(found).isprintable()


def test_every_setting_that_chooses_a_kernel_is_a_flag() -> None:
    """Each is changed in a process of its own, and one flag tells."""
    program = """
import torch
from course_lib.reproducibility import flags
cuda = torch.backends.cuda
settings = [
    lambda: torch.use_deterministic_algorithms(True),
    lambda: torch.set_float32_matmul_precision("medium"),
    lambda: setattr(torch.backends.mkldnn, "enabled", False),
    lambda: cuda.enable_flash_sdp(False),
    lambda: cuda.enable_mem_efficient_sdp(False),
    lambda: cuda.enable_cudnn_sdp(False),
    lambda: cuda.enable_math_sdp(False),
    lambda: cuda.allow_fp16_bf16_reduction_math_sdp(True),
    lambda: setattr(cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
    lambda: setattr(cuda.matmul, "allow_fp16_reduced_precision_reduction", False),
]
told = set()
for change in settings:
    before = flags()
    change()
    told |= {name for name, value in flags().items() if value != before[name]}
    assert len(told) == settings.index(change) + 1, (settings.index(change), told)
assert told == set(flags()) - {"blas"}, told  # torch for the CPU alone has one library
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


@pytest.mark.parametrize("number", [np.array, torch.tensor], ids=["NumPy", "torch"])
def test_a_run_that_was_asked_for_in_numbers_of_a_library_is_saved_in_plain_ones(
    number: Callable[[Any], Any], tmp_path: Path
) -> None:
    plain = run(model_of("gqa"), PROMPT, max_new_tokens=3, sampling=DRAWN, seed=7)
    drawn = Sampling(number(15) / number(10), number(9), number(9) / number(10))
    prompt = number(PROMPT)
    made = run(model_of("gqa"), prompt, max_new_tokens=number(3), sampling=drawn, seed=number(7))
    made.save(tmp_path / "run.json")
    assert Manifest.load(tmp_path / "run.json") == replace(plain, top_p=float(drawn.top_p or 0), tokens=made.tokens)
    assert {type(token) for token in made.prompt} == {int}


def test_flags_are_told_under_torchs_new_names_too() -> None:
    program = (
        "import torch; from course_lib.reproducibility import flags; before = flags()\n"
        "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'\n"
        "assert flags()['float32_matmul_precision'] != before['float32_matmul_precision']"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_an_entry_that_only_one_has_is_a_difference(manifest: Manifest) -> None:
    other = replace(manifest, versions=manifest.versions | {"jax": "0.4"})
    assert [str(each) for each in differences(manifest, other)] == ["versions.jax: nothing / 0.4"]


def test_the_digest_of_weights_sees_one_bit_and_what_is_no_weight() -> None:
    def fresh(shape: str = "mha", dtype: torch.dtype = torch.float32, **changed: Any) -> Transformer:
        return random_weights(Transformer(replace(SHAPES[shape], **changed))).to(dtype)

    model = fresh()
    digests = [digest_of_weights(model)]
    assert digest_of_weights(fresh()) == digests[0]
    with torch.no_grad():
        model.layers[1].down.view(-1)[-1:].view(torch.int32).bitwise_xor_(1)
    digests += [digest_of_weights(each) for each in (model, fresh(rope_theta=10_001.0), fresh(norm_eps=2e-5))]
    digests += [digest_of_weights(fresh(dtype=dtype)) for dtype in (torch.bfloat16, torch.float16, torch.float64)]
    assert len(set(digests)) == len(digests)


def test_the_digest_of_a_tokenizer_sees_all_that_makes_tokens() -> None:
    plain = {"a": 0, "b": 1, "<|im_end|>": 2}
    each = [
        tokenizer_of(plain),
        tokenizer_of(plain | {"b": 2, "<|im_end|>": 1}),
        tokenizer_of(plain, stop_tokens=[1]),
        tokenizer_of(plain, template="{{ messages[0].content }}"),
        tokenizer_of(plain, template="{{ messages[0].content }}", named={"bos_token": "a"}),
    ]
    assert len({tokenizer.digest for tokenizer in each}) == len(each)
    assert tokenizer_of(plain).digest == each[0].digest


def test_another_model_or_tokenizer_cannot_answer_the_same_question(manifest: Manifest) -> None:
    with pytest.raises(
        ValueError, match=f"weights: the run had {manifest.weights[:8]}, here is .*load what it was made"
    ):
        replay(manifest, model_of("mha"))
    with pytest.raises(ValueError, match="the run had float32, here is float64"):
        replay(replace(manifest, dtype="float32"), model_of("gqa"))
    with pytest.raises(ValueError, match="tokenizer: the run had 11111111"):
        replay(replace(manifest, tokenizer="1" * 64), model_of("gqa"), tokenizer_of({"a": 0}))


def test_a_file_brings_back_the_manifest_and_is_never_overwritten(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    manifest.save(path)
    assert Manifest.load(path) == manifest
    with pytest.raises(FileExistsError):
        replace(manifest, seed=9).save(path)
    assert Manifest.load(path) == manifest


def test_a_file_that_cannot_be_written_whole_is_not_left_behind(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproducibility.json, "dumps", lambda *_, **__: "\ud800")  # no UTF-8 can hold it
    opened, real_open, real_unlink = [], Path.open, Path.unlink

    def note_open(self: Path, *args: Any, **options: Any) -> Any:
        opened.append(real_open(self, *args, **options))
        return opened[-1]

    def unlink_as_on_windows(self: Path, **options: Any) -> None:
        assert opened[-1].closed, "an open file cannot be removed"
        real_unlink(self, **options)

    monkeypatch.setattr(Path, "open", note_open)
    monkeypatch.setattr(Path, "unlink", unlink_as_on_windows)
    with pytest.raises(UnicodeEncodeError):
        manifest.save(tmp_path / "run.json")
    assert list(tmp_path.iterdir()) == [] and len(opened) == 1


Change = Callable[[dict[str, Any]], Any]
DAMAGE: dict[str, tuple[Change, str]] = {
    "another format": (lambda data: data.update(format=2), "format = 2 is not the format of this version, 1"),
    "no format": (lambda data: data.pop("format"), "lacks the field 'format'"),
    "no weights": (lambda data: data.update(weights=""), "weights = '' is empty"),
    "a digest of letters": (lambda data: data.update(weights="x" * 64), "is no SHA-256 digest"),
    "text as a token": (lambda data: data.update(prompt=[1, "2"]), "prompt .* is no list of token ids"),
    "truth as a token": (lambda data: data.update(tokens=[True]), "tokens .* is no list of token ids"),
    "a negative token": (lambda data: data.update(tokens=[-1]), "is no list of token ids"),
    "a huge token": (lambda data: data.update(tokens=[1 << 40]), "is no list of token ids"),
    "no prompt": (lambda data: data.update(prompt=[]), "prompt .* is empty"),
    "more tokens than asked for": (lambda data: data.update(max_new_tokens=1), "should be 1 to 1 tokens"),
    "a negative seed": (lambda data: data.update(seed=-1), "seed = -1 cannot be negative"),
    "a seed that is none": (lambda data: data.update(seed=1 << 63), "seed = .* is more than"),
    "a temperature below 0": (lambda data: data.update(temperature=-1.0), "temperature must be a number of at least 0"),
    "top_p of 2": (lambda data: data.update(top_p=2), "top_p must be"),
    "no threads": (lambda data: data.update(threads=0), "threads = 0 must be at least 1"),
    "a million threads": (lambda data: data.update(threads=1_000_000), "at most 4096"),
    "a number as a version": (lambda data: data.update(versions={"torch": 2}), "versions .* holds something"),
    "flags in a list": (lambda data: data.update(flags=[]), "flags .* is not an object"),
    "a cache of maybe": (lambda data: data.update(cache="maybe"), "cache .* neither true nor false"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_that_is_no_manifest_is_refused_by_field(manifest: Manifest, tmp_path: Path, name: str) -> None:
    damage, said = DAMAGE[name]
    data = json.loads(json.dumps({"format": 1} | asdict(manifest)))
    damage(data)
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError, match=said):
        Manifest.load(tmp_path / "run.json")
