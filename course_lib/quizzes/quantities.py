"""Numbers as people type them, with or without a unit: "1.5", "1.5 MiB", "1 536 KiB", "−3".

The one idea: what can be read in two ways is not read at all. A comma is a decimal point for some and a mark of
thousands for others, so it gets a sentence instead of a verdict; so does a unit of something else, and "Mb", which
are megabits for some. All in small letters, "mb", it is what people type in haste for MB. Bytes and seconds are
converted, because 1536 KiB is the same answer as 1.5 MiB.
"""

from __future__ import annotations

import re
from math import isfinite

LONGEST = 100  # characters of an answer
BYTES = {"b": 1.0, "byte": 1.0} | {
    f"{letter}{mark}": float(base**power)
    for base, mark in ((1000, "b"), (1024, "ib"))
    for power, letter in enumerate("kmgt", 1)
}
SECONDS = {
    "s": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "millisecond": 1e-3,
    "\N{GREEK SMALL LETTER MU}s": 1e-6,
    "us": 1e-6,
    "microsecond": 1e-6,
}  # casefold() turns the micro sign into the Greek letter
FAMILIES = (BYTES, SECONDS)
NEIGHBOURS = [{f"{letter}b", f"{letter}ib"} for letter in "kmgt"]

QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:\d{1,3}(?:[ _']\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,4})?)\s*(?P<unit>[^\d\s.,].*)?",
    re.IGNORECASE | re.DOTALL,
)


class NotAnAnswer(ValueError):
    """What was given cannot be judged. The message is a sentence for the learner; nothing is recorded."""


def parse(text: str, unit: str) -> tuple[float, str]:
    """The value of what was typed, in `unit`, and a sentence if it was converted. Raises NotAnAnswer."""
    typed = " ".join(text[: LONGEST + 1].replace("\N{MINUS SIGN}", "-").split())
    if not typed:
        raise NotAnAnswer("Write a number first.")
    if len(typed) > LONGEST:
        raise NotAnAnswer("That is too long for a number.")
    if re.search(r"\d,\d", typed):
        raise NotAnAnswer("A comma can mean two things. Write 1.5 with a point, and 1500 without a mark.")
    match = QUANTITY.fullmatch(typed)
    if match is None:
        raise NotAnAnswer(f"“{typed[:30]}” is not a number. Write one such as 12 or 1.5.")
    value = float(re.sub("[ _']", "", match["number"]))
    if not isfinite(value):
        raise NotAnAnswer("That number is too large to be read.")
    named = (match["unit"] or "").strip()
    if not named:
        return value, ""
    scale = scale_between(named, unit)
    if scale is None:
        wanted = f"in {unit}" if unit else "as a number without a unit"
        raise NotAnAnswer(f"“{named[:30]}” is not a unit of this answer. It is wanted {wanted}.")
    if bytes_name := if_bits(named):
        raise NotAnAnswer(f"“{named[:30]}” can mean bits. If you mean bytes, write {bytes_name}.")
    converted = f"You wrote {typed}; that is {value * scale:.4g} {unit}." if scale != 1 else ""
    return value * scale, converted


def scale_between(named: str, wanted: str) -> float | None:
    """By what a number in `named` is multiplied to be one in `wanted`; None if they measure different things."""
    (head, tail), (wanted_head, wanted_tail) = split(named), split(wanted)
    if tail not in ("", wanted_tail):
        return None
    for family in FAMILIES:
        if head in family and wanted_head in family:
            return family[head] / family[wanted_head]
    return 1.0 if head == wanted_head else None


def if_bits(named: str) -> str:
    """What to write instead of "Mb" or "Gib per token", which may mean bits: "MB", "GiB"; else an empty text."""
    found = re.match(r"([KMGT]i?)b(?![a-z])", named.removesuffix("s"))
    return f"{found[1].replace('K', 'k') if len(found[1]) == 1 else found[1]}B" if found else ""


def with_the_other_thousand(typed: str, wanted: str) -> tuple[float, str] | None:
    """The number of an answer in MB where `wanted` is MiB, or the other way round, and what is asked for, in words.

    None if its unit is no such neighbour of `wanted`: the same letter, counted in the other thousand. `typed` is an
    answer that `parse` can read.
    """
    match = QUANTITY.fullmatch(" ".join(typed.replace("\N{MINUS SIGN}", "-").split()))
    head, wanted_head = split((match["unit"] if match else None) or "")[0], split(wanted)[0]
    if match is None or head == wanted_head or {head, wanted_head} not in NEIGHBOURS:
        return None
    name, power = re.split(r"\s+per\s+|\s*/\s*", wanted.strip())[0], "kmgt".index(wanted_head[0]) + 1
    size = f"2^{10 * power}" if wanted_head.endswith("ib") else f"10^{3 * power}"
    return float(re.sub("[ _']", "", match["number"])), f"{name} are asked for here ({size} bytes)"


def split(unit: str) -> tuple[str, str]:
    """A unit in one spelling, and what it is counted per: "KiB per token", "kib/tokens" -> ("kib", "token")."""
    head, _, tail = re.sub(r"\s+per\s+|\s*/\s*", "/", unit.strip().casefold()).partition("/")
    return singular(head), singular(tail)


def singular(word: str) -> str:
    if word in SECONDS:
        return word
    if word.endswith("sses"):
        return word.removesuffix("es")
    return word if word.endswith("ss") else word.removesuffix("s")
