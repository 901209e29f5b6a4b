"""Runs a learner's `Packer(bits)` on some codes and some bytes and writes down what came back.

The one idea: it only feeds and watches. Each call has a packer of its own, and where codes go there and back, a second
one unpacks them: it is given the bytes and knows nothing else. Two packers in turn show what either keeps in mind.
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
    the same with "do": "both", {"do": "unpack", "bits": int, "packed": [bytes], "count": int}, or {"do": "turns",
    "bits": [int, int], "codes": [[N], …]}, where codes go there and back by the first packer, the second, the first…"""
    return run_calls(code, inputs, one)


def one(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    if call["do"] == "unpack":
        return unpacked(code, call["bits"], call["packed"], call["count"])
    if call["do"] == "turns":
        return in_turns(code, call)
    answer = packed_by(called(code, call["bits"]), call["codes"])
    if call["do"] == "both" and (found := as_bytes(answer["made"])) is not None:
        answer |= unpacked(code, call["bits"], found, len(call["codes"]))
    return answer


def in_turns(code: Callable[..., Any], call: dict[str, Any]) -> dict[str, Plain]:
    packers = [called(code, bits) for bits in call["bits"]]
    answers: list[dict[str, Plain]] = []
    for turn, codes in enumerate(call["codes"]):
        answers.append(packed_by(packers[turn % 2], codes))
    for turn, answer in enumerate(answers):
        if (found := as_bytes(answer["made"])) is not None:
            answer |= unpacked_by(packers[turn % 2], found, len(call["codes"][turn]))
    return {"turns": [*answers], "codes": [answer["codes"] for answer in answers]}


def packed_by(packer: object, given: np.ndarray) -> dict[str, Plain]:
    codes = torch.from_numpy(given.copy())
    came: Any = called(method(packer, "pack"), codes)
    made = as_plain(list(came) if type(came) is bytes or type(came) is bytearray else came, "the bytes")
    return {"made": made, "codes": as_plain(codes, "codes")}


def unpacked(code: Callable[..., Any], bits: int, packed: np.ndarray, count: int) -> dict[str, Plain]:
    return unpacked_by(called(code, bits), packed, count)


def unpacked_by(packer: object, packed: np.ndarray, count: int) -> dict[str, Plain]:
    given = torch.from_numpy(packed.copy())
    found = as_plain(called(method(packer, "unpack"), given, count), "the codes")
    return {"found": found, "packed": as_plain(given, "packed")}


def method(packer: object, name: str) -> Callable[..., Any]:
    return called(getattr, packer, name)  # type: ignore[return-value]


def as_bytes(data: Plain) -> np.ndarray | None:
    """Bytes in a row, uint8 [n], also out of a list of whole numbers; None for anything else."""
    if isinstance(data, list):
        numbers = [each.item() if isinstance(each, np.ndarray) and each.ndim == 0 else each for each in data]
        if not all(type(each) is int and 0 <= each < 256 for each in numbers):
            return None
        data = np.array(numbers, dtype=np.uint8)
    return data if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1 else None
