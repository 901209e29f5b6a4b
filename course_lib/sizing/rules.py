"""What the families of models have in common: heads, dimensions, and which layers slide.

The one idea: rules 1, 2 and 4 of `config.py` are written once, and a reader in `families.py` says which of them hold.
Nothing here knows a family by its name.
"""

from collections.abc import Callable
from dataclasses import dataclass

from course_lib.sizing.bytes import Kind, LayerCache
from course_lib.sizing.fields import Fields
from course_lib.sizing.quantities import shown

Layers = list[LayerCache]

N_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
N_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "n_kv_heads")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim")

STATE = LayerCache(Kind.STATE)
SHARED = LayerCache(Kind.SHARED)
# How layer_types call what a layer does. "hybrid" is attention beside a state; "moe" and "mlp" hold no cache.
ATTENDS = {"full_attention": Kind.FULL, "attention": Kind.FULL, "hybrid": Kind.FULL, "sliding_attention": Kind.SLIDING}
KEEPS_NOTHING = ("linear_attention", "mamba", "mamba2", "recurrent", "conv", "moe", "mlp")


@dataclass(frozen=True)
class Heads:
    """Layers, query heads and KV heads of a model, and the dimension of a head."""

    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int

    def layer(self, kind: Kind = Kind.FULL, window: int | None = None) -> LayerCache:
        return LayerCache(kind, self.n_kv_heads, self.head_dim, self.head_dim, window)


def head_dimension(fields: Fields, n_heads: int, told: bool = True, factor: int = 1) -> int:
    """Rule 1. `told`: the family has a head_dim of its own, which need not be factor * hidden_size / n_heads."""
    hidden = fields.maybe(HIDDEN, "dimensions")
    given = fields.maybe("head_dim", "dimensions")
    if given is not None and told:
        return given
    if hidden is None:
        raise fields.missing("head_dim" if told else "hidden_size")
    if factor * hidden % n_heads:
        raise fields.fail(named(fields, HIDDEN), f"is not a multiple of the {n_heads} heads, and no head_dim is given")
    if given not in (None, factor * hidden // n_heads):
        raise fields.fail("head_dim", f"contradicts hidden_size = {hidden} and {n_heads} heads: this family divides")
    return factor * hidden // n_heads


def named(fields: Fields, names: tuple[str, ...]) -> str:
    """Under which of its names a field is there."""
    return next((name for name in names if name in fields), names[0])


def checked_heads(fields: Fields, n_kv_heads: int, n_heads: int, name: str = "num_key_value_heads") -> int:
    if n_heads % n_kv_heads:
        raise fields.fail(name, f"does not divide the {n_heads} query heads")
    return n_kv_heads


def grouped_heads(fields: Fields, kv_may_lack: bool = True) -> Heads:
    """Rules 1 and 2 for a family with num_key_value_heads; absent, every query head has a KV head of its own."""
    n_layers, n_heads = fields.count(N_LAYERS, "layers"), fields.count(N_HEADS, "heads")
    n_kv_heads = fields.maybe(KV_HEADS, "heads")
    if n_kv_heads is None:
        if not kv_may_lack and "num_key_value_heads" not in fields.values:  # an explicit null does mean all heads
            raise fields.missing("num_key_value_heads")
        n_kv_heads = n_heads
        fields.assume(f"num_key_value_heads is not given: each of the {n_heads} query heads has a KV head of its own.")
    return Heads(
        n_layers,
        n_heads,
        checked_heads(fields, n_kv_heads, n_heads, named(fields, KV_HEADS)),
        head_dimension(fields, n_heads),
    )


def heads_divided(fields: Fields, n_kv_heads: int | None = None) -> Heads:
    n_layers, n_heads = fields.count(N_LAYERS, "layers"), fields.count(N_HEADS, "heads")
    return Heads(n_layers, n_heads, n_kv_heads or n_heads, head_dimension(fields, n_heads, told=False))


def layer_types(fields: Fields, n_layers: int, name: str = "layer_types") -> list[str] | None:
    """layer_types, each of a kind that is known."""
    types = fields.list_of(name, str, n_layers)
    for entry in types or []:
        if entry not in ATTENDS and entry not in KEEPS_NOTHING:
            known = ", ".join((*ATTENDS, *KEEPS_NOTHING))
            raise fields.fail(name, f"names a layer of a kind that is not known, {shown(entry)}; known: {known}")
    return types


def _window(fields: Fields) -> int:
    return fields.count("sliding_window", "positions")


def typed(fields: Fields, heads: Heads, types: list[str]) -> Layers:
    """The layers as layer_types name them (rule 4: this list is believed before any number)."""
    if "sliding_attention" in types and fields.flag("use_sliding_window", True) is False:
        raise fields.fail("layer_types", "names sliding layers, but use_sliding_window is false")
    window = _window(fields) if "sliding_attention" in types else None
    attends = {Kind.FULL: heads.layer(), Kind.SLIDING: heads.layer(Kind.SLIDING, window)}
    return [attends[ATTENDS[entry]] if entry in ATTENDS else STATE for entry in types]


def patterned(fields: Fields, heads: Heads, slides: Callable[[int], bool]) -> Layers:
    """layer_types if they are given, else the pattern of the family: which layer numbers slide (rule 4)."""
    types = layer_types(fields, heads.n_layers)
    if types is None:
        types = ["sliding_attention" if slides(i) else "full_attention" for i in range(heads.n_layers)]
    return typed(fields, heads, types)
