"""Speculative decoding: whatever is drafted, greedy tokens are those of plain decoding, sampled ones have its
distribution, and the caches hold the text and nothing else.

The one idea: a draft may change how many passes are made, and nothing else. So the drafts here are perfect, poor,
always wrong, scripted by hand or hostile, and the answer is always the one that the model gives alone. The oracle of
the acceptance rule is a sum over all that can happen, in NumPy.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice, product
from types import FrameType
from typing import Any

import pytest
import torch
from drafts import PROMPT, RIGHT, SMALL, TARGET, AlwaysWrong, Dice, Scripted, gains, other_model, wrong
from shapes import poisoned_cache, text_of

from course_lib import speculative
from course_lib.caches import (
    Cache,
    CacheFull,
    ContiguousCache,
    Floats,
    ForgettingCache,
    Integers,
    MostSeen,
    PagedCache,
    RoundedCache,
    Window,
)
from course_lib.checkpoints import Checkpoint
from course_lib.drafters import Drafter, DraftModel, Guess, PromptLookup, certain
from course_lib.generation import GREEDY, Sampling, decode, generate, prefill
from course_lib.model import Transformer
from course_lib.quizzes.bank import Number, load_bank
from course_lib.speculative import expected_tokens, rounds, speed_up, stream

# --- Greedy

NEW = 10
DRAFTS: dict[str, Callable[[Sequence[int]], Drafter]] = {
    "perfect": lambda text: DraftModel(TARGET),
    "poor": lambda text: DraftModel(other_model(0.15)),
    "random": lambda text: Dice(),
    "always wrong": AlwaysWrong,
    "looked up": lambda text: PromptLookup(2, 1),
}


@lru_cache(maxsize=256)
def alone(prompt: tuple[int, ...]) -> tuple[int, ...]:
    return generate(TARGET, prompt, max_new_tokens=NEW, warm_up=False).tokens


@pytest.mark.parametrize("kind", DRAFTS)
def test_200_prompts_get_the_tokens_of_plain_greedy_decoding(kind: str) -> None:
    """Each prompt with one K from 1 to 8, so each K has 25 prompts of 1 to 25 tokens, half of them
    of five tokens, so that they repeat themselves.
    """
    accepted, judged = 0, 0
    for number in range(200):
        prompt = text_of("gqa", 1 + number % 25, seed=number)
        prompt = [token % (SMALL.vocab_size if number % 2 else 5) for token in prompt]
        K = 1 + number // 25
        expected = alone(tuple(prompt))
        drafter = DRAFTS[kind]([*prompt, *expected])
        got = speculative.generate(TARGET, prompt, drafter=drafter, draft_tokens=K, max_new_tokens=NEW, warm_up=False)
        assert got.tokens == expected, f"prompt {number}, K = {K}"
        assert got.prompt == tuple(prompt) and not got.stopped and len(got.timing.token_times_s) == NEW
        assert sum(len(one.tokens) for one in got.rounds) == NEW
        accepted, judged = accepted + got.accepted, judged + got.judged
        if kind == "perfect":
            assert got.acceptance == 1 and got.target_passes == 1 + -(-(NEW - 1) // (K + 1)), f"K = {K}"
        if kind == "always wrong":
            assert got.accepted == 0 and got.target_passes == NEW and got.tokens_per_pass == 1
        if isinstance(drafter, DraftModel):
            assert got.draft_passes == got.drafted == drafter.passes, (
                "a guess costs one pass, and nothing is read twice"
            )
    rate = accepted / judged
    print(f"{kind}: {accepted} of {judged} guesses accepted")
    if kind in ("poor", "looked up"):
        assert 0.1 < rate < 0.9, "some are accepted and some refused, or this says little"


def test_the_draft_costs_no_room_beyond_the_text() -> None:
    """Exactly as many slots and positions as without a draft, in both caches."""
    slots = len(PROMPT) + NEW - 1
    limited = Transformer(replace(SMALL, max_positions=slots)).double()
    limited.load_state_dict(TARGET.state_dict())
    expected = generate(limited, PROMPT, max_new_tokens=NEW).tokens
    cache, drafts = poisoned_cache(limited, 1, slots), poisoned_cache(limited, 1, slots - 1)
    drafter = DraftModel(limited, drafts)
    got = speculative.generate(limited, PROMPT, drafter=drafter, draft_tokens=8, max_new_tokens=NEW, cache=cache)
    assert got.tokens == expected and got.acceptance == 1 and got.target_passes == 2
    assert cache.lengths == (slots,), "as plain decoding leaves it: all but the last token"
    with pytest.raises(ValueError, match="9 prompt tokens and 11 new ones need 19 positions, the model knows 18"):
        next(rounds(limited, PROMPT, drafter=drafter, max_new_tokens=NEW + 1))


# --- Cases by hand: what plain decoding gives is known, and drafts are written against it


def run(*drafts: Sequence[int], **options: Any) -> speculative.SpeculativeGeneration:
    options = {"max_new_tokens": 12, "draft_tokens": 4, **options}
    return speculative.generate(TARGET, PROMPT, drafter=Scripted(*drafts), **options)


def test_rounds_by_hand() -> None:
    """A draft that is right as a whole brings one token more; nothing after the first refused guess counts, though it
    may be what comes there; the first guess is judged as all others; and a draft may be shorter than asked for.
    """
    got = run(
        RIGHT[1:5],  # and RIGHT[5]
        [wrong(RIGHT[6]), *RIGHT[7:10]],
        [RIGHT[7], wrong(RIGHT[8]), RIGHT[9]],
        [],
        [RIGHT[10]],
    )
    assert got.tokens == RIGHT
    assert gains(got) == [(0, 0, 1), (4, 4, 5), (4, 0, 1), (3, 1, 2), (0, 0, 1), (1, 1, 2)]
    assert (got.drafted, got.judged, got.accepted, got.target_passes, got.draft_passes) == (12, 8, 6, 6, 0)
    assert got.acceptance == 6 / 8 and got.tokens_per_pass == 11 / 5


def test_a_budget_may_end_inside_a_draft() -> None:
    """Never more is drafted than could be handed out, the pass's own token included."""
    for budget in range(1, 8):
        drafter = Scripted(RIGHT[1 : min(5, budget - 1)], *[[]] * 9)
        got = speculative.generate(TARGET, PROMPT, drafter=drafter, draft_tokens=4, max_new_tokens=budget)
        assert got.tokens == RIGHT[:budget]
        assert all(count <= 4 for count in drafter.asked) and drafter.asked[:1] == [min(4, budget - 2)] * (budget > 2)
    assert run(max_new_tokens=1).tokens_per_pass is None and run(max_new_tokens=1).acceptance is None


