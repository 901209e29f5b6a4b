"""The check of ex08.cost: the learner's `cost(full, quantised, tokens)` says what a quantised cache does to the logits.

The one idea: three figures that look alike, and each has a direction, a mean and a unit that can be got wrong. The
logits are drawn until every mistake gives another number. In one case the text gets likelier while all else moves. The
reference goes from position to position.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_number, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict, part
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex08_cost import GIVEN, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "cost", "cost(full, quantised, tokens)"
TOLERANCE = (
    "a ten-thousandth (and 0.00001), for which float32 will do; in the case of runs that are nearly alike a hundredth, "
    "for which it will not."
)
NOT_CHECKED = "speed, logits that are infinite or NaN, two tokens that are equally likely"
KL, SAME, NLL = "kl", "same_choice", "nll_added"
HAIRS, HAIR = 2, 4e-4  # positions at which two tokens are nearly as likely, and what lies between them
MEANING = {
    KL: "the mean over positions of the sum of p · (log p - log q), where p is of the full run, q of the quantised",
    SAME: "the share of positions at which both runs find the same token likeliest",
    NLL: "the mean over positions of -log q(token) + log p(token)",
}
LARGE, ALIKE, HIDES = "large logits", "runs that are nearly alike", "NLL falls, and KL is large"
TOP, SINGLE, INPUTS = "the same token likeliest", "a single position", "the logits stay as they were"
# Each case: the figures that it judges.
CASES: dict[str, tuple[str, ...]] = {
    "KL, from the full run to the quantised one": (KL,),
    TOP: (SAME,),
    "what is added to NLL": (NLL,),
    LARGE: (KL, SAME, NLL),
    ALIKE: (KL,),
    HIDES: (KL, SAME, NLL),
    SINGLE: (KL, NLL),
    INPUTS: (KL, SAME, NLL),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"full" and "quantised" [n, V], "tokens" [n]}, …]}}."""
    rng = np.random.default_rng(seed)
    sizes = {SINGLE: [(1, 15)], ALIKE: [(6, 30), (12, 20), (9, 40)]}
    return {
        "cases": {name: [drawn(rng, name, *size) for size in sizes.get(name, [(9, 20), (16, 12)])] for name in CASES}
    }


def drawn(rng: np.random.Generator, name: str, n: int, V: int) -> dict[str, Any]:
    """One call, drawn again until no mistake gives a figure that is right."""
    while True:
        full = 2 * rng.standard_normal((n, V))
        noise = rng.standard_normal((n, V))
        tokens = np.array([rng.choice(V, p=softmax(row)) for row in full])
        here = np.arange(n), tokens
        if name == ALIKE:
            quantised = full + 3e-5 * noise
        elif name == HIDES:
            quantised = permuted(rng, full, tokens)
            quantised[here] += 0.2 * rng.random(n)  # if anything, the text gets likelier
        else:
            quantised = full + noise
        if name == TOP:  # by a hair another token than in the full run
            best = full.argmax(1)
            for row, token in [each for each in zip(quantised, best) if each[1] < V - 1][:HAIRS]:
                row[token] = row.max() + 1
                row[V - 1] = row[token] + HAIR
        if name == LARGE:
            quantised[np.arange(n), full.argmax(1)] -= np.where(np.arange(n) % 2, 900, 0)
            full, quantised = full + 1000 * noise[:, :1], quantised - 1000 * noise[:, :1]
        call = {"full": full.astype(np.float32), "quantised": quantised.astype(np.float32), "tokens": tokens}
        runs = Runs(call)
        if all(tells_apart(figure, runs) for figure in (SAME, KL, NLL) if figure in CASES[name]):
            return call


def softmax(row: Array) -> Array:
    weights = np.exp(row - row.max())
    return np.asarray(weights / weights.sum())


def permuted(rng: np.random.Generator, full: Array, tokens: Array) -> Array:
    """The same logits at each position, and all but that of the token at other places."""
    quantised = full.copy()
    for row, token in zip(quantised, tokens):
        others = np.arange(len(row)) != token
        row[others] = rng.permutation(row[others])
    return quantised


