"""Models to run: SmolLM2, any other Llama-family GGUF file or Hugging Face folder, and seeded random weights.

    checkpoint = load("smollm2")
    checkpoint.model, checkpoint.tokenizer

The one idea: a checkpoint is read completely and checked, or refused with a `CheckpointError` that names what is
wrong. No code from a checkpoint is executed, and `transformers` is not used.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

import torch

from course_lib.checkpoints.download import MODELS, cache_folder, fetch, fetched
from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.folder_tokenizer import folder_tokenizer
from course_lib.checkpoints.gguf_file import load_gguf
from course_lib.checkpoints.gguf_tokenizer import gguf_tokenizer
from course_lib.checkpoints.huggingface import load_folder
from course_lib.checkpoints.tokenizer import TextStream, Tokenizer
from course_lib.checkpoints.weights import check_destination, random_model
from course_lib.model import Transformer

__all__ = [
    "MODELS", "Checkpoint", "CheckpointError", "TextStream", "Tokenizer", "cache_folder", "fetch", "fetched", "load",
    "random", "random_model",
]  # fmt: skip

random = random_model


@dataclass(frozen=True)
class Checkpoint:
    """A loaded model with the tokenizer that belongs to it and the place it came from."""

    name: str
    path: Path
    model: Transformer = field(repr=False)
    maybe_tokenizer: Tokenizer | None = field(default=None, repr=False)

    @property
    def tokenizer(self) -> Tokenizer:
        """Raises CheckpointError if the checkpoint brings none; its model still works on token ids."""
        if self.maybe_tokenizer is None:
            raise CheckpointError(
                f"the checkpoint {self.name} ({self.path}) has no tokenizer: put its tokenizer.json beside the "
                "weights, or give the model token ids"
            )
        return self.maybe_tokenizer


def load(
    name_or_path: str | os.PathLike[str], dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu"
) -> Checkpoint:
    """Load a model for inference: "smollm2" (fetched first if need be), a .gguf file, or a Hugging Face folder.

    The model is in evaluation mode, needs no gradients, and holds its weights in `dtype` on `device`.

    Raises CheckpointError, naming the file and what is wrong with it, for everything that cannot be loaded whole.
    """
    place = check_destination(dtype, device)
    if not isinstance(name_or_path, str | os.PathLike):
        raise CheckpointError(
            f"load takes the name of a model ({', '.join(sorted(MODELS))}) or the path of a .gguf file or of a Hugging "
            f"Face folder, not {name_or_path!r:.80}"
        )
    if name_or_path in MODELS:
        name, path = str(name_or_path), fetch(str(name_or_path))
    else:
        name, path = _find(name_or_path)
    if path.is_dir():
        _check_folder(path)
        model, tokenizer = load_folder(path, dtype, place), folder_tokenizer(path)
    elif path.is_file():
        model, header = load_gguf(path, dtype, place)
        tokenizer = gguf_tokenizer(header)
    else:
        raise CheckpointError(
            f"{str(name_or_path)!r} is neither a known model ({', '.join(sorted(MODELS))}) nor a .gguf file nor a "
            f"Hugging Face folder: nothing is there (looked in {Path.cwd()})"
        )
    if tokenizer is not None and tokenizer.highest_token >= model.config.vocab_size:
        raise CheckpointError(
            f"{path}: the tokenizer makes ids up to {tokenizer.highest_token}, but the model knows "
            f"{model.config.vocab_size} tokens; they do not belong together"
        )
    return Checkpoint(name, path, model, tokenizer)


def _find(place: str | os.PathLike[str]) -> tuple[str, Path]:
    """Name and path of a model that somebody has on disk, whether or not something is there."""
    try:
        path = Path(place).expanduser()
        name = path.stem if path.suffix == ".gguf" else path.resolve().name
        (path / "config.json").is_file()  # raises where the folder, or one on the way, cannot be entered
    except (OSError, RuntimeError, TypeError, ValueError) as error:  # an unknown user, a loop of links, a zero byte
        raise CheckpointError(
            f"{os.fspath(place)!r} cannot be a path here: {error}. Name a .gguf file or a Hugging Face folder."
        ) from error
    return name, path


def _check_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        files = sorted(path.name for path in folder.glob("*.gguf"))
        hint = f"; name one of its GGUF files: {', '.join(files[:5])}" if files else ""
        raise CheckpointError(f"{folder} is no Hugging Face folder: it has no config.json{hint}")
