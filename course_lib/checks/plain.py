"""Plain data: what may pass between a learner's code and the judge, and how it passes.

The one idea: nothing of the learner's crosses. `plain` goes over what their code returned and copies it into numbers,
strings, lists, dictionaries and arrays of exactly those types, or says in a sentence why it cannot; an object that
answers every comparison with True never reaches a comparison. A kind of list or dictionary is read with the methods of
list and dict themselves, so whatever its class does instead is never called. `pack` and `unpack` carry plain data
through bytes, and `unpack` trusts none of them. It is no sandbox: `plain` itself runs beside the learner's code.
"""

from __future__ import annotations

import base64
import json
import types
from collections import deque
from collections.abc import Iterable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np

Plain: TypeAlias = "bool | int | float | str | np.ndarray | list[Plain] | dict[str, Plain] | None"

DTYPES = {
    str(np.dtype(kind)): np.dtype(kind)
    for kind in (
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    )
}  # fmt: skip
SCALARS = {dtype.type for dtype in DTYPES.values()}
ROWS = (list, tuple, deque)  # things in a row
MOST_BYTES = 1 << 26  # of all arrays of an answer together: 64 MiB
MOST_THINGS, MOST_CHARACTERS, DEEPEST = 100_000, 100_000, 20


class NotPlain(Exception):
    """What came out is no plain data. The message says what it is, in words for whoever wrote the code."""


def plain(value: object) -> Plain:
    """A copy of `value` in plain data. Torch tensors become arrays; tuples, deques, and kinds of them and of lists
    become lists, kinds of dictionaries become dictionaries, and fractions and decimals become numbers.

    Raises NotPlain for everything else: objects, kinds of numbers, texts or arrays, generators, arrays of objects,
    numbers that NumPy does not know, and more than MOST_BYTES bytes.
    """
    return Copier().copy(value)


def bases(kind: type) -> tuple[type, ...]:
    """A type and all that it is made from, as Python itself knows them: a metaclass can say otherwise."""
    found: tuple[type, ...] = type.__dict__["__mro__"].__get__(kind)
    return found


def among(kind: type, kinds: Iterable[type]) -> bool:
    """Whether a type is one of `kinds`. `in` would ask its metaclass."""
    return any(kind is each for each in kinds)


def things(value: Any) -> Iterator[Any] | None:
    """What lies in a list, a tuple, a deque or a kind of them; None for anything else."""
    row = next((base for base in bases(type(value)) if among(base, ROWS)), None)
    return None if row is None else row.__iter__(value)  # type: ignore[attr-defined]


class Copier:
    """One walk over a value, with what it has copied so far. Types are compared, never asked: objects can lie."""

    def __init__(self) -> None:
        self.bytes_left, self.things_left = MOST_BYTES, MOST_THINGS

    def copy(self, value: Any, depth: int = 0) -> Plain:
        self.things_left -= 1
        if depth > DEEPEST or self.things_left < 0:
            raise NotPlain("lists in lists without end, or far too many of them")
        kind = type(value)
        if kind is int and value.bit_length() > 63:
            raise NotPlain("a whole number of more than 63 bits")
        if kind is str and len(value) > MOST_CHARACTERS:
            raise NotPlain(f"a string of {len(value):,} characters")
        if value is None or among(kind, (bool, int, float, str)):
            return value
        if among(kind, SCALARS):
            return self.copy(value.item(), depth)
        if kind is Fraction or kind is Decimal:
            return self.copy(number(value), depth)
        if (inside := things(value)) is not None:
            return [self.copy(item, depth + 1) for item in inside]
        if among(dict, bases(kind)):
            return {self.key(key): self.copy(item, depth + 1) for key, item in list(dict.items(value))}
        if kind is np.ndarray:
            return self.array(value)
        if kind.__module__.partition(".")[0] == "torch":
            return self.tensor(value)
        raise NotPlain(what(value))

    def key(self, key: object) -> str:
        if type(key) is not str:
            raise NotPlain(f"a dictionary with {what(key)} as a key")
        if len(key) > MOST_CHARACTERS:
            raise NotPlain(f"a dictionary with a key of {len(key):,} characters")
        return key

    def array(self, array: np.ndarray) -> np.ndarray:
        name = str(array.dtype.newbyteorder("="))
        if name not in DTYPES:
            raise NotPlain(f"an array of {name[:60]}, not of numbers that can be compared")
        self.room(array.size * array.itemsize, array.shape)
        return np.array(array, dtype=DTYPES[name], order="C", copy=True)

    def tensor(self, value: Any) -> np.ndarray:
        import torch  # only where somebody handed over a tensor: other checks need no torch

        if type(value) is not torch.Tensor and type(value) is not torch.nn.Parameter:
            raise NotPlain(what(value))
        if value.layout is not torch.strided or value.device.type == "meta":
            raise NotPlain(f"a tensor without plain numbers in it ({value.layout}, on {value.device})")
        name = str(value.dtype).removeprefix("torch.")
        if name not in DTYPES:
            raise NotPlain(f"a tensor of {name}, which NumPy does not know")
        self.room(torch.Tensor.numel(value) * DTYPES[name].itemsize, tuple(value.shape))
        try:
            bare = torch.Tensor.resolve_neg(torch.Tensor.resolve_conj(torch.Tensor.detach(value)))
            return np.array(torch.Tensor.cpu(bare).numpy(), order="C", copy=True)
        except RuntimeError:
            raise NotPlain("a tensor whose numbers cannot be read") from None

    def room(self, size: int, shape: tuple[int, ...]) -> None:
        self.bytes_left -= size
        if self.bytes_left < 0:
            raise NotPlain(f"an array of shape {list(shape)}, which is far more than what was asked for")


