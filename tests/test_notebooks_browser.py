"""What a learner does in notebook 02, done in a real JupyterLab in a real Chromium, with the keyboard."""

import re
from collections.abc import Callable

import pytest
from lab_server import CHROMIUM, NOTEBOOKS, Opened, browser, lab, needs_chromium, open_notebook

__all__ = ["browser", "lab", "open_notebook"]  # fixtures

pytestmark = [pytest.mark.browser, pytest.mark.slow, needs_chromium]

if CHROMIUM:
    from playwright.sync_api import Locator, expect

CELL_LIMIT_MS = 180_000  # some cells measure for many seconds, more beside other work
QUESTION = re.compile("How many tokens does the cache hold when the 4th new token is there")


@pytest.fixture
def notebook(open_notebook: Callable[..., Opened]) -> Opened:
    """Notebook 02, all of its cells run."""
    opened = open_notebook("02_prefill_and_decode.ipynb")
    opened.run_all_cells(limit_s=600)
    return opened


def test_notebook_02_runs_and_its_knobs_and_predictions_answer_to_the_keyboard(notebook: Opened) -> None:
    page = notebook.page
    expect(page.locator('[data-mime-type="application/vnd.jupyter.error"]')).to_have_count(0)
    expect(page.locator(".jp-RenderedImage img")).to_have_count(5)
    expect(page.get_by_text("Error displaying widget")).to_have_count(0)

    # The figure with knobs stands there once: as a widget, not as the stored image too.
    figure = page.get_by_role("img", name=re.compile("^Prompt tokens"))
    expect(figure).to_have_count(1)
    expect(figure).to_have_attribute("alt", re.compile("Prompt tokens: 256. New tokens: 32."))
    before = figure.get_attribute("src")

    knobs = page.locator(".course-knob")
    slider, field = knobs.nth(0).get_by_role("slider"), page.get_by_role("spinbutton", name="Prompt (tokens)")
    slider.scroll_into_view_if_needed()
    slider.press("ArrowRight")
    slider.press("ArrowRight")
    expect(figure).to_have_attribute("alt", re.compile("Prompt tokens: 288. New tokens: 32."))
    assert figure.get_attribute("src") != before
    expect(field).to_have_value("288")

    # The labelled field turns the same knob.
    field.press("ArrowDown")
    expect(figure).to_have_attribute("alt", re.compile("Prompt tokens: 272. "))
    expect(slider).to_have_value("272")

    answer = page.get_by_label(QUESTION)
    comparison = page.locator(".jp-OutputArea-output", has_text=re.compile(r"Measured\s*8 tokens"))
    expect(comparison).to_contain_text("A common first guess")
    answer.scroll_into_view_if_needed()
    answer.press_sequentially("eight")
    answer.press("Enter")
    expect(page.get_by_role("status").filter(has_text="“eight” is not a number")).to_be_visible()
    answer.press("ControlOrMeta+a")
    answer.press_sequentially("8")
    answer.press("Enter")
    expect(page.get_by_role("status").filter(has_text="Noted: 8 tokens.")).to_be_visible()
    expect(comparison).to_contain_text("Your prediction")
    expect(comparison).to_contain_text("Exactly.")

    assert notebook.elsewhere == []


def test_before_it_is_run_the_notebook_shows_its_stored_figures_and_no_broken_widget(
    open_notebook: Callable[..., Opened],
) -> None:
    opened = open_notebook("02_prefill_and_decode.ipynb", width=800)
    images = opened.page.locator(".jp-RenderedImage img")
    expect(images).to_have_count(6)
    widest = max(box["width"] for image in images.all() if (box := image.bounding_box()))
    page = opened.page.locator(".jp-OutputArea-output").first.bounding_box()
    assert page is not None and 0 < widest <= page["width"], "a figure is wider than the page"
    expect(opened.page.get_by_text("Error displaying widget")).to_have_count(0)
    expect(opened.page.get_by_text("Loading widget")).to_have_count(0)
    expect(opened.page.locator(".jp-OutputArea-output", has_text=QUESTION)).to_contain_text("Your prediction: ____")
    assert opened.elsewhere == []


IS_DONE = r"""(cell) => !cell.classList.contains("jp-CodeCell")
    || /\[\d+\]/.test(cell.querySelector(".jp-InputPrompt").textContent)"""


