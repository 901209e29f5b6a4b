"""The check of ex07.plan: the learner's `plan(running, waiting, rows, budget)` plans a step of continuous batching.

The one idea: the moments are drawn so that the budget or the rows run out just where a rule decides. The reference
deals the budget out token by token: each goes to whoever is first in turn and has something left to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex07_plan import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "plan", "plan(running, waiting, rows, budget)"
TOLERANCE = "none. Tokens are whole numbers."
NOT_CHECKED = "a budget smaller than the number of rows, requests without an unread token, speed"
DECODE, CHUNK, LAST = "decodes before prompts", "a chunk of a prompt beside decodes", "the last piece of a prompt"
ADMIT, FULL, SPENT = "requests are admitted", "all rows are taken", "the budget is spent before the rows are"
ORDER, SHORT = "nobody overtakes", "a waiting prompt of one token"
INPUTS, DAY = "the dictionaries stay as they were", "many random moments"
CASES = (DECODE, CHUNK, LAST, ADMIT, FULL, SPENT, ORDER, SHORT, INPUTS, DAY)
MOMENTS = 60  # of the random case
Reads = dict[str, int]
Named = list[tuple[str, int]]


class Moment:
    """A call as it was drawn: who runs, who waits, and for how many there is room."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.running: Named = [(name, unread) for name, unread in call["running"]]
        self.waiting: Named = [(name, unread) for name, unread in call["waiting"]]
        self.rows, self.budget = call["rows"], call["budget"]

    @property
    def free(self) -> int:
        return self.rows - len(self.running)

    @property
    def decodes(self) -> Named:
        return [each for each in self.running if each[1] == 1]

    @property
    def prompts(self) -> Named:
        return [each for each in self.running if each[1] > 1]


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"running": [[name, unread]], "waiting", "rows", "budget"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for case in CASES:
        cases[case] = []
        for number in range(MOMENTS if case == DAY else 2):
            names = [str(name) for name in rng.permutation([*"ABCDEFGHJKLMNPQRSTUVWXYZ"])]
            running, waiting, free, left = drawn(case, number, rng)
            decodes = running.count(1)
            cases[case].append({
                "running": [[names.pop(), unread] for unread in running],
                "waiting": list(map(list, zip(sorted(names[: len(waiting)], reverse=True), waiting))),
                "rows": len(running) + free,
                "budget": max(decodes + left, len(running) + free),
            })  # fmt: skip
    return {"cases": cases}


