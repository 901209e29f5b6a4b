"""What every assignment keeps to: parts in their order, points that agree, a starter that runs and earns nothing, a
worked solution that earns everything through the notebook's own cells, and nothing of that solution in what learners
get. Whatever lies in solutions/ is judged by these rules.
"""

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest
from nbformat import NotebookNode
from test_notebook_structure import HYPE, LONGEST_CELL, LONGEST_LINE, SPEED
from variants import function, variants

from course_lib.checks import check_named, exercise, names
from course_lib.commands.kernels import execute, read_notebook
from course_lib.commands.places import find_original, originals
from course_lib.commands.release import release_one
from course_lib.commands.work_copies import laid
from course_lib.grading.assignment import RELEASED, Assignment, assignment_of, kind_of, read_assignment, role, sources
from course_lib.grading.release import ANSWER_STUB, BEGIN, CODE_STUB, END

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sources(ROOT)
SHORTEST_SECRET = 25  # characters of a line of a solution that may not stand in a release by chance

every_assignment = pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
every_file = pytest.mark.parametrize(
    "path",
    [path for source in SOURCES for path in (source, ROOT / RELEASED / source.stem / source.name)],
    ids=lambda path: f"{path.parents[1].name}/{path.stem}",
)


def release_of(source: Path) -> Path:
    return ROOT / RELEASED / source.stem / source.name


def by_id(path: Path) -> dict[str, NotebookNode]:
    return {cell.metadata.nbgrader.grade_id: cell for cell in read_notebook(path).cells}


def prose(path: Path) -> str:
    return "\n\n".join(cell.source for cell in read_notebook(path).cells if cell.cell_type == "markdown")


def solutions(source: str) -> list[list[str]]:
    """The lines of each solution region of a learner's cell."""
    regions: list[list[str]] = []
    inside = False
    for line in source.split("\n"):
        if BEGIN in line:
            regions.append([])
        elif END not in line and inside:
            regions[-1].append(line)
        inside = BEGIN in line or (inside and END not in line)
    return regions


@cache
def outputs(path: Path) -> tuple[str, dict[str, list[str]]]:
    """What came of running a notebook from the top: its error, and grade_id → the texts that the cell put out."""
    done = execute(read_notebook(path), 120)
    return done.error, {
        cell.metadata.nbgrader.grade_id: [
            output.get("data", {}).get("text/plain", output.get("text", "")) for output in cell.outputs
        ]
        for cell in done.notebook.cells
        if cell.cell_type == "code"
    }


def test_there_are_assignments_and_each_check_belongs_to_one() -> None:
    tasks = [task.check for source in SOURCES for task in read_assignment(source).tasks]
    assert SOURCES and sorted(tasks) == names()


@every_assignment
def test_what_is_released_is_what_the_source_gives(source: Path) -> None:
    row = release_one(ROOT, source.stem, check=True)
    assert row["result"] == "ok", row["error"]


@every_assignment
def test_source_and_release_are_the_same_assignment(source: Path) -> None:
    assert read_assignment(source) == read_assignment(release_of(source))
    assert list(by_id(source)) == list(by_id(release_of(source)))


@every_assignment
def test_it_has_tasks_and_one_or_two_written_questions_at_the_end(source: Path) -> None:
    made = read_assignment(source)
    assert made.tasks and 1 <= len(made.questions) <= 2
    assert 20 <= made.minutes <= 150
    kinds = [kind for kind in map(kind_of, read_notebook(source).cells) if kind in ("check", "answer")]
    assert kinds == ["check"] * len(made.tasks) + ["answer"] * len(made.questions)
    assert kind_of(read_notebook(source).cells[1]) == "text"  # the imports


@every_assignment
def test_every_function_that_a_check_looks_for_is_in_its_cell_and_shown_as_it_is_called(source: Path) -> None:
    for task in read_assignment(source).tasks:
        check, cells = check_named(task.check), by_id(release_of(source))
        defined = [
            node for node in ast.parse(cells[task.cell].source).body if isinstance(node, ast.FunctionDef | ast.ClassDef)
        ]
        assert check.FUNCTION in [node.name for node in defined]
        assert all(ast.get_docstring(node) for node in defined), "the starter says what is to be written"
        assert check.CALL in exercise(task.check).statement


@every_assignment
def test_hints_are_announced_and_given_for_each_task(source: Path) -> None:
    made = read_assignment(source)
    assert re.findall(r'hint\("(.*?)"\)', prose(source))[:1] == [made.tasks[0].check]
    for task in made.tasks:
        assert len(set(exercise(task.check).hints)) == 3


@every_assignment
def test_the_place_of_a_worked_solution_that_hints_name_is_right(source: Path) -> None:
    for number, task in enumerate(read_assignment(source).tasks, start=1):
        said = exercise(task.check).solution
        if "solutions/" in said:
            assert f"solutions/{source.stem}, under “{number}. {task.title}”" in said
        else:
            assert re.search(r"notebook \d\d_", said)


@every_assignment
def test_examples_wait_for_the_function_and_assert_something(source: Path) -> None:
    for task in read_assignment(source).tasks:
        text = by_id(source)[f"{task.cell}_examples"].source
        assert f'with example("{check_named(task.check).FUNCTION}"):' in text and "assert " in text


