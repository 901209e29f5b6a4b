"""How far right answers lie apart: the same logits, computed in another order, and what may differ by how much.

The one idea: floating-point sums depend on their order, and every way to compute logits has an order of its own. So
two of them agree within a tolerance, which is measured here on one's own model and machine, and bounded by a contract.
What has no order, a position, a mask, a token or a sequence, has no tolerance either. Computed again in the same way,
in one process, even the bits agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.caches import ContiguousCache
from course_lib.generation import token_ids
from course_lib.model import Transformer

# The contract: how far logits may lie apart, as a share of the largest, in units of the dtype's epsilon (the distance
# from 1 to the next number). Float64 and float32 keep sums in their own precision, so roundings of hundreds of terms
# add up; in the 16-bit types sums are kept in float32 and rounded at the end, once a layer and operation.
EPSILONS = {torch.float64: 64, torch.float32: 64, torch.float16: 8, torch.bfloat16: 8}
AGAIN = "again, in the same way"
Compute = Callable[[Transformer, Tensor], Tensor]  # the logits [T, V] of a text [T]


def tolerance(dtype: torch.dtype, *, again: bool = False) -> float:
    """How far logits may be from those of one pass, as a share of the largest of these: computed in another right way,
    or, `again`, in the same way in one process, where even the bits agree.

    ValueError for a dtype that the contract does not speak of.
    """
    if dtype not in EPSILONS:
        known = ", ".join(str(each).removeprefix("torch.") for each in EPSILONS)
        raise ValueError(f"the contract has no tolerance for {dtype}: it has some for {known}")
    return 0.0 if again else EPSILONS[dtype] * torch.finfo(dtype).eps


@dataclass(frozen=True)
class Noise:
    """One way to compute logits against one pass over the text. Shares are of the largest logit of that pass.

    changed: at how many of the positions another token is the likeliest. smallest_margin: the least distance between
    the likeliest token of one pass and the next, over all positions.
    """

    way: str
    dtype: torch.dtype
    difference: float
    allowed: float
    changed: int
    smallest_margin: float

    @property
    def kept(self) -> bool:
        """Whether the contract holds."""
        return self.difference <= self.allowed


def one_pass(model: Transformer, text: Tensor) -> Tensor:
    logits: Tensor = model(text[None])[0]
    return logits


def in_pieces(size: int) -> Compute:
    """Pieces of `size` tokens one after the other, with a cache; of 1, it is what decoding does."""

    def compute(model: Transformer, text: Tensor) -> Tensor:
        cache = ContiguousCache(model.config, 1, len(text), model.dtype, model.device)
        return torch.cat([model(piece[None], cache)[0] for piece in text.split(size)])

    return compute


def beside(others: int) -> Compute:
    """In a batch with as many other texts, which are longer."""

    def compute(model: Transformer, text: Tensor) -> Tensor:
        longer = torch.cat([text.flip(0), text[:1]])
        rows = torch.stack([torch.cat([text, text[:1]]), *[longer] * others])
        cache = ContiguousCache(model.config, len(rows), rows.shape[1], model.dtype, model.device)
        return model(rows, cache, counts=[len(text), *[len(longer)] * others])[0, : len(text)]

    return compute


def with_threads(count: int) -> Compute:
    """One pass in which so many threads share the sums."""

    def compute(model: Transformer, text: Tensor) -> Tensor:
        with threads(count):
            return one_pass(model, text)

    return compute


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def ways() -> dict[str, Compute]:
    """Ways to compute the same logits, all of them right."""
    other = 1 if torch.get_num_threads() > 1 else 2
    return {
        AGAIN: one_pass,
        "token by token, with a cache": in_pieces(1),
        "in chunks of 8": in_pieces(8),
        "beside 3 other texts": beside(3),
        f"{other} thread{'s' * (other > 1)}": with_threads(other),
    }


@torch.inference_mode()
def noise_floor(model: Transformer, text: Sequence[int], compared: Mapping[str, Compute] | None = None) -> list[Noise]:
    """What each way makes of a text [T], against one pass over it: by default all of `ways`, or those `compared`.

    ValueError for tokens that the model lacks, or a text that leaves it no position: the texts beside it in a batch are
    one token longer.
    """
    tokens = torch.tensor(token_ids(model, text, "the text"), device=model.device)
    reference = one_pass(model, tokens)
    largest = reference.abs().max().double()
    best, next_best = reference.double().topk(2, dim=-1).values.unbind(-1)
    found = []
    for way, compute in (compared or ways()).items():
        logits = compute(model, tokens)
        found.append(
            Noise(
                way=way,
                dtype=model.dtype,
                difference=float((logits.double() - reference.double()).abs().max() / largest),
                allowed=tolerance(model.dtype, again=way == AGAIN),
                changed=int((logits.argmax(-1) != reference.argmax(-1)).sum()),
                smallest_margin=float((best - next_best).min() / largest),
            )
        )
    return found


def noise_table(
    model: Transformer,
    text: Sequence[int],
    dtypes: Sequence[torch.dtype] = tuple(EPSILONS),
    compared: Mapping[str, Compute] | None = None,
) -> list[Noise]:
    """The contract as a table: for each dtype and way what is allowed, and what this machine makes of a text [T].

    The model is copied into each dtype that is not its own. Takes and refuses what `noise_floor` does.
    """
    for dtype in dtypes:
        tolerance(dtype)  # refuse before anything is copied
    copies = (model if model.dtype == dtype else deepcopy(model).to(dtype) for dtype in dtypes)
    return [each for copy in copies for each in noise_floor(copy, text, compared)]
