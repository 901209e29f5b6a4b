"""What it brings to decode 16 sequences together, and what the engine and the pages take of it.

    python benchmarks/batching.py [--json FILE] [--rounds N] [--new-tokens N] [--threads N] [--case NAME ...]

The prompts have 2 to 62 tokens, 32 on average, as in decode.py; each gets 64 new ones. Everything is measured on one
thread and then on all cores, unless --threads says on how many. Whatever is compared runs in the same round and must
choose the same tokens, or nothing is reported. Ratios are taken within a round; the median over the rounds is printed:

* ratio_decode_together_vs_alone: one more token for each sequence, by a step of the engine over all of them and by a
  step of `generate` for each. Batching pays here: the weights are read once for all rows. It also makes work for more
  cores than a lone sequence can use. So `generate` always has the number of threads on which its steps were quickest in
  this round, whichever that is, and the goal is for a machine that may use its cores.
* ratio_prefill_together_vs_alone, of the first tokens: bound by arithmetic, of which batching spares none.
  ratio_together_vs_alone is both together, from the first prompt to the last token.
* ratio_engine_vs_bare: a decode step of the engine against a forward pass over the same tokens and nothing else.
* ratio_paged_vs_contiguous: a decode step over a paged cache against one over a contiguous cache, for all rows, for one
  row whose blocks lie one after the other, and for one whose blocks do not (scattered). Copied bytes are those of keys
  and values brought together for attention in one step.

The seconds of a step are the median over the steps of a round; ways that are compared take turns, step by step, where
that can be (not with `generate`).
"""

import random
import statistics
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its cuda.py would hide the package `cuda`

import torch  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks import command  # noqa: E402
from benchmarks.models import FIVE_MILLION, ONE_MILLION  # noqa: E402
from course_lib import checkpoints  # noqa: E402
from course_lib.caches import Cache, ContiguousCache, PagedCache  # noqa: E402
from course_lib.generation import generate, prefill  # noqa: E402
from course_lib.model import Transformer  # noqa: E402
from course_lib.serving import Engine, Request, Sequence  # noqa: E402

CASES = {"1M": ONE_MILLION, "5M": FIVE_MILLION}
LENGTHS = random.Random(0).sample(range(2, 63, 4), 16)  # tokens of each prompt: 2, 6, 10 … 62, in any order
BLOCK_SIZE = 16

Tokens = list[list[int]]  # of each sequence: its prompt, or its new tokens
Way = Callable[[Tensor], Tensor | None]  # reads one token of each sequence, [B, 1]; gives logits [B, V], if it has any


@dataclass(frozen=True)
class Served:
    """All sequences from their prompts to their last tokens, in one way."""

    tokens: Tokens
    first_s: float  # until all had their first token
    rest_s: float
    step_s: float  # of one more token for each of them
    threads: int


@dataclass(frozen=True)
class Round:
    together: Served
    alone: Served
    step_s: dict[str, float]  # of the ways that take turns
    copied_bytes: dict[str, float]  # in a step


@dataclass(frozen=True)
class Comparison:
    """What is divided by what, by their names in the JSON file, and what the course wants of it."""

    what: str
    above: str
    below: str
    ratio: str
    goal: str = ""


COMPARISONS = (
    Comparison("alone/together, step", "alone_step_s", "together_step_s", "ratio_decode_together_vs_alone", "≥ 6"),
    Comparison("alone/together, first", "alone_first_s", "together_first_s", "ratio_prefill_together_vs_alone"),
    Comparison("alone/together, whole", "alone_s", "together_s", "ratio_together_vs_alone"),
    Comparison("engine/bare pass, step", "engine_step_s", "bare_step_s", "ratio_engine_vs_bare", "≤ 1.15"),
    *(
        Comparison(
            f"paged/contiguous, {row}",
            f"paged_{key}_step_s",
            f"contiguous_{key.replace('scattered', 'one')}_step_s",
            f"ratio_paged_vs_contiguous_{key}",
            "≤ 1.3",
        )
        for row, key in (("all rows", "all_rows"), ("one row", "one_row"), ("scattered", "scattered_row"))
    ),
)


def check(way: str, tokens: Tokens, expected: Tokens) -> None:
    """Raise RuntimeError unless the tokens are the expected ones, sequence by sequence."""
    for sequence, (got, wanted) in enumerate(zip(tokens, expected, strict=True)):
        if got != wanted:
            raise RuntimeError(
                f"{way} gives sequence {sequence} the tokens {got}, `generate` gives {wanted}: they did not do the "
                "same work, so their times are not reported"
            )


