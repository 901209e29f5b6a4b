"""The check of ex10.speculate: the learner's `speculate(target, draft, …)` gives the target's tokens, in few passes.

The one idea: the tokens have to be those of the target alone, whatever the draft proposes; and wherever the draft is
right at all, there have to be fewer passes than tokens. So decoding one token a pass, which gives the right answer,
earns nothing. What went wrong is read from the passes that were made.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex05_engines import some_model, some_text
from course_lib.checks.ex06_tables import listed, several, whole_numbers
from course_lib.checks.ex10_passes import (
    DRAFT,
    TARGET,
    Pass,
    Tokens,
    agreement,
    fault,
    greedy,
    guesses,
    made,
    proposals,
    rounds,
    same,
    twice,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex10_speculate import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION = "speculate"
CALL = "speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens)"
TOLERANCE = "none. Tokens and passes are whole numbers."
NOT_CHECKED = "seconds, sampling, an empty prompt, an answer of no token, how many passes the draft makes"
RIGHT, SOME, WRONG = (
    "a draft that is right stays right",
    "a draft that is right now and then",
    "a draft that is always wrong",
)
EVERY, SHORT, STOP = "from 1 to 8 guesses a round", "short prompts and answers", "stop tokens"
END, FEW = "no room beyond the answer", "as few passes as there are rounds, and nothing twice"
TWICE, AGAIN = "the target reads no token of the text twice", "the draft reads no token of the text twice"
CASES = (RIGHT, SOME, WRONG, EVERY, SHORT, STOP, END, FEW, TWICE, AGAIN)
WIDE = 200  # tokens: room for more than any answer needs
PERFECT, HOPELESS, STRANGER = 0, 1, -1  # a draft that never slips, one that always does, and another model
Call = dict[str, Any]


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"target", "draft", "slips", "room", "prompt", "given"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[Call]] = {
        RIGHT: [call_of(rng, PERFECT, 5, most, k) for most, k in ((20, 4), (41, 4), (20, 1), (30, 6))],
        SOME: [call_of(rng, slips, 6, 24, k) for slips, k in ((2, 2), (3, 3), (3, 4))],
        WRONG: [call_of(rng, slips, 5, 12, k) for slips, k in ((HOPELESS, 4), (STRANGER, 3), (HOPELESS, 1))],
        EVERY: [call_of(rng, 4, int(rng.integers(2, 9)), 20, k) for k in range(1, 9)],
        SHORT: [call_of(rng, PERFECT, *sizes, 4) for sizes in ((1, 9), (1, 1), (3, 2), (2, 1), (1, 3))],
        STOP: with_stops(rng),
        END: [call_of(rng, slips, 5, most, 8, tight=True) for slips, most in ((PERFECT, 6), (PERFECT, 12), (4, 18))],
        FEW: [call_of(rng, 5, 6, 32, k) for k in (3, 4, 5)],
        TWICE: [call_of(rng, slips, 6, 20, 4) for slips in (PERFECT, 3, HOPELESS)],
        AGAIN: [call_of(rng, slips, 6, 20, 4) for slips in (PERFECT, 3)],
    }
    return {"cases": cases}


def call_of(rng: np.random.Generator, slips: int, prompt: int, most: int, k: int, tight: bool = False) -> Call:
    """One call. With a draft that slips now and then it is drawn again until all that a round can be has occurred."""
    while True:
        target = some_model(rng)
        call: Call = {
            "target": target,
            "draft": some_model(rng) if slips == STRANGER else target,
            "slips": max(slips, PERFECT),
            "room": prompt + most if tight else WIDE,
            "prompt": some_text(rng, prompt),
            "given": [most, k, [int(rng.integers(1, 50_000))]],
        }
        tokens = greedy(call)
        if len({*tokens, *call["given"][2]}) < most + 1:
            continue
        agrees = agreement(call, tokens)
        stay = rounds(agrees[:-1], k, 1)  # nothing is drafted for the last token
        mixed = 0 in stay and (k in stay or k > 4)  # nothing and, if it is short, all of a draft stays
        fewer = k < 2 or len(rounds(agrees, k - 1, 1)) > len(rounds(agrees, k, 0))  # a shorter draft takes more passes
        if slips < 2 or (mixed and fewer and stay[0] and len({*stay}) > min(k, 2)):
            return call


def with_stops(rng: np.random.Generator) -> list[Call]:
    """Stop tokens that the draft proposes, that are the target's own, that were refused, and that the prompt holds."""
    calls = []
    for at in (7, 0, 10, None):
        call = call_of(rng, 3 if at is None else PERFECT, 5, 20, 4)
        tokens, stop_tokens = greedy(call), call["given"][2]
        if at is not None:
            stop_tokens.append(tokens[at])
        else:
            stop_tokens += [guess for guess in proposals(call, tokens) if guess not in tokens]
            stop_tokens.append(call["prompt"][1])
        calls.append(call)
    return calls


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the tokens in `outputs` the target's, and the passes few?"""
    return verdict(SpeculateCase, inputs, outputs)


