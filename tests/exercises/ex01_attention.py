"""Solutions of ex01.attention: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex01_attention import CASES

PROMPT, DECODE, FEW, SIZES, LARGE, SMALL, HIDDEN, INPUTS, PRECISION = CASES
ALL = frozenset(CASES)
AFTER = ALL - {PROMPT}  # fewer queries than keys
SEVERAL = ALL - {DECODE}  # several queries
EXTREME = frozenset({LARGE, SMALL, HIDDEN})

PLAIN = """
    import torch
    def attention(q, k, v):
        n, S, D = len(q), len(k), q.shape[1]
        mask = torch.arange(S) <= torch.arange(S - n, S)[:, None]
        scores = q @ k.T / D**0.5
        scores = scores.masked_fill(~mask, -torch.inf)
        weights = scores.softmax(dim=-1)
        return weights @ v
    """

RIGHT = {
    "a mask of positions": PLAIN,
    "the softmax written out": """
        import torch
        def attention(q, k, v):
            scores = q @ k.T * q.shape[1] ** -0.5
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(len(k) - len(q) + 1)
            scores[hidden] = -torch.inf
            weights = (scores - scores.max(dim=-1, keepdim=True).values).exp()
            return weights / weights.sum(dim=-1, keepdim=True) @ v
        """,
    "a row at a time, no mask": """
        import torch
        def attention(q, k, v):
            earlier = len(k) - len(q)
            rows = []
            for i, query in enumerate(q):
                keys, values = k[: earlier + i + 1], v[: earlier + i + 1]
                rows.append((keys @ query / len(query) ** 0.5).softmax(0) @ values)
            return torch.stack(rows)
        """,
    "one key at a time, the largest so far": """
        import math, torch
        def attention(q, k, v):
            out = torch.zeros_like(v[: len(q)])
            for i in range(len(q)):
                best, total = -math.inf, 0.0
                for s in range(len(k) - len(q) + i + 1):
                    score = float(q[i].double() @ k[s].double()) / math.sqrt(q.shape[1])
                    new = max(best, score)
                    shrink, weight = math.exp(best - new), math.exp(score - new)
                    out[i], total, best = out[i] * shrink + weight * v[s], total * shrink + weight, new
                out[i] /= total
            return out
        """,
    "NumPy, in another memory order": """
        import numpy as np
        def attention(q, k, v):
            q, k, v = (np.asfortranarray(t.numpy()) for t in (q, k, v))
            n, S = len(q), len(k)
            scores = np.einsum("id,sd->is", q, k) / np.sqrt(q.shape[1]).astype(q.dtype)
            scores = np.where(np.tri(n, S, S - n, dtype=bool), scores, -np.inf).astype(q.dtype)
            weights = np.exp(scores - scores.max(1, keepdims=True))
            return (weights / weights.sum(1, keepdims=True)) @ v
        """,
    "the library's, with a mask": """
        import torch
        import torch.nn.functional as F
        def attention(q, k, v):
            mask = torch.ones(len(q), len(k), dtype=torch.bool).tril(len(k) - len(q))
            return F.scaled_dot_product_attention(q[None], k[None], v[None], mask)[0]
        """,
    "a large negative number added": """
        import torch
        def attention(q, k, v):
            n, S = len(q), len(k)
            bias = torch.triu(torch.full((n, S), -1e9, dtype=q.dtype), diagonal=S - n + 1)
            return torch.softmax((q / q.shape[1] ** 0.5) @ k.T + bias, dim=1) @ v
        """,
    "logsumexp, keys first": """
        import torch
        def attention(q, k, v):
            n, S = len(q), len(k)
            scores = (k @ q.T) / q.shape[1] ** 0.5
            late = torch.arange(S)[:, None] > torch.arange(S - n, S)
            scores = torch.where(late, torch.tensor(float("-inf"), dtype=q.dtype), scores)
            return (scores - scores.logsumexp(dim=0)).exp().T @ v
        """,
    "queries padded to the whole text": """
        import torch
        import torch.nn.functional as F
        def attention(q, k, v):
            T = len(k) - len(q)
            padded = torch.cat([torch.zeros(T, q.shape[1], dtype=q.dtype), q])
            return F.scaled_dot_product_attention(padded[None], k[None], v[None], is_causal=True)[0, T:]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


