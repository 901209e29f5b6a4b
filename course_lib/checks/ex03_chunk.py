"""The check of ex03.chunk: the learner's `read_chunk(cache, layer, q, k, v)` reads a text in pieces of any size.

The one idea: however a text is cut, a token's output is that of one pass over the whole text. Most mistakes do not show
when a prompt is read at once and then token by token, so there are second chunks, in every kind of model. The reference
puts the pieces together again and is a loop in `ex03_attention`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, nearest, verdict
from course_lib.checks.contract import Verdict
from course_lib.checks.ex03_attention import (
    TOLERANCE,
    TOLERANCES,
    attention,
    beliefs,
    causal,
    near,
    rounded,
    same,
    unlike,
)
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex03_chunk import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "read_chunk", "read_chunk(cache, layer, q, k, v)"
CHUNKS, LOW = "chunks of several sizes", 3  # in this call of that case, all scores are far below zero
SECOND, INPUTS = "a second chunk does not see its future", "what was given stays as it was"
Calls = tuple[tuple[int, int, int], ...]


def passes(cache: int, layers: int, *sizes: int) -> Calls:
    """One pass after the other, each through all layers, of so many new tokens each."""
    return tuple((cache, layer, n) for n in sizes for layer in range(layers))


# Each case: (which cache, which layer, how many new tokens) for one call after the other.
CASES: dict[str, Calls] = {
    "a prompt in one chunk": passes(0, 1, 6),
    "one token after another": passes(0, 1, 1, 1, 1, 1),
    "a prompt, then single tokens": passes(0, 1, 5, 1, 1),
    SECOND: passes(0, 1, 4, 3),
    CHUNKS: passes(0, 1, 1, 3, 2, 6, 1, 4),
    "grouped heads": passes(0, 1, 3, 4, 1) + passes(1, 1, 3, 4, 1),
    "layers stay apart": passes(0, 8, 3, 2, 1),
    "two caches share nothing": passes(0, 2, 3) + passes(1, 2, 4) + passes(0, 2, 2) + passes(1, 2, 3),
    INPUTS: passes(0, 1, 3, 2, 1),
}
SHAPES = {"grouped heads": ((6, 2, 4), (4, 1, 6))}  # (H_q, H, D) of each cache
SHAPE = (2, 2, 4)  # of all others
LONGEST = max(sum(n for cache, layer, n in calls if cache == layer == 0) for calls in CASES.values())
NOT_CHECKED = f"speed, memory, more than one row, dtypes other than float32, texts of more than {LONGEST} tokens"


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"cache", "layer", "q" [H_q, n, D], "k" and "v" [H, n, D]}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, calls in CASES.items():
        cases[name] = []
        for number, (cache, layer, n) in enumerate(calls):
            H_q, H, D = SHAPES.get(name, (SHAPE, SHAPE))[cache]
            q, k, v = (1.5 * rng.standard_normal((heads, n, D)).astype(np.float32) for heads in (H_q, H, H))
            if name == CHUNKS:
                q, k, v = low(q, k, v, number == LOW)
            cases[name].append({"cache": cache, "layer": layer, "q": q, "k": k, "v": v})
    return {"cases": cases}


def low(q: Array, k: Array, v: Array, is_low: bool) -> tuple[Array, Array, Array]:
    """The same with keys of whole numbers that have one entry in common. Where `is_low`, the queries are whole numbers
    as well, all scores are about -1600, and every way to compute them gives exactly the same ones."""
    k, q = np.round(k), np.round(q) if is_low else q.copy()
    k[..., 0], q[..., 0] = 8, -400 if is_low else 0
    return q, k, v / 10  # such scores leave the weights of float32 fewer digits


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the `outputs` that `run` wrote down near the reference's?"""
    return verdict(ChunkCase, inputs, outputs)


class ChunkCase(Case):
    CALL = CALL

    def until(self, call: dict[str, Any]) -> list[dict[str, Any]]:
        """The calls of this case up to `call`, itself included."""
        number = next(number for number, each in enumerate(self.calls) if each is call)
        return self.calls[: number + 1]

    def text(self, call: dict[str, Any], which: str) -> Array:
        """All keys ("k") or values ("v") of the cache and layer of `call` so far, [H, T + n, D]."""
        at = (call["cache"], call["layer"])
        return np.concatenate([e[which] for e in self.until(call) if (e["cache"], e["layer"]) == at], axis=1)

    def went_in(self, call: dict[str, Any]) -> str:
        (H_q, n, D), H = call["q"].shape, len(call["k"])
        earlier = self.text(call, "k").shape[1] - n
        tokens = f"after {earlier} earlier token{'s' * (earlier != 1)}" if earlier else "as the first tokens"
        several = len({each["cache"] for each in self.calls}) > 1
        at = f"cache {'AB'[call['cache']]}, layer {call['layer']}" if several else f"layer {call['layer']}"
        return f"q of shape [{H_q}, {n}, {D}], k and v of shape [{H}, {n}, {D}] {tokens}, in {at}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        q, k, v = call["q"], self.text(call, "k"), self.text(call, "v")
        seen = causal(k.shape[1] - q.shape[1], q.shape[1])
        expected, tolerance, came = attention(q, k, v, seen), TOLERANCES["float32"], answer.get("output")  # [H_q, n, D]
        said, what_came = unlike(expected, came, "float32", FUNCTION)
        if said:
            return Wrong(said, f"shape {list(expected.shape)}", what_came)
        assert isinstance(came, np.ndarray)
        if near(expected, came, tolerance):
            return None
        if np.isnan(came).any():
            said = "There is a NaN (no number) in the output. Is there a token that may look at nothing at all?"
        else:
            said = nearest(came, expected, beliefs(q, k, v, seen), 10 * tolerance) or self.mixed_up(call, came)
        apart = ~(abs(expected - came) <= tolerance)  # NaN is apart from everything
        token = int(apart.any(axis=(0, 2)).argmax())
        head = int(apart[:, token].any(axis=1).argmax())
        said = said or "These are not the outputs of one pass over the whole text."
        place = f"head {head}, token {token} of the chunk"
        return Wrong(said, rounded(expected[head, token]), rounded(came[head, token]), place)

    def mixed_up(self, call: dict[str, Any], came: Array) -> str:
        """A sentence about an output that would be right if another layer or cache were this one as well."""
        *before, now = self.until(call)
        alike = [each for each in before if each["k"].shape[::2] == now["k"].shape[::2]]
        for which, fixed in (("layer", "cache"), ("cache", "layer")):
            earlier = [each for each in alike if each[fixed] == now[fixed]]
            for other in {each[which] for each in earlier} - {now[which]}:
                both = [each for each in earlier if each[which] in (other, now[which])] + [now]
                k, v = (np.concatenate([each[name] for each in both], axis=1) for name in "kv")
                n = now["q"].shape[1]
                mixed = attention(now["q"], k, v, causal(k.shape[1] - n, n))
                if near(mixed, came, 10 * TOLERANCES["float32"]):
                    return f"Keys and values of another {which} were looked at as well."
        return ""

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in GIVEN if told_in == INPUTS and not same(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make something new of it instead.") if changed else None
