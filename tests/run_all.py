"""Everything that is checked before a change is good: style, types, tests, notebooks. `python start.py test` runs this.

Every stage runs whatever became of the ones before, and a last line for each says how it ended. Words after the command
go to pytest over tests/ (and then the other stages run as well).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEEDED_FOR = {"chromium": "the tests in a browser", "bwrap": "the tests of the sandbox"}
# One more than the cores of a small machine, since many tests wait for a browser or a server. A file's tests stay
# together: nbval needs that.
PROCESSES = ["-n", "3", "--dist", "loadfile"]


def stages(pytest_arguments: list[str]) -> dict[str, list[str]]:
    """The command of each stage, by its name."""
    python = sys.executable
    found = {
        "ruff check": [python, "-m", "ruff", "check", "."],
        "ruff format": [python, "-m", "ruff", "format", "--check", "."],
        "mypy": [python, "-m", "mypy"],
        # Once, before two processes want it at the same time.
        "weights": [str(Path(python).with_name("course")), "fetch", "smollm2"],
        "pytest": [python, "-m", "pytest", *PROCESSES, *pytest_arguments],
    }
    if any((ROOT / "notebooks").glob("**/*.ipynb")):
        found["notebooks"] = [python, "-m", "pytest", "--nbval", "--nbval-current-env", *PROCESSES, "notebooks"]
    return found


def main(pytest_arguments: list[str]) -> int:
    for tool, what in NEEDED_FOR.items():
        if not shutil.which(tool):
            print(f"{tool} is not installed: {what} will be skipped", flush=True)
    threads = str(max(1, (os.cpu_count() or 2) // 2))  # several processes share the machine
    results: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="course-tests-") as data:  # nothing here touches anybody's answers
        environment = {"OMP_NUM_THREADS": threads, **os.environ, "COURSE_DATA": data}
        for name, command in stages(pytest_arguments).items():
            print(f"== {name}", flush=True)
            results[name] = subprocess.call(command, cwd=ROOT, env=environment)
    print()
    for name, status in results.items():
        print(f"{name:12}", "ok" if status == 0 else f"FAILED (exit status {status})")
    return int(any(results.values()))


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
