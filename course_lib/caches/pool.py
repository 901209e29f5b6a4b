"""The blocks of a paged cache, and who holds them.

The one idea: a block is free when no row refers to it, and only then. Some free blocks are worth keeping as long as
there are others, since a later prompt may find what they hold (see `prefix.py`); the one not needed for longest goes
first. Numbers only: nothing here knows what a block holds. Ctrl-C arrives where a call ends, so what belongs together
stands together with no call in between: a block is held or free after it, and never both. Whether it is held by those
whose tables name it, only their cache can say: `recount`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from course_lib.caches.contract import whole


class BlockPool:
    """`blocks` blocks, numbered from 0, all free at first.

    references[b]: how many rows have block b in their tables.
    blank: free blocks that hold nothing of use. kept: free ones that can be found again, the oldest first.
    findable[b]: what to call when the content of block b goes, for each block that can be found again, free or not.
    """

    def __init__(self, blocks: int) -> None:
        blocks = whole(blocks, "the number of blocks")
        if blocks < 1:
            raise ValueError(f"a pool needs at least one block, not {blocks}")
        self.references = [0] * blocks
        self.blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(blocks))
        self.kept: OrderedDict[int, None] = OrderedDict()
        self.findable: dict[int, Callable[[], None]] = {}

    @property
    def free(self) -> int:
        """How many blocks can be taken."""
        return len(self.blank) + len(self.kept)

    def take(self, after: int | None = None) -> int:
        """A free block, with one reference: the one after block `after` if that is blank, so that a text lies in one
        piece; otherwise the blank one that is free for longest; otherwise the oldest kept one, which can then no
        longer be found. Raises IndexError if none is free: ask `free` first.
        """
        if after is not None and after + 1 in self.blank:
            block = after + 1
        elif self.blank:
            block = next(iter(self.blank))
        elif self.kept:
            block = next(iter(self.kept))
            self.lose(block)
        else:
            raise IndexError(f"all {len(self.references)} blocks are held: ask `free` before you take one")
        self.references[block] = 1
        del self.blank[block]
        return block

    def share(self, block: int) -> None:
        """One more row refers to a block that others hold, or that was kept."""
        self.check_held(block)
        self.references[block] += 1
        if block in self.kept:
            del self.kept[block]

    def check_held(self, block: int) -> None:
        """Raise ValueError unless a block is held by a row, or kept."""
        if not 0 <= block < len(self.references):
            raise ValueError(f"there is no block {block}: this pool has blocks 0 to {len(self.references) - 1}")
        if not self.references[block] and block not in self.kept:
            raise ValueError(f"block {block} is free and holds nothing: only a held or kept block can be shared")

    def give_back(self, block: int) -> None:
        """One row fewer refers to a block; after the last it is free."""
        if not self.references[block]:
            raise ValueError(f"block {block} is free already: it was given back twice")
        self.references[block] -= 1
        if not self.references[block]:
            (self.kept if block in self.findable else self.blank)[block] = None

    def lose(self, block: int) -> None:
        """What a block holds will be overwritten, or is no longer wanted: nobody may find it from now on."""
        if block in self.findable:
            self.findable[block]()  # first of all: an interrupt must not leave a way to what is overwritten
            self.findable.pop(block, None)
        if block in self.kept:
            del self.kept[block]
            self.blank[block] = None

    def recount(self, held: Iterable[int]) -> None:
        """From now on exactly these blocks are held, each by as many rows as it is named times."""
        references = [0] * len(self.references)
        for block in held:
            references[block] += 1
        in_order = dict.fromkeys((*self.kept, *self.blank, *range(len(references))))
        free = [block for block in in_order if not references[block]]
        self.references = references
        self.kept = OrderedDict.fromkeys(block for block in free if block in self.findable)
        self.blank = OrderedDict.fromkeys(block for block in free if block not in self.findable)
