"""What pool, tables and prefix cache should do, in lists and dictionaries, for the state machine that drives both.

The one idea: the model speaks of *pages*, numbers that stand for a content and never come back, where the cache speaks
of blocks, which are used again and again. It knows nothing of where a page lies.
"""

from collections.abc import Sequence
from itertools import count
from math import ceil


class Pages:
    """What rows hold and what can be found, in a pool of `blocks` blocks of `size` tokens."""

    def __init__(self, rows: int, blocks: int, size: int) -> None:
        self.size, self.blocks, self.new = size, blocks, count()
        self.texts: list[list[int]] = [[] for _ in range(rows)]
        self.tables: list[list[int]] = [[] for _ in range(rows)]
        self.found: dict[tuple[str, tuple[int, ...]], int] = {}  # salt and text up to the page's end -> page
        self.kept: list[int] = []  # pages that nobody holds and that can be found, the oldest first
        self.evictions = 0

    def holders(self, page: int) -> int:
        return sum(table.count(page) for table in self.tables)

    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.blocks - len({page for table in self.tables for page in table})

    def can_be_found(self, page: int) -> bool:
        return page in self.found.values()

    def give_back(self, pages: Sequence[int]) -> None:
        """Some row has just let go of these."""
        self.kept += [page for page in pages if not self.holders(page) and self.can_be_found(page)]

    def lose(self, page: int) -> None:
        """A page can no longer be found, nor can any whose text goes on after its own."""
        for salt, text in [key for key, found in self.found.items() if found == page]:
            for key in [key for key in self.found if key[0] == salt and key[1][: len(text)] == text]:
                gone = self.found.pop(key)
                self.evictions += 1
                if gone in self.kept:
                    self.kept.remove(gone)

    def must_copy(self, row: int) -> bool:
        return len(self.texts[row]) % self.size > 0 and self.holders(self.tables[row][-1]) > 1

    def needed(self, row: int, new: int) -> int:
        """Free blocks that a row needs for so many new tokens."""
        if not new:
            return 0
        return ceil((len(self.texts[row]) + new) / self.size) - len(self.tables[row]) + self.must_copy(row)

    def fits(self, pieces: dict[int, list[int]]) -> bool:
        return sum(self.needed(row, len(piece)) for row, piece in pieces.items()) <= self.free()

    def open(self, pieces: dict[int, list[int]]) -> dict[int, list[int]]:
        """The tables that rows would have after a step; what must give way for it can no longer be found."""
        after, taken = {}, 0
        for row, piece in pieces.items():
            table, copied = list(self.tables[row]), self.must_copy(row)
            if piece and copied:
                table.pop()
            elif piece and len(self.texts[row]) % self.size:
                self.lose(table[-1])  # it gets another content
            for _ in range(self.needed(row, len(piece))):
                if taken + len(self.kept) == self.free():  # no block is blank
                    self.lose(self.kept[0])
                taken += 1
                table.append(next(self.new))
            after[row] = table
        return after

    def close(self, pieces: dict[int, list[int]], after: dict[int, list[int]]) -> None:
        for row, piece in pieces.items():
            self.texts[row] += piece
        before = list(self.tables)
        self.tables = [after.get(row, table) for row, table in enumerate(before)]
        for row, table in after.items():
            self.give_back([page for page in before[row] if page not in table and page not in self.kept])

    def cut(self, row: int, kept: int) -> None:
        pages = ceil(kept / self.size)
        gone = self.tables[row][pages:]
        self.texts[row], self.tables[row] = self.texts[row][:kept], self.tables[row][:pages]
        self.give_back(gone[::-1])

    def publish(self, row: int, salt: str) -> None:
        for place, page in enumerate(self.tables[row]):
            text = tuple(self.texts[row][: (place + 1) * self.size])
            if len(text) < (place + 1) * self.size or ((salt, text) not in self.found and self.can_be_found(page)):
                return
            self.found.setdefault((salt, text), page)

    def beginning(self, text: Sequence[int], salt: str) -> list[int]:
        """The pages found for a text, its last token left out."""
        pages: list[int] = []
        while (end := (len(pages) + 1) * self.size) < len(text) and (salt, tuple(text[:end])) in self.found:
            pages.append(self.found[salt, tuple(text[:end])])
        return pages
