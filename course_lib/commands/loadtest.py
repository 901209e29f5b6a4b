"""`course loadtest`: sends requests to a server and says how long they waited, and what went wrong.

The one idea: a number stands beside what it rests on: how many requests, who counted the tokens, which requests are not
in it and why, and what a client cannot see. The work is done by `course_lib.serving.loadtest`; here are the words.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from course_lib.commands.output import (
    BAD_CALL,
    DONE,
    STOPPED,
    WRONG,
    CommandError,
    add_lists,
    check_target,
    deliver,
    program,
    say,
    write_whole,
)  # fmt: skip
from course_lib.commands.places import at_home

if TYPE_CHECKING:  # torch takes a second to import: it is imported when it is needed
    from course_lib.serving import Arrival
    from course_lib.serving.arrivals import ClosedLoop
    from course_lib.serving.load_metrics import Percentiles, Summary, Targets
    from course_lib.serving.loadtest import Report

FORMATS = (".png", ".svg")
MOST_DRAWN = 24  # requests in a figure: more rows cannot be read
LATE_S = 0.05  # if questions leave later than that, a reader should know why
PROMPT_TOKENS, NEW_TOKENS, AT_ONCE = 64, 32, 4
COUNTED = {  # what `token_times.TokenTimes` calls it, and what that means
    "usage": "counted by the server, one in each piece of text",
    "usage and tokenizer": "counted by the server, laid out by the tokenizer",
    "usage and lengths": "counted by the server, laid out by the lengths of pieces: gaps are estimates",
    "tokenizer": "counted by the tokenizer: the server did not say",
    "pieces": "taken to be the pieces of text: the server did not say, there may be more",
}


@dataclass(frozen=True)
class Question:
    """What `course loadtest` was asked."""

    url: str
    model: str
    arrivals: str
    rate: float | None
    requests: int
    concurrency: int | None
    prompt_tokens: int | None
    new_tokens: int | None
    seed: int
    ttft_target: float | None
    tpot_target: float | None
    timeout: float
    completions: bool
    tokenizer: str | None
    api_key_env: str | None
    figure: str | None


def load_test(question: Question, json_target: str | None) -> int:
    """Measure a server and print what came of it; the exit status."""
    check_target(json_target)
    check_figure(question.figure)
    from course_lib.serving.load_metrics import Targets
    from course_lib.serving.loadtest import CannotMeasure, Timeouts, measure

    try:
        targets = None
        if question.ttft_target is not None or question.tpot_target is not None:
            targets = Targets(question.ttft_target, question.tpot_target)
        arrivals = arrivals_of(question)
        limits = Timeouts(min(10.0, question.timeout), question.timeout, question.timeout)
        with progress(how_many(arrivals)) as on_progress:
            report = measure(
                question.url,
                question.model,
                arrivals,
                timeouts=limits,
                most_at_once=question.concurrency if question.arrivals not in ("closed", "bursts") else None,
                chat=not question.completions,
                api_key=api_key(question.api_key_env),
                count=counter(question.tokenizer),
                on_progress=on_progress,
            )
    except CannotMeasure as error:
        if error.unreachable:
            raise CommandError(str(error), f"is it running? {program()} serve starts one") from None
        raise CommandError(str(error), "check --url, --model and the key", BAD_CALL) from None
    except ValueError as error:
        raise CommandError(str(error), f"{program()} loadtest --help shows an example", BAD_CALL) from None
    if not report.log.requests:
        say("nothing was measured yet")
        return STOPPED
    try:
        deliver(report.as_dict(targets), table(report, targets), json_target)
    finally:
        if question.figure is not None:
            draw(report, Path(question.figure))
    if report.partial:
        return STOPPED
    return WRONG if report.faults else DONE


def arrivals_of(q: Question) -> "list[Arrival] | ClosedLoop":
    """Who comes when. Raises ValueError for what makes no sense, CommandError for a trace that is not there."""
    from course_lib.caches.contract import real
    from course_lib.serving.arrivals import ClosedLoop, bursts, poisson
    from course_lib.serving.loadtest import questions
    from course_lib.serving.trace import read_trace

    if q.arrivals not in ("poisson", "bursts", "closed"):
        if not Path(q.arrivals).is_file():
            kinds = "poisson, bursts, closed, or a trace file"
            raise CommandError(f"there is no kind of arrivals {q.arrivals}, and no such file", kinds, BAD_CALL)
        trace = read_trace(q.arrivals, q.requests, skip_empty=True)
        recorded_s = trace.rows[-1].time_s - trace.rows[0].time_s
        faster = 1.0
        if q.rate is not None and recorded_s > 0:
            faster = real(q.rate, "the rate", above=0) * recorded_s / (len(trace.rows) - 1)
        cut: dict[str, Any] = {"most_prompt": q.prompt_tokens, "most_new": q.new_tokens}
        return trace.arrivals(1000, faster=faster, seed=q.seed, **cut)
    asked = questions(q.requests, q.prompt_tokens or PROMPT_TOKENS, q.new_tokens or NEW_TOKENS, q.seed)
    rate, at_once = real(1.0 if q.rate is None else q.rate, "the rate", above=0), q.concurrency or AT_ONCE
    if q.arrivals == "closed":
        return ClosedLoop(asked, at_once, 0.0, q.seed)
    return bursts(asked, at_once, at_once / rate) if q.arrivals == "bursts" else poisson(asked, rate, q.seed)


def how_many(arrivals: "list[Arrival] | ClosedLoop") -> int:
    return len(arrivals) if isinstance(arrivals, list) else len(arrivals.requests)


def api_key(variable: str | None) -> str | None:
    """The value of an environment variable: a key on the command line could be read by others on this machine."""
    if variable is None:
        return None
    if not (key := os.environ.get(variable, "").strip()):
        raise CommandError(f"the variable {variable} is not set", "put the key of the server into it", BAD_CALL)
    return key


def counter(place: str | None) -> Any:
    """A function that counts the tokens of a text: by a .gguf file, a Hugging Face folder or a model of the course."""
    if place is None:
        return None
    from course_lib.checkpoints import MODELS, CheckpointError, fetch
    from course_lib.checkpoints.folder_tokenizer import folder_tokenizer
    from course_lib.checkpoints.gguf_header import read_header
    from course_lib.checkpoints.gguf_tokenizer import gguf_tokenizer

    try:
        path = fetch(place) if place in MODELS else at_home(place)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    try:
        tokenizer = folder_tokenizer(path) if path.is_dir() else gguf_tokenizer(read_header(path))
    except CheckpointError as error:
        raise CommandError(str(error), "name smollm2, a .gguf file or a Hugging Face folder", BAD_CALL) from error
    if tokenizer is None:
        raise CommandError(
            f"{place} has no tokenizer", "name a folder with a tokenizer.json, or a .gguf file", BAD_CALL
        )
    return lambda text: len(tokenizer.encode(text, add_bos=False))


@contextmanager
def progress(total: int) -> Iterator[Any]:
    """A bar on the terminal; what this gives is told how many requests have ended, and how many went wrong."""
    console = Console(stderr=True)
    columns = (BarColumn(24), MofNCompleteColumn(), "answers", TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda ended, wrong: bar.update(task, completed=ended, description=f"{wrong} went wrong" if wrong else "")


def check_figure(target: str | None) -> None:
    if target is None:
        return
    if Path(target).suffix.lower() not in FORMATS:
        raise CommandError(f"a figure cannot be written as {target}", "name a .png or .svg file", BAD_CALL)
    check_target(target, "a figure", "name a file in a folder that exists")


def draw(report: "Report", target: Path) -> None:
    """The requests as bars: waiting until the first token, then decoding."""
    from io import BytesIO

    from course_lib.study.serving_figures import states

    names = [record.name for record in report.log.requests[:MOST_DRAWN]]
    figure = states(report.log, names=names)
    if target.suffix.lower() == ".png":
        data = figure.png()
    else:
        file = BytesIO()
        figure.savefig(file, format="svg")
        data = file.getvalue()
    write_whole(target, data)
    shown = "" if len(names) == len(report.log.requests) else f": the first {MOST_DRAWN} requests"
    say(f"{target}{shown}")


# --- What is printed


def table(report: "Report", targets: "Targets | None") -> Table:
    """All of a report that fits on a page."""
    from course_lib.serving.loadtest import NOT_MEASURED

    run, outer = report.summary(targets), Table.grid()
    if report.partial:
        outer.add_row(Text(f"Stopped: {run.arrived} of {report.planned} requests had come.", style="bold"))
        outer.add_row("")
    outer.add_row(waits(run))
    outer.add_row("")
    outer.add_row(rates(run))
    add_lists(outer, {"Went wrong": wrong(report), "What this rests on": basis(report), "Not measured": NOT_MEASURED})
    return outer


def waits(run: "Summary") -> Table:
    found = Table(box=None, pad_edge=False, header_style="bold")
    found.add_column("wait", no_wrap=True)
    for heading in ("p50", "p90", "p99", "largest"):
        found.add_column(heading, justify="right", no_wrap=True)
    found.add_column("unit", no_wrap=True)
    found.add_column("of", style="dim")

    def row(name: str, numbers: "Percentiles", factor: float, unit: str, of: str) -> None:
        values = (numbers.p50, numbers.p90, numbers.p99, numbers.largest)
        cells = ("-" if value is None else f"{factor * value:.{1 if unit == 'ms' else 2}f}" for value in values)
        found.add_row(name, *cells, unit, f"{numbers.samples:,} {of}")

    row("TTFT", run.ttft_s, 1e3, "ms", "answers, since they were due")
    row("ITL", run.itl_over_tokens_s, 1e3, "ms", "gaps between tokens")
    row("TPOT", run.tpot_over_requests_s, 1e3, "ms", "answers of two tokens or more")
    row("end to end", run.end_to_end_s, 1.0, "s", "answers")
    return found


def rates(run: "Summary") -> Table:
    found = Table.grid(padding=(0, 2, 0, 0))

    def row(name: str, value: float | None, unit: str, what: str = "") -> None:
        found.add_row(name, Text("-" if value is None else f"{value:,.2f}", justify="right"), unit, what)

    row("offered", run.offered_per_s, "requests/s", "while they came")
    row("finished", run.finished_per_s, "requests/s", f"{run.finished} of {run.arrived}, in {run.duration_s:.1f} s")
    row("new tokens", run.new_tokens_per_s, "tokens/s", "of all answers together")
    row("prompts", run.prompt_tokens_per_s, "tokens/s")
    if run.targets is not None:
        row("goodput", run.goodput_per_s, "requests/s", f"{run.met} of {run.arrived} within the targets")
    row("at once", run.in_system.mean, "requests", f"on average, {run.in_system.most:g} at most")
    return found


def wrong(report: "Report") -> list[str]:
    """Each way to go wrong with how often it happened, and in which words the first time."""
    lines = []
    for name, number in report.faults.most_common():
        first = next(each.name for each in report.asked if each.fault == name)
        why = report.log[first].why.removeprefix(name).removeprefix(": ")
        lines.append(f"{number} × {name}{f', such as: {why}' if why else ''}")
    if report.partial:
        under_way = sum(record.outcome == "" for record in report.log.requests)
        lines += [f"{under_way} were under way when it was stopped, and count for nothing"] if under_way else []
    return lines


def basis(report: "Report") -> list[str]:
    """Who counted the tokens, and how punctual the questions were."""
    good = [each for each in report.asked if each.counted_by]
    lines = [f"tokens of {number} answers: {COUNTED[name]}" for name, number in report.counted_by.most_common()]
    several = sum(each.pieces_with_several for each in good)
    if several:
        lines.append(f"{several} of {sum(each.pieces for each in good)} pieces held more than one token: gaps of 0 ms")
    hidden = sum(each.hidden for each in good)
    if hidden:
        lines.append(f"{hidden:,} tokens of thinking were counted by the server and not sent: they are in no number")
    planned = sum(not each.prompt_counted for each in good)
    if planned:
        lines.append(f"prompt tokens of {planned} answers: as many as were to be sent, for the server did not say")
    late_s = max((each.late_s for each in report.asked), default=0.0)
    busy = " (this program was busy, or --concurrency made them wait)" if late_s > LATE_S else ""
    lines.append(f"questions left here up to {1e3 * late_s:.0f} ms after they were due{busy}: that is in their TTFT")
    if report.warm_up:
        lines.append(f"the request before the run went wrong: {report.warm_up}")
    return lines
