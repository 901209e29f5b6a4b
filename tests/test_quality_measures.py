"""Measures of quality, against closed forms, published tables, and plain NumPy."""

import copy
from math import inf, isnan, log, sqrt

import numpy as np
import pytest
import torch
from shapes import model_of, text_of
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache, PagedCache
from course_lib.model import ModelConfig
from course_lib.quality.measures import CacheOf, Mean, Rate, compare, kl, nll, read, same_choice, step_times

# Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, the score method.
WILSON = {
    (81, 263): (0.2553, 0.3662),
    (15, 148): (0.0624, 0.1605),
    (0, 20): (0.0, 0.1611),
    (1, 29): (0.0061, 0.1718),
}


@pytest.mark.parametrize(("counts", "interval"), WILSON.items(), ids=str)
def test_the_interval_of_a_rate_is_the_published_one(counts: tuple[int, int], interval: tuple[float, float]) -> None:
    assert Rate(*counts).interval == pytest.approx(interval, abs=6e-5)
    wrong, asked = counts[1] - counts[0], counts[1]
    assert Rate(wrong, asked).interval == pytest.approx((1 - interval[1], 1 - interval[0]), abs=6e-5)


@pytest.mark.parametrize("asked", [1, 3, 512])
def test_all_right_and_all_wrong_have_an_interval_that_ends_there_and_is_not_empty(asked: int) -> None:
    z2 = 1.959964**2
    assert Rate(0, asked).interval == (0.0, pytest.approx(z2 / (asked + z2)))
    assert Rate(asked, asked).interval == (pytest.approx(asked / (asked + z2)), 1.0)


def test_nothing_asked_is_not_a_share_of_zero() -> None:
    rate = Rate(0, 0)
    assert isnan(rate.share) and rate.interval == (0.0, 1.0) and str(rate) == "nothing asked"
    assert str(Rate(3, 4)) == "75.0 % (30.1 to 95.4, n = 4)"


@pytest.mark.parametrize("counts", [(2, 1), (-1, 4), (0.5, 1)])
def test_what_is_no_rate_is_refused(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="is no rate|must be a whole number"):
        Rate(*counts)


# From the usual tables of Student's t, two-sided 95 %.
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 10: 2.262, 11: 2.228, 16: 2.131, 21: 2.086, 31: 2.042, 61: 2.000, 121: 1.980}


@pytest.mark.parametrize(("samples", "t"), STUDENT.items())
def test_the_interval_of_a_mean_is_that_of_students_table(samples: int, t: float) -> None:
    numbers = [0.0] * (samples - 1) + [float(samples)]  # mean 1, and the standard error is 1, too
    mean = Mean.of(numbers)
    assert (mean.value, mean.samples) == (pytest.approx(1.0), samples)
    error = np.std(numbers, ddof=1) / sqrt(samples)
    assert (mean.low, mean.high) == (pytest.approx(1 - t * error, abs=1e-3), pytest.approx(1 + t * error, abs=1e-3))


def test_one_sample_has_a_mean_and_no_idea_how_far_off_it_is() -> None:
    assert Mean.of([2.5]) == Mean(2.5, -inf, inf, 1)


@pytest.mark.parametrize("samples", [[], [1.0, float("nan")], [inf]])
def test_a_mean_of_nothing_or_of_what_is_no_number_is_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="a mean needs at least one sample"):
        Mean.of(samples)


def test_intervals_cover_the_truth_nineteen_times_in_twenty() -> None:
    generator = torch.Generator().manual_seed(0)
    draws = torch.rand(2000, 6, generator=generator)  # 2,000 studies of 6 texts each; the true mean is 1/2
    means = [Mean.of(study.tolist()) for study in draws]
    assert 0.93 < np.mean([mean.low <= 0.5 <= mean.high for mean in means]) < 0.97
    right = (torch.rand(2000, 40, generator=generator) < 0.9).sum(1)
    rates = [Rate(int(number), 40).interval for number in right]
    assert 0.93 < np.mean([low <= 0.9 <= high for low, high in rates]) < 0.98


