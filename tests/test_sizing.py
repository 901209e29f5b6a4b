"""The formula, the description layer by layer, and units: exact numbers, each from an independent source or by hand."""

import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from random import Random
from typing import Any

import pytest
import torch
from shapes import SHAPES, feed, model_of, text_of

from course_lib.caches import ContiguousCache, PagedCache
from course_lib.sizing import (
    TYPE_NAMES,
    CacheShape,
    Kind,
    LayerCache,
    SizingError,
    element_type,
    how_many_fit,
    in_unit,
    in_words,
    kv_cache_bytes,
    left_out,
    parse_size,
    preset,
    short_words,
)


def test_importing_it_loads_neither_torch_nor_widgets() -> None:
    program = (
        "import sys, course_lib.sizing; print(sorted({'torch', 'numpy', 'ipywidgets', 'gguf'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"


# --- the textbook formula -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_layers", "tokens", "n_kv_heads", "head_dim", "b", "sequences", "expected"),
    [
        (2, 100, 4, 8, 2, 1, 25_600),
        (2, 200, 4, 8, 2, 1, 51_200),
        (4, 200, 2, 16, 2, 1, 102_400),
        (4, 200, 2, 16, 2, 8, 819_200),
        (32, 8192, 8, 128, 2, 1, 1_073_741_824),  # Llama-3-8B
        (36, 1, 8, 128, 2, 1, 147_456),  # Qwen3-4B, with its own head_dim
        (40, 1, 40, 128, 2, 1, 819_200),  # OPT-13B
        (28, 40_960, 8, 128, 2, 1, 4_697_620_480),  # Qwen3-0.6B, 4.375 GiB
        (1, 7, 3, 5, 0.5, 1, 105),
        (1, 0, 1, 1, 4, 1, 0),
    ],
)
def test_the_formula_gives_whole_numbers(
    n_layers: int, tokens: int, n_kv_heads: int, head_dim: int, b: float, sequences: int, expected: int
) -> None:
    found = kv_cache_bytes(
        n_layers=n_layers,
        tokens=tokens,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        bytes_per_element=b,
        sequences=sequences,
    )
    assert found == expected and type(found) is int


def test_a_share_of_a_byte_stays_exact() -> None:
    odd = kv_cache_bytes(n_layers=1, tokens=1, n_kv_heads=1, head_dim=1, bytes_per_element=Fraction(34, 32))
    assert odd == Fraction(17, 8) and isinstance(odd, Fraction)
    assert kv_cache_bytes(n_layers=1, tokens=1, n_kv_heads=1, head_dim=16, bytes_per_element=Fraction(34, 32)) == 34


@pytest.mark.parametrize("name", ["n_layers", "tokens", "n_kv_heads", "head_dim", "sequences", "bytes_per_element"])
@pytest.mark.parametrize("value", [-1, "2", None, True, float("nan"), float("inf"), [2]], ids=repr)
def test_what_is_no_count_is_an_error_that_names_it(name: str, value: object) -> None:
    right = {"n_layers": 2, "tokens": 3, "n_kv_heads": 4, "head_dim": 5, "bytes_per_element": 2, "sequences": 1}
    with pytest.raises(SizingError, match=name) as caught:
        kv_cache_bytes(**(right | {name: value}))  # type: ignore[arg-type]
    assert caught.value.field == name and repr(value) in str(caught.value)


def test_a_whole_float_is_no_count_of_heads() -> None:
    with pytest.raises(SizingError, match=r"n_kv_heads = 8.0"):
        kv_cache_bytes(n_layers=1, tokens=1, n_kv_heads=8.0, head_dim=1, bytes_per_element=2)  # type: ignore[arg-type]


def test_doubling_the_tokens_and_halving_the_kv_heads_changes_nothing() -> None:
    one = kv_cache_bytes(n_layers=3, tokens=100, n_kv_heads=8, head_dim=64, bytes_per_element=2)
    assert kv_cache_bytes(n_layers=3, tokens=200, n_kv_heads=4, head_dim=64, bytes_per_element=2) == one


# --- layers ---------------------------------------------------------------------------------------------------------

FULL = LayerCache(Kind.FULL, 8, 128, 128)
SLIDING = replace(FULL, kind=Kind.SLIDING, window=100)
LATENT = LayerCache(Kind.LATENT, 1, 512, 64)
CROSS = LayerCache(Kind.CROSS, 8, 64, 64)


