"""The needle: where it lies in a prompt, how an answer is judged, and what SmolLM2 finds through which cache."""

import pytest
import torch

from course_lib.caches import Cache, ContiguousCache
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import Window
from course_lib.checkpoints import Checkpoint, random_model
from course_lib.generation import generate
from course_lib.model import ModelConfig
from course_lib.quality.measures import nll
from course_lib.quality.needle import NAMES, WORDS, Fact, Found, Haystack, haystack, says, search


@pytest.mark.parametrize("length", [100, 257, 1000])
@pytest.mark.parametrize("depth", [0, 0.3, 1])
def test_a_prompt_is_as_long_as_asked_and_its_needle_is_where_it_says(
    smollm2: Checkpoint, length: int, depth: float
) -> None:
    tokenizer = smollm2.tokenizer
    hay = haystack(tokenizer, length, depth, seed=3)
    assert length - 25 <= len(hay.tokens) <= length  # the longest sentence has fewer than 25 tokens
    assert tokenizer.decode([hay.tokens[i] for i in hay.needle]).strip() == hay.fact.sentence
    text = tokenizer.decode(hay.tokens, special=True)
    assert text.count(hay.fact.word) == 1 and text.count(hay.fact.name) == 2
    assert text.endswith(f"{hay.fact.question}<|im_end|>\n<|im_start|>assistant\n")
    before = text.split("Read this text.\n\n")[1].index(hay.fact.sentence)
    told = text.split("\n\n")[1]
    assert before / (len(told) - len(hay.fact.sentence)) == pytest.approx(depth, abs=0.25 if length == 100 else 0.1)


def test_no_sentence_of_the_filler_comes_twice_nor_tells_a_word(smollm2: Checkpoint) -> None:
    text = smollm2.tokenizer.decode(haystack(smollm2.tokenizer, 3000, 0.5).tokens)
    sentences = text.split("\n\n")[1].removesuffix(".").split(". ")
    assert len(sentences) > 150 and len(set(sentences)) == len(sentences)
    assert sum(word in text for word in WORDS) == 1


def test_each_secret_word_and_each_name_is_one_token_so_that_none_is_easier(smollm2: Checkpoint) -> None:
    assert all(len(smollm2.tokenizer.encode(f" {word}")) == 1 for word in WORDS)
    assert len(set(WORDS)) == len(WORDS) and len(set(NAMES)) == len(NAMES)


def test_the_seed_decides_the_prompt_and_the_depth_moves_only_the_fact(smollm2: Checkpoint) -> None:
    tokenizer = smollm2.tokenizer
    first = haystack(tokenizer, 200, 0, seed=1)
    assert haystack(tokenizer, 200, 0, seed=1) == first != haystack(tokenizer, 200, 0, seed=2)
    last = haystack(tokenizer, 200, 1, seed=1)
    assert last.fact == first.fact and last.needle.start > first.needle.start
    assert len(last.tokens) == len(first.tokens)
    without = [tokenizer.decode(hay.tokens).replace(f" {hay.fact.sentence}", "") for hay in (last,)]
    assert without == [tokenizer.decode(first.tokens).replace(f"{first.fact.sentence} ", "")]


