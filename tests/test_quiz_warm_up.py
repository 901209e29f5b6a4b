"""The warm-up at the head of a notebook: whom it asks, what, and how it is left."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from small_quiz import record_displays, write_bank

import course_lib.study.quiz as quiz
import course_lib.study.quiz_sheet as quiz_sheet
from course_lib.progress.store import store
from course_lib.quizzes.bank import load_bank
from course_lib.study.quiz import NOTHING_DUE, NOTHING_YET, SKIPPED, names_for_today, skipped, warm_up
from course_lib.study.quiz_sheet import Sheet


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(quiz_sheet, "unsaved", [])
    yield tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Questions for notebooks 01 to 04."""
    made = tmp_path / "questions"
    made.mkdir()
    for name in ("01_first", "02_second", "03_third", "04_fourth"):
        write_bank(made, name=name)
    return made


def answer(folder: Path, notebook: str, identifier: str, given: object, warm_up: str = "") -> None:
    sheet = Sheet(load_bank(notebook, folder).questions, warm_up)
    reply = sheet.receive({"kind": "answer", "question": f"{notebook[:2]}.{identifier}", "given": given})
    assert reply is not None and reply["kind"] == "state"


def shown(folder: Path, notebook: str = "03") -> str:
    """What stands there where no kernel runs."""
    with pytest.MonkeyPatch.context() as patch:
        outputs = record_displays(patch)
        warm_up(notebook, folder=folder)
    return "\n".join(output["text/plain"] for output in outputs)


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, notebook: str = "03") -> list[str]:
    """The names of the questions that a warm-up asks."""
    sheets: list[Sheet] = []

    class Spy(quiz.QuestionsWidget):
        def __init__(self, sheet: Sheet, title: str, sources: dict[str, str] | None = None) -> None:
            sheets.append(sheet)
            super().__init__(sheet, title, sources)

    monkeypatch.setattr(quiz, "QuestionsWidget", Spy)
    shown(folder, notebook)
    return [name for sheet in sheets for name in sheet.questions]


def test_who_starts_cold_is_asked_nothing_and_told_so(folder: Path) -> None:
    assert shown(folder) == NOTHING_YET
    assert shown(folder, "00") == NOTHING_YET
    assert store().events() == []


def test_what_was_missed_in_earlier_notebooks_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(folder, "01_first", "kept", 0)
    answer(folder, "03_third", "kept", 0)
    answer(folder, "04_fourth", "kept", 0)
    answer(folder, "02_second", "size", "7")
    assert asked(folder, monkeypatch) == ["01.kept", "02.size"]
    assert asked(folder, monkeypatch, "02_second") == ["01.kept"]
    assert asked(folder, monkeypatch, "04") == ["01.kept", "03.kept"]
    text = shown(folder)
    assert text.startswith("Warm-up before notebook 03") and "How large is the cache?" in text


def test_what_was_right_just_now_is_not_due(folder: Path) -> None:
    answer(folder, "01_first", "kept", 1)
    assert shown(folder) == NOTHING_DUE


def test_a_warm_up_shows_its_questions_open_and_keeps_what_was_answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for notebook, given in (("01_first", 0), ("02_second", 2)):
        answer(folder, notebook, "kept", given)
    answer(folder, "02_second", "grows", [1])
    before = asked(folder, monkeypatch)
    assert before == ["01.kept", "02.kept"]
    question = load_bank("01_first", folder).questions[0]
    since = (datetime.now(UTC) - timedelta(hours=12)).isoformat()
    sheet = Sheet([question], "03", since)
    assert sheet.states()["01.kept"]["given"] is None
    answer(folder, "01_first", "kept", 1, warm_up="03")
    assert store().events("answer")[-1].data == {"given": 1, "right": True, "warm_up": "03"}
    assert sheet.states()["01.kept"]["right"]
    tomorrow = Sheet([question], "03", (datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    assert tomorrow.states()["01.kept"]["given"] is None
    assert asked(folder, monkeypatch) == before  # run again, in a new kernel too: the same
    assert Sheet([question]).states()["01.kept"]["given"] == 0  # the quiz keeps its own answer


def test_the_next_day_a_warm_up_begins_anew(folder: Path) -> None:
    answer(folder, "01_first", "kept", 0)
    answer(folder, "01_first", "kept", 0, warm_up="03")
    answer(folder, "01_first", "grows", [1])
    answer(folder, "01_first", "steps", [3, 2, 1, 0])
    names = [f"01.{identifier}" for identifier in ("kept", "grows", "size", "steps")]
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    since = (tomorrow - timedelta(hours=12)).isoformat()
    assert names_for_today(names, "03", since, tomorrow) == ["01.kept", "01.grows"]


def test_a_skipped_warm_up_stays_empty_for_this_sitting_only(folder: Path) -> None:
    answer(folder, "01_first", "kept", 0)
    sheet = Sheet(load_bank("01_first", folder).questions, "03")
    assert sheet.receive({"kind": "skip"}) == {"kind": "skipped", "problem": ""}
    assert [(event.name, event.data) for event in store().events("skip")] == [("03", {})]
    assert shown(folder) == SKIPPED
    assert not skipped("03", (datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    assert shown(folder, "02").startswith("Warm-up before notebook 02")


def test_a_file_that_cannot_be_read_is_left_out_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(folder, "02_second", "kept", 0)
    (folder / "01_first.toml").write_text("notebook = ")
    assert asked(folder, monkeypatch) == ["02.kept"]
    assert shown(folder).startswith("Warm-up: some questions are left out. 01_first.toml: is not TOML")


def test_a_warm_up_needs_the_number_of_its_notebook(folder: Path) -> None:
    with pytest.raises(ValueError, match=r'write the notebook\'s number, such as warm_up\("03"\)'):
        warm_up("three", folder=folder)
