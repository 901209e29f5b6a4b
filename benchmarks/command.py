"""What the benchmarks share as commands: their options, and how they report.

The one idea: a case is a dictionary of figures. A table shows some of them, and the JSON file has them all.
"""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from rich.console import Console
from rich.table import Table


def options(description: str | None, cases: Collection[str], most_new_tokens: int) -> argparse.Namespace:
    """json, rounds, new_tokens, threads and case, from the command line. threads is None unless it says how many."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output, without a table")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, help="for all cases")
    parser.add_argument("--case", nargs="+", choices=cases, default=list(cases), metavar="NAME", help=", ".join(cases))
    chosen = parser.parse_args()
    if chosen.rounds < 1 or chosen.new_tokens < 2 or (chosen.threads is not None and chosen.threads < 1):
        parser.error("--rounds and --threads must be at least 1, --new-tokens at least 2")
    if chosen.new_tokens > most_new_tokens:
        parser.error(f"--new-tokens must be at most {most_new_tokens}: the models know no more positions")
    return chosen


def report(cases: Sequence[dict[str, Any]], tables: Sequence[Table], file: str | None) -> None:
    """Print the tables, unless `file` is -, and write the cases there."""
    text = json.dumps({"torch": torch.__version__, "cases": cases}, indent=2) + "\n"
    if file == "-":
        sys.stdout.write(text)
        return
    for table in tables:
        Console().print(table)
    if file:
        Path(file).write_text(text)


def run(main: Callable[[], None]) -> NoReturn:
    """Run a benchmark and leave with its exit status; Ctrl-C ends it without a traceback."""
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)
