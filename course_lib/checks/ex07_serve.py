"""The check of ex07.serve: the learner's `serve(requests, rows, slots, budget, cost)` serves a day, simulated.

The one idea: since nobody overtakes and the last to come is the first to go, those that run are always the first so
many of those that are there. So the reference keeps no queue and admits and preempts nobody: in each step it counts how
many texts fit, from the first on. Times are multiples of 1/8 s, or
1/1024 s, so that sums are exact and "at the same moment" is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_array, as_number, is_empty, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.ex07_beliefs import BELIEFS
from course_lib.checks.ex07_loop import Times
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex07_serve import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "serve", "serve(requests, rows, slots, budget, cost)"
NEAR_S = 1e-6
MOST_TRIES = 5000  # to draw a case; a few dozen at most are likely
TOLERANCE = "a millionth of a second. Sums made in another order differ by far less, another rule by far more."
NOT_CHECKED = "requests that do not fit into the memory alone, a budget smaller than the number of rows, speed"
ALONE, ROWS, CHUNK = "a single request", "more requests than rows", "prompts longer than the budget"
JOIN, MOMENT, IDLE = "newcomers while others decode", "an arrival at the moment of a step", "nothing to do for a while"
ROOM, FULL, AGAIN = "no room for the first of the queue", "the memory is full", "preempted while others wait"
DAY, INPUTS = "a random day", "the requests stay as they were"
BASIC = {"AtBegin", "NoFirst", "TwoAtOnce", "ByRequests"}
EVER = BASIC | {"LastTokenRead", "CostEach"}
LATE = EVER | {"OnlyWhenIdle", "AllThere", "Static", "SinceArrival"}
MEMORY = {"LastRead", "HeldOnly", "Reserved", "PromptOnly", "Unreserved", "NoSlots"}
AWAY = {"KeepsMemory", "PromptAgain", "LosesTokens", "Fresh", "Oldest", "TooSoon"}
EQUALS = {"BehindEquals"}
# Each case: the beliefs that give other times in it. It is drawn again until exactly these do.
CASES: dict[str, set[str]] = {
    ALONE: BASIC,
    ROWS: EVER | {"Static", "NoRows", "OneByOne", "Newest", "Early"},
    JOIN: LATE,
    MOMENT: LATE | {"Early"},
    IDLE: LATE | {"Ticks", "FromFirst"},
    CHUNK: LATE | {"TokenAPiece", "NoBudget", "DecodesFree", "PromptsFirst", "Newest", "EmptyHanded"},
    ROOM: LATE | MEMORY | {"Overtaken", "Newest", "OneByOne", "Early"},
    FULL: EVER | MEMORY | AWAY | {"OneByOne", "Early"},
    AGAIN: LATE | MEMORY | AWAY | EQUALS | {"LastInLine", "Longest", "OnlyOne", "Overtaken", "Newest", "OneByOne"},
    DAY: {*BELIEFS} - EQUALS - {"OnlyOne", "EmptyHanded"},
    INPUTS: EVER | {"OneByOne", "Early"},
}
COST = "cost"  # what was asked of it counts on a random day
Request = dict[str, Any]


class Step(NamedTuple):
    """A step of a day as it should go."""

    begin_s: float
    end_s: float
    reads: dict[int, int]  # tokens that each request reads


def served(call: dict[str, Any]) -> tuple[Times, list[Step]]:
    """When each request gets its tokens, and the steps."""
    requests: list[Request] = call["requests"]
    held, times, steps, clock = [0] * len(requests), [[] for _ in requests], [], 0.0  # type: ignore[var-annotated]
    while True:
        left = [i for i, request in enumerate(requests) if len(times[i]) < request["new_tokens"]]
        if not left:
            return times, steps
        there = [i for i in left if requests[i]["arrival_s"] <= clock]
        if not there:
            clock = requests[left[0]]["arrival_s"]
            continue
        texts = [requests[i]["prompt_tokens"] + len(times[i]) for i in there]
        fit = sum(together <= call["slots"] for together in accumulate(texts))
        inside = dict([*zip(there, texts)][: min(fit, call["rows"])])
        for i in there[len(inside) :]:
            held[i] = 0
        budget, reads = call["budget"], {}
        for i in sorted(inside, key=lambda i: (not 0 < held[i] == inside[i] - 1, i)):
            reads[i] = min(inside[i] - held[i], budget)
            budget -= reads[i]
        begin, clock = clock, clock + call["pass_s"] + call["token_s"] * sum(reads.values())
        for i, tokens in reads.items():
            held[i] += tokens
            if tokens and held[i] == inside[i]:
                times[i].append(clock)
        steps.append(Step(begin, clock, {i: tokens for i, tokens in reads.items() if tokens}))


@lru_cache(maxsize=4)  # whoever tries many answers at one seed draws once
def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"requests", "rows", "slots", "budget", "pass_s", "token_s"}, …]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {case: drawn(rng, case) for case in CASES}}


def drawn(rng: np.random.Generator, case: str) -> list[dict[str, Any]]:
    """The calls of a case, drawn until just those beliefs that it is about give other times than the rules."""
    for _ in range(MOST_TRIES):
        calls = [sketched(rng, case, number) for number in range(2)]
        if all(map(possible, calls)):
            times = [served(call)[0] for call in calls]
            if all(shows(belief, calls, times) == (belief in CASES[case]) for belief in BELIEFS):
                return calls
    raise RuntimeError(f"{MOST_TRIES} tries, and in none the beliefs of the case “{case}” show: mend `sketched`")


def possible(call: dict[str, Any]) -> bool:
    """Whether each request fits into the memory alone."""
    return all(each["prompt_tokens"] + each["new_tokens"] - 1 <= call["slots"] for each in call["requests"])


def shows(belief: str, calls: list[dict[str, Any]], times: list[Times]) -> bool:
    """Whether a belief gives other times than the right ones."""
    return any(BELIEFS[belief](call).times_of_all() != right for call, right in zip(calls, times))


def sketched(rng: np.random.Generator, case: str, number: int) -> dict[str, Any]:
    """A call of a kind, with nothing looked at yet."""

    def some(least: int, most: int) -> int:
        return int(rng.integers(least, most, endpoint=True))

    def asked(arrival: int, prompt: int, new: int) -> Request:
        return {"arrival_s": arrival / 8, "prompt_tokens": prompt, "new_tokens": new}

    rows, slots, budget, pass_8, token_8 = some(2, 3), 1000, 500, some(3, 6), some(1, 2)
    fine = some(0, 60) * 2 + 1 if case == JOIN else 0  # 1/1024 s: times that nobody rounds by accident
    if case == ALONE:
        requests = [asked(0, some(3, 6), [some(3, 5), 1][number])]
    elif case == ROWS:
        rows = 3
        requests = [asked(0, some(1, 4), some(1, 6)) for _ in range(some(5, 6))]
    elif case in (JOIN, MOMENT):
        requests = [asked(some(1, 30) * (i > 0), some(1, 6), some(3, 7)) for i in range(3)]
        rows = 4
    elif case == IDLE:
        moments = some(1, 7), some(120, 140), some(141, 150), some(300, 310)
        requests = [asked(moment, some(1, 5), some(2, 4)) for moment in moments]
    elif case == CHUNK:
        requests = [asked(0, some(2, 4), some(5, 8)), asked(some(1, 12), some(12, 20), some(1, 3))]
        requests += [asked(some(1, 20), 1 if number else some(4, 9), some(2, 4))]
        rows, budget = 3, some(4, 6)
    elif case == ROOM:
        requests = [asked(0, some(3, 6), some(3, 6)) for _ in range(2)]
        requests += [asked(some(1, 12), some(8, 10), some(1, 3)), asked(some(1, 12), some(1, 2), some(1, 3))]
        rows, slots = 4, sum(each["prompt_tokens"] + each["new_tokens"] - 1 for each in requests[:2]) + some(0, 3)
    elif case == FULL:
        requests = [asked(0, some(3, 6), some(4, 8)) for _ in range(2)]
        slots = some(8, 16)
    elif case == AGAIN:
        late = [some(1, 30) for _ in range(3)]  # two of them come at the same moment
        requests = [asked(moment, some(1, 8), some(2, 9)) for moment in (0, *late, late[-1])]
        rows, slots = 9, some(14, 22)
    elif case == DAY:
        requests = [asked(some(0, 40), some(1, 8), some(2, 9)) for _ in range(8)]
        requests += [asked(some(500, 520), some(1, 8), some(2, 5)) for _ in range(3)]
        rows, slots, budget = some(2, 3), some(14, 20), some(4, 8)
    else:
        requests = [asked(0, some(2, 6), some(1, 5)) for _ in range(2)]
    requests.sort(key=lambda request: request["arrival_s"])
    return {"requests": requests, "rows": rows, "slots": slots, "budget": budget, "pass_s": pass_8 / 8 + fine / 1024,
            "token_s": token_8 / 8}  # fmt: skip


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the times in `outputs` those that the rules give?"""
    return verdict(ServeCase, inputs, outputs)


class ServeCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        count = len(call["requests"])
        limits = f"{call['rows']} row{'s' * (call['rows'] != 1)}, {call['slots']} slots, a budget of {call['budget']}"
        return f"{count} request{'s' * (count != 1)}, {limits}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, steps = served(call)
        came = listed(answer.get("times"))
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        if not isinstance(came, list):
            return Wrong("A list is asked for, with a list of times for each request.", came=what_came(came))
        if len(came) != len(expected):
            said = "There should be a list of times for each request, in the order of `requests`."
            return Wrong(said, f"{len(expected)} lists", what_came(came))
        for number, each in enumerate(came):
            if seconds(each) is None:
                said = "The times of a request should be a list of numbers."
                return Wrong(said, came=what_came(each), where=f"requests[{number}]")
        times = [row for each in came if (row := seconds(each)) is not None]
        if alike(times, expected):
            return wrong_questions(steps, answer.get("steps")) if self.name == DAY else None
        (right, given), which, until_s = first_apart(times, expected)
        step = told_step(steps, answer.get("steps"), until_s)
        return Wrong(otherwise(times, expected), right, given, f"{which}; {step}")

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came = listed(answer.get("times"))
        times = [seconds(each) for each in came] if isinstance(came, list) else []
        if about != COST and len(times) == len(call["requests"]) and None not in times:
            for said, belief in beliefs(call):
                yield said, alike(times, belief)  # type: ignore[arg-type]

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or unchanged(call["requests"], answer.get("requests")):
            return None
        return Wrong("The call changed the requests that it was given. Keep what you need in lists of your own.")


