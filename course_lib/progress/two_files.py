"""Two SQLite files with the same events, so that one is left when the other is lost.

The one idea: both are written in one transaction, which SQLite makes atomic across files, and their ends are compared
whenever they are used. What differs is united, what is damaged is kept aside and made anew from the other; nothing is
ever deleted, and no link is followed into a file that is not ours. A third file, empty, is the lock that keeps a repair
and a writer apart. What an event means is not known here.
"""

from __future__ import annotations

import math
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import date
from pathlib import Path

from course_lib.progress.event import Event
from course_lib.progress.faults import TROUBLE, Fault, NotSound, fault, is_damage, needs_text
from course_lib.progress.one_file import (
    COLUMNS,
    INSERT,
    SIDECARS,
    Found,
    all_events,
    connect,
    event_of,
    examine,
    examine_elsewhere,
    has_known_head,
    is_file,
    is_ours,
    remove,
    rows_of,
    second_name,
    sync_folder,
    write_new,
)

MAIN, COPY = "progress.sqlite", "progress.copy.sqlite"
LOCK, NEW = "progress.lock", "progress.new.sqlite"
CALLED = {MAIN: "Your progress file", COPY: "The copy of your progress file"}
SCHEMAS = ("main", "copy")
IMPATIENT_S = 0.2  # for another program that holds a file, after it was waited for in vain once
# What SQLite calls its note on a transaction across files: six digits, a nine, and two more.
NOTE = f"{MAIN}-mj{'[0-9A-F]' * 6}9{'[0-9A-F]' * 2}"
Signature = tuple[tuple[int, int], ...]


