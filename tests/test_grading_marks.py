"""Marks for one submission: what works counts, and a sentence says what happened."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from exercises.ex03_append import RIGHT as APPEND_RIGHT
from exercises.ex03_append import WRONG as APPEND_WRONG
from small_assignment import (
    ASSIGNMENT,
    CASES,
    KEY,
    NAME,
    QUICK,
    RIGHT,
    STARTER,
    WRONG,
    code,
    graded,
    handed_in,
    needs_sandbox,
    notebook,
    older,
    room,
    text,
    use_small_check,
)
from variants import function

from course_lib.checks import FOLDER, BadExercise, ex03_append, exercise
from course_lib.checks.contract import answer
from course_lib.grading.assignment import Assignment, Task
from course_lib.grading.mark import Marks, mark, rules_of, seed
from course_lib.grading.sandbox import Limits, NoSandbox, Sandbox
from course_lib.grading.session import Ended, Session
from course_lib.grading.submission import read_submission


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with room() as made:
        yield made


@pytest.fixture(autouse=True)
def small_check(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_check(monkeypatch)


def marks(folder: Path, sandbox: Sandbox, *cells: Any, limits: Limits = QUICK, **changed: Any) -> Marks:
    return mark(handed_in(folder, notebook(*cells, **changed)), ASSIGNMENT, KEY, limits, sandbox)


def said(marks: Marks) -> str:
    return "\n".join((*marks.notes, *marks.tasks[0].said))


@needs_sandbox
def test_a_right_answer_earns_all_points_and_nothing_needs_to_be_said(tmp_path: Path, sandbox: Sandbox) -> None:
    right = marks(tmp_path, sandbox, RIGHT)
    assert (right.earned, right.points) == (4, 4) and said(right) == ""
    assert [line.case for line in right.tasks[0].lines] == list(CASES) and all(n.passed for n in right.tasks[0].lines)
    assert right.submission == "ex99_small" and right.answers[0].text == "Because."
    assert 0 < right.peak_bytes < 200 << 20 and right.seconds > 0


@needs_sandbox
def test_a_wrong_answer_earns_the_share_of_its_cases_and_the_starter_nothing(tmp_path: Path, sandbox: Sandbox) -> None:
    wrong = marks(tmp_path, sandbox, WRONG)
    assert wrong.earned == 1 and [line.passed for line in wrong.tasks[0].lines] == [False, False, False, True]
    starter = marks(tmp_path, sandbox, STARTER)
    assert starter.earned == 0 and said(starter) == "Not solved yet: `double` is still the starter."


EXIT = "import os\nos._exit(3)"
IGNORES = """
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
"""
# what was handed in, what it earns, and what is said
MIXED: dict[str, tuple[list[Any], float, str]] = {
    "a cell before it raises": (["1 / 0", RIGHT], 4, "Code cell 2 raised ZeroDivisionError in line 1 of <module>"),
    "a cell is no Python": (["def (", RIGHT], 4, "Code cell 2 raised SyntaxError in line 1: invalid syntax."),
    "a cell after it raises": ([RIGHT, "raise SystemExit"], 4, "Code cell 3 raised SystemExit"),
    "a cell does not end": (["while True: pass", RIGHT], 4, "Code cell 2 did not end within 2 s and was stopped."),
    "a cell does not listen": ([RIGHT, IGNORES], 4, "Code cell 3 did not end within 2 s, and did not listen"),
    "a cell waits for input": (["name = input()", RIGHT], 4, "Code cell 2 raised EOFError"),
    "a cell ends the process": ([RIGHT, EXIT], 4, "Code cell 3 ended the process that it ran in"),
    "two cells end it": ([EXIT, RIGHT, EXIT], 4, "Code cell 4 ended the process that it ran in"),
    "the answer ends the process": ([RIGHT + "\n" + EXIT], 0, "`double` was not defined.\nCode cell 2 ended the"),
    "a cell crashes": ([RIGHT, "import ctypes\nctypes.string_at(0)"], 4, "Code cell 3 ended the process"),
    "a cell is a bomb for parsers": (["(" * 5000 + ")" * 5000, "-" * 90_000 + "1", RIGHT], 4, "Code cell 2 raised"),
    "a cell holds half a character": (["x = '\udc80'", RIGHT], 4, "Code cell 2 raised UnicodeEncodeError"),
    "a cell holds a null": (["x = 1\0", RIGHT], 4, "Code cell 2 raised"),
    "one case ends the process": (
        ["import os\ndef double(numbers):\n    return [2 * x for x in numbers] if numbers else os._exit(0)"],
        3,
        "`double` ended the process that it ran in (by os._exit, for example, or by a crash).\nEach case was",
    ),
    "one case does not end": (
        ["def double(numbers):\n    while len(numbers) == 50: pass\n    return [2 * x for x in numbers]"],
        3,
        "`double` did not end within 2 s and was stopped.\nEach case was then tried on its own.",
    ),
    "no case ends": (["def double(numbers):\n    while True: pass"], 0, "`double` did not end within 2 s"),
    "far too much comes back": (
        ["def double(numbers): return [0] * 10_000_000 if len(numbers) > 9 else [2 * x for x in numbers]"],
        3,
        "",
    ),
    "nothing is defined": (["x = 1"], 0, "There is no `double` in the notebook."),
    "it was not defined": (["1 / 0\n" + RIGHT], 0, "`double` was not defined.\nCode cell 2 raised ZeroDivisionError"),
    "its cell is no Python": (
        [RIGHT + "]"],
        0,
        "The cell that defines `double` has a SyntaxError.\nCode cell 2 raised SyntaxError in line 2",
    ),
    "it is no function": (["double = [1, 2]"], 0, "`double` is a list, not a function."),
    "it is a function of a library": (["from copy import copy as double"], 0, "`double` is from the module copy; an"),
    "it is in a file that the notebook wrote": (
        ["%%writefile mine.py\n" + RIGHT, "import sys\nsys.path.insert(0, '')\nfrom mine import double"],
        4,
        "",
    ),
    "it is decorated": (["from functools import *\n@lru_cache\ndef two(x): return 2 * x\n@cache\n@wraps(len)\n"
                         "def double(numbers): return [two(x) for x in numbers]"], 0, "TypeError"),
    "it is a method": (["class A:\n    def two(self, xs): return [2 * x for x in xs]\ndouble = A().two"], 4, ""),
    "it is partly applied": (
        ["from functools import partial\ndef times(n, xs): return [n * x for x in xs]\ndouble = partial(times, 2)"],
        4,
        "",
    ),
    "it is an object": (["class A:\n    def __call__(self, xs): return [2 * x for x in xs]\ndouble = A()"], 4, ""),
    "the cell is there twice, the second is empty": ([RIGHT, STARTER], 4, "Code cell 3 was not run: it is empty, and"),
    "the cell is there twice, both empty": ([STARTER, STARTER], 0, "Not solved yet"),
    "it stands in the cell of the check": ([STARTER.replace("# YOUR CODE HERE", ""), RIGHT], 4, ""),
    "it needs await and magics": (
        ["import asyncio\nawait asyncio.sleep(0)\n%time 1\n!pip install x\nfiles = !ls\n" + RIGHT, "display(double)"],
        4,
        "",
    ),
    "it imports what is ruled out": (
        [RIGHT, "from course_lib import caches\nx = 1", "__import__('course_lib.caches.paged')"],
        4,
        "Code cell 4 imports course_lib.caches, which this exercise rules out; where marks are given it does",
    ),
    "it needs what is ruled out": (
        ["import importlib\nimportlib.import_module('course_lib.' + 'caches')\n" + RIGHT],
        0,
        "No module named 'course_lib.caches'",
    ),
}  # fmt: skip


@needs_sandbox
@pytest.mark.parametrize("name", MIXED)
def test_what_works_earns_its_points_and_a_sentence_says_what_happened(
    name: str, tmp_path: Path, sandbox: Sandbox
) -> None:
    cells, earned, sentence = MIXED[name]
    came = marks(tmp_path, sandbox, *cells)
    assert came.earned == earned, said(came)
    assert sentence in said(came) and all(each.endswith(".") for each in said(came).splitlines())
    if not sentence:
        assert not came.tasks[0].said or earned < 4


@needs_sandbox
def test_a_forbidden_import_is_said_once_about_the_file_and_not_at_each_task(tmp_path: Path, sandbox: Sandbox) -> None:
    two = replace(ASSIGNMENT, tasks=(*ASSIGNMENT.tasks, Task(NAME, 2.0, "Again")))
    came = mark(handed_in(tmp_path, notebook(RIGHT, "import course_lib.caches")), two, KEY, QUICK, sandbox)
    assert said(came).count("Code cell 3 imports course_lib.caches, which this exercise rules out") == 1
    assert "imports" in "".join(came.notes) and [task.said for task in came.tasks] == [(), ()]


@needs_sandbox
def test_a_cell_of_examples_is_named_by_its_task(tmp_path: Path, sandbox: Sandbox) -> None:
    came = marks(tmp_path, sandbox, RIGHT.replace("numbers]", "numbers.x]"))
    assert came.notes[0].startswith("The examples of “Double” (code cell 3) raised AttributeError in line 2"), (
        came.notes
    )


@needs_sandbox
def test_whatever_is_wrong_with_the_file_there_are_marks(tmp_path: Path, sandbox: Sandbox) -> None:
    for content, sentence in (
        (b"", "is empty"),
        (RIGHT, "is not a notebook"),
        ("{}", "no cells"),
        ("[" * 9_999, "JSON"),
    ):
        came = mark(handed_in(tmp_path, content), ASSIGNMENT, KEY, QUICK, sandbox)
        assert (came.earned, came.points, came.answers[0].text) == (0, 4, "")
        assert sentence in came.notes[0] and came.tasks[0].said == ("There is no code in what was handed in.",)
    for version in (3, 4):
        assert mark(handed_in(tmp_path, older(version)), ASSIGNMENT, KEY, QUICK, sandbox).earned == 4


@needs_sandbox
def test_deleted_renamed_and_doubled_cells_and_other_points_are_said_and_cost_nothing(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    made = notebook(RIGHT, code(RIGHT, **graded("ex99_double", solution=True)))
    made["cells"] = [cell for cell in made["cells"] if "why" not in json.dumps(cell)]
    made["cells"][-1]["metadata"]["nbgrader"]["points"] = 400
    made["cells"].append(text("My answer, in a cell of my own."))
    came = mark(handed_in(tmp_path, made), ASSIGNMENT, KEY, QUICK, sandbox)
    assert (came.earned, came.points) == (4, 4)
    assert came.notes == (
        "The cell for “Double” is there 2 times.",
        "The cell for “Why” is missing: deleted, or its metadata lost or changed.",
        "The points of the cell ex99_double_check were changed in the file; the assignment's count.",
    )
    assert (
        came.answers[0].text == "My answer, in a cell of my own." and came.answers[0].said[0] == "Its cell is missing."
    )


@needs_sandbox
def test_written_answers_are_handed_on_as_text(tmp_path: Path, sandbox: Sandbox) -> None:
    twice = text("Two.", **graded("ex99_why_answer", 2, solution=True))
    for wrote, cells, wanted in (("YOUR ANSWER HERE", [], ""), ("\x1b[2Jno\u202e\tway", [], "�[2Jno� way"),
                                  ("One.", [twice], "Two.\n\nOne.")):  # fmt: skip
        assert marks(tmp_path, sandbox, RIGHT, *cells, answer=wrote).answers[0].text == wanted


@needs_sandbox
def test_time_for_everything_ends_as_well(tmp_path: Path, sandbox: Sandbox) -> None:
    endless = "import time\ndef double(*given):\n    time.sleep(100)"
    came = marks(tmp_path, sandbox, endless, limits=Limits(total_s=5, grace_s=0.3))
    assert came.earned == 0
    assert "The whole notebook may take 5 s; what was not reached by then is lost." in said(came)


@needs_sandbox
def test_cells_that_never_end_leave_half_of_the_time_for_what_is_judged(tmp_path: Path, sandbox: Sandbox) -> None:
    slow = "import time\ntime.sleep(100)"
    came = marks(tmp_path, sandbox, RIGHT, *[slow] * 20, limits=Limits(cell_s=3, total_s=24, grace_s=0.3))
    assert came.earned == came.points
    assert any("was not run: those before it took" in note for note in came.notes)


@needs_sandbox
def test_a_process_that_ends_when_there_is_no_time_for_another_costs_no_marks(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The restart fails because the time is over, not because the machine has no sandbox."""
    starts = iter((True, False))

    def start(limits: Limits, seconds: float | None = None) -> Session:
        if next(starts, False):
            return Sandbox.start(sandbox, limits, seconds)
        time.sleep(seconds or 0)
        raise Ended("used up the time")

    monkeypatch.setattr(sandbox, "start", start)
    ends = RIGHT.replace("return", "import os; os._exit(1)\n    return", 1)
    came = marks(tmp_path, sandbox, ends, limits=Limits(total_s=12))
    assert "The whole notebook may take 12 s; what was not reached by then is lost." in said(came)


