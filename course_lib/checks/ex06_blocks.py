"""The check of ex06.blocks: the learner's `Blocks(count)` hands out blocks and counts who refers to each.

The one idea: an allocator is judged by what it says after every call, and not by which block it chose. The reference is
one count of references for each block that was handed out. What was drawn knows only when a block was taken; the judge
learns its number from the answer.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, verdict, what_came
from course_lib.checks.contract import Line, Verdict, part, words
from course_lib.checks.ex06_tables import Past, listed, several, so_far, whole_numbers
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex06_blocks import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "Blocks", "Blocks(count)"
TOLERANCE = "none. Any free block may be handed out, in any order."
NOT_CHECKED = "which of the free blocks is taken first, speed, several threads at a time"
BACK, SHARED = "blocks are taken, given back, and taken again", "a block that several refer to"
FULL, TWICE, FREE = "more blocks than are free", "a free block is given back", "a free block is shared"
NOBODY, DAY = "numbers that no block has", "many random calls"
CASES = (BACK, SHARED, FULL, TWICE, FREE, NOBODY, DAY)
LONG_DAY = 120  # calls
FIRST = "Look first, and change something only if nothing is in the way."


class Plan:
    """The calls of one case as they are drawn, and how many references each block has then, in the order of taking."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.references: list[int] = []
        self.dead: list[int] = []  # given back for good since the last block was taken, so still free
        self.calls: list[dict[str, Any]] = [{"do": "make", "count": count}]

    @property
    def held(self) -> list[int]:
        return [which for which, references in enumerate(self.references) if references]

    @property
    def free(self) -> int:
        return self.count - len(self.held)

    def take(self, count: int) -> None:
        self.calls.append({"do": "take", "count": count})
        if 0 < count <= self.free:
            self.references += [1] * count
            self.dead = []

    def share(self, which: int) -> None:
        self.calls.append({"do": "share", "which": which})
        self.references[which] += self.references[which] > 0

    def give_back(self, which: int) -> None:
        self.calls.append({"do": "give_back", "which": which})
        if self.references[which]:
            self.references[which] -= 1
            self.dead += [which] * (not self.references[which])

    def number(self, do: str, number: int) -> None:
        """A call with the number of a block that nobody holds, or that there is not."""
        self.calls.append({"do": do, "number": number})

    def anything(self, rng: np.random.Generator) -> None:
        """A call of any kind, most of them possible."""
        refused = bool(self.dead) and rng.random() < 0.3
        which = self.dead if refused else self.held
        kind = rng.choice(["take", "share", "give_back"], p=[0.0, 0.5, 0.5] if refused else [0.35, 0.2, 0.45])
        if kind == "take" or not which:
            self.take(self.free + int(rng.random() < 0.3) if rng.random() < 0.3 else int(rng.integers(0, 5)))
        elif kind == "share":
            self.share(int(rng.choice(which)))
        else:
            self.give_back(int(rng.choice(which)))


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"do": "make", …}, {"do": …}, …]}}."""
    rng = np.random.default_rng(seed)
    plans = {name: Plan(int(rng.integers(6, 10))) for name in CASES}
    for name, plan in plans.items():
        n, order = plan.count, [int(which) for which in rng.permutation(3)]
        if name == BACK:
            for count in (1, 2, n - 3):
                plan.take(count)
            for _ in range(2):
                some = [int(which) for which in rng.permutation(plan.held)[:3]]
                for which in some:
                    plan.give_back(which)
                plan.take(1)
                plan.take(2)
        elif name == SHARED:
            plan.take(3)
            for which in (order[0], order[0], order[1]):
                plan.share(which)
            plan.give_back(order[0])
            plan.take(plan.free)
            for which in (order[1], order[0], order[0], order[1]):
                plan.give_back(which)
            plan.take(2)
        elif name == FULL:
            plan.take(n - 1)
            for count in (2, 1, 1, 0):
                plan.take(count)
            plan.give_back(order[0])
            for count in (3, 1):
                plan.take(count)
        elif name == TWICE:
            plan.number("give_back", int(rng.integers(n)))
            plan.take(3)
            for which in (order[0], order[0], order[1]):
                plan.give_back(which)
            plan.give_back(order[0])
            plan.take(plan.free)
        elif name == FREE:
            plan.number("share", int(rng.integers(n)))
            plan.take(3)
            plan.give_back(order[0])
            plan.share(order[0])
            plan.take(plan.free)
        elif name == NOBODY:
            plan.take(n)
            for do, number in (("give_back", -1), ("share", -1), ("give_back", n), ("share", n + 3)):
                plan.number(do, number)
        else:
            while len(plan.calls) < LONG_DAY:
                plan.anything(rng)
    return {"cases": {name: plan.calls for name, plan in plans.items()}}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do the answers in `outputs` follow from what was done?"""
    return verdict(PoolCase, inputs, outputs)


