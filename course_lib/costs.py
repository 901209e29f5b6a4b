"""How much arithmetic a forward pass takes: a formula, and a count to hold against it.

The one idea: a pass does two kinds of work. Projections and MLP multiply each new token with every weight matrix;
attention pairs each new token with every position that it may look at. The first grows with the tokens that are read,
the second also with the length of the text. Additions in norms, RoPE, softmax and SiLU are small beside both and are
left out, as in torch's own counter. This is arithmetic, not time: bytes and clocks are the subject of other rooms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

from course_lib.model import ModelConfig

PARTS = ("projections and MLP", "attention")  # as prose and figures call them


@dataclass(frozen=True)
class Flops:
    """Floating-point operations (a multiplication and an addition are two) of the two kinds of work."""

    projections_and_mlp: int
    attention: int

    @property
    def total(self) -> int:
        return self.projections_and_mlp + self.attention

    def __add__(self, other: Flops) -> Flops:
        return Flops(self.projections_and_mlp + other.projections_and_mlp, self.attention + other.attention)

    def parts(self) -> dict[str, float]:
        """The two kinds of work under the names that figures give them."""
        return dict(zip(PARTS, (self.projections_and_mlp, self.attention), strict=True))


def pass_flops(config: ModelConfig, new: int, held: int = 0, logits: int = 1) -> Flops:
    """One pass over `new` tokens of one sequence, with `held` earlier ones in a cache and `logits` positions scored.

    Multiplying [m, k] with [k, n] takes 2 m k n operations. A layer's matrices have d_model (H_q + 2 H) D, H_q D
    d_model and 3 d_model d_ff entries, and each new token meets each entry once. In attention, q k^T and the product
    with v take 2 H_q D each for a query and a key. All held + new keys are counted for each query, those that the
    causal mask hides included: a plain kernel multiplies them, too, and a good one skips up to half of a long prefill.

    Source: PaLM (Chowdhery et al. 2022), appendix B: 6 N + 12 L H Q T a token for training, of which the forward pass
    is a third. Raises ValueError for a negative number, or more logits than new tokens.
    """
    if new < 1 or held < 0 or not 0 <= logits <= new:
        raise ValueError(f"{new} new tokens, {held} held, {logits} scored: at least 1 new, 0 held, 0 to {new} scored")
    c = config
    heads = c.n_heads * c.head_dim  # H_q D
    matrices = c.d_model * (heads + 2 * c.n_kv_heads * c.head_dim) + heads * c.d_model + 3 * c.d_model * c.d_ff
    projections = 2 * new * c.n_layers * matrices + 2 * logits * c.d_model * c.vocab_size
    return Flops(projections, 4 * c.n_layers * heads * new * (held + new))


def count_flops(run: Callable[[], Any]) -> Flops:
    """What torch counts while `run()` computes: its products of matrices, by where they belong.

    The counter sees every product of two matrices, in projections and MLP, and every product of stacks of matrices,
    in attention. Attention is made to use torch's plain kernel, since the counter is blind to others on a CPU.
    """
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run()
    counts = {str(operation): count for operation, count in counter.get_flop_counts()["Global"].items()}
    if strange := set(counts) - {"aten.mm", "aten.bmm"}:
        raise ValueError(f"the counter saw {sorted(strange)}, which belong to neither kind of work")
    return Flops(counts.get("aten.mm", 0), counts.get("aten.bmm", 0))


class Stopwatch(TorchFunctionMode):
    """Seconds that passes on the CPU spend in projections and MLP, and in attention: `with Stopwatch() as watch: …`.

    It times each call of `linear` and of `scaled_dot_product_attention`; norms, RoPE and the like go into neither.
    """

    def __init__(self) -> None:
        super().__init__()
        self.projections_and_mlp_s = 0.0
        self.attention_s = 0.0

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        start = perf_counter()
        result = function(*args, **(kwargs or {}))
        if function is F.linear:
            self.projections_and_mlp_s += perf_counter() - start
        elif function is F.scaled_dot_product_attention:
            self.attention_s += perf_counter() - start
        return result

    def parts(self) -> dict[str, float]:
        """Seconds of the two kinds of work under the names that figures give them."""
        return dict(zip(PARTS, (self.projections_and_mlp_s, self.attention_s), strict=True))
