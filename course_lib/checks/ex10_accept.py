"""The check of ex10.accept: the learner's `accept(draft, choices, stop_tokens, most)` gives the new tokens of a round.

The one idea: whatever was drafted, what comes out are the target's own choices, and a draft says no more than how many
of them count. So the reference walks along the choices. Wrong answers are held against what each wrong belief gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.compare import Case, Wrong, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex06_tables import listed, several, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex10_accept import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

Tokens: TypeAlias = "list[int]"
FUNCTION, CALL = "accept", "accept(draft, choices, stop_tokens, most)"
TOLERANCE = "none. Tokens are whole numbers."
NOT_CHECKED = "speed, a budget of no token, lists of other lengths"
SOME, FIRST, ALL, AGAIN = "the first few stay", "the first is wrong", "all stay", "right again after a wrong one"
SHORT, STOP, OWN = "no guess, or a single one", "a stop token that was guessed", "a stop token of the target's own"
NO_STOP, BUDGET, OFTEN = "a stop token that is refused, or comes later", "the budget ends", "the same tokens often"
INPUTS = "what was handed in stays as it was"
MANY, NEVER = 40, 7  # a budget that does not end, and a stop token that is no other token
# Each case: which tokens of the draft are the target's choices, then where stop tokens are, and the budget.
CASES: dict[str, tuple[tuple[str, str, int], ...]] = {
    SOME: (("1100", "", MANY), ("1000", "", MANY), ("11110", "", MANY), ("111000", "", MANY)),
    FIRST: (("000", "", MANY), ("00000", "", MANY)),
    ALL: (("111", "", MANY), ("1" * 12, "", MANY), ("1111", "large", MANY), ("1111", "zero", MANY)),
    AGAIN: (("1011", "", MANY), ("0111", "", MANY), ("110101", "", MANY)),
    SHORT: (("", "", MANY), ("1", "", MANY), ("0", "", MANY)),
    STOP: (("11111", "c2", MANY), ("1111", "c0", MANY), ("111", "c2", MANY), ("11100", "c1", MANY),
           ("11111", "c3 c1", MANY), ("1111", "c0 c2", MANY)),
    OWN: (("1100", "c2", MANY), ("111", "c3", MANY), ("0000", "c0", MANY)),
    NO_STOP: (("11000", "d2", MANY), ("11000", "c3", MANY), ("1000", "d3", MANY), ("0111", "c1", MANY)),
    BUDGET: (
        ("1111", "", 2), ("1111", "", 4), ("1100", "", 2), ("1110", "", 1), ("11", "", 3), ("1111", "c3", 2),
        ("1111", "c1", 3),
    ),
    OFTEN: tuple(("?" * k, "?", most) for k in (3, 5, 8) for most in (MANY, 4, MANY, 2, MANY, 5, 3, MANY)),
    INPUTS: (("1110", "", MANY), ("11", "", MANY)),
}  # fmt: skip


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"draft", "choices", "stop_tokens", "most"}, …]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {name: [call_of(rng, *each) for each in calls] for name, calls in CASES.items()}}


def call_of(rng: np.random.Generator, right: str, stops: str, most: int) -> dict[str, Any]:
    """A call whose draft is right where `right` has a 1. `stops` is where a stop token is: c2, the choice number 2.

    With "large", all tokens are large numbers, and with "zero", token 0 is among those that stay. A question mark
    stands for chance: few tokens, a draft that is mostly right, stop tokens that may come or not.
    """
    tokens = [int(token) for token in rng.permutation(np.arange(10, 90))]
    choices, others = tokens[: len(right) + 1], tokens[len(right) + 1 :]
    draft = [choice if is_right == "1" else others.pop() for choice, is_right in zip(choices, right)]
    stop_tokens = [others.pop(), NEVER]
    if stops == "?":
        choices = [int(token) for token in rng.integers(1, 5, size=len(choices))]
        draft = [choice if rng.random() < 0.8 else int(rng.integers(1, 5)) for choice in choices[:-1]]
        if (kind := rng.random()) < 0.6:  # of these, half are wrong at once, and the others somewhere
            wrong = 0 if kind < 0.3 else int(rng.integers(len(draft)))
            draft[wrong] = choices[wrong] % 4 + 1
        else:
            draft = choices[:-1]
        stop_tokens = [0, choices[len(draft) // 2] if rng.random() < 0.5 else NEVER]
    elif stops == "large":
        choices, draft, stop_tokens = ([1000 * token for token in each] for each in (choices, draft, stop_tokens))
    elif stops == "zero":
        choices[1] = draft[1] = 0
    elif stops:
        stop_tokens[:-1] = [{"c": choices, "d": draft}[where[0]][int(where[1:])] for where in stops.split()]
    draft = [*map(int, map(str, draft))]  # other objects than the choices, as they are out of a model
    return {"draft": draft, "choices": choices, "stop_tokens": stop_tokens, "most": most}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the new tokens in `outputs` those of the reference?"""
    return verdict(AcceptCase, inputs, outputs)


def reference(call: dict[str, Any]) -> Tokens:
    """The new tokens: choices of the target, as long as the one before was guessed."""
    new: Tokens = []
    for number, choice in enumerate(call["choices"]):
        new.append(choice)
        guessed = number < len(call["draft"]) and call["draft"][number] == choice
        if not guessed or choice in call["stop_tokens"] or len(new) == call["most"]:
            break
    return new


class AcceptCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        tokens, stops = several(len(call["draft"]), "token"), several(len(call["stop_tokens"]), "stop token")
        return f"a draft of {tokens}, {several(len(call['choices']), 'choice')}, {stops}, most {call['most']}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, came = reference(call), whole_numbers(answer.get("new"))
        if came is None:
            data = answer.get("new")
            said = "accept returns the new tokens, a list of whole numbers."
            said = "accept returned None. Did you forget `return`?" if data is None else said
            return Wrong(said, "a list", what_came(data))
        if came == expected:
            return None
        at = next(
            (i for i, pair in enumerate(zip(came, expected)) if pair[0] != pair[1]), min(len(came), len(expected))
        )
        said = "New tokens are the target's choices, up to and including the first that was not guessed."
        return Wrong(said, listed(list(expected)), listed(answer.get("new")), f"new token number {at + 1}")

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came = whole_numbers(answer.get("new"))
        return ((said, belief == came) for said, belief in beliefs(call))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in GIVEN if told_in == INPUTS and not unchanged(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make a new list instead.") if changed else None


def beliefs(call: dict[str, Any]) -> Iterator[tuple[str, Tokens]]:
    """Each way to go wrong: what there is to say, and the new tokens of it."""
    draft, choices, stops, most = call["draft"], call["choices"], call["stop_tokens"], call["most"]

    def leading(pairs: Iterator[tuple[int, int]]) -> int:
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def up_to_stop(tokens: Tokens) -> Tokens:
        return next((tokens[: at + 1] for at, token in enumerate(tokens) if token in stops), tokens)

    if draft and draft[0] == choices[0] > 256:
        same = "`is` asks whether two tokens are the same object, as small numbers happen to be. Compare with ==."
        yield same, choices[:1]
    a = leading(zip(draft, choices))  # guesses that are right
    drafted = [*draft[:a], choices[a]]
    if 0 in draft[:a]:
        zero = "Token 0 is a guess like any other. Ask whether there is a guess, not whether it is true."
        yield zero, choices[: draft.index(0) + 1]
    if len(ends := [drafted.index(stop) for stop in stops if stop in drafted]) > 1:
        several_stops = "There are several stop tokens. The answer ends with the one that comes first in the text."
        yield several_stops, drafted[: ends[0] + 1][:most]
        yield several_stops, drafted[: ends[-1] + 1][:most]
    after_stop = "What follows a stop token came back, too. It ends the answer."
    yield after_stop, drafted[:most]
    staying = up_to_stop(draft[:a])
    yield after_stop, [*staying, choices[len(staying)]][:most]
    over = f"More tokens came back than may still come: most is {most}, the target's own token included."
    yield over, up_to_stop(drafted)
    yield over, [*up_to_stop(drafted)[:most], choices[min(most, a)]]
    yield over, drafted
    if len(up_to_stop(drafted)) >= most:
        yield f"Fewer tokens came back than may still come: most is {most}.", up_to_stop(drafted)[: most - 1]
    without = [token for token in up_to_stop(drafted)[:most] if token not in stops]
    yield "The stop token is missing. It is the last token of the answer.", without
    if (ended := next((at for at, token in enumerate(draft) if token in stops), -1)) >= a:
        for early in (draft[:a], draft[:ended], draft[: ended + 1]):
            yield "A stop token ended the round that was refused. Only what stays can end it.", early
    no_own = "The target's own token is missing: where a guess is wrong, the pass has chosen the right token already."
    if a == len(draft):
        no_own = "All of the draft stays, and the pass has chosen the token after it as well: it comes for nothing."
    variants: list[tuple[str, Tokens]] = []
    agree = [token for token, choice in zip(draft, choices) if token == choice]
    if len(agree) > a:
        after = "A guess after a wrong one was accepted. The choice beside it was made after another text."
        variants += [(after, [*agree, choice]) for choice in (choices[-1], choices[len(agree)])]
        variants += [(after, agree), (after, [*draft[: len(agree)], choices[len(agree)]])]
    variants += [
        (no_own, draft[:a]),
        ("All of the draft was accepted, unchecked.", [*draft, choices[-1]]),
        ("All of the draft was accepted, unchecked.", draft),
    ]
    if draft:
        later = 1 + leading(zip(draft[1:], choices[1:]))
        first = "The first guess was not checked. It is one like any other: choices[0] is what the target wants there."
        variants.append((first, [*draft[:later], choices[later]]))
    shifted = leading(zip(draft, choices[1:]))
    beside = "The draft was compared with the wrong choices: draft[i] is a guess at choices[i]."
    variants.append((beside, [*draft[:shifted], choices[shifted]]))
    variants.append((beside, [*draft[: 1 + leading(zip(draft[1:], choices))], choices[0]]))
    variants.append(("The refused guess is still there.", draft[: a + 1]))
    variants.append(("The refused guess is still there.", [*draft[: a + 1], choices[a]]))
    variants.append(("The refused guess is still there.", [*draft[: a + 1], *choices[a + 1 : a + 2]]))
    place = f"The token that follows is choices[{a}], made after the {several(a, 'token')} that stay."
    variants += [(place, [*draft[:a], choices[at]]) for at in (min(a + 1, len(draft)), len(draft), max(a - 1, 0))]
    variants.append(("These are all the choices. Those after a wrong guess belong to another text.", choices))
    variants.append(("The accepted guesses are missing: they are new tokens, too.", [choices[a]]))
    for said, tokens in variants:
        yield said, up_to_stop(tokens)[:most]
        yield said, tokens
