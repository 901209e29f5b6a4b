"""The caches of ex09: the judge takes each for what it was drawn as, nothing in its numbers tells a right one from a
broken one at a glance, and whoever guesses earns nothing.
"""

from types import ModuleType
from typing import Any

import numpy as np
import pytest

from course_lib.checks import ex09_one_row, ex09_ragged, ex09_reuse
from course_lib.checks.ex09_caches import draw_caches
from course_lib.checks.ex09_verdict import is_right
from course_lib.checks.runs.ex09_memory import STYLE

SEED = 20
every_check = pytest.mark.parametrize(
    "check", (ex09_one_row, ex09_ragged, ex09_reuse), ids=lambda check: check.FUNCTION
)


def drawn(check: ModuleType, seed: int = SEED) -> list[tuple[Any, bool]]:
    return [cache for caches in draw_caches(check.FAMILY, seed).values() for cache in caches]


@every_check
def test_the_judge_takes_each_cache_for_what_it_was_drawn_as(check: ModuleType) -> None:
    for numbers, right in drawn(check):
        assert is_right(check.promise, check.make, tuple(map(tuple, numbers))) is right


@every_check
def test_each_manner_of_a_right_cache_comes_up_every_time(check: ModuleType) -> None:
    for seed in range(20):
        styles = [dict(zip(STYLE, numbers[0])) for numbers, right in drawn(check, seed) if right]
        for manner in check.FAMILY.manners:
            assert any(style["room"] == 32 if manner == "full" else style[manner] for style in styles), manner


@every_check
def test_each_case_has_right_and_broken_caches_in_an_order_that_changes(check: ModuleType) -> None:
    orders = {
        tuple(tuple(right for _, right in caches) for caches in draw_caches(check.FAMILY, seed).values())
        for seed in range(20)
    }
    assert len(orders) == 20 and all(set(case) == {True, False} for order in orders for case in order)


@every_check
def test_neither_the_length_of_the_rules_nor_what_they_ask_for_tells_broken_caches(check: ModuleType) -> None:
    """Means over many caches are nearly the same; one cache is off from its mean by far more."""
    caches = [cache for seed in range(40) for cache in drawn(check, seed)]
    for seen in (
        lambda numbers: sum(map(len, numbers)),
        lambda numbers: max(map(len, numbers)),
        lambda numbers: sum(number == 8 for rule in numbers[1:] for number in rule),
        lambda numbers: sum(numbers[0][:4]),
    ):
        broken, right = ([seen(numbers) for numbers, is_it in caches if is_it is which] for which in (False, True))
        assert abs(np.mean(broken) - np.mean(right)) < 0.5 * np.std(right)


@every_check
def test_who_accepts_everything_rejects_everything_or_guesses_earns_nothing(check: ModuleType) -> None:
    inputs, rng = check.draw(SEED), np.random.default_rng(0)

    def earned(share: float) -> float:
        """Of 100 points, for rejecting that share of all caches at random."""
        outputs = {
            name: {"calls": [{"rejected": bool(rng.random() < share)} for _ in calls], "ended": None}
            for name, calls in inputs["cases"].items()
        }
        return check.judge(inputs, {"starter": False, "cases": outputs}).earned(100)

    assert earned(0) == earned(1) == 0
    assert sum(earned(0.5) for _ in range(40)) == 0
    assert np.mean([earned(0.2) for _ in range(80)]) < 2  # all right ones are accepted by chance now and then
