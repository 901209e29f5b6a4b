"""Every kind of damage to one progress file or both: what is there afterwards, what is kept aside, what is said."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from progress_crash import killed_while_writing

from course_lib.progress import Event, NotSaved, Store
from course_lib.progress.event import new_event
from course_lib.progress.faults import Fault
from course_lib.progress.one_file import FORMAT, connect, examine
from course_lib.progress.two_files import COPY, LOCK, MAIN, NEW

ENTRIES = 200
PAGE = 4096
ASIDE = f"progress.damaged-{date.today()}-{{}}.sqlite"


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


def zeros_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3 * PAGE + 100 : 4 * PAGE] = bytes(PAGE - 100)
    path.write_bytes(content)


def zeros_at_the_head(path: Path) -> None:
    path.write_bytes(bytes(PAGE) + path.read_bytes()[PAGE:])


def one_letter_changed(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b'{"right":true}') == ENTRIES
    path.write_bytes(content.replace(b'{"right":true}', b'{"right":tru!}', 1))


def an_answer_turned(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("""UPDATE events SET data = '{"right":false}' WHERE arrival = 30""")


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 7])


def replaced_by_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 50)


def replaced_by_a_word(path: Path) -> None:
    path.write_text("x")


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("kept")


def another_database(path: Path) -> None:
    path.unlink()
    with closing(connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


def table_dropped(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DROP TABLE events")


def column_dropped(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("ALTER TABLE events DROP COLUMN version")


def index_broken(path: Path) -> None:
    with closing(connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index'").fetchall()
    content = bytearray(path.read_bytes())
    content[(root - 1) * PAGE + 500 : root * PAGE] = bytes(PAGE - 500)
    path.write_bytes(content)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def deleted(path: Path) -> None:
    path.unlink()


def rows_deleted(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DELETE FROM events WHERE arrival > 190")


def rows_deleted_in_the_middle(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DELETE FROM events WHERE arrival BETWEEN 20 AND 29")


Damage = Callable[[Path], None]
KEPT: list[Damage] = [  # what becomes of the file: kept aside
    zeros_in_the_middle, zeros_at_the_head, one_letter_changed, an_answer_turned, truncated, replaced_by_text,
    replaced_by_a_word, replaced_by_a_folder, another_database, table_dropped, column_dropped, index_broken,
]  # fmt: skip
NAMES = {MAIN: "Your progress file", COPY: "The copy of your progress file"}


def content_of(path: Path) -> bytes:
    return (path / "inside").read_bytes() if path.is_dir() else path.read_bytes()


def assert_good_as_new(folder: Path, events: list[Event]) -> None:
    """Nothing more to tell, both files sound and equal, and more can be recorded."""
    again = Store(folder)
    assert again.events() == events and again.notices() == []
    more = again.record("answer", "03.more", {"right": True})
    for name in (MAIN, COPY):
        found = examine(folder / name)
        assert found.state == "sound"
        assert sorted(e.id for e in found.events) == sorted(e.id for e in [*events, more])
    assert again.notices() == [] and not (folder / NEW).exists()


@pytest.mark.parametrize("name", [MAIN, COPY])
@pytest.mark.parametrize("damage", KEPT, ids=lambda damage: damage.__name__)
def test_damaged_file_is_kept_aside_and_made_anew_from_the_other(
    folder: Path, events: list[Event], damage: Damage, name: str
) -> None:
    damage(folder / name)
    before = content_of(folder / name)
    mine = Store(folder)
    assert mine.events() == events
    (said,) = mine.notices()
    assert said == (
        f"{NAMES[name]} was damaged and is kept as {ASIDE.format(1)}. It was made anew from the other: your answers "
        "are there."
    )
    assert mine.notices() == [], "told once"
    assert content_of(folder / ASIDE.format(1)) == before
    assert_good_as_new(folder, events)


@pytest.mark.parametrize("name", [MAIN, COPY])
@pytest.mark.parametrize("damage", [emptied, deleted])
def test_file_that_is_gone_or_empty_is_made_anew_from_the_other(
    folder: Path, events: list[Event], damage: Damage, name: str
) -> None:
    damage(folder / name)
    mine = Store(folder)
    assert mine.events() == events
    was = "empty" if damage is emptied else "missing"
    assert mine.notices() == [f"{NAMES[name]} was {was}. It was made anew from the other: your answers are there."]
    assert_good_as_new(folder, events)


@pytest.mark.parametrize("name", [MAIN, COPY])
@pytest.mark.parametrize("damage", [rows_deleted, rows_deleted_in_the_middle])
def test_file_that_lacks_entries_gets_them_from_the_other(
    folder: Path, events: list[Event], damage: Damage, name: str
) -> None:
    damage(folder / name)
    mine = Store(folder)
    assert mine.events() == events
    (said,) = mine.notices()
    assert said.startswith(f"{NAMES[name]} lacked 10 of {ENTRIES} entries. It was made anew from the other")
    assert_good_as_new(folder, events)


def test_files_from_which_the_same_entries_were_deleted_go_on_with_the_rest(folder: Path, events: list[Event]) -> None:
    for name in (MAIN, COPY):
        rows_deleted_in_the_middle(folder / name)
    left = events[:19] + events[29:]
    emptied(folder / COPY)
    mine = Store(folder)
    assert mine.events() == left and len(mine.notices()) == 1
    assert_good_as_new(folder, left)


def test_files_that_went_apart_are_united(folder: Path, events: list[Event]) -> None:
    rows_deleted(folder / MAIN)
    rows_deleted_in_the_middle(folder / COPY)
    mine = Store(folder)
    assert mine.events() == events
    (said,) = mine.notices()
    assert said == (
        f"Your progress file lacked 10 of {ENTRIES} entries. The copy of your progress file lacked 10 of {ENTRIES} "
        "entries. They were united."
    )
    assert_good_as_new(folder, events)


@pytest.mark.parametrize("name", [MAIN, COPY])
@pytest.mark.parametrize("damage", [*KEPT, emptied, deleted, rows_deleted], ids=lambda damage: damage.__name__)
def test_damage_under_an_open_store_loses_nothing_that_it_then_acknowledges(
    folder: Path, events: list[Event], damage: Damage, name: str
) -> None:
    mine = Store(folder)
    assert mine.events() == events
    damage(folder / name)
    recorded = [mine.record("answer", "03.later", {"right": True}) for _ in range(2)]
    mine.notices()
    assert Store(folder).events() == [*events, *recorded]


@pytest.mark.parametrize("damage", [*KEPT, emptied, deleted, rows_deleted], ids=lambda damage: damage.__name__)
def test_damage_under_an_open_store_is_not_read(folder: Path, events: list[Event], damage: Damage) -> None:
    mine = Store(folder)
    assert mine.events() == events
    damage(folder / MAIN)
    assert mine.events() == events


BOTH_LOST = [replaced_by_text, replaced_by_a_folder, another_database, table_dropped, column_dropped]


@pytest.mark.parametrize("damage", BOTH_LOST, ids=lambda damage: damage.__name__)
def test_two_files_beyond_reading_are_kept_and_that_is_said(folder: Path, damage: Damage) -> None:
    before = []
    for name in (MAIN, COPY):
        damage(folder / name)
        before.append(content_of(folder / name))
    mine = Store(folder)
    assert mine.events() == []
    assert mine.notices() == [
        f"Your progress file was damaged and is kept as {ASIDE.format(1)}. The copy of your progress file was damaged "
        f"and is kept as {ASIDE.format(2)}. No entry could be restored. If you have an export, `course progress import "
        "FILE` brings it back."
    ]
    assert [content_of(folder / ASIDE.format(number)) for number in (1, 2)] == before
    assert_good_as_new(folder, [])


@pytest.mark.parametrize(
    "damage", [truncated, zeros_in_the_middle, zeros_at_the_head, one_letter_changed, an_answer_turned, index_broken]
)
def test_of_two_damaged_files_all_that_can_be_read_is_restored(
    folder: Path, events: list[Event], damage: Damage
) -> None:
    for name in (MAIN, COPY):
        damage(folder / name)
    mine = Store(folder)
    found = mine.events()
    assert 5 < len(found) <= ENTRIES and all(event in events for event in found)
    if damage in (one_letter_changed, an_answer_turned):
        assert len(found) == ENTRIES - 1
    if damage in (zeros_at_the_head, index_broken):
        assert len(found) == ENTRIES, "what was hit held no entry"
    (said,) = mine.notices()
    assert "entries could be read and were restored; others may be lost" in said and f" {len(found)} " in said
    assert_good_as_new(folder, found)


def test_two_files_damaged_in_different_places_together_hold_everything(folder: Path, events: list[Event]) -> None:
    zeros_in_the_middle(folder / MAIN)
    content = bytearray((folder / COPY).read_bytes())
    content[-PAGE:] = bytes(PAGE)
    (folder / COPY).write_bytes(content)
    assert Store(folder).events() == events


@pytest.mark.parametrize(("first", "second"), [(deleted, truncated), (emptied, emptied), (emptied, replaced_by_text)])
def test_mixed_damage_is_said_file_by_file(folder: Path, first: Damage, second: Damage) -> None:
    first(folder / MAIN)
    second(folder / COPY)
    mine = Store(folder)
    found = mine.events()
    (said,) = mine.notices()
    assert said.startswith(f"Your progress file was {'missing' if first is deleted else 'empty'}. The copy of your pro")
    assert ("No entry could be restored" in said) == (not found)
    assert_good_as_new(folder, found)


def test_deleting_both_files_is_beginning_again_and_no_damage(folder: Path) -> None:
    for name in (MAIN, COPY):
        (folder / name).unlink()
    mine = Store(folder)
    mine.record("answer", "03.x", {"right": True})
    assert len(mine.events()) == 1 and mine.notices() == []


def test_second_damage_of_a_day_gets_a_name_of_its_own(folder: Path, events: list[Event]) -> None:
    for number in (1, 2, 3):
        replaced_by_text(folder / MAIN)
        mine = Store(folder)
        assert mine.events() == events and ASIDE.format(number) in mine.notices()[0]
    assert len(list(folder.glob("progress.damaged-*"))) == 3


@pytest.mark.parametrize("damage", [deleted, emptied, replaced_by_a_folder])
def test_journal_that_a_kill_left_is_not_played_back_into_a_new_file(
    folder: Path, events: list[Event], damage: Damage
) -> None:
    killed_while_writing(folder)
    journal = folder / f"{MAIN}-journal"
    assert journal.stat().st_size > 512, "something has to be rolled back"
    damage(folder / MAIN)
    mine = Store(folder)
    assert mine.events() == events and len(mine.notices()) == 1
    assert not journal.exists() and (folder / f"{ASIDE.format(1)}-journal").exists()
    assert_good_as_new(folder, events)


@pytest.mark.parametrize("damage", [replaced_by_text, replaced_by_a_word])
def test_lock_file_that_somebody_wrote_into_still_locks(folder: Path, events: list[Event], damage: Damage) -> None:
    damage(folder / LOCK)
    assert Store(folder).events() == events
    assert_good_as_new(folder, events)


def test_folder_in_the_place_of_the_lock_is_moved_away(folder: Path, events: list[Event]) -> None:
    (folder / LOCK).mkdir()
    assert_good_as_new(folder, events)


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
