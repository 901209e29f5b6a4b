"""Formulas of arithmetic against torch's own counter, exactly, and the stopwatch against what it must not miss."""

import dataclasses

import pytest
import torch
from cost_shapes import SHAPE, every_shape

from course_lib.caches import ContiguousCache
from course_lib.checkpoints import random_model
from course_lib.costs import Flops, Stopwatch, count_flops, generation_flops, pass_flops
from course_lib.generation import generate
from course_lib.model import ModelConfig, Transformer


def tokens(count: int) -> torch.Tensor:
    return torch.arange(count)[None] % SHAPE.vocab_size


@every_shape
@pytest.mark.parametrize("new", [1, 2, 17])
@pytest.mark.parametrize("held", [0, 1, 30])
def test_a_pass_takes_what_torch_counts(shape: ModelConfig, new: int, held: int) -> None:
    model = random_model(shape)
    cache = ContiguousCache(shape, 1, held + new)
    if held:
        model(tokens(held), cache)
    counted = count_flops(lambda: model(tokens(new), cache))
    assert counted == pass_flops(shape, new, held, logits=new)


@every_shape
def test_logits_of_the_last_token_alone_cost_those_of_one_token(shape: ModelConfig) -> None:
    model = random_model(shape)
    assert count_flops(lambda: model(tokens(9), last_only=True)) == pass_flops(shape, 9)


@every_shape
@pytest.mark.parametrize("cached", [True, False])
def test_a_generation_takes_what_torch_counts(shape: ModelConfig, cached: bool) -> None:
    model = random_model(shape)
    options = {"max_new_tokens": 7, "use_cache": cached, "warm_up": False}
    counted = count_flops(lambda: generate(model, [1, 2, 3, 4, 5], **options))
    steps = generation_flops(shape, 5, 7, cached=cached)
    assert len(steps) == 7
    assert counted == sum(steps, Flops(0, 0))


def test_without_a_cache_each_part_grows_by_its_power() -> None:
    def in_all(length: int) -> Flops:
        headless = dataclasses.replace(SHAPE, vocab_size=1, max_positions=8192)
        return sum(generation_flops(headless, 1, length, cached=False), Flops(0, 0))

    once, twice = in_all(2000), in_all(4000)
    # Sums of t and of t^2 reach their powers from below: at 2,000 within one part in a hundred.
    assert twice.projections_and_mlp / once.projections_and_mlp == pytest.approx(4, rel=0.01)
    assert twice.attention / once.attention == pytest.approx(8, rel=0.01)


def test_the_parts_add_up() -> None:
    assert Flops(3, 4) + Flops(10, 20) == Flops(13, 24)
    assert Flops(13, 24).total == 37
    assert Flops(13, 24).parts() == {"projections and MLP": 13, "attention": 24}


def test_work_of_a_third_kind_is_not_passed_over() -> None:
    image, kernel = torch.zeros(1, 1, 4, 4), torch.zeros(1, 1, 2, 2)
    with pytest.raises(ValueError, match="convolution.*neither kind"):
        count_flops(lambda: torch.conv2d(image, kernel))


@pytest.mark.parametrize(("new", "held", "logits"), [(0, 0, 0), (1, -1, 1), (3, 0, 4), (3, 0, -1)])
def test_numbers_that_make_no_sense_are_refused(new: int, held: int, logits: int) -> None:
    with pytest.raises(ValueError, match=f"{new} new tokens, {held} held, {logits} scored"):
        pass_flops(SHAPE, new, held, logits)


@pytest.mark.parametrize(("prompt", "new"), [(0, 1), (1, 0)])
def test_a_generation_needs_a_prompt_and_something_new(prompt: int, new: int) -> None:
    with pytest.raises(ValueError, match=f"a prompt of {prompt} tokens and {new} new ones"):
        generation_flops(SHAPE, prompt, new, cached=False)


def test_a_stopwatch_hears_every_product_and_nothing_outside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr("course_lib.costs.perf_counter", lambda: float(next(ticks)))  # each look is a second later
    model: Transformer = random_model(SHAPE)
    with Stopwatch() as watch:
        model(tokens(5))
    model(tokens(5))  # not watched
    assert watch.projections_and_mlp_s == 4 * SHAPE.n_layers + 1  # qkv, out, gate and up, down; the head
    assert watch.attention_s == SHAPE.n_layers
    assert watch.parts() == {"projections and MLP": 13, "attention": 3}
