"""The published models: each from the fields of its own config.json, against figures that were worked out elsewhere.

A figure was measured on the tensors of real caches, or follows from a measurement that somebody published.
"""

from fractions import Fraction

import pytest

from course_lib.sizing import (
    CacheShape,
    Kind,
    SizingError,
    cache_shape,
    kv_cache_bytes,
    model_names,
    preset,
    preset_config,
    read_config,
)

# In bf16, one sequence: bytes of a token while every layer grows, of a token past the windows, and of 4096, 8192, 32768
# and 131072 tokens.
FIGURES = {
    "llama-2-7b": (524_288, 524_288, 2_147_483_648, 4_294_967_296, 17_179_869_184, 68_719_476_736),
    "llama-3-8b": (131_072, 131_072, 536_870_912, 1_073_741_824, 4_294_967_296, 17_179_869_184),
    "llama-3-70b": (327_680, 327_680, 1_342_177_280, 2_684_354_560, 10_737_418_240, 42_949_672_960),
    "mistral-7b-v0.1": (131_072, 0, 536_870_912, 536_870_912, 536_870_912, 536_870_912),
    "mistral-7b-v0.2": (131_072, 131_072, 536_870_912, 1_073_741_824, 4_294_967_296, 17_179_869_184),
    "mixtral-8x7b": (131_072, 131_072, 536_870_912, 1_073_741_824, 4_294_967_296, 17_179_869_184),
    "qwen2.5-7b": (57_344, 57_344, 234_881_024, 469_762_048, 1_879_048_192, 7_516_192_768),
    "qwen3-0.6b": (114_688, 114_688, 469_762_048, 939_524_096, 3_758_096_384, 15_032_385_536),
    "qwen3-4b": (147_456, 147_456, 603_979_776, 1_207_959_552, 4_831_838_208, 19_327_352_832),
    "qwen3-8b": (147_456, 147_456, 603_979_776, 1_207_959_552, 4_831_838_208, 19_327_352_832),
    "qwen3-32b": (262_144, 262_144, 1_073_741_824, 2_147_483_648, 8_589_934_592, 34_359_738_368),
    "gemma-2-2b": (106_496, 53_248, 436_207_616, 654_311_424, 1_962_934_272, 7_197_425_664),
    "gemma-2-9b": (344_064, 172_032, 1_409_286_144, 2_113_929_216, 6_341_787_648, 23_253_221_376),
    "gemma-2-27b": (376_832, 188_416, 1_543_503_872, 2_315_255_808, 6_945_767_424, 25_467_813_888),
    "gemma-3-1b": (26_624, 4_096, 28_311_552, 45_088_768, 145_752_064, 548_405_248),
    "gemma-3-4b": (139_264, 20_480, 205_520_896, 289_406_976, 792_723_456, 2_805_989_376),
    "gemma-3-12b": (393_216, 65_536, 603_979_776, 872_415_232, 2_483_027_968, 8_925_478_912),
    "gemma-3-27b": (507_904, 81_920, 771_751_936, 1_107_296_256, 3_120_562_176, 11_173_625_856),
    "phi-3-mini-4k": (393_216, 0, 804_913_152, 804_913_152, 804_913_152, 804_913_152),
    "falcon-7b": (8_192, 8_192, 33_554_432, 67_108_864, 268_435_456, 1_073_741_824),
    "falcon-40b": (122_880, 122_880, 503_316_480, 1_006_632_960, 4_026_531_840, 16_106_127_360),
    "gpt2": (36_864, 36_864, 150_994_944, 301_989_888, 1_207_959_552, 4_831_838_208),
    "gpt2-xl": (307_200, 307_200, 1_258_291_200, 2_516_582_400, 10_066_329_600, 40_265_318_400),
    "gpt-neox-20b": (1_081_344, 1_081_344, 4_429_185_024, 8_858_370_048, 35_433_480_192, 141_733_920_768),
    "opt-6.7b": (524_288, 524_288, 2_147_483_648, 4_294_967_296, 17_179_869_184, 68_719_476_736),
    "opt-13b": (819_200, 819_200, 3_355_443_200, 6_710_886_400, 26_843_545_600, 107_374_182_400),
    "bloom-176b": (4_014_080, 4_014_080, 16_441_671_680, 32_883_343_360, 131_533_373_440, 526_133_493_760),
    "starcoder-15.5b": (20_480, 20_480, 83_886_080, 167_772_160, 671_088_640, 2_684_354_560),
    "deepseek-v2-lite": (31_104, 31_104, 127_401_984, 254_803_968, 1_019_215_872, 4_076_863_488),
    "deepseek-v2": (69_120, 69_120, 283_115_520, 566_231_040, 2_264_924_160, 9_059_696_640),
    "deepseek-v3": (70_272, 70_272, 287_834_112, 575_668_224, 2_302_672_896, 9_210_691_584),
    "jamba-v0.1": (16_384, 16_384, 67_108_864, 134_217_728, 536_870_912, 2_147_483_648),
    "zamba-7b-v1": (386_048, 386_048, 1_581_252_608, 3_162_505_216, 12_650_020_864, 50_600_083_456),
    "zamba2-2.7b": (184_320, 184_320, 754_974_720, 1_509_949_440, 6_039_797_760, 24_159_191_040),
    "gpt-oss-20b": (49_152, 24_576, 103_809_024, 204_472_320, 808_452_096, 3_224_371_200),
    "gpt-oss-120b": (73_728, 36_864, 155_713_536, 306_708_480, 1_212_678_144, 4_836_556_800),
}
ENCODER_DECODERS = ("t5-base", "whisper-large-v3")
SAME_AS_ANOTHER = {"mistral-7b-v0.3": "mistral-7b-v0.2"}