def serve_alone(model: Transformer, prompts: Tokens, new_tokens: int) -> Served:
    start, rest_s, gaps, tokens = time.perf_counter(), 0.0, [], []
    for prompt in prompts:
        done = generate(model, prompt, max_new_tokens=new_tokens, warm_up=False)
        rest_s += sum(done.timing.itl_s)
        gaps += done.timing.itl_s
        tokens.append(list(done.tokens))
    first_s = time.perf_counter() - start - rest_s
    return Served(tokens, first_s, rest_s, statistics.median(gaps) * len(prompts), torch.get_num_threads())


def serve_together(model: Transformer, prompts: Tokens, new_tokens: int) -> Served:
    start, steps = time.perf_counter(), []
    engine, sequences = engine_with(model, prompts, new_tokens)
    first_s = time.perf_counter() - start
    while engine.running:
        start = time.perf_counter()
        engine.step()
        steps.append(time.perf_counter() - start)
    tokens = [sequence.tokens for sequence in sequences]
    return Served(tokens, first_s, sum(steps), statistics.median(steps), torch.get_num_threads())


def engine_with(model: Transformer, prompts: Tokens, new_tokens: int) -> tuple[Engine, list[Sequence]]:
    """An engine over a contiguous cache that has read the prompts and chosen the first new token of each."""
    cache = ContiguousCache(model.config, len(prompts), max(map(len, prompts)) + new_tokens, model.dtype)
    engine = Engine(model, cache)
    sequences = [engine.submit(Request(tuple(prompt), new_tokens)) for prompt in prompts]
    engine.step()
    return engine, sequences


