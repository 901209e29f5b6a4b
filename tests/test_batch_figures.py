"""The figures of batches draw every slot, token and byte that they are given, and say it in words."""

from collections.abc import Callable
from functools import partial

import pytest
import test_figures as rules
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from course_lib.serving.snapshot import Cell, Snapshot
from course_lib.study import Knob, batch_figures, explore, style, widgets
from course_lib.study.batch_figures import (
    block_tables,
    cells,
    first_tokens,
    padding,
    reserved_and_used,
    waste_by_block_size,
)
from course_lib.study.slot_figures import SEQUENCES
from course_lib.study.style import Picture

MIB = 2**20
TEXTS = {"Ada": ["The", " capital", " of", " France"], "Bob": ["Two", " and"], "Cem": ["Why"]}
WASTE = {1: 0.0, 8: 0.03, 16: 0.06, 64: 0.2}


def rows(*texts: tuple[str, int], left: dict[int, tuple[str, int]] | None = None, **more: object) -> Snapshot:
    """A contiguous cache with rows of 8 slots: (name, tokens) for each, and what is left over behind it."""
    slots: list[Cell | None] = []
    for row, (name, tokens) in enumerate(texts):
        old, until = (left or {}).get(row, ("", 0))
        here = [Cell((name,), position) for position in range(tokens)]
        behind = [Cell((old,), position, left=True) for position in range(tokens, until)]
        slots += [*here, *behind, *[None] * (8 - len(here) - len(behind))]
    return Snapshot(8, len(slots), tuple(slots), **more)  # type: ignore[arg-type]


