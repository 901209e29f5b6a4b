"""The check of ex05.hunt_decode: the learner's mended `continue_together(model, prompts, new_tokens)` decodes rows of
different lengths in one step each.

The one idea: the first new token is right however wrong its position is, because nobody has read it yet; and with rows
of one length all of them are right. So most cases have rows of several lengths, and more than one step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex05_engines import (
    TOLERANCE,
    Belief,
    EngineCase,
    Tokens,
    alone,
    some_model,
    some_text,
    three_lengths,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_hunt_decode import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "continue_together", "continue_together(model, prompts, new_tokens)"
NOT_CHECKED = "whether rows go through the model together, rows that end earlier than others, speed, other models"
EQUAL, BEHIND, BEFORE = "rows of one length", "a short row after a long one", "a short row before a long one"
ONE, TWO, MANY = "a prompt of one token among others", "two new tokens", "many rows, many new tokens"
CASES = (EQUAL, BEHIND, BEFORE, ONE, TWO, MANY)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"model": [int], "given": [prompts, new_tokens]}]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        short, middle, long = three_lengths(rng)
        lengths = {
            EQUAL: (middle, middle),
            BEHIND: (long, short),
            BEFORE: (short, long),
            ONE: (middle, 1, long),
            TWO: (middle, long, short),
            MANY: tuple(int(length) for length in rng.permutation(np.arange(2, 14))[:6]),
        }[name]
        new_tokens = {TWO: 2, MANY: int(rng.integers(12, 20))}.get(name, int(rng.integers(4, 7)))
        given = [[some_text(rng, length) for length in lengths], new_tokens]
        cases[name] = [{"model": some_model(rng), "given": given}]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the tokens in `outputs` those that each row gets alone?"""
    return verdict(DecodeCase, inputs, outputs)


class DecodeCase(EngineCase):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        prompts, new_tokens = call["given"]
        return f"prompts of {', '.join(str(len(prompt)) for prompt in prompts)} tokens, {new_tokens} new tokens"

    def expected(self, call: dict[str, Any]) -> list[Tokens]:
        prompts, new_tokens = call["given"]
        return [alone(call["model"], prompt, new_tokens) for prompt in prompts]

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        model, (prompts, new_tokens) = call["model"], call["given"]
        lengths = [len(prompt) for prompt in prompts]

        def with_positions(start: int | None, step: int = 1, more: int = 0) -> list[Tokens]:
            """All rows, if new token number i stands at start (its row's length without one) + step · i + more."""
            made = []
            for prompt in prompts:
                n, first = len(prompt), len(prompt) if start is None else start
                made.append(alone(model, prompt, new_tokens, lambda p, n=n, first=first: first + step * (p - n) + more))  # type: ignore[misc]
            return made

        found = (
            "This is what the engine gives as it was found. The first new token of every row is right, later ones are "
            "only right in the longest rows: what does a new token take into the cache that depends on its row?"
        )
        yield found, with_positions(max(lengths))
        yield "Every row uses the positions of one row.", with_positions(lengths[0])
        yield "Every row uses the positions of one row.", with_positions(min(lengths))
        yield "New tokens stand behind the prompt. Their positions began at 0 again.", with_positions(0)
        late = "The positions are one too far: the first new token stands where as many tokens come before it."
        yield late, with_positions(None, more=1)
        early = "The positions are one too few: the last token of the prompt stands there already."
        yield early, with_positions(None, more=-1)
        yield "All new tokens of a row were put at the same position.", with_positions(None, step=0)
        yield "The position went on by two in each step: it was counted twice.", with_positions(None, step=2)
