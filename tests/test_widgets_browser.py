"""Knobs and predictions in a real JupyterLab and Notebook 7, with nothing but keys, through a restart of the kernel."""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from lab_server import CHROMIUM, Lab, browser, needs_chromium, new_window, running_lab, wait_until_connected
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

__all__ = ["browser"]  # a fixture
pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

if CHROMIUM:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Locator, Page, expect

FRONT_ENDS = ("lab/tree", "notebooks")
KNOBS = """\
from course_lib.study import Knob, explore
from course_lib.study.style import Picture, picture
from course_lib.study.widgets import Choice


def draw(prompt: int, answer: int, form: str) -> Picture:
    if prompt == 6:
        raise ValueError("Six tokens do not fit: take fewer.")
    figure, _ = picture(2, alt=f"{prompt} and {answer} tokens in {form}.")
    return figure


explore(
    draw,
    prompt=Knob("Prompt (tokens)", low=1, high=9, start=4),
    answer=Knob("Answer (tokens)", low=16, high=128, start=32, step=16),
    form=Choice("Number format", ("float32", "float16")),
)
"""
PREDICTIONS = """\
from course_lib.study import compare, predict

predict("09.tokens", "How many tokens does the cache hold?", default=9, unit="tokens")
predict("09.passes", "How many passes does that take?", default=5, unit="passes")
"""
COMPARISON = 'compare("09.tokens", measured=8)'
QUESTIONS = ("How many tokens does the cache hold?", "How many passes does that take?")


@pytest.fixture(scope="module")
def small_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server that shows one notebook and keeps what is written in a folder of its own."""
    private, folder = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("small")
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    for number, front_end in enumerate(FRONT_ENDS):
        sources = [source.replace("09.", f"0{number}.") for source in (KNOBS, PREDICTIONS, COMPARISON)]
        cells = [new_code_cell(source) for source in sources]
        notebook = new_notebook(cells=[*cells, new_markdown_cell("The end.")], metadata=kernel)
        nbformat.write(notebook, folder / f"{front_end.split('/')[0]}.ipynb")
    with running_lab(folder, private, folder / "data") as running:
        yield running


class Learner:
    """Somebody without a mouse who works through the small notebook."""

    def __init__(self, browser: "Browser", lab: Lab, front_end: str, name: str = "") -> None:
        self.page: Page = new_window(browser, 1000, 1400).new_page()
        self.lab, self.notebook = lab, name or f"{front_end.split('/')[0]}.ipynb"
        reset = "&reset" if front_end.startswith("lab") else ""
        self.page.goto(f"{lab.url}/{front_end}/{self.notebook}?token={lab.token}{reset}")
        self.data = lab.folder / "data"
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Until the keys reach the notebook, and a kernel it."""
        wait_until_connected(self.page, self.lab, self.notebook)
        self.page.locator(".jp-Notebook .jp-Cell").first.focus()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def write(self, text: str) -> None:
        self.press("ControlOrMeta+a")
        self.page.keyboard.type(text)

    def run_cell(self, number: int) -> None:
        """Shift+Enter, and wait until the cell, counted from 0, has run."""
        self.press("Shift+Enter")
        prompt = self.page.locator(".jp-Cell").nth(number).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))

    def says(self, sentence: str) -> None:
        expect(self.page.get_by_role("status").filter(has_text=sentence)).to_be_visible()

    def sees(self, alt: str) -> None:
        expect(self.page.get_by_role("img", name=alt, exact=True)).to_be_visible()

    def stands_on(self, place: "Locator") -> None:
        expect(place).to_be_focused()

    def control(self, role: str, label: str) -> "Locator":
        return self.page.get_by_role(role, name=label, exact=True)  # type: ignore[arg-type]

    def leaves_with_escape(self, cell: int, place: "Locator") -> None:
        """Escape in `place`, in the outputs of a cell: then keys are commands, and arrows go on and back."""
        place.focus()
        self.press("Escape")
        cells = self.page.locator(".jp-Cell")
        self.stands_on(cells.nth(cell))
        expect(self.page.locator(".jp-Notebook")).to_have_class(re.compile("jp-mod-commandMode"))
        self.press("ArrowDown")
        expect(cells.nth(cell + 1)).to_have_class(re.compile("jp-mod-active"))
        self.press("ArrowUp")
        expect(cells.nth(cell)).to_have_class(re.compile("jp-mod-active"))

    def predictions(self) -> list[float]:
        """What lies on the disk."""
        with sqlite3.connect(self.data / "progress.sqlite") as database:
            rows = database.execute("select data from events where kind = 'prediction' order by rowid").fetchall()
        return [json.loads(data)["value"] for (data,) in rows]