@pytest.mark.parametrize("at", range(6))
def test_nothing_comes_after_a_stop_token_wherever_it_stands(at: int) -> None:
    """The first token, in a draft, after a draft, or in place of a guess."""
    assert RIGHT.index(RIGHT[at]) == at, "a token that has not come before"
    for draft in (RIGHT[1:5], [RIGHT[1], wrong(RIGHT[2])], []):
        cache = poisoned_cache(TARGET, 1, 64)
        got = run(draft, stop_tokens=[RIGHT[at]], cache=cache)
        assert got.tokens == RIGHT[: at + 1] and got.stopped
        assert cache.lengths == (len(PROMPT) + at,), "all but the last token have been read, and no other"
        assert got.accepted <= at, "what stands after it is not counted"


def test_a_stop_token_that_is_refused_ends_nothing() -> None:
    stop = wrong(RIGHT[2])
    assert stop not in RIGHT
    got = run([RIGHT[1], stop, RIGHT[3]], stop_tokens=[stop])
    assert got.tokens == RIGHT and not got.stopped
    assert gains(got)[1] == (2, 1, 2), "what is guessed after it is not read"


def test_the_stream_names_what_each_token_is_and_gives_those_of_a_round_one_time() -> None:
    drafter = Scripted(RIGHT[1:3], [], [RIGHT[5], wrong(RIGHT[6])])
    events = list(stream(TARGET, PROMPT, drafter=drafter, draft_tokens=2, max_new_tokens=8))
    assert tuple(event.token for event in events) == RIGHT[:8]
    phases = ["prefill", "accepted", "accepted", "bonus", "decode", "accepted", "corrected", "decode"]
    assert [event.phase for event in events] == phases
    times = [event.time_s for event in events]
    assert times == sorted(times) and len(set(times)) == 5 and times[1] == times[2] == times[3] and times[5] == times[6]


def test_a_stream_that_is_left_early_leaves_a_cache_that_can_be_used() -> None:
    for handed_out in range(1, 9):
        cache = poisoned_cache(TARGET, 2, 64)
        events = stream(TARGET, PROMPT, drafter=DraftModel(TARGET), max_new_tokens=12, cache=cache)
        tokens = tuple(event.token for event in islice(events, handed_out))
        events.close()
        assert cache.lengths == (len(PROMPT) + handed_out - 1, 0) and tokens == RIGHT[:handed_out]
        cache.fill_free(torch.nan)
        assert int(decode(TARGET, tokens[-1:], cache, rows=[0])[0].argmax()) == RIGHT[handed_out]


