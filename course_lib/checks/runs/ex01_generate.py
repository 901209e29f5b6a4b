"""Runs a learner's `generate(model, prompt, …)` with models of its own and writes down what came back.

The one idea: the model is a table. Its logits after a token are a row of it, and which row depends on every token that
was read, in order; so whoever reads anything but the whole text gets other logits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch

from course_lib.checks.beside import as_plain, called, pair
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls

MOST_PASSES = 300
NAMES = ("new tokens", "tokens read")


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"table": [M, V], "prompt": [int],
    "max_new_tokens": int, "stop_tokens": [int], "max_positions": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    prompt, stop = list(call["prompt"]), list(call["stop_tokens"])
    model = model_of(call["table"], call["max_positions"])
    came = called(code, model, prompt, call["max_new_tokens"], stop, call["max_positions"])
    tokens, read = pair(came, NAMES)
    answer = {"tokens": as_plain(tokens, "the new tokens"), "read": as_plain(read, "the tokens read")}
    return answer | {"prompt": as_plain(prompt, "the prompt")}


def model_of(table: np.ndarray, max_positions: int) -> Callable[[Sequence[int]], torch.Tensor]:
    """A model: a function from tokens to logits [T, V]. It lets itself be called so many times and no more."""
    passes = count(1)

    def model(tokens: Sequence[int]) -> torch.Tensor:
        ids = [int(token) for token in tokens]
        if (number := next(passes)) > MOST_PASSES:
            raise RuntimeError(f"this is pass {number} of the model: where does your loop end?")
        if not ids:
            raise ValueError("the model was given no token to read")
        if len(ids) > max_positions:
            raise ValueError(f"the model was given {len(ids)} tokens and can read at most {max_positions}")
        rows, state = [], 0
        for token in ids:
            if not 0 <= token < table.shape[1]:
                raise ValueError(f"the model was given token {token}, it knows 0 to {table.shape[1] - 1}")
            state = (31 * state + token + 1) % len(table)
            rows.append(table[state])
        return torch.from_numpy(np.stack(rows))

    return model
