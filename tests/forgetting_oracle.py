"""A text that is read step by step and forgotten from: one token, one head, one key at a time, in NumPy and float64.

The one idea: what is remembered is a list of tokens, each with its keys as they were before they were turned to any
position. Each step turns them from the formula to where the tokens stand in it, and when it ends a choice keeps some.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import exp, sqrt

import numpy as np
from oracle import Array, rms_norm, rotated


@dataclass
class Token:
    """A token that is held: where it stands in its text, what it left in each layer and head, what attention it got."""

    position: int
    keys: list[list[Array]] = field(default_factory=list)  # keys[layer][h], not turned
    values: list[list[Array]] = field(default_factory=list)
    got: float = 0.0


@dataclass(frozen=True)
class Latest:
    """The last `window` tokens, and the `first` ones of the text."""

    window: int
    first: int = 0

    def sees(self, query: int, key: int) -> bool:
        return key > query - self.window or key < self.first

    def stay(self, tokens: list[Token], length: int) -> list[Token]:
        return [t for t in tokens if t.position >= length - self.window or t.position < self.first]


@dataclass(frozen=True)
class Watched:
    """The last `recent` tokens, and of the others as many as there is room for: those that got most attention."""

    slots: int
    recent: int

    def sees(self, query: int, key: int) -> bool:
        return True

    def stay(self, tokens: list[Token], length: int) -> list[Token]:
        old = [t for t in tokens if t.position < length - self.recent]
        recent = [t for t in tokens if t.position >= length - self.recent]
        ranking = sorted(old, key=lambda t: -t.got)
        room = self.slots - len(recent)
        if 0 < room < len(ranking):
            assert ranking[room - 1].got - ranking[room].got > 1e-9, "too near to say who stays: take another text"
        best = {t.position for t in ranking[:room]}
        return [t for t in tokens if t.position >= length - self.recent or t.position in best]


@dataclass
class Text:
    """One row: its length, and the tokens of it that are held, in their order."""

    config: object
    weights: Mapping[str, Array]
    choice: Latest | Watched
    renumber: bool = False
    length: int = 0
    held: list[Token] = field(default_factory=list)

    def copy(self) -> "Text":
        other = copy(self)
        other.held = [copy(token) for token in self.held]
        return other

    def read(self, tokens: Sequence[int]) -> Array:
        """One step over these tokens: their logits [T, V]."""
        c, w = self.config, self.weights
        D, group = c.head_dim, c.n_heads // c.n_kv_heads
        new = [Token(self.length + i) for i in range(len(tokens))]
        line = [*self.held, *new]
        place = list(range(len(line))) if self.renumber else [token.position for token in line]
        stream = [w["embedding"][token] for token in tokens]
        for layer in range(c.n_layers):
            p = {name: w[f"layers.{layer}.{name}"] for name in
                 ("attention_norm", "qkv", "attention_out", "mlp_norm", "gate_up", "down")}  # fmt: skip
            turned = [[rotated(token.keys[layer][h], place[j], c.rope_theta, c.rope_factors)
                       for h in range(c.n_kv_heads)] for j, token in enumerate(self.held)]  # fmt: skip
            for i, x in enumerate(stream):
                at = len(self.held) + i
                projected = p["qkv"] @ rms_norm(x, p["attention_norm"], c.norm_eps)
                heads = [projected[n * D : (n + 1) * D] for n in range(c.n_heads + 2 * c.n_kv_heads)]
                keys, values = heads[c.n_heads : c.n_heads + c.n_kv_heads], heads[c.n_heads + c.n_kv_heads :]
                new[i].keys.append(keys)
                new[i].values.append(values)
                turned.append([rotated(key, place[at], c.rope_theta, c.rope_factors) for key in keys])
                there = [j for j in range(at + 1) if self.choice.sees(new[i].position, line[j].position)]
                mixed = []
                for h in range(c.n_heads):
                    query = rotated(heads[h], place[at], c.rope_theta, c.rope_factors)
                    scores = [float(query @ turned[j][h // group]) / sqrt(D) for j in there]
                    sizes = [exp(score - max(scores)) for score in scores]
                    mean = np.zeros(D)
                    for j, size in zip(there, sizes, strict=True):
                        line[j].got += size / sum(sizes)
                        mean = mean + size / sum(sizes) * line[j].values[layer][h // group]
                    mixed.append(mean)
                x = x + p["attention_out"] @ np.concatenate(mixed)
                both = p["gate_up"] @ rms_norm(x, p["mlp_norm"], c.norm_eps)
                gate, up = both[: c.d_ff], both[c.d_ff :]
                stream[i] = x + p["down"] @ (gate / (1 + np.exp(-gate)) * up)
        self.length += len(tokens)
        self.held = self.choice.stay(line, self.length)
        head = w["embedding"] if c.tied_head else w["head"]
        return np.array([head @ rms_norm(x, w["final_norm"], c.norm_eps) for x in stream])