def shape_of(*layers: LayerCache) -> CacheShape:
    return CacheShape("test", layers)


def test_full_layers_grow_linearly_and_windows_stop_growing() -> None:
    full, sliding = shape_of(FULL), shape_of(SLIDING)
    for tokens in (0, 1, 7, 99, 100, 101, 5000):
        assert full.bytes(tokens) == tokens * 4096
        assert sliding.bytes(tokens) == min(tokens, 100) * 4096
    assert shape_of(FULL, SLIDING).bytes(300) == 400 * 4096
    assert shape_of(FULL, SLIDING).bytes_per_token() == 8192
    assert shape_of(FULL, SLIDING).bytes_per_token(past_windows=True) == 4096


def test_a_latent_row_is_kept_once_and_other_kinds_keep_no_tokens() -> None:
    assert shape_of(LATENT).bytes(10) == 10 * (512 + 64) * 2
    assert shape_of(LayerCache(Kind.STATE), LayerCache(Kind.SHARED)).bytes(10**6) == 0


def test_cross_attention_keeps_the_encoder_whatever_the_tokens() -> None:
    assert shape_of(CROSS).bytes(0, encoder_tokens=10) == shape_of(CROSS).bytes(500, encoder_tokens=10) == 10 * 2048
    assert shape_of(replace(CROSS, encoder_tokens=7)).bytes(3, encoder_tokens=10) == 7 * 2048
    with pytest.raises(SizingError, match="encoder_tokens"):
        shape_of(FULL, CROSS).bytes(3)


def test_sequences_multiply() -> None:
    shape = shape_of(FULL, SLIDING, LATENT)
    assert [shape.bytes(321, sequences) for sequences in (0, 1, 5)] == [0, shape.bytes(321), 5 * shape.bytes(321)]


@pytest.mark.parametrize(("tokens", "rows"), [(0, 0), (1, 16), (15, 16), (16, 16), (17, 32), (32, 32), (33, 48)])
def test_each_sequence_takes_whole_blocks(tokens: int, rows: int) -> None:
    assert shape_of(FULL).bytes(tokens, 3, block=16) == 3 * rows * 4096
    assert shape_of(FULL).bytes(tokens, 3, block=1) == 3 * tokens * 4096
    assert shape_of(SLIDING).bytes(tokens + 1000, block=16) == 112 * 4096  # 7 blocks hold a window of 100


@pytest.mark.parametrize(("ranks", "heads"), [(1, 8), (2, 4), (4, 2), (8, 1), (16, 1), (64, 1)])
def test_ranks_divide_the_heads_until_each_has_one(ranks: int, heads: int) -> None:
    assert shape_of(FULL).bytes(10, tensor_parallel=ranks) == 10 * heads * 512
    assert shape_of(LATENT).bytes(10, tensor_parallel=ranks) == shape_of(LATENT).bytes(10)


@pytest.mark.parametrize("ranks", [3, 5, 12])
def test_ranks_that_do_not_fit_the_heads_are_an_error(ranks: int) -> None:
    with pytest.raises(SizingError, match=f"tensor_parallel = {ranks}"):
        shape_of(FULL).bytes(10, tensor_parallel=ranks)


@pytest.mark.parametrize("name", ["tokens", "sequences", "block", "tensor_parallel", "encoder_tokens"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "7"], ids=repr)
def test_a_wrong_question_is_an_error_that_names_it(name: str, value: object) -> None:
    with pytest.raises(SizingError, match=name):
        shape_of(FULL).bytes(**({"tokens": 1} | {name: value}))  # type: ignore[arg-type]


def test_equal_layers_are_one_group() -> None:
    groups = shape_of(SLIDING, SLIDING, FULL, SLIDING).groups
    assert [(group.layer, group.layers) for group in groups] == [(SLIDING, 3), (FULL, 1)]


# --- element types --------------------------------------------------------------------------------------------------

# Bytes of 128 elements of one head: numbers of llama.cpp's blocks and of vLLM's layouts, written out by hand.
OF_128 = {
    "fp64": 1024, "fp32": 512, "bf16": 256, "fp16": 256, "fp8": 128,
    "q8_0": 4 * 34, "q5_1": 4 * 24, "q5_0": 4 * 22, "q4_1": 4 * 20, "q4_0": 4 * 18, "iq4_nl": 4 * 18,
    "int8_per_token_head": 128 + 4, "fp8_per_token_head": 128 + 4, "nvfp4": 64 + 8,
}  # fmt: skip


