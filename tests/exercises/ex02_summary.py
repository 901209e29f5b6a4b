"""Solutions of ex02.summary: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_summary import CASES

PERCENTILES, TPOT, ITL, OUTPUT, GOOD, EXACT, SINGLE, ALONE, ORDER, INPUTS = CASES
ALL = frozenset(CASES)
OF_TTFT = frozenset({PERCENTILES, ORDER, INPUTS})  # percentiles of several requests
OF_OUTPUT = frozenset({OUTPUT, SINGLE, ORDER, INPUTS})  # tokens per second of several requests
OF_GOOD = frozenset({GOOD, EXACT, SINGLE, ORDER})  # goodput of several requests

PLAIN = """
    from itertools import pairwise
    def percentile(values, q):
        values = sorted(values)
        place = q / 100 * (len(values) - 1)
        low = int(place)
        high = min(low + 1, len(values) - 1)
        return values[low] + (place - low) * (values[high] - values[low])
    def mean(values):
        return sum(values) / len(values) if values else None
    def summary(requests, ttft_target_s, tpot_target_s):
        ttft, tpot, gaps, tokens = [], [], [], 0
        for request in requests:
            times = request["token_times_s"]
            ttft.append(times[0] - request["arrival_s"])
            own = [b - a for a, b in pairwise(times)]
            tpot.append(mean(own))
            gaps += own
            tokens += len(times)
        begin = min(request["arrival_s"] for request in requests)
        end = max(request["token_times_s"][-1] for request in requests)
        seconds = end - begin
        good = sum(a <= ttft_target_s and (b is None or b <= tpot_target_s) for a, b in zip(ttft, tpot))
        return {
            "ttft_p50_s": percentile(ttft, 50),
            "ttft_p90_s": percentile(ttft, 90),
            "tpot_mean_s": mean([each for each in tpot if each is not None]),
            "itl_mean_s": mean(gaps),
            "output_tokens_per_s": tokens / seconds,
            "good_requests_per_s": good / seconds,
        }
    """

RIGHT = {
    "lists": PLAIN,
    "NumPy": """
        import numpy as np
        def summary(requests, ttft_target_s, tpot_target_s):
            arrivals = np.array([request["arrival_s"] for request in requests])
            first, last = (np.array([request["token_times_s"][i] for request in requests]) for i in (0, -1))
            n = np.array([len(request["token_times_s"]) for request in requests])
            ttft, several = first - arrivals, n > 1
            tpot = (last - first)[several] / (n - 1)[several]
            late = np.zeros(len(n), dtype=bool)
            late[several] = tpot > tpot_target_s
            seconds = last.max() - arrivals.min()
            p50, p90 = np.percentile(ttft, [50, 90])
            return {
                "ttft_p50_s": p50, "ttft_p90_s": p90,
                "tpot_mean_s": tpot.mean() if len(tpot) else None,
                "itl_mean_s": (last - first).sum() / (n - 1).sum() if several.any() else None,
                "output_tokens_per_s": n.sum() / seconds,
                "good_requests_per_s": ((ttft <= ttft_target_s) & ~late).sum() / seconds,
            }
        """,
    "torch": """
        import torch
        def summary(requests, ttft_target_s, tpot_target_s):
            times = [torch.tensor(request["token_times_s"], dtype=torch.float64) for request in requests]
            arrivals = torch.tensor([request["arrival_s"] for request in requests], dtype=torch.float64)
            ttft = torch.stack([each[0] for each in times]) - arrivals
            gaps = [each.diff() for each in times]
            means = [each.mean() for each in gaps if len(each)]
            seconds = max(each[-1] for each in times) - arrivals.min()
            good = 0
            for wait, each in zip(ttft, gaps):
                good += bool(wait <= ttft_target_s and not (len(each) and each.mean() > tpot_target_s))
            return dict(
                ttft_p50_s=ttft.quantile(0.5), ttft_p90_s=ttft.quantile(0.9),
                tpot_mean_s=torch.stack(means).mean() if means else None,
                itl_mean_s=torch.cat(gaps).mean() if means else None,
                output_tokens_per_s=sum(map(len, times)) / seconds, good_requests_per_s=good / seconds,
            )
        """,
    "the standard library's statistics": """
        from statistics import fmean, median, quantiles
        def summary(requests, ttft_target_s, tpot_target_s):
            logs = sorted((r["arrival_s"], *r["token_times_s"]) for r in requests)
            waits = [log[1] - log[0] for log in logs]
            gaps = {i: [log[k + 1] - log[k] for k in range(1, len(log) - 1)] for i, log in enumerate(logs)}
            tpot = {i: (logs[i][-1] - logs[i][1]) / len(each) for i, each in gaps.items() if each}
            seconds = max(log[-1] for log in logs) - logs[0][0]
            good = [i for i, wait in enumerate(waits) if wait <= ttft_target_s and tpot.get(i, 0) <= tpot_target_s]
            return {
                "ttft_p50_s": median(waits),
                "ttft_p90_s": quantiles(waits, n=10, method="inclusive")[-1] if len(waits) > 1 else waits[0],
                "tpot_mean_s": fmean(tpot.values()) if tpot else None,
                "itl_mean_s": fmean(sum(gaps.values(), [])) if tpot else None,
                "output_tokens_per_s": sum(len(log) - 1 for log in logs) / seconds,
                "good_requests_per_s": len(good) / seconds,
            }
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


