"""Answers that nobody's `run` wrote down: random plain data in random places, for the tests of judges."""

from typing import Any

import numpy as np


def some_plain_data(rng: np.random.Generator, depth: int = 0) -> Any:
    """Plain data of a random kind."""
    kind = rng.integers(13 if depth < 2 else 10)
    if kind > 9:
        items = [some_plain_data(rng, depth + 1) for _ in range(rng.integers(4))]
        return items if kind == 10 else dict(zip(("kind", "calls", "keys", "line"), items))
    if kind > 5:
        shape = rng.integers(0, 4, size=rng.integers(5))
        dtype = rng.choice(["bool", "float16", "float32", "float64", "int64", "uint64", "int8"])
        return np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(9)).astype(dtype)
    one = [
        None,
        bool(rng.integers(2)),
        int(rng.integers(-(2**62), 2**62)),
        float(rng.choice([np.nan, np.inf, 0, 1e308])),
    ]
    return [*one, rng.choice(["raised", "none", "no pair", "NotImplementedError", "\x1b[3\ud800", ""]).item(), []][kind]


def places(data: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All ways to something inside plain data."""
    keys = list(data) if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    return [place for key in keys for place in [(*way, key), *places(data[key], (*way, key))]]


def anything() -> list[Any]:
    """Outputs of wrong kinds, and with claims."""
    return [None, True, 1.5, "passed", [], {}, {"cases": []}, {"cases": {}}, {"passed": True, "share": 1.0}]


def filled(cases: list[str], call: Any, ended: Any = None) -> Any:
    """Outputs in which every call of every case came back as `call`."""
    return {"starter": False, "cases": {name: {"calls": [call] * 9, "ended": ended} for name in cases}}
