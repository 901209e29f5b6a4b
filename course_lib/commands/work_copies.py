"""A learner's copies of the notebooks, and how they follow the course without losing what the learner wrote.

The one idea: for every copy it is known from which version of the original it came, so that "the course changed it"
and "you changed it" can be told apart. Only a copy that the learner did not write in is replaced. What counts as
writing is the source of cells: running a notebook changes its outputs and is not writing, but such a copy is kept.

What is laid is the original without outputs: it is committed executed, and would show every answer before the learner
predicts. All sums are of what is laid, so an original that was only executed anew has not changed.
"""

import hashlib
import json
import time
from dataclasses import asdict, dataclass
from datetime import date
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

from course_lib.commands.output import TEMPORARY, write_whole
from course_lib.commands.places import originals

MANIFEST = ".course.json"
KEPT = ".old"
STALE_AFTER_S = 3600


def laid(original: bytes) -> bytes:
    """What a learner gets for a file of the course: of a notebook, the same without outputs, execution counts and the
    state of widgets; of any other file, its bytes. The same for the same original, always."""
    if _cells(original) is None:
        return original
    try:
        notebook: dict[str, Any] = json.loads(original)
        if notebook["nbformat"] != 4:
            return original
        notebook["metadata"].pop("widgets", None)
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                cell |= {"outputs": [], "execution_count": None}
                cell["metadata"].pop("execution", None)
        text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"  # as nbformat writes it
        return text.encode()
    except (ValueError, KeyError, TypeError, AttributeError):
        return original


@dataclass(frozen=True)
class Version:
    """What tells two states of a file apart: all of its bytes, and what somebody wrote in it (of a notebook, its cells
    without outputs, counts and metadata). Both are SHA-256 sums."""

    sha256: str
    written: str

    @classmethod
    def of(cls, data: bytes) -> "Version":
        whole = hashlib.sha256(data).hexdigest()
        cells = _cells(data)
        return cls(whole, whole if cells is None else hashlib.sha256(json.dumps(cells).encode()).hexdigest())


class Action(Enum):
    KEEP = "kept"
    COPY = "copied"
    REPLACE = "renewed"
    BESIDE = "laid beside"


@dataclass(frozen=True)
class Change:
    """What was done for one file of the course, `name` (relative to the work folder), in a line for the learner."""

    action: Action
    name: str
    line: str = ""


def decide(original: Version, copy: Version | None, known: Version | None) -> Action:
    """What to do with a copy, given the original now (as it is laid), the copy now (None: not there) and the original
    that the copy came from (None: not known, and then the copy may hold anything)."""
    if copy is None:
        return Action.COPY
    if known is not None and copy.sha256 == known.sha256:  # never touched
        return Action.KEEP if original.sha256 == known.sha256 else Action.REPLACE
    if original.written == copy.written:
        return Action.KEEP
    if known is not None and original.written == known.written:
        return Action.KEEP  # only the learner wrote
    if known is not None and copy.written == known.written:
        return Action.REPLACE  # only the course did; the learner ran it
    return Action.BESIDE


def update_copies(root: Path, work: Path, today: date | None = None) -> list[Change]:
    """Bring the copies in `work` up to the files of the checkout `root`; returns what was done, file by file.

    Nothing that a learner wrote is ever removed or written over: at the worst a new version is laid beside a copy.
    Raises OSError if the folder cannot be written; what was done until then is whole.
    """
    stamp = (today or date.today()).isoformat()
    work.mkdir(parents=True, exist_ok=True)
    _remove_stale(work)
    known = _read_manifest(work)
    now, changes = dict(known), []
    for path in originals(root):
        name, data = path.relative_to(root).as_posix(), laid(path.read_bytes())
        changes.append(_update(work, name, data, known.get(name), stamp))
        now[name] = Version.of(data)
    if now != known:
        content = {"about": "Which version of the course each copy came from.", "copies": {}}
        content["copies"] = {name: asdict(version) for name, version in sorted(now.items())}
        write_whole(work / MANIFEST, (json.dumps(content, indent=1) + "\n").encode())
    return changes


def _update(work: Path, name: str, data: bytes, known: Version | None, stamp: str) -> Change:
    copy = work / name
    there = Version.of(copy.read_bytes()) if copy.exists() else None
    action = decide(Version.of(data), there, known)
    if action is Action.COPY:
        copy.parent.mkdir(parents=True, exist_ok=True)
        write_whole(copy, data)
        return Change(action, name, f"{name} was gone from your folder and is back" if known else "")
    if action is Action.REPLACE:
        assert known is not None
        aside = _set_aside(work, name, known, stamp)
        write_whole(copy, data)
        kept = f"; the one you ran is now {aside.relative_to(work).as_posix()}" if aside else ""
        return Change(action, name, f"{name} has a new version{kept}")
    if action is Action.BESIDE:
        beside = _free_name(copy.parent, f"{copy.stem}.new-{stamp}", copy.suffix, data)
        if not beside.exists():
            write_whole(beside, data)
        return Change(
            action, name, f"{name}: you and the course changed it; the new version lies beside: {beside.name}"
        )
    return Change(action, name)


def _set_aside(work: Path, name: str, known: Version, stamp: str) -> Path | None:
    """Move a copy out of the way; None if it was exactly the old original, of which nothing need be kept.

    It is moved before it is looked at: whatever a notebook server saves at this very moment is kept as well.
    """
    copy = work / name
    folder = (work / KEPT / name).parent
    folder.mkdir(parents=True, exist_ok=True)
    aside = _free_name(folder, f"{copy.stem}.{stamp}", copy.suffix)
    copy.replace(aside)
    if hashlib.sha256(aside.read_bytes()).hexdigest() != known.sha256:
        return aside
    aside.unlink()
    return None


def _free_name(folder: Path, stem: str, suffix: str, data: bytes | None = None) -> Path:
    """A path that is not taken, or one that holds `data` already."""
    for number in count(1):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{suffix}"
        if not path.exists() or (data is not None and path.is_file() and path.read_bytes() == data):
            return path
    raise AssertionError("count() does not end")


def _cells(data: bytes) -> list[list[object]] | None:
    """Type, source and pasted files of every cell; None for what is not a notebook."""
    try:
        cells: list[dict[str, Any]] = json.loads(data)["cells"]
        return [[cell["cell_type"], "".join(cell["source"]), cell.get("attachments") or {}] for cell in cells]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _read_manifest(work: Path) -> dict[str, Version]:
    """What is known of the copies. A manifest that is missing or damaged makes them unknown, which is safe."""
    try:
        copies: dict[str, Any] = json.loads((work / MANIFEST).read_bytes())["copies"]
        entries = [(name, entry["sha256"], entry["written"]) for name, entry in copies.items()]
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}
    return {name: Version(whole, written) for name, whole, written in entries}


def _remove_stale(work: Path) -> None:
    """Remove the halves of files that a killed run left, but not those of one that is running."""
    for left in work.rglob(TEMPORARY + "*"):
        if left.is_file() and time.time() - left.stat().st_mtime > STALE_AFTER_S:
            left.unlink(missing_ok=True)
