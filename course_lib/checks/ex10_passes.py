"""What the judge of ex10.speculate knows about passes: how many are needed, and what those that were made tell.

The one idea: an answer may be right and still not be speculative, so the passes are looked at as well. Every pass is
noted with what its cache held before it and what it read. Held against the text, that shows which token was missing,
which one should have been gone, and which one was read twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.ex05_engines import VOCABULARY, after, alone, note
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex10_speculate import DRAFT, TARGET

__all__ = [
    "DRAFT",
    "TARGET",
    "Pass",
    "Tokens",
    "agreement",
    "fault",
    "greedy",
    "guesses",
    "made",
    "proposals",
    "rounds",
    "same",
    "twice",
]

Tokens: TypeAlias = "list[int]"
MOST_PASSES, MOST_READ = 1000, 100_000  # in one answer: more than `run` lets be noted


def greedy(call: dict[str, Any]) -> Tokens:
    """The new tokens of the target alone, one after the other."""
    most, _, stop_tokens = call["given"]
    tokens = alone(call["target"], call["prompt"], most)
    return next((tokens[: at + 1] for at, token in enumerate(tokens) if token in stop_tokens), tokens)


def proposals(call: dict[str, Any], tokens: Tokens) -> Tokens:
    """What the draft proposes at the place of each of the new tokens, after a text that is right so far."""
    numbers, slips, text = call["draft"], call["slips"], call["prompt"] + tokens
    seen, proposed = 0, []  # type: int, Tokens
    for position, token in enumerate(text):
        seen += note(numbers, token, position)
        proposed.append((after(numbers, seen) + (slips > 0 and seen % slips == 0)) % VOCABULARY)
    return proposed[len(call["prompt"]) - 1 : -1]


def agreement(call: dict[str, Any], tokens: Tokens) -> list[bool]:
    """At which of the new tokens the draft is right."""
    return [guess == token for guess, token in zip(proposals(call, tokens), tokens, strict=True)]


def rounds(agrees: list[bool], draft_tokens: int, start: int) -> list[int]:
    """How many guesses stay in each round, if the first one drafts for new token number `start`."""
    stay, at = [], start  # type: list[int], int
    while at < len(agrees):
        guesses = agrees[at : at + draft_tokens]
        stay.append(guesses.index(False) if False in guesses else len(guesses))
        at += stay[-1] + 1
    return stay


@dataclass(frozen=True)
class Pass:
    """One pass of a model: what its cache held, and what was read."""

    model: int
    held: Tokens
    read: Tokens

    @property
    def text(self) -> Tokens:
        return self.held + self.read


def made(answer: dict[str, Plain]) -> list[Pass] | None:
    """The passes in an answer, in their order; None if they are not what `run` writes down."""
    passes, read = answer.get("passes"), answer.get("read")
    if not (isinstance(passes, np.ndarray) and isinstance(read, np.ndarray)) or read.ndim != 1:
        return None
    if passes.ndim != 2 or passes.shape[1] != 4 or passes.dtype != np.int64 or read.dtype != np.int64:
        return None
    if len(passes) > MOST_PASSES or len(read) > MOST_READ:
        return None
    tokens, caches, found = read.tolist(), {}, []  # type: Tokens, dict[tuple[int, int], Tokens], list[Pass]
    for model, cache, held, count in passes.tolist():
        before = caches.get((model, cache), [])
        if model not in (TARGET, DRAFT) or not 0 <= held <= len(before) or not 1 <= count <= len(tokens):
            return None
        one = Pass(model, before[:held], tokens[:count])
        caches[model, cache], tokens = one.text, tokens[count:]
        found.append(one)
    return None if tokens else found


def guesses(passes: list[Pass], text: Tokens, prompt: int) -> list[int]:
    """How many tokens each pass of the target has read beyond those of `text` that had been chosen by then."""
    known, found = prompt, []  # type: int, list[int]
    for one in passes:
        if one.model == TARGET:
            found.append(max(0, len(one.text) - known))
            if (right := same(one.text, text)) > len(one.held):
                known = max(known, min(right + 1, len(text)))
    return found


def fault(one: Pass, text: Tokens) -> tuple[str, int] | None:
    """How a pass did not go on from the beginning of `text`, and at which position: "left" (a token was still in the
    cache that is not in the text), "missing" (one was neither there nor read) or "again" (one was read behind itself).
    Tokens that were read may be guesses, so no others are faults.
    """
    p = same(one.text, text)
    if p < len(one.held):
        moved = one.held[p : p + 2] == text[p + 1 : p + 3]
        return ("missing" if moved else "left"), p
    if p == len(one.held) and one.text[p:] and p:
        if one.read[0] in text[p + 1 : p + 2]:
            return "missing", p
        if one.read[0] == text[p - 1]:
            return "again", p - 1
    return None


def same(one: Tokens, other: Tokens) -> int:
    """How many tokens two texts have in common from the first one on."""
    return next((p for p, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), min(len(one), len(other)))


def twice(passes: list[Pass], text: Tokens) -> int | None:
    """The first position of `text` whose token was read twice, each time after all that comes before it in the text."""
    seen: set[int] = set()
    for one in passes:
        again = range(len(one.held), same(one.text, text))
        if found := [p for p in again if p in seen]:
            return found[0]
        seen.update(again)
    return None
