"""An exercise in a real JupyterLab, done as by a learner: from the starter over a mistake and a hint to the points.

The notebook is the copy that `course lab ex03` lays and opens; the store, the command and the map know what was done
there, and an update of the course leaves it alone.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from course_command import ROOT, as_json
from lab_server import CHROMIUM, Lab, Opened, browser, needs_chromium, open_notebook, running_lab
from variants import cases, variants

from course_lib.commands.places import find_original
from course_lib.commands.work_copies import Action, update_copies
from course_lib.progress.store import Store

__all__ = ["browser", "open_notebook"]  # fixtures
pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

if CHROMIUM:
    from playwright.sync_api import Locator, Page, expect

NAME = "ex03.append"
RIGHT = "import torch\n\n\n" + dedent(variants(NAME).RIGHT["torch.cat, a tuple for each layer"]).strip()
WRONG = variants(NAME).WRONG["layers mixed"]


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of two notebooks of the course, which a test may update."""
    root = tmp_path_factory.mktemp("course")
    for name in ("notebooks/03_the_kv_cache.ipynb", "exercises/ex03_kv_cache/ex03_kv_cache.ipynb"):
        (root / name).parent.mkdir(parents=True)
        shutil.copy(ROOT / name, root / name)
    return root


@pytest.fixture(scope="module")
def lab(course: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on a learner's copies of that course, and a store of their own."""
    private, work = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("learner") / "work"
    update_copies(course, work)
    with running_lab(work, private, work.parent / "data") as running:
        yield running


class Exercise:
    """The open notebook; its cells are known by their grade_ids, as in the file."""

    def __init__(self, page: "Page", path: Path) -> None:
        self.page, self.path = page, path
        self.ids = [cell["id"] for cell in json.loads(path.read_bytes())["cells"]]

    def cell(self, grade_id: str) -> "Locator":
        return self.page.locator(".jp-Notebook .jp-Cell").nth(self.ids.index(grade_id))

    def write(self, grade_id: str, source: str) -> None:
        """Put other text into a cell, as by pasting it."""
        self.cell(grade_id).locator(".cm-content").click()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(source)

    def add(self, grade_id: str, source: str) -> None:
        """A cell of one's own below another, run at once."""
        self.cell(grade_id).locator(".jp-InputPrompt").click()
        self.page.keyboard.press("b")
        self.ids.insert(self.ids.index(grade_id) + 1, "own")
        self.write("own", source)
        self.run("own")

    def run(self, grade_id: str) -> "Locator":
        """Run a cell and wait until it has ended; its outputs."""
        prompt = self.cell(grade_id).locator(".jp-InputPrompt")
        before = prompt.inner_text()
        self.cell(grade_id).locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        expect(prompt).not_to_have_text(before)
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))
        return self.outputs(grade_id)

    def outputs(self, grade_id: str) -> "Locator":
        return self.cell(grade_id).locator(".jp-OutputArea-output")

    def saved(self) -> str:
        """Save the notebook; the text of its cells that then lies on the disk."""
        self.page.keyboard.press("Escape")
        with self.page.expect_response(lambda r: r.request.method == "PUT" and "/api/contents/" in r.url):
            self.page.keyboard.press("ControlOrMeta+s")
        cells = json.loads(self.path.read_bytes())["cells"]
        return "\n".join("".join(cell["source"]) for cell in cells)

    def restart_and_run_all(self) -> None:
        self.page.get_by_role("menuitem", name="Kernel", exact=True).click()
        self.page.get_by_role("menuitem", name="Restart Kernel and Run All Cells…").click()
        self.page.get_by_role("button", name="Confirm Kernel Restart").click()
        self.page.locator(".jp-Dialog").wait_for(state="detached")


