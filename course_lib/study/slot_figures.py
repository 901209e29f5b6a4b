"""Figures of the slots of a cache: whose each one is, which position it holds, and which blocks a text is made of.

The one idea: memory is drawn slot by slot as a snapshot says it, and a sequence looks the same wherever it lies, by
colour and by hatch, so that you see at a glance whose slot it is and read in it which position. All steps of one
history give pictures of one size, so stepping moves nothing but what changes. Notebooks take these from
`batch_figures.py`, which has the other figures about batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from course_lib.serving.snapshot import Cell, Snapshot, listed
from course_lib.study.cache_figures import cycle, plural
from course_lib.study.style import BLUE, GREEN, GREY, INK, ORANGE, PALE, VERMILION, Picture, picture, styled

SKY, ROSE, YELLOW = "#56B4E9", "#CC79A7", "#F0E442"  # the rest of the palette of Okabe and Ito, see style.py
COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, ROSE, INK, YELLOW)
HATCHES = ("///", "", "...", "\\\\\\", "xxx", "---", "", "|||")
SEQUENCES: tuple[dict[str, Any], ...] = tuple(
    {"facecolor": colour, "edgecolor": "white", "hatch": hatch, "linewidth": 0.8}
    for colour, hatch in zip(COLOURS, HATCHES, strict=True)
)
EMPTY: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "linewidth": 0.6}
KEPT: dict[str, Any] = {"facecolor": PALE, "edgecolor": INK, "linewidth": 1.2}
LEFT: dict[str, Any] = {"facecolor": "white", "edgecolor": GREY, "linewidth": 1.2, "linestyle": "--"}
SHARED: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 2.2, "zorder": 3}
PLATE: dict[str, Any] = {"boxstyle": "round,pad=0.12,rounding_size=0.3", "facecolor": "white", "edgecolor": "none"}
NEW_PLATE: dict[str, Any] = PLATE | {"facecolor": INK}
HEIGHT = 0.72  # of a slot
WIDEST = {1: 30, 2: 30, 3: 21}  # how many slots stand side by side, by the digits of the largest position
MOST_ROWS, MOST_BLOCKS, MOST_IN_A_BLOCK = 16, 16, 8
POOL, POOL_WIDTH = 4.9, 3.6  # where the pool stands beside the tables
LETTERS = 78  # of a line above a picture


@styled
def cells(history: Sequence[Snapshot], step: int = 0) -> Picture:
    """Which sequence and which position each slot of a cache holds after `step` of a history; 0 is its beginning.

    A row of the cache is one line of the picture; blocks stand side by side as they fit. ValueError for a step that is
    not there, or a cache that is too large to be read.
    """
    now = at(history, step)
    looks = sequence_looks(name for snapshot in history for name in snapshot.names)
    last = max((cell.position for snapshot in history for cell in snapshot.cells if cell), default=0)
    beside = lines_beside(now, len(str(last)))
    above, known = titles(history), kinds(history, looks)
    lines, pitch = -(-now.slots // now.line // beside), 1.35 if beside > 1 else 1.0
    height = 0.75 + 0.5 * pitch * lines + 0.21 * len(above[step]) + 0.25 * -(-len(known) // 4)
    figure, (axes,) = picture(height, alt=told("What each slot of the cache holds.", *above[step], told_cells(now)))
    write_above(figure, above[step])
    width = beside * (now.line + 1) - 1
    for slot, cell in enumerate(now.cells):
        line, place = divmod(slot, now.line)
        x, y = line % beside * (now.line + 1) + place, pitch * (line // beside)
        draw_slot(axes, (x - 0.45, y, 0.9), cell, looks, slot in now.written, 10.5 if width <= 18 else 9)
        if beside > 1 and not place:
            name = f"{now.kind} {line}" if now.line > 1 else f"{line}"
            axes.text(x - 0.45, y - 0.42, name, fontsize=9, va="bottom")
    axes.set(xlim=(-0.6, max(width, 16) - 0.4), ylim=(0.55 * pitch + pitch * (lines - 1), -0.5 * pitch**2))
    axes.set(xticks=[], yticks=[])
    if beside == 1:
        axes.set_yticks([pitch * line for line in range(lines)], labels=[f"{now.kind} {n}" for n in range(lines)])
        axes.set_xticks(range(now.line))
        axes.set_xlabel(f"slot of the {now.kind}", loc="left")
    bare(axes)
    figure.legend(handles=known, ncols=4, loc="outside lower left", columnspacing=1.2, handletextpad=0.5)
    return figure


@styled
def block_tables(
    history: Sequence[Snapshot], step: int = 0, tables: Mapping[str, Sequence[int]] | None = None
) -> Picture:
    """The block table of each sequence after `step` of a history, and the blocks of the pool that its entries name.

    Left the texts, cut into blocks; right the pool, with what lies in each block and how many tables refer to it.
    `tables` are those of the snapshot unless you give others. ValueError for a block that is not in the pool, or for
    too many to draw.
    """
    now = at(history, step)
    blocks, size = now.slots // now.line, now.line
    looks = sequence_looks([*(name for shot in history for name in shot.names), *(tables or {})])
    if tables is None:
        held = now.tables()
        tables = {name: held[name] for name in looks if name in held}
    entries = [(name, index, block) for name, table in tables.items() for index, block in enumerate(table)]
    for name, _, block in entries:
        if not 0 <= block < blocks:
            raise ValueError(f"the table of {name} names block {block}, the pool has blocks 0 to {blocks - 1}")
    most = max(len(entries), *(sum(map(len, shot.tables().values())) for shot in history))
    if max(blocks, most) > MOST_BLOCKS or size > MOST_IN_A_BLOCK:
        raise ValueError(
            f"{blocks} blocks of {size} slots and {most} entries of tables are too many for one picture: draw at most "
            f"{MOST_BLOCKS} blocks of {MOST_IN_A_BLOCK} and {MOST_BLOCKS} entries"
        )
    references, above = Counter(block for *_, block in entries), titles(history)
    alt = told("Block tables.", *above[step], told_tables(now, tables, references))
    figure, (axes,) = picture(0.9 + 0.36 * max(blocks, most) + 0.21 * len(above[step]), alt=alt)
    write_above(figure, above[step])
    for slot, cell in enumerate(now.cells):
        block, place = divmod(slot, size)
        x = POOL + POOL_WIDTH * place / size
        draw_slot(axes, (x, block, POOL_WIDTH / size - 0.04), cell, looks, slot in now.written)
    for block in range(blocks):
        axes.text(POOL + POOL_WIDTH + 0.15, block, f"{block}", va="center", fontsize=10, fontweight="bold")
        axes.text(POOL + POOL_WIDTH + 0.75, block, told_use(now, block, references), va="center", fontsize=9.5)
    pitch = min(1, blocks / most) if most else 1  # entries stand closer together if there are more of them
    top = (blocks - pitch * len(entries)) / 2 - 0.5
    for row, (name, index, block) in enumerate(entries):
        draw_entry(axes, top + pitch * (row + 0.5), pitch, name, index * size, size, block, looks[name])
    for x, heading in ((1.2, "positions"), (2.8, "block"), (POOL, "the pool: slots with the positions in them")):
        axes.text(x, -0.8, heading, fontsize=10)
    axes.set(xlim=(-0.3, 10.6), ylim=(blocks - 0.4, -1.2), xticks=[], yticks=[])
    bare(axes)
    return figure


def draw_entry(
    axes: Axes, y: float, pitch: float, name: str, first: int, size: int, block: int, look: Mapping[str, Any]
) -> None:
    """One entry of a block table: which positions, the number of their block, and an arrow to it."""
    axes.add_patch(Rectangle((1.2, y - HEIGHT * pitch / 2), 1.5, HEIGHT * pitch, **look))
    here: dict[str, Any] = {"va": "center_baseline", "fontsize": 9}
    positions = f"{first} to {first + size - 1}" if size > 1 else f"{first}"
    axes.text(1.95, y, positions, ha="center", bbox=PLATE, **here)
    axes.text(3.1, y, f"{block}", ha="center", fontweight="bold", **here)
    tip = {"arrowstyle": "-|>", "color": look["facecolor"], "linewidth": 1.6, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", (POOL - 0.05, block), (3.35, y), arrowprops=tip)
    if not first:
        axes.text(1.1, y, plain(name), ha="right", va="center", fontsize=10)


def draw_slot(
    axes: Axes,
    place: tuple[float, float, float],
    cell: Cell | None,
    looks: Mapping[str, dict[str, Any]],
    new: bool,
    fontsize: float = 9,
) -> None:
    """One slot: white if it holds nothing, else in the look of its sequences, with the position on a plate."""
    x, y, width = place  # left edge, middle
    corner = (x, y - HEIGHT / 2)
    if cell is None:
        axes.add_patch(Rectangle(corner, width, HEIGHT, **EMPTY))
        return
    if cell.holders:
        part = width / len(cell.names)
        for number, name in enumerate(cell.names):
            axes.add_patch(Rectangle((x + number * part, corner[1]), part, HEIGHT, **looks[name]))
    elif cell.left:
        axes.add_patch(Rectangle(corner, width, HEIGHT, **(faded(looks[cell.names[0]]) if cell.names else LEFT)))
    else:
        axes.add_patch(Rectangle(corner, width, HEIGHT, **KEPT))
    if len(cell.holders) > 1:
        axes.add_patch(Rectangle(corner, width, HEIGHT, **SHARED))
    plate, ink = (NEW_PLATE, "white") if new else (PLATE, GREY if cell.left else INK)
    weight = "normal" if cell.left else "bold"
    axes.text(x + width / 2, y, f"{cell.position}", color=ink, bbox=plate, fontweight=weight, fontsize=fontsize,
              ha="center", va="center_baseline", zorder=4)  # fmt: skip


def faded(look: Mapping[str, Any]) -> dict[str, Any]:
    """What is left over of a sequence: its outline and its hatch, nothing solid."""
    return LEFT | {"edgecolor": look["facecolor"], "hatch": look["hatch"]}


def at(history: Sequence[Snapshot], step: int) -> Snapshot:
    if not 0 <= step < len(history):
        raise ValueError(f"there is no step {step}: the history has {len(history)} snapshots, numbered from 0")
    now = history[step]
    for other in history:
        if (other.slots, other.line) != (now.slots, now.line):
            raise ValueError(
                f"lines of {other.line} and of {now.line} slots, {other.slots} and {now.slots} in all: "
                "a history is that of one cache"
            )
    return now


def sequence_looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """A look for each name, in the order in which they first come; ValueError if they cannot be told apart."""
    known = tuple(dict.fromkeys(names))
    return dict(zip(known, cycle(SEQUENCES, len(known)), strict=True))


def lines_beside(snapshot: Snapshot, digits: int) -> int:
    """How many lines of a cache stand side by side; ValueError if it is too large to be read."""
    lines, most = snapshot.slots // snapshot.line, WIDEST.get(digits, 16)
    fit = 1 if snapshot.kind == "row" else max(1, (most + 1) // (snapshot.line + 1))
    rows = -(-lines // fit)
    if snapshot.line > most or rows > MOST_ROWS:
        raise ValueError(
            f"{lines} {plural(snapshot.kind, lines)} of {snapshot.line} slots are too many to read: "
            f"draw at most {most} slots side by side, and {MOST_ROWS} lines"
        )
    return -(-lines // rows)


def titles(history: Sequence[Snapshot]) -> list[list[str]]:
    """The lines above the picture of each step, as many for all: what happened, and who waits."""
    every = []
    somebody_waits = any(snapshot.waiting for snapshot in history)
    for step, snapshot in enumerate(history):
        number = f"Step {step} of {len(history) - 1}. " if len(history) > 1 else ""
        waiting = f"Waiting: {', '.join(snapshot.waiting)}." if snapshot.waiting else "Nobody waits." * somebody_waits
        every.append([plain(line) for line in [*wrap(number + snapshot.said, LETTERS), *wrap(waiting, LETTERS)]])
    most = max(map(len, every))
    return [[*lines, *[""] * (most - len(lines))] for lines in every]


def write_above(figure: Picture, lines: Sequence[str]) -> None:
    if lines:
        figure.suptitle("\n".join(lines), x=0.01, ha="left", fontsize=11.5)


def kinds(history: Sequence[Snapshot], looks: Mapping[str, dict[str, Any]]) -> list[Patch]:
    """The legend: all names of a history, and those special looks that come up in it."""
    every = [cell for snapshot in history for cell in snapshot.cells if cell]
    special = [
        (Patch(label="shared", **SHARED), any(len(cell.holders) > 1 for cell in every)),
        (Patch(label="written in this step", facecolor=INK), any(snapshot.written for snapshot in history)),
        (Patch(label="kept for later", **KEPT), any(not cell.names and not cell.left for cell in every)),
        (Patch(label="left over", **LEFT), any(cell.left for cell in every)),
        (Patch(label="empty", **EMPTY), True),
    ]
    names = [Patch(label=plain(name), **look) for name, look in looks.items()]
    return [*names, *(patch for patch, comes_up in special if comes_up)]


def told(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def told_cells(snapshot: Snapshot) -> str:
    """What lies in each line, in words: runs of slots that are the same sequences'."""
    lines = []
    for line in range(snapshot.slots // snapshot.line):
        held = snapshot.cells[line * snapshot.line : (line + 1) * snapshot.line]
        runs = groupby(held, key=lambda cell: cell and (cell.names, cell.left))
        lines.append(f"{snapshot.kind} {line}: {', '.join(told_run(list(run)) for _, run in runs)}")
    said = "; ".join(lines)
    return f"{said[0].upper()}{said[1:]}."


def told_run(run: Sequence[Cell | None]) -> str:
    first, last = run[0], run[-1]
    if first is None or last is None:
        return f"{len(run)} empty"
    which = f"position{'s' * (len(run) > 1)} {first.position}" + f" to {last.position}" * (len(run) > 1)
    whose = f" of {listed(first.names)}" if first.names else ""
    return which + (" left over" if first.left else "" if first.names else " kept for later") + whose


def told_tables(snapshot: Snapshot, tables: Mapping[str, Sequence[int]], references: Mapping[int, int]) -> str:
    said = [f"{name}: {plural('block', len(table))} {', '.join(map(str, table))}." for name, table in tables.items()]
    use = [f"{block} {told_use(snapshot, block, references)}" for block in range(snapshot.slots // snapshot.line)]
    return told(*said, f"Blocks of the pool: {', '.join(use)}.", told_cells(snapshot))


def told_use(snapshot: Snapshot, block: int, references: Mapping[int, int]) -> str:
    if count := references.get(block, 0):
        return f"{count} {plural('reference', count)}"
    held = snapshot.cells[block * snapshot.line : (block + 1) * snapshot.line]
    return "kept" if any(cell and not cell.names and not cell.left for cell in held) else "free"


def plain(text: str) -> str:
    """A text in which matplotlib finds no formula."""
    return text.replace("$", r"\$")


def bare(axes: Axes) -> None:
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
