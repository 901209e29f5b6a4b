"""`course generate`: lets a model continue a text, shows each word as it comes, then where the time went.

The one idea: what is seen first and what is seen next are different waits, so they stand in different rows. The work is
done by `course_lib.generation`; here are only the words around it.
"""

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from course_lib.commands.output import BAD_CALL, DONE, CommandError, check_target, deliver, program, say
from course_lib.commands.places import at_home

if TYPE_CHECKING:  # torch takes a second to import: it is imported when it is needed
    from course_lib.checkpoints import Checkpoint
    from course_lib.generation import Sampling
    from course_lib.metrics import Timing


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    text: str
    model: str
    cache: bool
    max_new_tokens: int
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int
    dtype: str
    device: str
    raw: bool
    json_target: str | None


def generate_text(request: Request) -> int:
    """Stream a continuation to standard output and print its timing; the exit status."""
    from course_lib.generation import stream
    from course_lib.metrics import Timing

    check_target(request.json_target)
    text = _read(request.text)
    sampling = _sampling(request)
    checkpoint = _load(request)
    prompt = _prompt(checkpoint, text, request)
    quiet = request.json_target == "-"
    tokenizer, pieces, tokens, times = checkpoint.tokenizer, [], [], []
    shown = tokenizer.stream()

    def show(piece: str) -> None:
        pieces.append(piece)
        if not quiet:
            sys.stdout.write(piece)
            sys.stdout.flush()

    try:
        for event in stream(
            checkpoint.model,
            prompt,
            max_new_tokens=request.max_new_tokens,
            sampling=sampling,
            stop_tokens=tokenizer.stop_tokens,
            use_cache=request.cache,
            seed=request.seed,
        ):
            tokens.append(event.token)
            times.append(event.time_s)
            show(shown.push(event.token))
        show(shown.flush() + "\n")
    except KeyboardInterrupt:
        show("\n")
        raise
    except (ValueError, RuntimeError, MemoryError) as error:
        show("\n" if tokens else "")
        raise CommandError(f"generating stopped: {error}", "try another --dtype, or fewer tokens") from error
    timing = Timing(0.0, tuple(times), len(prompt))
    data: dict[str, object] = {
        "model": checkpoint.name,
        "dtype": str(checkpoint.model.dtype).removeprefix("torch."),
        "device": checkpoint.model.device.type,
        "cache": request.cache,
        "temperature": request.temperature,
        "seed": request.seed,
        "text": "".join(pieces).removesuffix("\n"),
        "tokens": tokens,
        "stopped": tokens[-1] in tokenizer.stop_tokens,
        **timing.as_dict(),
    }
    deliver(data, timing_table(timing, request.cache), request.json_target)
    return DONE


def timing_table(timing: "Timing", cache: bool) -> Table:
    """What a reader waited for, each measure with its unit and the phase that it belongs to."""
    from course_lib.metrics import percentile

    def ms(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * 1e3:.1f}"

    def rate(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    gaps = timing.itl_s
    step = "one new token read" if cache else "the whole text read again"
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("measure", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    table.add_column("what it is", style="dim")
    table.add_row("TTFT", ms(timing.ttft_s), "ms", f"wait for the first token: {timing.prompt_tokens} tokens read")
    table.add_row("ITL, median", ms(percentile(gaps, 50) if gaps else None), "ms", f"gap to the next: {step}")
    table.add_row("ITL, largest", ms(max(gaps, default=None)), "ms", f"the longest of {len(gaps)} gaps")
    table.add_row("TPOT", ms(timing.tpot_s), "ms", "their mean")
    table.add_row("prefill", rate(timing.prefill_tokens_per_s), "tokens/s", "prompt tokens over TTFT")
    table.add_row("decode", rate(timing.decode_tokens_per_s), "tokens/s", "tokens after the first over their time")
    table.add_row("end to end", ms(timing.end_to_end_s), "ms", f"all {timing.new_tokens} new tokens")
    outer = Table.grid()
    outer.add_row("")
    outer.add_row(table)
    return outer


def _read(text: str) -> str:
    """The text to continue; "-" means standard input."""
    try:
        if text == "-":
            text = sys.stdin.buffer.read().decode().rstrip("\r\n")
        text.encode()
    except UnicodeError as error:
        raise CommandError(f"the text is not valid UTF-8: {error}", "save it as UTF-8", BAD_CALL) from error
    if not text.strip():
        example = f'{program()} generate "Hello"'
        raise CommandError("the text is empty", f"give the model something to answer: {example}", BAD_CALL)
    return text


def _sampling(request: Request) -> "Sampling":
    from course_lib.generation import Sampling

    try:
        sampling = Sampling(request.temperature, request.top_k, request.top_p)
    except ValueError as error:
        raise CommandError(str(error), f"{program()} generate --help shows an example", BAD_CALL) from error
    if request.seed >= 2**63:
        raise CommandError(f"a seed of {request.seed} is too large", "it has at most 63 bits", BAD_CALL)
    if request.temperature == 0 and (request.top_k is not None or request.top_p is not None):
        say("note: at temperature 0 the most likely token is always taken; --top-k and --top-p change nothing")
    return sampling


def _load(request: Request) -> "Checkpoint":
    import torch

    from course_lib.checkpoints import MODELS, CheckpointError, fetch, load

    if request.model not in MODELS and not at_home(request.model).exists():
        known = f"known are {', '.join(MODELS)}, a .gguf file, a Hugging Face folder"
        raise CommandError(f"there is no model {request.model}", known, BAD_CALL)
    if request.device == "cuda" and not torch.cuda.is_available():
        raise CommandError("torch sees no NVIDIA GPU here", "leave out --device cuda", BAD_CALL)
    try:
        if request.model in MODELS:
            fetch(request.model)  # by itself, since a download shows its own progress
        with Console(stderr=True).status(Text(f"loading {request.model} ...")):
            return load(request.model, getattr(torch, request.dtype), request.device)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CommandError(f"{request.model} needs more memory than is free", "try --dtype bfloat16") from error


def _prompt(checkpoint: "Checkpoint", text: str, request: Request) -> list[int]:
    """Token ids of the text, laid out as a chat unless it is to be taken raw; refused if the model cannot read them."""
    from course_lib.checkpoints import CheckpointError

    try:
        tokenizer = checkpoint.tokenizer
        prompt = tokenizer.encode(text) if request.raw else tokenizer.chat([{"role": "user", "content": text}])
    except CheckpointError as error:
        remedy = "" if request.raw else "--raw continues the text as it is"
        raise CommandError(str(error), remedy, BAD_CALL) from error
    if not prompt:
        raise CommandError(f"{checkpoint.name} makes no token of this text", "type another text", BAD_CALL)
    limit = checkpoint.model.config.max_positions
    room = limit - len(prompt) + 1  # the last new token is never read
    if room < 1:
        raise CommandError(
            f"the text has {len(prompt)} tokens, {checkpoint.name} reads at most {limit}", "shorten it", BAD_CALL
        )
    if request.max_new_tokens > room:
        raise CommandError(
            f"--max-new-tokens {request.max_new_tokens} is too much: {checkpoint.name} has {limit} positions, "
            f"the text takes {len(prompt)}",
            f"at most {room} fit",
            BAD_CALL,
        )
    return prompt
