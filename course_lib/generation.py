"""Prefill, decode, and the loop that turns logits into text, token by token.

The one idea: generation is one pass over the prompt and then one pass for each token, since every choice is the
next input. With a cache such a pass reads one token; without, it reads everything again and gives the same logits.
Nothing here knows how a cache stores what it stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache
from course_lib.caches.contract import real, whole
from course_lib.metrics import Timing, clock
from course_lib.model import Transformer


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen: the most likely one (temperature 0), or drawn.

    Logits are divided by `temperature`; then only the `top_k` most likely tokens stay (and all that tie with the last
    of them), and of those the fewest whose probabilities reach `top_p`. Raises ValueError, naming field and value, for
    a number that makes no sense.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "temperature", real(self.temperature, "temperature", least=0))
        if self.top_k is not None:
            object.__setattr__(self, "top_k", whole(self.top_k, "top_k"))
            if self.top_k < 1:
                raise ValueError(f"top_k must be at least 1, not {self.top_k}")
        if self.top_p is not None:
            object.__setattr__(self, "top_p", real(self.top_p, "top_p", above=0))
            if self.top_p > 1:
                raise ValueError(f"top_p must be at most 1, not {self.top_p}")

    def probabilities(self, logits: Tensor) -> Tensor:
        """The distribution [V] (float64, CPU) that a token is drawn from, for logits [V] and a temperature above 0."""
        logits = logits.double().cpu()
        logits = (logits - logits.max()) / self.temperature  # the largest is 0: no temperature makes it overflow
        if self.top_k is not None and self.top_k < len(logits):
            least = logits.topk(self.top_k).values[-1]
            logits = logits.masked_fill(logits < least, -torch.inf)
        probabilities = logits.softmax(-1)
        if self.top_p is not None and self.top_p < 1:  # 1 keeps all tokens, whatever their sum rounds to
            ordered, order = probabilities.sort(descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered  # what the more likely tokens already cover
            probabilities[order[before >= self.top_p]] = 0
            probabilities /= probabilities.sum()
        return probabilities


GREEDY = Sampling()


def choose(logits: Tensor, sampling: Sampling = GREEDY, generator: torch.Generator | None = None) -> int:
    """The next token for logits [V] of one sequence. Draws come from this request's own (CPU) `generator`.

    Raises ValueError if the logits are not numbers: a broken cache must not look like a choice.
    """
    best, token = logits.max(-1)
    if not isfinite(best.item()):
        raise ValueError(f"the largest logit is {best.item()}: something that was read was never written")
    return int(token) if sampling.temperature == 0 else draw(logits, sampling, generator)


def likeliest(logits: Tensor) -> list[int]:
    """The most likely token of each row of logits [B, V]. Raises ValueError if those of a row are not numbers."""
    best, tokens = logits.max(-1)
    for row, largest in enumerate(best.tolist()):
        if not isfinite(largest):
            raise ValueError(f"the largest logit of row {row} is {largest}: something that was read was never written")
    return tokens.tolist()


def draw(logits: Tensor, sampling: Sampling, generator: torch.Generator | None) -> int:
    """A token drawn for logits [V] at a temperature above 0."""
    return int(torch.multinomial(sampling.probabilities(logits), 1, generator=generator))


def token_ids(model: Transformer, tokens: Sequence[int] | str, what: str) -> list[int]:
    """`tokens` as plain ints that `model` knows; ValueError, naming the wrong one, if they are anything else."""
    if isinstance(tokens, str):
        raise ValueError(f"{what} must be token ids, not the text {tokens[:30]!r}: encode it first")
    try:
        ids = [whole(token, f"a token of {what}") for token in tokens]
    except TypeError:
        raise ValueError(f"{what} must be a sequence of token ids, not {tokens!r}") from None
    if not ids:
        raise ValueError(f"{what} is empty: a new token needs something to follow")
    for token in (min(ids), max(ids)):
        if not 0 <= token < model.config.vocab_size:
            raise ValueError(f"{what} holds token {token}, the model has 0 to {model.config.vocab_size - 1}")
    return ids


def stop_set(stop_tokens: Collection[int]) -> frozenset[int]:
    """The stop tokens as plain ints, which nobody can change later; ValueError if they are anything else."""
    try:
        return frozenset(whole(token, "a stop token") for token in stop_tokens)
    except TypeError:
        raise ValueError(f"stop_tokens must be a collection of token ids, not {stop_tokens!r}") from None


@torch.inference_mode()
def prefill(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    cache: Cache | None,
    *,
    rows: Sequence[int] | None = None,
    chunk: int | None = None,
) -> Tensor:
    """Read the prompts, one a row of the cache; return the logits [B, V] that choose each row's first new token.

    Prompts may differ in length. `chunk` reads them in passes of at most so many tokens, which needs less memory
    and gives the same logits up to rounding: a pass over T tokens holds masks of T x T. Raises ValueError for an empty
    prompt or a token that the model does not have, and CacheFull if a pass does not fit; what earlier chunks wrote is
    then still there, and `release` frees it.
    """
    if cache is None and chunk is not None:
        raise ValueError("without a cache there is nothing to keep a chunk in: leave out chunk, or pass a cache")
    if chunk is not None and whole(chunk, "the chunk") < 1:
        raise ValueError(f"a chunk has at least one token, not {chunk}")
    prompts = [token_ids(model, prompt, f"prompt {row}") for row, prompt in enumerate(prompts)]
    if not prompts:
        raise ValueError("there is no prompt to read: pass at least one")
    longest = max(map(len, prompts))
    padded = torch.zeros(len(prompts), longest, dtype=torch.long)  # [B, T], padding on the right
    for row, prompt in enumerate(prompts):
        padded[row, : len(prompt)] = torch.tensor(prompt)
    logits = None
    for start in range(0, longest, chunk or longest):
        piece = padded[:, start : start + (chunk or longest)].to(model.device)
        counts = [min(max(len(prompt) - start, 0), piece.shape[1]) for prompt in prompts]
        last = model(piece, cache, counts=counts, rows=rows, last_only=True)[:, 0]  # [B, V]
        ends_here = torch.tensor([count > 0 for count in counts], device=model.device)[:, None]
        logits = last if logits is None else torch.where(ends_here, last, logits)
    assert logits is not None
    return logits


@torch.inference_mode()
def decode(model: Transformer, tokens: Sequence[int], cache: Cache, *, rows: Sequence[int] | None = None) -> Tensor:
    """Read one token for each row; return the logits [B, V] that choose the next.

    Raises ValueError for a token that the model does not have, CacheFull if a row has no room for it.
    """
    if cache is None:
        raise ValueError("decode continues a text that a cache holds: pass that cache, or read the text with prefill")
    column = torch.tensor([[token] for token in token_ids(model, tokens, "the batch")], device=model.device)  # [B, 1]
    return model(column, cache, rows=rows)[:, 0]


@dataclass(frozen=True)
class TokenEvent:
    """One new token: when it was there (seconds since the request arrived) and the phase it came from: "prefill" or
    "decode", and what `speculative.stream` adds to these."""

    token: int
    time_s: float
    phase: str


@dataclass(frozen=True)
class Generation:
    """What one request gave. `tokens` includes the stop token, if one ended it (`stopped`); otherwise the limit did."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    stopped: bool
    timing: Timing


