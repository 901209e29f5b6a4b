"""Solutions of ex02.metrics: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_metrics import CASES

TTFT, ITL, TPOT, WHOLE, PREFILL, DECODE, OUTPUT, ONE, TOGETHER, INPUTS = CASES
ALL = frozenset(CASES)
UNDEFINED = frozenset({ONE, TOGETHER})  # logs of which all figures are judged

PLAIN = """
    from itertools import pairwise
    def metrics(arrival_s, token_times_s, prompt_tokens):
        N = len(token_times_s)
        ttft_s = token_times_s[0] - arrival_s
        end_to_end_s = token_times_s[-1] - arrival_s
        decode_s = end_to_end_s - ttft_s
        itl_s = [later - earlier for earlier, later in pairwise(token_times_s)]
        tpot_s = decode_s / (N - 1) if N > 1 else None
        prefill = prompt_tokens / ttft_s if ttft_s > 0 else None
        decode = (N - 1) / decode_s if decode_s > 0 else None
        output = N / end_to_end_s if end_to_end_s > 0 else None
        return {
            "ttft_s": ttft_s,
            "itl_s": itl_s,
            "tpot_s": tpot_s,
            "end_to_end_s": end_to_end_s,
            "prefill_tokens_per_s": prefill,
            "decode_tokens_per_s": decode,
            "output_tokens_per_s": output,
        }
    """

RIGHT = {
    "gaps of neighbours": PLAIN,
    "NumPy": """
        import numpy as np
        def metrics(arrival_s, token_times_s, prompt_tokens):
            since = np.array(token_times_s) - arrival_s
            gaps = np.diff(since)
            alone, at_once = len(gaps) == 0, gaps.sum() == 0
            return {
                "ttft_s": since[0],
                "itl_s": gaps,
                "tpot_s": None if alone else gaps.mean(),
                "end_to_end_s": since[-1],
                "prefill_tokens_per_s": prompt_tokens / since[0],
                "decode_tokens_per_s": None if at_once else len(gaps) / gaps.sum(),
                "output_tokens_per_s": len(since) / since[-1],
            }
        """,
    "torch": """
        import torch
        def metrics(arrival_s, token_times_s, prompt_tokens):
            times = torch.tensor([arrival_s, *token_times_s], dtype=torch.float64)
            waits = times.diff()
            first, gaps = waits[0], waits[1:]
            rate = lambda count, seconds: count / seconds if seconds > 0 else None
            return dict(
                ttft_s=first, itl_s=gaps, tpot_s=gaps.mean() if len(gaps) else None, end_to_end_s=waits.sum(),
                prefill_tokens_per_s=rate(prompt_tokens, first), decode_tokens_per_s=rate(len(gaps), gaps.sum()),
                output_tokens_per_s=rate(len(waits), waits.sum()),
            )
        """,
    "one loop, as the tokens come": """
        def metrics(arrival_s, token_times_s, prompt_tokens):
            result = {"itl_s": []}
            latest = arrival_s
            for token, time_s in enumerate(token_times_s):
                if token == 0:
                    result["ttft_s"] = time_s - latest
                else:
                    result["itl_s"].append(time_s - latest)
                latest = time_s
            result["end_to_end_s"] = latest - arrival_s
            result["tpot_s"] = result["decode_tokens_per_s"] = None
            if result["itl_s"]:
                result["tpot_s"] = sum(result["itl_s"]) / len(result["itl_s"])
            if result["tpot_s"]:
                result["decode_tokens_per_s"] = 1 / result["tpot_s"]
            result["prefill_tokens_per_s"] = prompt_tokens / result["ttft_s"]
            result["output_tokens_per_s"] = (token + 1) / result["end_to_end_s"]
            return result
        """,
    "fractions": """
        from fractions import Fraction
        def metrics(arrival_s, token_times_s, prompt_tokens):
            arrival, *times = map(Fraction, (arrival_s, *token_times_s))
            first, last, gaps = times[0], times[-1], len(times) - 1
            def over(a, b):
                try:
                    return float(a / b)
                except ZeroDivisionError:
                    return None
            return {
                "output_tokens_per_s": over(gaps + 1, last - arrival),
                "decode_tokens_per_s": over(Fraction(gaps), last - first),
                "prefill_tokens_per_s": over(Fraction(prompt_tokens), first - arrival),
                "end_to_end_s": float(last - arrival),
                "tpot_s": over(last - first, gaps),
                "itl_s": tuple(float(times[i + 1] - times[i]) for i in range(gaps)),
                "ttft_s": float(first - arrival),
                "more": "than asked",
            }
        """,
    "a dictionary with defaults, fractions as they are": """
        from collections import defaultdict
        from fractions import Fraction
        def metrics(arrival_s, token_times_s, prompt_tokens):
            arrival, *times = map(Fraction, (arrival_s, *token_times_s))
            N, decode_s = len(times), times[-1] - times[0]
            found = defaultdict(lambda: None, ttft_s=times[0] - arrival, end_to_end_s=times[-1] - arrival)
            found["itl_s"] = [later - earlier for earlier, later in zip(times, times[1:])]
            found["prefill_tokens_per_s"] = prompt_tokens / found["ttft_s"]
            found["output_tokens_per_s"] = N / found["end_to_end_s"]
            found["tpot_s"] = decode_s / (N - 1) if N > 1 else found["no gap"]
            found["decode_tokens_per_s"] = (N - 1) / decode_s if decode_s else found["no time"]
            return found
        """,
    "an ordered dictionary of decimals": """
        from collections import OrderedDict
        from decimal import Decimal
        def metrics(arrival_s, token_times_s, prompt_tokens):
            since = [Decimal(time_s) - Decimal(arrival_s) for time_s in token_times_s]
            gaps = [since[i] - since[i - 1] for i in range(1, len(since))]
            return OrderedDict([
                ("output_tokens_per_s", len(since) / since[-1]),
                ("decode_tokens_per_s", len(gaps) / sum(gaps) if any(gaps) else None),
                ("prefill_tokens_per_s", prompt_tokens / since[0]),
                ("end_to_end_s", since[-1]),
                ("tpot_s", sum(gaps) / len(gaps) if gaps else None),
                ("itl_s", gaps),
                ("ttft_s", since[0]),
            ])
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


