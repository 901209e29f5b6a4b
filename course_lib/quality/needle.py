"""A needle in a haystack: one sentence with a fact, somewhere in a text about other things, then a question.

The one idea: that a fact is in the context does not mean that it is used. So two things are measured: whether the
answer has it (a hit or not), and how unlikely the right answer was (NLL), which moves long before a hit turns into a
miss; and whether the cache still held the fact is told apart. All sentences were written for this course.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_right
from dataclasses import dataclass
from itertools import accumulate, product
from random import Random

import torch

from course_lib.caches import ContiguousCache
from course_lib.checkpoints import Tokenizer
from course_lib.generation import choose, decode, prefill
from course_lib.model import Transformer
from course_lib.quality.measures import CacheOf, nll

WHO = (
    "The baker", "A neighbour", "The librarian", "An old sailor", "The postman", "My aunt", "The gardener", "A student",
    "The carpenter", "Nobody but the cat", "The piano teacher", "A tired doctor", "The twins", "Our landlord",
    "The bus driver", "A visitor",
)  # fmt: skip
DID = (
    "watered the roses", "swept the stairs", "waited for the ferry", "mended an umbrella", "read the newspaper aloud",
    "fed the pigeons", "looked for a lost glove", "peeled apples", "hummed an old song", "carried boxes to the attic",
    "cleaned the windows", "wrote a long letter", "slept in the armchair", "baked two loaves", "walked along the river",
    "talked about the weather",
)  # fmt: skip
WHEN = (
    "before breakfast", "until the rain stopped", "while the kettle boiled", "on the first day of spring",
    "after the market had closed", "as the church bells rang", "in the quiet of the afternoon", "without a word",
    "because the train was late", "for most of the morning", "when the fog came in", "under a grey sky",
    "as on every Sunday", "just after sunset", "during the long holidays", "and nobody noticed",
)  # fmt: skip
SENTENCES = 800  # of the filler: some 10,000 tokens, more than SmolLM2 can read
NAMES = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karla", "Leo")
WORDS = (
    "lantern", "harbor", "pepper", "violin", "meadow", "anchor", "candle", "tiger", "marble", "ribbon", "copper",
    "island", "button", "falcon", "ginger", "castle",
)  # fmt: skip


@dataclass(frozen=True)
class Fact:
    """Somebody's secret word."""

    name: str
    word: str

    @property
    def opening(self) -> str:
        """How an answer begins before it comes to the point."""
        return f"The secret word of {self.name} is"

    @property
    def sentence(self) -> str:
        return f"{self.opening} {self.word}."

    @property
    def question(self) -> str:
        return f"What is the secret word of {self.name}?"


@dataclass(frozen=True)
class Haystack:
    """A prompt: filler sentences, the fact among them, and the question about it, laid out by the chat template.

    `needle` are the positions of the fact's tokens. `depth` is 0 where the fact comes first and 1 where it comes last.
    `distractors` are other people's secret words.
    """

    tokens: tuple[int, ...]
    needle: range
    fact: Fact
    depth: float
    distractors: tuple[Fact, ...]


