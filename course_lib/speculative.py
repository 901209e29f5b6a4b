"""Speculative decoding: a drafter guesses the next few tokens, and one pass of the model checks all of them.

The one idea: a pass over a text gives the logits after each of its tokens. So guesses are read as if they were right,
and afterwards each is judged by the logits before it: those up to the first that is refused stay, the model chooses the
token that follows, and the cache is truncated to the text. Judged by the rule of Leviathan et al. and Chen et al.
(both 2023), every token is distributed as if the model had chosen it alone; greedy, it is the same token.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from course_lib.caches import Cache, ContiguousCache
from course_lib.caches.contract import real, whole
from course_lib.drafters import Drafter, Guess, check_goes_back, distribution, draw_from, room
from course_lib.generation import (
    GREEDY,
    Generation,
    Sampling,
    TokenEvent,
    check_empty,
    checked_request,
    prefill,
    stop_set,
    throw_away_pass,
    token_ids,
)
from course_lib.metrics import Timing, clock
from course_lib.model import Transformer


@dataclass(frozen=True)
class Round:
    """One pass of the model: `drafted` tokens were read, the first `accepted` of them stay, and the text gained
    `tokens`: the accepted ones and one of the model's own, unless a stop token among the accepted ended the text.

    The first round is the prefill, and nothing is drafted for it. Seconds are since the request arrived; `draft_s` of
    them went into the draft, with `draft_passes` passes of a draft model.
    """

    drafted: tuple[int, ...]
    accepted: int
    tokens: tuple[int, ...]
    draft_passes: int
    draft_s: float
    time_s: float

    @property
    def refused(self) -> bool:
        """Whether a drafted token was refused. Those after it are not judged: they followed a wrong one."""
        return self.accepted < len(self.drafted)


@dataclass(frozen=True)
class SpeculativeGeneration(Generation):
    """What one request gave, and in which rounds."""

    rounds: tuple[Round, ...]

    @property
    def target_passes(self) -> int:
        """Forward passes of the model, the prefill included."""
        return len(self.rounds)

    @property
    def draft_passes(self) -> int:
        return sum(one.draft_passes for one in self.rounds)

    @property
    def drafted(self) -> int:
        return sum(len(one.drafted) for one in self.rounds)

    @property
    def judged(self) -> int:
        """Drafted tokens that were accepted, or the first of their round to be refused."""
        return sum(one.accepted + one.refused for one in self.rounds)

    @property
    def accepted(self) -> int:
        return sum(one.accepted for one in self.rounds)

    @property
    def acceptance(self) -> float | None:
        """The share of judged tokens that was accepted: how likely a guess is right if all before it were."""
        return self.accepted / self.judged if self.judged else None

    @property
    def tokens_per_pass(self) -> float | None:
        """New tokens after the first for each pass after the prefill: 1 without a draft. None if there was none."""
        return (len(self.tokens) - 1) / (len(self.rounds) - 1) if len(self.rounds) > 1 else None


def expected_tokens(acceptance: float, draft_tokens: int) -> float:
    """Tokens that a pass over `draft_tokens` guesses brings on average, if each is accepted with this probability,
    whatever became of the others: 1 + a + a² + … + a^K (Leviathan et al. 2023, equation 1).

    ValueError for an acceptance that is not from 0 to 1, or fewer than 0 guesses.
    """
    if real(acceptance, "the acceptance", least=0) > 1:
        raise ValueError(f"the acceptance must be a share from 0 to 1, not {acceptance}")
    if whole(draft_tokens, "draft_tokens") < 0:
        raise ValueError(f"draft_tokens must be at least 0, not {draft_tokens}")
    return sum(acceptance**right for right in range(draft_tokens + 1))


def speed_up(acceptance: float, draft_tokens: int, draft_cost: float, token_cost: float = 0.0) -> float:
    """Tokens per second with a draft, those without being 1. In units of a pass over one token, `draft_cost` is what a
    guess costs, and `token_cost` what each guess adds to the pass that judges it (Leviathan et al. 2023, theorem 3.8,
    where that is 0). ValueError for what is no acceptance, or a cost below 0.
    """
    costs = real(draft_cost, "draft_cost", least=0) + real(token_cost, "token_cost", least=0)
    return expected_tokens(acceptance, draft_tokens) / (1 + draft_tokens * costs)


def judge(guesses: Sequence[Guess], logits: Tensor, sampling: Sampling, generator: torch.Generator) -> tuple[int, int]:
    """How many guesses stay, and the token that follows them. Row i of `logits` [K + 1, V] chooses what guess i
    guessed.

    With p the model's distribution and q the drafter's, a guess x stays with probability min(1, p(x) / q(x)); what
    replaces it is drawn from what q gave too little of, the positive part of p - q. Together that is p (Leviathan et
    al. 2023, appendix A.1; Chen et al. 2023, theorem 1, where p and q are the other way round).
    """
    for right, guess in enumerate(guesses):
        p, q = distribution(logits[right], sampling), guess.drawn_from
        if torch.rand((), dtype=torch.float64, generator=generator) * q[guess.token] < p[guess.token]:
            continue
        missing = (p - q).clamp(min=0)
        return right, draw_from(missing if missing.any() else p, generator)  # none: p and q differ by rounding alone
    return len(guesses), draw_from(distribution(logits[len(guesses)], sampling), generator)


@torch.inference_mode()
def verify(model: Transformer, unread: Sequence[int], guesses: Sequence[Guess], cache: Cache) -> Tensor:
    """Read the rest of a text and the guesses after it in one pass; return the logits [K + 1, V] that judge each guess
    and choose the token after the last.
    """
    if not guesses:
        return prefill(model, [unread], cache, rows=[0])
    tokens = [*unread, *(guess.token for guess in guesses)]
    return model(torch.tensor([tokens], device=model.device), cache, rows=[0])[0, len(unread) - 1 :]


def rounds(
    model: Transformer,
    prompt: Sequence[int],
    *,
    drafter: Drafter,
    max_new_tokens: int,
    draft_tokens: int = 4,
    sampling: Sampling = GREEDY,
    stop_tokens: Collection[int] = (),
    cache: Cache | None = None,
    seed: int = 0,
    warm_up: bool = True,
) -> Iterator[Round]:
    """Generate, yielding each round: up to `draft_tokens` + 1 tokens from one pass of `model`.

    The other options are those of `generation.stream`, and so is what is refused. Near the end of a text nothing is
    drafted beyond `max_new_tokens` or the room in `cache`, so no more of either is needed than without a draft. Also
    refused, with ValueError and before anything is read: a draft model with other tokens, and a cache that cannot be
    truncated. After each round, and whatever interrupts one, the cache holds the text except its last token, or less.
    """
    prompt, max_new_tokens, stop_tokens, slots = checked_request(
        model, prompt, max_new_tokens, stop_tokens, sampling, seed
    )
    if not isinstance(drafter, Drafter):
        raise ValueError(f"drafter must be a Drafter, such as PromptLookup(), not {drafter!r}")
    if whole(draft_tokens, "draft_tokens") < 1:
        raise ValueError(f"draft_tokens must be at least 1, not {draft_tokens}: generation.generate needs no draft")
    check_empty(cache, "the cache")
    if cache is None:
        cache = ContiguousCache(model.config, 1, slots, model.dtype, model.device)
    check_goes_back(cache, "the cache")
    drafter.begin(model, cache, slots)
    generator = torch.Generator().manual_seed(whole(seed, "the seed"))
    if warm_up:
        throw_away_pass(model)

    now = clock(model.device)
    arrival, text, end = now(), tuple(prompt), len(prompt) + max_new_tokens
    guesses: list[Guess] = []  # the prefill is the round without any
    draft_passes, draft_s = 0, 0.0
    while True:
        try:
            logits = verify(model, text[cache.lengths[0] :], guesses, cache)  # [K + 1, V]
            accepted, token = judge(guesses, logits, sampling, generator)
            new = [*(guess.token for guess in guesses[:accepted]), token]
            new = new[: up_to_stop(new, stop_tokens)]
            text += tuple(new)
        finally:
            cache.truncate(0, min(cache.lengths[0], len(text) - 1))  # what was refused goes, and nothing else
        drafted = tuple(guess.token for guess in guesses)
        yield Round(drafted, accepted, tuple(new), draft_passes, draft_s, now() - arrival)
        if new[-1] in stop_tokens or len(text) == end:
            return
        began, before = now(), drafter.passes
        count = room(cache, 1, min(draft_tokens, end - len(text) - 1))
        guesses = drafter.draft(text, count, sampling, generator) if count else []
        check_guesses(model, guesses, count)
        guesses = guesses[: up_to_stop([guess.token for guess in guesses], stop_tokens)]
        draft_passes, draft_s = drafter.passes - before, now() - began


def up_to_stop(tokens: Sequence[int], stop_tokens: Collection[int]) -> int:
    """How many tokens there are up to the first stop token, that one included; all if there is none."""
    return next((at for at, token in enumerate(tokens, start=1) if token in stop_tokens), len(tokens))


def check_guesses(model: Transformer, guesses: Sequence[Guess], count: int) -> None:
    """Raise ValueError unless these are at most `count` tokens of `model`, each with where it was drawn from."""
    if len(guesses) > count:
        raise ValueError(f"the drafter proposed {len(guesses)} tokens and was asked for at most {count}")
    if guesses:
        token_ids(model, [guess.token for guess in guesses], "the draft")
    for guess in guesses:
        shape = tuple(guess.drawn_from.shape)
        if shape != (model.config.vocab_size,) or not guess.drawn_from[guess.token] > 0:
            raise ValueError(
                f"token {guess.token} was not drawn from what the drafter says: drawn_from must hold a probability for "
                f"each of the model's {model.config.vocab_size} tokens, and not 0 for this one"
            )


def stream(
    model: Transformer, prompt: Sequence[int], *, cache: Cache | None = None, **options: Any
) -> Iterator[TokenEvent]:
    """Generate, yielding each token; those of one round have one time. Takes the options of `rounds`.

    The phase of a token is "prefill" for the first, then "accepted" (a guess that stays), "corrected" (in place of the
    guess that was refused), "bonus" (after a draft that stays as a whole), or "decode" (where nothing was drafted). A
    stream that is left early leaves a cache that has not read more than was handed out.
    """
    handed_out = 0
    made = rounds(model, prompt, cache=cache, **options)
    try:
        for number, one in enumerate(made):
            own = "prefill" if number == 0 else "corrected" if one.refused else "bonus" if one.drafted else "decode"
            for at, token in enumerate(one.tokens):
                handed_out += 1
                yield TokenEvent(token, one.time_s, "accepted" if at < one.accepted else own)
    finally:
        if cache is not None and handed_out:
            cache.truncate(0, min(cache.lengths[0], len(prompt) + handed_out - 1))


def generate(
    model: Transformer, prompt: Sequence[int], *, stop_tokens: Collection[int] = (), **options: Any
) -> SpeculativeGeneration:
    """All of `rounds` at once, with its timing. Takes its options; `drafter` and `max_new_tokens` are a must."""
    prompt, stop_tokens = token_ids(model, prompt, "the prompt"), stop_set(stop_tokens)
    made = tuple(rounds(model, prompt, stop_tokens=stop_tokens, **options))
    tokens = tuple(token for one in made for token in one.tokens)
    timing = Timing(0.0, tuple(one.time_s for one in made for _ in one.tokens), len(prompt))
    return SpeculativeGeneration(tuple(prompt), tokens, tokens[-1] in stop_tokens, timing, made)
