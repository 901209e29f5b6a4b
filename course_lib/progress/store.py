"""The progress of one learner: what they did, recorded for good, and read back after any mishap.

The one idea: `record` returns only when the event is safe on the disk in two files, and whoever tells a learner "saved"
does so after that. The past is only added to: a reset is one more event, which hides others, and another takes it back.
This knows no notebook, no widget and no question, only names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs

from course_lib.progress.event import OF_THE_COURSE, Event, new_event, notebook_of
from course_lib.progress.faults import Fault, NotSaved
from course_lib.progress.two_files import TwoFiles

_relative: dict[str, Path] = {}


def data_folder() -> Path:
    """Where a learner's answers and progress lie: the folder in COURSE_DATA, else the user's data folder.

    A relative one is meant from the folder that is the current one at the first use in this process.
    """
    chosen = os.environ.get("COURSE_DATA")
    if chosen:
        named = os.path.expanduser(chosen)
        if os.path.isabs(named):
            return Path(named)
        if chosen not in _relative:
            _relative[chosen] = Path(named).absolute()
        return _relative[chosen]
    return platformdirs.user_data_path("kv-cache-course")


class Store:
    """What a learner did, in the files of `folder` (default: the data folder). Making one touches nothing."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = (folder or data_folder()).absolute()
        self._files = TwoFiles(self.folder)

    def record(self, kind: str, name: str, data: dict[str, Any], version: str = "") -> Event:
        """Save that something happened now, and return it when it is safe.

        Raises NotSaved if it could not be saved (then nothing was), and ValueError for what is no event.
        """
        return self._append(lambda latest: [new_event(kind, name, data, version, latest)])[0]

    def add(self, events: list[Event]) -> int:
        """Save events of another store, all or none; how many were not here yet. Raises NotSaved."""
        return len(self._append(lambda latest: events))

    def events(self, kind: str | None = None, name: str | None = None) -> list[Event]:
        """What happened, in order, of one kind or name or of all; what a reset hides is left out, and so are resets.

        What cannot be read gives no events and a notice.
        """
        try:
            found = visible(self.history())
        except Fault as problem:
            self._tell(f"Your progress cannot be read. {problem}")
            return []
        return [event for event in found if kind in (None, event.kind) and name in (None, event.name)]

    def history(self) -> list[Event]:
        """Everything that was ever recorded, in order. Raises Fault if it cannot be read."""
        return sorted(self._files.read(), key=lambda event: event.order)  # stable: then by arrival

    def notices(self) -> list[str]:
        """Sentences about repairs and what could not be read since the last call."""
        told = list(self._files.told)
        self._files.told.clear()
        return told

    def reset(self, notebook: str | None) -> Event:
        """Hide what was recorded so far, of one notebook ("03", "03_the_kv_cache") or of all (None).

        Raises NotSaved, and ValueError for what is not a notebook.
        """
        return self.record("reset", _number(notebook), {})

    def undo(self, notebook: str | None) -> Event | None:
        """Take back the latest reset of one notebook or, with None, of all; None if there is none to take back.

        What it hid can be seen again, unless another reset hides it, too. Raises NotSaved, Fault if the past cannot be
        read, and ValueError for what is not a notebook.
        """
        number = _number(notebook)
        standing = [event for event in standing_resets(self.history()) if event.name == number]
        return self.record("undo", number, {"reset": standing[-1].id}) if standing else None

    def trouble(self) -> Fault | None:
        """Why nothing can be saved now; None if it can, which is tried and taken back."""
        try:
            self._files.append(lambda latest: [new_event("skip", "trial", {}, latest=latest)], keep=False)
        except Fault as problem:
            return problem
        return None

    def _append(self, make: Callable[[str], list[Event]]) -> list[Event]:
        try:
            return self._files.append(make)
        except Fault as problem:
            raise NotSaved(problem.path, problem.reason, problem.remedy) from problem

    def _tell(self, sentence: str) -> None:
        if sentence not in self._files.told:
            self._files.told.append(sentence)


def standing_resets(history: list[Event]) -> list[Event]:
    """The resets that were not taken back, in order. Each is named by its id, so a merge of two pasts changes none."""
    undone = {event.data.get("reset") for event in history if event.kind == "undo"}
    return [event for event in history if event.kind == "reset" and event.id not in undone]


def visible(history: list[Event]) -> list[Event]:
    """The events that no later reset hides, without resets and what takes them back."""
    standing = {event.id for event in standing_resets(history)}
    resets: dict[str, int] = {}
    for place, event in enumerate(history):
        if event.id in standing:
            resets[event.name] = place
    everything = resets.get("", -1)
    return [
        event
        for place, event in enumerate(history)
        if event.kind not in OF_THE_COURSE
        and place > max(everything, resets.get(notebook_of(event.name) or "none", -1))
    ]


def _number(notebook: str | None) -> str:
    number = "" if notebook is None else notebook_of(notebook)
    if notebook is not None and not number:
        raise ValueError(f"no notebook {notebook!r}: its name begins with two digits, such as 03_the_kv_cache")
    return number


_stores: dict[Path, Store] = {}


def store() -> Store:
    """The store of this process in the present data folder."""
    folder = data_folder()
    return _stores.setdefault(folder, Store(folder))
