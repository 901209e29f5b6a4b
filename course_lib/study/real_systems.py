"""What notebook 11 sets this course beside: the caches of `transformers`, the block formats of llama.cpp, the settings
of serving systems, and a server that runs here.

The one idea: whatever is said of another system carries its version, and where the system is installed a cell asks it.
`transformers` is imported in one function, and the notebook runs without it, too, and says what is missing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from IPython.display import Markdown
from torch import Tensor

from course_lib.caches import ContiguousCache
from course_lib.caches.codecs import Codec
from course_lib.serving.transformers_server import RunningServer, ServerError, running_server

SERIES = "5.24."  # the versions of `transformers` that the notebook describes
MISSING = (
    f"This part compares with transformers {SERIES}*, which is not installed here: "
    f'run `python -m pip install "transformers[serving]=={SERIES}*"` in the environment of the course, restart the '
    "kernel, and run the notebook again."
)


def find_transformers() -> Any:
    """The library `transformers`, told to be offline and quiet; None, and what to do, without that version."""
    try:
        if not version("transformers").startswith(SERIES):
            raise ImportError
        os.environ["HF_HUB_OFFLINE"] = "1"
        library = import_module("transformers")
    except ImportError:
        print(MISSING)
        return None
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    return library


def installed(library: Any) -> bool:
    """Whether `find_transformers` found it; if not, a line says why there is nothing to see."""
    if library is None:
        print(f"Left out: transformers {SERIES}* is not installed here, see the beginning of the notebook.")
    return library is not None


def their_tensors(cache: Any) -> list[Tensor]:
    """All tensors in which a cache of transformers keeps keys and values: what is rounded, its scales, and the rest."""
    found: list[Tensor] = []
    for layer in cache.layers:
        rounded = [getattr(layer, f"_quantized_{part}", None) or () for part in ("keys", "values")]
        found += [tensor for part in rounded for tensor in part]
        found += [tensor for tensor in (layer.keys, layer.values) if tensor is not None]
    return found


def their_bytes(cache: Any) -> int:
    """Bytes that a cache of transformers holds for keys and values, read from its tensors."""
    return sum(tensor.nbytes for tensor in their_tensors(cache))


def their_rows(cache: Any) -> int:
    """For how many tokens the first layer of a cache of transformers holds a key."""
    layer = cache.layers[0]
    keys = layer._quantized_keys[0] if getattr(layer, "_quantized_keys", None) else layer.keys
    return int(keys.shape[2])


def sliding_twin(model: Any, window: int) -> Any:
    """A model of transformers with the same weights, in the same memory, each of whose layers slides over `window`."""
    library = import_module("transformers")
    fields = {name: value for name, value in model.config.to_dict().items() if name not in NOT_OF_ANOTHER_FAMILY}
    config = library.MistralConfig(**fields, sliding_window=window)
    with torch.device("meta"):  # no memory of its own
        twin = library.MistralForCausalLM(config)
    twin.load_state_dict(model.state_dict(), assign=True)
    twin.model.rotary_emb = model.model.rotary_emb  # what is no weight
    return twin.eval()


def bytes_without_weights(config: dict[str, Any], tokens: int) -> int:
    """Bytes that the cache of transformers holds once a model of this config.json has read so many tokens in bf16.

    It runs on the meta device, which computes shapes and no numbers: no weights are needed, and no memory.
    """
    library = import_module("transformers")
    fields = config.get("text_config", config)
    made = library.AutoConfig.for_model(**fields)
    with torch.device("meta"), torch.no_grad():
        model = library.AutoModel.from_config(made, dtype=torch.bfloat16).eval()
        cache = library.DynamicCache(config=made)
        model(input_ids=torch.zeros(1, tokens, dtype=torch.long), cache=cache)
    return their_bytes(cache)


NOT_OF_ANOTHER_FAMILY = ("model_type", "architectures", "transformers_version", "sliding_window")


def difference(ours: ContiguousCache, theirs: Any) -> float:
    """The largest difference of a key or value that both caches hold of one sequence."""
    found = 0.0
    for index, layer in enumerate(theirs.layers):
        for mine, other in ((ours.keys[index, :1], layer.keys), (ours.values[index, :1], layer.values)):
            rows = min(ours.lengths[0], other.shape[2])
            found = max(found, (mine[:, :, :rows] - other[:, :, :rows]).abs().max().item())
    return found


# --- The formats of llama.cpp


def block_layout(name: str) -> tuple[int, int]:
    """Elements and bytes of a block of a type of llama.cpp, such as "q8_0", as the package `gguf` knows them."""
    import gguf  # type: ignore[import-not-found,unused-ignore]

    elements, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name.upper()]]
    return int(elements), int(size)


@dataclass(frozen=True)
class LlamaCpp(Codec):
    """Keys or values as llama.cpp stores them with `--cache-type-k NAME`: a row of a head in blocks of that type.

    Encoding and decoding are those of the package `gguf`. ValueError for a type that it cannot write. Like llama.cpp
    (ggml 0.25.3), it turns each 64 numbers by a Hadamard matrix before it rounds them, where a head has a multiple of
    64, and turns them back after; llama.cpp takes a larger matrix for keys of 128 numbers, and turns queries instead.
    """

    name: str

    def turned(self, rows: np.ndarray) -> np.ndarray:
        """Rows times the Hadamard matrix, which is its own inverse; as they are if llama.cpp turns none of them."""
        if block_layout(self.name)[0] == 1 or rows.shape[-1] % 64:
            return rows
        matrix = np.ones((1, 1), np.float32)
        while len(matrix) < 64:
            matrix = np.block([[matrix, matrix], [matrix, -matrix]])
        return (rows.reshape(-1, 64) @ (matrix / 8)).reshape(rows.shape)  # 8 is the root of 64

    def __post_init__(self) -> None:
        try:
            self.encode(torch.zeros(1, block_layout(self.name)[0]))
        except (KeyError, NotImplementedError):
            raise ValueError(f"{self.name!r} is no type that can be written here: choose f16, q8_0 or q4_0") from None

    def size(self, head_dim: int) -> int:
        elements, size = block_layout(self.name)
        if head_dim % elements:
            raise ValueError(f"a head of {head_dim} numbers is no whole number of blocks of {elements}")
        return head_dim // elements * size

    def encode(self, x: Tensor) -> Tensor:
        from gguf import GGMLQuantizationType, quants

        rows = np.ascontiguousarray(x.float().numpy()).reshape(-1, x.shape[-1])
        packed = quants.quantize(self.turned(rows), GGMLQuantizationType[self.name.upper()]).view(np.uint8)
        return torch.from_numpy(packed.copy()).reshape(*x.shape[:-1], -1)

    def decode(self, packed: Tensor, head_dim: int, dtype: torch.dtype) -> Tensor:
        from gguf import GGMLQuantizationType, quants

        kind = GGMLQuantizationType[self.name.upper()]
        rows = np.ascontiguousarray(packed.numpy()).reshape(-1, packed.shape[-1])
        plain = {"F32": np.float32, "F16": np.float16}.get(kind.name)
        numbers = quants.dequantize(rows if plain is None else rows.view(plain), kind)
        return torch.from_numpy(np.array(self.turned(numbers))).reshape(*packed.shape[:-1], head_dim).to(dtype)


# --- The settings of serving systems

VLLM, SGLANG, TRANSFORMERS = "vLLM 0.33.0", "SGLang 0.5.23", "transformers 5.24"
SETTINGS: Sequence[tuple[str, ...]] = (  # idea, notebook, and what it is called in each
    (
        "tokens in a block", "06", "`--block-size`, 16 unless the backend wants another",
        "`--page-size`, 1 unless the backend wants another", "`--cb-block-size`, 256",
    ),
    (
        "memory for the pool of blocks", "04",
        "`--gpu-memory-utilization`, 0.92: weights, largest activations, pool",
        "`--mem-fraction-static`, worked out at the start: weights and pool",
        "`--cb-max-memory-percent`, on a GPU 0.9 (0.8 with logit processing) of what is free after the weights: pool",
    ),
    (
        "size of the pool, given directly", "04", "`--num-gpu-blocks-override`, `--kv-cache-memory-bytes`",
        "`--max-total-tokens`", "`--cb-num-blocks`",
    ),
    (
        "sequences at once", "05", "`--max-num-seqs`, 256 or 1,024 by GPU", "`--max-running-requests`",
        "`max_requests_per_batch`",
    ),
    (
        "sharing of beginnings", "06", "`--enable-prefix-caching`, on",
        "radix cache, on (`--disable-radix-cache`)", "`allow_block_sharing`, on",
    ),
    (
        "budget of a step, prompts in chunks", "07",
        "`--enable-chunked-prefill`, on; `--max-num-batched-tokens`, 2,048 to 16,384 by GPU",
        "`--chunked-prefill-size`, 2,048 to 16,384 by GPU (-1: off)", "`--cb-max-batch-tokens`",
    ),
    ("who comes first", "07", "`--scheduling-policy`, fcfs", "`--schedule-policy`, fcfs", "`scheduler_type`, fifo"),
    (
        "if no block is free", "07", "the request that came last is preempted",
        "requests are retracted (`--retraction-policy`, length)",
        "of those that were denied a block, the newest gives back its own",
    ),
    (
        "how keys and values are stored", "08", "`--kv-cache-dtype`, auto", "`--kv-cache-dtype`, auto",
        "in the dtype of the model",
    ),
    ("drafts", "12", "`--speculative-config`", "`--speculative-algorithm`", "`assistant_model` of `generate`"),
)  # fmt: skip


def settings(notebooks: dict[str, str] | None = None) -> Markdown:
    """The table of settings: each idea with the notebook that taught it (its file, by number), and its names."""
    lines = [f"| idea, and its notebook | {VLLM} | {SGLANG} | {TRANSFORMERS} |", "|---|---|---|---|"]
    for idea, number, *names in SETTINGS:
        place = f"[{number}]({notebooks[number]})" if notebooks and number in notebooks else number
        lines.append(f"| {idea} ({place}) | {' | '.join(names)} |")
    return Markdown("\n".join(lines))


# --- A server that is started while the notebook goes on


class ServerInBackground:
    """`transformers serve` on a folder, being started while other cells run.

    `wait` returns the server as soon as it answers; None, and a sentence printed, if it cannot run here. `stop` ends
    it. It ends with the kernel in any case.
    """

    def __init__(self, folder: Path, **options: Any) -> None:
        self.stack, self.pool = ExitStack(), ThreadPoolExecutor(1)
        self.coming: Future[RunningServer] = self.pool.submit(
            lambda: self.stack.enter_context(running_server(folder, **options))
        )

    def wait(self) -> RunningServer | None:
        try:
            return self.coming.result()
        except ServerError as error:
            print(f"This part needs a server: {error}")
            return None

    def stop(self) -> None:
        """Ends the server, also one that is still being started."""
        self.coming.exception()
        self.stack.close()
        self.pool.shutdown()
