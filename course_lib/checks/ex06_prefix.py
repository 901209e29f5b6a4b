"""The check of ex06.prefix: the learner's `Prefixes(block_size, digest)` finds blocks that hold a text's beginning.

The one idea: a wrong block crashes nothing, it answers for another text. So for every block that comes back the judge
looks what was really published in it. The reference keeps each beginning whole, beside its salt, and needs no digest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, verdict, what_came
from course_lib.checks.contract import Line, Verdict
from course_lib.checks.ex06_tables import Past, listed, several, so_far, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex06_prefix import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "Prefixes", "Prefixes(block_size, digest)"
TOLERANCE = "none. Where a beginning lies in two blocks, either will do."
NOT_CHECKED = "what happens when a block gets other content, whether a digest that was made is of use, memory, seconds"
SAME, ENDS = "texts with the same beginning", "full blocks only, and at least one token left to compute"
MIDDLE, SALT = "the same tokens after another beginning", "another salt"
TOKENS, BEFORE = "one digest, other tokens", "one digest, the same tokens after another beginning"
WHOSE, KEPT = "one digest, another salt", "one digest, several blocks"
TWICE, LISTS = "a beginning that lies in two blocks", "lists that are changed afterwards"
CHAIN, DAY = "a digest for each block, made once", "many random calls"
CASES = (SAME, ENDS, MIDDLE, SALT, TOKENS, BEFORE, WHOSE, KEPT, TWICE, LISTS, CHAIN, DAY)
COLLIDE = (TOKENS, BEFORE, WHOSE, KEPT)  # a case for each text that somebody is answered from, so that leaks cost most
GOOD = 1 << 48  # different digests
Tokens = list[int]


class Plan:
    """The calls of one case as they are drawn. Every text that is published gets blocks that no other has, unless it
    is handed some that it shares."""

    def __init__(self, rng: np.random.Generator, size: int, digests: int, changed: bool) -> None:
        self.rng, self.size = rng, size
        self.numbers = [int(block) for block in rng.permutation(np.arange(1000, 2000))]
        made = {"do": "make", "block_size": size, "numbers": digests, "changed": changed}
        self.calls: list[dict[str, Any]] = [made]

    def piece(self, blocks: int = 1, more: int = 0) -> Tokens:
        """New tokens, so many blocks of them and some more. No two are the same."""
        return [int(token) for token in self.rng.integers(0, 50_000, size=blocks * self.size + more)]

    def publish(self, tokens: Tokens, salt: str = "", table: Tokens | None = None) -> Tokens:
        """Publish a text; its table begins with the blocks of `table`."""
        table = list(table or [])
        while len(table) * self.size < len(tokens):
            table.append(self.numbers.pop())
        self.calls.append({"do": "publish", "tokens": list(tokens), "table": table, "salt": salt})
        return table

    def find(self, tokens: Tokens, salt: str = "") -> None:
        self.calls.append({"do": "find", "tokens": list(tokens), "salt": salt})


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"do": "make", …}, {"do": …}, …]}}."""
    rng = np.random.default_rng(seed)
    cases = {}
    for name in CASES:
        plan = Plan(rng, int(rng.integers(3, 6)), 1 if name in COLLIDE else 2 if name == DAY else GOOD, name == LISTS)
        DRAWN[name](plan)
        cases[name] = plan.calls
    return {"cases": cases}


def same(plan: Plan) -> None:
    one, two, three = plan.piece(), plan.piece(), plan.piece(2, 1)
    plan.find(one + two)
    table = plan.publish(one + two + three)
    plan.find(one + two + plan.piece(1, 2))
    plan.find(one + plan.piece(2))
    plan.find(plan.piece(3))
    other = one + two + plan.piece(2, 2)
    plan.publish(other, table=table[:2])
    plan.find(other + plan.piece())
    plan.find(one + two + three)


def ends(plan: Plan) -> None:
    one, two = plan.piece(), plan.piece(1, 1)
    table = plan.publish(one + two[:-2])
    plan.find(one + two[:1] + plan.piece())
    plan.find(one[:-1] + plan.piece())
    plan.publish(two[:2])
    plan.find(two)
    plan.find([])
    plan.find(one + two)
    plan.publish(one + two, table=table[:1])
    plan.find(one + two)
    text = plan.piece(3)
    plan.publish(text)
    for end in (3 * plan.size, 2 * plan.size, 2 * plan.size + 1, plan.size, plan.size + 1, 1):
        plan.find(text[:end])
    plan.find(text + text[:1])


def middle(plan: Plan) -> None:
    one, two, three, four = (plan.piece() for _ in range(4))
    plan.publish(one + two + three)
    plan.find(four + two + three + four)
    plan.find(two + three + four)
    plan.find([*four[:1], *one, *two, *three])
    plan.publish(four + three + two)
    plan.find(one + three + two + four)
    plan.find(four + two + three + four)
    plan.find(four + three + two + one)


