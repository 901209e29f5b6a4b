"""The check of ex04.bytes: the learner's `cache_bytes(...)` computes the size of a cache from the shape of a model.

The one idea: with one sequence, as many KV heads as query heads and 2 bytes for a number, several wrong formulas are
right; each case parts them from the right one. With scales a row takes half a byte more or less, and only all rows
together a whole number. The reference goes from layer to layer and adds up rows, in fractions.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex04_bytes import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION = "cache_bytes"
CALL = "cache_bytes(n_layers, n_heads, n_kv_heads, head_dim, tokens, sequences, bytes_per_element)"
TOLERANCE = "none. All numbers are small enough to be exact, as a float too."
NOT_CHECKED = "windows, caches that keep a latent, blocks, numbers that make no sense"
PLAIN_HEADS = "a KV head for each query head"
SHARED, MANY, EMPTY = "query heads share KV heads", "several sequences", "nothing is in the cache yet"
WIDTHS, SCALES, LARGE = (
    "numbers of 4 bytes and of 1 byte",
    "numbers with scales, 17/16 of a byte and less",
    "a large model",
)
BYTES = {WIDTHS: (8, 1), SCALES: (1.0625, 0.5625)}  # one call each; everywhere else one call, with 2 bytes
CASES = (PLAIN_HEADS, SHARED, MANY, EMPTY, WIDTHS, SCALES, LARGE)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{name in GIVEN: number}, …]}}."""
    rng = np.random.default_rng(seed)

    def one_of(*numbers: int) -> int:
        return int(numbers[rng.integers(len(numbers))])

    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        cases[name] = []
        for width in BYTES.get(name, (2,)):
            kv_heads = one_of(3, 5) if name != LARGE else 8
            group = 7 if name == LARGE else one_of(4, 7) if name == SHARED else 1
            tokens = int(rng.integers(100, 900)) * 2 + 1 if name != LARGE else 131_072
            sequences = one_of(4, 6, 9) if name in (MANY, LARGE) else 1
            numbers = (
                one_of(7, 11, 13) if name != LARGE else one_of(60, 80),
                kv_heads * group,
                kv_heads,
                128 if name == LARGE else one_of(24, 40, 72) if name == SCALES else one_of(16, 48, 80),
                0 if name == EMPTY else tokens,
                sequences,
                width,
            )
            cases[name].append(dict(zip(GIVEN, numbers, strict=True)))
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the bytes in `outputs` the right ones?"""
    return verdict(BytesCase, inputs, outputs)


def size(call: dict[str, Any]) -> Fraction:
    """The bytes of a cache, added up: a row is the key or the value of one token for one KV head in one layer."""
    row = call["head_dim"] * Fraction(call["bytes_per_element"])
    total = Fraction(0)
    for _ in range(call["n_layers"]):
        for _kind in ("keys", "values"):
            total += sum(row for _ in range(call["n_kv_heads"])) * call["tokens"]
    return total * call["sequences"]


class BytesCase(Case):
    CALL = CALL
    IDLE = frozenset({EMPTY})

    def went_in(self, call: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {call[name]}" for name in GIVEN)

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        data, expected = answer.get("bytes"), size(call)
        if data is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        came = as_number(data)
        if came is None:
            return Wrong("One number should come back: the bytes of the whole cache.", came=what_came(data))
        if came == expected:
            return None
        said = next(
            (
                said
                for said, result in beliefs(call, expected)
                if abs(came - float(result)) <= abs(float(result)) / 10**9
            ),
            "",
        )
        said = said or "Count rows: keys and values, each token, each KV head, each layer; a row is head_dim numbers."
        return Wrong(said, shown(float(expected)), shown(came))


def beliefs(call: dict[str, Any], right: Fraction) -> Iterator[tuple[str, Fraction]]:
    """Each way to go wrong: what there is to say, and the number that it gives."""
    width, heads = Fraction(call["bytes_per_element"]), Fraction(call["n_heads"], call["n_kv_heads"])
    tokens, sequences = call["tokens"], call["sequences"]
    if not right:
        for count in (1, 2):
            alone = size({**call, "tokens": count})
            yield "No token is in the cache yet, so nothing is kept.", alone
        yield "No token is in the cache yet, so nothing is kept.", size({**call, "tokens": 1}) / 2
        return
    yield (
        "The query heads were counted. What is kept are keys and values, and those are of the KV heads.",
        right * heads,
    )
    groups = "The KV heads were taken for the number of query heads that share one."
    yield groups, right * heads / call["n_kv_heads"]
    if heads > 1:
        yield "Query heads and KV heads are both in the product. Only KV heads are kept.", right * call["n_heads"]
    if width == 2:
        half = (
            "This is half of it. Each token has a key and a value, and each number takes 2 bytes: a factor 2 for both."
        )
        yield half, right / 2
        yield "This is twice as much. There is one 2 for keys and values, and one for the bytes of a number.", right * 2
    for whole in {int(width), round(width)} - {width}:
        yield (
            "bytes_per_element was rounded. With scales, a number takes a broken number of bytes.",
            right / width * whole,
        )
    row = call["head_dim"] * width
    for whole in {floor(row), ceil(row)} - {row}:
        yield "A row was rounded. It may take a broken number of bytes; round nothing on the way.", right / row * whole
    for each in (2, 4):
        yield f"A number does not always take {each} bytes: bytes_per_element says how many.", right / width * each
    yield "These are numbers, not bytes: each takes bytes_per_element.", right / width
    yield "This is half of it: each token has a key and a value.", right / 2
    yield "The 2 for keys and values is there twice.", right * 2
    yield "These are bits. A byte has 8.", right * 8
    yield "This is the size of one sequence. Independent sequences share no rows.", right / sequences
    yield "This is what one token takes. There are more.", right / tokens
    yield "This is what one token of one sequence takes.", right / tokens / sequences
    yield "This is one layer. Each layer keeps keys and values of its own.", right / call["n_layers"]
    yield "This grows with the square of the tokens. Pairs of tokens are work, and are not kept.", right * tokens
    yield "head_dim is missing: a row is that many numbers.", right / call["head_dim"]
    yield "head_dim is in it twice.", right * call["head_dim"]
    yield "One token too many was counted.", right / tokens * (tokens + 1)
    yield "One token too few was counted.", right / tokens * (tokens - 1)
    for unit, factor in (("kB", 10**3), ("KiB", 2**10), ("MB", 10**6), ("MiB", 2**20), ("GB", 10**9), ("GiB", 2**30)):
        yield f"This is in {unit}. Bytes are asked.", right / factor


def shown(number: float) -> str:
    return f"{number:,.0f} bytes" if float(number).is_integer() else f"{number:,.3f} bytes"
