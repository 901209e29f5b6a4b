"""When tokens came, if pieces of text hold one, several or half of one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.serving.event_stream import Answer, Piece
from course_lib.serving.token_times import TokenTimes, spread, token_times


def words(text: str) -> int:
    return len(text.split())


def answer(*texts: str, said: int | None, reason: str | None = "length") -> Answer:
    """Pieces at 1 s, 2 s, … and a finish a second after the last."""
    pieces = [Piece(float(number), text) for number, text in enumerate(texts, 1)]
    return Answer(pieces, reason, len(texts) + 1.0, 9, said)


def test_as_many_pieces_as_tokens_are_a_token_each() -> None:
    three = answer("a", " b c", " d", said=3)
    assert token_times(three) == TokenTimes([1.0, 2.0, 3.0], "usage", 0)
    assert token_times(three, words) == TokenTimes([1.0, 2.0, 3.0], "usage", 0), "who served it knows better"


def test_half_a_surrogate_pair_is_counted_like_any_letter() -> None:
    def strict(text: str) -> int:
        return len(text.encode().split())

    assert token_times(answer("a b\ud83d", " c", said=3), strict).times_s == [1.0, 1.0, 2.0]


def test_several_tokens_of_one_piece_came_at_one_moment() -> None:
    packed = answer("a", " b c d", " e f", said=6)
    assert token_times(packed, words) == TokenTimes([1.0, 2.0, 2.0, 2.0, 3.0, 3.0], "usage and tokenizer", 2)


def test_a_stop_token_that_the_server_counts_came_with_the_finish_reason() -> None:
    stopped = answer("a", " b", said=3, reason="stop")
    assert token_times(stopped) == TokenTimes([1.0, 2.0, 3.0], "usage", 0)
    packed = answer("a b", " c", said=4, reason="stop")
    assert token_times(packed, words) == TokenTimes([1.0, 1.0, 2.0, 3.0], "usage and tokenizer", 1)
    assert token_times(answer("a b", " c", said=3, reason="stop"), words).times_s == [1.0, 1.0, 2.0]
    assert token_times(answer("a", " b", said=3)).counted_by == "usage and lengths", "nothing stopped it"
    cut = answer("a b", " c", said=4, reason="length")
    assert token_times(cut, words).counted_by == "usage and lengths", "there was no stop token, so the words are wrong"


def test_tokens_that_a_server_thought_and_kept_to_itself_have_no_time() -> None:
    thought = replace(answer("a", " b", " c", said=43), thoughts=40)
    assert thought.hidden == 40 and token_times(thought) == TokenTimes([1.0, 2.0, 3.0], "usage", 0)
    assert token_times(replace(thought, thinks_aloud=True)).counted_by == "usage and lengths", "they are in the pieces"
    assert replace(thought, thoughts=99).hidden == 43 and replace(thought, new_tokens=None).hidden == 0


def test_without_a_tokenizer_that_agrees_longer_pieces_hold_more() -> None:
    packed = answer("a", "bcdefgh", said=4)
    expected = TokenTimes([1.0, 2.0, 2.0, 2.0], "usage and lengths", 1)
    assert token_times(packed) == expected
    assert token_times(packed, words) == expected, "two words where the server counted four tokens"


def test_a_token_may_be_spread_over_pieces() -> None:
    assert token_times(answer(*"abcd", said=2)) == TokenTimes([1.0, 3.0], "usage and lengths", 0)


def test_if_the_server_says_nothing_the_tokenizer_counts_or_else_the_pieces() -> None:
    silent = answer("a", " b c", said=None)
    assert token_times(silent, words) == TokenTimes([1.0, 2.0, 2.0], "tokenizer", 1)
    assert token_times(silent) == TokenTimes([1.0, 2.0], "pieces", 0)
    assert token_times(answer("a", " b", said=0)).counted_by == "pieces", "text without tokens is not believed"


def test_tokens_without_text_came_with_the_finish_reason() -> None:
    assert token_times(answer(said=1, reason="stop")).times_s == [1.0]
    assert token_times(answer(said=None)).times_s == []
    late = Answer([Piece(1.0, "a"), Piece(5.0, "b")], "stop", 2.0, 9, 3)
    assert token_times(late).times_s == [1.0, 5.0, 5.0], "a time never runs backwards"


@given(st.integers(1, 200), st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_all_tokens_are_spread_and_the_first_piece_has_one(total: int, weights: list[int]) -> None:
    shares = spread(total, weights)
    assert len(shares) == len(weights) and sum(shares) == total and min(shares) >= 0 and shares[0] >= 1
    reached = [sum(shares[: n + 1]) for n in range(len(shares))]
    exact = [total * sum(weights[: n + 1]) / sum(weights) for n in range(len(shares))]
    assert all(0 <= have - want < 1 + 1e-9 for have, want in zip(reached, exact)), "to the next whole token"


@pytest.mark.parametrize("count", [None, words])
@given(texts=st.lists(st.text(min_size=1), max_size=6), said=st.none() | st.integers(0, 40), stop=st.booleans())
def test_every_answer_has_times_in_order_and_as_many_as_the_server_says(
    count: object, texts: list[str], said: int | None, stop: bool
) -> None:
    found = token_times(answer(*texts, said=said, reason="stop" if stop else "length"), count)  # type: ignore[arg-type]
    assert found.times_s == sorted(found.times_s)
    assert len(found.times_s) == said or not said
    assert found.times_s[:1] == [1.0] or not (texts or said)