class Keys:
    """A learner without a mouse: presses keys wherever the focus is, and looks at the page."""

    def __init__(self, opened: Opened) -> None:
        self.page = opened.page

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    @property
    def selected(self) -> "Locator":
        return self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")

    def run(self) -> None:
        """Shift+Enter, and wait for what it ran: the next cell is selected at once, its output comes later."""
        cell = self.selected.element_handle()
        self.press("Shift+Enter")
        self.page.wait_for_function(IS_DONE, arg=cell, timeout=CELL_LIMIT_MS)
        expect(self.page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0, timeout=CELL_LIMIT_MS)

    def run_until_selected(self, text: str) -> None:
        for _ in range(80):
            if text in (self.selected.text_content() or ""):
                return
            self.run()
        raise AssertionError(f"no cell with {text!r}")

    def on(self, label: str, role: str = "textbox") -> None:
        expect(self.page.get_by_role(role, name=label)).to_be_focused()  # type: ignore[arg-type]

    def told(self, sentence: str) -> None:
        """The page says so, and the focus is on it: there the keys are JupyterLab's."""
        said = self.page.get_by_role("status").filter(has_text=sentence)
        expect(said).to_be_focused()


def test_a_prediction_and_a_knob_need_nothing_but_keys(open_notebook: Callable[..., Opened]) -> None:
    """What notebook 00 tells learners to press, and nothing else."""
    keys = Keys(open_notebook("02_prefill_and_decode.ipynb"))
    page = keys.page
    keys.run_until_selected("tokens = tokenizer.encode(")  # below the cell with two predictions
    expect(page.get_by_role("textbox", name=QUESTION)).to_be_visible()  # a widget comes after its cell

    keys.press("Shift+Tab", "Shift+Tab")
    keys.on("How many passes does that take?")
    page.keyboard.type("four")
    keys.press("Enter")
    expect(page.get_by_role("status").filter(has_text="is not a number")).to_be_visible()
    keys.on("How many passes does that take?")
    keys.press("ControlOrMeta+a")
    page.keyboard.type("4")
    keys.press("Enter")
    keys.told("Noted: 4 passes.")
    keys.press("Tab")
    keys.on("How many tokens does the cache hold when the 4th new token is there?")
    page.keyboard.type("9")
    keys.press("Enter")
    keys.told("Noted: 9 tokens.")
    keys.press("ArrowDown")
    expect(keys.selected).to_contain_text("tokens = tokenizer.encode(")
    keys.run()
    expect(keys.selected).to_contain_text("assert passes == 1 + (N - 1)")
    keys.run()
    comparison = page.locator(".jp-OutputArea-output", has_text=re.compile(r"Measured\s*4 passes"))
    expect(comparison).to_contain_text(re.compile("Your prediction.*Exactly", re.DOTALL))
    comparison = page.locator(".jp-OutputArea-output", has_text=re.compile(r"Measured\s*8 tokens"))
    expect(comparison).to_contain_text(re.compile("Your prediction.*Off by 1", re.DOTALL))

    keys.run_until_selected("a longer prompt moves the mark of the first token")  # below the knobs
    figure = page.get_by_role("img", name=re.compile("^Prompt tokens"))
    expect(figure).to_have_count(1)
    keys.press("Shift+Tab")
    expect(page.locator(":focus").get_by_role("img", name=re.compile("^Prompt tokens"))).to_be_visible()
    keys.press("Shift+Tab", "ArrowRight")
    expect(figure).to_have_attribute("alt", re.compile("New tokens: 33."))
    keys.press("Shift+Tab", "Shift+Tab", "Shift+Tab")
    keys.on("Prompt (tokens)", "spinbutton")
    keys.press("ArrowUp")
    expect(figure).to_have_attribute("alt", re.compile("Prompt tokens: 272. New tokens: 33."))
    keys.press("Tab", "Tab", "Tab", "Tab", "ArrowDown")
    expect(keys.selected).to_contain_text("a longer prompt moves the mark")
    keys.run()
    expect(keys.selected).to_contain_text('"02.half"')
    keys.run()
    expect(page.get_by_label(re.compile("With 16 new tokens"))).to_be_visible()


def test_notebook_00_leads_to_the_next_one_without_a_mouse(open_notebook: Callable[..., Opened]) -> None:
    keys = Keys(open_notebook("00_start_here.ipynb"))
    keys.run_until_selected("Where your work is kept")  # below the folded answer
    keys.press("Shift+Tab")
    expect(keys.page.locator("summary:focus")).to_have_text("Is there a wrong prediction?")
    keys.press("Enter")
    expect(keys.page.locator("details p")).to_be_visible()
    keys.press("ArrowDown")
    keys.run_until_selected("The names in the tables that are links")
    *_, before, last = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    # What is next, below the table, is the first one, or what a test before this one has begun; the table names what is
    # here in order.
    for named in (re.compile("^(00_start_here|02_prefill_and_decode)$"), last, before):
        keys.press("Shift+Tab")
        expect(keys.page.locator("a:focus")).to_have_text(named)
    keys.press("Enter")
    expect(keys.page.get_by_role("tab", name=f"{before}.ipynb", selected=True)).to_be_visible()
