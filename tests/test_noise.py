"""The contract of rounding: right ways stay within it in every dtype, and ways that are wrong do not."""

from collections.abc import Callable

import pytest
import torch
from shapes import SHAPES, model_of
from torch import Tensor

from course_lib import noise
from course_lib.caches import ContiguousCache
from course_lib.model import Transformer
from course_lib.noise import AGAIN, EPSILONS, noise_floor, one_pass, tolerance

TEXT = [token * token % 19 for token in range(40)]


@pytest.mark.parametrize("dtype", EPSILONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_right_ways_keep_the_contract(shape: str, dtype: torch.dtype) -> None:
    found = noise_floor(model_of(shape, dtype), TEXT)
    assert found[0].way == AGAIN and len(found) == len(noise.ways())
    for each in found:
        assert each.kept, f"{each}: {each.difference / torch.finfo(dtype).eps:.1f} epsilons"
    assert found[0].difference == found[0].allowed == found[0].changed == 0


def counts_wrongly(model: Transformer, text: Tensor) -> Tensor:
    """The second half stands where the first one ended, but for one token. (A shift of all would change nothing.)"""
    cache = ContiguousCache(model.config, 1, len(text), model.dtype)
    first = model(text[None, :20], cache)[0]
    cache.lengths = (19,)
    return torch.cat([first, model(text[None, 20:], cache)[0]])


def sees_the_next(model: Transformer, text: Tensor) -> Tensor:
    return torch.cat([one_pass(model, text)[1:], one_pass(model, text)[:1]])


def one_key_lost(model: Transformer, text: Tensor) -> Tensor:
    cache = ContiguousCache(model.config, 1, len(text), model.dtype)
    first = model(text[None, :20], cache)[0]
    cache.keys[0, 0, 0, 3] = 0
    return torch.cat([first, model(text[None, 20:], cache)[0]])


def rounds_its_cache(model: Transformer, text: Tensor) -> Tensor:
    cache = ContiguousCache(model.config, 1, len(text), model.dtype)
    first = model(text[None, :20], cache)[0]
    for kept in (cache.keys, cache.values):
        kept.copy_(kept.to(torch.float8_e4m3fn).to(kept.dtype))
    return torch.cat([first, model(text[None, 20:], cache)[0]])


@pytest.mark.parametrize("dtype", EPSILONS, ids=str)
@pytest.mark.parametrize("wrong", [counts_wrongly, sees_the_next, one_key_lost, rounds_its_cache])
def test_wrong_ways_break_it_in_every_dtype(
    wrong: Callable[[Transformer, Tensor], Tensor], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "ways", lambda: {"wrong": wrong})
    (found,) = noise_floor(model_of("gqa", dtype), TEXT)
    assert not found.kept, f"{found.difference:.2g} is allowed, {found.allowed:.2g}"


def test_as_many_threads_are_left_as_there_were() -> None:
    before = torch.get_num_threads()
    noise_floor(model_of("mqa"), TEXT[:4])
    with pytest.raises(KeyboardInterrupt), noise.threads(before + 2):
        assert torch.get_num_threads() == before + 2
        raise KeyboardInterrupt
    assert torch.get_num_threads() == before


def test_neighbours_are_other_texts_and_longer() -> None:
    model, read = model_of("mqa"), []
    hook = model.register_forward_pre_hook(
        lambda _, args, more: read.append((args[0], more["counts"])), with_kwargs=True
    )
    noise.beside(2)(model, torch.tensor(TEXT))
    hook.remove()
    ((rows, counts),) = read
    assert counts == [len(TEXT), len(TEXT) + 1, len(TEXT) + 1] and rows[0, : len(TEXT)].tolist() == TEXT
    assert all(row[: len(TEXT)].tolist() != TEXT for row in rows[1:])


def test_what_the_contract_does_not_speak_of_is_refused() -> None:
    with pytest.raises(ValueError, match="no tolerance for torch.float8_e4m3fn: it has some for float64, float32"):
        tolerance(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="holds token 99"):
        noise_floor(model_of("mqa"), [1, 99])
    with pytest.raises(ValueError, match="the text is empty"):
        noise_floor(model_of("mqa"), [])


def test_the_smallest_margin_is_a_share_of_the_largest_logit() -> None:
    model = model_of("gqa")
    with torch.inference_mode():
        logits = model(torch.tensor([TEXT]))[0]
    ordered = logits.sort(dim=-1).values
    expected = ((ordered[:, -1] - ordered[:, -2]).min() / logits.abs().max()).item()
    assert noise_floor(model, TEXT)[0].smallest_margin == pytest.approx(expected, rel=1e-12)
