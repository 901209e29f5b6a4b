"""Renders a conversation with the chat template that a checkpoint brings.

The one idea: both sides are strangers. The template is a program from a file, so it runs in Jinja's immutable sandbox,
where it reaches nothing but the messages (it can still loop for long; Ctrl-C ends that). The messages come from whoever
types, so a content that spells a control token must not end its own turn: such a text is broken up with a mark before
rendering and restored afterwards, as text. Beginnings of a control token at a content's end, ends of one at its start
and other letter cases are broken up too, as a template may complete or `lower` them. A template that itself makes a
control token out of other characters of a content (with `replace`, say), or writes a content into the middle of one, is
beyond this.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from course_lib.checkpoints.errors import CheckpointError

Message = Mapping[str, str]
ROLES = ("system", "user", "assistant", "tool")


class _GenerationBlock(jinja2.ext.Extension):
    """`{% generation %}` marks what an assistant wrote, for training; here it is only its contents."""

    tags = {"generation"}  # noqa: RUF012 (Jinja's own attribute)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, sort_keys=sort_keys)


class ChatTemplate:
    """A compiled chat template; `named` are the special tokens it may write by name (bos_token …).

    The names, filters and whitespace rules are those of `apply_chat_template` in transformers.
    """

    def __init__(self, source: str, named: dict[str, str]) -> None:
        self.source, self._named = source, named
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlock, jinja2.ext.loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            self._compiled = environment.from_string(source)
        except Exception as error:  # TemplateError, or what the Python compiler raises for what Jinja made of it
            raise CheckpointError(f"the chat template is not valid Jinja: {error}") from error

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            rendered = self._compiled.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._named,
            )
        except Exception as error:  # whatever a program from a file may raise
            raise CheckpointError(f"the chat template refuses this conversation: {error}") from error
        if not is_unicode(rendered):  # the contents are, see check_messages
            raise CheckpointError("the chat template writes half a surrogate pair, which is no text; it is damaged")
        return rendered


def is_unicode(text: str) -> bool:
    """Whether text can be encoded: a str may hold half a surrogate pair, which JSON and Jinja can write."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def unused_character(messages: Sequence[Message], template: str) -> str:
    """A private-use character that occurs nowhere in the conversation."""
    used = set(template).union(*(message["content"] for message in messages))
    for code in (*range(0xE000, 0xF900), *range(0xF0000, 0xFFFFE)):
        if chr(code) not in used:
            return chr(code)
    raise ValueError("the messages use every private character there is; that is not a conversation")


def check_messages(messages: Sequence[Message]) -> None:
    """Raise ValueError, naming the message, unless each has a known role and a text."""
    if isinstance(messages, str | Mapping) or not isinstance(messages, Sequence) or not messages:
        raise ValueError("chat takes a non-empty list of messages, each {'role': …, 'content': …}")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping) or set(message) != {"role", "content"}:
            raise ValueError(f"message {index} must have exactly 'role' and 'content', found {message!r:.100}")
        if message["role"] not in ROLES:
            raise ValueError(f"message {index} has the role {message['role']!r}; roles are {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            raise ValueError(f"the content of message {index} must be text, not {type(message['content']).__name__}")
        if not is_unicode(message["content"]):
            raise ValueError(
                f"the content of message {index} holds half a surrogate pair, which is no text; clean it with "
                ".encode(errors='replace').decode()"
            )


def break_up(messages: Sequence[Message], controls: Sequence[str], mark: str) -> tuple[list[dict[str, str]], bool]:
    """Copies of the messages in which no content spells a control token any more, nor a part of one at its borders;
    and whether any did.

    The mark goes behind the first character of each, overlapping ones included (and before an end of one at the start
    of a content), so what a template does with the rest of a content (trimming it, looking for words in it) still
    works.
    """
    pattern = re.compile("(?=" + "|".join(map(re.escape, controls)) + ")" if controls else "(?!)", re.IGNORECASE)
    lowered = [text.lower() for text in controls]
    longest = max(map(len, lowered), default=0)

    def broken(content: str) -> str:
        at = {found.start() + 1 for found in pattern.finditer(content)}
        end = len(content.rstrip())
        start = min(len(content) - len(content.lstrip()), end)
        for i in range(max(start, end - longest), end):
            if any(text.startswith(content[i:end].lower()) for text in lowered):
                at.add(i + 1)
        for i in range(start + 1, min(start + longest, end) + 1):
            if any(text.endswith(content[start:i].lower()) for text in lowered):
                at.add(start)
        return mark.join(content[i:j] for i, j in pairwise([0, *sorted(at), len(content)]))

    copies = [{"role": m["role"], "content": broken(m["content"])} for m in messages]
    return copies, any(copy["content"] != m["content"] for copy, m in zip(copies, messages))


def restore(text: str, mark: str) -> str:
    """`text` as it was before `break_up`."""
    return text.replace(mark, "")
