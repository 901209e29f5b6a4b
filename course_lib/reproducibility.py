"""What a run was, so that somebody else can make it again, or say in which respect theirs is another.

The one idea: a result alone cannot be repeated. A manifest keeps with it everything that may change it: the weights,
the tokenizer, the tokens of the prompt, how tokens were chosen, and what the sums were made on. Two manifests are
compared field by field; those of the machine can change how sums are rounded, all others what is asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from course_lib.checkpoints import CheckpointError, Tokenizer
from course_lib.checkpoints.json_file import Fields, read_json
from course_lib.generation import GREEDY, Sampling, generate, stop_set
from course_lib.model import Transformer
from course_lib.noise import threads

MACHINE = ("device", "threads", "versions", "flags")  # fields that change how sums are rounded, and nothing else
PACKAGES = ("torch", "numpy", "kv-cache-course")
FORMAT = 1
MOST_THREADS = 4096  # more would be made when the run is replayed
HEX = set("0123456789abcdef")


@dataclass(frozen=True)
class Manifest:
    """One request on one model on one machine, and the tokens that came.

    weights and tokenizer are SHA-256 digests; an empty one says that the prompt was given as tokens. cache says whether
    a key-value cache was used, dtype the type of weights and sums, threads how many share a sum. flags are the settings
    of torch that choose among kernels.
    """

    weights: str
    tokenizer: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_tokens: tuple[int, ...]
    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int
    cache: bool
    dtype: str
    device: str
    threads: int
    versions: dict[str, str]
    flags: dict[str, str]
    tokens: tuple[int, ...]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON: whole, or not at all if a file is there already (FileExistsError)."""
        text = json.dumps({"format": FORMAT} | asdict(self), indent=1) + "\n"
        path = Path(path)
        file = path.open("x", encoding="utf-8")
        try:
            with file:
                file.write(text)
        except BaseException:
            path.unlink(missing_ok=True)  # closed by now: Windows removes no open file
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Manifest:
        """Read what `save` wrote. Raises CheckpointError, naming the field, for anything else."""
        return from_fields(Fields(read_json(Path(path)), Path(path)))


@dataclass(frozen=True)
class Difference:
    """A field in which two manifests differ, with both values. `machine` says whether only rounding can follow."""

    field: str
    one: Any
    other: Any

    @property
    def machine(self) -> bool:
        return self.field.partition(".")[0] in MACHINE

    def __str__(self) -> str:
        return f"{self.field}: {shown(self.one)} / {shown(self.other)}"


def run(
    model: Transformer,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    tokenizer: Tokenizer | None = None,
    sampling: Sampling = GREEDY,
    stop_tokens: Collection[int] = (),
    use_cache: bool = True,
    seed: int = 0,
) -> Manifest:
    """Generate, and keep what it was. Takes and refuses what `generate` does; `tokenizer` is what made the prompt."""
    stop_tokens = stop_set(stop_tokens)
    made = generate(
        model,
        prompt,
        max_new_tokens=max_new_tokens,
        sampling=sampling,
        stop_tokens=stop_tokens,
        use_cache=use_cache,
        seed=seed,
        warm_up=False,
    )
    return Manifest(
        weights=digest_of_weights(model),
        tokenizer=tokenizer.digest if tokenizer is not None else "",
        prompt=made.prompt,
        max_new_tokens=int(max_new_tokens),
        stop_tokens=tuple(sorted(stop_tokens)),
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        seed=int(seed),
        cache=bool(use_cache),
        dtype=str(model.dtype).removeprefix("torch."),
        device=device_name(model.device),
        threads=torch.get_num_threads(),
        versions=versions(),
        flags=flags(),
        tokens=made.tokens,
    )


def replay(manifest: Manifest, model: Transformer, tokenizer: Tokenizer | None = None) -> Manifest:
    """Make a run again, with as many threads, and return the manifest of the new one: `differences` compares them.

    Raises ValueError, naming the field, if model or tokenizer are others: then the same question cannot be asked.
    """
    found = {"weights": digest_of_weights(model), "dtype": str(model.dtype).removeprefix("torch.")}
    if tokenizer is not None and manifest.tokenizer:
        found["tokenizer"] = tokenizer.digest
    for name, value in found.items():
        if value != (kept := getattr(manifest, name)):
            raise ValueError(f"{name}: the run had {shown(kept)}, here is {shown(value)}; load what it was made with")
    with threads(manifest.threads):
        return run(
            model,
            manifest.prompt,
            max_new_tokens=manifest.max_new_tokens,
            tokenizer=tokenizer,
            sampling=Sampling(manifest.temperature, manifest.top_k, manifest.top_p),
            stop_tokens=manifest.stop_tokens,
            use_cache=manifest.cache,
            seed=manifest.seed,
        )


