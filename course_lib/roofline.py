"""How fast a pass could be at best: its arithmetic and its bytes, held against what a machine can do in a second.

The one idea: a processor works through a pass no faster than it does the pass's arithmetic, and no faster than it
moves the pass's bytes; the longer of the two times is a floor (Williams, Waterman, Patterson 2009, "Roofline: An
Insightful Visual Performance Model for Multicore Architectures"). A prefill uses each weight it reads for every token
of the prompt; a decode step uses it once for each row, so the bytes decide and the arithmetic waits.

This is a ceiling, not a forecast. Activations, masks and tables of RoPE are taken to stay in the processor's caches,
and norms, softmax and the calls themselves to cost nothing; a measured speed lies below. The FLOPs are those of
`course_lib.costs`, which counts the keys that the causal mask hides: a kernel that skips them needs up to half of a
long prefill's attention less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import isfinite
from operator import index
from time import perf_counter

import torch
import torch.nn.functional as F

from course_lib.costs import pass_flops
from course_lib.model import ModelConfig

PARTS = ("projections and MLP", "attention and cache", "embedding and head")  # as prose and figures call them

MEASURED_BYTES = 256 * 2**20  # more than the processor caches that one program can fill; measuring needs little more
MOST = 10**15  # tokens, or rows; more is a slip of the pen
MEASURED_S = 0.7  # about how long each of the two measurements repeats


@dataclass(frozen=True)
class Work:
    """Floating-point operations (a multiplication and an addition are two), and bytes moved from and to memory."""

    flops: int
    bytes_moved: float  # a whole number unless an element takes part of a byte

    @property
    def intensity(self) -> float:
        """Arithmetic intensity: FLOPs for each byte moved."""
        return self.flops / self.bytes_moved

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes_moved + other.bytes_moved)


@dataclass(frozen=True)
class PassWork:
    """The work of one forward pass over `tokens` new tokens, all rows together, in three parts.

    Only the second part knows how many tokens a cache holds.
    """

    tokens: int
    projections_and_mlp: Work
    attention_and_cache: Work
    embedding_and_head: Work

    @property
    def total(self) -> Work:
        return self.projections_and_mlp + self.attention_and_cache + self.embedding_and_head

    def parts(self) -> dict[str, Work]:
        """The three parts under the names that figures give them."""
        parts = (self.projections_and_mlp, self.attention_and_cache, self.embedding_and_head)
        return dict(zip(PARTS, parts, strict=True))


def pass_work(
    config: ModelConfig,
    new: int,
    held: int = 0,
    rows: int = 1,
    logits: int = 1,
    *,
    weight_bytes: float = 4,
    cache_bytes: float = 4,
) -> PassWork:
    """One pass over `new` tokens in each of `rows` rows, with `held` earlier ones of each row in a cache.

    `logits` positions of each row are scored. An element of a weight takes `weight_bytes`, one of the cache
    `cache_bytes`: 4 for float32, 2 for bfloat16, 0.5 for four bits (scales, where there are any, come on top).

    * Projections and MLP: each matrix and norm of a layer is read once, however many tokens meet it.
    * Attention and cache: every row has keys and values of its own, 2 L H D elements for each token. Those of the new
      tokens are written; then all held + new are read.
    * Embedding and head: one row of the embedding is looked up for each token; if anything is scored, the last norm
      and the whole head are read, which may be the embedding itself.

    Raises ValueError for a number that makes no sense.
    """
    check_counts(new=new, held=held, rows=rows, logits=logits)
    if rows < 1:
        raise ValueError(f"{rows} rows: a pass has at least 1")
    check_positive(weight_bytes=weight_bytes, cache_bytes=cache_bytes)
    c, layers = config, pass_flops(config, new, held, 0)  # of one row, nothing scored
    scored = pass_flops(config, new, held, logits).total - layers.total

    heads = (c.n_heads + c.n_kv_heads) * c.head_dim  # queries and outputs, keys and values: each pair of matrices
    layer = 2 * c.d_model * heads + 3 * c.d_model * c.d_ff + 2 * c.d_model  # the last are the two norms
    kv = 2 * c.n_layers * c.n_kv_heads * c.head_dim  # elements of one token's keys and values
    head = c.vocab_size * c.d_model + c.d_model if logits else 0
    return PassWork(
        tokens=rows * new,
        projections_and_mlp=Work(rows * layers.projections_and_mlp, c.n_layers * layer * weight_bytes),
        attention_and_cache=Work(rows * layers.attention, rows * kv * (new + held + new) * cache_bytes),
        embedding_and_head=Work(rows * scored, (rows * new * c.d_model + head) * weight_bytes),
    )


def prefill_work(
    config: ModelConfig, tokens: int, rows: int = 1, *, weight_bytes: float = 4, cache_bytes: float = 4
) -> PassWork:
    """A prefill of `rows` prompts of `tokens` tokens each into an empty cache; the last of each is scored.

    A weight that is read serves rows · tokens tokens: the intensity of projections and MLP is about
    2 rows · tokens / weight_bytes. That of attention and cache grows with `tokens` and not with `rows`.
    """
    return pass_work(config, tokens, 0, rows, weight_bytes=weight_bytes, cache_bytes=cache_bytes)


def decode_work(
    config: ModelConfig, held: int, rows: int = 1, *, weight_bytes: float = 4, cache_bytes: float = 4
) -> PassWork:
    """A decode step: one new token in each of `rows` rows, each after `held` tokens in a cache.

    More rows share the weights, so the intensity of projections and MLP is about 2 rows / weight_bytes. No row shares
    its cache: attention and cache stay near 2 (H_q / H) / cache_bytes, whatever `rows` and `held` are. Only fewer KV
    heads or smaller elements raise that.
    """
    return pass_work(config, 1, held, rows, weight_bytes=weight_bytes, cache_bytes=cache_bytes)


@dataclass(frozen=True)
class Machine:
    """What a machine can do in a second at best, from its data sheet or from `measure_machine`.

    Raises ValueError unless both are positive numbers.
    """

    bytes_per_s: float
    flops_per_s: float

    def __post_init__(self) -> None:
        check_positive(bytes_per_s=self.bytes_per_s, flops_per_s=self.flops_per_s)

    @property
    def balance(self) -> float:
        """FLOPs for each byte at which moving and computing take equally long: the ridge of the roof."""
        return self.flops_per_s / self.bytes_per_s

    def seconds(self, work: Work) -> float:
        """The least time for `work` if bytes are moved while others are computed with: the longer of the two."""
        return max(work.bytes_moved / self.bytes_per_s, work.flops / self.flops_per_s)

    def limit(self, work: Work) -> str:
        """Which of the two takes longer, "bytes" or "FLOPs"."""
        return "bytes" if work.intensity < self.balance else "FLOPs"


@dataclass(frozen=True)
class Ceiling:
    """The least time that a pass takes on a machine, and the most tokens a second.

    Assumed: within a part, moving and computing overlap perfectly; the parts come one after the other, so their times
    add up. If even the parts overlapped, `machine.seconds(work.total)` would remain; where one limit holds for all
    parts, as in most decode steps, the two are the same.
    """

    work: PassWork
    machine: Machine

    @property
    def seconds(self) -> float:
        return sum(self.part_seconds().values())

    @property
    def tokens_per_s(self) -> float:
        """Tokens read by a prefill, or generated by decode steps, all rows together."""
        return self.work.tokens / self.seconds

    @property
    def busy(self) -> float:
        """The share of the machine's arithmetic that is used at this speed, 0 to 1: the rest is idle."""
        return self.work.total.flops / self.machine.flops_per_s / self.seconds

    def part_seconds(self) -> dict[str, float]:
        """The least time of each part, under the names that figures give them."""
        return {name: self.machine.seconds(part) for name, part in self.work.parts().items()}

    def limits(self) -> dict[str, str]:
        """For each part, whether "bytes" or "FLOPs" limit it."""
        return {name: self.machine.limit(part) for name, part in self.work.parts().items()}


