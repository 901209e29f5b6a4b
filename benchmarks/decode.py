"""How quickly one sequence is decoded: against the transformers library, and against what the memory allows.

    python benchmarks/decode.py [--json FILE] [--rounds N] [--new-tokens N] [--threads N] [--case NAME ...]

Each round measures, one after the other, the bandwidth, our `generate`, and transformers' `generate` with its dynamic
cache: same weights, dtype, threads and prompt. The two small models run on one thread, since a step of theirs is so
short that waking a second one costs more than it brings; SmolLM2 runs on all cores. Ratios are taken within a round, so
a machine that slows down slows all three; the median over the rounds is printed. Two numbers a case:

* ratio_vs_transformers: our tokens per second over theirs, prefill of the short prompt included on both sides.
* share_of_bandwidth_limit: what a decode step would take if it only read its bytes, over what it takes. Its bytes are
  the weights and the cache; the bandwidth is that of matrix-vector products over matrices of the same shapes and dtype,
  as many bytes, in the better of two memory layouts (by rows, by columns).
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its cuda.py would hide the package `cuda`

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks import command  # noqa: E402
from benchmarks.models import FIVE_MILLION, ONE_MILLION  # noqa: E402
from benchmarks.peers import as_transformers  # noqa: E402
from course_lib import checkpoints  # noqa: E402
from course_lib.caches import ContiguousCache  # noqa: E402
from course_lib.generation import generate  # noqa: E402
from course_lib.model import Transformer  # noqa: E402


@dataclass(frozen=True)
class Case:
    """What is measured: a function that makes the model, in which dtype, on how many threads (None: all cores)."""

    build: Callable[[torch.dtype], Transformer]
    dtype: torch.dtype
    threads: int | None


CASES = {
    "1M float32": Case(lambda dtype: checkpoints.random(ONE_MILLION, seed=0, dtype=dtype), torch.float32, 1),
    "5M float32": Case(lambda dtype: checkpoints.random(FIVE_MILLION, seed=0, dtype=dtype), torch.float32, 1),
    "smollm2 float32": Case(lambda dtype: checkpoints.load("smollm2", dtype).model, torch.float32, None),
    "smollm2 bfloat16": Case(lambda dtype: checkpoints.load("smollm2", dtype).model, torch.bfloat16, None),
}
PROMPT = list(range(100, 132))  # 32 tokens


@dataclass(frozen=True)
class Round:
    ours_s: float  # whole request
    step_s: float  # one decode step of ours
    theirs_s: float
    limit_s: float  # reading the bytes of one step


class Bandwidth:
    """Matrix-vector products with matrices of the shapes and dtype of a model: as many bytes as a decode step reads."""

    def __init__(self, model: Transformer, cache_bytes: int) -> None:
        matrices = [p for p in model.parameters() if p.dim() == 2]
        if model.head is not None:
            matrices = [p for p in matrices if p is not model.embedding]  # looked up, not multiplied with
        self.bytes = sum(p.nbytes for p in matrices)
        self.step_bytes = self.bytes + cache_bytes
        self.inputs = [torch.randn(1, p.shape[1]).to(p.dtype) for p in matrices]
        by_rows = [torch.randn_like(p, memory_format=torch.contiguous_format) for p in matrices]
        self.layouts = [by_rows, [p.t().contiguous().t() for p in by_rows]]

    def limit_s(self) -> float:
        """Seconds to read the bytes of one step at the best rate seen now."""
        return min(self.seconds(matrices) for matrices in self.layouts) * self.step_bytes / self.bytes

    def seconds(self, matrices: list[torch.Tensor]) -> float:
        passes = max(3, min(50, int(2e8 / self.bytes)))
        times = []
        for _ in range(passes):
            start = time.perf_counter()
            for x, matrix in zip(self.inputs, matrices, strict=True):
                F.linear(x, matrix)
            times.append(time.perf_counter() - start)
        return statistics.median(times)


@torch.inference_mode()
def measure(model: Transformer, rounds: int, new_tokens: int) -> list[Round]:
    """Interleaved rounds of one case, after one that is not counted. Raises if the two do not give the same tokens."""
    peer = as_transformers(model)
    cache = ContiguousCache(model.config, 1, len(PROMPT) + new_tokens // 2, model.dtype)
    bandwidth = Bandwidth(model, cache.reserved_bytes)
    ids = torch.tensor([PROMPT])
    results = []
    for _ in range(rounds + 1):
        limit = bandwidth.limit_s()
        start = time.perf_counter()
        ours = generate(model, PROMPT, max_new_tokens=new_tokens, warm_up=False)
        ours_s = time.perf_counter() - start
        start = time.perf_counter()
        theirs = peer.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False, use_cache=True
        )
        theirs_s = time.perf_counter() - start
        assert theirs.shape == (1, len(PROMPT) + new_tokens)
        if model.dtype == torch.float32 and tuple(theirs[0, len(PROMPT) :].tolist()) != ours.tokens:
            raise RuntimeError("the two libraries chose different tokens: they did not do the same work")
        results.append(Round(ours_s, statistics.median(ours.timing.itl_s), theirs_s, limit))
    return results[1:]


def summary(name: str, model: Transformer, results: list[Round], new_tokens: int) -> dict[str, Any]:
    """The medians of a case, under the names of the JSON file."""

    def median(value: Callable[[Round], float]) -> float:
        return statistics.median(value(r) for r in results)

    return {
        "model": name.split()[0],
        "dtype": str(model.dtype).removeprefix("torch."),
        "threads": torch.get_num_threads(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "ratio_vs_transformers": median(lambda r: r.theirs_s / r.ours_s),
        "share_of_bandwidth_limit": median(lambda r: r.limit_s / r.step_s),
        "tokens_per_s": median(lambda r: new_tokens / r.ours_s),
        "transformers_tokens_per_s": median(lambda r: new_tokens / r.theirs_s),
        "step_s": median(lambda r: r.step_s),
        "limit_s": median(lambda r: r.limit_s),
        "rounds": len(results),
    }


def table(cases: list[dict[str, Any]]) -> Table:
    shown = Table(title="Decoding one sequence")
    columns = {
        "model": "{}",
        "dtype": "{}",
        "threads": "{}",
        "tokens_per_s": "{:.1f}",
        "transformers_tokens_per_s": "{:.1f}",
        "ratio_vs_transformers": "{:.2f}",
        "share_of_bandwidth_limit": "{:.0%}",
    }
    for heading in ("model", "dtype", "threads", "tokens/s", "transformers\ntokens/s", "ratio", "share of\nthe limit"):
        shown.add_column(heading, justify="left" if heading in ("model", "dtype") else "right")
    for case in cases:
        shown.add_row(*(form.format(case[name]) for name, form in columns.items()))
    return shown


def main() -> None:
    options = command.options(__doc__, CASES, ONE_MILLION.max_positions - len(PROMPT))
    all_cores, cases = torch.get_num_threads(), []
    for name in options.case:
        print(f"measuring {name} …", file=sys.stderr, flush=True)
        case = CASES[name]
        torch.set_num_threads(options.threads or case.threads or all_cores)
        model = case.build(case.dtype)
        cases.append(summary(name, model, measure(model, options.rounds, options.new_tokens), options.new_tokens))
    command.report(cases, [table(cases)], options.json)


if __name__ == "__main__":
    command.run(main)
