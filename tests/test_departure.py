"""Rounding is never called a bug, and each bug of the museum is found where it was planted."""

from collections.abc import Iterator
from copy import deepcopy
from itertools import count, islice
from random import Random
from typing import Any

import pytest
import torch
from shapes import DTYPES, SHAPES, model_of, random_weights
from test_museum import FIRST, NOT_IN_LOGITS, SIGNS, every_exhibit, part_of
from torch import Tensor

from course_lib.caches import ContiguousCache, PagedCache
from course_lib.departure import Departure, Run, departure, run_alone, run_of, run_without_cache, runs_of
from course_lib.divergence import record
from course_lib.model import ModelConfig, Transformer
from course_lib.museum.day import as_it_likes, museum_day, serve
from course_lib.museum.exhibit import Exhibit
from course_lib.museum.guide import guide
from course_lib.serving import Engine, Request

SIXTEEN = (torch.float16, torch.bfloat16)
NEW = 7  # tokens of each run: with 20 of a prompt the engine's memory is short


def prompts(shape: str, seed: int = 0) -> Iterator[tuple[int, ...]]:
    random = Random(seed)
    for _ in count():
        yield tuple(random.randrange(SHAPES[shape].vocab_size) for _ in range(random.randint(1, 20)))


def pairs(shape: str, dtype: torch.dtype) -> Iterator[tuple[Run, Run]]:
    """Right runs of one prompt: with and without a cache, and together with others."""
    model = model_of(shape, dtype)
    asked = [Request(prompt, NEW, name=str(number)) for number, prompt in enumerate(islice(prompts(shape), 5))]
    engine = Engine(model, PagedCache(model.config, 3, 12, 4, dtype=dtype), chunk=6, keep_logits=True)
    together = runs_of(engine, asked)
    for request in asked:
        alone = run_alone(model, request.prompt, NEW)
        yield alone, run_without_cache(model, request.prompt, NEW)
        yield together[request.name], alone


@pytest.mark.parametrize("dtype", [*DTYPES, *SIXTEEN], ids=str)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_only_rounding_makes_is_never_called_a_bug(shape: str, dtype: torch.dtype) -> None:
    kinds = [departure(*pair).kind for pair in pairs(shape, dtype)]
    assert len(kinds) == 10 and set(kinds) <= {"same", "near-tie"}, kinds
    assert "near-tie" not in kinds or dtype in SIXTEEN


def test_near_ties_in_16_bits_are_seen_and_explained() -> None:
    """Two words are nearly as likely, so right runs part, and none of these 30 pairs is called a bug."""
    found: list[Departure] = []
    random = Random(1)
    for dtype in SIXTEEN:
        model = many_words().to(dtype)
        for _ in range(15):
            prompt = [random.randrange(600) for _ in range(random.randint(1, 20))]
            found.append(departure(run_alone(model, prompt, 8), run_without_cache(in_another_order(model), prompt, 8)))
    ties = [each for each in found if each.kind == "near-tie"]
    assert len(ties) >= 3 and {each.kind for each in found} == {"same", "near-tie"}
    for each in ties:
        assert each.token is not None and each.margin <= 2 * each.noise
        assert str(each).startswith(f"Rounding decided: at new token {each.token}, ")


def many_words() -> Transformer:
    """A model of pairs of words that mean nearly the same."""
    model = random_weights(Transformer(ModelConfig(600, 3, 64, 4, 2, 16, 64, max_positions=64, tied_head=False)))
    assert model.head is not None
    model.head[1::2] = model.head[::2] * (1 + 0.006 * model.head[1::2])
    return model


def in_another_order(model: Transformer) -> Transformer:
    """The same model; what its MLPs add up, they add up from the other end."""
    turned = deepcopy(model)
    layer: Any
    for layer in turned.layers:
        gate, up = layer.gate_up.chunk(2)
        layer.gate_up.copy_(torch.cat([gate.flip(0), up.flip(0)]))
        layer.down.copy_(layer.down.flip(1).clone())
    return turned


def day_of(exhibit: Exhibit, *, broken: bool, free: bool = False) -> dict[str, Run]:
    """What the broken or the right engine makes of a day: of given answers, or of its own."""
    engine = (exhibit.engine if broken else exhibit.right)(guide().model)
    with record(engine.model) as recorder:
        engine.observers.append(recorder.observe)
        served = serve(engine, as_it_likes(museum_day()) if free else museum_day())
    return {name: run_of(each, recorder.traces[name]) for name, each in served.items()}


def found_in(exhibit: Exhibit, free: bool = False) -> dict[str, Departure]:
    broken, right = (day_of(exhibit, broken=wrong, free=free) for wrong in (True, False))
    return {name: departure(broken[name], right[name]) for name in right}


@every_exhibit
def test_each_exhibit_is_found_where_it_was_planted(exhibit: Exhibit) -> None:
    signs, found = SIGNS[exhibit.name], found_in(exhibit)
    bugs = [each for each in found.values() if each.kind == "bug"]
    assert {each.kind for each in found.values()} <= {"bug", "same"}
    assert bool(bugs) == (exhibit.name not in NOT_IN_LOGITS)
    places = [each.place for each in bugs if each.place is not None]
    assert {part_of(place) for place in places} == ({signs.part} if signs.part else set())
    assert not places or min(place.layer for place in places) == 0
    requests = {visit.name: visit.request for visit in museum_day()}
    if signs.tokens and signs.tokens != "after what was reused":
        assert any(FIRST[signs.tokens](place.token, requests[place.name], 0) for place in places)
    for each in bugs:
        assert each.sentence.startswith("Not rounding: ")
        assert each.place is not None or "no layer differs" in each.sentence or "one run ends there" in each.sentence


