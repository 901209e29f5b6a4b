"""Puts the weights of a checkpoint into a Transformer.

The one idea: a checkpoint stores q, k, v, gate and up apart and under names of its own; a plan says which of its
tensors, stacked in which order, make each parameter of ours. Names and shapes are compared with the plan before
anything is read, and each tensor then goes straight into its place in the wanted dtype, so at no time is there a
second copy of the model. This file knows no file format.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from course_lib.checkpoints.errors import CheckpointError
from course_lib.model import ModelConfig, Transformer

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
PAGE, CORE_CACHE = 4096, 1 << 20  # bytes, on common CPUs
MAX_POSITIONS = 1 << 22  # no model reads so far: what claims more is damaged
MAX_HEAD_DIM = 1 << 14  # likewise, and rotation factors are listed for each pair

Shape = tuple[int, ...]
Plan = dict[str, tuple["Part", ...]]


@dataclass(frozen=True)
class Part:
    """One tensor of a checkpoint: its name there, the shape it must have, and for q and k the heads it is made of."""

    name: str
    shape: Shape
    rotated_heads: int = 0


def plan_weights(config: ModelConfig, names: Mapping[str, str]) -> Plan:
    """For each parameter of `Transformer(config)` the parts that are stacked (along dimension 0) to make it.

    `names` maps embedding, attention_norm, q, k, v, attention_out, mlp_norm, gate, up, down, final_norm and head to the
    checkpoint's names, where `{i}` stands for the layer.
    """
    c = config
    heads, kv_heads = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
    layer: dict[str, list[tuple[str, Shape, int]]] = {
        "attention_norm": [("attention_norm", (c.d_model,), 0)],
        "qkv": [
            ("q", (heads, c.d_model), c.n_heads),
            ("k", (kv_heads, c.d_model), c.n_kv_heads),
            ("v", (kv_heads, c.d_model), 0),
        ],
        "attention_out": [("attention_out", (c.d_model, heads), 0)],
        "mlp_norm": [("mlp_norm", (c.d_model,), 0)],
        "gate_up": [("gate", (c.d_ff, c.d_model), 0), ("up", (c.d_ff, c.d_model), 0)],
        "down": [("down", (c.d_model, c.d_ff), 0)],
    }
    plan: Plan = {"embedding": (Part(names["embedding"], (c.vocab_size, c.d_model)),)}
    for i in range(c.n_layers):
        for ours, parts in layer.items():
            plan[f"layers.{i}.{ours}"] = tuple(Part(names[n].format(i=i), shape, turned) for n, shape, turned in parts)
    plan["final_norm"] = (Part(names["final_norm"], (c.d_model,)),)
    if not c.tied_head:
        plan["head"] = (Part(names["head"], (c.vocab_size, c.d_model)),)
    return plan


def check_plan(plan: Plan, found: Mapping[str, Shape], where: str) -> None:
    """Raise CheckpointError unless `found` holds exactly the tensors of the plan, each in its shape."""
    wanted = {part.name: part.shape for parts in plan.values() for part in parts}
    for name, shape in wanted.items():
        if name not in found:
            raise CheckpointError(f"{where} lacks the tensor {name!r} (expected shape {list(shape)})")
        if tuple(found[name]) != shape:
            raise CheckpointError(
                f"{where}: tensor {name!r} has shape {list(found[name])}, expected {list(shape)} from the configuration"
            )
    if extra := [name for name in found if name not in wanted]:
        listed = ", ".join(f"{name!r} {list(found[name])}" for name in extra[:4])
        raise CheckpointError(
            f"{where} holds {len(extra)} tensors that a Llama model has no place for: {listed}"
            f"{', …' if len(extra) > 4 else ''}. Leaving them out would change what the model computes."
        )


def check_destination(dtype: torch.dtype, device: str | torch.device) -> torch.device:
    """The device as an object; CheckpointError for a dtype that is no float, a device of another kind than cpu and
    cuda, or one that is not there.
    """
    if dtype not in DTYPES:
        raise CheckpointError(f"dtype {dtype} cannot hold weights; use one of {', '.join(map(str, DTYPES))}")
    try:
        # A Mac's "mps" knows no float64, in which positions are rotated; "meta" has no memory for weights at all.
        if (place := torch.device(device)).type not in ("cpu", "cuda"):
            raise RuntimeError("the model runs on cpu and cuda only")
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"device {str(device)!r} cannot be used here ({reason}); use device='cpu'") from error
    return place


def assemble(
    config: ModelConfig,
    plan: Plan,
    read: Callable[[Part], Tensor],
    where: str,
    dtype: torch.dtype,
    device: torch.device,
) -> Transformer:
    """A Transformer in evaluation mode whose weights are what `read` returns for each part of the plan.

    Raises CheckpointError if a weight is not a finite number, in the file or after rounding to `dtype`.
    """
    state: dict[str, Tensor] = {}
    for ours, parts in plan.items():
        rows = [part.shape[0] for part in parts]
        whole = state[ours] = empty_weight((sum(rows), *parts[0].shape[1:]), dtype, device)
        for place, part in zip(whole.split(rows), parts):
            _fill(place, read(part), f"{where}: tensor {part.name!r}")
    with torch.device("meta"):  # shapes only: no memory is taken
        model = Transformer(config)
    model.load_state_dict(state, strict=True, assign=True)
    return model.eval().requires_grad_(False)


def empty_weight(shape: Shape, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for one parameter, laid out so that decoding is quick.

    A decode step multiplies every matrix with a single vector. On a CPU, in float32 and float64, that is up to twice as
    quick if the matrix lies column by column (benchmarks/decode.py measures both); in 16 bits, if row by row. Columns
    that begin whole pages apart want the same few places of the cache, which products for several rows pay for. If such
    a matrix is small, that is more than one row gains, so it lies row by row (benchmarks/batching.py). Shape and values
    are the same either way, only the strides differ.
    """
    if len(shape) == 2 and device.type == "cpu" and dtype in (torch.float32, torch.float64):
        apart = shape[0] * dtype.itemsize  # bytes, from one column to the next
        if apart % PAGE or apart * shape[1] > CORE_CACHE:
            return torch.empty(shape[::-1], dtype=dtype, device=device).t()
    return torch.empty(shape, dtype=dtype, device=device)