@pytest.mark.parametrize("name", FIGURES)
def test_each_model_takes_the_bytes_that_it_is_known_to_take(name: str) -> None:
    shape = preset(name)
    token, past, *totals = FIGURES[name]
    assert shape.bytes_per_token() == token
    assert shape.bytes_per_token(past_windows=True) == past
    assert [shape.bytes(tokens) for tokens in (4096, 8192, 32_768, 131_072)] == totals
    assert all(shape.bytes(tokens, 7) == 7 * shape.bytes(tokens) for tokens in (1, 5000))


def test_every_model_known_by_name_is_judged_here() -> None:
    assert {*FIGURES, *ENCODER_DECODERS, *SAME_AS_ANOTHER, "smollm2-135m"} == set(model_names())
    for name, other in SAME_AS_ANOTHER.items():
        assert preset_config(name) == preset_config(other)
    assert preset("smollm2-135m").bytes_per_token() == 2 * 30 * 3 * 64 * 2


def test_t5_keeps_its_encoder_once() -> None:
    shape = preset("t5-base")
    assert shape.bytes_per_token() == 36_864
    assert shape.bytes(0, encoder_tokens=512) == 512 * 36_864
    assert shape.bytes(10, 3, encoder_tokens=512) == 3 * (10 + 512) * 36_864
    with pytest.raises(SizingError, match="encoder_tokens"):
        shape.bytes(10)


def test_whisper_has_a_cross_cache_of_fixed_size() -> None:
    shape = preset("whisper-large-v3")
    assert shape.bytes_per_token() == 163_840
    assert shape.bytes(0) == 245_760_000
    assert shape.bytes(448) - shape.bytes(0) == 73_400_320


# --- what calculators in public got wrong ---------------------------------------------------------------------------


