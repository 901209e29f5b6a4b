"""The check of ex08.bytes: the learner's `stored_bytes(...)` says what a quantised cache of one text takes.

The one idea: whether a token is stored in codes or as it came depends on how many came after it, and on whether its
block is full. The reference lets the tokens come one at a time, and holds what a cache would hold then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex08_bytes import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION = "stored_bytes"
CALL = "stored_bytes(tokens, n_layers, n_kv_heads, head_dim, bits, group, residual)"
TOLERANCE = "none. The bytes are a whole number, exact as a float, too."
NOT_CHECKED = "several texts, head sizes that are no multiple of 8, numbers that make no sense"
ALL_ROUNDED, RECENT, WAITING = "no residual, all blocks full", "the newest as they came", "a block that is not full yet"
YOUNG, SHORT, BITS = "nothing is old enough", "a last group that is smaller", "8, 3 and 2 bits"
LARGE = "a large model and a long text"
CASES = (ALL_ROUNDED, RECENT, WAITING, YOUNG, SHORT, BITS, LARGE)
SCALES, EXACT = 4, 2  # bytes of the two scales of a group, and of a number as it came


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{name in GIVEN: number}, …]}}."""
    rng = np.random.default_rng(seed)

    def one_of(*choices: int) -> int:
        return int(choices[rng.integers(len(choices))])

    cases: dict[str, list[dict[str, Any]]] = {}
    for name in CASES:
        layers, heads = one_of(5, 7, 11), one_of(3, 6)
        group, blocks, within = one_of(16, 32), one_of(6, 7, 9), one_of(3, 5, 7)
        width, residual = one_of(2, 3) * group, one_of(35, 51, 67)
        full = blocks * group
        # tokens, head_dim, bits, group, residual
        calls: dict[str, list[tuple[int, int, int, int, int]]] = {
            ALL_ROUNDED: [(full, width, 4, group, 0)],
            RECENT: [(full + residual, width, 4, group, residual), (full + 1, width, 4, group, 1)],
            WAITING: [
                (full + within, width, 4, group, 0),
                (full + residual + within, width, 4, group, residual),
                (full + residual - 1, width, 4, group, residual),
            ],
            YOUNG: [
                (residual - within, width, 4, group, residual),
                (residual + group - 1, width, 4, group, residual),
                (0, width, 4, group, residual),
                (residual + group, width, 4, group, residual),
            ],
            SHORT: [(full, 2 * group + 8, 4, group, 0), (blocks * 48 + 60, 40, 4, 48, 60)],
            BITS: [(full + residual, width, bits, group, residual) for bits in (8, 3, 2)],
            LARGE: [(one_of(10_007, 20_021), 128, one_of(2, 3), one_of(32, 64), one_of(100, 120))],
        }
        if name == LARGE:
            layers, heads = one_of(32, 60, 80), 8
        cases[name] = [dict(zip(GIVEN, (tokens, layers, heads, *rest), strict=True)) for tokens, *rest in calls[name]]
    return {"cases": cases}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the bytes in `outputs` the right ones?"""
    return verdict(BytesCase, inputs, outputs)


def tokens_come(call: dict[str, Any]) -> tuple[int, int]:
    """How many tokens lie in codes and how many as they came, after all have come."""
    rounded = recent = 0
    for _ in range(call["tokens"]):
        recent += 1
        if recent == call["residual"] + call["group"]:
            rounded, recent = rounded + call["group"], recent - call["group"]
    return rounded, recent


def size(call: dict[str, Any], rounded: int, recent: int, of_keys: float = SCALES, of_values: float = SCALES) -> float:
    """Bytes of so many rounded and recent tokens; `of_keys` and `of_values` are those of the scales of a group."""
    D, group, bits = call["head_dim"], call["group"], call["bits"]
    keys = values = rounded * D * bits / 8
    keys += rounded / group * D * of_keys
    values += rounded * len(range(0, D, group)) * of_values
    return float(call["n_layers"] * call["n_kv_heads"] * (keys + values + 2 * recent * D * EXACT))


class BytesCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {call[name]}" for name in GIVEN)

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        data, (rounded, recent) = answer.get("bytes"), tokens_come(call)
        expected = size(call, rounded, recent)
        if data is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        came = as_number(data)
        if came is None:
            return Wrong("One number should come back: the bytes of the whole cache.", came=what_came(data))
        if came == expected:
            return None
        said = next((said for said, belief in beliefs(call, rounded, recent) if belief == came), "")
        said = said or (
            "Count apart: codes, two scales for each group of keys and of values, and the numbers of tokens that lie "
            "there as they came."
        )
        here = f"{rounded:,} tokens in codes, {recent:,} as they came"
        return Wrong(said, f"{shown(expected)} ({here})", shown(came))


def beliefs(call: dict[str, Any], rounded: int, recent: int) -> Iterator[tuple[str, float]]:
    """Each way to go wrong: what there is to say, and the number of bytes that it gives."""
    tokens, group, D, bits = (call[name] for name in ("tokens", "group", "head_dim", "bits"))
    right, heads = size(call, rounded, recent), call["n_layers"] * call["n_kv_heads"]
    exact = 2 * heads * D * EXACT  # bytes of a token as it came
    yield from other_tokens(call, rounded)
    yield "The scales are missing: each group has two numbers of 2 bytes.", size(call, rounded, recent, 0, 0)
    for some in ((0, SCALES), (SCALES, 0), (2, 2)):
        half = "Half of the scales are missing: keys and values both have groups, and a group has a low and a step."
        yield half, size(call, rounded, recent, *some)
    yield "A low and a step have 2 bytes each, not 4.", size(call, rounded, recent, 2 * SCALES, 2 * SCALES)
    yield "There are scales for each group, and not one pair for all.", size(call, rounded, recent, 0, 0) + SCALES
    yield "A number as it came takes 2 bytes, not 4.", right + recent * exact
    yield "A number as it came takes 2 bytes.", right - recent * exact / 2
    codes = 2 * heads * rounded * D
    yield "Codes are packed: each takes `bits` bits, and not a byte.", right + codes - codes * bits / 8
    yield "Codes were counted in bits. A byte has 8.", right + codes * bits - codes * bits / 8
    yield "Each token has a key and a value: this is half of it.", right / 2
    yield "This is one layer. Each keeps keys and values of its own.", right / call["n_layers"]
    yield "This is one KV head. Each keeps keys and values of its own.", right / call["n_kv_heads"]
    yield "These are bits. A byte has 8.", right * 8
    yield "This is what a cache takes that is not quantised.", tokens * exact
    groups = -(-D // group)
    down = rounded * heads * SCALES * (groups - D // group)
    yield "A last group that is smaller has scales, too: round the number of groups up.", right - down
    more = (rounded * groups - rounded // group * D) * heads * SCALES
    yield "Keys are grouped per channel: a block of them has as many groups as there are channels.", right + more
    yield "Values are grouped per token: each has a group for every `group` channels.", right - more


def other_tokens(call: dict[str, Any], rounded: int) -> Iterator[tuple[str, float]]:
    """What comes of it if other tokens are in codes, or as they came."""
    tokens, residual, group = call["tokens"], call["residual"], call["group"]
    old = max(tokens - residual, 0)
    begun = min(-(-old // group) * group, tokens)
    later = max(old - 1, 0) // group * group
    early = tokens // group * group
    stories = (
        ("The tokens that wait for their block are missing: they still lie there as they came.",
         rounded, min(tokens, residual)),
        ("The tokens that are kept as they came are missing.", rounded, 0),
        ("A block waits until it is full. Here its tokens were rounded one by one.", old, tokens - old),
        ("Nothing is kept as it came here. The newest are, and those whose block is not full.", tokens, 0),
        ("A block is rounded once it is full and older than the residual, and not before.", begun, tokens - begun),
        ("The residual plays no part here: a block waits until all of it is older than the residual.",
         early, tokens - early),
        ("A block is rounded as soon as it is older than the residual, one token earlier than here.",
         later, tokens - later),
        ("A text shorter than the residual has no more tokens than it has.", rounded, residual),
        ("Old tokens are counted twice: those in codes do not lie there as they came.", rounded, tokens),
        ("New tokens are counted twice: those that lie there as they came have no codes.", tokens, tokens - rounded),
    )  # fmt: skip
    for said, in_codes, recent in stories:
        number = size(call, in_codes, recent)
        for blocks in (in_codes / group, in_codes // group, -(-in_codes // group)):  # where a block is not full
            groups = call["n_layers"] * call["n_kv_heads"] * call["head_dim"] * (blocks - in_codes / group)
            yield said, number + groups * SCALES


def shown(number: float) -> str:
    return f"{number:,.0f} bytes" if float(number).is_integer() else f"{number:,.3f} bytes"