@needs_sandbox
def test_a_process_is_started_again_only_so_often(tmp_path: Path, sandbox: Sandbox) -> None:
    came = marks(tmp_path, sandbox, RIGHT, *[EXIT] * 9, limits=Limits(restarts=2))
    assert came.earned == 0 and "The process was ended 3 times; the notebook was not run again." in said(came)


def test_hidden_inputs_follow_from_the_key_the_name_the_task_and_the_content_alone(tmp_path: Path) -> None:
    one, other = (read_submission(handed_in(tmp_path, notebook(source))) for source in (RIGHT, WRONG))
    seeds = [
        seed(key, assignment, check, name, content)
        for key in (KEY, KEY + b"!")
        for assignment in ("ex98_a", "ex99_small")
        for check in ("ex99.double", "ex99.halve")
        for name in ("ada", "bob")
        for content in (one, other)
    ]
    assert len(set(seeds)) == 32 and all(0 <= each < 2**64 for each in seeds)
    assert seed(KEY, "ex99_small", "ex99.double", "ada", one) == seed(KEY, "ex99_small", "ex99.double", "ada", one)


@needs_sandbox
def test_a_judge_that_raises_costs_no_more_than_its_task(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    from small_assignment import Double

    monkeypatch.setattr(Double, "judge", staticmethod(lambda inputs, outputs: 1 / 0))
    came = marks(tmp_path, sandbox, RIGHT)
    assert came.earned == 0 and "could not be judged (ZeroDivisionError). Please look at it yourself." in said(came)


@needs_sandbox
def test_a_check_that_cannot_be_run_inside_is_no_fault_of_the_submission(tmp_path: Path) -> None:
    with Sandbox(("course_lib.caches",)) as without_the_check, pytest.raises(NoSandbox, match="No module named"):
        marks(tmp_path, without_the_check, RIGHT)


@needs_sandbox
def test_a_sandbox_that_knows_too_few_rules_and_an_empty_key_are_refused(
    tmp_path: Path, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = handed_in(tmp_path, notebook(RIGHT))
    with pytest.raises(ValueError, match="the key is empty"):
        mark(path, ASSIGNMENT, b"", QUICK, sandbox)
    use_small_check(monkeypatch, ("numpy",))
    with pytest.raises(ValueError, match="this sandbox does not rule out numpy"):
        mark(path, ASSIGNMENT, KEY, QUICK, sandbox)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("points = 0", "points: is 0, and should be 0.5 or more"),
        ("points = 1.25", "points: should be whole or half points, not 1.25"),
        ("points = true", "points: should be a number"),
        ('rules_out = "torch"', "rules_out: should be a list of texts"),
        ('rules_out = ["from torch"]', "rules_out: “from torch” is no name of a module; write “course_lib.caches”"),
        ("", ""),
    ],
)
def test_points_and_rules_of_an_exercise_are_checked_when_they_are_read(line: str, said: str, tmp_path: Path) -> None:
    good = re.sub(r"(?m)^(points|rules_out) = .*$", "", (FOLDER / "ex03_append.toml").read_text("utf-8"))
    (tmp_path / "ex03_append.toml").write_text(f"{line}\n{good}", "utf-8")
    if said:
        with pytest.raises(BadExercise, match=re.escape(said)):
            exercise("ex03.append", tmp_path)
    else:
        assert (exercise("ex03.append", tmp_path).points, exercise("ex03.append", tmp_path).rules_out) == (1, ())