def logits_of(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 4


def test_kl_and_nll_are_what_their_formulas_say_token_by_token() -> None:
    a, b = logits_of((2, 3, 7), 0), logits_of((2, 3, 7), 1)
    tokens = torch.tensor([[0, 6, 3], [2, 2, 5]])
    for row in range(2):
        for t in range(3):
            p, q = (np.exp(x[row, t].double().numpy()) for x in (a, b))
            p, q = p / p.sum(), q / q.sum()
            assert kl(a, b)[row, t].item() == pytest.approx(float(np.sum(p * np.log(p / q))), rel=1e-12)
            assert nll(a, tokens)[row, t].item() == pytest.approx(-log(p[tokens[row, t]]), rel=1e-12)
            assert same_choice(a, b)[row, t].item() == (p.argmax() == q.argmax())


def test_kl_of_two_coins_is_the_closed_form_and_not_symmetric() -> None:
    def coin(heads: float) -> Tensor:
        return torch.tensor([log(heads), log(1 - heads)], dtype=torch.float64)

    assert kl(coin(0.5), coin(0.25)).item() == pytest.approx(0.5 * log(4 / 3))
    assert kl(coin(0.25), coin(0.5)).item() == pytest.approx(log(2) - 0.25 * log(4) - 0.75 * log(4 / 3))


def test_kl_is_exactly_zero_for_equal_logits_and_does_not_see_a_common_shift() -> None:
    a = logits_of((5, 100), 0)
    assert kl(a, a).eq(0).all()
    assert kl(a, a.double() + 64).max() < 1e-12
    assert kl(a, a + 1e-6 * logits_of((5, 100), 1)).min() > 0  # far below float32's rounding of a sum


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_short_floats_and_large_logits_are_judged_in_float64(dtype: torch.dtype) -> None:
    a = torch.tensor([[28_672.0, -28_672.0, 0.0]]).to(dtype)
    b = torch.tensor([[28_672.0, -28_672.0, 16_384.0]]).to(dtype)
    assert kl(a, b).dtype == torch.float64
    assert kl(b, a).item() == pytest.approx(0, abs=1e-9) and kl(a, b).item() == pytest.approx(0, abs=1e-9)
    assert nll(a, torch.tensor([1])).item() == 57_344


@pytest.mark.parametrize("measure", [kl, same_choice])
def test_logits_that_cannot_be_compared_are_refused_in_words(measure: object) -> None:
    a = logits_of((2, 3, 7), 0)
    with pytest.raises(ValueError, match=r"\[2, 3, 7\] against \[3, 7\]: compare runs over the same texts"):
        measure(a, a[0])  # type: ignore[operator]
    for value in (float("nan"), inf, -inf):
        broken = a.clone()
        broken[1, 2, 3:5] = value
        with pytest.raises(ValueError, match=r"2 of 42 of the changed run's logits.* the first at \[1, 2, 3\]"):
            measure(a, broken)  # type: ignore[operator]
        with pytest.raises(ValueError, match="2 of 42 of the reference's logits"):
            measure(broken, a)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (torch.tensor([0]), "do not judge"),
        (torch.tensor([0.0, 1.0, 2.0]), "do not judge torch.float32 tokens"),
        (torch.tensor([0, 1, 7]), "tokens from 0 to 7, but 7 logits each"),
        (torch.tensor([0, -1, 6]), "tokens from -1 to 6"),
    ],
)
def test_tokens_that_logits_do_not_judge_are_refused(tokens: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        nll(logits_of((3, 7), 0), tokens)


def test_a_comparison_counts_texts_and_each_text_once_whatever_its_length() -> None:
    texts = [torch.randint(7, (length,), generator=torch.Generator().manual_seed(length)) for length in (2, 9, 200)]
    before, after = ([logits_of((len(text), 7), seed + len(text)) for text in texts] for seed in (0, 1000))
    found = compare(before, after, texts)
    each = [float(kl(a[:-1], b[:-1]).mean()) for a, b in zip(before, after)]
    assert found.kl.value == pytest.approx(np.mean(each)) and found.kl.samples == 3
    gains = [float((nll(b[:-1], text[1:]) - nll(a[:-1], text[1:])).mean()) for a, b, text in zip(before, after, texts)]
    assert found.nll_added.value == pytest.approx(np.mean(gains))
    assert found.nll_changed.value - found.nll_reference.value == pytest.approx(found.nll_added.value)
    assert found.same_choice.value == pytest.approx(
        np.mean([float(same_choice(a[:-1], b[:-1]).double().mean()) for a, b in zip(before, after)])
    )
    assert found.tokens == 1 + 8 + 199


def test_a_small_loss_is_seen_in_kl_and_in_the_paired_difference_though_texts_are_unlike() -> None:
    texts = torch.randint(50, (12, 40), generator=torch.Generator().manual_seed(0))
    before = logits_of((12, 40, 50), 1) * torch.linspace(0.1, 2, 12)[:, None, None]  # easy texts and hard ones
    found = compare(before, before + 0.01 * logits_of((12, 40, 50), 2), texts)
    width = found.nll_reference.high - found.nll_reference.low
    assert found.kl.low > 0
    assert found.nll_added.high - found.nll_added.low < width / 20
    same = compare(before, before, texts)
    assert (same.kl.value, same.same_choice.value, same.nll_added.value, same.kl.samples) == (0, 1, 0, 12)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 0, 0), "0 reference runs, 0 changed ones, 0 texts"),
        ((2, 1, 2), "2 reference runs, 1 changed ones"),
        ((2, 2, 1), "1 texts"),
    ],
)
def test_runs_that_do_not_fit_each_other_are_refused(counts: tuple[int, int, int], said: str) -> None:
    one, text = logits_of((5, 7), 0), torch.zeros(5, dtype=torch.long)
    with pytest.raises(ValueError, match=said):
        compare([one] * counts[0], [one] * counts[1], [text] * counts[2])


