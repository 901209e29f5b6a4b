"""The last lines of a test run: the largest differences of logits that were measured, and what each broken library
was caught by.

The one idea: a test that passes within a tolerance should also say how near it came. Tests hand their figures to
pytest's `record_property`, which brings them here from every process of a parallel run.
"""

from collections.abc import Callable, Iterator

import pytest

DIFFERENCE, MUTANT = "largest difference of logits", "mutant"
Record = Callable[[str, object], None]  # what the fixture `record_property` gives


def report_difference(record: Record, what: str, dtype: object, difference: float) -> None:
    """Note how far apart two ways to the same logits were. `what` names the two."""
    record(DIFFERENCE, (what, str(dtype).removeprefix("torch."), difference))


def report_mutant(record: Record, *columns: str) -> None:
    """Note one row of the table of mutants; `MUTANT_COLUMNS` names the columns."""
    record(MUTANT, columns)


MUTANT_COLUMNS = ("bug", "seen by", "text", "loss", "logits off by")


def recorded(reporter: pytest.TerminalReporter, name: str) -> Iterator[tuple]:
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, []):
            yield from (tuple(value) for key, value in report.user_properties if key == name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    write = terminalreporter.write_line
    largest: dict[tuple[str, str], float] = {}
    for what, dtype, difference in recorded(terminalreporter, DIFFERENCE):
        largest[what, dtype] = max(largest.get((what, dtype), 0.0), difference)
    if largest:
        terminalreporter.section("largest difference of logits")
        for (what, dtype), difference in sorted(largest.items(), key=lambda item: (item[0][1], item[0][0])):
            write(f"{dtype:9} {what:58} {difference:.1e}")
    mutants = sorted(set(recorded(terminalreporter, MUTANT)), key=lambda row: (not row[0].startswith("row"), row))
    rows = [MUTANT_COLUMNS, *mutants]
    if len(rows) > 1:
        terminalreporter.section("broken libraries, and what saw it")
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            write("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
