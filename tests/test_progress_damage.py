"""Every kind of damage to one progress file or both: what is there afterwards, what is kept aside, what is said."""

import errno
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

import pytest
from damaged_files import (
    ASIDE,
    ENTRIES,
    KEPT,
    NAMES,
    PAGE,
    Damage,
    an_answer_turned,
    another_database,
    assert_good_as_new,
    column_dropped,
    content_of,
    deleted,
    emptied,
    index_broken,
    one_letter_changed,
    replaced_by_a_folder,
    replaced_by_text,
    rows_deleted,
    rows_deleted_in_the_middle,
    table_dropped,
    truncated,
    zeros_at_the_head,
    zeros_in_the_middle,
)
from progress_crash import killed_while_writing

from course_lib.progress import Event, Store, one_file, two_files
from course_lib.progress.event import new_event
from course_lib.progress.one_file import Found, Row, connect, event_of, examine
from course_lib.progress.two_files import COPY, MAIN


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
        f"and is kept as {ASIDE.format(2)}. No entry could be restored. If you have an export, `python start.py "
        "progress import FILE` brings it back."
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


def test_damaged_file_is_kept_aside_where_the_disk_knows_no_second_names(
    folder: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(source))

    monkeypatch.setattr(os, "link", link)
    zeros_in_the_middle(folder / MAIN)
    before = (folder / MAIN).read_bytes()
    assert Store(folder).events() == events
    assert (folder / ASIDE.format(1)).read_bytes() == before
    assert_good_as_new(folder, events)


def test_file_that_cannot_be_read_is_named_where_the_other_is_shown(
    folder: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the unreadable one alone may hold is missing in what is shown; both are needed for "that is all"."""

    def short_of_memory(path: Path, patience_s: float = 0) -> Found:
        if path.name == MAIN:
            raise MemoryError
        return examine(path, patience_s)

    with monkeypatch.context() as patched:
        patched.setattr(two_files, "examine", short_of_memory)
        patched.setattr(one_file, "examine", short_of_memory)
        mine = Store(folder)
        assert mine.events() == events
        (said,) = mine.notices()
    assert said.startswith("One of the two progress files could not be read: there is not enough memory")
    assert Store(folder).events() == events


def test_want_of_memory_during_a_repair_is_no_damage_and_loses_no_entry(
    folder: Path, events: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    zeros_in_the_middle(folder / MAIN)
    zeros_at_the_head(folder / COPY)
    before = [(folder / name).read_bytes() for name in (MAIN, COPY)]

    def short_of_memory(row: Row) -> Event:
        if row[1] == events[3].id:
            raise MemoryError
        return event_of(row)

    with monkeypatch.context() as patched:
        patched.setattr(one_file, "event_of", short_of_memory)
        mine = Store(folder)
        assert 0 < len(mine.events()) < ENTRIES
        (said,) = mine.notices()
        assert said.startswith("A progress file is damaged and could not be repaired: there is not enough memory")
    assert [(folder / name).read_bytes() for name in (MAIN, COPY)] == before, "nothing was made anew from less"
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


# --- one byte --------------------------------------------------------------------------------------------------------


def bytes_changed(every: int, values: tuple[int, ...], opened: bool, folder: Path) -> None:
    """Change one byte of a small file, at every `every`th place, in turn in one file and in the other; then read and
    record, with a store that looked at the files before or with a new one."""
    recorded = [Store(folder / "sound").record("answer", "03.x", {"right": True}) for _ in range(4)]
    sound = {name: (folder / "sound" / name).read_bytes() for name in (MAIN, COPY)}
    used = [place for place, byte in enumerate(sound[MAIN]) if byte]
    places = used[::every] + [place for place in range(0, len(sound[MAIN]), 40 * every) if place not in used]
    for number, place in enumerate(places):
        for name in (MAIN, COPY):
            here = folder / f"{place}-{name}"
            here.mkdir()
            for file, content in sound.items():
                (here / file).write_bytes(content)
            mine = Store(here)
            assert not opened or mine.history() == recorded
            value = values[number % len(values)]
            with (here / name).open("r+b") as changed:
                changed.seek(place)
                changed.write(bytes([value if value != sound[name][place] else value ^ 1]))
            assert mine.history() == recorded, (place, name, value)
            more = mine.record("answer", "03.y", {"right": True})
            assert Store(here).history() == [*recorded, more], (place, name, value)
            shutil.rmtree(here)


@pytest.mark.slow
@pytest.mark.parametrize("opened", [False, True], ids=["new store", "open store"])
def test_one_changed_byte_costs_nothing(opened: bool) -> None:
    memory = Path("/dev/shm")  # thousands of files, and no disk has to keep any of them
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        bytes_changed(1, (0xB3, 0xFF, 0x00, 0x31, 0x02), opened, Path(folder))


@pytest.mark.parametrize("column", ["id", "at", "kind", "name", "version", "data", "order"])
def test_seal_covers_every_column(folder: Path, events: list[Event], column: str) -> None:
    other = {"id": "0" * 32, "data": '{"right":false}', "kind": "hint"}.get(column, "2026-01-01T00:00:00.000000+00:00")
    with closing(connect(folder / MAIN)) as db:
        db.execute(f'UPDATE events SET "{column}" = ? WHERE arrival = 30', (other,))
    mine = Store(folder)
    assert mine.events() == events and "was damaged" in mine.notices()[0]


def test_order_that_was_changed_under_an_open_store_does_not_draw_what_is_recorded_after_it(
    folder: Path, events: list[Event]
) -> None:
    mine = Store(folder)
    assert mine.events() == events
    with closing(connect(folder / MAIN)) as db:
        db.execute('UPDATE events SET "order" = ? WHERE arrival = 30', ("9" + events[29].order[1:],))
    more = mine.record("answer", "03.x", {"right": True})
    assert more.order == more.at and mine.events() == [*events, more]
