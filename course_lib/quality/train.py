"""`python -m course_lib.quality.train` trains the recall model: seeded, on one thread, in a few minutes.

The one idea: few pairs first. To answer, a model must learn two things that are useless alone: a first layer that
tells each value which key stands before it, and a second that looks for the value whose key was asked ("induction
heads", Olsson et al. 2022). With two pairs it finds that out in seconds; the load then doubles whenever nearly all
answers are right. Checkpoint and training curve are written at the end: whoever interrupts leaves no file.
"""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from course_lib.checkpoints import random_model
from course_lib.commands.output import STOPPED, say, write_whole
from course_lib.model import ModelConfig, Transformer
from course_lib.quality.recall import FOLDER, KINDS, TASK, Recall, by_load, checkpoint_bytes
from course_lib.training import descend

STEPS, RATE, LOAD = 2000, 2e-3, 64
TOKENS, QUESTIONS = 1024, 32  # in a batch about so many tokens; in a text at most so many questions
FIRST = 2  # pairs
DISTRACTED = 16  # from this load on there are distractors
MASTERED = 0.95  # the share of right answers at which the load doubles
# A token's own embedding must outweigh what layers add to it: at 1, two pairs took more than 1,200 steps, at 8, 250.
EMBEDDING = 8  # times as large as in a random model
LOADS = (8, 16, 32, 64, 96, 128)  # at which the trained model is asked
KV_HEADS = {"mha": 4, "gqa": 2, "mqa": 1}


def shape(kv_heads: int, task: Recall = TASK, d_model: int = 128) -> ModelConfig:
    """Two layers of four query heads."""
    return ModelConfig(
        vocab_size=task.vocabulary, n_layers=2, d_model=d_model, n_heads=4, n_kv_heads=kv_heads, head_dim=d_model // 4,
        d_ff=2 * d_model, max_positions=4096, tied_head=False,
    )  # fmt: skip


@dataclass(frozen=True)
class Point:
    """The batch of one step: its load, its loss in nats, its share of right answers."""

    step: int
    pairs: int
    loss: float
    right: float


class Lessons:
    """Batches of questions. Every second one has the largest load so far, which grows with what was learned."""

    def __init__(self, model: Transformer, task: Recall, load: int, seed: int) -> None:
        self.model, self.task, self.most = model, task, load
        self.generator = torch.Generator().manual_seed(seed)
        self.load, self.mastered = min(FIRST, load), 0.0  # a running mean of the right answers at the largest load
        self.pairs, self.right = 0, 0.0  # of the last batch

    def number(self, low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=self.generator))

    def loss(self, step: int) -> Tensor:
        if self.mastered > MASTERED and self.load < self.most:
            self.load, self.mastered = min(2 * self.load, self.most), 0.0
        self.pairs = self.load if step % 2 else self.number(FIRST, self.load)
        distracted = self.load >= min(DISTRACTED, self.most)
        filler, restated = (self.number(0, self.pairs // n) if distracted else 0 for n in (1, 4))
        queries = min(max(self.pairs, 2 * FIRST), QUESTIONS)
        rows = max(8, TOKENS // (2 * self.pairs + filler + 2 * queries))
        q = self.task.questions(self.pairs, queries, rows, self.generator, filler=filler, restated=restated, again=True)
        logits = self.model(q.tokens)[:, q.context :: 2]  # [rows, queries, V]
        self.right = float((logits.argmax(-1) == q.answer).float().mean())
        if self.pairs == self.load:
            self.mastered = 0.9 * self.mastered + 0.1 * self.right
        return F.cross_entropy(logits.flatten(0, 1), q.answer.flatten())


def training(
    model: Transformer, task: Recall = TASK, *, load: int = LOAD, steps: int = STEPS, rate: float = RATE, seed: int = 0
) -> Iterator[Point]:
    """Train a random model, in place, on up to `load` pairs; yields each step's point."""
    with torch.no_grad():
        model.requires_grad_(True).embedding.mul_(EMBEDDING)
        model.final_norm.mul_(1 / 3)  # a random model has a clear favourite for each token
    lessons = Lessons(model, task, load, seed)
    for step, loss in enumerate(descend(model, lessons.loss, steps=steps, rate=rate), start=1):
        yield Point(step, lessons.pairs, loss, lessons.right)
    model.requires_grad_(False)


def main(arguments: list[str] | None = None) -> int:
    parser = ArgumentParser(prog="python -m course_lib.quality.train", description="Train the recall model.")
    parser.add_argument("--kv-heads", type=int, choices=KV_HEADS.values(), default=2)
    parser.add_argument("--to", type=Path, help="the checkpoint; its training curve is written beside it, as JSON")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    kind = next(kind for kind, heads in KV_HEADS.items() if heads == given.kv_heads)
    target = given.to or FOLDER / f"{KINDS[kind]}.safetensors"
    if not target.parent.is_dir():
        parser.error(f"there is no folder {target.parent}: name a file in one that is there")
    if given.steps < 1:
        parser.error(f"{given.steps} steps teach nothing: take at least 1")
    model, began = random_model(shape(given.kv_heads), given.seed), process_time()
    try:
        curve = watched(training(model, steps=given.steps, seed=given.seed), given.steps)
        seconds = process_time() - began
        rates = {pairs: answers.rate() for pairs, answers in by_load(model, LOADS).items()}
    except KeyboardInterrupt:
        say("Stopped. Nothing was written.")
        return STOPPED
    for pairs, rate in rates.items():
        print(f"{pairs:3} pairs: {rate}")
    record = {
        "kv_heads": given.kv_heads,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "steps": given.steps,
        "seed": given.seed,
        "cpu_s": round(seconds),
        "right_by_pairs": {pairs: asdict(rate) for pairs, rate in rates.items()},
        "curve": [asdict(point) for point in curve],
    }
    write_whole(target, checkpoint_bytes(model))
    write_whole(target.with_suffix(".json"), (json.dumps(record, indent=1) + "\n").encode())
    print(f"Written: {target} and {target.with_suffix('.json').name} ({seconds:.0f} s of one core)")
    return 0


def watched(points: Iterator[Point], steps: int) -> list[Point]:
    """Every tenth point (its batch has the largest load so far), while a bar shows how far the training is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kept = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("training", total=steps)
        for point in points:
            if point.step % 10 == 0:
                kept.append(point)
                description = f"{point.pairs:2} pairs, {point.right:4.0%} right, loss {point.loss:.3f}"
                progress.update(bar, completed=point.step, description=description)
    return kept


if __name__ == "__main__":
    sys.exit(main())
