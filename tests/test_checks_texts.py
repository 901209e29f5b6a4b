"""The texts of exercises: what an instructor may edit, and what they are told when it cannot be used."""

import re
from pathlib import Path

import pytest

from course_lib.checks import FOLDER, BadExercise, UnknownCheck, check_named, exercise, names

NAME = "ex03.append"
GOOD = (FOLDER / "ex03_append.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", names())
def test_every_check_has_its_three_parts_and_its_text(name: str) -> None:
    check, text = check_named(name), exercise(name)
    assert check.CALL.startswith(f"{check.FUNCTION}(") and check.CALL in text.statement
    assert check.TOLERANCE and check.NOT_CHECKED
    assert callable(check.draw) and callable(check.run) and callable(check.judge)
    assert check.run.__module__.startswith("course_lib.checks.runs.")  # importable without the judge
    assert len(text.hints) == len(set(text.hints)) == 3
    assert all("\n" not in words and "  " not in words for words in (text.statement, *text.hints, text.solution))


def test_there_is_the_check_of_notebook_03() -> None:
    assert NAME in names()
    assert (
        exercise(NAME).solution == "the folded part “Worked solution” below the exercise, in notebook 03_the_kv_cache"
    )


@pytest.mark.parametrize(
    "name", ["ex03.apend", "ex03", "ex03_append", "../ex03.append", "ex03.append.toml", "", None, 3]
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str) -> None:
    with pytest.raises(UnknownCheck, match="There is no check “.*”. Did you mean “ex.*”?") as refused:
        check_named(name)
    assert "p" not in str(name) or "“ex03.append”" in str(refused.value)


def edited(folder: Path, text: str | bytes) -> Path:
    (folder / "ex03_append.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_an_edited_text_is_what_is_shown(tmp_path: Path) -> None:
    text = exercise(NAME, edited(tmp_path, GOOD.replace("What has to be remembered", "What  should\nyou remember")))
    assert text.hints[0].startswith("What should you remember from one call to the next")


HINTS = re.search(r"hints = \[.*?^\]", GOOD, re.DOTALL | re.MULTILINE).group()  # type: ignore[union-attr]
BAD = {
    "no TOML": (GOOD + "\nhints = [", "is not TOML: "),
    "a doubled field": (GOOD + '\nsolution = "x"', "is not TOML: "),
    "not UTF-8": (GOOD.encode("utf-16"), "line 1 is not UTF-8"),
    "far too long": (GOOD + "#" * 1_000_000, "is larger than"),
    "nested without end": (GOOD + "\nx = " + "[" * 20_000, "nested too deep"),
    "a number without end": (GOOD + "\nx = " + "9" * 5000, "digits"),
    "a number without end that is refused later": (
        re.sub(r"solution = .*", "solution = 0x" + "9" * 5000, GOOD),
        "number",
    ),
    "an empty file": ("", 'name: is missing; write name = "…"'),
    "no statement": (re.sub(r'statement = """.*?"""', "", GOOD, flags=re.DOTALL), "statement: is missing"),
    "an empty statement": (
        re.sub(r'statement = """.*?"""', 'statement = " "', GOOD, flags=re.DOTALL),
        "statement: is em",
    ),
    "no solution": (re.sub(r"solution = .*", "", GOOD), "solution: is missing"),
    "a solution that is a number": (re.sub(r"solution = .*", "solution = 3", GOOD), "solution: should be text in quot"),
    "another name": (
        GOOD.replace('"ex03.append"', '"ex04.append"'),
        "name: must be “ex03.append”, as the file is called",
    ),
    "a misspelt field": (GOOD.replace("hints =", "hint ="), "hint: is not known here; did you mean hints?"),
    "no hints": (GOOD.replace(HINTS, ""), "hints: should be a list of texts"),
    "two hints": (GOOD.replace(HINTS, 'hints = ["a", "b"]'), "hints: should be 3 texts, not 2"),
    "one text": (GOOD.replace(HINTS, 'hints = "abc"'), "hints: should be a list of texts"),
    "an empty hint": (GOOD.replace(HINTS, 'hints = ["a", " ", "c"]'), "hints, number 2: is empty"),
    "a hint that is a list": (GOOD.replace(HINTS, 'hints = ["a", "b", ["c"]]'), "hints, number 3: should be text"),
}


def test_a_mark_at_the_beginning_that_some_editors_write_is_no_error(tmp_path: Path) -> None:
    assert exercise(NAME, edited(tmp_path, GOOD.encode("utf-8-sig"))) == exercise(NAME)


def test_a_folder_of_that_name_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "ex03_append.toml").mkdir()
    with pytest.raises(BadExercise, match="^ex03_append.toml: cannot be read"):
        exercise(NAME, tmp_path)


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_text_that_cannot_be_used_names_file_and_field(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadExercise) as refused:
        exercise(NAME, edited(tmp_path, text))
    assert str(refused.value).startswith("ex03_append.toml") and said in str(refused.value)
