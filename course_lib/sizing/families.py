"""One reader for each family of models: which of its fields tell what a layer keeps.

The one idea: a reader returns the layers as they are needed, and beside them those that `transformers` stores where
these differ. The numbers at the comments are those of the rules in `config.py`.
"""

from collections.abc import Callable, Mapping

from course_lib.sizing.bytes import Kind, LayerCache
from course_lib.sizing.fields import Fields
from course_lib.sizing.known import STRANGE, refuse_contradictions
from course_lib.sizing.rules import (
    ATTENDS,
    KV_HEADS,
    N_HEADS,
    N_LAYERS,
    SHARED,
    STATE,
    Heads,
    Layers,
    checked_heads,
    grouped_heads,
    head_dimension,
    heads_divided,
    layer_types,
    named,
    patterned,
    typed,
)

Read = tuple[Layers, Layers | None]  # what is needed, and what transformers stores if that is more


def read_all_heads(fields: Fields) -> Read:
    """GPT-2, OPT, BLOOM, GPT-NeoX: each query head has a KV head of its own, hidden_size is divided among them.

    SantaCoder calls itself gpt2 and has one KV head, which attention_head_type tells.
    """
    one = fields.text("model_type") == "gpt2" and _head_type(fields) == "multiquery"
    heads = heads_divided(fields, 1 if one else None)
    if one:
        fields.assume("attention_head_type is multiquery: one KV head, as in SantaCoder.")
    if fields.maybe("num_key_value_heads", "heads") not in (None, heads.n_kv_heads):
        raise fields.fail("num_key_value_heads", f"contradicts {heads.n_kv_heads} KV heads: this family shares none")
    return [heads.layer()] * heads.n_layers, None


def _head_type(fields: Fields) -> str | None:
    kind = fields.text("attention_head_type")
    if kind not in (None, "multiquery", "multihead"):
        raise fields.fail("attention_head_type", "is not known; known: multiquery, multihead")
    return kind


def read_starcoder(fields: Fields) -> Read:
    """GPT-BigCode: one KV head, unless multi_query is false (rule 2). An absent multi_query is true there.

    Older configs say the same as attention_head_type.
    """
    kind = _head_type(fields)
    if kind is None and "multi_query" not in fields:
        fields.assume("multi_query is not given; the model's class then takes true: one KV head.")
    one = fields.flag("multi_query", kind != "multihead")
    if kind is not None and one != (kind == "multiquery"):
        raise fields.fail("attention_head_type", f"contradicts multi_query = {one}")
    heads = heads_divided(fields, 1 if one else None)
    return [heads.layer()] * heads.n_layers, None


def read_falcon(fields: Fields) -> Read:
    """Falcon (rule 2): one KV head with multi_query, unless it has the new architecture; then num_kv_heads.

    transformers writes num_attention_heads into num_kv_heads where it is absent, so this field alone says nothing.
    With the new architecture it also repeats the heads before it stores them (rule 9). The first configs of Falcon-40B
    name neither field and give n_head_kv = 8: that many heads, not one.
    """
    n_heads = fields.count(N_HEADS, "heads")
    given = fields.maybe(("num_kv_heads", "n_head_kv"), "heads")
    old = "multi_query" not in fields and "new_decoder_architecture" not in fields
    grouped = old and given not in (None, 1, n_heads)
    new = grouped or fields.flag("new_decoder_architecture", False)
    if grouped:
        fields.assume(
            f"Neither multi_query nor new_decoder_architecture is given: the {given} KV heads that the config names "
            "are believed, and the rest is read as Falcon's new architecture."
        )
    elif "multi_query" not in fields:
        fields.assume("multi_query is not given; the model's class then takes true.")
    one = fields.flag("multi_query", True) and not new
    if given is None and not one:
        fields.assume(f"num_kv_heads is not given: each of the {n_heads} query heads has a KV head of its own.")
    name = named(fields, ("num_kv_heads", "n_head_kv"))
    heads = heads_divided(fields, 1 if one else checked_heads(fields, given or n_heads, n_heads, name))
    stored = Heads(heads.n_layers, n_heads, n_heads, heads.head_dim)
    return [heads.layer()] * heads.n_layers, [stored.layer()] * heads.n_layers if new else None


