"""The model judged by the oracle: full passes, what a batch may not change, gradients, number types, and errors."""

from dataclasses import replace
from math import cos as cosine
from math import isnan
from math import sin as sine

import pytest
import torch
from engine_report import Record, report_difference
from shapes import (
    DTYPES,
    SHAPES,
    TOLERANCE,
    bits,
    difference,
    feed,
    feed_in,
    model_of,
    poisoned_cache,
    random_weights,
    same_bits,
    text_of,
    truth,
)

from course_lib.generation import generate
from course_lib.model import ModelConfig, Transformer, rotation, rotation_table

each_shape = pytest.mark.parametrize("shape", SHAPES)
each_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@each_shape
@each_dtype
@pytest.mark.parametrize("length", [1, 2, 6, 200])
def test_full_pass_equals_the_oracle(shape: str, dtype: torch.dtype, length: int, record_property: Record) -> None:
    text = text_of(shape, length)
    got = feed(model_of(shape, dtype), None, {0: text})[0]
    assert got.dtype == dtype
    apart = difference(got, truth(shape, tuple(text)))
    report_difference(record_property, "full pass, oracle", dtype, apart)
    assert apart <= TOLERANCE[dtype]


@each_shape
@each_dtype
def test_ragged_batch_without_a_cache_equals_the_oracle(
    shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    texts = {row: text_of(shape, length, seed=row) for row, length in enumerate((5, 0, 17, 1, 9))}
    for row, got in feed(model_of(shape, dtype), None, texts).items():
        if texts[row]:
            apart = difference(got, truth(shape, tuple(texts[row])))
            report_difference(record_property, "full pass, ragged rows, oracle", dtype, apart)
            assert apart <= TOLERANCE[dtype], f"row {row}"


@each_shape
def test_last_only_gives_each_rows_last_real_logits(shape: str) -> None:
    model = model_of(shape)
    tokens = torch.tensor([text_of(shape, 7, seed=1), text_of(shape, 7, seed=2), text_of(shape, 7, seed=3)])
    with torch.inference_mode():
        every = model(tokens, counts=(7, 3, 1))
        last = model(tokens, counts=(7, 3, 1), last_only=True)
    assert last.shape == (3, 1, model.config.vocab_size)
    # One matrix product with fewer rows may sum in another order, no more.
    assert difference(last[:, 0], every[torch.arange(3), torch.tensor([6, 2, 0])]) <= TOLERANCE[torch.float64]


@each_shape
def test_a_text_of_exactly_max_positions_fits_and_one_more_is_refused(shape: str) -> None:
    whole = model_of(shape)
    small = Transformer(replace(SHAPES[shape], max_positions=12)).to(torch.float64)
    small.load_state_dict(whole.state_dict())
    text = text_of(shape, 13)
    assert difference(feed(small, None, {0: text[:12]})[0], truth(shape, tuple(text[:12]))) <= TOLERANCE[torch.float64]
    with pytest.raises(ValueError, match="position 12, but the model knows positions 0 to 11"):
        feed(small, None, {0: text})


@pytest.mark.parametrize("shape", [(0, 3), (1, 0), (0, 0)])
def test_tokens_of_nothing_are_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="do not describe|at least one"):
        model_of("mqa")(torch.zeros(shape, dtype=torch.long))


# --- A batch is many single sequences


@each_shape
@each_dtype
def test_a_row_alone_and_in_a_batch_agree(shape: str, dtype: torch.dtype, record_property: Record) -> None:
    model = model_of(shape, dtype)
    texts = {row: text_of(shape, length, seed=10 + row) for row, length in enumerate((23, 8, 31, 8))}
    together = feed(model, None, texts)
    for row, text in texts.items():
        apart = difference(together[row], feed(model, None, {0: text})[0])
        report_difference(record_property, "a row alone, in a batch", dtype, apart)
        assert apart <= TOLERANCE[dtype], f"row {row}"


