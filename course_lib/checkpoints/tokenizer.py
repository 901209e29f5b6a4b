"""Text to token ids and back, for any checkpoint of the course.

The one idea: control tokens are not text. `encode` never makes one from what somebody typed and `decode` does not
show any, unless asked with `special=True`; in a chat only the template makes them (`chat.py`). The splitting and
merging is done by the `tokenizers` library. Decoding is done here, on bytes, because a character may be spread over
several tokens and a stream must not show half of it.
"""

import codecs
import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from operator import index
from typing import Any

import tokenizers
from tokenizers import AddedToken

from course_lib.checkpoints.chat import ChatTemplate, Message, break_up, check_messages, restore, unused_character
from course_lib.checkpoints.errors import CheckpointError

# Texts that end a turn or a document wherever they are control tokens; checkpoints often declare only one of theirs.
END_TEXTS = frozenset(
    {"<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "</s>"}
)


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary (GPT-2's `bytes_to_unicode`), turned round."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


BYTE_OF = _byte_alphabet()


class Tokenizer:
    """Encodes and decodes for one checkpoint.

    `stop_tokens` are the ids after which a generation ends. `named` are the tokens that a chat template may write by
    name (bos_token, eos_token …). Raises CheckpointError for a vocabulary that is not byte-level or SentencePiece.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        template: str | None = None,
        named: Mapping[str, str] | None = None,
        stop_tokens: Iterable[int] = (),
    ) -> None:
        inner.no_truncation()  # a tokenizer.json may ask to cut or pad what it was trained on
        inner.no_padding()
        self._inner = inner
        self._lock = threading.Lock()  # the switch in `_encode` belongs to the shared object
        self._sentencepiece, self._leading_space = _spelling(inner)
        self.template, self.named = template, dict(named or {})
        self._template = None if template is None else ChatTemplate(template, self.named)
        self._chat = f"{template}\0{sorted(self.named.items())}"
        stops = set(stop_tokens)
        for token in stops:
            if not 0 <= token < 1 << 32 or inner.id_to_token(token) is None:
                raise CheckpointError(f"the stop token {token} is not in the vocabulary of {inner.get_vocab_size()}")
        self._mark_control_tokens(stops)
        added = inner.get_added_tokens_decoder()
        self._control = {token: entry.content for token, entry in added.items() if entry.special}
        self.stop_tokens = frozenset(stops | {token for token, text in self._control.items() if text in END_TEXTS})
        self._known_bytes: dict[int, bytes] = {}

    def _mark_control_tokens(self, stops: set[int]) -> None:
        """A stop token is a control token, whether or not the checkpoint declares it so.

        And each is found in the text as it stands: one that is looked for after normalising ("normalized": true) would
        be made from whatever the normaliser turns into its text, from <|IM_END|> or from full-width characters.
        """
        added = self._inner.get_added_tokens_decoder()
        for token in stops | {token for token, entry in added.items() if entry.special}:
            entry = added.get(token) or AddedToken(self._inner.id_to_token(token))
            flags = {name: getattr(entry, name) for name in ("single_word", "lstrip", "rstrip")}
            self._inner.add_special_tokens([AddedToken(entry.content, special=True, normalized=False, **flags)])

    def to_json(self) -> str:
        """How text becomes ids, as a tokenizer.json; `template`, `named` and `stop_tokens` are not in it."""
        return self._inner.to_str(pretty=True)

    @property
    def control_tokens(self) -> dict[int, str]:
        """Id and text of every control token."""
        return dict(self._control)

    @property
    def highest_token(self) -> int:
        """The largest id that `encode` can return; a model needs more rows than that."""
        return max(self._inner.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str, *, special: bool = False, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`.

        With `special`, the text of a control token becomes that token; without, it is text like any other, as input
        from strangers must be. What the checkpoint puts in front of every prompt (a begin-of-sequence token) is added
        unless `add_bos` is False; True asks for it and raises ValueError if this checkpoint has none. A byte that the
        vocabulary has no token for is left out, as in transformers (SmolLM2 lacks 21, control characters among them).
        """
        tokens = self._encode(text, special=special, frame=add_bos is not False)
        if add_bos and tokens == self._encode(text, special=special, frame=False):
            raise ValueError("add_bos=True, but this checkpoint puts no token in front of a prompt")
        return tokens

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that decides which tokens a text or a chat becomes, and after which a generation ends."""
        parts = (self._inner.to_str(), self._chat, str(sorted(self.stop_tokens)))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def decode(self, tokens: Iterable[int], *, special: bool = False) -> str:
        """The text of `tokens`; bytes that are no UTF-8 become U+FFFD. Control tokens are left out unless `special`."""
        text = b"".join(self._bytes(token, special) for token in tokens).decode("utf-8", errors="replace")
        # SentencePiece begins every text with a space that nobody typed.
        return text[1:] if self._leading_space and text.startswith(" ") else text

    def stream(self, *, special: bool = False) -> "TextStream":
        """An incremental decoder for one sequence of tokens."""
        return TextStream(self, special=special)

    def chat(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """Token ids of a conversation, laid out by the checkpoint's own chat template.

        Each message has a role (system, user, assistant or tool) and a content. Text in a content that looks like a
        control token stays text (chat.py says for which templates). With `add_generation_prompt` the answer of the
        assistant is opened.

        Raises CheckpointError if the checkpoint has no template or the template refuses the conversation, ValueError
        for messages of another form.
        """
        if self._template is None:
            raise CheckpointError("this checkpoint has no chat template: it is not a chat model; use encode(text)")
        check_messages(messages)
        controls = [text for text in self._control.values() if text]
        mark = unused_character(messages, self._template.source)
        broken, hostile = break_up(messages, controls, mark)
        rendered = self._template.render(broken, add_generation_prompt)
        if not hostile:
            return self._encode(rendered, special=True)
        # The template's control tokens are those that are found while what is in the contents is broken up.
        parts = [(restore(text, mark), token) for text, token in self._parts(rendered)[0]]
        harmless, tokens = self._parts(self._template.render(messages, add_generation_prompt))
        if parts == harmless:
            return tokens
        tokens = []
        for text, control in parts:  # the text between them is encoded as text
            tokens += self._encode(text, special=False) + ([] if control is None else [control])
        return tokens

    def _parts(self, rendered: str) -> tuple[list[tuple[str, int | None]], list[int]]:
        """Each control token with the text before it, then the text that is left with None; and the ids of it all."""
        found = self._inner_encoding(rendered, special=True)
        parts: list[tuple[str, int | None]] = []
        at = 0
        for token, (start, end) in zip(found.ids, found.offsets):
            if token in self._control and end > start:
                parts.append((rendered[at:start], token))
                at = end
        return [*parts, (rendered[at:], None)], found.ids

    def _encode(self, text: str, *, special: bool, frame: bool = False) -> list[int]:
        return self._inner_encoding(text, special=special, frame=frame).ids if text or frame else []

    def _inner_encoding(self, text: str, *, special: bool, frame: bool = False) -> tokenizers.Encoding:
        if not isinstance(text, str):
            raise ValueError(f"text to encode must be a str, not {type(text).__name__}")
        text.encode("utf-8")  # half a surrogate pair is no text: UnicodeEncodeError, a ValueError that says where
        with self._lock:
            self._inner.encode_special_tokens = not special
            return self._inner.encode(text, add_special_tokens=frame)

    def _bytes(self, token: int, special: bool) -> bytes:
        """The bytes that a token stands for."""
        try:
            token = index(token)  # a tensor or a NumPy integer is no key of a dict
        except TypeError as error:
            raise ValueError(f"{token!r:.80} is no token id: ids are whole numbers") from error
        if token in self._control and not special:
            return b""
        if token not in self._known_bytes:
            self._known_bytes[token] = self._look_up(token)
        return self._known_bytes[token]

    def _look_up(self, token: int) -> bytes:
        if not 0 <= token < 1 << 32:
            raise ValueError(f"{token} is no token id: ids are whole numbers from 0 to {(1 << 32) - 1:,}")
        text = self._inner.id_to_token(token)
        if text is None:  # a row of the model's embedding that the vocabulary does not use
            return "\ufffd".encode()
        if self._sentencepiece:
            if byte := re.fullmatch("<0x([0-9A-F]{2})>", text):
                return bytes.fromhex(byte[1])
            return text.replace("\u2581", " ").encode()
        try:
            return bytes(BYTE_OF[character] for character in text)
        except KeyError:
            return text.encode()


class TextStream:
    """Turns tokens into text one by one, showing a character only when it is complete.

    All pieces and the `flush` at the end, joined, are `decode` of all tokens (where SentencePiece begins with a
    space, the stream keeps it: it continues a prompt).
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer, self._special = tokenizer, special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is unfinished."""
        return self._decoder.decode(self._tokenizer._bytes(token, self._special))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never finished, else nothing."""
        return self._decoder.decode(b"", final=True)


def _spelling(inner: tokenizers.Tokenizer) -> tuple[bool, bool]:
    """Whether tokens are SentencePiece's, with "▁" for a space, not letters for bytes; if texts begin with one."""
    state: dict[str, Any] = json.loads(inner.decoder.__getstate__()) if inner.decoder else {"type": None}
    steps: list[dict[str, Any]] = state["decoders"] if state["type"] == "Sequence" else [state]
    kinds = [step["type"] for step in steps]
    if kinds == ["ByteLevel"]:
        return False, False
    if kinds == ["Metaspace"]:
        return True, steps[0]["prepend_scheme"] != "never"
    if kinds[:3] == ["Replace", "ByteFallback", "Fuse"] and kinds[3:] in ([], ["Strip"]):
        return True, len(kinds) == 4
    raise CheckpointError(f"the tokenizer decodes with {kinds}; supported: byte-level and SentencePiece vocabularies")
