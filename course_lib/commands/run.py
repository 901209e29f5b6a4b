"""`course run`: executes notebooks from the top and says of each whether it works, in what time and memory.

The one idea: every notebook gets a row, whatever is wrong with it; a broken one does not hide the ones behind it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from course_lib.commands.kernels import NotebookProblem, execute, read_notebook
from course_lib.commands.output import DONE, WRONG, deliver, say
from course_lib.commands.places import short

OnCell = Callable[[int, int], None]


def run_notebooks(paths: list[Path], timeout_s: float, json_target: str | None) -> int:
    """Execute each of `paths`, print a row for each; the exit status."""
    rows = []
    with progress() as start:
        for path in paths:
            row = run_one(path, timeout_s, start(path.stem))
            announce(path, row)
            rows.append(row)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("notebook", overflow="fold")
    table.add_column("result")
    table.add_column("time (s)", justify="right")
    table.add_column("peak memory (MB)", justify="right")
    for row in rows:
        memory = row["peak_memory_mb"]
        table.add_row(
            Text(Path(str(row["notebook"])).stem),
            verdict(row),
            f"{row['time_s']:.1f}",
            f"{memory:.0f}" if memory else "-",
        )
    failed = sum(row["result"] != "ok" for row in rows)
    deliver({"notebooks": rows, "failed": failed}, with_errors(table, rows), json_target)
    return WRONG if failed else DONE


def run_one(path: Path, timeout_s: float, on_cell: OnCell) -> dict[str, object]:
    """One notebook's row: notebook, result ("ok" or "failed"), time_s, peak_memory_mb, cell, error."""
    row: dict[str, object] = {"notebook": short(path), "result": "failed", "time_s": 0.0, "peak_memory_mb": 0.0}
    try:
        done = execute(read_notebook(path), timeout_s, on_cell)
    except NotebookProblem as problem:
        return row | {"cell": None, "error": str(problem)}
    return row | {
        "result": "failed" if done.error else "ok",
        "time_s": round(done.time_s, 3),
        "peak_memory_mb": round(done.peak_memory_bytes / 1e6, 1),
        "cell": done.cell,
        "error": done.error,
    }


@contextmanager
def progress() -> Iterator[Callable[[str], OnCell]]:
    """A bar on the terminal, one for all notebooks: call what this gives with a name, and the result for every cell."""
    console = Console(stderr=True)
    name_of = TextColumn("{task.description}", markup=False)
    columns = (name_of, BarColumn(24), MofNCompleteColumn(), "cells", TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def start(name: str) -> OnCell:
            bar.reset(task, description=name, total=None)
            return lambda done, total: bar.update(task, completed=done, total=total)

        yield start


def announce(path: Path, row: dict[str, object]) -> None:
    """Where no bar can be drawn, a line as each notebook ends: the table comes only after the last."""
    if not sys.stderr.isatty():
        say(f"{path.stem}: {row['result']}, {row['time_s']:.1f} s")


def verdict(row: dict[str, object]) -> Text:
    result = str(row["result"])
    return Text(result, style="bold red" if result == "failed" else "green")


def with_errors(table: Table, rows: list[dict[str, object]]) -> Table:
    """The table, and under it what went wrong: an error is too long for a column."""
    errors = [row for row in rows if row["error"]]
    if not errors:
        return table
    outer = Table.grid()
    outer.add_row(table)
    outer.add_row("")
    for row in errors:
        where = f", cell [{row['cell']}]" if row.get("cell") else ""
        outer.add_row(Text(f"{Path(str(row['notebook'])).stem}{where}: {row['error']}"))
    return outer