def salted(plan: Plan) -> None:
    text = plan.piece(2, 1)
    plan.publish(text, "Ada")
    for salt in ("Bob", "", "ada", "Ada"):
        plan.find(text, salt)
    plan.publish(text, "Bob")
    for salt in ("Bob", "Ada"):
        plan.find(text, salt)


def other_tokens(plan: Plan) -> None:
    one, two = plan.piece(), plan.piece()
    plan.publish(one)
    plan.find(two + one)
    plan.find(one + two)


def other_beginning(plan: Plan) -> None:
    one, two, three, four = (plan.piece() for _ in range(4))
    plan.publish(one + two + three)
    plan.find(two + three + four)
    plan.find(one + three + four)
    plan.find(one + four + two + three)  # a piece of the text behind a gap
    plan.find(one + two + three + four)


def other_salt(plan: Plan) -> None:
    one, two = plan.piece(), plan.piece()
    plan.publish(one, "Ada")
    for salt in ("Bob", "", "Ada"):
        plan.find(one + two, salt)


def kept(plan: Plan) -> None:
    one, two, three, four = (plan.piece() for _ in range(4))
    plan.publish(one + two)
    plan.publish(three + four)
    plan.find(one + two + four)  # what was there before is still found
    plan.find(three + four + one)
    plan.find(plan.piece(2))


def twice(plan: Plan) -> None:
    """Two texts that begin alike were read at the same time, so neither found the other's first block."""
    one, two, three, four = (plan.piece() for _ in range(4))
    plan.publish(one + two)
    plan.publish(one + three)
    plan.find(one + two + four)
    plan.find(one + three + four)
    plan.publish(one + two + four)
    plan.find(one + two + four + one)


def lists(plan: Plan) -> None:
    text, other = plan.piece(3), plan.piece(2)
    plan.publish(text)
    plan.publish(other)
    plan.find(text + plan.piece())
    plan.find(other + plan.piece())


def chain(plan: Plan) -> None:
    text = plan.piece(8)
    plan.publish(text)
    plan.find(text + plan.piece(2))


def day(plan: Plan) -> None:
    """Few tokens, few digests, and texts that branch, so that anything can be mistaken for anything."""
    rng = plan.rng
    pieces = [[int(token) for token in rng.integers(0, 2, size=plan.size)] for _ in range(6)]
    known: dict[tuple[str, tuple[int, ...]], int] = {}  # the block in which a beginning lies
    for number in range(150):
        if number % 9 in (4, 8):  # just what is known, and one token more
            whose, before = [*known][-1 - rng.integers(min(4, len(known)))]
            plan.find([*before, *before[: int(number % 9 == 8)]], whose)
            continue
        before = [*known][rng.integers(len(known))][1] if known and rng.random() < 0.6 else ()
        more = rng.integers(0, 6, size=rng.integers(not before, 4))
        tokens = [*before, *(token for which in more for token in pieces[which])]
        tokens += tokens[: rng.integers(plan.size) * (number % 2)]
        salt = str(rng.choice(["", "Ada", "Bob"]))
        if number % 3:
            plan.find(tokens, salt)
            continue
        ends = range(plan.size, len(tokens) + 1, plan.size)
        shared = [known[salt, tuple(tokens[:end])] for end in ends if (salt, tuple(tokens[:end])) in known]
        table = plan.publish(tokens, salt, shared)
        known |= {(salt, tuple(tokens[:end])): block for end, block in zip(ends, table)}


DRAWN: dict[str, Callable[[Plan], None]] = {
    SAME: same, ENDS: ends, MIDDLE: middle, SALT: salted, TOKENS: other_tokens, BEFORE: other_beginning,
    WHOSE: other_salt, KEPT: kept, TWICE: twice, LISTS: lists, CHAIN: chain, DAY: day,
}  # fmt: skip


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the blocks in `outputs` those that hold the texts' beginnings?"""
    return verdict(FindCase, inputs, outputs)