def test_words_that_are_drawn_wrongly_from_right_logits_are_a_bug_of_choosing() -> None:
    exhibit = next(each for each in every_exhibit.args[1] if each.name == "dice")
    bugs = [each for each in found_in(exhibit, free=True).values() if each.kind == "bug"]
    assert bugs and all("Look at how tokens are chosen" in each.sentence for each in bugs)


class LosesKeys(ContiguousCache):
    """Row 0 forgets the keys of its first five tokens in layer 1 once seven tokens were read."""

    @property
    def lengths(self) -> tuple[int, ...]:
        return self._lengths

    @lengths.setter
    def lengths(self, lengths: tuple[int, ...]) -> None:
        self._lengths = lengths
        if lengths[0] == 7:
            self.keys[1, 0, :, :5] = 0


@pytest.mark.parametrize("dtype", [*DTYPES, *SIXTEEN], ids=str)
def test_keys_that_are_lost_are_found_in_its_layer_in_every_dtype(dtype: torch.dtype) -> None:
    model, prompt = model_of("gqa", dtype), next(prompts("gqa", 3))[:5]
    broken = run_alone(model, prompt, 9, "broken", cache=LosesKeys(model.config, 1, 20, dtype))
    found = departure(broken, run_alone(model, prompt, 9))
    assert found.kind == "bug" and found.place is not None
    assert (found.place.token, found.place.layer, found.place.part) == (7, 1, "output")
    beyond_layer_0 = "It may begin before that, as what passes for rounding: look in float32."
    assert found.sentence.endswith(beyond_layer_0 if dtype in SIXTEEN else "or what lies in the cache.")
    assert "first difference at token 7 of broken, layer 1, output (" in found.sentence


def changed(run: Run, **fields: Any) -> Run:
    return Run(**{**vars(run), **fields})


def test_logits_that_are_those_of_another_are_a_bug_though_no_layer_differs() -> None:
    right = run_alone(model_of("mqa"), next(prompts("mqa")), 6)
    rolled: Tensor = right.logits.roll(1, 0)
    found = departure(changed(right, logits=rolled), right)
    assert found.kind == "bug" and found.token == 0 and "though no layer differs" in found.sentence
    broken = right.logits.clone()
    broken[4, 0] = torch.nan
    found = departure(changed(right, logits=broken), right)
    assert found.kind == "bug" and found.token == 4


def test_another_choice_from_equal_logits_is_a_bug_even_if_it_was_a_likely_one() -> None:
    right = run_alone(model_of("mqa"), next(prompts("mqa")), 1)
    other = (int(right.logits[0].topk(2).indices[1]),)
    found = departure(changed(right, tokens=other), right)
    assert found.kind == "bug" and "Look at how tokens are chosen" in found.sentence
    near = right.logits.clone()
    near[0, other[0]] = near[0].max() - 1e-13  # nearer than rounding moves them, if they do not differ at all
    found = departure(changed(right, tokens=other, logits=near), changed(right, logits=near))
    assert found.kind == "bug" and found.noise == 0


@pytest.mark.parametrize(("noises", "kind"), [(1.5, "near-tie"), (3, "bug")])
def test_what_rounding_moves_a_little_does_not_excuse_a_choice_far_from_the_best(noises: float, kind: str) -> None:
    right = run_alone(model_of("mqa", torch.float32), next(prompts("mqa")), 1)
    best, other, third = right.logits[0].topk(3).indices.tolist()
    noise = 2.0**-18  # of logits of a few units: float32 holds such steps exactly, and the contract allows them
    logits = right.logits.clone()
    logits[0, best] = 4.0
    logits[0, other], logits[0, third] = 4 - noises * noise, 3.0
    moved = logits.clone()
    moved[0, third] += noise
    found = departure(changed(right, tokens=(other,), logits=moved), changed(right, tokens=(best,), logits=logits))
    assert (found.kind, found.margin, found.noise) == (kind, noises * noise, noise)


def test_a_run_needs_tokens_to_make_and_an_empty_row_to_make_them_in() -> None:
    model = model_of("mqa")
    cache = ContiguousCache(model.config, 1, 9, torch.float64)
    run_alone(model, (1, 2), 2, cache=cache)
    with pytest.raises(ValueError, match="row 0 of the cache holds 3 tokens of another text: release it first"):
        run_alone(model, (1, 2), 2, cache=cache)
    for run in (run_alone, run_without_cache):
        with pytest.raises(ValueError, match="max_new_tokens must be at least 1, not 0"):
            run(model, (1, 2), 0)


def test_runs_that_cannot_be_compared_are_refused() -> None:
    one = run_alone(model_of("mqa"), (1, 2), 2)
    with pytest.raises(ValueError, match="answers to different prompts"):
        departure(one, run_alone(model_of("mqa"), (1, 3), 2))
    with pytest.raises(ValueError, match=r"torch.float64.* torch.float32"):
        departure(one, run_alone(model_of("mqa", torch.float32), (1, 2), 2))
    model = model_of("mqa")
    with pytest.raises(ValueError, match="keep_logits=True"):
        runs_of(Engine(model, ContiguousCache(model.config, 1, 9, torch.float64)), [Request((1,), 1)])
