"""Reading whatever was handed in: every kind of notebook, and what is none."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from small_assignment import (
    RIGHT,
    handed_in,
    most_memory,
    notebook,
    older,
    text,
)

from course_lib.grading import submission as reading
from course_lib.grading.submission import read_submission, without_outputs

STREAM = {"output_type": "stream", "name": "stdout", "text": ["1\n", "2\n", '"[{\\']}


def sources(path: Path) -> list[str]:
    return [cell.source for cell in read_submission(path).cells]


def test_cells_are_read_in_order_with_their_number_among_their_kind_and_their_grade_id(tmp_path: Path) -> None:
    cells = read_submission(handed_in(tmp_path, notebook(RIGHT, "x = 1"))).cells
    assert [str(cell) for cell in cells] == [
        *("Text cell 1", "Code cell 1", "Code cell 2", "Code cell 3", "Code cell 4", "Code cell 5"),
        *("Text cell 2", "Text cell 3"),
    ]
    assert cells[2].grade_id == "ex99_double" and cells[3].grade_id == "" and cells[5].points == 4


@pytest.mark.parametrize("version", [3, 4])
def test_notebooks_of_other_jupyters_are_read_alike(version: int, tmp_path: Path) -> None:
    now = read_submission(handed_in(tmp_path, notebook(RIGHT)))
    assert read_submission(handed_in(tmp_path, older(version), "old.ipynb")).cells == now.cells


@pytest.mark.parametrize("minor", range(6))
def test_every_minor_version_is_read(minor: int, tmp_path: Path) -> None:
    assert RIGHT in sources(handed_in(tmp_path, notebook(RIGHT) | {"nbformat_minor": minor}))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le", "latin-1"])
def test_other_encodings_are_read_as_far_as_they_can_be(encoding: str, tmp_path: Path) -> None:
    raw = json.dumps(notebook("x = 'é'"), ensure_ascii=False).encode(encoding)
    read = read_submission(handed_in(tmp_path, raw))
    assert any(cell.source == ("x = '�'" if encoding == "latin-1" else "x = 'é'") for cell in read.cells)
    assert any("no UTF-8" in note for note in read.notes) == (encoding == "latin-1")


NO_NOTEBOOKS: dict[str, tuple[str | bytes | dict[str, Any], str]] = {
    "nothing": (b"", "The file is empty."),
    "white space": (" \n\n", "The file is empty."),
    "a program": (RIGHT, "The file is not a notebook: it cannot be read as JSON."),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "cannot be read as JSON"),
    "half a notebook": (json.dumps(notebook(RIGHT))[:-300], "cannot be read as JSON"),
    "half a string": ('{"cells": [{"source": "' + '\\"' * 200_000, "cannot be read as JSON"),
    "brackets without end": ("[" * 100_000, "cannot be read as JSON"),
    "brackets that only close": ("}]" * 1000 + json.dumps(notebook(RIGHT)), "cannot be read as JSON"),
    "far too many brackets": ("[[],[],[]," * 200_000, "larger than any notebook"),
    "a number of a million digits": ('{"cells": ' + "9" * 1_000_000 + "}", "cannot be read as JSON"),
    "a list": ("[1, 2]", "JSON of another kind"),
    "text": ('"cells"', "JSON of another kind"),
    "a number": ("NaN", "JSON of another kind"),
    "an object": ("{}", "The file is not a notebook: it has no cells."),
    "cells that are no list": ('{"cells": {"0": 1}}', "it has no cells"),
    "no cells": (notebook() | {"cells": []}, "The notebook has no cells."),
    "sheets that are none": ('{"worksheets": [3, {"cells": 4}]}', "The notebook has no cells."),
    "a source of 20 MB": (notebook("#" * 20_000_000), "larger than any notebook"),
}


@pytest.mark.parametrize("name", NO_NOTEBOOKS)
def test_what_is_no_notebook_is_said_in_one_sentence(name: str, tmp_path: Path) -> None:
    content, said = NO_NOTEBOOKS[name]
    began = time.process_time()
    read = read_submission(handed_in(tmp_path, content))
    assert read.cells == () and said in read.notes[-1] and read.notes[-1].endswith(".")
    assert time.process_time() - began < 20  # no walk that takes the square of the length


def test_no_path_raises_and_no_link_is_followed(tmp_path: Path) -> None:
    secret = handed_in(tmp_path, notebook("the key of whoever teaches"), "secret")
    (tmp_path / "link.ipynb").symlink_to(secret)
    (tmp_path / "folder.ipynb").mkdir()
    os.mkfifo(tmp_path / "pipe.ipynb")
    said = {
        "link.ipynb": "This is a link to another file, not a file; links are not followed.",
        "folder.ipynb": "This is no file.",
        "pipe.ipynb": "This is no file.",
        "nowhere.ipynb": "There is no such file.",
        "null\0.ipynb": "",
    }
    for name, sentence in said.items():
        read = read_submission(tmp_path / name)
        assert read.cells == () and sentence in read.notes[0], name


def test_damaged_cells_are_left_out_and_the_others_stay(tmp_path: Path) -> None:
    cells = [None, 3, [], {}, {"cell_type": "code"}, {"cell_type": "code", "source": 4}, {"cell_type": []}]
    cells += [{"cell_type": "code", "source": [1, "a = ", None, "1"], "metadata": [], "outputs": 7}]
    cells += [{"cell_type": "code", "source": "b", "metadata": {"nbgrader": {"grade_id": 4, "points": []}}}]
    read = read_submission(handed_in(tmp_path, {"cells": cells}))
    assert [cell.source for cell in read.code] == ["", "", "a = 1", "b"]
    assert read.notes == ("The notebook has a cell that is none; it was left out.",)


def test_a_cell_far_too_long_and_cells_far_too_many_are_left_out(tmp_path: Path) -> None:
    made = notebook("#" * 1_000_001, *["x = 1"] * 2_000)
    read = read_submission(handed_in(tmp_path, made))
    assert len(read.cells) == reading.MOST_CELLS and len(read.notes) == 2


@pytest.mark.parametrize("lines", [["x" * 100_000_000], ['0.25, [1], "a"' * 3 + "\n"] * 1_900_000], ids=["one", "many"])
def test_a_notebook_of_100_mb_is_read_without_its_outputs(lines: list[str], tmp_path: Path) -> None:
    made = notebook(RIGHT)
    made["cells"][1]["outputs"] = [STREAM | {"text": lines}]
    path = handed_in(tmp_path, made)
    before = most_memory()
    assert path.stat().st_size > 90_000_000
    read = read_submission(path)
    assert RIGHT in [cell.source for cell in read.cells] and "MB, nearly all of it outputs" in read.notes[0]
    assert most_memory(before) < 300e6


def test_outputs_attachments_and_widgets_are_cut_out_and_nothing_else(tmp_path: Path) -> None:
    made = notebook('x = {"outputs": [1]}', text("no outputs: [")) | {"metadata": {"widgets": {"a": {"b": [1]}}}}
    made["cells"][1]["outputs"] = [STREAM, {"data": {"text/html": "<b>]}</b>"}, "metadata": {"outputs": [[]]}}]
    made["cells"][0]["attachments"] = {"a.png": {"image/png": "AAAA"}}
    wanted = json.loads(json.dumps(made)) | {"metadata": {"widgets": {}}}
    wanted["cells"][1]["outputs"], wanted["cells"][0]["attachments"] = [], {}
    for spaces in (None, 1):
        assert json.loads(without_outputs(json.dumps(made, indent=spaces).encode())) == wanted
    assert without_outputs(b'{"a": [1, {"b": "c"}]}') == b'{"a": [1, {"b": "c"}]}'
