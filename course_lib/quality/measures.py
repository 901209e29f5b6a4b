"""Two runs over the same texts, compared: KL divergence, NLL, agreement on the likeliest token; each with its interval.

The one idea: a figure without its uncertainty and the number of samples behind it cannot be compared with another. The
sample is a text: the tokens of one text see the same cache and are alike, so their number would promise a precision
that is not there. Everything is worked out in float64: a difference of 1e-6 nats is far below float32's rounding of a
logit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import fmean, stdev

import torch
from torch import Tensor

from course_lib.caches import Cache
from course_lib.caches.contract import whole
from course_lib.metrics import clock
from course_lib.model import ModelConfig, Transformer

CacheOf = Callable[[ModelConfig, int, int], Cache]  # config, rows, capacity in tokens
NORMAL_975 = 1.959964  # 97.5 % of a normal distribution lies below
T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # of Student's with 1 … 9 degrees of freedom
PIECE = 64  # tokens: float64 logits of a whole text of SmolLM2 would be large


@dataclass(frozen=True)
class Rate:
    """`right` of `asked`, with a 95 % interval: between which shares the true one lies (Wilson 1927).

    Unlike share ± 1.96 standard errors it stays within 0 and 1 and has a width at 0 and at 1.
    """

    right: int
    asked: int

    def __post_init__(self) -> None:
        if not 0 <= whole(self.right, "the number of right answers") <= whole(self.asked, "the number of questions"):
            raise ValueError(f"{self.right} of {self.asked} is no rate")

    @property
    def share(self) -> float:
        """NaN if nothing was asked."""
        return self.right / self.asked if self.asked else float("nan")

    @property
    def interval(self) -> tuple[float, float]:
        if not self.asked:
            return 0.0, 1.0
        n, p, z = self.asked, self.share, NORMAL_975
        middle, half = p + z * z / (2 * n), z * sqrt(p * (1 - p) / n + (z / (2 * n)) ** 2)
        low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
        return max(low, 0.0) if self.right else 0.0, min(high, 1.0) if self.right < n else 1.0

    def __str__(self) -> str:
        if not self.asked:
            return "nothing asked"
        low, high = self.interval
        return f"{100 * self.share:.1f} % ({100 * low:.1f} to {100 * high:.1f}, n = {self.asked})"


@dataclass(frozen=True)
class Mean:
    """The mean of `samples` independent samples, and its 95 % interval: ± t standard errors (Student 1908).

    Student's t, not 1.96, because there are often only a few texts. One sample alone has no spread: its interval is
    everything.
    """

    value: float
    low: float
    high: float
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Mean:
        """Raises ValueError for no samples, or one that is not a finite number."""
        samples = [float(sample) for sample in samples]
        if not samples or not all(map(isfinite, samples)):
            raise ValueError(f"a mean needs at least one sample, all of them finite numbers, not {samples}")
        value, n = fmean(samples), len(samples)
        half = t_975(n - 1) * stdev(samples) / sqrt(n) if n > 1 else inf
        return cls(value, value - half, value + half, n)

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g}, n = {self.samples})"


def t_975(freedom: int) -> float:
    """Below this lie 97.5 % of Student's t distribution. A table, then the expansion of Fisher and Cornish (1960)."""
    if freedom <= len(T_975):
        return T_975[freedom - 1]
    z, n = NORMAL_975, freedom
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / n**power for power, term in enumerate(terms, start=1))


def kl(reference: Tensor, changed: Tensor) -> Tensor:
    """KL(reference ‖ changed) in nats, one number a token [..., T], from logits [..., T, V]: what a reader of the
    changed run's probabilities loses on text that the reference writes (Kullback and Leibler 1951).
    """
    check_alike(reference, changed)
    p, q = (logits.double().log_softmax(-1) for logits in (reference, changed))
    return (p.exp() * (p - q)).sum(-1).clamp(min=0)  # below 0 is rounding


def nll(logits: Tensor, tokens: Tensor) -> Tensor:
    """The negative log-likelihood in nats of `tokens` [..., T], each by the logits [..., T, V] that chose it."""
    if logits.shape[:-1] != tokens.shape or tokens.is_floating_point() or tokens.dtype == torch.bool:
        raise ValueError(f"logits of {list(logits.shape)} do not judge {tokens.dtype} tokens of {list(tokens.shape)}")
    check_finite(logits, "logits")
    if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < logits.shape[-1]:
        raise ValueError(f"tokens from {int(tokens.min())} to {int(tokens.max())}, but {logits.shape[-1]} logits each")
    return -logits.double().log_softmax(-1).gather(-1, tokens.to(logits.device).long()[..., None])[..., 0]


