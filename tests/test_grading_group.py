"""A class is marked several at once: what one gets depends on nobody else, and a stopped run goes on."""

import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from small_assignment import (
    ASSIGNMENT,
    KEY,
    QUICK,
    RIGHT,
    RUN,
    STARTER,
    STEM,
    WRONG,
    Double,
    handed_in,
    needs_sandbox,
    notebook,
    use_small_check,
)

from course_lib.grading.group import (
    BadKey,
    Records,
    Result,
    Room,
    made_with,
    mark_class,
    processors,
    secret_key,
    sensible_jobs,
)
from course_lib.grading.handed_in import Class, HandedIn
from course_lib.grading.record import plain
from course_lib.grading.session import Session

EXIT = "import os\nos._exit(3)"
FORKS = "import os\nfor _ in range(200): os.fork()"
CLASS: dict[str, list[Any]] = {
    "ada": [RIGHT],
    "bob": [EXIT, EXIT],
    "cy": [WRONG],
    "dot": ["while True: pass"],
    "eve": [FORKS, RIGHT],
    "fay": [STARTER],
    "gus": ["x = [0] * 10**10", RIGHT],
}
EARNED = {"ada": 4, "bob": 0, "cy": 1, "dot": 0, "eve": 4, "fay": 0, "gus": 4}


class SmallRoom(Room):
    """A room that holds the inner part of the small check, too."""

    def __init__(self, rules_out: Any = ("course_lib.caches",), *, trusted: bool = False) -> None:
        super().__init__(rules_out, trusted=trusted)
        (self.course / "course_lib/checks/runs" / f"{STEM}.py").write_text(RUN)


@pytest.fixture(autouse=True)
def small_check(monkeypatch: pytest.MonkeyPatch) -> None:
    use_small_check(monkeypatch)


def class_of(folder: Path, notebooks: dict[str, list[Any]]) -> list[HandedIn]:
    folder.mkdir(exist_ok=True)
    for name, cells in notebooks.items():
        handed_in(folder, notebook(*cells), f"{name}.ipynb")
    return Class([folder], [ASSIGNMENT.name]).handed_in(ASSIGNMENT.name, {})


def records_for(folder: Path, found: list[HandedIn], key: bytes = KEY, assignment: Any = ASSIGNMENT) -> Records:
    return Records(folder / "results", made_with(assignment, key, trusted=False), [each.student for each in found])


def results(found: list[HandedIn], records: Records | None = None, **options: Any) -> dict[str, Result]:
    with SmallRoom() as room:
        done = mark_class(found, ASSIGNMENT, KEY, room, records, **{"limits": QUICK} | options)
        return {result.handed_in.student: result for result in done}


def begun(room: Room) -> list[Session]:
    """What runs in a room, as soon as anything does."""
    for _ in range(3000):
        if running := [session for session in room.sessions if not session.why]:
            return running
        time.sleep(0.01)
    return []


def content(result: Result) -> dict[str, Any]:
    """All of the marks but what they cost."""
    assert result.marks, result.why_not
    return plain(replace(result.marks, seconds=0.0, peak_bytes=0))


@pytest.fixture(scope="module")
def two_ways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[dict[str, Result], dict[str, Result]]]:
    """The class marked one after the other, and backwards with as many at once as there are processors."""
    with pytest.MonkeyPatch.context() as patch:
        use_small_check(patch)
        found = class_of(tmp_path_factory.mktemp("class"), CLASS)
        yield results(found), results(found[::-1], jobs=max(2, processors()))


@needs_sandbox
def test_marks_depend_on_nobody_else_and_on_no_order(two_ways: tuple[dict[str, Result], dict[str, Result]]) -> None:
    one_by_one, at_once = two_ways
    assert {name: result.marks and result.marks.earned for name, result in one_by_one.items()} == EARNED
    for name in CLASS:
        assert content(one_by_one[name]) == content(at_once[name])


@needs_sandbox
def test_what_each_cost_is_known(two_ways: tuple[dict[str, Result], dict[str, Result]]) -> None:
    for result in two_ways[1].values():
        assert result.marks and result.marks.seconds > 0
        assert result.marks.peak_bytes > 0


