"""How many bytes a KV cache takes: the textbook formula, and a description layer by layer that real models need.

The one idea: a cache is slots times the bytes of a slot. How many a layer keeps depends on its kind (all tokens, a
window, those of an encoder, none), what a slot takes on its heads, its dimensions and the elements; everything else is
a sum. Nothing is measured here and nothing is rounded: results are whole numbers.

Rules and figures: `config.py` names the public source of each where it is applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction

from course_lib.sizing.quantities import Bytes, SizingError, exact, fraction, whole


def kv_cache_bytes(
    *,
    n_layers: int,
    tokens: int,
    n_kv_heads: int,
    head_dim: int,
    bytes_per_element: int | float | Fraction,
    sequences: int = 1,
) -> Bytes:
    """Bytes of a cache that keeps a key and a value of every token in every layer: 2 L T H D b for each sequence.

    n_kv_heads counts key/value heads, not query heads and not query heads for each KV head. An int wherever the result
    is whole. Raises SizingError for what is no count, or an element of no size.
    """
    elements = (
        2  # a key and a value
        * whole(n_layers, "n_layers", 1)
        * whole(tokens, "tokens")
        * whole(n_kv_heads, "n_kv_heads", 1)
        * whole(head_dim, "head_dim", 1)
        * whole(sequences, "sequences")
    )
    return exact(elements * fraction(bytes_per_element, "bytes_per_element"))


class Kind(StrEnum):
    """What a layer keeps of the text."""

    FULL = "full attention"  # a key and a value of every token
    SLIDING = "sliding window"  # of the last `window` tokens
    LATENT = "latent"  # one compressed vector of every token, for keys and values and all heads together
    CROSS = "cross-attention"  # of every position of the encoder, written once
    SHARED = "shared"  # nothing: it reads another layer's
    STATE = "state, no cache"  # nothing for each token: a state of constant size, which is not counted here


@dataclass(frozen=True)
class ElementType:
    """How one number of a key or value is stored: its own bytes, and its share in the scales."""

    name: str
    per_element: Fraction  # bytes, without scales
    scale_bytes: int = 0
    group: int | None = None  # elements of a head that share a scale; None: one scale for each head's part of it

    def scales(self, heads: int, dim: int) -> Fraction:
        """Bytes of the scales in one token's key (or value)."""
        return self.scale_bytes * (Fraction(heads) if self.group is None else Fraction(heads * dim, self.group))

    def part_bytes(self, heads: int, dim: int) -> int:
        """Bytes of one token's key (or value): `heads` parts of `dim` elements, and their scales.

        Raises SizingError if a head's part cannot be cut into whole groups: no group may reach into the next head,
        as llama.cpp demands when it makes the cache.
        """
        size = heads * dim * self.per_element + self.scales(heads, dim)
        if size.denominator != 1 or (self.group and dim % self.group):
            raise SizingError(
                f"dtype = {self.name} stores groups of {self.group or 2} elements, and a head of {dim} is no whole "
                "number of them: choose another element type",
                "dtype",
                self.name,
            )
        return int(size)


def _plain(name: str, size: int) -> ElementType:
    return ElementType(name, Fraction(size))


def _blocks(name: str, block_bytes: int, scale_bytes: int) -> ElementType:
    """A type of llama.cpp: 32 elements in a block of so many bytes, scales (and offsets) included."""
    return ElementType(name, Fraction(block_bytes - scale_bytes, 32), scale_bytes, 32)


ELEMENT_TYPES = {
    kind.name: kind
    for kind in (
        _plain("fp64", 8), _plain("fp32", 4), _plain("bf16", 2), _plain("fp16", 2),
        _plain("fp8", 1),  # one scale for a whole tensor, which is not counted
        # Rule 5: scales are bytes, too. llama.cpp's block_q8_0 … block_iq4_nl (ggml-common.h):
        _blocks("q8_0", 34, 2), _blocks("q5_1", 24, 4), _blocks("q5_0", 22, 2), _blocks("q4_1", 20, 4),
        _blocks("q4_0", 18, 2), _blocks("iq4_nl", 18, 2),
        # and vLLM's: one fp32 scale for each token and head, apart for K and V; one byte for 16 elements.
        ElementType("int8_per_token_head", Fraction(1), 4), ElementType("fp8_per_token_head", Fraction(1), 4),
        ElementType("nvfp4", Fraction(1, 2), 1, 16),
    )
}  # fmt: skip
ALIASES = {
    "float64": "fp64", "f64": "fp64", "float32": "fp32", "f32": "fp32", "bfloat16": "bf16", "float16": "fp16",
    "f16": "fp16", "half": "fp16", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8",
}  # fmt: skip
# vLLM's layout for DeepSeek: the latent in fp8 with an fp32 scale for each 128, the rotated key in bf16 (656 B in all).
MLA_LAYOUT = "fp8_ds_mla"
MLA_TYPES = (ElementType(MLA_LAYOUT, Fraction(1), 4, 128), ELEMENT_TYPES["bf16"])
TYPE_NAMES = (*ELEMENT_TYPES, MLA_LAYOUT)