def test_distractors_are_other_peoples_words_and_all_in_the_text(smollm2: Checkpoint) -> None:
    hay = haystack(smollm2.tokenizer, 400, 0.5, seed=5, distractors=6)
    text = smollm2.tokenizer.decode(hay.tokens)
    assert len({hay.fact, *hay.distractors}) == len({fact.word for fact in (hay.fact, *hay.distractors)}) == 7
    assert all(text.count(fact.sentence) == 1 for fact in (hay.fact, *hay.distractors))
    before, after = (part.count(".") - part.count("secret") for part in text.split("\n\n")[1].split(hay.fact.sentence))
    assert abs(before - (before + after) / 2) < 1  # the depth counts the filler's sentences
    assert [fact.question for fact in (hay.fact, *hay.distractors) if fact.question in text] == [hay.fact.question]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ((20, 0.5), "a text of 20 tokens: it can have from"),
        ((10**6, 0.5), "a text of 1000000 tokens: it can have from"),
        ((200, 1.1), r"a depth is 0 .* not 1.1"),
        ((200, float("nan")), "not nan"),
        ((200, 0.5, 0, 12), "0 to 11 distractors, not 12"),
        ((200, 0.5, 0, -1), "distractors, not -1"),
    ],
)
def test_prompts_that_cannot_be_are_refused_in_words(smollm2: Checkpoint, call: tuple[int, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        haystack(smollm2.tokenizer, *call)


SAYINGS = {
    "The secret word of Anna is pepper.": True,
    'It is "PEPPER".': True,
    "pepper": True,
    "peppermint": False,
    "salt, pep per": False,
    "": False,
}


@pytest.mark.parametrize(("answer", "told"), SAYINGS.items())
def test_an_answer_tells_a_word_if_that_is_one_of_its_words(answer: str, told: bool) -> None:
    assert says(answer, "pepper") == told
    assert says(answer, "Pepper!") == told


def test_several_words_must_come_one_after_the_other() -> None:
    assert says("It was the blue-green door, I think.", "blue green")
    assert not says("It was green, not blue.", "blue green")


def test_an_answer_that_names_the_distractors_as_well_is_no_hit() -> None:
    hay = Haystack((), range(0), Fact("Anna", "tiger"), 0.5, (Fact("Leo", "candle"),))
    for answer, hit in (("tiger", True), ("candle", False), ("tiger or candle", False), ("no idea", False)):
        assert Found(hay, answer, 0.0, True, 0).hit == hit


def test_smollm2_finds_a_fact_and_the_cache_held_it(smollm2: Checkpoint) -> None:
    model, tokenizer = smollm2.model, smollm2.tokenizer
    hay = haystack(tokenizer, 100, 1, seed=2)
    found = search(model, tokenizer, hay)
    assert found.hit and found.held
    assert found.used_bytes == len(hay.tokens) * 30 * 2 * 3 * 64 * 4
    answer = generate(model, hay.tokens, max_new_tokens=24, stop_tokens=tokenizer.stop_tokens, warm_up=False)
    assert found.answer == tokenizer.decode(answer.tokens)
    opening = tokenizer.encode(hay.fact.opening)
    (word,) = tokenizer.encode(f" {hay.fact.word}")
    with torch.inference_mode():
        logits = model(torch.tensor([[*hay.tokens, *opening]]), last_only=True)[0, 0]
    assert found.nll == pytest.approx(nll(logits, torch.tensor(word)).item(), abs=1e-3)
    assert found.nll < 2


def test_what_a_window_dropped_is_a_miss_that_was_not_held(smollm2: Checkpoint) -> None:
    def last_48(config: ModelConfig, rows: int, capacity: int) -> Cache:
        return ForgettingCache(config, rows, Window(48))

    hay = haystack(smollm2.tokenizer, 100, 0, seed=2)
    assert hay.needle.stop < len(hay.tokens) - 48
    found = search(smollm2.model, smollm2.tokenizer, hay, last_48)
    assert not found.held and not found.hit
    assert found.nll > 5


def test_a_prompt_read_in_chunks_is_answered_alike(smollm2: Checkpoint) -> None:
    config = ModelConfig(49152, 1, 32, 2, 1, 16, 32, 512)
    model, hay = random_model(config), haystack(smollm2.tokenizer, 120, 0.5, distractors=2)
    whole, chunked = (
        search(model, smollm2.tokenizer, hay, ContiguousCache, chunk=chunk, max_new_tokens=5) for chunk in (None, 7)
    )
    assert whole.answer == chunked.answer and whole.nll == pytest.approx(chunked.nll, abs=1e-4)
    assert len(smollm2.tokenizer.encode(whole.answer)) <= 6
