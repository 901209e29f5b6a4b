"""What continuous batching brings over static batches, what scheduling takes of a step, and how long simulating takes.

    python benchmarks/serving.py [--json FILE] [--rounds N] [--threads N] [--requests N] [--case NAME ...]

People ask a real engine for answers of very different lengths, in a fixed list of arrivals: a Poisson process, at half
as many again as continuous batching was seen to finish in a second, so that a queue grows. Each scheduler serves the
same list in each round and must give the same tokens, or nothing is reported. Ratios are taken within a round; the
median over the rounds is printed:

* ratio_tokens_continuous_vs_static: new tokens per second, from the first arrival to the last token.
* ratio_ttft_continuous_vs_static: the median wait for the first token, from arrival.
* scheduling_share: of the time of a step in continuous batching, the part that is not the engine's work: the plan, its
  check, and writing down what came of it. plan_s is the plan alone. The median over the steps of all rounds.
* simulated_s: how long it takes to simulate 10,000 requests, the making of them not counted.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its cuda.py would hide the package `cuda`

import torch  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks import command  # noqa: E402
from benchmarks.models import FIVE_MILLION, ONE_MILLION  # noqa: E402
from course_lib import checkpoints  # noqa: E402
from course_lib.caches import PagedCache  # noqa: E402
from course_lib.model import Transformer  # noqa: E402
from course_lib.serving import (  # noqa: E402
    Arrival,
    Continuous,
    CostModel,
    Engine,
    Memory,
    OneAtATime,
    Server,
    StaticBatches,
    simulate,
)
from course_lib.serving.arrivals import bursts, poisson  # noqa: E402
from course_lib.serving.load_metrics import Summary, summary  # noqa: E402
from course_lib.serving.scheduler import Plan, Scheduler  # noqa: E402
from course_lib.serving.server import WallClock  # noqa: E402
from course_lib.serving.worker import EngineWorker  # noqa: E402
from course_lib.serving.workload import Lengths, mix  # noqa: E402

CASES = {"1M": ONE_MILLION, "5M": FIVE_MILLION}
MEMORY = Memory(rows=16, blocks=400, block_size=16)  # so much that rows run out first
PROMPTS, ANSWERS = Lengths(32, 0.8, most=128), Lengths(40, 0.8, most=160)
SCHEDULERS: dict[str, Callable[[], Scheduler]] = {"static": StaticBatches, "continuous": Continuous}
SIMULATED: dict[str, Scheduler] = {"continuous": Continuous(), "static": StaticBatches(), "one at a time": OneAtATime()}
Tokens = dict[str, list[int]]


class TimedWorker(EngineWorker):
    """An engine's worker that notes how long each step of it took."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.work_s: list[float] = []

    def carry_out(self, plan: Plan) -> None:
        began = time.perf_counter()
        super().carry_out(plan)
        self.work_s.append(time.perf_counter() - began)


@dataclass
class Run:
    """What one scheduler made of the arrivals, and in continuous batching what its steps took."""

    tokens: Tokens
    seen: Summary
    shares: list[float] = field(default_factory=list)  # of each step, what was not the engine's work
    plan_s: list[float] = field(default_factory=list)


def serve(model: Transformer, scheduler: Scheduler, arrivals: Sequence[Arrival]) -> Run:
    cache = PagedCache(model.config, MEMORY.rows, MEMORY.blocks, MEMORY.block_size, model.dtype)
    worker = TimedWorker(Engine(model, cache))
    server = Server(scheduler, worker, WallClock())
    server.expect(arrivals)
    shares, plan_s = [], []
    while True:
        if server.jobs:
            began = time.perf_counter()
            scheduler.plan(server.waiting, server.running, MEMORY)
            plan_s.append(time.perf_counter() - began)
        began, steps = time.perf_counter(), len(worker.work_s)
        busy = bool(server.jobs)
        if server.step() is None:
            break
        if busy and len(worker.work_s) > steps:  # else it has waited for somebody to come
            shares.append(1 - worker.work_s[-1] / (time.perf_counter() - began))
    tokens = {name: sequence.tokens for name, sequence in worker.sequences.items()}
    return Run(tokens, summary(server.log), shares, plan_s)


