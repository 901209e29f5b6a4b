"""Sampled texts are as likely with a draft as without one.

The one idea: the oracle adds up all that can happen, in NumPy: every way to guess and every way to be judged. Counts of
what the library did are held against it by a chi-square test, which wrong rules are seen to fail.
"""

# --- The rule, judged by all that can happen

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import islice, product

import numpy as np
import pytest
import torch
from drafts import PROMPT, TARGET, Scripted, gains, other_model
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import oracle_logits
from shapes import random_weights, weights_of

from course_lib import speculative
from course_lib.drafters import Drafter, DraftModel, Guess, PromptLookup
from course_lib.generation import Sampling, generate
from course_lib.model import ModelConfig, Transformer
from course_lib.speculative import judge, stream

Outcome = tuple[int, ...]


def outcomes(p: np.ndarray, q: np.ndarray) -> dict[Outcome, float]:
    """How likely each outcome of a round is, for distributions p [K + 1, V] and q [K, V]: the accepted guesses, and
    the token that follows. Every way to guess, each with every way to be judged.
    """
    found: dict[Outcome, float] = Counter()
    K, V = q.shape
    for guesses in product(range(V), repeat=K):
        chance = 1.0
        for at in range(K):
            chance *= q[at, guesses[at]]
        for at, guess in enumerate(guesses):
            if chance == 0:
                break
            stays = min(1.0, p[at, guess] / q[at, guess])
            lacking = [max(0.0, p[at, token] - q[at, token]) for token in range(V)]
            for token in range(V):
                if lacking[token]:
                    found[(*guesses[:at], token)] += chance * (1 - stays) * lacking[token] / sum(lacking)
            chance *= stays
        for token in range(V):
            found[(*guesses, token)] += chance * p[K, token]
    return {outcome: chance for outcome, chance in found.items() if chance > 0}


def likelihood(counts: Counter[Outcome], expected: dict[Outcome, float]) -> float:
    """The chance that counts lie as far from what is expected, or further: Pearson's chi-square test. Outcomes that are
    expected fewer than 5 times count as one."""
    total, cells, few = sum(counts.values()), [], [0.0, 0.0]
    if any(outcome not in expected for outcome in counts):
        return 0.0
    for outcome, chance in expected.items():
        if chance * total >= 5:
            cells.append((counts[outcome], chance * total))
        else:
            few[0], few[1] = few[0] + counts[outcome], few[1] + chance * total
    cells += [tuple(few)] if few[1] >= 1 else []
    assert len(cells) > 1
    statistic = sum((seen - due) ** 2 / due for seen, due in cells)
    return float(torch.special.gammaincc(torch.tensor((len(cells) - 1) / 2), torch.tensor(statistic / 2)))


LIKELY, UNLIKELY = 1e-3, 1e-9  # of some 20 right runs with fixed seeds none is below 1e-3; wrong ones are below 1e-9

P = np.array([[0.5, 0.3, 0.15, 0.05], [0.1, 0.2, 0.3, 0.4], [0.25, 0.25, 0.4, 0.1]])
Q = {
    "unlike": np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.1, 0.4, 0.1]]),
    "near": np.array([[0.4, 0.4, 0.15, 0.05], [0.15, 0.15, 0.3, 0.4]]),
    "the same": P[:2],
    "certain": np.eye(4)[[1, 2]],
    "with zeros": np.array([[0.0, 0.7, 0.0, 0.3], [0.5, 0.0, 0.5, 0.0]]),
}


def counted(rule: Callable[..., tuple[int, int]], q: np.ndarray, times: int = 2000) -> Counter[Outcome]:
    generator, logits, counts = torch.Generator().manual_seed(0), torch.from_numpy(np.log(P)), Counter()
    given, drawn = torch.from_numpy(q), np.random.default_rng(0)
    guessed = np.stack([drawn.choice(4, size=times, p=row) for row in q], axis=1)
    for tokens in guessed.tolist():
        guesses = [Guess(token, given[at]) for at, token in enumerate(tokens)]
        accepted, token = rule(guesses, logits, Sampling(1.0), generator)
        counts[(*tokens[:accepted], token)] += 1
    return counts


@pytest.mark.parametrize("kind", Q)
def test_what_a_round_brings_is_as_likely_as_the_sum_over_all_that_can_happen(kind: str) -> None:
    assert likelihood(counted(judge, Q[kind]), outcomes(P, Q[kind])) > LIKELY


