"""Quizzes and warm-ups in JupyterLab and Notebook 7, in a real Chromium: keys, names, restarts, what a page knows.

The one idea: each front end has questions of its own (03 and 04), and one store has the answers of both. A test looks
at the page as a learner does, by roles and names, and at the store.
"""

import json
import re
from collections.abc import Iterator

import pytest
from lab_server import Lab, browser, needs_chromium, new_window, running_lab, wait_until_connected
from small_quiz import write_bank, write_notebook

from course_lib.progress.store import Store
from course_lib.quizzes.bank import Bank, Order, load_bank

__all__ = ["browser"]  # a fixture
pytestmark = [pytest.mark.browser, needs_chromium]
pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Browser, Locator, Page, expect  # noqa: E402

FRONT_ENDS = {"lab": "03_lab", "notebooks": "04_notebook"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on small notebooks, with a store of their own. `Lab.folder` has questions, notebooks and the store."""
    private, folder = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("quizzes")
    first = "from pathlib import Path\nfrom course_lib.study.quiz import Quiz, warm_up\n"
    for name in (*FRONT_ENDS.values(), "06_gone", "07_names"):
        bank = write_bank(folder, name=name)
        write_notebook(folder / f"{name}.ipynb", first + f"Quiz(Path({str(bank)!r}))", "last = 1")
    earlier = folder / "earlier"
    earlier.mkdir()
    for number in ("02", "05", "08"):
        line = f"warm_up('{number}', folder=Path({str(earlier)!r}))"
        write_notebook(folder / f"{number}_warm.ipynb", first + line, "last = 1")
    with running_lab(folder, private, folder / "data") as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with new_window(browser) as context:
        yield context.new_page()


def open_at(page: Page, lab: Lab, front_end: str, name: str) -> None:
    page.goto(f"{lab.url}/{'lab/tree' if front_end == 'lab' else front_end}/{name}.ipynb?token={lab.token}&reset")
    page.locator(".jp-Notebook").wait_for()
    page.locator(".jp-Spinner").first.wait_for(state="detached")
    wait_until_connected(page, lab, f"{name}.ipynb")
    page.locator(".jp-Cell").first.focus()


def run_all(page: Page) -> None:
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    page.locator(".course-quiz").wait_for()
    expect(page.locator(".jp-InputPrompt", has_text="[*]")).to_have_count(0)


def run_first_cell(page: Page) -> None:
    """With keys alone; the second cell is selected then."""
    page.keyboard.press("Shift+Enter")
    page.locator(".course-quiz").wait_for()
    expect(page.locator(".jp-Cell.jp-mod-active")).to_contain_text("last = 1")


def restart_kernel(page: Page, lab: Lab, name: str) -> None:
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.get_by_role("menuitem", name=re.compile("Restart Kernel…")).click()
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    page.locator(".jp-Dialog").wait_for(state="detached")
    wait_until_connected(page, lab, f"{name}.ipynb")


def group(page: Page, words: str) -> Locator:
    return page.get_by_role("group", name=re.compile(words))


def back_to(page: Page, selector: str) -> None:
    """Shift+Tab until what has the focus matches a CSS selector."""
    for _ in range(30):
        page.keyboard.press("Shift+Tab")
        if page.locator(":focus").evaluate("(node, selector) => node.matches(selector)", selector):
            return
    raise AssertionError(f"no way to {selector}")


def answer_everything_rightly(page: Page, bank: Bank) -> None:
    """With keys alone, from the last choice of the first question on, which has the focus."""
    keys = page.keyboard
    keys.press("Space")
    expect(page.get_by_role("radio").nth(2)).to_be_checked()
    keys.press("Tab")
    assert page.locator(".course-quiz-reply:not(:empty)").count() == 0, "a choice was judged before Answer"
    keys.press("Enter")
    one = group(page, "What does a layer keep")
    expect(one.get_by_role("status")).to_contain_text("the weights are computed anew")
    expect(one.get_by_role("button", name="Try again")).to_be_focused()
    keys.press("Enter")
    expect(one.get_by_role("radio").nth(0)).to_be_focused()
    for key in ("Space", "ArrowDown", "Tab", "Enter"):
        keys.press(key)
    expect(one.get_by_role("status")).to_contain_text("Right.")
    expect(one.get_by_role("status")).to_be_focused()
    for key in ("Tab", "Space", "Tab", "Tab", "Space", "Tab", "Enter"):
        keys.press(key)
    expect(group(page, "What makes").get_by_role("status")).to_contain_text("rows and layers")
    keys.press("Tab")
    number = group(page, "How large")
    keys.type("1,4375")
    keys.press("Enter")
    expect(number.get_by_role("status")).to_contain_text("A comma can mean two things.")
    expect(number.get_by_role("textbox")).to_be_focused()
    keys.press("ControlOrMeta+a")
    keys.type("1472 KiB")
    keys.press("Enter")
    expect(number.get_by_role("status")).to_contain_text("undisclosed: two tensors.")
    keys.press("Tab")
    order = bank.questions[3]
    assert isinstance(order, Order)
    for item in order.shown:
        keys.type(str(order.items.index(item) + 1))
        keys.press("Tab")
    keys.press("Enter")
    expect(group(page, "What happens in a step").get_by_role("status")).to_contain_text("Right.")


def expect_all_answered(page: Page) -> None:
    expect(page.get_by_role("status").filter(has_text="Right.")).to_have_count(4)
    expect(page.get_by_role("radio", name="Its key and its value", exact=True)).to_be_checked()
    expect(page.get_by_role("checkbox", name="More layers")).to_be_checked()
    expect(page.get_by_role("textbox", name="Your answer in MiB")).to_have_value("1472 KiB")
    expect(page.get_by_role("combobox", name="Append them to the cache")).to_have_value("2")
    expect(group(page, "How large").get_by_role("status")).to_contain_text("undisclosed: two tensors.")
    expect(page.get_by_role("button", name=re.compile("^(Answer|Try again)$"))).to_have_count(0)


@pytest.mark.parametrize("front_end", FRONT_ENDS)
def test_every_type_is_answered_with_keys_alone_and_comes_back(
    browser: Browser, page: Page, lab: Lab, front_end: str
) -> None:
    name = FRONT_ENDS[front_end]
    bank = load_bank(lab.folder / f"{name}.toml")
    frames: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
    open_at(page, lab, front_end, name)
    run_first_cell(page)
    back_to(page, "input[type=radio]")

    # Until something is answered, neither the page nor what the kernel sent to it has any of the key.
    assert any("What makes the cache larger" in frame for frame in frames)
    for text in (page.content(), *frames):
        assert "undisclosed" not in text and "1.4375" not in text and "0.71875" not in text

    answer_everything_rightly(page, bank)
    events = Store(lab.folder / "data").events("answer")
    given = [(event.name, event.data["right"]) for event in events if event.name.startswith(f"own.{name}.")]
    assert given == [
        (f"own.{name}.{identifier}", right)
        for identifier, right in
        [("kept", False), ("kept", True), ("grows", True), ("size", True), ("steps", True)]
    ]  # fmt: skip
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".jp-Cell.jp-mod-active")).to_contain_text("last = 1")

    restart_kernel(page, lab, name)
    if front_end == "lab":
        open_at(page, lab, "lab", name)
        run_all(page)
        expect_all_answered(page)
    else:  # another browser, and the other front end
        page.goto("about:blank")
        with new_window(browser) as another:
            elsewhere = another.new_page()
            open_at(elsewhere, lab, "lab", name)
            run_all(elsewhere)
            expect_all_answered(elsewhere)


def test_without_its_kernel_a_quiz_says_what_to_do(page: Page, lab: Lab) -> None:
    open_at(page, lab, "lab", "06_gone")
    run_all(page)
    restart_kernel(page, lab, "06_gone")
    number = group(page, "How large")
    number.get_by_role("textbox").press_sequentially("1.4375")
    number.get_by_role("button", name="Answer").press("Enter")
    expect(number.get_by_role("status")).to_contain_text("Otherwise run this cell again.")
    assert Store(lab.folder / "data").events("answer", "own.06_gone.size") == []


def test_a_quiz_has_names_and_axe_finds_nothing_serious_in_either_theme(page: Page, lab: Lab) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    open_at(page, lab, "lab", "07_names")
    run_all(page)
    expect(page.get_by_role("region", name="Questions on notebook 07")).to_be_visible()
    one = page.get_by_role(
        "group", name="1. What does a layer keep of a token, so that attention need not compute it again?"
    )
    expect(one.get_by_role("radio")).to_have_count(3)
    expect(one.get_by_role("radio", name="Its row of attention weights")).to_be_visible()
    expect(group(page, "^2. What makes").get_by_role("checkbox", name="More query heads")).to_be_visible()
    expect(group(page, "^3. How large").get_by_role("textbox", name="Your answer in MiB")).to_be_visible()
    expect(group(page, "^4. What happens").get_by_role("combobox", name="Read all rows")).to_be_visible()
    expect(page.get_by_role("button", name="Answer", exact=True)).to_have_count(4)

    one.get_by_role("radio", name="Its row of attention weights").press("Space")
    one.get_by_role("button", name="Answer").press("Enter")
    expect(one.get_by_role("status")).to_contain_text("Not right yet.")
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        address = f"{lab.url}/lab/api/settings/@jupyterlab/apputils-extension:themes?token={lab.token}"
        assert page.request.put(address, data={"raw": json.dumps({"theme": theme})}).ok
        open_at(page, lab, "lab", "07_names")
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        run_all(page)
        expect(one.get_by_role("status")).to_contain_text("Not right yet.")
        found = axe.run(page, context=".course-quiz").response["violations"]
        serious = [each["id"] for each in found if each["impact"] in ("serious", "critical")]
        assert serious == [], (theme, found)

    # JupyterLab's own bars leave half of it to the notebook.
    page.set_viewport_size({"width": 700, "height": 900})
    for element in page.locator(".course-quiz, .course-quiz fieldset").all():
        assert element.evaluate("node => node.scrollWidth <= node.clientWidth + 1"), "it is wider than a narrow page"


def open_warm_up(page: Page, lab: Lab, notebook: str) -> Locator:
    """The warm-up of a notebook, "02", with two questions that were missed: "kept" and "grows" of notebook 01."""
    store = Store(lab.folder / "data")
    for question, given in zip(load_bank(write_bank(lab.folder / "earlier", name="01_missed")).questions, (0, [1])):
        store.record("answer", question.name, {"given": given, "right": False}, question.version)
    open_at(page, lab, "lab", f"{notebook}_warm")
    run_first_cell(page)
    region = page.get_by_role("region", name=f"Warm-up before notebook {notebook}")
    expect(region.get_by_text("From notebook 01")).to_have_count(2)
    return region


def answer_first(page: Page) -> None:
    """Answer the question on what is kept, rightly, and stay there."""
    group(page, "What does a layer keep").get_by_role("radio", name="Its key and its value", exact=True).press("Space")
    group(page, "What does a layer keep").get_by_role("button", name="Answer").press("Enter")
    expect(group(page, "What does a layer keep").get_by_role("status")).to_be_focused()


def escape_leads_to_the_next_cell(page: Page) -> None:
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".jp-Cell.jp-mod-active")).to_contain_text("last = 1")


def run_again(page: Page, lab: Lab, notebook: str) -> None:
    restart_kernel(page, lab, f"{notebook}_warm")
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()


def test_a_warm_up_is_skipped_with_one_key_and_does_not_come_back_today(page: Page, lab: Lab) -> None:
    region = open_warm_up(page, lab, "02")
    back_to(page, ".course-quiz button")
    escape_leads_to_the_next_cell(page)
    expect(region).to_contain_text("Warm-up: skipped for today.")
    expect(region.get_by_role("group")).to_have_count(0)
    expect(region.get_by_role("button")).to_have_count(0)
    run_again(page, lab, "02")
    expect(region).to_have_count(0)
    expect(page.get_by_text("Warm-up: skipped for today.")).to_be_visible()
    assert [event.name for event in Store(lab.folder / "data").events("skip", "02")] == ["02"]


def test_to_skip_the_rest_of_a_warm_up_leaves_what_was_answered(page: Page, lab: Lab) -> None:
    region = open_warm_up(page, lab, "05")
    answer_first(page)
    expect(region.get_by_role("button", name="Skip")).to_be_visible()
    escape_leads_to_the_next_cell(page)
    for again in (False, True):
        if again:
            run_again(page, lab, "05")
        expect(region).to_contain_text("Warm-up: the rest is skipped for today.")
        expect(region.get_by_role("group")).to_have_count(1)
        expect(group(page, "What does a layer keep").get_by_role("status")).to_contain_text("Right.")
        expect(region.get_by_role("button")).to_have_count(0)
    assert len(Store(lab.folder / "data").events("skip", "05")) == 1


def test_a_warm_up_that_is_answered_is_only_left_with_escape(page: Page, lab: Lab) -> None:
    region = open_warm_up(page, lab, "08")
    answer_first(page)
    several = group(page, "What makes")
    for name in ("More tokens", "More layers"):
        several.get_by_role("checkbox", name=name).press("Space")
    several.get_by_role("button", name="Answer").press("Enter")
    expect(several.get_by_role("status")).to_be_focused()
    expect(region.get_by_role("button")).to_have_count(0)
    escape_leads_to_the_next_cell(page)
    for again in (False, True):
        if again:
            run_again(page, lab, "08")
        expect(region).to_contain_text("Warm-up: done for today.")
        expect(region).not_to_contain_text("to skip")
        expect(region.get_by_role("status").filter(has_text="Right.")).to_have_count(2)
        expect(region.get_by_role("button")).to_have_count(0)
    assert Store(lab.folder / "data").events("skip", "08") == []
