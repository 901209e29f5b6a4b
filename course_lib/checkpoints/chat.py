"""Renders a conversation with the chat template that a checkpoint brings.

The one idea: both sides are strangers. The template is a program from a file, so it runs in Jinja's immutable sandbox,
where it reaches nothing but the messages (it can still loop for long; Ctrl-C ends that). The messages come from whoever
types, so a content that spells a control token must not end its own turn: such a text is broken up with a mark before
rendering and restored afterwards, as text.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
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
        except (jinja2.TemplateError, RecursionError) as error:
            raise CheckpointError(f"the chat template is not valid Jinja: {error}") from error

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        try:
            return self._compiled.render(
                messages=messages,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._named,
            )
        except Exception as error:  # whatever a program from a file may raise
            raise CheckpointError(f"the chat template refuses this conversation: {error}") from error


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


def break_up(messages: Sequence[Message], controls: Sequence[str], mark: str) -> tuple[list[dict[str, str]], bool]:
    """Copies of the messages in which no content spells a control token any more, and whether any did.

    The mark goes behind the first character of each, overlapping ones included, so what a template does with the rest
    of a content (trimming it, looking for words in it) still works.
    """
    pattern = re.compile("(?=(?:" + "|".join(map(re.escape, controls)) + "))(.)" if controls else "(?!)", re.DOTALL)
    broken = [{"role": m["role"], "content": pattern.sub(rf"\g<1>{mark}", m["content"])} for m in messages]
    return broken, any(b["content"] != m["content"] for b, m in zip(broken, messages))


def restore(text: str, mark: str) -> str:
    """`text` as it was before `break_up`."""
    return text.replace(mark, "")
