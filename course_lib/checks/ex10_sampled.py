"""The check of ex10.sampled: the learner's `accept_sampled(p, q, token)` judges a drawn guess by two distributions.

The one idea: nothing is drawn. A probability and a distribution are asked for, so they are compared as numbers, and no
luck is needed to be right. The reference goes through the tokens one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_array, as_number, unchanged, verdict, what_came
from course_lib.checks.contract import MOST_SHOWN, Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex10_sampled import NAMES, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "accept_sampled", "accept_sampled(p, q, token)"
CLOSE = 1e-6  # float32 keeps 7 digits of a probability; the mistakes below are a thousand times as large
LITTLE = 0.01  # missing of p in all
TOLERANCE = (
    f"{CLOSE:g}, more than float32 rounds off and far less than any mistake here makes; where next to nothing is "
    "missing, its parts are shares of a small number and may be as much farther away"
)
NOT_CHECKED = "speed, whether p and q are distributions, a token that q never proposes"
LESS, MORE, NEVER = "the target likes the token less", "the target likes it more", "the target never takes it"
MISSING, ZEROS, CERTAIN = "what is missing of p", "tokens that the draft never proposes", "a draft without any doubt"
GREEDY, SAME = "a target without any doubt", "draft and target agree"
LARGE, INPUTS = "many tokens", "what was handed in stays as it was"
CHANCE_ALONE, INSTEAD_ALONE = (LESS, MORE, NEVER), (MISSING,)  # where the other half of the answer is not judged
BELOW, ABOVE, ANY, NEARLY = range(4)  # whether p is smaller or larger than q at the token, or all but the same
CASES = {  # the sides of the calls of each case: no constant is right in all of them
    LESS: (BELOW, BELOW, BELOW), MORE: (ABOVE, ABOVE, BELOW), NEVER: (ANY, ANY, BELOW), MISSING: (BELOW, ABOVE, ANY),
    ZEROS: (BELOW, ABOVE, ANY), CERTAIN: (ANY, ANY, ANY), GREEDY: (ANY, ANY, ANY), SAME: (ANY, ANY, BELOW, NEARLY),
    LARGE: (BELOW, ABOVE, ANY), INPUTS: (BELOW, ABOVE, ANY),
}  # fmt: skip
APART = 1.3  # the least ratio of two probabilities of a token that are not alike


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"p" [V], "q" [V], "token": int}, …]}}."""
    rng = np.random.default_rng(seed)
    cases = {name: [call_of(rng, name, *each) for each in enumerate(sides)] for name, sides in CASES.items()}
    return {"cases": cases}


