"""How every figure of the course looks, and how it gets onto a page.

The one idea: the same thing looks the same everywhere. Prefill is dark and hatched, decode is light and plain, so that
they stay apart in grey and for every eye; text is large enough for a narrow window; the background is white in light
and dark themes alike. Nothing here knows what a figure shows. No pyplot, hence no state that outlives a figure.
"""

from __future__ import annotations

import base64
import html
import io
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours that stay apart for every kind of colour vision: Okabe and Ito, "Color Universal Design", 2008.
BLUE, ORANGE, GREEN, VERMILION = "#0072B2", "#E69F00", "#009E73", "#D55E00"
INK, GREY, PALE = "#222222", "#666666", "#e8e8e8"

PREFILL: dict[str, Any] = {"facecolor": BLUE, "edgecolor": "white", "hatch": "///", "linewidth": 0.8}
DECODE: dict[str, Any] = {"facecolor": ORANGE, "edgecolor": "white", "linewidth": 0.8}
FIXED: dict[str, Any] = {"facecolor": INK, "edgecolor": "white", "linewidth": 0.8}

STYLE: Any = {  # matplotlib types the names of its settings one by one
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titlesize": 11.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "hatch.linewidth": 0.7,
    "legend.frameon": False,
}
WIDTH = 7.2  # inches: at 100 dots an inch as wide as the text of a notebook
SHOWN_DPI, DRAWN_DPI = 100, 160  # drawn finer than shown, for screens with small pixels

# Every function that makes a picture wears this; matplotlib looks at most settings when a thing is made.
styled = matplotlib.rc_context(STYLE)


class Picture(Figure):
    """A matplotlib figure that shows itself as the value of a cell, with a text for those who do not see it.

    `alt` says in a sentence or two what the figure shows, its numbers included.
    """

    alt: str = ""

    def png(self) -> bytes:
        """The picture as a PNG file; pictures made of the same data give the same bytes."""
        file = io.BytesIO()
        with matplotlib.rc_context(STYLE):
            self.savefig(file, format="png", dpi=DRAWN_DPI, metadata={"Software": None})
        return file.getvalue()

    def html(self) -> str:
        """An HTML image that narrows with the page, its alternative text included."""
        source = base64.b64encode(self.png()).decode()
        width = round(self.get_figwidth() * SHOWN_DPI)
        return (
            f'<img alt="{html.escape(self.alt)}" style="max-width: 100%; width: {width}px; height: auto" '
            f'src="data:image/png;base64,{source}">'
        )

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, Any]]:
        shown = {"width": round(self.get_figwidth() * SHOWN_DPI), "alt": self.alt}
        data = {"image/png": base64.b64encode(self.png()).decode(), "text/plain": self.alt}
        return data, {"image/png": shown}


def picture(height: float, rows: int = 1, *, alt: str, **subplots: Any) -> tuple[Picture, list[Axes]]:
    """An empty picture of `height` inches with `rows` axes one below the other. Call it inside a `styled` function."""
    figure = Picture(figsize=(WIDTH, height))
    figure.alt = alt
    axes = figure.subplots(rows, 1, squeeze=False, **subplots)
    return figure, list(axes[:, 0])


def milliseconds(seconds: float) -> str:
    """A time in the unit that reads best: 48 ms, 1.2 s."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
