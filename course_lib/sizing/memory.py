"""How many sequences fit into a memory, and what such an estimate leaves out.

The one idea: what is left after weights and a reserve, divided by what one sequence keeps. The subtraction is part of
the answer, and so is the list of what was not counted.
"""

from dataclasses import dataclass

from course_lib.sizing.bytes import CacheShape, Kind
from course_lib.sizing.quantities import SizingError, whole


@dataclass(frozen=True)
class Fit:
    """memory - weights - reserve = left; left / per_sequence, rounded down, is `sequences`. All but that in bytes."""

    memory: int
    weights: int
    reserve: int
    per_sequence: int

    @property
    def left(self) -> int:
        """Negative if weights and reserve alone are too much."""
        return self.memory - self.weights - self.reserve

    @property
    def sequences(self) -> int:
        return max(self.left, 0) // self.per_sequence


def how_many_fit(memory: int, per_sequence: int, weights: int = 0, reserve: int = 0) -> Fit:
    """How many sequences of `per_sequence` bytes fit beside the weights and a reserve; all of one GPU.

    Raises SizingError for negative numbers, and for sequences that keep nothing: the cache does not limit those.
    """
    if per_sequence == 0:
        raise SizingError("a sequence keeps no bytes here, so the cache limits nothing", "per_sequence", 0)
    return Fit(
        whole(memory, "memory", 1),
        whole(weights, "weights"),
        whole(reserve, "reserve"),
        whole(per_sequence, "per_sequence", 1),
    )


def left_out(shape: CacheShape, block: int = 1, tensor_parallel: int = 1) -> list[str]:
    """Sentences about what the bytes of a cache, on one rank and in blocks of that size, do not contain."""
    sentences = [
        "The weights of the model.",
        "Activations and temporary tensors of a pass, such as logits and the workspace of attention.",
        "What the allocator rounds up or cannot use"
        + (
            ", and blocks that are filled only in part: each token counts for itself here."
            if block == 1
            else ", and the tables that say where each block lies."
        ),
        "Time: nothing is said of the arithmetic of attending, or of the bandwidth that reading the cache takes.",
    ]
    kinds = {group.layer.kind for group in shape.groups}
    if Kind.STATE in kinds:
        sentences.append("The state of layers without a cache: its size is constant, whatever the number of tokens.")
    if Kind.SLIDING in kinds and block > 1:
        sliding = [group for group in shape.groups if group.layer.kind is Kind.SLIDING]
        extra = block * sum(group.layers * group.layer.slot_bytes(tensor_parallel) for group in sliding)
        sentences.append(
            f"A window that does not begin at the edge of a block: up to one block more in each sliding layer, "
            f"{extra:,} B for each sequence."
        )
    return sentences
