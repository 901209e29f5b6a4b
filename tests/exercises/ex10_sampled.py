"""Solutions of ex10.sampled: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex10_sampled import (
    CASES,
    CERTAIN,
    GREEDY,
    INPUTS,
    LARGE,
    LESS,
    MISSING,
    MORE,
    NEVER,
    SAME,
    ZEROS,
)

EVERY = frozenset(CASES)
OF_CHANCE, OF_INSTEAD = EVERY - {MISSING}, EVERY - {LESS, MORE, NEVER}

PLAIN = """
    def accept_sampled(p, q, token):
        chance = min(1.0, float(p[token] / q[token]))
        missing = (p - q).clamp(min=0)
        total = missing.sum()
        return chance, missing / total if total > 0 else p
    """

RIGHT = {
    "clamp and divide": PLAIN,
    "token by token, lists": """
        def accept_sampled(p, q, token):
            p, q = p.tolist(), q.tolist()
            missing = [max(a - b, 0.0) for a, b in zip(p, q)]
            total = sum(missing)
            instead = [m / total for m in missing] if total else p
            return [1.0 if p[token] >= q[token] else p[token] / q[token], instead]
        """,
    "NumPy, in float32": """
        import numpy as np
        def accept_sampled(p, q, token):
            p, q = p.numpy().astype(np.float32), q.numpy().astype(np.float32)
            instead = np.where(p > q, p - q, 0)
            if not instead.any():
                return np.float32(1), p
            return np.minimum(1, p[token] / q[token]), instead / instead.sum()
        """,
    "by what is proposed and stays": """
        import torch
        def accept_sampled(p, q, token):
            stays = torch.minimum(p, q)  # with which probability each is proposed and stays
            chance = stays[token] / q[token]
            if torch.equal(p, q):
                return chance, p.clone()
            return chance, (p - stays) / (1 - stays.sum())
        """,
    "all tokens at once": """
        import torch
        def accept_sampled(p, q, token):
            ratios = torch.nan_to_num(p / q, nan=1.0).clamp(max=1)
            missing = torch.relu(p - q)
            return ratios[token], torch.where(missing.sum() > 0, missing / missing.sum(), p)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


CHANCE = "chance = min(1.0, float(p[token] / q[token]))"
LINE = "missing = (p - q).clamp(min=0)"
INSTEAD = "missing / total if total > 0 else p"

WRONG = {
    "more than 1": Wrong(
        changed((CHANCE, "chance = float(p[token] / q[token])")),
        frozenset({MORE, ZEROS, GREEDY, LARGE, INPUTS}),
        ("A probability is at most 1",),
    ),
    "p and q have changed places": Wrong(
        changed((CHANCE, "chance = min(1.0, float(q[token] / p[token]))")),
        OF_CHANCE,
        ("have changed places",),
    ),
    "p alone": Wrong(
        changed((CHANCE, "chance = float(p[token])")), OF_CHANCE - {CERTAIN, GREEDY}, ("This is p[token]",)
    ),
    "q alone": Wrong(changed((CHANCE, "chance = float(q[token])")), OF_CHANCE, ("This is q[token]",)),
    "the smaller one": Wrong(changed((CHANCE, "chance = float(min(p[token], q[token]))")), OF_CHANCE - {CERTAIN}, ()),
    "kept if the target likes it more": Wrong(
        changed((CHANCE, "chance = float(p[token] >= q[token])")),
        OF_CHANCE - {GREEDY},
        ("always be refused",),
    ),
    "kept if it is the target's first choice": Wrong(
        changed((CHANCE, "chance = float(p.argmax() == token)")), OF_CHANCE - {GREEDY}, ()
    ),
    "always kept": Wrong(changed((CHANCE, "chance = 1.0")), OF_CHANCE, ("would always stay",)),
    "with which it is refused": Wrong(
        changed((CHANCE, "chance = 1 - min(1.0, float(p[token] / q[token]))")),
        OF_CHANCE,
        ("with which the token is refused",),
    ),
    "beside the target's favourite": Wrong(
        changed((CHANCE, "chance = float(p[token] / p.max())")), OF_CHANCE - {GREEDY}, ()
    ),
    "drawn from p again": Wrong(changed((LINE, "missing = p")), OF_INSTEAD - {GREEDY}, ("This is p.",)),
    "p without the refused token": Wrong(
        changed((LINE, "missing = p.clone()\n        missing[token] = 0")),
        OF_INSTEAD - {CERTAIN, GREEDY},
        ("Only the refused token was left out",),
    ),
    "not divided": Wrong(changed((INSTEAD, "missing if total > 0 else p")), OF_INSTEAD, ("divided by their sum",)),
    "differences below zero": Wrong(
        changed((INSTEAD, "p - q if total > 0 else p")), OF_INSTEAD, ("cannot be taken back",)
    ),
    "what the draft gives too much of": Wrong(
        changed((LINE, "missing = (q - p).clamp(min=0)")), OF_INSTEAD, ("too much of",)
    ),
    "the size of the difference": Wrong(
        changed((LINE, "missing = (p - q).abs()")), OF_INSTEAD, ("nothing is missing: 0",)
    ),
    "softmax of the difference": Wrong(
        changed((INSTEAD, "(p - q).softmax(0)")), OF_INSTEAD, ("softmax makes something",)
    ),
    "all that are missed alike": Wrong(
        changed((LINE, "missing = (p > q).double()")), OF_INSTEAD - {GREEDY}, ("missed more than others",)
    ),
    "the one that is missed most": Wrong(
        changed((LINE, "missing = ((p - q) == (p - q).max()).double() * (p > q)")),
        OF_INSTEAD - {GREEDY},
        ("missed most",),
    ),
    "p where something is missing": Wrong(
        changed((LINE, "missing = p * (p > q)")), OF_INSTEAD - {CERTAIN, GREEDY}, ("How much is missing",)
    ),
    "drawn from q": Wrong(changed((INSTEAD, "q")), OF_INSTEAD, ("This is q.",)),
    "0 / 0": Wrong(changed((INSTEAD, "missing / total")), frozenset({SAME}), ("0 / 0",)),
    "as good as nothing is nothing": Wrong(
        changed((INSTEAD, "missing / total if total > 1e-3 else p")), frozenset({SAME}), ("Little is missing here",)
    ),
    "zeros where nothing is missing": Wrong(
        changed((INSTEAD, "missing / total if total > 0 else missing")), frozenset({SAME}), ("Nothing is missing here",)
    ),
    "no distribution where the token stays": Wrong(
        changed((INSTEAD, "(missing / total if total > 0 else p) if chance < 1 else p")),
        frozenset({MISSING, ZEROS, LARGE, INPUTS}),
        ("it depends on p and q alone",),
    ),
    "only one thing": Wrong(changed(("return chance, ", "return ")), EVERY, ("should return two things",)),
    "in the other order": Wrong(
        changed((f"return chance, {INSTEAD}", f"return ({INSTEAD}), chance")), EVERY, ("one number",)
    ),
    "p changed in place": Wrong(
        changed((LINE, "before = p.clone()\n        missing = p.sub_(q).clamp_(min=0)"), ("else p", "else before")),
        frozenset({INPUTS}),
        ("The call changed p",),
    ),
    "rounded to two digits": Wrong(
        changed((CHANCE, "chance = round(min(1.0, float(p[token] / q[token])), 2)")),
        OF_CHANCE - {GREEDY},
        (),
    ),
}