def read_llama(fields: Fields) -> Read:
    """Llama: grouped heads, every layer attends to everything."""
    return _no_window(fields, grouped_heads(fields))


def read_gemma(fields: Fields) -> Read:
    return _no_window(fields, told_heads(fields))


def _no_window(fields: Fields, heads: Heads) -> Read:
    if "sliding_window" in fields and "layer_types" not in fields:
        raise fields.fail("sliding_window", "is set, but this family has no window; set it to null")
    return patterned(fields, heads, lambda i: False), None


def read_mistral(fields: Fields) -> Read:
    """Mistral: all layers slide if sliding_window is a number, none if it is null (v0.2 and later); rule 4."""
    if "sliding_window" not in fields.values and "sliding_window" not in fields.defaults:
        fields.defaults = {**fields.defaults, "sliding_window": 4096}  # MistralConfig's
    return _all_slide(fields)


def _all_slide(fields: Fields) -> Read:
    """Mixtral, StarCoder2, Phi-3: all layers slide if sliding_window is a number; rule 7 for Mixtral's experts."""
    heads = grouped_heads(fields, kv_may_lack=False)
    slides = fields.value("sliding_window") is not None
    return patterned(fields, heads, lambda i: slides), None


def read_phi3(fields: Fields) -> Read:
    heads = grouped_heads(fields)
    slides = fields.value("sliding_window") is not None
    return patterned(fields, heads, lambda i: slides), None


def read_qwen(fields: Fields) -> Read:
    """Qwen2 and 3: a window counts only with use_sliding_window, and for layers from max_window_layers on (rule 4)."""
    heads = grouped_heads(fields, kv_may_lack=False)
    on = fields.flag("use_sliding_window", False) and fields.value("sliding_window") is not None
    if not on and "sliding_window" in fields and "layer_types" not in fields:
        fields.maybe("sliding_window", "positions")
        fields.assume("sliding_window is given, but use_sliding_window is not true: no layer slides.")
    if on and "layer_types" not in fields:
        first = fields.count("max_window_layers", "layers", least=0)
        return patterned(fields, heads, lambda i: i >= first), None
    return patterned(fields, heads, lambda i: False), None


def read_qwen3(fields: Fields) -> Read:
    if "head_dim" not in fields.values and "head_dim" not in fields.defaults:
        fields.defaults = {**fields.defaults, "head_dim": 128}  # Qwen3Config's, not a quotient
    told_head_dim(fields)
    return read_qwen(fields)


def read_qwen_experts(fields: Fields) -> Read:
    """Qwen's mixtures of experts: as Qwen 2, but which layers slide is not told by the numbers alone.

    Qwen3MoeConfig fills in no head_dim, as Qwen3Config does: absent, it is a quotient (rule 1).
    """
    if fields.flag("use_sliding_window", False) and "layer_types" not in fields:
        raise fields.fail("use_sliding_window", "is true, but no layer_types say which layers slide")
    return read_qwen(fields)


def told_head_dim(fields: Fields) -> None:
    if fields.value("head_dim") is None:
        raise fields.missing("head_dim")


def told_heads(fields: Fields) -> Heads:
    """Rule 1: in Gemma and gpt-oss head_dim is no quotient, so it must be told."""
    told_head_dim(fields)
    return grouped_heads(fields, kv_may_lack=False)


def read_alternating(fields: Fields) -> Read:
    """Gemma 2, gpt-oss: layers 0, 2, 4, … slide (rule 4)."""
    return patterned(fields, told_heads(fields), lambda i: i % 2 == 0), None


def read_gemma3(fields: Fields) -> Read:
    """Gemma 3: every sixth layer (sliding_window_pattern) attends to everything, the others slide (rule 4)."""
    fields.refuse(("use_bidirectional_attention",), "makes an encoder of it, which keeps no cache")
    every = fields.maybe(("sliding_window_pattern", "_sliding_window_pattern"), "layers")
    if every is None and "layer_types" not in fields:
        fields.assume("Neither layer_types nor sliding_window_pattern is given: every sixth layer is global.")
    return patterned(fields, told_heads(fields), lambda i: (i + 1) % (every or 6) != 0), None


