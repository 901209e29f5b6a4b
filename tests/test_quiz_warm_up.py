"""The warm-up at the head of a notebook: whom it asks, what, and how it is left."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from small_quiz import ALL, record_displays, write_bank

import course_lib.progress.event as event_module
import course_lib.study.quiz as quiz
import course_lib.study.quiz_sheet as quiz_sheet
from course_lib.progress.store import store
from course_lib.quizzes.bank import BadQuestions, load_bank
from course_lib.study.quiz import NOTHING_DUE, NOTHING_YET, earlier_questions, names_for_today, warm_up
from course_lib.study.quiz_sheet import DONE, REST_SKIPPED, SKIPPED, Sheet, is_skipped


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


def sheets_of(folder: Path, monkeypatch: pytest.MonkeyPatch, notebook: str = "03") -> list[Sheet]:
    """What a warm-up displays: a sheet, or none."""
    sheets: list[Sheet] = []

    class Spy(quiz.QuestionsWidget):
        def __init__(self, sheet: Sheet, title: str, sources: dict[str, str] | None = None) -> None:
            sheets.append(sheet)
            super().__init__(sheet, title, sources)

    monkeypatch.setattr(quiz, "QuestionsWidget", Spy)
    shown(folder, notebook)
    return sheets


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, notebook: str = "03") -> list[str]:
    """The names of the questions that a warm-up asks."""
    return [name for sheet in sheets_of(folder, monkeypatch, notebook) for name in sheet.questions]


def left(sheet: Sheet) -> tuple[list[str], bool, str]:
    """What a page that shows `sheet` anew is told: which questions stay, whether the warm-up is over, its line."""
    reply = sheet.receive({"kind": "hello"})
    assert reply is not None
    return reply["warmUp"]["kept"], reply["warmUp"]["over"], reply["warmUp"]["line"]


def test_who_starts_cold_is_asked_nothing_and_told_so(folder: Path) -> None:
    assert shown(folder) == NOTHING_YET
    assert shown(folder, "00") == NOTHING_YET
    assert store().events() == []


def test_what_was_missed_in_earlier_notebooks_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(folder, "01_first", "kept", 0)
    answer(folder, "03_third", "kept", 0)
    answer(folder, "04_fourth", "kept", 0)
    answer(folder, "02_second", "size", "7")
    assert asked(folder, monkeypatch) == ["02.size", "01.kept"]
    assert asked(folder, monkeypatch, "02_second") == ["01.kept"]
    assert asked(folder, monkeypatch, "04") == ["03.kept", "02.size"]
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
    assert before == ["02.kept", "02.grows"]
    answer(folder, "02_second", "kept", 0, warm_up="03")
    answer(folder, "02_second", "grows", [0, 2], warm_up="03")
    assert asked(folder, monkeypatch) == before  # run again, in a new kernel too: the same


def test_a_warm_up_and_a_quiz_keep_their_answers_apart(folder: Path) -> None:
    answer(folder, "01_first", "kept", 0)
    question = load_bank("01_first", folder).questions[0]
    since = (datetime.now(UTC) - timedelta(hours=12)).isoformat()
    sheet = Sheet([question], "03", since)
    assert sheet.states()["01.kept"]["given"] is None
    answer(folder, "01_first", "kept", 1, warm_up="03")
    assert store().events("answer")[-1].data == {"given": 1, "right": True, "warm_up": "03"}
    assert sheet.states()["01.kept"]["right"]
    tomorrow = Sheet([question], "03", (datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    assert tomorrow.states()["01.kept"]["given"] is None
    assert Sheet([question]).states()["01.kept"]["given"] == 0  # the quiz keeps its own answer


def test_the_next_day_a_warm_up_begins_anew(folder: Path) -> None:
    answer(folder, "01_first", "kept", 0)
    answer(folder, "01_first", "kept", 0, warm_up="03")
    answer(folder, "01_first", "grows", [1])
    answer(folder, "01_first", "steps", [3, 2, 1, 0])
    questions, _ = earlier_questions("03", folder)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    since = (tomorrow - timedelta(hours=12)).isoformat()
    assert names_for_today(questions, "03", since, tomorrow) == ["01.grows", "01.steps"], "what it asked comes last"


def test_what_a_warm_up_asked_in_an_earlier_sitting_is_not_of_today(folder: Path) -> None:
    answer(folder, "01_first", "kept", 1, warm_up="03")
    questions, _ = earlier_questions("03", folder)
    now = datetime.now(UTC) + timedelta(hours=13)
    since = (now - timedelta(hours=12)).isoformat(timespec="microseconds")
    assert names_for_today(questions, "03", since, now) == [], "and it is not due"


def test_what_a_clock_that_was_ahead_recorded_waits_for_its_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as ahead:
        ahead.setattr(event_module, "now", lambda: datetime.now(UTC) + timedelta(days=900))
        answer(folder, "01_first", "size", "7", warm_up="03")
        store().record("skip", "03", {"asked": ["01.grows"]})
        store().record("skip", "02", {"asked": ["01.kept"]})
    assert [event.at > datetime.now(UTC).isoformat() for event in store().events()] == [True, True, True]
    answer(folder, "01_first", "kept", 0)
    answer(folder, "01_first", "grows", [1])
    answer(folder, "01_first", "steps", [3, 2, 1, 0])
    (sheet,) = sheets_of(folder, monkeypatch)
    assert list(sheet.questions) == ["01.kept", "01.grows"], "what was skipped then is not the last warm-up yet"
    assert left(sheet) == (["01.kept", "01.grows"], False, "")
    size = load_bank("01_first", folder).questions[2]
    assert Sheet([size], "03", "").states()["01.size"]["given"] is None
    questions, _ = earlier_questions("03", folder)
    then = datetime.now(UTC) + timedelta(days=900, hours=1)
    assert names_for_today(questions, "03", (then - timedelta(hours=12)).isoformat(), then)[0] == "01.size"


def test_warm_ups_go_through_what_was_missed_from_the_nearest_notebook_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four misses in 01, then one in 02: no two warm-ups in a row ask the same, and 02 does not wait for 01."""
    for identifier, given in (("kept", 0), ("grows", [1]), ("size", "7"), ("steps", [3, 2, 1, 0])):
        answer(folder, "01_first", identifier, given)
    first = asked(folder, monkeypatch, "02")
    assert first == ["01.kept", "01.grows"]
    sheets_of(folder, monkeypatch, "02")[0].receive({"kind": "skip"})
    answer(folder, "02_second", "size", "7")
    assert asked(folder, monkeypatch, "03") == ["02.size", "01.size"]
    answer(folder, "02_second", "size", "7", warm_up="03")
    assert asked(folder, monkeypatch, "03") == ["02.size", "01.size"], "half answered, and run again"
    answer(folder, "01_first", "size", "7", warm_up="03")
    assert asked(folder, monkeypatch, "04") == ["01.kept", "01.grows"]


