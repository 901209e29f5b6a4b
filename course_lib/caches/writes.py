"""Writes that are made all together or not at all.

The one idea: what is about to be overwritten is set aside first, and put back if anything comes in between, Ctrl-C
included. So a cache that reuses the slots of tokens it forgets is never found half changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

Write = tuple[Tensor, Any, Tensor]  # tensor[place] = new


def write_all(writes: Sequence[Write]) -> None:
    before = [(tensor, place, tensor[place].clone()) for tensor, place, _ in writes]
    try:
        for tensor, place, new in writes:
            tensor[place] = new
    except BaseException:
        for tensor, place, old in before:
            tensor[place] = old
        raise
