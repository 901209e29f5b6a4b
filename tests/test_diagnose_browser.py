"""A diagnosis in JupyterLab, in a real Chromium: keys alone, what a page knows before the answer, restarts, themes."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from lab_server import Lab, Opened, browser, needs_chromium, open_notebook, running_lab
from small_quiz import write_notebook

from course_lib.progress.store import Store
from course_lib.study.diagnose import Diagnosis, diagnoses

__all__ = ["browser", "open_notebook"]  # fixtures
pytestmark = [pytest.mark.browser, needs_chromium]
pytest.importorskip("playwright.sync_api")

from playwright.sync_api import Locator, Page, expect  # noqa: E402

ASKED = next(iter(diagnoses().values()))
RIGHT = next(index for index, choice in enumerate(ASKED.choices) if choice.right)
WRONG = next(index for index in reversed(range(len(ASKED.choices))) if index != RIGHT)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab on notebooks with one exhibit each, and a store of their own."""
    private, folder = tmp_path_factory.mktemp("private"), tmp_path_factory.mktemp("museum")
    for name, question in zip(("keys.ipynb", "themes.ipynb"), diagnoses().values()):
        cell = f'from course_lib.study.diagnose import diagnose\ndiagnose("{question.id}")'
        write_notebook(folder / name, cell, "last = 1")
    with running_lab(folder, private, folder / "data") as running:
        yield running


def region(page: Page) -> Locator:
    return page.get_by_role("region", name=f"Exhibit “{ASKED.id}”: {ASKED.exhibit.title}")


def reply(page: Page) -> Locator:
    return page.get_by_role("group", name=re.compile("What is the cause")).get_by_role("status")


def restart_kernel(opened: Opened) -> None:
    opened.page.get_by_role("menuitem", name="Kernel", exact=True).click()
    opened.page.get_by_role("menuitem", name=re.compile("Restart Kernel…")).click()
    opened.page.get_by_role("button", name="Confirm Kernel Restart").click()
    opened.page.locator(".jp-Dialog").wait_for(state="detached")
    opened.wait_until_idle()


def code_of(diagnosis: Diagnosis) -> list[str]:
    """The lines of the diff as a page shows them, and as its text is read: without what is between the words."""
    marks = {"removed": "\N{MINUS SIGN} ", "added": "+ "}
    return [marks[kind] + line for kind, line in diagnosis.diff]


def expect_solved(page: Page) -> None:
    expect(reply(page)).to_contain_text("Right.")
    expect(page.get_by_role("radio").nth(RIGHT)).to_be_checked()
    expect(reply(page).get_by_role("code")).to_have_count(len(code_of(ASKED)) + said_in_code(ASKED))
    for line in code_of(ASKED):
        expect(reply(page).locator("code", has_text=line)).to_be_visible()


def said_in_code(diagnosis: Diagnosis) -> int:
    return diagnosis.explanation.count("`") // 2


def test_a_wrong_cause_then_the_right_one_with_keys_alone_and_it_comes_back(
    lab: Lab, open_notebook: Callable[..., Opened]
) -> None:
    opened = open_notebook("keys.ipynb")
    page, keys = opened.page, opened.page.keyboard
    frames: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: frames.append(str(frame))))
    page.reload()  # so that every frame is seen
    page.locator(".jp-Notebook").wait_for()
    opened.wait_until_idle()
    page.locator(".jp-Cell").first.focus()
    keys.press("Shift+Enter")
    region(page).wait_for()
    expect(page.locator(".jp-Cell.jp-mod-active")).to_contain_text("last = 1")
    for _ in range(30):
        keys.press("Shift+Tab")
        if page.locator(":focus").evaluate("node => node.matches('input[type=radio]')"):
            break

    assert any("What is the cause?" in frame for frame in frames), "the question came this way"
    for text in (page.content(), *frames):
        assert ASKED.exhibit.mend.strip() not in text and ASKED.choices[WRONG].why not in text

    for _ in range(len(ASKED.choices) - 1 - WRONG):
        keys.press("ArrowUp")
    keys.press("Space")
    expect(page.get_by_role("radio").nth(WRONG)).to_be_checked()
    keys.press("Tab")
    keys.press("Enter")
    expect(reply(page)).to_contain_text("Not right yet.")
    expect(reply(page)).to_contain_text(ASKED.choices[WRONG].why.replace("`", "").split("*")[0])
    expect(reply(page).locator(".course-quiz-added")).to_have_count(0)
    expect(page.get_by_role("button", name="Try again")).to_be_focused()
    keys.press("Enter")
    keys.press("Space")
    for _ in range(RIGHT):
        keys.press("ArrowDown")
    keys.press("Tab")
    keys.press("Enter")
    expect_solved(page)
    expect(reply(page)).to_be_focused()
    keys.press("Escape")
    keys.press("ArrowDown")
    expect(page.locator(".jp-Cell.jp-mod-active")).to_contain_text("last = 1")
    given = [(event.name, event.data["right"]) for event in Store(lab.folder / "data").events("answer")]
    assert given == [(ASKED.name, False), (ASKED.name, True)]

    restart_kernel(opened)
    again = open_notebook("keys.ipynb")
    again.run_all_cells(60)
    expect_solved(again.page)
    expect(again.page.get_by_role("button", name=re.compile("^(Answer|Try again)$"))).to_have_count(0)


def test_the_wrong_line_and_its_mend_can_be_read_in_either_theme_and_on_a_narrow_page(
    lab: Lab, open_notebook: Callable[..., Opened]
) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    asked = list(diagnoses().values())[1]
    right = next(index for index, choice in enumerate(asked.choices) if choice.right)
    Store(lab.folder / "data").record("answer", asked.name, {"given": right, "right": True}, asked.version)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        opened = open_notebook("themes.ipynb", width=700)
        page = opened.page
        address = f"{lab.url}/lab/api/settings/@jupyterlab/apputils-extension:themes?token={lab.token}"
        assert page.request.put(address, data={"raw": json.dumps({"theme": theme})}).ok
        page.reload()
        page.locator(".jp-Notebook").wait_for()
        opened.wait_until_idle()
        expect(page.locator("body")).to_have_attribute("data-jp-theme-name", theme)
        opened.run_all_cells(60)
        expect(reply(page)).to_contain_text("Right.")
        expect(page.locator(".course-quiz-removed, .course-quiz-added")).to_have_text(code_of(asked))
        for element in page.locator(".course-quiz, .course-quiz code").all():
            assert element.evaluate("node => node.scrollWidth <= node.clientWidth + 1"), "wider than a narrow page"
        found = axe.run(page, context=".course-quiz").response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == [], theme
