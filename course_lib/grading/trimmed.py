"""The copy of the library that a submission finds: without judges, marks and keys, and without what is ruled out.

The one idea: what must not be used is not there. A module that an exercise rules out is no file in this copy, however
somebody spells its name, and neither is one that cannot do without it; a package's `__init__` no longer imports it.
What only shows something in a notebook is replaced by something that is silent: in a sandbox nobody looks.
"""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import course_lib
from course_lib.checks.ruled_out import ruled_out

PACKAGE = Path(course_lib.__file__).parent
NAME = PACKAGE.name
LEFT_OUT = ("cli.py", "commands", "grading", "progress", "quizzes")
OF_CHECKS = ("__init__.py", "beside.py", "plain.py", "runs")  # all that runs beside a learner's code
SILENT_ROOM = "study"
SILENT = '''"""Stands in for what a notebook shows. Every name can be imported, called and used, and does nothing."""


class Silent:
    def __call__(self, *given, **named):
        return self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __enter__(self):
        return self

    def __exit__(self, kind, error, at):
        return kind is NotImplementedError

    def __repr__(self):
        return ""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Silent()
'''


def trimmed(folder: Path, rules_out: Iterable[str]) -> None:
    """Put the copy into `folder`, which everybody may read."""
    sources = {path: PACKAGE / path for path in files() if not left_out(path)}
    gone = missing(sources, [name for name in rules_out if ruled_out(name, [NAME])])
    for path, source in sources.items():
        if needed(path) or not ruled_out(module(path), gone):
            target = folder / NAME / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.parts[0] == SILENT_ROOM and path.suffix == ".py":
                target.write_text(SILENT, encoding="utf-8")
            elif path.name == "__init__.py":
                target.write_text(without(source.read_text(encoding="utf-8"), gone), encoding="utf-8")
            else:
                shutil.copyfile(source, target)
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


def files() -> list[Path]:
    """All files of the package, by their place in it."""
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*") if path.is_file())


def missing(sources: dict[Path, Path], names: Sequence[str]) -> list[str]:
    """`names`, and the modules that cannot be imported without them: those are not there either."""
    needs = {
        module(path): imported(source.read_text(encoding="utf-8"))
        for path, source in sources.items()
        if path.suffix == ".py" and path.name != "__init__.py" and path.parts[0] != SILENT_ROOM and not needed(path)
    }
    gone = list(names)
    while more := [name for name, needed in needs.items() if name not in gone and any_ruled_out(needed, gone)]:
        gone += more
    return gone


def imported(source: str) -> set[str]:
    """The modules that a text imports when it is imported itself."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def any_ruled_out(modules: Iterable[str], names: Sequence[str]) -> bool:
    return any(ruled_out(each, names) for each in modules)


def left_out(path: Path) -> bool:
    first, *rest = path.parts
    return first in LEFT_OUT or "__pycache__" in path.parts or (first == "checks" and rest[0] not in OF_CHECKS)


def needed(path: Path) -> bool:
    """Whether the sandbox itself works with it; nothing of that is any use for an answer."""
    return path == Path("__init__.py") or path.parts[0] == "checks"


def module(path: Path) -> str:
    """The name under which a file of the package is imported."""
    parts = [*path.parts[:-1], path.name.removesuffix(".py")]
    return ".".join([NAME, *(part for part in parts if part != "__init__")])


def without(source: str, names: Sequence[str]) -> str:
    """The text of an `__init__` without its imports of modules that are not there, and without what they gave."""
    lines, dropped = source.splitlines(keepends=True), set()
    for node in reversed(ast.parse(source).body):  # from the end, so that the lines before keep their numbers
        place = slice(node.lineno - 1, node.end_lineno)
        if isinstance(node, ast.ImportFrom) and ruled_out(node.module or "", names):
            dropped |= {alias.asname or alias.name for alias in node.names}
            lines[place] = []
    for node in reversed(ast.parse("".join(lines)).body):
        if dropped and isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            kept = [name for name in ast.literal_eval(node.value) if name not in dropped]
            lines[node.lineno - 1 : node.end_lineno] = [f"__all__ = {kept}\n"]
    return "".join(lines)
