"""The small model that works in the museum: it answers visitors' questions, and learns to in a few seconds.

The one idea: the words of an answer hang on the question, and of some words there are three, so that a broken cache
shows as it does in a large model: as plausible, wrong words, or as nothing at all. It knows ten questions and no more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from course_lib.model import ModelConfig, Transformer
from course_lib.training import train

TALK = (  # a question, and its answer with three words of the same kind to choose from
    "where is the cloakroom? {downstairs|upstairs|outside}, on {the|your|its} {left|right|back}. "
    "a {coin|key|ticket} opens the {box|gate|locker}.",
    "when do you close? at {six|five|eight}, but at {nine|ten|noon} on {fridays|mondays|sundays}. "
    "the {bell|horn|guard} {rings|calls|sounds} twice.",
    "who painted the storm? a {sailor|monk|farmer}, in one {night|week|winter}. "
    "{nobody|somebody|everybody} knows his {name|face|dog}.",
    "where is the lift? {behind|beside|near} the {stairs|shop|fountain}. it {stops|rests|sleeps} at {noon|night|five}.",
    "may I take photos? {yes|gladly|sometimes}, without a {flash|stand|lamp}. "
    "the {cat|guard|owl} {poses|smiles|waves} for {free|coins|cake}.",
    "is there a cafe? on the {roof|lawn|terrace}, until {five|seven|dusk}. the {soup|cake|tea} is {good|cold|famous}.",
    "how old is the clock? {older|younger|newer} than the {house|town|river}. "
    "it {lost|gained|skipped} an {hour|arm|eye} once.",
    "may I bring dogs? only in {paintings|winter|baskets}. "
    "{cats|birds|snakes} {live|sleep|wait} {here|inside|there} too.",
    "what is behind the red door? the {archive|boiler|cellar}, please do not {enter|knock|whistle}. "
    "it {hums|smells|glows} at {night|noon|times}.",
    "can I buy the map? {yes|sure|certainly}, for {two|three|four} {coins|euros|stamps}. "
    "it shows the {cellar|roof|garden} {too|first|twice}.",
)
HOW_OFTEN = (7, 2, 1)  # the first word of each three is the usual one
ROUNDS, LENGTH, ROWS, STEPS = 60, 48, 8, 300


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def said(talk: str, random: Random) -> str:
    """A question and one of its answers."""
    return re.sub(r"\{(.*?)\}", lambda choice: random.choices(choice[1].split("|"), HOW_OFTEN)[0], talk)


@dataclass(frozen=True)
class Guide:
    """The model and its words, one token each."""

    model: Transformer
    words: tuple[str, ...]

    def encode(self, text: str) -> list[int]:
        """Raises ValueError for a word that the guide does not know."""
        return [self.words.index(word) for word in words(text)]

    def decode(self, tokens: Sequence[int]) -> str:
        return re.sub(r" (?=[.,?])", "", " ".join(self.words[token] for token in tokens))


@lru_cache(maxsize=1)
@torch.inference_mode(False)
def guide() -> Guide:
    """The guide, trained the first time that it is asked for. The same on one machine each time."""
    random = Random(0)
    rounds = [said(talk, random) for _ in range(ROUNDS) for talk in random.sample(TALK, len(TALK))]
    known = tuple(sorted({word for talk in TALK for word in words(talk) if word not in "{|}"}))
    ids = torch.tensor([known.index(word) for word in words(" ".join(rounds))])

    def loss(model: Transformer, pieces: Tensor) -> Tensor:
        return F.cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())

    config = ModelConfig(len(known), 2, 48, 4, 2, 12, 96, max_positions=256)
    return Guide(train(config, loss, ids, length=LENGTH, rows=ROWS, steps=STEPS), known)