def test_a_question_that_is_not_to_be_repeated_is_in_no_warm_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bank(folder, ALL.replace('id = "kept"', 'id = "kept"\nrepeat = false'), name="01_first")
    answer(folder, "01_first", "kept", 0)
    assert shown(folder) == NOTHING_DUE
    answer(folder, "01_first", "size", "7")
    assert asked(folder, monkeypatch) == ["01.size"]


def test_a_skipped_warm_up_stays_empty_for_this_sitting_only(folder: Path) -> None:
    answer(folder, "01_first", "kept", 0)
    sheet = Sheet(load_bank("01_first", folder).questions[:2], "03")
    assert left(sheet) == (["01.kept", "01.grows"], False, "")
    nothing = {"kept": [], "over": True, "line": SKIPPED}
    assert sheet.receive({"kind": "skip"}) == {"kind": "skipped", "problem": "", "warmUp": nothing}
    assert left(sheet) == ([], True, SKIPPED), "a page that is loaded again"
    sheet.receive({"kind": "skip"})
    assert [(event.name, event.data) for event in store().events("skip")] == [("03", {"asked": list(sheet.questions)})]
    assert shown(folder) == SKIPPED
    assert not is_skipped("03", (datetime.now(UTC) + timedelta(seconds=1)).isoformat())
    assert shown(folder, "02").startswith("Warm-up before notebook 02")


