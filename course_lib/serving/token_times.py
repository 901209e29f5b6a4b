"""When each token of a streamed answer came, from pieces of text that may hold several tokens, or half of one.

The one idea: how many tokens there are and in which pieces they came are two questions. The server answers the first
(its usage); the second is certain if there are as many pieces as tokens, and otherwise follows from a tokenizer, or is
estimated from the lengths of the pieces. All tokens of one piece came at one moment: the gaps between them are 0.
Tokens that a server thought and did not send have no time here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from course_lib.serving.event_stream import Answer

Count = Callable[[str], int]  # how many tokens a text has
CountedBy = Literal["usage", "usage and tokenizer", "usage and lengths", "tokenizer", "pieces"]


class TokenTimes(NamedTuple):
    """Times of all tokens of one answer, in order, and what they rest on.

    usage: the server said how many, and each piece was one token (and the finish one more, if a stop token ended the
    answer). usage and tokenizer: pieces held several; the tokenizer says how many, and agrees with the server. usage
    and lengths: it does not agree or there is none, so longer pieces were taken to hold more. tokenizer: the server
    said nothing. pieces: nor was there a tokenizer, so each piece was taken to be one token, which may be too few.
    pieces_with_several: how many pieces held more than one token.
    """

    times_s: list[float]
    counted_by: CountedBy
    pieces_with_several: int


def token_times(answer: Answer, count: Count | None = None) -> TokenTimes:
    """When the tokens of a complete answer came. `count` counts the tokens of a piece."""
    pieces, said = answer.pieces, None if answer.new_tokens is None else answer.new_tokens - answer.hidden
    if pieces and said == 0:  # there is text: it cannot be without tokens
        said = None
    once = [1] * len(pieces)
    if said is None and count is None:
        return laid_out(answer, once, 0, "pieces")
    counted = None if count is None else [max(1, count(whole_letters(piece.text))) for piece in pieces]
    if said is None:
        return laid_out(answer, counted or [], 0, "tokenizer")
    stop = answer.finish_reason == "stop"  # a stop token has no text, and not every server counts it
    if said == len(pieces):
        return laid_out(answer, once, 0, "usage")
    if counted is not None and (extra := said - sum(counted)) in ((0, 1) if stop else (0,)):
        return laid_out(answer, counted, extra, "usage and tokenizer")
    if stop and said == len(pieces) + 1:
        return laid_out(answer, once, 1, "usage")
    lengths = [len(piece.text.encode("utf-8", errors="replace")) for piece in pieces]
    if not pieces:  # tokens without any text: all that is known is when they were complete
        return laid_out(answer, [], said, "usage and lengths")
    return laid_out(answer, spread(said, lengths), 0, "usage and lengths")


def whole_letters(text: str) -> str:
    """A text that may hold half a surrogate pair, without it: JSON can say such a thing, and no tokenizer knows it."""
    return text.encode("utf-8", errors="replace").decode()


def laid_out(answer: Answer, tokens: Sequence[int], at_finish: int, counted_by: CountedBy) -> TokenTimes:
    times = [piece.time_s for piece, number in zip(answer.pieces, tokens) for _ in range(number)]
    if answer.finish_s is not None:
        times += [max([answer.finish_s, *times[-1:]])] * at_finish
    return TokenTimes(times, counted_by, sum(number > 1 for number in tokens))


def spread(total: int, weights: Sequence[int]) -> list[int]:
    """`total` tokens over pieces in proportion to their weights, in whole numbers; the first piece gets at least one.

    A piece may get none: then it ends a token that an earlier one began.
    """
    whole, so_far, given, shares = sum(weights), 0, 0, []
    for weight in weights:
        so_far += weight
        reached = -(-total * so_far // whole)  # rounded up
        shares.append(reached - given)
        given = reached
    return shares
