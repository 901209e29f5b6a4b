"""GGUF files that cannot be loaded whole are refused, and the refusal names what is wrong.

Each test makes one thing wrong in a checkpoint that loads otherwise; the last ones damage files at random. The error
is always a CheckpointError, never another exception, an endless loop or a model with wrong weights.
"""

import struct
from pathlib import Path
from typing import Any

import gguf_files as files
import numpy as np
import pytest
from damage import damaged, survives

from course_lib.checkpoints import CheckpointError, load


def tiny_gguf(
    path: Path, *, without: tuple[str, ...] = (), tensors: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """A small file with some metadata changed or left out, or some tensors replaced (None leaves one out)."""
    model = files.llama()
    metadata = files.gguf_metadata(model) | changes
    weights = files.gguf_tensors(model) | (tensors or {})
    return files.write_gguf(
        path,
        {key: value for key, value in metadata.items() if key not in without},
        {name: values for name, values in weights.items() if values is not None},
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0}, "scaling.type = 'yarn'"),
        ({"llama.expert_count": 8}, "llama.expert_count = 8"),
        ({"split.count": 2}, "split.count = 2"),
        ({"llama.attention.sliding_window": [64, 0]}, "sliding_window = "),
        ({"llama.attention.key_length": 4_000_000_000, "llama.rope.scaling.factor": 2.0}, "heads of 4,000,000,000"),
        ({"llama.logit_scale": 8.0}, "llama.logit_scale = 8.0"),
        ({"llama.attention.sliding_window": 64}, "sliding_window = 64"),
        ({"llama.block_count": 3}, r"lacks the tensor 'blk\.2\.attn_norm\.weight' \(expected shape \[64\]\)"),
        ({"llama.block_count": 1}, r"9 tensors .*blk\.1\."),
        ({"llama.block_count": 4_000_000_000}, "block_count is 4,000,000,000, but there are 21 tensors"),
        ({"llama.block_count": 2.0}, "block_count must be one whole number, found 2.0"),
        ({"llama.block_count": True}, "block_count must be one whole number, found True"),
        ({"llama.attention.head_count": 0}, "n_heads must be"),
        ({"llama.attention.head_count": [4, 4]}, "head_count must be one whole number, found a list of 2 values"),
        ({"llama.attention.head_count_kv": [2, 1]}, "head_count_kv must be one whole number, found a list of 2"),
        ({"llama.attention.head_count_kv": 3}, "multiple of n_kv_heads=3"),
        ({"llama.attention.value_length": 16}, "value_length is 16, the heads have 32"),
        ({"llama.rope.dimension_count": 16}, "dimension_count is 16, the heads have 32"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "epsilon is nan, not a finite number"),
        ({"llama.rope.freq_base": -1.0}, "rope_theta must be a positive number"),
        ({"llama.context_length": 4_000_000_000}, "context_length is 4,000,000,000"),
        ({"llama.embedding_length": 65}, r"'token_embd\.weight' has shape \[320, 64\], expected \[320, 65\]"),
        ({"llama.vocab_size": 321}, "vocab_size is 321, but 'token_embd.weight' has 320 rows"),
        ({"general.alignment": True}, "general.alignment is True, not a power of two"),
        ({"general.alignment": 1}, "what stands behind it belongs to no tensor"),  # the file was written with 32
        (
            {
                "tokenizer.ggml.tokens": ["a", "b"],
                "tokenizer.ggml.merges": ["a b"],
                "tokenizer.ggml.token_type": [1, 1],
            },
            "tokens and merges make no tokenizer",
        ),
    ],
)
def test_metadata_that_is_not_supported_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tiny_gguf(tmp_path / "x.gguf", **changes))


