"""The numbers in the questions of notebook 04, worked out by the library; each trap is the mistake that it names."""

from fractions import Fraction

import pytest

from course_lib.quizzes.bank import Number, load_bank
from course_lib.sizing import CacheShape, Kind, LayerCache, SizingError, cache_shape, element_type, how_many_fit

GB, GIB, MIB, KIB = 10**9, 2**30, 2**20, 2**10


def number(identifier: str, *, traps: set[float]) -> float:
    """The answer of a question, which names exactly these traps."""
    found = next(question for question in load_bank("04_cache_sizing").questions if question.id == identifier)
    assert isinstance(found, Number)
    assert sorted(trap.value for trap in found.traps) == pytest.approx(sorted(traps))
    return found.answer


def llama_like(**fields: int) -> CacheShape:
    return cache_shape({"model_type": "llama", **fields})


def test_a_token_of_the_config_with_its_own_head_dim() -> None:
    fields = {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32}
    right = llama_like(**fields, num_key_value_heads=8, head_dim=128).bytes_per_token()
    divided = llama_like(**fields, num_key_value_heads=8).bytes_per_token()
    query_heads = llama_like(**fields, num_key_value_heads=32, head_dim=128).bytes_per_token()
    traps = {divided / KIB, query_heads / KIB, right / 2 / KIB, right / 1000, right / 36 / KIB}
    assert number("told_head_dim", traps=traps) == right / KIB


def test_a_cache_of_layers_with_and_without_a_window() -> None:
    window, full = LayerCache(Kind.SLIDING, 8, 128, 128, window=1024), LayerCache(Kind.FULL, 8, 128, 128)
    assert window.slot_bytes() == full.slot_bytes() == 4096

    def mib(sliding: int, rest: int) -> float:
        return CacheShape("question", sliding * (window,) + rest * (full,)).bytes(16_384) / MIB

    right = mib(20, 4)
    assert number("mixed_layers", traps={mib(0, 24), mib(0, 4), mib(24, 0), right * MIB / 10**6}) == right


def test_a_block_of_q4_0_takes_18_bytes_for_32_numbers() -> None:
    part = Fraction(element_type("q4_0").part_bytes(1, 32), element_type("bf16").part_bytes(1, 32))
    assert part == Fraction(18, 64)
    assert number("four_bits", traps={1024 / 4, 1024 / 2, 1024 / 8}) == 1024 * part


def test_the_users_that_fit_into_24_gb() -> None:
    one = 128 * KIB * 8192
    assert one == GIB

    def users(weights: int, reserve: int, sequence: int = one) -> int:
        return how_many_fit(24 * GB, sequence, weights * GB, reserve * GB).sequences

    in_full = 14 * GB / one
    assert users(8, 2, GB) == users(8, 0) == 14, "two mistakes lead to the same number, and the trap names both"
    assert number("how_many", traps={users(8, 2, GB), users(0, 0), users(0, 2), round(in_full, 2)}) == users(8, 2)


def test_a_token_on_each_of_eight_gpus_for_four_heads() -> None:
    layer = LayerCache(Kind.FULL, 4, 128, 128)
    shape = CacheShape("question", 36 * (layer,), query_heads=32)
    assert shape.bytes_per_token() == 72 * KIB
    traps = {72 / 8, 72.0, 2 * shape.bytes_per_token(tensor_parallel=4) / KIB}
    assert number("more_gpus", traps=traps) == shape.bytes_per_token(tensor_parallel=8) / KIB
    with pytest.raises(SizingError):
        shape.bytes_per_token(tensor_parallel=3)


def test_the_numbers_that_the_detective_is_told() -> None:
    latent = cache_shape("deepseek-v3").bytes_per_token()
    text = next(q.text for q in load_bank("04_cache_sizing").questions if q.id == "detective")
    assert f"{2 * latent / KIB:g} KiB" in text and f"{latent / KIB:g} KiB" in text
    assert latent < cache_shape("qwen3-0.6b").bytes_per_token()
