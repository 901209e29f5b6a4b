"""Where two computations of one text part: the first token, layer and part of a layer that differ.

The one idea: a layer's key and value are made before attention, its output after. So the first part that differs
says what went wrong: the token, its position, or what it was allowed to see. It does not say which of the two
computations is the right one, nor whether a difference within the tolerance is more than rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from course_lib.generation import token_ids
from course_lib.model import Transformer

if TYPE_CHECKING:
    from course_lib.caches import Step
    from course_lib.serving import Sequence as Served

PARTS = ("keys", "values", "output")  # in the order in which a layer makes them


@dataclass(frozen=True)
class Trace:
    """What the layers made of the tokens of one text, in the order in which the tokens were read.

    positions: where each of the N tokens stands in the text, as counted by whoever recorded. keys and values
    [N, L, H, D] as they were handed to the cache, output [N, L, d_model] as each layer handed it on.
    """

    name: str
    positions: tuple[int, ...]
    keys: Tensor
    values: Tensor
    output: Tensor


@dataclass(frozen=True)
class Divergence:
    """The first difference: token `token` of a text, in layer `layer`, in `part`. `parts` are all of that layer which
    differ there; `difference` is a share of the largest number that the reference has there.
    """

    name: str
    token: int
    layer: int
    part: str
    difference: float
    parts: tuple[str, ...]

    @property
    def meaning(self) -> str:
        if self.part == "output":
            return "Key and value are right, what attention made is not: the mask is wrong, or what lies in the cache."
        if "values" not in self.parts:
            return "The value is right, so the token is; the key is not: the token was put at another position."
        if self.layer == 0:
            return "The value in layer 0 depends on nothing but the token: another token was read."
        return f"Layer {self.layer - 1} handed on what is right: layer {self.layer} does not use its own weights."

    @property
    def place(self) -> str:
        """Token, run, layer and part in a sentence."""
        of = f" of {self.name}" if self.name else ""
        return f"first difference at token {self.token}{of}, layer {self.layer}, {self.part} ({self.difference:.2g})."

    def __str__(self) -> str:
        return f"{self.place} {self.meaning}"


@dataclass
class Recorder:
    """What `record` hears of a model. After a pass `last` holds its parts, each [B, T, L, ...].

    `engine.observers.append(recorder.observe)` has the passes of an engine sorted into `traces`, by sequence. The k-th
    token that a sequence reads is counted as the token at position k, whatever the cache says; a sequence that was
    preempted begins again.
    """

    last: dict[str, Tensor] = field(default_factory=dict)
    heard: dict[str, list[Tensor]] = field(default_factory=dict)  # of the pass that is going on: L times [B, T, ...]
    pieces: dict[str, list[Trace]] = field(default_factory=dict)
    readers: dict[str, tuple[Served, int]] = field(default_factory=dict)  # by name; the times it was preempted

    def begin(self) -> None:
        self.heard = {part: [] for part in PARTS}

    def finish(self) -> None:
        self.last = {part: torch.stack(heard, dim=2) for part, heard in self.heard.items()}

    def observe(self, sequences: Sequence[Served], counts: Sequence[int]) -> None:
        """Keep what the last pass made of counts[i] tokens of sequences[i]."""
        for i, (sequence, count) in enumerate(zip(sequences, counts, strict=True)):
            name = sequence.name
            reader, preempted = self.readers.get(name, (sequence, 0))
            if reader is not sequence:
                raise ValueError(f"two requests are called {name!r}: give each a name of its own")
            pieces = self.pieces.setdefault(name, [])
            begins = not pieces or preempted < sequence.preempted
            start = sequence.reused if begins else pieces[-1].positions[-1] + 1
            self.readers[name] = (sequence, sequence.preempted)
            if count:
                parts = {part: tensor[i, :count] for part, tensor in self.last.items()}
                pieces.append(Trace(name, tuple(range(start, start + count)), **parts))

    @property
    def traces(self) -> dict[str, Trace]:
        return {name: joined(pieces) for name, pieces in self.pieces.items() if pieces}


def joined(pieces: list[Trace]) -> Trace:
    parts = {part: torch.cat([getattr(piece, part) for piece in pieces]) for part in PARTS}
    return Trace(pieces[0].name, tuple(position for piece in pieces for position in piece.positions), **parts)


class Tap:
    """Stands before a step, hears what a layer writes, and passes it on."""

    def __init__(self, step: Step, recorder: Recorder) -> None:
        self.step, self.recorder = step, recorder

    def write(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        for part, new in (("keys", k), ("values", v)):
            self.recorder.heard[part].append(new.transpose(1, 2).clone())  # [B, T, H, D]
        return self.step.write(layer, k, v)

    def __getattr__(self, name: str) -> Any:  # all else is the step's own
        return getattr(self.step, name)


@contextmanager
def record(model: Transformer) -> Iterator[Recorder]:
    """Within, all passes of `model` are heard."""
    recorder = Recorder()

    def tap(_: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*args[:-1], Tap(args[-1], recorder))

    def hear(_: nn.Module, __: object, output: Tensor) -> None:
        recorder.heard["output"].append(output)

    hooks = [
        model.register_forward_pre_hook(lambda *_: recorder.begin()),
        model.register_forward_hook(lambda *_: recorder.finish()),
    ]
    for layer in dict.fromkeys(model.layers):  # a layer that is used twice is heard once a call
        hooks += [layer.register_forward_pre_hook(tap), layer.register_forward_hook(hear)]
    try:
        yield recorder
    finally:
        for hook in hooks:
            hook.remove()


@torch.inference_mode()
def fresh(model: Transformer, text: Sequence[int], name: str = "") -> Trace:
    """The trace of a whole text [T] in one pass without a cache. ValueError for tokens that the model lacks."""
    ids = token_ids(model, text, "the text")
    with record(model) as recorder:
        model(torch.tensor([ids], device=model.device))
    return Trace(name, tuple(range(len(ids))), **{part: tensor[0] for part, tensor in recorder.last.items()})


def first_divergence(trace: Trace, reference: Trace, tolerance: float = 3e-4) -> Divergence | None:
    """The first token, then layer, then part in which `trace` differs from `reference`; None if nothing does.

    A difference counts if it exceeds `tolerance`, as a share of the largest number that the reference has for the same
    token in the same part of the same layer; NaN always counts. The default is ten times what rounding in float32 makes
    of SmolLM2. `reference` must have every position that `trace` has, or ValueError is raised.
    """
    share = shares(trace, reference)
    differs = (share > tolerance).nonzero()  # in order of token, layer, part
    if not len(differs):
        return None
    token, layer, part_ = differs[0].tolist()
    parts = tuple(name for name, much in zip(PARTS, share[token, layer].tolist(), strict=True) if much > tolerance)
    position = sorted(trace.positions)[token]
    return Divergence(trace.name, position, layer, PARTS[part_], float(share[token, layer, part_]), parts)


def shares(trace: Trace, reference: Trace) -> Tensor:
    """How far each part of each layer is from the reference, [N, L, 3], the tokens in the order of their positions.

    It is the largest difference of a number, as a share of the largest number that the reference has for that token
    there; infinite where something is not a number. ValueError if the reference lacks a position.
    """
    place = {position: i for i, position in enumerate(reference.positions)}
    missing = [position for position in trace.positions if position not in place]
    if missing:
        raise ValueError(f"token {missing[0]} was read, but the reference has {len(place)} tokens: make it longer")
    order = sorted(range(len(trace.positions)), key=lambda i: trace.positions[i])
    wanted = [place[trace.positions[i]] for i in order]
    found = []
    for part in PARTS:
        held, right = getattr(trace, part)[order].flatten(2), getattr(reference, part).flatten(2)  # [N, L, numbers]
        right = right[wanted]
        apart = (held - right).abs().amax(2) / right.abs().amax(2)  # [N, L]
        apart = apart.masked_fill((held == right).all(2), 0)  # also where the reference is all zeros
        found.append(apart.nan_to_num(nan=torch.inf, posinf=torch.inf))
    return torch.stack(found, dim=2)