def checked_request(
    model: Transformer,
    prompt: Sequence[int],
    max_new_tokens: int,
    stop_tokens: Collection[int],
    sampling: Sampling,
    seed: int,
    cache: Cache | None = None,
) -> tuple[list[int], int, frozenset[int], int]:
    """A request as plain values, and how many slots its text needs. ValueError if it makes no sense for `model`, with
    the positions that `cache` gives to tokens.
    """
    check_sampling(sampling)
    prompt, max_new_tokens = token_ids(model, prompt, "the prompt"), whole(max_new_tokens, "max_new_tokens")
    stop_tokens = stop_set(stop_tokens)
    if not 0 <= whole(seed, "the seed") < 2**63:
        raise ValueError(f"the seed must be a whole number from 0 to 2^63 - 1, not {seed}")
    if max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, not {max_new_tokens}")
    read = len(prompt), max_new_tokens - 1  # the last new token is never read
    positions = sum(read) if cache is None else cache.positions_for(*read)
    check_positions(len(prompt), max_new_tokens, positions, model.config.max_positions, "the model knows")
    return prompt, max_new_tokens, stop_tokens, sum(read)


def check_positions(prompt: int, new: int, positions: int, most: int, what: str) -> None:
    """Raise ValueError if that many prompt and new tokens need more positions than there are."""
    if positions > most:
        tokens = f"{prompt} prompt token{'s' * (prompt != 1)} and {new} new one{'s' * (new != 1)}"
        raise ValueError(f"{tokens} need {positions} positions, {what} {most}: shorten one of them")