def test_from_the_starter_over_a_mistake_and_a_hint_to_full_points_and_all_of_it_stays(
    course: Path, lab: Lab, open_notebook: Callable[..., Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = find_original("ex03", course)
    name, data = original.relative_to(course).as_posix(), lab.folder.parent / "data"
    opened = open_notebook(name)
    exercise = Exercise(opened.page, lab.folder / name)

    opened.run_all_cells(60)
    expect(exercise.outputs("ex03_append_examples")).to_contain_text("append is not written yet")
    starter = exercise.outputs("ex03_append_check")
    expect(starter.first).to_contain_text("Not solved yet: append is still the starter.")
    expect(starter.last).to_contain_text("0 of 5 points.")
    assert Store(data).events() == [], "looking around is no attempt"

    exercise.write("ex03_append", dedent(WRONG.source).strip())
    exercise.run("ex03_append")
    example = exercise.run("ex03_append_examples")
    expect(example).to_have_count(2)
    expect(example.first).to_contain_text("This example of append does not hold: ")
    expect(example.last).to_contain_text("AssertionError")
    wrong = exercise.run("ex03_append_check")
    expect(wrong.first).to_contain_text(f"ex03.append: {len(WRONG.fails)} of {len(cases(NAME))} cases failed.")
    expect(wrong.first.get_by_text("failed: layers stay apart")).to_be_visible()
    expect(wrong.first.get_by_text("Came out: shape").first).to_be_visible()
    expect(wrong.last).to_contain_text("3 of 5 points.")

    exercise.add("ex03_append_check", f'hint("{NAME}")')
    expect(exercise.outputs("own")).to_contain_text("Hint 1 of 3. What has to be remembered")

    exercise.write("ex03_append", RIGHT)
    exercise.run("ex03_append")
    expect(exercise.run("ex03_append_examples")).to_have_text("These examples of append hold.")
    right = exercise.run("ex03_append_check")
    expect(right.first).to_contain_text("ex03.append: 10 cases passed.")
    expect(right.last).to_contain_text("5 of 5 points.")
    assert RIGHT in exercise.saved()
    opened.page.close()

    again = open_notebook(name)
    exercise.page = again.page
    expect(exercise.cell("ex03_append")).to_contain_text("cache[layer] = (k, v)")
    exercise.restart_and_run_all()
    expect(exercise.outputs("own")).to_contain_text("Hint 2 of 3.")
    expect(exercise.outputs("ex03_append_check").last).to_contain_text("5 of 5 points.")
    exercise.write("own", "from course_lib.study import progress\n\nprogress()")
    row = exercise.run("own").get_by_role("row", name="03_the_kv_cache")
    expect(row.get_by_role("cell", name="1 of 1")).to_be_visible()
    expect(row.get_by_role("cell", name="1 of 4")).to_be_visible()
    exercise.saved()
    row.get_by_role("link", name="03_the_kv_cache").click()
    expect(again.page.get_by_role("tab", name="03_the_kv_cache.ipynb")).to_be_visible()
    assert opened.elsewhere == again.elsewhere == []

    done = [(event.kind, event.data.get("passed", event.data.get("number"))) for event in Store(data).events()]
    assert done == [("check", False), ("hint", 1), ("check", True), ("check", True), ("hint", 2)]
    monkeypatch.setenv("COURSE_DATA", str(data))
    (shown,) = (one for one in as_json("progress")["notebooks"] if one["notebook"] == "03_the_kv_cache")
    assert (shown["checks_passed"], shown["checks"]) == (1, 1)

    written = exercise.path.read_bytes()
    original.write_text(original.read_text(encoding="utf-8").replace("## 1. Keep", "## 1. Keep all"), encoding="utf-8")
    (change,) = (each for each in update_copies(course, lab.folder) if each.name == name)
    assert change.action is Action.BESIDE and "the new version lies beside" in change.line
    assert exercise.path.read_bytes() == written
    (beside,) = exercise.path.parent.glob("*.new-*.ipynb")
    assert "## 1. Keep all" in beside.read_text(encoding="utf-8")