def same_choice(reference: Tensor, changed: Tensor) -> Tensor:
    """Whether both runs find the same token likeliest, [..., T], from logits [..., T, V]."""
    check_alike(reference, changed)
    return reference.argmax(-1) == changed.argmax(-1)


def check_alike(reference: Tensor, changed: Tensor) -> None:
    """Raise ValueError unless the logits of two runs can be compared."""
    if reference.shape != changed.shape:
        raise ValueError(
            f"logits of {list(reference.shape)} against {list(changed.shape)}: compare runs over the same texts"
        )
    check_finite(reference, "the reference's logits")
    check_finite(changed, "the changed run's logits")


def check_finite(logits: Tensor, what: str) -> None:
    wrong = ~logits.isfinite()
    if wrong.any():
        first = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"{int(wrong.sum())} of {wrong.numel()} of {what} are no finite numbers, the first at {first}: something "
            "that was read was never written, or was too large for its dtype"
        )


@dataclass(frozen=True)
class Comparison:
    """A changed run against its reference, over texts. Everything in nats per token but `same_choice`, a share.

    `nll_added` is the mean of the differences, text by text: its interval is far narrower than those of the two NLLs,
    which hold how unlike the texts are.
    """

    kl: Mean
    same_choice: Mean
    nll_reference: Mean
    nll_changed: Mean
    nll_added: Mean
    tokens: int


def compare(
    reference: Sequence[Tensor] | Tensor, changed: Sequence[Tensor] | Tensor, texts: Sequence[Tensor] | Tensor
) -> Comparison:
    """Compare logits [T, V] of the same texts [T], one entry a text: the logits at t judge the token at t + 1.

    Each text counts once, whatever its length. Raises ValueError for runs that do not fit each other.
    """
    if not 0 < len(reference) == len(changed) == len(texts):
        raise ValueError(
            f"{len(reference)} reference runs, {len(changed)} changed ones, {len(texts)} texts: one of each"
        )
    means = [text_means(*run) for run in zip(reference, changed, texts)]
    divergence, same, before, after = zip(*means)
    return Comparison(
        kl=Mean.of(divergence),
        same_choice=Mean.of(same),
        nll_reference=Mean.of(before),
        nll_changed=Mean.of(after),
        nll_added=Mean.of([b - a for a, b in zip(before, after)]),
        tokens=sum(len(text) - 1 for text in texts),
    )


def text_means(reference: Tensor, changed: Tensor, text: Tensor) -> list[float]:
    """KL, same choice, and the NLL of both runs: means over the tokens of one text."""
    if len(text) < 2 or len(text) != len(reference):
        raise ValueError(f"{len(reference)} rows of logits, {len(text)} tokens: as many of both, and at least 2")
    if text.dim() != 1:
        raise ValueError(f"one entry is a text [T], not {list(text.shape)}: hand over the texts of a batch one by one")
    check_alike(reference, changed)
    sums = torch.zeros(4, dtype=torch.float64)
    for a, b, after in zip(reference[:-1].split(PIECE), changed[:-1].split(PIECE), text[1:].split(PIECE)):
        parts = kl(a, b), same_choice(a, b), nll(a, after), nll(b, after)
        sums += torch.stack([part.double().sum().cpu() for part in parts])
    return (sums / (len(text) - 1)).tolist()


@torch.inference_mode()
def read(
    model: Transformer, tokens: Tensor, cache_of: CacheOf | None = None, *, prompt: int = 1, chunk: int = 1
) -> Tensor:
    """Logits [rows, T, V] of texts [rows, T] read through a cache: `prompt` tokens in one pass, then `chunk` in each.

    The text is given, whatever the model would have said. Without `cache_of`, in one pass.
    """
    if tokens.dim() != 2:
        raise ValueError(f"texts are [rows, T], not {list(tokens.shape)}: one text alone is a batch of one row")
    tokens = tokens.to(model.device)
    if cache_of is None:
        return model(tokens)
    if not 1 <= whole(prompt, "the prompt's length") <= tokens.shape[1] or whole(chunk, "the chunk") < 1:
        raise ValueError(f"a prompt of {prompt} and chunks of {chunk} tokens do not make {tokens.shape[1]} tokens")
    cache = cache_of(model.config, *tokens.shape)
    first, rest = tokens.split((prompt, tokens.shape[1] - prompt), dim=1)
    return torch.cat([model(piece, cache) for piece in (first, *rest.split(chunk, dim=1)) if piece.shape[1]], dim=1)


@torch.inference_mode()
def step_times(model: Transformer, cache: Cache, tokens: Sequence[int]) -> Iterator[float]:
    """Seconds of one decode step after the other, each over all rows of a cache that holds a prompt in each."""
    now = clock(model.device)
    for token in tokens:
        column = torch.full((cache.rows, 1), token, device=model.device)
        before = now()
        model(column, cache)
        yield now() - before
