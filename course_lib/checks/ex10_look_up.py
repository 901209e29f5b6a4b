"""The check of ex10.look_up: the learner's `look_up(text, n, draft_tokens)` drafts by looking in the text itself.

The one idea: texts are planted with what tells beliefs apart: a place at the very beginning, one that overlaps the end,
one that agrees nearly, an earlier one besides the latest. The reference goes through all places from the back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.compare import Case, Wrong, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex06_tables import listed, several, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex10_look_up import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

Tokens: TypeAlias = "list[int]"
FUNCTION, CALL = "look_up", "look_up(text, n, draft_tokens)"
TOLERANCE = "none. Tokens are whole numbers."
NOT_CHECKED = "speed, n or draft_tokens below 1"
ONCE, LATEST, START = "the ending was there once", "it was there several times", "at the very beginning"
NEARLY, OVER, FEW = "places that agree nearly", "a place that overlaps the ending", "fewer tokens follow than asked"
NOTHING, SHORT, ONE = "the ending is new", "a text that is too short", "one token, looked for and drafted"
OFTEN, INPUTS = "few different tokens", "the text stays as it was"
# Each case: what a text is made of, n and draft_tokens. In a text, E is its ending of n tokens, F and L the first and
# the last token of that, M all but its first and N all but its last. X is the ending with a first token that is X_APART
# larger, so that its lowest byte is the same. D is the ending with a digit more before its first token, B with one
# behind its last. A digit is so many tokens that are nowhere else. "2?" is a text at random, of 2 different tokens,
# behind one that is nowhere else.
CASES: dict[str, tuple[tuple[str, int, int], ...]] = {
    ONCE: (("3 E 6 E", 2, 4), ("2 E 9 E", 3, 3), ("4 E 4 E", 4, 2), ("3 E 300 E", 2, 4)),
    LATEST: (("1 E 6 E 7 E", 2, 4), ("2 E 5 E 5 E 5 E", 3, 5)),
    START: (("E 6 E", 2, 4), ("E 5 E", 3, 2), ("E 4 E", 1, 3)),
    NEARLY: (
        ("2 E 5 M 5 E", 3, 4), ("2 E 5 N 5 E", 3, 4), ("1 E 5 L 5 F 5 E", 2, 3), ("2 E 5 D 5 E", 2, 4),
        ("2 E 5 B 5 E", 2, 4), ("2 E 5 D 5 E", 1, 3), ("2 E 5 X 5 E", 2, 4),
    ),
    OVER: (("4 a a a", 2, 1), ("3 a a a a a", 3, 4), ("2 a b a b a", 3, 2), ("2 a a", 1, 3)),
    FEW: (("2 E 1 E", 2, 5), ("1 E 2 E", 2, 8), ("3 E E", 2, 4), ("1 E 6 E 1 E", 3, 5)),
    NOTHING: (("9 E", 2, 4), ("2 M 5 N 3 E", 3, 4), ("4 L 3 F 2 E", 2, 4), ("2 E 5 E", 2, 4)),
    SHORT: (("E", 3, 4), ("M", 3, 4), ("E", 1, 2), ("a a", 1, 2)),
    ONE: (("2 E 5 E 5 E", 1, 1), ("2 a a a", 1, 1), ("1 E 4 E", 1, 1)),
    OFTEN: tuple((few, n, k) for few in ("2?", "3?") for n in (1, 2, 3, 4) for k in (1, 4, 9)),
    INPUTS: (("3 E 6 E", 2, 4), ("2 a a a", 2, 1)),
}  # fmt: skip
X_APART = 1024
FAR = 100  # tokens from the end


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"text": [int], "n": int, "draft_tokens": int}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, calls in CASES.items():
        while name not in cases or (name == OFTEN and not mixed(cases[name])):
            cases[name] = [{"text": text_of(rng, text, n), "n": n, "draft_tokens": k} for text, n, k in calls]
    return {"cases": cases}


def mixed(calls: list[dict[str, Any]]) -> bool:
    """Whether there are a place that overlaps its ending, and an ending that is new though the end of it is not."""
    overlap = [2 * call["n"] > len(call["text"]) - start > call["n"] for call in calls for start in latest(call)]
    new = [not latest(call) and bool(latest(call | {"n": call["n"] - 1})) for call in calls if call["n"] > 1]
    return any(overlap) and any(new)


def text_of(rng: np.random.Generator, pattern: str, n: int) -> Tokens:
    """A text as `pattern` says."""
    if pattern.endswith("?"):
        return [9] + [int(token) for token in rng.integers(int(pattern[:-1]), size=rng.integers(12, 40))]
    tokens = [int(token) for token in rng.permutation(np.arange(100, 999))]
    a, b = tokens.pop(), tokens.pop()
    ending = [tokens.pop() for _ in range(n)]
    known = {"E": ending, "M": ending[1:], "N": ending[:-1], "F": ending[:1], "L": ending[-1:], "a": [a], "b": [b]}
    known |= {"D": [ending[0] + 1000 * int(rng.integers(1, 10)), *ending[1:]], "X": [ending[0] + X_APART, *ending[1:]]}
    known |= {"B": [*ending[:-1], 10 * ending[-1] + int(rng.integers(10))]}
    text: Tokens = []
    for part in pattern.split():
        text += known[part] if part in known else [tokens.pop() for _ in range(int(part))]
    return text


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the drafts in `outputs` those of the reference?"""
    return verdict(LookUpCase, inputs, outputs)