def number(value: Any) -> int | float:
    """A fraction or a decimal as a whole number if it is one, otherwise as the float that is nearest to it."""
    try:
        if type(value) is Decimal:
            near = float(value)  # of a size that is known before anything is written out in full
            return int(value) if abs(near) < 2**63 and value == value.to_integral_value() else near
        parts = value.numerator, value.denominator
        above, below = (part.item() if among(type(part), SCALARS) else part for part in parts)
        if type(above) is int and type(below) is int:  # those of an honest fraction are
            return above / below if above % below else above // below
    except (ValueError, ArithmeticError):  # no number at all, or none that a float can hold
        pass
    raise NotPlain(f"{what(value)} that is no number of an ordinary size")


def what(value: object) -> str:
    """What somebody handed over, named by its type: "a generator", "an object of class Cache"."""
    kind = type(value)
    if value is None:
        return "None"
    if value is Ellipsis:
        return "`...`"
    if kind is types.GeneratorType:
        return "a generator"
    if kind is types.FunctionType or kind is types.MethodType:
        return "a function"
    name = type.__dict__["__name__"].__get__(kind)  # a metaclass can lie about its classes' names
    names = [type.__dict__["__name__"].__get__(base) for base in bases(kind)[1:-1]]
    known = [base for base in names if base in ("ndarray", "Tensor", "float", "int", "str", "list", "dict", "tuple")]
    if kind.__module__ == "builtins":
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
    return f"an object of class {name[:60]}" + (f", a kind of {known[0]}" if known else "")


def pack(data: Plain) -> bytes:
    """`data` as bytes: JSON, with the numbers of arrays in base64, little-endian. Raises NotPlain for anything else."""
    return json.dumps(to_json(Copier().copy(data))).encode("ascii")


def to_json(data: Plain) -> Any:
    if isinstance(data, np.ndarray):
        little = data.astype(data.dtype.newbyteorder("<"))
        numbers = base64.b64encode(little.tobytes()).decode("ascii")
        return {"array": [str(data.dtype), list(data.shape), numbers]}
    if isinstance(data, dict):
        return {"dict": {key: to_json(item) for key, item in data.items()}}
    return [to_json(item) for item in data] if isinstance(data, list) else data


def unpack(packed: bytes) -> Plain:
    """The data that `pack` made bytes of. Raises NotPlain, and nothing else, for bytes that `pack` does not make."""
    if len(packed) > 2 * MOST_BYTES:
        raise NotPlain(f"{len(packed):,} bytes, which is far more than any answer")
    try:
        return Copier().copy(from_json(json.loads(packed)))
    except NotPlain:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise NotPlain(f"bytes that are no packed data ({type(error).__name__})") from None


def from_json(data: Any) -> Any:
    if isinstance(data, list):
        return [from_json(item) for item in data]
    if not isinstance(data, dict):
        return data
    if set(data) == {"dict"}:
        return {str(key): from_json(item) for key, item in data["dict"].items()}
    name, shape, numbers = data["array"]
    dtype = DTYPES[name]
    if not all(type(length) is int and 0 <= length <= MOST_BYTES for length in shape) or len(shape) > 32:
        raise ValueError("no shape")
    raw = base64.b64decode(numbers, validate=True)
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)  # ValueError if it does not fit