def listed(data: Plain) -> Plain:
    return data.tolist() if isinstance(data, np.ndarray) else data


def wrong_questions(steps: list[Step], asked: Plain) -> Wrong | None:
    """What is wrong with what cost was asked on a day whose times are right, if anything is."""
    counts = [as_number(each) for each in asked] if isinstance(asked, list) else []
    expected = [sum(step.reads.values()) for step in steps]
    if counts == expected:
        return None
    apart = (i for i, pair in enumerate(zip(counts, expected)) if pair[0] != pair[1])
    at = next(apart, min(len(counts), len(expected)))
    said = "The times are right, but cost was not asked once in each step, about the tokens that are read in it."
    came = ["nothing" if each is None else f"{each:g}" for each in counts[at : at + 1]] or ["no more questions"]
    right = [str(each) for each in expected[at : at + 1]] or ["no more questions"]
    return Wrong(said, right[0], came[0], f"question {at + 1} of {len(counts)}, in a day of {len(steps)} steps", COST)


def seconds(data: Plain) -> list[float] | None:
    """The times of a request; None if they are no list of numbers."""
    if is_empty(data):
        return []
    array = as_array(data)
    if array is None or array.ndim != 1 or array.dtype.kind == "b":
        return None
    return [float(time) for time in array]


def alike(came: Times, expected: Times) -> bool:
    return all(same_row(*rows) for rows in zip(came, expected, strict=True))


def same_row(came: list[float], expected: list[float]) -> bool:
    return len(came) == len(expected) and all(abs(a - b) <= NEAR_S for a, b in zip(came, expected))


def beliefs(call: dict[str, Any]) -> Iterator[tuple[str, Times]]:
    """Each way to go wrong: what there is to say, and the times of it. No belief makes the day endless here."""
    for kind in BELIEFS.values():
        if (times := kind(call).times_of_all()) is not None:
            yield kind.SAID, times


def first_apart(came: Times, expected: Times) -> tuple[tuple[str, str], str, float]:
    """The earliest token that is not as it should be: what was expected and what came, which, and when it is due."""
    found: list[tuple[float, int, int]] = []  # when it should come, or the last before it; of which request; which one
    for number, (given, right) in enumerate(zip(came, expected)):
        if not same_row(given, right):
            apart = (at for at, (a, b) in enumerate(zip(given, right)) if not abs(a - b) <= NEAR_S)
            at = next(apart, min(len(given), len(right)))
            found.append((right[min(at, len(right) - 1)], number, at))
    due_s, number, at = min(found)
    rows = expected[number], came[number]
    right_text, came_text = (f"{row[at]:.6g} s" if at < len(row) else f"{len(row)} tokens in all" for row in rows)
    return (right_text, came_text), f"requests[{number}], token {at + 1}", due_s


def otherwise(came: Times, expected: Times) -> str:
    """What there is to say where no belief gives these times."""
    counts = [(len(given), len(right)) for given, right in zip(came, expected)]
    if any(given < right for given, right in counts):
        return "Some request did not get all of its new tokens."
    if any(given > right for given, right in counts):
        return "Some request got more new tokens than it asked for."
    return "The first token that comes at another time is named below: work out by hand who reads what until then."


def told_step(steps: list[Step], asked: Plain, until_s: float) -> str:
    """The step that ends at `until_s`, or an earlier one in which not as many tokens were read as should have been."""
    counts = asked if isinstance(asked, list) else []
    for number, step in enumerate(steps):
        given = as_number(counts[number]) if number < len(counts) else None
        wrong = given != sum(step.reads.values())
        if wrong or step.end_s >= until_s:
            whose = ", ".join(f"{tokens} of requests[{i}]" for i, tokens in list(step.reads.items())[:6])
            said = f"step {number + 1}, from {step.begin_s:.6g} s to {step.end_s:.6g} s, should read {whose}"
            asked_about = "nothing" if given is None else f"{given:g} tokens"
            return f"{said}{f', and cost was asked about {asked_about}' * wrong}"
    return ""
