"""Builds the tokenizer of a GGUF file from its metadata.

The one idea: a GGUF file has no tokenizer.json; it names the way in which text is cut before merging
(`tokenizer.ggml.pre`) and lists tokens and merges. A wrong cut gives slightly wrong ids and a slightly worse model,
which nobody notices, so an unknown name is an error. The patterns are those of llama.cpp (`llm_tokenizer_bpe` in
src/llama-vocab.cpp).
"""

from collections import Counter
from collections.abc import Sequence
from math import isfinite
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors

from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.gguf_header import GGUFHeader
from course_lib.checkpoints.tokenizer import Tokenizer

KEY = "tokenizer.ggml."
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6  # values of tokenizer.ggml.token_type
STOPS = ("eos_token_id", "eot_token_id", "eom_token_id")
LONGEST_PIECE = 1000  # characters; every way to split a piece is looked at
NAMED = {"bos": "bos_token_id", "eos": "eos_token_id", "unk": "unknown_token_id", "pad": "padding_token_id"}

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
CUTS: dict[str, tuple[str, ...]] = {  # patterns that are applied one after the other
    "smollm": (r"\p{N}", GPT2),
    "gpt-2": (GPT2,),
    "gpt2": (GPT2,),
    "llama-bpe": (LLAMA3,),
    "llama3": (LLAMA3,),
    "llama-v3": (LLAMA3,),
    "qwen2": (QWEN2,),
    "default": (r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
}


def gguf_tokenizer(header: GGUFHeader) -> Tokenizer | None:
    """The tokenizer that the metadata describe, or None if they describe none.

    Raises CheckpointError for a kind of tokenizer or of cut that is not supported, and for lists that contradict each
    other.
    """
    if f"{KEY}model" not in header.metadata:
        return None
    kind = header.text(f"{KEY}model")
    tokens = header.texts(f"{KEY}tokens")
    if not tokens:
        raise CheckpointError(f"{header.path}: {KEY}tokens is empty")
    token, times = Counter(tokens).most_common(1)[0]
    if times > 1:
        raise CheckpointError(f"{header.path}: {KEY}tokens lists {token!r} {times} times")
    if kind == "gpt2":
        inner, adds_bos = _byte_level(header, tokens)
    elif kind == "llama":
        inner, adds_bos = _sentencepiece(header, tokens), True
    else:
        raise CheckpointError(
            f"{header.path}: the tokenizer {KEY}model = {kind!r} is not supported; gpt2 and llama are"
        )
    ids = {key: _token_id(header, key, tokens) for key in (*STOPS, *NAMED.values())}
    declared = {id_ for key, id_ in ids.items() if id_ is not None and key != NAMED["unk"]}
    _add_special(header, inner, tokens, declared)
    _add_frame(header, inner, tokens, ids, adds_bos)
    key = "tokenizer.chat_template"
    return Tokenizer(
        inner,
        template=header.text(key) if key in header.metadata else None,
        named={f"{name}_token": tokens[id_] for name, key in NAMED.items() if (id_ := ids[key]) is not None},
        stop_tokens=[id_ for key in STOPS if (id_ := ids[key]) is not None],
    )


def _byte_level(header: GGUFHeader, tokens: Sequence[str]) -> tuple[tokenizers.Tokenizer, bool]:
    """Byte-level BPE, and whether prompts begin with a bos token where the file does not say."""
    cut = header.text(f"{KEY}pre", "") if f"{KEY}pre" in header.metadata else "(absent)"
    if cut not in CUTS:
        raise CheckpointError(
            f"{header.path}: {KEY}pre = {cut!r} is a way of cutting text that is not supported; "
            f"supported: {', '.join(CUTS)}"
        )
    merges = [_pair(header, merge) for merge in header.texts(f"{KEY}merges")]
    llama3 = CUTS[cut] == (LLAMA3,)
    # Llama 3 takes a word that is a token as it is, even where no merges lead to it.
    inner = tokenizers.Tokenizer(_bpe(header, tokens, merges, ignore_merges=llama3))
    if cut == "qwen2":
        inner.normalizer = normalizers.NFC()
    steps = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in CUTS[cut]]
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    inner.decoder = decoders.ByteLevel()
    return inner, llama3


