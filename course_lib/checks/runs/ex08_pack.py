"""Runs a learner's `Packer(bits)` on some codes and some bytes and writes down what came back.

The one idea: it only feeds and watches. Each call has a packer of its own, and where codes go there and back, a second
one unpacks them: it is given the bytes and knows nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from course_lib.checks.beside import as_plain, called
from course_lib.checks.plain import Plain
from course_lib.checks.runs.calls import run_calls


def run(code: Callable[..., Any], inputs: dict[str, Any]) -> dict[str, Plain]:
    """What `code` does in each case of `inputs`: see `run_calls`. A call is {"do": "pack", "bits": int, "codes": [N]},
    the same with "do": "both", or {"do": "unpack", "bits": int, "packed": [bytes], "count": int}."""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    if call["do"] == "unpack":
        return unpacked(code, call["bits"], call["packed"], call["count"])
    codes = torch.from_numpy(call["codes"].copy())
    came: Any = called(method(code, call["bits"], "pack"), codes)
    packed = as_plain(list(came) if type(came) is bytes or type(came) is bytearray else came, "the bytes")
    answer = {"made": packed, "codes": as_plain(codes, "codes")}
    if call["do"] == "both" and (found := as_bytes(packed)) is not None:
        answer |= unpacked(code, call["bits"], found, len(call["codes"]))
    return answer


def unpacked(code: Callable[..., Any], bits: int, packed: np.ndarray, count: int) -> dict[str, Plain]:
    given = torch.from_numpy(packed.copy())
    found = as_plain(called(method(code, bits, "unpack"), given, count), "the codes")
    return {"found": found, "packed": as_plain(given, "packed")}


def method(code: Callable[..., Any], bits: int, name: str) -> Callable[..., Any]:
    """A method of a new packer."""
    return called(getattr, called(code, bits), name)  # type: ignore[return-value]


def as_bytes(data: Plain) -> np.ndarray | None:
    """Bytes in a row, uint8 [n], also out of a list of whole numbers; None for anything else."""
    if isinstance(data, list):
        numbers = [each.item() if isinstance(each, np.ndarray) and each.ndim == 0 else each for each in data]
        if not all(type(each) is int and 0 <= each < 256 for each in numbers):
            return None
        data = np.array(numbers, dtype=np.uint8)
    return data if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1 else None
