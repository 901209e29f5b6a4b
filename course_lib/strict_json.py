"""Strict JSON: a text that could be read in two ways is an error.

The one idea: standard parsers take the last of two equal keys and accept NaN. Whoever reads a file of somebody else's
would then believe something that it does not say.
"""

import json
from collections import Counter
from typing import Any, NoReturn


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises ValueError if it is no JSON, names a key twice, or holds NaN or infinity."""
    return json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)


def _pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(items)
    if len(made) != len(items):
        key, times = Counter(key for key, _ in items).most_common(1)[0]
        raise ValueError(f"the key {key!r:.80} appears {times} times")
    return made


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