@needs_sandbox
def test_a_second_run_marks_only_what_is_new_or_follows_from_something_else(tmp_path: Path) -> None:
    three = {"ada": [RIGHT], "cy": [RIGHT], "fay": [STARTER]}

    def run(**options: Any) -> dict[str, bool]:
        found = class_of(tmp_path / "class", three)
        return {name: one.kept for name, one in results(found, records_for(tmp_path, found), **options).items()}

    assert run() == {"ada": False, "cy": False, "fay": False}
    before = (tmp_path / "results/ada.json").read_bytes()
    assert run() == {"ada": True, "cy": True, "fay": True}
    three["fay"] = [RIGHT]
    assert run() == {"ada": True, "cy": True, "fay": False}
    assert json.loads((tmp_path / "results/fay.json").read_bytes())["marks"]["earned"] == 4
    (tmp_path / "results/ada.json").write_bytes(before[: len(before) // 2])
    (tmp_path / "results/cy.json").write_bytes(before)  # the marks of somebody else
    assert run() == {"ada": False, "cy": False, "fay": True}
    assert not any(run(again=True).values())
    for key, assignment in ((KEY + b"!", ASSIGNMENT), (KEY, replace(ASSIGNMENT, title="Twice"))):
        found = class_of(tmp_path / "class", {})
        assert [records_for(tmp_path, found, key, assignment).kept(each) for each in found] == [None] * 3


@needs_sandbox
def test_who_stops_loses_only_what_was_running_and_goes_on_with_the_rest(tmp_path: Path) -> None:
    slow = "import subprocess, time\ntime.sleep(600)"
    found = class_of(tmp_path / "class", {"ada": [RIGHT], "bob": [slow, RIGHT], "cy": [RIGHT]})
    records = records_for(tmp_path, found)
    limits = replace(QUICK, cell_s=40)
    with SmallRoom() as room:
        with closing(mark_class(found, ASSIGNMENT, KEY, room, records, jobs=1, limits=limits)) as marking:
            assert next(marking).handed_in.student == "ada"
            running = begun(room)
        assert [session.why for session in running] == ["was stopped"]
        assert [child for child in psutil.Process().children(recursive=True) if child.name() == "bwrap"] == []
    assert not room.folder.exists()
    assert os.listdir(tmp_path / "results") == ["ada.json"]
    (tmp_path / "class/bob.ipynb").unlink()
    found = class_of(tmp_path / "class", {})
    kept = results(found, records_for(tmp_path, found), limits=limits)
    assert {name: result.kept for name, result in kept.items()} == {"ada": True, "cy": False}


@needs_sandbox
def test_what_ends_after_the_stop_is_not_kept(tmp_path: Path) -> None:
    found = class_of(tmp_path / "class", {"ada": [RIGHT], "bob": ["import time\ntime.sleep(1)", RIGHT]})
    with SmallRoom() as room:
        marking = mark_class(found, ASSIGNMENT, KEY, room, records_for(tmp_path, found), limits=QUICK)
        assert next(marking).marks
        assert begun(room)
        room.stopped.set()
        assert [result.why_not for result in marking] == ["It was stopped."]
    assert os.listdir(tmp_path / "results") == ["ada.json"]


@needs_sandbox
@pytest.mark.parametrize("error", [ZeroDivisionError, SystemExit])
def test_a_defect_of_ours_is_no_mark_and_stops_nobody(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, calls = Double.draw, []

    def draws_once_wrong(seed: int) -> dict[str, Any]:
        calls.append(seed)
        if len(calls) == 1:
            raise error("a defect")
        return draw(seed)

    monkeypatch.setattr(Double, "draw", staticmethod(draws_once_wrong))
    found = class_of(tmp_path / "class", {"ada": [RIGHT], "cy": [RIGHT]})
    came = results(found, records_for(tmp_path, found))
    assert came["ada"].why_not == f"Marking it failed: {error.__name__}: a defect." and came["ada"].marks is None
    assert not came["ada"].in_order and came["cy"].in_order and content(came["cy"])["earned"] == 4
    assert os.listdir(tmp_path / "results") == ["cy.json"]


@needs_sandbox
def test_a_judge_that_fails_is_told_to_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Double, "judge", staticmethod(lambda inputs, outputs: 1 / 0))
    came = results(class_of(tmp_path / "class", {"ada": [RIGHT]}))
    assert not came["ada"].in_order and came["ada"].why_not == ""


@needs_sandbox
def test_without_a_working_sandbox_nothing_is_worth_0_points(tmp_path: Path) -> None:
    found = class_of(tmp_path / "class", {"ada": [RIGHT]})
    with Room(("course_lib.caches",)) as without_the_check:
        (came,) = mark_class(found, ASSIGNMENT, KEY, without_the_check, records_for(tmp_path, found), limits=QUICK)
    assert came.marks is None and "cannot be run in the sandbox" in came.why_not
    assert os.listdir(tmp_path / "results") == []


def test_what_cannot_be_marked_is_told_without_a_sandbox() -> None:
    found = [HandedIn("ada", trouble="x.ipynb is a link."), HandedIn("bob", said=("Nothing was handed in.",))]
    with Room(trusted=True) as room:
        came = {result.handed_in.student: result for result in mark_class(found, ASSIGNMENT, KEY, room)}
    assert (came["ada"].why_not, came["ada"].in_order) == ("x.ipynb is a link.", False)
    assert (came["bob"].why_not, came["bob"].in_order) == ("", True)


def test_the_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "grades" / "grading.key"
    key = secret_key(path)
    assert len(key) == 64 and secret_key(path) == key != secret_key(tmp_path / "other.key")
    assert os.listdir(path.parent) == ["grading.key"]
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text("secret\n")
    with pytest.raises(BadKey, match="has 6 bytes; it needs 16 or more"):
        secret_key(path)


def test_no_more_at_once_than_there_are_processors_and_memory() -> None:
    assert 1 <= sensible_jobs() <= processors()
    assert sensible_jobs(replace(QUICK, memory_bytes=psutil.virtual_memory().total)) == 1