def test_a_stream_that_is_refused_leaves_the_other_text_alone() -> None:
    cache = poisoned_cache(TARGET, 1, 64)
    prefill(TARGET, [[1] * 20], cache)
    with pytest.raises(ValueError, match="row 0 of the cache holds 20 tokens of another text: release it first"):
        next(stream(TARGET, PROMPT, drafter=PromptLookup(), max_new_tokens=4, cache=cache))
    assert cache.lengths == (20,)


# --- Caches

PLAIN: dict[str, Callable[[Transformer], Cache]] = {
    "contiguous": lambda model: ContiguousCache(model.config, 2, 64, model.dtype),
    "paged": lambda model: PagedCache(model.config, 2, 16, 4, dtype=model.dtype),
    "rounded as it comes": lambda model: RoundedCache(
        model.config, 2, 64, Floats(torch.float16), Floats(torch.float16), 0, model.dtype
    ),
}


@pytest.mark.parametrize("kind", PLAIN)
def test_every_cache_that_goes_back_gives_its_plain_tokens_and_is_never_read_where_it_was_cut(kind: str) -> None:
    cache, alone = PLAIN[kind](TARGET), PLAIN[kind](TARGET)
    expected = generate(TARGET, PROMPT, max_new_tokens=24, cache=alone).tokens
    draft = other_model(0.15)
    drafts = PLAIN[kind](draft)
    text, refused = list(PROMPT), 0
    cache.fill_free(torch.nan)
    for one in rounds(TARGET, text, drafter=DraftModel(draft, drafts), draft_tokens=3, max_new_tokens=24, cache=cache):
        text += one.tokens
        refused += one.refused
        assert cache.lengths == (len(text) - 1, 0)
        cache.fill_free(torch.nan)
        drafts.fill_free(torch.nan)
    assert tuple(text[len(PROMPT) :]) == expected and refused > 2
    cache.release(0), drafts.release(0)
    assert cache.used_bytes == drafts.used_bytes == 0


@pytest.mark.parametrize(
    "cache",
    [
        ForgettingCache(SMALL, 1, Window(8), torch.float64),
        ForgettingCache(SMALL, 1, MostSeen(8, 4), torch.float64),
        RoundedCache(SMALL, 1, 64, Floats(torch.float16), Floats(torch.float16), 4, torch.float64),
        RoundedCache(SMALL, 1, 64, Integers(8, 4, per_channel=True), Floats(torch.float16), 0, torch.float64),
    ],
    ids=["window", "most seen", "newest as they came", "four tokens at once"],
)
def test_a_cache_that_cannot_go_back_is_refused_before_anything_is_read(cache: Cache) -> None:
    said = f"cache is a {type(cache).__name__}, which cannot take back"
    with pytest.raises(ValueError, match=said):
        next(rounds(TARGET, PROMPT, drafter=PromptLookup(), max_new_tokens=4, cache=cache))
    with pytest.raises(ValueError, match=f"the draft's {said}"):
        DraftModel(TARGET, cache)
    assert cache.lengths == (0,)


def test_a_cache_that_fills_up_ends_the_text_where_plain_decoding_ends() -> None:
    for room in range(len(PROMPT), len(PROMPT) + 6):
        cache, tokens = poisoned_cache(TARGET, 1, room), []
        with pytest.raises(CacheFull, match="row 0 needs 1 more slot, 0 are free"):
            for one in rounds(TARGET, PROMPT, drafter=DraftModel(TARGET), max_new_tokens=12, cache=cache):
                tokens += one.tokens
        assert tuple(tokens) == RIGHT[: room - len(PROMPT) + 1] and cache.lengths == (room,)
        cache.release(0)
        assert cache.used_bytes == 0
    with pytest.raises(CacheFull, match="row 0 needs 9 more slots, 8 are free"):
        next(rounds(TARGET, PROMPT, drafter=PromptLookup(), max_new_tokens=2, cache=poisoned_cache(TARGET, 1, 8)))


# --- What is refused