def take_turns(ways: dict[str, Way], expected: Tokens) -> dict[str, float]:
    """Seconds of a step (the median) of ways that all decode the expected tokens. Each has read the prompts."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    columns = torch.tensor(expected).t().unsqueeze(-1)  # [new tokens, B, 1]
    for step, (column, following) in enumerate(pairwise(columns)):
        order = list(ways.items())
        for name, way in order[step % len(ways) :] + order[: step % len(ways)]:
            start = time.perf_counter()
            logits = way(column)
            times[name].append(time.perf_counter() - start)
            if logits is not None:
                check(f"step {step} {name}", logits.argmax(-1, keepdim=True).tolist(), following.tolist())
    return {name: statistics.median(values) for name, values in times.items()}


def bare(model: Transformer, cache: Cache, rows: int) -> Way:
    """A forward pass and nothing else."""
    counts, numbers = [1] * rows, list(range(rows))
    return lambda column: model(column, cache, counts=counts, rows=numbers, last_only=True)[:, 0]


def engine_and_bare(model: Transformer, prompts: Tokens, expected: Tokens) -> dict[str, float]:
    engine, sequences = engine_with(model, prompts, len(expected[0]))
    cache = ContiguousCache(model.config, len(prompts), engine.cache.longest, model.dtype)
    prefill(model, prompts, cache)

    def step(column: Tensor) -> None:
        engine.step()

    seconds = take_turns({"engine": step, "bare": bare(model, cache, len(prompts))}, expected)
    check("the engine beside a bare pass", [sequence.tokens for sequence in sequences], expected)
    return seconds


def caches_for(model: Transformer, prompts: Tokens, new_tokens: int) -> dict[str, tuple[Cache, int]]:
    """Caches by name, with the rows that are decoded in each. They have read the prompts, one row the longest one."""
    slots, rows = max(map(len, prompts)) + new_tokens, len(prompts)
    blocks, longest = -(-slots // BLOCK_SIZE), max(prompts, key=len)

    def paged(rows: int) -> PagedCache:
        return PagedCache(model.config, rows, rows * blocks, BLOCK_SIZE, model.dtype)

    caches: dict[str, tuple[Cache, int]] = {
        "contiguous_all_rows": (ContiguousCache(model.config, rows, slots, model.dtype), rows),
        "paged_all_rows": (paged(rows), rows),
        "contiguous_one_row": (ContiguousCache(model.config, 1, slots, model.dtype), 1),
        "paged_one_row": (paged(1), 1),
    }
    for cache, count in caches.values():
        prefill(model, prompts if count == rows else [longest], cache)
    scattered = paged(2)
    prefill(model, [longest, longest], scattered, chunk=BLOCK_SIZE)  # two rows that take blocks by turns
    scattered.release(1)
    return caches | {"paged_scattered_row": (scattered, 1)}


@torch.inference_mode()
def measure(model: Transformer, rounds: int, new_tokens: int, threads: Collection[int]) -> dict[int, list[Round]]:
    """Interleaved rounds of one case, after one that is not counted, for each number of threads. Raises if two ways
    choose different tokens.
    """
    draw = random.Random(1)  # texts without near ties: with 64 new tokens the best two logits are 7e-4 apart or more
    prompts = [[draw.randrange(model.config.vocab_size) for _ in range(length)] for length in LENGTHS]
    results: dict[int, list[Round]] = {number: [] for number in threads}
    for _ in range(rounds + 1):
        alone = []
        for number in threads:
            torch.set_num_threads(number)
            alone.append(serve_alone(model, prompts, new_tokens))
        for number in threads:
            torch.set_num_threads(number)
            results[number].append(one_round(model, prompts, quickest(alone)))
    return {number: results[1:] for number, results in results.items()}


def quickest(served: Collection[Served]) -> Served:
    return min(served, key=lambda one: one.step_s)


def one_round(model: Transformer, prompts: Tokens, alone: Served) -> Round:
    """All that is compared with sequences that were served alone, and with each other, on the threads that are set."""
    new_tokens, longest = len(alone.tokens[0]), LENGTHS.index(max(LENGTHS))
    together = serve_together(model, prompts, new_tokens)
    check("the engine", together.tokens, alone.tokens)
    step_s = engine_and_bare(model, prompts, alone.tokens)
    caches = caches_for(model, prompts, new_tokens)
    before = {name: cache.copied_bytes for name, (cache, _) in caches.items()}
    for count, expected in ((len(prompts), alone.tokens), (1, [alone.tokens[longest]])):
        ways = {name: bare(model, cache, rows) for name, (cache, rows) in caches.items() if rows == count}
        step_s |= take_turns(ways, expected)
    copied = {name: (cache.copied_bytes - before[name]) / (new_tokens - 1) for name, (cache, _) in caches.items()}
    return Round(together, alone, step_s, copied)


def summary(name: str, model: Transformer, results: list[Round], new_tokens: int) -> dict[str, Any]:
    """The medians of a case, under the names of the JSON file."""

    def seconds(served: Served) -> dict[str, float]:
        return {"_first_s": served.first_s, "_step_s": served.step_s, "_s": served.first_s + served.rest_s}

    times = [
        {f"together{part}": value for part, value in seconds(r.together).items()}
        | {f"alone{part}": value for part, value in seconds(r.alone).items()}
        | {f"{way}_step_s": value for way, value in r.step_s.items()}
        for r in results
    ]
    return {
        "model": name,
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": results[0].together.threads,
        "alone_threads": statistics.mode(r.alone.threads for r in results),
        "parameters": sum(p.numel() for p in model.parameters()),
        "sequences": len(LENGTHS),
        "prompt_tokens": sum(LENGTHS),
        "new_tokens": new_tokens,
        "rounds": len(results),
        **{c.ratio: statistics.median(t[c.above] / t[c.below] for t in times) for c in COMPARISONS},
        **{key: statistics.median(t[key] for t in times) for key in times[0]},
        **{f"{way}_copied_bytes_per_step": copied for way, copied in results[0].copied_bytes.items()},
    }


def table(case: dict[str, Any]) -> Table:
    shown = Table(
        title=f"{case['model']} {case['dtype']}, {case['sequences']} sequences, threads: {case['threads']}",
        caption=f"alone: threads {case['alone_threads']}, where it was quickest. The goal ≥ 6 is for 1M on all cores.",
    )
    shown.add_column("compared")
    for heading in ("ms", "ms", "ratio", "goal", "kB copied"):
        shown.add_column(heading, justify="right")
    for c in COMPARISONS:
        copied = case.get(c.above.removesuffix("_step_s") + "_copied_bytes_per_step")  # in a step
        shown.add_row(
            c.what,
            f"{1e3 * case[c.above]:.2f}",
            f"{1e3 * case[c.below]:.2f}",
            f"{case[c.ratio]:.2f}",
            c.goal,
            "" if copied is None else f"{copied / 1e3:.0f}",
        )
    return shown


def main() -> None:
    options = command.options(__doc__, CASES, min(c.max_positions for c in CASES.values()) - max(LENGTHS))
    threads = [options.threads] if options.threads else sorted({1, torch.get_num_threads()})
    cases = []
    for name in options.case:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        model = checkpoints.random(CASES[name], seed=0, dtype=torch.float32)
        results = measure(model, options.rounds, options.new_tokens, threads)
        cases += [summary(name, model, rounds, options.new_tokens) for rounds in results.values()]
    command.report(cases, [table(case) for case in cases], options.json)


if __name__ == "__main__":
    command.run(main)
