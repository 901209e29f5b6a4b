"""Solutions of ex02.pass_time: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex02_pass_time import CASES

COLD, WARM, BUSY = CASES
ALL = frozenset(CASES)

FOUND = """
    def pass_time(machine):
        machine.launch()  # to warm up
        machine.wait()
        start = machine.now()
        machine.launch()
        stop = machine.now()
        machine.wait()
        return stop - start
    """
STOPPED = "        stop = machine.now()\n        machine.wait()\n"
PLAIN = changed_in(FOUND, (STOPPED, "        machine.wait()\n        stop = machine.now()\n"))


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


WARM_UP = "        machine.launch()  # to warm up\n        machine.wait()\n"
STARTED = "        start = machine.now()\n"

RIGHT = {
    "two lines exchanged": PLAIN,
    "no second name": changed_in(FOUND, (STOPPED, "        machine.wait()\n"), ("return stop", "return machine.now()")),
    "twice the same, the second counts": """
        def pass_time(machine):
            for _ in range(2):
                machine.wait()
                begin = machine.now()
                machine.launch()
                machine.wait()
                seconds = machine.now() - begin
            return seconds
        """,
    "a step that waits": """
        import numpy as np
        def pass_time(machine):
            readings = np.zeros(3)
            for number in range(3):
                machine.decode()
                readings[number] = machine.now()
            return np.diff(readings)[-1]
        """,
    "many, and the mean of all but the first": """
        def pass_time(machine, many=8):
            machine.decode()
            start = machine.now()
            for _ in range(many):
                machine.launch()
            machine.wait()
            return (machine.now() - start) / many
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, ALL, ("before the work is done", "hand a pass over")),
    "never waited for": Wrong(
        changed_in(FOUND, (STOPPED, "        stop = machine.now()\n")), ALL, ("before the work is done",)
    ),
    "the warm-up is timed": Wrong(
        changed((WARM_UP + STARTED, STARTED + WARM_UP)), ALL, ("The warm-up is in the time",)
    ),
    "no warm-up": Wrong(changed((WARM_UP, "")), frozenset({COLD, BUSY}), ("first one on this machine",)),
    "no warm-up, but waited for what was there": Wrong(
        changed((WARM_UP, "        machine.wait()\n")), frozenset({COLD}), ("first one on this machine",)
    ),
    "the warm-up is not waited for": Wrong(
        changed((WARM_UP, "        machine.launch()\n")), ALL, ("was not waited for", "what was left of it")
    ),
    "waits only, then warms up": Wrong(
        changed((WARM_UP, "        machine.wait()\n        machine.launch()\n")), ALL, ("was not waited for",)
    ),
    "a first pass that was not slow was no warm-up": Wrong(
        """
        def pass_time(machine):
            for _ in range(2):
                start = machine.now()
                machine.decode()
                seconds = machine.now() - start
                if seconds < 0.27:
                    break
            return seconds
        """,
        frozenset({BUSY}),
        ("that was there before",),
    ),
    "started after the work": Wrong(
        changed(
            (
                STARTED + "        machine.launch()\n        machine.wait()\n",
                "        machine.launch()\n        machine.wait()\n" + STARTED,
            )
        ),
        ALL,
        ("No work was timed",),
    ),
    "started before waiting": Wrong(
        changed((STARTED + "        machine.launch()\n", "        machine.launch()\n" + STARTED)),
        ALL,
        ("Only waiting was timed",),
    ),
    "two passes": Wrong(
        changed(("        machine.wait()\n        stop", "        machine.decode()\n        stop")),
        ALL,
        ("Two passes",),
    ),
    "a reading of the clock": Wrong(changed(("return stop - start", "return stop")), ALL, ("from handing it over",)),
    "a clock of another machine": Wrong(
        changed(
            ("        start = machine.now()\n", "        import time\n        start = time.perf_counter()\n"),
            ("stop = machine.now()", "stop = time.perf_counter()"),
        ),
        ALL,
        ("from handing it over until it was done",),
    ),
    "milliseconds": Wrong(changed(("return stop - start", "return 1000 * (stop - start)")), ALL, ("in milliseconds",)),
    "passes per second": Wrong(changed(("return stop - start", "return 1 / (stop - start)")), ALL, ("turned round",)),
    "the arguments of another benchmark": Wrong(
        changed(("def pass_time(machine)", "def pass_time(machine, repeats)")),
        ALL,
        ("The check calls pass_time(machine)",),
    ),
    "return forgotten": Wrong(changed(("return stop - start", "stop - start")), ALL, ("returned None",)),
}