def check_sampling(sampling: Sampling) -> None:
    if not isinstance(sampling, Sampling):
        raise ValueError(f"sampling must be a Sampling, such as Sampling(temperature=0.8), not {sampling!r}")


def check_empty(cache: Cache | None, what: str) -> None:
    """Raise ValueError unless row 0 of a cache is free for a new text."""
    if cache is None:
        return
    if not isinstance(cache, Cache):
        raise ValueError(f"{what} must be a cache, such as a ContiguousCache, or None, not {cache!r}")
    if cache.lengths[0]:
        raise ValueError(f"row 0 of {what} holds {cache.lengths[0]} tokens of another text: release it first")


def throw_away_pass(model: Transformer) -> None:
    """Prefill and decode a token once, so that whatever a first pass has to load is loaded."""
    scratch = ContiguousCache(model.config, 1, 2, model.dtype, model.device)
    choose(prefill(model, [[0]], scratch)[0])
    if model.config.max_positions > 1:
        choose(decode(model, [0], scratch)[0])


def stream(
    model: Transformer,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    sampling: Sampling = GREEDY,
    stop_tokens: Collection[int] = (),
    use_cache: bool = True,
    cache: Cache | None = None,
    seed: int = 0,
    warm_up: bool = True,
) -> Iterator[TokenEvent]:
    """Generate, yielding each token as soon as it is chosen.

    The first comes out of the prefill, the others out of decode steps; with `use_cache=False` every step reads the
    whole text again. `cache` is one of your own with an empty row 0 (by default one is made that fits). The request
    draws from its own generator, seeded with `seed`. `warm_up` runs one throw-away pass before the clock starts,
    since the first pass through a library also loads it. What you do with a token before you ask for the next counts
    into the gap between the two.

    Raises ValueError, before the first token, if prompt and new tokens cannot fit the model; CacheFull as soon as a
    cache of your own has no room for the next pass.
    """
    if cache is not None and not use_cache:
        raise ValueError("use_cache=False and a cache contradict each other: leave one of them out")
    check_empty(cache, "the cache")
    prompt, max_new_tokens, stop_tokens, slots = checked_request(
        model, prompt, max_new_tokens, stop_tokens, sampling, seed, cache
    )
    if use_cache and cache is None:
        cache = ContiguousCache(model.config, 1, slots, model.dtype, model.device)
    generator = torch.Generator().manual_seed(whole(seed, "the seed"))
    if warm_up:
        throw_away_pass(model)

    now = clock(model.device)
    arrival, text = now(), list(prompt)
    logits = prefill(model, [text], cache, rows=[0])[0]  # [V]
    while True:
        token = choose(logits, sampling, generator)
        text.append(token)
        yield TokenEvent(token, now() - arrival, "prefill" if len(text) == len(prompt) + 1 else "decode")
        if token in stop_tokens or len(text) == len(prompt) + max_new_tokens:
            return
        if cache is not None:
            logits = decode(model, [token], cache, rows=[0])[0]
        else:
            logits = prefill(model, [text], None)[0]


def generate(
    model: Transformer, prompt: Sequence[int], *, stop_tokens: Collection[int] = (), **options: Any
) -> Generation:
    """All of `stream` at once, with its timing. Takes the options of `stream` (`max_new_tokens` is a must)."""
    prompt, stop_tokens = token_ids(model, prompt, "the prompt"), stop_set(stop_tokens)
    events = list(stream(model, prompt, stop_tokens=stop_tokens, **options))
    tokens = tuple(event.token for event in events)
    timing = Timing(0.0, tuple(event.time_s for event in events), len(prompt))
    return Generation(tuple(prompt), tokens, tokens[-1] in stop_tokens, timing)