class TwoFiles:
    """The files in `folder`. Making one touches nothing; `told` collects what a learner should hear of repairs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = {name: folder / name for name in (MAIN, COPY)}
        self.told: list[str] = []
        self._checked: Signature | None = None
        self._patience_s = math.inf

    def read(self) -> list[Event]:
        """All events in the order of arrival, after a repair if one is needed. Where nothing was written, nothing is
        made. Raises Fault if neither file can be read."""
        needs_text(self.folder)
        try:
            if not any(map(os.path.lexists, self.paths.values())):
                return []
            with self._patient(), self._locked():
                return self._in_sound_files(lambda db: all_events(db))
        except (*TROUBLE, OSError) as error:
            return self._read_as_they_are(fault(error, self.folder))

    def append(self, make: Callable[[str], list[Event]], keep: bool = True) -> list[Event]:
        """Write make(latest) to both files, where `latest` is the highest `order` there. What has an id that is there
        already is left out. Returns what was written when it is safe on the disk in both; with `keep` false it is only
        tried. Raises Fault, and then nothing was written."""

        def insert(db: sqlite3.Connection) -> list[Event]:
            last = db.execute(f'SELECT {COLUMNS} FROM main.events ORDER BY "order" DESC LIMIT 1').fetchone()
            latest = event_of(last).order if last else ""
            (highest,) = db.execute("SELECT max(arrival) FROM main.events").fetchone()
            known = "SELECT 1 FROM main.events WHERE id = ?"
            events = [e for e in make(latest) if db.execute(known, (e.id,)).fetchone() is None]
            for schema in SCHEMAS:
                db.executemany(INSERT.format(schema), rows_of(events, 1 + (highest or 0)))
            if keep:
                db.execute("COMMIT")
            return events

        needs_text(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._patient(), self._locked():
                return self._in_sound_files(insert)
        except (*TROUBLE, OSError) as error:
            raise fault(error, self.folder) from error

    def _in_sound_files(self, work: Callable[[sqlite3.Connection], list[Event]]) -> list[Event]:
        """work(connection) in a transaction on both files; if they turn out damaged, once more after a repair."""
        for again in (True, False):
            try:
                self._check()
                with closing(self._open()) as db:
                    try:
                        return work(db)
                    finally:
                        if db.in_transaction:
                            with suppress(sqlite3.Error):  # the next to open the files rolls back
                                db.execute("ROLLBACK")
            except TROUBLE as error:
                if not (again and is_damage(error)):
                    raise
                self._checked = None
        raise AssertionError("the second round returns or raises")

    def _open(self) -> sqlite3.Connection:
        """Both files in one connection, in a transaction that excludes other writers."""
        for path in self.paths.values():
            if not has_known_head(path):
                raise NotSound(f"{path.name} is of another SQLite")
        db = connect(self.paths[MAIN], self._patience_s)
        try:
            db.execute("ATTACH ? AS copy", (str(self.paths[COPY]),))
            for schema in SCHEMAS:
                db.execute(f"PRAGMA {schema}.journal_mode = DELETE")  # a WAL file is not atomic across files
                db.execute(f"PRAGMA {schema}.synchronous = EXTRA")
            db.execute("BEGIN IMMEDIATE")
            for schema in SCHEMAS:  # a newer course may have changed the file since it was examined
                if not is_ours(db, schema):
                    raise NotSound(f"{schema} is of another format")
            last = [
                db.execute(f"SELECT arrival, id FROM {schema}.events ORDER BY arrival DESC LIMIT 1").fetchone()
                for schema in SCHEMAS
            ]
            if last[0] != last[1]:
                raise NotSound(f"the files end differently: {last}")
        except BaseException:
            db.close()
            raise
        return db

    # --- the lock -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the files. The lock is SQLite's own, on an empty file: it works on every system, also between
        threads, and ends with its process."""
        path = self.folder / LOCK
        if os.path.lexists(path) and not (is_file(path) and path.stat().st_size == 0):
            self._put_away(path)
        for suffix in SIDECARS:
            self._only_a_file(path.with_name(LOCK + suffix))
        with closing(connect(path, self._patience_s)) as db:
            db.execute("BEGIN EXCLUSIVE")
            yield

    @contextmanager
    def _patient(self) -> Iterator[None]:
        """Wait long for another program once; if that was in vain, only briefly until the files can be had again: a
        page asks several times to show one answer."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                self._patience_s = IMPATIENT_S
            raise
        self._patience_s = math.inf

    # --- repair -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Examine both files, unless this object did so and they still are the same files."""
        for name in (*self.paths, NEW):
            for suffix in SIDECARS:
                self._only_a_file(self.folder / (name + suffix))
        self._only_a_file(self.folder / NEW)
        if self._checked is None or self._checked != self._signature():
            self._mend()
            self._checked = self._signature()

    def _signature(self) -> Signature | None:
        """Which files these are; None if one of them is none."""
        if not all(map(is_file, self.paths.values())):  # the number of a deleted file may be given to a folder
            return None
        try:
            found = [path.stat() for path in self.paths.values()]
        except OSError:
            return None
        return tuple((one.st_dev, one.st_ino) for one in found)

    def _mend(self) -> None:
        """Bring both files to hold all sound events of either, and tell what was done.

        Whenever this is cut off, each event still lies in one of the files, under the name that is read: the new file
        is whole before it takes the place of the old one, and one file is finished before the other is begun.
        """
        remove(self.folder / NEW)  # of a repair that was cut off
        main, copy = self.paths.values()
        if is_file(main) and is_file(copy) and main.samefile(copy):  # two names of one file: each is written anew
            found = {MAIN: replace(examine(main, self._patience_s), in_order=False), COPY: Found("link")}
        else:
            found = {name: examine(path, self._patience_s) for name, path in self.paths.items()}
        events = {event.id: event for one in found.values() for event in one.events}
        complete = [one.events for one in found.values() if one.state == "sound" and len(one.events) == len(events)]
        merged = complete[0] if complete else sorted(events.values(), key=lambda event: event.order)
        sentences = []
        for name, one in found.items():
            if one.in_order and [e.id for e in one.events] == [e.id for e in merged]:
                continue
            write_new(self.folder / NEW, merged)
            aside = self._set_aside(self.paths[name]) if one.state != "sound" else None
            (self.folder / NEW).replace(self.paths[name])
            sync_folder(self.folder)
            if one.state != "sound" or len(one.events) < len(merged):
                sentences.append(f"{CALLED[name]} {_what_was_wrong(one, len(merged), aside)}.")
        if not any(self.folder.glob("progress*.sqlite-journal")):  # else one of them may still point to what follows
            for stray in filter(is_file, self.folder.glob(NOTE)):  # left by a kill
                stray.unlink()
        if any(one.state in ("empty", "damaged", "link") or one.events for one in found.values()):
            self._tell(sentences, _what_is_left([one.state for one in found.values()], len(merged), len(sentences)))

    def _set_aside(self, path: Path) -> Path | None:
        """Give the file a name under which nothing opens it, together with what SQLite laid beside it. One of the two
        also keeps its own name until a new file takes it: in between, what only this one holds would be lost by a kill.
        """
        stem, ending = path.name.split(".", 1)
        number = 1
        while any(self.folder.glob(f"{stem}.damaged-{date.today()}-{number}.*")):
            number += 1
        ending = "sqlite" if path.name in self.paths else ending
        aside = path.with_name(f"{stem}.damaged-{date.today()}-{number}.{ending}")
        if path.name in self.paths and is_file(path):
            second_name(path, aside)
        elif os.path.lexists(path):
            path.rename(aside)
        for suffix in SIDECARS:  # a journal would be played back into whatever follows
            beside = path.with_name(path.name + suffix)
            if os.path.lexists(beside):
                beside.rename(aside.with_name(aside.name + suffix))
        return aside if os.path.lexists(aside) else None

    def _only_a_file(self, path: Path) -> None:
        if os.path.lexists(path) and not is_file(path):
            self._put_away(path)

    def _put_away(self, path: Path) -> None:
        """Set aside what somebody put in a place where the course writes; it may be theirs."""
        aside = self._set_aside(path)
        if aside:
            self._tell([f"What was in the place of {path.name}"], f"is kept as {aside.name}.")

    def _read_as_they_are(self, reason: Fault) -> list[Event]:
        """The events of both files where nothing can be locked or repaired, as in a folder that is read-only."""
        events: dict[str, Event] = {}
        damaged = readable = unknown = False
        for path in self.paths.values():
            try:
                try:
                    found = examine(path, self._patience_s)
                except TROUBLE:  # perhaps a transaction that was cut off, and may not be rolled back here
                    found = examine_elsewhere(path)
            except (*TROUBLE, OSError):
                unknown = True
                continue
            readable |= found.state == "sound" or bool(found.events)
            damaged |= found.state in ("damaged", "empty", "link")
            events |= {event.id: event for event in found.events}
        if not readable:
            raise reason
        if damaged:
            self._tell(["A progress file is damaged and could not be repaired:"], f"{reason.reason} ({reason.path}).")
        elif unknown:
            self._tell(["One of the two progress files could not be read:"], f"{reason.reason} ({reason.path}).")
        return list(events.values())

    def _tell(self, sentences: list[str], last: str) -> None:
        text = " ".join([*sentences, last])
        if sentences and text not in self.told:
            self.told.append(text)


def _what_was_wrong(found: Found, now: int, aside: Path | None) -> str:
    if found.state == "sound":
        return f"lacked {now - len(found.events)} of {now} entries"
    if found.state == "damaged":
        return f"was damaged and is kept as {aside.name if aside else 'it was'}"
    if found.state == "link":
        return f"was no file of its own but a link, which is kept as {aside.name if aside else 'it was'}"
    return f"was {found.state}"


def _what_is_left(states: list[str], entries: int, remade: int) -> str:
    """What became of the answers."""
    if states == ["sound", "sound"] and remade == 2:
        return "They were united."
    if "sound" in states:
        return "It was made anew from the other: your answers are there."
    if entries:
        return f"Of what they held, {entries} entries could be read and were restored; others may be lost."
    return "No entry could be restored. If you have an export, `python start.py progress import FILE` brings it back."
