"""The commands for a real server: names, options and help, as `cli` has them for the others."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from course_lib.commands.app import Json

app = typer.Typer()


class FolderDtype(StrEnum):
    bf16 = "bf16"
    fp16 = "fp16"
    fp32 = "fp32"


@app.command()
def serve(
    port: Annotated[int, typer.Option(min=1, max=65535, metavar="N", help="Where to listen.")] = 8000,
    dtype: Annotated[FolderDtype, typer.Option(help="Of the weights of SmolLM2.")] = FolderDtype.bf16,
    continuous_batching: Annotated[
        bool,
        typer.Option("--continuous-batching/--no-continuous-batching", help="Serve many at once, from a paged cache."),
    ] = True,
    block_size: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens in a block of that cache.")] = 16,
    blocks: Annotated[int, typer.Option(min=1, metavar="N", help="How many blocks it has.")] = 256,
    folder: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", exists=True, file_okay=False, help="A Hugging Face folder.", show_default="SmolLM2's"
        ),
    ] = None,
) -> int:
    """Start a real serving engine, to measure it.

    It is the server of `transformers`, on this machine and for this machine only; no model hub is asked. The folder
    that it reads SmolLM2 from is made from the verified weights, once, in your cache folder. Needs
    `transformers[serving]`; if that is missing, a line says how to install it.

    Example: `course serve`, or `course serve --no-continuous-batching --port 8001`
    """
    from course_lib.commands.serve import serve as serve_model

    return serve_model(
        folder,
        dtype=dtype.value,
        port=port,
        continuous_batching=continuous_batching,
        block_size=block_size,
        blocks=blocks,
    )


@app.command()
def loadtest(
    url: Annotated[str, typer.Option(metavar="URL", help="Of the server.", show_default=False)],
    model: Annotated[str, typer.Option(metavar="NAME", help="What the server calls its model.", show_default=False)],
    arrivals: Annotated[
        str, typer.Option(metavar="KIND", help="poisson, bursts, closed, or a trace file.")
    ] = "poisson",
    rate: Annotated[
        float | None,
        typer.Option(metavar="X", help="Requests a second, on average.", show_default="1; of a trace: its own"),
    ] = None,
    requests: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 20,
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Users (closed), requests in a burst, or the most at once.",
            show_default="4, 4, no limit",
        ),
    ] = None,
    prompt_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Words of a prompt; of a trace: the most.", show_default="64; no limit"),
    ] = None,
    new_tokens: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The most in an answer.", show_default="32; of a trace: its own"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of arrivals and prompts.")] = 0,
    ttft_target: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For goodput: TTFT at most.", show_default=False)
    ] = None,
    tpot_target: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="For goodput: TPOT at most.", show_default=False)
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="The longest wait for one answer.")] = 120,
    completions: Annotated[bool, typer.Option("--completions", help="Plain completions instead of chat.")] = False,
    tokenizer: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="smollm2, a .gguf file or a folder, to count.", show_default=False),
    ] = None,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="The variable that holds the API key.", show_default=False)
    ] = None,
    figure: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw the requests: .png or .svg.", show_default=False)
    ] = None,
    json: Json = None,
) -> int:
    """Measure a server: how long requests wait, and how much gets done.

    Any OpenAI-compatible server that streams will do. A request's clock begins when it was to come; with poisson,
    bursts and traces nobody waits for an answer before asking. Refusals, timeouts and broken answers are counted by
    name and are in no other number. Ctrl-C stops and shows what was measured so far.

    The exit status is 1 if a request went wrong, or if nobody answers at that address.

    Example: `course loadtest --url http://127.0.0.1:8000 --model NAME`, or
    `course loadtest --url http://127.0.0.1:8000 --model NAME --arrivals closed --concurrency 8 --figure run.png`
    """
    from course_lib.commands.loadtest import Question, load_test

    return load_test(
        Question(
            url, model, arrivals, rate, requests, concurrency, prompt_tokens, new_tokens, seed, ttft_target,
            tpot_target, timeout, completions, tokenizer, api_key_env, figure,
        ),
        json,
    )  # fmt: skip