def haystack(tokenizer: Tokenizer, length: int, depth: float, seed: int = 0, distractors: int = 0) -> Haystack:
    """A prompt of at most `length` tokens, all in all, and of nearly as many. The seed decides fact and filler.

    Raises ValueError if the question alone needs more, or the filler is not enough.
    """
    if not 0 <= depth <= 1:
        raise ValueError(f"a depth is 0 (the fact comes first) to 1 (it comes last), not {depth}")
    if not 0 <= distractors < len(NAMES):
        raise ValueError(f"there are {len(NAMES)} people, so 0 to {len(NAMES) - 1} distractors, not {distractors}")
    random = Random(seed)
    fact, *others = map(Fact, random.sample(NAMES, distractors + 1), random.sample(WORDS, distractors + 1))
    filler = [f"{' '.join(parts)}." for parts in random.sample([*product(WHO, DID, WHEN)], SENTENCES)]
    places = [random.random() for _ in others]  # as shares of the text

    def prompt(sentences: int) -> list[int]:
        at = sorted(zip([depth, *places], [fact, *others]), key=lambda pair: pair[0], reverse=True)
        text = filler[:sentences]
        for share, told in at:  # the last first, so that the places before it do not move
            text.insert(round(share * sentences), told.sentence)
        content = f"Read this text.\n\n{' '.join(text)}\n\n{fact.question}"
        return tokenizer.chat([{"role": "user", "content": content}])

    if len(prompt(0)) > length or len(prompt(len(filler))) <= length:
        raise ValueError(f"a text of {length} tokens: it can have from {len(prompt(0))} to {len(prompt(len(filler)))}")
    fitting = bisect(range(len(filler)), length, key=lambda sentences: len(prompt(sentences))) - 1
    tokens = tuple(prompt(fitting))
    return Haystack(tokens, where(tokenizer, tokens, fact.sentence), fact, depth, tuple(others))


def where(tokenizer: Tokenizer, tokens: tuple[int, ...], sentence: str) -> range:
    """The positions of the tokens that spell `sentence`, which occurs in their text."""
    stream = tokenizer.stream(special=True)
    pieces = [stream.push(token) for token in tokens]
    first = "".join(pieces).index(sentence)
    ends = list(accumulate(map(len, pieces)))
    return range(bisect_right(ends, first), bisect_right(ends, first + len(sentence) - 1) + 1)


@dataclass(frozen=True)
class Found:
    """What a model answered; the NLL in nats of the right word, all its tokens together, where an answer would come to
    the point; whether the cache held all of the needle when the answer began, and how many bytes it used then.
    """

    haystack: Haystack
    answer: str
    nll: float
    held: bool
    used_bytes: int

    @property
    def hit(self) -> bool:
        """Whether the answer has the right word, and none of the distractors' words."""
        others = (fact.word for fact in self.haystack.distractors)
        return says(self.answer, self.haystack.fact.word) and not any(says(self.answer, word) for word in others)


def says(answer: str, words: str) -> bool:
    """Whether `words` occur in `answer`, one after the other, whatever the case and the punctuation."""
    told, wanted = (" ".join(re.findall(r"\w+", text.casefold())) for text in (answer, words))
    return f" {wanted} " in f" {told} "


@torch.inference_mode()
def search(
    model: Transformer,
    tokenizer: Tokenizer,
    hay: Haystack,
    cache_of: CacheOf = ContiguousCache,
    *,
    chunk: int | None = None,
    max_new_tokens: int = 24,
) -> Found:
    """Let `model` read the prompt through a cache, in passes of `chunk` tokens, and answer greedily."""
    opening = tokenizer.encode(hay.fact.opening, add_bos=False)
    given = tokenizer.encode(f"{hay.fact.opening} {hay.fact.word}", add_bos=False)
    cache = cache_of(model.config, 2, len(hay.tokens) + max(max_new_tokens, len(given)))
    logits = prefill(model, [hay.tokens], cache, rows=[0], chunk=chunk)
    held, used = set(hay.needle) <= set(cache.places(0)), cache.used_bytes
    cache.copy_row(0, 1)  # the prompt is read once, and continued in two ways
    said: list[int] = []
    while (token := choose(logits[0])) not in tokenizer.stop_tokens and len(said) < max_new_tokens:
        said.append(token)
        logits = decode(model, [token], cache, rows=[0])
    forced = model(torch.tensor([given], device=model.device), cache, rows=[1])[0]  # [T, V]
    right = torch.tensor(given[len(opening) :], device=model.device)
    unlikely = nll(forced[len(opening) - 1 : -1], right).sum()
    return Found(hay, tokenizer.decode(said), float(unlikely), held, used)
