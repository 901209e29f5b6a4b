"""A sheet of questions and its widget: what is recorded, what comes back, and what never gets out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from small_quiz import ALL, HEAD, ONE, record_displays, write_bank, write_notebook

import course_lib.study.quiz_sheet as quiz_sheet
from course_lib.progress.event import notebook_of
from course_lib.progress.store import Event, Store, store
from course_lib.progress.summary import standings
from course_lib.quizzes.bank import QUESTIONS, load_bank
from course_lib.study.quiz import NOTHING_YET, Quiz, warm_up
from course_lib.study.quiz_sheet import Sheet
from course_lib.study.quiz_widget import QuestionsWidget


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A progress store of this test alone, and nothing that waits to be saved."""
    folder = tmp_path / "data"
    monkeypatch.setenv("COURSE_DATA", str(folder))
    monkeypatch.setattr(quiz_sheet, "unsaved", [])
    yield folder


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return write_bank(tmp_path)


@pytest.fixture
def sheet(bank: Path) -> Sheet:
    return Sheet(load_bank(bank).questions)


def answers() -> list[Event]:
    return store().events("answer")


def give(sheet: Sheet, name: str, given: object) -> dict[str, Any]:
    """Answer a question and return how it stands, as the page is told."""
    reply = sheet.receive({"kind": "answer", "question": name, "given": given})
    assert reply is not None and reply["kind"] == "state" and list(reply["questions"]) == [name]
    state = reply["questions"][name]
    assert isinstance(state, dict)
    return state | {"problem": reply["problem"]}


def text_of(spans: list[list[str]]) -> str:
    return "".join(text for _, text in spans)


def test_an_answer_is_recorded_with_its_version_before_it_is_judged_on_the_page(sheet: Sheet) -> None:
    state = give(sheet, "03.kept", 0)
    assert not state["right"] and state["problem"] == ""
    assert text_of(state["said"][0]).startswith("undisclosed: a query is used once")
    assert state["answer"] == [] and state["explanation"] == []
    (event,) = answers()
    assert (event.name, event.data) == ("03.kept", {"given": 0, "right": False})
    assert event.version == sheet.questions["03.kept"].version


def test_every_attempt_is_recorded_in_order(sheet: Sheet) -> None:
    give(sheet, "03.kept", 0)
    assert give(sheet, "03.kept", 2)["mayAsk"]
    assert give(sheet, "03.kept", 1)["right"]
    assert [event.data["right"] for event in answers()] == [False, False, True]


def test_the_last_answer_of_a_notebook_records_that_it_is_finished() -> None:
    """The questions of a notebook without a check, answered rightly or not; which one is last does not matter."""
    questions = load_bank("02_prefill_and_decode").questions
    sheet = Sheet(questions)
    for number, question in enumerate(questions):
        assert store().events("notebook") == [], f"finished after {number} of {len(questions)} answers"
        given = {"one": 0, "several": [0], "number": "1", "order": list(range(len(getattr(question, "items", ()))))}
        give(sheet, question.name, given[question.type])
    assert [event.name for event in store().events("notebook")] == ["02"]


def test_another_sheet_tells_the_same_after_a_restart(sheet: Sheet, bank: Path) -> None:
    for name, given in [("03.kept", 0), ("03.grows", [0, 2]), ("03.size", "1472 KiB"), ("03.steps", [3, 2, 1, 0])]:
        give(sheet, name, given)
    reply = Sheet(load_bank(bank).questions).receive({"kind": "hello"})
    assert reply == {"kind": "state", "questions": sheet.states(), "notices": []}
    states = reply["questions"]
    assert [states[name]["given"] for name in sheet.questions] == [0, [0, 2], "1472 KiB", [3, 2, 1, 0]]
    assert text_of(states["03.grows"]["explanation"]) == "undisclosed: rows and layers, not heads of queries."
    assert text_of(states["03.size"]["said"][0]) == "You wrote 1472 KiB; that is 1.438 MiB."


