"""The `course` command: names, options and help. What a command does is in `course_lib.commands`, one module each.

The one idea: `course --help` answers at once, so a command imports what it needs when it is called.
"""

import sys

try:
    import os
    import signal
    from enum import StrEnum
    from pathlib import Path
    from typing import Annotated

    import typer

    from course_lib import __version__
    from course_lib.commands import for_authors, for_servers
    from course_lib.commands.app import Json, Notebooks, Timeout, WithExtra, app
    from course_lib.commands.output import DONE, STOPPED, check_target, program, say
except KeyboardInterrupt:  # nearly all of the time before a command begins
    print("stopped", file=sys.stderr)
    sys.exit(130)


class Dtype(StrEnum):
    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"
    float64 = "float64"


class Device(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


def main() -> None:
    """The console script."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # whoever started this closed it: nothing comes from there, and nobody reads
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a character shows another
            stream.reconfigure(errors="replace")
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP, and nohup has it ignored
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))  # and what must be tidied, is
    try:
        app(prog_name=program())
    except KeyboardInterrupt:  # before a command has begun, or after its end
        say("stopped")
        sys.exit(STOPPED)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"course {__version__}")
        raise typer.Exit


@app.callback()
def course(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(cls=WithExtra)
def lab(
    ctx: typer.Context,
    notebook: Annotated[
        str, typer.Argument(metavar="NOTEBOOK", help="A notebook or an exercise: its name, or how that begins.")
    ] = "00_start_here",
    edit: Annotated[bool, typer.Option("--edit", help="Open the originals, outputs and all.")] = False,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address only.")] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, metavar="N", help="Instead of the first free one.")
    ] = None,
    work: Annotated[
        Path | None, typer.Option(envvar="COURSE_WORK", show_default="work/", help="The folder of your copies.")
    ] = None,
) -> int:
    """Open your copies of the notebooks, or of the exercises, in JupyterLab.

    You work on copies, so that the course can be updated; they begin without outputs, so that no answer is given away.
    A copy that you wrote in is never replaced: if the course changed the notebook too, the new version is laid beside
    it (NAME.new-DATE.ipynb). A copy that you only ran is replaced by a new version; the one you ran is kept in
    work/.old. A copy that you deleted comes back.

    Example: `course lab 02` for notebook 02, `course lab ex03` for exercise 03, or
    `course lab --no-browser --port 8890 -- --ServerApp.log_level=INFO`
    """
    from course_lib.commands.lab import open_lab

    return open_lab(notebook, edit=edit, browser=not no_browser, port=port, work=work, extra=ctx.obj)


@app.command()
def doctor(json: Json = None) -> int:
    """Check this machine: versions, model, memory, kernel, tools.

    A problem stops the course, a warning does not. The exit status is 1 if there is a problem.

    Example: `course doctor`, or `course doctor --json -`
    """
    from course_lib.commands.doctor import examine

    check_target(json)
    return examine(json)


@app.command()
def fetch(model: Annotated[str, typer.Argument(help="Which model.")] = "smollm2") -> int:
    """Download the weights of a model once, and verify them.

    They go to your cache folder, or to the folder named in COURSE_CACHE.

    Example: `course fetch`
    """
    from course_lib.commands.fetch import fetch_weights

    return fetch_weights(model)


@app.command()
def generate(
    text: Annotated[str, typer.Argument(help="What to answer; - reads standard input.", show_default=False)],
    model: Annotated[
        str, typer.Option(metavar="NAME", help="smollm2, a .gguf file, or a Hugging Face folder.")
    ] = "smollm2",
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Keep keys and values, or read all again.")] = True,
    max_new_tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Stop after so many.")] = 100,
    temperature: Annotated[float, typer.Option(metavar="X", help="0 takes the most likely token.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(metavar="N", help="Draw from so many tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(metavar="X", help="Draw from the tokens that hold this share of probability.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the draws.")] = 0,
    dtype: Annotated[Dtype, typer.Option(help="Of weights and cache.")] = Dtype.float32,
    device: Annotated[Device, typer.Option(help="Where to compute.")] = Device.cpu,
    raw: Annotated[bool, typer.Option("--raw", help="Continue the text itself: no chat template.")] = False,
    json: Json = None,
) -> int:
    """Let a model answer, and see where the time goes.

    Example: `course generate "What is a key-value cache?" --no-cache --max-new-tokens 40`
    """
    from course_lib.commands.generate import Request, generate_text

    return generate_text(
        Request(
            text, model, cache, max_new_tokens, temperature, top_k, top_p, seed, dtype.value, device.value, raw, json
        )
    )


@app.command()
def run(notebooks: Notebooks = None, timeout: Timeout = 300, json: Json = None) -> int:
    """Execute notebooks from the top in fresh kernels.

    Each runs in an empty temporary folder; the files are not changed. Prints time, memory and what went wrong; the exit
    status is 1 if a notebook failed.

    Example: `course run`, or `course run 02 work/notebooks/03_the_kv_cache.ipynb --timeout 60`
    """
    from course_lib.commands.places import find_notebooks
    from course_lib.commands.run import run_notebooks

    check_target(json)
    return run_notebooks(find_notebooks(notebooks or []), timeout, json)


@app.command()
def size(
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="A model known by name.", show_default=False)
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Instead: a config.json, its folder, or a .gguf file.", show_default=False),
    ] = None,
    tokens: Annotated[int, typer.Option(min=0, metavar="N", help="Of each sequence.")] = 4096,
    sequences: Annotated[int, typer.Option(min=0, metavar="N", help="At the same time.")] = 1,
    dtype: Annotated[str, typer.Option(metavar="TYPE", help="Of the cache: fp32, bf16, fp8, q8_0, …")] = "bf16",
    value_dtype: Annotated[
        str | None, typer.Option(metavar="TYPE", help="Of the values alone.", show_default="as --dtype")
    ] = None,
    block: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in a block of a paged cache.")] = 1,
    tp: Annotated[int, typer.Option(min=1, metavar="N", help="Ranks that share the heads; bytes are of one.")] = 1,
    encoder_tokens: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of the encoder, for T5.", show_default=False)
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of a GPU (80GB, 80GiB): how many fit?", show_default=False)
    ] = None,
    weights: Annotated[str | None, typer.Option(metavar="SIZE", help="Of the model there.", show_default=False)] = None,
    reserve: Annotated[
        str | None, typer.Option(metavar="SIZE", help="To be kept free: 2GB, or 10%.", show_default=False)
    ] = None,
    list_models: Annotated[bool, typer.Option("--list", help="List the models known by name.")] = False,
    json: Json = None,
) -> int:
    """How many bytes does the KV cache of a model take?

    Prints a line for each kind of layer, the sum, what was assumed and what is left out; with --memory, how many
    sequences fit. GB is 10^9 bytes, GiB is 2^30.

    Example: `course size --model llama-3-8b --tokens 8192 --sequences 8`, or
    `course size --config config.json --memory 80GB --weights 16GB`
    """
    from course_lib.commands.size import Question, show_models
    from course_lib.commands.size import size as show_size

    if list_models:
        return show_models(json)
    return show_size(
        Question(
            model, config, tokens, sequences, dtype, value_dtype, block, tp, encoder_tokens, memory, weights, reserve
        ),
        json,
    )


app.add_typer(for_servers.app)  # no name: its commands stand beside those above
app.add_typer(for_authors.app)
progress_app = typer.Typer(rich_markup_mode="markdown", add_completion=False, pretty_exceptions_enable=False)
app.add_typer(progress_app, name="progress")


@progress_app.callback(invoke_without_command=True)
def progress(ctx: typer.Context, json: Json = None) -> int:
    """Show what you did in each notebook, and what is next.

    What you answered, predicted and passed lies in your data folder, or in the folder named in COURSE_DATA, in two
    files. If one is damaged, it is kept aside and made anew from the other.

    Example: `course progress`, or `course progress export progress.json`
    """
    from course_lib.commands.progress import show_map

    if ctx.invoked_subcommand is not None:
        return DONE
    check_target(json)
    return show_map(json)


@progress_app.command()
def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A new file; - is standard output.", show_default=False)],
) -> int:
    """Write all your progress to one JSON file, to keep or to move to another machine.

    Exercises are handed in as notebooks.

    Example: `course progress export progress.json`
    """
    from course_lib.commands.progress import export as export_progress

    return export_progress(file)


@progress_app.command(name="import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="An export; - reads standard input.", show_default=False)],
    with_resets: Annotated[
        bool, typer.Option("--with-resets", help="Even if a reset in it hides entries of yours.")
    ] = False,
) -> int:
    """Add the progress in an export to what is here.

    Nothing of yours is replaced, and importing twice is importing once. An export with a reset that would hide entries
    of yours is refused, unless you ask for its resets.

    Example: `course progress import progress.json`
    """
    from course_lib.commands.progress import take

    return take(file, with_resets)


@progress_app.command()
def reset(
    notebook: Annotated[
        str | None, typer.Argument(metavar="NOTEBOOK", help="Its name, or how that begins (03).", show_default="all")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the latest reset back.")] = False,
) -> int:
    """Begin a notebook again, or the whole course, with nothing answered.

    It asks first. What was recorded stays in the file and in exports, but nothing shows or counts it any more, until
    you undo the reset.

    Example: `course progress reset 03`, or `course progress reset 03 --undo`
    """
    from course_lib.commands.progress import reset as reset_progress

    return reset_progress(notebook, yes, undo)


if __name__ == "__main__":
    main()
