"""What `check` and `hint` show in a real JupyterLab: light and dark, narrow and wide, trusted or not, by keyboard."""

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest
from lab_server import CHROMIUM, Lab, browser, needs_chromium, new_window, running_lab
from nbformat.v4 import new_code_cell, new_notebook
from variants import variants

from course_lib.commands.kernels import execute

__all__ = ["browser"]  # a fixture
pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

if CHROMIUM:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Page, expect

THEMES = ("JupyterLab Light", "JupyterLab Dark")
OUTPUTS = ".jp-OutputArea-output"
RIGHT, WRONG = variants("ex03.append").RIGHT, variants("ex03.append").WRONG
CELLS = (
    "from course_lib.study.check import check, hint",
    f"{dedent(WRONG['chunks of 4 reversed'].source)}\ncheck('ex03.append')",
    f"{dedent(RIGHT['lists of parts'])}\ncheck('ex03.append')",
    "def append(cache, layer, k, v):\n    ...\n\ncheck('ex03.append')",
    "hint('ex03.append')",
)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on one notebook that was executed elsewhere, which it does not trust."""
    private, folder = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("checks")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = new_notebook(cells=[new_code_cell(source) for source in CELLS], metadata=kernel)
    assert execute(notebook, 120).error == ""
    for cell in notebook.cells:
        cell.execution_count = None  # so that a cell that has run here shows it
    nbformat.write(notebook, folder / "checks.ipynb")
    with running_lab(folder, private, folder / "data") as running:
        yield running


@pytest.fixture(scope="module")
def page(browser: "Browser") -> Iterator["Page"]:
    with new_window(browser) as context:
        yield context.new_page()


def open_in(page: "Page", lab: Lab, theme: str, width: int) -> None:
    place = f"{lab.url}/lab/api/settings/@jupyterlab/apputils-extension:themes?token={lab.token}"
    raw = json.dumps({"raw": json.dumps({"theme": theme})}).encode()
    urllib.request.urlopen(urllib.request.Request(place, raw, method="PUT"), timeout=30).close()
    page.set_viewport_size({"width": width, "height": 1800})
    page.goto(lab.address("checks.ipynb"))
    expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
    page.locator(".jp-NotebookPanel").wait_for()
    if width < 600:  # the file browser would leave nothing
        page.keyboard.press("ControlOrMeta+b")
    expect(page.locator(OUTPUTS).first).to_be_visible()


def run_all(page: "Page") -> None:
    # The indicator of the toolbar says "idle" before a kernel is connected, and a cell that is run then does nothing.
    # The status bar knows better; in a narrow window it is there, but not visible.
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(state="attached")
    page.keyboard.press("Escape")
    page.locator(".jp-Cell .jp-InputPrompt").first.click()
    for number in range(len(CELLS)):
        prompt = page.locator(".jp-Cell").nth(number).locator(".jp-InputPrompt")
        before = prompt.inner_text()
        page.keyboard.press("Shift+Enter")
        expect(prompt).not_to_have_text(before)
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))


def picture_of(page: "Page", name: str) -> None:
    """Keep a picture for whoever wants to look, in the folder that COURSE_SCREENSHOTS names."""
    if folder := os.environ.get("COURSE_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"checks_{name.replace(' ', '_')}.png")


def nothing_is_cut_off(page: "Page") -> None:
    for output in page.locator(OUTPUTS).all():
        assert output.evaluate("it => it.scrollWidth - it.clientWidth") <= 1


@pytest.mark.parametrize("width", [400, 1280])
@pytest.mark.parametrize("theme", THEMES)
def test_it_is_readable_in_both_themes_narrow_and_wide(page: "Page", lab: Lab, theme: str, width: int) -> None:
    open_in(page, lab, theme, width)
    expect(page.locator(OUTPUTS)).to_have_count(4)
    picture_of(page, f"{theme}_{width}_untrusted")
    nothing_is_cut_off(page)
    run_all(page)
    expect(page.locator(OUTPUTS)).to_have_count(4)
    picture_of(page, f"{theme}_{width}")
    nothing_is_cut_off(page)
    found = Axe().run(page, context={"include": [[OUTPUTS]]}).response["violations"]
    assert [
        (v["id"], [node["html"] for node in v["nodes"]]) for v in found if v["impact"] in ("serious", "critical")
    ] == []


def test_a_failed_case_is_unfolded_and_the_next_one_opens_with_the_keyboard(page: "Page", lab: Lab) -> None:
    open_in(page, lab, THEMES[0], 1000)
    run_all(page)
    failed = page.locator(OUTPUTS).first
    expect(failed.get_by_role("status")).to_have_text("ex03.append: 2 of 10 cases failed.")
    expect(failed.get_by_role("listitem")).to_have_count(10)
    cases = failed.locator("details")
    expect(cases).to_have_count(2)
    assert [case.evaluate("it => it.open") for case in cases.all()] == [True, False]
    for label in ("Went in:", "Expected:", "Came out:", "Where:"):
        expect(cases.first.get_by_text(label, exact=True)).to_be_visible()
    second = cases.nth(1).locator("summary")
    cases.first.locator("summary").focus()
    page.keyboard.press("Tab")
    expect(second).to_be_focused()
    page.keyboard.press("Enter")
    expect(cases.nth(1).get_by_text("Where:", exact=True)).to_be_visible()
    page.keyboard.press("Space")
    expect(cases.nth(1).get_by_text("Where:", exact=True)).to_be_hidden()
    expect(page.locator(OUTPUTS)).to_have_count(4)  # the keys did nothing to the notebook
