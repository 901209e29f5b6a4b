"""Which modules an answer may not use, and whether a function in a notebook does without them.

The one idea: where marks are given, what an exercise rules out is not there. So in a notebook an answer that reaches it
must earn nothing either: with its own code, a helper, a class that it inherits from, or an import above it in its cell.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType

COURSE = Path(__file__).resolve().parents[1]
LIBRARIES = tuple({str(COURSE), *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))})


def ruled_out(name: str, names: Iterable[str]) -> bool:
    """Whether a module is one of `names`, or lies in one of them."""
    return any(name == each or name.startswith(f"{each}.") for each in names)


def reached(code: object, rules: Iterable[str]) -> list[str]:
    """Those of `rules` that `code`, a function or a class, cannot do without."""
    return matching(modules(code), rules)


def in_sight(namespace: Mapping[str, object], rules: Iterable[str]) -> list[str]:
    """Those of `rules` from which a notebook has imported something."""
    return matching((home(value) for value in [*namespace.values()] if isinstance(value, KINDS)), rules)


def matching(found: Iterable[str], rules: Iterable[str]) -> list[str]:
    names = set(found)
    return [rule for rule in rules if any(ruled_out(name, [rule]) for name in names)]


KINDS = (type, FunctionType, ModuleType)


def home(value: object) -> str:
    """The module that a thing is, or that it or its class comes from."""
    if type(value) is ModuleType:
        return value.__name__
    name = getattr(value if isinstance(value, KINDS) else type(value), "__module__", "")
    return name if type(name) is str else ""


def modules(code: object) -> Iterator[str]:
    """The modules of all that `code` reaches through what the learner wrote; libraries are not looked into."""
    waiting, seen = [code], set()  # type: list[object], set[int]
    while waiting:
        each = waiting.pop()
        each = each.__func__ if isinstance(each, MethodType | staticmethod | classmethod) else each
        each = each.fget if isinstance(each, property) else each
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield home(each)
        if isinstance(each, FunctionType) and not each.__code__.co_filename.startswith(LIBRARIES):
            yield from imported_above(each.__code__)
            waiting += [
                *(each.__defaults__ or ()),
                *(cell.cell_contents for cell in each.__closure__ or () if filled(cell)),
            ]
            for part in parts(each.__code__):
                yield from imports(part)
                waiting += named(part, each.__globals__)
        elif isinstance(each, type) and each.__module__.partition(".")[0] not in ("builtins", "torch", "numpy"):
            waiting += [*each.__bases__, *vars(each).values()]


def filled(cell: object) -> bool:
    return hasattr(cell, "cell_contents")


def parts(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from parts(constant)


def imports(code: CodeType) -> Iterator[str]:
    """The modules that code imports when it runs."""
    module = ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield (module := str(step.argval))
        elif step.opname == "IMPORT_FROM":
            yield f"{module}.{step.argval}"


def named(code: CodeType, names: Mapping[str, object]) -> Iterator[object]:
    """The things of the notebook that code names, and what it takes out of modules."""
    value: object = None
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield (value := names.get(step.argval))
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and type(value) is ModuleType:
            yield (value := vars(value).get(step.argval))
        else:
            value = None


def imported_above(code: CodeType) -> Iterator[str]:
    """The modules that the cell of a function imports above it: without them the cell ends before the function."""
    try:
        cell = ast.parse("".join(linecache.getlines(code.co_filename)))
    except (SyntaxError, ValueError):
        return
    for node in cell.body:
        if node.lineno >= code.co_firstlineno:
            return
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
