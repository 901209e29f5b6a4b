"""Diagnoses in the museum: what is asked, what is kept, what stays in the kernel, and that it counts nowhere else."""

import html
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from small_quiz import record_displays, write_notebook

import course_lib.study.quiz_sheet as quiz_sheet
from course_lib.museum import EXHIBITS
from course_lib.progress.event import notebook_of
from course_lib.progress.store import store
from course_lib.progress.summary import standings
from course_lib.quizzes.bank import BadQuestions, load_bank, notebooks_with_questions
from course_lib.study.diagnose import CAUSES, NOTEBOOK, Diagnosis, ExhibitSheet, diagnose, diagnoses
from course_lib.study.quiz import NOTHING_YET, warm_up
from course_lib.study.quiz_widget import QuestionsWidget

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"
QUESTIONS = diagnoses()
FIRST = next(iter(QUESTIONS.values()))


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A progress store of this test alone, and nothing that waits to be saved."""
    folder = tmp_path / "data"
    monkeypatch.setenv("COURSE_DATA", str(folder))
    monkeypatch.setattr(quiz_sheet, "unsaved", [])
    yield folder


def give(question: Diagnosis, given: int) -> dict[str, Any]:
    """Answer on a new sheet, as after a restart, and return how the question stands, as the page is told."""
    reply = ExhibitSheet([question]).receive({"kind": "answer", "question": question.name, "given": given})
    assert reply is not None and reply["kind"] == "state" and reply["problem"] == ""
    state = reply["questions"][question.name]
    assert isinstance(state, dict)
    return state


def places(question: Diagnosis) -> tuple[int, list[int]]:
    """The place of the right choice, and those of the wrong ones."""
    right = [index for index, choice in enumerate(question.choices) if choice.right]
    assert len(right) == 1
    return right[0], [index for index in range(len(question.choices)) if index != right[0]]


def text_of(spans: list[list[str]]) -> str:
    return "".join(text for _, text in spans)


# What is asked.


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_every_exhibit_has_a_question_whose_right_choice_is_its_cause(exhibit: Any) -> None:
    question = QUESTIONS[exhibit.name]
    right, wrong = places(question)
    assert question.choices[right].text == exhibit.cause and 3 <= len(wrong) <= 4
    assert [kind for kind, _ in question.diff].count("removed") >= 1
    whys = [question.choices[index].why for index in wrong]
    assert min(len(why.split()) for why in whys) >= 6 and len(set(whys)) == len(whys)
    assert all(question.choices[index].belief for index in wrong)


def test_there_is_no_question_without_an_exhibit_and_they_stand_in_the_order_of_the_museum() -> None:
    assert list(QUESTIONS) == [exhibit.name for exhibit in EXHIBITS]


def test_neither_its_place_nor_its_length_gives_the_cause_away() -> None:
    found = [places(question)[0] for question in QUESTIONS.values()]
    assert max(found.count(place) for place in found) <= len(found) / 2
    longest = [max(question.choices, key=lambda choice: len(choice.text)).right for question in QUESTIONS.values()]
    assert sum(longest) <= len(longest) / 2


# What is said, and what comes back.


def test_a_wrong_cause_gets_the_evidence_against_it_and_nothing_of_the_key() -> None:
    for question in QUESTIONS.values():
        right, wrong = places(question)
        for index in wrong[:1]:
            state = give(question, index)
            said = json.dumps(state)
            assert not state["right"] and text_of(state["said"][0]) in question.choices[index].why.replace("`", "")
            assert state["explanation"] == [] and state["answer"] == []
            assert not any(json.dumps(line)[1:-1] in said for _, line in question.diff)
            assert question.choices[right].text not in said


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_the_right_cause_shows_the_wrong_line_and_its_mend(question: Diagnosis) -> None:
    state = give(question, places(question)[0])
    assert state["right"] and state["explanation"][-len(question.diff) :] == question.diff
    assert [kind for kind, _ in question.diff] == sorted((kind for kind, _ in question.diff), reverse=True)
    for kind, code in (("removed", question.exhibit.wrong), ("added", question.exhibit.mend)):
        shown = "\n".join(line for mine, line in question.diff if mine == kind)
        assert shown and [line.strip() for line in shown.splitlines()] == [line.strip() for line in code.splitlines()]


def test_another_kernel_tells_the_same() -> None:
    right, wrong = places(FIRST)
    give(FIRST, wrong[0])
    before = give(FIRST, right)
    events = [(event.name, event.data, event.version) for event in store().events("answer")]
    assert events == [
        (f"05.museum.{FIRST.id}", {"given": given, "right": given == right}, FIRST.version)
        for given in (wrong[0], right)
    ]
    again = diagnoses()[FIRST.id]  # as it is read after a restart
    reply = ExhibitSheet([again]).receive({"kind": "hello"})
    assert reply == {"kind": "state", "questions": {FIRST.name: before}, "notices": []}


def test_after_two_wrong_causes_the_answer_can_be_asked_for() -> None:
    right, wrong = places(FIRST)
    assert not give(FIRST, wrong[0])["mayAsk"] and give(FIRST, wrong[1])["mayAsk"]
    reply = ExhibitSheet([FIRST]).receive({"kind": "show", "question": FIRST.name})
    assert reply is not None
    state = reply["questions"][FIRST.name]
    assert text_of(state["answer"][0]) == FIRST.choices[right].text.replace("`", "")
    assert not state["right"] and state["explanation"][-1] == FIRST.diff[-1]


def test_it_counts_for_no_notebook_and_no_warm_up_and_goes_when_the_notebook_is_reset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = record_displays(monkeypatch)
    of_the_course = {question.name for name in notebooks_with_questions() for question in load_bank(name).questions}
    assert not of_the_course & {question.name for question in QUESTIONS.values()}
    before = standings()
    for question in QUESTIONS.values():
        give(question, places(question)[1][0])
    assert standings() == before and store().events("notebook") == []
    warm_up("06")
    assert outputs[-1]["text/plain"] == NOTHING_YET
    assert all(notebook_of(question.name) == "05" for question in QUESTIONS.values())
    store().reset("05")
    assert ExhibitSheet([FIRST]).states()[FIRST.name]["given"] is None


# What stays in the kernel.


def plain(text: str) -> str:
    """What is read of HTML, of JSON or of a text with marks."""
    return " ".join(re.sub(r"[`*]|\\(?=\")", "", html.unescape(re.sub(r"</?\w+[^<>]*>", "", text))).split())


def leaks(question: Diagnosis, text: str) -> list[str]:
    """What stands in `text` and nobody may read before an answer."""
    whys = [choice.why for choice in question.choices if choice.why]
    secrets = [question.explanation, *whys, *(line for _, line in question.diff)]
    return [secret for secret in secrets if plain(secret) in plain(text)]


def test_neither_the_page_nor_the_state_of_the_widget_has_anything_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = record_displays(monkeypatch)
    for question in QUESTIONS.values():
        diagnose(question.id)
        output = outputs.pop()
        assert set(output) == {"text/html", "text/plain", "application/vnd.jupyter.widget-view+json"}
        assert output["text/plain"].startswith(f"Exhibit “{question.id}”: {question.exhibit.title}\n\nWhat")
        widget = QuestionsWidget(ExhibitSheet([question]), "Exhibit")
        state = {name: value for name, value in widget.get_state().items() if name not in ("_esm", "_css")}
        assert [len(asked["offered"]) for asked in state["questions"]] == [len(question.choices)]
        for text in (output["text/html"], output["text/plain"], json.dumps(state, default=str, ensure_ascii=False)):
            assert leaks(question, text) == [] and plain(question.exhibit.cause) in plain(text)


def test_the_key_is_in_no_saved_notebook(tmp_path: Path) -> None:
    line = f'from course_lib.study.diagnose import diagnose\ndiagnose("{FIRST.id}")'
    notebook = nbformat.read(write_notebook(tmp_path / "museum.ipynb", line), as_version=4)
    NotebookClient(notebook, timeout=120).execute()  # keeps the state of widgets, as a careless page would
    for model in next(iter(notebook.metadata.widgets.values()))["state"].values():
        for code in ("_esm", "_css"):
            model["state"].pop(code, None)
    saved = json.dumps(notebook, ensure_ascii=False)
    assert saved.count("What is the cause?") >= 2
    assert leaks(FIRST, saved) == []


def test_the_notebook_shows_every_exhibit_and_has_nothing_of_a_key() -> None:
    notebook = nbformat.read(NOTEBOOKS / f"{NOTEBOOK}.ipynb", as_version=4)
    outputs = [output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", [])]
    shown = plain("\n".join(text for data in outputs for kind, text in data.items() if kind.startswith("text/")))
    for question in QUESTIONS.values():
        assert plain(question.exhibit.cause) in shown, f"{question.id} is not asked"
        assert leaks(question, shown) == [], question.id


def test_who_opens_another_notebook_does_not_wait_for_the_engine_to_be_imported() -> None:
    code = "import sys, course_lib.study.diagnose; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# What is refused.


@pytest.mark.parametrize("name", ["", "no_such", FIRST.id.upper(), f"{FIRST.id}s", "x" * 10_000, None, 5, ["a"]])
def test_a_name_that_is_none_gets_the_names_that_there_are(name: Any) -> None:
    with pytest.raises(BadQuestions) as caught:
        diagnose(name)
    said = str(caught.value)
    assert said.startswith("there is no exhibit ") and len(said) < 1500
    assert all(exhibit.name in said for exhibit in EXHIBITS)


def test_a_name_that_is_nearly_right_gets_the_one_that_was_meant() -> None:
    with pytest.raises(BadQuestions, match=f"did you mean {FIRST.id}?"):
        diagnose(f"{FIRST.id}s")


def broken_copy(folder: Path, text: str) -> Path:
    path = folder / "causes.toml"
    path.write_text(text, encoding="utf-8")
    return path


TEXT = CAUSES.read_text(encoding="utf-8")
PARTS = TEXT.split("[[exhibit]]\n")
ONE = "[[exhibit]]\n" + PARTS[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace(ONE, ""), f"causes.toml: has nothing for {FIRST.id}; write [[exhibit]] for each"),
        (TEXT + "\n" + ONE, f"“{FIRST.id}” stands there twice"),
        (TEXT.replace(f'name = "{FIRST.id}"', f'name = "{FIRST.id}s"'), f"did you mean {FIRST.id}?"),
        (TEXT.replace("cause = ", "reason = ", 1), "reason: is not known here"),
        (TEXT.replace("why = ", "because = ", 1), "because: is not known here"),
        (TEXT.replace(ONE, ONE.split("[[exhibit.wrong]]")[0] + "\n"), "there should be three or four wrong causes"),
        (
            TEXT.replace(ONE, ONE + f"\n[[exhibit.wrong]]\ncause = {json.dumps(FIRST.exhibit.cause)}\nwhy = 'No.'\n"),
            "is the exhibit's own cause, or an earlier one",
        ),
        ("[[exhibit]\n", "is not TOML"),
    ],
)
def test_a_file_with_a_fault_is_refused_with_a_sentence(text: str, said: str, tmp_path: Path) -> None:
    assert diagnoses(broken_copy(tmp_path, TEXT)) == QUESTIONS
    with pytest.raises(BadQuestions) as caught:
        diagnoses(broken_copy(tmp_path, text))
    assert said in str(caught.value) and caught.value.args[0].startswith("causes.toml")
