"""The page of feedback: all of it is there, whatever strangers wrote on it stays text, and everybody can read it."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from lab_server import CHROMIUM, browser, needs_chromium, new_window
from variants import function, variants

from course_lib.checks import check_named
from course_lib.checks.contract import Line, answer
from course_lib.grading.feedback import page
from course_lib.grading.mark import Answer, Marks, TaskMarks

__all__ = ["browser"]  # a fixture

if CHROMIUM:
    from axe_playwright_python.sync_playwright import Axe
    from playwright.sync_api import Browser, Page

HOSTILE = {
    "a script": "<script>document.title = 'ran'</script>",
    "an attribute": "\"' onmouseover=alert(1) x=\"'><img src=//127.0.0.1/x onerror=alert(1)>",
    "all ends": "</code></dd></dl></li></ul></bdi></title></style></section></main></body></html>",
    "a style": "</style><style>* {display: none}</style><!--",
    "a template": "{{ marks.earned }} {% raw %} {# <b> #}",
    "entities": "&lt;b&gt; &#60;b&#62; <![CDATA[ ]]> <b",
    "a very long line": "x" * 5000 + "<b>",
    "piled-up accents": "e" + "\N{COMBINING ACUTE ACCENT}" * 300,
}
UNSEEN = "\x00\x1b[31m\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\ud800\x07"


def filled(text: str) -> Marks:
    """Marks with `text` in every field that holds one, each with a word of its own behind it."""
    lines = (
        Line(f"{text} case", True),
        Line(f"{text} wrong", False, *(f"{text} {word}" for word in ("said", "in", "out", "came", "place"))),
    )
    tasks = (
        TaskMarks(f"{text} check", f"{text} title", 5.0, 2.5, lines, (f"{text} sentence",)),
        TaskMarks(f"{text} other", "", 1.0, 0.0),
    )
    answers = (
        Answer(f"{text} hidden", f"{text} question", 2.0, f"{text} answer", (f"{text} about it",)),
        Answer(f"{text} cell", "", 1.0, ""),
    )
    return Marks(f"{text} assignment", f"{text} file", tasks, answers, (f"{text} note",), 3.0, 1 << 20)


WORDS = {
    "name", "assignment", "file", "case", "wrong", "said", "in", "out", "came", "place", "check", "title", "sentence",
    "other", "question", "answer", "cell", "note", "about it",
}  # fmt: skip


class Read(HTMLParser):
    """The elements of a page with their attributes, in order, and its text without the style sheet."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[Any] = [""]
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, attrs))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        if self.elements[-1] != ("style", []):
            self.text += data

    def handle_comment(self, data: str) -> None:
        self.elements.append(f"<!--{data}")

    def handle_decl(self, decl: str) -> None:
        self.elements.append(f"<!{decl}")

    def unknown_decl(self, data: str) -> None:
        self.elements.append(f"<![{data}")


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_strangers_wrote_appears_as_text_and_adds_nothing(kind: str) -> None:
    text = HOSTILE[kind]
    found, harmless = Read(page(filled(text), f"{text} name")), Read(page(filled("word"), "word name"))
    assert found.elements == harmless.elements
    for word in WORDS:
        assert f"{text} {word}" in found.text
    assert found.text.replace(text, "word") == harmless.text


def test_what_cannot_be_seen_is_shown_and_turns_no_line_around() -> None:
    html = page(filled(UNSEEN), f"{UNSEEN} name")
    html.encode()
    assert all(letter.isprintable() or letter.isspace() for letter in html)
    assert "\N{REPLACEMENT CHARACTER}" * 2 + "[31m" + "\N{REPLACEMENT CHARACTER}" * 4 + " name" in html
    assert Read(html).elements == Read(page(filled("word"), "word name")).elements


def test_names_and_answers_in_other_scripts_are_left_as_they_were_written() -> None:
    name, written = "علی\N{ZERO WIDTH NON-JOINER}رضا", "Oui\N{NO-BREAK SPACE}: c'est 2\N{NARROW NO-BREAK SPACE}n.\n\tלא"
    marks = replace(filled("word"), answers=(Answer("cell", "Why", 2.0, written),))
    text = Read(page(marks, name)).text
    assert f"Feedback on word assignment, for {name}" in text and written.expandtabs(4) in text


