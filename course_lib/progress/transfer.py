"""All that was recorded as one JSON text, to move to another machine or to hand in, and back again.

The one idea: what comes from outside is refused as a whole or taken as a whole. A text passes every check before
anything is saved, and its events are merged by their ids, so importing twice is importing once. This reads no file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta

from course_lib.progress.event import OF_THE_COURSE, Event, now, problem_of, time_text
from course_lib.progress.store import Store, visible
from course_lib.strict_json import strict_json

FORMAT, VERSION = "kv-cache-course progress", 1
LARGEST = 16_000_000  # bytes of an import; an event has about 300, a whole course a few hundred thousand
CLOCKS_DIFFER = timedelta(days=1)  # at most, between two machines; a time further ahead is wrong
FIELDS = ("id", "at", "order", "kind", "name", "version", "data")


class BadImport(ValueError):
    """A text that is no export of progress; says what is wrong and where. Nothing was changed."""


class WouldHide(Exception):
    """An export with a reset that would hide what was recorded here; `entries` says how much. Nothing was changed."""

    def __init__(self, entries: int) -> None:
        super().__init__(entries)
        self.entries = entries

    def __str__(self) -> str:
        return f"a reset in it would hide {self.entries} {'entry' if self.entries == 1 else 'entries'} of yours"


@dataclass(frozen=True)
class Imported:
    """How many entries an import held, how many of them were new, how many of it a reset hides now, and how many
    entries that are not in it a reset in it hides now."""

    entries: int
    new: int
    hidden: int
    own_hidden: int = 0


def export_text(history: list[Event]) -> str:
    """Everything that was ever recorded, what a reset hides included."""
    events = [{name: getattr(event, name) for name in FIELDS} for event in history]
    head = {"format": FORMAT, "version": VERSION, "exported_at": time_text(now())}
    return json.dumps({**head, "events": events}, indent=1) + "\n"  # in ASCII: it survives every mail program


def import_text(text: bytes, store: Store, with_resets: bool = False) -> Imported:
    """Save the events of an export that are not here yet.

    What was recorded here and is not in the export is hidden by a reset in it only `with_resets`. Raises WouldHide,
    BadImport, NotSaved or Fault; then nothing changed.
    """
    events = parse(text)
    history = store.history()
    known = {event.id: event for event in history}
    latest = time_text(now() + CLOCKS_DIFFER)
    for number, event in enumerate(events, 1):
        if event != known.get(event.id, event):
            raise BadImport(f"entry {number} has the id of an entry of yours and says something else")
        if event.id not in known and max(event.at, event.order) > latest:
            day, today = max(event.at, event.order)[:10], time_text(now())[:10]
            raise BadImport(f"entry {number} is of {day}, and the clock here says {today}")
    own_hidden = _own_hidden(history, events)
    if own_hidden and not with_resets:
        raise WouldHide(own_hidden)
    new = store.add(events)
    seen = {event.id for event in visible(store.history())}
    hidden = sum(event.id not in seen and event.kind not in OF_THE_COURSE for event in events)
    return Imported(len(events), new, hidden, own_hidden)


def _own_hidden(history: list[Event], events: list[Event]) -> int:
    """How many entries that are seen now and are not among `events` would be hidden with these."""
    known, coming = {event.id for event in history}, {event.id for event in events}
    both = sorted([*history, *(event for event in events if event.id not in known)], key=lambda event: event.order)
    seen = {event.id for event in visible(both)}
    return sum(event.id not in seen and event.id not in coming for event in visible(history))


def parse(text: bytes) -> list[Event]:
    """The events of an export, each checked. Raises BadImport."""
    if len(text) > LARGEST:
        raise BadImport(f"it has more than {LARGEST:,} bytes, the most that an export may have")
    try:
        whole = strict_json(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise BadImport(f"it is no UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise BadImport("it is nested too deeply") from None
    except ValueError as error:  # JSONDecodeError is one
        raise BadImport(f"it is not JSON: {error}") from None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise BadImport(f"it is no export of progress: its format is not {FORMAT!r}")
    if whole.get("version") != VERSION or isinstance(whole["version"], bool):
        raise BadImport(
            f"its version is {_shown(whole.get('version'))}, this course reads {VERSION}: update the course"
        )
    if whole.keys() != {"format", "version", "exported_at", "events"} or not isinstance(whole["events"], list):
        raise BadImport("its fields are not format, version, exported_at and a list of events")
    found: dict[str, int] = {}
    events = []
    for number, entry in enumerate(whole["events"], 1):
        event = _event(entry, number)
        if event.id in found:
            raise BadImport(f"entry {number} has the id of entry {found[event.id]}")
        found[event.id] = number
        events.append(event)
    return events


def _event(entry: object, number: int) -> Event:
    if not isinstance(entry, dict) or entry.keys() != set(FIELDS):
        raise BadImport(f"entry {number}: its fields are not {', '.join(FIELDS)}")
    if problem := problem_of(entry):
        raise BadImport(f"entry {number}: {problem}")
    return Event(**entry)


def _shown(value: object) -> str:
    return ascii(value)[:60] if isinstance(value, str | int | float | None) else f"of type {type(value).__name__}"
