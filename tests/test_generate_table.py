"""The table below an answer: each row has the number that its name says, in its unit."""

import io

import pytest
from rich.console import Console

from course_lib.commands.generate import timing_table
from course_lib.metrics import Timing


def rows(timing: Timing, cache: bool = True) -> dict[str, list[str]]:
    """name of a measure -> its value and unit, as they stand in the table"""
    console = Console(file=io.StringIO(), width=80)
    console.print(timing_table(timing, cache))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    names = ("TTFT", "ITL, median", "ITL, largest", "TPOT", "prefill", "decode", "end to end")
    return {name: next(line for line in lines if line.startswith(name))[len(name) :].split()[:2] for name in names}


def test_every_row_has_the_number_that_its_name_says() -> None:
    gaps = (0.1, 0.2, 0.1, 0.7)  # median 150 ms, mean 275 ms
    times = tuple(2.0 + sum(gaps[:count]) for count in range(5))
    assert rows(Timing(0.0, times, 50)) == {
        "TTFT": ["2000.0", "ms"],
        "ITL, median": ["150.0", "ms"],
        "ITL, largest": ["700.0", "ms"],
        "TPOT": ["275.0", "ms"],
        "prefill": ["25.0", "tokens/s"],
        "decode": [f"{4 / 1.1:.1f}", "tokens/s"],
        "end to end": ["3100.0", "ms"],
    }


@pytest.mark.parametrize("name", ["ITL, median", "ITL, largest", "TPOT", "decode"])
def test_of_one_token_there_are_no_gaps(name: str) -> None:
    assert rows(Timing(0.0, (0.5,), 8))[name][0] == "-"