def places(text: Tokens, n: int) -> Iterator[int]:
    """Where the last n tokens of a text stand in it, from the back: the place of the first of them. The ending itself
    is the first such place."""
    for start in reversed(range(len(text) - n + 1)):
        if all(text[start + i] == text[len(text) - n + i] for i in range(n)):
            yield start


def latest(call: dict[str, Any]) -> list[int]:
    """The latest place that is not the ending itself, if there is one."""
    return [start for start in places(call["text"], call["n"]) if start + call["n"] < len(call["text"])][:1]


def reference(call: dict[str, Any]) -> Tokens:
    text, n = call["text"], call["n"]
    for start in latest(call):
        return [text[p] for p in range(start + n, min(start + n + call["draft_tokens"], len(text)))]
    return []


class LookUpCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return (
            f"a text of {several(len(call['text']), 'token')}, n = {call['n']}, draft_tokens = {call['draft_tokens']}"
        )

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, came = reference(call), whole_numbers(answer.get("draft"))
        if came is None:
            data = answer.get("draft")
            said = "look_up returns a list of tokens, an empty one if there is no such place."
            return Wrong(said, "a list", what_came(data))
        if came == expected:
            return None
        said = "A draft is what follows the latest earlier place at which the last n tokens stand."
        return Wrong(said, listed(list(expected)), listed(answer.get("draft")))

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came = whole_numbers(answer.get("draft"))
        return ((said, belief == came) for said, belief in beliefs(call))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in == INPUTS and not unchanged(call["text"], answer.get("text")):
            return Wrong("The text that was handed in has changed. Make a new list instead.")
        return None


def beliefs(call: dict[str, Any]) -> Iterator[tuple[str, Tokens]]:
    """Each way to go wrong: what there is to say, and the draft of it."""
    text, n, k = call["text"], call["n"], call["draft_tokens"]
    found = [start for start in places(text, n) if start + n < len(text)] if n <= len(text) else []

    def after(starts: Sequence[int], size: int = n, more: int = k) -> Tokens:
        return text[starts[0] + size : starts[0] + size + more] if starts else []

    if len(text) <= n:
        yield "A text of no more than n tokens has no earlier place: nothing can be drafted.", text[:k]
        yield "A text of no more than n tokens has no earlier place: nothing can be drafted.", text[-k:]
    follows = len(text) - (found[0] + n) if found else k
    if follows < k:
        whole = [start for start in found if start + n + k <= len(text)]
        said = f"Only {several(follows, 'token')} can be found behind the latest place"
        yield f"{said}, fewer than draft_tokens: draft these.", after(whole)
        yield f"{said}: the draft ends where the text does.", run_on(text, found[0] + n, k)
    apart = [start for start in found if start + 2 * n <= len(text)]
    if apart != found:
        yield "A place may overlap the ending: only the ending itself does not count.", after(apart)
    if found[-1:] == [0]:
        yield "A place at the very beginning of the text counts as well.", after(found[:-1])
    if found and len(text) - found[0] > FAR:
        yield "Only the end of the text was searched. A place that is far back counts as well.", []
    if found:
        yield "There is such a place, and what follows it was not drafted.", []
    yield "This is what follows the earliest place. The latest one is more like what comes now.", after(found[-1:])
    yield "These are the tokens that were looked for. The draft is what follows them.", after(found, 0)
    yield "The draft begins one token too late.", after(found, n + 1)
    yield "The draft begins one token too early: with the last of those that were looked for.", after(found, n - 1)
    yield f"More than draft_tokens tokens were drafted: {k} are asked for.", after(found, more=k + 1)
    yield f"More than draft_tokens tokens were drafted: {k} are asked for.", after(found, more=len(text))
    yield "Fewer tokens were drafted than follow there.", after(found, more=k - 1)
    as_text, low_bytes = " ".join(map(str, text)), [token % 256 for token in text]
    if (at := as_text.rfind(" ".join(map(str, text[-n:])), 0, -1)) >= 0:
        start = as_text[:at].count(" ") + n
        yield "As texts, 7 stands in 17 and 71. Compare tokens as numbers, not their digits.", text[start : start + k]
    alike = [p for p in reversed(range(len(text) - n)) if low_bytes[p : p + n] == low_bytes[-n:]]
    yield "Two tokens that are 256 apart were taken for the same. A byte is too small for a token.", after(alike)
    fewer = "All of the last n tokens have to agree, in their order, not only some of them."
    for size in range(1, n):
        yield fewer, after([start for start in places(text, size) if start + size < len(text)], size)
    if n > 1:
        first = [p for p in reversed(range(len(text) - n)) if text[p] == text[-n]]
        yield fewer, after(first)
        mixed = [p for p in reversed(range(len(text) - n)) if sorted(text[p : p + n]) == sorted(text[-n:])]
        yield fewer, after(mixed)
    last = "These are the last tokens of the text themselves."
    yield last, text[-k:]
    if found:  # also of whoever takes them only where there is no place
        yield last, after(found)


def run_on(text: Tokens, start: int, count: int) -> Tokens:
    """What follows `start`, as if the text went on with its own copy."""
    copied = list(text)
    for p in range(start, start + count):
        copied.append(copied[p])
    return copied[len(text) :]
