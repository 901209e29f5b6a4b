"""What it costs to grade a submission in the sandbox, against `nbgrader autograde`, and what several at once bring.

    python benchmarks/grading.py [--json FILE] [--submissions N] [--nbgrader N] [--jobs N ...]

The submissions are those of tests/mixed_submissions, over and over (without the doubled cell, at which nbgrader stops).
Each is graded here and by nbgrader, one right after the other, on one core; a first pair does not count. nbgrader runs
in this process, so that its start, about as long as a submission, is no part of it. Both must give the marks that the
submission is known to be worth, or nothing is reported.

* ratio_vs_nbgrader: our seconds over nbgrader's, the median over the pairs. Memory is what the processes that were
  started for a submission filled, all together and without their libraries, at the most. It is looked at as often and
  in the same manner in both ways: the sandbox does so itself.
* speedup: how many times as many submissions are done in the same time with N at once, on N cores, as one by one; half
  of all submissions in one way, then in the other, and again. speedup_of_the_machine is that of as many processes that
  only count: two hardware threads of one core are no two cores. share_of_linear is the one over the other.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:1] = [str(ROOT), str(ROOT / "tests")]  # not this folder: its cuda.py would hide the package `cuda`
os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))  # nbgrader calls alembic
os.environ |= {"OMP_NUM_THREADS": "1", "COURSE_GRADING_SEED": "benchmark"}

import nbformat  # noqa: E402
import psutil  # noqa: E402
from mixed_submissions import DOUBLED, MIXED, NAME, SOURCE  # noqa: E402
from nbgrader.api import Gradebook  # noqa: E402
from nbgrader.apps.api import NbGraderAPI  # noqa: E402
from nbgrader.coursedir import CourseDirectory  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from traitlets.config import Config  # noqa: E402

from course_lib.grading.assignment import read_assignment  # noqa: E402
from course_lib.grading.group import Room, mark_class  # noqa: E402
from course_lib.grading.handed_in import HandedIn  # noqa: E402
from course_lib.grading.mark import mark, rules_of  # noqa: E402
from course_lib.grading.sandbox import Sandbox  # noqa: E402
from course_lib.grading.session import SAMPLE_S, memory_of  # noqa: E402

KEY = b"a key of this benchmark"
ROUNDS = 2
ALL_CORES = sorted(os.sched_getaffinity(0))
COUNTING = "sum(range(30_000_000))"


@dataclass(frozen=True)
class Submission:
    student: str
    path: Path
    worth: float


@dataclass(frozen=True)
class Cost:
    seconds: float
    peak_bytes: int
    earned: float


@contextmanager
def watched() -> Iterator[list[int]]:
    """The bytes that all processes below this one together fill, again and again while the body runs."""
    seen, done = [0], threading.Event()

    def look() -> None:
        while not done.wait(SAMPLE_S):
            seen.append(sum(map(memory_of, psutil.Process().children(recursive=True))))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        done.set()
        thread.join()


class Course:
    """A course of nbgrader with ex03 in it, and what was handed in."""

    def __init__(self, root: Path) -> None:
        self.root, config = root, Config()
        config.CourseDirectory.root = str(root)
        config.Execute.extra_arguments = ["--log-level=40"]  # of the kernel, which warns at each start
        self.api = NbGraderAPI(CourseDirectory(config=config), config=config)
        self.api.log.setLevel("CRITICAL")
        shutil.copytree(SOURCE.parent, root / "source" / NAME)
        self.did(self.api.generate_assignment(NAME))

    @staticmethod
    def did(result: dict[str, Any]) -> None:
        if not result["success"]:
            raise RuntimeError(f"nbgrader did not do it: {result['error']}")

    def handed_in(self, count: int) -> list[Submission]:
        made = []
        for number, name in enumerate(islice(cycle(name for name in MIXED if name != DOUBLED), count)):
            student = re.sub(r"\W+", "-", f"{number:03} {name}")
            path = self.root / "submitted" / student / NAME / f"{NAME}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(MIXED[name].notebook(), path)
            made.append(Submission(student, path, sum(MIXED[name].earned.values())))
        return made

    def autograde(self, submission: Submission) -> Cost:
        start = time.perf_counter()
        with watched() as seen:
            self.did(self.api.autograde(NAME, submission.student))
        seconds = time.perf_counter() - start
        with Gradebook(self.api.coursedir.db_url) as book:
            return Cost(seconds, max(seen), book.find_submission(NAME, submission.student).score)


def grade(submission: Submission, sandbox: Sandbox) -> Cost:
    start = time.perf_counter()
    marks = mark(submission.path, read_assignment(SOURCE), KEY, sandbox=sandbox, name=submission.student)
    return Cost(time.perf_counter() - start, marks.peak_bytes, marks.earned)


def check(way: str, submission: Submission, earned: float) -> None:
    if earned != submission.worth:
        raise RuntimeError(f"{way} gives {submission.student} {earned:g} points, it is worth {submission.worth:g}")


def pairs(course: Course, submissions: Sequence[Submission]) -> list[tuple[Cost, Cost]]:
    """Each submission graded here and by nbgrader, on one core; after a pair that does not count."""
    found = []
    on_cores(1)
    with Sandbox(rules_of(read_assignment(SOURCE))) as sandbox:
        for submission in (submissions[0], *submissions):
            pair = grade(submission, sandbox), course.autograde(submission)
            check("the sandbox", submission, pair[0].earned)
            check("nbgrader", submission, pair[1].earned)
            found.append(pair)
    return found[1:]


def class_s(submissions: Sequence[Submission], jobs: int) -> float:
    """Seconds to grade all of them, so many at once on as many cores."""
    on_cores(jobs)
    assignment = read_assignment(SOURCE)
    handed_in = [HandedIn(each.student, each.path) for each in submissions]
    with Room(rules_of(assignment)) as room:
        start = time.perf_counter()
        with closing(mark_class(handed_in, assignment, KEY, room, jobs=jobs)) as marking:
            results = {result.handed_in.student: result for result in marking}
        seconds = time.perf_counter() - start
    for each in submissions:
        marks = results[each.student].marks
        check(f"{jobs} at once", each, marks.earned if marks else -1)
    return seconds


def counting_s(jobs: int) -> float:
    """Seconds until so many processes have counted, all at the same time, on as many cores."""
    on_cores(jobs)
    start = time.perf_counter()
    started = [subprocess.Popen([sys.executable, "-c", COUNTING]) for _ in range(jobs)]
    for process in started:
        process.wait()
    return time.perf_counter() - start


def on_cores(count: int) -> None:
    """This process, and what it starts from now on, runs on so many processors."""
    os.sched_setaffinity(0, ALL_CORES[:count])


def at_once(submissions: Sequence[Submission], all_jobs: Sequence[int]) -> list[dict[str, float]]:
    """For each number of jobs, 1 among them, the seconds of a submission and the speed-ups."""
    seconds: dict[int, list[float]] = {jobs: [] for jobs in all_jobs}
    counted: dict[int, list[float]] = {jobs: [] for jobs in all_jobs}
    for part in (submissions[number::ROUNDS] for number in range(ROUNDS)):
        for jobs in all_jobs:
            counted[jobs].append(counting_s(jobs))
            seconds[jobs].append(class_s(part, jobs))
    rows = []
    for jobs in all_jobs:
        speedup = sum(seconds[1]) / sum(seconds[jobs])
        possible = jobs * sum(counted[1]) / sum(counted[jobs])
        rows.append(
            {
                "jobs": jobs,
                "submission_s": sum(seconds[jobs]) / len(submissions),
                "speedup": speedup,
                "speedup_of_the_machine": possible,
                "share_of_linear": speedup / possible,
            }
        )
    return rows


def summary(found: Sequence[tuple[Cost, Cost]]) -> dict[str, float]:
    """The figures of the pairs, under the names of the JSON file."""
    figures: dict[str, float] = {"submissions": len(found)}
    for way, costs in zip(("sandbox", "nbgrader"), zip(*found)):
        figures[f"{way}_s"] = statistics.median(cost.seconds for cost in costs)
        figures[f"{way}_slowest_s"] = max(cost.seconds for cost in costs)
        figures[f"{way}_peak_bytes"] = statistics.median(cost.peak_bytes for cost in costs)
        figures[f"{way}_largest_peak_bytes"] = max(cost.peak_bytes for cost in costs)
    figures["ratio_vs_nbgrader"] = statistics.median(ours.seconds / theirs.seconds for ours, theirs in found)
    figures["memory_ratio_vs_nbgrader"] = statistics.median(a.peak_bytes / b.peak_bytes for a, b in found)
    return figures


def tables(report: dict[str, Any]) -> list[Table]:
    against, jobs = report["against_nbgrader"], report["at_once"]
    one = Table(title=f"A submission of ex03 on one core ({against['submissions']} in both ways)")
    for heading in ("", "sandbox", "nbgrader", "ratio", "goal"):
        one.add_column(heading, justify="right" if heading else "left")
    ratio = f"{against['ratio_vs_nbgrader']:.2f}"
    one.add_row("seconds, median", f"{against['sandbox_s']:.2f}", f"{against['nbgrader_s']:.2f}", ratio, "< 0.5")
    one.add_row(
        "seconds, slowest", f"{against['sandbox_slowest_s']:.2f}", f"{against['nbgrader_slowest_s']:.2f}", "", ""
    )
    for said, key in (("median", "peak_bytes"), ("largest", "largest_peak_bytes")):
        held = [f"{against[f'{way}_{key}'] / 1e6:.0f}" for way in ("sandbox", "nbgrader")]
        ratio = f"{against['memory_ratio_vs_nbgrader']:.2f}" if said == "median" else ""
        one.add_row(f"MB at the most, {said}", *held, ratio, "")
    two = Table(title=f"Several at once ({report['submissions']} submissions)")
    for heading in ("jobs", "s a submission", "speed-up", "the machine's", "share of linear"):
        two.add_column(heading, justify="right")
    for row in jobs:
        figures = (f"{row[key]:.2f}" for key in ("submission_s", "speedup", "speedup_of_the_machine"))
        two.add_row(f"{row['jobs']}", *figures, f"{row['share_of_linear']:.0%}")
    return [one, two]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output, without a table")
    parser.add_argument("--submissions", type=int, default=40)
    parser.add_argument("--nbgrader", type=int, metavar="N", help="how many of them are graded by nbgrader, too (all)")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2], metavar="N", help="at once (1 2)")
    options = parser.parse_args()
    both = options.submissions if options.nbgrader is None else options.nbgrader
    if options.submissions < ROUNDS or not 1 <= both <= options.submissions or min(options.jobs) < 1:
        parser.error(f"--submissions must be at least {ROUNDS}, --jobs at least 1, --nbgrader from 1 to --submissions")
    all_jobs = sorted({1, *options.jobs})
    if max(all_jobs) > len(ALL_CORES):
        parser.error(f"--jobs must be at most {len(ALL_CORES)}: there are no more processors")
    if why_not := Sandbox.why_not():
        parser.error(why_not)
    warnings.simplefilter("ignore")  # nbgrader's own, of its libraries
    with tempfile.TemporaryDirectory(prefix="course-benchmark-") as folder:
        course = Course(Path(folder))
        submissions = course.handed_in(options.submissions)
        print(f"grading {both} submissions in both ways …", file=sys.stderr, flush=True)
        against = summary(pairs(course, submissions[:both]))
        print(f"grading {len(submissions)} submissions with jobs {all_jobs} …", file=sys.stderr, flush=True)
        report = {
            "submissions": len(submissions),
            "against_nbgrader": against,
            "at_once": at_once(submissions, all_jobs),
        }
    if options.json != "-":
        for table in tables(report):
            Console().print(table)
    if options.json == "-":
        print(json.dumps(report, indent=2))
    elif options.json:
        Path(options.json).write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
