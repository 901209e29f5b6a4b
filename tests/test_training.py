"""The small trainer: what it draws, that it learns, that it can be repeated, and that it leaves no trace."""

import dataclasses
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.checkpoints import random_model
from course_lib.model import ModelConfig, Transformer
from course_lib.training import Letters, pieces, python_help, spread, train

TEXT = Letters.of("abcd" * 100)
SHAPE = ModelConfig(
    vocab_size=4, n_layers=1, d_model=16, n_heads=2, n_kv_heads=2, head_dim=8, d_ff=32, max_positions=64
)


def next_token_loss(model: Transformer, piece: Tensor) -> Tensor:
    return F.cross_entropy(model(piece[:, :-1]).flatten(0, 1), piece[:, 1:].flatten())


def trained(steps: int = 40, seed: int = 0) -> Transformer:
    return train(SHAPE, next_token_loss, TEXT.ids, length=8, rows=4, steps=steps, seed=seed)


def test_letters_are_numbers_that_turn_back_into_the_text() -> None:
    letters = Letters.of("banana, nab")
    assert letters.alphabet == " ,abn"
    assert letters.ids.shape == (11,)
    assert letters.text(letters.ids) == "banana, nab"


def test_the_help_of_python_is_one_long_line_of_english() -> None:
    text = python_help()
    assert len(text) > 200_000
    assert "\n" not in text and "  " not in text
    assert text.count(" the ") > 1000
    assert len(set(text)) < 200


def test_a_piece_is_so_many_tokens_and_the_one_after_each() -> None:
    piece = pieces(torch.arange(100), torch.tensor([0, 90]), length=9)
    assert piece.shape == (2, 10)
    assert piece[0].tolist() == list(range(10))
    assert piece[1].tolist() == list(range(90, 100))


def test_spread_pieces_reach_from_the_first_token_to_the_last() -> None:
    piece = spread(torch.arange(100), length=9, rows=4)
    assert piece.shape == (4, 10)
    assert (piece[0, 0], piece[-1, -1]) == (0, 99)


@pytest.mark.parametrize("call", [lambda: pieces(torch.arange(9), torch.tensor([0]), 9), lambda: Letters.of("")])
def test_too_little_text_is_refused_in_words(call: object) -> None:
    with pytest.raises(ValueError, match="take a longer text|nothing to learn"):
        call()  # type: ignore[operator]


REFUSED = {
    "a text as long as a piece": ({"ids": torch.zeros(8, dtype=torch.long)}, "a text of 8 tokens has no piece of 8"),
    "no text": ({"ids": torch.zeros(0, dtype=torch.long)}, "a text of 0 tokens has no piece of 8"),
    "pieces of nothing": ({"length": 0}, "pieces of at least 1"),
    "no rows": ({"rows": 0}, "0 rows of pieces teach nothing"),
    "a token outside of the vocabulary": ({"ids": torch.tensor([0, 1, 2, 3, 4] * 4)}, "token 4 is not among the 4"),
    "a token below it": (
        {"ids": torch.tensor([0, 1, 2, 3, -1] * 4)},
        "token -1 is not among the 4 of the model: 0 to 3",
    ),
}


@pytest.mark.parametrize(("change", "said"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_trained_on_is_refused_in_words(change: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"ids": TEXT.ids, "length": 8, "rows": 4} | change
    with pytest.raises(ValueError, match=said):
        train(SHAPE, next_token_loss, steps=1, **given)


@pytest.mark.parametrize("letters", [9, 20])
def test_every_piece_of_the_text_is_drawn_from_the_first_to_the_last(letters: int) -> None:
    starts: set[int] = set()

    def loss(model: Transformer, piece: Tensor) -> Tensor:
        assert piece.shape == (4, 9)
        starts.update(piece[:, 0].tolist())
        return model.final_norm.sum()

    shape = dataclasses.replace(SHAPE, vocab_size=20)
    train(shape, loss, torch.arange(letters), length=8, rows=4, steps=60)
    assert starts == set(range(letters - 8))  # 240 draws of at most 12: the seed leaves none out


def moves(steps: int, first: float = 1.0) -> list[float]:
    """How far each step moves a weight downhill, where the slope is 1 everywhere, but `first` at the first step."""
    seen: list[float] = []

    def loss(model: Transformer, piece: Tensor) -> Tensor:
        seen.append(model.final_norm[0].item())
        return model.final_norm.sum() * (first if len(seen) == 1 else 1.0)

    trained_model = train(SHAPE, loss, TEXT.ids, length=8, rows=4, steps=steps, rate=0.01)
    seen.append(trained_model.final_norm[0].item())
    return [before - after for before, after in pairwise(seen)]


def test_the_steps_grow_for_a_while_and_then_shrink_to_nothing_and_nothing_else_moves_a_weight() -> None:
    moved = moves(steps=100)
    # Adam divides a slope by its own size, so on an even slope a step is as long as the learning rate.
    for number, length in ((0, 0.01 / 20), (9, 0.005), (50, 0.005), (90, 0.001), (99, 0.0001)):
        assert moved[number] == pytest.approx(length, rel=0.01)  # a weight near 0.3 in float32: a part in a thousand
    assert moved.index(max(moved)) in range(15, 20)


def test_a_single_steep_step_is_forgotten_within_the_training() -> None:
    assert moves(steps=200, first=100.0)[150] == pytest.approx(moves(steps=200)[150], rel=0.2)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_training_starts_with_weaker_favourites_than_random_weights_have(seed: int) -> None:
    piece = spread(TEXT.ids, length=8, rows=4)
    at_random = next_token_loss(random_model(SHAPE, seed), piece)
    assert next_token_loss(trained(0, seed), piece) < 0.8 * at_random


def test_training_makes_the_loss_small() -> None:
    piece = spread(TEXT.ids, length=8, rows=4)
    before, after = (next_token_loss(trained(steps), piece).item() for steps in (0, 40))
    assert before > 1.0  # four letters, nothing known: about log 4
    assert after < 0.1  # each letter tells the next


def test_a_run_can_be_repeated_and_its_seed_decides_it() -> None:
    first, again, other = trained(), trained(), trained(seed=1)
    assert torch.equal(first.embedding, again.embedding)
    assert not torch.equal(first.embedding, other.embedding)


def test_it_leaves_threads_gradients_and_the_global_generator_alone() -> None:
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    torch.set_num_threads(2)
    try:
        model = trained(steps=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not any(weight.requires_grad for weight in model.parameters())


def test_threads_come_back_after_a_loss_that_raises() -> None:
    def broken(model: Transformer, piece: Tensor) -> Tensor:
        assert torch.get_num_threads() == 1
        raise ArithmeticError("no loss today")

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ArithmeticError, match="no loss today"):
            train(SHAPE, broken, TEXT.ids, length=8, steps=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
