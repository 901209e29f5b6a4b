"""What the judges of ex09 share: a learner's test is worth something if it accepts every right cache.

The one idea: whoever accepts everything, rejects everything, or guesses, earns nothing. A case is passed by rejecting
all its broken caches, and by nobody who rejects a right one, in whichever case. Which caches are right is found out
here, by a test that the learner never sees; nothing that came from the sandbox has a say in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import Any

from course_lib.checks.compare import Case, Wrong, verdict
from course_lib.checks.contract import WAITS, Line, Verdict, in_line, part, words
from course_lib.checks.ex09_caches import Family, Numbers, draw_caches, manners_of
from course_lib.checks.plain import Plain

TOLERANCE = "none of its own. Right caches keep at least six decimal digits of each number; some keep no more."


def draw_inputs(family: Family, seed: int) -> dict[str, Any]:
    """The caches of all cases: {"cases": {name: [{"numbers": [[int]]}]}}. They do not say which are right."""
    cases = draw_caches(family, seed)
    return {"cases": {name: [{"numbers": numbers} for numbers, _ in caches] for name, caches in cases.items()}}


def judged(
    family: Family,
    call: str,
    make: Callable[[Numbers], Callable[[], object]],
    promise: Callable[[Any], None],
    inputs: dict[str, Any],
    outputs: Plain,
) -> Verdict:
    """One line for each kind of broken cache. `make` builds a cache from its numbers, `promise` is a test of ours."""
    kinds = {kind.name: kind for kind in family.kinds}

    class TestOf(Case):
        CALL = call

        @cached_property
        def right(self) -> list[bool]:
            return [is_right(promise, make, tuple(map(tuple, each["numbers"]))) for each in self.calls]

        @cached_property
        def rejected(self) -> list[tuple[list[str], int]]:
            """The manners of each right cache that is rejected, and its number."""
            return [
                (manners_of(family, call["numbers"]), number)
                for number, (call, right, answer) in enumerate(zip(self.calls, self.right, self.answers))
                if right and answer.get("rejected") is not False
            ]

        def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
            if type(answer.get("rejected")) is not bool:
                return Wrong("No answer to this case came back.", came="nothing")
            right = self.right[next(n for n, each in enumerate(self.calls) if each is call)]
            return None if right or answer["rejected"] else too_lenient(kinds[self.name].says, self.seen, answer)

        @property
        def seen(self) -> bool:
            return kinds[self.name].seen

        def went_in(self, call: dict[str, Any]) -> str:
            right = self.right[next(n for n, each in enumerate(self.calls) if each is call)]
            return f"a {'right' if right else 'broken'} cache, one of the {len(self.calls)} of this case"

        def line(self, cases: Iterable[Case]) -> Line:
            """The plainest right cache that is rejected, in whichever case, says most about why. That is said once."""
            all_cases = [case for case in cases if isinstance(case, TestOf)]
            found = [(manners, number, case) for case in all_cases for manners, number in case.rejected]
            if not found:
                return super().line(())
            if self is not all_cases[0]:
                return Line(self.name, False, WAITS)
            manners, number, case = min(found, key=lambda each: len(each[0]))
            all_of_them = len(found) == sum(sum(case.right) for case in all_cases)
            line = case.failed(number, too_strict([] if all_of_them else manners, case.answers[number]))
            where = "" if case is self else f"in the case “{case.name}”"
            return Line(self.name, False, line.said, line.went_in, line.expected, line.came_out, where)

    return verdict(TestOf, inputs, outputs)


@lru_cache(1000)  # a judge is asked about the same caches again and again where it is tested itself
def is_right(promise: Callable[[Any], None], make: Callable[[Numbers], Callable[[], object]], numbers: Numbers) -> bool:
    """Whether a cache comes through our own test."""
    try:
        promise(make(numbers))
    except (AssertionError, ValueError, IndexError):
        return False
    return True


def too_strict(manners: list[str], answer: dict[str, Plain]) -> Wrong:
    name, message = words(answer.get("type"), 60), words(answer.get("message"))
    came = f"{name or 'an error'}{f': {message}' if message else ''}{in_line(part(answer))}"
    said = "Your test rejects a right cache, as it rejects all of them. Does it accept the right one in this notebook?"
    if manners:
        which = " and ".join(filter(None, [", ".join(manners[:-1]), manners[-1]]))
        said = f"Your test rejects a right cache: one that {which}. That is allowed."
    return Wrong(said, "no error", came)


def too_lenient(says: str, seen: bool, answer: dict[str, Plain]) -> Wrong:
    came = words(answer.get("returned"), 100)
    which = "a broken cache that you have seen" if seen else "a broken cache of a kind that you have not seen"
    said = f"Your test accepts {which}: one that {says}."
    if came:
        said = (
            f"Your test returned {came}. It says no by raising an error, as `assert` does; what it returns is not read."
        )
    return Wrong(said, "an error, such as AssertionError", f"no error{f', and {came}' if came else ''}")
