"""The recall task: pairs of a key and its value, then questions that name a key; and the model that answers them.

The one idea: an answer is right or wrong, and can come from one place only. So what a window, an eviction or two bits
do to a memory shows as a share of right answers, by how old the asked pair is (depth) and how many there are (load).
The task is multi-query associative recall (Arora et al. 2023, "Zoology"). It is no language: what holds for this model
need not hold for a large one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from course_lib.caches.contract import whole
from course_lib.checkpoints import CheckpointError
from course_lib.checkpoints.weights import Part, Plan, assemble, check_plan
from course_lib.model import ModelConfig, Transformer
from course_lib.quality.measures import CacheOf, Rate

FOLDER = Path(__file__).parent
KINDS = {"mha": "recall_mha", "gqa": "recall", "mqa": "recall_mqa"}  # 4, 2 and 1 KV heads; names of files
MOST_LAYERS = 64


@dataclass(frozen=True)
class Questions:
    """Texts [rows, N]: `context` tokens with the pairs, then for each question the asked key and the right value.

    The q-th question stands at context + 2q. Of it, in tensors [rows, questions]: `depth` is the number of the asked
    pair, 0 the oldest of `pairs`; `place` the position of its value; `answer` that value; `outdated` the value that the
    key had before it was stated anew, -1 if it was not.
    """

    tokens: Tensor
    context: int
    pairs: int
    depth: Tensor
    place: Tensor
    answer: Tensor
    outdated: Tensor


@dataclass(frozen=True)
class Recall:
    """The vocabulary: `keys` keys come first, then `values` values, then `fillers` tokens that mean nothing."""

    keys: int = 128
    values: int = 128
    fillers: int = 16

    def __post_init__(self) -> None:
        for name, least in (("keys", 1), ("values", 2), ("fillers", 1)):
            if whole(getattr(self, name), name) < least:
                raise ValueError(f"{name} must be at least {least}, not {getattr(self, name)}")

    @property
    def vocabulary(self) -> int:
        return self.keys + self.values + self.fillers

    def questions(
        self,
        pairs: int,
        queries: int,
        rows: int,
        seed: int | torch.Generator,
        *,
        filler: int = 0,
        restated: int = 0,
        again: bool = False,
    ) -> Questions:
        """`rows` texts of `pairs` pairs and `queries` questions. No key is asked twice in a text, unless `again`.

        Distractors: `filler` tokens that mean nothing stand somewhere between the pairs; `restated` of the pairs state
        a key anew that an earlier pair gave another value (the last one counts). Raises ValueError for what cannot be.
        """
        self.check(pairs, queries, rows, filler, restated, again)
        different = pairs - restated  # keys
        g = seed if isinstance(seed, torch.Generator) else torch.Generator().manual_seed(seed)
        keys = shuffled(rows, self.keys, g)[:, :different]
        which = torch.cat((torch.arange(different), torch.arange(restated))).expand(rows, -1)
        which = which.gather(1, shuffled(rows, pairs, g))  # [rows, pairs]: which of the keys each pair states
        values = self.keys + torch.randint(self.values, (rows, pairs), generator=g)
        number = torch.arange(pairs).expand(rows, -1)
        first, last = (  # [rows, different]: the numbers of the pairs that state each key first and last
            torch.zeros(rows, different, dtype=torch.long).scatter_reduce(1, which, number, take, include_self=False)
            for take in ("amin", "amax")
        )
        # Another value the second time: the first one and 1 … values - 1 more, round the circle.
        before = values.gather(1, first.gather(1, which)) - self.keys
        other = self.keys + (before + torch.randint(1, self.values, (rows, pairs), generator=g)) % self.values
        values = torch.where(number > first.gather(1, which), other, values)

        items = shuffled(rows, pairs + filler, g)[:, :pairs].sort(1).values  # which of pairs and fillers are pairs
        column = items + number  # of each pair's key: every pair before it took one token more
        context = 2 * pairs + filler
        tokens = self.keys + self.values + torch.randint(self.fillers, (rows, context + 2 * queries), generator=g)
        tokens.scatter_(1, column, keys.gather(1, which)).scatter_(1, column + 1, values)
        asked = shuffled(rows, different, g)[:, :queries]
        if again:
            asked = torch.randint(different, (rows, queries), generator=g)
        depth = last.gather(1, asked)
        answer, earlier = values.gather(1, depth), values.gather(1, first.gather(1, asked))
        tokens[:, context::2], tokens[:, context + 1 :: 2] = keys.gather(1, asked), answer
        outdated = earlier.masked_fill(first.gather(1, asked) == depth, -1)
        return Questions(tokens, context, pairs, depth, column.gather(1, depth) + 1, answer, outdated)

    def check(self, pairs: int, queries: int, rows: int, filler: int, restated: int, again: bool) -> None:
        """Raise ValueError unless there are texts of this kind."""
        pairs, queries, rows = whole(pairs, "pairs"), whole(queries, "queries"), whole(rows, "rows")
        filler, restated = whole(filler, "filler"), whole(restated, "restated")
        different = pairs - restated  # keys
        if min(queries, rows, different) < 1 or min(filler, restated) < 0 or restated > different:
            raise ValueError(
                f"{pairs} pairs, {restated} of them restated, {queries} questions, {rows} rows and {filler} filler "
                "tokens make no text: there must be a pair, a question and a row, and at most each second pair restated"
            )
        if different > self.keys:
            raise ValueError(f"{different} different keys, but there are {self.keys}: take fewer pairs")
        if queries > different and not again:
            raise ValueError(f"{queries} questions to {different} keys: each is asked once, so ask fewer")


def shuffled(rows: int, numbers: int, generator: torch.Generator) -> Tensor:
    """0 … numbers - 1 in each row, in random order."""
    return torch.rand(rows, numbers, generator=generator).argsort(1)


TASK = Recall()  # that of the trained models


@dataclass(frozen=True)
class Answers:
    """What a model said to `questions`: its logits [rows, questions, V] where each answer is due; `held`, whether the
    cache still held the value that was asked for once it had read the key; and the most bytes that the cache used.
    """

    questions: Questions
    logits: Tensor
    held: Tensor
    used_bytes: int

    @property
    def said(self) -> Tensor:
        return self.logits.argmax(-1)

    @property
    def right(self) -> Tensor:
        return self.said == self.questions.answer

    def rate(self, which: Tensor | None = None) -> Rate:
        """Of all answers, or of those where `which` [rows, questions] is True."""
        if which is not None and (which.dtype != torch.bool or which.shape != self.right.shape):
            raise ValueError(
                f"which answers count is said by booleans of shape {list(self.right.shape)}, not by {which.dtype} of "
                f"{list(which.shape)}"
            )
        right = self.right if which is None else self.right[which]
        return Rate(int(right.sum()), right.numel())

    def by_depth(self, parts: int = 8) -> list[tuple[range, Rate]]:
        """For each of `parts` equal parts of the pairs, oldest first: their numbers, and how often they were right."""
        if whole(parts, "the number of parts") < 1:
            raise ValueError(f"the pairs are divided into at least 1 part, not {parts}")
        edges = [part * self.questions.pairs // parts for part in range(parts + 1)]
        depth = self.questions.depth
        return [(range(a, b), self.rate((depth >= a) & (depth < b))) for a, b in pairwise(edges) if a < b]


@torch.inference_mode()
def ask(model: Transformer, questions: Questions, cache_of: CacheOf | None = None, chunk: int | None = None) -> Answers:
    """Let `model` read the texts through a cache: the pairs as a prompt (in passes of `chunk` tokens), then token by
    token. Each question is followed by the right answer, whatever the model said. Without `cache_of`, in one pass.
    """
    if chunk is not None and whole(chunk, "the chunk") < 1:
        raise ValueError(f"a chunk has at least one token, not {chunk}")
    q, (rows, length) = questions, questions.tokens.shape
    tokens = q.tokens.to(model.device)
    if cache_of is None:
        logits = model(tokens)[:, q.context :: 2]
        return Answers(q, logits.cpu(), torch.ones_like(q.depth, dtype=torch.bool), 0)
    cache = cache_of(model.config, rows, length)
    for piece in tokens[:, : q.context].split(chunk or q.context, dim=1):
        model(piece, cache, last_only=True)
    answers: list[Tensor] = []
    held: list[list[bool]] = []
    used = cache.used_bytes
    for at in range(q.context, length, 2):
        answers.append(model(tokens[:, at : at + 1], cache)[:, 0].cpu())
        places = [cache.places(row) for row in range(rows)]
        held.append([place in here for place, here in zip(q.place[:, len(held)].tolist(), places, strict=True)])
        model(tokens[:, at + 1 : at + 2], cache, last_only=True)
        used = max(used, cache.used_bytes)
    return Answers(q, torch.stack(answers, dim=1), torch.tensor(held).T, used)


def by_load(
    model: Transformer,
    loads: Sequence[int],
    cache_of: CacheOf | None = None,
    *,
    task: Recall = TASK,
    rows: int = 32,
) -> dict[int, Answers]:
    """The answers to texts with so many pairs, each asked for up to 16 of them, for each of the loads."""
    return {load: ask(model, task.questions(load, min(16, load), rows, seed=0), cache_of) for load in loads}


def load(kind: str | os.PathLike[str] = "gqa") -> Transformer:
    """The trained model with 4 ("mha"), 2 ("gqa") or 1 KV head ("mqa"), or one that `quality.train` wrote to a file.

    Raises CheckpointError for a file that is not there, is damaged, or holds another model.
    """
    path = FOLDER / f"{KINDS[kind]}.safetensors" if isinstance(kind, str) and kind in KINDS else Path(kind)
    try:
        with safe_open(path, framework="pt") as file:
            config = read_config(file.metadata() or {}, path)
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            plan: Plan = {name: (Part(name, shape),) for name, shape in shapes(config).items()}
            check_plan(plan, found, str(path))
            return assemble(
                config, plan, lambda part: file.get_tensor(part.name), str(path), torch.float32, torch.device("cpu")
            )
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{path} cannot be read: {error}. The kinds are {', '.join(KINDS)}; "
            "python -m course_lib.quality.train makes one anew"
        ) from error


def read_config(metadata: dict[str, str], path: Path) -> ModelConfig:
    """The shape of the model, from what `checkpoint_bytes` wrote beside the weights."""
    try:
        config = ModelConfig(**json.loads(metadata["config"]))
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} does not say what shape its model has ({error}): it is no recall model"
        ) from error
    if config.n_layers > MOST_LAYERS:
        raise CheckpointError(f"{path} claims {config.n_layers} layers; a recall model has up to {MOST_LAYERS}")
    return config


def checkpoint_bytes(model: Transformer) -> bytes:
    """The model as a safetensors file: weights in 16 bits, its shape in the metadata."""
    weights = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items()}
    return save(weights, {"config": json.dumps(asdict(model.config))})


def shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name and shape of each of its parameters. No memory is taken."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Transformer(config).state_dict().items()}
