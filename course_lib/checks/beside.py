"""What a check runs beside a learner's code: it calls their function and writes down what happened, as plain data.

The one idea: everything a learner's code can do becomes data. What it returned, what it raised and in which of their
lines, or that it is still the empty starter. Only an interrupt passes through. Nothing here knows what would be right:
this module, `plain` and the `run` of a check are all that goes into a sandbox.
"""

from __future__ import annotations

import builtins
import dis
import linecache
import sysconfig
import types
from collections.abc import Callable
from operator import length_hint
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from course_lib.checks.plain import NotPlain, Plain, among, bases, plain, things, what

OURS = str(Path(__file__).resolve().parents[1])
INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
LONGEST = 400  # characters kept of a message or a line
ERRORS = tuple(each for each in vars(builtins).values() if isinstance(each, type) and issubclass(each, BaseException))


class Went(Exception):
    """Why a case ended early: `kind` and what is known about it, as plain data."""

    def __init__(self, kind: str, **known: Plain) -> None:
        super().__init__(kind)
        self.data: dict[str, Plain] = {"kind": kind, **known}


def called(code: Callable[..., Any], *given: object) -> object:
    """What the learner's function returns. Raises Went for whatever it raises, SystemExit included."""
    try:
        return code(*given)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise Went("raised", **raised(error)) from None


def as_plain(value: object, which: str) -> Plain:
    """`value` as plain data; raises Went with `which`, the name of it, if it is none."""
    try:
        return plain(value)
    except NotPlain as reason:
        raise Went("not plain", which=which, came=str(reason)[:LONGEST]) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a trap of theirs that went off while it was read
        raise Went(
            "not plain", which=which, came=f"{what(value)} that cannot be read ({type(error).__name__})"
        ) from None


def pair(value: object, names: tuple[str, str]) -> tuple[object, object]:
    """The two things that a function returned together; raises Went if it returned anything else."""
    if value is None:
        raise Went("none")
    inside = things(value)
    if inside is None:
        raise Went("no pair", names=" and ".join(names), came=described(value))
    if (count := length_hint(inside)) != 2:
        raise Went("no pair", names=" and ".join(names), came=f"{count} thing{'s' * (count != 1)}")
    return next(inside), next(inside)


def described(value: object) -> str:
    try:
        copied = plain(value)
    except NotPlain as reason:
        return str(reason)[:LONGEST]
    return f"one array of shape {list(copied.shape)}" if isinstance(copied, np.ndarray) else what(value)


def raised(error: BaseException) -> dict[str, Plain]:
    """Type, message and place of what a learner's code raised: their line, not ours and not a library's. `kinds` are
    the errors of Python that it is or is made from."""
    try:
        message = str(error)
    except BaseException:
        message = "(its message cannot be shown)"
    name = type.__dict__["__name__"].__get__(type(error))
    kinds: list[Plain] = [base.__name__ for base in bases(type(error)) if among(base, ERRORS)]
    return {"type": name[:LONGEST], "message": message[:LONGEST], "kinds": kinds, **place(error.__traceback__)}


def refusal(reason: Went, *errors: str) -> str:
    """The first of some errors of Python that the learner's code raised, or raised a kind of; empty if it is none."""
    kinds = reason.data.get("kinds")
    return next((error for error in errors if isinstance(kinds, list) and error in kinds), "")


def place(trace: TracebackType | None) -> dict[str, Plain]:
    """Line and text of the last place in the learner's code that `trace` passes through; empty if it passes none."""
    last: dict[str, Plain] = {}
    while trace is not None:
        frame = trace.tb_frame
        file = frame.f_code.co_filename
        if not file.startswith((OURS, "<frozen", *INSTALLED)):
            text = linecache.getline(file, trace.tb_lineno, frame.f_globals).strip()
            last = {"line": trace.tb_lineno, "text": text[:LONGEST], "function": frame.f_code.co_name[:LONGEST]}
        trace = trace.tb_next
    return last


def is_starter(code: object) -> bool:
    """Whether a function is still empty: `...`, `pass`, a docstring, or a bare `return`."""
    function = code.__func__ if type(code) is types.MethodType else code
    if type(function) is not types.FunctionType:  # other things may answer anything, or raise, when they are asked
        return False
    steps = [step for step in dis.get_instructions(function.__code__) if step.opname not in ("RESUME", "NOP", "CACHE")]
    ends = {"LOAD_CONST", "RETURN_VALUE", "RETURN_CONST"}
    constants = [step.argval for step in steps if "CONST" in step.opname]
    return all(step.opname in ends for step in steps) and all(c is None or c is Ellipsis for c in constants)
