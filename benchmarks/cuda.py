"""The CUDA tests and a short decode benchmark, for a bare machine with an NVIDIA GPU. Needs torch 2.11 and pytest only.

    python benchmarks/cuda.py [--json FILE] [--skip-tests]

First `tests/test_cuda.py`, which compares the GPU with float64 on the CPU. Then a decode step of a model of about
SmolLM2's size, for each dtype and batch: its time, and the share of the memory bandwidth that it uses, both measured
here. The weights are random: the time does not depend on them. Under four minutes; exit status 1 if a test failed or
there is no GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The package need not be installed here; and this file's folder must not be searched, since its name would hide the
# package `cuda` that torch looks for.
sys.path[0] = str(ROOT)

import torch  # noqa: E402

from course_lib.caches import ContiguousCache  # noqa: E402
from course_lib.generation import decode, prefill  # noqa: E402
from course_lib.metrics import clock  # noqa: E402
from course_lib.model import ModelConfig, Transformer  # noqa: E402

SMALL = ModelConfig(
    vocab_size=49152, n_layers=30, d_model=576, n_heads=9, n_kv_heads=3, head_dim=64, d_ff=1536, max_positions=2048
)
PROMPT_TOKENS, STEPS, WARM_UP = 512, 64, 8


def bandwidth(device: torch.device) -> float:
    """Bytes per second of reading and writing a gigabyte on the GPU: the best of several copies."""
    now, source = clock(device), torch.empty(2**30, dtype=torch.uint8, device=device)
    target, times = torch.empty_like(source), []
    for _ in range(10):
        start = now()
        target.copy_(source)
        times.append(now() - start)
    return 2 * source.nbytes / min(times)


@torch.inference_mode()
def decode_step(rows: int, dtype: torch.dtype, device: torch.device) -> dict[str, object]:
    """The median time of a decode step for `rows` sequences, and the bytes that it has to read."""
    torch.manual_seed(0)
    model = Transformer(SMALL).to(device, dtype)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.normal_(std=parameter.shape[1] ** -0.5)
    cache = ContiguousCache(SMALL, rows, PROMPT_TOKENS + STEPS + WARM_UP, dtype, device)
    prefill(model, [list(range(PROMPT_TOKENS))] * rows, cache)
    now, times = clock(device), []
    for step in range(WARM_UP + STEPS):
        start = now()
        decode(model, [step] * rows, cache)
        if step >= WARM_UP:
            times.append(now() - start)
    return {
        "rows": rows,
        "dtype": str(dtype).removeprefix("torch."),
        "step_s": statistics.median(times),
        "weight_bytes": sum(p.nbytes for p in model.parameters()),
        "cache_bytes": cache.used_bytes,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there")
    parser.add_argument("--skip-tests", action="store_true", help="only the benchmark")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("error: torch sees no CUDA device here; run this on a machine with an NVIDIA GPU", file=sys.stderr)
        return 1
    failed = False
    if not options.skip_tests:
        # Without conftest.py, which loads checkpoints and so needs packages that a bare machine lacks.
        options_of_pytest = ["-q", "--noconftest", "-p", "engine_report", "-p", "no:cacheprovider"]
        paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
        failed = (
            subprocess.call(
                [sys.executable, "-m", "pytest", *options_of_pytest, "tests/test_cuda.py"],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": paths},
            )
            != 0
        )
    device = torch.device("cuda")
    name, rate = torch.cuda.get_device_name(), bandwidth(device)
    print(f"\n{name}, torch {torch.__version__}, copies at {rate / 1e9:.0f} GB/s")
    print(f"{'dtype':10} {'rows':>5} {'step, ms':>9} {'tokens/s':>9} {'share of bandwidth':>19}")
    cases = []
    for dtype in (torch.float32, torch.bfloat16):
        for rows in (1, 8, 64):
            case = decode_step(rows, dtype, device)
            seconds, moved = case["step_s"], case["weight_bytes"] + case["cache_bytes"]
            case |= {"tokens_per_s": rows / seconds, "share_of_bandwidth_limit": moved / rate / seconds}
            share = f"{case['share_of_bandwidth_limit']:.0%}"
            print(f"{case['dtype']:10} {rows:5} {seconds * 1e3:9.2f} {case['tokens_per_s']:9.0f} {share:>19}")
            cases.append(case)
    if options.json:
        report = {"gpu": name, "torch": torch.__version__, "bandwidth_bytes_per_s": rate, "cases": cases}
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
