"""A mix of requests: seeded, skewed, bounded."""

from statistics import mean, median

import pytest

from course_lib.serving.prompt_text import prompt_text
from course_lib.serving.workload import Lengths, mix

MANY = 2000


def test_the_same_seed_gives_the_same_mix_and_another_seed_another() -> None:
    assert mix(20, 50, seed=3) == mix(20, 50, seed=3) != mix(20, 50, seed=4)


def test_a_longer_mix_begins_as_a_shorter_one_does() -> None:
    assert mix(30, 50, seed=1)[:7] == mix(7, 50, seed=1)


def test_requests_have_names_seeds_and_tokens_of_their_own() -> None:
    requests = mix(40, 11)
    assert [request.name for request in requests] == [f"r{number}" for number in range(40)]
    assert len({request.seed for request in requests}) == 40
    assert {token for request in requests for token in request.prompt} == set(range(11))


def test_another_seed_gives_a_server_other_words() -> None:
    same_lengths = {"prompts": Lengths(60, 0, 60), "answers": Lengths(5, 0, 5)}
    one, other = (list(map(prompt_text, mix(5, 50, **same_lengths, seed=seed))) for seed in (1, 2))
    assert not set(one) & set(other)


def test_half_are_below_the_median_and_a_few_are_much_longer() -> None:
    requests = mix(MANY, 2, prompts=Lengths(50, 1.0, 10**6), answers=Lengths(20, 0.5, 10**6), seed=2)
    prompts = [len(request.prompt) for request in requests]
    answers = [request.max_new_tokens for request in requests]
    assert median(prompts) == pytest.approx(50, rel=0.1) and median(answers) == pytest.approx(20, rel=0.1)
    assert mean(prompts) == pytest.approx(50 * 2.718**0.5, rel=0.15)  # that of a log-normal distribution
    assert max(prompts) > 10 * median(prompts)
    within = sum(50 / 2.718 <= length <= 50 * 2.718 for length in prompts)
    assert within / MANY == pytest.approx(0.683, abs=0.04)


def test_no_length_is_below_1_or_above_the_largest() -> None:
    requests = mix(MANY, 2, prompts=Lengths(2, 3.0, 40), answers=Lengths(40, 3.0, 40))
    assert {min(len(request.prompt) for request in requests), max(len(request.prompt) for request in requests)} == {
        1,
        40,
    }
    assert max(request.max_new_tokens for request in requests) == 40


def test_no_spread_is_too_wide() -> None:
    requests = mix(50, 2, prompts=Lengths(20, 1e6, 40), answers=Lengths(1, 1e300, 40))
    assert {len(request.prompt) for request in requests} == {request.max_new_tokens for request in requests} == {1, 40}


def test_without_a_spread_all_lengths_are_the_median() -> None:
    requests = mix(5, 2, prompts=Lengths(7, 0, 9), answers=Lengths(3, 0.0, 3))
    assert {(len(request.prompt), request.max_new_tokens) for request in requests} == {(7, 3)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [((0, 1.0, 5), "a median of 0"), ((6, 1.0, 5), "at most 5"), ((2.5, 1.0, 5), "2.5"), ((2, -0.1, 5), "-0.1"),
     ((2, float("nan"), 5), "nan"), ((2, float("inf"), 5), "inf")],
)  # fmt: skip
def test_lengths_that_make_no_sense_are_refused(arguments: tuple[int, float, int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Lengths(*arguments)


@pytest.mark.parametrize(("count", "vocab_size"), [(0, 5), (-1, 5), (3, 0)])
def test_a_mix_of_nothing_is_refused(count: int, vocab_size: int) -> None:
    with pytest.raises(ValueError, match=f"{count} requests from a vocabulary of {vocab_size}"):
        mix(count, vocab_size)


@pytest.mark.parametrize("seed", [None, float("nan")])
def test_a_mix_has_a_seed(seed: object) -> None:
    """Without one it would be another mix each time."""
    with pytest.raises(ValueError, match="the seed must be a whole number"):
        mix(3, 5, seed=seed)
