"""Solutions of ex02.prompt_rate: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_prompt_rate import CASES

LONE, SAME, DIFFERENT = CASES
ALL = frozenset(CASES)

FOUND = """
    def prompt_rate(machine, prompts):
        start = machine.now()
        machine.prefill(prompts)
        seconds = machine.now() - start
        return len(prompts) / seconds
    """
RETURNED = "return len(prompts) / seconds"
PLAIN = changed_in(FOUND, (RETURNED, "return sum(len(prompt) for prompt in prompts) / seconds"))


def found(instead: str) -> str:
    """The benchmark with another last line."""
    return changed_in(FOUND, (RETURNED, instead))


RIGHT = {
    "a line mended": PLAIN,
    "the tokens in one list": found(
        "return len([token for prompt in prompts for token in prompt]) / seconds",
    ),
    "NumPy": """
        import numpy as np
        def prompt_rate(machine, prompts):
            lengths = np.array([len(prompt) for prompt in prompts])
            before = machine.now()
            machine.prefill(prompts)
            return lengths.sum() / (machine.now() - before)
        """,
    "the mean length, many times": """
        from statistics import fmean
        def prompt_rate(machine, prompts):
            tokens = fmean(map(len, prompts)) * len(prompts)
            times = []
            for _ in range(3):
                start = machine.now()
                machine.prefill(prompts)
                times.append(machine.now() - start)
            return tokens / min(times)
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, ALL, ("prompts per second",)),
    "all prompts as long as the first": Wrong(
        found("return len(prompts) * len(prompts[0]) / seconds"), frozenset({DIFFERENT}), ("of different lengths",)
    ),
    "all prompts as long as the longest": Wrong(
        found("return len(prompts) * max(map(len, prompts)) / seconds"),
        frozenset({DIFFERENT}),
        ("of different lengths",),
    ),
    "the tokens of one prompt": Wrong(
        found("return len(prompts[0]) / seconds"), ALL - {LONE}, ("tokens of one prompt",)
    ),
    "the mean over prompts": Wrong(
        found("return sum(map(len, prompts)) / len(prompts) / seconds"), ALL - {LONE}, ("",)
    ),
    "passes per second": Wrong(found("return 1 / seconds"), ALL, ("per second. The name says tokens",)),
    "different tokens": Wrong(
        found("return len({token for prompt in prompts for token in prompt}) / seconds"), ALL, ("",)
    ),
    "seconds per token": Wrong(found("return seconds / sum(map(len, prompts))"), ALL, ("turned round",)),
    "tokens per millisecond": Wrong(
        found("return sum(map(len, prompts)) / (1000 * seconds)"), ALL, ("per millisecond",)
    ),
    "a number of tokens": Wrong(found("return sum(map(len, prompts))"), ALL, ("how many were read, divided by",)),
    "a pass for each prompt": Wrong(
        changed_in(PLAIN, ("machine.prefill(prompts)", "[machine.prefill([prompt]) for prompt in prompts]")),
        ALL - {LONE},
        ("prompt tokens per second",),
    ),
    "the clock is started too late": Wrong(
        changed_in(
            PLAIN,
            (
                "        start = machine.now()\n        machine.prefill(prompts)\n",
                "        machine.prefill(prompts)\n        start = machine.now()\n",
            ),
        ),
        ALL,
        ("raised an error", "ZeroDivisionError"),
    ),
    "return forgotten": Wrong(found("len(prompts) / seconds"), ALL, ("prompt_rate returned None",)),
}