@pytest.mark.parametrize("given", [1, 0], ids=["rightly", "wrongly"])
def test_to_skip_leaves_what_was_answered_and_it_comes_back(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: int
) -> None:
    answer(folder, "01_first", "kept", 0)
    answer(folder, "01_first", "grows", [1])
    (sheet,) = sheets_of(folder, monkeypatch)
    reply = sheet.receive({"kind": "answer", "question": "01.kept", "given": given})
    assert reply is not None and reply["warmUp"] == {"kept": ["01.kept", "01.grows"], "over": False, "line": ""}
    reply = sheet.receive({"kind": "skip"})
    assert reply is not None and reply["warmUp"] == {"kept": ["01.kept"], "over": True, "line": REST_SKIPPED}
    (again,) = sheets_of(folder, monkeypatch)
    assert list(again.questions) == ["01.kept"] and left(again) == (["01.kept"], True, REST_SKIPPED)
    assert again.states()["01.kept"]["given"] == given
    answer(folder, "01_first", "size", "7")
    assert asked(folder, monkeypatch) == ["01.kept"], "what was skipped is not filled up"


def test_an_answered_warm_up_cannot_be_skipped_and_comes_back_as_done(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One question is answered rightly, of the other the answer is shown."""
    answer(folder, "01_first", "kept", 0)
    answer(folder, "01_first", "grows", [1])
    (sheet,) = sheets_of(folder, monkeypatch)
    sheet.receive({"kind": "answer", "question": "01.kept", "given": 1})
    for _ in range(2):
        sheet.receive({"kind": "answer", "question": "01.grows", "given": [0]})
    assert not left(sheet)[1]
    reply = sheet.receive({"kind": "show", "question": "01.grows"})
    done = {"kept": ["01.kept", "01.grows"], "over": True, "line": DONE}
    assert reply is not None and reply["warmUp"] == done
    assert sheet.receive({"kind": "skip"}) == {"kind": "skipped", "problem": "", "warmUp": done}
    assert store().events("skip") == []
    (again,) = sheets_of(folder, monkeypatch)
    assert left(again) == (["01.kept", "01.grows"], True, DONE)
    assert again.states()["01.kept"]["right"] and again.states()["01.grows"]["answer"]


def test_two_displays_of_a_warm_up_are_skipped_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = load_bank("01_first", folder).questions[:2]
    one, two, other = (quiz.QuestionsWidget(Sheet(questions, here), "Warm-up") for here in ("03", "03", "04"))
    told: dict[str, list[object]] = {}
    for name, widget in (("one", one), ("two", two), ("other", other)):
        told[name] = []
        monkeypatch.setattr(widget, "send", lambda content, buffers=None, to=told[name]: to.append(content))
    one.answer({"kind": "skip"})
    assert told["one"] == told["two"] != [] and told["other"] == []


def test_a_file_that_cannot_be_read_is_left_out_and_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(folder, "02_second", "kept", 0)
    (folder / "01_first.toml").write_text("notebook = ")
    assert asked(folder, monkeypatch) == ["02.kept"]
    assert shown(folder).startswith("Warm-up: some questions are left out. 01_first.toml: is not TOML")


def test_a_warm_up_needs_the_number_of_its_notebook(folder: Path) -> None:
    arabic = "\N{ARABIC-INDIC DIGIT ZERO}\N{ARABIC-INDIC DIGIT THREE}"
    notebooks: list[object] = ["three", "", "3", arabic, 3, None, b"03", []]
    for notebook in notebooks:
        with pytest.raises(
            ValueError, match=r'write the notebook\'s number as text, such as warm_up\("03"\)'
        ) as caught:
            warm_up(notebook, folder=folder)  # type: ignore[arg-type]
        assert isinstance(caught.value, BadQuestions), "one line in a notebook"
