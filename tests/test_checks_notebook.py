"""What `check` and `hint` say to a learner, what they record, and that nothing of it ends a notebook's run."""

import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from small_notebooks import nothing, saver
from variants import function, variants

from course_lib.checks import check_named, exercise
from course_lib.checks.contract import Line, Verdict
from course_lib.commands.kernels import CourseKernels, execute, read_notebook
from course_lib.progress import Store, store
from course_lib.quizzes.bank import load_bank
from course_lib.study.check import Shown, checked, hint, hinted, marked, recorded, report

module = importlib.import_module("course_lib.study.check")  # `course_lib.study.check` is the function
NOTEBOOKS = sorted((Path(__file__).resolve().parents[1] / "notebooks").glob("*.ipynb"))
NAME = "ex03.append"
ALL, RIGHT, WRONG = (getattr(variants(NAME), which) for which in ("ALL", "RIGHT", "WRONG"))


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder for each test."""
    monkeypatch.setenv("COURSE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(module, "unsaved_hints", {})
    return tmp_path / "data"


def judged(source: str) -> Shown:
    return checked(NAME, function(source))


def checks() -> list[dict[str, Any]]:
    return [event.data for event in store().events("check", NAME)]


def test_a_pass_names_every_case_and_what_was_not_checked_and_is_recorded() -> None:
    shown = judged(RIGHT["NumPy"])
    lines = shown.text.splitlines()
    assert lines[0] == "ex03.append: 10 cases passed."
    assert {line.removeprefix("  passed  ") for line in lines[1:11]} == ALL
    assert lines[11:] == [
        "Tolerance: none. A cache copies numbers and computes nothing, so what comes out equals what went in.",
        f"Not checked: {check_named(NAME).NOT_CHECKED}.",
    ]
    assert checks() == [{"passed": True, "cases": dict.fromkeys(ALL, True)}]
    assert "error-color" not in shown.html and "success-color" in shown.html


def test_a_fail_shows_both_kinds_of_lines_and_is_recorded_case_by_case() -> None:
    shown = judged(WRONG["chunks of 4 reversed"].source)
    wrong = WRONG["chunks of 4 reversed"].fails
    assert shown.text.startswith("ex03.append: 2 of 10 cases failed.\n")
    assert (shown.text.count("  FAILED  "), shown.text.count("  passed  ")) == (2, 8)
    for label in ("Went in: ", "Expected:", "Came out:", "Where:   "):
        assert shown.text.count(f"          {label}") == 2
    assert checks() == [{"passed": False, "cases": {case: case not in wrong for case in ALL}}]
    assert shown.html.count("<details open>") == 1 and shown.html.count("<details>") == 1
    assert shown.html.count("passed: ") == 8 and shown.html.count("failed: ") == 2


def test_each_attempt_draws_other_numbers() -> None:
    """Else an answer could be learnt by heart."""
    source = WRONG["keys and values swapped"].source
    assert judged(source).text != judged(source).text


@pytest.mark.parametrize("body", ["...", "raise NotImplementedError('write me')"])
def test_the_starter_is_told_calmly_and_nothing_is_recorded(body: str, data: Path) -> None:
    shown = judged(f"def append(cache, layer, k, v):\n    {body}")
    assert shown.text.startswith("Not solved yet: `append` is still the starter. Write its body, run its cell")
    assert 'hint("ex03.append")' in shown.text and "fail" not in shown.text and "error-color" not in shown.html
    assert not data.exists()


def test_the_function_is_looked_up_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {}
    monkeypatch.setattr(module, "namespace", lambda: names)
    assert checked(NAME).text == (
        "There is no `append` here yet. Run the cell that defines it, then this one again; or hand your own over, "
        "after the name “ex03.append”."
    )
    names["append"] = [1]
    assert checked(NAME).text.startswith("`append` is a list, not a function.")
    names["append"] = function(RIGHT["lists of parts"])
    assert checked(NAME).text.startswith("ex03.append: 10 cases passed.")
    assert checked(NAME, lambda *given: given).text.startswith("ex03.append: 10 of 10 cases failed.")
    assert [each["passed"] for each in checks()] == [True, False]


@pytest.mark.parametrize("ask", [checked, hinted])
@pytest.mark.parametrize("name", ["ex03.apend", "append", "ex3.append", "", "ex03.append/../x", 7, None])
def test_an_unknown_name_gets_the_nearest_ones(ask: Any, name: Any, data: Path) -> None:
    said = ask(name).text
    assert said.startswith(f"There is no check “{name}”. Did you mean “ex") and said.endswith("”?")
    assert "append" not in str(name) or "“ex03.append”" in said
    assert not data.exists()


def test_hints_come_one_a_call_in_order_and_then_the_way_to_the_solution() -> None:
    texts = exercise(NAME)
    for number, text in enumerate(texts.hints, start=1):
        shown = hinted(NAME).text
        assert shown == f"Hint {number} of 3. {text}"
        assert not any(other in shown for other in texts.hints if other != text)
    for _ in range(2):
        shown = hinted(NAME).text
        assert shown.startswith("You have had all 3 hints") and texts.solution in shown
    assert [event.data["number"] for event in store().events("hint", NAME)] == [1, 2, 3]


def test_hints_go_on_after_a_restart_and_begin_again_after_a_reset(data: Path) -> None:
    hinted(NAME)
    assert [event.data for event in Store(data).events("hint", NAME)] == [{"number": 1}]  # as a new process reads it
    assert hinted(NAME).text.startswith("Hint 2 of 3.")
    store().reset("03")
    assert hinted(NAME).text.startswith("Hint 1 of 3.")


def test_what_cannot_be_saved_is_said_and_everything_else_goes_on(data: Path) -> None:
    data.write_text("a file where the folder should be")
    shown = judged(RIGHT["NumPy"])
    assert shown.text.startswith("ex03.append: 10 cases passed.")
    assert "This result is not saved. " in shown.text and str(data) in shown.text
    for number in (1, 2, 3):
        shown = hinted(NAME)
        assert shown.text.startswith(f"Hint {number} of 3.")
        assert "That you had this hint is not saved. " in shown.text
    assert hinted(NAME).text.startswith("You have had all 3 hints")


def test_a_hint_that_is_not_saved_counts_on_from_those_that_are_and_before_later_ones(data: Path) -> None:
    hinted(NAME)
    aside = data.rename(data.with_name("aside"))
    data.write_text("a file where the folder should be")
    assert hinted(NAME).text.startswith("Hint 1 of 3.")  # nobody can know of the saved one
    data.unlink()
    aside.rename(data)
    assert hinted(NAME).text.startswith("Hint 2 of 3.")
    assert hinted(NAME).text.startswith("Hint 3 of 3.")


def test_a_reset_hides_hints_that_were_not_saved_too(data: Path) -> None:
    data.write_text("a file where the folder should be")
    assert [hinted(NAME).text[:6] for _ in range(2)] == ["Hint 1", "Hint 2"]
    data.unlink()
    store().reset("04")
    assert hinted(NAME).text.startswith("Hint 3 of 3.")
    store().reset("03")
    assert [hinted(NAME).text[:6] for _ in range(2)] == ["Hint 1", "Hint 2"]


def test_hints_that_were_not_saved_belong_to_their_data_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.write_text("a file where the folder should be")
    assert [hinted(NAME).text[:6] for _ in range(2)] == ["Hint 1", "Hint 2"]
    monkeypatch.setenv("COURSE_DATA", str(data.with_name("another")))
    assert hinted(NAME).text.startswith("Hint 1 of 3.")
    monkeypatch.setenv("COURSE_DATA", str(data))
    assert hinted(NAME).text.startswith("Hint 3 of 3.")


def test_a_pass_that_was_the_last_missing_piece_finishes_the_notebook() -> None:
    questions = load_bank("03_the_kv_cache").questions
    for question in questions:
        store().record("answer", question.name, {"given": 0, "right": True}, version=question.version)
    judged(WRONG["heads reversed"].source)
    assert store().events("notebook") == []
    judged(RIGHT["NumPy"])
    assert [event.name for event in store().events("notebook")] == ["03"]


def test_a_result_is_of_the_version_of_its_cases_and_its_call() -> None:
    for cases in (("one",), ("one", "two"), ("one", "two")):
        recorded(NAME, check_named(NAME), Verdict(tuple(Line(case, True) for case in cases)))
    first, second, third = (event.version for event in store().events("check", NAME))
    assert first != second == third


def test_a_repair_of_the_store_is_told_with_the_result(data: Path) -> None:
    judged(RIGHT["NumPy"])
    (data / "progress.sqlite").write_bytes(b"no database" * 100)
    shown = judged(RIGHT["NumPy"])
    assert "damaged" in shown.text and len(checks()) == 2


def test_what_a_learner_wrote_is_text_on_the_page() -> None:
    source = """
        def append(cache, layer, k, v):
            raise ValueError("<script>alert(1)</script> & \\x1b[31m `code` *stars*")
        """
    shown = judged(source)
    assert "<script>" not in shown.html and "&lt;script&gt;alert(1)&lt;/script&gt; &amp;" in shown.html
    assert "\x1b" not in shown.text + shown.html


def test_an_endless_message_is_cut() -> None:
    shown = judged("def append(cache, layer, k, v): raise ValueError('x' * 10**6)")
    assert len(shown.text) < 20_000


def test_marks_become_html_and_nothing_else_does() -> None:
    assert marked("a `b*c*<d>` *e f* 2*3*4 * x") == "a <code>b*c*&lt;d&gt;</code> <em>e f</em> 2<em>3</em>4 * x"


def test_one_case_is_no_cases() -> None:
    shown = report(NAME, check_named(NAME), Verdict((Line("only one", True),)), [])
    assert shown.text.startswith("ex03.append: 1 case passed.")


def test_in_a_notebook_the_text_and_the_html_stand_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert set(judged(RIGHT["NumPy"])._repr_mimebundle_()) == {"text/plain", "text/html"}
    hint(NAME)  # outside of a notebook it prints
    assert capsys.readouterr().out == f"Hint 1 of 3. {exercise(NAME).hints[0]}\n"


STARTER = "def append(cache, layer, k, v):\n    ...\n"
CHECK = "from course_lib.study.check import check, hint\ncheck('ex03.append')"


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real kernel, with a data folder of its own."""
    folder = tmp_path_factory.mktemp("kernel")
    manager = KernelManager(kernel_spec_manager=CourseKernels())
    manager.start_kernel(cwd=str(folder), env=os.environ | {"COURSE_DATA": str(folder / "data")})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    yield manager, client, folder / "data"
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def run_cell(kernel: Any, source: str, interrupt_after: str = "") -> tuple[str, list[str]]:
    """Run a cell; its status, and its texts. Once it has printed `interrupt_after` it is interrupted."""
    manager, client, _ = kernel
    sent, texts = client.execute(source), []
    while True:
        message = client.get_iopub_msg(timeout=120)
        if message["parent_header"].get("msg_id") != sent:
            continue
        kind, content = message["msg_type"], message["content"]
        if kind == "stream":
            texts.append(content["text"])
            if interrupt_after and interrupt_after in content["text"]:
                manager.interrupt_kernel()
        elif kind in ("display_data", "execute_result"):
            assert "text/html" in content["data"]
            texts.append(content["data"]["text/plain"])
        elif kind == "error":
            texts.append("\n".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            return reply_to(client, sent)["status"], texts


def reply_to(client: Any, sent: str) -> dict[str, Any]:
    """The answer to one request. A kernel that was slow to start still answers to who asked whether it is there."""
    while True:
        message = client.get_shell_msg(timeout=120)
        if message["parent_header"].get("msg_id") == sent:
            return message["content"]


def test_in_a_real_notebook_the_whole_way_is_calm(kernel: Any) -> None:
    status, texts = run_cell(kernel, CHECK)
    assert (status, texts[0][:24]) == ("ok", "There is no `append` her")
    assert run_cell(kernel, STARTER) == ("ok", [])
    status, texts = run_cell(kernel, CHECK)
    assert status == "ok" and texts[0].startswith("Not solved yet")
    assert not kernel[2].exists()

    run_cell(
        kernel, "import torch\ndef append(cache, layer, k, v):\n    print('mine')\n    return torch.cat([k, k], 9), v"
    )
    status, texts = run_cell(kernel, CHECK)
    assert status == "ok" and set(texts[0].split()) == {"mine"}  # what they print is theirs
    assert "Your code raised an error in line 4 of append: `return torch.cat([k, k], 9), v`." in texts[-1]
    assert "Traceback" not in texts[-1] and "beside.py" not in texts[-1]

    run_cell(kernel, dedent(RIGHT["lists of parts"]))
    status, texts = run_cell(kernel, CHECK)
    assert status == "ok" and "passed" in texts[0]
    assert [event.data["passed"] for event in Store(kernel[2]).events("check")] == [False, True]


def test_an_interrupt_ends_an_endless_loop_and_is_told(kernel: Any) -> None:
    run_cell(kernel, "def append(cache, layer, k, v):\n    print('looping')\n    while True:\n        pass")
    recorded = len(Store(kernel[2]).events())
    status, texts = run_cell(kernel, CHECK, interrupt_after="looping")
    assert status == "ok"
    said = texts[-1]
    assert said.startswith(("Stopped in line 3 of append: `while True:`.", "Stopped in line 4 of append: `pass`."))
    assert "Nothing was judged or recorded." in said and "Traceback" not in said
    assert len(Store(kernel[2]).events()) == recorded
    assert run_cell(kernel, "print(1 + 1)") == ("ok", ["2\n"])


def test_a_headless_run_shows_the_starter_and_one_hint_and_does_not_wait(tmp_path: Path, data: Path) -> None:
    save = saver(tmp_path)
    done = execute(read_notebook(save(STARTER, CHECK, "hint('ex03.append')")), 120, nothing)
    assert done.error == ""
    said = [output.data["text/plain"] for cell in done.notebook.cells for output in cell.outputs]
    assert [text.split(":")[0].split(".")[0] for text in said] == ["Not solved yet", "Hint 1 of 3"]
    assert not data.exists()  # it ran in a data folder of its own


def test_the_worked_solution_in_notebook_03_passes() -> None:
    notebook = next(path for path in NOTEBOOKS if path.stem == "03_the_kv_cache").read_text(encoding="utf-8")
    cells = [cell.source for cell in nbformat.reads(notebook, as_version=4).cells if "def append(" in cell.source]
    solution = next(source for source in cells if "<summary>Worked solution</summary>" in source)
    code = re.search(r"```python\n(def append\(.*?)```", solution, re.DOTALL)
    assert code is not None
    assert judged(f"import torch\n{code[1]}").text.startswith("ex03.append: 10 cases passed.")
    starter = next(source for source in cells if source.startswith("def append("))
    assert judged(f"import torch\n{starter}").text.startswith("Not solved yet")


def test_every_check_and_hint_in_the_notebooks_exists() -> None:
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            for name in re.findall(r'\b(?:check|hint)\("([^"]*)"', cell.source):
                assert exercise(name).name == name, path.name
