"""What notebook 11 says of other systems: block formats byte by byte, a twin that slides, tables, a guard, a server in
the background; and the numbers in its questions, worked out by caches of both libraries.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from shapes import difference, feed, random_weights
from test_sharing_quiz import number

from course_lib.caches import ForgettingCache, RoundedCache, Window
from course_lib.model import ModelConfig, Transformer
from course_lib.serving import Memory
from course_lib.sizing import element_type, kv_cache_bytes, preset
from course_lib.study import real_systems as real

NAME = "11_real_systems"
CONFIG = ModelConfig(61, 2, 32, 4, 2, 8, 48, max_positions=128, tied_head=False)
TEXT = [(7 * i * i + 3 * i + 5) % 61 for i in range(24)]


def by_hand(name: str, block: bytes) -> list[float]:
    """The 32 numbers of a block of llama.cpp, as block_q8_0, block_q4_0 and block_q4_1 of ggml-common.h say."""
    scale = struct.unpack("<e", block[:2])[0]
    if name == "q8_0":
        return [scale * code for code in struct.unpack("32b", block[2:])]
    low, codes = (0.0, block[2:]) if name == "q4_0" else (struct.unpack("<e", block[2:4])[0], block[4:])
    halves = [code & 15 for code in codes] + [code >> 4 for code in codes]  # the low four bits come first
    return [scale * (code - 8) for code in halves] if name == "q4_0" else [scale * code + low for code in halves]


def hadamard() -> torch.Tensor:
    """Entry i, j is 1/8, negative if i and j have an odd number of bits in common."""
    return torch.tensor([[(-1) ** (i & j).bit_count() / 8 for j in range(64)] for i in range(64)])


@pytest.mark.parametrize(("name", "size"), [("q8_0", 34), ("q4_0", 18), ("q4_1", 20)])
def test_what_the_codec_stores_is_a_block_of_llama_cpp_and_comes_back_as_that(name: str, size: int) -> None:
    x = torch.randn(2, 3, 5, 64, generator=torch.Generator().manual_seed(0))
    codec = real.LlamaCpp(name)
    packed = codec.encode(x)
    assert real.block_layout(name) == (32, size)
    assert packed.dtype == torch.uint8 and packed.shape == (2, 3, 5, 2 * size) and codec.size(64) == 2 * size
    back = codec.decode(packed, 64, torch.float32)
    blocks = packed.reshape(-1, size).numpy()
    expected = np.array([by_hand(name, block.tobytes()) for block in blocks]).reshape(x.shape)
    stored = torch.from_numpy(expected).float()
    assert difference(back, stored @ hadamard()) < 1e-5
    turned = x @ hadamard()
    step = (turned.unflatten(-1, (2, 32)).abs().amax(-1, keepdim=True) / (127 if name == "q8_0" else 7)).expand(
        -1, -1, -1, -1, 32
    )
    assert ((stored - turned).abs() <= 1.1 * step.flatten(-2)).all() and difference(back, x) > 0


def test_rows_are_turned_only_where_llama_cpp_turns_them() -> None:
    """In rounded types and heads of a multiple of 64, each 64 on their own."""
    x = torch.randn(1, 128, generator=torch.Generator().manual_seed(1))
    x[0, 0] = 40  # reaches a block of 32 if it is not turned, and of 64 if it is

    def there_and_back(name: str, width: int, part: int) -> torch.Tensor:
        codec, rows = real.LlamaCpp(name), x[:, :width]
        return torch.cat([codec.decode(codec.encode(each), part, torch.float32) for each in rows.split(part, -1)], -1)

    assert difference(there_and_back("f16", 64, 64), x[:, :64].half().float()) == 0
    assert difference(there_and_back("q4_0", 96, 96), there_and_back("q4_0", 96, 32)) == 0, "a head of 96 is not turned"
    assert difference(there_and_back("q4_0", 128, 128), there_and_back("q4_0", 128, 64)) == 0
    plain, turned = ((there_and_back("q4_0", 64, part) - x[:, :64]).square().mean() for part in (32, 64))
    assert turned < plain / 2, "what stands out is spread"


@pytest.mark.parametrize("name", ["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"])
def test_the_bytes_of_a_type_are_those_of_the_calculator(name: str) -> None:
    elements, size = real.block_layout(name)
    assert size * (256 // elements) == element_type(name).part_bytes(heads=4, dim=64)


def test_a_cache_in_types_of_llama_cpp_holds_the_bytes_of_the_calculator_and_rounds() -> None:
    config = ModelConfig(61, 2, 48, 4, 2, 32, 48, max_positions=128)
    model = random_weights(Transformer(config))
    cache = RoundedCache(config, 1, 24, real.LlamaCpp("q8_0"), real.LlamaCpp("q4_0"))
    apart = difference(feed(model, cache, {0: TEXT})[0], feed(model, None, {0: TEXT})[0])
    assert 1e-3 < apart < 5
    assert cache.used_bytes == 24 * 2 * 2 * (34 + 18)  # tokens, layers, heads
    exact = RoundedCache(config, 1, 24, real.LlamaCpp("f32"), real.LlamaCpp("f32"))
    assert difference(feed(model, exact, {0: TEXT})[0], feed(model, None, {0: TEXT})[0]) < 1e-4


def test_what_cannot_be_written_here_or_does_not_fit_a_head_is_refused() -> None:
    for name in ("iq4_nl", "q3", "Q8"):
        with pytest.raises(ValueError, match="choose f16, q8_0 or q4_0"):
            real.LlamaCpp(name)
    with pytest.raises(ValueError, match="a head of 80 numbers"):
        real.LlamaCpp("q8_0").size(80)


def test_without_transformers_the_notebook_says_what_to_install_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(real, "version", lambda name: "4.57.1")
    assert real.find_transformers() is None
    said = capsys.readouterr().out
    assert said.count("\n") == 1 and 'pip install "transformers[serving]==5.24.*"' in said
    assert not real.installed(None)
    assert "not installed here" in capsys.readouterr().out


def test_each_setting_names_a_notebook_and_has_a_name_in_each_system() -> None:
    table = real.settings({"04": "04_cache_sizing.ipynb"}).data
    lines = table.splitlines()
    assert len(lines) == 2 + len(real.SETTINGS) and all(line.count("|") == 5 for line in lines)
    assert all(version in lines[0] for version in ("vLLM 0.33.0", "SGLang 0.5.23", "transformers 5.24"))
    assert "[04](04_cache_sizing.ipynb)" in table and "(06)" in table
    assert all(all(cells) for cells in real.SETTINGS)


def test_a_server_that_cannot_start_is_told_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    coming = real.ServerInBackground(tmp_path)
    assert coming.wait() is None
    assert "This part needs a server:" in capsys.readouterr().out
    coming.stop()


# --- Beside transformers


@pytest.fixture(scope="module")
def library() -> Any:
    pytest.importorskip("transformers", minversion="5.24", reason="compared with transformers 5.24")
    return real.find_transformers()


def test_the_twin_slides_in_the_same_memory_and_the_numbers_are_told_from_the_tensors(library: Any) -> None:
    from benchmarks.peers import as_transformers

    model = random_weights(Transformer(CONFIG))
    peer = as_transformers(model)
    twin = real.sliding_twin(peer, window=6)
    assert [p.data_ptr() for p in twin.parameters()] == [p.data_ptr() for p in peer.parameters()]
    cache = library.DynamicCache(config=twin.config)
    with torch.inference_mode():
        logits = twin(torch.tensor([TEXT]), cache=cache).logits[0]
    ours = ForgettingCache(CONFIG, 1, Window(6))
    assert difference(feed(model, ours, {0: TEXT})[0], logits) < 1e-3
    assert real.their_rows(cache) == 5 and real.their_bytes(cache) == ours.used_bytes * 5 // 6
    fp8 = library.QuantizedCache("fp8", peer.config)
    with torch.inference_mode():
        peer(torch.tensor([TEXT]), cache=fp8)
    assert real.their_rows(fp8) == 24 and real.their_bytes(fp8) == 24 * 2 * 2 * 2 * 8 + 2 * 2 * 4


def test_the_cache_of_a_model_without_weights_weighs_what_the_calculator_says(library: Any) -> None:
    config = {"model_type": "mistral", "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
              "hidden_size": 64, "sliding_window": 9}  # fmt: skip
    assert real.bytes_without_weights(config, 40) == 3 * 8 * 2 * 2 * 16 * 2


# --- The questions


def test_the_rows_of_a_layer_that_slides(library: Any) -> None:
    layer = library.cache_utils.DynamicSlidingWindowLayer(sliding_window=1024)
    some = torch.zeros(1, 1, 3000, 2)
    layer.update(some, some)
    assert number(NAME, "rows_between_passes", traps={1024, layer.get_seq_length()}) == layer.keys.shape[2]


def test_the_bytes_of_a_token_in_two_types() -> None:
    def stored(keys: str, values: str) -> int:
        return sum(32 * 8 * real.LlamaCpp(name).size(128) for name in (keys, values))

    codes = 32 * 8 * 128 * (1 + 0.5)
    traps = {codes, stored("q8_0", "q8_0"), stored("q4_0", "q4_0")}
    assert number(NAME, "two_types", traps=traps) == stored("q8_0", "q4_0")


def test_the_tokens_in_a_pool() -> None:
    gib, token = 2**30, kv_cache_bytes(n_layers=32, tokens=1, n_kv_heads=8, head_dim=128, bytes_per_element=2)
    assert token == 128 * 2**10 == preset("llama-3-8b").bytes(1)

    def tokens(pool_gib: float) -> float:
        return pool_gib * gib / token

    traps = {tokens(0.9 * 80 - 16), tokens(80 - 16 - 4), tokens(0.9 * 80)}
    assert number(NAME, "pool", traps=traps) == pytest.approx(tokens(0.9 * 80 - 16 - 4))


def test_whole_blocks_of_a_common_beginning() -> None:
    """200 tokens fill no block of 256, all but 56 of its slots hold them, and twelve blocks of 16 are full."""
    assert (200 // 256, 256 - 200, 200 // 16) == (0, 56, 12)
    few = Memory(rows=4, blocks=2, block_size=64)
    assert [few.blocks_for(55 + read) for read in (0, 9, 10, 15)] == [1, 1, 2, 2]
