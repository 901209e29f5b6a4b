"""Solutions of ex02.step_time: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_step_time import CASES

SEVERAL, ONE, WARM = CASES
ALL = frozenset(CASES)
COLD = ALL - {WARM}

FOUND = """
    def step_time(machine, repeats):
        times = []
        for _ in range(1 + repeats):  # one more, to warm up
            start = machine.now()
            machine.decode()
            times.append(machine.now() - start)
        return sum(times) / len(times)
    """
RETURNED = "return sum(times) / len(times)"


def found(instead: str, *pairs: tuple[str, str]) -> str:
    """The benchmark with another last line, and some text replaced."""
    return changed_in(FOUND, (RETURNED, instead), *pairs)


PLAIN = found("return sum(times[1:]) / len(times[1:])")

RIGHT = {
    "a line mended": PLAIN,
    "a step before": changed_in(FOUND, ("        times = []", "        machine.decode()\n        times = []")),
    "the steps timed together": """
        def step_time(machine, repeats):
            machine.decode()
            start = machine.now()
            for _ in range(repeats):
                machine.decode()
            return (machine.now() - start) / repeats
        """,
    "NumPy, handed over": """
        import numpy as np
        def step_time(machine, repeats):
            readings = []
            for _ in range(2 + repeats):
                machine.wait()
                readings.append(machine.now())
                machine.launch()
            return np.diff(readings)[1:].mean()
        """,
    "the warm-up is taken off the list": """
        from statistics import mean
        def step_time(machine, repeats):
            def timed():
                start = machine.now()
                machine.decode()
                return machine.now() - start
            warm_up, *times = [timed() for _ in range(1 + repeats)]
            return mean(times)
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, COLD, ("first step is still in the mean", "was not warm")),
    "left out of the sum only": Wrong(
        found("return sum(times[1:]) / len(times)"), ALL, ("still in the number of steps",)
    ),
    "left out of the number only": Wrong(found("return sum(times) / repeats"), ALL, ("still in the sum",)),
    "the last step is left out": Wrong(found("return sum(times[:-1]) / repeats"), COLD, ("one of the others is not",)),
    "one step fewer, the warm-up among them": Wrong(
        found(RETURNED, ("1 + repeats", "repeats")), COLD, ("one of the others is not",)
    ),
    "two steps are left out": Wrong(
        found("return sum(times[2:]) / len(times[2:])"), frozenset({ONE}), ("raised an error", "ZeroDivisionError")
    ),
    "the middle step": Wrong(
        found("return (sorted(times)[repeats // 2] + sorted(times)[(repeats + 1) // 2]) / 2"),
        frozenset({ONE}),
        ("first step is still in the mean",),
    ),
    "the longest step": Wrong(found("return max(times)"), COLD, ("first step alone",)),
    "the sum of the steps": Wrong(found("return sum(times[1:])"), ALL - {ONE}, ("not their mean",)),
    "one step fewer in the sum": Wrong(
        found("return sum(times[2:]) / repeats"), ALL, ("still in the number of steps",)
    ),
    "the warm-up on another machine": Wrong(
        changed_in(
            FOUND,
            ("        times = []", "        type(machine)().decode()\n        times = []"),
            ("1 + repeats", "repeats"),
        ),
        COLD,
        ("first step is still in the mean",),
    ),
    "a prompt to warm up": Wrong(
        changed_in(FOUND, ("        times = []", "        machine.prefill([[1]])\n        times = []")),
        COLD,
        ("first step is still in the mean",),
    ),
    "a warm-up that is not waited for": Wrong(
        changed_in(
            FOUND, ("        times = []", "        machine.launch()\n        times = []"), ("1 + repeats", "repeats")
        ),
        ALL,
        ("",),
    ),
    "steps per second": Wrong(found("return repeats / sum(times[1:])"), ALL, ("turned round", "seconds are asked")),
    "a list of times": Wrong(found("return times[1:]"), ALL, ("should be one number", "a list of")),
    "return forgotten": Wrong(found("sum(times[1:]) / repeats"), ALL, ("returned None",)),
}
