"""Prefix sharing: a prompt that begins as an earlier one does takes over the blocks that the earlier one filled.

The one idea: keys and values of a token depend on the tokens up to it and on nothing else, so a full block can be
shared by all texts that agree up to its end, and by no others. Agreement is looked up by a chain of digests, the one of
a block made of the one before and of the block's tokens, and then proved by comparing the tokens: a digest may collide.
The chain begins with a salt, so that tenants with different salts never share, and cannot find out what the others ask.

Off unless you make one. It says what it was asked for and what it found; nothing else counts on a hit.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from course_lib.caches.contract import whole
from course_lib.caches.paged import PagedCache

Digest = Callable[[bytes], bytes]


def sha256_digest(data: bytes) -> bytes:
    return sha256(data).digest()


@dataclass(eq=False)
class Entry:
    """A full block that can be found: it holds the keys and values of `tokens` after those of its `parent`."""

    key: bytes
    parent: Entry | None
    salt: str
    tokens: tuple[int, ...]
    block: int
    children: set[Entry] = field(default_factory=set)


@dataclass
class Statistics:
    """What a prefix cache was asked for, and what it saved. Tokens are those of prompts."""

    lookups: int = 0
    hits: int = 0  # lookups that found a block or more
    asked_tokens: int = 0
    reused_tokens: int = 0  # not computed again
    evictions: int = 0  # blocks that can no longer be found, since their memory went to others


class PrefixCache:
    """Finds and shares the full blocks of a paged cache. `digest` maps bytes to bytes; it need not be free of
    collisions for the answers to be right, only for others not to guess them from the time that they take.
    """

    def __init__(self, cache: PagedCache, digest: Digest = sha256_digest) -> None:
        self.cache, self.digest = cache, digest
        self.model: object | None = None  # whose keys and values these are, once an engine has said so
        self.entries: dict[bytes, list[Entry]] = {}  # more than one under a key where digests collide
        self.statistics = Statistics()

    @property
    def reused_bytes(self) -> int:
        """Bytes of keys and values that were shared instead of computed and stored once more."""
        return self.statistics.reused_tokens * self.cache.token_bytes

    def found(self, tokens: Sequence[int], salt: str = "") -> int:
        """How many of `tokens` a row could take over now. A promise about nothing: ask `reuse` for the blocks."""
        return len(self.beginning(tokens, salt)) * self.cache.block_size

    def reuse(self, row: int, tokens: Sequence[int], salt: str = "") -> int:
        """Let an empty row begin with the blocks found for the beginning of `tokens`; return how many tokens it holds.

        Never all of them: the logits that choose the next token come from reading the last one. From here on the
        blocks have one more reference, so nobody can take them away between the match and its use.
        """
        entries = self.beginning(tokens, salt)
        self.cache.adopt(whole(row, "a row"), tuple(entry.block for entry in entries))
        reused = len(entries) * self.cache.block_size
        self.statistics.lookups += 1
        self.statistics.hits += reused > 0
        self.statistics.asked_tokens += len(tokens)
        self.statistics.reused_tokens += reused
        return reused

    def cancel(self, row: int, tokens: Sequence[int]) -> None:
        """A row that took over the beginning of `tokens` cannot run yet: empty it, and do not count the lookup."""
        self.cache.check_row(row)
        reused = self.cache.lengths[row]
        self.cache.release(row)
        self.statistics.lookups -= 1
        self.statistics.hits -= reused > 0
        self.statistics.asked_tokens -= len(tokens)
        self.statistics.reused_tokens -= reused

    def publish(self, row: int, tokens: Sequence[int], salt: str = "") -> None:
        """From now on the full blocks of a row can be found by the tokens that it has read: the first of `tokens`.

        What is found already is not published twice. Raises ValueError if the row has read more than `tokens`.
        """
        self.cache.check_idle()
        self.cache.check_row(row)
        held = self.cache.lengths[row]
        if held > len(tokens):
            raise ValueError(f"row {row} has read {held} tokens, more than the {len(tokens)} that were given")
        parent, key = None, self.root(salt)
        for block, piece in zip(self.cache.tables[row], self.pieces(tokens[:held])):
            key = self.chain(key, piece)
            entry = self.lookup(key, parent, salt, piece)
            if entry is None:
                if block in self.cache.pool.findable:
                    return  # it is found under a parent that is not this one: leave it there
                entry = Entry(key, parent, salt, piece, block)
                self.add(entry)
            parent = entry

    def beginning(self, tokens: Sequence[int], salt: str) -> list[Entry]:
        """The entries found for the beginning of `tokens`, its last token left out."""
        found: list[Entry] = []
        key = self.root(salt)
        for piece in self.pieces(tokens[:-1]):
            key = self.chain(key, piece)
            entry = self.lookup(key, found[-1] if found else None, salt, piece)
            if entry is None:
                break
            found.append(entry)
        return found

    def pieces(self, tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """The tokens of each full block, as plain numbers: a tensor's elements would change with the tensor."""
        size = self.cache.block_size
        plain = [whole(token, "a token") for token in tokens]
        for token in plain:
            if not 0 <= token < 2**63:
                raise ValueError(f"a token must be a number from 0 to 2^63 - 1, not {token}")
        return [tuple(plain[end - size : end]) for end in range(size, len(plain) + 1, size)]

    def root(self, salt: str) -> bytes:
        if not isinstance(salt, str):
            raise ValueError(f"the salt must be a text, not {salt!r}")
        return self.digest(salt.encode())

    def chain(self, before: bytes, piece: tuple[int, ...]) -> bytes:
        return self.digest(before + array("q", piece).tobytes())

    def lookup(self, key: bytes, parent: Entry | None, salt: str, piece: tuple[int, ...]) -> Entry | None:
        """The entry under `key` whose tokens, and those of all blocks before it, are really the ones asked for."""
        for entry in self.entries.get(key, ()):
            if entry.parent is parent and entry.salt == salt and entry.tokens == piece:
                return entry
        return None

    def add(self, entry: Entry) -> None:
        """Let an entry be found, last of all: what can be found, the pool has to know of, an interrupt or not."""
        self.cache.pool.findable[entry.block] = lambda: self.forget(entry)
        if entry.parent is not None:
            entry.parent.children.add(entry)
        self.entries.setdefault(entry.key, []).append(entry)

    def forget(self, entry: Entry) -> None:
        """The pool gives the entry's block to others. What comes after it can no longer be reached, so it goes too."""
        later = [entry]
        for one in later:
            later.extend(one.children)
            one.children = set()
        if entry.parent is not None:
            entry.parent.children.discard(entry)
        for one in later:
            others = [entry for entry in self.entries.get(one.key, ()) if entry is not one]
            self.entries[one.key] = others
            if not others:
                del self.entries[one.key]
            self.statistics.evictions += 1
            self.cache.pool.findable.pop(one.block, None)
        for one in later[1:]:
            self.cache.pool.lose(one.block)
