"""What is said against a wrong cause is what the tools of the museum show: each stock phrase is held against them.

The one idea: evidence is said in a few fixed phrases, such as "Poison reaches nobody". Wherever one stands, the tool is
run on the exhibit and asked. So a change of the day or of an exhibit cannot leave a wrong sentence behind.
"""

import re
from collections.abc import Callable
from functools import cached_property
from math import isclose

import pytest
import torch

from course_lib.divergence import Divergence
from course_lib.museum import (
    EXHIBITS,
    Exhibit,
    against_fresh,
    compare,
    guide,
    museum_day,
    where,
    with_other_neighbours,
    with_poison,
)
from course_lib.museum.exhibit import CAPACITY, CHUNK
from course_lib.museum.tools import Fresh
from course_lib.study.diagnose import diagnoses

pytestmark = pytest.mark.slow
QUESTIONS = diagnoses()
DAY = museum_day()
EARLY = {visit.name for visit in DAY if visit.step == 0}
PROMPTS = {visit.name: len(visit.request.prompt) for visit in DAY}
DRAWING = {visit.name for visit in DAY if visit.request.sampling.temperature > 0}


class Shown:
    """What the tools show of one exhibit; each is run when it is first asked for."""

    def __init__(self, exhibit: Exhibit) -> None:
        self.exhibit = exhibit

    @cached_property
    def differing(self) -> list[Divergence]:
        return [found for found in where(self.exhibit.engine).found.values() if found is not None]

    @cached_property
    def fresh(self) -> dict[str, Fresh]:
        return against_fresh(self.exhibit.engine).requests

    @cached_property
    def off(self) -> set[str]:
        return {name for name, found in self.fresh.items() if found.first is not None}

    @cached_property
    def poisoned(self) -> dict[str, tuple[int, int]]:
        return with_poison(self.exhibit.engine).reached

    @cached_property
    def changed(self) -> set[str]:
        return {name for name, change in with_other_neighbours(self.exhibit.engine).changed.items() if change}

    @cached_property
    def same_text(self) -> bool:
        return compare(self.exhibit.engine, self.exhibit.right).same_text

    def begins_with(self, part: str, *, token: int | None = None) -> bool:
        """Whether every text that differs begins to in `part`, the others before it being right; and at `token`."""
        found = self.differing
        return bool(found) and all(each.part == part and each.token == (token or each.token) for each in found)

    def begins_with_key(self) -> bool:
        return self.begins_with("keys") and all(
            each.layer == 0 and "values" not in each.parts for each in self.differing
        )


def alike(found: Fresh) -> bool:
    """Whether a request is off by the same amount alone and in company."""
    return isclose(found.alone, found.in_company, rel_tol=0.01, abs_tol=1e-3)


