"""What ex01 and ex02 promise beside their checks: that whoever is right also passes the examples, that the benchmarks
stand there as they were found, and that the numbers in questions and answers are right."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from variants import function, variants

from course_lib.checks import check_named, names
from course_lib.checks.contract import answer
from course_lib.checks.runs.machine import Machine
from course_lib.commands.kernels import read_notebook
from course_lib.grading.assignment import RELEASED, SOURCES
from course_lib.grading.release import CODE_STUB

ROOT = Path(__file__).resolve().parents[1]
ASSIGNMENTS = {"ex01": "ex01_mask_and_generation", "ex02": "ex02_latency_and_benchmarks"}
CHECKS = [name for name in names() if name[:4] in ASSIGNMENTS]
BENCHMARKS = ["ex02.token_waits", "ex02.prompt_rate", "ex02.decode_rate", "ex02.step_time", "ex02.pass_time"]


def cells(number: str, room: str = RELEASED) -> dict[str, str]:
    """grade_id → text of each cell of an assignment."""
    path = ROOT / room / ASSIGNMENTS[number] / f"{ASSIGNMENTS[number]}.ipynb"
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in read_notebook(path).cells}


def released(name: str) -> str:
    return cells(name[:4])[name.replace(".", "_")]


def as_found(name: str) -> str:
    """A learner's cell after the two lines that are theirs to delete have been deleted, and nothing else."""
    return "\n".join(line for line in released(name).split("\n") if line.strip() not in CODE_STUB)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        pytest.param(name, source, id=f"{name}: {said}")
        for name in CHECKS
        for said, source in variants(name).RIGHT.items()
    ],
)
def test_a_right_solution_passes_the_examples_too_however_it_is_written(
    name: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    here, stem = cells(name[:4]), name.replace(".", "_")
    notebook: dict[str, Any] = {"__name__": "__main__"}
    if name == "ex01.attention":
        exec(dedent(next(iter(variants("ex01.mask").RIGHT.values()))), notebook)
    for text in (here[f"{name[:4]}_setup"], dedent(source), here[f"{stem}_examples"]):
        exec(compile(text, "<cell>", "exec"), notebook)
    assert f"`{check_named(name).FUNCTION}` hold" in capsys.readouterr().out


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_stands_in_the_release_as_it_was_found_and_earns_nothing_like_that(name: str) -> None:
    check, notebook = check_named(name), {"Machine": Machine}
    assert "# As it was found:" in released(name) and as_found(name) != released(name)
    exec(as_found(name), notebook)
    found: Any = notebook[check.FUNCTION]
    for seed in range(5):
        mine = answer(check, found, seed)
        theirs = answer(check, function(variants(name).FOUND, check.FUNCTION), seed)
        assert mine == theirs, "the mutants are changed from what learners get"
        assert not mine.passed and not mine.unsolved and mine.earned(1) == 0


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_was_found_with_one_wrong_line(name: str) -> None:
    """Moved or changed: every other line stands in the plain right solution as well."""
    found, right = (
        {line.strip() for line in text.strip().split("\n")} for text in (variants(name).FOUND, variants(name).PLAIN)
    )
    assert len(found - right) <= 1 and as_found(name).count("\n") >= len(found)


def figures(name: str, source: str) -> Any:
    given: dict[str, tuple[Any, ...]] = {
        "ex02.token_waits": ([7] * 90, 12),
        "ex02.prompt_rate": ([[7] * 30, [7] * 50],),
        "ex02.decode_rate": ([7] * 90, 12),
        "ex02.step_time": (5,),
        "ex02.pass_time": (),
    }
    return function(source, check_named(name).FUNCTION)(Machine(), *given[name])


def test_four_benchmarks_were_found_to_report_too_little_of_the_machine_and_one_too_much() -> None:
    """As the last question of ex02 says. Rates are better when larger, times when smaller."""
    better = {}
    for name in BENCHMARKS:
        found, right = (figures(name, text) for text in (variants(name).FOUND, variants(name).PLAIN))
        if name == "ex02.token_waits":
            found, right = (sum(gaps) / len(gaps) for _, gaps in (found, right))
        better[name] = found > right if name.endswith("_rate") else found < right
        assert found != right
    assert [name for name in BENCHMARKS if better[name]] == ["ex02.pass_time"]


def test_the_numbers_in_answers_of_ex01_are_right() -> None:
    said = cells("ex01", SOURCES)["ex01_again_answer"]
    passes = range(300, 500)
    assert f"{sum(passes):,}" in said and f"{sum(passes) - (300 + 200 - 1):,}" in said
    assert (passes[0], passes[-1], len(passes), sum(passes) / len(passes)) == (300, 499, 200, 399.5)


def test_the_numbers_in_answers_of_ex02_are_right() -> None:
    said = cells("ex02", SOURCES)["ex02_means_answer"]
    tpot = [0.1] * 990 + [0.02] * 10
    gaps = [0.1] * 990 + [0.02] * 10 * 1000
    assert f"{sum(tpot) / len(tpot):.4f} s" in said and f"≈ {sum(gaps) / len(gaps):.4f} s" in said
    assert f"{len(gaps):,} of them" in said and f"{sum(gaps):.0f} s / {len(gaps):,}" in said


def test_on_the_machine_time_passes_only_while_work_is_done() -> None:
    machine = Machine(prefill_s=0.25, prompt_token_s=0.5, step_s=2.0, first_s=8.0, launch_s=0.125, clock_s=64.0)
    assert machine.now() == machine.now() == 64
    machine.prefill([[1, 2], [3]])
    assert machine.now() == 64 + 0.25 + 3 * 0.5
    machine.decode()
    assert machine.now() == 65.75 + 10  # the first step, on a machine that was not warm
    machine.decode()
    assert machine.now() == 75.75 + 2
    machine.launch()
    machine.launch()
    assert machine.now() == 77.75 + 2 * 0.125  # both were only handed over
    machine.wait()
    assert machine.now() == 77.75 + 2 * 2
    machine.wait()
    assert machine.now() == 81.75


def test_a_step_of_the_machine_takes_longer_the_more_tokens_were_read_if_it_is_told_so() -> None:
    machine = Machine(prefill_s=0.0, prompt_token_s=0.0, step_s=1.0, held_token_s=0.25, clock_s=0.0, warm=True)
    machine.prefill([[1] * 4])
    machine.decode()
    machine.decode()
    assert machine.now() == (1 + 4 * 0.25) + (1 + 5 * 0.25)


def test_tokens_beyond_those_that_lie_near_cost_more() -> None:
    settings = {"prefill_s": 0.0, "prompt_token_s": 0.0, "step_s": 1.0, "clock_s": 0.0, "warm": True}
    machine = Machine(**settings, held_token_s=0.25, far_token_s=2.0, near_tokens=5)
    machine.prefill([[1] * 4])
    for held, far in ((4, 0), (5, 0), (6, 1), (7, 2)):
        before = machine.now()
        machine.decode()
        assert machine.now() - before == 1 + held * 0.25 + far * 2


def test_the_machine_streams_tokens_at_the_moments_at_which_they_come() -> None:
    machine = Machine(prefill_s=0.5, prompt_token_s=0.0, gaps_s=[1.0, 2.0], clock_s=8.0)
    assert [machine.now() for _ in machine.stream([1, 2], 4)] == [8.5, 9.5, 11.5, 12.5]


def test_what_is_to_be_measured_is_no_attribute_of_the_machine() -> None:
    machine = Machine(step_s=0.0625)
    machine.decode()
    calls = {"now", "prefill", "decode", "launch", "wait", "stream"}
    assert {name for name in dir(machine) if not name.startswith("__")} == set(vars(machine)) == calls
    assert all(callable(value) for value in vars(machine).values())
