"""The little Markdown of questions: `code` and *emphasis*. Everything else is text, whatever it looks like.

The one idea: a text is cut into spans once, and each way of showing puts the spans in: a page as elements, an export
as escaped HTML, a terminal as they are. So no text of an instructor can become part of a page's code.
"""

from __future__ import annotations

import html
import re

Spans = list[list[str]]  # pairs of a kind ("text", "code", "em") and what stands there; JSON as it is

MARK = re.compile(r"`([^`]+)`|\*(?=[^\s*])([^*]*[^\s*])\*")
ELEMENT = {"text": "{}", "code": "<code>{}</code>", "em": "<em>{}</em>"}


def spans(text: str) -> Spans:
    """`text` in spans. A mark without its partner stays as it is."""
    found, end = [], 0
    for match in MARK.finditer(text):
        if match.start() > end:
            found.append(["text", text[end : match.start()]])
        code, emphasised = match.groups()
        found.append(["code", code] if code is not None else ["em", emphasised])
        end = match.end()
    if end < len(text):
        found.append(["text", text[end:]])
    return found


def as_html(text: str) -> str:
    """`text` as escaped HTML."""
    return "".join(ELEMENT[kind].format(html.escape(part)) for kind, part in spans(text))


def as_plain(text: str) -> str:
    """`text` without marks of emphasis; those of code stay, because they set it off."""
    return "".join(f"`{part}`" if kind == "code" else part for kind, part in spans(text))