@every_assignment
def test_the_starter_runs_from_the_top_and_earns_nothing(source: Path) -> None:
    error, said = outputs(release_of(source))
    assert error == ""
    for task in read_assignment(source).tasks:
        assert said[task.check_cell][-1] == "0.0"
        assert said[task.check_cell][0].startswith("Not solved yet")
        assert "is not written yet" in said[f"{task.cell}_examples"][0]


@every_assignment
def test_the_worked_solution_earns_all_points_through_the_notebooks_own_cells(source: Path) -> None:
    error, said = outputs(source)
    assert error == ""
    for task in read_assignment(source).tasks:
        assert said[task.check_cell][-1] == repr(task.points), said[task.check_cell][0]
        assert "hold." in said[f"{task.cell}_examples"][-1]
        assert f"{task.points:g} of {task.points:g} points." in said[task.check_cell][0]


@every_assignment
def test_the_worked_solution_is_explained_and_keeps_to_the_rules(source: Path) -> None:
    for task in read_assignment(source).tasks:
        text = by_id(source)[task.cell].source
        lines = [line.strip() for region in solutions(text) for line in region]
        assert [line for line in lines if line.startswith("#")], "say why it is done so"
    code = "\n".join(cell.source for cell in read_notebook(source).cells if cell.cell_type == "code")
    ruled_out = {module for task in read_assignment(source).tasks for module in exercise(task.check).rules_out}
    assert ruled_out, "the library's own solution cannot be handed in"
    assert not [module for module in ruled_out if re.search(rf"(import|from) {re.escape(module)}\b", code)]


@every_assignment
def test_nothing_of_a_solution_stands_in_what_learners_get(source: Path) -> None:
    whole = release_of(source).read_text(encoding="utf-8")
    for cell in read_notebook(source).cells:
        lines = [line for region in solutions(cell.source) for line in region]
        if role(cell.metadata.nbgrader.grade_id)[1] == "answer":
            lines = cell.source.split("\n")
        secret = [line.strip() for line in lines if len(line.strip()) >= SHORTEST_SECRET]
        assert not [line for line in secret if json.dumps(line, ensure_ascii=False)[1:-1] in whole]
    assert BEGIN not in whole and END not in whole and "Mark scheme" not in whole


@every_assignment
def test_a_learner_finds_stubs_and_locked_cells(source: Path) -> None:
    for cell in read_notebook(release_of(source)).cells:
        kind = kind_of(cell)
        assert cell.metadata.deletable is False
        assert cell.metadata.get("editable", True) is (kind in ("starter", "answer"))
        assert cell.source == ANSWER_STUB or kind != "answer"
        assert all(line in cell.source for line in CODE_STUB) is (kind == "starter")
        assert not cell.get("outputs") and cell.get("execution_count") is None


@every_assignment
def test_a_learner_opens_it_by_its_number_and_gets_the_released_file_as_it_is(source: Path) -> None:
    path = find_original(source.stem[:4], ROOT)
    assert path == release_of(source)
    assert path in originals(ROOT) and source not in originals(ROOT)
    assert laid(path.read_bytes()) == path.read_bytes()


@every_file
def test_cells_can_be_read_whole(path: Path) -> None:
    for cell in read_notebook(path).cells:
        if cell.cell_type == "code":
            lines = cell.source.splitlines()
            assert len(lines) <= LONGEST_CELL + 20 * (kind_of(cell) == "starter"), cell.source
            assert max(map(len, lines)) <= LONGEST_LINE, max(lines, key=len)


@every_file
def test_the_prose_is_plain_and_holds_no_measured_speed(path: Path) -> None:
    text = prose(path)
    assert not re.findall(HYPE, text, re.IGNORECASE)
    assert not re.findall(SPEED, text)
    assert not re.findall("[\U0001f000-\U0001faff\u2600-\u27bf]", text), "no emoji"
    assert not re.findall(r"TODO|FIXME|/home/|/root/|/tmp/", path.read_text(encoding="utf-8"))


def test_the_points_of_all_assignments_can_be_compared() -> None:
    made: list[Assignment] = [assignment_of(read_notebook(source), source.stem) for source in SOURCES]
    assert [assignment.name for assignment in made] == sorted({assignment.name for assignment in made})
    assert all(5 <= assignment.points <= 40 for assignment in made)


def test_the_examples_of_read_chunk_do_not_see_the_mistake_that_the_last_question_of_ex03_is_about() -> None:
    source = next(path for path in SOURCES if path.stem == "ex03_kv_cache")
    mistake = variants("ex03.chunk").WRONG["a mask only while the cache is empty"]
    examples = by_id(source)["ex03_chunk_examples"].source
    cell = {"read_chunk": function(mistake.source, "read_chunk")}
    exec(f"import torch\nfrom course_lib.study import example\n{examples}", cell)  # raises nothing
    seen = variants("ex03.chunk").WRONG["no mask"]
    cell = {"read_chunk": function(seen.source, "read_chunk")}
    with pytest.raises(AssertionError):
        exec(f"import torch\nfrom course_lib.study import example\n{examples}", cell)
