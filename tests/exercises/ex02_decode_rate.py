"""Solutions of ex02.decode_rate: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_decode_rate import CASES

SEVERAL, ONE, LONG = CASES
ALL = frozenset(CASES)

FOUND = """
    def decode_rate(machine, prompt, steps):
        start = machine.now()
        machine.prefill([prompt])
        for _ in range(steps):
            machine.decode()
        return steps / (machine.now() - start)
    """
STARTED = "        start = machine.now()\n        machine.prefill([prompt])\n"
PLAIN = changed_in(FOUND, (STARTED, "        machine.prefill([prompt])\n        start = machine.now()\n"))


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


RETURNED = "return steps / (machine.now() - start)"

RIGHT = {
    "a line moved": PLAIN,
    "the prefill is subtracted": changed_in(
        FOUND,
        ("        for _", "        reading = machine.now() - start\n        for _"),
        (RETURNED, "return steps / (machine.now() - start - reading)"),
    ),
    "each step is timed": """
        from statistics import fmean
        def decode_rate(machine, prompt, steps):
            machine.prefill([prompt])
            times = []
            while len(times) < steps:
                begin = machine.now()
                machine.decode()
                times.append(machine.now() - begin)
            return 1 / fmean(times)
        """,
    "steps are handed over, NumPy": """
        import numpy as np
        def decode_rate(machine, prompt, steps):
            machine.prefill([prompt])
            start = np.float64(machine.now())
            for _ in range(steps):
                machine.launch()
            machine.wait()
            return np.float64(steps) / (machine.now() - start)
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, ALL, ("prefill is still in the time", "start the clock after it")),
    "the tokens of the prompt are counted": Wrong(
        changed_in(FOUND, (RETURNED, RETURNED.replace("steps /", "(len(prompt) + steps) /"))),
        ALL,
        ("its tokens are not new ones",),
    ),
    "the tokens of the prompt are counted, though not timed": Wrong(
        changed((RETURNED, RETURNED.replace("steps /", "(len(prompt) + steps) /"))), ALL, ("Tokens of the prompt",)
    ),
    "the first step is timed, the others are not": Wrong(
        changed(
            (
                "            machine.decode()\n",
                "            machine.decode()\n            stop = stop or machine.now()\n",
            ),
            ("        start =", "        stop = 0\n        start ="),
            (RETURNED, "return 1 / (stop - start)"),
        ),
        frozenset({SEVERAL, LONG}),
        ("Only some of the steps",),
    ),
    "the last step is timed, the others are not": Wrong(
        changed(
            ("            machine.decode()\n", "            start = machine.now()\n            machine.decode()\n"),
            (RETURNED, RETURNED.replace("steps", "1")),
        ),
        frozenset({SEVERAL, LONG}),
        ("Only some of the steps",),
    ),
    "the middle one of the steps, in order of their times": Wrong(
        changed_in(RIGHT["each step is timed"], ("import fmean", "import median"), ("fmean(times)", "median(times)")),
        frozenset({SEVERAL, LONG}),
        ("rate of a typical step",),
    ),
    "a warm-up before the clock, on a machine that is warm": Wrong(
        changed(("        start =", "        machine.decode()\n        start =")),
        ALL,
        ("before the clock was started",),
    ),
    "the first step is a warm-up, though a token": Wrong(
        changed(("        start =", "        machine.decode()\n        start ="), ("range(steps)", "range(1, steps)")),
        ALL,
        ("counted all the same",),
    ),
    "the first step is a warm-up": Wrong(
        changed(
            ("        start =", "        machine.decode()\n        start ="),
            ("range(steps)", "range(1, steps)"),
            (RETURNED, "return (steps - 1) / (machine.now() - start) if steps > 1 else 0.0"),
        ),
        ALL,
        ("Only some of the steps",),
    ),
    "one token too many": Wrong(
        changed((RETURNED, RETURNED.replace("steps", "(steps + 1)"))), ALL, ("One token too many",)
    ),
    "one token too few": Wrong(
        changed((RETURNED, RETURNED.replace("steps", "(steps - 1)"))), ALL, ("One token too few",)
    ),
    "one token too few, but where there is only one": Wrong(
        changed((RETURNED, RETURNED.replace("steps", "max(steps - 1, 1)"))), ALL - {ONE}, ("One token too few",)
    ),
    "the prefill is timed, not the steps": Wrong(
        changed_in(
            FOUND,
            ("        for _", "        stop = machine.now()\n        for _"),
            (RETURNED, "return steps / (stop - start)"),
        ),
        ALL,
        ("rate of prefill",),
    ),
    "nothing is read": Wrong(
        changed(("        machine.prefill([prompt])\n", "")), ALL, ("divided by the time of these steps alone",)
    ),
    "only the end of a long prompt is read": Wrong(
        changed(("[prompt]", "[prompt[-100:]]")), frozenset({LONG}), ("divided by the time of these steps alone",)
    ),
    "seconds per token": Wrong(changed((RETURNED, "return (machine.now() - start) / steps")), ALL, ("turned round",)),
    "the work is not waited for": Wrong(
        changed(("machine.decode()", "machine.launch()")), ALL, ("divided by the time of these steps alone",)
    ),
    "return forgotten": Wrong(changed((RETURNED, "steps / (machine.now() - start)")), ALL, ("returned None",)),
}
