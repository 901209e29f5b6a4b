"""What every committed notebook keeps to: the pattern of a lesson, whole without a kernel, checkable, plain."""

import itertools
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.study.course_map import QUESTIONS, course_map

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
LESSONS = [path for path in PATHS if path.stem != "00_start_here"]
IGNORED = "nbval-ignore-output"
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


every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
every_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def test_there_are_notebooks() -> None:
    assert [path.stem for path in PATHS][:1] == ["00_start_here"] and LESSONS


@every_notebook
def test_its_title_is_the_question_on_the_map(path: Path) -> None:
    assert prose(read(path)).splitlines()[0] == f"# {QUESTIONS[path.stem]}"


def test_the_map_links_what_is_here_and_only_that(tmp_path: Path) -> None:
    (tmp_path / "03_the_kv_cache.ipynb").write_text("{}")
    table = course_map(tmp_path).data
    assert table.count("(to come)") == len(QUESTIONS) - 1
    assert re.findall(r"\]\((.*?)\)", table) == ["03_the_kv_cache.ipynb"]
    assert re.findall(r"\]\((.*?)\)", course_map().data) == [path.name for path in PATHS]


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
    questions = prose(read(path)).split("## Check your understanding")[1].split("\n## ")[0]
    assert 4 <= len(re.findall(r"^\*\*\d+\.\*\* ", questions, re.MULTILINE)) == questions.count("<details>") <= 8


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
        shows = re.search(r"^(predict|compare|explore|figures\.\w+|course_map)\(|^print\(", cell.source, re.MULTILINE)
        assert bool(cell.outputs) or not shows, cell.source
        for output in cell.outputs:
            if "data" in output:
                assert set(output.data) & {"image/png", "text/html", "text/markdown"}, cell.source
                assert not any("widget" in kind for kind in output.data), "the view of a widget needs its kernel"


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
