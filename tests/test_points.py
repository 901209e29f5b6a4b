"""What a task of an assignment ends with: the points, to a learner and to nbgrader, and examples that wait for it."""

import importlib
import linecache
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from IPython.core.formatters import DisplayFormatter
from nbformat import v4
from variants import function, variants

from course_lib.checks import exercise
from course_lib.checks.contract import Line, Verdict
from course_lib.progress import store
from course_lib.study import example

module = importlib.import_module("course_lib.study.points")  # `course_lib.study.points` is the function
points = module.points
NAME = "ex03.append"
ALL, RIGHT, WRONG = (getattr(variants(NAME), which) for which in ("ALL", "RIGHT", "WRONG"))
STARTER = "def append(cache, layer, k, v):\n    # YOUR CODE HERE\n    raise NotImplementedError()"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder for each test, and nobody who grades."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    for variable in (module.SEED, "NBGRADER_EXECUTION"):
        monkeypatch.delenv(variable, raising=False)
    return tmp_path / "data"


def verdict(passed: int, of: int) -> Verdict:
    return Verdict(tuple(Line(str(number), number < passed) for number in range(of)))


@pytest.mark.parametrize(
    ("worth", "passed", "of", "earned"),
    [(5, 10, 10, 5), (5, 9, 10, 4.5), (5, 1, 10, 0.5), (5, 0, 10, 0), (6, 8, 9, 5), (6, 1, 9, 0.5), (3, 1, 3, 1),
     (3, 2, 3, 2), (2.5, 3, 3, 2.5), (2.5, 2, 3, 1.5), (10, 29, 100, 2.5), (100, 29, 100, 29), (1, 1, 3, 0)],
)  # fmt: skip
def test_points_are_the_share_of_the_cases_rounded_down_to_halves(
    worth: float, passed: int, of: int, earned: float
) -> None:
    assert verdict(passed, of).earned(worth) == earned
    assert verdict(passed, of).share == pytest.approx(passed / of)


