"""Caches that choose what to forget by attention, or count positions anew, give the logits of a text that is read step
by step in NumPy and forgets the same way.

The one idea: what stays depends on what was read together, so the oracle takes the same steps. It keeps what no cache
keeps, unturned keys, and says after each step which tokens are held and what attention each has got.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import nan
from random import Random

import pytest
import torch
from engine_report import Record, report_difference
from forgetting_oracle import Latest, Text, Watched
from shapes import SHAPES, TOLERANCE, difference, feed, feed_in, model_of, text_of, weights_of
from torch import Tensor

from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.policies import MostSeen, Policy, Window
from course_lib.generation import generate
from course_lib.model import Transformer

EXACT = torch.float64
weights = lru_cache(lambda shape: weights_of(model_of(shape)))


@dataclass(frozen=True)
class Choice:
    """What the library is asked for, and what the oracle does."""

    policy: Policy
    told: Latest | Watched
    renumber: bool = False

    def make(self, shape: str, rows: int = 1) -> ForgettingCache:
        cache = ForgettingCache(SHAPES[shape], rows, self.policy, EXACT, renumber=self.renumber)
        cache.fill_free(nan)
        return cache

    def oracle(self, shape: str) -> Text:
        return Text(SHAPES[shape], weights(shape), self.told, self.renumber)


CHOICES = {
    "6 most seen": Choice(MostSeen(6, 0), Watched(6, 0)),
    "7 most seen, 3 of them recent": Choice(MostSeen(7, 3), Watched(7, 3)),
    "5 recent": Choice(MostSeen(5, 5), Watched(5, 5)),
    "the most seen": Choice(MostSeen(1, 0), Watched(1, 0)),
    "8 most seen, 4 of them recent, renumbered": Choice(MostSeen(8, 4), Watched(8, 4), True),
    "a window of 5, renumbered": Choice(Window(5), Latest(5), True),
    "a window of 4 after 3 first ones, renumbered": Choice(Window(4, 3), Latest(4, 3), True),
    "a window of 4 after 3 first ones": Choice(Window(4, 3), Latest(4, 3)),
}
each_choice = pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
each_shape = pytest.mark.parametrize("shape", ("gqa", "mqa, tied"))
Agree = Callable[[Tensor, object], None]


@pytest.fixture
def agree(record_property: Record) -> Agree:
    def check(got: Tensor, expected: object) -> None:
        apart = difference(got, torch.as_tensor(expected))
        report_difference(record_property, "choosing what to forget, its own oracle", EXACT, apart)
        assert apart <= TOLERANCE[EXACT]

    return check


def same_books(cache: ForgettingCache, row: int, text: Text) -> None:
    """Tokens seen, tokens held, and what attention each of those has got."""
    places = cache.places(row)
    assert cache.lengths[row] == text.length
    assert list(places) == [token.position for token in text.held]
    assert len(set(places.values())) == len(places) and all(slot // cache.line == row for slot in places.values())
    if cache.policy.watches:
        got = cache.attention.flatten()[list(places.values())]
        assert got.tolist() == pytest.approx([token.got for token in text.held], rel=1e-9, abs=1e-12)


@each_choice
@each_shape
def test_a_text_in_chunks_gives_the_oracles_logits_and_leaves_what_it_leaves(
    choice: Choice, shape: str, agree: Agree
) -> None:
    tokens = text_of(shape, 26)
    for chunks in ((26,), (1,) * 18, (3, 1, 12, 1, 9), (11, 1, 1, 1)):
        cache, text = choice.make(shape, 2), choice.oracle(shape)
        for chunk in chunks:
            piece = tokens[text.length : text.length + chunk]
            agree(feed(model_of(shape), cache, {1: piece})[1], text.read(piece))
            same_books(cache, 1, text)
            assert cache.places(0) == {} and cache.lengths[0] == 0
            cache.fill_free(nan)


@each_choice
@each_shape
def test_ragged_rows_in_any_order_released_and_copied_and_used_again(choice: Choice, shape: str, agree: Agree) -> None:
    random, cache = Random(f"{choice} {shape}"), choice.make(shape, 3)
    texts = [choice.oracle(shape) for _ in range(3)]
    for turn in range(18):
        rows = random.sample(range(3), random.randint(1, 3))
        if turn % 5 == 4:
            cache.release(rows[0])
            texts[rows[0]] = choice.oracle(shape)
        if turn % 7 == 6:
            source, target = random.sample(range(3), 2)
            cache.copy_row(source, target)
            texts[target] = texts[source].copy()
        cache.fill_free(nan)
        pieces = {row: text_of(shape, random.choice((0, 1, 1, 2, 7)), turn + row) for row in rows}
        if any(pieces.values()):
            for row, logits in feed(model_of(shape), cache, pieces).items():
                if pieces[row]:
                    agree(logits, texts[row].read(pieces[row]))
        for row, text in enumerate(texts):
            same_books(cache, row, text)


@each_choice
def test_a_copy_and_what_it_was_made_of_go_their_own_ways(choice: Choice, agree: Agree) -> None:
    cache, text = choice.make("gqa", 2), choice.oracle("gqa")
    first = text_of("gqa", 12)
    agree(feed(model_of("gqa"), cache, {0: first})[0], text.read(first))
    cache.copy_row(0, 1)
    other = text.copy()
    for turn in range(6):
        for row, told in enumerate((text, other)):
            piece = text_of("gqa", 1 + turn % 3, seed=10 * turn + row)
            agree(feed(model_of("gqa"), cache, {row: piece})[row], told.read(piece))
            same_books(cache, row, told)
    cache.release(0)
    cache.fill_free(nan)
    piece = text_of("gqa", 3, seed=99)
    agree(feed(model_of("gqa"), cache, {1: piece})[1], other.read(piece))


def test_padding_and_neighbours_get_and_give_no_attention() -> None:
    """A short row beside a long one is mostly padding, which looks at everything that the row holds."""
    shape, choice = "gqa", CHOICES["7 most seen, 3 of them recent"]
    tokens = text_of(shape, 15)
    alone, beside = choice.make(shape), choice.make(shape, 2)
    for start, stop in ((0, 2), (2, 9), (9, 10), (10, 15)):
        feed(model_of(shape), alone, {0: tokens[start:stop]})
        feed(model_of(shape), beside, {1: text_of(shape, 20, start), 0: tokens[start:stop]})
        assert difference(beside.attention[0], alone.attention[0]) < 1e-10
        assert beside.held[0].equal(alone.held[0])
    before = beside.attention[0].clone()
    feed(model_of(shape), beside, {1: [1, 2, 3], 0: []})
    assert beside.attention[0].equal(before) and beside.lengths[0] == 15


def test_attention_is_added_up_as_the_model_computes_it_where_scores_outgrow_16_bits() -> None:
    """A query and a key of a half-precision model can have a product beyond 65,504; no rank may come from NaN."""
    config = SHAPES["gqa"]
    q = torch.full((1, config.n_heads, 1, config.head_dim), 300.0, dtype=torch.float16)
    cache = ForgettingCache(config, 1, MostSeen(4, 1), torch.float16)
    for position in range(7):
        k = torch.full((1, config.n_kv_heads, 1, config.head_dim), 300.0 - (position != 2), dtype=torch.float16)
        with cache.step((1,)) as step:
            for layer in range(config.n_layers):
                step.watch(layer, q, step.write(layer, k, k)[0])  # type: ignore[attr-defined]
    assert config.head_dim * 300**2 > 65_504
    assert list(cache.places(0)) == [0, 1, 2, 6], "the one that got all, the newest, and two of those that tie"
    assert cache.attention.sum() == pytest.approx(7 * config.n_heads * config.n_layers, rel=1e-3)


# --- Counting positions anew


def with_positions(shape: str, positions: int) -> Transformer:
    """The model of a shape that knows fewer positions."""
    model = Transformer(replace(SHAPES[shape], max_positions=positions)).to(EXACT)
    model.load_state_dict(model_of(shape).state_dict())
    return model.requires_grad_(False)


@pytest.mark.parametrize("window", (1, 3, 6))
@pytest.mark.parametrize("shape", SHAPES)
def test_in_a_pure_window_only_distances_matter(shape: str, window: int) -> None:
    """Renumbered positions give the logits of true ones: scores depend on how far apart two tokens are."""
    tokens, model = text_of(shape, 60), model_of(shape)
    caches = [ForgettingCache(SHAPES[shape], 1, Window(window), EXACT, renumber=renumber) for renumber in (True, False)]
    done = 0
    for chunk in (1, 7, 1, 1, 20, 2, 13, 5, 10):
        new, true = (feed(model, cache, {0: tokens[done : done + chunk]})[0] for cache in caches)
        assert difference(new, true) <= TOLERANCE[EXACT]
        done += chunk
    assert caches[0].next_position(0) == window and caches[1].next_position(0) == done


def test_keys_can_be_turned_as_far_as_a_wide_window_goes() -> None:
    model, tokens = with_positions("mqa, tied", 1024), text_of("mqa, tied", 620)
    caches = [ForgettingCache(model.config, 1, Window(300), EXACT, renumber=renumber) for renumber in (True, False)]
    new, true = (feed_in(model, cache, 0, tokens, (310, 305, 1, 4)) for cache in caches)
    assert difference(new, true) <= TOLERANCE[EXACT]


def test_with_first_tokens_counting_anew_is_another_thing() -> None:
    """They come nearer than they are: that is what it is for."""
    tokens = text_of("gqa", 30)
    caches = [ForgettingCache(SHAPES["gqa"], 1, Window(4, 2), EXACT, renumber=renumber) for renumber in (True, False)]
    new, true = (torch.cat([feed(model_of("gqa"), cache, {0: [t]})[0] for t in tokens]) for cache in caches)
    assert difference(new[:6], true[:6]) <= TOLERANCE[EXACT], "nothing is forgotten yet"
    assert difference(new[7:], true[7:]) > 1e-3


@pytest.mark.parametrize("name", ["a window of 4 after 3 first ones", "8 most seen, 4 of them recent"])
def test_a_stream_goes_on_beyond_the_models_positions_if_they_are_counted_anew(name: str, agree: Agree) -> None:
    model, tokens = with_positions("mqa, tied", 16), text_of("mqa, tied", 100)
    choice = CHOICES[f"{name}, renumbered"]
    cache, text = choice.make("mqa, tied"), choice.oracle("mqa, tied")
    pieces = [tokens[:16], *([t] for t in tokens[16:90]), tokens[90:98]]
    for piece in pieces:
        agree(feed(model, cache, {0: piece})[0], text.read(piece))
    assert cache.lengths == (98,) and len(cache.places(0)) == cache.line == cache.next_position(0)
    held = cache.places(0)
    with pytest.raises(ValueError, match="would reach position 16, but the model knows positions 0 to 15"):
        feed(model, cache, {0: text_of("mqa, tied", 17 - cache.line)})
    true = replace(choice, renumber=False).make("mqa, tied")
    feed(model, true, {0: tokens[:16]})
    with pytest.raises(ValueError, match="would reach position 16"):
        feed(model, true, {0: [1]})
    assert cache.places(0) == held and true.lengths == (16,)


@pytest.mark.parametrize("first", (0, 2))
@pytest.mark.parametrize("window", (1, 4, 7))
def test_a_window_and_one_that_is_larger_by_one_part_where_the_larger_sees_more(window: int, first: int) -> None:
    """Up to position W - 1 (and the first tokens) both see everything; at W + first the smaller one does not."""
    tokens = text_of("gqa", 20)
    for chunks in ((20,), (1,) * 20, (3, 5, 1, 11)):
        both = []
        for size in (window, window + 1):
            cache = ForgettingCache(SHAPES["gqa"], 1, Window(size, first), EXACT)
            both.append(feed_in(model_of("gqa"), cache, 0, tokens, chunks))
        apart = (both[0] - both[1]).abs().amax(-1)
        assert apart[: window + first].max() <= TOLERANCE[EXACT] and apart[window + first] > 1e-3


# --- What cannot be undone


@pytest.mark.parametrize("name", CHOICES)
def test_a_truncation_is_refused_unless_nothing_shows_of_what_came_after(name: str, agree: Agree) -> None:
    """Attention that tokens got from what is cut off cannot be taken away; the places of first tokens depend on how
    many others are held.
    """
    choice, shape, tokens, done = CHOICES[name], "mqa, tied", text_of("mqa, tied", 14), 0
    for read in ((4, 6), (1,) * 9, (4,)):
        for length in range(sum(read) + 1):
            cache, text = choice.make(shape), choice.oracle(shape)
            left = list(read)
            for chunk in read:
                feed(model_of(shape), cache, {0: tokens[cache.lengths[0] : cache.lengths[0] + chunk]})
            try:
                cache.truncate(0, length)
                done += 1
            except ValueError as refused:
                assert f"row 0 cannot be truncated to {length} tokens: it has seen {sum(read)}" in str(refused)
                assert 0 < length < sum(read) == cache.lengths[0]
                length = sum(read)
            while text.length < length:
                chunk = min(left.pop(0), length - text.length)
                text.read(tokens[text.length : text.length + chunk])
            cache.fill_free(nan)
            for piece in (text_of(shape, 3, seed=1), [2]):
                agree(feed(model_of(shape), cache, {0: piece})[0], text.read(piece))
    assert done >= 6


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Window(0), "at least 1 token and no fewer than 0 sinks, not 0, 0"),
        (lambda: Window(4, -1), "not 4, -1"),
        (lambda: Window(2.5), "the window must be a whole number, not 2.5"),  # type: ignore[arg-type]
        (lambda: MostSeen(0, 0), "of 0 slots, 0 cannot be for recent tokens"),
        (lambda: MostSeen(3, 4), "of 3 slots, 4 cannot"),
        (lambda: MostSeen(3, -1), "of 3 slots, -1 cannot"),
        (lambda: MostSeen(3, "2"), "must be a whole number, not '2'"),  # type: ignore[arg-type]
    ],
)
def test_a_policy_that_cannot_be_is_refused_with_its_numbers(make: Callable[[], Policy], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make()


# --- Whole texts


def likeliest(text: Text, prompt: Sequence[int], new_tokens: int) -> list[int]:
    """What an oracle goes on with, token by token."""
    tokens: list[int] = []
    while len(tokens) < new_tokens:
        tokens.append(int(text.read(tokens[-1:] or prompt)[-1].argmax()))
    return tokens


@each_choice
@pytest.mark.parametrize("length", (3, 20))
def test_generation_takes_what_the_oracle_finds_likeliest(choice: Choice, length: int) -> None:
    prompt, cache = text_of("mqa, tied", length), choice.make("mqa, tied")
    got = generate(model_of("mqa, tied"), prompt, max_new_tokens=10, cache=cache, warm_up=False)
    assert list(got.tokens) == likeliest(choice.oracle("mqa, tied"), prompt, 10) and cache.lengths == (length + 9,)


@each_choice
def test_generation_goes_on_beyond_the_models_positions_if_they_are_counted_anew(choice: Choice) -> None:
    prompt, cache = text_of("mqa, tied", 9), choice.make("mqa, tied")
    slots = choice.policy.slots
    model = with_positions("mqa, tied", max(9, slots + 1))
    if not choice.renumber:
        with pytest.raises(ValueError, match="9 prompt tokens and 40 new ones need 48 positions, the model knows "):
            generate(model, prompt, max_new_tokens=40, cache=cache, warm_up=False)
        return
    got = generate(model, prompt, max_new_tokens=40, cache=cache, warm_up=False)
    assert list(got.tokens) == likeliest(choice.oracle("mqa, tied"), prompt, 40) and cache.lengths == (48,)


@pytest.mark.parametrize(("prompt", "positions", "needs"), [(3, 8, 9), (12, 11, 12)])
def test_a_prompt_or_slots_that_are_too_many_are_refused_before_the_first_token(
    prompt: int, positions: int, needs: int
) -> None:
    cache = CHOICES["8 most seen, 4 of them recent, renumbered"].make("mqa, tied")
    model = with_positions("mqa, tied", positions)
    with pytest.raises(ValueError, match=f"need {needs} positions, the model knows {positions}"):
        generate(model, text_of("mqa, tied", prompt), max_new_tokens=30, cache=cache, warm_up=False)
    assert cache.lengths == (0,)
