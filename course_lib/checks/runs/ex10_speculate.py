"""Runs a learner's `speculate(target, draft, prompt, …)` on toy models and writes down tokens and passes.

The one idea: that of `ex10_toy`. The passes of both models are noted in one list, in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls
from course_lib.checks.runs.ex10_toy import Model

TARGET, DRAFT = 0, 1


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"target": the numbers of a Model, "draft":
    those of another, "slips": of the draft, "room": of each cache, "prompt": [int], "given": the arguments after the
    prompt}.

    An answer has "passes", [n, 4]: model, number of its cache, how many tokens the cache held, and how many were read;
    and "read", the tokens of all passes, one after the other.
    """
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    passes: list[list[int]] = []
    read: list[int] = []

    def note(model: int, cache: int, held: int, tokens: list[int]) -> None:
        passes.append([model, cache, held, len(tokens)])
        read.extend(tokens)

    target = Model(*call["target"], room=call["room"], note=partial(note, TARGET))
    draft = Model(*call["draft"], slips=call["slips"], room=call["room"], note=partial(note, DRAFT))
    prompt, (most, draft_tokens, stop_tokens) = list(call["prompt"]), call["given"]
    came = as_plain(called(code, target, draft, prompt, most, draft_tokens, list(stop_tokens)), "the new tokens")
    return {
        "tokens": came,
        "prompt": as_plain(prompt, "the prompt"),
        "passes": np.array(passes, dtype=np.int64).reshape(-1, 4),
        "read": np.array(read, dtype=np.int64),
    }
