"""What a step costs on this machine: steps of a real run are measured, and the numbers of a cost model fitted.

The one idea: a cost model is worth what its errors are, so they are found on steps that it was not fitted to, and
belong to the result. Errors are relative: a step of 2 ms that is said to take 1 ms is as wrong as one of 200 ms that is
said to take 100 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, isfinite
from random import Random

import torch

from course_lib.caches import PagedCache
from course_lib.metrics import percentile
from course_lib.model import Transformer
from course_lib.serving.engine import Engine
from course_lib.serving.record import StepRecord
from course_lib.serving.request import Request
from course_lib.serving.scheduler import Continuous, Memory, Scheduler
from course_lib.serving.server import Server, WallClock
from course_lib.serving.simulation import CostModel, Work
from course_lib.serving.worker import EngineWorker

FEWEST = 8  # steps: half of them for four numbers, the others for their errors


@dataclass(frozen=True)
class Calibration:
    """A cost model and how far it was off in steps that were measured, but not used to fit it.

    Errors are |predicted / measured - 1|, half of the steps within `typical_error`, nine in ten within `large_error`;
    `total_error` is that of all these steps together, with its sign.
    """

    cost: CostModel
    steps: int  # that it was fitted to
    typical_error: float
    large_error: float
    total_error: float


def calibrate(steps: Sequence[StepRecord]) -> Calibration:
    """Fit a cost model to every second of the steps, and find its errors on the others.

    Raises ValueError for too few steps, and for steps without duration.
    """
    if len(steps) < FEWEST:
        raise ValueError(f"{len(steps)} steps are too few to fit four numbers and to find out how good they are")
    cost, others = fit(steps[::2]), steps[1::2]
    predicted, measured = [cost.seconds(step.reads) for step in others], durations(others)
    errors = [abs(guess / seconds - 1) for guess, seconds in zip(predicted, measured)]
    total = sum(predicted) / sum(measured) - 1
    return Calibration(cost, len(steps[::2]), percentile(errors, 50), percentile(errors, 90), total)


def fit(steps: Sequence[StepRecord]) -> CostModel:
    """The cost model with the smallest sum of squares of relative errors, none of its numbers below 0.

    Four numbers are few: every choice of those that are not 0 is tried. Raises ValueError for steps without duration.
    """
    seconds = torch.tensor(durations(steps), dtype=torch.float64)  # [steps]
    counts = torch.tensor([Work.of(step.reads) for step in steps], dtype=torch.float64)  # [steps, 4]
    scale = counts.amax(0).clamp(min=1)  # columns of about the same size
    shares = counts / scale / seconds[:, None]  # with the right costs each row adds up to 1
    best, least = [0.0] * len(scale), inf
    for size in range(1, len(scale) + 1):
        for columns in map(list, combinations(range(len(scale)), size)):
            part = shares[:, columns]
            solution = torch.linalg.lstsq(part, torch.ones(len(steps), 1, dtype=torch.float64)).solution  # [size, 1]
            squares = float((part @ solution - 1).square().sum())
            if solution.min() >= 0 and squares < least:
                least, best = squares, [0.0] * len(scale)
                for column, share in zip(columns, solution[:, 0].tolist()):
                    best[column] = share / float(scale[column])
    return CostModel(*best)


def durations(steps: Sequence[StepRecord]) -> list[float]:
    """What each step took, in seconds. Raises ValueError for no steps, or one that took no time."""
    seconds = [step.duration_s for step in steps]
    if not seconds or not all(isfinite(s) and s > 0 for s in seconds):
        raise ValueError("a cost model is fitted to steps that took time: measure some with a WallClock")
    return seconds


def measure(model: Transformer, memory: Memory, *, seconds: float = 8.0, seed: int = 0) -> list[StepRecord]:
    """Steps of a real server on this machine, for about so many seconds and never fewer than `calibrate` needs: rows
    that fill up and empty, prompts that are read whole and in chunks, short texts and long ones. Raises ValueError for
    no time.
    """
    if not seconds > 0:
        raise ValueError(f"{seconds} s: measuring takes time")
    random = Random(seed)
    longest = min(model.config.max_positions, memory.slots // memory.rows)  # as much as each row may have
    steps: list[StepRecord] = []
    chunked: Scheduler = Continuous(budget=memory.rows + 16)
    for scheduler, share in ((chunked, 0.1), (Continuous(), 0.45), (chunked, 0.45)):
        c = model.config
        cache = PagedCache(c, memory.rows, memory.blocks, memory.block_size, model.dtype, model.device)
        server = Server(scheduler, EngineWorker(Engine(model, cache)), WallClock(str(model.device)))
        while server.clock.now() < seconds * share or len(server.steps) < FEWEST:
            if not server.jobs:
                for _ in range(random.randint(1, 2 * memory.rows)):
                    prompt = random.randint(1, max(1, longest * 3 // 4))
                    new = random.randint(1, max(1, longest // 4))
                    tokens = tuple(random.randrange(c.vocab_size) for _ in range(prompt))
                    server.submit(Request(tokens, new, name=f"r{len(server.records)}"))
            server.step()
        if share > 0.1:  # the first passes through a library are slow: they are not counted
            steps += server.steps
    return steps