class SpeculateCase(Case):
    CALL = CALL
    IDLE = frozenset({WRONG})  # there, decoding without a draft takes as few passes

    def went_in(self, call: Call) -> str:
        most, k, stop_tokens = call["given"]
        tokens = greedy(call)
        right = sum(agreement(call, tokens))
        said = f"a prompt of {several(len(call['prompt']), 'token')}, {several(most, 'new token')}, draft_tokens {k}"
        if call["room"] < WIDE:
            said += f", caches with room for {call['room']} tokens"
        return f"{said}, {several(len(stop_tokens), 'stop token')}, a draft that is right at {right} of {len(tokens)}"

    def wrong(self, call: Call, answer: dict[str, Plain]) -> Wrong | None:
        expected, came, passes = greedy(call), whole_numbers(answer.get("tokens")), made(answer)
        if came is None:
            data = answer.get("tokens")
            said = "speculate returns the new tokens, a list of whole numbers."
            said = "speculate returned None. Did you forget `return`?" if data is None else said
            return Wrong(said, "a list", what_came(data))
        if passes is None:
            return Wrong("The passes of the models are not those that were noted.")
        target = [one for one in passes if one.model == TARGET]
        if came != expected:
            at = same(came, expected)
            said = about_length(call, expected, came) or about_token(call, expected, came, target)
            where = f"new token number {at + 1}" if at < len(expected) else ""
            return Wrong(said, listed(list(expected)), listed(answer.get("tokens")), where)
        return self.passes_wrong(call, call["prompt"] + expected, passes, target)

    def passes_wrong(self, call: Call, text: Tokens, passes: list[Pass], target: list[Pass]) -> Wrong | None:
        """What is wrong with how the right tokens were found."""
        P, k = len(call["prompt"]), call["given"][1]
        N = len(text) - P
        read = {p for one in target for p in range(len(one.held), same(one.text, text))}
        if unread := [p for p in range(P - 1, P + N - 1) if p not in read]:
            said = "The tokens are right, but the target has never read the text up to here, so it has not chosen this."
            return Wrong(said, where=f"new token number {unread[0] - P + 2}")
        agrees = agreement(call, text[P:])
        if wrong := self.guesses_wrong(call, text, passes, agrees):
            return wrong
        fewest, enough = 1 + len(rounds(agrees, k, 1)), 1 + len(rounds(agrees, k, 0))
        if fewest < N and len(target) >= N and len(target) > enough:
            said = "The tokens are right, but each took a pass of the target: that is decoding without a draft."
            said = about_draft(passes, text) or about_size(target, k) or said
            return Wrong(said, f"fewer passes than {several(N, 'token')}", f"{len(target)} passes")
        if self.name in (RIGHT, WRONG, FEW) and len(target) > enough:
            said = "A pass of the target checks a whole draft and chooses one more token. Here it took more passes."
            said = about_draft(passes, text) or about_size(target, k) or said
            return Wrong(said, f"at most {enough} passes", f"{len(target)} passes")
        for name, who, those in (
            (TWICE, "target", target),
            (AGAIN, "draft", [one for one in passes if one.model == DRAFT]),
        ):
            if self.name in (name, FEW) and (p := twice(those, text)) is not None:
                said = f"The {who} has read a token of the text again that was in its cache already."
                return Wrong(f"{said} Truncate to what stays, and read what is not there yet.", where=place(p, P))
        return None

    def guesses_wrong(self, call: Call, text: Tokens, passes: list[Pass], agrees: list[bool]) -> Wrong | None:
        """What is wrong with how many guesses were checked, and where they came from."""
        k, counts = call["given"][1], guesses(passes, text, len(call["prompt"]))
        if (most := max(counts)) > k and self.name in (EVERY, FEW):
            said = "More guesses than `draft_tokens` were made in a round. A draft of that many is checked in one pass."
            where = f"pass {counts.index(most) + 1} of the target"
            return Wrong(said, f"at most {several(k, 'guess')}", several(most, "guess"), where)
        drafted, target = sum(one.model == DRAFT for one in passes), sum(one.model == TARGET for one in passes)
        if sum(counts) > drafted or target < len(rounds(agrees, max(k, most), 0)):
            said = "The target has read guesses that the draft did not make. Each guess takes a pass of the draft."
            return Wrong(said, came=f"{several(sum(counts), 'guess')}, {drafted} passes of the draft")
        return None