def test_the_answer_can_be_asked_for_after_a_second_wrong_try_and_stays(sheet: Sheet, bank: Path) -> None:
    ask = {"kind": "show", "question": "03.steps"}
    give(sheet, "03.steps", [0, 1, 2, 3])
    reply = sheet.receive(ask)
    assert reply is not None and reply["questions"]["03.steps"]["answer"] == []
    assert store().events("shown") == []
    give(sheet, "03.steps", [3, 2, 1, 0])
    sheet.receive(ask)
    sheet.receive(ask)
    assert [event.name for event in store().events("shown")] == ["03.steps"]
    state = Sheet(load_bank(bank).questions).states()["03.steps"]
    assert [text_of(item) for item in state["answer"]][2] == "Read all rows"
    assert text_of(state["explanation"]) == "undisclosed: it is appended before it is read." and not state["mayAsk"]


def test_a_changed_question_is_open_again_and_says_so(sheet: Sheet, tmp_path: Path) -> None:
    give(sheet, "03.kept", 1)
    changed = load_bank(write_bank(tmp_path, ALL.replace("Its row of", "A row of")))
    state = Sheet(changed.questions).states()["03.kept"]
    assert state["changed"] and state["given"] is None and state["explanation"] == []


def test_to_have_seen_the_answer_of_an_earlier_version_shows_none_of_this_one(sheet: Sheet, tmp_path: Path) -> None:
    for _ in range(2):
        give(sheet, "03.kept", 0)
    sheet.receive({"kind": "show", "question": "03.kept"})
    assert sheet.states()["03.kept"]["answer"] != []
    changed = Sheet(load_bank(write_bank(tmp_path, ALL.replace("Its row of", "A row of"))).questions)
    state = give(changed, "03.kept", 0)
    assert state["answer"] == [] and state["explanation"] == []