def differences(one: Manifest, other: Manifest) -> list[Difference]:
    """Every field in which two manifests differ, in their order; dictionaries entry by entry."""
    found = []
    for each in fields(Manifest):
        left, right = getattr(one, each.name), getattr(other, each.name)
        if isinstance(left, dict):
            names = dict.fromkeys([*left, *right])
            found += [Difference(f"{each.name}.{name}", left.get(name), right.get(name)) for name in names]
        else:
            found.append(Difference(each.name, left, right))
    return [each for each in found if each.one != each.other]


# --- What a manifest says of model and machine


def digest_of_weights(model: Transformer) -> str:
    """SHA-256 of a model's shape and of all its numbers, whatever device they are on."""
    digest = hashlib.sha256(repr(model.config).encode())
    for name, tensor in sorted(model.state_dict().items()):
        numbers = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(memoryview(numbers.view(torch.uint8).numpy()))
    return digest.hexdigest()


def device_name(device: torch.device) -> str:
    """Which processor made the sums: sums are rounded by kernels, and kernels differ by it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} {torch.backends.cpu.get_cpu_capability()}"


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def flags() -> dict[str, str]:
    """Settings that choose among kernels with differently rounded sums."""
    cuda = torch.backends.cuda
    return {
        "deterministic_algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "float32_matmul_precision": matmul_precision(),
        "mkldnn": str(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),
        "flash_attention": str(cuda.flash_sdp_enabled()),
        "memory_efficient_attention": str(cuda.mem_efficient_sdp_enabled()),
        "cudnn_attention": str(cuda.cudnn_sdp_enabled()),
        "math_attention": str(cuda.math_sdp_enabled()),
        "math_attention_in_16_bits": str(cuda.fp16_bf16_reduction_math_sdp_allowed()),
        "bfloat16_sums_in_16_bits": str(cuda.matmul.allow_bf16_reduced_precision_reduction),
        "float16_sums_in_16_bits": str(cuda.matmul.allow_fp16_reduced_precision_reduction),
        "blas": str(cuda.preferred_blas_library()),
    }


def matmul_precision() -> str:
    """How exactly float32 is multiplied, in torch's old words; in its new ones where only these can say it."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:  # set by the new names, for each library apart
        found = (getattr(torch.backends, name).matmul.fp32_precision for name in ("mkldnn", "cuda"))
        return ", ".join(map(str, found))


def shown(value: Any) -> str:
    """A value as a difference shows it: a digest by its beginning, a long list by its length and first entries."""
    if isinstance(value, str) and len(value) == 64 and set(value) <= HEX:
        return value[:8]
    if isinstance(value, tuple) and len(value) > 6:
        return f"{len(value)} tokens: {', '.join(map(str, value[:6]))}, …"
    text = "nothing" if value in (None, "", ()) else str(value)
    return text if text.isprintable() else repr(text)  # a file may hold what a terminal would obey


# --- Reading


def from_fields(found: Fields) -> Manifest:
    """A manifest out of the fields of a JSON object; CheckpointError for a field that is missing or no such thing."""
    if found.count("format") != FORMAT:
        raise found.fail("format", f"is not the format of this version, {FORMAT}: use the version that wrote it")

    def digest(name: str) -> str:
        text = found.text(name, "")
        if text and not (len(text) == 64 and set(text) <= HEX):
            raise found.fail(name, "is no SHA-256 digest")
        return text

    def tokens(name: str) -> tuple[int, ...]:
        given = found.values.get(name)
        if not isinstance(given, list) or not all(type(token) is int and 0 <= token < 1 << 32 for token in given):
            raise found.fail(name, "is no list of token ids")
        return tuple(given)

    def texts(name: str) -> dict[str, str]:
        entries = found.object(name).values
        if not all(isinstance(value, str) for value in entries.values()):
            raise found.fail(name, "holds something that is no text")
        return {str(key): str(value) for key, value in entries.items()}

    top_k = found.count("top_k") if "top_k" in found else None
    top_p = found.number("top_p") if "top_p" in found else None
    try:
        Sampling(temperature := found.number("temperature"), top_k, top_p)
    except ValueError as error:
        raise CheckpointError(f"{found.where}: {error}") from None
    made = Manifest(
        digest("weights"), digest("tokenizer"), tokens("prompt"), found.count("max_new_tokens"), tokens("stop_tokens"),
        temperature, top_k, top_p, found.count("seed"), found.flag("cache"), found.text("dtype"), found.text("device"),
        found.count("threads"), texts("versions"), texts("flags"), tokens("tokens"),
    )  # fmt: skip
    for name, wrong, problem in (
        ("weights", not made.weights, "is empty: a run has weights"),
        ("prompt", not made.prompt, "is empty: a new token needs something to follow"),
        ("tokens", not 1 <= len(made.tokens) <= made.max_new_tokens, f"should be 1 to {made.max_new_tokens} tokens"),
        ("seed", made.seed >= 1 << 63, "is more than 2^63 - 1"),
        ("threads", not 1 <= made.threads <= MOST_THREADS, f"must be at least 1 and at most {MOST_THREADS}"),
    ):
        if wrong:
            raise found.fail(name, problem)
    return made
