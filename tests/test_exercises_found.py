"""That a learner finds the exercises: in the README, at the end of the notebooks they build on, in the help.

What is said of an exercise, its title, its time and the notebooks that it builds on, is read from the exercise. A
failed test shows the line that is missing.
"""

import re
from pathlib import Path

import nbformat
import pytest
from course_command import ROOT, call

from course_lib.grading.assignment import RELEASED, Assignment, read_assignment
from course_lib.study import course_map

FILES = sorted((ROOT / RELEASED).glob("ex*/ex*.ipynb"))
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

every_exercise = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def builds_on(path: Path) -> list[str]:
    """The numbers of the notebooks that an exercise names in its first cell."""
    found = re.search(r"\bbuilds on notebooks? (\d\d\b(?:(?:,| and|, and| to) \d\d\b)*)", first(path))
    assert found, "say on which notebook it builds, as in: builds on notebook 03"
    return re.findall(r"\d\d", found[1])


def first(path: Path) -> str:
    return str(nbformat.read(path, as_version=4).cells[0].source)


def link(path: Path) -> str:
    return f"../{path.relative_to(ROOT).as_posix()}"


def row(path: Path, read: Assignment) -> str:
    return f"| `{path.stem[:4]}` | {read.title} | {', '.join(builds_on(path))} | {read.minutes} |"


def invitation(path: Path, read: Assignment) -> str:
    name = path.stem[:4]
    return (
        f"**Your turn.** The exercise {name}, [{read.title}]({link(path)}), takes about {read.minutes} minutes. "
        f"Open it here, or with `python start.py lab {name}`."
    )


def test_the_readme_lists_the_exercises_that_are_there_and_no_others() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `ex\d\d` .*$", text, re.MULTILINE)
    assert FILES and rows == [row(path, read_assignment(path)) for path in FILES]
    assert "python start.py lab ex03" in text


@every_exercise
def test_the_notebooks_that_an_exercise_builds_on_end_with_a_link_to_it(path: Path) -> None:
    said = invitation(path, read_assignment(path))
    here = [notebook for notebook in NOTEBOOKS if notebook.stem[:2] in builds_on(path)]
    assert here
    for notebook in here:
        last = nbformat.read(notebook, as_version=4).cells[-1]
        assert last.source.startswith("## ") and said in last.source, f"{notebook.name} should end with: {said}"


def test_no_notebook_has_a_link_to_an_exercise_of_others() -> None:
    for notebook in NOTEBOOKS:
        text = "\n".join(c.source for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "markdown")
        linked = set(re.findall(r"\]\((\.\./exercises/.*?)\)", text))
        assert linked == {link(path) for path in FILES if notebook.stem[:2] in builds_on(path)}, notebook.name


def test_the_map_of_the_course_links_every_exercise_and_stands_in_the_first_notebook_as_it_is_today() -> None:
    now = course_map().data
    assert set(re.findall(r"\]\((\.\./.*?)\)", now)) == {link(path) for path in FILES}
    for path in FILES:
        (line,) = [line for line in now.splitlines() if link(path) in line]
        assert re.match(rf"\| \[?{builds_on(path)[-1]}_", line)
    cells = nbformat.read(NOTEBOOKS[0], as_version=4).cells
    (shown,) = [cell.outputs[0].data["text/markdown"] for cell in cells if cell.source == "course_map()"]
    assert shown == now, "the map has changed: course build 00"


def test_the_help_of_lab_says_that_it_opens_exercises() -> None:
    text = " ".join(call("lab", "--help").stdout.split())
    assert "course lab ex03" in text and "exercise" in text
