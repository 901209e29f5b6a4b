"""One thing that a learner did, as a value: what, when, and a seal that shows whether it still is what was written.

The one idea: what is stored and what is imported pass the same gate, so nothing lies in the store that an export could
not carry. It knows the kinds of events and their least content, not the questions and exercises behind their names.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

LONGEST_NAME = 200  # characters
LARGEST_NUMBER = 1e300
DEEPEST = (
    20  # objects and lists inside each other: reading what is much deeper can fail, and that would look like damage
)
LARGEST_DATA = 20_000  # characters of JSON: an answer is a choice or a line of text
EARLIEST, LATEST = "1970", "9999"  # years: a clock may be wrong, but there must be a next microsecond
END_OF_TIME = "9998-12-31T23:59:59.999999+00:00"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00", re.ASCII)
ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
NOTEBOOK = re.compile(r"(?:ex)?(\d\d)(?:[._].*)?", re.ASCII)


@dataclass(frozen=True)
class Event:
    """What happened, for good: an event is never changed and never deleted.

    `id` is a UUID in hexadecimal, `at` the time of the clock (UTC, ISO 8601, microseconds), `version` that of the
    question. `order` sorts events: it is `at`, or a microsecond after the latest event that was known when this one was
    recorded, if the clock stands before that. So a clock set back never puts a second attempt before the first.
    """

    id: str
    at: str
    kind: str
    name: str
    version: str
    data: dict[str, Any] = field(hash=False)
    order: str = ""

    def __post_init__(self) -> None:
        if not self.order:
            object.__setattr__(self, "order", self.at)


def new_event(kind: str, name: str, data: dict[str, Any], version: str = "", latest: str = "") -> Event:
    """An event of this moment, in order after `latest`. Raises ValueError if it is none that could be stored."""
    at = time_text(now())
    made = Event(uuid.uuid4().hex, at, kind, name, version, data, max(at, just_after(latest)))
    if problem := problem_of(vars(made)):
        raise ValueError(f"no event {kind} {name!r}: {problem}")
    return replace(made, data=json.loads(as_json(data)))  # as it will be read: keys are texts, tuples are lists


def now() -> datetime:
    """What the clock says."""
    return datetime.now(UTC)


def time_text(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def just_after(order: str) -> str:
    """The next microsecond, or the same where time ends."""
    if not order:
        return ""
    return min(time_text(datetime.fromisoformat(order) + timedelta(microseconds=1)), END_OF_TIME)


def notebook_of(name: str) -> str:
    """The number of the notebook that a name belongs to: "03" for "03.x", "ex03.append", "03_the_kv_cache"; else ""."""
    found = NOTEBOOK.fullmatch(name)
    return found.group(1) if found else ""


def as_json(data: dict[str, Any]) -> str:
    """One text for equal data. Raises ValueError or TypeError if JSON has no word for it."""
    return json.dumps(data, sort_keys=True, allow_nan=False, separators=(",", ":"))


def seal_of(event: Event) -> str:
    """A hash of the content, stored beside it: a disk that changes a byte inside a text leaves SQLite content."""
    parts = (event.id, event.at, event.order, event.kind, event.name, event.version, as_json(event.data))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


# --- the gate -------------------------------------------------------------------------------------------------------


def _flag(field: str) -> Callable[[dict[str, Any]], str]:
    return lambda data: "" if isinstance(data.get(field), bool) else f"its data need {field!r}: true or false"


def _value(data: dict[str, Any]) -> str:
    value = data.get("value")
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST_NUMBER
    return "" if is_number else "its data need 'value': a finite number"


def _reset(data: dict[str, Any]) -> str:
    meant = data.get("reset")
    return "" if isinstance(meant, str) and ID.fullmatch(meant) else "its data need 'reset': the id of a reset"


def _nothing(data: dict[str, Any]) -> str:
    return ""


KINDS: dict[str, Callable[[dict[str, Any]], str]] = {  # each with what its data need
    "answer": _flag("right"),
    "prediction": _value,
    "check": _flag("passed"),
    "shown": _nothing,
    "hint": _nothing,
    "notebook": _nothing,
    "skip": _nothing,
    "reset": _nothing,
    "undo": _reset,
}
OF_THE_COURSE = ("reset", "undo")  # with no name they mean the whole course; a learner does nothing in it by them


def problem_of(fields: Mapping[str, Any]) -> str:
    """Why the fields of an Event make none, in words; empty if they do. Their types are not trusted."""
    for label in ("id", "at", "order", "kind", "name", "version"):
        value = fields[label]
        if not isinstance(value, str):
            return f"its {label} is no text but {_short(value)}"
        if len(value) > LONGEST_NAME or not value.isprintable():
            return f"its {label} is too long or has characters that cannot be printed: {_short(value)}"
    if not ID.fullmatch(fields["id"]):
        return f"its id is no UUID of 32 hexadecimal digits: {_short(fields['id'])}"
    for label in ("at", "order"):
        if not _is_time(fields[label]):
            return f"its {label} is no time such as 2026-03-01T12:00:00.000000+00:00: {_short(fields[label])}"
    kind, data = fields["kind"], fields["data"]
    if kind not in KINDS:
        return f"its kind {_short(kind)} is unknown (there are {', '.join(KINDS)})"
    if not fields["name"] and kind not in OF_THE_COURSE:
        return "it has no name"
    if not isinstance(data, dict):
        return f"its data are no object but {_short(data)}"
    if _is_deeper(data, DEEPEST):
        return f"its data are nested too deeply: at most {DEEPEST} objects and lists inside each other"
    try:
        size = len(as_json(data))
    except (ValueError, TypeError, RecursionError) as error:
        return f"its data are not plain JSON: {error}"
    if size > LARGEST_DATA:
        return f"its data are too large: {size:,} characters (at most {LARGEST_DATA:,})"
    return KINDS[kind](data)


def _is_deeper(value: object, levels: int) -> bool:
    """Whether objects and lists lie inside each other on more than `levels` levels."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    if not isinstance(value, dict | list | tuple):
        return False
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inside)


def _is_time(text: str) -> bool:
    if not TIME.fullmatch(text) or not EARLIEST <= text < LATEST:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _short(value: object) -> str:
    """A value for a message: short, and nothing that a terminal would obey."""
    return ascii(value[:60]) if isinstance(value, str) else f"of type {type(value).__name__}"
