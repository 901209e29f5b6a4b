"""The tokenizer of a GGUF file: its cuts, its frame, and SentencePiece."""

import json
import random
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import gguf_files as files
import numpy as np
import pytest
from tokenizer_texts import TEXTS, random_texts
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer

from course_lib.checkpoints import CheckpointError
from course_lib.checkpoints.gguf_header import read_header
from course_lib.checkpoints.gguf_tokenizer import gguf_tokenizer

SAMPLE = (
    "In 1234 there were 56 of them, don't you'll say; x = y+1000 (see [12]).\r\n\r\n  Then   they'd gone!  \n\ttab\n"
    "éé üü 12 ... ??? 99  98   97 <a href='x'>it's</a> WE'RE 漢字漢字 20,000.50 --- ### \n\n\n   end "
)


@cache
def greedy_vocabulary() -> tuple[list[str], list[str]]:
    """A vocabulary whose merges cross every border that a cut could set, so that a wrong cut gives other ids."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=files.byte_letters(), special_tokens=files.CONTROL, show_progress=False
    )
    chance = random.Random(2)
    parts = SAMPLE.split(" ")
    inner.train_from_iterator([SAMPLE, *(" ".join(chance.choices(parts, k=6)) for _ in range(300))], trainer)
    state = json.loads(inner.to_str())["model"]
    tokens = sorted(state["vocab"], key=state["vocab"].get)
    return tokens, [" ".join(pair) for pair in state["merges"]]


def tokenizer_gguf(path: Path, **changes: Any) -> Path:
    tokens, merges = greedy_vocabulary()
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3 if token in files.CONTROL else 1 for token in tokens],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "llama.block_count": 1,  # transformers reads a model's shape even for its tokenizer
    } | changes
    metadata = {key: value for key, value in metadata.items() if value is not None}
    return files.write_gguf(path, metadata, {"a": np.zeros(32, np.float32)})


@pytest.mark.parametrize("cut", ["gpt-2", "llama-bpe", "qwen2", "smollm"])
def test_text_is_cut_as_the_file_says(cut: str, tmp_path: Path) -> None:
    path = tokenizer_gguf(tmp_path / "x.gguf", **{"tokenizer.ggml.pre": cut, "tokenizer.ggml.add_bos_token": False})
    ours = gguf_tokenizer(read_header(path))
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file="x.gguf").backend_tokenizer
    if cut == "smollm":  # see above: transformers cuts this one as gpt-2
        theirs.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(False)])
    if cut == "llama-bpe":  # as in Llama 3's own tokenizer.json
        theirs.model.ignore_merges = True
    assert ours is not None
    for text in [SAMPLE, *TEXTS[:9], *random_texts(300, SAMPLE)]:
        assert ours.encode(text, special=True) == theirs.encode(text, add_special_tokens=False).ids, text
        assert ours.decode(ours.encode(text)) == text


def test_the_cuts_differ_so_a_wrong_one_would_show(tmp_path: Path) -> None:
    cuts = ("gpt-2", "llama-bpe", "qwen2", "smollm", "default")
    made = [
        gguf_tokenizer(
            read_header(
                tokenizer_gguf(
                    tmp_path / "x.gguf", **{"tokenizer.ggml.pre": cut, "tokenizer.ggml.add_bos_token": False}
                )
            )
        )
        for cut in cuts
    ]
    assert len({tuple(tokenizer.encode(SAMPLE)) for tokenizer in made if tokenizer}) == len(cuts)


def test_llama3_takes_a_word_that_no_merges_lead_to(tmp_path: Path) -> None:
    tokens, merges = greedy_vocabulary()
    tokens = [*tokens[:-1], "zebra"]
    made = {}
    for cut in ("llama-bpe", "gpt-2"):
        changes = {"tokenizer.ggml.pre": cut, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges[:-1]}
        tokenizer = gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **changes)))
        assert tokenizer is not None
        made[cut] = tokenizer.encode("zebra", add_bos=False)
    assert made["llama-bpe"] == [899]
    assert made["gpt-2"] == [tokens.index(letter) for letter in "zebra"]


@pytest.mark.parametrize(
    ("changes", "front", "behind"),
    [
        ({}, [], []),
        ({"tokenizer.ggml.pre": "llama-bpe"}, [0], []),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, [], []),
        ({"tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.add_eos_token": True}, [0], [1]),
    ],
)
def test_a_prompt_is_framed_as_the_file_says(
    changes: dict[str, Any], front: list[int], behind: list[int], tmp_path: Path
) -> None:
    tokenizer = gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **changes)))
    assert tokenizer is not None
    bare = tokenizer.encode("there were 12", add_bos=False)
    assert tokenizer.encode("there were 12") == front + bare + behind
    assert tokenizer.decode(front + bare + behind) == "there were 12"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tokenizer.ggml.model": "bert"}, "model = 'bert' is not supported; gpt2 and llama are"),
        ({"tokenizer.ggml.pre": "tekken"}, "pre = 'tekken' is a way of cutting text that is not supported"),
        ({"tokenizer.ggml.pre": None}, r"pre = '\(absent\)'"),
        ({"tokenizer.ggml.tokens": None}, r"lacks tokenizer\.ggml\.tokens"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "tokens must be a list of texts, found a list of 2"),
        ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "lists 'a' 2 times"),
        ({"tokenizer.ggml.merges": ["a b c"]}, "'a b c', which is not a pair"),
        ({"tokenizer.ggml.merges": ["a neverseen"]}, "tokens and merges make no tokenizer"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "but 2 types of tokens"),
        ({"tokenizer.ggml.eos_token_id": 5000}, "eos_token_id is 5000, but there are 900 tokens"),
        ({"tokenizer.ggml.add_bos_token": 1}, "add_bos_token must be true or false, found 1"),
        ({"tokenizer.chat_template": "{% for"}, "not valid Jinja"),
    ],
)
def test_what_is_wrong_with_a_files_tokenizer_is_named(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **changes)))


def test_user_defined_tokens_stay_whole_and_are_text(tmp_path: Path) -> None:
    tokens, merges = greedy_vocabulary()
    tokens = [*tokens[:-1], "<think>"]
    kinds = [3 if token in files.CONTROL else 1 for token in tokens[:-1]] + [4]
    changes = {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges[:-1],
    }
    tokenizer = gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **changes)))
    assert tokenizer is not None
    assert tokenizer.encode("<think>") == [899]
    assert tokenizer.decode([899]) == "<think>"


# --- SentencePiece --------------------------------------------------------------------------------------------------


@cache
def sentencepiece_vocabulary() -> tuple[list[str], list[float], list[int]]:
    """A vocabulary as SentencePiece trains them: bytes, then merged pieces by rank, then characters; score = -rank."""
    corpus = ("▁" + "".join(SAMPLE.split("漢")).replace(" ", "▁").replace("\r", "").replace("\n", "")) * 2
    words = [list("▁" + word) for word in corpus.split("▁")]
    pieces: list[str] = []
    for _ in range(110):
        counts = Counter(left + right for word in words for left, right in pairwise(word))
        best = max(counts, key=lambda piece: (counts[piece], piece))
        pieces.append(best)
        words = [merge_all(word, best) for word in words]
    characters = sorted(set(corpus))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *dict.fromkeys(pieces), *characters]
    scores = [0.0] * 259 + [-float(rank) for rank in range(len(tokens) - 259)]
    return tokens, scores, [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]


def merge_all(word: list[str], piece: str) -> list[str]:
    out: list[str] = []
    for part in word:
        if out and out[-1] + part == piece:
            out[-1] = piece
        else:
            out.append(part)
    return out


def sentencepiece_oracle(text: str) -> list[int]:
    """SentencePiece BPE as its paper says it: merge the neighbours of the best score, leftmost first, to the end."""
    tokens, scores, kinds = sentencepiece_vocabulary()
    rank = {token: scores[i] for i, token in enumerate(tokens) if kinds[i] == 1}
    symbols = list("▁" + text.replace(" ", "▁")) if text else []
    while True:
        best = max(((rank[a + b], -i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in rank), default=None)
        if best is None:
            break
        at = -best[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    ids = {token: i for i, token in enumerate(tokens)}
    return [
        token
        for symbol in symbols
        for token in ([ids[symbol]] if symbol in rank else [3 + byte for byte in symbol.encode()])
    ]


def test_a_sentencepiece_vocabulary_merges_by_score_and_falls_back_to_bytes(tmp_path: Path) -> None:
    tokens, scores, kinds = sentencepiece_vocabulary()
    changes = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    tokenizer = gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **changes)))
    assert tokenizer is not None
    texts = [
        "there were",
        "  two leading",
        "漢字",
        "",
        " ",
        "<s></s><0x41>",
        "😀é",
        *random_texts(60, SAMPLE + "Qqz漢"),
        *random_texts(300, "thereyhasnd ,0"),  # letters that are in many pieces: which merge comes first matters,
    ]
    for text in texts:
        expected = sentencepiece_oracle(text)
        assert tokenizer.encode(text, add_bos=False) == expected, text
        assert tokenizer.encode(text) == [1, *expected]
        assert tokenizer.decode(expected) == text
        stream = tokenizer.stream()
        assert "".join(stream.push(token) for token in expected) + stream.flush() == (" " + text if text else "")
    assert tokenizer.stop_tokens == {2}
    assert tokenizer.encode("a</s>", special=True)[-1] == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [0.0, 1.0]}, "900 tokens, but 2 scores and 900 types"),
        ({"scores": [float("nan")] * 900}, "scores holds values that are not finite"),
        ({"tokens": ["a" * 100_000], "scores": [0.0], "token_type": [1]}, "a text of 100,000 characters"),
    ],
)
def test_a_sentencepiece_vocabulary_that_cannot_be_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    metadata = {"tokenizer.ggml.model": "llama"} | {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(CheckpointError, match=message):
        gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **metadata)))


def test_a_padding_token_that_does_not_exist_is_left_out(tmp_path: Path) -> None:
    path = tokenizer_gguf(tmp_path / "x.gguf", **{"tokenizer.ggml.padding_token_id": 2**32 - 1})
    tokenizer = gguf_tokenizer(read_header(path))
    assert tokenizer is not None and tokenizer.stop_tokens == {1}


def test_qwen2_composes_characters_and_the_others_do_not(tmp_path: Path) -> None:
    made = {}
    for cut in ("qwen2", "gpt-2", "llama-bpe", "smollm"):
        made[cut] = gguf_tokenizer(read_header(tokenizer_gguf(tmp_path / "x.gguf", **{"tokenizer.ggml.pre": cut})))
        assert made[cut] is not None
    apart, composed = "e\u0301 ü\u0308", "é ü\u0308"
    for cut, tokenizer in made.items():
        assert tokenizer.decode(tokenizer.encode(apart)) == (composed if cut == "qwen2" else apart), cut
