"""Runs a learner's `step_time` on machines on which time is simulated, and writes down what it reports.

The one idea: that of `machine`, where the work is done.
"""

from course_lib.checks.runs.machine import run_benchmark as run

__all__ = ["run"]