def blocks(tables: dict[str, tuple[int, ...]], tokens: int, count: int, **more: object) -> Snapshot:
    """A paged cache with blocks of 4 slots, each sequence with `tokens` tokens; block 0 is kept if nobody has it."""
    slots: list[Cell | None] = [Cell((), position) for position in range(4)] + [None] * 4 * (count - 1)
    if any(0 in table for table in tables.values()):
        slots[:4] = [None] * 4
    for name, table in tables.items():
        for position in range(tokens):
            slot = 4 * table[position // 4] + position % 4
            old = slots[slot]
            slots[slot] = Cell((*(old.names if old else ()), name), position)
    return Snapshot(4, len(slots), tuple(slots), kind="block", **more)  # type: ignore[arg-type]


HISTORY = [
    rows(("Ada", 0), ("Bob", 0), waiting=("Ada", "Bob", "Cem"), said="Nothing has been read yet."),
    rows(
        ("Ada", 5), ("Bob", 3), waiting=("Cem",), said="Ada reads 5 tokens, Bob 3.", written=(0, 1, 2, 3, 4, 8, 9, 10)
    ),
    rows(("Cem", 2), ("Bob", 4), left={0: ("Ada", 6)}, said="Cem reads 2 tokens. " * 8, written=(0, 1, 11)),
]
SHARED = [
    blocks({}, 0, 6, waiting=("Ada", "Bob"), said="Block 0 is kept."),
    blocks({"Ada": (0, 2, 3), "Bob": (0, 2, 5)}, 11, 6, said="Both have 11 tokens.", written=(14, 22)),
]


def about_batches() -> dict[str, Picture]:
    """Every kind of figure here with ordinary data, and with data at the edges."""
    odd = {"$x^{$": ["$x^{$", "\n", "", " a_b^{c", "<|im_end|>"], "B": ["word"] * 8}
    many = [blocks({name: (0, 1, 2, 3) for name in "ABCD"}, 15, 4)]
    long = Snapshot(21, 21 * 16, tuple(Cell(("A",), place) for place in range(21 * 16)))
    names = tuple(f"request {number}" for number in range(8))
    crowd = Snapshot(8, 64, tuple(Cell((names[slot // 8],), slot % 8) for slot in range(64)))
    parts = {"used": 3 * MIB, "end of the last block": MIB // 4, "never used": 0}
    return {
        **{f"cells {step}": cells(HISTORY, step) for step in range(3)},
        **{f"cells of blocks {step}": cells(SHARED, step) for step in range(2)},
        "cells, least": cells([Snapshot(1, 1, (None,))]),
        "cells, one slot a block": cells([Snapshot(1, 24, tuple(Cell(("A",), n) for n in range(24)), kind="block")]),
        "cells, a block a line": cells([Snapshot(16, 32, (None,) * 32, kind="block")]),
        "cells, large": cells([long]),
        "cells, crowd": cells([crowd]),
        "cells, odd name": cells([rows(("$x^{$", 2), waiting=("$y_$",))]),
        **{f"tables {step}": block_tables(SHARED, step) for step in range(2)},
        "tables, many entries": block_tables(many),
        "tables, largest": block_tables([blocks({"A": (15,), "B": (7, 1)}, 3, 16)]),
        "tables, wide": block_tables([Snapshot(8, 64, tuple(Cell(("A",), 100 + n) for n in range(64)), kind="block")]),
        **{
            f"padding {side} {positions} {mask} {new}": padding(TEXTS, side, positions, mask, new)
            for side, positions, mask, new in (
                ("left", "text", "causal and padding", 0),
                ("left", "column", "causal only", 3),
                ("right", "column", "causal only", 0),
                ("right", "text", "causal and padding", 8),
            )
        },
        "padding, odd texts": padding(odd, new_tokens=4),
        "padding, least": padding({"A": ["word"]}),
        "reserved": reserved_and_used({"reserve the maximum of 2,048": parts | {"never used": 9 * MIB}, "16": parts}),
        "reserved, least": reserved_and_used({"A": {"used": 1}}),
        "reserved, most": reserved_and_used({f"blocks of {2**i}": parts for i in range(8)}),
        "waste": waste_by_block_size(WASTE, {1: 0, 16: 0.05, 64: 0.21}),
        "waste, least": waste_by_block_size({16: 0.0}),
        "waste, most": waste_by_block_size({2**i: 1.0 for i in range(11)}),
        "first": first_tokens({"no sharing": [0.2, 0.21], "shared prefix": [0.2, 0.05]}),
        "first, least": first_tokens({"A": [0.0]}),
        "first, most": first_tokens({name: [10.0] * 24 for name in "ABC"}),
    }


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return about_batches()


@rules.layout_rules
def test_the_figures_keep_to_the_rules_of_all(rule: Callable[..., None], pictures: dict[str, Picture]) -> None:
    rule(pictures)


def test_no_legend_lies_over_data(pictures: dict[str, Picture]) -> None:
    rules.test_no_legend_lies_over_data(pictures)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: cells(HISTORY, 2),
        lambda: block_tables(SHARED, 1),
        lambda: padding(TEXTS, new_tokens=1),
        lambda: reserved_and_used({"A": {"used": 1, "unused": 2}}),
        lambda: waste_by_block_size(WASTE),
        lambda: first_tokens({"A": [1.0]}),
    ],
)
def test_the_same_data_gives_the_same_bytes(draw: Callable[[], Picture]) -> None:
    assert draw().png() == draw().png()


def test_every_figure_says_in_words_what_it_shows(pictures: dict[str, Picture]) -> None:
    for name, figure in pictures.items():
        assert len(figure.alt) > 20 and figure.alt == figure.alt.strip() and "  " not in figure.alt, name


def test_axes_with_numbers_say_what_they_count(pictures: dict[str, Picture]) -> None:
    labels = {(axes.get_xlabel(), axes.get_ylabel()) for figure in pictures.values() for axes in figure.axes}
    assert labels == {
        ("", ""),
        ("column of the row", ""),
        ("slot of the row", ""),
        ("slot of the block", ""),
        ("reserved (MiB)", ""),
        ("reserved (bytes)", ""),
        ("block size (tokens)", "reserved, but empty (%)"),
        ("request, in order of arrival", "first token after (ms)"),
        ("request, in order of arrival", "first token after (s)"),
    }


def boxes(axes: Axes, colour: str) -> list[tuple[float, float, float]]:
    """Left edge, middle and width of the rectangles filled with this colour, up and down, then left to right."""
    found = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    places = [
        (box.get_x(), box.get_y() + box.get_height() / 2, box.get_width())
        for box in found
        if to_rgb(box.get_facecolor()) == to_rgb(colour) and box.get_alpha() is None and box.get_facecolor()[3]
    ]
    return sorted(((round(x, 2), round(y, 2), round(w, 2)) for x, y, w in places), key=lambda place: place[1::-1])


def plates(axes: Axes) -> dict[tuple[int, int], tuple[str, bool]]:
    """(row, slot) -> the position that is written there, and whether on a dark plate: written in this step."""
    return {
        (round(text.get_position()[1]), round(text.get_position()[0])): (
            text.get_text(),
            to_rgb(text.get_bbox_patch().get_facecolor()) == to_rgb(style.INK),
        )
        for text in axes.texts
        if text.get_bbox_patch() is not None
    }


def test_each_slot_says_its_position_and_has_the_look_of_its_sequence() -> None:
    (axes,) = cells(HISTORY, 1).axes
    assert plates(axes) == {(0, place): (f"{place}", True) for place in range(5)} | {
        (1, place): (f"{place}", True) for place in range(3)
    }
    ada, bob, _ = (str(look["facecolor"]) for look in SEQUENCES[:3])
    assert boxes(axes, ada) == [(place - 0.45, 0, 0.9) for place in range(5)]
    assert boxes(axes, bob) == [(place - 0.45, 1, 0.9) for place in range(3)]
    assert len(boxes(axes, "white")) == 16 - 8
    assert [label.get_text() for label in axes.get_yticklabels()] == ["row 0", "row 1"]


def test_what_is_left_over_is_hollow_and_what_is_new_stands_on_a_dark_plate() -> None:
    (axes,) = cells(HISTORY, 2).axes
    assert plates(axes) == {
        **{(0, place): (f"{place}", place < 2) for place in range(6)},
        **{(1, place): (f"{place}", place == 3) for place in range(4)},
    }
    ada, _, cem = (str(look["facecolor"]) for look in SEQUENCES[:3])
    assert boxes(axes, ada) == [] and len(boxes(axes, cem)) == 2
    hollow = [patch for patch in axes.patches if patch.get_linestyle() == "--"]
    assert [round(patch.get_x() + 0.45) for patch in hollow] == [2, 3, 4, 5]
    assert {to_rgb(patch.get_edgecolor()) for patch in hollow} == {to_rgb(ada)}
    assert {patch.get_hatch() for patch in hollow} == {SEQUENCES[0]["hatch"]}


def test_a_shared_slot_has_a_part_for_each_sequence_and_a_frame() -> None:
    (axes,) = cells(SHARED, 1).axes
    ada, bob = (str(look["facecolor"]) for look in SEQUENCES[:2])
    assert boxes(axes, ada)[:2] == [(-0.45, 0, 0.45), (0.55, 0, 0.45)]
    assert boxes(axes, bob)[:2] == [(0.0, 0, 0.45), (1.0, 0, 0.45)]
    frames = [patch for patch in axes.patches if patch.get_facecolor()[3] == 0]
    assert len(frames) == 8 and {patch.get_linewidth() for patch in frames} == {2.2}
    (before,) = cells(SHARED, 0).axes
    assert len(boxes(before, style.PALE)) == 4, "block 0 is kept"


def test_stepping_moves_nothing_but_what_changes() -> None:
    for draw, history in ((cells, HISTORY), (cells, SHARED), (block_tables, SHARED)):
        pictures = [draw(history, step) for step in range(len(history))]
        for picture in pictures:
            rules.texts(picture)  # places everything
        assert len({tuple(picture.get_size_inches()) for picture in pictures}) == 1
        places = [picture.axes[0].get_position().bounds for picture in pictures]
        assert all(place == pytest.approx(places[0], abs=0.003) for place in places), "less than a pixel"
        legends = [
            [text.get_text() for legend in picture.legends for text in legend.get_texts()] for picture in pictures
        ]
        assert all(legend == legends[0] for legend in legends)


def test_a_learner_steps_through_a_history(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[widgets.Knobs] = []
    monkeypatch.setattr(widgets, "show", lambda widget, data, metadata: shown.append(widget))
    explore(partial(cells, HISTORY), step=Knob("Step", low=0, high=len(HISTORY) - 1, start=0))
    (widget,) = shown
    widget.asked = {"number": 1, "values": {"step": 2}}
    assert widget.shown["alt"] == cells(HISTORY, 2).alt and not widget.shown["problem"]


def test_what_happened_and_who_waits_stand_above_and_in_the_text() -> None:
    figure = cells(HISTORY, 1)
    for told in (figure.get_suptitle().replace("\n", " "), figure.alt):
        assert "Step 1 of 2. Ada reads 5 tokens, Bob 3. Waiting: Cem." in told
    assert "Row 0: positions 0 to 4 of Ada, 3 empty; row 1: positions 0 to 2 of Bob, 5 empty." in figure.alt
    assert "Nobody waits." in cells(HISTORY, 2).alt
    assert "positions 0 to 1 of Cem, positions 2 to 5 left over of Ada, 2 empty" in cells(HISTORY, 2).alt
    assert "Block 0: positions 0 to 3 kept for later; block 1: 4 empty" in cells(SHARED).alt
    assert "Block 0: positions 0 to 3 of Ada and Bob" in cells(SHARED, 1).alt
    assert "position 3 of A." in cells([Snapshot(1, 1, (Cell(("A",), 3),))]).alt
    assert cells([rows(("A", 1))]).get_suptitle() == "", "one snapshot is no history, and nobody ever waits"


def test_tables_name_blocks_and_arrows_lead_to_them() -> None:
    figure = block_tables(SHARED, 1)
    (axes,) = figure.axes
    arrows = [(round(text.xy[1]), text.arrow_patch) for text in axes.texts if getattr(text, "arrow_patch", None)]
    assert [block for block, _ in arrows] == [0, 2, 3, 0, 2, 5]
    written = [text.get_text() for text in axes.texts if text.get_text().strip()]
    assert written.count("2 references") == 2 and written.count("1 reference") == 2 and written.count("free") == 2
    assert written.count("0 to 3") == written.count("4 to 7") == written.count("8 to 11") == 2
    assert "Ada: blocks 0, 2, 3. Bob: blocks 0, 2, 5." in figure.alt
    assert "0 2 references, 1 free, 2 2 references, 3 1 reference, 4 free, 5 1 reference" in figure.alt
    assert "0 kept, 1 free" in block_tables(SHARED, 0).alt


def test_tables_of_others_are_drawn_as_they_are_given() -> None:
    figure = block_tables(SHARED, 1, {"Bob": (5, 5), "Eve": (1,)})
    assert "Bob: blocks 5, 5. Eve: block 1." in figure.alt and "5 2 references" in figure.alt


def table(axes: Axes) -> list[list[str]]:
    """What is written in each slot of a padded batch, above and below: a token and its position, × for a cross."""
    found: dict[tuple[int, int], dict[bool, str]] = {}
    for text in axes.texts:
        x, y = text.get_position()
        found.setdefault((round(y), round(x)), {})[y > round(y)] = text.get_text()
    for line in axes.lines:
        if len(line.get_xdata()):
            found[round(line.get_ydata()[0]), round(line.get_xdata()[0])][True] = "×"
    columns = 1 + max(x for _, x in found)
    every = [[found[y, x] for x in range(columns)] for y in range(1 + max(y for y, _ in found))]
    return [[" ".join(filter(None, (slot.get(False), slot.get(True)))) for slot in row] for row in every]


def test_padding_on_the_left_starts_at_position_0_after_it() -> None:
    figure = padding(TEXTS)
    assert table(figure.axes[0]) == [
        ["The 0", "capital 1", "of 2", "France 3"],
        ["pad ×", "pad ×", "Two 0", "and 1"],
        ["pad ×", "pad ×", "pad ×", "Why 0"],
    ]
    assert "padded on the left, 4 columns a row" in figure.alt
    bob = "Bob: 2 tokens and 0 new at positions 0, 1, 0 of them wrong; 2 padding columns hidden, 0 looked at."
    assert bob in figure.alt


def test_positions_counted_by_column_are_wrong_behind_padding() -> None:
    left = padding(TEXTS, "left", "column", "causal only", 1)
    assert table(left.axes[0])[1] == ["pad 0", "pad 1", "Two 2", "and 3", "+1 4"]
    assert "Ada: 4 tokens and 1 new at positions 0, 1, 2, 3, 4, 0 of them wrong; 0 padding columns hidden" in left.alt
    bob = "Bob: 2 tokens and 1 new at positions 2, 3, 4, 3 of them wrong; 0 padding columns hidden, 2 looked at"
    assert bob in left.alt
    right = padding(TEXTS, "right", "column", "causal only", 1)
    assert table(right.axes[0])[1] == ["Two 0", "and 1", "pad 2", "pad 3", "+1 4"]
    assert "Bob: 2 tokens and 1 new at positions 0, 1, 4, 1 of them wrong" in right.alt
    marked = {to_rgb(text.get_bbox_patch().get_facecolor()): text.get_text() for text in right.axes[0].texts}
    assert marked[to_rgb(style.VERMILION)] == "4"


def test_padding_on_the_right_is_hidden_by_the_causal_mask_until_decode() -> None:
    prefill = padding(TEXTS, "right", "text", "causal only", 0)
    assert table(prefill.axes[0])[1] == ["Two 0", "and 1", "pad ×", "pad ×"]
    decode = padding(TEXTS, "right", "text", "causal only", 1)
    assert table(decode.axes[0])[1] == ["Two 0", "and 1", "pad", "pad", "+1 2"]
    masked = padding(TEXTS, "right", "text", "causal and padding", 1)
    assert table(masked.axes[0])[1] == ["Two 0", "and 1", "pad ×", "pad ×", "+1 2"]


def test_the_query_is_the_newest_token_of_each_row() -> None:
    for side, new, expected in (("right", 0, [3, 1, 0]), ("left", 0, [3, 3, 3]), ("right", 2, [5, 5, 5])):
        (axes,) = padding(TEXTS, side, new_tokens=new).axes
        frames = [patch for patch in axes.patches if patch.get_facecolor()[3] == 0]
        assert [round(patch.get_x() + 0.46) for patch in frames] == expected


def test_bars_of_bytes_stand_side_by_side_and_say_what_is_used() -> None:
    figure = reserved_and_used({"all": {"used": 3 * MIB, "unused": 9 * MIB}, "16": {"used": 3 * MIB, "unused": MIB}})
    (axes,) = figure.axes
    bars = [(patch.get_x(), patch.get_width()) for patch in axes.patches]
    assert bars == [(0, 3), (3, 9), (0, 3), (3, 1)]
    assert [text.get_text() for text in axes.texts] == ["25 % used", "75 % used"]
    assert "all: 3 MiB used, 9 MiB unused; 25 % used. 16: 3 MiB used, 1 MiB unused; 75 % used." in figure.alt


def test_waste_is_drawn_in_percent_and_a_rule_as_a_line() -> None:
    figure = waste_by_block_size(dict(reversed(WASTE.items())), {1: 0.0, 64: 0.21})
    points, line = ([(float(x), float(y)) for x, y in drawn.get_xydata()] for drawn in figure.axes[0].lines)
    assert points == [(1, 0), (8, 3), (16, 6), (64, 20)] and line == [(1, 0), (64, 21)]
    assert "1 0 %, 8 3 %, 16 6 %, 64 20 %. Expected: 1 0 %, 64 21 %." in figure.alt


def test_first_tokens_stand_in_order_and_in_the_unit_that_suits_them() -> None:
    figure = first_tokens({"apart": [0.2, 0.4], "shared": [0.2, 0.05]})
    assert [patch.get_height() for patch in figure.axes[0].patches] == pytest.approx([200, 400, 200, 50])
    assert "2 requests. apart: 200 ms, 400 ms. shared: 200 ms, 50 ms." in figure.alt
    assert first_tokens({"apart": [2.0]}).axes[0].patches[0].get_height() == 2
    named = first_tokens({"A": [0.1, 0.2]}, texts=["asthma", "gout"]).axes[0]
    assert [label.get_text() for label in named.get_xticklabels()] == ["asthma", "gout"]


ROWS = rows(("Ada", 2))
NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: cells([]), "no step 0: the history has 0 snapshots"),
        (lambda: cells(HISTORY, 3), "no step 3: the history has 3 snapshots"),
        (lambda: cells(HISTORY, -1), "no step -1"),
        (lambda: cells([ROWS, rows(("Ada", 2), ("Bob", 1))]), "8 and 16|16 and 8"),
        (lambda: cells([Snapshot(31, 31, (None,) * 31)]), "1 row of 31 slots are too many to read: draw at most 30"),
        (lambda: cells([Snapshot(1, 17, (None,) * 17)]), "17 rows of 1 slots"),
        (lambda: cells([Snapshot(17, 17, (Cell(("A",), 1000), *(None,) * 16))]), "at most 16 slots"),
        (lambda: cells([rows(*((f"{n}", 1) for n in range(9)))]), "9 names are too many"),
        (lambda: block_tables(SHARED, 1, {"Ada": (6,)}), "table of Ada names block 6, the pool has blocks 0 to 5"),
        (lambda: block_tables(SHARED, 1, {"Ada": (-1,)}), "names block -1"),
        (lambda: block_tables(SHARED, 1, {"Ada": (1,) * 17}), "6 blocks of 4 slots and 17 entries"),
        (lambda: block_tables([Snapshot(16, 16, (None,) * 16, kind="block")]), "1 blocks of 16 slots"),
        (lambda: padding({}), "at least one token"),
        (lambda: padding({"Ada": []}), r"texts of \[0\] tokens"),
        (lambda: padding(TEXTS, new_tokens=-1), "-1 new ones"),
        (lambda: padding(TEXTS, "both"), "'both' is neither 'left' nor 'right'"),
        (lambda: padding(TEXTS, positions="row"), "'row' is neither 'text' nor 'column'"),
        (lambda: padding(TEXTS, mask="none"), "'none' is neither"),
        (lambda: padding(TEXTS, new_tokens=9), "3 texts of 13 columns are too many"),
        (lambda: padding({f"{n}": ["a"] for n in range(9)}), "9 texts of 1 columns"),
        (lambda: reserved_and_used({}), "nothing to draw"),
        (lambda: reserved_and_used({"A": {"used": 1}, "B": {"usd": 1}}), r"B has the parts \['usd'\]"),
        (lambda: reserved_and_used({"A": {"used": 1, "unused": -1}}), "A: -1 bytes"),
        (lambda: reserved_and_used({"A": {"used": NAN}}), "A: nan bytes"),  # type: ignore[dict-item]
        (lambda: reserved_and_used({"A": {"used": 0}}), "A: nothing is reserved"),
        (lambda: reserved_and_used({"A": {}}), "A: nothing is reserved"),
        (lambda: reserved_and_used({"A": dict.fromkeys("abcd", 1)}), "4 names are too many"),
        (lambda: waste_by_block_size({}), "nothing to draw"),
        (lambda: waste_by_block_size({16: 1.5}), "share of 1.5 wasted in blocks of 16"),
        (lambda: waste_by_block_size({16: 0.1}, {8: NAN}), "share of nan wasted in blocks of 8"),
        (lambda: waste_by_block_size({0: 0.1}), "blocks of 0"),
        (lambda: first_tokens({}), "a time for each request"),
        (lambda: first_tokens({"A": [1.0], "B": [1.0, 2.0]}), "{'A': 1, 'B': 2}"),
        (lambda: first_tokens({"A": []}), "{'A': 0}"),
        (lambda: first_tokens({"A": [INFINITE]}), "A: a request cannot wait inf s"),
        (lambda: first_tokens({"A": [-1.0]}), "A: a request cannot wait -1.0 s"),
        (lambda: first_tokens({"A": [1.0] * 25}), "25 requests are too many"),
        (lambda: first_tokens({"A": [1.0]}, texts=["a", "b"]), "2 texts for 1 requests"),
        (lambda: first_tokens({name: [1.0] for name in "ABCD"}), "4 names are too many"),
    ],
)
def test_what_cannot_be_drawn_gets_a_sentence(call: Callable[[], Picture], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_sequences_differ_in_colour_and_in_hatch_where_their_greys_are_alike() -> None:
    def grey(colour: str) -> float:
        red, green, blue = to_rgb(colour)
        return 0.299 * red + 0.587 * green + 0.114 * blue

    assert len({look["facecolor"] for look in SEQUENCES}) == len(SEQUENCES)
    seen = [(look["hatch"], grey(look["facecolor"])) for look in SEQUENCES]
    for number, (hatch, value) in enumerate(seen):
        assert all(hatch != other or abs(value - beside) > 0.3 for other, beside in seen[:number])


def test_all_figures_can_be_had_from_one_module() -> None:
    assert sorted(batch_figures.__all__) == [
        "block_tables",
        "cells",
        "first_tokens",
        "padding",
        "reserved_and_used",
        "waste_by_block_size",
    ]
