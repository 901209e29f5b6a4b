"""The library with one bug in it: real mistakes of real courses, each made in the library's own source.

The one idea: a mutant is the library itself, every module of it loaded once more from its files with a few lines
replaced, and each replaced text must occur exactly once. So nothing but the bug differs, and a change of the library
that would make a bug meaningless is noticed. What each of them is caught by is in test_mutants.py.
"""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import course_lib

Changes = Mapping[str, tuple[tuple[str, str], ...]]  # module -> (text, text in its place)


@dataclass(frozen=True)
class Engine:
    """The modules that turn tokens into logits and text, of the library or of a mutant of it."""

    model: ModuleType
    caches: ModuleType
    generation: ModuleType
    serving: ModuleType


class ChangedSource(SourceFileLoader):
    """Loads a module from its file with some text replaced, and leaves no compiled file behind."""

    def __init__(self, fullname: str, path: str, changes: tuple[tuple[str, str], ...]) -> None:
        super().__init__(fullname, path)
        self.changes = changes

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        for old, new in self.changes:
            assert source.count(old) == 1, f"{source.count(old)} times in {self.path}: {old!r}"
            source = source.replace(old, new)
        return compile(source, f"{self.path} (mutant)", "exec", dont_inherit=True)


@dataclass
class ChangedLibrary(MetaPathFinder):
    changes: Changes
    changed: set[str] = field(default_factory=set)

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname not in self.changes:
            return None
        self.changed.add(fullname)
        spec = PathFinder.find_spec(fullname, path)
        spec.loader = ChangedSource(fullname, spec.origin, self.changes[fullname])
        return spec


@contextmanager
def library_set_aside() -> Iterator[None]:
    """Within, the library is imported anew; after, what was imported before is back."""

    def of_the_library() -> list[str]:
        return [name for name in sys.modules if name.split(".")[0] == course_lib.__name__]

    before = {name: sys.modules.pop(name) for name in of_the_library()}
    try:
        yield
    finally:
        for name in of_the_library():
            del sys.modules[name]
        sys.modules.update(before)


def load_engine(changes: Changes) -> Engine:
    """The engine with these changes made; the library that others have imported is not touched."""
    changes = {f"course_lib.{module}": replaced for module, replaced in changes.items()}
    finder = ChangedLibrary(changes)
    with library_set_aside():
        sys.meta_path.insert(0, finder)
        try:
            names = ("model", "caches", "generation", "serving")
            parts = [importlib.import_module(f"course_lib.{name}") for name in names]
        finally:
            sys.meta_path.remove(finder)
    assert finder.changed == set(changes), f"never imported: {set(changes) - finder.changed}"
    return Engine(*parts)


@dataclass(frozen=True)
class Mutant:
    """One bug. `row` is its number in the list of mistakes found in courses, None for one of our own; `seen_by` names
    the check that is meant to see it.
    """

    row: int | None
    bug: str
    seen_by: str
    changes: Changes

    @property
    def title(self) -> str:
        return f"{'our own' if self.row is None else f'row {self.row:2}'}: {self.bug}"

    def __str__(self) -> str:
        return self.bug.replace(" ", "-")


CONTIGUOUS, CONTRACT = "caches.contiguous", "caches.contract"


def at(module: str, *replaced: tuple[str, str]) -> Changes:
    return {module: replaced}