@pytest.mark.parametrize("length", [1, 4])
def test_a_text_that_is_not_that_of_its_logits_is_refused(length: int) -> None:
    one = logits_of((5 if length > 1 else 1, 7), 0)
    with pytest.raises(ValueError, match="as many of both, and at least 2"):
        compare([one], [one], [torch.zeros(length, dtype=torch.long)])


def paged(config: ModelConfig, rows: int, capacity: int) -> Cache:
    return PagedCache(config, rows, rows * -(-capacity // 4), 4, torch.float64)


def contiguous(config: ModelConfig, rows: int, capacity: int) -> Cache:
    return ContiguousCache(config, rows, capacity, torch.float64)


@pytest.mark.parametrize("cache_of", [contiguous, paged])
@pytest.mark.parametrize(("prompt", "chunk"), [(1, 1), (5, 1), (3, 4), (12, 1), (1, 100)])
def test_a_text_read_through_a_cache_that_keeps_all_has_the_logits_of_one_pass(
    cache_of: CacheOf, prompt: int, chunk: int
) -> None:
    model = model_of("gqa")
    tokens = torch.tensor([text_of("gqa", 12, seed) for seed in range(3)])
    whole = read(model, tokens)
    assert whole.shape == (3, 12, model.config.vocab_size)
    assert torch.allclose(read(model, tokens, cache_of, prompt=prompt, chunk=chunk), whole, atol=1e-10)


def test_texts_are_read_where_the_model_is() -> None:
    elsewhere = copy.deepcopy(model_of("gqa")).to("meta")
    assert read(elsewhere, torch.tensor([text_of("gqa", 12)])).device.type == "meta"


def test_a_text_comes_as_its_prompt_and_then_in_chunks() -> None:
    passes: list[tuple[int, ...]] = []

    class Counting(ContiguousCache):
        def keep(self, rows: tuple[int, ...]) -> None:
            passes.append(rows)
            lengths.append(self.lengths[0])

    lengths: list[int] = []
    tokens = torch.tensor([text_of("gqa", 12, seed) for seed in range(2)])
    read(model_of("gqa"), tokens, lambda *shape: Counting(*shape, torch.float64), prompt=4, chunk=3)
    assert passes == [(0, 1)] * 4 and lengths == [0, 4, 7, 10]


@pytest.mark.parametrize(("prompt", "chunk"), [(0, 1), (13, 1), (2, 0), (1.5, 1)])
def test_pieces_that_do_not_make_a_text_are_refused(prompt: int, chunk: int) -> None:
    tokens = torch.tensor([text_of("gqa", 12, 0)])
    with pytest.raises(ValueError, match="do not make 12 tokens|must be a whole number"):
        read(model_of("gqa"), tokens, contiguous, prompt=prompt, chunk=chunk)


def test_steps_are_timed_one_by_one_on_the_cache_that_was_given() -> None:
    model = model_of("gqa")
    cache = contiguous(model.config, 2, 8)
    with torch.inference_mode():
        model(torch.tensor([text_of("gqa", 5, 0)] * 2), cache)
    times = []
    for seconds in step_times(model, cache, [1, 2, 3]):
        times.append(seconds)
        assert not torch.is_inference_mode_enabled()
        assert cache.lengths == (5 + len(times),) * 2
    assert len(times) == 3 and min(times) > 0