def turn_every_knob(learner: Learner) -> None:
    learner.run_cell(0)
    learner.sees("4 and 32 tokens in float32.")
    learner.press("Shift+Tab")
    learner.stands_on(learner.page.get_by_role("group", name="Figure", exact=True))
    learner.press("Shift+Tab", "ArrowDown")
    learner.sees("4 and 32 tokens in float16.")
    learner.press("Shift+Tab")
    learner.stands_on(learner.control("slider", "Answer (tokens)"))
    learner.press("ArrowRight", "ArrowRight")
    learner.sees("4 and 64 tokens in float16.")
    learner.press("Shift+Tab")
    learner.stands_on(field := learner.control("spinbutton", "Answer (tokens)"))
    expect(field).to_have_value("64")
    learner.press("ArrowDown")
    learner.sees("4 and 48 tokens in float16.")
    expect(learner.control("slider", "Answer (tokens)")).to_have_value("48")


def write_what_cannot_be(learner: Learner) -> None:
    """The picture stays, and a sentence stands beside the field."""
    learner.write("50")
    learner.says("50 is between two steps. This goes in steps of 16: write 48 or 64.")
    learner.write("1000")
    learner.says("1000 is outside the range: write a number from 16 to 128.")
    learner.write("-")
    learner.says("Write a number from 16 to 128. Esc leaves the field.")
    field = learner.control("spinbutton", "Answer (tokens)")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description("Write a number from 16 to 128. Esc leaves the field.")
    learner.sees("4 and 48 tokens in float16.")
    assert serious_problems(learner.page) == []
    learner.write("64")
    learner.sees("4 and 64 tokens in float16.")
    expect(field).to_have_attribute("aria-invalid", "false")

    learner.press("Shift+Tab", "Shift+Tab")
    learner.write("6")
    learner.says("Six tokens do not fit: take fewer.")
    learner.sees("4 and 64 tokens in float16.")
    learner.write("5")
    learner.sees("5 and 64 tokens in float16.")
    learner.leaves_with_escape(0, learner.control("spinbutton", "Prompt (tokens)"))
    learner.leaves_with_escape(0, learner.control("slider", "Prompt (tokens)"))
    learner.leaves_with_escape(0, learner.control("combobox", "Number format"))
    learner.control("slider", "Answer (tokens)").focus()
    learner.press(*["Tab"] * 2)
    learner.stands_on(learner.page.get_by_role("group", name="Figure", exact=True))
    learner.press("ArrowDown")  # on to the next cell


def note_two_predictions(learner: Learner) -> None:
    learner.run_cell(1)
    first, second = (learner.page.get_by_label(question, exact=True) for question in QUESTIONS)
    expect(second).to_be_visible()
    learner.press("Shift+Tab", "Shift+Tab")
    learner.stands_on(first)
    learner.press("Enter")
    learner.says("Write a number, then press Enter. Esc leaves the field.")
    learner.stands_on(first)
    learner.leaves_with_escape(1, first)
    first.focus()
    learner.write("eight")
    learner.press("Enter")
    learner.says("“eight” is not a number. Write one such as 12 or 1.5. Esc leaves the field.")
    learner.stands_on(first)
    learner.leaves_with_escape(1, first)
    expect(first).to_have_value("eight")
    learner.leaves_with_escape(1, learner.page.get_by_role("button", name="Note it").first)
    first.focus()
    assert serious_problems(learner.page) == []
    learner.write("9 tokens")
    learner.press("Enter")
    learner.says("Noted: 9 tokens.")
    learner.stands_on(learner.page.get_by_role("status").filter(has_text="Noted: 9 tokens."))
    learner.press("Tab")
    learner.stands_on(second)
    learner.write("4")
    learner.press("Enter")
    learner.says("Noted: 4 passes.")
    learner.press("ArrowDown")
    learner.run_cell(2)
    compared(learner, "Your prediction", "9 tokens", "Off by 1.")

    learner.press(*["Shift+Tab"] * 2)
    learner.stands_on(first)
    learner.write("8")
    learner.press("Tab")  # leaving the field is enough
    learner.says("Noted: 8 tokens.")
    learner.stands_on(second)
    compared(learner, "Your prediction", "8 tokens", "Exactly.")