def _sentencepiece(header: GGUFHeader, tokens: Sequence[str]) -> tokenizers.Tokenizer:
    """SentencePiece BPE: of all neighbours that together are a token, those with the highest score merge first."""
    scores, kinds = header.numbers(f"{KEY}scores").tolist(), header.numbers(f"{KEY}token_type").tolist()
    if not len(scores) == len(kinds) == len(tokens):
        raise CheckpointError(f"{header.path}: {len(tokens)} tokens, but {len(scores)} scores and {len(kinds)} types")
    if not all(map(isfinite, scores)):
        raise CheckpointError(f"{header.path}: {KEY}scores holds values that are not finite numbers")
    if (longest := max(map(len, tokens))) > LONGEST_PIECE:
        raise CheckpointError(f"{header.path}: {KEY}tokens holds a text of {longest:,} characters, which is no token")
    # Only normal tokens are merged to; the order of equal scores is that of the list.
    ids = {
        token: index for index, token in enumerate(tokens) if kinds[index] not in (UNKNOWN, CONTROL, USER_DEFINED, BYTE)
    }
    ranked: list[tuple[float, int, tuple[str, str]]] = []
    for token, index in ids.items():
        for at in range(1, len(token)):
            if token[:at] in ids and token[at:] in ids:
                ranked.append((-scores[index], index, (token[:at], token[at:])))
    ranked.sort(key=lambda entry: entry[:2])
    merges = [pair for _, _, pair in ranked]
    unknown = tokens[_token_id(header, "unknown_token_id", tokens) or 0]
    bpe = _bpe(header, tokens, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    inner = tokenizers.Tokenizer(bpe)
    space = [normalizers.Prepend("\u2581")] if header.flag(f"{KEY}add_space_prefix", True) else []
    inner.normalizer = normalizers.Sequence([*space, normalizers.Replace(" ", "\u2581")])
    strip = [decoders.Strip(" ", 1, 0)] if space else []
    inner.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return inner


def _bpe(header: GGUFHeader, tokens: Sequence[str], merges: list[tuple[str, str]], **options: Any) -> models.BPE:
    try:
        return models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges, **options)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a bare Exception for a merge of unknown tokens, and its panics are BaseExceptions
        raise CheckpointError(f"{header.path}: tokens and merges make no tokenizer: {error}") from error


def _pair(header: GGUFHeader, merge: str) -> tuple[str, str]:
    left, space, right = merge.partition(" ")
    if not space or " " in right:
        raise CheckpointError(f"{header.path}: {KEY}merges holds {merge!r}, which is not a pair of tokens")
    return left, right


def _token_id(header: GGUFHeader, key: str, tokens: Sequence[str]) -> int | None:
    if KEY + key not in header.metadata:
        return None
    token = header.count(KEY + key)
    if token >= len(tokens) and key == NAMED["pad"]:
        return None  # several converters write one that does not exist; nothing here pads
    if token >= len(tokens):
        raise CheckpointError(f"{header.path}: {KEY}{key} is {token}, but there are {len(tokens)} tokens")
    return token


def _add_special(header: GGUFHeader, inner: tokenizers.Tokenizer, tokens: Sequence[str], declared: set[int]) -> None:
    """Control tokens (never made from plain text) and user-defined ones (always kept whole)."""
    kinds = header.numbers(f"{KEY}token_type").tolist() if f"{KEY}token_type" in header.metadata else []
    if kinds and len(kinds) != len(tokens):
        raise CheckpointError(f"{header.path}: {len(tokens)} tokens, but {len(kinds)} types of tokens")
    control = {index for index, kind in enumerate(kinds) if kind == CONTROL} | declared
    user = [index for index, kind in enumerate(kinds) if kind == USER_DEFINED and index not in control]
    inner.add_special_tokens([AddedToken(tokens[index], special=True, normalized=False) for index in sorted(control)])
    inner.add_tokens([AddedToken(tokens[index], special=False, normalized=False) for index in user])


def _add_frame(
    header: GGUFHeader, inner: tokenizers.Tokenizer, tokens: Sequence[str], ids: dict[str, int | None], adds_bos: bool
) -> None:
    """What stands before and behind every prompt."""
    parts, special = ["$A"], []
    for flag, key, default in (("add_bos_token", NAMED["bos"], adds_bos), ("add_eos_token", NAMED["eos"], False)):
        token = ids[key]
        if not header.flag(KEY + flag, default) or token is None:
            continue
        parts = ["<bos>", *parts] if flag == "add_bos_token" else [*parts, "<eos>"]
        name = "<bos>" if flag == "add_bos_token" else "<eos>"
        special.append({"id": name, "ids": [token], "tokens": [tokens[token]]})
    if special:
        inner.post_processor = processors.TemplateProcessing(single=parts, special_tokens=special)
