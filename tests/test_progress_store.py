"""What the progress store promises while nothing is broken: order, resets, clocks, versions, cheap imports."""

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from course_lib.progress import Event, Store, data_folder, event, notebook_of, store
from course_lib.progress.one_file import connect, examine
from course_lib.progress.two_files import COPY, MAIN, TwoFiles

Clock = Callable[[str], None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Set the clock of new events. (The clock of the machine is nobody's to set.)"""

    def stands_at(day: str) -> None:
        monkeypatch.setattr(event, "now", lambda: datetime.fromisoformat(f"{day}T12:00:00+00:00"))

    return stands_at


def test_what_is_recorded_comes_back_in_another_process_whole_and_in_order(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    recorded = [
        mine.record("answer", "03.queries_cached", {"given": [1, 0], "right": False}, version="0a1b2c3d"),
        mine.record("prediction", "03.keys_that_change", {"value": 1.5, "unit": "MiB"}),
        mine.record("check", "ex03.append", {"passed": True, "cases": {"two rows": True, "“é” \u0000 \ud800": False}}),
        mine.record("hint", "ex03.append", {"number": 1}),
        mine.record("skip", "03", {}),
        mine.record("notebook", "03", {}),
    ]
    assert len({one.id for one in recorded}) == 6
    for one in recorded:
        assert datetime.fromisoformat(one.at).tzinfo == UTC
        assert abs(datetime.now(UTC) - datetime.fromisoformat(one.at)) < timedelta(minutes=5)
    program = (
        "import sys; from pathlib import Path; from course_lib.progress import Store\n"
        "for event in Store(Path(sys.argv[1])).events(): print(ascii(event))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [ascii(one) for one in recorded]
    assert mine.events("hint") == [recorded[3]]
    assert mine.events(name="ex03.append") == recorded[2:4]
    assert mine.events("check", "ex03.append") == [recorded[2]]
    assert mine.notices() == []


def test_each_event_lies_in_both_files_with_the_disk_asked_to_keep_it(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    recorded = [mine.record("answer", "03.x", {"right": True}) for _ in range(3)]
    for name in (MAIN, COPY):
        found = examine(tmp_path / name)
        assert (found.state, found.events) == ("sound", recorded)
    files = TwoFiles(tmp_path)
    with closing(files._open()) as db:
        for schema in ("main", "copy"):
            assert db.execute(f"PRAGMA {schema}.synchronous").fetchone() == (3,), "EXTRA: also the folder is synced"
            assert db.execute(f"PRAGMA {schema}.journal_mode").fetchone() == ("delete",)


def test_neither_making_a_store_nor_reading_it_makes_a_file(tmp_path: Path) -> None:
    mine = Store(tmp_path / "not yet")
    assert (mine.events(), mine.history(), mine.notices()) == ([], [], [])
    assert not (tmp_path / "not yet").exists()


def test_the_store_is_light_enough_for_a_command() -> None:
    program = (
        "import sys\nimport course_lib.progress, course_lib.progress.summary, course_lib.progress.transfer\n"
        "heavy = {'torch', 'numpy', 'ipywidgets', 'matplotlib', 'IPython', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_data_folder_is_the_one_in_the_variable_each_time_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        monkeypatch.setenv("COURSE_DATA", str(tmp_path / name))
        assert data_folder() == store().folder == tmp_path / name
        assert store() is store()
        store().record("answer", f"03.{name}", {"right": True})
        assert [one.name for one in store().events()] == [f"03.{name}"]
    monkeypatch.setenv("COURSE_DATA", "~/answers")
    assert data_folder() == Path.home() / "answers"
    monkeypatch.setenv("COURSE_DATA", "~nobody_of_that_name/answers")
    assert data_folder().name == "answers", "no traceback"
    monkeypatch.setenv("COURSE_DATA", "")
    assert data_folder().name == "kv-cache-course"


def test_names_tell_their_notebook() -> None:
    for name in ("03.x", "ex03.append", "03_the_kv_cache", "03"):
        assert notebook_of(name) == "03"
    for name in ("", "warm_up", "3.x", "ex.append", "031", "x03.y"):
        assert notebook_of(name) == ""


NO_EVENTS = {
    "an unknown kind": (("nap", "03.x", {}), "kind 'nap' is unknown"),
    "no name": (("answer", "", {"right": True}), "no name"),
    "a name of two lines": (("answer", "03.x\n", {"right": True}), "cannot be printed"),
    "a name that a terminal obeys": (("answer", "03.\x1b[2J", {"right": True}), "cannot be printed"),
    "a name that is no UTF-8": (("answer", "03.\ud800", {"right": True}), "cannot be printed"),
    "a long name": (("answer", "3" * 201, {"right": True}), "too long"),
    "an answer neither right nor wrong": (("answer", "03.x", {"given": 1}), "'right': true or false"),
    "an answer that is 1": (("answer", "03.x", {"right": 1}), "'right': true or false"),
    "a check without a verdict": (("check", "ex03.x", {}), "'passed': true or false"),
    "a prediction of nothing": (("prediction", "03.x", {"unit": "s"}), "finite number"),
    "a prediction without end": (("prediction", "03.x", {"value": float("inf")}), "not plain JSON"),
    "a prediction that is enormous": (("prediction", "03.x", {"value": 10**400}), "finite number"),
    "an undoing of nothing": (("undo", "03", {}), "'reset': the id of a reset"),
    "an undoing of what is no id": (("undo", "", {"reset": ["0" * 32]}), "'reset': the id of a reset"),
    "an object": (("answer", "03.x", {"right": True, "given": object()}), "not plain JSON"),
    "a long story": (("answer", "03.x", {"right": True, "given": "x" * 20_001}), "too large"),
}


@pytest.mark.parametrize(("arguments", "named"), NO_EVENTS.values(), ids=NO_EVENTS)
def test_what_could_not_be_exported_is_not_recorded(tmp_path: Path, arguments: tuple, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Store(tmp_path).record(*arguments)
    assert Store(tmp_path).history() == []


# --- order and clocks -------------------------------------------------------------------------------------------------


def test_clock_set_back_keeps_the_first_attempt_first_and_its_time_honest(tmp_path: Path, clock: Clock) -> None:
    names = []
    for day in ("2026-03-02", "2026-03-01", "2001-01-01", "2026-03-03"):
        clock(day)
        names.append(day)
        Store(tmp_path).record("answer", "03.x", {"given": day, "right": day == "2026-03-02"})
    events = Store(tmp_path).events()
    assert [one.data["given"] for one in events] == names, "in the order in which they happened"
    assert [one.at[:10] for one in events] == names, "each at the time that its clock showed"
    assert [one.order for one in events] == sorted({one.order for one in events})
    clock("2026-03-04")
    assert Store(tmp_path).record("hint", "ex03.x", {}).order.startswith("2026-03-04"), "the clock is right again"


def test_reset_after_the_clock_was_set_back_hides_what_came_before_it(tmp_path: Path, clock: Clock) -> None:
    clock("2026-03-02")
    Store(tmp_path).record("answer", "03.x", {"right": True})
    clock("2026-03-01")
    Store(tmp_path).reset("03")
    assert Store(tmp_path).events() == []
    later = Store(tmp_path).record("answer", "03.x", {"right": False})
    assert Store(tmp_path).events() == [later]


@pytest.mark.parametrize("day", ["1970-01-01", "9998-12-31"])
def test_no_clock_is_so_wrong_that_an_answer_is_lost(tmp_path: Path, clock: Clock, day: str) -> None:
    clock(day)
    recorded = [Store(tmp_path).record("answer", "03.x", {"right": True}) for _ in range(3)]
    assert Store(tmp_path).events() == recorded


# --- resets -----------------------------------------------------------------------------------------------------------


def test_reset_hides_one_notebook_or_all_and_deletes_nothing(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    for kind, name in (("answer", "02.x"), ("answer", "03.x"), ("check", "ex03.append"), ("notebook", "03")):
        mine.record(kind, name, {"right": True, "passed": True})
    mine.reset("03_the_kv_cache")
    assert [one.name for one in mine.events()] == ["02.x"]
    again = mine.record("answer", "03.x", {"right": False})
    assert [one.name for one in mine.events()] == ["02.x", "03.x"]
    assert mine.events("reset") == [], "a reset is nothing that a learner did in the course"
    mine.reset(None)
    assert mine.events() == []
    assert len(mine.history()) == 7 and again in mine.history()
    with pytest.raises(ValueError, match="no notebook 'three'"):
        mine.reset("three")
    assert len(mine.history()) == 7


def test_undoing_a_reset_shows_again_what_it_hid_and_deletes_nothing(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    assert mine.undo("03") is None and mine.undo(None) is None and mine.history() == []
    first = mine.record("answer", "03.x", {"right": True})
    other = mine.record("answer", "02.x", {"right": True})
    reset = mine.reset("03")
    second = mine.record("answer", "03.x", {"right": False})
    mine.reset("03")
    assert mine.events() == [other]
    mine.undo("03_the_kv_cache")
    assert mine.events() == [other, second]
    undo = mine.undo("03")
    assert undo is not None and undo.data == {"reset": reset.id}
    assert mine.events() == [first, other, second] and mine.events("undo") == []
    assert mine.undo("03") is None and mine.undo(None) is None
    mine.reset(None)
    assert mine.events() == [] and mine.undo("03") is None
    mine.undo(None)
    mine.reset("03")
    assert mine.events() == [other], "a reset after an undoing is a new one"
    assert len(mine.history()) == 10
    with pytest.raises(ValueError, match="no notebook 'three'"):
        mine.undo("three")


def test_an_undoing_hits_the_reset_it_names_wherever_a_merge_puts_the_two(tmp_path: Path, clock: Clock) -> None:
    clock("2026-03-02")
    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    answer = mine.record("answer", "03.x", {"right": True})
    mine.reset("03")
    clock("2026-03-03")
    other.reset("03")
    clock("2026-03-04")
    other.undo("03")
    mine.add(other.history())
    assert mine.events() == [], "the reset that was taken back is not mine"
    mine.undo("03")
    assert mine.events() == [answer]


# --- one process, several threads -------------------------------------------------------------------------------------


def test_threads_of_one_kernel_lose_nothing(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    recorded: list[Event] = []

    def work() -> None:
        recorded.extend(mine.record("answer", "03.x", {"right": True}) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(recorded) == 30
    assert {one.id for one in Store(tmp_path).events()} == {one.id for one in recorded}


def test_store_that_is_held_open_writes_where_the_files_are_now(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    first = mine.record("answer", "03.x", {"right": True})
    for name in (MAIN, COPY):
        (tmp_path / name).unlink()
    second = mine.record("answer", "03.x", {"right": True})
    assert mine.events() == Store(tmp_path).events() == [second] != [first], "both files were deleted by hand"
    with closing(connect(tmp_path / MAIN)) as db:
        assert db.execute("SELECT count(*) FROM events").fetchone() == (1,)