def compared(learner: Learner, *texts: str) -> None:
    """The comparison stands there once, with these texts."""
    outputs = learner.page.locator(".jp-Cell").nth(2).locator(".jp-OutputArea-output")
    for text in texts:
        expect(outputs).to_contain_text(text)
        expect(outputs.get_by_text(text, exact=True).filter(visible=True).first).to_be_visible()
    expect(outputs).to_have_count(1)
    assert outputs.inner_text().count("Measured") == 1


def comparison_in(notebook: Path) -> list[dict[str, str]]:
    """What is saved of the comparison, by MIME type."""
    return [output.data for output in nbformat.read(notebook, as_version=4).cells[2].outputs]


def serious_problems(page: "Page") -> list[str]:
    found = Axe().run(page, context=".course-controls").response["violations"]
    assert page.locator(".course-controls").count() > 0
    return [f"{problem['id']}: {problem['help']}" for problem in found if problem["impact"] in ("serious", "critical")]


def restart_kernel(learner: Learner) -> None:
    """As notebook 00 says: the key 0, twice; then the dialog is confirmed."""
    learner.press("0", "0")
    expect(learner.page.get_by_role("dialog")).to_be_visible()
    learner.press("Enter")
    expect(learner.page.get_by_role("dialog")).to_have_count(0)
    expect(learner.page.locator('[data-status="idle"]').first).to_be_visible()


def turn_a_knob_whose_kernel_is_gone(learner: Learner) -> None:
    learner.control("slider", "Answer (tokens)").focus()
    learner.press("ArrowRight")
    learner.says("The kernel does not answer. If a cell is running, wait for it; otherwise run this cell again.")
    learner.sees("5 and 64 tokens in float16.")
    learner.control("slider", "Prompt (tokens)").press("Escape")


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_knobs_and_predictions_need_nothing_but_keys_and_numbers_outlive_the_kernel(
    small_lab: Lab, browser: "Browser", front_end: str
) -> None:
    learner = Learner(browser, small_lab, front_end)
    turn_every_knob(learner)
    write_what_cannot_be(learner)
    known = len(learner.predictions()) if learner.data.exists() else 0
    note_two_predictions(learner)
    assert learner.predictions()[known:] == [9, 4, 8]

    learner.press("Enter")  # what was noted already is noted; keys are the notebook's again
    learner.stands_on(learner.page.get_by_role("status").filter(has_text="Noted: 4 passes."))
    restart_kernel(learner)
    if front_end == FRONT_ENDS[0]:
        turn_a_knob_whose_kernel_is_gone(learner)
    with learner.page.expect_response(lambda response: response.request.method == "PUT"):
        learner.press("ControlOrMeta+s")
    learner.page.reload()
    learner.wait_until_ready()
    compared(learner, "Your prediction", "8 tokens", "Exactly.")  # no kernel knows it any more
    (saved,) = comparison_in(small_lab.folder / f"{front_end.split('/')[0]}.ipynb")
    assert set(saved) == {"text/html", "text/plain"}
    assert saved["text/plain"] == "Your prediction: 8 tokens. Measured: 8 tokens."
    for number in range(3):
        learner.run_cell(number)
    first, second = (learner.page.get_by_label(question, exact=True) for question in QUESTIONS)
    expect(first).to_have_value("8")
    expect(second).to_have_value("4")
    learner.says("Noted: 8 tokens.")
    compared(learner, "Exactly.")
    assert len(learner.predictions()) == known + 3, "showing them again records nothing"
    learner.page.context.close()


def test_a_comparison_that_ran_before_anybody_wrote_says_where_and_follows(small_lab: Lab, browser: "Browser") -> None:
    notebook = small_lab.folder / "early.ipynb"
    sources = ["1", PREDICTIONS.replace("09.", "08."), COMPARISON.replace("09.", "08.")]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=[new_code_cell(source) for source in sources], metadata=kernel), notebook)
    learner = Learner(browser, small_lab, "lab/tree", notebook.name)
    for number in range(3):
        learner.run_cell(number)
    compared(learner, "A common first guess", "9 tokens", "Write your own into the field above, and this follows.")
    field = learner.page.get_by_label(QUESTIONS[0], exact=True)
    for text, said in (("4", "Off by a factor of 2."), ("7", "Off by 1.")):
        field.fill(text)
        field.press("Enter")
        compared(learner, "Your prediction", f"{text} tokens", said)
        expect(learner.page.get_by_text("Write your own")).to_have_count(0)
    learner.page.context.close()
