"""The work of a pass against torch's counter and the tensors that the pass touches, exactly; ceilings against numbers
worked by hand.
"""

import dataclasses
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from cost_shapes import SHAPE, every_shape
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.caches import ContiguousCache, Step
from course_lib.checkpoints import random_model
from course_lib.model import ModelConfig, Transformer
from course_lib.roofline import Ceiling, Machine, Work, decode_work, pass_work, prefill_work

# (tokens held, new tokens): prefill, chunk, decode
every_pass = pytest.mark.parametrize(("held", "new"), [(0, 1), (0, 17), (1, 1), (30, 1), (30, 17)])

# Llama 3 8B, from its config.json. A layer: 4,096 · (4,096 + 2 · 1,024) + 4,096 · 4,096 + 3 · 4,096 · 14,336 entries of
# matrices = 218,103,808, and two norms of 4,096; 32 layers: 6,979,321,856 and 262,144. Head: 128,256 · 4,096 =
# 525,336,576. Keys and values of one token: 2 · 32 · 8 · 128 = 65,536 elements.
LLAMA = ModelConfig(
    vocab_size=128_256, n_layers=32, d_model=4096, n_heads=32, n_kv_heads=8, head_dim=128, d_ff=14_336,
    max_positions=8192, tied_head=False,
)  # fmt: skip
BF16 = {"weight_bytes": 2, "cache_bytes": 2}
MACHINE = Machine(bytes_per_s=2e12, flops_per_s=500e12)  # 250 FLOPs a byte, round numbers near a GPU of a data centre