def test_sentences_may_hold_code_and_nothing_else() -> None:
    plain = page(replace(filled("word"), notes=("Code cell 2 raised x: <b>.",)), "Ada")
    marked = page(replace(filled("word"), notes=("Code cell 2 raised x: `<b>`.",)), "Ada")
    assert "<code>&lt;b&gt;</code>" in marked
    assert marked.replace("<code>&lt;b&gt;</code>", "&lt;b&gt;") == plain


def of_ex03(solution: str) -> TaskMarks:
    """Marks of a solution of ex03.append, as they are made for a submission."""
    verdict = answer(check_named("ex03.append"), function(solution), seed=3)
    return TaskMarks("ex03.append", "Keep", 5.0, verdict.earned(5.0), verdict.lines)


RIGHT, WRONG = variants("ex03.append").RIGHT["NumPy"], variants("ex03.append").WRONG["layers mixed"].source


def test_failed_line_says_what_went_in_what_was_expected_what_came_out_and_where() -> None:
    task = of_ex03(WRONG)
    text = Read(page(Marks("ex03_kv_cache", "ada", (task,), (), (), 1.0, 1), "Ada")).text
    failed = [line for line in task.lines if not line.passed]
    assert f"ex03.append: {len(failed)} of {len(task.lines)} cases failed." in text
    assert f"Keep ({task.earned:g} of 5 points)" in text and 0 < task.earned < 5
    for line in task.lines:
        assert f"{'passed' if line.passed else 'failed'}: {line.case}" in text
    for line in failed:
        shown = ("Went in", line.went_in, "Expected", line.expected, "Came out", line.came_out, "Where", line.where)
        assert all(shown) and "".join(shown) in text.replace("\n", "")
        assert line.said.replace("`", "") in text
    check = check_named("ex03.append")
    assert f"Tolerance: {check.TOLERANCE}\nNot checked: {check.NOT_CHECKED}.\n" in text


def test_full_marks_say_so_and_leave_the_written_answer_to_a_person() -> None:
    marks = Marks("ex03_kv_cache", "Ada", (of_ex03(RIGHT),), (Answer("why", "Why", 3.0, "Because."),), (), 1.0, 1)
    text = Read(page(marks, "Ada")).text
    assert "5 of 5 points for code. Written answers: 3 points for a person to mark." in text
    assert "ex03.append: 10 cases passed." in text and "10 of 10" in text and "failed" not in text
    assert "Why (3 points, for a person to mark)\nBecause." in text and "of 3, for a person to mark" in text
    assert "All points" not in text and "Handed in as" not in text and "About your file" not in text


def test_points_that_a_person_gave_are_on_the_page() -> None:
    answers = (Answer("a", "Why", 3.0, "Because."), Answer("b", "How", 3.0, "So."))
    marks = Marks("ex03_kv_cache", "Ada", (of_ex03(RIGHT),), answers, (), 1.0, 1)
    text = Read(page(marks, "Ada", {"a": 3.0, "b": 2.5}, "A cache")).text
    assert "Feedback on ex03, A cache, for Ada" in text
    assert "10.5 of 11 points (5 of 5 for code, 5.5 of 6 for written answers)." in text
    assert (
        "Why (3 of 3 points)\nBecause." in text and "How (2.5 of 3 points)" in text and "written answer2.5 of 3" in text
    )
    assert "a person" not in text and "points more" not in text and "All points10.5 of 11" in text.replace("\n", "")
    text = Read(page(marks, "Ada", {"a": 3.0, "b": None})).text
    assert "5 of 5 points for code. Written answers: 3 of 3 points so far, and 3 points for a person to mark." in text
    assert "Why (3 of 3 points)" in text and "How (3 points, for a person to mark)" in text


def test_what_is_not_a_notebook_gets_a_page_that_asks_for_one_and_promises_nothing() -> None:
    nothing = TaskMarks("ex03.append", "Keep", 5.0, 0.0, (), ("There is no code in what was handed in.",))
    marks = Marks("ex03_kv_cache", "a", (nothing,), (Answer("x", "Why", 3.0, ""),), ("The file is empty.",), 0, 0)
    text = Read(page(marks, "Ada", missing=True)).text
    assert "What was handed in is not a notebook" in text and "Please hand in the notebook" in text
    assert "The file is empty." in text and "point" not in text and "Keep" not in text and "not graded" not in text


