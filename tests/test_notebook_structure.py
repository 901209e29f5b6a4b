"""What every committed notebook keeps to: the pattern of a lesson, whole without a kernel, checkable, plain."""

import html
import itertools
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.quizzes.bank import Choices, Number, Order, load_bank
from course_lib.study.course_map import QUESTIONS, course_map

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
LESSONS = [path for path in PATHS if path.stem != "00_start_here"]
IGNORED = "nbval-ignore-output"
ANSWERS_TO_THE_LEARNER = r"predict|compare|explore|figures\.\w+|course_map|Quiz|warm_up|progress|check|hint|diagnose"
LONGEST_CELL = 30  # lines: a cell can be read whole
LONGEST_LINE = 96  # characters that a window of 1280 pixels shows
CLOCKS = r"perf_counter|generate\(model|stream\(|\banswer\.|\w+_s\[|fixed_s|get_num_threads|__version__|waits\["
HYPE = r"\b(powerful|crucial|seamless|leverage|delve|let's|simply|obviously|game.chang|cutting.edge|amazing)\b"
SPEED = r"\d+(\.\d+)?\s*(times|x|×)\s+(as )?(fast|slow|quick)"  # a measured speed-up does not belong into the text


def read(path: Path) -> NotebookNode:
    return nbformat.read(path, as_version=4)


def prose(notebook: NotebookNode) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def by_section(notebook: NotebookNode) -> list[tuple[str, NotebookNode]]:
    """Every code cell with the heading that it stands under."""
    heading, found = "", []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            found.append((heading, cell))
        else:
            heading = ([heading, *re.findall(r"^## (.*)$", cell.source, re.MULTILINE)])[-1]
    return found


every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in PATHS][:1] == ["00_start_here"] and LESSONS


@every_notebook
def test_its_title_is_the_question_on_the_map(path: Path) -> None:
    assert prose(read(path)).splitlines()[0] == f"# {QUESTIONS[path.stem]}"