@pytest.mark.parametrize(
    "options, said",
    [
        ({"draft_tokens": 0}, "draft_tokens must be at least 1, not 0: generation.generate needs no draft"),
        ({"draft_tokens": 1.5}, "draft_tokens must be a whole number, not 1.5"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, not 0"),
        ({"prompt": [3, 23]}, "the prompt holds token 23, the model has 0 to 22"),
        ({"prompt": "hello"}, "must be token ids, not the text 'hello'"),
        ({"prompt": []}, "the prompt is empty"),
        ({"seed": -1}, "the seed must be a whole number from 0"),
        ({"stop_tokens": 5}, "stop_tokens must be a collection of token ids, not 5"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_before_any_token(options: dict, said: str) -> None:
    request = {"prompt": PROMPT, "max_new_tokens": 4, "drafter": PromptLookup(), **options}
    with pytest.raises(ValueError, match=said):
        next(stream(TARGET, request.pop("prompt"), **request))


class Says(Drafter):
    def __init__(self, *guesses: Guess) -> None:
        self.guesses = list(guesses)

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        return self.guesses


@pytest.mark.parametrize(
    "guesses, said",
    [
        ([Guess(1, certain(1, 23))] * 3, "the drafter proposed 3 tokens and was asked for at most 2"),
        ([Guess(23, certain(1, 23))], "the draft holds token 23, the model has 0 to 22"),
        ([Guess(-1, certain(1, 23))], "the draft holds token -1"),
        ([Guess(1, certain(1, 22))], "token 1 was not drawn .* each of the model's 23 tokens"),
        ([Guess(2, certain(1, 23))], "token 2 was not drawn .* not 0 for this one"),
        ([Guess(2, torch.full((23,), torch.nan))], "token 2 was not drawn"),
    ],
)
def test_a_drafter_that_proposes_nonsense_is_told_so(guesses: list[Guess], said: str) -> None:
    cache = poisoned_cache(TARGET, 1, 64)
    with pytest.raises(ValueError, match=said):
        list(rounds(TARGET, PROMPT, drafter=Says(*guesses), draft_tokens=2, max_new_tokens=9, cache=cache))
    assert cache.lengths == (len(PROMPT),)


def test_logits_that_are_not_numbers_are_noticed_while_a_draft_is_judged() -> None:
    for sampling in (GREEDY, Sampling(1.0)):
        cache = poisoned_cache(TARGET, 1, 64)
        made = rounds(TARGET, PROMPT, drafter=Scripted(RIGHT[1:4]), max_new_tokens=9, cache=cache, sampling=sampling)
        next(made)
        cache.values[0, 0, 0, 3] = torch.nan
        with pytest.raises(ValueError, match="something that was read was never written"):
            next(made)


# --- Ctrl-C


def test_after_ctrl_c_at_any_line_both_caches_can_be_released_and_used_again() -> None:
    """A tracer raises at each line of both files in turn, from before the first pass to after the last."""
    draft, files = other_model(0.15), (speculative.__file__, DraftModel.draft.__code__.co_filename)
    cache, drafts = poisoned_cache(TARGET, 1, 32), poisoned_cache(draft, 1, 32)
    done, at = False, 0
    while not done:
        left, text = at, list(PROMPT)

        def tracer(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            left -= event == "line"
            if left < 0 and event == "line":
                sys.settrace(None)
                raise KeyboardInterrupt
            return tracer

        drafter = DraftModel(draft, drafts)
        sys.settrace(tracer)
        try:
            for one in rounds(
                TARGET, text, drafter=drafter, draft_tokens=2, max_new_tokens=4, cache=cache, warm_up=False
            ):
                text += one.tokens
            done = True
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(None)
        assert cache.lengths[0] <= len(text) + 4 and tuple(text[len(PROMPT) :]) == RIGHT[: len(text) - len(PROMPT)]
        cache.release(0), drafts.release(0)
        cache.fill_free(torch.nan), drafts.fill_free(torch.nan)
        at += 1
    assert at > 100, "there were so many lines to interrupt"
    again = speculative.generate(TARGET, PROMPT, drafter=DraftModel(draft, drafts), max_new_tokens=12, cache=cache)
    assert again.tokens == RIGHT


def test_ctrl_c_in_a_pass_leaves_the_text_so_far_in_the_cache() -> None:
    """In the last layer of a pass over a draft; the same text can be gone on with."""
    cache = poisoned_cache(TARGET, 1, 64)
    made = rounds(TARGET, PROMPT, drafter=Scripted(RIGHT[1:4], RIGHT[5:8]), max_new_tokens=12, cache=cache)
    text = [*PROMPT, *next(made).tokens, *next(made).tokens]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    hook = TARGET.layers[-1].register_forward_hook(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            next(made)
    finally:
        hook.remove()
    assert cache.lengths == (len(text) - 1,)
    assert int(decode(TARGET, text[-1:], cache)[0].argmax()) == RIGHT[len(text) - len(PROMPT)]


# --- Figures


def test_expected_tokens_are_those_of_a_coin_thrown_for_each_guess() -> None:
    """By hand, and the closed form of Leviathan et al. 2023, (1 - a^(K + 1)) / (1 - a)."""
    assert expected_tokens(0.5, 1) == 1.5 and expected_tokens(0.5, 3) == 1.875
    assert expected_tokens(0, 8) == 1 and expected_tokens(1, 8) == 9
    for a, K in product((0.1, 0.55, 0.9), (1, 4, 8)):
        assert expected_tokens(a, K) == pytest.approx((1 - a ** (K + 1)) / (1 - a), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: expected_tokens(1.5, 4), "a share from 0 to 1, not 1.5"),
        (lambda: expected_tokens(float("nan"), 4), "the acceptance must be a number of at least 0, not nan"),
        (lambda: expected_tokens(0.5, -1), "draft_tokens must be at least 0, not -1"),
        (lambda: expected_tokens(0.5, 1.5), "draft_tokens must be a whole number, not 1.5"),
        (lambda: speed_up(0.5, 2, -1), "draft_cost must be a number of at least 0, not -1"),
        (lambda: speed_up(0.5, 2, 0, "1"), "token_cost must be a number of at least 0, not '1'"),
        (lambda: next(rounds(TARGET, PROMPT, drafter=None, max_new_tokens=4)), "must be a Drafter"),
        (lambda: run(RIGHT, sampling=0.7), "sampling must be a Sampling"),
        (lambda: run(RIGHT, cache=[]), "the cache must be a cache"),
        (lambda: DraftModel(TARGET, "mine"), "the draft's cache must be a cache"),
    ],
)
def test_what_is_no_number_no_drafter_or_no_cache_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_what_a_draft_gains_by_hand() -> None:
    """1.5 tokens for one pass; a draft as dear as the model gains nothing; one that is never right only costs."""
    assert speed_up(0.5, 1, 0) == 1.5 and speed_up(1, 4, 1) == 1
    assert speed_up(0, 4, 0.1, 0.05) == pytest.approx(1 / 1.6) and speed_up(1, 3, 0, 1) == 1


def test_the_numbers_in_the_questions_of_notebook_12() -> None:
    """Worked out by the library; each trap is the mistake that it names."""
    numbers = {q.id: q for q in load_bank("12_speculative_decoding").questions if isinstance(q, Number)}
    K, one = numbers["tokens_of_a_round"], run([*RIGHT[1:4], *map(wrong, RIGHT[4:7])], draft_tokens=6).rounds[1]
    assert (len(one.drafted), one.accepted, len(one.tokens)) == (6, 3, K.answer)
    assert {trap.value for trap in K.traps} == {one.accepted, len(one.drafted), len(one.drafted) + 1}
    gain, cost = numbers["gain_of_two_guesses"], 1 + 2 * 0.1
    assert gain.answer == pytest.approx(speed_up(0.5, 2, 0.1), abs=1e-4)
    mistakes = [expected_tokens(0.5, 2), (1 + 2 * 0.5) / cost, expected_tokens(0.5, 2) / 1.1]
    assert [trap.value for trap in gain.traps] == pytest.approx(mistakes, abs=1e-4)


# --- A real model


def test_smollm2_looks_up_and_says_what_it_says_without(smollm2: Checkpoint) -> None:
    """In float32 a pass over several tokens adds in another order than passes over one. Two tokens whose logits lie
    within ten times the tolerance of each other (1e-3) may change places; from there on the texts are two texts.
    """
    lines = "\n".join(f"{day}: {what}" for day, what in zip(("Monday", "Tuesday", "Friday"), ("soup", "rice", "fish")))
    prompt = smollm2.tokenizer.encode(f"The menu of this week\n{lines}\n\nThe menu of this week, once more\n")
    got = speculative.generate(smollm2.model, prompt, drafter=PromptLookup(), max_new_tokens=24)
    expected = generate(smollm2.model, prompt, max_new_tokens=24).tokens
    differs = next((at for at, pair in enumerate(zip(got.tokens, expected)) if pair[0] != pair[1]), None)
    if differs is not None:
        best = prefill(smollm2.model, [[*prompt, *expected[:differs]]], None)[0].topk(2)
        assert set(best.indices.tolist()) == {got.tokens[differs], expected[differs]}
        assert best.values[0] - best.values[1] < 1e-3, f"token {differs} differs, and it is no near tie"
    assert got.accepted > 8 and got.target_passes < 24
