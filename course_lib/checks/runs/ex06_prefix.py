"""Runs a learner's `Prefixes(block_size, digest)` through days of publishing and finding, and writes down what came.

The one idea: it only feeds and watches. The digest is made here: a good one, one that gives few different numbers, or
one that always gives the same. All that it is given is counted, where no attribute of it leads. Where a case says so,
lists that were handed in are written over afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_cases


def counting_digest(numbers: int) -> tuple[Callable[[object, Any], int], Callable[[], list[Plain]]]:
    """A digest, a whole number below `numbers` for what lies before a block and the block's own tokens; and how many
    tokens it was given in each call since one asked last."""
    given: list[Plain] = []

    def digest(before: object, piece: Any) -> int:
        tokens = tuple(piece)
        given.append(len(tokens))
        said = f"{before!r} {','.join(str(int(token)) for token in tokens)}"
        return int.from_bytes(sha256(said.encode()).digest()[:7]) % numbers

    def taken() -> list[Plain]:
        counts = given.copy()
        given.clear()
        return counts

    return digest, taken


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls: {"do": "make", "block_size": int, "numbers": how many different digests there
    are, "changed": bool}, then {"do": "publish", "tokens": [int], "table": [int], "salt": str} and {"do": "find",
    "tokens", "salt"}. Raises nothing but KeyboardInterrupt.
    """
    return run_cases(code, inputs, session)


def session(code: Callable[..., Any], calls: list[dict[str, Any]]) -> Iterator[dict[str, Plain]]:
    """What each call returned, and how many tokens went into each call of the digest."""
    digest, taken = counting_digest(calls[0]["numbers"])
    prefixes = called(code, calls[0]["block_size"], digest)
    for call in calls:
        found = None
        taken()
        lists = [list(call[name]) for name in ("tokens", "table") if name in call]
        if call["do"] != "make":
            came = called(called(getattr, prefixes, call["do"]), *lists, call["salt"])  # type: ignore[arg-type]
            found = as_plain(came, "the blocks") if call["do"] == "find" else None
        yield {"found": found, "digested": taken()}
        if calls[0]["changed"]:
            for one in lists:
                one[:] = [-1] * len(one)