def place(position: int, prompt: int) -> str:
    return f"position {position}, " + (
        "in the prompt" if position < prompt else f"new token number {position - prompt + 1}"
    )


def about_length(call: Call, expected: Tokens, came: Tokens) -> str:
    """A sentence about an answer that begins right, or holds the right one, but ends too early or too late."""
    most, _, stop_tokens = call["given"]
    stopped = expected[-1] in stop_tokens
    if came == call["prompt"] + expected:
        return "The prompt came back, too. Asked are only the new tokens."
    if came[: len(expected)] == expected:
        if stopped:
            return "The answer went on after a stop token. A draft may hold one in the middle."
        return f"More than {several(most, 'new token')} came back. A draft may go on beyond the last one."
    if came != expected[: len(came)]:
        return ""
    if stopped and came == expected[:-1]:
        return "The stop token is missing. It is the last token of the answer."
    if not came:
        return "No new token came back."
    if set(stop_tokens) & set(call["prompt"]):
        return "The answer ended too early. Only a new token can end it, none of the prompt and none that was refused."
    return "The answer ended too early."


def about_token(call: Call, expected: Tokens, came: Tokens, target: list[Pass]) -> str:
    """A sentence about the first wrong token, by what the target had read when it came."""
    text, at = call["prompt"] + came, len(call["prompt"]) + same(came, expected)
    for number, one in enumerate(target, start=1):
        found = fault(one, text)
        if found is None or found[1] > at:
            continue
        kind, p = found
        began = f"Pass {number} of the target began with a wrong cache"
        if kind == "left":
            return (
                f"{began}: the token at position {p} is not in the text any more. A refused guess has to go, "
                "and all that was read after it."
            )
        if kind == "missing":
            return f"{began}: the token at position {p} of the text was neither in it nor read."
        return f"{began}: the token at position {p} was in it already, and was read once more behind itself."
    guess = proposals(call, expected)[at - len(call["prompt"])]
    if came[at - len(call["prompt"])] == guess:
        return "This is the draft's token, and the target has chosen another one. Every guess has to be checked."
    if not any(same(one.text, text) >= at > len(one.held) for one in target):
        return "The target has never read the text up to here, so it has not chosen this token."
    return "The target's choice after the text up to here is another one: take the choice that stands beside it."


def about_draft(passes: list[Pass], text: Tokens) -> str:
    """A sentence about a draft whose guesses were wrong because its cache was; empty if nothing is known."""
    for before, one in pairwise(passes):
        if one.model != DRAFT or before.model != TARGET or not (found := fault(one, text)):
            continue  # only the first pass of a round reads nothing but the text
        kind, p = found
        said = "The tokens are right, but the draft guessed after another text"
        if kind == "left":
            return (
                f"{said}: the token at position {p}, which was refused, was still in its cache. Truncate that as well."
            )
        if kind == "missing":
            return (
                f"{said}: the token at position {p} was missing in its cache. The last guess of a draft is made, "
                "but not read; if all of it stays, the draft has to read that one, too."
            )
        return f"{said}: the token at position {p} was read once more behind itself."
    return ""


def about_size(target: list[Pass], draft_tokens: int) -> str:
    """A sentence about passes that read too few draft tokens, if that is so."""
    largest = max((len(one.read) for one in target if one.held), default=0)
    if not largest or largest > draft_tokens:
        return ""
    if largest == 1:
        return "The tokens are right, but each pass of the target read one token. It can read a whole draft at once."
    return f"The tokens are right, but no draft had {draft_tokens} tokens."
