"""What an exhibit of the bug museum is: an engine in which one part was replaced by one with a wrong line.

The one idea: the part is a small subclass of the real one, short enough to be read whole, and one line of it is wrong.
Put the right line in its place and the engine is healthy: `Exhibit.mended` does that, and tests prove it. Nothing here
says how a bug is found; see `tools.py`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from textwrap import dedent

from course_lib.caches import Cache, ContiguousCache, PagedCache, PrefixCache
from course_lib.caches.pool import BlockPool
from course_lib.model import Transformer
from course_lib.serving import Engine

Build = Callable[[Transformer], Engine]

ROWS, CAPACITY = 4, 96  # slots of a row
BLOCK, BLOCKS = 4, 32  # memory is short: four long texts do not fit
CHUNK = 8  # tokens of a prompt that are read in one pass


@dataclass(frozen=True)
class House:
    """The parts that an engine is made of: `House().open(model)` is a healthy one.

    With `prefix`, or without `capacity`, the cache is a paged one.
    """

    cache: type[Cache] = ContiguousCache
    engine: type[Engine] = Engine
    prefix: type[PrefixCache] | None = None
    pool: type[BlockPool] = BlockPool
    compact: bool = False

    def open(self, model: Transformer) -> Engine:
        """An engine for `model` whose memory holds zeros, as memory fresh from the system mostly does."""
        if issubclass(self.cache, ContiguousCache):
            cache: Cache = self.cache(model.config, ROWS, CAPACITY, model.dtype, model.device)
        else:
            assert issubclass(self.cache, PagedCache)
            cache = self.cache(model.config, ROWS, BLOCKS, BLOCK, model.dtype, model.device)
            cache.pool = self.pool(BLOCKS)
        cache.fill_free(0.0)
        prefix = self.prefix(cache) if self.prefix and isinstance(cache, PagedCache) else None
        return self.engine(model, cache, prefix=prefix, chunk=CHUNK, compact=self.compact, keep_logits=True)

    def with_part(self, part: type) -> House:
        """This house with the part that `part` is a kind of replaced by it."""
        if issubclass(part, Cache):
            return replace(self, cache=part)
        if issubclass(part, PrefixCache):
            return replace(self, prefix=part)
        if issubclass(part, BlockPool):
            return replace(self, pool=part)
        assert issubclass(part, Engine), part
        return replace(self, engine=part)


@dataclass(frozen=True)
class Exhibit:
    """A broken engine, and what there is to know about it.

    name: what to call it without giving anything away. title: what somebody who uses the service complains about.
    part: the class with the wrong line; house: the healthy engine that it is put into. cause, wrong (the line), mend
    (the line in its place) and seen_in (where the same mistake was made in public) are the answer. tells: the tool
    that shows the cause best, and what to look at.
    """

    name: str
    title: str
    part: type
    house: House
    cause: str
    wrong: str
    mend: str
    seen_in: str
    tells: str

    def engine(self, model: Transformer) -> Engine:
        """The broken engine, new and empty."""
        return self.house.with_part(self.part).open(model)

    def right(self, model: Transformer) -> Engine:
        """The engine that it would be without the bug."""
        return self.house.open(model)

    def mended(self, model: Transformer) -> Engine:
        """The broken engine with the right line in place of the wrong one."""
        return self.house.with_part(mended_part(self.part, self.wrong, self.mend)).open(model)

    @property
    def source(self) -> str:
        """The class with the wrong line, to be read."""
        return dedent(inspect.getsource(self.part))


def mended_part(part: type, wrong: str, mend: str) -> type:
    """The class `part`, defined once more with the line `mend` in place of the line `wrong`."""
    lines = dedent(inspect.getsource(part)).split("\n")
    places = [number for number, line in enumerate(lines) if line.strip() == wrong]
    if len(places) != 1:
        raise ValueError(f"the line {wrong!r} occurs {len(places)} times in {part.__name__}: it must be there once")
    lines[places[0]] = lines[places[0]].replace(wrong, mend)
    source = "\n".join(["from __future__ import annotations", *lines])
    names = dict(vars(sys.modules[part.__module__]))
    exec(compile(source, f"{part.__name__}, mended", "exec"), names)
    mended: type = names[part.__name__]
    return mended
