"""Twelve submissions of ex03 as a class hands them in, each with the points that its tasks are worth.

All are made from the released notebook. They are ordinary: right, partly right and wrong answers, cells that raise,
are lost, doubled or moved, files that another Jupyter saved, and hands on what is not the learner's. (Files that attack
a grader are in hostile_submissions.) The answers are those of tests/exercises, so the points follow from the cases that
an answer is known to fail.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import nbformat
from nbformat import NotebookNode, v4
from variants import cases, variants

from course_lib.checks import exercise
from course_lib.checks.contract import Line, Verdict
from course_lib.grading.assignment import role

ROOT = Path(__file__).resolve().parents[1]
NAME = "ex03_kv_cache"
SOURCE, RELEASED = (ROOT / folder / NAME / f"{NAME}.ipynb" for folder in ("solutions", "exercises"))
TASKS = ("append", "positions", "attend", "chunk")
QUESTIONS = ("cost", "test")
NOTHING = ""


@dataclass(frozen=True)
class Mixed:
    """A submission: `answers` are names of right or wrong solutions of the tasks, in their order; an empty one is left
    as released. `change` is what else somebody did to the notebook, `earned` what that leaves of the points."""

    answers: tuple[str, str, str, str]
    written: bool = False
    change: Callable[[NotebookNode], None] = lambda notebook: None
    lost: tuple[str, ...] = ()  # tasks whose answers no longer count

    def notebook(self) -> NotebookNode:
        made = nbformat.read(RELEASED, as_version=4)
        for task, answer in zip(TASKS, self.answers):
            if answer:
                cell(made, f"ex03_{task}").source = source(task, answer)
        for question in QUESTIONS:
            if self.written:
                cell(made, f"ex03_{question}_answer").source = f"My answer about the {question}: it grows."
        self.change(made)
        return made

    @property
    def earned(self) -> dict[str, float]:
        """Task → points."""
        return {
            task: 0.0 if task in self.lost else worth(task, answer)
            for task, answer in zip(TASKS, self.answers, strict=True)
        }


def source(task: str, answer: str) -> str:
    file = variants(f"ex03.{task}")
    return dedent(file.RIGHT.get(answer) or file.WRONG[answer].source).strip()


def worth(task: str, answer: str) -> float:
    """The points of an answer: it fails the cases that it is known to fail."""
    if answer == NOTHING:
        return 0.0
    file = variants(f"ex03.{task}")
    fails = file.WRONG[answer].fails if answer in file.WRONG else ()
    verdict = Verdict(tuple(Line(case, case not in fails) for case in cases(f"ex03.{task}")))
    return verdict.earned(exercise(f"ex03.{task}").points)


def cell(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    return next(each for each in notebook.cells if each.metadata.get("nbgrader", {}).get("grade_id") == grade_id)


# --- what else happens to a notebook ----------------------------------------------------------------------------------


def the_worked_solutions(notebook: NotebookNode) -> None:
    """Everything as it stands in the source of the assignment, written answers, too."""
    solved = nbformat.read(SOURCE, as_version=4)
    for each in notebook.cells:
        each.source = cell(solved, each.metadata.nbgrader.grade_id).source


def cells_that_raise(notebook: NotebookNode) -> None:
    """Trials of the learner's own that raise, one that is no Python, and an answer that warns (nbgrader gives 0 to a
    check with anything on standard error)."""
    answer = cell(notebook, "ex03_chunk")
    assert answer.source.count("v):\n") == 1
    warns = "v):\n    import warnings; warnings.simplefilter('always'); warnings.warn('this is slow')\n"
    answer.source = answer.source.replace("v):\n", warns)
    for place, tried in ((2, "append({}, 0, None, None).shape"), (9, "1 / 0"), (14, "def (")):
        notebook.cells.insert(place, v4.new_code_cell(tried))


def an_answer_that_is_no_python(notebook: NotebookNode) -> None:
    cell(notebook, "ex03_attend").source += "\n    return ("


def a_cell_lost(notebook: NotebookNode) -> None:
    notebook.cells.remove(cell(notebook, "ex03_positions"))


def an_answer_in_a_cell_of_ones_own(notebook: NotebookNode) -> None:
    """Cut, and pasted into a new cell: nbgrader's metadata are gone, the text is there."""
    place = notebook.cells.index(cell(notebook, "ex03_append"))
    notebook.cells[place] = v4.new_code_cell(notebook.cells[place].source)


