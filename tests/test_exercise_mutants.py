"""Every check under test: it passes right solutions, however they are written, and fails each wrong one in its cases.

The solutions are in tests/exercises, one file for each check.
"""

from functools import cache, reduce
from operator import getitem
from typing import Any

import numpy as np
import pytest
from forgery import anything, filled, places, some_plain_data
from variants import FOLDER, Wrong, cases, function, variants

from course_lib.checks import check_named, names
from course_lib.checks.contract import Verdict, answer, details
from course_lib.checks.plain import pack, unpack

SEEDS = (1, 20)
LEAST_RIGHT, LEAST_WRONG = 3, 5

every_check = pytest.mark.parametrize("name", names())


def solutions(which: str) -> list[Any]:
    """A parameter for each right or wrong solution of each check."""
    return [
        pytest.param(name, solution, id=f"{name}: {said}")
        for name in names()
        if (FOLDER / f"{name.replace('.', '_', 1)}.py").is_file()
        for said, solution in getattr(variants(name), which).items()
    ]


@cache
def judged(name: str, source: str, seed: int) -> Verdict:
    check = check_named(name)
    return answer(check, function(source, check.FUNCTION), seed)


def failed(verdict: Verdict) -> set[str]:
    return {line.case for line in verdict.lines if not line.passed}


@pytest.mark.parametrize(("name", "source"), solutions("RIGHT"))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_solution_passes_however_it_is_written(name: str, source: str, seed: int) -> None:
    verdict = judged(name, source, seed)
    assert [line for line in verdict.lines if not line.passed] == []
    assert verdict.passed and [line.case for line in verdict.lines] == cases(name)


@pytest.mark.parametrize(("name", "wrong"), solutions("WRONG"))
@pytest.mark.parametrize("seed", SEEDS)
def test_a_wrong_solution_fails_its_cases_and_no_others_and_is_told_why(name: str, wrong: Wrong, seed: int) -> None:
    verdict = judged(name, wrong.source, seed)
    assert not verdict.passed and not verdict.unsolved
    assert failed(verdict) == wrong.fails and wrong.fails
    assert all(line.said for line in verdict.lines if not line.passed)
    first = next(line for line in verdict.lines if not line.passed)
    said = "\n".join((first.said, *(text for _, text in details(first))))
    assert [words for words in wrong.says if words not in said] == [], said


@every_check
def test_there_are_enough_of_both_and_each_case_is_failed_by_some_mistake(name: str) -> None:
    module = variants(name)
    assert len(module.RIGHT) >= LEAST_RIGHT and len(module.WRONG) >= LEAST_WRONG
    assert frozenset(cases(name)) == frozenset().union(*(wrong.fails for wrong in module.WRONG.values()))


@every_check
def test_some_mistake_fails_a_few_cases_only_so_there_is_partial_credit(name: str) -> None:
    fewest = min(len(wrong.fails) for wrong in variants(name).WRONG.values())
    assert fewest < len(cases(name))


def test_all_wrong_solutions_are_killed_and_all_right_ones_accepted() -> None:
    """The table of all checks: how many wrong solutions there are and how many the check lets through, and so on."""
    rows, slips = [], 0
    for name in names():
        right = [judged(name, source, SEEDS[0]).passed for source in variants(name).RIGHT.values()]
        wrong = [judged(name, each.source, SEEDS[0]).passed for each in variants(name).WRONG.values()]
        slips += sum(wrong) + right.count(False)
        rows.append(f"{name:<20} {len(wrong):>5} wrong, {wrong.count(False):>4} killed   {len(right):>3} right, "
                    f"{sum(right):>3} accepted")  # fmt: skip
    print("\n" + "\n".join(rows))  # shown by pytest -rP
    assert rows and slips == 0


@every_check
def test_the_empty_starter_is_not_judged_and_earns_nothing(name: str) -> None:
    check = check_named(name)
    verdict = judged(name, f"def {check.CALL}:\n    raise NotImplementedError()", 1)
    assert verdict.unsolved and verdict.earned(10) == 0


def said(verdict: Verdict) -> list[str]:
    """Everything that is said about each failed case."""
    return ["\n".join((line.said, *(text for _, text in details(line)))) for line in verdict.lines if not line.passed]


@every_check
def test_a_judge_takes_any_outputs_at_all_and_passes_none_of_them(name: str) -> None:
    check = check_named(name)
    inputs = check.draw(5)
    calls: list[Any] = [None, [], {}, "x", {"output": np.zeros(()), "keys": 1}, np.zeros((0,)), {"output": [[], [1]]}]
    ends: list[Any] = [3, {}, {"kind": "raised", "line": "x"}, {"kind": ["none"]}, {"kind": np.arange(3.0)}]
    forged = (
        anything() + [filled(cases(name), call) for call in calls] + [filled(cases(name), None, end) for end in ends]
    )
    for outputs in forged:
        verdict = check.judge(inputs, unpack(pack(outputs)))
        assert not verdict.passed and verdict.earned(10) == 0
        assert all(text.strip() for text in said(verdict))


@every_check
@pytest.mark.filterwarnings("ignore:.*in cast:RuntimeWarning")  # of the random numbers themselves
def test_a_judge_takes_random_plain_data_in_random_places(name: str) -> None:
    check, rng = check_named(name), np.random.default_rng(11)
    inputs = check.draw(5)
    right, wrong = next(iter(variants(name).RIGHT.values())), next(iter(variants(name).WRONG.values())).source
    honest = [pack(check.run(function(source, check.FUNCTION), check.draw(5))) for source in (right, wrong)]
    for number in range(40):
        outputs: Any = unpack(honest[number % 2])
        for _ in range(rng.integers(1, 4)):
            ways = places(outputs)
            *way, last = ways[rng.integers(len(ways))]
            reduce(getitem, way, outputs)[last] = some_plain_data(rng)
        verdict = check.judge(inputs, unpack(pack(outputs)))
        assert all(len(text) < 2000 for text in said(verdict))


@every_check
def test_inputs_are_plain_the_same_for_a_seed_and_other_for_another(name: str) -> None:
    check = check_named(name)
    assert pack(check.draw(4)) == pack(check.draw(4)) != pack(check.draw(5))


@every_check
def test_answers_to_other_inputs_do_not_pass(name: str) -> None:
    """What was learnt by heart from one seed is of no use at another."""
    check = check_named(name)
    right = function(next(iter(variants(name).RIGHT.values())), check.FUNCTION)
    outputs = unpack(pack(check.run(right, check.draw(5))))
    assert check.judge(check.draw(5), outputs).passed
    assert not check.judge(check.draw(6), outputs).passed