class Touched(TorchFunctionMode):
    """Bytes of parameters that a pass reads: whole ones, each once, and the looked-up rows of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: dict[int, int] = {}
        self.looked_up = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function is F.embedding:
            if isinstance(args[1], torch.nn.Parameter):  # RoPE looks up its table in the same way
                self.looked_up += result.nbytes
        elif function in (F.linear, F.rms_norm):
            given = (*args, *(kwargs or {}).values())
            self.whole |= {id(t): t.nbytes for t in given if isinstance(t, torch.nn.Parameter)}
        return result


class WatchedCache(ContiguousCache):
    """A cache that adds up the bytes of what each layer writes and of what it gets to attend to."""

    moved = 0

    def open(self, rows: tuple[int, ...], counts: tuple[int, ...]) -> Step:
        step = super().open(rows, counts)
        store = step.store

        def watched(layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
            attended = store(layer, k, v)
            self.moved += sum(t.nbytes for t in (k, v, *attended))
            return attended

        step.store = watched  # type: ignore[method-assign]
        return step


@contextmanager
def flops_counted() -> Iterator[dict[str, int]]:
    counts: dict[str, int] = {}
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counts
    counts |= {str(name): count for name, count in counter.get_flop_counts()["Global"].items()}


def tokens(rows: int, count: int) -> Tensor:
    return torch.arange(count).expand(rows, -1) % SHAPE.vocab_size


def prepared(
    shape: ModelConfig, rows: int, held: int, new: int, dtype: torch.dtype = torch.float32
) -> tuple[Transformer, WatchedCache]:
    model, cache = random_model(shape).to(dtype), WatchedCache(shape, rows, held + new, dtype)
    with torch.inference_mode():
        if held:
            model(tokens(rows, held), cache)
    cache.moved = 0
    return model, cache


@every_shape
@every_pass
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("last_only", [True, False])
@torch.inference_mode()
def test_flops_are_what_torch_counts(shape: ModelConfig, held: int, new: int, rows: int, last_only: bool) -> None:
    model, cache = prepared(shape, rows, held, new)
    with flops_counted() as counts:
        model(tokens(rows, new), cache, last_only=last_only)
    scored = 1 if last_only else new
    work = pass_work(shape, new, held, rows, scored)
    assert work.total.flops == sum(counts.values())
    assert work.attention_and_cache.flops == counts["aten.bmm"]
    with flops_counted() as head:
        torch.zeros(rows * scored, shape.d_model) @ torch.zeros(shape.d_model, shape.vocab_size)
    assert work.embedding_and_head.flops == sum(head.values())


@every_shape
@every_pass
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@torch.inference_mode()
def test_bytes_are_those_of_the_tensors_that_a_pass_touches(
    shape: ModelConfig, held: int, new: int, rows: int, dtype: torch.dtype
) -> None:
    model, cache = prepared(shape, rows, held, new, dtype)
    with Touched() as touched:
        model(tokens(rows, new), cache)
    work = pass_work(shape, new, held, rows, weight_bytes=dtype.itemsize, cache_bytes=dtype.itemsize)
    in_layers = {id(parameter) for parameter in model.layers.parameters()}
    assert in_layers < touched.whole.keys()
    assert work.projections_and_mlp.bytes_moved == sum(n for key, n in touched.whole.items() if key in in_layers)
    outside = sum(n for key, n in touched.whole.items() if key not in in_layers)
    assert work.embedding_and_head.bytes_moved == outside + touched.looked_up
    assert work.attention_and_cache.bytes_moved == cache.moved


@every_shape
def test_a_decode_step_reads_every_weight_but_the_rest_of_the_embedding(shape: ModelConfig) -> None:
    all_bytes = sum(parameter.nbytes for parameter in random_model(shape).parameters())
    work = decode_work(shape, held=9)
    read = work.projections_and_mlp.bytes_moved + work.embedding_and_head.bytes_moved - shape.d_model * 4  # the look-up
    assert read == all_bytes - (0 if shape.tied_head else shape.vocab_size * shape.d_model * 4)


@every_pass
def test_the_bytes_of_the_cache_agree_with_what_it_says_it_uses(held: int, new: int) -> None:
    model, cache = prepared(SHAPE, 2, held, new)
    before = cache.used_bytes
    with torch.inference_mode():
        model(tokens(2, new), cache)
    moved = pass_work(SHAPE, new, held, 2).attention_and_cache.bytes_moved
    assert moved == cache.used_bytes + (cache.used_bytes - before)  # all are read, the new ones written


def test_a_pass_that_scores_nothing_reads_no_head() -> None:
    assert pass_work(SHAPE, 5, rows=2, logits=0).embedding_and_head == Work(0, 2 * 5 * SHAPE.d_model * 4)


def test_a_decode_step_of_llama_3_8b_is_worked_by_hand() -> None:
    work = decode_work(LLAMA, held=999, **BF16)
    assert work.tokens == 1
    assert work.projections_and_mlp == Work(2 * 6_979_321_856, 2 * (6_979_321_856 + 262_144))
    assert work.attention_and_cache == Work(4 * 32 * 32 * 128 * 1000, 2 * 65_536 * (1 + 1000))
    assert work.embedding_and_head == Work(2 * 525_336_576, 2 * (525_336_576 + 4096 + 4096))
    # 13,959,168,000 + 131,203,072 + 1,050,689,536 = 15,141,060,608 B at 2·10^12 a second: 7.5705 ms; bytes decide.
    ceiling = Ceiling(work, MACHINE)
    assert set(ceiling.limits().values()) == {"bytes"}
    assert ceiling.seconds == pytest.approx(7.5705e-3, rel=1e-5)
    assert ceiling.tokens_per_s == pytest.approx(132.09, rel=1e-4)
    # 15,009,316,864 + 524,288,000 FLOPs, or 15.534·10^9, take 31.067 µs of the 7.5705 ms.
    assert ceiling.busy == pytest.approx(0.0041037, rel=1e-4)
    # All parts have the same limit, so it does not matter whether they overlap.
    assert ceiling.seconds == pytest.approx(MACHINE.seconds(work.total))


def test_a_prefill_of_llama_3_8b_is_worked_by_hand() -> None:
    ceiling = Ceiling(prefill_work(LLAMA, 1000, **BF16), MACHINE)
    assert ceiling.work.tokens == 1000
    # 13,958,643,712,000 FLOPs take 27.917 ms, their bytes 6.98 ms. Attention: 524,288,000,000 FLOPs, 1.0486 ms, beside
    # 65,536 · 2 · 2,000 B, 0.131 ms. Head of one token: 1,050,673,152 B and 1,000 rows of 8,192 B, 0.52944 ms.
    assert list(ceiling.limits().values()) == ["FLOPs", "FLOPs", "bytes"]
    assert list(ceiling.part_seconds().values()) == pytest.approx([27.9173e-3, 1.04858e-3, 0.529437e-3], rel=1e-5)
    assert ceiling.tokens_per_s == pytest.approx(1000 / 29.4953e-3, rel=1e-5)
    assert ceiling.busy > 0.98
    assert ceiling.seconds > MACHINE.seconds(ceiling.work.total)  # limits differ: overlapping parts would gain


def test_rows_share_the_weights_and_not_the_cache() -> None:
    one, many = decode_work(LLAMA, 999, 1, **BF16), decode_work(LLAMA, 999, 64, **BF16)
    assert many.projections_and_mlp.bytes_moved == one.projections_and_mlp.bytes_moved
    assert many.projections_and_mlp.intensity == pytest.approx(64, rel=1e-4)  # 2 rows / 2 B, less the norms
    assert many.attention_and_cache == Work(*(64 * n for n in dataclasses.astuple(one.attention_and_cache)))
    assert many.attention_and_cache.intensity == pytest.approx(2 * (32 / 8) / 2, rel=2e-3)  # less the new row's write
    assert Ceiling(many, MACHINE).tokens_per_s > 20 * Ceiling(one, MACHINE).tokens_per_s


@pytest.mark.parametrize("held", [0, 1, 100, 8000])
def test_tokens_held_change_attention_and_cache_alone_and_in_a_straight_line(held: int) -> None:
    here, later, last = (decode_work(LLAMA, held + more, 3) for more in (0, 50, 100))
    assert here.projections_and_mlp == later.projections_and_mlp
    assert here.embedding_and_head == later.embedding_and_head
    for field in ("flops", "bytes_moved"):
        a, b, c = (getattr(work.attention_and_cache, field) for work in (here, later, last))
        assert b - a == c - b > 0
    assert Ceiling(here, MACHINE).tokens_per_s > Ceiling(later, MACHINE).tokens_per_s


def test_half_the_kv_heads_halve_the_bytes_of_the_cache_and_leave_the_arithmetic_of_attention() -> None:
    whole, half = (decode_work(dataclasses.replace(LLAMA, n_kv_heads=n), 4000, 8).attention_and_cache for n in (32, 16))
    assert half.bytes_moved * 2 == whole.bytes_moved
    assert half.flops == whole.flops


def test_bytes_of_weights_and_of_the_cache_count_apart() -> None:
    base = decode_work(LLAMA, 100, weight_bytes=2, cache_bytes=2)
    weights = decode_work(LLAMA, 100, weight_bytes=0.5, cache_bytes=2)
    cache = decode_work(LLAMA, 100, weight_bytes=2, cache_bytes=1)
    assert weights.attention_and_cache == base.attention_and_cache
    assert weights.projections_and_mlp.bytes_moved * 4 == base.projections_and_mlp.bytes_moved
    assert weights.embedding_and_head.bytes_moved * 4 == base.embedding_and_head.bytes_moved
    assert cache.attention_and_cache.bytes_moved * 2 == base.attention_and_cache.bytes_moved
    assert cache.projections_and_mlp == base.projections_and_mlp
    assert weights.total.flops == cache.total.flops == base.total.flops


@pytest.mark.parametrize("count", [1, 10, 100, 1000])
def test_a_longer_prefill_is_more_intense_in_every_layer_and_a_decode_step_is_not(count: int) -> None:
    short, long = prefill_work(LLAMA, count), prefill_work(LLAMA, 2 * count)
    assert long.projections_and_mlp.intensity == 2 * short.projections_and_mlp.intensity
    assert long.attention_and_cache.intensity == 2 * short.attention_and_cache.intensity
    for held in (count, 2 * count):
        assert decode_work(LLAMA, held).attention_and_cache.intensity < 2 * (32 / 8) / 4


def test_the_parts_add_up_under_their_names() -> None:
    work = pass_work(SHAPE, 3, 4)
    assert list(work.parts()) == ["projections and MLP", "attention and cache", "embedding and head"]
    assert work.total == Work(
        sum(part.flops for part in work.parts().values()), sum(part.bytes_moved for part in work.parts().values())
    )
    assert Work(6, 4).intensity == 1.5


def test_the_roof_has_a_slope_and_a_flat_part() -> None:
    machine = Machine(bytes_per_s=10, flops_per_s=40)
    assert machine.balance == 4
    assert (machine.seconds(Work(20, 20)), machine.limit(Work(20, 20))) == (2, "bytes")
    assert (machine.seconds(Work(800, 20)), machine.limit(Work(800, 20))) == (20, "FLOPs")
    assert (machine.seconds(Work(80, 20)), machine.limit(Work(80, 20))) == (2, "FLOPs")  # on the ridge, none waits


def test_a_faster_machine_never_lowers_the_ceiling() -> None:
    for work in (decode_work(LLAMA, 500, 16), prefill_work(LLAMA, 500)):
        base = Ceiling(work, Machine(1e11, 1e13)).tokens_per_s
        faster = [Ceiling(work, Machine(*rates)).tokens_per_s for rates in ((2e11, 1e13), (1e11, 2e13), (2e11, 2e13))]
        assert all(tokens_per_s >= base for tokens_per_s in faster)
        assert faster[-1] == pytest.approx(2 * base)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rows": 0}, "0 rows"),
        ({"new": 0}, "0 new tokens"),
        ({"held": -1}, "-1 held"),
        ({"logits": 3}, "3 scored"),
        ({"weight_bytes": 0}, "weight_bytes must be a positive number, not 0"),
        ({"cache_bytes": math.nan}, "cache_bytes must be a positive number, not nan"),
        ({"cache_bytes": "2"}, "cache_bytes must be a positive number, not '2'"),
        ({"weight_bytes": True}, "weight_bytes must be a positive number, not True"),
        ({"weight_bytes": 10**400}, "weight_bytes must be a positive number, not an enormous number"),
        ({"rows": 1.5}, "rows must be a whole number.*not 1.5"),
        ({"rows": True}, "rows must be a whole number.*not True"),
        ({"held": "3"}, "held must be a whole number.*not '3'"),
        ({"new": 10**400}, "new must be a whole number.*not an enormous number"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pass_work(SHAPE, **{"new": 2, "held": 0, "rows": 1, "logits": 1} | changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rates", "name"), [((0, 1), "bytes_per_s"), ((1, math.inf), "flops_per_s"), ((10**400, 1), "bytes_per_s")]
)
def test_a_machine_needs_rates_above_nothing(rates: tuple[float, float], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a positive number"):
        Machine(*rates)
