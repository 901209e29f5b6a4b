"""What the bug hunts of ex05 share: texts, the tokens that should come, and the way to a sentence about wrong ones.

The one idea: an engine for many sequences gives each what it would get alone. So the reference reads each text by
itself, one token after the other, in plain whole numbers; rows, padding and slots do not occur in it. How an engine is
mended is up to the learner, so one that does the same is right as well, and earns its points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_array, what_came
from course_lib.checks.plain import Plain

Tokens: TypeAlias = "list[int]"
Numbers: TypeAlias = "list[int]"
Belief: TypeAlias = "tuple[str, list[Tokens]]"
PAD, VOCABULARY, NOTES = 0, 50_021, 99_991  # of the toy model, as its text says
TOLERANCE = "none. Tokens are whole numbers."
MOST_SHOWN = 8


def some_model(rng: np.random.Generator) -> Numbers:
    """The numbers of a toy model."""
    return [int(number) for number in rng.choice((101, 103, 107, 109, 113, 127, 131), 4, replace=False)]


def some_text(rng: np.random.Generator, length: int, pad_at: int | None = None) -> Tokens:
    """A text without the padding token, but for one at `pad_at`."""
    text = [int(token) for token in rng.integers(1, VOCABULARY, length)]
    if pad_at is not None:
        text[pad_at] = PAD
    return text


def three_lengths(rng: np.random.Generator) -> tuple[int, int, int]:
    """A short length, one in the middle and a long one."""
    return int(rng.integers(2, 4)), int(rng.integers(5, 7)), int(rng.integers(9, 13))


def note(model: Numbers, token: int, position: int) -> int:
    """What a token leaves in the cache."""
    return (token + 1) * (position**2 + model[0] * position + model[1]) % NOTES


def after(model: Numbers, seen: int) -> int:
    """The next token after notes whose sum is `seen`."""
    return (model[2] * seen + model[3]) % VOCABULARY


def alone(
    model: Numbers, prompt: Tokens, new_tokens: int, stands: Callable[[int], int] = lambda p: p, extra: int = 0
) -> Tokens:
    """New tokens of one text. `stands` says at which position new token number p of the text is placed, `extra` is the
    sum of notes that it sees beside its own; for an answer as it should be, neither is given."""
    seen, tokens = extra + sum(note(model, token, p) for p, token in enumerate(prompt)), []  # type: int, Tokens
    while len(tokens) < new_tokens:
        tokens.append(after(model, seen))
        seen += note(model, tokens[-1], stands(len(prompt) + len(tokens) - 1))
    return tokens


def tables(data: Plain, one_each: bool) -> list[Tokens] | None:
    """Tokens that came back, a list for each sequence; None for anything else.

    With `one_each`, a plain list of tokens will do.
    """
    if isinstance(data, np.ndarray):
        data = data.tolist() if data.dtype.kind in "iu" else None
    if not isinstance(data, list):
        return None
    made = []
    for row in data:
        array = np.array([row]) if one_each and type(row) is int else as_array(row)
        if (
            array is None
            or array.ndim > 1
            or array.ndim + one_each < 1
            or (array.size and array.dtype.kind not in "iu")
        ):
            return None
        made.append([int(token) for token in array.reshape(-1)])
    return made


class EngineCase(Case):
    """One case of a hunt: its calls run an engine. A check says what should come, and which beliefs there are."""

    LIST_OF = "a list of new tokens for each sequence"
    ONE_EACH = False

    def expected(self, call: dict[str, Any]) -> list[Tokens]:
        """The tokens of each sequence, as they would be if it were alone."""
        raise NotImplementedError

    def beliefs(self, call: dict[str, Any]) -> Iterator[Belief]:
        """Each way to go wrong: what there is to say, and the tokens of it."""
        raise NotImplementedError

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        data, expected = answer.get("tokens"), self.expected(call)
        if data is None:
            function = self.CALL.partition("(")[0]
            return Wrong(f"{function} returned None. Did you forget `return`?", came="None")
        came = tables(data, self.ONE_EACH)
        if came is None or len(came) != len(expected):
            return Wrong(
                f"There should be {self.LIST_OF}, in the order in which they were given.", came=what_came(data)
            )
        if came == expected:
            return None
        said = next((said for said, belief in self.beliefs(call) if belief == came), "")
        said = said or "A sequence should get the tokens that it gets alone, whoever is in the batch beside it."
        wrong = [number for number, row in enumerate(came) if row != expected[number]]
        b = wrong[0]
        right = [number for number in range(len(came)) if number not in wrong]
        where = f"sequence {b}" + (f"; right are those of {listed(right)}" if right else "")
        return Wrong(said, listed(expected[b]), listed(came[b]), where)


def listed(tokens: Tokens) -> str:
    shown = [str(token) for token in tokens[:MOST_SHOWN]] + ["…"] * (len(tokens) > MOST_SHOWN)
    return f"[{', '.join(shown)}]"
