"""Codecs: what goes in comes back within the bound that its bytes allow, and the bytes are those that were promised.

The one idea: a loop in plain Python rounds one group at a time, and the bits are read back from one large whole number.
"""

from fractions import Fraction
from itertools import pairwise, product
from math import isfinite, nan

import numpy as np
import pytest
import torch

from course_lib.caches.codecs import Codec, Floats, Integers, pack, unpack
from course_lib.sizing.bytes import ElementType

SHORT = (
    Integers(4, 8), Integers(2, 4, True), Floats(torch.float16), Floats(torch.float8_e5m2), Floats(torch.float8_e4m3fn)
)  # fmt: skip
BITS = (1, 2, 3, 4, 5, 8)
DIMS = (1, 6, 20, 32)
SCALES = (torch.float16, torch.bfloat16, torch.float32)
EPS = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}  # half a unit in the last place


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("count", (1, 2, 7, 8, 9, 33))
def test_codes_lie_one_after_the_other_lowest_bit_first(bits: int, count: int) -> None:
    codes = torch.randint(2**bits, (3, count), generator=torch.Generator().manual_seed(count), dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (3, -(-count * bits // 8))
    for row, found in zip(codes.tolist(), packed.tolist()):
        assert int.from_bytes(found, "little") == sum(code << bits * place for place, code in enumerate(row))
    assert unpack(packed, bits, count).equal(codes)


def rounded(group: list[float], bits: int, scale_dtype: torch.dtype) -> list[float]:
    """One group, by the formula: the nearest of 2^bits steps from the smallest number, both scales rounded first."""
    steps = 2**bits - 1
    low = torch.tensor(min(group), dtype=torch.float64).to(scale_dtype).item()
    step = torch.tensor((max(group) - min(group)) / steps, dtype=torch.float64).to(scale_dtype).item()
    codes = [min(max(round((x - low) / step), 0), steps) if step else 0 for x in group]
    return [low + code * step for code in codes]


def by_hand(codec: Integers, x: np.ndarray) -> np.ndarray:
    """A head's keys [T, D] as they come back."""
    out = np.empty_like(x)
    T, D = x.shape
    if codec.per_channel:
        groups = [(slice(t, t + codec.group), d) for t, d in product(range(0, T, codec.group), range(D))]
    else:
        groups = [(t, slice(d, d + codec.group)) for t, d in product(range(T), range(0, D, codec.group))]
    for place in groups:
        out[place] = rounded(list(x[place]), codec.bits, codec.scale_dtype)
    return out


@pytest.mark.parametrize("scale_dtype", SCALES, ids=str)
@pytest.mark.parametrize("per_channel", (False, True), ids=("per token", "per channel"))
@pytest.mark.parametrize("group", (1, 4, 7, 32))
def test_each_number_comes_back_as_the_formula_says_and_within_half_a_step(
    group: int, per_channel: bool, scale_dtype: torch.dtype
) -> None:
    for bits, head_dim in product(BITS, DIMS):
        codec = Integers(bits, group, per_channel, scale_dtype)
        x = numbers(2, 3, 2 * codec.tokens, head_dim, seed=bits)
        packed = codec.encode(x)
        assert packed.dtype == torch.uint8 and packed.shape == (2, 3, 2, codec.size(head_dim))
        back = codec.decode(packed, head_dim, torch.float64)
        assert back.shape == x.shape
        expected = np.stack([[by_hand(codec, head) for head in row] for row in x.numpy()])
        assert np.abs(back.numpy() - expected).max() < 1e-12
        # Half a step; and what the scales are rounded by, the lowest once and a step as often as there are steps.
        reach = float(x.max() - x.min())
        slack = EPS[scale_dtype] * (x.abs().max().item() + reach)
        assert (back - x).abs().max() <= reach / (2**bits - 1) / 2 + 2 * slack


@pytest.mark.parametrize("bits", BITS)
def test_more_bits_are_never_worse_on_the_same_numbers(bits: int) -> None:
    x = numbers(1, 1, 64, 32)
    off = [(codec.decode(codec.encode(x), 32, torch.float64) - x).abs().mean() for codec in map(Integers, sorted(BITS))]
    assert off == sorted(off, reverse=True)


def test_bytes_are_codes_and_scales_as_sizing_counts_them() -> None:
    for bits, group in product((2, 4, 8), (8, 16, 32)):
        codec = Integers(bits, group)
        element = ElementType("ours", Fraction(bits, 8), scale_bytes=4, group=group)
        assert codec.size(64) == 64 * bits / 8 + 64 / group * 4 == element.part_bytes(1, 64)
    assert Integers(3, 32).size(64) == 24 + 8  # 3 bits are packed, too
    assert Integers(4, 32).size(48) == 24 + 8  # a short last group has scales of its own
    assert Integers(2, 32, per_channel=True).size(64) == 32 * 64 // 4 + 64 * 4  # of 32 tokens together
    assert [Floats(d).size(64) for d in (torch.float16, torch.bfloat16, torch.float8_e5m2)] == [128, 128, 64]


CODECS = [
    Integers(4, 8), Integers(3, 4, True), Integers(8, 32, False, torch.float32), Floats(torch.float16),
    Floats(torch.float8_e4m3fn), Floats(torch.float8_e5m2),
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_constant_comes_back_exactly_and_zero_as_zero(codec: Codec) -> None:
    for value in (0.0, -3.5, 40.0):
        x = torch.full((1, 2, 2 * codec.tokens, 12), value)
        assert codec.decode(codec.encode(x), 12, torch.float32).equal(x)


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("bad", (torch.nan, torch.inf, -torch.inf))
def test_what_is_no_number_does_not_come_back_as_one(codec: Codec, bad: float) -> None:
    x = numbers(1, 1, codec.tokens, 12).float()
    x[0, 0, 0, 5] = bad
    back = codec.decode(codec.encode(x), 12, torch.float32)
    assert not back[0, 0, 0, 5].isfinite()
    alone = back[0, 0, 0, 8:].isfinite().all()  # what is in other groups does not suffer
    assert alone or (isinstance(codec, Integers) and codec.group >= 12)


@pytest.mark.parametrize("codec", SHORT, ids=str)
def test_what_is_too_large_for_the_scales_does_not_come_back_as_another_number(codec: Codec) -> None:
    x = numbers(1, 1, codec.tokens, 12).float()
    x[0, 0, 0, 5] = 1e6
    assert not codec.decode(codec.encode(x), 12, torch.float32)[0, 0, 0, 5].isfinite()
    wide = Integers(8, 4, scale_dtype=torch.float32)
    assert wide.decode(wide.encode(x), 12, torch.float32)[0, 0, 0, 5] == pytest.approx(1e6, rel=1e-6)


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_short_floats_are_encoded_as_the_numbers_that_they_are(codec: Codec, dtype: torch.dtype) -> None:
    x = (100 + numbers(1, 2, 2 * codec.tokens, 12)).to(dtype)  # neighbours of 100 are half apart in bfloat16
    assert codec.encode(x).equal(codec.encode(x.float()))


def test_floats_are_stored_as_torch_rounds_them() -> None:
    x = numbers(2, 3, 5, 8).float()
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        codec = Floats(dtype)
        assert codec.decode(codec.encode(x), 8, torch.float32).equal(x.to(dtype).float())


def eight_bits(exponent: int, bias: int, infinite: bool) -> list[float]:
    """The numbers from 0 up that a float of 8 bits can be, by the definition of the format, in the order of its codes;
    after the last one the next that there would be."""
    mantissa = 7 - exponent
    codes = range(2**7 - (2**mantissa if infinite else 1) + 1)
    parts = [divmod(code, 2**mantissa) for code in codes]
    return [((e > 0) + m / 2**mantissa) * 2.0 ** (max(e, 1) - bias) for e, m in parts]


@pytest.mark.parametrize(
    ("dtype", "numbers", "largest"),
    [
        (torch.float8_e4m3fn, eight_bits(4, 7, infinite=False), 448),
        (torch.float8_e5m2, eight_bits(5, 15, infinite=True), 57_344),
    ],
)
def test_floats_of_eight_bits_are_the_nearest_that_there_is_and_none_beyond_the_largest(
    dtype: torch.dtype, numbers: list[float], largest: float
) -> None:
    assert numbers[-2] == largest and numbers == sorted(numbers)
    codec = Floats(dtype)
    for code, (low, high) in enumerate(pairwise(numbers)):
        for share, nearest in ((0, code), (0.49, code), (0.5, code + code % 2), (0.51, code + 1)):  # a tie: the even
            x = low + share * (high - low)
            expected = numbers[nearest] if nearest < len(numbers) - 1 else nan
            for sign, source in product((1, -1), (torch.float32, torch.float64)):
                back = codec.decode(codec.encode(torch.tensor([[sign * x]], dtype=source)), 1, source).item()
                assert back == sign * expected or not (isfinite(expected) or isfinite(back)), x


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Integers(0), "0"),
        (lambda: Integers(9), "9"),
        (lambda: Integers(4.0), "4.0"),  # type: ignore[arg-type]
        (lambda: Integers(4, 0), "0"),
        (lambda: Integers(4, scale_dtype=torch.int8), "int8"),
        (lambda: Floats(torch.int32), "int32"),
    ],
)
def test_a_codec_that_cannot_be_is_refused_with_the_value(make: object, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()  # type: ignore[operator]
