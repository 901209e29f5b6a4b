"""Exhibits in which rows share memory that they should not share: blocks, references and prefixes.

Each class is a part of a paged cache that does one thing in its own way. Do not read on if you want to find out by
yourself. `Forks` alone is healthy: it shares more than the library does, and relies on copy-on-write.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course_lib.caches import PagedCache, PrefixCache
from course_lib.caches.pool import BlockPool
from course_lib.caches.prefix import Entry


class NotListed(PrefixCache):
    """What is found is compared with the tokens asked for: an entry whose block is given away can stay."""

    def forget(self, entry: Entry) -> None:
        self.cache.pool.findable.pop(entry.block, None)

    def lookup(self, key: bytes, parent: Entry | None, salt: str, piece: tuple[int, ...]) -> Entry | None:
        entry = super().lookup(key, parent, salt, piece)
        return None if entry is None or entry.block in self.cache.pool.blank else entry


class Held(BlockPool):
    """A block is held or it is not: nothing else is asked about it."""

    def share(self, block: int) -> None:
        self.kept.pop(block, None)
        self.references[block] = 1

    def give_back(self, block: int) -> None:
        if self.references[block]:
            super().give_back(block)


class Forks(PrefixCache):
    """Shares all that a running row has read of the same text, the last block too, even if it is not full."""

    def __init__(self, *parts: Any, **options: Any) -> None:
        super().__init__(*parts, **options)
        self.texts: dict[int, tuple[str, Sequence[int]]] = {}  # what each row was admitted with

    def reuse(self, row: int, tokens: Sequence[int], salt: str = "") -> int:
        self.texts[row] = (salt, tuple(tokens))
        common = {other: self.common(row, other) for other in self.texts if other != row}
        source = max(common, key=lambda other: common[other], default=row)
        if common.get(source, 0) <= self.found(tokens, salt):
            return super().reuse(row, tokens, salt)
        self.cache.copy_row(source, row)
        self.cache.truncate(row, common[source])
        return common[source]

    def common(self, row: int, other: int) -> int:
        """How many tokens both rows begin with, of those that `other` has read; the last of `row` left out."""
        (salt, tokens), (its_salt, its_tokens) = self.texts[row], self.texts[other]
        most = min(self.cache.lengths[other], len(its_tokens), len(tokens) - 1) if salt == its_salt else 0
        return next((i for i in range(most) if tokens[i] != its_tokens[i]), most)


class Counted(PagedCache):
    """A block has a reference from whoever filled it and one from the row that asks: more make it a shared one."""

    def must_copy(self, row: int) -> bool:
        partly_filled = self.lengths[row] % self.block_size > 0
        own = 2
        return partly_filled and self.pool.references[self.tables[row][-1]] > own


class WholeText(PrefixCache):
    """Lets every full block of a text be found."""

    def publish(self, row: int, tokens: Sequence[int], salt: str = "") -> None:
        full = tokens
        parent, key = None, self.root(salt)
        for block, piece in zip(self.cache.tables[row], self.pieces(full)):
            key = self.chain(key, piece)
            entry = self.lookup(key, parent, salt, piece)
            if entry is None:
                if block in self.cache.pool.findable:
                    return
                entry = Entry(key, parent, salt, piece, block)
                self.add(entry)
            parent = entry


class Tenants(PrefixCache):
    """Shares prefixes within a tenant. The salt is `tenant/user`."""

    def tenant(self, salt: str) -> str:
        return salt.rpartition("/")[2]

    def reuse(self, row: int, tokens: Sequence[int], salt: str = "") -> int:
        return super().reuse(row, tokens, self.tenant(salt))

    def publish(self, row: int, tokens: Sequence[int], salt: str = "") -> None:
        super().publish(row, tokens, self.tenant(salt))