def test_submission_that_was_nothing_gets_a_page_that_says_why() -> None:
    nothing = TaskMarks("ex03.append", "Keep", 5.0, 0.0, (), ("There is no code in what was handed in.",))
    unknown = TaskMarks("ex03.chunk", "Read", 6.0, 0.0)
    marks = Marks(
        "ex03_kv_cache", "a", (nothing, unknown), (Answer("x", "Why", 3.0, ""),), ("The file is empty.",), 0, 0
    )
    text = Read(page(marks, "Ada")).text
    for said in (
        "0 of 14 points (0 of 11 for code, 0 of 3 for written answers).", "There is no code in what was handed in.",
        "Nothing could be judged.", "The file is empty.", "Why (nothing written, 0 of 3 points)",
        "nothing written0 of 3", "nothing judged", "Handed in as a",
    ):  # fmt: skip
        assert said in text


def test_marks_without_anything_are_a_page_too() -> None:
    empty = Marks("ex00", "ada", (), (), (), 0.0, 0)
    assert "There is nothing in this assignment that earns points." in page(empty, "Ada")
    only_written = page(replace(empty, answers=(Answer("x", "Why", 1.0, "Because."),)), "Ada")
    assert "Written answers: 1 point for a person to mark." in only_written


def test_page_is_the_same_for_the_same_marks_whatever_time_they_took() -> None:
    marks = filled("word")
    again = dataclasses.replace(marks, seconds=99.0, peak_bytes=5)
    assert page(marks, "Ada") == page(again, "Ada")


def many() -> Marks:
    """Marks with a bit of everything, among it the worst of what strangers write."""
    worst = filled("".join(HOSTILE.values()) + UNSEEN)
    return replace(worst, tasks=(of_ex03(WRONG), of_ex03(RIGHT), *worst.tasks))


@pytest.fixture
def shown(browser: "Browser", tmp_path: Path) -> Iterator["Page"]:
    """A window with that page; `asked` of it holds every address that it asked for."""
    (tmp_path / "page.html").write_text(page(many(), "<b>Ada"), encoding="utf-8")
    with new_window(browser) as context:
        window = context.new_page()
        window.goto((tmp_path / "page.html").as_uri())
        yield window


@needs_chromium
@pytest.mark.browser
def test_everybody_can_read_it_narrow_and_wide_light_and_dark(shown: "Page") -> None:
    for width in (360, 1400):
        for theme in ("light", "dark"):
            shown.set_viewport_size({"width": width, "height": 900})
            shown.emulate_media(color_scheme=theme)
            assert [(v["id"], v["nodes"][0]["html"]) for v in Axe().run(shown).response["violations"]] == []
            assert shown.evaluate("document.documentElement.scrollWidth") == width, "nothing sticks out"
    assert background(shown) == "rgb(23, 23, 23)"
    assert shown.locator("ul:not(.cases) > li").first.evaluate("it => getComputedStyle(it).overflowX") == "visible"
    for passed in ("failed", "cases > li:not(.failed)"):
        assert (
            shown.locator(f".{passed}").first.evaluate("it => getComputedStyle(it).borderLeft").startswith("4px solid")
        )
    shown.emulate_media(media="print", color_scheme="dark")
    assert background(shown) == "rgb(255, 255, 255)", "paper is white"
    assert shown.locator("dd").first.is_visible() and shown.pdf().startswith(b"%PDF")


def background(shown: "Page") -> str:
    return str(shown.evaluate("getComputedStyle(document.documentElement).backgroundColor"))


@needs_chromium
@pytest.mark.browser
def test_even_a_page_that_somebody_got_an_element_into_runs_and_fetches_nothing(shown: "Page", tmp_path: Path) -> None:
    forged = (
        "<script>document.title = 'ran'</script><img src='http://127.0.0.1:9/x' onerror='document.title = 1'>"
        "<style>main {display: none}</style><p id='forged' style='color: rgb(1, 2, 3)'>forged</p>"
    )
    (tmp_path / "forged.html").write_text(page(many(), "Ada").replace("</main>", f"{forged}</main>"), encoding="utf-8")
    asked: list[str] = []
    shown.on("requestfinished", lambda request: asked.append(request.url))
    refused: list[str] = []
    shown.on("console", lambda message: refused.append(message.text))
    shown.goto((tmp_path / "forged.html").as_uri())
    assert shown.title().startswith("Feedback on") and [url.rpartition("/")[2] for url in asked] == ["forged.html"]
    assert shown.locator("main").evaluate("it => getComputedStyle(it).display") == "block"
    assert shown.locator("#forged").evaluate("it => getComputedStyle(it).color") == "rgb(31, 31, 31)"
    assert sum("Content Security Policy" in text for text in refused) >= 4, refused