class FindCase(Case):
    CALL = CALL

    def __init__(self, name: str, calls: list[dict[str, Any]], answer: dict[str, Plain]) -> None:
        super().__init__(name, calls, answer)
        self.size: int = calls[0]["block_size"]
        self.published: dict[int, tuple[str, Tokens]] = {}  # block → salt and everything up to the block's end
        self.past: Past = []
        self.concerns = -1  # the block that is not right

    def ends(self, tokens: Tokens) -> range:
        return range(self.size, len(tokens) + 1, self.size)

    def went_in(self, call: dict[str, Any]) -> str:
        if call["do"] == "make":
            return f"Prefixes({self.size}, digest)"
        salt = f", salt {call['salt']!r}" if call["salt"] else ""
        return f"{call['do']} with {several(len(call['tokens']), 'token')} in blocks of {self.size}{salt}"

    def failed(self, number: int, wrong: Wrong) -> Line:
        line = super().failed(number, wrong)
        return replace(line, where=", ".join(filter(None, (line.where, so_far(self.past, self.concerns)))))

    def done(self, call: dict[str, Any], blocks: Tokens) -> None:
        salt = f", salt {call['salt']!r}" if call["salt"] else ""
        what = "published" if call["do"] == "publish" else "found"
        said = f"{what} for {several(len(call['tokens']), 'token')}{salt} (call {len(self.past) + 1})"
        self.past.append((set(blocks), said))

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with what a call did. Calls are judged in their order; what was published goes along."""
        if call["do"] == "make":
            self.past.append((set(), ""))
            return None
        if call["do"] == "publish":
            tokens = call["tokens"]
            self.done(call, call["table"][: len(self.ends(tokens))])
            self.published |= {b: (call["salt"], tokens[:end]) for end, b in zip(self.ends(tokens), call["table"])}
            return self.digested_wrong(call, answer)
        if wrong := self.found_wrong(call, answer) or self.digested_wrong(call, answer):
            return wrong
        self.done(call, whole_numbers(answer.get("found")) or [])
        return None

    def digested_wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with how the digest was used, in the case that is about it."""
        given, most = whole_numbers(answer.get("digested")), len(self.ends(call["tokens"]))
        least = most if call["do"] == "publish" else len(whole_numbers(answer.get("found")) or ())  # a find ends early
        pieces = set(given or ())
        if self.name != CHAIN or (given is not None and least <= len(given) <= most and pieces == {self.size}):
            return None
        if not given:
            said = (
                "The digest was not used. A key that holds a whole beginning grows with the text; a digest stands for "
                "everything up to the end of its block."
            )
        else:
            said = "Hand the digest the tokens of one block, once for each: what is before is in the digest before it."
        once = f"{several(most, 'call')} of digest{' at most' * (least < most)}, {several(self.size, 'token')} each"
        return Wrong(said, once, f"tokens of each call: {listed(list(given))}" if given else "no call")

    def found_wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        tokens, salt, came = call["tokens"], call["salt"], whole_numbers(answer.get("found"))
        right: list[list[int]] = []  # for each block of the beginning, those in which it lies
        for end in self.ends(tokens[:-1]):
            right.append([b for b, known in self.published.items() if known == (salt, tokens[:end])])
            if not right[-1]:
                right.pop()
                break
        expected = several(len(right), "block")
        if came is None:
            said = "find returns a list of blocks, an empty one if nothing is found."
            said = "find returned None. Did you forget `return`?" if answer.get("found") is None else said
            return Wrong(said, expected, what_came(answer.get("found")))
        for place, block in enumerate(came):
            if place >= len(right) or block not in right[place]:
                said, self.concerns = self.about(block, place, tokens, salt), block
                return Wrong(said, expected, listed(list(came)), f"block number {place + 1} of the text")
        if len(came) < len(right):
            said, self.concerns = self.missed(len(came)), right[len(came)][0]
            return Wrong(said, expected, several(len(came), "block"), f"block number {len(came) + 1} of the text")
        return None

    def about(self, block: int, place: int, tokens: Tokens, salt: str) -> str:
        """The belief behind a block that may not be taken over as number `place` of a text."""
        end = (place + 1) * self.size
        if block not in self.published:
            return "A block came back that holds no full block of a text that was published."
        whose, known = self.published[block]
        if end > len(tokens):
            return "More blocks came back than the text has full ones."
        if whose != salt:
            return "This block was published with another salt. Whoever finds it learns what another tenant has asked."
        if known == tokens[:end]:
            return "Nothing is left to compute. Logits are not in the cache, so at least the last token has to be read."
        if known[-self.size :] != tokens[end - self.size : end]:
            return "This block holds other tokens. Two blocks may have one digest: compare the tokens as well."
        if known[: len(tokens)] == tokens[: len(known)]:
            return "This block holds another part of the text."
        return (
            "This block holds the same tokens, but after another beginning, so its keys and values are other ones. "
            "Everything up to the end of the block has to agree, and not only by its digest."
        )

    def missed(self, place: int) -> str:
        """Why a block was not found that can be taken over, as far as one can tell."""
        said = f"{several(place, 'block')} came back, and one more holds the text's beginning."
        if self.name in (BEFORE, KEPT):
            return f"{said} Several blocks may have one digest: keep all of them under it, and look which one it is."
        if self.name == TWICE:
            return (
                f"{said} The block before it lies in memory twice. Whichever of the two is found, what was published "
                "behind either goes on behind it."
            )
        if self.name == LISTS:
            return f"{said} The lists that were published have been changed since: keep copies of what you need."
        return said