SAID: dict[str, Callable[[Shown], bool]] = {
    "o layer differs": lambda shown: not shown.differing,
    "ther neighbours change nothing": lambda shown: not shown.changed,
    "ther neighbours change the logits": lambda shown: bool(shown.changed),
    "oison reaches nobody": lambda shown: not shown.poisoned,
    "oison reaches everybody who is there, from token 0 on": lambda shown: (
        set(shown.poisoned) == EARLY and all(token == 0 for token, _ in shown.poisoned.values())
    ),
    "lone it is just as wrong": lambda shown: bool(shown.off) and all(map(alike, shown.fresh.values())),
    "lone, everybody is right": lambda shown: bool(shown.off) and max(f.alone for f in shown.fresh.values()) < 1e-3,
    "ey and value are right": lambda shown: shown.begins_with("output"),
    "utputs do": lambda shown: shown.begins_with("output"),
    "begins with a key": lambda shown: shown.begins_with_key(),
    "begins with the key": lambda shown: shown.begins_with_key(),
    "value is right": lambda shown: shown.begins_with_key(),
    "eys of layer 0 differ": lambda shown: shown.begins_with_key(),
    "output of layer 0 differs at the first token of decode": lambda shown: (
        shown.begins_with("output") and all(PROMPTS[d.name] - 1 <= d.token <= PROMPTS[d.name] for d in shown.differing)
    ),
    "value of layer 0 differs at token 0": lambda shown: (
        bool(shown.differing) and all(d.token == d.layer == 0 and "values" in d.parts for d in shown.differing)
    ),
    "Layer 0 does, at token 0": lambda shown: all(d.token == d.layer == 0 for d in shown.differing),
    "begins where decode does": lambda shown: all(
        PROMPTS[d.name] - 1 <= d.token <= PROMPTS[d.name] for d in shown.differing
    ),
    "first difference is within the prompt": lambda shown: (
        bool(shown.differing) and all(d.token < PROMPTS[d.name] for d in shown.differing)
    ),
    "first token in the second chunk": lambda shown: shown.begins_with("output", token=CHUNK),
    "begins at token 8": lambda shown: shown.begins_with("output", token=8) and (CHUNK, CAPACITY) == (8, 96),
    "begins at token 32": lambda shown: shown.begins_with("keys", token=32),
    "first visitors are off": lambda shown: bool(EARLY & shown.off),
    "hose who came first are right": lambda shown: bool(shown.off) and not EARLY & shown.off,
    "ll texts are the same, word for word": lambda shown: shown.same_text,
    "ll logits are equal": lambda shown: not shown.off,
    "hose who draw get other words": lambda shown: {n for n, f in shown.fresh.items() if not f.same_tokens} == DRAWING,
    "right to the last digit": lambda shown: not shown.off,
    "ne choice is made twice": lambda shown: any(found.in_company == torch.inf for found in shown.fresh.values()),
    "begins in the middle of the answer": lambda shown: bool(shown.off) and min(firsts(shown)) > 0,
    "oth are, and both begin well": lambda shown: len(shown.off) == 2 and min(firsts(shown)) > 1,
    "oth are off while both are there": lambda shown: len(shown.off) == 2,
    "only those who come late are off": lambda shown: bool(shown.off) and not EARLY & shown.off,
    "others are off by far more than that": lambda shown: min(shown.fresh[n].in_company for n in shown.off) > 1e-3,
    "finn and kim have the longest text": lambda shown: {shown.fresh[n].first for n in ("finn", "kim")} == {1},
    "off by about a unit": lambda shown: 0.3 < max(shown.fresh[name].in_company for name in shown.off) < 3.5,
}  # without their first letters: some begin a sentence, some do not


def firsts(shown: Shown) -> list[int]:
    """The first new token of each request whose logits are off."""
    return [found.first for found in shown.fresh.values() if found.first is not None]


def whys(name: str) -> str:
    return "\n".join(choice.why for choice in QUESTIONS[name].choices if not choice.right)


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_the_evidence_against_wrong_causes_is_what_the_tools_show(exhibit: Exhibit) -> None:
    shown, said = Shown(exhibit), whys(exhibit.name)
    checked = [phrase for phrase in SAID if any(claims(part, phrase) for part in re.split(r"[.:;] ", said))]
    assert checked, "nothing of it was held against the tools"
    assert [phrase for phrase in checked if not SAID[phrase](shown)] == []


def claims(part: str, phrase: str) -> bool:
    """Whether a part of a sentence says that it is so, and not that it would be if the cause were the wrong one."""
    return phrase in part and "would" not in part.split(phrase)[0]


def test_every_phrase_is_used() -> None:
    everything = "\n".join(map(whys, QUESTIONS))
    assert [phrase for phrase in SAID if phrase not in everything] == []


def test_the_right_engine_draws_the_same_alone_and_in_company() -> None:
    """As the exhibit with the dice says of it."""
    right = against_fresh(next(exhibit for exhibit in EXHIBITS if exhibit.name == "dice").right, guide().model)
    assert all(found.same_tokens for found in right.requests.values()) and not right.wrong
