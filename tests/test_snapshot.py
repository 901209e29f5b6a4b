"""Snapshots say what lies in a cache: judged by the keys themselves, which each know their token and position."""

from collections.abc import Callable

import pytest
import torch
from shapes import TOLERANCE, model_of
from torch import Tensor

from course_lib.caches import ContiguousCache, ForgettingCache, PagedCache, PrefixCache, Window
from course_lib.serving import Engine, Request, Sequence
from course_lib.serving.snapshot import Cell, Snapshot, history, snapshot, take_step

MODEL = model_of("gqa")
COMMON = (7, 3, 19, 2, 2, 25, 8, 1)  # a prompt's beginning: two blocks of 4


def request(name: str, prompt: tuple[int, ...], new_tokens: int, **more: object) -> Request:
    return Request(prompt, new_tokens, name=name, **more)  # type: ignore[arg-type]


def some_requests() -> list[Request]:
    return [
        request("Ada", (*COMMON, 4, 5), 4),
        request("Bob", (11, 12, 13), 7),
        request("Cem", (*COMMON, 4), 3),
        request("Dee", (21,), 3),
        request("Eve", (*COMMON, 9, 9, 9), 4),
        request("Fay", (15, 16, 17, 18, 20), 2),
    ]


def contiguous(**more: object) -> Engine:
    return Engine(MODEL, ContiguousCache(MODEL.config, 3, 16, torch.float64), **more)  # type: ignore[arg-type]


def paged(blocks: int = 8, shared: bool = False, **more: object) -> Engine:
    cache = PagedCache(MODEL.config, 3, blocks, 4, torch.float64)
    return Engine(MODEL, cache, prefix=PrefixCache(cache) if shared else None, **more)  # type: ignore[arg-type]


ENGINES: dict[str, Callable[[], Engine]] = {
    "contiguous": contiguous,
    "contiguous, chunks": lambda: contiguous(chunk=4),
    "contiguous, compact": lambda: contiguous(compact=True),
    "paged": paged,
    "paged, too small": lambda: paged(6, chunk=3),
    "shared": lambda: paged(8, shared=True),
    "shared, too small": lambda: paged(5, shared=True, compact=True),
}


def submitted(engine: Engine, requests: list[Request] | None = None) -> list[Sequence]:
    return [engine.submit(each) for each in (requests or some_requests())]


def steps(engine: Engine, sequences: list[Sequence]) -> list[Snapshot]:
    """The history of an engine that is looked at between its steps: the same snapshots, one at a time."""
    return [*iter_steps(engine, sequences)]


def iter_steps(engine: Engine, sequences: list[Sequence]):  # type: ignore[no-untyped-def]
    shot = snapshot(engine)
    yield shot
    while engine.waiting or engine.running:
        yield (shot := take_step(engine, sequences, shot))


def slots_of(cache: ContiguousCache | PagedCache) -> Tensor:
    """All keys of a cache by slot, [slots, L, H, D]."""
    if isinstance(cache, PagedCache):
        return cache.keys[:, :-1].flatten(1, 2).transpose(0, 1)
    return cache.keys.transpose(2, 3).flatten(1, 2).transpose(0, 1)


def keys_of(text: list[int]) -> Tensor:
    """The keys of a text alone in a cache of its own, by position, [T, L, H, D]."""
    cache = ContiguousCache(MODEL.config, 1, len(text), torch.float64)
    with torch.inference_mode():
        MODEL(torch.tensor([text]), cache)
    return slots_of(cache)[: len(text)]


@pytest.mark.parametrize("kind", ENGINES)
def test_every_cell_holds_the_keys_of_the_position_that_it_names(kind: str) -> None:
    alone = ENGINES[kind]()
    finished = submitted(alone)
    alone.run()
    expected = {sequence.name: keys_of(sequence.text) for sequence in finished}

    engine = ENGINES[kind]()
    engine.cache.fill_free(torch.nan)
    counted = {"held": 0, "left": 0, "kept": 0}
    for shot in iter_steps(engine, submitted(engine)):
        keys = slots_of(engine.cache)  # type: ignore[arg-type]
        for slot, cell in enumerate(shot.cells):
            if cell is None:
                assert (keys[slot] == 0).all() or keys[slot].isnan().all(), f"slot {slot} holds something"
                continue
            names = cell.names or [name for name, text in expected.items() if cell.position < len(text)]
            off = [float((keys[slot] - expected[name][cell.position]).abs().max()) for name in names]
            assert (max if cell.holders else min)(off) < TOLERANCE[torch.float64], f"{shot.said} slot {slot}: {cell}"
            counted["left" if cell.left else "held" if cell.names else "kept"] += 1
    assert counted["held"] and counted["left"], "the test must have something to judge"
    assert bool(counted["kept"]) == ("shared" in kind)


