"""`course size`: how many bytes the KV cache of a model takes, what that rests on, and how many sequences then fit.

The one idea: the number never stands alone. Above it is one line for each kind of layer, below it what was assumed and
what is left out; with a memory, the subtraction that leads to the number of sequences.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from course_lib.commands.output import BAD_CALL, DONE, CommandError, add_lists, check_target, deliver, program
from course_lib.sizing import (
    CacheShape,
    Fit,
    Kind,
    SizingError,
    cache_shape,
    how_many_fit,
    in_words,
    left_out,
    model_names,
    parse_size,
    preset,
    read_config_file,
    short_words,
)
from course_lib.sizing.bytes import heads_on_a_rank
from course_lib.sizing.quantities import LARGEST_MEMORY, whole

MOST = {"tokens": 10**12, "sequences": 10**9, "block": 10**9, "tensor_parallel": 10**6}  # larger is a slip of the pen
MOST_ENCODER_TOKENS = 10**12
OF_TRANSFORMERS = {"fp64", "fp32", "bf16", "fp16"}  # what its dynamic cache can hold


@dataclass(frozen=True)
class Question:
    """What `course size` was asked: a model by name or by file, and everything that changes the answer."""

    model: str | None
    config: str | None
    tokens: int
    sequences: int
    dtype: str
    value_dtype: str | None
    block: int
    tensor_parallel: int
    encoder_tokens: int | None
    memory: str | None
    weights: str | None
    reserve: str | None


@dataclass(frozen=True)
class Answer:
    """The bytes of the cache, of one sequence, and how many sequences fit, if that was asked."""

    question: Question
    shape: CacheShape
    bytes: int
    per_sequence: int
    fit: Fit | None


def show_models(json_target: str | None) -> int:
    """Print the models that are known by name, with what a token of theirs keeps."""
    check_target(json_target)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("model", no_wrap=True)
    table.add_column("bytes per token, in bf16", justify="right")
    table.add_column("layers")
    rows: list[dict[str, object]] = []
    for name in model_names():
        shape = preset(name)
        kinds = ", ".join(f"{group.layers} {group.layer.kind}" for group in shape.groups)
        table.add_row(name, f"{shape.bytes_per_token():,}", kinds)
        rows.append({"model": name, "bytes_per_token": shape.bytes_per_token(), "layers": kinds})
    deliver({"models": rows}, table, json_target)
    return DONE


def size(question: Question, json_target: str | None) -> int:
    """Print the size of a cache. Raises CommandError for a question that has no answer."""
    check_target(json_target)
    try:
        answer = _answered(question)
    except SizingError as error:
        raise CommandError(str(error), f"{program()} size --help shows what there is", BAD_CALL) from None
    deliver(_data(answer), _table(answer), json_target)
    return DONE


def _answered(q: Question) -> Answer:
    if (q.model is None) == (q.config is None):
        raise SizingError("name one model: --model NAME (--list shows which), or --config FILE")
    for name, most in MOST.items():
        whole(getattr(q, name), name, 0 if name in ("tokens", "sequences") else 1, most)
    if q.encoder_tokens is not None:
        whole(q.encoder_tokens, "--encoder-tokens", 0, MOST_ENCODER_TOKENS)
    shape = _read(q).stored_as(q.dtype, q.value_dtype)

    def size_of(sequences: int) -> int:
        return shape.bytes(
            q.tokens,
            sequences,
            block=q.block,
            tensor_parallel=q.tensor_parallel,
            encoder_tokens=q.encoder_tokens,
        )

    return Answer(q, shape, size_of(q.sequences), size_of(1), _fit(q, size_of(1)))


def _read(q: Question) -> CacheShape:
    """The model that is meant. A file that is there, and wrong, is no wrong call."""
    if q.config is None:
        return cache_shape(str(q.model))
    try:
        return read_config_file(Path(q.config))
    except SizingError as error:
        if os.path.exists(os.path.expanduser(q.config)):
            raise CommandError(str(error)) from None
        raise


def _fit(q: Question, per_sequence: int) -> Fit | None:
    if q.memory is None:
        if q.weights is not None or q.reserve is not None:
            raise SizingError("--weights and --reserve are taken from a --memory, which is missing")
        return None
    memory = whole(parse_size(q.memory, "--memory"), "--memory", 1, LARGEST_MEMORY)
    weights = parse_size(q.weights or "0", "--weights")
    reserve = q.reserve or "0"
    if reserve.rstrip().endswith("%"):
        percent = parse_size(reserve.rstrip()[:-1], "--reserve")
        return how_many_fit(memory, per_sequence, weights, memory * whole(percent, "--reserve", 0, 100) // 100)
    return how_many_fit(memory, per_sequence, weights, parse_size(reserve, "--reserve"))


def _notes(answer: Answer) -> list[str]:
    """What the number rests on besides the layers, in sentences."""
    q, shape = answer.question, answer.shape
    notes = list(shape.assumptions)
    if q.tensor_parallel > 1:
        heads = {group.layer.n_kv_heads for group in shape.groups if group.layer.n_kv_heads}
        notes.append(f"All bytes are those of one of {q.tensor_parallel} ranks.")
        if answer.fit is not None:
            notes.append("Memory, weights and reserve are taken as those of one rank, too.")
        if any(q.tensor_parallel > count for count in heads):
            notes.append("There are more ranks than KV heads: heads (or the latent) are copied, and a rank keeps one.")
    if any("fp8" in (group.layer.key_type.name, group.layer.value_type.name) for group in shape.groups):
        notes.append("fp8 is counted without scales: one for a whole tensor.")
    if shape.trained_tokens is not None and q.tokens > shape.trained_tokens:
        notes.append(f"The model knows {shape.trained_tokens:,} positions; beyond them this is arithmetic only.")
    held = _in_transformers(answer)
    if held is not None and held != answer.bytes:
        why = (
            "it repeats the KV heads before it stores them"
            if shape.in_transformers
            else "a window less its newest token"
        )
        notes.append(f"The dynamic cache of transformers 5.24 holds {in_words(held)} between steps: {why}.")
    if answer.fit is not None and q.weights is None:
        notes.append("No --weights were given: they are counted as 0 bytes.")
    return notes


def _in_transformers(answer: Answer) -> int | None:
    """What transformers holds, where it is asked for what it does: no blocks, no ranks, a type of its models."""
    q = answer.question
    plain = all({g.layer.key_type.name, g.layer.value_type.name} <= OF_TRANSFORMERS for g in answer.shape.groups)
    if q.block > 1 or q.tensor_parallel > 1 or not plain:
        return None
    return answer.shape.bytes_in_transformers(q.tokens, q.sequences, encoder_tokens=q.encoder_tokens)


def _layer_rows(answer: Answer) -> list[dict[str, object]]:
    q = answer.question
    found: list[dict[str, object]] = []
    for group in answer.shape.groups:
        layer, slots = group.layer, group.layer.slots(q.tokens, q.encoder_tokens, q.block)
        slot_bytes = layer.slot_bytes(q.tensor_parallel)
        found.append(
            {
                "kind": str(layer.kind),
                "layers": group.layers,
                "n_kv_heads": layer.n_kv_heads,
                "n_kv_heads_on_rank": layer.n_kv_heads and heads_on_a_rank(layer.n_kv_heads, q.tensor_parallel),
                "key_dim": layer.key_dim,
                "value_dim": layer.value_dim,
                "window": layer.window,
                "key_dtype": layer.key_type.name,
                "value_dtype": layer.value_type.name,
                "slots_per_sequence": slots,
                "bytes_per_slot": slot_bytes,
                "scale_bytes_per_slot": int(layer.scale_bytes(q.tensor_parallel)),
                "bytes": group.layers * slots * slot_bytes * q.sequences,
            }
        )
    return found


def _data(answer: Answer) -> dict[str, object]:
    q, fit, shape = answer.question, answer.fit, answer.shape
    return {
        "model": shape.name,
        "tokens": q.tokens,
        "sequences": q.sequences,
        "dtype": q.dtype,
        "value_dtype": q.value_dtype or q.dtype,
        "block": q.block,
        "tensor_parallel": q.tensor_parallel,
        "bytes": answer.bytes,
        "gb": answer.bytes / 10**9,
        "gib": answer.bytes / 2**30,
        "per_sequence_bytes": answer.per_sequence,
        "bytes_per_token": shape.bytes_per_token(tensor_parallel=q.tensor_parallel),
        "bytes_per_token_past_windows": shape.bytes_per_token(past_windows=True, tensor_parallel=q.tensor_parallel),
        "bytes_all_ranks": answer.bytes * q.tensor_parallel,
        "bytes_in_transformers": _in_transformers(answer),
        "layers": _layer_rows(answer),
        "assumptions": _notes(answer),
        "left_out": left_out(shape, q.block, q.tensor_parallel),
        "fit": None
        if fit is None
        else {
            "memory_bytes": fit.memory,
            "weights_bytes": fit.weights,
            "reserve_bytes": fit.reserve,
            "left_bytes": fit.left,
            "sequences": fit.sequences,
        },
    }


def _table(answer: Answer) -> Table:
    q, shape = answer.question, answer.shape
    outer = Table.grid()
    values = "" if q.value_dtype is None else f", values in {q.value_dtype}"
    ranks = f", one of {q.tensor_parallel} ranks" if q.tensor_parallel > 1 else ""
    blocks = f", blocks of {q.block}" if q.block > 1 else ""
    outer.add_row(Text(f"{shape.name}, {_counted(q.sequences, 'sequence')} of {_counted(q.tokens, 'token')}, "
                       f"{q.dtype}{values}{blocks}{ranks}", style="bold"))  # fmt: skip
    outer.add_row("")
    outer.add_row(_layers_table(answer))
    outer.add_row("")
    outer.add_row(_sums(answer))
    if answer.fit is not None:
        outer.add_row("")
        outer.add_row(_subtraction(answer.fit, q))
    add_lists(outer, {"Assumed": _notes(answer), "Left out": left_out(shape, q.block, q.tensor_parallel)})
    return outer


def _layers_table(answer: Answer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("layers", justify="right", overflow="fold")  # in a narrow terminal a number is never cut short
    table.add_column("kind", overflow="fold")
    for heading in ("KV heads", "K+V dim", "tokens", "B a token", "bytes"):
        table.add_column(heading, justify="right", overflow="fold")
    for row, group in zip(_layer_rows(answer), answer.shape.groups, strict=True):
        layer = group.layer
        window = "" if layer.window is None else f" of {layer.window:,}"
        kept = row["n_kv_heads_on_rank"]
        heads = f"{kept} of {layer.n_kv_heads}" if kept != layer.n_kv_heads else str(kept or "-")
        heads = "-" if layer.kind is Kind.LATENT else heads
        width = f"{layer.key_dim}+{layer.value_dim}" if layer.key_dim else "-"
        numbers = [f"{row[name]:,}" for name in ("slots_per_sequence", "bytes_per_slot", "bytes")]
        table.add_row(str(group.layers), f"{layer.kind}{window}", heads, width, *numbers)
    return table


def _grid(columns: int) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def _sums(answer: Answer) -> Table:
    q, shape = answer.question, answer.shape
    table = _grid(2)
    growing, past = (shape.bytes_per_token(past_windows=x, tensor_parallel=q.tensor_parallel) for x in (False, True))
    table.add_row("each token", in_words(growing))
    if past != growing:
        table.add_row("past the windows", in_words(past))
    if q.sequences != 1:
        table.add_row("each sequence", in_words(answer.per_sequence))
    table.add_row(Text("together", style="bold"), Text(in_words(answer.bytes), style="bold"))
    return table


def _subtraction(fit: Fit, q: Question) -> Table:
    table = _grid(4)
    for sign, what, size in (
        ("", "memory", fit.memory),
        ("-", "weights", fit.weights),
        ("-", "reserve", fit.reserve),
        ("=", "left for the cache", fit.left),
        ("/", "each sequence", fit.per_sequence),
    ):
        table.add_row(sign, what, f"{size:,} B", short_words(size))
    table.add_row("=", Text("sequences that fit", style="bold"), Text(f"{fit.sequences:,}", style="bold"), "")
    if fit.left < 0:
        table.add_row("", Text("Weights and reserve alone are more than the memory."), "", "")
    elif q.sequences > fit.sequences:
        table.add_row("", Text(f"The {q.sequences:,} that were asked for do not fit."), "", "")
    return table


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
