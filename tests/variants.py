"""Solutions of exercises for the tests of their checks: right ones, written in different ways, and named wrong ones.

The one idea: a check is itself under test. tests/exercises has a file for each check with two dictionaries. `RIGHT`
maps a name to source text that has to pass. `WRONG` maps a name to a `Wrong`: source text, exactly the cases that it
has to fail, and a few words that the learner has to read. All are texts, as a cell of a notebook is, so that the same
text runs in this process and in another.
"""

import importlib.util
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

from course_lib.checks import check_named

FOLDER = Path(__file__).with_name("exercises")


@dataclass(frozen=True)
class Wrong:
    """A wrong solution, the cases that it fails, and words of the first failed line."""

    source: str
    fails: frozenset[str]
    says: tuple[str, ...] = field(default=())


def function(source: str, name: str = "append") -> Any:
    """The function that a cell with this text defines."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(dedent(source), "<cell>", "exec"), cell)
    return cell[name]


def changed(source: str, *pairs: tuple[str, str]) -> str:
    """`source` with some text replaced, each of which stands in it once."""
    for old, new in pairs:
        assert source.count(old) == 1, f"{source.count(old)} times: {old!r}"
        source = source.replace(old, new)
    return source


@cache
def variants(name: str) -> ModuleType:
    """The file of a check in tests/exercises."""
    stem = name.replace(".", "_", 1)
    spec = importlib.util.spec_from_file_location(f"variants_of_{stem}", FOLDER / f"{stem}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cases(name: str) -> list[str]:
    """The cases of a check, in their order."""
    return [*check_named(name).draw(0)["cases"]]
