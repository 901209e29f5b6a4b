"""Each bug that can be made here is made once in the library's own source, and the proof of the engine fails for it.

The one idea: a test is worth what it has been seen to catch. Beside each bug stands what text and loss would have said:
where the greedy text stays the same and the loss moves by less than 5 %, looking at them would have found nothing.
"""

import sys
from functools import lru_cache

import pytest
from engine_report import Record, report_mutant
from everyday import Look, look
from mutants import FOUND_IN_COURSES, Mutant, load_engine
from mutants_of_our_own import OUR_OWN
from mutants_of_sharing import OF_SHARING
from mutants_of_shrinking import OF_SHRINKING
from proof import CHECKS, proof

import course_lib.caches

# Errors of a mutant that does not run at all, and so proves nothing.
BROKEN_DIFFERENTLY = (NameError, AttributeError, TypeError, SyntaxError, ImportError)


MUTANTS = {mutant.bug: mutant for mutant in (*FOUND_IN_COURSES, *OUR_OWN)}


@lru_cache
def right_look() -> Look:
    return look(load_engine({}))


@lru_cache
def seen_every_day(bug: str) -> tuple[str, str, str]:
    """What text, loss and logits show of a broken engine, beside those of the library."""
    right = right_look()
    try:
        broken = look(load_engine(MUTANTS[bug].changes))
    except Exception as error:
        return f"raises {type(error).__name__}", "", ""
    text = "same" if broken.text == right.text else "another"
    logits = (broken.logits - right.logits).abs().max().item()
    return text, f"{broken.loss / right.loss - 1:+.1%}", f"{logits:.2g}"


def test_the_library_passes_the_proof() -> None:
    assert proof(load_engine({})) == {}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=str)
def test_the_proof_fails_for(mutant: Mutant, record_property: Record) -> None:
    failed = proof(load_engine(mutant.changes))
    others = len(failed) - 1
    report_mutant(
        record_property,
        mutant.title,
        mutant.seen_by + (f" and {others} more" if others else ""),
        *seen_every_day(mutant.bug),
    )
    assert mutant.seen_by in failed, f"seen by {sorted(failed)}"
    assert not any(isinstance(error, BROKEN_DIFFERENTLY) for error in failed.values()), failed


def test_each_of_the_21_mistakes_of_courses_is_made_once() -> None:
    every = (*FOUND_IN_COURSES, *OF_SHARING, *OF_SHRINKING)
    assert sorted(mutant.row for mutant in every if mutant.row is not None) == list(range(1, 22))


def test_every_check_of_the_proof_is_the_one_that_sees_some_bug() -> None:
    assert {mutant.seen_by for mutant in MUTANTS.values()} == set(CHECKS)


def test_text_and_loss_would_have_missed_several() -> None:
    missed = set()
    for mutant in FOUND_IN_COURSES:
        text, loss, _ = seen_every_day(mutant.bug)
        if text == "same" and abs(float(loss.rstrip("%"))) < 5:
            missed.add(mutant.row)
    assert len(missed) >= 5, missed
    assert right_look().loss < 0.5, "a model that has learned its text, so that a bug has something to spoil"


def test_a_mutant_is_a_library_of_its_own() -> None:
    before = {name: module for name, module in sys.modules.items() if name.startswith("course_lib")}
    engine = load_engine(FOUND_IN_COURSES[0].changes)
    assert engine.caches is not course_lib.caches and engine.caches.Cache is not course_lib.caches.Cache
    assert engine.model.Cache is engine.caches.Cache
    assert before == {name: module for name, module in sys.modules.items() if name.startswith("course_lib")}


def test_a_bug_that_the_source_no_longer_allows_is_noticed() -> None:
    with pytest.raises(AssertionError, match="0 times in"):
        load_engine({"model": (("no such text", ""),)})
    with pytest.raises(AssertionError, match="never imported"):
        load_engine({"no_such_module": (("a", "b"),)})
