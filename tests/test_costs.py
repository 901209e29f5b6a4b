"""The formula of arithmetic against torch's own counter, exactly, and the stopwatch against what it must not miss."""

import pytest
import torch
from cost_shapes import SHAPE, every_shape

from course_lib.caches import ContiguousCache
from course_lib.checkpoints import random_model
from course_lib.costs import Flops, Stopwatch, count_flops, pass_flops
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
