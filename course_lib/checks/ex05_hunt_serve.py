"""The check of ex05.hunt_serve: the learner's mended `serve(model, requests, rows)` lets requests share a few rows.

The one idea: what a released row leaves behind shows only if the next text does not cover it. So the texts of a row get
longer in one case, where the engine is right as it was found, and shorter in the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex05_engines import (
    TOLERANCE,
    Belief,
    EngineCase,
    Tokens,
    after,
    alone,
    note,
    some_model,
    some_text,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_hunt_serve import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "serve", "serve(model, requests, rows)"
NOT_CHECKED = "whether rows are used side by side, requests without a prompt or a new token, speed, other models"
ALONE, LONGER, SHORTER = "a row for each request", "one row, texts that get longer", "one row, texts that get shorter"
ANSWER, ONE, SEVERAL = "a long answer, then a short text", "answers of one token", "several rows, many requests"
CASES = (ALONE, LONGER, SHORTER, ANSWER, ONE, SEVERAL)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"model": [int], "given": [[[prompt, new_tokens], …], rows]}]}}."""
    rng = np.random.default_rng(seed)
    more = int(rng.integers(0, 3))
    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        sizes, rows = {  # (prompt, new tokens) of each request
            ALONE: (((5 + more, 4), (2, 3), (8, 2)), 3),
            LONGER: (((2 + more, 3), (8 + more, 2), (13 + more, 5)), 1),
            SHORTER: (((9 + more, 4), (4 + more, 3), (2, 2)), 1),
            ANSWER: (((3, 8 + more), (2, 4)), 1),
            ONE: (((6 + more, 1), (3, 1), (2, 1)), 1),
            SEVERAL: ((*((int(rng.integers(6, 10)), int(rng.integers(3, 7))) for _ in range(3)),
                       *((int(rng.integers(2, 6)), int(rng.integers(2, 5))) for _ in range(5))), 2 + more % 2),
        }[name]  # fmt: skip
        requests = [[some_text(rng, prompt), new_tokens] for prompt, new_tokens in sizes]
        cases[name] = [{"model": some_model(rng), "given": [requests, rows]}]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the tokens in `outputs` those that each request gets alone?"""
    return verdict(ServeCase, inputs, outputs)


class ServeCase(EngineCase):
    CALL = CALL
    LIST_OF = "a list of new tokens for each request"

    def went_in(self, call: dict[str, Any]) -> str:
        requests, rows = call["given"]
        sizes = ", ".join(f"{len(prompt)} + {new_tokens}" for prompt, new_tokens in requests)
        return f"rows = {rows}, requests of {sizes} tokens (prompt + new)"

    def expected(self, call: dict[str, Any]) -> list[Tokens]:
        model = call["model"]
        return [alone(model, prompt, new_tokens) for prompt, new_tokens in call["given"][0]]

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        found = (
            "This is what the engine gives as it was found. The first request of each row is right, later ones are not "
            "always: what do they find in their row?"
        )
        yield found, self.served(call, lambda slot, prompt, end: slot >= prompt)
        yield "Something is left in a row that is used again: its whole content.", self.served(call, lambda *_: True)
        yield (
            "The prompt of the request before is left in a row.",
            self.served(call, lambda slot, prompt, _: slot < prompt),
        )
        last = "The last token of the request before is left in a row."
        yield last, self.served(call, lambda slot, _, end: slot >= end - 1)
        yield "The first token of the request before is left in a row.", self.served(call, lambda slot, *_: slot == 0)

    def served(self, call: dict[str, Any], stays: Callable[[int, int, int], bool]) -> list[Tokens]:
        """All answers, if those slots of a finished request stay visible of which stays(slot, prompt, end) is true.

        Each row is a dictionary: slot → note.
        """
        model, (requests, rows) = call["model"], call["given"]
        content: list[dict[int, int]] = [{} for _ in range(rows)]
        answers: list[Tokens] = [[] for _ in requests]
        waiting, running = list(range(len(requests))), {}  # type: list[int], dict[int, int]
        while waiting or running:
            for row in range(rows):
                if row not in running and waiting:
                    running[row] = waiting.pop(0)
                    for p, token in enumerate(requests[running[row]][0]):
                        content[row][p] = note(model, token, p)
            for row, number in list(running.items()):
                prompt, new_tokens = requests[number]
                token = after(model, sum(content[row].values()))
                end = len(prompt) + len(answers[number])
                content[row][end] = note(model, token, end)
                answers[number].append(token)
                if len(answers[number]) == new_tokens:
                    kept = {s: each for s, each in content[row].items() if stays(s, len(prompt), end + 1)}
                    content[row] = kept
                    del running[row]
        return answers