def element_type(name: str) -> ElementType:
    """The element type of that name or alias, in small letters or capitals; SizingError that lists them for another."""
    small = name.lower() if isinstance(name, str) else ""
    known = ELEMENT_TYPES.get(ALIASES.get(small, small))
    if known is None:
        raise SizingError(f"dtype = {name!r:.80} is not known; known: {', '.join(TYPE_NAMES)}", "dtype", name)
    return known


@dataclass(frozen=True)
class LayerCache:
    """What one layer keeps. A latent counts its two parts, the latent and the rotated key, as key and value."""

    kind: Kind
    n_kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int | None = None  # positions that a query sees, its own included
    encoder_tokens: int | None = None  # slots of cross-attention; None: told when bytes are asked for
    key_type: ElementType = ELEMENT_TYPES["bf16"]
    value_type: ElementType = ELEMENT_TYPES["bf16"]

    @property
    def grows(self) -> bool:
        """Whether a new token takes a new slot (in a window: until it is full)."""
        return self.kind in (Kind.FULL, Kind.SLIDING, Kind.LATENT)

    def slots(self, tokens: int, encoder_tokens: int | None = None, block: int = 1) -> int:
        """Slots that this layer keeps of one sequence, in whole blocks."""
        if self.kind is Kind.CROSS:
            encoder_tokens = encoder_tokens if self.encoder_tokens is None else self.encoder_tokens
            if encoder_tokens is None:
                raise SizingError(
                    "encoder_tokens (--encoder-tokens) is missing: cross-attention keeps all encoder positions",
                    "encoder_tokens",
                )
            slots = encoder_tokens
        elif not self.grows:
            return 0
        else:
            slots = tokens if self.window is None else min(tokens, self.window)
        return -(-slots // block) * block

    def slot_bytes(self, tensor_parallel: int = 1) -> int:
        """Bytes of one slot, the key and the value of a token, on one rank."""
        if self.kind in (Kind.SHARED, Kind.STATE):
            return 0
        heads = heads_on_a_rank(self.n_kv_heads, tensor_parallel)
        return self.key_type.part_bytes(heads, self.key_dim) + self.value_type.part_bytes(heads, self.value_dim)

    def scale_bytes(self, tensor_parallel: int = 1) -> Bytes:
        """How many of these bytes are scales."""
        if self.kind in (Kind.SHARED, Kind.STATE):
            return 0
        heads = heads_on_a_rank(self.n_kv_heads, tensor_parallel)
        return exact(self.key_type.scales(heads, self.key_dim) + self.value_type.scales(heads, self.value_dim))


def heads_on_a_rank(n_kv_heads: int, tensor_parallel: int) -> int:
    """KV heads that one of `tensor_parallel` ranks keeps. Beyond one rank a head they are copied, not divided (rule 6).

    A latent counts as one head: every rank keeps all of it. Raises SizingError where neither number divides the other,
    which no server does.
    """
    if tensor_parallel <= n_kv_heads and n_kv_heads % tensor_parallel == 0:
        return n_kv_heads // tensor_parallel
    if tensor_parallel > n_kv_heads and tensor_parallel % n_kv_heads == 0:
        return 1
    raise SizingError(
        f"tensor_parallel = {tensor_parallel} does not fit {n_kv_heads} KV heads: one must divide the other",
        "tensor_parallel",
        tensor_parallel,
    )


@dataclass(frozen=True)
class LayerGroup:
    """Layers that keep the same, and how many there are: one line of what an estimate rests on."""

    layer: LayerCache
    layers: int


@dataclass(frozen=True)
class CacheShape:
    """The cache of a model, layer by layer. Where `transformers` keeps more than is needed, that is told beside it."""

    name: str
    layers: tuple[LayerCache, ...]  # a decoder layer with cross-attention stands here twice
    assumptions: tuple[str, ...] = ()
    in_transformers: tuple[LayerCache, ...] | None = None  # where its layers keep other slots than `layers`
    trained_tokens: int | None = None
    query_heads: int | None = None  # of every layer, where they are known; if layers differ, what divides all of them

    @property
    def groups(self) -> tuple[LayerGroup, ...]:
        """One entry for each kind of layer, in the order in which they first occur."""
        return tuple(LayerGroup(layer, count) for layer, count in Counter(self.layers).items())

    def bytes(
        self,
        tokens: int,
        sequences: int = 1,
        *,
        block: int = 1,
        tensor_parallel: int = 1,
        encoder_tokens: int | None = None,
    ) -> int:
        """Bytes that `sequences` sequences of `tokens` tokens keep on one rank.

        With a `block`, each sequence takes whole blocks of so many slots in each layer. `encoder_tokens` are the
        encoder's positions of each sequence. Raises SizingError for what is no count, and for ranks that the heads
        cannot be shared out to.
        """
        tokens, sequences = whole(tokens, "tokens"), whole(sequences, "sequences")
        block, ranks = whole(block, "block", 1), self._ranks(tensor_parallel)
        if encoder_tokens is not None:
            encoder_tokens = whole(encoder_tokens, "encoder_tokens")
        return sequences * sum(
            group.layers * group.layer.slots(tokens, encoder_tokens, block) * group.layer.slot_bytes(ranks)
            for group in self.groups
        )

    def _ranks(self, tensor_parallel: int) -> int:
        """The ranks, if each gets as many query heads: those are never copied."""
        ranks = whole(tensor_parallel, "tensor_parallel", 1)
        if self.query_heads is not None and self.query_heads % ranks:
            raise SizingError(
                f"tensor_parallel = {ranks} does not divide the {self.query_heads} query heads: "
                "each rank must get as many",
                "tensor_parallel",
                ranks,
            )
        return ranks

    def bytes_per_token(self, *, past_windows: bool = False, tensor_parallel: int = 1) -> int:
        """Bytes that one more token adds on one rank: while every layer grows, or once all windows are full."""
        ranks = self._ranks(tensor_parallel)
        growing = [g for g in self.groups if g.layer.grows and not (past_windows and g.layer.window is not None)]
        return sum(group.layers * group.layer.slot_bytes(ranks) for group in growing)

    def bytes_in_transformers(self, tokens: int, sequences: int = 1, *, encoder_tokens: int | None = None) -> int:
        """What the dynamic cache of Hugging Face `transformers` 5.24 holds between two steps.

        A sliding layer holds a slot less than its window there: the newest token brings its own.
        """
        kept = self.layers if self.in_transformers is None else self.in_transformers
        held = tuple(replace(layer, window=layer.window - 1) if layer.window else layer for layer in kept)
        return replace(self, layers=held).bytes(tokens, sequences, encoder_tokens=encoder_tokens)

    def stored_as(self, key: str, value: str | None = None) -> CacheShape:
        """The same cache with keys and values of other element types (`value`: as the keys).

        Raises SizingError for a type that is not known, or that has no place for such keys and values.
        """
        if MLA_LAYOUT in (key, value):
            others = {group.layer.kind for group in self.groups} - {Kind.LATENT, Kind.SHARED, Kind.STATE}
            if others or key != MLA_LAYOUT or value not in (None, MLA_LAYOUT):
                raise SizingError(f"dtype = {MLA_LAYOUT} is a layout for latents, for both parts", "dtype", key)
            key_type, value_type = MLA_TYPES
        else:
            key_type, value_type = element_type(key), element_type(key if value is None else value)

        def changed(layers: Iterable[LayerCache]) -> tuple[LayerCache, ...]:
            return tuple(replace(layer, key_type=key_type, value_type=value_type) for layer in layers)

        shape = replace(self, layers=changed(self.layers))
        if self.in_transformers is not None:
            shape = replace(shape, in_transformers=changed(self.in_transformers))
        for group in shape.groups:
            group.layer.slot_bytes()  # raises if a head has no whole number of groups
        return shape