def call_of(rng: np.random.Generator, name: str, number: int, side: int) -> dict[str, Any]:
    """One call. It is drawn again until p and q are clearly apart, in both directions."""
    V = 500 if name == LARGE else 4 + number
    while True:
        p, q = (rng.uniform(0.2, 1, V) * rng.choice([1, 3], V) for _ in range(2))
        token, other, third = (int(t) for t in rng.permutation(V)[:3])
        alike = name == SAME and side == ANY
        if name == NEVER and side == ANY:
            p[token] = 0
        elif name == ZEROS:
            q[other] = 0
            q[third] *= number < 2
            p[other] *= number != 1  # nor does the target
        elif name == CERTAIN:
            q[:] = np.arange(V) == token
        elif name == GREEDY:
            p[:] = np.arange(V) == (token if number == 1 else other)
        elif alike:
            q = p.copy()
            if number == 1:
                p[:] = q[:] = np.arange(V) == token
        elif side == NEARLY:
            q = p * (1 + rng.uniform(2e-4, 1e-3, V) * rng.permutation(np.arange(V) % 2 * 2 - 1))
        p, q = p / p.sum(), q / q.sum()
        ratio = p[token] / q[token]
        wanted = {BELOW: 0.2 < ratio < 1 / APART, ABOVE: ratio > APART, ANY: True, NEARLY: p[token] < q[token]}[side]
        if name in (MORE, SAME) and number == 0:  # whether it is the target's first choice does not matter
            wanted = wanted and token != p.argmax()
        if name in (LESS, MISSING) and side == BELOW:  # others are proposed too often as well
            wanted = wanted and (q > p).sum() >= 2
        if wanted and (alike or (p > q).sum() >= (1 if name == GREEDY else 2)):
            return {"p": p, "q": q, "token": token}


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are probability and distribution in `outputs` those of the reference?"""
    return verdict(SampledCase, inputs, outputs)


def reference(call: dict[str, Any]) -> tuple[float, Array]:
    """With which probability the token stays, and from what another one is drawn if it does not, token by token."""
    p, q, token = call["p"].tolist(), call["q"].tolist(), call["token"]
    missing = [likes - gives if likes > gives else 0.0 for likes, gives in zip(p, q)]
    total = sum(missing)
    chance = p[token] / q[token] if p[token] < q[token] else 1.0
    return chance, np.array([each / total for each in missing] if total > 0 else p)


class SampledCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        p, q, token = call["p"], call["q"], call["token"]
        return f"p and q over {len(p)} tokens, token {token} with p = {p[token]:.4g} and q = {q[token]:.4g}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        (chance, instead), close = reference(call), closeness(call)
        came = as_number(answer.get(NAMES[0]))
        if came is None:
            return Wrong("chance should be one number.", f"{chance:.4g}", what_came(answer.get(NAMES[0])))
        if self.name not in INSTEAD_ALONE and not abs(came - chance) <= CLOSE:
            said = "A token that q proposes stays with probability p[token] / q[token], but at most 1."
            return Wrong(said, f"{chance:.4g}", f"{came:.4g}", "chance", NAMES[0])
        drawn_from = as_array(answer.get(NAMES[1]))
        if drawn_from is None or drawn_from.shape != instead.shape:
            said = f"instead should have a probability for each of the {len(instead)} tokens."
            return Wrong(said, f"shape [{len(instead)}]", what_came(answer.get(NAMES[1])))
        drawn_from = drawn_from.astype(float)
        if self.name in CHANCE_ALONE or near(drawn_from, instead, close):
            return None
        if not np.isfinite(drawn_from).all():
            said = "There is something in instead that is no number."
            if (call["p"] == call["q"]).all():
                said += (
                    " Where nothing is missing, the positive part of p - q adds up to 0, and 0 / 0 is none: return p."
                )
        else:
            said = "instead is the positive part of p - q, divided by its sum."
        at = int((~(abs(drawn_from - instead) <= close)).argmax())
        return Wrong(said, shown(instead), shown(drawn_from), f"instead, token {at}", NAMES[1])

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        if not about:
            return
        right, came, close = reference(call)[NAMES.index(about)], as_array(answer.get(about)), closeness(call)
        beliefs: Iterator[tuple[str, Any]] = replacements(call)
        if about == NAMES[0]:
            came, close, beliefs = as_array([as_number(answer.get(about))]), CLOSE, chances(call)
        for said, belief in beliefs:
            fit = came is not None and near(came, belief, close)
            yield said, fit and (near(came, right, close) or not near(right, belief, close))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        changed = [name for name in ("p", "q") if told_in == INPUTS and not unchanged(call[name], answer.get(name))]
        return Wrong(f"The call changed {changed[0]}. Make something new of it instead.") if changed else None


def shown(numbers: Array) -> str:
    few = [f"{number:.4g}" for number in numbers[:MOST_SHOWN]] + ["…"] * (len(numbers) > MOST_SHOWN)
    return f"[{', '.join(few)}]"


def closeness(call: dict[str, Any]) -> float:
    """How near the numbers of an answer have to be. Where little is missing, that little is a difference of numbers
    that are rounded, and is divided by itself."""
    missing = float((call["p"] - call["q"]).clip(min=0).sum())
    return CLOSE / missing if 0 < missing < LITTLE else CLOSE


def near(one: Any, other: Any, close: float) -> bool:
    one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    return one.size == other.size and bool(np.all(abs(one.ravel() - other.ravel()) <= close))


def chances(call: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Each way to a wrong probability: what there is to say, and the number."""
    p, q, token = call["p"], call["q"], call["token"]
    ratio = p[token] / q[token]
    yield "A probability is at most 1. If the target likes a token more than the draft does, it always stays.", ratio
    swapped = "p and q have changed places. p is the target's, q the draft's; in some papers it is the other way round."
    if p[token] < q[token]:
        said = "This token would always stay, though the target likes it less than the draft does."
        yield f"{said} If p and q have changed places: p is the target's.", 1.0
        yield swapped, q[token] / p[token] if p[token] else np.inf
    else:
        yield swapped, q[token] / p[token]
    alone = "This is p[token]. The draft proposes it with probability q[token], so then it would come too seldom."
    yield alone, p[token]
    yield (
        "This is q[token]. How likely the token is to be proposed is no measure of how often it should stay.",
        q[token],
    )
    yield "This is the smaller one of p and q, with which the token is proposed and stays.", min(p[token], q[token])
    greedy = "This token would always be refused. What is asked for is with which probability it stays."
    yield greedy, 0.0
    yield "This is the probability with which the token is refused.", 1 - min(1.0, ratio)
    yield "p has to be compared with q at the token, not with the largest of q or p.", min(1.0, p[token] / p.max())


def replacements(call: dict[str, Any]) -> Iterator[tuple[str, Array]]:
    """Each way to a wrong distribution: what there is to say, and the numbers."""
    p, q, token = call["p"], call["q"], call["token"]
    others = np.arange(len(p)) != token
    if closeness(call) > CLOSE:
        yield "This is p. Little is missing here, but something is: p is for where nothing is missing at all.", p
    yield (
        "This is p. The draft has already given a token as often as q says: drawn from p again, it comes too often.",
        p,
    )
    if p[token] >= q[token]:
        yield "Where the token always stays, `instead` is asked for as well: it depends on p and q alone.", p
    without = "Only the refused token was left out. Others may have been given often enough by the draft as well."
    yield without, p * others
    if (p * others).sum() > 0:
        yield without, p * others / (p * others).sum()
    missing = (p - q).clip(min=0)
    if not missing.any():
        yield "Nothing is missing here, so return p: something that can be drawn from.", missing
    else:
        yield "The missing parts have to be divided by their sum, so that they add up to 1.", missing
        yield "These are the differences p - q. What the draft gives too much of cannot be taken back: it is 0.", p - q
    swapped = "This is what the draft gives too much of. Too little of what is the question: p - q."
    for wrong, said in (
        ((q - p).clip(min=0), swapped),
        (abs(p - q), "Where p is smaller than q, nothing is missing: 0."),
    ):
        yield said, wrong
        if wrong.sum() > 0:
            yield said, wrong / wrong.sum()
    yield "This is q. What the draft has proposed was refused: it must not choose again.", q
    soft = np.exp(p - q) / np.exp(p - q).sum()
    yield "softmax makes something of every difference. The positive part, divided by its sum, is asked for.", soft
    if missing.any():
        alike = "Some tokens are missed more than others: the size of p - q counts, not only its sign."
        yield alike, (missing > 0) / (missing > 0).sum()
        yield "Not only the token that is missed most: each of them, in proportion.", 1.0 * (missing == missing.max())
    masked = p * (p > q)
    if masked.sum() > 0:
        yield "p was taken where something is missing. How much is missing there is p - q.", masked / masked.sum()