def _fill(place: Tensor, values: Tensor, what: str) -> None:
    """Copy `values` into `place`, rounding them to its dtype, and check that they are finite.

    In small blocks, which torch handles with one thread: threads that wait for each other at every tensor made loading
    take three times as long on a machine with other work to do, and gained nothing on an idle one.
    """
    rows = max(1, 32_000 * len(values) // values.numel())
    for block, source in zip(place.split(rows), values.split(rows)):
        block.copy_(source)
        # A sum is not finite if any term is not; only then look closer, as large terms may overflow it too.
        if not torch.isfinite(block.sum()) and not torch.isfinite(block).all():
            raise CheckpointError(
                f"{what} holds values that are not finite numbers in {block.dtype}. The file is damaged, or its values "
                "are too large for that dtype."
            )


def random_model(
    config: ModelConfig, seed: int = 0, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> Transformer:
    """A Transformer with seeded random weights: the same on every machine, whatever the global generator's state.

    Weights are drawn in float64 on the CPU and then rounded to `dtype`, so models of two dtypes are the same up to
    rounding. Each matrix keeps the size of what passes through it (deviation 1 / sqrt(columns)), and the last norm is
    scaled so that logits have a deviation of about 3: a clear favourite among the next tokens, as in a trained model.
    """
    generator = torch.Generator().manual_seed(seed)
    identity = {name: name for name in ("embedding", "final_norm", "head")}
    layer = ("attention_norm", "q", "k", "v", "attention_out", "mlp_norm", "gate", "up", "down")
    plan = plan_weights(config, identity | {name: f"layers.{{i}}.{name}" for name in layer})

    def draw(part: Part) -> Tensor:
        noise = torch.empty(part.shape, dtype=torch.float64).normal_(generator=generator)
        if len(part.shape) == 2:
            return noise / part.shape[1] ** 0.5
        return (3.0 if part.name == "final_norm" else 1.0) + 0.1 * noise  # a norm's gain

    return assemble(config, plan, draw, "the random model", dtype, check_destination(dtype, device))
