"""The check of ex05.hunt_prompts: the learner's mended `read_prompts(model, prompts)` reads padded prompts together.

The one idea: with prompts of one length the engine is right as it was found, so nearly every case has several lengths,
and one has the padding token in a text, so that nobody can look for it instead of counting.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex05_engines import (
    PAD,
    TOLERANCE,
    Belief,
    EngineCase,
    Tokens,
    after,
    alone,
    note,
    some_model,
    some_text,
    three_lengths,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_hunt_prompts import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "read_prompts", "read_prompts(model, prompts)"
NOT_CHECKED = "whether prompts go through the model together, empty prompts, speed, other models"
EQUAL, BEHIND, BEFORE = "prompts of one length", "a short prompt after a long one", "a short prompt before a long one"
ONE, MANY, HOLDS = "a prompt of one token among others", "many prompts", "prompts that hold the padding token"
CASES = (EQUAL, BEHIND, BEFORE, ONE, MANY, HOLDS)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"model": [int], "given": [prompts]}]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        short, middle, long = three_lengths(rng)
        lengths = {
            EQUAL: (middle, middle, middle),
            BEHIND: (long, short),
            BEFORE: (short, long),
            ONE: (middle, 1, long),
            MANY: tuple(int(length) for length in rng.permutation(np.arange(2, 14))[:7]),
            HOLDS: (middle, long, short),
        }[name]
        pads = {HOLDS: (-1, 1, -1)}.get(name, (None,) * len(lengths))
        prompts = [some_text(rng, length, pad) for length, pad in zip(lengths, pads, strict=True)]
        cases[name] = [{"model": some_model(rng), "given": [prompts]}]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the next tokens in `outputs` those of each prompt alone?"""
    return verdict(PromptsCase, inputs, outputs)


class PromptsCase(EngineCase):
    CALL = CALL
    LIST_OF = "one next token for each prompt"
    ONE_EACH = True

    def went_in(self, call: dict[str, Any]) -> str:
        return f"prompts of {', '.join(str(len(prompt)) for prompt in call['given'][0])} tokens"

    def expected(self, call: dict[str, Any]) -> list[Tokens]:
        return [alone(call["model"], prompt, 1) for prompt in call["given"][0]]

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        model, prompts = call["model"], call["given"][0]
        lengths = [len(prompt) for prompt in prompts]
        T = max(lengths)

        def read(prompt: Tokens, until: int) -> Tokens:
            padded = prompt + [PAD] * (T - len(prompt))
            return [after(model, sum(note(model, token, p) for p, token in enumerate(padded[:until])))]

        found = (
            "This is what the engine gives as it was found. Prompts that are as long as the longest are right, shorter "
            "ones are not: what does a shorter row have that the longest has not?"
        )
        yield found, [read(prompt, T) for prompt in prompts]
        if any(PAD in prompt for prompt in prompts):
            looked = (
                "A prompt ends where its tokens end. To look for the padding token does not tell: a prompt may hold it."
            )
            without = [[token for token in prompt if token != PAD] for prompt in prompts]
            yield looked, [read(prompt, len(rest)) for prompt, rest in zip(prompts, without, strict=True)]
            until_last = [
                max((p + 1 for p, token in enumerate(prompt) if token != PAD), default=1) for prompt in prompts
            ]
            yield looked, [read(prompt, until) for prompt, until in zip(prompts, until_last, strict=True)]
            until_first = [prompt.index(PAD) if PAD in prompt else len(prompt) for prompt in prompts]
            yield looked, [read(prompt, until or T) for prompt, until in zip(prompts, until_first, strict=True)]
            own = [[(p, token) for p, token in enumerate(prompt) if token != PAD] for prompt in prompts]
            yield looked, [[after(model, sum(note(model, token, p) for p, token in seen))] for seen in own]
        early = "The next token is read one token too early: the last one of the prompt has not been seen."
        yield early, [read(prompt, len(prompt) - 1) for prompt in prompts]
        yield early, [read(prompt, len(prompt) - 1 or T) for prompt in prompts]  # -1 is the last column
        yield "One token of padding was read.", [read(prompt, len(prompt) + 1) for prompt in prompts]
        one = "All next tokens are read at the same column. The rows end at different ones."
        for until in {min(lengths), lengths[0], lengths[-1]}:
            yield one, [read(prompt, until) for prompt in prompts]
        shifted = "The padding went to the front, and the tokens behind it got positions that are not theirs."
        yield (
            shifted,
            [
                [after(model, sum(note(model, token, T - len(prompt) + p) for p, token in enumerate(prompt)))]
                for prompt in prompts
            ],
        )
