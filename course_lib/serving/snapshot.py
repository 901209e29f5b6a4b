"""What lies in a cache, slot by slot, at one moment: pure data, made from an engine for whoever wants to draw it.

The one idea: a slot of memory and a position of a text are two numbers, and only the cache knows which belongs to
which. A snapshot writes that map down for all sequences at once, and says in words what the step did. Nothing here
draws, and nothing here reads a key or a value.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Many
from dataclasses import dataclass, replace

from course_lib.caches import Cache, ContiguousCache, PagedCache, PrefixCache
from course_lib.serving.engine import Engine
from course_lib.serving.request import Sequence


@dataclass(frozen=True)
class Cell:
    """One slot with the keys and values of a token: which position of which sequences.

    Several names share it. With no name nobody holds it, but it is kept to be found again. With `left` it is left
    over: the names are those that held it last, if that is known, and nobody may read it.
    """

    names: tuple[str, ...]
    position: int
    left: bool = False

    def __post_init__(self) -> None:
        if self.position < 0:
            raise ValueError(f"a cell of {self.names} holds position {self.position}: positions start at 0")
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"a cell of position {self.position} names a sequence twice: {self.names}")

    @property
    def holders(self) -> tuple[str, ...]:
        """The sequences that may read it."""
        return () if self.left else self.names


@dataclass(frozen=True)
class Snapshot:
    """All slots of a cache at one moment: slot s lies in line s // line, and cells[s] is what it holds, if anything.

    `kind` says what a line is: a row or a block. `waiting` are the sequences in the queue, the next one first.
    `written` are the slots that the last step wrote, `said` is what happened in it. ValueError for cells that cannot
    be: a sequence has each of its positions in one slot.
    """

    line: int
    slots: int
    cells: tuple[Cell | None, ...]
    waiting: tuple[str, ...] = ()
    said: str = ""
    kind: str = "row"
    written: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.line < 1 or self.slots < 1 or self.slots % self.line:
            raise ValueError(f"{self.slots} slots do not lie in lines of {self.line}: every line is a whole one")
        if len(self.cells) != self.slots:
            raise ValueError(f"{len(self.cells)} cells for {self.slots} slots: each slot has one, or None")
        if empty := [slot for slot in self.written if not 0 <= slot < self.slots or self.cells[slot] is None]:
            raise ValueError(f"slots {empty} were written, but nothing lies in them")
        seen: set[tuple[str, int]] = set()
        for name, position, slot in self.held():
            if (name, position) in seen:
                raise ValueError(f"position {position} of {name} lies in slot {slot} and in another one")
            seen.add((name, position))

    def held(self) -> list[tuple[str, int, int]]:
        """(name, position, slot) of all that sequences hold, in the order of the slots."""
        return [(n, cell.position, slot) for slot, cell in enumerate(self.cells) if cell for n in cell.holders]

    @property
    def names(self) -> tuple[str, ...]:
        """Everybody who comes up, the waiting last."""
        return tuple(dict.fromkeys([*(name for cell in self.cells if cell for name in cell.names), *self.waiting]))

    def tables(self) -> dict[str, tuple[int, ...]]:
        """The lines in which each sequence lies, in the order of its text. With blocks these are the block tables."""
        tables: dict[str, dict[int, None]] = {}
        for name, _, slot in sorted(self.held(), key=lambda held: held[1]):
            tables.setdefault(name, {})[slot // self.line] = None
        return {name: tuple(table) for name, table in tables.items()}


def snapshot(engine: Engine, said: str = "", before: Snapshot | None = None) -> Snapshot:
    """What lies in the engine's cache now. What lay there `before`, and is nobody's now, shows as left over.

    Raises ValueError for sequences without a name or with the same one, and for a slot that two sequences take for
    different positions.
    """
    cache = engine.cache
    check_names([*engine.running, *engine.waiting])
    cells: list[Cell | None] = [left_over(cell) for cell in before.cells] if before else [None] * cache.slots
    for slot in range(cache.slots):
        if holds_zeros(cache, slot):
            cells[slot] = None
    for slot, position in findable(cache, engine.prefix).items():
        cells[slot] = Cell((), position)
    held: dict[int, Cell] = {}
    for sequence in engine.running:
        for position, slot in cache.places(sequence.row or 0).items():
            others = held.get(slot, Cell((), position))
            if others.position != position:
                raise ValueError(
                    f"slot {slot} is position {others.position} of {', '.join(others.names)} and position {position} "
                    f"of {sequence.name}: it can be right for one of them only"
                )
            held[slot] = Cell((*others.names, sequence.name), position)
    for slot, cell in held.items():
        cells[slot] = cell
    waiting = tuple(sequence.name for sequence in engine.waiting)
    kind = "block" if isinstance(cache, PagedCache) else "row"
    return Snapshot(cache.line, cache.slots, tuple(cells), waiting, said, kind)


def left_over(cell: Cell | None) -> Cell | None:
    return cell and replace(cell, left=True)


def holds_zeros(cache: Cache, slot: int) -> bool:
    """Whether the cache has cleared a slot for which no row has a token yet."""
    line, place = divmod(slot, cache.line)
    if isinstance(cache, PagedCache):
        return line in cache.clean
    return isinstance(cache, ContiguousCache) and place < cache.cleared[line]


def findable(cache: Cache, prefix: PrefixCache | None) -> dict[int, int]:
    """Slot -> position of all that a prefix cache can find, whether anybody holds it or not."""
    if prefix is None or not isinstance(cache, PagedCache):
        return {}
    positions: dict[int, int] = {}
    for entry in (entry for entries in prefix.entries.values() for entry in entries):
        first, parent = 0, entry.parent
        while parent is not None:
            first, parent = first + cache.block_size, parent.parent
        positions |= {entry.block * cache.block_size + place: first + place for place in range(cache.block_size)}
    return positions


def check_names(sequences: Many[Sequence]) -> None:
    names = [sequence.name for sequence in sequences]
    if "" in names or len(set(names)) < len(names):
        raise ValueError(f"the sequences are called {names}: give each request a name of its own")


def history(engine: Engine) -> list[Snapshot]:
    """Run an engine to its end: one snapshot of the beginning, and one after each step."""
    sequences = [*engine.running, *engine.waiting]
    check_names(sequences)
    shots = [snapshot(engine, "Nothing has been read yet." if not any(engine.cache.lengths) else "")]
    while engine.waiting or engine.running:
        shots.append(take_step(engine, sequences, shots[-1]))
    return shots


def take_step(engine: Engine, sequences: Many[Sequence], before: Snapshot) -> Snapshot:
    """One step of an engine, and what lies in its cache after it."""
    latest = before
    written: dict[tuple[str, int], int] = {}  # name and position -> slot, of all that passes read
    read: list[tuple[Sequence, int]] = []

    def observe(group: list[Sequence], counts: list[int]) -> None:
        nonlocal latest
        latest = snapshot(engine, before=latest)  # whoever finishes in this step is in here, and then no more
        for sequence, count in zip(group, counts, strict=True):
            read.append((sequence, count))
            places = engine.cache.places(sequence.row or 0)
            end = engine.cache.lengths[sequence.row or 0]
            new = (position for position in range(end - count, end) if position in places)  # some may be forgotten
            written.update({(sequence.name, position): places[position] for position in new})

    was = {sequence.name: (sequence.row, sequence.preempted) for sequence in sequences}
    evictions = engine.prefix.statistics.evictions if engine.prefix else 0
    engine.observers.append(observe)
    try:
        engine.step()
    finally:
        engine.observers.remove(observe)
    after = snapshot(engine, before=latest)
    now = {(name, position): slot for name, position, slot in after.held()}  # rows may have moved since
    slots = {now.get(place, slot) for place, slot in written.items()}
    events = tell(sequences, was, read, after.kind)
    if engine.prefix and (lost := engine.prefix.statistics.evictions - evictions):
        events.append(f"{lost} {'block' if lost == 1 else 'blocks'} can no longer be found")
    said = ". ".join(events or ["Nobody reads"]) + "."
    return replace(after, said=said, written=tuple(sorted(slot for slot in slots if after.cells[slot] is not None)))


def tell(
    sequences: Many[Sequence],
    was: dict[str, tuple[int | None, int]],
    read: Many[tuple[Sequence, int]],
    kind: str,
) -> list[str]:
    """Sentences about a step: who came, was put off, read, decoded, finished, moved.

    `was` has row and preemptions of each sequence before the step, `read` who read how many tokens in its passes.
    """
    readers = {sequence.name for sequence, _ in read}
    preempted = [s for s in sequences if s.preempted > was[s.name][1]]
    came = [s for s in sequences if was[s.name][0] is None and (s.row is not None or s.name in readers)]
    finished = [s for s in sequences if s.finished and s.name in readers]
    moved = [s for s in sequences if s.row is not None and was[s.name][0] not in (None, s.row)]
    decoding = [s for s, count in read if count == 1 and len(s.tokens) > 1]  # it read a token of its own
    reading = [(s, count) for s, count in read if s not in decoding]
    said = []
    if came:
        said.append(f"{listed(s.name for s in came)} {'is' if len(came) == 1 else 'are'} admitted")
    said += [f"{s.name} takes over {tokens(s.reused)}" for s in came if s.reused]
    if preempted:
        said.append(f"{listed(s.name for s in preempted)} {gives_up(preempted, kind, 'is preempted', 'are preempted')}")
    if reading:
        (first, count), *others = reading
        said.append(", ".join([f"{first.name} reads {tokens(count)}", *(f"{s.name} {count}" for s, count in others)]))
    if decoding:
        verb = "decodes one token" if len(decoding) == 1 else "decode one token each"
        said.append(f"{listed(s.name for s in decoding)} {verb}")
    if finished:
        said.append(f"{listed(s.name for s in finished)} {gives_up(finished, kind, 'is finished', 'are finished')}")
    return said + [f"{s.name} moves to row {s.row}" for s in moved]


def gives_up(who: Many[Sequence], kind: str, one: str, many: str) -> str:
    if len(who) == 1:
        return f"{one} and gives up its {kind if kind == 'row' else 'blocks'}"
    return f"{many} and give up their {kind}s"


def tokens(count: int) -> str:
    return f"{count} token" if count == 1 else f"{count} tokens"


def listed(names: Iterable[str]) -> str:
    """Names as a sentence has them: Ada, Bob and Cem."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
