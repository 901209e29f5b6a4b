"""The shapes of the curves that the course draws of smaller caches, on the recall model and one set of questions.

The one idea: a course that says "fewer bits, fewer right answers" must notice when that ceases to be so. Seeds are
fixed and the room for noise is that of 256 questions: a share is known to within six points.
"""

from functools import lru_cache
from itertools import pairwise

import pytest
import torch

from benchmarks.quality import forgetting, per_token, rounded
from course_lib.caches import ContiguousCache
from course_lib.caches.codecs import Floats, Integers
from course_lib.caches.policies import MostSeen, Window
from course_lib.quality import recall
from course_lib.quality.measures import CacheOf, kl

NOISE = 0.06
BITS = (2, 3, 4, 8)
CHANNELS = Integers(2, 32, per_channel=True)


@lru_cache
def questions() -> recall.Questions:
    return recall.TASK.questions(64, 16, 16, seed=2024)


@lru_cache
def ask(cache_of: CacheOf = ContiguousCache) -> recall.Answers:
    return recall.ask(recall.load(), questions(), cache_of)


def share(cache_of: CacheOf) -> float:
    return ask(cache_of).rate().share


def divergence(cache_of: CacheOf) -> float:
    return float(kl(ask().logits, ask(cache_of).logits).mean())


WINDOWS = {window: forgetting(Window(window)) for window in (32, 64, 96, 128, 159)}
TOKENS = {bits: rounded(per_token(bits), per_token(bits)) for bits in BITS}
SHORT = {dtype: rounded(Floats(dtype), Floats(dtype)) for dtype in (torch.float16, torch.float8_e4m3fn)}


def test_a_full_cache_answers_more_than_99_of_100() -> None:
    assert ask().rate().share > 0.99


def test_the_longer_the_window_the_more_is_right() -> None:
    shares = [share(window) for window in WINDOWS.values()]
    assert all(more > less + NOISE / 3 for less, more in pairwise(shares)), shares
    assert shares[0] < 0.25 and shares[-1] > 0.95


def test_a_window_loses_the_oldest_pairs_and_keeps_the_newest() -> None:
    parts = [rate.share for _, rate in ask(WINDOWS[96]).by_depth(4)]
    assert parts[0] < 0.1 and parts[3] > 0.8


def test_what_the_window_still_holds_is_almost_always_right() -> None:
    for window in (64, 96, 128):
        answers = ask(WINDOWS[window])
        assert answers.rate(answers.held).share > 0.85 > 0.15 > answers.rate(~answers.held).share


def test_the_more_bits_the_nearer_to_the_full_cache() -> None:
    far = [divergence(TOKENS[bits]) for bits in BITS]
    assert all(fewer > 2 * more for fewer, more in pairwise(far)), far
    shares = [share(TOKENS[bits]) for bits in BITS]
    assert all(more > less - NOISE / 4 for less, more in pairwise(shares)), shares
    assert shares[0] < 0.99 < shares[2]


def test_kl_moves_where_the_share_of_right_answers_does_not_yet() -> None:
    assert abs(share(TOKENS[4]) - ask().rate().share) < 0.01
    assert divergence(TOKENS[4]) > 10 * divergence(TOKENS[8]) > 0


def test_short_floats_change_no_answer_and_the_longer_one_less() -> None:
    half, quarter = SHORT.values()
    assert share(half) > 0.99 and share(quarter) > 0.99
    assert divergence(half) < divergence(quarter) / 100


def test_a_residual_brings_two_bits_nearer_to_the_full_cache() -> None:
    without, with_one = (rounded(CHANNELS, per_token(2), residual) for residual in (0, 64))
    assert divergence(with_one) < divergence(without)


@pytest.mark.parametrize("slots", [64, 96])
def test_of_as_many_tokens_those_that_were_most_looked_at_answer_more(slots: int) -> None:
    assert share(forgetting(MostSeen(slots, slots // 2))) > share(forgetting(Window(slots))) + NOISE


def test_sinks_bring_this_model_nothing() -> None:
    """As they do for large models: 4 of the window's 64 tokens are spent on the oldest two pairs."""
    assert abs(share(forgetting(Window(60, 4))) - share(WINDOWS[64])) < 2 * NOISE


def test_for_as_many_bytes_rounding_answers_far_more_than_forgetting() -> None:
    """160 tokens: a window of 64 holds 0.4 of the bytes, 3 bits and their scales take 0.125."""
    assert ask(TOKENS[3]).used_bytes < ask(WINDOWS[64]).used_bytes
    assert share(TOKENS[3]) > share(WINDOWS[64]) + 0.5
