"""The numbers in the questions of notebooks 08 and 09, worked out by the caches; each trap is the mistake it names."""

from functools import lru_cache
from math import comb

import pytest
import torch
from shapes import random_weights
from test_sharing_quiz import number, words

from course_lib.caches import ContiguousCache, ForgettingCache, Integers, RoundedCache, Window
from course_lib.model import ModelConfig, Transformer
from course_lib.quality.measures import Rate

SHRINKING, RECALL = "08_shrinking_the_cache", "09_long_context_and_recall"
MIB = 2**20


def model_with(layers: int, kv_heads: int = 1, head_dim: int = 4) -> ModelConfig:
    return ModelConfig(11, layers, 8, kv_heads, kv_heads, head_dim, 8, max_positions=1 << 14)


def test_the_bytes_of_a_token_in_three_bits() -> None:
    shape = model_with(layers=8, kv_heads=4, head_dim=64)
    many, few = (RoundedCache(shape, 1, tokens, Integers(3), Integers(3)).reserved_bytes for tokens in (65, 64))
    token = many - few
    rows = 2 * 8 * 4
    codes = rows * 64 * 3 / 8
    assert number(SHRINKING, "bytes_of_three_bits", traps={codes, token / 2, codes + rows * 2 * 2}) == token


def test_the_bytes_where_most_layers_have_a_window() -> None:
    tokens, window = 8192, 512

    def held(layers: int, kept: int) -> float:
        """MiB of layers that hold `kept` tokens of 1 KiB: 128 numbers of 4 bytes in a key, and in a value."""
        return ContiguousCache(model_with(layers, kv_heads=1, head_dim=128), 1, kept).reserved_bytes / MIB

    traps = {held(2, tokens), held(12, tokens), held(12, window)}
    assert number(SHRINKING, "sliding_bytes", traps=traps) == held(2, tokens) + held(10, window)


def test_the_right_answers_of_a_window_with_those_that_are_guessed() -> None:
    asked, held, values = 400, 150, 10
    expected = sum(1.0 if question < held else 1 / values for question in range(asked))
    traps = {held, held + asked / values, asked}
    assert number(RECALL, "not_held", traps=traps) == pytest.approx(expected)


@lru_cache
def stack(layers: int) -> Transformer:
    """A model whose attention looks everywhere about equally, so that what is passed on does not fade on its way."""
    model = random_weights(Transformer(model_with(layers)).double())
    for layer in model.layers:
        layer.qkv[: layer.qkv.shape[0] // 3] *= 0.01  # the queries: here there are as many as keys and values
    return model


def changes(layers: int, window: int, back: int) -> bool:
    """Whether another token, so far back, changes the logits after the last one."""
    text = torch.randint(0, 10, (1, back + 3), generator=torch.Generator().manual_seed(0))
    texts = torch.cat([text, text])
    texts[1, -1 - back] = 10
    cache = ForgettingCache(stack(layers).config, 2, Window(window), dtype=torch.float64)
    with torch.inference_mode():
        logits = stack(layers)(texts, cache, last_only=True)[:, 0]
    return bool((logits[0] - logits[1]).abs().max() > 1e-13)  # rounding is below, one way through all layers above


def is_reach(back: int, layers: int, window: int) -> bool:
    return changes(layers, window, back) and not changes(layers, window, back + 1)


def test_the_reach_of_six_layers() -> None:
    layers, window = 6, 32
    traps = {layers * window, window - 1, window, (layers - 1) * (window - 1)}
    assert is_reach(int(number(RECALL, "how_far_back", traps=traps)), layers, window)


def test_the_reach_of_four_layers_of_which_the_explanation_speaks() -> None:
    assert "up to 99 tokens before: over 4 layers up to 396" in words(SHRINKING, "reach")
    assert is_reach(396, layers=4, window=100)


def test_what_twenty_right_answers_show() -> None:
    text = words(RECALL, "twenty_of_twenty")
    assert "begins at about 84 %" in text and round(100 * Rate(20, 20).interval[0]) == 84
    assert "loses one answer in ten would pass this test more than one time in ten" in text and 0.9**20 > 0.1
    assert "rate of 95 % shows in more than a third of all such tests" in text and 0.95**20 > 1 / 3
    assert "answers half of the questions is ruled out by these 20" in text and Rate(20, 20).interval[0] > 0.5


def test_what_97_of_100_right_answers_show() -> None:
    assert "97 of 100 begins near 91 %" in words(RECALL, "choose_one")
    low = Rate(97, 100).interval[0]
    assert low == pytest.approx(0.915, abs=0.006)
    at_least = sum(comb(100, right) * low**right * (1 - low) ** (100 - right) for right in range(97, 101))
    assert 0.01 < at_least < 0.05  # a cache with that rate is seldom so lucky: one time in 40 or so
