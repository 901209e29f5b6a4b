"""What `course grade` prints: a line for each student of a class, or all about one notebook.

The one idea: names, and what notebooks say, come from strangers, so here they are text and never markup.
"""

from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.table import Table
from rich.text import Text

from course_lib.commands.output import program
from course_lib.grading.assignment import worth
from course_lib.grading.class_marks import NOT_A_NOTEBOOK, Row
from course_lib.grading.group import Result


def in_short(result: Result) -> str:
    """What came of a submission, for a line of its own."""
    if result.why_not or result.handed_in.not_a_notebook:
        return "not graded" if result.why_not else NOT_A_NOTEBOOK  # the table says why
    if result.marks:
        return f"{result.marks.earned:g} of {worth(result.marks.points)}, {result.marks.seconds:.1f} s"
    return "nothing handed in"


def class_table(rows: Sequence[Row], counts: Mapping[str, int]) -> Group:
    """A line for each student, what there is to know about some, and how many there are of each kind."""
    named = any(row.name.name != row.student for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("student", "name") if named else ("student",):
        table.add_column(heading, overflow="fold")
    for heading in ("code", "by hand", "total", "time (s)", "memory (MB)"):
        table.add_column(heading, justify="right")
    table.add_column("result")
    for row in rows:
        cells = [row.student, row.name.name] if named else [row.student]
        table.add_row(*map(Text, (*cells, *figures(row))), result_of(row))
    said = [Text(f"{row.student}: {' '.join(about)}") for row in rows if (about := row.about)]
    kept = sum(row.result.kept for row in rows)
    again = f" ({kept} kept from before; {program()} grade … --again marks all anew)" if kept else ""
    summed = Text(", ".join(f"{n} {state}" for state, n in counts.items() if n) + again)
    return Group(table, Text(), *said, *([Text()] if said else []), summed)


def figures(row: Row) -> list[str]:
    """Points for code, points given by a person, all of them once there are all, seconds and megabytes."""
    marks = row.result.marks
    if marks is None or row.state == NOT_A_NOTEBOOK:
        return ["-"] * 5
    hand = f"{len(row.waiting)} to do" if row.waiting else f"{sum(points or 0 for points in row.by_hand.values()):g}"
    points = marks.points + sum(answer.points for answer in marks.answers)
    total = "-" if row.total is None else f"{row.total:g} of {points:g}"
    code = f"{marks.earned:g} of {marks.points:g}"
    return [code, hand if row.by_hand else "-", total, f"{marks.seconds:.1f}", f"{marks.peak_bytes / 1e6:.0f}"]


def result_of(row: Row) -> Text:
    if not row.result.in_order:
        return Text(row.state, style="bold red")
    return Text("kept" if row.result.kept else row.state, style="green" if row.result.marks else "")


def one_notebook(row: Row) -> Group:
    """The marks of one notebook, and all that is said about it."""
    marks = row.result.marks
    if marks is None or row.state == NOT_A_NOTEBOOK:
        return Group(*map(Text, row.notes))
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task")
    table.add_column("points", justify="right")
    for task in marks.tasks:
        table.add_row(Text(task.title or task.check), f"{task.earned:g} of {task.points:g}")
    for answer in marks.answers:
        points = f"by hand, of {answer.points:g}" if answer.text else f"nothing written, 0 of {answer.points:g}"
        table.add_row(Text(answer.title or answer.cell), points)
    table.add_row("all code", f"{marks.earned:g} of {marks.points:g}")
    lines = []
    for task in marks.tasks:
        about = [*task.said, *(f"{line.case}: {line.said}" for line in task.lines if not line.passed)]
        lines += ["", task.title or task.check, *(f"  {line}" for line in about)] if about else []
    return Group(table, *map(Text, lines), *(Text(f"\n{note}") for note in (*row.about, *marks.notes)))