def measure(model: Transformer, rounds: int, count: int) -> dict[str, Any]:
    """The figures of a case, under the names of the JSON file."""
    people = mix(count, model.config.vocab_size, prompts=PROMPTS, answers=ANSWERS, seed=0)
    serve(model, Continuous(), bursts(people[:8], 8, every_s=1.0))  # what a first pass loads is loaded
    rate = 1.5 * serve(model, Continuous(), bursts(people, count, every_s=1.0)).seen.finished_per_s
    arrivals = list(poisson(people, rate, seed=0))
    found: list[dict[str, Run]] = []
    for number in range(rounds):
        order = list(SCHEDULERS)[:: 1 if number % 2 else -1]
        found.append({name: serve(model, SCHEDULERS[name](), arrivals) for name in order})
        if found[-1]["static"].tokens != found[-1]["continuous"].tokens:
            raise SystemExit("the schedulers gave different tokens: nothing is reported")

    def median(of: Callable[[dict[str, Run]], float]) -> float:
        return statistics.median(map(of, found))

    def ttft_s(run: Run) -> float:
        assert run.seen.ttft_s is not None
        return run.seen.ttft_s.p50

    return {
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "requests": count,
        "new_tokens": sum(request.max_new_tokens for request in people),
        "rate_per_s": rate,
        "rounds": rounds,
        "ratio_tokens_continuous_vs_static": median(
            lambda r: r["continuous"].seen.new_tokens_per_s / r["static"].seen.new_tokens_per_s
        ),
        "ratio_ttft_continuous_vs_static": median(lambda r: ttft_s(r["continuous"]) / ttft_s(r["static"])),
        **{f"{name}_new_tokens_per_s": median(lambda r, n=name: r[n].seen.new_tokens_per_s) for name in SCHEDULERS},  # type: ignore[misc]
        **{f"{name}_ttft_s": median(lambda r, n=name: ttft_s(r[n])) for name in SCHEDULERS},  # type: ignore[misc]
        "scheduling_share": statistics.median(share for r in found for share in r["continuous"].shares),
        "plan_s": statistics.median(seconds for r in found for seconds in r["continuous"].plan_s),
    }


def simulated(count: int = 10_000) -> dict[str, float]:
    """Seconds that each scheduler takes for so many requests, at a load that one after the other could not bear."""
    memory, cost = Memory(rows=64, blocks=2000), CostModel(0.010, 0.000_03, 0.000_000_3)
    people = mix(count, 1000, prompts=Lengths(200, 0.8, most=1500), answers=Lengths(80, 0.7, most=400), seed=0)
    arrivals, seconds = list(poisson(people, 15.0, seed=0)), {}
    for name, scheduler in SIMULATED.items():
        began = time.perf_counter()
        log = simulate(scheduler, memory, arrivals, cost)
        seconds[name] = time.perf_counter() - began
        assert all(record.outcome == "finished" for record in log.requests)
    return seconds


def table(case: dict[str, Any]) -> Table:
    shown = Table(title=f"{case['model']}, {case['requests']} requests, threads: {case['threads']}")
    for heading in ("", "continuous", "static", "ratio", "goal"):
        shown.add_column(heading, justify="left" if not heading else "right")
    tokens, waits = (
        [case[f"{name}_{what}"] for name in ("continuous", "static")] for what in ("new_tokens_per_s", "ttft_s")
    )
    shown.add_row(
        "new tokens/s", *(f"{value:,.0f}" for value in tokens), f"{case['ratio_tokens_continuous_vs_static']:.2f}", ""
    )
    shown.add_row(
        "TTFT p50 (ms)",
        *(f"{1e3 * value:.0f}" for value in waits),
        f"{case['ratio_ttft_continuous_vs_static']:.2f}",
        "",
    )
    shown.add_row("scheduling, of a step", f"{case['scheduling_share']:.1%}", "", "", "< 5%")
    shown.add_row("the plan alone (µs)", f"{1e6 * case['plan_s']:.0f}", "", "", "")
    return shown


def about_simulation(seconds: dict[str, float]) -> Table:
    shown = Table(title="10,000 simulated requests")
    for heading in ("scheduler", "seconds", "goal"):
        shown.add_column(heading, justify="right")
    for name, value in seconds.items():
        shown.add_row(name, f"{value:.1f}", "< 10")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output, without a table")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help=", ".join(CASES))
    chosen = parser.parse_args()
    if min(chosen.rounds, chosen.threads) < 1 or chosen.requests < 16:
        parser.error("--rounds and --threads must be at least 1, --requests at least 16")
    torch.set_num_threads(chosen.threads)
    cases = []
    for name in chosen.case:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        model = checkpoints.random(CASES[name], seed=0, dtype=torch.float32)
        cases.append({"model": name} | measure(model, chosen.rounds, chosen.requests))
    print("simulating …", file=sys.stderr, flush=True)
    seconds = simulated()
    tables = [*map(table, cases), about_simulation(seconds)]
    command.report([*cases, {"model": "simulated", "requests": 10_000, "simulated_s": seconds}], tables, chosen.json)


if __name__ == "__main__":
    command.run(main)
