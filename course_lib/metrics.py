"""What a user waits for, computed from the times at which tokens came. Seconds and tokens per second, never "speed".

The one idea: the first token and the others are different experiences, so they get different numbers. TTFT holds
the wait before anything is seen, ITL each gap after that, TPOT their mean; a single "tokens per second" over all of
it hides the first. Nothing here reads a clock or knows a model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite

import torch


@dataclass(frozen=True)
class Timing:
    """Of one request: when it arrived, when each of its new tokens was there (same clock, seconds), how long its
    prompt was.

    Raises ValueError for no token at all, times that run backwards, or a prompt without tokens.
    """

    arrival_s: float
    token_times_s: tuple[float, ...]
    prompt_tokens: int

    def __post_init__(self) -> None:
        times = (self.arrival_s, *self.token_times_s)
        if not self.token_times_s:
            raise ValueError("no token came: there is nothing to time")
        if not all(isfinite(t) for t in times):
            raise ValueError(f"times must be finite numbers of seconds, not {times}")
        for earlier, later in pairwise(times):
            if later < earlier:
                raise ValueError(f"time runs backwards: {later} s comes after {earlier} s")
        if self.prompt_tokens < 1:
            raise ValueError(f"a prompt has at least one token, not {self.prompt_tokens}")

    @property
    def new_tokens(self) -> int:
        return len(self.token_times_s)

    @property
    def ttft_s(self) -> float:
        """Time to first token: from arrival, so queueing, prefill and choosing the first token are in it."""
        return self.token_times_s[0] - self.arrival_s

    @property
    def itl_s(self) -> list[float]:
        """Inter-token latencies: the gap before each token after the first. TTFT is not one of them."""
        return [b - a for a, b in pairwise(self.token_times_s)]

    @property
    def end_to_end_s(self) -> float:
        """From arrival to the last token."""
        return self.token_times_s[-1] - self.arrival_s

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: (end to end - TTFT) / (N - 1). None for N = 1, where there is none."""
        if self.new_tokens == 1:
            return None
        return (self.end_to_end_s - self.ttft_s) / (self.new_tokens - 1)

    @property
    def prefill_tokens_per_s(self) -> float | None:
        """Prompt tokens read per second until the first token came. None if the clock could not tell the two apart."""
        return _rate(self.prompt_tokens, self.ttft_s)

    @property
    def decode_tokens_per_s(self) -> float | None:
        """New tokens per second after the first. None for N = 1."""
        return _rate(self.new_tokens - 1, self.end_to_end_s - self.ttft_s)

    @property
    def output_tokens_per_s(self) -> float | None:
        """New tokens over the whole request: the figure that hides the first wait."""
        return _rate(self.new_tokens, self.end_to_end_s)

    def as_dict(self) -> dict[str, object]:
        """All of it under names that say the unit, ready for JSON."""
        names = (
            "prompt_tokens", "new_tokens", "ttft_s", "itl_s", "tpot_s", "end_to_end_s",
            "prefill_tokens_per_s", "decode_tokens_per_s", "output_tokens_per_s",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}


def _rate(tokens: int, seconds: float) -> float | None:
    return tokens / seconds if seconds > 0 else None


def percentile(values: Sequence[float], q: float) -> float:
    """The q-th percentile (0 to 100) of `values`, between neighbours in proportion. ValueError if empty."""
    if not values or not 0 <= q <= 100:
        raise ValueError(f"a percentile needs values and 0 <= q <= 100, got {len(values)} values and q={q}")
    return float(torch.quantile(torch.tensor(values, dtype=torch.float64), q / 100))


def clock(device: torch.device | str) -> Callable[[], float]:
    """A clock in seconds for work on `device`.

    A GPU is handed its work and the program runs on: without waiting for it, one times the launch. So this clock
    waits first.
    """
    device = torch.device(device)
    if device.type == "cuda":

        def after_the_gpu() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return after_the_gpu
    return time.perf_counter
