"""Where a learner stands: what is counted, when a notebook is finished, and how the map shows it on a page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.checks import names
from course_lib.progress import Store, event, store
from course_lib.progress.course import QUESTIONS, full_name
from course_lib.progress.event import Event, new_event
from course_lib.progress.summary import Standing, finish_if_complete, first_attempts, standing, standings, what_next
from course_lib.quizzes import bank as bank_module
from course_lib.quizzes.bank import load_bank
from course_lib.study.course_map import course_map
from course_lib.study.progress_view import Map, progress

NAME = "02_prefill_and_decode"
BANK = """
notebook = "02_prefill_and_decode"

[[objective]]
text = "count passes"
section = "Passes"
experiment = "02.passes"
check = "ex02.count"

[[question]]
id = "{0}"
objective = 1
type = "number"
text = "How many?"
answer = {1}
unit = "passes"
tolerance = 0.5
explanation = "As many as tokens."

[[question]]
id = "whole"
objective = 1
type = "number"
text = "How many in all?"
answer = 3
unit = "passes"
tolerance = 0.5
explanation = "Three."
"""


@pytest.fixture(autouse=True)
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    return store()


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course whose one file of questions is ours: two questions and a check."""
    folder = tmp_path / "questions"
    folder.mkdir()
    (folder / f"{NAME}.toml").write_text(BANK.format("first", 1))
    for function in (bank_module.load_bank, bank_module.notebooks_with_questions):
        monkeypatch.setattr(function, "__defaults__", (folder,))
    return folder / f"{NAME}.toml"


def answer(mine: Store, question: str, right: bool) -> Event:
    versions = {one.name: one.version for one in load_bank(NAME).questions}
    return mine.record("answer", question, {"given": 1, "right": right}, versions[question])


def here(name: str = NAME) -> Standing:
    (found,) = [one for one in standings() if one.notebook == name]
    return found


def test_map_of_somebody_who_begins_says_so_and_writes_nothing(mine: Store) -> None:
    found = standings()
    assert [one.notebook for one in found] == list(QUESTIONS)
    assert what_next(found) == "00_start_here: begin"
    assert not any(one.begun or one.finished_at for one in found)
    assert all(one.here for one in found)
    assert standing("11_real_systems", [], here=False, has_questions=False).next == "to come"
    for one in found:
        assert (one.questions > 0) == (one.notebook in bank_module.notebooks_with_questions())
    assert not mine.folder.exists()


