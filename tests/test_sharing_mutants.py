"""Each bug in what sequences share is made once in the library's own source, and a check fails for it."""

from collections.abc import Callable
from types import ModuleType

import batch_proof
import pages_proof
import pytest
from engine_report import Record, report_mutant
from mutants import Engine, Mutant, load_engine
from mutants_of_sharing import OF_SHARING
from test_mutants import BROKEN_DIFFERENTLY

import course_lib.caches
import course_lib.serving

ENGINES = ("blocks of 4, shared, chunks", "blocks of 4, shared, compacted")  # what a mutant is tried with


def error_of(check: Callable[..., object], *given: object) -> Exception | None:
    try:
        check(*given)
    except Exception as error:
        return error
    return None


def seen(check: str, caches: ModuleType, serving: ModuleType) -> Exception | None:
    """The error that a check raises for these modules, if it does."""
    if check in pages_proof.CHECKS:
        return error_of(pages_proof.CHECKS[check], caches)
    engines = batch_proof.right_engines(caches, serving)
    errors = (error_of(batch_proof.CHECKS[check], engines[name]) for name in ENGINES)
    return next(filter(None, errors), None)


@pytest.mark.parametrize("mutant", OF_SHARING, ids=str)
def test_a_check_fails_for(mutant: Mutant, record_property: Record) -> None:
    engine: Engine = load_engine(mutant.changes)
    error = seen(mutant.seen_by, engine.caches, engine.serving)
    assert error is not None, f"{mutant.seen_by} does not see it"
    assert not isinstance(error, BROKEN_DIFFERENTLY), repr(error)
    report_mutant(record_property, mutant.title, mutant.seen_by, "", "", "")


@pytest.mark.parametrize("check", sorted({mutant.seen_by for mutant in OF_SHARING}))
def test_the_library_passes(check: str) -> None:
    assert seen(check, course_lib.caches, course_lib.serving) is None


def test_every_check_of_the_pages_sees_some_bug() -> None:
    assert set(pages_proof.CHECKS) <= {mutant.seen_by for mutant in OF_SHARING}
