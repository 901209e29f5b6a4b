"""The checks of the course's exercises, found by name: "ex03.append" is ex03_append.py, its text ex03_append.toml.

The one idea: what an instructor edits is text. Statement, hints and the place of the worked solution stand in a TOML
file that is validated when it is read. A check's code is imported only when it is asked for, so that this package can
be imported in a sandbox where the judges are not.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.checks.contract import Check

FOLDER = Path(__file__).parent
HINTS = 3


class UnknownCheck(LookupError):
    """There is no check of that name; the message names the nearest ones."""


class BadExercise(ValueError):
    """The text of an exercise cannot be used; the message names file and field and says what to write."""


@dataclass(frozen=True)
class Exercise:
    """The text of an exercise: what is asked, three hints in their order, and where the worked solution is.

    `points` is what it is worth where it is graded, `rules_out` the modules that an answer may not import.
    """

    name: str
    statement: str
    hints: tuple[str, ...]
    solution: str
    points: float = 1.0
    rules_out: tuple[str, ...] = ()


def names(folder: Path = FOLDER) -> list[str]:
    """The names of all checks."""
    return sorted(path.stem.replace("_", ".", 1) for path in folder.glob("ex*_*.toml"))


def file_stem(name: str, folder: Path = FOLDER) -> str:
    """The name of a check's files without their endings. Raises UnknownCheck."""
    known = names(folder)
    if name in known:
        return name.replace(".", "_", 1)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.4) or known
    raise UnknownCheck(f"There is no check “{str(name)[:60]}”. Did you mean {' or '.join(f'“{n}”' for n in near)}?")


def check_named(name: str) -> Check:
    """The three parts of a check. Raises UnknownCheck."""
    check: Check = importlib.import_module(f"{__name__}.{file_stem(name)}")
    return check


def exercise(name: str, folder: Path = FOLDER) -> Exercise:
    """The text of an exercise. Raises UnknownCheck, or BadExercise for a file that cannot be used."""
    from course_lib.quizzes.fields import BadQuestions, Fields, read_table  # not there in a sandbox

    path = folder / f"{file_stem(name, folder)}.toml"
    try:
        table = Fields(read_table(path), path.name, [field.name for field in fields(Exercise)])
        read = Exercise(
            table.text("name"),
            table.text("statement"),
            table.texts("hints"),
            table.text("solution"),
            1.0 if (points := table.number("points", needed=False, least=0.5)) is None else points,
            table.texts("rules_out") if "rules_out" in table.table else (),
        )
        if read.name != name:
            table.fail("name", f"must be “{name}”, as the file is called, not “{read.name[:60]}”")
        if len(read.hints) != HINTS:
            table.fail("hints", f"should be {HINTS} texts, not {len(read.hints)}")
        if read.points * 2 % 1:
            table.fail("points", f"should be whole or half points, not {read.points:g}")
        for module in read.rules_out:
            if not all(part.isidentifier() for part in module.split(".")):
                table.fail("rules_out", f"“{module[:60]}” is no name of a module; write “course_lib.caches”")
    except BadQuestions as error:
        raise BadExercise(str(error)) from None
    return read
