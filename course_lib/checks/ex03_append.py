"""The check of ex03.append: the learner's `append(cache, layer, k, v)` keeps keys and values and returns all of them.

The one idea: every number that goes in is a different one, so the judge can say of a wrong one where it comes from.
The reference below is two lines of NumPy and shares no code with the caches of the library. Numbers are whole and
small, so that any format holds them; one case has long fractions, and that one tells who rounds. What holds for every
call, whatever its case is about, is judged in every case and told in the one that is named after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy import concatenate  # by name: nobody can exchange it later

from course_lib.checks.compare import beside_others
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

ONE, PROMPT = "one token into an empty cache", "a prompt into an empty cache"
EARLIER, INPUTS = "what was returned earlier stays as it was", "k and v are left as they were"
LAYERS, PRECISION, LONGER = "layers stay apart", "numbers keep their precision", "other models, a longer text"
Calls = tuple[tuple[int, int, int], ...]


def passes(cache: int, layers: int, *sizes: int) -> Calls:
    """One pass after the other, each through all layers, as a model calls its cache; of so many new tokens each."""
    return tuple((cache, layer, n) for n in sizes for layer in range(layers))


# Each case: (which cache, which layer, how many new tokens) for one call after the other. In each cache the layers
# come from 0 upwards, as they do in a model: a cache may count on that.
CASES: dict[str, Calls] = {
    ONE: ((0, 0, 1),),
    PROMPT: ((0, 0, 5),),
    "one token after another": ((0, 0, 1),) * 4,
    "a chunk after single tokens": tuple((0, 0, n) for n in (1, 1, 3, 2, 4, 5, 6, 7)),
    LAYERS: passes(0, 32, 1, 1),
    "two caches share nothing": sum((passes(cache, 4, 1) for cache in (0, 1, 0, 1, 1)), ()),
    EARLIER: ((0, 0, 1),) * 3,
    INPUTS: ((0, 0, 1),) * 3,
    PRECISION: passes(0, 5, 24, 1, 6) + passes(1, 5, 1, 16, 1) + passes(2, 5, 4, 1, 2) + passes(3, 5, 1, 1, 3),
    LONGER: passes(0, 2, 30, 1, 8, 40, 32, 28, 1)
    + passes(1, 2, 5, 1) + passes(2, 2, 5, 1) + passes(3, 2, 5, 1),
}  # fmt: skip
SHAPES: dict[str, tuple[tuple[int, int], ...]] = {LONGER: ((3, 2), (1, 2), (4, 2), (8, 2))}  # (H, D) of each cache
SHAPE = (2, 4)  # (H, D) of all others
DTYPES = (np.float32, np.float64, np.float16, np.float32)  # of the caches of PRECISION; all others are in float32
LARGEST = 2047  # whole numbers up to here are exact even in float16


def shape_of(case: str, cache: int) -> tuple[int, int]:
    return SHAPES[case][cache] if case in SHAPES else SHAPE


def sizes_tried() -> str:
    """How far the cases go, in words: made from the cases, so it says what is true of them."""
    heads = sorted({shape_of(case, cache)[0] for case, calls in CASES.items() for cache, _, _ in calls})
    layers = 1 + max(layer for calls in CASES.values() for _, layer, _ in calls)
    chunk = max(n for calls in CASES.values() for _, _, n in calls)
    seen: dict[tuple[str, int, int], int] = {}
    for case, calls in CASES.items():
        for cache, layer, n in calls:
            seen[case, cache, layer] = seen.get((case, cache, layer), 0) + n
    tried = (
        f"{', '.join(map(str, heads[:-1]))} and {heads[-1]} heads",
        f"up to {layers} layers",
        f"up to {max(seen.values())} tokens",
        f"up to {chunk} at once",
        ", ".join(dict.fromkeys(str(np.dtype(kind)) for kind in DTYPES)),
    )
    return f"sizes other than those tried ({', '.join(tried)})"


NOT_CHECKED = f"speed, memory, more than one row, {sizes_tried()}"


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"cache", "layer", "k" [H, n, D], "v" [H, n, D]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, calls in CASES.items():
        whole = rng.permutation(concatenate((np.arange(-LARGEST, 0), np.arange(1, LARGEST + 1)))).astype(float)
        thirds = rng.permutation(np.arange(-8192, 8192) + 1 / 3)  # no format holds one of them
        pools = {False: whole.reshape(-1, 2), True: thirds.reshape(-1, 2)}
        cases[name] = []
        for cache, layer, n in calls:
            H, D = shape_of(name, cache)
            dtype = DTYPES[cache] if name == PRECISION else DTYPES[0]
            fractions = name == PRECISION and dtype is not np.float16  # whole numbers are all different in float16, too
            taken, pools[fractions] = pools[fractions][: H * n * D], pools[fractions][H * n * D :]
            k, v = (half.reshape(H, n, D).astype(dtype) for half in taken.T)
            cases[name].append({"cache": cache, "layer": layer, "k": k, "v": v})
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do the `outputs` that `run` wrote down equal the reference's?"""
    drawn: dict[str, list[dict[str, Any]]] = inputs["cases"]
    if is_unsolved(outputs, list(drawn)):
        return Verdict((), unsolved=True)
    cases = [Case(name, drawn, part(outputs, "cases", name)) for name in drawn]
    with np.errstate(all="ignore"):  # forged numbers may be of any size
        return beside_others([case.line(cases) for case in cases], (ONE, PROMPT))


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
    answer: dict[str, Plain]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return self.drawn[self.name]

    @cached_property
    def answers(self) -> list[dict[str, Plain]]:
        """What came back from each call, as far as anything did."""
        answers = self.answer.get("calls")
        return [part(answer) for answer in answers] if isinstance(answers, list) else []

    def line(self, cases: Sequence[Case]) -> Line:
        """The line of this case among all `cases`: its own calls, then what it stands for in every case."""
        rules = {INPUTS: Case.changed_inputs, EARLIER: Case.changed_returns, PRECISION: Case.changed_dtypes}
        rule: Callable[[Case], Line | None] | None = rules.get(self.name)
        if self.wrong or rule is None:
            return self.wrong or Line(self.name, True)
        for case in (self, *(case for case in cases if case is not self)):
            if wrong := rule(case):
                where = wrong.where if case is self else f"in the case “{case.name}”, {wrong.where}"
                return replace(wrong, case=self.name, where=where)
        return Line(self.name, True)

    @cached_property
    def wrong(self) -> Line | None:
        """What is wrong with the numbers that the calls of this case returned, or with how it ended, if anything is."""
        for number in range(len(self.calls)):
            if number >= len(self.answers):
                said, came = why_it_ended(part(self.answer, "ended"), CALL)
                return self.failed(number, "", said, came=came)
            if wrong := self.returned(number, self.answers[number]):
                return wrong
        if self.answer.get("ended") is not None or len(self.answers) > len(self.calls):
            said, came = why_it_ended(part(self.answer, "ended"), CALL)
            return self.failed(len(self.calls) - 1, "", said, came=came)
        return None

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
        return None

    def changed_dtypes(self) -> Line | None:
        """A call of this case that returned right numbers in another dtype, if one did."""
        for number, (call, answer) in enumerate(zip(self.calls, self.answers) if self.wrong is None else ()):
            for which in ("keys", "values"):
                went_in, came = call[which[0]].dtype, answer[which]
                assert isinstance(came, np.ndarray)  # else something is wrong already
                if came.dtype != went_in:
                    said = f"The {which} went in as {went_in}. Room for them has to be made in the dtype of k."
                    return self.failed(number, which, said, f"{went_in}", f"{came.dtype}")
        return None

    def changed_inputs(self) -> Line | None:
        """A call of this case after which k or v was another than before, if there is one."""
        for number, (call, answer) in enumerate(zip(self.calls, self.answers)):
            for which in ("keys", "values"):
                name, before = which[0], call[which[0]]
                if not same(before, answer.get(name)):
                    said = f"The call changed {name}, the tensor that it was given. Copy it before you change it."
                    return self.failed(number, which, said, f"{name} as before, {some(before)}", some(answer.get(name)))
                later = answer.get(f"{name}_later")
                if self.wrong is None and not same(before, later):
                    said = f"A later call changed the {name} of this one. Copy it before you change it."
                    return self.failed(number, which, said, f"{name} as before, {some(before)}", some(later))
        return None

    def changed_returns(self) -> Line | None:
        """A call of this case that returned what was right then, but is no longer, if there is one."""
        for number, answer in enumerate(self.answers if self.wrong is None else ()):
            for which in ("keys", "values"):
                before, after = reference(self.calls, number, which[0]), answer.get(f"{which}_later")
                if not equal(before, after):
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
        cache = f"cache {'ABCD'[call['cache']]}" if several else ""
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


def equal(before: np.ndarray, after: Plain) -> bool:
    """The same shape and numbers, in whatever dtype."""
    return isinstance(after, np.ndarray) and before.shape == after.shape and bool((before == after).all())


def same(before: np.ndarray, after: Plain) -> bool:
    return isinstance(after, np.ndarray) and before.dtype == after.dtype and equal(before, after)


def some(data: Plain) -> str:
    """The first vector of an array [H, n, D] and how large the array is."""
    if not isinstance(data, np.ndarray):
        return "no tensor"
    if data.ndim != 3 or not data.size:
        return f"shape {list(data.shape)}"
    return f"shape {list(data.shape)}, beginning with {numbers(data[0, 0])}"