def drawn(case: str, number: int, rng: np.random.Generator) -> tuple[list[int], list[int], int, int]:
    """Unread tokens of those that run and wait, free rows, and what the budget leaves beside the decodes, if that is
    not less than there are rows."""

    def some(least: int, most: int) -> int:
        return int(rng.integers(least, most, endpoint=True))

    long, rest = some(30, 60), some(2, 5)
    if case == DECODE:
        return [[1] * some(2, 4), [long, 1, 1]][number], [rest, 1], 0, some(3, 8)
    if case == CHUNK:
        return [1, 1, long, 1][number:], [], some(0, 1), some(8, 14)
    if case == LAST:
        return [1, rest + 1, 1], [long, long], 1, 2 * rest + some(5, 9)
    if case == ADMIT:
        size = (1, 300)[number]  # there is no largest piece of a prompt but what the budget leaves
        return (
            [1, 1][number:],
            [size * n for n in (rest, some(6, 9), some(2, 4), rest, *[some(2, 4) for _ in range(5 * number)])],
            2 + 5 * number,
            size * some(90, 110),
        )
    if case == FULL:
        return [[1, some(2, 4), 1, 1], [some(50, 60), 1]][number], [some(2, 4), 2], 0, some(30, 40)
    if case == SPENT:
        left = some(9, 14)
        return [1, 1], [[long, 3, 2], [left - 1, 9, 2]][number], 3, left
    if case == ORDER:
        return [[1, rest + 9, 1, rest], [rest + 12, 1, some(6, 8)]][number], [rest, 2], 2, rest + 10
    if case == SHORT:
        return [[1, long], [rest + 20, 1]][number], [1, 1, 5], 3, [some(9, 12), rest + 21][number]
    if case == INPUTS:
        return [1, rest], [some(4, 6), some(9, 12), 2], 2, rest + some(9, 11)
    if number == 0:  # the last token of the budget
        return [1, rest], [some(4, 6), 2], 2, rest + 1
    running = [some(1, 12) * some(0, 1) or 1 for _ in range(some(0, 5))]
    waiting = [some(1, 12) * some(0, 1) or 1 for _ in range(some(0 if running else 1, 4))]
    return running, waiting, some(0 if running else 1, 3), some(0, 25)


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: do those read in `outputs` whose turn it is, and as much as they may?"""
    return verdict(PlanCase, inputs, outputs)


def dealt(moment: Moment) -> Reads:
    """Who reads how much: the tokens of the budget dealt out one by one, to the first in turn who can still read."""
    turns = [*moment.decodes, *moment.prompts, *moment.waiting[: moment.free]]
    reads = {name: 0 for name, _ in turns}
    for _ in range(moment.budget):
        for name, unread in turns:
            if reads[name] < unread:
                reads[name] += 1
                break
    return {name: tokens for name, tokens in reads.items() if tokens}


class PlanCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        running, waiting = (", ".join(f"{name}: {n}" for name, n in call[which]) for which in ("running", "waiting"))
        rows = f"{call['rows']} row{'s' * (call['rows'] != 1)}"
        return f"running {{{running}}}, waiting {{{waiting}}}, {rows}, a budget of {call['budget']}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        moment = Moment(call)
        expected, came = dealt(moment), answer.get("reads")
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", shown(expected), "None")
        if not isinstance(came, dict):
            return Wrong("A dictionary from names to numbers of tokens is asked for.", shown(expected), what_came(came))
        for name, data in came.items():
            number = as_number(data)
            if number is None or number % 1:
                said = "To each name belongs the number of tokens that it reads."
                return Wrong(said, shown(expected), what_came(data), f"request {name[:20]}")
        reads = as_reads(came)
        if reads == expected:
            return None
        said = otherwise(moment, reads, expected)
        where = next(name for name in [*expected, *reads] if expected.get(name) != reads.get(name))
        return Wrong(said, shown(expected), shown(reads), f"request {where}")

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        reads = as_reads(answer.get("reads"))
        return ((said, belief == reads) for said, belief in beliefs(Moment(call)))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        given: Plain = [call["running"], call["waiting"]]
        if told_in != INPUTS or unchanged(given, answer.get("after")):
            return None
        return Wrong("The call changed a dictionary that it was given. Make one of your own.")


def as_reads(data: Plain) -> Reads:
    """The numbers in a dictionary that came back. A whole number may be written as 3.0."""
    given = data if isinstance(data, dict) else {}
    return {name[:20]: number for name, each in given.items() if (number := as_number(each)) is not None}  # type: ignore[misc]


def shown(reads: Reads) -> str:
    return f"{{{', '.join(f'{name}: {tokens:g}' for name, tokens in list(reads.items())[:8])}}}"


def otherwise(moment: Moment, reads: Reads, expected: Reads) -> str:
    """What is wrong with a plan that no belief explains."""
    known = dict([*moment.running, *moment.waiting])
    for name, tokens in reads.items():
        if name not in known:
            return "Somebody reads who neither runs nor waits."
        if tokens > known[name]:
            return "Somebody reads more tokens than are unread."
        if tokens < 1:
            return "Whoever reads nothing does not belong into the dictionary."
    if sum(reads.values()) > moment.budget:
        return f"All together read {sum(reads.values()):g} tokens: more than the budget."
    if sum(name in reads for name, _ in moment.waiting) > moment.free:
        return "More requests are admitted than rows are free."
    if any(reads.get(name) != 1 for name, _ in moment.decodes):
        return "Whoever runs and has one unread token reads it in every step."
    if sum(reads.values()) < sum(expected.values()):
        return "Something of the budget is left, and somebody whose turn it is could have used it."
    return "The budget goes to decodes first, then to the prompts of those that run, then to those that wait, in order."


def shared(turns: Named, left: int, **same: int) -> Reads:
    """Each in turn reads what it can of what is left; those in `same` have read already."""
    reads = dict(same)
    for name, unread in turns:
        if (tokens := min(unread, left)) > 0:
            reads[name] = tokens
            left -= tokens
    return reads


Belief = tuple[str, Callable[[Moment], Reads]]


def beliefs(moment: Moment) -> Iterator[tuple[str, Reads]]:
    """Each way to go wrong: what there is to say, and the plan of it. First those that change the least."""
    ones = dict(moment.decodes)
    left = moment.budget - len(ones)
    joining = moment.waiting[: moment.free]
    yield "One token unread is not yet a decode. Those that wait come after all that run.", shared(
        [*[each for each in joining if each[1] == 1], *moment.prompts, *[each for each in joining if each[1] > 1]],
        left, **ones,
    )  # fmt: skip
    yield (
        "Those that wait were served before a running request had read its prompt.",
        shared([*joining, *moment.prompts], left, **ones),
    )
    nobody = "Nobody was admitted, though a row is free and something of the budget is left."
    nobody += " A prompt that is still being read holds nobody up." if moment.prompts else ""
    yield nobody, shared(moment.prompts, left, **ones)
    used = shared([*moment.prompts, *joining], left, **ones)
    for those in ([*moment.prompts, *joining], joining):
        given_up = {name for name, unread in those if unread > 1 == used.get(name)}
        yield (
            "A token of the budget was left, and a piece of one token is a piece, too.",
            {name: tokens for name, tokens in used.items() if name not in given_up},
        )
    yield "Only one request was admitted.", shared([*moment.prompts, *joining[:1]], left, **ones)
    more = "More requests are admitted than rows are free: those that run have theirs already."
    yield more, shared([*moment.prompts, *moment.waiting[: moment.rows]], left, **ones)
    yield more, shared([*moment.prompts, *moment.waiting], left, **ones)
    taken = "The decodes take their tokens out of the budget, too."
    yield taken, shared([*moment.prompts, *joining], moment.budget, **ones)
    each = "The budget is for all together, not for each."
    yield each, {name: min(unread, left) for name, unread in [*moment.decodes, *moment.prompts, *joining] if left > 0}
    yield each, {name: min(unread, moment.budget) for name, unread in [*moment.running, *joining]}
    yield "Prompts were read whole, whatever the budget is.", dict([*moment.running, *joining])
    yield (
        "Each that runs read one token. Only who has a single one unread decodes.",
        {name: 1 for name, _ in moment.running},
    )
    decode_first = "Decodes come first. Here a prompt took what a request needed that decodes."
    yield decode_first, shared([*moment.running, *joining], moment.budget)
    yield decode_first, shared([*moment.prompts, *moment.decodes, *joining], moment.budget)
    yield decode_first, shared([*moment.prompts, *joining, *moment.decodes], moment.budget)
    whole = "A prompt need not fit into the budget: it is read in pieces."
    yield whole, whole_only([*moment.prompts, *joining], left, ones, skip=True)
    yield whole, whole_only([*moment.prompts, *joining], left, ones, skip=False)
    by_length = "The shorter prompt came first. Whoever came first is served first."
    yield by_length, shared(sorted([*moment.prompts, *joining], key=lambda each: each[1]), left, **ones)
    yield by_length, shared([*moment.prompts, *sorted(moment.waiting, key=lambda e: e[1])[: moment.free]], left, **ones)
    yield by_length, shared([*sorted(moment.prompts, key=lambda each: each[1]), *joining], left, **ones)
    last = "The last in the order was served first."
    yield last, shared([*moment.prompts[::-1], *joining], left, **ones)
    yield last, shared([*moment.prompts, *moment.waiting[::-1][: moment.free]], left, **ones)
    prompts = [*moment.prompts, *joining]
    share = left // len(prompts) if prompts else 0
    yield (
        "The budget was split evenly. The first in turn reads as much as it can.",
        ones | {name: min(unread, share) for name, unread in prompts if share},
    )


def whole_only(turns: Named, left: int, ones: Reads, skip: bool) -> Reads:
    """Prompts that fit into what is left as a whole, past the first that does not if `skip`."""
    reads = dict(ones)
    for name, unread in turns:
        if unread <= left:
            reads[name] = unread
            left -= unread
        elif not skip:
            break
    return reads
