"""Reads tables of a text file that a person wrote, field by field, and says exactly where one is wrong.

The one idea: the names that may stand in a table are said first, so a misspelt one is called that and not a missing
one; then every field is asked for by its name and kind. Knows nothing of questions.
"""

from __future__ import annotations

import difflib
import re
import tomllib
import unicodedata
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NoReturn

MOST_BYTES = 200_000
MOST_CHARACTERS = 4_000  # of one text
PART = r"(?:[\w-]++|\"[^\"\n]*+\"|'[^'\n]*+')"
DEEP_KEY = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*+\.[ \t]*+{PART}){{20}}")  # reading one of thousands takes minutes


class BadQuestions(ValueError):
    """A file of questions that cannot be used: says which file, which question, which field, and what to write.

    A learner may read it, so it holds no number of a key; and it can be shown in a terminal, whatever the file holds.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))

    def _render_traceback_(self) -> list[str]:  # IPython asks for it: in a notebook the sentence is enough
        return [f"{type(self).__name__}: {self}"]


def read_table(path: Path) -> dict[str, Any]:
    """The content of a TOML file. Raises BadQuestions if it is missing, too large, not UTF-8 or not TOML.

    What would keep the reader busy for minutes is refused before it is read: a large file, a key of very many parts.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadQuestions(f"{path.name}: cannot be read ({error.strerror or error}): {path}") from None
    except ValueError as error:  # no path at all, such as one with a null character
        raise BadQuestions(f"{path.name}: cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise BadQuestions(f"{path.name}: is larger than {MOST_BYTES:,} bytes; a file of questions is a few kilobytes")
    try:
        text = content.decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise BadQuestions(f"{path.name}: line {line} is not UTF-8 text; save the file as UTF-8") from None
    if deep := DEEP_KEY.search(text):
        line = text[: deep.start()].count("\n") + 1
        raise BadQuestions(f"{path.name}: line {line}: more than 20 names are joined by dots; a field has one name")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadQuestions(f"{path.name}: is not TOML: {str(error).rstrip('.')}") from None
    except ValueError:  # int() reads no more than some thousand digits
        raise BadQuestions(f"{path.name}: holds a number of too many digits to be read; shorten it") from None
    except RecursionError:
        raise BadQuestions(f"{path.name}: is not TOML that a person wrote: it is nested too deeply") from None


class Fields:
    """One table of a file, with fields among `known`. Each method gives a field, checked. Raises BadQuestions.

    `around` are the fields of the table that this one is part of.
    """

    def __init__(self, table: object, where: str, known: Sequence[str], around: Sequence[str] = ()) -> None:
        self.where = where
        if not isinstance(table, dict):
            raise BadQuestions(f"{where}: should be a table, not {kind(table)}")
        self.table = table
        self.asked: list[str] = []
        for field in table:
            if field in around and field not in known:  # in TOML a field belongs to the table begun last
                self.fail(field, "belongs to the question; write it above the first [[question.…]]")
            if field not in known:
                hint = nearest(field, known) or f"; known are {', '.join(known)}"
                self.fail(field[:60], f"is not known here{hint}")

    def fail(self, field: str, problem: str) -> NoReturn:
        raise BadQuestions(f"{self.where}: {field}: {problem}")

    def take(self, field: str) -> object:
        """What stands in `field`, None if nothing does."""
        self.asked.append(field)
        return self.table.get(field)

    def text(self, field: str, *, needed: bool = True) -> str:
        value = self.take(field)
        if value is None and not needed:
            return ""
        if value is None:
            self.fail(field, f'is missing; write {field} = "…"')
        return self.as_text(field, value)

    def as_text(self, field: str, value: object) -> str:
        if not isinstance(value, str):
            self.fail(field, f"should be text in quotation marks, not {kind(value)}")
        value = " ".join(value.split())
        if not value:
            self.fail(field, "is empty; write a sentence")
        if len(value) > MOST_CHARACTERS:
            self.fail(field, f"has {len(value):,} characters, more than {MOST_CHARACTERS:,}; shorten it")
        if any(unicodedata.category(character) == "Cc" for character in value):
            self.fail(field, "holds a control character, which no page shows; take it out")
        return value

    def texts(self, field: str) -> tuple[str, ...]:
        value = self.take(field)
        if not isinstance(value, list):
            self.fail(field, f'should be a list of texts, {field} = ["…", "…"], not {kind(value)}')
        return tuple(self.as_text(f"{field}, number {number}", item) for number, item in enumerate(value, 1))

    def one_of(self, field: str, values: Sequence[str]) -> str:
        value = self.text(field)
        if value not in values:
            self.fail(field, f"“{value[:60]}” is none of {', '.join(values)}{nearest(value, values)}")
        return value

    def flag(self, field: str, *, missing: bool = False) -> bool:
        """True or false; `missing` if nothing stands there."""
        value = self.take(field)
        if value is None:
            return missing
        if not isinstance(value, bool):
            self.fail(field, f"should be true or false, not {kind(value)}")
        return value

    def number(self, field: str, *, needed: bool = True, least: float | None = None) -> float | None:
        value = self.take(field)
        if value is None:
            if needed:
                self.fail(field, f"is missing; write {field} = 1.5, without quotation marks")
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(field, f"should be a number without quotation marks, not {kind(value)}")
        if abs(value) > 1e300 or not isfinite(value):
            self.fail(field, "should be a finite number, between -1e300 and 1e300")
        if least is not None and value < least:
            self.fail(field, f"is {value}, and should be {least:g} or more")
        return float(value)

    def needed_number(self, field: str) -> float:
        value = self.number(field)
        assert value is not None
        return value

    def whole(self, field: str, low: int, high: int, *, needed: bool = True) -> int | None:
        value = self.take(field)
        if value is None and not needed:
            return None
        if value is None:
            self.fail(field, f"is missing; write {field} = {low}")
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(field, f"should be a whole number, not {kind(value)}")
        if not low <= value <= high:
            said = f"is {value}, and" if abs(value) < 1e9 else "is far too large; it"
            self.fail(field, f"{said} should be {low} to {high}")
        return value

    def tables(self, field: str, most: int) -> list[object]:
        value = self.take(field)
        if value is None:
            return []
        if not isinstance(value, list):
            self.fail(field, f"should be one or more tables, each after [[…{field}]], not {kind(value)}")
        if len(value) > most:
            self.fail(field, f"there are {len(value)}, more than {most}")
        return value

    def refuse_others(self, of: str) -> None:
        """Raises BadQuestions if a field is left that nobody asked for: it is for something else than `of`."""
        for field in self.table:
            if field not in self.asked:
                self.fail(field, f"is not for {of}; take it out")


def nearest(word: str, words: Sequence[str]) -> str:
    found = difflib.get_close_matches(word[:60], words, n=1, cutoff=0.5)
    return f"; did you mean {found[0]}?" if found else ""


def printable(text: str) -> str:
    """`text` with every character that is no print as Python writes it: no text of a file commands a terminal."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def kind(value: object) -> str:
    """What a value is, in words for somebody who does not write Python."""
    if value is None:
        return "nothing"
    names = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        list: "a list",
        dict: "a table",
    }
    return names.get(type(value), "a date or time")
