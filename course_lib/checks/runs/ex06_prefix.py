"""Runs a learner's `Prefixes(block_size, digest)` through days of publishing and finding, and writes down what came.

The one idea: it only feeds and watches. The digest is made here: a good one, one that gives few different numbers, or
one that always gives the same. All that it is given is counted. Where a case says so, lists that were handed in are
written over afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any

from course_lib.checks.beside import Went, as_plain, called, is_starter
from course_lib.checks.plain import Plain


class Digest:
    """A whole number below `numbers` for what lies before a block and the block's own tokens. `given` counts tokens."""

    def __init__(self, numbers: int) -> None:
        self._numbers = numbers
        self.given = 0

    def __call__(self, before: object, piece: Any) -> int:
        tokens = tuple(piece)
        self.given += len(tokens)
        said = f"{before!r} {','.join(str(int(token)) for token in tokens)}"
        return int.from_bytes(sha256(said.encode()).digest()[:7]) % self._numbers


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: {"starter": bool, "cases": {name: {"calls": [...], "ended": ...}}}.

    A case of `inputs` is a list of calls: {"do": "make", "block_size": int, "numbers": how many different digests there
    are, "changed": bool}, then {"do": "publish", "tokens": [int], "table": [int], "salt": str} and {"do": "find",
    "tokens", "salt"}. Raises nothing but KeyboardInterrupt.
    """
    cases: dict[str, Plain] = {}
    starter = is_starter(code)
    for name, calls in inputs["cases"].items():
        cases[name] = {"calls": [], "ended": None} if starter else case(code, calls)
    return {"starter": starter, "cases": cases}


def case(code: Callable[..., Any], calls: list[dict[str, Any]]) -> dict[str, Plain]:
    """What each call returned, how many tokens went into the digest, and why the case ended early if it did."""
    answers: list[Plain] = []
    ended: Plain = None
    digest = Digest(calls[0]["numbers"])
    try:
        prefixes = called(code, calls[0]["block_size"], digest)
        for call in calls:
            digest.given, found = 0, None
            lists = [list(call[name]) for name in ("tokens", "table") if name in call]
            if call["do"] != "make":
                came = called(called(getattr, prefixes, call["do"]), *lists, call["salt"])  # type: ignore[arg-type]
                found = as_plain(came, "the blocks") if call["do"] == "find" else None
            answers.append({"found": found, "digested": digest.given})
            if calls[0]["changed"]:
                for one in lists:
                    one[:] = [-1] * len(one)
    except Went as reason:
        ended = {"call": len(answers), **reason.data}
    return {"calls": answers, "ended": ended}
