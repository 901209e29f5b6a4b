"""Solutions of ex03.attend: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex03_attend import CASES

MHA, GQA, MQA, SIZES, FIRST, LARGE, INPUTS, PRECISION = CASES
ALL = frozenset(CASES)
SHARED = frozenset({GQA, SIZES, FIRST, LARGE, INPUTS, PRECISION})  # more than one KV head, each for several query heads

PLAIN = """
    import torch
    def attend(q, keys, values):
        H_q, D = q.shape
        group = H_q // keys.shape[0]
        keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)
        scores = (q[:, None] @ keys.transpose(1, 2)) / D**0.5
        weights = scores.softmax(dim=-1)
        return (weights @ values)[:, 0]
    """

RIGHT = {
    "KV heads repeated": PLAIN,
    "query heads grouped": """
        import torch
        def attend(q, keys, values):
            grouped = q.view(keys.shape[0], -1, q.shape[-1])
            scores = grouped @ keys.transpose(1, 2) / q.shape[-1] ** 0.5
            return (scores.softmax(dim=-1) @ values).reshape(q.shape)
        """,
    "a loop over heads and tokens": """
        import math, torch
        def attend(q, keys, values):
            outputs = []
            for j, query in enumerate(q):
                h = j * keys.shape[0] // q.shape[0]
                scores = [float(query.double() @ key.double()) / math.sqrt(len(query)) for key in keys[h]]
                weights = [math.exp(score - max(scores)) for score in scores]
                outputs.append(sum(w * v for w, v in zip(weights, values[h])) / sum(weights))
            return torch.stack(outputs)
        """,
    "NumPy, in another memory order": """
        import numpy as np
        def attend(q, keys, values):
            q, keys, values = (np.asfortranarray(t.numpy()) for t in (q, keys, values))
            head = np.arange(len(q)) // (len(q) // len(keys))
            scores = np.einsum("jd,jsd->js", q, keys[head]) / np.sqrt(q.shape[1]).astype(q.dtype)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            return np.einsum("js,jsd->jd", weights / weights.sum(axis=1, keepdims=True), values[head])
        """,
    "the library's": """
        import torch.nn.functional as F
        def attend(q, keys, values):
            return F.scaled_dot_product_attention(
                q[None, :, None], keys[None], values[None], enable_gqa=True
            )[0, :, 0]
        """,
    "einsum, the query scaled": """
        import torch
        def attend(q, keys, values):
            q = (q * q.shape[1] ** -0.5).unflatten(0, (keys.shape[0], -1))
            weights = torch.einsum("hgd,hsd->hgs", q, keys).softmax(-1)
            return torch.einsum("hgs,hsd->hgd", weights, values).flatten(0, 1)
        """,
    "logsumexp, values transposed": """
        import torch
        def attend(q, keys, values):
            keys, values = (t.expand(len(q) // len(t), *t.shape).transpose(0, 1).reshape(len(q), *t.shape[1:])
                            for t in (keys, values))
            scores = (keys * q[:, None]).sum(-1) / q.shape[1] ** 0.5
            weights = (scores - scores.logsumexp(dim=1, keepdim=True)).exp()
            return (values.mT @ weights[..., None]).squeeze(-1)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


REPEATED = "keys, values = keys.repeat_interleave(group, dim=0), values.repeat_interleave(group, dim=0)"
MADE = "scores = (q[:, None] @ keys.transpose(1, 2)) / D**0.5"
WEIGHED = "weights = scores.softmax(dim=-1)"

WRONG = {
    "the values averaged, nobody attends": Wrong(
        changed((MADE, "scores = torch.zeros(H_q, 1, keys.shape[1], dtype=q.dtype)")), ALL, ("plain averages",)
    ),
    "not divided by the root of D": Wrong(changed((" / D**0.5", "")), ALL, ("not divided by √D", "head 0")),
    "divided by D": Wrong(changed(("D**0.5", "D")), ALL, ("divided by D, not by √D",)),
    "divided by the root of the tokens": Wrong(
        changed(("D**0.5", "keys.shape[1] ** 0.5")), ALL, ("The output is not the mean",)
    ),
    "divided by 2, the root of one D": Wrong(
        changed(("D**0.5", "2")), frozenset({SIZES, FIRST, LARGE, PRECISION}), ("The output is not the mean",)
    ),
    "divided after the softmax": Wrong(
        changed((" / D**0.5", ""), (WEIGHED, WEIGHED + " / D**0.5")), ALL, ("The output is not the mean",)
    ),
    "KV heads in turn": Wrong(
        changed((REPEATED, "keys, values = keys.repeat(group, 1, 1), values.repeat(group, 1, 1)")),
        SHARED,
        ("stand side by side", "head j uses KV head j // 3, not j % 2", "head 1"),
    ),
    "the first KV head for all": Wrong(
        changed((REPEATED, "keys, values = (t[:1].expand(H_q, -1, -1) for t in (keys, values))")),
        ALL - {MQA},
        ("the first KV head", "head 1"),
    ),
    "KV heads in turn for the values only": Wrong(
        changed(("values.repeat_interleave(group, dim=0)", "values.repeat(group, 1, 1)")),
        SHARED,
        ("The output is not the mean",),
    ),
    "no sharing of heads": Wrong(changed((REPEATED, "pass")), ALL - {MHA, MQA}, ("raised an error", "size of tensor")),
    "softmax over the heads": Wrong(changed(("softmax(dim=-1)", "softmax(dim=0)")), ALL, ("ran over the heads",)),
    "no softmax": Wrong(changed((WEIGHED, "weights = scores")), ALL, ("softmax is missing",)),
    "the largest score takes all": Wrong(
        changed((WEIGHED, "weights = (scores == scores.amax(-1, keepdim=True)).to(q.dtype)")),
        ALL,
        ("head 0",),
    ),
    "the keys are mixed": Wrong(changed(("weights @ values", "weights @ keys")), ALL, ("keys were mixed",)),
    "keys and values exchanged": Wrong(
        changed(("def attend(q, keys, values)", "def attend(q, values, keys)")), ALL, ("exchanged",)
    ),
    "the new token is left out": Wrong(
        changed((REPEATED, REPEATED + "\n        keys, values = keys[:, :-1], values[:, :-1]")),
        ALL - {LARGE},
        ("missing from its own attention",),
    ),
    "the first token is left out": Wrong(
        changed((REPEATED, REPEATED + "\n        if keys.shape[1] > 1: keys, values = keys[:, 1:], values[:, 1:]")),
        ALL - {LARGE},
        ("oldest token is missing",),
    ),
    "only the last 16 tokens": Wrong(
        changed((REPEATED, REPEATED + "\n        keys, values = keys[:, -16:], values[:, -16:]")),
        frozenset({SIZES}),
        ("The output is not the mean", "call 1 of 3"),
    ),
    "a softmax that overflows": Wrong(
        changed((WEIGHED, "weights = scores.exp() / scores.exp().sum(dim=-1, keepdim=True)")),
        frozenset({LARGE}),
        ("NaN", "subtract the largest score"),
    ),
    "the largest score of all heads": Wrong(
        changed((WEIGHED, "exps = (scores - scores.max()).exp()\n        weights = exps / exps.sum(-1, keepdim=True)")),
        frozenset({LARGE}),
        ("NaN", "of each head from its own", "call 2 of 2"),
    ),
    "the largest score of all heads, in float64": Wrong(
        changed(
            (
                WEIGHED,
                "exps = (scores.double() - scores.max()).exp()\n"
                "        weights = (exps / exps.sum(-1, keepdim=True)).to(q.dtype)",
            )
        ),
        frozenset({LARGE}),
        ("NaN", "of each head from its own", "call 2 of 2"),
    ),
    "the largest score of the heads that share a KV head": Wrong(
        changed(
            (
                WEIGHED,
                "largest = scores.view(-1, group * scores.shape[-1]).amax(-1).repeat_interleave(group)\n"
                "        exps = (scores.double() - largest[:, None, None]).exp()\n"
                "        weights = (exps / exps.sum(-1, keepdim=True)).to(q.dtype)",
            )
        ),
        frozenset({LARGE}),
        ("NaN", "call 2 of 2"),
    ),
    "nothing subtracted, in float64": Wrong(
        changed(
            (
                WEIGHED,
                "exps = scores.double().exp()\n        weights = (exps / exps.sum(-1, keepdim=True)).to(q.dtype)",
            )
        ),
        frozenset({LARGE}),
        ("NaN", "call 2 of 2"),
    ),
    "scores kept below 50": Wrong(
        changed((WEIGHED, "weights = scores.clamp(max=50).softmax(dim=-1)")),
        frozenset({LARGE}),
        ("The output is not the mean",),
    ),
    "everything in float32": Wrong(
        changed((REPEATED, REPEATED + "\n        q, keys, values = q.float(), keys.float(), values.float()")),
        frozenset({PRECISION}),
        ("another dtype", "float64", "float32"),
    ),
    "float32 inside": Wrong(
        changed((WEIGHED, "weights = scores.float().softmax(dim=-1).to(q.dtype)")),
        frozenset({PRECISION}),
        ("rounded it to fewer digits",),
    ),
    "float16 inside": Wrong(changed((WEIGHED, "weights = scores.half().softmax(dim=-1).to(q.dtype)")), ALL, ("",)),
    "the query scaled where it lies": Wrong(
        changed((" / D**0.5", ""), ("        group", "        q /= D**0.5\n        group")),
        frozenset({INPUTS}),
        ("The call changed q",),
    ),
    "values cleared afterwards": Wrong(
        changed(
            ("return (weights @ values)[:, 0]", "out = (weights @ values)[:, 0]; given.zero_(); return out"),
            ("        group", "        given = values\n        group"),
        ),
        frozenset({INPUTS}),
        ("The call changed values",),
    ),
    "a shape of one token too many": Wrong(
        changed(("(weights @ values)[:, 0]", "weights @ values")), ALL, ("should be of shape [2, 4]", "[2, 1, 4]")
    ),
    "return forgotten": Wrong(changed(("return (", "(")), ALL, ("Did you forget `return`?",)),
    "weights instead of an output": Wrong(
        changed(("return (weights @ values)[:, 0]", "return weights[:, 0]")), ALL, ("should be of shape",)
    ),
    "a list of heads": Wrong(
        changed(("return (weights @ values)[:, 0]", "return list((weights @ values)[:, 0])")),
        ALL,
        ("should return one tensor",),
    ),
}