def a_cell_doubled(notebook: NotebookNode) -> None:
    """The empty starter was copied and stayed above the answer, with the same grade_id."""
    answered = cell(notebook, "ex03_chunk")
    empty = cell(nbformat.read(RELEASED, as_version=4), "ex03_chunk")
    empty.id = "copied"
    notebook.cells.insert(notebook.cells.index(answered), empty)


def tasks_in_another_order(notebook: NotebookNode) -> None:
    """The tasks from the last to the first, each still as a whole."""

    def place(each: NotebookNode) -> int:
        stem = role(each.metadata.nbgrader.grade_id)[0].removeprefix("ex03_")
        return -TASKS.index(stem) if stem in TASKS else 1

    first, tasks = notebook.cells[:2], [each for each in notebook.cells[2:] if place(each) < 1]
    rest = [each for each in notebook.cells[2:] if place(each) == 1]
    notebook.cells = [*first, *sorted(tasks, key=place), *rest]


def saved_by_another_jupyter(notebook: NotebookNode) -> None:
    """A version without ids of cells, a kernel that nobody else has, outputs, counts, and metadata of extensions."""
    notebook.nbformat_minor = 4
    notebook.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3.9 (kv)", "language": "python", "name": "conda-env-kv-py"},
        language_info={"name": "python", "version": "3.9.7"},
        toc={"toc_cell": False},
    )
    for number, each in enumerate(notebook.cells):
        del each["id"]
        each.metadata.collapsed = False
        if each.cell_type == "code":
            each.execution_count, each.outputs = 100 - number, [v4.new_output("stream", text="18 of 18 points.\n")]


def points_raised(notebook: NotebookNode) -> None:
    """Every check is said to be worth 100 points, and the answers, too."""
    for each in notebook.cells:
        if "points" in each.metadata.nbgrader:
            each.metadata.nbgrader.points = 100


def a_hand_on_a_check(notebook: NotebookNode) -> None:
    """Changes to locked cells that change no result: a comment, a line before, an example that is taken out."""
    cell(notebook, "ex03_append_check").source += "  # please"
    cell(notebook, "ex03_attend_check").source = 'print("now")\n' + cell(notebook, "ex03_attend_check").source
    cell(notebook, "ex03_chunk_examples").source = "# they take too long"


RIGHT = ("lists of parts", "an endless counter, a tuple", "query heads grouped", "torch.cat and a mask of positions")
OTHERS = ("NumPy", "all positions kept, NumPy", "NumPy, in another memory order", "NumPy, tokens first")
PARTLY = (
    "chunks of 4 reversed",
    "what is held is taken for the position",
    "KV heads in turn",
    "a mask only while the cache is empty",
)
DOUBLED = "a cell of one's own, another doubled"
MIXED = {
    "as released": Mixed(("", "", "", "")),
    "the worked solutions": Mixed(RIGHT, True, the_worked_solutions),
    "partly right": Mixed(PARTLY, written=True),
    "two of four, one wrong": Mixed(("keys and values swapped", RIGHT[1], "", RIGHT[3])),
    "written answers only": Mixed(("", "", "", ""), written=True),
    "cells that raise": Mixed((PARTLY[0], RIGHT[1], RIGHT[2], PARTLY[3]), True, cells_that_raise),
    "an answer that is no Python": Mixed(OTHERS, True, an_answer_that_is_no_python, lost=("attend",)),
    "a cell lost": Mixed(RIGHT, True, a_cell_lost, lost=("positions",)),
    DOUBLED: Mixed(OTHERS, True, lambda made: (an_answer_in_a_cell_of_ones_own(made), a_cell_doubled(made))),
    "tasks in another order": Mixed((RIGHT[0], PARTLY[1], OTHERS[2], RIGHT[3]), True, tasks_in_another_order),
    "saved by another Jupyter": Mixed((OTHERS[0], OTHERS[1], PARTLY[2], ""), True, saved_by_another_jupyter),
    "points and checks touched": Mixed(
        (PARTLY[0], "", RIGHT[2], PARTLY[3]), False, lambda made: (points_raised(made), a_hand_on_a_check(made))
    ),
}
