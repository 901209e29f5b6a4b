"""Builds the tokenizer of a Hugging Face folder.

tokenizer.json says how text becomes ids; tokenizer_config.json, chat_template.jinja and generation_config.json say
how a conversation is laid out and where it ends. Nothing is executed but the chat template, in its sandbox.
"""

from pathlib import Path
from typing import Any

import tokenizers

from course_lib.checkpoints.chat import is_unicode
from course_lib.checkpoints.errors import CheckpointError
from course_lib.checkpoints.json_file import Fields, read_json
from course_lib.checkpoints.tokenizer import Tokenizer

LARGEST_TEMPLATE = 4 << 20  # bytes


def folder_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer in the folder, or None if there is no tokenizer.json. Raises CheckpointError if one is damaged."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    read_json(path)  # stricter than the library, which takes the last of two equal keys
    try:
        inner = tokenizers.Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises bare Exceptions, and its panics are BaseExceptions
        raise CheckpointError(f"{path} makes no tokenizer: {error}") from error
    fields = _optional(folder / "tokenizer_config.json")
    named = {
        name: text
        for name in fields.values
        if name.endswith("_token") and (text := _token_text(fields, name)) is not None
    }
    return Tokenizer(inner, template=_template(folder, fields), named=named, stop_tokens=_stops(folder, inner, named))


def _optional(path: Path) -> Fields:
    return Fields(read_json(path) if path.is_file() else {}, path)


def _token_text(fields: Fields, name: str) -> str | None:
    """A token's text, given as such or as the `content` of an object; switches like add_bos_token are no texts."""
    value = fields.values[name]
    text = fields.object(name).text("content") if isinstance(value, dict) else value
    if not isinstance(text, str):
        return None
    if not is_unicode(text):
        raise fields.fail(name, "holds half a surrogate pair, which is no text")
    return text


def _template(folder: Path, fields: Fields) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            if file.stat().st_size > LARGEST_TEMPLATE:
                raise CheckpointError(f"{file} has {file.stat().st_size:,} bytes; no chat template is that long")
            return file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{file} cannot be read: {error}") from error
    template: Any = fields.values.get("chat_template")
    if isinstance(template, list):  # several, by name
        named_default = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == "default"]
        template = named_default[-1].get("template") if named_default else None
        if template is None:
            raise fields.fail("chat_template", "is a list with no template named default")
    if template is not None and not isinstance(template, str):
        raise fields.fail("chat_template", "is neither a text nor a list with a template named default")
    return template


def _stops(folder: Path, inner: tokenizers.Tokenizer, named: dict[str, str]) -> list[int]:
    """Where generation ends: generation_config.json says it, else config.json; the tokenizer's eos_token always
    does.
    """
    stops: list[int] = []
    for file in (folder / "generation_config.json", folder / "config.json"):
        fields = _optional(file)
        if "eos_token_id" in fields:
            value = fields.values["eos_token_id"]
            stops = value if isinstance(value, list) else [value]
            if not all(isinstance(token, int) and not isinstance(token, bool) and token >= 0 for token in stops):
                raise fields.fail("eos_token_id", "is neither a token id nor a list of them")
            break
    if "eos_token" in named:
        token = inner.token_to_id(named["eos_token"])
        if token is None:
            raise CheckpointError(f"{folder}: the eos_token {named['eos_token']!r} is not in the vocabulary")
        stops = [*stops, token]
    return stops