@pytest.mark.parametrize("kind", ENGINES)
def test_cells_are_what_the_rows_have_read_and_nothing_else(kind: str) -> None:
    engine = ENGINES[kind]()
    for shot in iter_steps(engine, submitted(engine)):
        lengths = {s.name: engine.cache.lengths[s.row or 0] for s in engine.running}
        positions: dict[str, list[int]] = {name: [] for name in lengths}
        for name, position, _ in shot.held():
            positions[name].append(position)
        assert {name: sorted(held) for name, held in positions.items()} == {
            name: list(range(length)) for name, length in lengths.items()
        }
        assert shot.waiting == tuple(sequence.name for sequence in engine.waiting)
        if isinstance(engine.cache, PagedCache):
            assert shot.kind == "block" and shot.slots == engine.cache.slots and shot.line == 4
            assert shot.tables() == {s.name: engine.cache.tables[s.row or 0] for s in engine.running}
        else:
            assert shot.kind == "row" and shot.tables() == {s.name: (s.row,) for s in engine.running}


@pytest.mark.parametrize("kind", ENGINES)
def test_written_slots_are_those_that_the_passes_read(kind: str) -> None:
    engine = ENGINES[kind]()
    read: dict[str, int] = {}
    engine.observers.append(lambda group, counts: read.update({s.name: n for s, n in zip(group, counts, strict=True)}))
    for shot in iter_steps(engine, submitted(engine)):
        for sequence in engine.running:
            end, places = engine.cache.lengths[sequence.row or 0], engine.cache.places(sequence.row or 0)
            newest = {places[position] for position in range(end - read.get(sequence.name, 0), end)}
            assert newest <= set(shot.written), f"{shot.said} {sequence.name}"
        assert len(shot.written) == len(set(shot.written)) <= sum(read.values())
        if "too small" not in kind:  # there, what was read may be preempted and written over in the same step
            assert len(shot.written) == sum(read.values())
        read.clear()


def test_history_runs_to_the_end_and_leaves_the_engine_as_it_was() -> None:
    engine = contiguous()
    sequences = submitted(engine)
    shots = history(engine)
    assert all(sequence.finished for sequence in sequences) and not engine.observers
    other = contiguous()
    assert shots[1:] == steps(other, submitted(other))[1:]
    assert shots[0].said == "Nothing has been read yet." and shots[0].cells == (None,) * 48
    assert shots[0].waiting == ("Ada", "Bob", "Cem", "Dee", "Eve", "Fay")
    assert [sequence.tokens for sequence in sequences] == [s.tokens for s in run_of(contiguous())]


def test_what_a_cache_has_forgotten_since_it_was_read_is_in_no_snapshot() -> None:
    engine = Engine(MODEL, ForgettingCache(MODEL.config, 1, Window(4), torch.float64))
    submitted(engine, [request("Ada", (1, 2, 3, 4, 5, 6, 7), 3)])
    shots = history(engine)
    assert [sorted(position for _, position, _ in shot.held()) for shot in shots] == [
        [],
        [3, 4, 5, 6],
        [4, 5, 6, 7],
        [],
    ]
    assert [len(shot.written) for shot in shots] == [0, 4, 1, 1]


def run_of(engine: Engine) -> list[Sequence]:
    sequences = submitted(engine)
    engine.run()
    return sequences


