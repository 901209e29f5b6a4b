"""The check of ex03.append: the learner's `append(cache, layer, k, v)` keeps keys and values and returns all of them.

The one idea: every number that goes in is a different one, so the judge can say of a wrong one where it comes from.
The reference below is two lines of NumPy and shares no code with the caches of the library. Numbers are whole and
small, so that any format holds them; one case has long fractions, and that one tells who rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy import concatenate  # by name: nobody can exchange it later

from course_lib.checks.contract import (
    Line,
    Verdict,
    first_difference,
    is_unsolved,
    numbers,
    part,
    why_it_ended,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex03_append import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "append", "append(cache, layer, k, v)"
TOLERANCE = "none. A cache copies numbers and computes nothing, so what comes out equals what went in."
NOT_CHECKED = "speed, memory, more than one row"

# Each case: (which cache, which layer, how many new tokens) for one call after the other.
EARLIER, INPUTS = "what was returned earlier stays as it was", "k and v are left as they were"
PRECISION, LONGER = "numbers keep their precision", "another model, a longer text"
CASES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "one token into an empty cache": ((0, 0, 1),),
    "a prompt into an empty cache": ((0, 0, 5),),
    "one token after another": ((0, 0, 1),) * 4,
    "a chunk after single tokens": ((0, 0, 1), (0, 0, 1), (0, 0, 3), (0, 0, 2)),
    "layers stay apart": ((0, 0, 1), (0, 1, 1), (0, 2, 1)) * 3,
    "two caches share nothing": ((0, 0, 1), (1, 0, 1), (0, 0, 1), (1, 0, 1), (1, 0, 1)),
    EARLIER: ((0, 0, 1),) * 3,
    INPUTS: ((0, 0, 1),) * 3,
    PRECISION: ((0, 0, 1), (0, 0, 1), (1, 0, 1), (1, 0, 1)),  # cache 0 in float32, cache 1 in float64
    LONGER: ((0, 0, 30), (0, 1, 30), (0, 0, 1), (0, 1, 1), (0, 0, 8), (0, 1, 8)),
}
LARGEST = 2047  # whole numbers up to here are exact even in float16


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"cache", "layer", "k" [H, n, D], "v" [H, n, D]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, calls in CASES.items():
        H, D = (3, 2) if name == LONGER else (2, 4)
        whole = rng.permutation(concatenate((np.arange(-LARGEST, 0), np.arange(1, LARGEST + 1))))
        fresh = (rng.standard_normal(len(whole)) if name == PRECISION else whole.astype(float)).reshape(-1, 2)
        cases[name] = []
        for cache, layer, n in calls:
            taken, fresh = fresh[: H * n * D], fresh[H * n * D :]
            dtype = np.float64 if name == PRECISION and cache == 1 else np.float32
            k, v = (half.reshape(H, n, D).astype(dtype) for half in taken.T)
            cases[name].append({"cache": cache, "layer": layer, "k": k, "v": v})
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do the `outputs` that `run` wrote down equal the reference's?"""
    cases: dict[str, list[dict[str, Any]]] = inputs["cases"]
    if is_unsolved(outputs, list(cases)):
        return Verdict((), unsolved=True)
    return Verdict(tuple(Case(name, cases).line(part(outputs, "cases", name)) for name in cases))


def reference(calls: list[dict[str, Any]], number: int, which: str) -> np.ndarray:
    """All keys (`which` "k") or values ("v") that call `number` should return: those of its cache and layer so far."""
    now = calls[number]
    same = [call for call in calls[: number + 1] if (call["cache"], call["layer"]) == (now["cache"], now["layer"])]
    return concatenate([call[which] for call in same], axis=1)  # [H, T + n, D]


