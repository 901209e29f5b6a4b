"""Numbers that sizes are made of: what counts as a whole number, and bytes in words and back.

The one idea: a size is exact, or it is refused. Bytes stay whole numbers or fractions until they are printed; GB is
10^9 and GiB is 2^30, and a unit that could be either is not guessed. Nothing here knows what a cache is.
"""

import re
from fractions import Fraction
from math import isfinite
from numbers import Rational
from operator import index
from typing import Any

Bytes = int | Fraction  # an int wherever the value is whole

UNITS: dict[str, int] = {"B": 1}
for _power, _letter in enumerate("KMGT", 1):
    UNITS |= {f"{_letter}B": 1000**_power, f"{_letter}iB": 1024**_power}
SIZE = re.compile(r"\s*(\d{1,20}(?:\.\d{1,60})?)\s*([A-Za-z]*)\s*", re.ASCII)
LARGEST_MEMORY = 10**18  # bytes; more is a slip of the pen, not a machine


class SizingError(ValueError):
    """A size that cannot be told: which field or argument is at fault, its value, and what would be right."""

    def __init__(self, message: str, field: str = "", value: object = None) -> None:
        super().__init__(message)
        self.field, self.value = field, value


def shown(value: object) -> str:
    """A value as an error shows it: short, whatever it is."""
    try:
        text = repr(value)
    except Exception as error:  # a repr may be broken, and an int may be too long to print
        text = f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"
    text = " ".join(text.split()) if "\n" in text else text  # a NumPy array goes over several lines
    return text if len(text) <= 80 else f"{text[:60]}… ({len(text)} characters)"


def whole(value: Any, name: str, least: int = 0, most: int | None = None, where: str = "") -> int:
    """`value` as a plain int of at least `least` and at most `most`; SizingError that names it otherwise.

    NumPy's integers are taken. True and 32.0 are not: they are slips more often than numbers.
    """
    told = f"{where}{name} = {shown(value)}"
    if isinstance(value, bool):
        raise SizingError(f"{told} must be a whole number", name, value)
    try:
        number = index(value)
    except TypeError:
        raise SizingError(f"{told} must be a whole number", name, value) from None
    if number < least:
        raise SizingError(f"{told} must be at least {least}", name, value)
    if most is not None and number > most:
        raise SizingError(f"{told} is not believed: it is more than {most:,}", name, value)
    return number


def fraction(value: Any, name: str) -> Fraction:
    """A positive number (int, float, Fraction) as the fraction that it is; SizingError that names it otherwise."""
    known = isinstance(value, int | float | Rational) and not isinstance(value, bool)
    if not known or (isinstance(value, float) and not isfinite(value)) or value <= 0:
        raise SizingError(f"{name} = {shown(value)} must be a positive number, such as 2 or 0.5", name, value)
    return Fraction(value)


def exact(value: Bytes) -> Bytes:
    """The same number, as an int if it is whole."""
    return int(value) if Fraction(value).denominator == 1 else value


def parse_size(text: str, name: str = "size") -> int:
    """Bytes from text such as "80GB", "1.5 GiB" or "4096": exact, so "0.1GB" is 100,000,000.

    Raises SizingError for anything else, and for a unit that could mean two things ("80G").
    """
    found = SIZE.fullmatch(text) if isinstance(text, str) else None
    unit = (found[2] or "B") if found else ""
    if found is None or unit not in UNITS:
        near = [known for known in UNITS if unit and known[0] == unit[0].upper() and len(known) > 1]
        meant = f"say {' or '.join(near)}" if near else "write a number and a unit, such as 80GB (10^9) or 80GiB (2^30)"
        raise SizingError(f"{name} = {shown(text)} is no size: {meant}", name, text)
    size = Fraction(found[1]) * UNITS[unit]
    if size.denominator != 1:
        raise SizingError(f"{name} = {shown(text)} is not a whole number of bytes", name, text)
    return whole(int(size), name, most=LARGEST_MEMORY)


def in_unit(size: Bytes, unit: str) -> Fraction:
    """How many of a unit, exactly: in_unit(2**30, "GiB") is 1."""
    if unit not in UNITS:
        raise SizingError(f"unit = {shown(unit)} is not known; known: {', '.join(UNITS)}", "unit", unit)
    return Fraction(size) / UNITS[unit]


def in_words(size: Bytes) -> str:
    """A size for people: the bytes, then the same in a binary and in a decimal unit, each named."""
    plain = f"{size:,} B" if isinstance(size, int) else f"{float(size):,.4f} B"
    return plain if -1000 < size < 1000 else f"{plain} = {short_words(size)}"


def short_words(size: Bytes) -> str:
    """A size in a binary and in a decimal unit: "1.000 GiB = 1.074 GB"."""
    letter = next((part for part in "TGM" if max(size, -size) >= UNITS[f"{part}B"]), "K")
    binary, decimal = f"{letter}iB", f"{letter}B"
    return f"{float(in_unit(size, binary)):,.3f} {binary} = {float(in_unit(size, decimal)):,.3f} {decimal}"
