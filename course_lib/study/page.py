"""Puts a widget onto a notebook's page together with what stands there when no kernel runs.

The one idea: one output carries both. A front end with a kernel picks the widget, the richest form; an exported page, a
code-hosting site or a test picks the picture or the text. So nothing is shown twice and nothing is ever blank.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from IPython.display import DisplayHandle, display
from ipywidgets import DOMWidget


def show(widget: DOMWidget, without_kernel: dict[str, str], metadata: dict[str, Any] | None = None) -> None:
    """Display `widget`, and `without_kernel`, by MIME type, wherever widgets do not come alive.

    `without_kernel` needs a "text/plain", which also stands in for the widget where there is nothing but text.
    """
    bundle = widget._repr_mimebundle_()
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    display({**data, **without_kernel}, metadata=metadata or {}, raw=True)


def show_renewable(data: dict[str, str]) -> Callable[[dict[str, str]], None]:
    """Display `data`, by MIME type, and return what puts other data in its place.

    It needs no kernel to be read: after a restart it stands there as it was.
    """
    handle = DisplayHandle()
    handle.display(data, raw=True)
    return lambda renewed: handle.update(renewed, raw=True)


def page_side(name: str) -> str:
    """The JavaScript of a widget: the file `name` beside this one, behind what all of them share."""
    here = Path(__file__).parent
    return "\n".join((here / part).read_text(encoding="utf-8") for part in ("controls.js", name))