def test_every_element_type_is_judged_here() -> None:
    assert {*OF_128, "fp8_ds_mla"} == set(TYPE_NAMES)


@pytest.mark.parametrize("name", OF_128)
def test_scales_are_bytes(name: str) -> None:
    assert element_type(name).part_bytes(1, 128) == OF_128[name]
    assert shape_of(FULL).stored_as(name).bytes(10, 3) == 3 * 10 * 8 * 2 * OF_128[name]


def test_keys_and_values_may_differ() -> None:
    assert shape_of(FULL).stored_as("q8_0", "q4_0").bytes(1) == 8 * (4 * 34 + 4 * 18)


def test_the_layout_of_vllm_for_deepseek_takes_656_bytes() -> None:
    assert preset("deepseek-v3").stored_as("fp8_ds_mla").bytes_per_token() == 61 * 656
    for model, types in (("llama-3-8b", ("fp8_ds_mla",)), ("deepseek-v3", ("bf16", "fp8_ds_mla"))):
        with pytest.raises(SizingError, match="latent"):
            preset(model).stored_as(*types)


def test_a_row_that_is_no_whole_number_of_groups_is_an_error() -> None:
    with pytest.raises(SizingError, match="q4_0 stores groups of 32"):
        shape_of(LayerCache(Kind.FULL, 1, 40, 40)).stored_as("q4_0")
    with pytest.raises(SizingError, match="a head of 40"):  # no block reaches into the next head, as in llama.cpp
        shape_of(LayerCache(Kind.FULL, 4, 40, 40)).stored_as("q4_0")
    with pytest.raises(SizingError, match="a head of 464"):
        preset("zamba-7b-v1").stored_as("q8_0")


@pytest.mark.parametrize(("name", "ranks", "heads"), [("qwen2.5-7b", 8, 28), ("falcon-7b", 2, 71)])
def test_ranks_that_query_heads_cannot_be_shared_out_to_are_an_error(name: str, ranks: int, heads: int) -> None:
    for ask in (lambda: preset(name).bytes(1, tensor_parallel=ranks),
                lambda: preset(name).bytes_per_token(tensor_parallel=ranks)):  # fmt: skip
        with pytest.raises(SizingError, match=f"tensor_parallel = {ranks} does not divide the {heads} query heads"):
            ask()
    assert preset("qwen2.5-7b").bytes_per_token(tensor_parallel=4) == 57_344 // 4


@pytest.mark.parametrize("name", ["int4", "", "BF16 ", None, 2])
def test_an_unknown_type_is_an_error_that_lists_the_known(name: object) -> None:
    with pytest.raises(SizingError, match="q8_0"):
        shape_of(FULL).stored_as(name)  # type: ignore[arg-type]


# --- the caches of the course ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_the_contiguous_cache_holds_what_the_calculator_says(name: str, dtype: torch.dtype) -> None:
    model = model_of(name, dtype)
    config, capacity = model.config, 24
    cache = ContiguousCache(config, 3, capacity, dtype)
    layer = LayerCache(Kind.FULL, config.n_kv_heads, config.head_dim, config.head_dim)
    shape = shape_of(*[layer] * config.n_layers).stored_as(str(dtype).removeprefix("torch."))
    formula = {
        "n_layers": config.n_layers,
        "n_kv_heads": config.n_kv_heads,
        "head_dim": config.head_dim,
        "bytes_per_element": dtype.itemsize,
    }
    assert cache.reserved_bytes == shape.bytes(capacity, 3) == kv_cache_bytes(tokens=capacity, sequences=3, **formula)
    assert cache.used_bytes == shape.bytes(0, 3) == 0
    lengths = (9, 4, 0)
    feed(model, cache, {row: text_of(name, length, row) for row, length in enumerate(lengths) if length})  # prefill
    assert cache.used_bytes == sum(shape.bytes(length) for length in lengths) > 0
    for step in range(1, 4):  # decode
        feed(model, cache, {0: [1], 1: [2]})
        assert cache.used_bytes == shape.bytes(9 + step) + shape.bytes(4 + step)
        assert cache.used_bytes == kv_cache_bytes(tokens=13 + 2 * step, **formula)
    assert cache.reserved_bytes == shape.bytes(capacity, 3)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("block", [1, 4, 16])
