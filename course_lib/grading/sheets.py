"""CSV files that people open in a spreadsheet: the list of a class, and marks.

The one idea: what a spreadsheet saved is read whatever it made of it (a byte order mark, semicolons, tabs), or refused
with the line that is wrong; and nothing that is written here is taken for a formula when somebody opens it.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.checks.contract import words

MOST_BYTES = 20_000_000
DELIMITERS = ",;\t"
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # how a cell begins that a spreadsheet calculates
INSIDE = re.compile(r"""([;,\t][\s"]*)(?=[=+\-@＝＋－＠])""")  # where another program may see a cell that begins
WORTH = " (of "  # what follows the name of a column of points


class BadSheet(ValueError):
    """A CSV file that cannot be used; the message names file and line and says what to do."""


@dataclass(frozen=True)
class Sheet:
    """Rows by line number, each column name → cell; `headings` are the columns as they are written."""

    headings: tuple[str, ...]
    rows: tuple[tuple[int, dict[str, str]], ...]
    delimiter: str = ","

    def decimal_comma(self, columns: Sequence[str]) -> bool:
        """Whether numbers in `columns` are written as 2,5. Only whole ones with semicolons between them: so they are,
        for a semicolon is what a spreadsheet takes where the comma is in numbers."""
        cells = [row.get(name, "") for _, row in self.rows for name in columns]
        commas, points = (any(re.fullmatch(rf"\d*{sign}\d+", cell) for cell in cells) for sign in (",", r"\."))
        return self.delimiter != "," and (commas or (self.delimiter == ";" and not points))


@dataclass(frozen=True)
class Name:
    """How somebody in the class is called. `student` is what their folder, or their notebook, is called."""

    student: str
    name: str
    email: str = ""


def class_list(path: Path) -> dict[str, Name]:
    """The names in a CSV file with the columns student and name, and maybe email. Raises BadSheet."""
    found: dict[str, Name] = {}
    lines: dict[str, int] = {}
    for line, row in read_sheet(path, ("student", "name")).rows:
        student = unicodedata.normalize("NFC", row["student"])
        if not student:
            raise BadSheet(f"{path.name}, line {line}: the student is missing; write what the folder is called")
        if student in found:
            raise BadSheet(f"{path.name}, line {line}: {one_line(student)} is in line {lines[student]}, too")
        found[student] = Name(student, one_line(row["name"] or student), one_line(row.get("email", "")))
        lines[student] = line
    if not found:
        raise BadSheet(f"{path.name} has no students: below its first line there is nothing")
    return found


def read_sheet(path: Path, needed: Sequence[str]) -> Sheet:
    """What a CSV file holds, with the columns `needed`. Column names are compared without case. Raises BadSheet."""
    text = decoded(path)
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(DELIMITERS, key=lambda each: (has(first, each, needed), first.count(each)))
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows += [(reader.line_num, [as_typed(cell) for cell in row]) for row in reader if any(map(str.strip, row))]
    except csv.Error as error:
        raise BadSheet(f"{path.name}, line {reader.line_num}: this is no CSV ({error})") from None
    if not rows:
        raise BadSheet(f"{path.name} is empty; its first line should be {','.join(needed)}")
    headings = tuple(cell.strip() for cell in rows[0][1])
    columns = [column(heading) for heading in headings]
    if missing := [name for name in needed if name not in columns]:
        there = one_line(", ".join(headings))
        raise BadSheet(f"{path.name} has no column {' and no column '.join(missing)}; its first line says: {there}")
    if twice := [heading for name, heading in zip(columns, headings) if name and columns.count(name) > 1]:
        raise BadSheet(f"{path.name} has the column {one_line(twice[0])} twice; give one of them another name")
    found = []
    for line, cells in rows[1:]:
        if any(cells[len(columns) :]):
            said = f"{len(cells)} cells in {len(columns)} columns; put a text with “{delimiter}” in quotes"
            raise BadSheet(f"{path.name}, line {line}: {said}")
        filled = cells + [""] * (len(columns) - len(cells))
        found.append((line, {name: cell.strip() for name, cell in zip(columns, filled) if name}))
    return Sheet(headings, tuple(found), delimiter)


def decoded(path: Path) -> str:
    """The text of a file, in UTF-8, or in UTF-16 as a spreadsheet may save it."""
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadSheet(f"{path} cannot be read: {error.strerror or error}") from None
    if len(raw) > MOST_BYTES:
        raise BadSheet(f"{path.name} is larger than {MOST_BYTES / 1e6:.0f} MB; is it the right file?")
    encoding = "utf-16" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        said = f"it is not {encoding[:6].upper().rstrip('-')} text; save it again as “CSV UTF-8”"
        raise BadSheet(f"{path.name}, line {line}: {said}") from None
    if "\0" in text:
        raise BadSheet(f"{path.name} is not text; save it as “CSV UTF-8”")
    return text


def has(line: str, delimiter: str, needed: Sequence[str]) -> int:
    """How many of the columns needed are in a first line."""
    return len(set(needed) & {column(cell.strip().strip('"')) for cell in line.split(delimiter)})


def column(heading: str) -> str:
    """The name of a column: "ex03_cost_answer (of 3)" is ex03_cost_answer."""
    return heading.strip().casefold().partition(WORTH)[0]


def written_sheet(headings: Sequence[str], rows: Iterable[Sequence[str]], delimiter: str = ",") -> bytes:
    """A CSV file that spreadsheets open: UTF-8 with a byte order mark, and no cell that is calculated."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter)
    writer.writerows([as_text(cell) for cell in row] for row in (headings, *rows))
    return out.getvalue().encode("utf-8-sig")


def as_text(cell: str) -> str:
    """A cell that is no formula: one that looks like it gets an apostrophe in front, as people type it."""
    return f"'{cell}" if cell.lstrip(" '").startswith(FORMULA) else cell


def one_cell(text: str) -> str:
    """A text from somebody else that is no formula in any part, by whatever sign a spreadsheet separates cells."""
    return INSIDE.sub(r"\1'", text)


def as_typed(cell: str) -> str:
    """A cell without the apostrophe that `as_text` gave it."""
    return cell[1:] if cell.startswith("'") and as_text(cell[1:]) == cell else cell


def one_line(text: str, longest: int = 120) -> str:
    """A text from somebody else in one line: printable, and not too long."""
    return words(" ".join(text.split()), longest)