class PoolCase(Case):
    CALL = CALL

    def __init__(self, name: str, calls: list[dict[str, Any]], answer: dict[str, Plain]) -> None:
        super().__init__(name, calls, answer)
        self.count: int = calls[0]["count"]
        self.references = [0] * self.count  # by hand, of each block
        self.taken: list[int] = []  # blocks, in the order of taking
        self.before = list(self.references)  # the call that is looked at
        self.past: Past = []
        self.concerns = -1  # the block that the call that is looked at is about

    @property
    def free(self) -> int:
        return self.references.count(0)

    def block(self, call: dict[str, Any]) -> int:
        """The number of the block that a call is about; -1 if it was never handed out."""
        taken = dict(enumerate(self.taken))
        return int(call["number"] if "number" in call else taken.get(call["which"], -1))

    def held(self, block: int) -> int:
        return self.references[block] if 0 <= block < self.count else 0

    def refusal(self, call: dict[str, Any]) -> str:
        """The error that a call should raise; empty if it should not."""
        if call["do"] == "take":
            return "MemoryError" if call["count"] > self.free else ""
        return "" if call["do"] == "make" or self.held(self.block(call)) else "ValueError"

    def went_in(self, call: dict[str, Any]) -> str:
        done = {"make": f"Blocks({self.count})", "take": f"take({call.get('count')})"}.get(call["do"])
        if done is None:
            block = self.block(call)
            done = f"{call['do']}({block})"
            if 0 <= block < self.count:
                done += f", and the block has {several(self.before[block], 'reference')}"
        return f"{done}; {self.before.count(0)} of {several(self.count, 'block')} free"

    def ended(self) -> Wrong:
        """Why answers are missing; if the next call should have been refused, by which error."""
        wrong, number = super().ended(), len(self.answers)
        self.before = list(self.references)
        if number < len(self.calls) and self.calls[number]["do"] not in ("make", "take"):
            self.concerns = self.block(self.calls[number])
        expected = self.refusal(self.calls[number]) if number < len(self.calls) else ""
        if not expected or words(part(self.answer, "ended").get("kind")) != "raised":
            return wrong
        said = f"{wrong.said} {self.why(self.calls[number], expected)}"
        return replace(wrong, said=said, expected=expected)

    def failed(self, number: int, wrong: Wrong) -> Line:
        line = super().failed(number, wrong)
        return replace(line, where=", ".join(filter(None, (line.where, so_far(self.past, self.concerns)))))

    def why(self, call: dict[str, Any], expected: str) -> str:
        """Why a call has to be refused."""
        if expected == "MemoryError":
            return "More blocks are asked for than are free: raise MemoryError."
        if not 0 <= self.block(call) < self.count:
            return "There is no block of this number: raise ValueError. (Python reads -1 as the last item of a list.)"
        if call["do"] == "share":
            return "A free block holds nothing that could be shared: raise ValueError."
        return (
            "This block is free already, so it cannot be given back: raise ValueError. Otherwise it would be handed "
            "to two texts."
        )

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        """What is wrong with what a call did. Calls are judged in their order; the references go along."""
        self.before = list(self.references)
        expected, came = self.refusal(call), words(answer.get("refused"))
        self.concerns = -1 if call["do"] in ("make", "take") else self.block(call)
        done = {self.concerns}, f"{call['do']}({self.concerns}){' refused' * bool(expected)}"
        if expected != came:
            if expected:
                return Wrong(self.why(call, expected), expected, came or "no error")
            return Wrong(f"It raised {came}, though there is nothing to refuse.", "no error", came)
        if not expected and call["do"] == "take":
            blocks = whole_numbers(answer.get("blocks"))
            if wrong := self.blocks_wrong(call["count"], blocks, answer.get("blocks")):
                return wrong
            for block in blocks or ():
                self.references[block] = 1
            self.taken += blocks or []
            done = set(blocks or ()), f"take({call['count']})"
        elif not expected and call["do"] != "make":
            self.references[self.block(call)] += 1 if call["do"] == "share" else -1
        if wrong := self.free_wrong(call, answer, expected) or self.references_wrong(call, answer, expected):
            return wrong
        self.past.append(done)
        return None

    def blocks_wrong(self, count: int, blocks: list[int] | None, came: Plain) -> Wrong | None:
        """What is wrong with the blocks that `take` handed out."""
        if came is None:
            return Wrong("take returned None. Did you forget `return`?", f"a list of {several(count, 'block')}", "None")
        if blocks is None:
            said = "take returns a list of whole numbers, the numbers of the blocks, for a single block as well."
            return Wrong(said, f"a list of {several(count, 'block')}", what_came(came))
        if len(blocks) != count:
            return Wrong("That is another number of blocks than were asked for.", str(count), str(len(blocks)))
        for block in blocks:
            if not 0 <= block < self.count:
                said = f"There is no block of this number. {self.count} blocks are numbered from 0."
                return Wrong(said, f"0 to {self.count - 1}", str(block))
            if self.references[block]:
                self.concerns = block
                said = "A block was handed out that somebody still refers to. Two texts would write over each other."
                if self.name in (SHARED, DAY):
                    said += " It is free when nobody refers to it any more, and not before."
                return Wrong(
                    said, "blocks that are free", f"block {block}, with {several(self.references[block], 'reference')}"
                )
        if len(set(blocks)) < count:
            return Wrong("The same block was handed out twice in one call.", "different blocks", listed(came))
        return None

    def free_wrong(self, call: dict[str, Any], answer: dict[str, Plain], refused: str) -> Wrong | None:
        came, right = as_number(answer.get("free")), self.free
        if came == right:
            return None
        if came is None:
            return Wrong("free() returns how many blocks are free.", str(right), what_came(answer.get("free")))
        left = 0 if call["do"] in ("make", "take") else self.held(self.block(call))
        if call["do"] == "make":
            said = "In a new pool all blocks are free. Is something kept in the class that belongs in `self`?"
        elif refused:
            said = f"It refused, but something had changed by then. {FIRST}"
        elif call["do"] == "share":
            said = "Sharing takes no block: it is the same one, with one more reference."
        elif call["do"] == "give_back" and left:
            said = f"One reference was given back, and {left} are left: the block is not free yet."
        elif call["do"] == "give_back":
            said = "The last reference was given back, so the block is free again."
        else:
            said = "Each block that is taken is free no more, and no other changes."
        return Wrong(said, f"free() = {right}", f"free() = {came}")

    def references_wrong(self, call: dict[str, Any], answer: dict[str, Plain], refused: str) -> Wrong | None:
        came = answer.get("references")
        counts = [as_number(each) for each in came] if isinstance(came, list) else []
        if counts == self.references:
            return None
        block = next((b for b, right in enumerate(self.references) if b >= len(counts) or counts[b] != right), 0)
        self.concerns = block
        if block >= len(counts) or counts[block] is None:
            found = came[block] if isinstance(came, list) and block < len(came) else None
            said = "references(block) returns how many refer to a block."
            return Wrong(said, str(self.references[block]), what_came(found))
        said = {
            "make": "Nobody refers to the blocks of a new pool.",
            "take": "A block that was just taken has one reference, that of whoever took it.",
            "share": "Sharing adds one reference to this block, and to no other.",
            "give_back": "Giving back takes one reference from this block, and from no other.",
        }[call["do"]]
        if refused:
            said = f"It refused, but something had changed by then. {FIRST}"
        elif call["do"] in ("share", "give_back") and block != self.block(call):
            said = "The references of another block have changed."
        return Wrong(said, f"references({block}) = {self.references[block]}", f"references({block}) = {counts[block]}")
