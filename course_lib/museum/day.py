"""One day at the museum: a few visitors who ask at different times, served by an engine, right or broken.

The one idea: every visitor is served twice. Once the guide says what it likes, for that is what a user sees; once it
is made to say a given answer, so that loss and logits can be compared under the same text. Nothing here looks inside
an engine; see `tools.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from random import Random

import torch
from torch import Tensor

from course_lib.generation import Sampling
from course_lib.model import Transformer
from course_lib.museum.exhibit import Build, House
from course_lib.museum.guide import TALK, guide, said
from course_lib.serving import Engine, Request, Sequence

MOST_STEPS = 400  # a day that takes longer does not come to its end


@dataclass(frozen=True)
class Visit:
    """A request and the step at which it comes. Its `forced` tokens are the answer that loss is measured on."""

    step: int
    request: Request

    @property
    def name(self) -> str:
        return self.request.name


Day = tuple[Visit, ...]


def as_it_likes(day: Day) -> Day:
    """The same requests, the answers free."""
    return tuple(replace(visit, request=replace(visit.request, forced=None)) for visit in day)


def serve(
    engine: Engine, day: Iterable[Visit], after_each_step: Callable[[], None] = lambda: None
) -> dict[str, Sequence]:
    """Serve a day; return the sequences by name. Raises RuntimeError if it does not come to its end."""
    todo, served = sorted(day, key=lambda visit: visit.step), {}
    for step in range(MOST_STEPS):
        while todo and todo[0].step <= step:
            visit = todo.pop(0)
            served[visit.name] = engine.submit(visit.request)
        if not (todo or engine.waiting or engine.running):
            return served
        engine.step()
        after_each_step()
    waiting = [name for name, sequence in served.items() if not sequence.finished]
    raise RuntimeError(f"after {MOST_STEPS} steps {', '.join(waiting)} still had no answer")


# --- What comes of it


@dataclass(frozen=True)
class Answer:
    """What one visitor got, from the right engine and from another.

    right and text: new tokens when the guide says what it likes. right_loss and loss: mean negative log-likelihood of
    the given answer. difference: the largest of its logits. right_reused and reused: tokens found in the cache.
    """

    name: str
    right: tuple[int, ...]
    text: tuple[int, ...]
    right_loss: float
    loss: float
    difference: float
    right_reused: int
    reused: int


@dataclass(frozen=True)
class Comparison:
    """A day on two engines."""

    answers: tuple[Answer, ...]

    @property
    def same_text(self) -> bool:
        return all(answer.text == answer.right for answer in self.answers)

    @property
    def loss_change(self) -> float:
        """By which share the loss over the day, each visitor weighted alike, is higher."""
        right = sum(answer.right_loss for answer in self.answers)
        return (sum(answer.loss for answer in self.answers) - right) / right

    @property
    def difference(self) -> float:
        return max(answer.difference for answer in self.answers)

    def __str__(self) -> str:
        lines = [f"{'':8}{'text':>8}{'loss, right':>13}{'loss':>8}{'logits differ by':>18}{'reused':>8}"]
        for a in self.answers:
            text = "same" if a.text == a.right else "another"
            reused = f"{a.reused}" if a.reused == a.right_reused else f"{a.right_reused} → {a.reused}"
            lines.append(f"{a.name:8}{text:>8}{a.right_loss:13.3f}{a.loss:8.3f}{a.difference:18.1e}{reused:>8}")
        return "\n".join(lines)


def loss_of(sequence: Sequence) -> float:
    """The mean negative log-likelihood of the forced tokens under the logits that they were chosen with."""
    forced = torch.tensor(sequence.request.forced)
    logits = torch.stack(sequence.logits[: len(forced)]).cpu().double()
    return float(-logits.log_softmax(-1)[torch.arange(len(forced)), forced].mean())


def largest_difference(logits: list[Tensor], right: list[Tensor]) -> float:
    """Of two lists of logits [V]; infinite if one is longer, or anything is not a number."""
    if len(logits) != len(right):
        return inf
    apart = (torch.stack(logits).double() - torch.stack(right).double()).abs().max()
    return float(apart.nan_to_num(nan=inf))


def compare(
    broken: Build, right: Build | None = None, model: Transformer | None = None, day: Day | None = None
) -> Comparison:
    """Serve a day on both engines, twice each. By default the right one is contiguous, and the museum's guide and day
    are taken.
    """
    right, model, day = right or House().open, model or guide().model, day or museum_day()
    said_right, said_other = (serve(build(model), as_it_likes(day)) for build in (right, broken))
    given_right, given_other = (serve(build(model), day) for build in (right, broken))
    return Comparison(
        tuple(
            Answer(
                name,
                tuple(said_right[name].tokens),
                tuple(said_other[name].tokens),
                loss_of(given_right[name]),
                loss_of(given_other[name]),
                largest_difference(given_other[name].logits, given_right[name].logits),
                given_right[name].reused,
                given_other[name].reused,
            )
            for name in given_right
        )
    )


# --- The day itself

VISITORS = (  # name, step, what is talked about (numbers of TALK; the last is the question), salt, temperature
    ("ann", 0, (5, 6, 1, 0), "", 0.0),
    ("ben", 0, (3,), "", 0.0),
    ("cleo", 0, (8, 9), "", 0.0),
    ("dan", 0, (8,), "", 1.0),
    ("eva", 1, (8,), "", 1.0),
    ("finn", 2, (5, 6, 1, 4), "", 0.0),
    ("gus", 4, (2, 7), "north/desk", 0.0),
    ("hana", 14, (5, 6, 9), "", 0.0),
    ("ida", 16, (2, 7), "south/desk", 0.0),
    ("jon", 18, (3, 2), "", 0.0),
    ("kim", 22, (8, 9, 7), "", 0.0),
)
COMES_BACK = ("lea", 8, "eva", 3)  # name, step, whose talk it goes on with, and the question


@lru_cache(maxsize=1)
def museum_day() -> Day:
    """The day that the exhibits are made for: long and short questions, common beginnings, two who draw their words."""
    visits: dict[str, Visit] = {}
    for number, (name, step, topics, salt, temperature) in enumerate(VISITORS):
        before = " ".join(said(TALK[topic], Random(topic)) for topic in topics[:-1])
        visits[name] = visit(name, step, before, topics[-1], seed=number, salt=salt, temperature=temperature)
    name, step, earlier, topic = COMES_BACK
    told = visits[earlier].request
    before = guide().decode([*told.prompt, *(told.forced or ())])
    visits[name] = visit(name, step, before, topic, seed=len(visits))
    return tuple(sorted(visits.values(), key=lambda visit: visit.step))


def visit(
    name: str, step: int, before: str, topic: int, *, seed: int, salt: str = "", temperature: float = 0.0
) -> Visit:
    """Somebody who asks about a topic after all that was said before; the given answer is one of its answers."""
    question, answer = said(TALK[topic], Random(name)).split("? ")
    prompt, forced = guide().encode(f"{before} {question}?"), guide().encode(answer)
    sampling = Sampling(temperature)
    request = Request(tuple(prompt), len(forced), sampling, seed=seed, salt=salt, forced=tuple(forced), name=name)
    return Visit(step, request)