def test_the_map_links_what_is_here_and_only_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = re.findall(r"\]\((.*?)\)", course_map().data)
    assert [link for link in links if not link.startswith("../exercises/")] == [path.name for path in PATHS]
    (tmp_path / "03_the_kv_cache.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    table = course_map().data
    assert table.count("(to come)") == len(QUESTIONS) - 1
    assert re.findall(r"\]\((.*?)\)", table) == ["03_the_kv_cache.ipynb"]


@every_notebook
def test_it_begins_with_objectives_and_the_time_it_takes(path: Path) -> None:
    opening = read(path).cells[0].source
    objectives = re.findall(r"^- \*\*\w+\*\* ", opening, re.MULTILINE)
    assert 3 <= len(objectives) <= 4
    assert re.search(r"about \d+ minutes", opening)


@every_lesson
def test_a_lesson_has_all_its_parts_in_order(path: Path) -> None:
    headings = re.findall(r"^## (.*)$", prose(read(path)), re.MULTILINE)
    last = [heading.split(":")[0] for heading in headings[-3:]]
    assert last == ["Practice", "Check your understanding", "What this leaves out"]
    assert prose(read(path)).count("> **Takeaway.**") >= 4


@every_notebook
def test_its_quiz_is_a_cell_of_its_own_under_check_your_understanding(path: Path) -> None:
    assert [section for section, cell in by_section(read(path)) if cell.source == f'Quiz("{path.stem}")'] == [
        "Check your understanding"
    ]
    assert prose(read(path)).count("Quiz(") == 0 and sum("Quiz(" in cell.source for cell in code(read(path))) == 1


@every_lesson
def test_a_lesson_asks_four_to_eight_questions(path: Path) -> None:
    assert 4 <= len(load_bank(path.stem).questions) <= 8


@every_lesson
def test_a_lesson_warms_up_right_after_its_imports(path: Path) -> None:
    first, second = code(read(path))[:2]
    assert re.search(r"^from course_lib\.study import .*\bwarm_up\b", first.source, re.MULTILINE | re.DOTALL)
    assert second.source == f'warm_up("{path.stem[:2]}")'


@every_notebook
def test_every_comparison_has_a_prediction_before_it(path: Path) -> None:
    asked: set[str] = set()
    compared: set[str] = set()
    for cell in code(read(path)):
        used = set(re.findall(rf'"({path.stem[:2]}\.\w+)"', cell.source))
        if "predict(" in cell.source:
            asked |= used
        elif used:
            assert "compare(" in cell.source
            compared |= used
            assert used <= asked, f"{used - asked} is compared before anybody was asked"
    assert asked == compared, f"{asked - compared} is asked and never compared"


@every_notebook
def test_it_was_run_from_top_to_bottom_without_an_error(path: Path) -> None:
    cells = code(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type in ("error", "stderr")]


@every_notebook
def test_nothing_is_blank_without_a_kernel(path: Path) -> None:
    for cell in code(read(path)):
        shows = re.search(rf"^({ANSWERS_TO_THE_LEARNER}|print)\(", cell.source, re.MULTILINE)
        assert bool(cell.outputs) or not shows, cell.source
        for output in cell.outputs:
            if "data" in output:
                assert set(output.data) & {"image/png", "text/html", "text/markdown"}, cell.source
                assert not any("widget" in kind for kind in output.data), "the view of a widget needs its kernel"


def text_of(cells: list[NotebookNode]) -> str:
    """All that a reader or a machine finds in cells and their outputs, attributes of elements included, in one line."""
    parts = []
    for cell in cells:
        parts.append(cell.source)
        for output in cell.get("outputs", []):
            shown = [value for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
            parts += [output.get("text", ""), *map(str, shown)]
    return in_one_line("\n".join(parts))


def in_one_line(text: str) -> str:
    return " ".join(re.sub("[`*]", "", html.unescape(re.sub(r"</?\w+|>", "", text))).split())


@every_notebook
def test_the_questions_stand_in_the_file_and_what_is_said_to_an_answer_does_not(path: Path) -> None:
    notebook, bank = read(path), load_bank(path.stem)
    quiz = text_of([cell for cell in code(notebook) if cell.source.startswith("Quiz(")])
    whole = text_of(notebook.cells)
    everything: list[str] = []
    for question in bank.questions:
        asked, secret = [question.text], [question.explanation]
        if isinstance(question, Choices):
            asked += [choice.text for choice in question.choices]
            secret += [choice.why for choice in question.choices]
        elif isinstance(question, Order):
            asked += question.items
            secret += [question.wrong]
            places = [quiz.index(in_one_line(item)) for item in question.items]
            assert places != sorted(places), "the items stand there in their right order"
        elif isinstance(question, Number):
            secret += [question.wrong, *(trap.why for trap in question.traps)]
            assert f"________ {question.unit}".strip() in quiz
        assert [text for text in asked if in_one_line(text) not in quiz] == []
        assert [text for text in secret if text and in_one_line(text) in whole] == []
        everything += map(in_one_line, asked)
    for text in sorted(everything, key=len, reverse=True):
        quiz = quiz.replace(text, "")
    answers = [question.answer for question in bank.questions if isinstance(question, Number)]
    assert [answer for answer in answers if re.search(rf"(?<![\d.]){answer:g}(?![\d.])", quiz)] == []
    assert not re.search(r"\b(right|correct|true|explanation|misconception)\b(?!:)", quiz, re.IGNORECASE)


@every_notebook
def test_running_all_cells_uses_up_no_hint(path: Path) -> None:
    assert not [cell.source for cell in code(read(path)) if re.search(r"^\s*hint\(", cell.source, re.MULTILINE)]


@every_notebook
def test_every_figure_has_a_text_and_a_sentence_that_says_what_to_see(path: Path) -> None:
    cells = read(path).cells
    for cell, following in itertools.pairwise(cells):
        images = [output for output in cell.get("outputs", []) if "image/png" in output.get("data", {})]
        for output in images:
            assert len(output.metadata["image/png"]["alt"]) > 20
            assert following.source.startswith("*What to see: "), cell.source


@every_notebook
def test_what_a_clock_or_the_machine_decides_is_not_compared(path: Path) -> None:
    for cell in code(read(path)):
        if re.search(CLOCKS, cell.source) and cell.outputs:
            assert IGNORED in cell.metadata.get("tags", []), cell.source


@every_notebook
def test_cells_can_be_read_whole(path: Path) -> None:
    for cell in code(read(path)):
        lines = cell.source.splitlines()
        assert len(lines) <= LONGEST_CELL, cell.source
        assert max(map(len, lines)) <= LONGEST_LINE, max(lines, key=len)


@every_notebook
def test_the_prose_is_plain_and_holds_no_measured_speed(path: Path) -> None:
    text = prose(read(path))
    assert not re.findall(HYPE, text, re.IGNORECASE)
    assert not re.findall(SPEED, text)
    assert not re.findall("[\U0001f000-\U0001faff\u2600-\u27bf]", text), "no emoji"
    assert not re.findall(r"TODO|FIXME|/home/|/root/|/tmp/", path.read_text(encoding="utf-8"))


@every_notebook
def test_what_is_folded_can_be_unfolded(path: Path) -> None:
    for cell in read(path).cells:
        if cell.cell_type == "markdown":
            assert cell.source.count("<details><summary>") == cell.source.count("</details>")
            assert not re.search(r"</summary>\n[^\n]", cell.source), "Markdown after a summary needs an empty line"


@every_notebook
def test_links_between_notebooks_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", prose(read(path))):
        assert target.startswith("https://") or (FOLDER / target).exists(), target
