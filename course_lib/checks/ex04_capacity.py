"""The check of ex04.capacity: the learner's `capacity(...)` says how many sequences fit, and what is left.

The one idea: memory, weights and texts are drawn so that every shortcut (a unit, a block, a rounding) gives another
number of sequences. The reference puts one sequence after the other into the memory until the next does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex04_capacity import GIVEN, RESULTS, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "capacity", "capacity(memory_gb, weights, reserve, token_bytes, tokens, block)"
TOLERANCE = "none. Sequences and bytes are whole numbers."
NOT_CHECKED = "texts of different lengths, windows, several GPUs, sequences that share blocks"
GB = 10**9
TOKENS, WHOLE, PART = "blocks of one token", "texts that fill their blocks", "texts that end inside a block"
SHORT, EXACT, NONE = "texts shorter than a block", "memory that is filled to the last byte", "not even one fits"
TOO_LARGE, UNIT = "weights larger than the memory", "other sizes of memory"
CASES = (TOKENS, WHOLE, PART, SHORT, EXACT, NONE, TOO_LARGE, UNIT)


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{name in GIVEN: number}, …]}}."""
    rng = np.random.default_rng(seed)
    memories = {UNIT: (16, 24, 80), NONE: (8,), TOO_LARGE: (16,)}
    return {"cases": {name: [machine(rng, name, gb) for gb in memories.get(name, (40,))] for name in CASES}}


