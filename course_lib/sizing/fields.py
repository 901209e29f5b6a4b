"""The fields of a config, read one at a time and believed only if they make sense.

The one idea: a field is named in the error that it causes, with its value. Absent and null are the same. A model that
lies inside another's config (`text_config`) may leave out what its class fills in; then the default is taken, and a
sentence says so. Nothing here knows what a field means.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from course_lib.sizing.quantities import SizingError, shown, whole

MOST = {"layers": 10_000, "heads": 65_536, "dimensions": 2**24, "positions": 2**40}  # larger than any model


class Fields:
    """Typed access to one object of a config. `notes` collects what had to be assumed."""

    def __init__(self, values: Mapping[str, Any], where: str, defaults: Mapping[str, Any] | None = None) -> None:
        self.values, self.where, self.defaults = values, where, defaults or {}
        self.notes: list[str] = []

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def assume(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def fail(self, name: str, problem: str) -> SizingError:
        value = self.values.get(name)
        return SizingError(f"{self.where}: {name} = {shown(value)} {problem}", name, value)

    def missing(self, name: str) -> SizingError:
        return SizingError(f"{self.where}: {name} is missing, and nothing else in the config tells it", name)

    def value(self, name: str) -> Any:
        """What is given, else the default of the class, else None."""
        given = self.values.get(name)
        if given is not None:
            return given
        default = None if name in self.values else self.defaults.get(name)
        if default is not None:
            self.assume(f"The config leaves out {name}; {default} is what the model's class then takes.")
        return default

    def count(self, names: str | tuple[str, ...], of: str, least: int = 1) -> int:
        """A whole number under one of several names (older configs use others).

        Raises SizingError if it is missing, no count, absurd, or if two names say different things.
        """
        found = self.maybe(names, of, least)
        if found is None:
            raise self.missing(names if isinstance(names, str) else names[0])
        return found

    def maybe(self, names: str | tuple[str, ...], of: str, least: int = 1) -> int | None:
        """The same, or None if it is absent."""
        names = (names,) if isinstance(names, str) else names
        given = [name for name in names if name in self] or names[:1]
        numbers = {}
        for name in given:
            if (value := self.value(name)) is not None:
                numbers[name] = whole(value, name, least, MOST[of], f"{self.where}: ")
        if len(set(numbers.values())) > 1:
            raise self.fail(given[0], f"contradicts {given[1]} = {numbers[given[1]]}")
        return next(iter(numbers.values()), None)

    def flag(self, name: str, absent: bool) -> bool:
        value = self.value(name)
        if value is not None and not isinstance(value, bool):
            raise self.fail(name, "is neither true nor false")
        return absent if value is None else value

    def text(self, name: str) -> str | None:
        value = self.value(name)
        if value is not None and not isinstance(value, str):
            raise self.fail(name, "is not a text")
        return value

    def list_of(self, name: str, kind: type, n: int | None = None) -> list[Any] | None:
        """A list of texts, or of whole numbers, with `n` entries; None if it is absent."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list | tuple) or any(type(entry) is not kind for entry in value):
            raise self.fail(name, f"is not a list of {'texts' if kind is str else 'whole numbers'}")
        if n is not None and len(value) != n:
            raise self.fail(name, f"has {len(value)} entries, but there are {n} layers")
        return list(value)

    def refuse(self, names: Iterable[str], problem: str) -> None:
        """Raise SizingError if one of the fields is there and says something."""
        for name in names:
            if not _silent(self.values.get(name)):
                raise self.fail(name, problem)


def _silent(value: Any) -> bool:
    """Whether a field says nothing: null, false, 0, or an empty list or object. NumPy's values have no plain `in`."""
    if value is None or isinstance(value, str):
        return value is None
    try:
        return len(value) == 0
    except TypeError:
        return bool(value == 0)
