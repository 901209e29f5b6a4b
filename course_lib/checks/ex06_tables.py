"""What the checks of ex06 share: drawing numbers of blocks, reading them out of an answer, and words for them.

The one idea: an allocator is free to choose any free block, so nothing here expects certain numbers. What came back is
taken at its word if it is a list of whole numbers, and at nothing else.
"""

from __future__ import annotations

import numpy as np

from course_lib.checks.compare import as_array, is_empty, what_came
from course_lib.checks.contract import MOST_SHOWN
from course_lib.checks.plain import Plain

Past = list[tuple[set[int], str]]  # of each call: the blocks that it was about, and what it was
LATEST = 4  # of them in a message


def whole_numbers(data: Plain) -> list[int] | None:
    """A list or an array of whole numbers as a list; None for anything else."""
    if is_empty(data):
        return []
    array = as_array(data)
    if array is None or array.ndim != 1 or array.dtype.kind not in "iu":
        return None
    return [int(number) for number in array]


def scattered(rng: np.random.Generator, blocks: range, count: int) -> list[int]:
    """So many of `blocks` in any order, no two of which lie as they would in one piece."""
    while True:
        found = [int(block) for block in rng.permutation(blocks)[:count]]
        if len({block - place for place, block in enumerate(found)}) == len(found):
            return found


def listed(data: Plain) -> str:
    """Whole numbers as one would write them: [3, 0, 7]; anything else in a few words."""
    found = whole_numbers(data)
    if found is None:
        return what_came(data)
    return f"[{', '.join(map(str, found[:MOST_SHOWN]))}{', …' * (len(found) > MOST_SHOWN)}]"


def so_far(past: Past, block: int) -> str:
    """The latest calls that were about a block, for whoever looks for the one that went wrong."""
    found = [done for blocks, done in past if block in blocks]
    if not found:
        return ""
    return f"what was done with block {block} before: {'…, ' * (len(found) > LATEST)}{', '.join(found[-LATEST:])}"


def several(count: int, thing: str) -> str:
    """ "1 block", "3 blocks"."""
    return f"{count} {thing}{'s' * (count != 1)}"