@pytest.mark.parametrize("key", ["llama.block_count", "llama.attention.layer_norm_rms_epsilon", "llama.context_length"])
def test_missing_metadata_are_named(key: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"the metadata lacks {key}"):
        load(tiny_gguf(tmp_path / "x.gguf", without=(key,)))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"blk.1.ffn_up.weight": None}, r"lacks the tensor 'blk\.1\.ffn_up\.weight' \(expected shape \[96, 64\]\)"),
        ({"token_embd.weight": None}, r"lacks the tensor 'token_embd\.weight'"),
        (
            {"blk.0.attn_k.weight": np.zeros((32, 64), np.float32)},
            r"attn_k\.weight' has shape \[32, 64\], expected \[64, 64\]",
        ),
        ({"blk.0.attn_q.bias": np.zeros(128, np.float32)}, r"no place for: 'blk\.0\.attn_q\.bias' \[128\]"),
        (
            {"blk.0.ffn_gate_exps.weight": np.zeros((2, 96, 64), np.float32)},
            r"'blk\.0\.ffn_gate_exps\.weight' \[2, 96, 64\]",
        ),
        ({"blk.0.ffn_up.weight": np.zeros((96, 64), np.int8)}, r"'blk\.0\.ffn_up\.weight' is stored as I8"),
        ({"output_norm.weight": np.full(64, np.inf, np.float32)}, r"'output_norm\.weight' holds values .* not finite"),
    ],
)
def test_a_wrong_tensor_in_a_gguf_file_is_named(tensors: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        load(tiny_gguf(tmp_path / "x.gguf", tensors=tensors))


def test_another_architecture_is_named(tmp_path: Path) -> None:
    path = files.write_gguf(tmp_path / "x.gguf", {}, {"a": np.zeros(4, np.float32)}, architecture="qwen2")
    with pytest.raises(CheckpointError, match="architecture 'qwen2' is not supported; supported: llama"):
        load(path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_gguf(tmp_path_factory.mktemp("small") / "x.gguf").read_bytes()


def test_a_truncated_gguf_file_says_how_many_bytes_are_missing(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(small[:-1])
    with pytest.raises(
        CheckpointError, match=rf"cut short.* ends at byte {len(small):,}, the file has {len(small) - 1:,}"
    ):
        load(path)
    for kept in (5, 20, 30, 1000):
        path.write_bytes(small[:kept])
        with pytest.raises(CheckpointError, match=f"the file has {kept}|bytes that are left|cannot lie in"):
            load(path)


def test_bytes_behind_the_last_tensor_are_refused(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    for more in (b"\0", small):
        path.write_bytes(small + more)
        with pytest.raises(CheckpointError, match=f"the file has {len(small + more):,}: what stands behind it"):
            load(path)


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, b"GGML", "begins with b'GGML'"),
        (4, struct.pack("<I", 1), "GGUF version 1; versions 2 and 3"),
        (4, struct.pack(">I", 3), "big-endian"),
        (8, struct.pack("<Q", 2**63), "9,223,372,036,854,775,808 tensors cannot lie in"),
        (16, struct.pack("<q", -1), "18,446,744,073,709,551,615 metadata fields cannot lie in"),
        (24, struct.pack("<Q", 2**40), "needs at least 1,099,511,627,8"),
    ],
)
def test_a_header_that_cannot_be_is_refused_at_once(
    small: bytes, at: int, value: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(small[:at] + value + small[at + len(value) :])
    with pytest.raises(CheckpointError, match=message):
        load(path)


def test_a_list_longer_than_the_file_is_refused_at_once(small: bytes, tmp_path: Path) -> None:
    # The library's own reader loops 2**60 times here.
    key = b"tokenizer.ggml.tokens"
    at = small.index(key) + len(key) + 8
    path = tmp_path / "x.gguf"
    path.write_bytes(small[:at] + struct.pack("<Q", 2**60) + small[at + 8 :])
    with pytest.raises(
        CheckpointError, match=r"1,152,921,504,606,846,976 texts in 'tokenizer\.ggml\.tokens' cannot lie in"
    ):
        load(path)


def test_tensors_that_overlap_are_refused(small: bytes, tmp_path: Path) -> None:
    name = b"blk.0.attn_norm.weight"
    at = small.index(name) + len(name) + 4 + 8 + 4  # behind the number of dimensions, the dimension and the type
    path = tmp_path / "x.gguf"
    for offset in (0, 7):
        path.write_bytes(small[:at] + struct.pack("<Q", offset) + small[at + 8 :])
        with pytest.raises(CheckpointError, match=r"'blk\.0\.attn_norm\.weight' starts at .* inside another"):
            load(path)


def test_a_file_for_machines_of_the_other_byte_order_is_refused(tmp_path: Path) -> None:
    model = files.llama()
    path = files.write_gguf(
        tmp_path / "x.gguf", files.gguf_metadata(model, tokenizer=False), files.gguf_tensors(model), big_endian=True
    )
    with pytest.raises(CheckpointError, match="big-endian"):
        load(path)


def test_a_damaged_gguf_file_loads_or_is_refused_but_never_crashes(small: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    header = small.index(b"output_norm.weight") + 4000
    loaded, refused = survives(path, path, damaged(small, 400, header))
    assert refused > 150 and loaded > 20, (loaded, refused)
