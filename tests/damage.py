"""Files damaged at random, and what becomes of them."""

import random
from collections.abc import Iterator
from pathlib import Path

import torch

from course_lib.checkpoints import CheckpointError, load


def damaged(whole: bytes, count: int, header: int) -> Iterator[bytes]:
    """Copies of a file with one to four bytes changed, mostly in the first `header` bytes, or cut somewhere."""
    chance = random.Random(11)
    for _ in range(count):
        if chance.random() < 0.2:
            yield whole[: chance.randrange(len(whole))]
            continue
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(header if chance.random() < 0.9 else len(whole))
            changed[at] = chance.choice((0, 255, changed[at] ^ (1 << chance.randrange(8)), chance.randrange(256)))
        yield bytes(changed)


def survives(target: Path, file: Path, contents: Iterator[bytes]) -> tuple[int, int]:
    """Load each damaged copy; returns how many loaded and how many were refused. Anything but a refusal is an error."""
    loaded = refused = 0
    for content in contents:
        file.write_bytes(content)
        try:
            model = load(target).model
        except CheckpointError:
            refused += 1
            continue
        loaded += 1
        assert model(torch.tensor([[1, 2, 3]])).shape == (1, 3, model.config.vocab_size)
    return loaded, refused
