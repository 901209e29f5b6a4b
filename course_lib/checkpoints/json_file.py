"""Strict JSON files, and typed access to their fields.

The one idea: a configuration that can be read in two ways is an error. Standard parsers take the last of two equal
keys, accept NaN, and know true as 1; here each of these raises a CheckpointError that names file and field.
"""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from course_lib.checkpoints.errors import CheckpointError
from course_lib.strict_json import strict_json

LARGEST = 512 << 20  # bytes; the largest tokenizer.json in use has about 35 MB


def read_json(path: Path) -> dict[str, Any]:
    """The object in the JSON file at `path`.

    Raises CheckpointError if it is absent, too large, not JSON, not an object, names a key twice or holds NaN or
    infinity.
    """
    try:
        if not path.is_file():
            raise CheckpointError(f"{path.parent} has no file {path.name}")
        if path.stat().st_size > LARGEST:
            raise CheckpointError(f"{path} has {path.stat().st_size:,} bytes; more than {LARGEST:,} is not believed")
        value = strict_json(path.read_text(encoding="utf-8"))
    except CheckpointError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(f"{path} is not a valid JSON file: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold a JSON object, found {type(value).__name__}")
    return value


class Fields:
    """The fields of one JSON object. A field that is null counts as absent, as it does in transformers."""

    def __init__(self, values: Mapping[str, Any], where: Path | str) -> None:
        self.values, self.where = values, where

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def fail(self, name: str, problem: str) -> CheckpointError:
        return CheckpointError(f"{self.where}: {name} = {self.values.get(name)!r:.80} {problem}")

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of at least 0; absent, the default, or CheckpointError without one."""
        value = self._value(name, (int,), "is not a whole number", default)
        if value < 0:
            raise self.fail(name, "cannot be negative")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, (int, float), "is not a number", default)
        try:
            number = float(value)
        except OverflowError:
            number = float("inf")
        if not isfinite(number):
            raise self.fail(name, "is not a finite number")
        return number

    def text(self, name: str, default: str | None = None) -> str:
        return self._value(name, (str,), "is not a text", default)

    def flag(self, name: str, default: bool | None = None) -> bool:
        return self._value(name, (bool,), "is neither true nor false", default)

    def object(self, name: str) -> "Fields":
        return Fields(self._value(name, (dict,), "is not an object", {}), f"{self.where}: {name}")

    def _value(self, name: str, kinds: tuple[type, ...], problem: str, default: Any) -> Any:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise CheckpointError(f"{self.where} lacks the field {name!r}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise self.fail(name, problem)
        return value