@each_shape
@each_dtype
def test_what_neighbours_say_changes_no_bit(shape: str, dtype: torch.dtype) -> None:
    model = model_of(shape, dtype)
    mine = text_of(shape, 19)
    pairs = [
        feed(model, None, {0: text_of(shape, 23, seed=seed), 1: mine, 2: text_of(shape, 8, seed=seed)})[1]
        for seed in (1, 2)
    ]
    assert same_bits(bits(pairs[0]), bits(pairs[1]))


# --- Training


@each_shape
def test_training_without_a_cache_reaches_every_parameter_even_after_generating(shape: str) -> None:
    rotation_table.cache_clear()  # so that generating, in inference mode, is what makes the table
    model = random_weights(Transformer(SHAPES[shape]))
    generate(model, text_of(shape, 4), max_new_tokens=3)
    model.requires_grad_(True)
    tokens = torch.tensor([text_of(shape, 9, seed=1), text_of(shape, 9, seed=2)])
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().max() > 0, name


def test_gradients_equal_finite_differences() -> None:
    """float64, steps of 1e-6: what gradcheck needs for its own tolerance of 1e-5 (absolute) and 1e-3 (relative)."""
    config = ModelConfig(7, 2, 6, 2, 1, 4, 5, max_positions=8, tied_head=False, rope_factors=(1.0, 2.0))
    model = random_weights(Transformer(config).double()).requires_grad_(True)
    tokens = torch.tensor([[1, 6, 0, 3]])
    names = [name for name, _ in model.named_parameters()]

    def logits(*values: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(model, dict(zip(names, values, strict=True)), (tokens,))

    assert torch.autograd.gradcheck(logits, tuple(model.parameters()))


# --- Number types


@each_shape
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_differs_from_float32_by_its_rounding_alone(
    shape: str, dtype: torch.dtype, record_property: Record
) -> None:
    """Both read the same weights, those that the short type can hold. Some ten tensors a layer are then rounded by up
    to half an eps of their size, with either sign, and two or three layers add up. Root mean squares, since the
    largest of a thousand differences is a matter of luck: 2 to 4 eps of the logits' own is measured, 10 allowed, which
    is 8 % in bfloat16 and 1 % in float16. Logits of a wrong mask or position are off by as much as they are large.
    """
    half = model_of(shape, dtype)
    single = Transformer(SHAPES[shape])
    single.load_state_dict(half.state_dict())
    text = text_of(shape, 40)
    expected = feed(single, None, {0: text})[0]
    cached = feed_in(half, poisoned_cache(half, 1, 40), 0, text, (25, 7, *(1,) * 8))
    for what, got in (("full pass", feed(half, None, {0: text})[0]), ("cached", cached)):
        assert got.dtype == dtype
        report_difference(record_property, f"{what}, the same weights in float32", dtype, difference(got, expected))
        apart = (got.float() - expected).square().mean().sqrt() / expected.square().mean().sqrt()
        assert 0 < apart <= 10 * torch.finfo(dtype).eps, what


# --- Errors

GOOD = ModelConfig(29, 2, 24, 4, 2, 6, 20, max_positions=16)


@pytest.mark.parametrize(
    "field, value",
    [(name, value) for name in ("vocab_size", "n_layers", "d_model", "n_heads", "n_kv_heads", "head_dim", "d_ff",
     "max_positions") for value in (0, -1, 2.0, True)]
    + [("n_kv_heads", 3), ("head_dim", 5), ("rope_theta", 0.0), ("rope_theta", float("inf")), ("norm_eps", -1e-5),
       ("rope_factors", (1.0,)), ("rope_factors", (1.0, 0.0, 1.0)), ("rope_factors", (1.0, float("nan"), 1.0))],
)  # fmt: skip
def test_an_absurd_config_is_refused_by_field_and_value(field: str, value: object) -> None:
    with pytest.raises(ValueError) as error:
        replace(GOOD, **{field: value})
    said = str(error.value)
    blamed = value if not isinstance(value, tuple) else len(value) if len(value) != 3 else value[1]
    assert field in said and str(blamed) in said


@pytest.mark.parametrize("counts", [(3,), (3, 2), (4, 1), (0, 0), (3, 3, 3)])
def test_counts_that_do_not_describe_the_tokens_are_refused(counts: tuple[int, ...]) -> None:
    model = Transformer(GOOD)
    tokens = torch.zeros(2, 3, dtype=torch.long)
    if counts == (3, 2):  # the only ones that do
        assert not isnan(model(tokens, counts=counts)[1, :2].sum().item())
        return
    with pytest.raises(ValueError, match="counts"):
        model(tokens, counts=counts)


def test_the_state_dict_has_the_names_and_shapes_that_checkpoints_write() -> None:
    for config in (SHAPES["gqa"], SHAPES["mqa"]):
        c, D = config, config.head_dim
        expected = {"embedding": (c.vocab_size, c.d_model), "final_norm": (c.d_model,)}
        if not c.tied_head:
            expected["head"] = (c.vocab_size, c.d_model)
        for i in range(c.n_layers):
            expected |= {
                f"layers.{i}.attention_norm": (c.d_model,),
                f"layers.{i}.qkv": ((c.n_heads + 2 * c.n_kv_heads) * D, c.d_model),
                f"layers.{i}.attention_out": (c.d_model, c.n_heads * D),
                f"layers.{i}.mlp_norm": (c.d_model,),
                f"layers.{i}.gate_up": (2 * c.d_ff, c.d_model),
                f"layers.{i}.down": (c.d_model, c.d_ff),
            }
        assert {name: tuple(t.shape) for name, t in Transformer(config).state_dict().items()} == expected


# --- Rotations


@pytest.mark.parametrize("end", [1, 255, 256, 257, 511, 512, 513, 1024, 1025, 3000])
@each_dtype
def test_rotations_of_all_positions_are_those_of_the_formula(end: int, dtype: torch.dtype) -> None:
    """However far the table has grown. The last positions before a table ends, and the first of the next, among them.

    The formula is that of RoFormer, worked out by Python's own cosine; the table is made in float64 and rounded once.
    """
    config = SHAPES["gqa"]
    assert config.rope_factors is not None
    # Rounded once; and an angle of 3,000 radians is itself only known to 3,000 eps.
    tolerance = max(torch.finfo(dtype).eps, torch.finfo(torch.float64).eps * end)
    positions = [max(0, end - 2), end - 1, 0]
    cos, sin = rotation(config, torch.tensor([positions]), dtype, end)
    assert cos.shape == sin.shape == (1, 3, 1, config.head_dim) and cos.dtype == sin.dtype == dtype
    for i, position in enumerate(positions):
        for pair, factor in enumerate(config.rope_factors):
            angle = position * config.rope_theta ** (-2 * pair / config.head_dim) / factor
            for entry, sign in ((pair, -1), (pair + config.head_dim // 2, 1)):
                assert abs(cos[0, i, 0, entry].item() - cosine(angle)) <= tolerance
                assert abs(sin[0, i, 0, entry].item() - sign * sine(angle)) <= tolerance


@pytest.mark.parametrize("held", [246, 250, 254, 255, 256, 257, 510, 511])
def test_padding_beside_a_long_row_may_reach_beyond_every_real_position(held: int) -> None:
    """A row of `held` tokens gets one more while its neighbour reads ten: the padding of the first stands at positions
    that no token has, and that a table of rotations may end before."""
    config = replace(SHAPES["gqa"], max_positions=held + 1)
    model = random_weights(Transformer(config).double())
    long, short = text_of("gqa", held + 1), text_of("gqa", 10, seed=1)
    cache = poisoned_cache(model, 3, held + 1)
    feed(model, cache, {2: long[:held]})
    got = feed(model, cache, {2: long[held:], 0: short})
    for row, text in ((2, long), (0, short)):
        alone = feed(model, None, {0: text})[0]
        expected = alone[-1:] if row == 2 else alone
        assert got[row].shape == expected.shape
        assert difference(got[row], expected) <= TOLERANCE[torch.float64]
    feed(model, cache, {2: [], 0: [3]})  # nor does a row that rests disturb
    assert cache.lengths == (11, 0, held + 1)
