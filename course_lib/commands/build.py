"""`course build`: keeps the committed notebooks executed and in one normal form, so that a diff shows what changed.

The one idea: a notebook file is a function of its cells and of one run. Cell ids come from the cells themselves (so an
edited cell betrays that it was not built again), everything that differs for no reason is taken out, and all outputs
of a file come from the same run: a new run whose repeatable outputs are the old ones changes nothing, the timings in
cells tagged nbval-ignore-output included.
"""

import base64
import hashlib
import re
import struct
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from rich.table import Table
from rich.text import Text

import course_lib
from course_lib.commands.kernels import KERNEL, NotebookProblem, execute, read_notebook, runs
from course_lib.commands.output import BAD_CALL, DONE, WRONG, CommandError, deliver, program, write_whole
from course_lib.commands.places import short
from course_lib.commands.run import OnCell, announce, progress, verdict, with_errors

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": KERNEL},
    "language_info": {"name": "python"},
}
CELL_METADATA = ("deletable", "editable", "jupyter", "slideshow", "tags")  # what somebody meant; no more
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_NOTES = (b"tEXt", b"zTXt", b"iTXt", b"tIME", b"eXIf")
OF_THIS_MACHINE = re.compile(
    r"(?<![\w.~/:-])/(?:home|Users|root|tmp|private|mnt|media|srv|var/folders)/\S+"
    r"|\b[A-Za-z]:\\Users\\\S+|(?<!\S)\S*[\\/]site-packages[\\/]\S*|<[^<>]* at 0x[0-9a-fA-F]{6,}>"
)


def build_notebooks(paths: list[Path], timeout_s: float, check: bool, fresh: bool, json_target: str | None) -> int:
    """Build, or with `check` only look at, each of `paths`; print a row for each; the exit status.

    Raises CommandError, before anything is done, if one of them is an assignment.
    """
    for path in paths:
        with suppress(NotebookProblem):  # that is said in its row
            refuse_assignment(path)
    rows = []
    with progress() as start:
        for path in paths:
            row = check_one(path) if check else build_one(path, timeout_s, fresh, start(path.stem))
            if not check:
                announce(path, row)
            rows.append(row)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("notebook", overflow="fold")
    table.add_column("result")
    if not check:
        table.add_column("time (s)", justify="right")
    for row in rows:
        time = [] if check else [f"{row['time_s']:.1f}"]
        table.add_row(Text(Path(str(row["notebook"])).stem), verdict(row), *time)
    failed = sum(row["result"] == "failed" for row in rows)
    deliver({"notebooks": rows, "failed": failed}, with_errors(table, rows), json_target)
    return WRONG if failed else DONE


def refuse_assignment(path: Path) -> None:
    """An assignment has cell ids of its own, and no outputs: to build it would spoil it."""
    if any("nbgrader" in cell.metadata for cell in read_notebook(path).cells):
        raise CommandError(
            f"{short(path)} is an assignment, which is committed as it is, not executed",
            f"{program()} release {path.stem} makes what learners open of its source, {program()} run runs a copy",
            BAD_CALL,
        )


def build_one(path: Path, timeout_s: float, fresh: bool, on_cell: OnCell) -> dict[str, object]:
    """Execute and write one notebook; if anything is wrong it stays as it was."""
    row: dict[str, object] = {"notebook": short(path), "result": "failed", "time_s": 0.0, "cell": None}
    try:
        before = read_notebook(path)
        done = execute(deepcopy(before), timeout_s, on_cell)
    except NotebookProblem as problem:
        return row | {"error": str(problem)}
    row["time_s"] = round(done.time_s, 3)
    if done.error:
        return row | {"cell": done.cell, "error": done.error}
    after = normal_form(done.notebook)
    if not fresh and same_run(normal_form(before), after):
        after = normal_form(before)
    faults = findings(after)
    if faults:
        return row | {"error": in_words(faults)}
    data = serialised(after)
    changed = data != path.read_bytes()
    if changed:
        write_whole(path, data)
    return row | {"result": "written" if changed else "unchanged", "error": ""}


def check_one(path: Path) -> dict[str, object]:
    """Whether one notebook is as `build` would leave it, as far as that can be told without running it."""
    row: dict[str, object] = {"notebook": short(path), "cell": None}
    try:
        notebook = read_notebook(path)
    except NotebookProblem as problem:
        return row | {"result": "failed", "error": str(problem)}
    faults, normal = findings(notebook), normal_form(notebook)
    for number, (cell, right) in enumerate(zip(notebook.cells, normal.cells), start=1):
        if cell.get("id") != right.id:
            faults.append((number, "changed since it was built"))
        elif cell.get("execution_count") not in (None, right.get("execution_count")):
            faults.append((number, "executed out of order"))
    if faults:
        error = in_words(faults)
    elif path.read_bytes() != serialised(normal):
        error = "metadata, outputs or layout are not in normal form"
    else:
        return row | {"result": "ok", "error": ""}
    return row | {"result": "failed", "error": f"{error}: run {program()} build {path.stem}"}