def test_nothing_judged_earns_nothing() -> None:
    for empty in (Verdict(()), Verdict((), unsolved=True), Verdict((Line("one", True),), unsolved=True)):
        assert (empty.earned(5), empty.share) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("source", "earned", "said"),
    [
        (RIGHT["NumPy"], 5.0, "10 cases passed."),
        (WRONG["chunks of 4 reversed"].source, 4.0, "2 of 10 cases failed."),
        (WRONG["heads reversed"].source, 0.0, "10 of 10 cases failed."),
        (STARTER, 0.0, "Not solved yet"),
    ],
)
def test_a_cell_shows_what_check_shows_and_ends_with_the_points(
    source: str, earned: float, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    result = points(NAME, function(source))
    shown = capsys.readouterr().out
    assert result == earned and said in shown and shown.rstrip().endswith(f"{earned:g} of 5 points.")


def test_on_a_page_the_points_are_said_once_and_nbgrader_reads_them_as_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(module, "display", shown.append)
    data, _ = DisplayFormatter().format(points(NAME, function(WRONG["chunks of 4 reversed"].source)))
    assert ["4 of 5 points." in report.html for report in shown] == [False]
    assert data["text/html"].count("4 of 5 points.") == 1
    utils = pytest.importorskip("nbgrader.utils")
    meta = {"grade": True, "solution": False, "points": 5, "grade_id": "x", "schema_version": 3}
    cell = v4.new_code_cell(outputs=[v4.new_output("execute_result", data)], metadata={"nbgrader": meta})
    assert utils.determine_grade(cell) == (4.0, 5)


@pytest.mark.parametrize("name", ["ex03.apend", "", None])
def test_an_unknown_exercise_earns_nothing_and_is_said(name: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert points(name) == 0.0
    assert "There is no check" in capsys.readouterr().out


def test_a_function_that_is_not_there_earns_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("course_lib.study.check"), "namespace", dict)
    assert points(NAME) == 0.0
    assert "There is no `append` here yet" in (shown := capsys.readouterr().out) and "0 of 5 points." in shown


def test_warnings_of_a_right_solution_cost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """nbgrader gives 0 to a cell with anything on standard error."""
    right = function(RIGHT["NumPy"])

    def append(*given: Any) -> Any:
        print("to standard error", file=sys.stderr)
        return right(*given)

    assert points(NAME, append) == 5.0
    out, err = capsys.readouterr()
    assert err == "" and "to standard error" in out


def test_a_result_is_recorded_as_that_of_check_is(data: Path) -> None:
    points(NAME, function(WRONG["chunks of 4 reversed"].source))
    points(NAME, function(RIGHT["NumPy"]))
    assert [event.data["passed"] for event in store().events("check", NAME)] == [False, True]


@pytest.mark.parametrize(("variable", "value"), [(module.SEED, "secret"), ("NBGRADER_EXECUTION", "autograde")])
def test_nothing_is_recorded_where_somebody_is_graded(
    variable: str, value: str, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert points(NAME, function(RIGHT["NumPy"])) == 5.0
    assert not data.exists()


def drawn(capsys: pytest.CaptureFixture[str]) -> str:
    points(NAME, function(WRONG["keys and values swapped"].source))
    return capsys.readouterr().out


def test_inputs_come_from_the_seed_of_the_grading_and_are_others_for_each_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert drawn(capsys) != drawn(capsys)
    monkeypatch.setenv(module.SEED, "one secret")
    first = drawn(capsys)
    assert first == drawn(capsys)
    monkeypatch.setenv(module.SEED, "another")
    assert first != drawn(capsys)
    assert module.seed_of("ex03.append") != module.seed_of("ex03.attend")


def test_an_example_waits_for_the_function_and_raises_everything_else(capsys: pytest.CaptureFixture[str]) -> None:
    with example("append"):
        function(STARTER)({}, 0, None, None)
    assert capsys.readouterr().out == "`append` is not written yet: these examples run once it is.\n"
    with example("append"):
        pass
    assert capsys.readouterr().out == "These examples of `append` hold.\n"
    with pytest.raises(AssertionError), example("append"):
        raise AssertionError
    assert capsys.readouterr().out == ""


def test_the_points_of_an_exercise_stand_with_its_text() -> None:
    assert exercise(NAME).points == 5


FROM_THE_COURSE = {
    "an import in its cell": "from course_lib.caches import ContiguousCache\n" + dedent(RIGHT["NumPy"]),
    "an import in its body": "def append(cache, layer, k, v):\n    from course_lib import caches\n    return k, v",
    "a helper": "import course_lib.caches as c\ndef help_me():\n    return c.ContiguousCache\n"
    "def append(cache, layer, k, v):\n    help_me()\n    return k, v",
    "its own class": "from course_lib.caches import ContiguousCache as append",
    "a class made from it": "import course_lib.caches\nclass append(course_lib.caches.ContiguousCache):\n    pass",
}


def in_a_cell(source: str, shell: dict[str, Any]) -> Any:
    """The answer that a cell defines, which Python can show the lines of, as a notebook can."""
    text, name = dedent(source), f"<cell {len(linecache.cache)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    shell["__name__"] = "__main__"
    exec(compile(text, name, "exec"), shell)
    return shell["append"]


@pytest.mark.parametrize("source", FROM_THE_COURSE.values(), ids=FROM_THE_COURSE)
def test_an_answer_that_needs_what_is_ruled_out_earns_nothing_here_either_and_is_told_why(
    source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert points(NAME, in_a_cell(source, {})) == 0.0
    said = capsys.readouterr().out
    assert "when it is graded it earns nothing" in said and "course_lib.caches" in said


def test_an_import_elsewhere_in_the_notebook_is_told_and_costs_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shell: dict[str, Any] = {}
    exec("from course_lib.caches import ContiguousCache", shell)
    monkeypatch.setattr(module, "namespace", lambda: shell)
    assert points(NAME, in_a_cell(RIGHT["NumPy"], shell)) == 5.0
    assert "Your notebook imports course_lib.caches, which this exercise rules out" in capsys.readouterr().out


def test_how_points_are_counted_is_said_where_some_are_missing(capsys: pytest.CaptureFixture[str]) -> None:
    points(NAME, function(WRONG["chunks of 4 reversed"].source))
    points(NAME, function(RIGHT["NumPy"]))
    assert capsys.readouterr().out.count(module.COUNTED) == 1
