"""Solutions of ex08.cost: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex08_cost import ALIKE, CASES, HIDES, INPUTS, LARGE, SINGLE

KL, SAME, NLL, *_ = CASES
ALL = frozenset(CASES)
ABOUT_KL = frozenset({KL, LARGE, ALIKE, HIDES, SINGLE, INPUTS})
ABOUT_SAME = frozenset({SAME, LARGE, HIDES, INPUTS})
ABOUT_NLL = frozenset({NLL, LARGE, HIDES, SINGLE, INPUTS})

PLAIN = """
    import torch
    def cost(full, quantised, tokens):
        log_p, log_q = (logits.double().log_softmax(dim=1) for logits in (full, quantised))
        kl = (log_p.exp() * (log_p - log_q)).sum(dim=1)
        same = (full.argmax(dim=1) == quantised.argmax(dim=1)).double()
        here = torch.arange(len(tokens))
        nll_full, nll_quantised = -log_p[here, tokens], -log_q[here, tokens]
        added = nll_quantised.mean() - nll_full.mean()
        return {"kl": kl.mean().item(), "same_choice": same.mean().item(), "nll_added": added.item()}
    """

RIGHT = {
    "log_softmax": PLAIN,
    "torch's own functions, tensors returned": """
        import torch.nn.functional as F
        def cost(full, quantised, tokens):
            full, quantised = full.double(), quantised.double()
            p, q = F.log_softmax(full, -1), F.log_softmax(quantised, -1)
            return {
                "kl": F.kl_div(q, p, reduction="batchmean", log_target=True),
                "same_choice": full.max(1).indices.eq(quantised.max(1).indices).float().mean(),
                "nll_added": F.cross_entropy(quantised, tokens) - F.cross_entropy(full, tokens),
            }
        """,
    "token by token, without a library": """
        from math import exp, fsum, log
        def cost(full, quantised, tokens):
            divergence, same, added = [], 0, []
            for a, b, token in zip(full.tolist(), quantised.tolist(), tokens.tolist()):
                logs = []
                for row in (a, b):
                    total = log(fsum(exp(x - max(row)) for x in row))
                    logs.append([x - max(row) - total for x in row])
                divergence.append(fsum(exp(p) * (p - q) for p, q in zip(*logs)))
                same += a.index(max(a)) == b.index(max(b))
                added.append(logs[0][token] - logs[1][token])
            n = len(added)
            return {"kl": fsum(divergence) / n, "same_choice": same / n, "nll_added": fsum(added) / n}
        """,
    "NumPy, Fortran order, arrays of one number": """
        import numpy as np
        def cost(full, quantised, tokens):
            logs = []
            for logits in (full, quantised):
                x = np.asfortranarray(logits.numpy(), dtype=np.float64)
                x = x - x.max(axis=1, keepdims=True)
                logs.append(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))
            p, q = logs
            at = np.arange(len(p)), tokens.numpy()
            return {"nll_added": np.array([np.mean(p[at] - q[at])]), "same_choice": np.mean(p.argmax(1) == q.argmax(1)),
                    "kl": np.einsum("nv,nv->", np.exp(p), p - q) / len(p)}
        """,
    "entropies, and logsumexp": """
        import torch
        def cost(full, quantised, tokens):
            a, b = full.to(torch.float64), quantised.to(torch.float64)
            a, b = a - a.amax(1, keepdim=True), b - b.amax(1, keepdim=True)
            p = a.softmax(1)
            shift = b.logsumexp(1) - a.logsumexp(1)
            kl = (p * (a - b)).sum(1) + shift
            nll = shift + a.gather(1, tokens[:, None])[:, 0] - b.gather(1, tokens[:, None])[:, 0]
            return dict(kl=float(kl.mean()), same_choice=float(torch.mean((a.argmax(1) == b.argmax(1)) * 1.0)),
                        nll_added=float(nll.mean()), positions=len(p))
        """,
    "in float32 but for the KL": """
        import torch
        import torch.nn.functional as F
        def cost(full, quantised, tokens):
            kl = -(full.double().softmax(1) * quantised.double().log_softmax(1)).sum(1)
            kl -= torch.distributions.Categorical(logits=full.double()).entropy()
            nll = [F.nll_loss(logits.log_softmax(1), tokens) for logits in (full, quantised)]
            same = (full.topk(1).indices == quantised.topk(1).indices).sum() / len(tokens)
            return {"kl": kl.mean(), "same_choice": same, "nll_added": nll[1] - nll[0]}
        """,
    "the library's measures": """
        from course_lib.quality import measures
        def cost(full, quantised, tokens):
            nll = measures.nll(quantised, tokens).mean() - measures.nll(full, tokens).mean()
            return {"kl": measures.kl(full, quantised).mean(), "nll_added": nll,
                    "same_choice": measures.same_choice(full, quantised).double().mean()}
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