MASK = "mask = torch.arange(S) <= torch.arange(S - n, S)[:, None]"
HIDE = "scores = scores.masked_fill(~mask, -torch.inf)"
WEIGHTS = "weights = scores.softmax(dim=-1)"

WRONG = {
    "a mask aligned top left": Wrong(
        changed((MASK, "mask = torch.ones(n, S, dtype=torch.bool).tril()")),
        AFTER,
        ("begins too early, and hides earlier tokens", "new token 0"),
    ),
    "the library's own mask": Wrong(
        """
        import torch.nn.functional as F
        def attention(q, k, v):
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
        """,
        AFTER,
        ("begins too early",),
    ),
    "a mask only where there are as many queries as keys": Wrong(
        changed((HIDE, f"{HIDE} if n == S else scores")), SEVERAL - {PROMPT}, ("mask is missing",)
    ),
    "no mask": Wrong(changed((HIDE, "pass")), SEVERAL, ("mask is missing",)),
    "a token does not see itself": Wrong(
        changed((MASK, MASK.replace("<=", "<"))), ALL, ("NaN", "sees nothing", "new token 0")
    ),
    "a token does not see itself where it can see others": Wrong(
        changed((MASK, MASK.replace("<=", "<") + "\n        mask[:, 0] = True")), ALL, ("see itself",)
    ),
    "one too far": Wrong(changed((MASK, MASK + " + 1")), SEVERAL, ("one that comes after",)),
    "inside out": Wrong(changed(("~mask", "mask")), ALL, ("",)),
    "turned round": Wrong(changed((MASK, MASK.replace("<=", ">="))), ALL, ("turned round",)),
    "scores of hidden keys are 0": Wrong(changed(("-torch.inf", "0.0")), SEVERAL - {LARGE}, ("exp(0) is 1",)),
    "a mask of ones and zeros added": Wrong(
        changed((HIDE, "scores = scores + mask")), SEVERAL, ("added as zeros and ones",)
    ),
    "weights set to 0 after the softmax": Wrong(
        changed((HIDE, "pass"), (WEIGHTS, "weights = scores.softmax(dim=-1) * mask")),
        SEVERAL,
        ("no longer add up to 1",),
    ),
    "a small negative number for hidden keys": Wrong(
        changed(("-torch.inf", "-100.0")), frozenset({SMALL}), ("The output is not the mean", "new token 0")
    ),
    "-1e4 for hidden keys": Wrong(
        changed(("-torch.inf", "-1e4")), frozenset({SMALL}), ("Only -inf is below all of them", "call 2 of 2")
    ),
    "-1e9 for hidden keys": Wrong(
        changed(("-torch.inf", "-1e9")), frozenset({SMALL}), ("Only -inf is below all of them", "call 2 of 2")
    ),
    "a softmax that overflows": Wrong(
        changed((WEIGHTS, "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
        frozenset({LARGE, SMALL}),
        ("NaN", "Subtract the largest score"),
    ),
    "a softmax that overflows, in float64": Wrong(
        changed(
            (
                WEIGHTS,
                "exps = scores.double().exp()\n        weights = (exps / exps.sum(dim=-1, keepdim=True)).to(q.dtype)",
            )
        ),
        frozenset({LARGE, SMALL}),
        ("NaN", "Subtract the largest score"),
    ),
    "the largest of all scores, the hidden ones included": Wrong(
        changed(
            (HIDE, "scores = scores - scores.amax(dim=-1, keepdim=True)"),
            (WEIGHTS, "weights = scores.exp() * mask\n        weights = weights / weights.sum(dim=-1, keepdim=True)"),
        ),
        frozenset({HIDDEN}),
        ("NaN", "Mask the scores first, then look for the largest"),
    ),
    "the largest of all rows": Wrong(
        changed(
            (WEIGHTS, "exps = (scores - scores.max()).exp()\n        weights = exps / exps.sum(dim=-1, keepdim=True)")
        ),
        frozenset({SMALL}),
        ("NaN",),
    ),
    "scores kept below 80": Wrong(
        changed((WEIGHTS, "weights = scores.clamp(max=80).softmax(dim=-1)")), frozenset({LARGE}), ("plain averages",)
    ),
    "scores kept above -80": Wrong(
        changed(
            (HIDE, f"scores = scores.clamp(min=-80)\n        {HIDE}"),
        ),
        frozenset({SMALL}),
        ("The output is not the mean",),
    ),
    "a little added to the sum": Wrong(
        changed(
            (
                WEIGHTS,
                "exps = (scores - scores.amax(-1, keepdim=True).clamp(min=0)).exp()\n"
                "        weights = exps / (exps.sum(dim=-1, keepdim=True) + 1e-6)",
            )
        ),
        frozenset({SMALL, PRECISION}),
        ("The output is not the mean",),
    ),
    "not divided by the root of D": Wrong(changed((" / D**0.5", "")), ALL, ("not divided by √D",)),
    "divided by D": Wrong(changed(("D**0.5", "D")), ALL, ("divided by D, not by √D",)),
    "divided by the root of the keys": Wrong(changed(("D**0.5", "S**0.5")), ALL, ("The output is not the mean",)),
    "divided by 2, the root of one D": Wrong(
        changed(("D**0.5", "2")), ALL - {PROMPT, DECODE, FEW, INPUTS}, ("The output is not the mean",)
    ),
    "softmax over the queries": Wrong(changed(("dim=-1", "dim=0")), ALL, ("ran over the queries",)),
    "no softmax": Wrong(
        changed((HIDE, "scores = scores * mask"), (WEIGHTS, "weights = scores")), ALL, ("softmax is missing",)
    ),
    "the values averaged": Wrong(
        changed(("scores = q @ k.T / D**0.5", "scores = torch.zeros(n, S, dtype=q.dtype)")), ALL, ("plain averages",)
    ),
    "the keys are mixed": Wrong(changed(("weights @ v", "weights @ k")), ALL, ("keys were mixed",)),
    "keys and values exchanged": Wrong(changed(("attention(q, k, v)", "attention(q, v, k)")), ALL, ("exchanged",)),
    "only the new tokens": Wrong(
        changed(
            (MASK, f"{MASK} & (torch.arange(S) >= S - n)".replace("mask = ", "mask = (").replace("None]", "None])"))
        ),
        AFTER,
        ("Only new tokens",),
    ),
    "only the last 16 tokens": Wrong(
        changed((HIDE, f"mask &= torch.arange(S) > torch.arange(S - n, S)[:, None] - 16\n        {HIDE}")),
        frozenset({SIZES}),
        ("call 3 of 4",),
    ),
    "bfloat16 inside": Wrong(
        changed((WEIGHTS, "weights = scores.bfloat16().softmax(dim=-1).to(q.dtype)")), ALL, ("fewer digits",)
    ),
    "everything in float32": Wrong(
        changed(("n, S, D =", "q, k, v = q.float(), k.float(), v.float()\n        n, S, D =")),
        frozenset({SMALL, PRECISION}),
        ("another dtype",),
    ),
    "float32 inside": Wrong(
        changed((WEIGHTS, "weights = scores.float().softmax(dim=-1).to(q.dtype)")),
        frozenset({SMALL, PRECISION}),
        ("rounded to float32", "call 2 of 2"),
    ),
    "the query scaled where it lies": Wrong(
        changed((" / D**0.5", ""), (MASK, f"{MASK}\n        q /= D**0.5")), frozenset({INPUTS}), ("The call changed q",)
    ),
    "values cleared afterwards": Wrong(
        changed(("return weights @ v", "out = weights @ v; v.zero_(); return out")),
        frozenset({INPUTS}),
        ("The call changed v",),
    ),
    "only the last token's output": Wrong(
        changed(("return weights @ v", "return (weights @ v)[-1]")), ALL, ("should be of shape [5, 4]", "shape [4]")
    ),
    "weights instead of an output": Wrong(
        changed(("return weights @ v", "return weights")), ALL, ("should be of shape",)
    ),
    "a list of rows": Wrong(changed(("return weights @ v", "return list(weights @ v)")), ALL, ("return one tensor",)),
    "return forgotten": Wrong(changed(("return weights", "weights")), ALL, ("Did you forget `return`?",)),
}
