"""How a token is chosen: the distribution equals its definition, token by token, and what makes no sense is refused."""

from collections.abc import Sequence
from math import inf, nan

import numpy as np
import pytest
import torch
from shapes import difference, model_of, text_of

from course_lib.generation import Sampling, choose, generate


def slow_probabilities(
    logits: Sequence[float], temperature: float, top_k: int | None, top_p: float | None
) -> np.ndarray:
    """Token by token: rank by logit, keep what is as likely as the k-th, keep until p is reached, share what is left.

    Equally likely tokens: all that tie with the k-th stay; of those on the edge of p, the ones with smaller ids.
    """
    logits = [float(logit) / temperature for logit in logits]
    ranked = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    if top_k is not None:
        least = logits[ranked[min(top_k, len(ranked)) - 1]]
        ranked = [token for token in ranked if logits[token] >= least]
    weights = {token: np.exp(logits[token] - logits[ranked[0]]) for token in ranked}
    total, kept, reached = sum(weights.values()), {}, 0.0
    for token in ranked:
        if top_p is not None and reached >= top_p:
            break
        kept[token] = weights[token] / total
        reached += kept[token]
    out = np.zeros(len(logits))
    for token, probability in kept.items():
        out[token] = probability / sum(kept.values())
    return out


EXACT = [2.0, 0.0, 1.0, 2.0, 1.0, 1.0, -3.0, 2.0]  # ties at the top and in the middle
RANDOM = torch.randn(50, generator=torch.Generator().manual_seed(0)).mul(3).tolist()


@pytest.mark.parametrize("logits", [EXACT, RANDOM, [0.0] * 4, [5.0]], ids=["ties", "random", "all equal", "one"])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("top_k", [None, 1, 2, 4, 100])
@pytest.mark.parametrize("top_p", [None, 0.01, 0.45, 0.5, 0.9, 1.0])
def test_the_distribution_equals_its_definition(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    expected = slow_probabilities(logits, temperature, top_k, top_p)
    given = torch.tensor(logits)
    got = Sampling(temperature, top_k, top_p).probabilities(given)
    assert got.shape == (len(logits),) and got.dtype == torch.float64
    assert given.tolist() == torch.tensor(logits).tolist(), "the logits are not changed"
    assert set(np.flatnonzero(got.numpy())) == set(np.flatnonzero(expected))
    np.testing.assert_allclose(got.numpy(), expected, atol=1e-14)  # float64 sums of up to 50 probabilities


def test_tokens_are_drawn_as_often_as_the_distribution_says() -> None:
    sampling, draws = Sampling(1.0, top_k=5, top_p=0.9), 4000
    logits, generator = torch.tensor(EXACT), torch.Generator().manual_seed(0)
    counts = np.bincount([choose(logits, sampling, generator) for _ in range(draws)], minlength=len(EXACT))
    expected = slow_probabilities(EXACT, 1.0, 5, 0.9)
    assert not counts[expected == 0].any()
    # Five standard deviations of a count: a right draw misses once in a million tries, and the seed is fixed.
    assert (np.abs(counts - draws * expected) <= 5 * np.sqrt(draws * expected)).all()


@pytest.mark.parametrize(
    "sampling", [Sampling(1.0, top_k=1), Sampling(5.0, top_p=1e-6), Sampling(1e-4), Sampling(1e-40)]
)
def test_the_narrowest_choices_are_the_greedy_one(sampling: Sampling) -> None:
    model, prompt = model_of("gqa"), text_of("gqa", 9)
    greedy = generate(model, prompt, max_new_tokens=25).tokens
    assert generate(model, prompt, max_new_tokens=25, sampling=sampling, seed=1).tokens == greedy


def test_a_very_high_temperature_makes_all_tokens_equally_likely() -> None:
    got = Sampling(1e6).probabilities(torch.tensor(RANDOM))
    assert difference(got, torch.full_like(got, 1 / len(RANDOM))) < 1e-6


def test_a_choice_may_exclude_tokens_but_not_all_and_not_be_no_number() -> None:
    for sampling in (Sampling(), Sampling(1.0), Sampling(1.0, 2, 0.5)):
        assert choose(torch.tensor([-inf, 1.0, -inf]), sampling) == 1
        for bad, said in (([1.0, nan, 2.0], "nan"), ([1.0, inf], "inf"), ([-inf, -inf], "-inf")):
            with pytest.raises(ValueError, match=f"the largest logit is {said}"):
                choose(torch.tensor(bad), sampling)


@pytest.mark.parametrize(
    "options, said",
    [
        ({"temperature": -0.5}, "temperature .* not -0.5"),
        ({"temperature": nan}, "temperature .* not nan"),
        ({"temperature": inf}, "temperature .* not inf"),
        ({"top_k": 0}, "top_k .* not 0"),
        ({"top_p": 0.0}, "top_p .* not 0.0"),
        ({"top_p": 1.5}, "top_p .* not 1.5"),
        ({"top_p": nan}, "top_p .* not nan"),
        ({"temperature": "0.5"}, "temperature must be a number of at least 0, not '0.5'"),
        ({"temperature": None}, "temperature .* not None"),
        ({"top_p": "a"}, "top_p must be a number above 0, not 'a'"),
        ({"top_k": 2.5}, "top_k .* not 2.5"),
    ],
)
def test_sampling_that_makes_no_sense_is_refused_by_its_value(options: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sampling(**options)


@pytest.mark.parametrize("temperature", [1e-30, 1e-46, 1e-300])
def test_a_temperature_near_zero_takes_the_most_likely_token(temperature: float) -> None:
    logits = torch.tensor([0.5, 3.0, 3.0 - 1e-3, -2.0])
    assert Sampling(temperature).probabilities(logits).tolist() == [0, 1, 0, 0]
    assert choose(logits, Sampling(temperature), torch.Generator().manual_seed(0)) == 1