def rule(
    accepts: Callable[[float, float, float], bool] = lambda p, q, u: u * q < p,
    replaces: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] = lambda p, q: (p - q).clamp(min=0),
    first: int = 0,
) -> Callable[..., tuple[int, int]]:
    """The rule, or one with something wrong in it; the first `first` guesses are not judged."""

    def judged(
        guesses: Sequence[Guess], logits: torch.Tensor, sampling: Sampling, generator: torch.Generator
    ) -> tuple[int, int]:
        for at, guess in enumerate(guesses):
            p, q = sampling.probabilities(logits[at]), guess.drawn_from
            u = float(torch.rand((), generator=generator, dtype=torch.float64))
            if at >= first and not accepts(float(p[guess.token]), float(q[guess.token]), u):
                return at, int(torch.multinomial(replaces(p, q), 1, generator=generator))
        p = sampling.probabilities(logits[len(guesses)])
        return len(guesses), int(torch.multinomial(p, 1, generator=generator))

    return judged


WRONG_RULES = {
    "takes every guess": rule(lambda p, q, u: True),
    "takes a guess that is at least as likely": rule(lambda p, q, u: p >= q),
    "takes a guess with q / p": rule(lambda p, q, u: u * p < q),
    "takes a guess with p": rule(lambda p, q, u: u < p),
    "replaces with a token of the model": rule(replaces=lambda p, q: p),
    "replaces with any difference": rule(replaces=lambda p, q: (p - q).abs()),
    "does not judge the first guess": rule(first=1),
}


def test_the_test_of_the_rule_passes_the_rule_written_anew_and_no_wrong_one() -> None:
    assert likelihood(counted(rule(), Q["unlike"]), outcomes(P, Q["unlike"])) > LIKELY
    for name, wrong_rule in WRONG_RULES.items():
        assert likelihood(counted(wrong_rule, Q["unlike"]), outcomes(P, Q["unlike"])) < UNLIKELY, name


chances = st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any).map(lambda w: np.array(w) / sum(w))


@given(st.lists(chances, min_size=3, max_size=3), st.lists(chances, min_size=2, max_size=2))
@settings(max_examples=40, deadline=None)
def test_the_sum_over_all_that_can_happen_is_the_model_s_own_distribution(p: list, q: list) -> None:
    """That the rule is right at all: the first token of a round is distributed as p, and after an accepted one the
    second is, too; exactly, whatever q is.
    """
    found = outcomes(np.array(p), np.array(q))
    assert sum(found.values()) == pytest.approx(1, abs=1e-12)
    first = [sum(chance for outcome, chance in found.items() if outcome[0] == token) for token in range(3)]
    assert first == pytest.approx(list(p[0]), abs=1e-12)
    for token in range(3):
        longer = {outcome: chance for outcome, chance in found.items() if outcome[0] == token and len(outcome) > 1}
        second = [sum(chance for outcome, chance in longer.items() if outcome[1] == then) for then in range(3)]
        assert second == pytest.approx(list(p[1] * sum(second)), abs=1e-12)


def test_where_p_and_q_differ_by_rounding_alone_a_refused_guess_is_still_replaced() -> None:
    """p is below q in one place by one rounding and above it in none: nothing is lacking, so p itself is drawn from."""
    logits = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64).log()
    q = torch.tensor([0.5, np.nextafter(0.5, 1) + 0.5], dtype=torch.float64)  # more than p everywhere
    seen = {judge([Guess(1, q)], logits, Sampling(1.0), torch.Generator().manual_seed(seed)) for seed in range(40)}
    assert {accepted for accepted, _ in seen} == {0, 1} and {token for _, token in seen} == {0, 1}


# --- Sampling from end to end

TINY = ModelConfig(5, 1, 8, 2, 1, 4, 8, max_positions=32)
SPEAKER, HELPER = (random_weights(Transformer(TINY).double(), seed=seed) for seed in (3, 4))
START = [1, 4, 2]