def test_notebook_is_finished_by_what_came_last_even_if_the_clock_was_set_back(
    mine: Store, questions: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.record("check", "ex02.count", {"passed": True, "cases": {}})
    answer(mine, "02.whole", True)
    monkeypatch.setattr(event, "now", lambda: event.datetime.fromisoformat("2001-03-01T12:00:00+00:00"))
    last = answer(mine, "02.first", True)
    assert here().finished_at == last.at == "2001-03-01T12:00:00.000000+00:00"


def test_counts_are_of_first_attempts_and_of_what_there_is(mine: Store, questions: Path) -> None:
    mine.record("prediction", "02.passes", {"value": 1, "unit": ""})
    mine.record("prediction", "02.passes", {"value": 2, "unit": ""})
    mine.record("prediction", "02.ttft", {"value": 2, "unit": "s"})
    mine.record("prediction", "03.else", {"value": 2, "unit": "s"})
    answer(mine, "02.first", False)
    answer(mine, "02.first", True)
    mine.record("answer", "02.gone", {"right": True})
    mine.record("check", "ex02.count", {"passed": False, "cases": {}})
    mine.record("check", "ex02.else", {"passed": True, "cases": {}})
    found = here()
    assert (found.predictions, found.answered, found.questions, found.right_first_try) == (2, 1, 2, 0)
    assert (found.checks_passed, found.checks, found.finished_at) == (0, 1, "")
    assert found.next == "answer 1 question and pass ex02.count"
    answer(mine, "02.whole", True)
    found = here()
    assert (found.answered, found.right_first_try, found.next) == (2, 1, "pass ex02.count")


def test_exercise_is_counted_by_its_own_checks_and_finishes_no_notebook(mine: Store, questions: Path) -> None:
    checks = [name for name in names() if name.startswith("ex02.")]
    assert (here().exercises, here().exercises_passed) == (len(checks), 0)
    for name in checks[:2]:
        mine.record("check", name, {"passed": False, "cases": {}})
        mine.record("check", name, {"passed": True, "cases": {}})
    for name in (checks[0], checks[2]):
        mine.record("check", name, {"passed": False, "cases": {}})
    mine.record("check", "ex02.gone", {"passed": True, "cases": {}})
    assert (here().exercises_passed, here().checks_passed, here().next) == (2, 0, "begin")
    assert f'<td style="text-align: left; vertical-align: top">2 of {len(checks)}</td>' in progress()._repr_html_()
    assert f"exercise parts passed: 2 of {len(checks)}" in repr(progress())
    questions.write_text("damaged")
    assert (here().exercises, here().exercises_passed) == (len(checks), 2)
    assert sum(one.exercises for one in standings()) == len(names())


@pytest.mark.parametrize(
    ("said", "number"),
    [("notebook 05,", "05"), ("notebooks 01 and 05", "05"), ("notebooks 02, 03, and 05.", "05"), ("nothing", "03")],
)
def test_exercise_is_counted_with_the_last_notebook_that_it_says_it_builds_on(
    said: str, number: str, mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("notebooks/05_batches_and_slots", "exercises/ex03_mine/ex03_mine"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / f"{name}.ipynb").write_text(
            json.dumps({"cells": [{"source": ["# Mine\n", f"It builds on {said}"]}]})
        )
    monkeypatch.chdir(tmp_path / "notebooks")
    checks = [name for name in names() if name.startswith("ex03.")]
    mine.record("check", checks[0], {"passed": True, "cases": {}})
    counted = {one.notebook[:2]: (one.exercises_passed, one.exercises) for one in standings() if one.exercises}
    assert counted == {number: (1, len(checks))}


def test_notebook_is_finished_once_by_the_last_missing_piece_in_any_order(mine: Store, questions: Path) -> None:
    mine.record("check", "ex02.count", {"passed": True, "cases": {}})
    assert not finish_if_complete("02")
    answer(mine, "02.whole", False)
    assert not finish_if_complete(NAME) and here().finished_at == ""
    last = answer(mine, "02.first", False)
    assert here().finished_at == last.at, "worked out, whoever forgets to record it"
    assert finish_if_complete("02")
    assert not finish_if_complete("02") and not finish_if_complete(NAME)
    (event,) = mine.events("notebook")
    assert (event.name, here().finished_at, here().next) == ("02", event.at, "")
    mine.reset("02")
    assert (here().finished_at, here().answered, here().next) == ("", 0, "begin")


@pytest.mark.parametrize("name", ["", "0", "99", "nosuch", "05", "ex02.count"])
def test_what_is_no_notebook_with_questions_is_never_finished(mine: Store, questions: Path, name: str) -> None:
    assert not finish_if_complete(name)
    assert not mine.folder.exists()


def test_notebook_that_cannot_be_saved_as_finished_is_no_error(
    mine: Store, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions.write_text(BANK.format("first", 1).replace('check = "ex02.count"', ""))
    (tmp_path / "a file").write_text("")
    answers = [answer(mine, name, True) for name in ("02.first", "02.whole")]
    monkeypatch.setattr(Store, "events", lambda self, *of: answers)
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "a file"))
    assert not finish_if_complete("02")
    assert here().finished_at == answers[-1].at


def test_question_that_was_rewritten_keeps_its_answer_until_it_is_answered_again(mine: Store, questions: Path) -> None:
    answer(mine, "02.first", True)
    questions.write_text(BANK.format("first", 2))
    found = here()
    assert (found.answered, found.right_first_try) == (1, 1)
    answer(mine, "02.first", False)
    answer(mine, "02.first", True)
    found = here()
    assert (found.answered, found.right_first_try) == (1, 0), "the first answer to the question as it reads now"


def test_first_attempt_is_the_first_in_order(mine: Store) -> None:
    events = [new_event("answer", "02.x", {"right": right}, version) for right, version in ((False, "a"), (True, "b"))]
    assert first_attempts(events)["02.x"] is events[0]
    assert first_attempts(events, {"02.x": "b"})["02.x"] is events[1]
    assert first_attempts(events, {"02.x": "c"})["02.x"] is events[0]


def test_questions_that_came_later_do_not_undo_a_finished_notebook(mine: Store, questions: Path) -> None:
    mine.record("notebook", "02", {})
    found = here()
    assert found.finished_at and found.next == "2 new questions"


def test_damaged_file_of_questions_does_not_break_the_map(mine: Store, questions: Path) -> None:
    answer(mine, "02.first", True)
    questions.write_text("notebook = ")
    found = here()
    assert (found.questions, found.answered) == (0, 0)
    assert f"{NAME}.toml" in found.problem and "TOML" in found.problem
    assert not finish_if_complete("02")
    assert f"{NAME}: " in repr(progress()) and "its questions cannot be counted" in progress()._repr_html_()


def test_what_is_next_is_the_first_notebook_here_that_is_not_finished(mine: Store) -> None:
    for name in [one.notebook for one in standings() if one.here]:
        assert what_next(standings()).startswith(name)
        mine.record("notebook", name[:2], {})
    assert what_next(standings()) == "you have finished every notebook that is here" or "new" in what_next(standings())


def test_notebooks_are_named_by_their_beginning() -> None:
    assert full_name("03") == full_name("03_the_kv_cache") == "03_the_kv_cache"
    for name in ("", "0", "1", "3", "three", "03x", "\x1b"):
        with pytest.raises(ValueError, match="write 00 to 12") as error:
            full_name(name)
        assert str(error.value).isprintable()


# --- on a page --------------------------------------------------------------------------------------------------------


def test_map_on_a_page_is_a_table_with_headings_links_and_what_is_next(mine: Store) -> None:
    mine.record("prediction", "02.passes", {"value": 5, "unit": ""})
    mine.record("notebook", "00", {})
    page = progress()._repr_html_()
    assert page.count('scope="col"') == 7 and page.count('scope="row"') == len(QUESTIONS)
    assert "<caption" in page and '<a href="02_prefill_and_decode.ipynb">' in page
    missing = [replace(one, here=False) if one.notebook == "11_real_systems" else one for one in standings()]
    assert '<a href="11_real_systems.ipynb">' in page
    assert "11_real_systems.ipynb" not in Map(missing, [])._repr_html_(), "what is not here is no link"
    assert len(re.findall(r"finished on \d{4}-\d\d-\d\d", page)) == 1
    text = repr(progress())
    for name in QUESTIONS:
        assert name in text and name in page
    next_up = what_next(standings())
    name, todo = next_up.split(": ")
    assert f'<strong>Next:</strong> <a href="{name}.ipynb">{name}</a>: {todo}</p>' in page
    assert f"Next: {next_up}" in text
    assert "02_prefill_and_decode: predictions made: 1" in text


def test_after_the_last_notebook_there_is_no_link_to_go_to(mine: Store) -> None:
    for name in QUESTIONS:
        mine.record("notebook", name[:2], {})
    done = [replace(one, next="") for one in standings()]
    assert "<strong>Next:</strong> you have finished every notebook that is here</p>" in Map(done, [])._repr_html_()


def test_repair_is_told_once_above_the_map(mine: Store) -> None:
    mine.record("notebook", "00", {})
    (mine.folder / "progress.sqlite").write_text("Dear diary")
    page = progress()
    for shown in (page._repr_html_(), repr(page)):
        assert "Your progress file was damaged and is kept as progress.damaged-" in shown
        assert "It was made anew from the other: your answers are there." in shown
        assert "finished on" in shown
    assert "damaged" not in repr(progress())


@pytest.mark.parametrize("running", ["notebooks", "exercises/ex03_kv_cache", "exercises/of my own"])
def test_links_of_both_maps_lead_to_the_notebooks_and_exercises_from_wherever_they_are_shown(
    running: str, mine: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = [
        "notebooks/01_training_and_generation",
        "notebooks/03_the_kv_cache",
        "exercises/ex03_kv_cache/ex03_kv_cache",
    ]
    beside = ["exercises/ex03_kv_cache/ex03_kv_cache.new-2026-01-01", "exercises/of my own/ex05_mine"]
    for name in [*there, *beside]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path / running)
    page, table = progress()._repr_html_(), course_map().data
    linked = set(re.findall(r'<a href="(.*?)">', page))
    assert {Path(link).resolve() for link in linked} == {tmp_path / f"{name}.ipynb" for name in there[:2]}
    linked = set(re.findall(r"\]\((.*?)\)", table))
    assert {Path(link).resolve() for link in linked} == {tmp_path / f"{name}.ipynb" for name in there}
    assert all(link.count("..") <= 2 for link in linked)


def test_both_maps_name_the_same_notebooks() -> None:
    assert [name for name in QUESTIONS if name in course_map().data] == list(QUESTIONS)