def test_an_engine_that_fails_in_a_step_is_not_watched_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = contiguous()
    submitted(engine)
    monkeypatch.setattr(engine, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        history(engine)
    assert not engine.observers


def test_each_step_is_told_in_a_sentence() -> None:
    engine = Engine(MODEL, ContiguousCache(MODEL.config, 2, 8, torch.float64), chunk=4, compact=True)
    submitted(engine, [request("Ada", (1, 2), 2), request("Bob", (1, 2, 3, 4, 5), 2), request("Cem", (6,), 1)])
    assert [shot.said for shot in history(engine)] == [
        "Nothing has been read yet.",
        "Ada and Bob are admitted. Ada reads 2 tokens, Bob 4.",
        "Bob reads 1 token. Ada decodes one token. Ada is finished and gives up its row. Bob moves to row 0.",
        "Cem is admitted. Cem reads 1 token. Bob decodes one token. Bob and Cem are finished and give up their rows.",
    ]


def test_sharing_preemption_and_eviction_are_told() -> None:
    engine = paged(4, shared=True)
    submitted(engine, [request("Ada", (*COMMON, 4), 2), request("Bob", (*COMMON, 5), 6)])
    said = [shot.said for shot in history(engine)]
    assert "Bob is admitted. Bob takes over 8 tokens." in " ".join(said)

    engine = paged(3)
    submitted(engine, [request("Ada", (1, 2, 3), 6), request("Bob", (4, 5, 6, 7, 8, 9, 1), 4)])
    shots = history(engine)
    preempted = [shot for shot in shots if "Bob is preempted and gives up its blocks." in shot.said]
    assert len(preempted) == 1 and preempted[0].waiting == ("Bob",)
    assert any(cell and cell.left and cell.names == ("Bob",) for cell in preempted[0].cells)

    engine = paged(3, shared=True)
    submitted(engine, [request("Ada", (1, 2, 3, 4, 5), 2), request("Bob", tuple(range(10, 20)), 2)])
    assert "1 block can no longer be found" in " ".join(shot.said for shot in history(engine))


def test_a_shared_cell_names_all_and_a_kept_one_nobody() -> None:
    engine = paged(10, shared=True)
    first = submitted(engine, [request("Ada", (*COMMON, 4), 1)])
    *_, kept = iter_steps(engine, first)
    assert [cell for cell in kept.cells if cell and not cell.left] == [Cell((), position) for position in range(8)]
    later = submitted(engine, [request("Bob", (*COMMON, 5), 3), request("Cem", (*COMMON, 6, 6), 3)])
    shot = take_step(engine, later, kept)
    assert [cell for cell in shot.cells if cell and len(cell.names) > 1] == [
        Cell(("Bob", "Cem"), position) for position in range(8)
    ]
    tables = shot.tables()
    assert tables["Bob"][:2] == tables["Cem"][:2] and tables["Bob"][2] != tables["Cem"][2]


def test_without_a_snapshot_before_nothing_is_known_to_be_left_over() -> None:
    engine = contiguous()
    sequences = submitted(engine, [request("Ada", (1, 2, 3), 1)])
    *_, last = iter_steps(engine, sequences)
    assert [cell for cell in last.cells if cell] == [Cell(("Ada",), position, left=True) for position in range(3)]
    assert snapshot(engine, "Later.") == Snapshot(16, 48, (None,) * 48, said="Later.")


@pytest.mark.parametrize("names", [("", "Bob"), ("Bob", "Bob")])
def test_sequences_that_cannot_be_told_apart_are_refused(names: tuple[str, str]) -> None:
    engine = contiguous()
    submitted(engine, [request(name, (1, 2), 2) for name in names])
    for call in (history, snapshot):
        with pytest.raises(ValueError, match=r"called \['.*Bob'\]: give each request a name of its own"):
            call(engine)


def test_a_slot_with_two_owners_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = contiguous()
    submitted(engine)
    engine.step()
    monkeypatch.setattr(engine.cache, "places", lambda row: {row: 5})
    with pytest.raises(ValueError, match="slot 5 is position 0 of Ada and position 1 of Bob"):
        snapshot(engine)


CELL = Cell(("Ada",), 0)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Cell(("Ada",), -1), "position -1"),
        (lambda: Cell(("Ada", "Ada"), 2), "names a sequence twice"),
        (lambda: Snapshot(4, 6, (None,) * 6), "6 slots do not lie in lines of 4"),
        (lambda: Snapshot(0, 6, (None,) * 6), "lines of 0"),
        (lambda: Snapshot(2, 4, (None,) * 3), "3 cells for 4 slots"),
        (lambda: Snapshot(2, 2, (CELL, None), written=(1,)), r"slots \[1\] were written"),
        (lambda: Snapshot(2, 2, (CELL, None), written=(2,)), r"slots \[2\] were written"),
        (lambda: Snapshot(2, 2, (CELL, CELL)), "position 0 of Ada lies in slot 1 and in another"),
    ],
)
def test_a_snapshot_of_what_cannot_be_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        call()


def test_left_over_cells_may_repeat_a_position() -> None:
    left = Cell(("Ada",), 0, left=True)
    shot = Snapshot(2, 4, (CELL, left, left, None), waiting=("Bob",))
    assert shot.names == ("Ada", "Bob") and shot.tables() == {"Ada": (0,)} and left.holders == ()
