"""Export and import of progress: a round trip, merging, and texts that are no export, which change nothing."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course_lib.progress import Store, event, transfer
from course_lib.progress.transfer import BadImport, Imported, WouldHide, export_text, import_text

Change = Callable[[dict[str, Any]], Any]
ID = "0123456789abcdef" * 2


def some_events(store: Store) -> None:
    store.record("answer", "03.queries_cached", {"given": "é “\u2028” \x1b[2J \ud800", "right": False}, "0a1b2c3d")
    store.record("prediction", "03.keys", {"value": 1e300 / 10, "unit": "MiB"})
    store.record("check", "ex03.append", {"passed": True, "cases": {"a": True}})
    store.reset("02")
    store.record("notebook", "03", {})


def exported(store: Store) -> bytes:
    return export_text(store.history()).encode()


def test_export_brings_everything_to_another_machine_resets_and_hidden_entries_included(tmp_path: Path) -> None:
    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    mine.record("answer", "02.x", {"right": True})
    some_events(mine)
    text = exported(mine)
    assert text.isascii(), "whatever a mail program does to it"
    assert import_text(text, other) == Imported(entries=6, new=6, hidden=1)
    assert other.history() == mine.history()
    assert other.events() == mine.events() != mine.history()
    assert import_text(text, other) == Imported(6, 0, 1), "importing twice is importing once"
    assert other.history() == mine.history()


def test_import_merges_by_time_and_touches_nothing_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def on(day: int, store: Store, name: str) -> None:
        monkeypatch.setattr(event, "now", lambda: event.datetime.fromisoformat(f"2026-03-0{day}T12:00:00+00:00"))
        store.record("answer", name, {"right": True})

    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    on(1, mine, "03.monday")
    on(2, other, "03.tuesday")
    on(3, mine, "03.wednesday")
    assert import_text(exported(mine), other) == Imported(2, 2, 0)
    assert [one.name for one in other.events()] == ["03.monday", "03.tuesday", "03.wednesday"]
    assert import_text(exported(other), mine) == Imported(3, 1, 0)
    assert mine.events() == other.events()


def test_import_of_nothing_is_no_fault(tmp_path: Path) -> None:
    assert import_text(exported(Store(tmp_path / "empty")), Store(tmp_path / "other")) == Imported(0, 0, 0)


def test_import_finds_a_damaged_file_and_an_export_of_a_repaired_store_is_whole(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    some_events(mine)
    text = exported(mine)
    (tmp_path / "progress.sqlite").write_text("Dear diary")
    assert import_text(text, Store(tmp_path)).new == 0
    assert exported(Store(tmp_path)).count(b'"id"') == 5


# --- texts that are no export ---------------------------------------------------------------------------------------

TEXTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "prose": (b"Dear diary", "not JSON"),
    "a picture": (b"\x89PNG\r\n\x1a\n\x00\xff", "no UTF-8 text"),
    "half an export": (b'{"format": "kv-cache-course progress", "version": 1, "events": [', "not JSON"),
    "something behind it": (b'{"format": "kv-cache-course progress"} {}', "not JSON"),
    "a list": (b"[1, 2]", "no export of progress"),
    "a number": (b"1", "no export of progress"),
    "a notebook": (b'{"cells": [], "nbformat": 4}', "no export of progress"),
    "deep nesting": (b'{"events": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deeply"),
    "an endless number": (b'{"version": ' + b"9" * 5000 + b"}", "not JSON"),
    "NaN": (b'{"version": NaN}', "NaN is not a JSON number"),
    "a key twice": (b'{"version": 1, "version": 2}', "the key 'version' appears 2 times"),
    "a key twice that a terminal obeys": (
        b'{"\\u001b[2J": 1, "\\u001b[2J": 2}',
        r"the key '\\x1b\[2J' appears 2 times",
    ),
}


@pytest.mark.parametrize(("text", "named"), TEXTS.values(), ids=TEXTS)
def test_text_that_is_no_export_is_refused_in_words(tmp_path: Path, text: bytes, named: str) -> None:
    refused(tmp_path, text, named)


def test_export_in_the_unicode_of_another_system_is_read_or_refused_in_words(tmp_path: Path) -> None:
    some_events(Store(tmp_path / "mine"))
    text = exported(Store(tmp_path / "mine"))
    refused(tmp_path / "other", text.decode().encode("utf-16"), "no UTF-8 text")
    assert import_text(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"), Store(tmp_path / "other")).new == 5


def test_enormous_text_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LARGEST", 1_000_000)
    refused(tmp_path, b" " * 1_000_001, "it has more than 1,000,000 bytes, the most that an export may have")


def put(field: str, value: object) -> Change:
    return lambda whole: whole["events"][2].update({field: value})


def whole(field: str, value: object) -> Change:
    return lambda all_of_it: all_of_it.update({field: value})


def nested(levels: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(levels - 1):
        made = [made]
    return made


CHANGES: dict[str, tuple[Change, str]] = {
    "a later version": (whole("version", 2), "its version is 2, this course reads 1: update the course"),
    "version true": (whole("version", True), "its version is True"),
    "version in words": (whole("version", "\x1b[1m"), "its version is '.x1b.1m'"),
    "version of lists": (whole("version", [[1]]), "its version is of type list"),
    "another format": (whole("format", "diary"), "no export of progress"),
    "a field more": (whole("mood", 1), "its fields are not format"),
    "no list": (whole("events", {"0": 1}), "its fields are not format"),
    "no events": (lambda it: it.pop("events"), "its fields are not format"),
    "an entry of text": (lambda it: it["events"].insert(2, "x"), "entry 3: its fields are not id"),
    "an entry of nothing": (lambda it: it["events"].insert(2, None), "entry 3: its fields are not id"),
    "an entry with a field more": (put("mood", 1), "entry 3: its fields are not id"),
    "an entry without a time": (lambda it: it["events"][2].pop("at"), "entry 3: its fields are not id"),
    "an id twice": (lambda it: it["events"][2].update(id=it["events"][0]["id"]), "entry 3 has the id of entry 1"),
    "an id in capitals": (put("id", ID.upper()), "entry 3: its id is no UUID"),
    "a short id": (put("id", ID[:31]), "its id is no UUID"),
    "an id that is a number": (put("id", 7), "its id is no text but of type int"),
    "an id for SQL": (put("id", "'; DROP TABLE events; --"), "its id is no UUID"),
    "a kind that is unknown": (put("kind", "nap"), "its kind 'nap' is unknown .there are answer"),
    "a kind that is a list": (put("kind", []), "its kind is no text"),
    "a name that a terminal obeys": (put("name", "03.\x1b]0;x\x07"), r"cannot be printed: '03..x1b\]0;x.x07'"),
    "a name that is written backwards": (put("name", "03.\u202ex"), "cannot be printed: '03..u202ex'"),
    "a name that is no text": (put("name", "\ud800"), "cannot be printed"),
    "a long name": (put("name", "3" * 201), "too long"),
    "no name": (put("name", ""), "it has no name"),
    "a version that is null": (put("version", None), "its version is no text"),
    "a time in words": (put("at", "yesterday"), "its at is no time such as 2026-03-01T"),
    "a day that is none": (put("at", "2026-02-30T12:00:00.000000+00:00"), "its at is no time"),
    "an hour that is none": (put("at", "2026-02-03T25:00:00.000000+00:00"), "its at is no time"),
    "a time of another zone": (put("at", "2026-02-03T12:00:00.000000+01:00"), "its at is no time"),
    "a time of no zone": (put("at", "2026-02-03T12:00:00.000000"), "its at is no time"),
    "a time in seconds": (put("at", 1.7e9), "its at is no text"),
    "a time before all clocks": (put("at", "1969-12-31T12:00:00.000000+00:00"), "its at is no time"),
    "a time far ahead": (put("at", "9998-02-03T12:00:00.000000+00:00"), "entry 3 is of 9998-02-03, and the clock here"),
    "a place far ahead": (put("order", "2999-02-03T12:00:00.000000+00:00"), "entry 3 is of 2999-02-03, and the clock"),
    "the end of time": (put("order", "9999-12-31T23:59:59.999999+00:00"), "its order is no time"),
    "a time in other digits": (put("at", "٢٠٢٦-02-03T12:00:00.000000+00:00"), "its at is no time"),
    "data that are a list": (put("data", [1]), "its data are no object but of type list"),
    "data of null": (put("data", None), "its data are no object"),
    "a check without a verdict": (put("data", {}), "'passed': true or false"),
    "data that are deep": (put("data", {"passed": True, "x": nested(20)}), "nested too deeply: at most 20 objects"),
    "large data": (put("data", {"passed": True, "x": "y" * 20_001}), "its data are too large"),
}


@pytest.mark.parametrize(("change", "named"), CHANGES.values(), ids=CHANGES)
def test_export_that_was_changed_is_refused_and_the_place_named(tmp_path: Path, change: Change, named: str) -> None:
    some_events(Store(tmp_path / "mine"))
    content = json.loads(exported(Store(tmp_path / "mine")))
    change(content)
    refused(tmp_path / "other", json.dumps(content).encode(), named)


def test_what_is_as_deep_as_it_may_be_can_be_recorded_exported_and_imported(tmp_path: Path) -> None:
    mine = Store(tmp_path / "mine")
    mine.record("answer", "03.x", {"right": True, "given": nested(19)})
    with pytest.raises(ValueError, match="nested too deeply"):
        mine.record("answer", "03.x", {"right": True, "given": nested(20)})
    with pytest.raises(ValueError, match="nested too deeply"):
        mine.record("answer", "03.x", {"right": True, "given": {"a": ({"b": nested(18)},)}})
    assert import_text(exported(mine), Store(tmp_path / "other")).new == 1
    assert Store(tmp_path / "other").events() == mine.events() and len(mine.events()) == 1


def test_entry_of_yours_from_a_clock_that_was_ahead_does_not_keep_your_export_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Store(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(event, "now", lambda: event.datetime.fromisoformat("2999-03-01T12:00:00+00:00"))
        mine.record("answer", "03.x", {"right": True})
    assert import_text(exported(mine), mine) == Imported(1, 0, 0)


# --- resets in an export ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("notebook", ["03", None])
def test_reset_of_another_machine_hides_what_was_recorded_here_only_when_asked(
    tmp_path: Path, notebook: str | None
) -> None:
    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    for name in ("03.x", "03.y", "03.z"):
        mine.record("answer", name, {"right": True})
    theirs = other.record("answer", "03.x", {"right": False})
    other.reset(notebook)
    before, text = mine.history(), exported(other)
    with pytest.raises(WouldHide, match="a reset in it would hide 3 entries of yours"):
        import_text(text, mine)
    assert mine.history() == before
    later = mine.record("answer", "03.later", {"right": True})
    assert import_text(text, mine, with_resets=True) == Imported(2, 2, 1, own_hidden=3)
    assert mine.events() == [later], "what came after the reset it does not hide"
    assert theirs in mine.history() and len(mine.history()) == 6
    assert import_text(text, mine) == Imported(2, 0, 1), "hidden already, so nothing more is to be asked"


def test_reset_in_an_export_that_hides_only_what_is_in_it_is_taken_over_unasked(tmp_path: Path) -> None:
    mine, other = Store(tmp_path / "mine"), Store(tmp_path / "other")
    mine.record("answer", "03.x", {"right": True})
    import_text(exported(mine), other)
    kept = other.record("answer", "02.x", {"right": True})
    mine.reset("03")
    assert import_text(exported(mine), other) == Imported(2, 1, 1)
    assert other.events() == [kept]


def test_number_without_end_is_refused(tmp_path: Path) -> None:
    some_events(Store(tmp_path / "mine"))
    text = exported(Store(tmp_path / "mine"))
    assert text.count(b"1e+299") == 1
    refused(tmp_path / "other", text.replace(b"1e+299", b"1e+999"), "entry 2: its data are not plain JSON")
    refused(tmp_path / "other", text.replace(b"1e+299", b"true"), "entry 2: its data need 'value': a finite number")


def test_entry_of_yours_that_says_something_else_now_is_refused(tmp_path: Path) -> None:
    mine = Store(tmp_path)
    some_events(mine)
    text = exported(mine)
    assert text.count(b'"right": false') == 1
    before = mine.history()
    with pytest.raises(BadImport, match="entry 1 has the id of an entry of yours and says something else"):
        import_text(text.replace(b'"right": false', b'"right": true'), mine)
    assert mine.history() == before


def refused(folder: Path, text: bytes, named: str) -> None:
    mine = Store(folder)
    mine.record("answer", "03.before", {"right": True})
    before = mine.history()
    with pytest.raises(BadImport, match=named) as error:
        import_text(text, mine)
    assert str(error.value).isprintable() and len(str(error.value)) < 300
    assert mine.history() == before and mine.notices() == []