PLACE = "place = q / 100 * (len(values) - 1)"
RESULT = "return values[low] + (place - low) * (values[high] - values[low])"
OWN = "tpot.append(mean(own))"
MEAN_TPOT = "mean([each for each in tpot if each is not None])"
MEAN_ITL = '"itl_mean_s": mean(gaps)'
TOKENS = '"output_tokens_per_s": tokens / seconds'
CRITERION = "a <= ttft_target_s and (b is None or b <= tpot_target_s)"
PER_SECOND = '"good_requests_per_s": good / seconds'
END = 'end = max(request["token_times_s"][-1] for request in requests)'
BEGIN = 'begin = min(request["arrival_s"] for request in requests)'

WRONG = {
    "the mean TPOT over all gaps": Wrong(
        changed((MEAN_TPOT, "mean(gaps)")),
        frozenset({TPOT, SINGLE}),
        ("mean over all gaps", "Each request counts once"),
    ),
    "the mean gap over requests": Wrong(
        changed((MEAN_ITL, f'"itl_mean_s": {MEAN_TPOT}')), frozenset({ITL, SINGLE}), ("mean of the requests' means",)
    ),
    "both means exchanged": Wrong(
        changed((MEAN_TPOT, "mean(gaps)"), (MEAN_ITL, f'"itl_mean_s": {MEAN_TPOT}')),
        frozenset({TPOT, ITL, SINGLE}),
        ("mean over all gaps",),
    ),
    "TTFT among the gaps": Wrong(
        changed(("gaps += own", "gaps += [ttft[-1], *own]")),
        frozenset({ITL, SINGLE, ALONE}),
        ("first token are among",),
    ),
    "0 for the TPOT of one token": Wrong(
        changed((OWN, "tpot.append(mean(own) or 0.0)")), frozenset({SINGLE}), ("counted as 0", "call 1 of 2")
    ),
    "answers of one token raise": Wrong(
        changed((OWN, "tpot.append(sum(own) / len(own))")), frozenset({SINGLE}), ("raised an error", "ZeroDivision")
    ),
    "answers of one token are late": Wrong(
        changed((CRITERION, "a <= ttft_target_s and b is not None and b <= tpot_target_s")),
        frozenset({SINGLE}),
        ("nothing in it that could miss",),
    ),
    "a mean of nothing is 0": Wrong(
        changed((MEAN_ITL, '"itl_mean_s": mean(gaps) or 0.0')),
        frozenset({SINGLE}),
        ("no gap to take the mean of", "call 2"),
    ),
    "a mean of nothing is no number": Wrong(
        changed((MEAN_TPOT, f'{MEAN_TPOT} or float("nan")')), frozenset({SINGLE}), ("NaN", "call 2 of 2")
    ),
    "whole times divided by all tokens": Wrong(
        changed((OWN, 'tpot.append((times[-1] - request["arrival_s"]) / len(times))')),
        frozenset({TPOT, GOOD, EXACT, SINGLE, ALONE, ORDER}),
        ("wait for the first token went into it",),
    ),
    "gaps divided by the tokens": Wrong(
        changed((OWN, "tpot.append(sum(own) / len(times) if own else None)")),
        frozenset({TPOT, SINGLE, ALONE, GOOD, EXACT, ORDER}),
        ("N - 1 gaps between N tokens",),
    ),
    "a percentile without sorting": Wrong(
        changed(("values = sorted(values)", "values = list(values)")), OF_TTFT, ("was not sorted", "ttft_p50_s")
    ),
    "a percentile from above": Wrong(
        changed(("sorted(values)", "sorted(values, reverse=True)")),
        frozenset({PERCENTILES, ORDER}),
        ("from the other end", "ttft_p90_s"),
    ),
    "a percentile that is one of the values": Wrong(
        changed((RESULT, "return values[low]")), frozenset({PERCENTILES, ORDER}), ("between two neighbours",)
    ),
    "a percentile that is the nearest of the values": Wrong(
        changed((RESULT, "return values[round(place)]")), frozenset({PERCENTILES, ORDER}), ("between two neighbours",)
    ),
    "a percentile at q of m": Wrong(
        changed((PLACE, "place = min(q / 100 * len(values), len(values) - 1)"), (RESULT, "return values[low]")),
        OF_TTFT - {INPUTS},
        ("",),
    ),
    "a percentile at q of m, in proportion": Wrong(
        changed((PLACE, "place = min(q / 100 * len(values), len(values) - 1)")), OF_TTFT, ("not q/100 · m",)
    ),
    "a mean for the middle": Wrong(
        changed(('"ttft_p50_s": percentile(ttft, 50)', '"ttft_p50_s": mean(ttft)')), OF_TTFT, ("This is the mean",)
    ),
    "the longest wait for p90": Wrong(
        changed(("percentile(ttft, 90)", "max(ttft)")), frozenset({PERCENTILES, ORDER}), ("longest wait", "ttft_p90_s")
    ),
    "percentiles of whole times": Wrong(
        changed(("ttft.append(times[0] -", "ttft.append(times[-1] -")),
        frozenset({PERCENTILES, GOOD, EXACT, SINGLE, ALONE, ORDER, INPUTS}),
        ("percentile of the whole times",),
    ),
    "rates of the requests added up": Wrong(
        changed(
            ("tokens += len(times)", 'tokens += len(times) / (times[-1] - request["arrival_s"])'),
            (TOKENS, '"output_tokens_per_s": tokens'),
        ),
        OF_OUTPUT,
        ("added up", "output_tokens_per_s"),
    ),
    "the mean of the requests' rates": Wrong(
        changed(
            ("tokens += len(times)", 'tokens += len(times) / (times[-1] - request["arrival_s"])'),
            (TOKENS, '"output_tokens_per_s": tokens / len(requests)'),
        ),
        OF_OUTPUT,
        ("what a user sees, not what the server does",),
    ),
    "times of the requests added up": Wrong(
        changed(
            (
                TOKENS,
                '"output_tokens_per_s": tokens / sum(r["token_times_s"][-1] - r["arrival_s"] for r in requests)',
            )
        ),
        OF_OUTPUT,
        ("counts a second twice",),
    ),
    "from the first token to the last": Wrong(
        changed((BEGIN, 'begin = min(request["token_times_s"][0] for request in requests)')),
        OF_OUTPUT | {GOOD, EXACT, ALONE},
        ("begins with the first arrival",),
    ),
    "the first token is not counted": Wrong(
        changed(("tokens += len(times)", "tokens += len(own)")), OF_OUTPUT | {ALONE}, ("is a new token, too",)
    ),
    "requests per second for tokens per second": Wrong(
        changed((TOKENS, '"output_tokens_per_s": len(requests) / seconds')),
        (OF_OUTPUT | {ALONE}),
        ("These are requests per second",),
    ),
    "the last of the list ends last": Wrong(
        changed((END, 'end = requests[-1]["token_times_s"][-1]')), frozenset({ORDER}), ("need not end last",)
    ),
    "the first of the list begins first": Wrong(
        changed((BEGIN, 'begin = requests[0]["arrival_s"]')), frozenset({ORDER}), ("nor the first arrive first",)
    ),
    "goodput as a share": Wrong(
        changed((PER_SECOND, '"good_requests_per_s": good / len(requests)')), OF_GOOD | {ALONE}, ("This is a share",)
    ),
    "goodput as a count": Wrong(
        changed((PER_SECOND, '"good_requests_per_s": good')), OF_GOOD | {ALONE}, ("This is a number of requests",)
    ),
    "goodput in tokens": Wrong(
        changed(
            (
                "good = sum(",
                'good = sum(len(r["token_times_s"]) * (',
            ),
            (
                "<= tpot_target_s) for a, b in zip(ttft, tpot))",
                "<= tpot_target_s)) for r, a, b in zip(requests, ttft, tpot))",
            ),
        ),
        OF_GOOD | {ALONE},
        ("The tokens of good requests",),
    ),
    "a target that is met exactly is missed": Wrong(
        changed((CRITERION, CRITERION.replace("<=", "<"))), frozenset({EXACT}), ("met exactly is met",)
    ),
    "one of the targets is enough": Wrong(
        changed((CRITERION, CRITERION.replace(" and ", " or "))), OF_GOOD, ("meet both",)
    ),
    "only TTFT counts": Wrong(changed((CRITERION, "a <= ttft_target_s")), OF_GOOD, ("Only the target for TTFT",)),
    "only TPOT counts": Wrong(
        changed((CRITERION, "(b is None or b <= tpot_target_s)")), OF_GOOD, ("Only the target for TPOT",)
    ),
    "every gap has to meet the target": Wrong(
        changed(
            ("[], [], [], 0", "[], [], [], 0\n        worst = []"),
            (OWN, "tpot.append(mean(own)); worst.append(max(own, default=0))"),
            ("zip(ttft, tpot)", "zip(ttft, worst)"),
        ),
        OF_GOOD,
        ("Every single gap",),
    ),
    "all requests count": Wrong(
        changed((PER_SECOND, '"good_requests_per_s": len(requests) / seconds')), OF_GOOD, ("All requests were",)
    ),
    "milliseconds": Wrong(
        changed((MEAN_ITL, MEAN_ITL + " and 1000 * mean(gaps)")), frozenset({ITL, SINGLE, ALONE}), ("in milliseconds",)
    ),
    "another name": Wrong(
        changed(('"good_requests_per_s"', '"goodput"')), OF_GOOD | {ALONE}, ("There is no “good_requests_per_s”",)
    ),
    "the requests are sorted where they lie": Wrong(
        changed(
            (
                "        for request in requests:\n",
                '        requests.sort(key=lambda r: -r["arrival_s"])\n        for request in requests:\n',
            )
        ),
        frozenset({INPUTS}),
        ("changed the requests",),
    ),
    "the times are used up": Wrong(
        changed(("tokens += len(times)", "tokens += len(times)\n            del times[:-1]")),
        frozenset({INPUTS}),
        ("changed the requests",),
    ),
    "a list of figures": Wrong(
        changed(
            ("return {\n", "return list({\n"), ("good / seconds,\n        }", "good / seconds,\n        }.values())")
        ),
        ALL,
        ("in a dictionary, by name", "a list of 6"),
    ),
    "return forgotten": Wrong(changed(("return {\n", "result = {\n")), ALL, ("Did you forget `return`?",)),
}
