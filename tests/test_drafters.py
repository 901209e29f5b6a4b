"""Drafters: a draft model proposes what it would say itself after the text, and reads nothing twice; what is looked up
is the latest place of the longest ending; and what cannot draft for a model says so.

The one idea: a drafter that is out of step with the text would change no answer, only the number of passes. So it is
asked directly, and what it reads is counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
import torch
from drafts import PROMPT, RIGHT, SMALL, TARGET, Scripted, gains, other_model, wrong
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import model_of, poisoned_cache

from course_lib import speculative
from course_lib.drafters import Drafter, DraftModel, PromptLookup
from course_lib.generation import GREEDY, generate, prefill
from course_lib.model import Transformer
from course_lib.speculative import rounds

# --- A draft model


def test_a_draft_model_proposes_what_it_would_say_itself_after_the_whole_text() -> None:
    """So its cache never lacks an accepted token nor keeps a refused one: neither would show in the answer."""
    draft, text = other_model(0.15), list(PROMPT[:7])
    for one in rounds(TARGET, text, drafter=DraftModel(draft), draft_tokens=3, max_new_tokens=40, warm_up=False):
        if one.drafted:
            assert one.drafted == generate(draft, text, max_new_tokens=len(one.drafted), warm_up=False).tokens
        text += one.tokens
    assert len(text) == 47


def drafted(drafter: Drafter, text: Sequence[int], count: int) -> tuple[int, ...]:
    return tuple(guess.token for guess in drafter.draft(text, count, GREEDY, torch.Generator()))


def test_a_draft_model_follows_any_text() -> None:
    """Also one that was not made of its own guesses, that was cut, or that is another one: whoever asks two drafters
    takes one's guesses and leaves the other's."""
    drafter = DraftModel(TARGET, poisoned_cache(TARGET, 1, 64))
    drafter.begin(TARGET, poisoned_cache(TARGET, 1, 1), 64)
    random = Random(0)
    text = list(PROMPT)
    for _ in range(40):
        count = random.randrange(1, 5)
        assert drafted(drafter, text, count) == generate(TARGET, text, max_new_tokens=count, warm_up=False).tokens
        drafter.cache.fill_free(torch.nan)
        text = text[: random.randrange(1, len(text) + 1)] + random.choices(
            range(SMALL.vocab_size), k=random.randrange(4)
        )


def test_nothing_is_read_twice_by_either_model() -> None:
    """Each pass is noted with the number of tokens that it reads. After a draft that stays as a whole, the draft model
    has two tokens to read: the last guess, which it did not need, and the token after it.
    """
    draft = Transformer(SMALL).double()
    draft.load_state_dict(TARGET.state_dict())
    read: dict[str, list[int]] = {"target": [], "draft": []}
    hooks = [
        model.register_forward_pre_hook(lambda _, inputs, name=name: read[name].append(inputs[0].shape[1]))
        for name, model in (("target", TARGET), ("draft", draft))
    ]
    try:
        options = {"draft_tokens": 3, "max_new_tokens": 9, "warm_up": False}
        speculative.generate(TARGET, PROMPT, drafter=DraftModel(draft), **options)
        assert read == {"target": [9, 4, 4], "draft": [10, 1, 1, 2, 1, 1]}
        read["target"].clear()
        script = [[RIGHT[1], wrong(RIGHT[2]), RIGHT[3]], [wrong(RIGHT[3])], RIGHT[4:7]]
        speculative.generate(TARGET, PROMPT, drafter=Scripted(*script), **options)
        assert read["target"] == [9, 4, 2, 4, 1]
    finally:
        for hook in hooks:
            hook.remove()


def test_a_draft_model_without_room_drafts_less_and_then_nothing() -> None:
    """A cache of its own that is too small, or fewer positions than the text has."""
    short = Transformer(replace(SMALL, max_positions=12)).double()
    short.load_state_dict(TARGET.state_dict())
    cache = poisoned_cache(TARGET, 1, 64)
    for drafter in (DraftModel(TARGET, poisoned_cache(TARGET, 1, 12)), DraftModel(short), DraftModel(short, cache)):
        got = speculative.generate(TARGET, PROMPT, drafter=drafter, draft_tokens=4, max_new_tokens=12)
        assert got.tokens == RIGHT
        # 10 tokens of text and 2 guesses are read for 3 guesses; then 14 tokens are more than 12
        assert gains(got) == [(0, 0, 1), (3, 3, 4), *[(0, 0, 1)] * 7]


def test_one_drafter_serves_one_request_after_another() -> None:
    cache = poisoned_cache(TARGET, 1, 64)
    for drafter in (DraftModel(TARGET), DraftModel(TARGET, cache), PromptLookup()):
        for prompt in (PROMPT, PROMPT[:5], [1, 1]):
            got = speculative.generate(TARGET, prompt, drafter=drafter, max_new_tokens=6)
            assert got.tokens == generate(TARGET, prompt, max_new_tokens=6).tokens
            cache.release(0)
        assert got.draft_passes == got.drafted * isinstance(drafter, DraftModel)


def test_a_draft_model_with_other_tokens_is_refused() -> None:
    with pytest.raises(
        ValueError, match="the draft model has 31 tokens, the model that checks it 23: .* same tokenizer"
    ):
        next(rounds(TARGET, PROMPT, drafter=DraftModel(model_of("gqa")), max_new_tokens=4))


def test_draft_and_target_cannot_share_a_cache_and_the_draft_s_must_be_empty() -> None:
    cache = poisoned_cache(TARGET, 1, 64)
    with pytest.raises(ValueError, match="draft and target cannot write into one cache"):
        next(rounds(TARGET, PROMPT, drafter=DraftModel(TARGET, cache), max_new_tokens=4, cache=cache))
    prefill(TARGET, [[1, 2]], cache)
    with pytest.raises(ValueError, match="row 0 of the draft's cache holds 2 tokens of another text: release it first"):
        next(rounds(TARGET, PROMPT, drafter=DraftModel(TARGET, cache), max_new_tokens=4))
    assert cache.lengths == (2,)


# --- Look-up


def looked_up(text: Sequence[int], count: int = 4, longest: int = 3, shortest: int = 2) -> list[int]:
    drafter = PromptLookup(longest, shortest)
    drafter.vocab_size = 30
    guesses = drafter.draft(text, count, GREEDY, torch.Generator())
    assert all(guess.drawn_from[guess.token] == 1 == guess.drawn_from.sum() for guess in guesses)
    return [guess.token for guess in guesses]


def test_look_up_by_hand() -> None:
    assert looked_up([1, 2, 3, 4, 5, 9, 1, 2, 3]) == [4, 5, 9, 1]
    assert looked_up([1, 2, 3, 4, 7, 2, 3, 5, 1, 2, 3]) == [4, 7, 2, 3], "three tokens that agree before two"
    assert looked_up([8, 2, 3, 4, 7, 2, 3, 5, 1, 2, 3]) == [5, 1, 2, 3], "the latest of two places"
    assert looked_up([6, 1, 2, 1, 2]) == [1, 2, 1, 2], "a copy runs on into what it has just copied"
    assert looked_up([5, 5, 5]) == [5, 5, 5, 5]
    assert looked_up([1, 2, 3, 4, 5, 3]) == [] == looked_up([1]) == looked_up([1, 1]), (
        "one token that agrees is too few"
    )
    assert looked_up([1, 2, 3, 4, 5, 3], shortest=1) == [4, 5, 3, 4]
    assert looked_up([1, 2, 3, 1, 2], count=1) == [3]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=14), st.integers(1, 3), st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_what_is_found_is_the_latest_place_of_the_longest_ending(text: list[int], shortest: int, more: int) -> None:
    """Searched in a string with str.rfind."""
    written, expected = "".join(map(str, text)), None
    for size in range(shortest, shortest + more + 1):
        at = written[:-1].rfind(written[-size:]) if size < len(text) else -1
        expected = at + size if at >= 0 else expected
    assert PromptLookup(shortest + more, shortest).found(text) == expected


@pytest.mark.parametrize("sizes", [(0, 0), (3, 0), (2, 3)])
def test_a_look_up_that_finds_nothing_by_its_own_rule_is_refused(sizes: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=f"a look-up of {sizes[0]} down to {sizes[1]} tokens finds nothing"):
        PromptLookup(*sizes)