def test_one_may_check_ones_own_work_without_walls(tmp_path: Path) -> None:
    with room(trusted=True) as mine:
        assert marks(tmp_path, mine, "while True: pass", RIGHT, EXIT).earned == 4
        assert list(mine.folder.glob("box-*")) == []
    assert not mine.folder.exists()


EX03 = Assignment("ex03_kv_cache", "", 45, (Task("ex03.append", 5.0, "Append"),), ())


@needs_sandbox
def test_ex03_append_gets_the_marks_that_it_gets_in_a_notebook(tmp_path: Path) -> None:
    assert "course_lib.caches" in exercise("ex03.append").rules_out
    sources = (next(iter(APPEND_RIGHT.values())), APPEND_WRONG["appended in front"].source, "def append(*a): ...")
    with Sandbox(rules_of(EX03)) as sandbox:
        for source, share in zip(sources, (1, None, 0)):
            came = mark(handed_in(tmp_path, notebook(dedent(source))), EX03, KEY, Limits(), sandbox)
            print(f"{came.seconds:.1f} s, {came.peak_bytes / 2**20:.0f} MiB")
            assert came.earned == answer(ex03_append, function(source, "append"), seed=1).earned(5), said(came)
            assert share is None or came.earned == 5 * share
            assert came.peak_bytes < 400 << 20
