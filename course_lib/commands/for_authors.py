"""The commands for who writes the course or gives it: names, options and help, as `cli` has them for learners."""

from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands.app import Json, Notebooks, Timeout
from course_lib.commands.output import check_target

app = typer.Typer()


@app.command()
def build(
    notebooks: Notebooks = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what is not in order; run nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Take all outputs from this run.")] = False,
    timeout: Timeout = 300,
    json: Json = None,
) -> int:
    """For authors: execute the committed notebooks and bring them into normal form.

    A file is written only as a whole, and not at all if a cell raises. If code and repeatable outputs are as before,
    the outputs of cells tagged nbval-ignore-output (timings) stay, too; otherwise all outputs are of this run.

    Example: `course build 02`, or `course build --check`
    """
    from course_lib.commands.build import build_notebooks
    from course_lib.commands.places import find_notebooks

    check_target(json)
    return build_notebooks(find_notebooks(notebooks or []), timeout, check, fresh, json)


@app.command()
def release(
    assignments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ASSIGNMENT", help="Names, or how they begin (ex03).", show_default="all"),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only say what is out of step; write nothing.")] = False,
    json: Json = None,
) -> int:
    """For authors: make exercises/, which learners open, from solutions/.

    Solutions become stubs, written answers empty ones, and what is only to be read is locked: the bytes are those that
    nbgrader makes. The source is brought into normal form. One that could not be graded, or would give something away,
    is refused with the cell named, and what was released of it before stays.

    Example: `course release ex03`, or `course release --check`
    """
    from course_lib.commands.places import needed_checkout
    from course_lib.commands.release import release_assignments

    check_target(json)
    return release_assignments(needed_checkout(), assignments or [], check, json)


@app.command()
def grade(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="A notebook, or the folder of a class.", show_default=False),
    ],
    assignment: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which one (ex03), or its notebook.", show_default="each notebook's own"),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with the columns student and name, maybe email.", show_default=False),
    ] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder for the results.", show_default="grades/")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many to mark at once.", show_default="as processors and memory allow"
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The secret that hidden inputs come from.", show_default="made in the folder"
        ),
    ] = None,
    trust: Annotated[bool, typer.Option("--trust", help="Run others' work even where there is no sandbox.")] = False,
    gradebook: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write into this gradebook of nbgrader.", show_default=False),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Mark everything again.")] = False,
    json: Json = None,
) -> int:
    """For those who teach: mark what was handed in, each notebook in a fresh sandbox.

    A class is a folder with one folder or one notebook for each student (that is the student's name in --names), or
    nbgrader's submitted/. Of two notebooks of one student, the one with the name of the assignment is taken, else the
    newest. Links are not followed. One notebook alone is marked and shown, and nothing is written without --to.

    In FOLDER/ASSIGNMENT/ are then marks.csv, marks.json, a page for each student in feedback/, and results/: who is in
    there is not marked again unless the notebook, key, assignment or checks have changed. Stop whenever you like
    (Ctrl-C); the same command goes on.

    Points for written answers you type into marks.csv: the next run keeps them, columns of your own and rows of others,
    adds up the total, and writes them on the students' pages. A marks.csv that you changed is also kept as it was,
    beside it. Into the gradebook they go where nbgrader has no manual score for that cell; one that it has is never
    changed, and if the two differ a line says so.

    The exit status is 1 if something could not be marked, or is not a notebook and should be asked for again.

    Example: `course grade submitted/ --assignment ex03 --names class.csv`, or `course grade ex03_kv_cache.ipynb`
    """
    from course_lib.commands.grade import Asked, grade_submissions

    check_target(json)
    return grade_submissions(Asked(paths, assignment, names, to, jobs, key, trust, gradebook, again, json))