def tells_apart(name: str, runs: Runs) -> bool:
    """Whether each mistake gives a figure of its own."""
    right = runs.figure(name)
    if (name == SAME and not 0.2 < right < 0.8) or (name == NLL and len(runs.p) == 1 and right < 0):
        return False
    if name == KL and right < 1e-6:  # nearly the same in both directions
        return True
    wrong = list(beliefs(name, runs))
    if name == SAME and any(said != other and abs(a - b) < 1e-9 for said, a in wrong for other, b in wrong):
        return False
    return not any(abs(figure - right) <= 2 * near(name, right) for _, figure in wrong)


def near(name: str, right: float) -> float:
    """How far away a figure may be."""
    return right / 100 if name == KL and 0 <= right < 1e-6 else 1e-4 * abs(right) + 1e-5


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are its figures in `outputs` the right ones?"""
    return verdict(CostCase, inputs, outputs)


def log_softmax(logits: Array) -> Array:
    """Log probabilities, one row of logits after the other."""
    below = np.array([row - max(row) for row in logits.astype(np.float64)])
    return np.array([row - log(sum(np.exp(row))) for row in below])


def divergence(p: Array, q: Array) -> float:
    """The mean over positions of KL(p ‖ q), from log probabilities."""
    return float(sum((np.exp(a) * (a - b)).sum() for a, b in zip(p, q))) / len(p)


class Runs:
    """Two runs over the same positions: their logits and log probabilities, [n, V] each, and the tokens of the text."""

    def __init__(self, call: dict[str, Any]) -> None:
        self.logits = [call[name].astype(np.float64) for name in GIVEN[:2]]
        self.p, self.q = map(log_softmax, self.logits)
        self.tokens: list[int] = call["tokens"].tolist()

    def added(self) -> list[float]:
        """What is added to the NLL of each token."""
        return [float(self.p[i, token] - self.q[i, token]) for i, token in enumerate(self.tokens)]

    def same(self) -> list[bool]:
        return [list(p).index(max(p)) == list(q).index(max(q)) for p, q in zip(self.p, self.q)]

    def nearly_same(self) -> float:
        """The share of positions at which the full run's token is the likeliest of the quantised, or nearly so."""
        return float(np.mean([q[p.argmax()] >= max(q) - 2 * HAIR for p, q in zip(self.p, self.q)]))

    def figure(self, name: str) -> float:
        if name == KL:
            return divergence(self.p, self.q)
        each = self.same() if name == SAME else self.added()
        return sum(each) / len(each)


class CostCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        return f"logits of shape {list(call['full'].shape)} of both runs, {len(call['tokens'])} tokens"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        figures = answer.get("figures")
        if figures is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        if not isinstance(figures, dict):
            return Wrong("The figures should come back in a dictionary, by name.", came=what_came(figures))
        runs = Runs(call)
        for name in CASES[self.name]:
            if name not in figures:
                there = ", ".join(str(key)[:30] for key in list(figures)[:8]) or "nothing"
                return Wrong(f"There is no “{name}” in the dictionary.", came=there)
            right, came = runs.figure(name), as_number(figures[name])
            if came is None:
                return Wrong(f"{name} should be one number.", f"{right:.6g}", what_came(figures[name]), name)
            if not abs(came - right) <= near(name, right):
                return Wrong(self.otherwise(name, came), f"{right:.6g}", f"{came:.6g}", name, name)
        return None

    def otherwise(self, name: str, came: float) -> str:
        """What there is to say about a wrong figure that no belief explains."""
        if self.name == ALIKE:
            return "This is rounding. Such a small KL needs float64: make the logits .double() before anything else."
        if self.name == LARGE and not np.isfinite(came):
            return (
                "exp of a large logit is infinite, and of one far below the largest it is 0, whose log is infinite. "
                "Take log_softmax of the logits, and not the log of a softmax, nor a KL of probabilities."
            )
        return EPSILON if self.name == LARGE else f"{name} is {MEANING[name]}."

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        came = as_number(part(answer, "figures").get(about))
        if about and self.name != ALIKE and came is not None and np.isfinite(came):
            runs = Runs(call)
            hair = [(HAIR_SAID, runs.nearly_same())] if about == SAME and self.name == TOP else []
            for said, figure in (*hair, *beliefs(about, runs)):
                yield said, abs(came - figure) <= near(about, figure)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in GIVEN if told_in == INPUTS and not unchanged(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make something new of it instead.") if changed else None


EPSILON = (
    "The log of a softmax stops where float rounds to 0, and so it does if a small number is added first. Take "
    "log_softmax of the logits: it goes on."
)
HAIR_SAID = "A token that is likelier by a hair is the likeliest: leave no room beside it, and round nothing before."
Belief = tuple[str, float]


def beliefs(name: str, runs: Runs) -> Iterator[Belief]:
    """Each way to get a figure wrong: what there is to say, and the figure of it."""
    kinds = {KL: kl_beliefs, SAME: same_beliefs, NLL: nll_beliefs}
    yield from kinds[name](runs)


def kl_beliefs(runs: Runs) -> Iterator[Belief]:
    p, q = runs.p, runs.q
    (n, V), right, back = p.shape, divergence(p, q), divergence(q, p)
    yield (
        "This is KL in the other direction: weight log p - log q with p, the probabilities of the full run.",
        back,
    )
    yield "This is the mean of both directions. Asked is the one from the full run.", (right + back) / 2
    if n > 1:
        yield "This is the sum over the positions. Asked is their mean.", right * n
        columns = divergence(*(log_softmax(logits.T).T for logits in runs.logits))
        yield (
            "The softmax ran over the positions. The probabilities of all tokens at one position add up to 1.",
            columns,
        )
    yield (
        "This is the mean over all numbers. Add up over the tokens at a position, and take the mean of positions.",
        right / V,
    )
    yield "This is in bits: the logarithm is the natural one, in nats.", right / log(2)
    yield "KL is not below 0: the sign is turned round.", -right
    entropy = -float((np.exp(p) * p).sum()) / n
    yield "This is the cross-entropy of both runs. KL is what lies above the entropy of the full run.", right + entropy


def same_beliefs(runs: Runs) -> Iterator[Belief]:
    p, q, n = runs.p, runs.q, len(runs.p)
    share = runs.figure(SAME)
    yield "This is the number of positions. Asked is their share.", share * n
    yield "This is the share of positions at which they differ.", 1 - share
    yield "This is in percent. Asked is a share, from 0 to 1.", share * 100
    said = "This is how often a run finds the token of the text likeliest. Compare the two runs with each other."
    yield from ((said, float(np.mean(run.argmax(1) == runs.tokens))) for run in (p, q))
    yield "These are the unlikeliest tokens.", float(np.mean(p.argmin(1) == q.argmin(1)))
    positions = [np.mean(a.argmax(0) == b.argmax(0)) for a, b in ((p, q), runs.logits)]
    yield from (("The largest was sought among positions, not among tokens.", float(each)) for each in positions)


def nll_beliefs(runs: Runs) -> Iterator[Belief]:
    p, q, n, tokens = runs.p, runs.q, len(runs.p), runs.tokens
    added, here = runs.added(), np.arange(n)
    right, before, after = runs.figure(NLL), float(-p[here, tokens].mean()), float(-q[here, tokens].mean())
    yield "The sign is turned round: what is added is that of the quantised run less that of the full one.", -right
    yield "This is the NLL of the quantised run. Asked is what is added to that of the full one.", after
    yield "This is the NLL of the full run.", before
    yield "This is in bits: the logarithm is the natural one, in nats.", right / log(2)
    yield "These are perplexities, exp of NLL. Asked are nats.", exp(min(after, 700)) - exp(before)
    raw = runs.logits[0][here, tokens] - runs.logits[1][here, tokens]
    yield "Logits are no log probabilities: take log_softmax first.", float(raw.mean())
    gone = np.exp(p[here, tokens]) - np.exp(q[here, tokens])
    yield "These are probabilities, without the logarithm.", float(gone.mean())
    if n > 1:
        yield "This is the sum over the positions. Asked is their mean.", right * n
        yield "The sizes of the changes were averaged. NLL adds them with their signs.", float(np.mean(np.abs(added)))
        late = (p - q)[here[:-1], tokens[1:]]
        early = (p - q)[here[1:], tokens[:-1]]
        shifted = "Logits and tokens are shifted against each other: row i of the logits is about tokens[i]."
        yield from ((shifted, float(each.sum() / count)) for each in (late, early) for count in (n, n - 1))
    likeliest = [float(p[i, p[i].argmax()] - q[i, q[i].argmax()]) for i in range(n)]
    yield "This is about the likeliest tokens. NLL is about those of the text.", float(np.mean(likeliest))
