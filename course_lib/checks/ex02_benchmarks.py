"""What the judges of the five benchmarks of ex02 share: machines to draw, and a figure to compare.

The one idea: time is simulated, so a benchmark is right if its figure is. What it should report is added up by each
check from what the machine's work takes, without running anything; what it reports with a wrong line is worked out as
well, so that it can be named.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong
from course_lib.checks.ex02_figures import TOLERANCE, Belief, Figure, unlike
from course_lib.checks.plain import Plain

__all__ = ["NOT_CHECKED", "TOLERANCE", "BenchmarkCase", "call_of", "prefill_s"]

NOT_CHECKED = "how the benchmark is written, real clocks, machines that do several things at a time"


def call_of(rng: np.random.Generator, *given: Any, busy: int = 0, **settings: Any) -> dict[str, Any]:
    """A call of a benchmark on a machine whose work takes drawn times; `settings` are those that are not drawn."""
    machine = {
        "prefill_s": int(rng.integers(100, 400)) / 1000,
        "prompt_token_s": int(rng.integers(5, 40)) / 10_000,
        "step_s": int(rng.integers(15, 60)) / 1000,
        "first_s": int(rng.integers(300, 900)) / 1000,
        "launch_s": int(rng.integers(2, 9)) / 10_000,
        "clock_s": int(rng.integers(1000, 90_000)) / 4,
        "warm": True,
    }
    return {"machine": machine | settings, "busy": busy, "given": list(given)}


def prefill_s(call: dict[str, Any], tokens: int) -> float:
    seconds: float = call["machine"]["prefill_s"] + tokens * call["machine"]["prompt_token_s"]
    return seconds


class BenchmarkCase(Case):
    """One case under judgement; a check says what the figure is, and what its wrong beliefs give."""

    FIGURE = ""  # its name, with the unit
    MEANING = ""  # what it is, in a sentence

    def right(self, call: dict[str, Any]) -> Figure:
        raise NotImplementedError

    def beliefs(self, call: dict[str, Any]) -> Iterable[Belief]:
        raise NotImplementedError

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        came = answer.get("figure")
        if came is None:
            return Wrong(f"{self.CALL.partition('(')[0]} returned None. Did you forget `return`?", came="None")
        return unlike(self.FIGURE, self.right(call), came, self.beliefs(call), self.MEANING)


def tokens(count: int, kind: str = "token") -> str:
    """ "1 token", "12 tokens"."""
    return f"{count} {kind}{'s' * (count != 1)}"
