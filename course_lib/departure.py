"""Why two runs of one prompt went different ways: rounding between two tokens that were nearly tied, or a bug.

The one idea: different tokens prove nothing, and equal ones prove nothing either. What the layers made of the common
text does. As long as it agrees within rounding, both runs are right, and where they part, two logits lay closer
together than rounding moves them. If it does not, the first part of a layer that differs says where to look.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache
from course_lib.divergence import Divergence, Trace, first_divergence, fresh, record
from course_lib.generation import check_empty, choose, decode, prefill
from course_lib.model import Transformer
from course_lib.noise import tolerance
from course_lib.serving import Engine, Request
from course_lib.serving import Sequence as Served

# How far what a layer makes of a token may be from what another right run makes, as a share of its largest number, in
# units of the dtype's epsilon. Measured with SmolLM2 and with small random models, token by token against one pass:
# up to 75 in float64 and float32, up to 7 in the types of 16 bits.
EPSILONS = {torch.float64: 2500, torch.float32: 2500, torch.float16: 32, torch.bfloat16: 32}


@dataclass(frozen=True)
class Run:
    """A greedy run: prompt, new tokens, the logits [N, V] that chose them, and what the layers made of the text."""

    name: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logits: Tensor
    trace: Trace

    @property
    def dtype(self) -> torch.dtype:
        return self.logits.dtype


@dataclass(frozen=True)
class Departure:
    """What became of two runs. `kind` is "same" (every token), "near-tie" or "bug".

    place: of a bug, what differs first. token: the number of the first new token that differs, None if none does.
    margin: how far apart the logits of the two tokens are, in the run where they are further apart. noise: how far the
    logits of the two runs are from each other there. Both are in units of the logits.
    """

    kind: str
    sentence: str
    place: Divergence | None = None
    token: int | None = None
    margin: float = float("nan")
    noise: float = float("nan")

    def __str__(self) -> str:
        return self.sentence


def departure(one: Run, other: Run) -> Departure:
    """Why two runs of one prompt, made in one dtype, went different ways, or that they did not. ValueError if they are
    not of one prompt or one dtype.

    It answers what is often called first_divergence(run_a, run_b): the layer, the part of it, the run and the token
    where they first differ by more than rounding, or that no such place exists and two tokens were nearly tied.
    """
    if one.prompt != other.prompt:
        raise ValueError(f"{one.name} and {other.name} are answers to different prompts: give both the same")
    if one.dtype != other.dtype:
        raise ValueError(f"{one.name} is in {one.dtype}, {other.name} in {other.dtype}: what rounding may do differs")
    token, shorter = parting(one, other), min(len(one.tokens), len(other.tokens))
    place = first_divergence(*common_traces(one, other), share(one.dtype))
    if place is not None:
        # of two layers only the later one may be seen to differ, where tolerances are as wide as those of 16 bits
        late = place.layer > 0 and torch.finfo(one.dtype).bits == 16
        said = (
            f"{place.place} It may begin before that, as what passes for rounding: look in float32." if late else place
        )
        return Departure("bug", f"Not rounding: {said}", place, token)
    for number in range(min(len(one.logits), len(other.logits)) if token is None else token + 1):
        left, right = one.logits[number].double(), other.logits[number].double()
        noise = float((left - right).abs().max())
        if not noise <= tolerance(one.dtype) * float(torch.maximum(left, right).abs().max()):  # NaN is no noise
            said = (
                f"Not rounding: the logits of new token {number} of {one.name} and {other.name} are up to {noise:.2g} "
                "apart, though no layer differs by more than rounding. They may be those of another sequence or "
                "position."
            )
            return Departure("bug", said, None, number, noise=noise)
    if token is None:
        if len(one.tokens) != len(other.tokens):
            said = f"Not rounding: {shorter} tokens and their logits agree, and one run ends there."
            return Departure("bug", said, None, shorter)
        return Departure("same", f"All {shorter} tokens agree, and within rounding their logits and all layers do.")
    chosen = one.tokens[token], other.tokens[token]
    margin = max(float((logits[chosen[0]] - logits[chosen[1]]).abs()) for logits in (left, right))
    said = (
        f"at new token {token}, {one.name} chose {chosen[0]} and {other.name} {chosen[1]}. These two logits are "
        f"{margin:.2g} apart, and the runs differ by up to {noise:.2g} there"
    )
    if margin <= 2 * noise:
        return Departure("near-tie", f"Rounding decided: {said}.", None, token, margin, noise)
    return Departure("bug", f"Not rounding: {said}. Look at how tokens are chosen.", None, token, margin, noise)


def share(dtype: torch.dtype) -> float:
    """The tolerance of what a layer makes. ValueError for a dtype that was never measured."""
    tolerance(dtype)  # says which dtypes there are
    return EPSILONS[dtype] * torch.finfo(dtype).eps


def parting(one: Run, other: Run) -> int | None:
    """The number of the first new token that differs; None if the runs agree as far as the shorter one goes."""
    pairs = zip(one.tokens, other.tokens)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), None)


def common_traces(one: Run, other: Run) -> tuple[Trace, Trace]:
    """What the layers of both runs made of the text that both have read."""
    token = parting(one, other)
    common = len(one.prompt) + (min(len(one.tokens), len(other.tokens)) if token is None else token)
    return common_part(one.trace, other.trace, common), common_part(other.trace, one.trace, common)


def common_part(trace: Trace, other: Trace, tokens: int) -> Trace:
    """What a trace holds of the first `tokens` positions of a text, as far as the other holds them as well: what was
    found in a cache was not read, and is in no trace."""
    there = set(other.positions)
    places = [place for place, at in enumerate(trace.positions) if at < tokens and at in there]
    positions = tuple(trace.positions[place] for place in places)
    return Trace(trace.name, positions, trace.keys[places], trace.values[places], trace.output[places])


@torch.inference_mode()
def run_alone(
    model: Transformer, prompt: Sequence[int], new_tokens: int, name: str = "alone", *, cache: Cache | None = None
) -> Run:
    """A greedy run with a cache, by default a contiguous one, token after token."""
    served = Served(Request(tuple(prompt), new_tokens, name=name))
    check_empty(cache, "the cache")
    cache = cache or ContiguousCache(model.config, 1, len(prompt) + new_tokens, model.dtype, model.device)
    logits = []
    with record(model) as recorder:
        logits.append(prefill(model, [served.text], cache, rows=[0])[0])
        recorder.observe([served], [len(prompt)])
        for number in range(new_tokens):
            served.text.append(choose(logits[-1]))
            if number < new_tokens - 1:
                logits.append(decode(model, served.text[-1:], cache, rows=[0])[0])
                recorder.observe([served], [1])
    served.logits = logits
    return run_of(served, recorder.traces[name])


@torch.inference_mode()
def run_without_cache(model: Transformer, prompt: Sequence[int], new_tokens: int, name: str = "without a cache") -> Run:
    """A greedy run that reads the whole text again for each token."""
    served = Served(Request(tuple(prompt), new_tokens, name=name))
    for _ in range(new_tokens):
        served.logits.append(prefill(model, [served.text], None)[0])
        served.text.append(choose(served.logits[-1]))
    return run_of(served, fresh(model, served.text[:-1], name))


def runs_of(engine: Engine, requests: Sequence[Request]) -> Mapping[str, Run]:
    """What an engine makes of several requests at once, by their names. It has to keep its logits."""
    if not engine.keep_logits:
        raise ValueError("this engine keeps no logits: make it with keep_logits=True")
    with record(engine.model) as recorder:
        engine.observers.append(recorder.observe)
        try:
            served = [engine.submit(request) for request in requests]
            engine.run()
        finally:
            engine.observers.remove(recorder.observe)
    return {each.name: run_of(each, recorder.traces[each.name]) for each in served}


def run_of(served: Served, trace: Trace) -> Run:
    """A run out of a sequence of an engine that keeps its logits, and its trace."""
    return Run(served.name, served.request.prompt, tuple(served.tokens), torch.stack(served.logits), trace)