FIRST = "ttft_s = token_times_s[0] - arrival_s"
LAST = "end_to_end_s = token_times_s[-1] - arrival_s"
AFTER = "decode_s = end_to_end_s - ttft_s"
GAPS = "itl_s = [later - earlier for earlier, later in pairwise(token_times_s)]"
PER_TOKEN = "tpot_s = decode_s / (N - 1) if N > 1 else None"
READING = "prefill = prompt_tokens / ttft_s if ttft_s > 0 else None"
DECODING = "decode = (N - 1) / decode_s if decode_s > 0 else None"
ALL_IN_ALL = "output = N / end_to_end_s if end_to_end_s > 0 else None"

WRONG = {
    "TTFT among the gaps": Wrong(
        changed((GAPS, GAPS.replace("pairwise(token", "pairwise([arrival_s, *token").replace("_s)]", "_s])]"))),
        UNDEFINED | {ITL, INPUTS},
        ("wait for the first token is among the gaps", "itl_s"),
    ),
    "TTFT among the gaps and in their mean": Wrong(
        changed(
            (GAPS, "itl_s = [later - earlier for earlier, later in pairwise([arrival_s, *token_times_s])]"),
            (PER_TOKEN, "tpot_s = sum(itl_s) / len(itl_s)"),
        ),
        UNDEFINED | {ITL, TPOT, INPUTS},
        ("among the gaps",),
    ),
    "the whole time divided by all tokens": Wrong(
        changed((PER_TOKEN, "tpot_s = end_to_end_s / N")),
        UNDEFINED | {TPOT},
        ("was divided by all tokens", "tpot_s"),
    ),
    "the whole time divided by the gaps": Wrong(
        changed((PER_TOKEN, PER_TOKEN.replace("decode_s", "end_to_end_s"))),
        frozenset({TPOT, TOGETHER}),
        ("wait for the first token went into it",),
    ),
    "the gaps divided by the tokens": Wrong(
        changed((PER_TOKEN, "tpot_s = decode_s / N")),
        frozenset({TPOT, ONE, TOGETHER}),
        ("N - 1 gaps between N tokens",),
    ),
    "0 for the TPOT of one token": Wrong(
        changed((PER_TOKEN, "tpot_s = decode_s / max(N - 1, 1)")),
        frozenset({ONE}),
        ("undefined: None, not 0", "tpot_s"),
    ),
    "TTFT for the TPOT of one token": Wrong(
        changed((PER_TOKEN, PER_TOKEN.replace("None", "ttft_s"))), frozenset({ONE}), ("Nothing of the wait",)
    ),
    "a NaN for the TPOT of one token": Wrong(
        changed((PER_TOKEN, PER_TOKEN.replace("None", 'float("nan")'))), frozenset({ONE}), ("NaN", "is None")
    ),
    "one token divides by zero": Wrong(
        changed((PER_TOKEN, "tpot_s = decode_s / (N - 1)")), frozenset({ONE}), ("raised an error", "ZeroDivisionError")
    ),
    "tokens at one moment divide by zero": Wrong(
        changed((DECODING, "decode = (N - 1) / decode_s if N > 1 else None")),
        frozenset({TOGETHER}),
        ("ZeroDivisionError", "call 2 of 2"),
    ),
    "0 for a rate over no time": Wrong(
        changed((DECODING, DECODING.replace("None", "0.0"))),
        UNDEFINED,
        ("undefined: None, not 0", "decode_tokens_per_s"),
    ),
    "the first token counted in the rate of decoding": Wrong(
        changed((DECODING, DECODING.replace("(N - 1)", "N"))),
        frozenset({DECODE, TOGETHER}),
        ("there are N - 1 tokens",),
    ),
    "the rate of decoding over the whole time": Wrong(
        changed((DECODING, "decode = N / end_to_end_s")), UNDEFINED | {DECODE}, ("over the whole time",)
    ),
    "the rate of decoding over the whole time, without the first token": Wrong(
        changed((DECODING, "decode = (N - 1) / end_to_end_s if N > 1 else None")),
        frozenset({DECODE, TOGETHER}),
        ("wait for the first token went into the time",),
    ),
    "the rate over the whole without the first wait": Wrong(
        changed((ALL_IN_ALL, "output = N / decode_s if decode_s > 0 else None")),
        UNDEFINED | {OUTPUT},
        ("wait for the first token is missing in the time",),
    ),
    "the rate over the whole is that of decoding": Wrong(
        changed((ALL_IN_ALL, "output = decode")), UNDEFINED | {OUTPUT}, ("rate while decoding",)
    ),
    "prompt tokens are put out": Wrong(
        changed((ALL_IN_ALL, "output = (prompt_tokens + N) / end_to_end_s")), UNDEFINED | {OUTPUT}, ("not put out",)
    ),
    "requests per second for prompt tokens": Wrong(
        changed((READING, "prefill = 1 / ttft_s")), UNDEFINED | {PREFILL}, ("counts requests, not tokens",)
    ),
    "prompt tokens over the whole time": Wrong(
        changed((READING, "prefill = prompt_tokens / end_to_end_s")),
        frozenset({PREFILL, TOGETHER}),
        ("Decoding went into the time",),
    ),
    "new tokens in the rate of prefill": Wrong(
        changed((READING, "prefill = N / ttft_s")), UNDEFINED | {PREFILL}, ("New tokens were counted",)
    ),
    "TTFT is a reading of the clock": Wrong(
        changed((FIRST, "ttft_s = token_times_s[0]"), (AFTER, "decode_s = token_times_s[-1] - token_times_s[0]")),
        UNDEFINED | {TTFT, PREFILL},
        ("reading of the clock",),
    ),
    "everything begins with the first token": Wrong(
        changed((LAST, "end_to_end_s = token_times_s[-1] - token_times_s[0]"), (AFTER, "decode_s = end_to_end_s")),
        UNDEFINED | {WHOLE, OUTPUT},
        ("whole time begins when the request arrives",),
    ),
    "readings of the clock for gaps": Wrong(
        changed((GAPS, "itl_s = token_times_s[1:]")),
        frozenset({ITL, TOGETHER, INPUTS}),
        ("readings of the clock", "itl_s"),
    ),
    "times since the first token": Wrong(
        changed((GAPS, "itl_s = [t - token_times_s[0] for t in token_times_s[1:]]")),
        frozenset({ITL, INPUTS, TOGETHER}),
        ("since the first token",),
    ),
    "the last gap is left out": Wrong(
        changed((GAPS, GAPS.replace("(token_times_s)", "(token_times_s[:-1])"))),
        frozenset({ITL, TOGETHER, INPUTS}),
        ("The last gap is missing",),
    ),
    "earlier minus later": Wrong(
        changed((GAPS, GAPS.replace("later - earlier for", "earlier - later for"))),
        frozenset({ITL, TOGETHER, INPUTS}),
        ("sign turned round",),
    ),
    "milliseconds": Wrong(
        changed(('"ttft_s": ttft_s', '"ttft_s": 1000 * ttft_s')), UNDEFINED | {TTFT}, ("in milliseconds",)
    ),
    "seconds for a rate": Wrong(
        changed(('"decode_tokens_per_s": decode', '"decode_tokens_per_s": decode and 1 / decode')),
        frozenset({DECODE, TOGETHER}),
        ("turned round",),
    ),
    "TPOT is the middle gap": Wrong(
        changed((PER_TOKEN, "tpot_s = sorted(itl_s)[len(itl_s) // 2] if N > 1 else None")),
        frozenset({TPOT, TOGETHER}),
        ("",),
    ),
    "the mean gap as ITL": Wrong(
        changed(('"itl_s": itl_s', '"itl_s": tpot_s')), frozenset({ITL, ONE, TOGETHER, INPUTS}), ("list of numbers",)
    ),
    "another name": Wrong(
        changed(('"tpot_s": tpot_s', '"tpot": tpot_s')), UNDEFINED | {TPOT}, ("There is no “tpot_s”", "tpot")
    ),
    "rounded to whole tokens": Wrong(
        changed(('"prefill_tokens_per_s": prefill', '"prefill_tokens_per_s": round(prefill)')),
        UNDEFINED | {PREFILL},
        ("not what prefill_tokens_per_s means",),
    ),
    "the list of times is used up": Wrong(
        changed(("return {", "token_times_s.pop(0)\n        return {")),
        frozenset({INPUTS}),
        ("changed the list of times",),
    ),
    "a tuple of figures": Wrong(
        changed(("return {", "return list({"), ("output,\n        }", "output,\n        }.values())")),
        ALL,
        ("in a dictionary, by name", "a list of 7"),
    ),
    "return forgotten": Wrong(changed(("return {", "result = {")), ALL, ("Did you forget `return`?",)),
}
