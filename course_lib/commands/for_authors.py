"""The commands for who writes the course or gives it: names, options and help, as `cli` has them for learners."""

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