def read_gemma3n(fields: Fields) -> Read:
    """Gemma 3n: every fifth layer is global, and the last num_kv_shared_layers read the cache of an earlier one."""
    heads = told_heads(fields)
    shared = fields.count("num_kv_shared_layers", "layers", least=0)
    if shared >= heads.n_layers:
        raise fields.fail("num_kv_shared_layers", f"leaves none of the {heads.n_layers} layers with a cache")
    own = patterned(fields, heads, lambda i: (i + 1) % 5 != 0)[: heads.n_layers - shared]
    return own + [SHARED] * shared, None


def latent_layer(fields: Fields) -> LayerCache:
    """Rule 3: one vector of kv_lora_rank + qk_rope_head_dim elements, once: no factor 2, no heads."""
    rank, rope = fields.count("kv_lora_rank", "dimensions"), fields.count("qk_rope_head_dim", "dimensions")
    return LayerCache(Kind.LATENT, 1, rank, rope)


def read_latent(fields: Fields) -> Read:
    """DeepSeek V2 and V3; and models not known whose layer_types mix latent attention with a state."""
    fields.assume("Keys and values are kept as one latent vector; code that expands them into heads stores far more.")
    n_layers, latent = fields.count(N_LAYERS, "layers"), latent_layer(fields)
    types = layer_types(fields, n_layers) or ["attention"] * n_layers
    if "sliding_attention" in types:
        raise fields.fail(
            "layer_types", "names sliding layers beside kv_lora_rank; only the model's code tells what they keep"
        )
    return [latent if entry in ATTENDS else STATE for entry in types], None


def read_jamba(fields: Fields) -> Read:
    """Jamba: layer i attends if i % attn_layer_period == attn_layer_offset, the others are Mamba."""
    heads = grouped_heads(fields, kv_may_lack=False)
    name = "layer_types" if "layer_types" in fields else "layers_block_type"
    types = layer_types(fields, heads.n_layers, name)
    if types is None:
        period = fields.count("attn_layer_period", "layers")
        offset = fields.count("attn_layer_offset", "layers", least=0)
        if offset >= period:
            raise fields.fail("attn_layer_offset", f"is not below attn_layer_period = {period}")
        types = ["attention" if i % period == offset else "mamba" for i in range(heads.n_layers)]
    return typed(fields, heads, types), None


def read_zamba(fields: Fields) -> Read:
    """Zamba and Zamba2: an attention block with shared weights at some layers, each with a cache of its own.

    Its heads work on two layers' outputs side by side, so their dimension is 2 * hidden_size / heads.
    """
    n_layers, n_heads = fields.count(N_LAYERS, "layers"), fields.count(N_HEADS, "heads")
    n_kv_heads = checked_heads(fields, fields.maybe("num_key_value_heads", "heads") or n_heads, n_heads)
    head_dim = fields.maybe("attention_head_dim", "dimensions")
    divided = head_dimension(fields, n_heads, told=False, factor=2)
    if fields.text("model_type") == "zamba2" and head_dim not in (None, divided):
        raise fields.fail("attention_head_dim", f"contradicts 2 * hidden_size / {n_heads} heads = {divided}")
    heads = Heads(n_layers, n_heads, n_kv_heads, head_dim or divided)
    attends = _zamba_attends(fields, n_layers)
    return [heads.layer() if i in attends else STATE for i in range(n_layers)], None


def _zamba_attends(fields: Fields, n_layers: int) -> set[int]:
    name = "layer_types" if "layer_types" in fields else "layers_block_type"
    types = layer_types(fields, n_layers, name)
    ids = fields.list_of("hybrid_layer_ids", int)
    if ids is not None and (len(set(ids)) != len(ids) or not all(0 <= i < n_layers for i in ids)):
        raise fields.fail("hybrid_layer_ids", f"are not different layers from 0 to {n_layers - 1}")
    if types is not None and "sliding_attention" in types:
        raise fields.fail(name, "names sliding layers, which this family does not have")
    if types is not None:
        attending = {i for i, entry in enumerate(types) if entry in ATTENDS}
        if ids is not None and set(ids) != attending:
            raise fields.fail("hybrid_layer_ids", f"contradicts {name}")
        return attending
    if ids is not None:
        return set(ids)
    if fields.text("model_type") == "zamba2":
        raise fields.missing("layers_block_type")
    period, offset = fields.count("attn_layer_period", "layers"), fields.count("attn_layer_offset", "layers", least=0)
    if offset >= period:
        raise fields.fail("attn_layer_offset", f"is not below attn_layer_period = {period}")
    return {i for i in range(n_layers) if i == 2 or (i >= 3 and (i - 3) % period == offset)}  # as ZambaConfig lays them