def machine(rng: np.random.Generator, name: str, memory_gb: int) -> dict[str, int]:
    """The numbers of one call. Sequences are small beside the memory, so that a part of it is some of them."""
    token_bytes = int(rng.integers(90, 130)) * 1024
    block = 1 if name == TOKENS else int(rng.choice((16, 24, 32)))
    tokens = int(rng.integers(20, 40)) * block
    if name == TOKENS:
        tokens = int(rng.integers(600, 900))
    elif name == SHORT:
        tokens = int(rng.integers(2, block // 2))
    elif name != WHOLE:
        tokens += int(rng.integers(2, block // 3))  # the last block is filled to less than a half
    weights = memory_gb * GB * int(rng.integers(30, 45)) // 100 + int(rng.integers(1, 10**6))
    reserve = memory_gb * GB * int(rng.integers(8, 15)) // 100 + int(rng.integers(1, 10**6))
    one = -(-tokens // block) * block * token_bytes
    if name == EXACT:
        weights += (memory_gb * GB - weights - reserve) % one
    elif name == NONE:
        weights = memory_gb * GB - reserve - one * int(rng.integers(60, 90)) // 100
    elif name == TOO_LARGE:
        weights = memory_gb * GB + int(rng.integers(10**8, 10**9))
    return dict(zip(GIVEN, (memory_gb, weights, reserve, token_bytes, tokens, block), strict=True))


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are sequences and bytes in `outputs` the right ones?"""
    return verdict(CapacityCase, inputs, outputs)


def filled(call: dict[str, int]) -> tuple[int, int]:
    """(sequences, bytes left): blocks are taken out of what remains, one sequence after the other."""
    remains = max(call["memory_gb"] * GB - call["weights"] - call["reserve"], 0)
    blocks = 0
    while blocks * call["block"] < call["tokens"]:
        blocks += 1
    sequences, each = 0, blocks * call["block"] * call["token_bytes"]
    while remains >= each:
        remains -= each
        sequences += 1
    return sequences, remains


class CapacityCase(Case):
    CALL = CALL
    IDLE = frozenset({TOO_LARGE})

    def went_in(self, call: dict[str, Any]) -> str:
        return ", ".join(f"{name} = {call[name]:,}" for name in GIVEN)

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, came = filled(call), []
        for name in RESULTS:
            number = as_number(answer.get(name))
            if number is None:
                said = f"{name} should be one number."
                return Wrong(said, came=what_came(answer.get(name)), where=name)
            came.append(number)
        if tuple(came) == expected:
            return None
        given = came[0], came[1]
        said = next((said for said, result in beliefs(call) if result == given), "") or one_wrong(call, expected, given)
        which = 0 if came[0] != expected[0] else 1
        return Wrong(said, f"{expected[which]:,}", f"{came[which]:,}", RESULTS[which])


def one_wrong(call: dict[str, int], expected: tuple[int, int], came: tuple[float, float]) -> str:
    """A sentence where no single belief gives both numbers: about the sequences, or about what is left beside them."""
    if came[0] != expected[0]:
        said = next((said for said, result in beliefs(call) if result[0] == came[0]), "")
        if came[0] % 1 > 0:
            return "A part of a sequence is no use to anybody: sequences are counted whole."
        return said or "Sequences: what weights and reserve leave, divided by the blocks of one text, rounded down."
    size, block_bytes = -(-call["tokens"] // call["block"]), call["block"] * call["token_bytes"]
    left = expected[1]
    sentences = (
        ("Bytes are asked, not blocks.", left // block_bytes),
        ("Bytes are asked, not tokens.", left // call["token_bytes"]),
        ("What is left are bytes that no block takes, not what the blocks take.", expected[0] * size * block_bytes),
        ("Weights and reserve are not left: they lie in the memory, too.", left + call["weights"] + call["reserve"]),
        ("The reserve is kept free for the passes. It is not left.", left + call["reserve"]),
        ("What a block holds beside its tokens is taken: nobody else can have it.",
         left + expected[0] * (size * call["block"] - call["tokens"]) * call["token_bytes"]),
        ("Only whole blocks were counted as left. Asked are all bytes that are not taken.",
         left // block_bytes * block_bytes),
        ("Nothing was said of what the sequences leave.", 0),
        ("This is in GB. Bytes are asked.", left / GB),
    )  # fmt: skip
    if came[1] < 0:
        return "Less than nothing cannot be left. Where weights and reserve take everything, 0 is left."
    said = next((said for said, result in sentences if came[1] == result), "")
    return said or "What is left: the bytes beside weights and reserve that the blocks of no sequence take."


def beliefs(call: dict[str, int]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each way to go wrong: what there is to say, and what it gives, (sequences, left)."""
    memory, weights, reserve = call["memory_gb"] * GB, call["weights"], call["reserve"]
    tokens, block = call["tokens"], call["block"]
    free, up, down = memory - weights - reserve, -(-tokens // block), tokens // block

    def shared(free: int, held: int) -> tuple[int, int]:
        each = held * call["token_bytes"]
        return (free // each, free % each) if each and free > 0 else (0, free)

    if free < 0:
        said = "Weights and reserve take more than there is. Nothing fits then, and nothing is left: 0 of both."
        yield said, shared(free, up * block)
        yield said, (free // (up * block * call["token_bytes"]), free % (up * block * call["token_bytes"]))
        yield said, (int(free / (up * block * call["token_bytes"])), free)
    unit = "The memory was counted in GiB, 2^30 bytes. GB is 10^9, 7 % less."
    for size in (up * block, tokens):
        yield unit, shared(call["memory_gb"] * 2**30 - weights - reserve, size)
        yield "The weights are missing: they lie in the same memory.", shared(memory - reserve, size)
        yield "The reserve is missing: it is kept free for what a pass needs.", shared(memory - weights, size)
        yield "Weights and reserve are missing: all the memory was given to caches.", shared(memory, size)
        yield "The reserve was added. It is kept free, so it is subtracted.", shared(memory - weights + reserve, size)
    part = "Blocks are missing: a text that ends inside a block takes all of it."
    yield part, shared(free, tokens)
    yield "Blocks were rounded down. The tokens in the last one need a block as well.", shared(free, down * block)
    yield "A text that fills its blocks needs no further one.", shared(free, (down + 1) * block)
    yield (
        "Blocks were rounded to the nearest number. A last block with few tokens is a block.",
        shared(free, round(tokens / block) * block),
    )
    yield "A block holds `block` tokens. It was counted as one.", shared(free, up)
    yield "Each token was given a block of its own.", shared(free, tokens * block)
    whole, left = shared(free, up * block)
    yield "The last sequence does not fit any more: round down.", (whole + 1, left)