@dataclass(frozen=True)
class Case:
    """One case under judgement; `drawn` holds the inputs of all cases, to say where a wrong number comes from."""

    name: str
    drawn: dict[str, list[dict[str, Any]]]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.drawn[self.name]

    def line(self, answer: dict[str, Plain]) -> Line:
        answers = answer.get("calls")
        answers = answers if isinstance(answers, list) else []
        for number in range(len(self.calls)):
            if number >= len(answers):
                said, came = why_it_ended(part(answer, "ended"), CALL)
                return self.failed(number, "", said, came=came)
            wrong = self.returned(number, part(answers[number])) or self.kept(number, part(answers[number]))
            if wrong:
                return wrong
        return Line(self.name, True)

    def returned(self, number: int, answer: dict[str, Plain]) -> Line | None:
        """What is wrong with what a call returned, if anything is."""
        for which in ("keys", "values"):
            expected, came = reference(self.calls, number, which[0]), answer.get(which)
            if not isinstance(came, np.ndarray):
                said = f"The {which} should be one tensor."
                if isinstance(came, list):
                    said += " Join the parts, for example with torch.cat."
                return self.failed(number, which, said, came="a list" if isinstance(came, list) else "no tensor")
            if came.shape != expected.shape:
                return self.failed(
                    number, which, self.about_shape(number, expected, came), came=f"shape {list(came.shape)}"
                )
            place = first_difference(expected, came, order=(1, 0, 2))  # by token, then head
            if place:
                return self.differs(number, which, expected, came, place)
            if self.name == PRECISION and came.dtype != expected.dtype:
                said = f"The {which} went in as {expected.dtype}. Room for them has to be made in the dtype of k."
                return self.failed(number, which, said, f"{expected.dtype}", f"{came.dtype}")
        return None

    def kept(self, number: int, answer: dict[str, Plain]) -> Line | None:
        """What a call changed that it should have left alone, if it did and this case is about that."""
        call = self.calls[number]
        for which in ("keys", "values"):
            before, after = call[which[0]], answer.get(which[0])
            if self.name == INPUTS and not same(before, after):
                said = f"The call changed {which[0]}, the tensor that it was given. Copy it before you change it."
                return self.failed(number, which, said, f"{which[0]} as before, {some(before)}", some(after))
            before, after = reference(self.calls, number, which[0]), answer.get(f"{which}_later")
            if self.name == EARLIER and not same(before, after):
                said = f"The {which} that this call returned were right, but a later call changed them."
                return self.failed(number, which, said, some(before), some(after))
        return None

    def about_shape(self, number: int, expected: np.ndarray, came: np.ndarray) -> str:
        """A sentence about a wrong shape, with the likeliest cause."""
        new, want, got = self.calls[number]["k"].shape, expected.shape, came.shape
        if got == new:
            return "Only the new tokens came back; the earlier ones are missing."
        if len(got) != 3:
            return "The shape has to be [heads, tokens, head_dim]."
        if got[1] == want[1] or sorted(got) == sorted(want):
            return "The axes are not [heads, tokens, head_dim]."
        if (got[0], got[2]) == (want[0], want[2]):
            return f"{'More' if got[1] > want[1] else 'Fewer'} tokens came back than this cache has seen in this layer."
        return "The parts were joined along another axis than that of the tokens, the second one."

    def differs(self, number: int, which: str, expected: np.ndarray, came: np.ndarray, place: tuple[int, ...]) -> Line:
        head, token, entry = place
        want, got = expected[head, token], came[head, token]  # [D]
        if self.name == PRECISION:  # long fractions: the one that differs is enough
            want, got = want[entry : entry + 1], got[entry : entry + 1]
        what_came, said = self.source(number, which, head, expected[head, token], came[head, token])
        return self.failed(
            number, which, said,
            f"{numbers(want)}, the {which[:-1]} of token {token} in head {head}", f"{numbers(got)}{what_came}",
            f"head {head}, token {token}, entry {entry}",
        )  # fmt: skip

    def source(self, number: int, which: str, at_head: int, want: np.ndarray, got: np.ndarray) -> tuple[str, str]:
        """Where the vector `got` [D] comes from, and a sentence about it."""
        now = self.calls[number]
        for name in (self.name, *self.drawn):
            for kind, cache, layer, head, token in found(self.drawn[name], got):
                here = f", the {kind} of token {token} in head {head}"
                if name != self.name:
                    return f"{here} in the case “{name}”", "Something outlives the cache that it was put into."
                if cache != now["cache"]:
                    return f"{here} in the other cache", "The two caches share memory."
                if layer != now["layer"]:
                    return f"{here} in layer {layer}", "A number of another layer came back."
                if kind != which[:-1]:
                    return here, "Keys and values are mixed up."
                if head != at_head:
                    return here, "The heads are mixed up."
                return here, "The tokens are not in the order in which they came, or one has been overwritten."
        if not got.any():
            return ", never written", "These are zeros: nothing was written there."
        if (got != got).any():
            return "", "There is a NaN (no number) among them: memory that was never written?"
        if abs(want - got).max() <= abs(want).max() / 128:
            return ", rounded", "The number is nearly right: something has rounded it."
        return "", "No key and no value that went in has these numbers. A cache keeps, it does not compute."

    def failed(self, number: int, which: str, said: str, expected: str = "", came: str = "", place: str = "") -> Line:
        """The line of this case, which failed at call `number`: at its keys, its values, or ("") as a whole."""
        call, want = self.calls[number], reference(self.calls, number, "k")
        H, n, D = call["k"].shape
        earlier = want.shape[1] - n
        tokens = f"after {earlier} earlier token{'s' * (earlier != 1)}" if earlier else "as the first tokens"
        dtype = f" in {call['k'].dtype}" if self.name == PRECISION else ""
        several = len({call["cache"] for call in self.calls}) > 1
        cache = f"cache {'AB'[call['cache']]}" if several else ""
        where = (f"call {number + 1} of {len(self.calls)}", cache, f"layer {call['layer']}", which, place)
        return Line(
            self.name,
            passed=False,
            said=said,
            went_in=f"k and v of shape [{H}, {n}, {D}]{dtype} {tokens}",
            expected=expected or f"{which or 'keys and values'} of shape {list(want.shape)}",
            came_out=came,
            where=", ".join(filter(None, where)),
        )


def found(calls: list[dict[str, Any]], vector: np.ndarray) -> list[tuple[str, int, int, int, int]]:
    """Where a vector [D] went in: (key or value, cache, layer, head, token), if it did."""
    places, seen = [], {(call["cache"], call["layer"]): 0 for call in calls}
    for call in calls:
        at = (call["cache"], call["layer"])
        for kind in ("key", "value"):
            new = call[kind[0]]  # [H, n, D]
            if new.shape[-1] == vector.shape[-1]:
                heads, tokens = (new == vector).all(axis=-1).nonzero()
                places += [(kind, *at, int(head), seen[at] + int(token)) for head, token in zip(heads, tokens)]
        seen[at] += call["k"].shape[1]
    return places


def same(before: np.ndarray, after: Plain) -> bool:
    return isinstance(after, np.ndarray) and before.shape == after.shape and bool((before == after).all())


def some(data: Plain) -> str:
    """The first vector of an array [H, n, D] and how large the array is."""
    if not isinstance(data, np.ndarray):
        return "no tensor"
    if data.ndim != 3 or not data.size:
        return f"shape {list(data.shape)}"
    return f"shape {list(data.shape)}, beginning with {numbers(data[0, 0])}"