@torch.inference_mode()
def measure_bandwidth(dtype: torch.dtype = torch.float32) -> float:
    """Bytes a second that this CPU reads, with torch's threads as they are, in products of a matrix with a vector.

    This is what a decode step does, too: each element is read, used once, and not needed again. The matrix is larger
    than the processor's caches, and the fastest of several products counts. In a dtype that the CPU must first convert,
    such as bfloat16 on many, the conversion may be what limits it, and the memory itself is faster: float32 tells.
    Raises ValueError for a dtype without fractions.
    """
    check_dtype(dtype)
    columns = 4096
    matrix = torch.ones(MEASURED_BYTES // dtype.itemsize // columns, columns, dtype=dtype)
    vector = torch.ones(1, columns, dtype=dtype)
    return matrix.nbytes / fastest_s(partial(F.linear, vector, matrix), MEASURED_S)


@torch.inference_mode()
def measure_flops(dtype: torch.dtype = torch.float32) -> float:
    """Floating-point operations a second of this CPU, with torch's threads as they are, in products of two matrices.

    Matrices grow from 256 x 256 until a product takes too long or memory ends (small ones leave many cores idle, large
    ones are slow in a dtype that the CPU does not know); the best rate counts. Raises ValueError for a dtype without
    fractions.
    """
    check_dtype(dtype)
    end, size, best = perf_counter() + MEASURED_S, 256, 0.0
    while True:
        matrix = torch.ones(size, size, dtype=dtype)
        seconds = fastest_s(partial(torch.mm, matrix, matrix), MEASURED_S / 8)
        best = max(best, 2 * size**3 / seconds)
        size *= 2
        too_large = 2 * size**2 * dtype.itemsize > MEASURED_BYTES  # a matrix and the product
        if too_large or perf_counter() + 4 * 10 * seconds > end:  # four products, each 8 times the work or a bit more
            return best


def measure_machine(dtype: torch.dtype = torch.float32) -> Machine:
    """Both measurements of this CPU, in about two seconds: the machine that a model in `dtype` runs on."""
    bytes_per_s = measure_bandwidth(dtype)
    # That was arithmetic, too, 2 FLOPs an element: where torch has no fast product of matrices, as for float16 on many
    # CPUs, it is the faster of the two.
    return Machine(bytes_per_s, max(measure_flops(dtype), 2 * bytes_per_s / dtype.itemsize))


def fastest_s(run: Callable[[], object], for_s: float) -> float:
    """Seconds of the fastest of at least three calls, repeated for `for_s`, after one that does not count.

    The fastest, because everything else that a machine does only makes a call slower.
    """
    run()
    end, times = perf_counter() + for_s, list[float]()
    while len(times) < 3 or perf_counter() < end:
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return min(times)


def check_dtype(dtype: torch.dtype) -> None:
    if not dtype.is_floating_point:
        raise ValueError(f"{dtype} has no fractions: measure with the dtype of a model, such as torch.float32")


def check_positive(**numbers: float) -> None:
    for name, value in numbers.items():
        try:
            sound = not isinstance(value, bool) and isfinite(value) and value > 0
        except (TypeError, OverflowError):  # no number, or an int that no float can hold
            sound = False
        if not sound:
            raise ValueError(f"{name} must be a positive number, not {_shown(value)}")


def check_counts(**numbers: int) -> None:
    for name, value in numbers.items():
        try:
            sound = not isinstance(value, bool) and index(value) <= MOST
        except TypeError:
            sound = False
        if not sound:
            raise ValueError(f"{name} must be a whole number, at most {MOST:,}, not {_shown(value)}")


def _shown(value: object) -> str:
    """A value as an error shows it: Python refuses to print an int of thousands of digits."""
    return "an enormous number" if isinstance(value, int) and abs(value) > 10**100 else f"{value!r:.80}"