def findings(notebook: NotebookNode) -> list[tuple[int, str]]:
    """What must not stand in a committed notebook, each with the number of its cell, counted from 1 at the top."""
    found = []
    for number, cell in enumerate(notebook.cells, start=1):
        if cell.cell_type != "code":
            continue
        if not cell.source.strip():
            found.append((number, "empty"))
        elif runs(cell) and cell.execution_count is None:
            found.append((number, "not executed"))
        for output in cell.outputs:
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get("tags", []):
                found.append((number, f"holds an error, {output.ename}"))
            if named := OF_THIS_MACHINE.search(_text(output)):
                found.append((number, f"shows what only this machine has, {named.group()[:60]}"))
    return found


def in_words(faults: list[tuple[int, str]]) -> str:
    """Findings in one line, those of a kind together."""
    cells: dict[str, list[str]] = {}
    for number, fault in faults:
        cells.setdefault(fault, []).append(str(number))
    kinds = []
    for fault, named in cells.items():
        more = f" and {len(named) - 6} more" if len(named) > 6 else ""
        kinds.append(f"{fault} (cell{'s' * (len(named) > 1)} {', '.join(named[:6])}{more})")
    return "; ".join(kinds) + "; cells are counted from the top"


def same_run(before: NotebookNode, after: NotebookNode) -> bool:
    """Whether nothing but cells tagged nbval-ignore-output tells a new run from an old one of the same code."""

    def repeatable(notebook: NotebookNode) -> list[object]:
        return [
            (cell.source, cell.execution_count, cell.outputs if not _ignored(cell) else None)
            for cell in notebook.cells
            if cell.cell_type == "code"
        ]

    return repeatable(before) == repeatable(after)


def normal_form(notebook: NotebookNode) -> NotebookNode:
    """A copy of `notebook` without what differs for no reason: ids, counts, metadata, outputs. Its own normal form."""
    result = nbformat.from_dict(
        {"nbformat": 4, "nbformat_minor": 5, "metadata": deepcopy(METADATA), "cells": deepcopy(notebook.cells)}
    )
    seen: Counter[str] = Counter()
    executed = 0
    for cell in result.cells:
        cell.id = hashlib.sha256(f"{cell.cell_type}\0{cell.source}".encode()).hexdigest()[:8]
        seen[cell.id] += 1
        if seen[cell.id] > 1:
            cell.id += f"-{seen[cell.id]}"
        cell.metadata = NotebookNode({key: cell.metadata[key] for key in CELL_METADATA if key in cell.metadata})
        if cell.cell_type == "code":
            executed += cell.execution_count is not None
            cell.execution_count = None if cell.execution_count is None else executed
            cell.outputs = _normal_outputs(cell)
    return result


def serialised(notebook: NotebookNode) -> bytes:
    """The bytes of a notebook file as nbformat lays it out, with an end of line at its end."""
    return (nbformat.writes(notebook).rstrip("\n") + "\n").encode()


def _normal_outputs(cell: NotebookNode) -> list[NotebookNode]:
    outputs: list[NotebookNode] = []
    for output in cell.outputs:
        if "execution_count" in output:
            output.execution_count = cell.execution_count
        if output.output_type == "error":
            output.traceback = [_without_folders(line) for line in output.traceback]
        if WIDGET_VIEW in output.get("data", {}):
            # The view of a widget is nothing without its kernel, and beside it stands only the widget's repr.
            del output.data[WIDGET_VIEW]
            if set(output.data) <= {"text/plain"}:
                continue
        if "image/png" in output.get("data", {}):
            output.data["image/png"] = _plain_png(output.data["image/png"])
        last = outputs[-1] if outputs else None
        if last is not None and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            outputs.append(output)
    return outputs


def _plain_png(encoded: str) -> str:
    """A base64 PNG without the notes that say which program wrote it, and when."""
    try:
        data = base64.b64decode(encoded)
        assert data.startswith(PNG_SIGNATURE)
        kept, at = [PNG_SIGNATURE], len(PNG_SIGNATURE)
        while at < len(data):
            length, kind = struct.unpack_from(">I4s", data, at)
            end = at + 12 + length  # length, kind, contents, checksum
            if kind not in PNG_NOTES:
                kept.append(data[at:end])
            at = end
    except (ValueError, AssertionError, struct.error):
        return encoded  # no PNG after all; not ours to mend
    return base64.b64encode(b"".join(kept)).decode()


def _without_folders(line: str) -> str:
    """A line of a traceback with file names that mean something elsewhere, too."""
    root = str(Path(course_lib.__file__).parents[1])
    for base in (root, root.replace(str(Path.home()), "~", 1)):
        line = line.replace(base + "/", "").replace(base + "\\", "")
    return re.sub(r"(?<![^\s\x1b])[^\s\x1b]*[\\/]site-packages[\\/]", "", line)


def _text(output: NotebookNode) -> str:
    """All of an output that is text to read; tracebacks included, pictures not."""
    data = output.get("data", {})
    shown = [value for kind, value in data.items() if kind.startswith("text/") and isinstance(value, str)]
    return "\n".join([output.get("text", ""), *output.get("traceback", []), *shown])


def _ignored(cell: NotebookNode) -> bool:
    return "nbval-ignore-output" in cell.metadata.get("tags", [])
