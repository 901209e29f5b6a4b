"""Reads the header of a GGUF file: its metadata and the table of its tensors.

The one idea: nothing that the file says about itself is believed before it was compared with the bytes that are
there. A count, a length or an offset that points past the end is an error that says so; none is ever used to allocate
or to loop. The `gguf` package supplies the constants (and elsewhere the dequantisation), but its reader trusts the
file: a flipped bit in a length makes it loop without end, and it takes 3 s for SmolLM2's vocabulary where this takes
0.2 s.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from course_lib.checkpoints.errors import CheckpointError

T = TypeVar("T", int, float, str, bool)

SCALARS = {
    GGUFValueType.UINT8: "<u1",
    GGUFValueType.INT8: "<i1",
    GGUFValueType.UINT16: "<u2",
    GGUFValueType.INT16: "<i2",
    GGUFValueType.UINT32: "<u4",
    GGUFValueType.INT32: "<i4",
    GGUFValueType.FLOAT32: "<f4",
    GGUFValueType.BOOL: "?",
    GGUFValueType.UINT64: "<u8",
    GGUFValueType.INT64: "<i8",
    GGUFValueType.FLOAT64: "<f8",
}
SMALLEST_TENSOR_ENTRY = 8 + 1 + 4 + 8 + 4 + 8  # name length, a letter, count of dimensions, one dimension, type, offset
SMALLEST_FIELD = 8 + 1 + 4 + 1  # name length, a letter, type, one byte


@dataclass(frozen=True)
class TensorEntry:
    """One tensor as the file lists it. `shape` is in the order of torch: rows first, the contiguous dimension last."""

    name: str
    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    start: int  # bytes from the beginning of the file
    n_bytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """Metadata, tensor table and the mapped bytes of a GGUF file."""

    path: Path
    metadata: dict[str, Any]  # numbers, truth values and text; lists of text; NumPy arrays of numbers
    tensors: dict[str, TensorEntry]
    data: np.ndarray  # every byte of the file, mapped, not read

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number; CheckpointError if the key is absent (without a default) or holds anything else."""
        value = self._value(key, (int, float), "a number", default)
        if not isfinite(value):
            raise CheckpointError(f"{self.path}: {key} is {value!r}, not a finite number")
        return float(value)

    def count(self, key: str, default: int | None = None) -> int:
        """A whole number of at least 0."""
        value = self._value(key, (int,), "one whole number", default)
        if value < 0:
            raise CheckpointError(f"{self.path}: {key} is {value}, a count cannot be negative")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return self._value(key, (str,), "text", default)

    def flag(self, key: str, default: bool | None = None) -> bool:
        return self._value(key, (bool,), "true or false", default)

    def texts(self, key: str) -> list[str]:
        return self._value(key, (list,), "a list of texts", None)

    def numbers(self, key: str) -> np.ndarray:
        return self._value(key, (np.ndarray,), "a list of numbers", None)

    def _value(self, key: str, kinds: tuple[type, ...], wanted: str, default: Any) -> Any:
        value = self.metadata.get(key, default)
        if value is None:
            raise CheckpointError(f"{self.path}: the metadata lacks {key}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            found = f"a list of {len(value)} values" if isinstance(value, list | np.ndarray) else repr(value)[:80]
            raise CheckpointError(f"{self.path}: {key} must be {wanted}, found {found}")
        return value


class _Cursor:
    """Walks over the bytes of the header and refuses to step past their end."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.at, self.size = path, 0, data.size
        self.bytes = memoryview(data.data)

    def fail(self, problem: str) -> CheckpointError:
        return CheckpointError(f"{self.path}: {problem} (at byte {self.at:,}). The file is damaged; get it again.")

    def take(self, count: int) -> memoryview:
        if count > self.size - self.at:
            raise CheckpointError(
                f"{self.path}: the file is cut short or damaged: its header needs at least {self.at + count:,} bytes, "
                f"the file has {self.size:,}. Get it again."
            )
        self.at += count
        return self.bytes[self.at - count : self.at]

    def u32(self) -> int:
        return struct.unpack("<I", self.take(4))[0]

    def u64(self) -> int:
        return struct.unpack("<Q", self.take(8))[0]

    def text(self) -> str:
        raw = self.take(self.u64())
        try:
            return str(raw, "utf-8")
        except UnicodeDecodeError as error:
            raise self.fail(f"text that is not UTF-8: {error.reason}") from None

    def many(self, what: str, smallest: int) -> int:
        """A count of things that take at least `smallest` bytes each."""
        count = self.u64()
        if count * smallest > self.size - self.at:
            raise self.fail(f"{count:,} {what} cannot lie in the {self.size - self.at:,} bytes that are left")
        return count

    def member(self, enumeration: Callable[[int], Any], what: str) -> Any:
        value = self.u32()
        try:
            return enumeration(value)
        except ValueError:
            raise self.fail(f"unknown {what} {value}") from None


def read_header(path: Path) -> GGUFHeader:
    """Read metadata and tensor table of the GGUF file at `path`; no weight is read.

    Raises CheckpointError if the file is not GGUF, of another version or byte order, cut short, or contradicts itself.
    """
    try:
        # Mapped copy-on-write: torch wants writable memory, and the file stays as it is.
        data = np.memmap(path, mode="c") if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    cursor = _Cursor(path, data)
    _check_kind(cursor)
    n_tensors = cursor.many("tensors", SMALLEST_TENSOR_ENTRY)
    n_fields = cursor.many("metadata fields", SMALLEST_FIELD)
    metadata: dict[str, Any] = {}
    for _ in range(n_fields):
        key = cursor.text()
        if key in metadata:
            raise cursor.fail(f"the metadata names {key!r} twice")
        metadata[key] = _read_value(cursor, key, cursor.member(GGUFValueType, f"value type of {key!r}"))
    return GGUFHeader(path, metadata, _read_tensor_table(cursor, n_tensors, metadata), data)


def _check_kind(cursor: _Cursor) -> None:
    if cursor.size < 4 or bytes(cursor.take(4)) != b"GGUF":
        found = bytes(cursor.bytes[:4])
        raise CheckpointError(f"{cursor.path} is not a GGUF file: it begins with {found!r}, not b'GGUF'")
    version = cursor.u32()
    if version & 0xFFFF == 0 and version:
        raise CheckpointError(f"{cursor.path} is a GGUF file for big-endian machines; get the little-endian one")
    if version not in (2, 3):
        raise CheckpointError(f"{cursor.path} is GGUF version {version}; versions 2 and 3 can be read")


def _read_value(cursor: _Cursor, key: str, kind: GGUFValueType) -> Any:
    if kind is GGUFValueType.STRING:
        return cursor.text()
    if kind is not GGUFValueType.ARRAY:
        return _scalar(cursor, key, SCALARS[kind])
    kind = cursor.member(GGUFValueType, f"element type of {key!r}")
    if kind is GGUFValueType.ARRAY:
        raise cursor.fail(f"{key!r} is a list of lists, which no known field is")
    if kind is GGUFValueType.STRING:
        return [cursor.text() for _ in range(cursor.many(f"texts in {key!r}", 8))]
    dtype = np.dtype(SCALARS[kind])
    count = cursor.many(f"values in {key!r}", dtype.itemsize)
    return np.frombuffer(cursor.take(count * dtype.itemsize), dtype)


def _scalar(cursor: _Cursor, key: str, dtype: str) -> int | float | bool:
    raw = cursor.take(np.dtype(dtype).itemsize)
    if dtype == "?" and raw[0] > 1:
        raise cursor.fail(f"{key!r} is a truth value of {raw[0]}")
    value = np.frombuffer(raw, dtype)[0]
    # A float32 becomes the shortest decimal that means the same: 1e-05, not 9.999999747378752e-06.
    return float(str(value)) if dtype == "<f4" else value.item()


def _read_tensor_table(cursor: _Cursor, count: int, metadata: dict[str, Any]) -> dict[str, TensorEntry]:
    alignment = metadata.get("general.alignment", 32)
    is_int = isinstance(alignment, int) and not isinstance(alignment, bool)
    if not is_int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.fail(f"general.alignment is {alignment!r}, not a power of two")
    listed = []
    for _ in range(count):
        name, n_dimensions = cursor.text(), cursor.u32()
        if not 1 <= n_dimensions <= 4:
            raise cursor.fail(f"tensor {name!r} has {n_dimensions} dimensions")
        shape = struct.unpack(f"<{n_dimensions}Q", cursor.take(8 * n_dimensions))[::-1]
        listed.append((name, shape, cursor.member(GGMLQuantizationType, f"type of tensor {name!r}"), cursor.u64()))
    start = end = -(-cursor.at // alignment) * alignment
    entries: dict[str, TensorEntry] = {}
    for name, shape, kind, offset in listed:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        if name in entries:
            raise cursor.fail(f"the tensor {name!r} is listed twice")
        if 0 in shape or shape[-1] % block:
            raise cursor.fail(f"tensor {name!r} has shape {list(shape)}; {kind.name} stores rows in blocks of {block}")
        n_bytes = prod(shape) // block * block_bytes
        # The format asks for this order, and with it no two tensors can overlap.
        if offset % alignment or start + offset < end:
            raise cursor.fail(
                f"tensor {name!r} starts at {start + offset:,}, inside another or not a multiple of {alignment}"
            )
        if start + offset + n_bytes > cursor.size:
            raise CheckpointError(
                f"{cursor.path}: the file is cut short: tensor {name!r} ends at byte {start + offset + n_bytes:,}, "
                f"the file has {cursor.size:,}. Get it again."
            )
        end = start + offset + n_bytes
        entries[name] = TensorEntry(name, shape, kind, start + offset, n_bytes)
    if cursor.size > -(-end // alignment) * alignment:
        raise CheckpointError(
            f"{cursor.path}: the last tensor ends at byte {end:,}, the file has {cursor.size:,}: what stands behind it "
            "belongs to no tensor. The file is damaged; get it again."
        )
    return entries
