"""Links, folders and pipes in the places of the progress files are put away whole; and what a repair does."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from damaged_files import (
    ASIDE,
    ENTRIES,
    NAMES,
    Damage,
    an_answer_turned,
    assert_good_as_new,
    content_of,
    deleted,
    letter_of_the_schema_changed,
    replaced_by_a_word,
    replaced_by_text,
    rows_deleted_in_the_middle,
)
from progress_crash import killed_while_writing

from course_lib.progress import Event, NotSaved, Store, event
from course_lib.progress.event import new_event
from course_lib.progress.faults import Fault
from course_lib.progress.one_file import FORMAT, INSERT, connect, examine, rows_of
from course_lib.progress.two_files import COPY, LOCK, MAIN, NEW


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Event]]:
    folder = tmp_path_factory.mktemp("sound")
    events = [new_event("answer", f"03.q{number}", {"right": True}) for number in range(ENTRIES)]
    assert Store(folder).add(events) == ENTRIES
    return folder, events


@pytest.fixture
def folder(tmp_path: Path, sound: tuple[Path, list[Event]]) -> Path:
    for name in (MAIN, COPY):
        (tmp_path / name).write_bytes((sound[0] / name).read_bytes())
    return tmp_path


@pytest.fixture
def events(sound: tuple[Path, list[Event]]) -> list[Event]:
    return sound[1]


# --- other things in our places --------------------------------------------------------------------------------------


def theirs(path: Path) -> Path:
    """A file of somebody, that a link may point to."""
    path.write_text("Dear diary")
    return path


def a_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(theirs(path.parent / "diary.txt"))


def another_name_of_a_file(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.hardlink_to(theirs(path.parent / "diary.txt"))


def a_dangling_link(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("nowhere")


def a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()
    (path / "inside").write_text("kept")


def a_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


needs_posix = pytest.mark.skipif(os.name != "posix", reason="needs links and pipes")
JOURNALS = [f"{name}-{suffix}" for name in (MAIN, COPY, LOCK) for suffix in ("journal", "wal")]


@needs_posix
@pytest.mark.parametrize("opened", [False, True], ids=["new store", "open store"])
@pytest.mark.parametrize("thing", [a_link, a_dangling_link, a_folder, a_pipe], ids=lambda thing: thing.__name__)
@pytest.mark.parametrize("name", [LOCK, NEW, f"{NEW}-journal", *JOURNALS])
def test_what_is_in_a_place_of_ours_is_put_away_whole_and_that_is_said(
    folder: Path, events: list[Event], name: str, thing: Damage, opened: bool
) -> None:
    mine = Store(folder)
    assert not opened or mine.events() == events
    thing(folder / name)
    assert mine.events() == events
    aside = f"progress.damaged-{date.today()}-1.{name.split('.', 1)[1]}"
    assert mine.notices() == [f"What was in the place of {name} is kept as {aside}."]
    if thing is a_link:
        assert (folder / aside).is_symlink() and (folder / aside).read_text() == "Dear diary"
    if thing is a_folder:
        assert content_of(folder / aside) == b"kept"
    assert_good_as_new(folder, events)
    assert not (folder / "nowhere").exists(), "nor was anything written through the link"


@needs_posix
@pytest.mark.parametrize("damage", [replaced_by_text, replaced_by_a_word, another_name_of_a_file])
def test_lock_file_with_something_in_it_is_kept(folder: Path, events: list[Event], damage: Damage) -> None:
    damage(folder / LOCK)
    before = (folder / LOCK).read_bytes()
    mine = Store(folder)
    assert mine.events() == events and len(mine.notices()) == 1
    assert (folder / f"progress.damaged-{date.today()}-1.lock").read_bytes() == before
    assert_good_as_new(folder, events)


@needs_posix
@pytest.mark.parametrize("name", [MAIN, COPY])
def test_lock_that_is_another_name_of_a_progress_file_holds_nobody_up(
    folder: Path, events: list[Event], name: str
) -> None:
    (folder / LOCK).hardlink_to(folder / name)
    assert Store(folder).events() == events
    assert_good_as_new(folder, events)


@needs_posix
@pytest.mark.parametrize("opened", [False, True], ids=["new store", "open store"])
@pytest.mark.parametrize("thing", [a_link, a_dangling_link, a_pipe], ids=lambda thing: thing.__name__)
@pytest.mark.parametrize("name", [MAIN, COPY])
def test_progress_file_that_became_a_link_is_made_anew_and_nothing_is_written_through_it(
    folder: Path, events: list[Event], name: str, thing: Damage, opened: bool
) -> None:
    mine = Store(folder)
    assert not opened or mine.events() == events
    thing(folder / name)
    more = mine.record("answer", "03.x", {"right": True})
    assert mine.events() == [*events, more]
    was = "was damaged and" if thing is a_pipe else "was no file of its own but a link, which"
    (said,) = mine.notices()
    assert said.startswith(f"{NAMES[name]} {was} is kept as {ASIDE.format(1)}. It was made anew from the other")
    assert_good_as_new(folder, [*events, more])
    assert thing is not a_link or (folder / "diary.txt").read_text() == "Dear diary"
    assert not (folder / "nowhere").exists()


def linked_softly(name: Path, other: Path) -> None:
    name.symlink_to(other.name)


def linked_hard(name: Path, other: Path) -> None:
    name.hardlink_to(other)


@needs_posix
@pytest.mark.parametrize("opened", [False, True], ids=["new store", "open store"])
@pytest.mark.parametrize("link", [linked_softly, linked_hard], ids=lambda link: link.__name__)
@pytest.mark.parametrize(("name", "other"), [(MAIN, COPY), (COPY, MAIN)], ids=["main", "copy"])
def test_two_names_of_one_progress_file_become_two_files(
    folder: Path, events: list[Event], name: str, other: str, link: Callable[[Path, Path], None], opened: bool
) -> None:
    mine = Store(folder)
    assert not opened or mine.events() == events
    (folder / name).unlink()
    link(folder / name, folder / other)
    assert mine.events() == events and len(mine.notices()) == 1
    assert_good_as_new(folder, events)
    found = [(folder / one).lstat() for one in (MAIN, COPY)]
    assert found[0].st_ino != found[1].st_ino and [one.st_nlink for one in found] == [1, 1]


@needs_posix
def test_entries_behind_a_link_are_taken_over(folder: Path, events: list[Event], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.sqlite"
    (folder / MAIN).rename(elsewhere)
    (folder / MAIN).symlink_to(elsewhere)
    (folder / COPY).unlink()
    before = elsewhere.read_bytes()
    assert Store(folder).events() == events
    assert_good_as_new(folder, events)
    assert elsewhere.read_bytes() == before


@needs_posix
def test_two_dangling_links_are_no_beginning(folder: Path) -> None:
    for name in (MAIN, COPY):
        a_dangling_link(folder / name)
    mine = Store(folder)
    assert mine.events() == [] and "No entry could be restored" in mine.notices()[0]
    assert_good_as_new(folder, [])


# --- what a repair does, in which order --------------------------------------------------------------------------


@needs_posix
def test_new_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after(
    folder: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / COPY).unlink()
    done: list[tuple[str, int]] = []
    synced, replaced = os.fsync, os.replace

    def fsync(number: int) -> None:
        done.append(("synced", os.fstat(number).st_ino))
        synced(number)

    def replace(source: Path, target: Path) -> None:
        done.append(("replaced", Path(source).stat().st_ino))
        replaced(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    assert Store(folder).events() == events
    new, place = (folder / COPY).stat().st_ino, folder.stat().st_ino
    assert done == [("synced", new), ("replaced", new), ("synced", place)]


def test_files_that_went_apart_are_united_in_order_though_a_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = []
    for day in (4, 3, 2, 1):
        monkeypatch.setattr(
            event, "now", lambda day=day: event.datetime.fromisoformat(f"2026-03-0{day}T12:00:00+00:00")
        )
        recorded.append(Store(tmp_path).record("answer", "03.x", {"right": True}))
    for name, arrival in ((MAIN, 2), (COPY, 3)):
        with closing(connect(tmp_path / name)) as db:
            db.execute("DELETE FROM events WHERE arrival = ?", (arrival,))
    assert Store(tmp_path).events() == recorded
    assert examine(tmp_path / MAIN).events == examine(tmp_path / COPY).events == recorded


def test_files_with_different_ends_of_the_same_number_are_united(folder: Path, events: list[Event]) -> None:
    mine = Store(folder)
    assert mine.events() == events
    other = new_event("answer", "03.other", {"right": True})
    with closing(connect(folder / COPY)) as db:
        db.execute("DELETE FROM events WHERE arrival = ?", (ENTRIES,))
        db.executemany(INSERT.format("main"), rows_of([other], ENTRIES))
    assert mine.events() == [*events, other]
    assert_good_as_new(folder, [*events, other])


def test_entry_that_only_the_copy_has_can_be_added_under_an_open_store(folder: Path, events: list[Event]) -> None:
    """The main file has no such id, and the copy refuses a second one: that is damage, and mended."""
    mine = Store(folder)
    assert mine.events() == events
    rows_deleted_in_the_middle(folder / MAIN)
    assert mine.add(events[15:25]) == 0, "after the repair all are there"
    assert mine.events() == events


NOTE = f"{MAIN}-mj0A1B2C9D3"


def test_note_of_sqlite_that_a_kill_left_is_cleared_away_and_nothing_else(folder: Path, events: list[Event]) -> None:
    for name in (NOTE, f"{MAIN}-mjolnir.txt"):
        (folder / name).write_bytes(b"x")
    assert Store(folder).events() == events
    assert not (folder / NOTE).exists() and (folder / f"{MAIN}-mjolnir.txt").exists()


def test_note_of_sqlite_stays_while_a_journal_is_kept_that_may_name_it(folder: Path, events: list[Event]) -> None:
    """Without the note, the journal would no longer be played back, and half a transaction would stand."""
    killed_while_writing(folder)
    (folder / NOTE).write_bytes(b"x")
    deleted(folder / MAIN)
    assert Store(folder).events() == events
    assert (folder / f"{ASIDE.format(1)}-journal").exists() and (folder / NOTE).exists()


@pytest.mark.parametrize(("size", "restored"), [(20_000_000, True), (64_000_000, False)])
def test_files_that_became_large_are_searched_up_to_a_limit(
    folder: Path, events: list[Event], size: int, restored: bool
) -> None:
    """A file is looked through row by row; one that somebody put there may have gigabytes."""
    for name in (MAIN, COPY):
        letter_of_the_schema_changed(folder / name)
        os.truncate(folder / name, size)
    (folder / COPY).unlink()
    assert Store(folder).events() == (events if restored else [])


def test_remains_of_a_repair_that_was_cut_off_are_cleared_away(folder: Path, events: list[Event]) -> None:
    (folder / NEW).write_bytes(b"half a file")
    assert_good_as_new(folder, events)


@pytest.mark.parametrize("names", [(MAIN,), (COPY,), (MAIN, COPY)], ids=["main", "copy", "both"])
def test_file_of_a_newer_course_is_left_alone(folder: Path, names: tuple[str, ...]) -> None:
    for name in names:
        with closing(connect(folder / name)) as db:
            db.execute(f"PRAGMA user_version = {FORMAT + 1}")
            db.execute("ALTER TABLE events ADD COLUMN mood TEXT")
    before = [(folder / name).read_bytes() for name in (MAIN, COPY)]
    mine = Store(folder)
    assert mine.events() == []
    reason = (
        f"The file is of a newer course (format 2, this one knows 1) ({folder / names[0]}). Update the course, or name "
        "another folder in COURSE_DATA."
    )
    assert mine.notices() == [f"Your progress cannot be read. {reason}"]
    with pytest.raises(NotSaved) as refused:
        mine.record("answer", "03.x", {"right": True})
    assert str(refused.value) == reason
    with pytest.raises(Fault):
        mine.history()
    assert [(folder / name).read_bytes() for name in (MAIN, COPY)] == before
    assert list(folder.glob("*damaged*")) == []


def test_file_that_was_made_a_wal_file_is_made_an_ordinary_one_again(folder: Path, events: list[Event]) -> None:
    with closing(connect(folder / MAIN)) as db:
        assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
    assert_good_as_new(folder, events)
    with closing(connect(folder / MAIN)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def test_sqlite_itself_sees_nothing_wrong_with_a_file_whose_answer_was_turned(folder: Path) -> None:
    """Which is why each row has a seal."""
    an_answer_turned(folder / MAIN)
    with closing(sqlite3.connect(folder / MAIN)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
