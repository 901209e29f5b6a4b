"""Requests as many people send them: most are short, a few are long, and nobody knows beforehand which.

The one idea: lengths are drawn from a skewed distribution, the log-normal, since that is what makes a server's memory
and its queue hard to plan. Everything is seeded. The texts are random tokens: here lengths matter, not words.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from random import Random

from course_lib.caches.contract import real, whole
from course_lib.serving.request import Request


@dataclass(frozen=True)
class Lengths:
    """Lengths in tokens: half of them up to `median`, two thirds within a factor of e^spread of it, none above `most`.

    Raises ValueError, naming the field, for what makes no sense.
    """

    median: int
    spread: float
    most: int

    def __post_init__(self) -> None:
        if not 1 <= whole(self.median, "the median") <= whole(self.most, "the largest length"):
            raise ValueError(
                f"a median of {self.median} must be at least 1 and at most {self.most}, the largest length"
            )
        real(self.spread, "a spread (0: all lengths are the same)", least=0)

    def draw(self, random: Random) -> int:
        drawn = random.normalvariate(log(self.median), self.spread)
        return max(1, round(exp(min(drawn, log(self.most)))))


PROMPTS, ANSWERS = Lengths(median=48, spread=0.9, most=320), Lengths(median=40, spread=0.8, most=160)


def mix(
    count: int, vocab_size: int, *, prompts: Lengths = PROMPTS, answers: Lengths = ANSWERS, seed: int = 0
) -> list[Request]:
    """`count` requests of random tokens below `vocab_size`, named r0, r1, …; a longer mix begins as a shorter one does.

    Raises ValueError if there is nothing to draw.
    """
    if whole(count, "the number of requests") < 1 or whole(vocab_size, "the vocabulary") < 1:
        raise ValueError(f"{count} requests from a vocabulary of {vocab_size}: each must be at least 1")
    random, seeds = Random(whole(seed, "the seed")), Random(seed)
    requests = []
    for number in range(count):
        tokens, new = prompts.draw(random), answers.draw(random)
        prompt = tuple(random.randrange(vocab_size) for _ in range(tokens))
        requests.append(Request(prompt, new, seed=seeds.getrandbits(32), name=f"r{number}"))
    return requests