def test_the_paged_cache_holds_what_the_calculator_says_of_whole_blocks(name: str, block: int) -> None:
    model = model_of(name)
    config = model.config
    cache = PagedCache(config, 3, 24, block, torch.float64)
    layer = LayerCache(Kind.FULL, config.n_kv_heads, config.head_dim, config.head_dim)
    shape = shape_of(*[layer] * config.n_layers).stored_as("float64")
    block_bytes = shape.bytes(1, block=block)
    assert cache.reserved_bytes == (24 + 1) * block_bytes  # and the block of zeros
    lengths = (9, 4, 0)
    feed(model, cache, {row: text_of(name, length, row) for row, length in enumerate(lengths) if length})
    assert cache.used_bytes == sum(shape.bytes(length) for length in lengths) > 0
    assert cache.blocks_in_use * block_bytes == sum(shape.bytes(length, block=block) for length in lengths)
    cache.copy_row(0, 2)  # shared: nothing more
    assert cache.used_bytes == sum(shape.bytes(length) for length in lengths)


# --- units and memory -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("80GB", 80_000_000_000),
        ("80GiB", 85_899_345_920),
        ("1.5 GiB", 1_610_612_736),
        (" 0.1GB ", 100_000_000),
        ("4096", 4096),
        ("4096B", 4096),
        ("2TB", 2 * 10**12),
        ("512MiB", 2**29),
        ("16KB", 16_000),
    ],
)
def test_a_size_is_read_exactly(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize(
    "text",
    ["80G", "80gb", "-1GB", "GB", "", "1e3", "1.0000001KB", "0.3B", "nan", "1_000", "٣GB", "9" * 19, 80, None, b"1GB"],
)
def test_what_is_no_size_is_an_error(text: Any) -> None:
    with pytest.raises(SizingError, match="memory"):
        parse_size(text, "memory")


def test_a_unit_that_could_mean_two_things_is_explained() -> None:
    with pytest.raises(SizingError, match="say GB or GiB"):
        parse_size("80G")


def test_units_make_the_round_trip() -> None:
    random = Random(4)
    for _ in range(300):
        size = random.randrange(10 ** random.randrange(1, 15))
        for unit in ("B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB"):
            count = in_unit(size, unit)
            scaled = count * 10**60  # 60 decimals hold every power of two that a unit divides by
            assert scaled.denominator == 1
            digits = str(scaled.numerator).rjust(61, "0")
            assert parse_size(f"{digits[:-60]}.{digits[-60:].rstrip('0') or '0'}{unit}") == size


def test_both_units_are_named() -> None:
    assert short_words(2**30) == "1.000 GiB = 1.074 GB"
    assert in_words(131_072 * 8192) == "1,073,741,824 B = 1.000 GiB = 1.074 GB"
    assert in_words(999) == "999 B" and in_words(-(10**9)) == "-1,000,000,000 B = -0.931 GiB = -1.000 GB"
    with pytest.raises(SizingError, match="unit"):
        in_unit(1, "G")


def test_what_fits_is_a_subtraction_and_a_division() -> None:
    fit = how_many_fit(80 * 10**9, 2**30, weights=16 * 10**9, reserve=4 * 10**9)
    assert (fit.left, fit.sequences) == (60 * 10**9, 55)
    assert how_many_fit(2**30, 2**30).sequences == 1 and how_many_fit(2**30 - 1, 2**30).sequences == 0
    assert how_many_fit(10, 1, weights=11).sequences == 0 and how_many_fit(10, 1, weights=11).left == -1
    with pytest.raises(SizingError, match="per_sequence|no bytes"):
        how_many_fit(10, 0)
    with pytest.raises(SizingError, match="weights = -1"):
        how_many_fit(10, 1, weights=-1)


def test_what_is_left_out_is_always_told() -> None:
    told = " ".join(left_out(shape_of(FULL)))
    for what in ("weights", "Activations", "allocator", "block", "arithmetic", "bandwidth"):
        assert what in told
    assert "state" in " ".join(left_out(shape_of(FULL, LayerCache(Kind.STATE))))
    for ranks in (1, 2):  # 2 KV heads, one for each of two ranks
        told = left_out(shape_of(FULL, SLIDING), block=16, tensor_parallel=ranks)
        assert f"{16 * 4096 // ranks:,} B" in " ".join(told)
