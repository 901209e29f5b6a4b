"""Four tools to find out what is wrong with an engine, as professionals use them.

    print(against_fresh(exhibit.engine))

The one idea: an engine with a cache has a rule that needs no reference of its own: whoever else is served, in whatever
memory, each request has to get the logits of its text read in one pass without a cache. Each tool breaks the day at
another place and looks who notices. None of them knows the bugs; each takes any function that makes an engine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

import torch
from torch import Tensor

from course_lib.divergence import Divergence, first_divergence, fresh, record
from course_lib.model import Transformer
from course_lib.museum.day import Day, Visit, as_it_likes, museum_day, serve
from course_lib.museum.exhibit import Build
from course_lib.museum.guide import guide
from course_lib.serving import Request

TOLERANCE = 1e-3  # of logits: a hundred times what rounding makes of those of the guide


def whole_text(request: Request) -> list[int]:
    return [*request.prompt, *(request.forced or ())]


def wanted_logits(model: Transformer, request: Request) -> Tensor:
    """The logits [N, V] that choose the N given tokens of a request: one pass over its text, without a cache."""
    with torch.inference_mode():
        logits = model(torch.tensor([whole_text(request)], device=model.device))[0]
    return logits[len(request.prompt) - 1 : -1]


# --- Compare with a fresh run


@dataclass(frozen=True)
class Fresh:
    """How far a request's logits are from those of a pass over its text, served with the others and served alone.

    first: the first new token, counted from 0, whose logits are off in company; None if none is. same_tokens: whether
    the guide, left to itself, says the same in company and alone.
    """

    in_company: float
    first: int | None
    alone: float
    same_tokens: bool


@dataclass(frozen=True)
class FreshReport:
    requests: dict[str, Fresh]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """The requests whose logits are off, in company or alone."""
        return tuple(name for name, r in self.requests.items() if max(r.in_company, r.alone) > self.tolerance)

    def __str__(self) -> str:
        lines = [f"{'':8}{'in company':>12}{'from token':>12}{'alone':>12}{'the same words':>16}"]
        for name, r in self.requests.items():
            first = "" if r.first is None else str(r.first)
            words = "yes" if r.same_tokens else "no"
            lines.append(
                f"{name:8}{said(r.in_company, self.tolerance)}{first:>12}{said(r.alone, self.tolerance)}{words:>16}"
            )
        return "\n".join(lines)


def said(difference: float, tolerance: float) -> str:
    return f"{difference:12.2g}" if difference > tolerance else f"{'equal':>12}"


def off(logits: list[Tensor], wanted: Tensor, tolerance: float) -> tuple[float, int | None]:
    """The largest difference, and the first token whose logits differ by more than the tolerance."""
    n = min(len(logits), len(wanted))
    apart = (torch.stack(logits[:n]) - wanted[:n]).abs().amax(-1).nan_to_num(nan=inf).tolist()
    if len(logits) != len(wanted):
        apart.append(inf)
    return max(apart), next((i for i, difference in enumerate(apart) if difference > tolerance), None)


def against_fresh(
    build: Build, model: Transformer | None = None, day: Day | None = None, tolerance: float = TOLERANCE
) -> FreshReport:
    """Compare each request of a day with its text read alone: in company, and as the only request of a new engine."""
    model, day = model or guide().model, day or museum_day()
    given, free = serve(build(model), day), serve(build(model), as_it_likes(day))
    found = {}
    for visit in day:
        wanted, lone = wanted_logits(model, visit.request), (replace(visit, step=0),)
        company, first = off(given[visit.name].logits, wanted, tolerance)
        alone, _ = off(serve(build(model), lone)[visit.name].logits, wanted, tolerance)
        same = serve(build(model), as_it_likes(lone))[visit.name].tokens == free[visit.name].tokens
        found[visit.name] = Fresh(company, first, alone, same)
    return FreshReport(found, tolerance)


# --- Where is the first difference?


@dataclass(frozen=True)
class WhereReport:
    """For each request the first token, layer and part that differ from a pass over its text alone."""

    found: dict[str, Divergence | None]

    def __str__(self) -> str:
        return "\n".join(f"{name:8}{divergence or 'no layer differs'}" for name, divergence in self.found.items())


def where(build: Build, model: Transformer | None = None, day: Day | None = None) -> WhereReport:
    """Record what every layer computes in a day, and compare it with each text alone."""
    model, day = model or guide().model, day or museum_day()
    engine = build(model)
    with record(engine.model) as recorder:
        engine.observers.append(recorder.observe)
        serve(engine, day)
    traces = recorder.traces
    return WhereReport(
        {v.name: first_divergence(traces[v.name], fresh(model, whole_text(v.request), v.name)) for v in day}
    )


# --- Poison what is free


@dataclass(frozen=True)
class PoisonReport:
    """Requests that read memory which nobody may read: their first token, by position, and layer that became NaN."""

    reached: dict[str, tuple[int, int]]

    def __str__(self) -> str:
        if not self.reached:
            return "nobody reads what is free"
        return "\n".join(
            f"{name:8}is not a number from token {token}, layer {layer} on"
            for name, (token, layer) in self.reached.items()
        )


def with_poison(build: Build, model: Transformer | None = None, day: Day | None = None) -> PoisonReport:
    """Fill free memory with NaN before the day and after every step: 0 times NaN is NaN, so whoever reads it shows.

    The day ends with the first NaN among the logits, since nothing can be chosen from them.
    """
    model, day = model or guide().model, day or museum_day()
    engine = build(model)
    engine.cache.fill_free(torch.nan)
    with record(engine.model) as recorder:
        engine.observers.append(recorder.observe)
        try:
            serve(engine, day, lambda: engine.cache.fill_free(torch.nan))
            refused = None
        except ValueError as error:  # the engine does not choose from NaN
            refused = error
    reached = {}
    for name, trace in recorder.traces.items():
        nan = trace.output.isnan().any(-1).nonzero()  # token, layer
        if len(nan):
            reached[name] = (trace.positions[int(nan[0, 0])], int(nan[0, 1]))
    if refused is not None and not reached:
        raise refused
    return PoisonReport(reached)


# --- Swap the neighbours


@dataclass(frozen=True)
class NeighbourReport:
    """By how much a request's logits change when others ask and get something else of the same lengths."""

    changed: dict[str, float]

    def __str__(self) -> str:
        return "\n".join(
            f"{name:8}{f'changes by {change:.2g}' if change else 'the same, bit for bit'}"
            for name, change in self.changed.items()
        )


def with_other_neighbours(build: Build, model: Transformer | None = None, day: Day | None = None) -> NeighbourReport:
    """Serve the day once for each request, every other text changed from where it departs from the request's own.

    Common beginnings stay as they are, so an engine that shares them computes the same sums in the same order.
    """
    model, day = model or guide().model, day or museum_day()
    before, changed = serve(build(model), day), {}
    for visit in day:
        others = tuple(v if v is visit else other_words(v, visit, model.config.vocab_size) for v in day)
        after = serve(build(model), others)[visit.name].logits
        changed[visit.name], _ = off(after, torch.stack(before[visit.name].logits), 0.0)
    return NeighbourReport(changed)


def other_words(visit: Visit, own: Visit, vocab_size: int) -> Visit:
    """`visit` with the next token of the vocabulary in place of each one from where its text departs from `own`'s."""
    request, texts = visit.request, (whole_text(visit.request), whole_text(own.request))
    common = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
    text = [token if i < common else (token + 1) % vocab_size for i, token in enumerate(texts[0])]
    prompt, forced = text[: len(request.prompt)], text[len(request.prompt) :]
    return replace(visit, request=replace(request, prompt=tuple(prompt), forced=tuple(forced)))