def test_a_file_of_somebody_else_counts_for_nothing_in_the_course(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the name of the course's file and the id of one of its questions."""
    outputs = record_displays(monkeypatch)
    there = load_bank("03_the_kv_cache")
    path = write_bank(tmp_path, HEAD + ONE.replace('"kept"', f'"{there.questions[0].id}"'), name=there.notebook)
    quiz = Quiz(path)
    quiz._ipython_display_()
    (name,) = (question.name for question in quiz.bank.questions)
    assert name == f"own.03_the_kv_cache.{there.questions[0].id}" and notebook_of(name) == ""
    before = standings()
    for given in (0, 1):
        give(Sheet(quiz.bank.questions), name, given)
    assert [(event.name, event.data["right"]) for event in answers()] == [(name, False), (name, True)]
    assert standings() == before and standings()[3].answered == 0
    warm_up("04")
    assert outputs[-1]["text/plain"] == NOTHING_YET
    assert Sheet(Quiz(path).bank.questions).states()[name]["right"], "it comes back as in the course"


def test_a_path_to_a_file_of_the_course_is_the_course(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(QUESTIONS)
    assert Quiz(Path("03_the_kv_cache.toml")).bank == Quiz("03_the_kv_cache").bank
    assert Quiz("03_the_kv_cache").bank.questions[0].name.startswith("03.")


def test_what_could_not_be_saved_is_shown_with_the_reason_and_saved_with_the_next_answer(
    sheet: Sheet, data_folder: Path
) -> None:
    data_folder.write_text("a file where the folder should be")
    state = give(sheet, "03.kept", 0)
    assert state["given"] == 0 and state["said"]
    assert state["problem"].startswith("This was not saved. ") and str(data_folder) in state["problem"]
    assert state["problem"].endswith("Your next answer tries again to save it.")
    assert sheet.states()["03.kept"]["given"] == 0
    data_folder.unlink()
    assert give(sheet, "03.grows", [0])["problem"] == ""
    assert [event.name for event in answers()] == ["03.kept", "03.grows"]
    assert quiz_sheet.unsaved == []


def test_attempts_that_could_not_be_saved_keep_their_order(sheet: Sheet, data_folder: Path) -> None:
    data_folder.write_text("a file where the folder should be")
    for given in (0, 2, 1):
        assert give(sheet, "03.kept", given)["given"] == given
    data_folder.unlink()
    give(sheet, "03.grows", [0])
    assert [event.data["given"] for event in answers()] == [0, 2, 1, [0]]


def test_attempts_that_a_fault_held_back_keep_their_order(sheet: Sheet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Store, kind: str, name: str, data: dict[str, Any], version: str = "") -> Event:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Store, "record", broken)
        for given in (0, 2, 1):
            assert give(sheet, "03.kept", given)["given"] == given
    give(sheet, "03.grows", [0])
    assert [event.data["given"] for event in answers()] == [0, 2, 1, [0]]


def test_fault_of_the_course_itself_costs_no_answer_and_is_said(sheet: Sheet, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Store.record

    def broken(self: Store, kind: str, name: str, data: dict[str, Any], version: str = "") -> Event:
        if name == "03.kept":
            raise UnicodeDecodeError("utf-8", b"\xb3", 0, 1, "invalid start byte")
        return real(self, kind, name, data, version)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "record", broken)
        said = give(sheet, "03.kept", 0)["problem"]
        assert said.startswith("This was not saved: the course met a fault of its own, UnicodeDecodeError: ")
        assert said.endswith("Your next answer tries again to save it.")
        assert give(sheet, "03.grows", [0])["problem"] == said, "one still waits"
        assert [event.name for event in answers()] == ["03.grows"] and sheet.states()["03.kept"]["given"] == 0
    assert give(sheet, "03.size", "1")["problem"] == ""
    assert [event.name for event in answers()] == ["03.grows", "03.kept", "03.size"]


HOSTILE: list[object] = [
    None, 1, "answer", [], [[]], {}, {"kind": None}, {"kind": ["answer"]}, {"kind": "answer"},
    {"kind": "answer", "question": None, "given": 0}, {"kind": "answer", "question": ["03.kept"], "given": 0},
    {"kind": "answer", "question": "03.other", "given": 0}, {"kind": "answer", "question": "04.kept", "given": 1},
    {"kind": "answer", "question": "x" * 1_000_000, "given": 0}, {"kind": "show", "question": {}},
    {"kind": "skip"}, {"kind": "reset", "question": "03.kept"},
]  # fmt: skip


@pytest.mark.parametrize("message", HOSTILE, ids=range(len(HOSTILE)))
def test_a_message_that_means_nothing_is_not_answered(sheet: Sheet, message: object) -> None:
    assert sheet.receive(message) is None
    assert store().events() == []


@pytest.mark.parametrize("name", ["03.kept", "03.grows", "03.size", "03.steps"])
@pytest.mark.parametrize(
    "given",
    [None, "", [], {}, -1, 99, True, 1e400, ["0"], [None], [[0]], [0] * 100_000, "9" * 1_000_000, {"a": [0]}, "\ud800"],
    ids=range(15),
)
def test_what_is_no_answer_gets_a_sentence_and_is_not_recorded(sheet: Sheet, name: str, given: object) -> None:
    reply = sheet.receive({"kind": "answer", "question": name, "given": given})
    assert reply is not None and reply["kind"] == "problem" and reply["question"] == name
    assert reply["text"].endswith(".") and len(reply["text"]) < 200
    assert store().events() == []


def sent_by(widget: QuestionsWidget, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Everything that `widget` sends to its page from now on."""
    sent: list[dict[str, Any]] = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    return sent


def test_two_displays_of_a_quiz_tell_the_same_at_once(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (QuestionsWidget(Sheet(load_bank(bank).questions), "Questions") for _ in range(2))
    sent, repeated = sent_by(one, monkeypatch), sent_by(two, monkeypatch)
    one.answer({"kind": "answer", "question": "03.kept", "given": 0})
    assert repeated[0]["questions"] == sent[0]["questions"]
    one.answer({"kind": "hello"})
    assert len(sent) == 2 and len(repeated) == 1


def test_an_answer_is_told_to_displays_of_the_same_quiz_or_warm_up_only(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = load_bank(bank).questions
    quiz, one, two, later = (QuestionsWidget(Sheet(questions, here), "Q") for here in ("", "04", "04", "05"))
    sent = [sent_by(widget, monkeypatch) for widget in (quiz, one, two, later)]
    one.answer({"kind": "answer", "question": "03.kept", "given": 0})
    assert [len(each) for each in sent] == [0, 1, 1, 0]


def test_a_page_cannot_set_the_state_of_the_widget(bank: Path) -> None:
    widget = QuestionsWidget(Sheet(load_bank(bank).questions), "Questions")
    before = widget.get_state()
    widget.set_state({"questions": [], "title": 3, "layout": "x"})
    assert widget.get_state() == before


# The key stays in the kernel.

LEAKS = (
    "undisclosed",
    "right",
    "why",
    "explanation",
    "misconception",
    "belief",
    "tolerance",
    "1.4375",
    "0.71875",
    "trap",
)
RIGHT_ORDER = ("Compute K and V of the new token", "Append them to the cache", "Read all rows", "Choose the next token")


def assert_no_key(text: str) -> None:
    for word in LEAKS:
        assert word not in text, word
    places = [text.index(item) for item in RIGHT_ORDER if item in text]
    assert places != sorted(places) or not places, "the items stand in the right order"


def test_the_key_is_in_no_state_and_no_output_of_the_widget(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = record_displays(monkeypatch)
    Quiz(bank)._ipython_display_()
    (output,) = outputs
    assert set(output) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
    assert output["text/plain"].startswith("Questions on notebook 03\n"), "and not the name of a widget"
    widget = QuestionsWidget(Sheet(load_bank(bank).questions), "Questions")
    state = {name: value for name, value in widget.get_state().items() if name not in ("_esm", "_css")}
    assert "What makes the cache larger?" in json.dumps(state["questions"])
    # "Choose all that are right." is what the text asks; it says nothing of which.
    for text in (output["text/html"], output["text/plain"], json.dumps(state, default=str)):
        assert_no_key(text.replace("Choose all that are right", ""))


def test_the_key_is_in_no_saved_notebook_and_an_exported_page_shows_the_questions(bank: Path, tmp_path: Path) -> None:
    path = write_notebook(
        tmp_path / "quiz.ipynb",
        f"from pathlib import Path\nfrom course_lib.study.quiz import Quiz\nQuiz(Path({str(bank)!r}))",
    )
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=120).execute()  # keeps the state of widgets, as a careless page would
    state = next(iter(notebook.metadata.widgets.values()))["state"]
    for name in [name for name, model in state.items() if model["model_name"] == "LayoutModel"]:
        del state[name]  # of Jupyter's: it has a "right"
    for model in state.values():
        for code in ("_esm", "_css"):
            del model["state"][code]
    saved = json.dumps(notebook, ensure_ascii=False)
    assert saved.count("What makes the cache larger?") >= 2
    assert_no_key(saved.replace("Choose all that are right", "").replace("copyright", ""))

    del notebook.metadata["widgets"]  # a committed notebook has none
    page, _ = HTMLExporter().from_notebook_node(notebook)
    body = page[page.index("</head>") :]
    for words in ("What makes the cache larger?", "More query heads", "________ MiB", "Read all rows"):
        assert words in body
    assert_no_key(
        body[body.index("Questions on notebook 03") : body.index("To answer, open")].replace("all that are right", "")
    )


def test_what_an_instructor_writes_never_becomes_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = record_displays(monkeypatch)
    text = HEAD + ONE.replace("Its key and its value", "<script>alert(1)</script>")
    Quiz(write_bank(tmp_path, text))._ipython_display_()
    assert "<script>" not in outputs[0]["text/html"]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in outputs[0]["text/html"]
    assert "innerHTML" not in Path(quiz_sheet.__file__).with_name("quiz.js").read_text(encoding="utf-8")