def read_t5(fields: Fields) -> Read:
    """T5: each decoder layer keeps its own tokens and, once, every position of the encoder."""
    n_layers = fields.maybe("num_decoder_layers", "layers") or fields.count("num_layers", "layers")
    fields.maybe("num_layers", "layers")
    heads = Heads(n_layers, 0, fields.count("num_heads", "heads"), fields.count("d_kv", "dimensions"))
    return _with_encoder(heads, None), None


def read_whisper(fields: Fields) -> Read:
    """Whisper: as T5, with an encoder that always has max_source_positions positions (30 s of sound)."""
    n_heads = fields.count("decoder_attention_heads", "heads")
    hidden = fields.count("d_model", "dimensions")
    if hidden % n_heads:
        raise fields.fail("d_model", f"is not a multiple of the {n_heads} decoder_attention_heads")
    heads = Heads(fields.count("decoder_layers", "layers"), n_heads, n_heads, hidden // n_heads)
    return _with_encoder(heads, fields.count("max_source_positions", "positions")), None


def _with_encoder(heads: Heads, encoder_tokens: int | None) -> Layers:
    cross = LayerCache(Kind.CROSS, heads.n_kv_heads, heads.head_dim, heads.head_dim, None, encoder_tokens)
    return [heads.layer()] * heads.n_layers + [cross] * heads.n_layers


def read_unknown(fields: Fields) -> Read:
    """Another model: only if its fields suffice, and none of them speaks of something that they do not describe."""
    latent = fields.maybe("kv_lora_rank", "dimensions")
    strange = [name for name in STRANGE if latent is None or name != "v_head_dim"]
    fields.refuse(strange, "is a field whose meaning for the cache only the model's code tells")
    refuse_contradictions(fields)
    if latent is not None:  # rule 3
        return read_latent(fields)
    n_heads = fields.count(N_HEADS, "heads")
    if named(fields, KV_HEADS) not in fields and fields.flag("multi_query", False):  # rule 2
        fields.values = {**fields.values, "num_key_value_heads": 1}
        fields.assume("multi_query is true: one KV head.")
    heads = grouped_heads(fields)
    if fields.flag("multi_query", False) and heads.n_kv_heads != 1:
        raise fields.fail("multi_query", f"contradicts {heads.n_kv_heads} KV heads")
    if fields.maybe("head_dim", "dimensions") is None:
        fields.assume(f"head_dim is not given: {heads.head_dim} is hidden_size / {n_heads} heads.")
    types = layer_types(fields, heads.n_layers)
    window = fields.maybe("sliding_window", "positions")
    if types is None and window is not None and fields.flag("use_sliding_window", True):  # rule 4
        raise fields.fail("sliding_window", "does not say which layers slide: layer_types are missing")
    return typed(fields, heads, types or ["full_attention"] * heads.n_layers), None


Reader = Callable[[Fields], Read]
FAMILIES: Mapping[str, Reader] = {
    "gpt2": read_all_heads, "opt": read_all_heads, "bloom": read_all_heads, "gpt_neox": read_all_heads,
    "gpt_bigcode": read_starcoder, "falcon": read_falcon, "RefinedWeb": read_falcon, "RefinedWebModel": read_falcon,
    "llama": read_llama, "mistral": read_mistral, "mixtral": _all_slide, "starcoder2": _all_slide, "phi3": read_phi3,
    "qwen2": read_qwen, "qwen3": read_qwen3, "qwen2_moe": read_qwen_experts, "qwen3_moe": read_qwen_experts,
    "gemma": read_gemma, "gemma2": read_alternating, "gemma3": read_gemma3, "gemma3_text": read_gemma3,
    "gemma3n_text": read_gemma3n, "gpt_oss": read_alternating, "jamba": read_jamba,
    "deepseek_v2": read_latent, "deepseek_v3": read_latent,
    "zamba": read_zamba, "zamba2": read_zamba, "t5": read_t5, "mt5": read_t5, "whisper": read_whisper,
}  # fmt: skip
