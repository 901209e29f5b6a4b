"""Files that are made to keep whoever grades waiting: how much of them is looked at."""

from pathlib import Path
from typing import Any

import pytest
from test_grading_handed_in import found, lay

from course_lib.grading import handed_in as looking
from course_lib.grading import submission as reading
from course_lib.grading.handed_in import Class


def test_of_many_notebooks_one_is_parsed_and_little_of_the_others_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking, "MOST_LOOKED_AT", 1_000)
    monkeypatch.setattr(looking, "MOST_OF_STUDENT", 1_500)
    lay(tmp_path, *(f"ada/ex99-{number}.ipynb" for number in range(5)))
    parsed, looked_at, content, says = [], [], looking.content, Class.says
    monkeypatch.setattr(looking, "content", lambda path: parsed.append(path.name) or content(path))
    monkeypatch.setattr(Class, "says", lambda *about: looked_at.append(len(about[1])) or says(*about))
    ada = found(tmp_path)["ada"]
    assert ada.path == tmp_path / "ada/ex99-4.ipynb" and "was told by names alone" in ada.said[0]
    assert parsed == ["ex99-4.ipynb"] and looked_at == [1_000, 500, 1, 1, 1]


def test_what_has_no_outputs_and_still_has_no_end_is_left_at_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MOST_PARTS", 1_000)
    monkeypatch.setattr(reading, "MOST_WALKED", 3_000)
    walked = []

    class Counted:
        def __init__(self, pattern: Any, how: str) -> None:
            self.find = getattr(pattern, how)

        def search(self, raw: bytes, at: int) -> Any:
            walked.append(at)
            return self.find(raw, at)

        match = search

    monkeypatch.setattr(reading, "TOKEN", Counted(reading.TOKEN, "search"))
    monkeypatch.setattr(reading, "BRACKET", Counted(reading.BRACKET, "match"))
    for content, most, why in (
        ('{"cells":[' + "[]" * 100_000, 2_010, "larger than any notebook"),
        ('{"cells":[{"outputs":[' + "[]" * 100_000, 3_000, "outputs have far more parts than any notebook's"),
        ('{"cells":[{"outputs":[' + "[]," * 100 + '"["' * 100_000 + "]}]", 300, "cannot be read as JSON"),
    ):
        (tmp_path / "ada.ipynb").write_text(content)
        walked.clear()
        assert why in found(tmp_path)["ada"].not_a_notebook and len(walked) <= most, why
