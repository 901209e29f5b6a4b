"""`course release`: makes the exercises that learners open from their sources in solutions/.

The one idea: exercises/ is a function of solutions/, never edited by hand, so a diff shows what a change of a source
means for learners, and a check tells whether anybody forgot it. A source that cannot be released leaves what was
released before as it is, and hides no fault of another one.
"""

import difflib
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from course_lib.commands.build import serialised
from course_lib.commands.kernels import NotebookProblem, read_notebook
from course_lib.commands.output import BAD_CALL, DONE, WRONG, CommandError, deliver, program, say, write_whole
from course_lib.commands.places import short
from course_lib.commands.run import verdict, with_errors
from course_lib.grading.assignment import RELEASED, SOURCES, BadAssignment
from course_lib.grading.release import normal_source, released

Row = dict[str, object]


def release_assignments(root: Path, words: list[str], check: bool, json_target: str | None) -> int:
    """Release, or with `check` only look at, the assignments that `words` mean (all without one); the exit status."""
    names = find_assignments(root, words)
    rows = []
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn(), "assignments")
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=len(names))
        for name in names:
            bar.update(task, description=name)
            rows.append(row := release_one(root, name, check))
            bar.advance(task)
            if not check and not sys.stderr.isatty():
                say(f"{name}: {row['result']}")
    if not words:
        rows += [left_over(path) for path in folders(root / RELEASED) if path.name not in names]
    failed = sum(row["result"] == "failed" for row in rows)
    deliver({"assignments": rows, "failed": failed}, with_errors(table(rows), rows), json_target)
    return WRONG if failed else DONE


def table(rows: list[Row]) -> Table:
    made = Table(box=None, pad_edge=False, header_style="bold")
    made.add_column("assignment", overflow="fold")
    for column in ("tasks", "questions", "points", "minutes"):
        made.add_column(column, justify="right")
    made.add_column("result")
    for row in rows:
        counts = (row.get(column) for column in ("tasks", "questions", "points", "minutes"))
        shown = ("-" if count is None else f"{count:g}" for count in counts)
        made.add_row(Text(str(row["notebook"])), *shown, verdict(row))
    return made


def folders(where: Path) -> list[Path]:
    """The folders of assignments, in order."""
    return sorted(path for path in where.glob("*") if path.is_dir() and not path.name.startswith((".", "__")))


def find_assignments(root: Path, words: list[str]) -> list[str]:
    """The assignments that are meant: names, how they begin (ex03 or 03), or folders; without a word all of them."""
    known = [path.name for path in folders(root / SOURCES)]
    if not known:
        raise CommandError(f"there are no assignments in {short(root / SOURCES)}", "write one there first", BAD_CALL)
    found: list[str] = []
    for word in words or known:
        wanted = Path(word).name.removesuffix(".ipynb")
        matching = [name for name in known if name == wanted] or [
            name for name in known if wanted and name.startswith((wanted, f"ex{wanted}"))
        ]
        if len(matching) != 1:
            near = matching or difflib.get_close_matches(wanted, known, n=3)
            said = f"{word} may be any of several assignments" if matching else f"there is no assignment {word}"
            there = near or [name.partition("_")[0] for name in known]
            raise CommandError(said, f"there is: {', '.join(there)}", BAD_CALL)
        found += matching
    return list(dict.fromkeys(found))


def release_one(root: Path, name: str, check: bool) -> Row:
    """One assignment's row. Everything of it is made before anything is written."""
    source, target = root / SOURCES / name, root / RELEASED / name
    row: Row = {"notebook": name, "result": "failed", "cell": None}
    notebook = source / f"{name}.ipynb"
    others = [path for path in files_in(source) if path != notebook]
    try:
        if more := [path.name for path in others if path.suffix == ".ipynb"]:
            raise BadAssignment(
                [f"an assignment is one notebook, named as its folder; there is also {', '.join(more)}"]
            )
        tree = read_notebook(notebook)
        assignment, made = released(tree, name)
        files = {notebook: serialised(normal_source(tree)), target / notebook.name: serialised(made)}
        files |= {target / path.relative_to(source): path.read_bytes() for path in others}
    except NotebookProblem as problem:
        return row | {"error": f"{short(notebook)}: {problem}"}
    except BadAssignment as problem:
        return row | {"error": f"{short(notebook)}: {'; '.join(problem.faults)}"}
    row |= {"tasks": len(assignment.tasks), "questions": len(assignment.questions)}
    row |= {"points": assignment.points, "minutes": assignment.minutes}
    changed = [path for path, data in files.items() if not path.is_file() or path.read_bytes() != data]
    extra = [path for path in files_in(target) if path not in files]
    if check and changed:
        named = ", ".join(map(short, changed))
        return row | {"error": f"out of step: {named}: run {program()} release {name}"}
    for path in changed:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, files[path])
    if extra:
        return row | {"error": f"{', '.join(map(short, extra))}: no source has made this; delete it"}
    return row | {"result": "ok" if check else "written" if changed else "unchanged", "error": ""}


def files_in(folder: Path) -> list[Path]:
    """All files below a folder, but not what editors and Python leave behind."""
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "__")) for part in path.relative_to(folder).parts)
        and path.suffix != ".pyc"
    )


def left_over(path: Path) -> Row:
    """The row of a folder of exercises that has no source."""
    said = f"{short(path)}: there is no {SOURCES}/{path.name} that makes it; delete it"
    return {"notebook": path.name, "result": "failed", "cell": None, "error": said}
