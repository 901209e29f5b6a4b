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
    with pytest.raises(UnknownCheck, match="There is no check “.*”. Did you mean “ex03.append”"):
        check_named(name)


def edited(folder: Path, text: str | bytes) -> Path:
    (folder / "ex03_append.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


def test_an_edited_text_is_what_is_shown(tmp_path: Path) -> None:
    text = exercise(NAME, edited(tmp_path, GOOD.replace("What has to be remembered", "What  should\nyou remember")))
    assert text.hints[0].startswith("What should you remember from one call to the next")


HINTS = re.search(r"hints = \[.*?^\]", GOOD, re.DOTALL | re.MULTILINE).group()  # type: ignore[union-attr]
BAD = {
    "no TOML": (GOOD + "\nhints = [", "is no TOML: "),
    "a doubled field": (GOOD + '\nsolution = "x"', "is no TOML: "),
    "not UTF-8": (GOOD.encode("utf-16"), "is no TOML: "),
    "an empty file": ("", "the field 'name' needs a text, not None"),
    "no statement": (re.sub(r'statement = """.*?"""', "", GOOD, flags=re.DOTALL), "the field 'statement' needs a text"),
    "an empty statement": (re.sub(r'statement = """.*?"""', 'statement = " "', GOOD, flags=re.DOTALL), "'statement'"),
    "no solution": (re.sub(r"solution = .*", "", GOOD), "the field 'solution' needs a text, not None"),
    "a solution that is a number": (re.sub(r"solution = .*", "solution = 3", GOOD), "'solution' needs a text, not 3"),
    "another name": (GOOD.replace('"ex03.append"', '"ex04.append"'), "the field 'name' must be 'ex03.append'"),
    "a misspelt field": (GOOD.replace("hints =", "hint ="), "there is no field 'hint'; write ['hints']"),
    "no hints": (GOOD.replace(HINTS, ""), "the field 'hints' needs a list of 3 texts, not None"),
    "two hints": (GOOD.replace(HINTS, 'hints = ["a", "b"]'), "the field 'hints' needs a list of 3 texts, not 2"),
    "one text": (GOOD.replace(HINTS, 'hints = "abc"'), "the field 'hints' needs a list of 3 texts, not 'abc'"),
    "an empty hint": (GOOD.replace(HINTS, 'hints = ["a", " ", "c"]'), "hint 2 of the field 'hints' needs a text"),
    "a hint that is a list": (GOOD.replace(HINTS, 'hints = ["a", "b", ["c"]]'), "hint 3 of the field 'hints'"),
}


@pytest.mark.parametrize(("text", "said"), BAD.values(), ids=BAD)
def test_a_text_that_cannot_be_used_names_file_and_field(text: str | bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(BadExercise) as refused:
        exercise(NAME, edited(tmp_path, text))
    assert str(refused.value).startswith("ex03_append.toml") and said in str(refused.value)