FOUND_IN_COURSES = (
    Mutant(
        1,
        "the offset is counted twice after prefill",
        "cuts",
        at(
            CONTRACT,
            (
                "length + added.get(row, 0) for row, length",
                "length + added.get(row, 0) * (2 if added.get(row, 0) > 1 else 1) for row, length",
            ),
        ),
    ),
    Mutant(
        2,
        "read before write: the new token misses itself",
        "cuts",
        at(
            CONTIGUOUS,
            (
                "keys, values = self.keys[layer], self.values[layer]\n",
                "keys, values = self.keys[layer], self.values[layer]\n        before = keys.clone(), values.clone()\n",
            ),
            ("        return keys, values\n", "        return before\n"),
        ),
    ),
    Mutant(
        3,
        "the first token is never written: all attend to zeros",
        "cuts",
        at(
            CONTIGUOUS,
            (
                "        return keys, values\n",
                "        keys[:, :, 0], values[:, :, 0] = 0, 0\n        return keys, values\n",
            ),
        ),
    ),
    Mutant(
        4,
        "late binding: every layer is the last one",
        "oracle",
        at(
            "model",
            (
                "            for index, layer in enumerate(self.layers):\n"
                "                x = layer(x, index, cos, sin, mask, step)",
                "            passes = [lambda x, i: layer(x, i, cos, sin, mask, step) for layer in self.layers]\n"
                "            for index, run in enumerate(passes):\n"
                "                x = run(x, index)",
            ),
        ),
    ),
    Mutant(
        5,
        "the causal mask is aligned top-left",
        "cuts",
        at(
            CONTIGUOUS,
            ("visible(self.positions, torch.arange", "visible(self.positions - self.start, torch.arange"),
        ),
    ),
    Mutant(
        6,
        "a mask only while the cache is empty",
        "cuts",
        at(CONTIGUOUS, ("None if count == 1 else visible", "None if count == 1 or self.start else visible")),
    ),
    Mutant(
        7,
        "right padding: logits are read at the padding",
        "ragged prompts",
        at("model", ("last = torch.tensor(counts, device=x.device) - 1", "last = torch.tensor([T - 1] * B)")),
    ),
    Mutant(
        8,
        "left padding: prompt positions start at the padding",
        "ragged prompts",
        at(
            "model",
            ("step.positions, self.dtype", "step.positions + (T - torch.tensor(counts)[:, None]), self.dtype"),
        ),
    ),
    Mutant(
        9,
        "padding is masked in prefill, forgotten in decode",
        "ragged prompts",
        at(CONTRACT, ("if min(starts) == slots - 1:", "if max(counts) == 1:")),
    ),
    Mutant(
        10,
        "while decoding all rows have row 0's position",
        "ragged prompts",
        at(
            "model",
            ("step.positions, self.dtype", "step.positions if T > 1 else step.positions[:1].expand(B, 1), self.dtype"),
        ),
    ),
    Mutant(
        12,
        "lengths are changed in place while others hold them",
        "lengths are values",
        at(
            CONTRACT,
            ("self.lengths: tuple[int, ...] = (0,) * rows", "self.lengths = [0] * rows"),
            (
                "self.lengths = lengths  #",
                "self.lengths[:] = lengths  #",
            ),
            (
                "self.lengths = (*self.lengths[:row], length, *self.lengths[row + 1 :])",
                "self.lengths[row] = length",
            ),
        ),
    ),
    Mutant(
        13,
        "the window is off by one at its edge",
        "window",
        at(CONTRACT, ("(key > query - window)", "(key >= query - window)")),
    ),
    Mutant(
        14,
        "the RoPE bound checks the chunk, and clamps",
        "last position",
        at(CONTRACT, ("end = self.next_position(row) + count", "end = count"))
        | at(
            "model",
            ("step.positions, self.dtype", "step.positions.clamp(max=self.config.max_positions - 1), self.dtype"),
        ),
    ),
    Mutant(
        15,
        "a prompt of whole chunks gets one more pass, of nothing",
        "ragged prompts",
        at(
            "generation",
            ("range(0, longest, chunk or longest)", "range(0, longest + (chunk is not None), chunk or longest)"),
        ),
    ),
    Mutant(
        17,
        "attends to all that is reserved, written or not",
        "rows of equal length",
        at(
            CONTIGUOUS,
            (
                "narrow(3, 0, ends[0])",
                "narrow(3, 0, ends[0] if counts[0] > 1 else self.capacity)",
            ),
        ),
    ),
    Mutant(
        18,
        "the cache is not reset between two texts",
        "reuse",
        at(CONTRACT, ("        self.truncate(row, 0)", "        self.check_row(row)"))
        | at("generation", ("if cache.lengths[0]:", "if False:")),
    ),
    Mutant(
        21,
        "top-k is computed and dropped",
        "sampling",
        at("generation", ("logits = logits.masked_fill(logits < least", "logits.masked_fill(logits < least")),
    ),
)
