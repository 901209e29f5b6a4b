"""`course build`: the normal form of a notebook, and files that are executed and kept in it, with real kernels."""

import base64
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode, v4
from small_notebooks import Save, code, nothing, saver

from course_lib.commands.build import build_one, check_one, normal_form, serialised
from course_lib.commands.kernels import read_notebook


@pytest.fixture
def save(tmp_path: Path) -> Save:
    return saver(tmp_path)


def build(path: Path, fresh: bool = False) -> dict[str, object]:
    return build_one(path, 60, fresh, nothing)


# --- the normal form ------------------------------------------------------------------------------------------------


def png(*notes: bytes) -> bytes:
    """A picture of one grey pixel, with notes between its header and its data."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(b"\0\x7f"))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunk(n[:4], n[4:]) for n in notes) + data + chunk(b"IEND", b"")


def messy_notebook() -> NotebookNode:
    view = "application/vnd.jupyter.widget-view+json"
    noted = base64.b64encode(png(b"tEXtSoftware\0Matplotlib version3.11.2", b"tIME1234567")).decode() + "\n"
    outputs = [
        v4.new_output("stream", name="stdout", text="a\n"),
        v4.new_output("stream", name="stdout", text="b\n"),
        v4.new_output("stream", name="stderr", text="c\n"),
        v4.new_output("display_data", data={view: {"model_id": "17"}, "text/plain": "IntSlider(value=1)"}),
        v4.new_output("display_data", data={view: {"model_id": "18"}, "image/png": noted, "text/plain": "<Figure>"}),
        v4.new_output("execute_result", data={"text/plain": "1"}, execution_count=31),
    ]
    metadata = {"execution": {"iopub.status.busy": "2025-11-29T10:00:00Z"}, "tags": ["a"], "editable": False, "x": 1}
    cells = [
        v4.new_markdown_cell("# Title", metadata={"collapsed": True}),
        v4.new_code_cell("same", execution_count=31, outputs=outputs, metadata=metadata),
        v4.new_code_cell("same", execution_count=37),
        v4.new_code_cell("left out", metadata={"tags": ["skip-execution"]}),
    ]
    widgets = {"application/vnd.jupyter.widget-state+json": {"state": {}}}
    spec = {"name": "python3", "display_name": "my environment", "language": "python"}
    return v4.new_notebook(
        cells=cells,
        metadata={"widgets": widgets, "kernelspec": spec, "language_info": {"name": "python", "version": "3.99.1"}},
    )


def test_normal_form_has_what_was_meant_and_nothing_else() -> None:
    messy = messy_notebook()
    normal = normal_form(messy)
    assert normal.metadata == {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    assert [cell.get("execution_count") for cell in normal.cells] == [None, 1, 2, None]
    assert [cell.metadata for cell in normal.cells] == [
        {}, {"tags": ["a"], "editable": False}, {}, {"tags": ["skip-execution"]},
    ]  # fmt: skip
    outputs = normal.cells[1].outputs
    assert [(o.name, o.text) for o in outputs[:2]] == [("stdout", "a\nb\n"), ("stderr", "c\n")]
    assert outputs[2].data == {"image/png": base64.b64encode(png()).decode(), "text/plain": "<Figure>"}
    assert outputs[3].execution_count == 1 and len(outputs) == 4
    nbformat.validate(normal)
    assert len(messy.cells[1].outputs) == 6, "the notebook that was given is not changed"


def test_normal_form_is_its_own_normal_form_and_ids_come_from_the_cells() -> None:
    first, second = normal_form(messy_notebook()), normal_form(messy_notebook())  # nbformat draws new ids for each
    assert serialised(first) == serialised(second) == serialised(normal_form(first))
    ids = [cell.id for cell in first.cells]
    assert len(set(ids)) == len(ids)
    assert ids[2] == f"{ids[1]}-2"
    with_one_more = messy_notebook()
    with_one_more.cells.insert(0, v4.new_code_cell("new"))
    assert [cell.id for cell in normal_form(with_one_more).cells][1:] == ids
    text = serialised(first).decode()
    assert text.endswith("\n}\n") and text.startswith('{\n "cells"')


# --- build ----------------------------------------------------------------------------------------------------------


def test_build_executes_in_place_and_check_agrees(save: Save) -> None:
    path = save(v4.new_markdown_cell("# Wärme"), "for word in 'ab':\n    print(word, flush=True)", "1 + 1")
    path.chmod(0o640)
    row = check_one(path)
    assert row["result"] == "failed"
    assert "not executed (cells 2, 3)" in str(row["error"])
    assert build(path)["result"] == "written"
    notebook = read_notebook(path)
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2]
    assert [output.text for output in notebook.cells[1].outputs] == ["a\nb\n"]
    assert path.stat().st_mode & 0o777 == 0o640
    assert check_one(path)["error"] == ""
    before = path.read_bytes()
    assert "Wärme".encode() in before
    assert build(path)["result"] == "unchanged"
    assert path.read_bytes() == before


def change_source(notebook: NotebookNode) -> None:
    notebook.cells[1].source += "  # edited"


def swap_cells(notebook: NotebookNode) -> None:
    notebook.cells[1:] = reversed(notebook.cells[1:])


def drop_output_count(notebook: NotebookNode) -> None:
    notebook.cells[1].execution_count = None


def add_timestamp(notebook: NotebookNode) -> None:
    notebook.cells[1].metadata["execution"] = {"iopub.execute_input": "2025-11-29T10:00:00Z"}


def add_widget_state(notebook: NotebookNode) -> None:
    notebook.metadata["widgets"] = {"application/vnd.jupyter.widget-state+json": {}}


def add_error(notebook: NotebookNode) -> None:
    notebook.cells[1].outputs = [v4.new_output("error", ename="KeyError", evalue="x", traceback=[])]


def add_path(notebook: NotebookNode) -> None:
    notebook.cells[1].outputs = [v4.new_output("stream", text="saved to /home/somebody/figure.png\n")]


def add_address(notebook: NotebookNode) -> None:
    notebook.cells[1].outputs = [v4.new_output("stream", text="<object object at 0x7f0123456789>\n")]


def add_empty_cell(notebook: NotebookNode) -> None:
    notebook.cells.append(v4.new_code_cell(""))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (change_source, "changed since it was built (cell 2)"),
        (swap_cells, "executed out of order (cells 2, 3)"),
        (drop_output_count, "not executed (cell 2)"),
        (add_timestamp, "not in normal form"),
        (add_widget_state, "not in normal form"),
        (add_error, "holds an error, KeyError (cell 2)"),
        (add_path, "/home/somebody/figure.png (cell 2)"),
        (add_address, "0x7f0123456789> (cell 2)"),
        (add_empty_cell, "empty (cell 4)"),
    ],
)
def test_check_says_what_is_not_in_order(tmp_path: Path, change: Callable[[NotebookNode], None], said: str) -> None:
    cells = [
        v4.new_markdown_cell("text"),
        v4.new_code_cell("1", execution_count=1),
        v4.new_code_cell("2", execution_count=2),
    ]
    notebook = normal_form(v4.new_notebook(cells=cells))
    path = tmp_path / "built.ipynb"
    path.write_bytes(serialised(notebook))
    assert check_one(path)["error"] == ""
    change(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    row = check_one(path)
    assert row["result"] == "failed"
    assert said in str(row["error"])


@pytest.mark.parametrize("text", ["see https://x.org/home/page", "a/home/b", "1/2", "~/notes", "0x7f01", "/usr"])
def test_check_takes_no_offence_at_what_only_looks_like_a_path(tmp_path: Path, text: str) -> None:
    output = v4.new_output("stream", text=text)
    cell = v4.new_code_cell("1", execution_count=1, outputs=[output])
    path = tmp_path / "built.ipynb"
    path.write_bytes(serialised(normal_form(v4.new_notebook(cells=[cell]))))
    assert check_one(path)["error"] == ""


def test_check_takes_little_time_for_a_long_line(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    outputs = [v4.new_output("stream", text=long), v4.new_output("error", ename="E", evalue="", traceback=[long])]
    cell = code("1", "raises-exception") | {"execution_count": 1, "outputs": outputs}
    path = tmp_path / "built.ipynb"
    began = time.monotonic()
    path.write_bytes(serialised(normal_form(v4.new_notebook(cells=[cell]))))
    assert check_one(path)["error"] == ""
    assert time.monotonic() - began < 10, "of the length squared it would take an hour"


def test_notebook_that_raises_or_names_this_machine_is_left_as_it_was(save: Save) -> None:
    for source in ("raise KeyError('x')", "import tempfile; print(tempfile.gettempdir() + '/figure.png')"):
        path = save("1", source)
        before = path.read_bytes()
        row = build(path)
        assert row["result"] == "failed" and row["error"]
        assert path.read_bytes() == before


def test_timings_stay_until_something_else_changes(save: Save) -> None:
    clock = "import time\nprint(time.perf_counter_ns())"
    path = save(code(clock, "nbval-ignore-output"), "print('always the same')")
    build(path)
    first = path.read_bytes()
    assert build(path)["result"] == "unchanged"
    assert build(path, fresh=True)["result"] == "written"
    second = path.read_bytes()
    assert second != first
    # A later cell was edited: all outputs are of one run, the timing included.
    notebook = read_notebook(path)
    timing = notebook.cells[0].outputs
    notebook.cells[1].source = "print('another')"
    nbformat.write(notebook, path)
    assert build(path)["result"] == "written"
    assert read_notebook(path).cells[0].outputs != timing


def test_figures_and_tracebacks_carry_no_trace_of_the_machine(save: Save) -> None:
    path = save(
        "import matplotlib.pyplot as plt\nplt.plot([1, 2]);",
        code("from course_lib.model import ModelConfig\nModelConfig(1, 1, 1, 1, 1, 1, 1, 1)", "raises-exception"),
    )
    row = build(path)
    assert row["error"] == ""
    notebook = read_notebook(path)
    picture = base64.b64decode(notebook.cells[0].outputs[-1].data["image/png"])
    assert picture.startswith(b"\x89PNG") and b"IEND" in picture and b"matplotlib" not in picture.lower()
    traceback = "\n".join(notebook.cells[1].outputs[0].traceback)
    assert "course_lib/model.py" in traceback
    assert str(Path.cwd()) not in traceback and str(Path(__file__).parents[1]) not in traceback
    assert build(path)["result"] == "unchanged", "a figure is drawn the same way twice"