def filtered(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Temperature, then top-k, then top-p, by sorting."""
    chances = np.exp(logits / sampling.temperature)
    order = np.argsort(-chances, kind="stable")
    chances[order[sampling.top_k or len(order) :]] = 0
    chances /= chances.sum()
    covered = np.cumsum(chances[order]) - chances[order]
    chances[order[covered >= (sampling.top_p or 2)]] = 0
    return chances / chances.sum()


def next_chances(text: Sequence[int], sampling: Sampling) -> np.ndarray:
    return filtered(oracle_logits(TINY, weights_of(SPEAKER), list(text))[-1], sampling)


def texts_of(length: int, sampling: Sampling) -> dict[Outcome, float]:
    """How likely each continuation of START is, by the oracle's logits."""
    found: dict[Outcome, float] = {(): 1.0}
    for _ in range(length):
        found = {
            (*text, token): chance * more
            for text, chance in found.items()
            for token, more in enumerate(next_chances([*START, *text], sampling))
            if more > 0
        }
    return found


def drawn(drafter: Drafter, K: int, sampling: Sampling, times: int) -> Counter[Outcome]:
    """The first three tokens of requests with different seeds: one of the prefill and two of rounds with K guesses."""
    counts: Counter[Outcome] = Counter()
    for seed in range(times):
        options = {"drafter": drafter, "draft_tokens": K, "max_new_tokens": K + 2, "sampling": sampling, "seed": seed}
        events = stream(SPEAKER, START, **options, warm_up=False)
        counts[tuple(event.token for event in islice(events, 3))] += 1
        events.close()
    return counts


@pytest.mark.parametrize(
    "K, sampling, times",
    [
        (1, Sampling(1.0), 500),
        (2, Sampling(0.7, top_k=3), 400),
        (3, Sampling(2.0, top_p=0.8), 400),
        (4, Sampling(1.5, top_k=4, top_p=0.9), 400),
    ],
)
def test_sampled_texts_are_as_likely_as_without_a_draft(K: int, sampling: Sampling, times: int) -> None:
    assert likelihood(drawn(DraftModel(HELPER), K, sampling, times), texts_of(3, sampling)) > LIKELY


def test_sampled_texts_with_a_look_up_are_as_likely_as_without() -> None:
    sampling = Sampling(1.2)
    assert likelihood(drawn(PromptLookup(2, 1), 3, sampling, 500), texts_of(3, sampling)) > LIKELY


class NotTrue(DraftModel):
    """Proposes the likeliest tokens, and says that they were drawn."""

    def draft(self, text: Sequence[int], count: int, sampling: Sampling, generator: torch.Generator) -> list[Guess]:
        honest = super().draft(text, count, sampling, generator)
        return [Guess(int(guess.drawn_from.argmax()), guess.drawn_from) for guess in honest]


def test_a_drafter_that_is_not_true_to_what_it_says_is_seen() -> None:
    sampling = Sampling(1.0)
    assert likelihood(drawn(NotTrue(HELPER), 2, sampling, 300), texts_of(3, sampling)) < UNLIKELY


def test_without_a_guess_a_seed_draws_what_it_draws_without_a_drafter() -> None:
    for seed in range(5):
        options = {"max_new_tokens": 12, "sampling": Sampling(1.5, top_k=9, top_p=0.9), "seed": seed}
        got = speculative.generate(TARGET, PROMPT, drafter=Scripted(), **options)
        assert got.tokens == generate(TARGET, PROMPT, **options).tokens


def test_the_same_seed_draws_the_same_text_and_the_global_generator_is_left_alone() -> None:
    options = {"drafter": DraftModel(other_model(0.15)), "max_new_tokens": 20, "sampling": Sampling(1.5)}
    first = speculative.generate(TARGET, PROMPT, seed=3, **options)
    torch.manual_seed(11)
    before = torch.get_rng_state()
    assert speculative.generate(TARGET, PROMPT, seed=3, **options).tokens == first.tokens
    assert speculative.generate(TARGET, PROMPT, seed=4, **options).tokens != first.tokens
    assert torch.equal(torch.get_rng_state(), before) and 0 < first.accepted < first.judged


def test_a_model_drafting_for_itself_is_always_accepted_sampled_too() -> None:
    got = speculative.generate(
        TARGET, PROMPT, drafter=DraftModel(TARGET), max_new_tokens=31, sampling=Sampling(1.5, top_p=0.9)
    )
    assert got.acceptance == 1 and gains(got) == [(0, 0, 1), *[(4, 4, 5)] * 6]
