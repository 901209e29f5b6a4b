"""What somebody sees who looks at text and loss alone: a small model that has learned one paragraph by heart.

The one idea: a bug in a cache often leaves the text as it is and moves the loss by a hair, so neither is a test. Here
both are measured on an engine, right or broken, for two requests of different lengths that share a cache with two
earlier ones.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from mutants import Engine
from torch import Tensor

from course_lib.model import ModelConfig, Transformer

PARAGRAPH = (
    "A cache keeps what attention has computed. Each new token asks all tokens before it, and they answer with keys "
    "and values that do not change any more. So the keys and values stay, and only the new token is computed. The "
    "first token takes long, because the whole prompt is read. The next ones come one by one, each after a short "
    "wait. What is kept grows with each token, and reading it takes longer and longer. A query is used once and never "
    "kept. "
)
LETTERS = sorted(set(PARAGRAPH))
TEXT = torch.tensor([LETTERS.index(letter) for letter in PARAGRAPH])
CONFIG = ModelConfig(len(LETTERS), 2, 48, 4, 2, 12, 96, max_positions=256)
TRAINING_STEPS, NEW = 200, 40
STARTS, PROMPTS = (30, 140), (51, 20)  # where two texts begin, and how many letters of each are given


@dataclass(frozen=True)
class Look:
    """Of one engine: two greedy continuations, the loss of the true ones, and the logits [B, steps, V] of those."""

    text: list[str]
    loss: float
    logits: Tensor


@lru_cache(maxsize=1)
@torch.inference_mode(False)
def trained_weights() -> dict[str, Tensor]:
    """A few seconds of training on pieces of the paragraph, without a cache."""
    model, draw = Transformer(CONFIG), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" not in name:
                parameter.normal_(std=0.08, generator=draw)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=TRAINING_STEPS)
    for _ in range(TRAINING_STEPS):
        starts = torch.randint(len(TEXT) - 65, (8,), generator=draw)
        pieces = torch.stack([TEXT[start : start + 65] for start in starts])
        loss = F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


@torch.inference_mode()
def look(engine: Engine) -> Look:
    model = engine.model.Transformer(engine.model.ModelConfig(**vars(CONFIG)))
    model.load_state_dict(trained_weights())
    cache = engine.caches.ContiguousCache(model.config, 2, 128)
    for memory in (cache.keys, cache.values):
        memory.zero_()  # as memory fresh from the system mostly is
    texts = [TEXT[start : start + length + NEW + 1].tolist() for start, length in zip(STARTS, PROMPTS)]
    prompts = [text[:length] for text, length in zip(texts, PROMPTS)]

    def used_before() -> None:
        for row in range(2):
            cache.release(row)
        engine.generation.prefill(model, [TEXT[:33].tolist(), TEXT[200:240].tolist()], cache)
        for row in range(2):
            cache.release(row)

    used_before()
    logits, rows = engine.generation.prefill(model, prompts, cache, chunk=17), []
    for _ in range(NEW):
        rows.append([engine.generation.choose(row) for row in logits])
        logits = engine.generation.decode(model, rows[-1], cache)
    used_before()
    true = [engine.generation.prefill(model, prompts, cache, chunk=17)]
    for step in range(NEW):
        tokens = [text[length + step] for text, length in zip(texts, PROMPTS)]
        true.append(engine.generation.decode(model, tokens, cache))
    every = torch.stack(true, dim=1)  # [B, NEW + 1, V]
    wanted = torch.tensor([text[length:] for text, length in zip(texts, PROMPTS)])
    loss = F.cross_entropy(every.flatten(0, 1), wanted.flatten()).item()
    return Look(["".join(LETTERS[token] for token in column) for column in zip(*rows)], loss, every)