def test_head_dim_is_read_where_it_is_not_a_quotient() -> None:
    assert preset("qwen3-4b").bytes_per_token() == 147_456 != 2 * 36 * 8 * (2560 // 32) * 2
    nemo = {"model_type": "mistral", "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8}
    small = nemo | {"hidden_size": 5120, "head_dim": 128, "sliding_window": None}  # Mistral-Small-24B: not 160
    assert read_config(small).bytes_per_token() == 2 * 40 * 8 * 128 * 2


def test_one_formula_is_not_enough_for_gemma_3_and_qwen3() -> None:
    gemma = preset("gemma-3-27b")
    assert gemma.bytes(131_072) == 8192 * (10 * 131_072 + 52 * 1024)
    assert round(gemma.bytes(131_072) / 2**30, 2) == 10.41
    assert preset("qwen3-0.6b").bytes(40_960) == 28 * 2 * 8 * 128 * 2 * 40_960 == 4.375 * 2**30


def test_kv_heads_are_not_query_heads_for_each_kv_head() -> None:
    base = {"model_type": "llama", "num_hidden_layers": 3, "num_attention_heads": 24, "hidden_size": 24 * 16}
    four_heads = read_config(base | {"num_key_value_heads": 4})
    four_queries_each = read_config(base | {"num_key_value_heads": 24 // 4})
    assert four_heads.bytes_per_token() == 2 * 3 * 4 * 16 * 2
    assert four_queries_each.bytes_per_token() == 2 * 3 * 6 * 16 * 2
    formula = kv_cache_bytes(n_layers=3, tokens=1, n_kv_heads=4, head_dim=16, bytes_per_element=2)
    assert four_heads.bytes_per_token() == formula


def test_published_measurements_of_servers_are_met() -> None:
    """A server's log: so many GiB for the cache gave so many tokens. Whole blocks of 16 and the two decimals of the log
    leave a tenth of a percent."""
    for name, gib, tokens, dtype in (
        ("qwen3-4b", "11.47", 83_488, "bf16"),
        ("qwen3-4b", "11.47", 166_992, "fp8"),
        ("gpt-oss-120b", "5.38", 78_384, "bf16"),
    ):
        predicted = Fraction(gib) * 2**30 / preset(name).stored_as(dtype).bytes_per_token()
        assert abs(predicted / tokens - 1) < 0.001, name


def test_gemma_3_4b_in_llama_cpp() -> None:
    """Measured there at 131,072 tokens in 16 bits: 2560 MiB of global layers, and 29 local ones padded to 1536 rows."""
    by_kind = {group.layer.kind: group for group in preset("gemma-3-4b").groups}
    full, local = by_kind[Kind.FULL], by_kind[Kind.SLIDING]
    assert full.layers * full.layer.slots(131_072) * full.layer.slot_bytes() == 2560 * 2**20
    assert local.layers * 1536 * local.layer.slot_bytes() == 174 * 2**20


def test_the_latent_row_is_no_pair_of_keys_and_values() -> None:
    (group,) = preset("deepseek-v2").groups
    assert (group.layer.kind, group.layers, group.layer.slot_bytes()) == (Kind.LATENT, 60, 2 * 576)
    assert Fraction(group.layer.slot_bytes(), 2 * 128 * 2) == Fraction("2.25"), "as much as 2.25 groups of 128"


def test_ranks_beyond_the_kv_heads_save_nothing() -> None:
    llama, deepseek = preset("llama-3-8b"), preset("deepseek-v3")
    assert [llama.bytes(1, tensor_parallel=ranks) for ranks in (1, 2, 8, 16)] == [131_072, 65_536, 16_384, 16_384]
    assert deepseek.bytes(1, tensor_parallel=8) == 70_272


def test_experts_and_quantised_weights_change_nothing() -> None:
    config = preset_config("mixtral-8x7b")
    other = config | {"num_local_experts": 64, "quantization_config": {"bits": 4, "quant_method": "gptq"}}
    assert read_config(other).layers == read_config(config).layers == preset("mistral-7b-v0.2").layers


def test_falcon_40b_is_needed_once_and_stored_sixteen_times_by_transformers() -> None:
    shape = preset("falcon-40b")
    assert shape.bytes(1) == 122_880 and shape.bytes_in_transformers(1) == 1_966_080
    assert preset("falcon-7b").bytes_in_transformers(1) == preset("falcon-7b").bytes(1) == 8192


def test_transformers_holds_a_row_less_in_each_window() -> None:
    assert preset("mistral-7b-v0.1").bytes_in_transformers(4095) == 536_739_840
    assert preset("mistral-7b-v0.1").bytes_in_transformers(32_768) == 536_739_840
    assert preset("mistral-7b-v0.1").bytes_in_transformers(100) == preset("mistral-7b-v0.1").bytes(100)
    assert preset("gemma-3-27b").bytes_in_transformers(32_768) == 3_120_136_192


def test_the_number_of_query_heads_changes_nothing_where_kv_heads_and_head_dim_are_given() -> None:
    config = preset_config("qwen3-0.6b")
    sizes = {read_config(config | {"num_attention_heads": heads}).bytes(999, 3) for heads in (8, 16, 64)}
    assert len(sizes) == 1


# --- names and files ------------------------------------------------------------------------------------------------


def test_a_model_may_be_a_name_or_a_config() -> None:
    assert isinstance(cache_shape("llama-3-8b"), CacheShape)
    assert cache_shape(preset_config("llama-3-8b")).layers == cache_shape("llama-3-8b").layers


def test_an_unknown_name_is_an_error_that_names_what_is_near() -> None:
    with pytest.raises(SizingError, match="llama-3-8b"):
        cache_shape("llama3-8b")


def test_a_config_that_was_handed_out_can_be_changed() -> None:
    preset_config("gemma-3-4b")["text_config"]["num_hidden_layers"] = 1
    assert preset("gemma-3-4b").bytes_per_token() == FIGURES["gemma-3-4b"][0]
