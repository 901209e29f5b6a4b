"""The checks of the course's exercises, found by name: "ex03.append" is ex03_append.py, its text ex03_append.toml.

The one idea: what an instructor edits is text. Statement, hints and the place of the worked solution stand in a TOML
file that is validated when it is read. A check's code is imported only when it is asked for, so that this package can
be imported in a sandbox where the judges are not.
"""

from __future__ import annotations

import difflib
import importlib
import tomllib
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
    """The text of an exercise: what is asked, three hints in their order, and where the worked solution is."""

    name: str
    statement: str
    hints: tuple[str, ...]
    solution: str


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
    path = folder / f"{file_stem(name, folder)}.toml"
    try:
        read = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadExercise(f"{path.name} is no TOML: {error}") from None
    wanted = [field.name for field in fields(Exercise)]
    for key in read:
        if key not in wanted:
            near = difflib.get_close_matches(key, wanted, n=1)
            raise BadExercise(f"{path.name}: there is no field {key!r}; write {near or wanted}")
    for key in ("name", "statement", "solution"):
        value = read.get(key)
        if not isinstance(value, str) or not value.strip():
            raise BadExercise(f"{path.name}: the field {key!r} needs a text, not {value!r}")
    if read["name"] != name:
        raise BadExercise(
            f"{path.name}: the field 'name' must be {name!r}, as the file is called, not {read['name']!r}"
        )
    hints = read.get("hints")
    if not isinstance(hints, list) or len(hints) != HINTS:
        count = len(hints) if isinstance(hints, list) else repr(hints)
        raise BadExercise(f"{path.name}: the field 'hints' needs a list of {HINTS} texts, not {count}")
    for number, hint in enumerate(hints, start=1):
        if not isinstance(hint, str) or not hint.strip():
            raise BadExercise(f"{path.name}: hint {number} of the field 'hints' needs a text, not {hint!r}")
    texts = [" ".join(text.split()) for text in (read["statement"], *hints, read["solution"])]
    return Exercise(name, texts[0], tuple(texts[1:-1]), texts[-1])
