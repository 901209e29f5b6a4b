"""The check of ex05.rows: the learner's `Rows(keys, values)` keeps several rows in one memory, and forgets them again.

The one idea: the memory is the grader's. It is looked at after each call, and in one case all of it that nobody may
read is NaN, so whoever reads too much cannot be right by luck; in another a number in it is changed, so whoever reads
elsewhere is seen. The reference keeps each row in a list of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import exp, sqrt
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, verdict, what_came
from course_lib.checks.contract import Verdict, numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex05_rows import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "Rows", "Rows(keys, values)"
NEAR = 1e-4
TOLERANCE = "1e-4 for what is attended to, none for what lies in the memory."
NOT_CHECKED = "several heads or layers, prompts in one attend, speed, that a row which holds nothing is released again"
TOKENS, CHUNKS, SIDE = "one row, a token at a time", "one row, several tokens at a time", "rows of different lengths"
STAYS, REUSE, SPOILED = (
    "the others stay when a row is released",
    "a released row is used again",
    "freed memory holds NaN",
)
EMPTY, FULL, HERE = "a row that holds nothing", "more tokens than fit", "a number in the memory is changed"
W, A, R, C = "write", "attend", "release", "change"
# Each case: (rows, slots of a row), then what is done: (W, row, new tokens), (A,), (R, row), (C, row, slot).
Day = tuple[tuple[Any, ...], ...]
CASES: dict[str, tuple[tuple[int, int], Day]] = {
    TOKENS: ((1, 6), ((W, 0, 1), (A,), (W, 0, 1), (A,), (W, 0, 1), (A,))),
    CHUNKS: ((1, 9), ((W, 0, 4), (A,), (W, 0, 1), (A,), (W, 0, 3), (A,))),
    SIDE: ((3, 8), ((W, 1, 5), (W, 0, 3), (W, 2, 1), (A,), (W, 0, 1), (W, 2, 2), (A,), (W, 1, 1), (A,))),
    STAYS: ((3, 8), ((W, 0, 4), (W, 1, 6), (W, 2, 2), (A,), (R, 1), (A,), (W, 2, 1), (W, 0, 1), (A,))),
    REUSE: ((2, 8), ((W, 0, 6), (W, 1, 3), (A,), (R, 0), (W, 0, 2), (A,), (W, 0, 1), (A,), (R, 1), (W, 1, 4), (A,))),
    SPOILED: ((2, 8), ((W, 0, 5), (W, 1, 2), (A,), (R, 0), (W, 0, 3), (W, 1, 1), (A,))),
    EMPTY: ((3, 6), ((W, 1, 4), (A,), (R, 1), (W, 2, 1), (A,))),
    FULL: (
        (2, 6),
        ((W, 0, 4), (W, 1, 6), (W, 0, 3), (A,), (W, 0, 2), (W, 1, 1), (A,), (R, 1), (W, 1, 7), (W, 1, 6), (A,)),
    ),
    HERE: ((2, 7), ((W, 0, 4), (W, 1, 2), (A,), (C, 0, 1), (C, 1, 0), (A,), (W, 0, 1), (C, 0, 4), (A,))),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"do": "make", …}, {"do": …}, …]}}."""
    rng = np.random.default_rng(seed)
    D = 4
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, ((B, S), day) in CASES.items():
        memory = np.full((B, S, D), np.nan if name == SPOILED else 0.0, dtype=np.float32)
        calls: list[dict[str, Any]] = [{"do": "make", "keys": memory, "values": memory, "spoil": name == SPOILED}]
        for do, *what in day:
            call: dict[str, Any] = {"do": do}
            if do == A:
                call["q"] = 1.5 * rng.standard_normal((B, D))
            else:
                call["row"] = what[0]
            if do == W:
                call |= {"k": rng.standard_normal((what[1], D)), "v": 3 * rng.standard_normal((what[1], D))}
            if do == C:
                call |= {"slot": what[1], "k": rng.standard_normal(D), "v": 5 + rng.standard_normal(D)}
            calls.append({key: part.astype(np.float32) if key in "qkv" else part for key, part in call.items()})
        cases[name] = calls
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do memory and outputs in `outputs` follow from what was done?"""
    return verdict(RowsCase, inputs, outputs)


def attention(q: Array, keys: Array, values: Array) -> Array:
    """softmax(q · k / √D) · v of one query over some tokens [n, D], one after the other; zeros over none."""
    output = np.zeros(len(q))
    scores = [float(np.dot(q.astype(np.float64), key)) / sqrt(len(q)) for key in keys.astype(np.float64)]
    weights = [exp(score - max(scores)) for score in scores]
    for weight, value in zip(weights, values, strict=True):
        output += weight / sum(weights) * value
    return output


class RowsCase(Case):
    CALL = CALL

    def __init__(self, name: str, calls: list[dict[str, Any]], answer: dict[str, Plain]) -> None:
        super().__init__(name, calls, answer)
        self.B, self.S, self.D = calls[0]["keys"].shape
        self.held: list[list[tuple[Array, Array]]] = [[] for _ in range(self.B)]  # by hand: (key, value) of each token
        self.changed = False  # whether anything in the memory was changed from outside
        self.before: list[int] = [0] * self.B  # tokens of each row when it was released last

    def went_in(self, call: dict[str, Any]) -> str:
        done = {
            "make": f"Rows for {self.B} rows of {self.S} slots",
            W: f"write({call.get('row')}, k, v) with {len(call.get('k', ()))} tokens",
            A: "attend(q)",
            R: f"release({call.get('row')})",
            C: f"not a call: the memory of row {call.get('row')}, slot {call.get('slot')}, is changed",
        }[call["do"]]
        return f"{done}; tokens in the rows so far: {[len(row) for row in self.held]}"

    def ended(self) -> Wrong:
        """Why answers are missing; where tokens did not fit, with what should have come."""
        wrong, number = super().ended(), len(self.answers)
        call: dict[str, Any] = self.calls[number] if number < len(self.calls) else {"do": ""}
        if call["do"] == W and len(self.held[call["row"]]) + len(call["k"]) > self.S:
            return replace(wrong, expected="ValueError")
        return wrong

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with what a call did. Calls are judged in their order; `held` goes along."""
        fits, at = True, 0
        if call["do"] == W:
            row, at = self.held[call["row"]], len(self.held[call["row"]])
            fits = at + len(call["k"]) <= self.S
            if fits:
                row += zip(call["k"], call["v"], strict=True)
        elif call["do"] == R:
            self.before[call["row"]] = len(self.held[call["row"]])
            self.held[call["row"]] = []
        elif call["do"] == C:
            self.changed = True
            self.held[call["row"]][call["slot"]] = call["k"], call["v"]
        if call["do"] not in ("make", C) and answer.get("refused") is not (not fits):
            if fits:
                return Wrong("It raised ValueError, though there is nothing to refuse.", "no error", "ValueError")
            return Wrong("These tokens do not fit into the row: raise ValueError.", "ValueError", "no error")
        return self.memory_wrong(call, answer, at, fits) or (
            self.output_wrong(call, answer) if call["do"] == A else None
        )

    def memory_wrong(self, call: dict[str, Any], answer: dict[str, Plain], at: int, fits: bool) -> Wrong | None:
        """What is wrong with the memory in which the tokens of all rows should lie."""
        for name, which in (("keys", 0), ("values", 1)):
            memory = answer.get(name)
            if not isinstance(memory, np.ndarray) or memory.shape != (self.B, self.S, self.D):
                return Wrong(f"The memory {name} is not what it was.", came=what_came(memory))
            for b, row in enumerate(self.held):
                for p, token in enumerate(row):
                    if not np.array_equal(memory[b, p], token[which]):
                        said = self.about_memory(call, memory, b, p, at, fits, which)
                        return Wrong(said, numbers(token[which]), numbers(memory[b, p]), f"{name}[{b}, {p}]")
        return None

    def about_memory(self, call: dict[str, Any], memory: Array, b: int, p: int, at: int, fits: bool, which: int) -> str:
        if not fits:
            return "It refused, but something had been written already. Look whether there is room before you write."
        if call["do"] != W or b != call["row"]:
            return f"A token of row {b} was changed, which has nothing to do with this call."
        if p < at:
            return "A token that the row had before was written over. New ones go behind those that are there."
        new = call["kv"[which]][p - at]
        found = [(int(r), int(s)) for r, s in np.argwhere((memory == new).all(axis=2))]
        if not found:
            other = memory == call["vk"[which]][p - at]
            if other.all(axis=2).any():
                return "Keys and values are exchanged."
            return "The new token is nowhere in this memory. keys and values are where it has to be kept."
        r, s = found[0]
        if r != b:
            return f"The new token lies in row {r}. It belongs to row {b}."
        if s == p + self.before[b] and self.before[b]:
            return "The row goes on behind the tokens that it had before it was released. It begins at slot 0 again."
        return f"Token number {p} of a row belongs in slot {p}; it lies in slot {s}."

    def output_wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        came = answer.get("output")
        if came is None:
            return Wrong("attend returned None. Did you forget `return`?", came="None")
        if not isinstance(came, np.ndarray) or came.shape != (self.B, self.D) or came.dtype.kind != "f":
            said = f"attend should return an output for each row, of shape {[self.B, self.D]}."
            return Wrong(said, came=what_came(came))
        keys, values = answer["keys"], answer["values"]
        assert isinstance(keys, np.ndarray) and isinstance(values, np.ndarray)
        for b, row in enumerate(self.held):
            if not row and self.name != EMPTY:  # that is told in a case of its own
                continue
            q, held = call["q"][b], np.array(row).reshape(-1, 2, self.D)
            expected = attention(q, held[:, 0], held[:, 1])
            if (abs(came[b] - expected) <= NEAR).all():
                continue
            said = self.about_output(came[b], q, keys, values, b)
            return Wrong(said, shown(expected), shown(came[b]), f"row {b}, which holds {len(row)} tokens")
        return None

    def about_output(self, came: Array, q: Array, keys: Array, values: Array, b: int) -> str:
        """The belief behind a wrong output of row b, or what should have come."""
        n = len(self.held[b])
        if not n:
            return "A row that holds nothing has nothing to attend to: its output is zeros."
        if np.isnan(came).any():
            if self.name == SPOILED:
                return (
                    "There is a NaN (no number) in the output: something was read that no token wrote. A weight of 0 "
                    "does not hide it, since 0 · NaN is NaN."
                )
            return "There is a NaN (no number) in the output."
        for said, belief in self.beliefs(q, keys, values, b, n):
            if (abs(came - belief) <= NEAR).all():
                return said
        if self.changed:
            return (
                "A token was changed in the memory since. Tokens are kept there and nowhere else: read them from there."
            )
        return "The output is not the mean of the row's values, weighted by softmax(q · k / √D)."

    def beliefs(self, q: Array, keys: Array, values: Array, b: int, n: int) -> Iterator[tuple[str, Array]]:
        """Each way to go wrong: what there is to say, and the output [D] of it."""
        lengths = [len(row) for row in self.held]
        everything = "Slots that hold nothing of this row were attended to as well: a row ends at its own length."
        if self.before[b] > n:
            old = "Tokens of the text that was released were attended to as well."
            yield old, attention(q, keys[b, : self.before[b]], values[b, : self.before[b]])
        for end in {self.S, max(lengths), max(lengths) + 1, n + 1} - {n}:
            yield everything, attention(q, keys[b, :end], values[b, :end])
        for end in {lengths[0], lengths[-1], min(lengths)} - {n, 0}:
            yield "The length of another row was taken.", attention(q, keys[b, :end], values[b, :end])
        newest = "The newest token is missing: a token looks at itself, too."
        yield newest, attention(q, keys[b, : n - 1], values[b, : n - 1])
        yield "The scores were not divided by √D.", attention(q * sqrt(self.D), keys[b, :n], values[b, :n])
        yield "The keys were mixed, not the values.", attention(q, keys[b, :n], keys[b, :n])
        yield (
            "This is a plain average of the values: the keys play no part.",
            attention(0 * q, keys[b, :n], values[b, :n]),
        )
        yield "Only the newest token was attended to.", attention(q, keys[b, n - 1 : n], values[b, n - 1 : n])
        yield (
            "This is what a row that holds nothing gives. The row was emptied, or its tokens not counted.",
            np.zeros(self.D),
        )
        for other in range(self.B):
            yield (
                "The tokens of another row were attended to.",
                attention(q, keys[other, : lengths[other]], values[other, : lengths[other]]),
            )


def shown(vector: Array) -> str:
    return f"[{', '.join(f'{x:.4g}' for x in vector)}]"
