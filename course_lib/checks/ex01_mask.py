"""The check of ex01.mask: the learner's `causal_mask(n, T)` says which keys each new token may look at.

The one idea: with as many queries as keys nearly every mask is right, so most cases have fewer queries. The reference
is a comparison of two positions in a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_array, nearest, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex01_mask import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "causal_mask", "causal_mask(n, T)"
TOLERANCE = "none. A key is looked at or it is not."
NOT_CHECKED = "speed, memory, batches, texts of more than 150 tokens"
FIRST, TRUTHS = "the first token of a text", "truth values, not numbers"
# Each case: from where to where the number of new tokens, and that of earlier ones, is drawn.
CASES: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    FIRST: ((1, 1), (0, 0)),
    "a prompt, nothing before it": ((4, 8), (0, 0)),
    "one token after earlier ones": ((1, 1), (3, 9)),
    "a few tokens after more earlier ones": ((2, 4), (5, 9)),
    "more tokens than there were before": ((6, 9), (1, 4)),
    "a long text": ((40, 60), (70, 90)),
    TRUTHS: ((5, 6), (2, 3)),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"n": int, "T": int}]}}."""
    rng = np.random.default_rng(seed)
    return {
        "cases": {
            name: [{"n": int(rng.integers(*new, endpoint=True)), "T": int(rng.integers(*earlier, endpoint=True))}]
            for name, (new, earlier) in CASES.items()
        }
    }


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: is the mask in `outputs` the right one?"""
    return verdict(MaskCase, inputs, outputs)


def reference(n: int, T: int) -> Array:
    """[n, T + n], True where key s stands no later than new token i, whose position is T + i."""
    return np.array([[s <= T + i for s in range(T + n)] for i in range(n)])


class MaskCase(Case):
    CALL = CALL
    IDLE = frozenset({FIRST})

    def went_in(self, call: dict[str, Any]) -> str:
        return f"n = {call['n']}, T = {call['T']}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        n, T = call["n"], call["T"]
        expected, came = reference(n, T).astype(int), answer.get("mask")
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        mask = as_array(came)
        if mask is None:
            said = "A table of truth values should come back: an array, a tensor, or a list of lists of one length."
            return Wrong(said, came=what_came(came))
        if mask.shape != expected.shape:
            said = about_shape(n, T, mask.shape)
            return Wrong(said, f"shape {list(expected.shape)}", f"shape {list(mask.shape)}")
        if (mask.dtype.kind == "f" and (mask <= 0).all()) or not np.isin(mask, (0, 1)).all():
            said = "This is a mask to be added to scores. Asked is where a token may look: True, or may not: False."
            return Wrong(said, "True and False", str(mask.dtype))
        if (mask == expected).all():
            return None
        truth = mask.astype(np.int64)
        said = nearest(truth, expected, beliefs(n, T), 0.0)
        said = said or "A token may look at all keys up to its own position, and no further."
        i = int((truth != expected).any(axis=1).argmax())
        s = int((truth[i] != expected[i]).argmax())
        return Wrong(said, f"{bool(expected[i, s])}", f"{bool(truth[i, s])}", f"row {i}, key {s}")

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        mask = as_array(answer.get("mask"))
        if told_in != TRUTHS or mask is None or mask.dtype.kind == "b":
            return None
        return Wrong("The mask should hold truth values. Compare positions, and you get them.", "bool", str(mask.dtype))


def about_shape(n: int, T: int, shape: tuple[int, ...]) -> str:
    """A sentence about a wrong shape, with the likeliest cause."""
    if shape == (T + n, T + n):
        return "There is a row for each token of the text. Only the new ones ask; the earlier ones have had their turn."
    if shape == (n, n):
        return "There are no columns for the earlier keys. New tokens look at those, too."
    if shape == (T + n, n):
        return "Rows and columns are exchanged: a row is a token that asks, a column is a key."
    if len(shape) == 1 and shape[0] == n * (T + n):
        return "The rows are all in one line. Asked is a table."
    return "There should be a row for each new token, and a column for each key: those of earlier tokens, then the new."


def beliefs(n: int, T: int) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Each way to go wrong: what there is to say, and the mask [n, T + n] of it, as numbers."""
    S = T + n
    if S == 1:
        alone = "The only token there is may see itself. Is the mask inside out, with True where a token may not look?"
        yield alone, lambda: np.zeros((1, 1), dtype=int)
    yield "The mask is inside out: it is True where a token may not look.", lambda: 1 - np.tri(n, S, T, dtype=int)
    early = f"The first new token stands at position {T}, not 0: the mask begins too early."
    yield early, lambda: np.tri(n, S, dtype=int)
    yield "A token does not see itself. It may.", lambda: np.tri(n, S, T - 1, dtype=int)
    yield "The mask hides nothing: tokens see later ones.", lambda: np.ones((n, S), dtype=int)
    yield "Each token sees one that comes after it.", lambda: np.tri(n, S, T + 1, dtype=int)
    old = "Only new tokens are looked at. The earlier ones may be seen as well."
    yield old, lambda: np.tri(n, S, T, dtype=int) * (np.arange(S) >= T)
    yield (
        "Only the earlier tokens are looked at, none of the new ones.",
        lambda: np.ones((n, 1), int) * (np.arange(S) < T),
    )
    turned = "The mask is turned round: tokens see later ones, and no earlier ones."
    yield turned, lambda: 1 - np.tri(n, S, T - 1, dtype=int)
    yield turned, lambda: 1 - np.tri(n, S, -1, dtype=int)
    mirrored = "The mask is upside down: the first of the new tokens sees most, the last sees least."
    yield mirrored, lambda: np.tri(n, S, T, dtype=int)[::-1]
    yield "Each token sees only itself.", lambda: np.eye(n, S, T, dtype=int)
    yield "The mask hides everything.", lambda: np.zeros((n, S), dtype=int)
