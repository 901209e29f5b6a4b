"""What somebody handed in, whatever it is: the cells of a notebook, and in sentences what is wrong with the file.

The one idea: nothing of a file is believed and no file stops the marking. A notebook is read as loosely as it can be
(any version, cells without ids, deleted, renamed and doubled cells), with the memory that a notebook of reasonable size
takes: outputs may be enormous and are cut out before anything is parsed. Points and roles come from the assignment,
never from here.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

MOST_BYTES = 512 << 20  # of a file
MOST_LEFT = 16 << 20  # bytes without outputs
MOST_PARTS = 500_000  # signs that begin or separate entries: parsing takes some 100 bytes for each
MOST_WALKED = 4_000_000  # strings and brackets that are looked at to find what is cut out
MOST_CELLS = 2_000
MOST_CHARACTERS = 1_000_000  # of a cell
CUT_OUT = {b'"outputs"': b"[", b'"attachments"': b"{", b'"widgets"': b"{"}
TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[][{}]', re.DOTALL)  # a string, even one without an end, or a bracket
BRACKET = re.compile(rb'(?:[^][{}"]++|"(?:[^"\\]++|\\.)*+"?)*+[][{}]', re.DOTALL)  # the next one, past all strings
QUOTE, OPENING = ord('"'), b"[{"


@dataclass(frozen=True)
class Cell:
    """A cell as it was handed in. `number` counts from 1 among cells of the same kind; `grade_id` may be anything."""

    number: int
    is_code: bool
    source: str
    grade_id: str = ""
    points: object = None

    def __str__(self) -> str:
        return f"{'Code' if self.is_code else 'Text'} cell {self.number}"


@dataclass(frozen=True)
class Submission:
    """All cells in order, and what there is to say about the file. A file that is not a notebook has no cells."""

    cells: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def code(self) -> list[Cell]:
        return [cell for cell in self.cells if cell.is_code]

    @property
    def text(self) -> list[Cell]:
        return [cell for cell in self.cells if not cell.is_code]

    @cached_property
    def digest(self) -> str:
        """Another one for every other content of the cells."""
        content = [[cell.is_code, cell.source] for cell in self.cells]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def read_submission(path: Path) -> Submission:
    """What lies at `path`. Raises nothing: what cannot be read is a submission without cells and with a note."""
    try:
        return cells_of(parsed(content(path)))
    except Unreadable as reason:
        return Submission(notes=(f"{str(reason)[:1].upper()}{str(reason)[1:]}.",))


class Unreadable(Exception):
    """Why a file is not a notebook, in a sentence without its full stop."""


TOO_LARGE = "without its outputs the file is still far larger than any notebook, and was not read"


def content(path: Path) -> bytes:
    """The bytes of an ordinary file: no link to somewhere else, no pipe that never ends."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        if path.is_symlink():
            raise Unreadable("this is a link to another file, not a file; links are not followed")
        if not path.exists():
            raise Unreadable("there is no such file")
        if not path.is_file():
            raise Unreadable("this is no file")
        with os.fdopen(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable("this is no file")
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(f"the file cannot be read ({getattr(error, 'strerror', '') or error})") from None
    if len(raw) > MOST_BYTES:
        raise Unreadable(f"the file is larger than {MOST_BYTES >> 20} MiB, and was not read")
    if not raw.strip():
        raise Unreadable("the file is empty")
    return raw


def parsed(raw: bytes) -> tuple[Any, list[str]]:
    """The JSON of a notebook without its outputs, and what there is to say about it. Raises Unreadable."""
    notes = []
    if len(raw) > 10_000_000:
        notes.append(f"The file has {len(raw) / 1e6:,.0f} MB, nearly all of it outputs, which play no part.")
    encoding = json.detect_encoding(raw)
    if encoding != "utf-8":
        raw = raw.decode(encoding, "replace").encode("utf-8", "replace")
    raw = without_outputs(raw)
    if len(raw) > MOST_LEFT or sum(raw.count(sign) for sign in (b",", b"[", b"{")) > MOST_PARTS:
        raise Unreadable(TOO_LARGE)
    text = raw.decode("utf-8", "replace")
    if "�" in text and "�".encode() not in raw:
        notes.append("The file has places that are no UTF-8 text.")
    try:
        return json.loads(text), notes
    except (ValueError, RecursionError):
        raise Unreadable("the file is not a notebook: it cannot be read as JSON") from None


def without_outputs(raw: bytes) -> bytes:
    """The text of a notebook with empty outputs, attachments and widgets, in one walk over its strings and brackets.

    Raises Unreadable as soon as there is more than any notebook has.
    """
    kept: list[bytes] = []
    begin = at = depth = parts = 0
    inside: int | None = None  # the depth of what is being cut out
    name, name_end = b"", 0
    for _ in range(MOST_WALKED):
        if not (token := TOKEN.search(raw, at) if inside is None else BRACKET.match(raw, at)):
            return raw if not kept else b"".join(kept) if inside is not None else b"".join((*kept, raw[begin:]))
        first, at = token.start() if inside is None else token.end() - 1, token.end()
        sign = raw[first]
        if sign == QUOTE:
            name, name_end = (token[0], at) if at - first < 20 else (b"", 0)
        elif sign in OPENING:
            if inside is None:
                parts += 1
                if CUT_OUT.get(name) == token[0] and raw[name_end:first].strip() == b":":
                    kept.append(raw[begin:at])
                    inside = depth
                if parts > MOST_PARTS:
                    break
            depth += 1
        else:
            depth -= 1
            if depth == inside:
                begin, inside = first, None
    raise Unreadable(TOO_LARGE if inside is None else "its outputs have far more parts than any notebook's")


def cells_of(found: tuple[Any, list[str]]) -> Submission:
    """The cells of a notebook of any version. Raises Unreadable."""
    notebook, notes = found
    if not isinstance(notebook, dict):
        raise Unreadable("the file is not a notebook: it is JSON of another kind")
    raw = notebook.get("cells")
    if not isinstance(raw, list):  # before version 4 a notebook had sheets
        sheets = notebook.get("worksheets")
        sheets = sheets if isinstance(sheets, list) else []
        raw = [cell for sheet in sheets for cell in listed(sheet, "cells")]
        if not sheets:
            raise Unreadable("the file is not a notebook: it has no cells")
    if not raw:
        raise Unreadable("the notebook has no cells")
    if len(raw) > MOST_CELLS:
        notes.append(f"The notebook has {len(raw):,} cells; only the first {MOST_CELLS:,} were read.")
    cells: list[Cell] = []
    counts = {True: 0, False: 0}
    for entry in raw[:MOST_CELLS]:
        if not isinstance(entry, dict):
            notes.append("The notebook has a cell that is none; it was left out.")
            continue
        is_code = entry.get("cell_type") == "code"
        counts[is_code] += 1
        source = joined(entry["input"] if "source" not in entry and is_code and "input" in entry else entry)
        if len(source) > MOST_CHARACTERS:
            notes.append(f"A cell has {len(source):,} characters and was left out.")
            source = ""
        meta = part(entry, "metadata", "nbgrader")
        grade_id = meta.get("grade_id")
        cells.append(
            Cell(counts[is_code], is_code, source, grade_id if isinstance(grade_id, str) else "", meta.get("points"))
        )
    return Submission(tuple(cells), tuple(dict.fromkeys(notes)))


def listed(table: Any, key: str) -> list[Any]:
    value = table.get(key) if isinstance(table, dict) else None
    return value if isinstance(value, list) else []


def part(table: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def joined(source: Any) -> str:
    """The text of a cell: a string, or a list of lines."""
    if isinstance(source, dict):
        source = source.get("source")
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""