DIVERGE = "kl = (log_p.exp() * (log_p - log_q)).sum(dim=1)"
LOGS = "log_p, log_q = (logits.double().log_softmax(dim=1) for logits in (full, quantised))"
SHARE = "same = (full.argmax(dim=1) == quantised.argmax(dim=1)).double()"
ADDED = "added = nll_quantised.mean() - nll_full.mean()"
AT = "nll_full, nll_quantised = -log_p[here, tokens], -log_q[here, tokens]"

WRONG = {
    "the other direction": Wrong(
        changed((DIVERGE, "kl = (log_q.exp() * (log_q - log_p)).sum(dim=1)")),
        ABOUT_KL - {ALIKE},
        ("KL in the other direction",),
    ),
    "kl_div with its arguments exchanged": Wrong(
        changed((DIVERGE, "kl = torch.nn.functional.kl_div(log_p, log_q.exp(), reduction='none').sum(dim=1)")),
        ABOUT_KL - {ALIKE},
        ("KL in the other direction",),
    ),
    "the mean over all numbers": Wrong(
        changed((DIVERGE, DIVERGE.replace("sum", "mean"))), ABOUT_KL, ("over all numbers",)
    ),
    "both directions": Wrong(
        changed((DIVERGE, "kl = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum(dim=1) / 2")),
        ABOUT_KL - {ALIKE},
        ("mean of both directions",),
    ),
    "KL added up over positions": Wrong(
        changed(('"kl": kl.mean()', '"kl": kl.sum()')), ABOUT_KL - {SINGLE}, ("the sum over the positions",)
    ),
    "KL in bits": Wrong(changed((DIVERGE, DIVERGE + " / torch.tensor(2.0).log()")), ABOUT_KL, ("in bits",)),
    "KL below 0": Wrong(changed(("(log_p - log_q)", "(log_q - log_p)")), ABOUT_KL, ("sign is turned round",)),
    "cross-entropy": Wrong(changed(("* (log_p - log_q)", "* -log_q")), ABOUT_KL, ("cross-entropy",)),
    "softmax over positions": Wrong(
        changed(
            (
                DIVERGE,
                "a, b = (t.double().log_softmax(dim=0) for t in (full, quantised))\n        "
                "kl = (a.exp() * (a - b)).sum(dim=1)",
            )
        ),
        ABOUT_KL,
        ("softmax ran over the positions",),
    ),
    "the log of a softmax": Wrong(
        changed((LOGS, LOGS.replace("log_softmax(dim=1)", "softmax(dim=1).log()"))),
        frozenset({LARGE}),
        ("and not the log of a softmax",),
    ),
    "torch's distributions": Wrong(
        changed(
            (
                DIVERGE,
                "both = [torch.distributions.Categorical(logits=t.double()) for t in (full, quantised)]\n"
                "        kl = torch.distributions.kl_divergence(*both)",
            )
        ),
        frozenset({LARGE}),
        ("is 0, whose log is infinite",),
    ),
    "a softmax by hand, not stable": Wrong(
        changed(
            (
                LOGS,
                "log_p, log_q = (t.double() - t.double().exp().sum(dim=1, keepdim=True).log() "
                "for t in (full, quantised))",
            )
        ),
        frozenset({LARGE}),
        ("exp of a large logit is infinite",),
    ),
    "a small number added": Wrong(
        changed((LOGS, LOGS.replace("log_softmax(dim=1)", "softmax(dim=1).add(1e-12).log()"))),
        frozenset({LARGE}),
        ("goes on",),
    ),
    "in float32": Wrong(changed(("logits.double()", "logits.float()")), frozenset({ALIKE}), ("needs float64",)),
    "distance of the probabilities": Wrong(
        changed((DIVERGE, "kl = (log_p.exp() - log_q.exp()).abs().sum(dim=1)")), ABOUT_KL, ("kl is the mean",)
    ),
    "squares of the logits": Wrong(
        changed((DIVERGE, "kl = ((full - quantised) ** 2).mean(dim=1)")), ABOUT_KL, ("kl is the mean",)
    ),
    "how many are the same": Wrong(changed(("same.mean()", "same.sum()")), ABOUT_SAME, ("Asked is their share",)),
    "how many differ": Wrong(changed((SHARE, SHARE.replace("==", "!="))), ABOUT_SAME, ("at which they differ",)),
    "the same in percent": Wrong(changed(("same.mean()", "same.mul(100).mean()")), ABOUT_SAME, ("in percent",)),
    "accuracy": Wrong(
        changed((SHARE, "same = (quantised.argmax(dim=1) == tokens).double()")),
        ABOUT_SAME,
        ("finds the token of the text likeliest",),
    ),
    "accuracy of the full run": Wrong(
        changed((SHARE, "same = (full.argmax(dim=1) == tokens).double()")),
        ABOUT_SAME,
        ("finds the token of the text likeliest",),
    ),
    "nearly as likely is the same": Wrong(
        changed(
            (
                SHARE,
                "best = full.argmax(dim=1, keepdim=True)\n        "
                "same = (quantised.gather(1, best)[:, 0] >= quantised.amax(dim=1) - 1e-3).double()",
            )
        ),
        frozenset({SAME}),
        ("likelier by a hair",),
    ),
    "largest of each column": Wrong(
        changed((SHARE, "same = (full.argmax(dim=0) == quantised.argmax(dim=0)).double()")),
        ABOUT_SAME,
        ("among positions",),
    ),
    "the same logits": Wrong(changed((SHARE, "same = (full == quantised).all(dim=1).double()")), ABOUT_SAME, ()),
    "NLL the other way round": Wrong(
        changed((ADDED, "added = nll_full.mean() - nll_quantised.mean()")), ABOUT_NLL, ("sign is turned round",)
    ),
    "NLL of the quantised run": Wrong(
        changed((ADDED, "added = nll_quantised.mean()")), ABOUT_NLL, ("Asked is what is added",)
    ),
    "NLL added up": Wrong(
        changed((ADDED, ADDED.replace("mean", "sum"))), ABOUT_NLL - {SINGLE}, ("the sum over the positions",)
    ),
    "perplexity": Wrong(
        changed((ADDED, "added = nll_quantised.mean().exp() - nll_full.mean().exp()")), ABOUT_NLL, ("perplexities",)
    ),
    "sizes of the changes": Wrong(
        changed((ADDED, "added = (nll_quantised - nll_full).abs().mean()")),
        ABOUT_NLL - {SINGLE},
        ("The sizes of the changes",),
    ),
    "NLL in bits": Wrong(
        changed((ADDED, ADDED + "\n        added = added / 0.6931471805599453")), ABOUT_NLL, ("in bits",)
    ),
    "probabilities": Wrong(
        changed((ADDED, "added = nll_full.neg().exp().mean() - nll_quantised.neg().exp().mean()")),
        ABOUT_NLL,
        ("without the logarithm",),
    ),
    "logits instead of log probabilities": Wrong(
        changed((ADDED, "added = (full - quantised)[here, tokens].double().mean()")), ABOUT_NLL, ("Logits are no log",)
    ),
    "the likeliest token instead of the text's": Wrong(
        changed((AT, "nll_full, nll_quantised = -log_p.amax(dim=1), -log_q.amax(dim=1)")),
        ABOUT_NLL,
        ("the likeliest tokens",),
    ),
    "shifted by one": Wrong(
        changed(
            (
                AT,
                "here = here[:-1]\n        "
                "nll_full, nll_quantised = -log_p[here, tokens[1:]], -log_q[here, tokens[1:]]",
            )
        ),
        ABOUT_NLL,
        ("are shifted",),
    ),
    "all tokens at all positions": Wrong(
        changed((AT, "nll_full, nll_quantised = -log_p[:, tokens], -log_q[:, tokens]")),
        ABOUT_NLL - {SINGLE},
        ("nll_added is",),
    ),
    "logits are changed": Wrong(
        changed(
            ("import torch\n", "import torch\n"), (LOGS, LOGS + "\n        full -= full.amax(dim=1, keepdim=True)")
        ),
        frozenset({INPUTS}),
        ("changed full",),
    ),
    "other names": Wrong(changed(('"kl"', '"KL"')), ABOUT_KL, ("There is no “kl”", "KL, same_choice")),
    "one number a position": Wrong(
        changed(('"kl": kl.mean().item()', '"kl": kl')), ABOUT_KL - {SINGLE}, ("kl should be one number",)
    ),
    "a tuple": Wrong(
        changed(("return {", "return tuple({"), ("added.item()}", "added.item()}.values())")), ALL, ("in a dictionary",)
    ),
    "return forgotten": Wrong(changed(("return {", "found = {")), ALL, ("Did you forget `return`?",)),
}
