"""Solutions of ex06.prefix: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex06_prefix import (
    BEFORE,
    CASES,
    CHAIN,
    DAY,
    ENDS,
    KEPT,
    LISTS,
    MIDDLE,
    SALT,
    SAME,
    TOKENS,
    TWICE,
    WHOSE,
)

ALL = frozenset(CASES)
TRUSTED = frozenset({TOKENS, BEFORE, WHOSE, KEPT, DAY})  # the cases that a digest decides if nothing else is compared

PLAIN = """
    class Prefixes:
        def __init__(self, block_size, digest):
            self.size, self.digest = block_size, digest
            self.entries = {}

        def publish(self, tokens, table, salt):
            key, before = salt, None
            ends = range(self.size, len(tokens) + 1, self.size)
            for end, block in zip(ends, table):
                piece = tuple(tokens[end - self.size : end])
                key = self.digest(key, piece)
                known = self.lookup(key, salt, before, piece)
                if known is None:
                    self.entries.setdefault(key, []).append((salt, before, piece, block))
                before = block if known is None else known

        def find(self, tokens, salt):
            key, found = salt, []
            for end in range(self.size, len(tokens), self.size):
                piece = tuple(tokens[end - self.size : end])
                key = self.digest(key, piece)
                block = self.lookup(key, salt, found[-1] if found else None, piece)
                if block is None:
                    break
                found.append(block)
            return found

        def lookup(self, key, salt, before, piece):
            for *what, block in self.entries.get(key, ()):
                if what == [salt, before, piece]:
                    return block
            return None
    """

RIGHT = {
    "the block before, and the tokens of the block": PLAIN,
    "everything up to the block's end under its digest, the newest first": """
        class Prefixes:
            def __init__(self, block_size, digest):
                self.block_size, self.digest, self.known = block_size, digest, []

            def keys(self, tokens, salt):
                before = salt
                for i in range(len(tokens) // self.block_size):
                    before = self.digest(before, tokens[i * self.block_size : (i + 1) * self.block_size])
                    yield before, (salt, *tokens[: (i + 1) * self.block_size])

            def publish(self, tokens, table, salt):
                self.known = [(*key, block) for key, block in zip(self.keys(tokens, salt), table)] + self.known

            def find(self, tokens, salt):
                found = []
                for key in self.keys(tokens[:-1], salt):
                    blocks = [block for *known, block in self.known if known == [*key]]
                    if not blocks:
                        return found
                    found += blocks[:1]
                return found
        """,
    "a tree whose nodes are found by digest": """
        class Node:
            def __init__(self, piece=None, block=None):
                self.piece, self.block, self.children = piece, block, {}

            def child(self, key, piece):
                return next((node for node in self.children.get(key, []) if node.piece == piece), None)

        class Prefixes:
            def __init__(self, block_size, digest):
                self.n, self.digest, self.roots = block_size, digest, {}

            def walk(self, tokens, salt, table=None):
                node, key, last = self.roots.setdefault(salt, Node()), salt, len(tokens) - (table is None)
                for i in range(last // self.n):
                    piece = [*tokens[self.n * i : self.n * i + self.n]]
                    key = self.digest(key, piece)
                    after = node.child(key, piece)
                    if after is None:
                        if table is None:
                            return
                        after = Node(piece, table[i])
                        node.children.setdefault(key, []).append(after)
                    node = after
                    yield node.block

            def publish(self, tokens, table, salt):
                list(self.walk(tokens, salt, table))

            def find(self, tokens, salt):
                return list(self.walk(tokens, salt))
        """,
    "all digests of a text first, whatever is found": """
        class Prefixes:
            def __init__(self, block_size, digest):
                self.size, self.digest, self.known = block_size, digest, {}

            def keys(self, tokens, salt):
                keys = [salt]
                for end in range(self.size, len(tokens) + 1, self.size):
                    keys.append(self.digest(keys[-1], tokens[end - self.size : end]))
                return list(zip(keys[1:], range(self.size, len(tokens) + 1, self.size)))

            def publish(self, tokens, table, salt):
                for (key, end), block in zip(self.keys(tokens, salt), table):
                    self.known.setdefault(key, {}).setdefault((salt, tuple(tokens[:end])), block)

            def find(self, tokens, salt):
                keys = self.keys(tokens, salt)
                found = [self.known.get(key, {}).get((salt, tuple(tokens[:end]))) for key, end in keys]
                found = [*found[: (len(tokens) - 1) // self.size], None] if tokens else [None]
                return found[: found.index(None)]
        """,
    "numbers of entries instead of blocks, found in NumPy": """
        import numpy as np
        class Prefixes:
            def __init__(self, block_size, digest):
                self.size, self.digest = block_size, digest
                self.rows = []
            def at(self, key, salt, before, piece):
                for number, (k, s, b, p, _) in enumerate(self.rows):
                    if k == key and s == salt and b == before and np.array_equal(p, piece):
                        return number
                return -1
            def split(self, tokens):
                whole = len(tokens) // self.size * self.size
                return np.array(tokens[:whole], dtype=np.int64).reshape(-1, self.size)
            def publish(self, tokens, table, salt):
                key, before = salt, -1
                for piece, block in zip(self.split(tokens), np.array(table)):
                    key = self.digest(key, piece)
                    number = self.at(key, salt, before, piece)
                    if number < 0:
                        number = len(self.rows)
                        self.rows.append((key, salt, before, piece, block))
                    before = number
            def find(self, tokens, salt):
                key, before, blocks = salt, -1, []
                for piece in self.split(tokens[:-1]):
                    key = self.digest(key, piece)
                    before = self.at(key, salt, before, piece)
                    if before < 0:
                        break
                    blocks.append(self.rows[before][-1])
                return np.array(blocks, dtype=np.int64)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


def twice(old: str, new: str) -> str:
    """The plain right solution with text replaced that stands in both methods."""
    assert PLAIN.count(old) == 2
    return PLAIN.replace(old, new)


AGREES = "if what == [salt, before, piece]:"
DIGEST = "key = self.digest(key, piece)"
ADD = "self.entries.setdefault(key, []).append((salt, before, piece, block))"
NEXT = "before = block if known is None else known"
FIND = "for end in range(self.size, len(tokens), self.size):"
BREAK = "                    break\n"
BEGINNINGS = """
    class Prefixes:
        def __init__(self, block_size, digest):
            self.size, self.known = block_size, {}
        def publish(self, tokens, table, salt):
            for end, block in zip(range(self.size, len(tokens) + 1, self.size), table):
                self.known[salt, tuple(tokens[:end])] = block
        def find(self, tokens, salt):
            found = []
            for end in range(self.size, len(tokens), self.size):
                if (salt, tuple(tokens[:end])) not in self.known:
                    break
                found.append(self.known[salt, tuple(tokens[:end])])
            return found
    """

WRONG = {
    "the digest is trusted": Wrong(changed((AGREES, "if True:")), TRUSTED, ("holds other tokens",)),
    "neither tokens nor salt": Wrong(
        changed(
            (AGREES, "if True:"),
            ("key, before = salt, None", "key, before = '', None"),
            ("key, found = salt, []", "key, found = '', []"),
        ),
        TRUSTED | {SALT},
        ("another tenant",),
    ),
    "only the block's own tokens are compared": Wrong(
        changed((AGREES, "if what[0] == salt and what[2] == piece:")),
        frozenset({BEFORE, DAY}),
        ("after another beginning",),
    ),
    "the salt is in the digest alone": Wrong(
        changed((AGREES, "if what[1:] == [before, piece]:")), frozenset({WHOSE, DAY}), ("another salt",)
    ),
    "one block for each digest": Wrong(
        changed((ADD, "self.entries[key] = [(salt, before, piece, block)]")),
        frozenset({BEFORE, KEPT, DAY}),
        ("keep all of them under it",),
    ),
    "the first block for each digest stays": Wrong(
        changed((ADD, "self.entries.setdefault(key, [(salt, before, piece, block)])")),
        frozenset({BEFORE, KEPT, DAY}),
        ("keep all of them under it",),
    ),
    "only the first under a digest is looked at": Wrong(
        changed(("self.entries.get(key, ()):", "self.entries.get(key, ())[:1]:")),
        frozenset({BEFORE, KEPT, DAY}),
        ("keep all of them under it",),
    ),
    "digests of single blocks, trusted": Wrong(
        twice(DIGEST, "key = self.digest(salt, piece)").replace(AGREES, "if True:"),
        TRUSTED | {MIDDLE},
        ("after another beginning",),
    ),
    "digests of single blocks, their tokens compared": Wrong(
        twice(DIGEST, "key = self.digest(salt, piece)").replace(AGREES, "if what[0] == salt and what[2] == piece:"),
        frozenset({MIDDLE, BEFORE, DAY}),
        ("its keys and values are other ones",),
    ),
    "no salt": Wrong(
        changed(
            ("key, before = salt, None", "salt = ''\n            key, before = salt, None"),
            ("key, found = salt, []", "salt = ''\n            key, found = salt, []"),
        ),
        frozenset({SALT, WHOSE, DAY}),
        ("another tenant",),
    ),
    "the whole prompt": Wrong(
        changed((FIND, "for end in range(self.size, len(tokens) + 1, self.size):")),
        frozenset({ENDS, DAY}),
        ("Nothing is left to compute",),
    ),
    "the last full block is always left": Wrong(
        changed((FIND, "for end in range(self.size, len(tokens) - self.size, self.size):")),
        ALL - {CHAIN},
        ("one more holds",),
    ),
    "the last block of a text is not published": Wrong(
        changed(("len(tokens) + 1, self.size)", "len(tokens), self.size)")),
        ALL - {SAME, SALT},
        ("one more holds",),
    ),
    "on after a gap": Wrong(
        changed((BREAK, "                    continue\n")),
        frozenset({BEFORE, DAY}),
        ("This block holds",),
    ),
    "any part of the text, wherever it lies": Wrong(
        twice(DIGEST, "key = self.digest(salt, piece)")
        .replace(AGREES, "if what[0] == salt and what[2] == piece:")
        .replace(BREAK, "                    continue\n"),
        frozenset({MIDDLE, BEFORE, DAY}),
        (),
    ),
    "its own block before, and not the one that is found": Wrong(
        changed((NEXT, "before = block")), frozenset({TWICE}), ("lies in memory twice",)
    ),
    "the newest in place of the one before": Wrong(
        changed(
            (
                ADD,
                ADD
                + """
                else:
                    entries = self.entries[key]
                    entries[[e[3] for e in entries].index(known)] = (salt, before, piece, block)""",
            ),
            (NEXT, "before = block"),
        ),
        frozenset({TWICE}),
        ("lies in memory twice",),
    ),
    "a text that is known in part is not published": Wrong(
        changed((ADD, ADD + "\n                elif end == self.size:\n                    return")),
        frozenset({SAME, ENDS, TWICE, DAY}),
        ("one more holds",),
    ),
    "the lists of the caller": Wrong(
        """
    class Prefixes:
        def __init__(self, block_size, digest):
            self.size, self.digest, self.texts = block_size, digest, []
        def keys(self, tokens, salt):
            keys = [salt]
            for end in range(self.size, len(tokens) + 1, self.size):
                keys.append(self.digest(keys[-1], tokens[end - self.size : end]))
            return keys[1:]
        def publish(self, tokens, table, salt):
            self.texts.append((self.keys(tokens, salt), tokens, table, salt))
        def find(self, tokens, salt):
            keys, best = self.keys(tokens[:-1], salt), []
            for known, text, table, other in self.texts:
                n = 0
                while n < min(len(keys), len(known)) and salt == other:
                    if known[n] != keys[n] or text[: (n + 1) * self.size] != tokens[: (n + 1) * self.size]:
                        break
                    n += 1
                if n > len(best):
                    best = table[:n]
            return best
        """,
        frozenset({LISTS}),
        ("have been changed since",),
    ),
    "whole beginnings as keys": Wrong(BEGINNINGS, frozenset({CHAIN}), ("The digest was not used",)),
    "whole beginnings as keys, and a digest for show": Wrong(
        changed_in(
            BEGINNINGS,
            ("self.size, self.known = block_size, {}", "self.size, self.digest, self.known = block_size, digest, {}"),
            (
                "            for end, block in zip",
                "            self.digest(salt, tokens)\n            for end, block in zip",
            ),
            ("            found = []", "            found = []\n            self.digest(salt, tokens)"),
        ),
        frozenset({CHAIN}),
        ("the tokens of one block, once for each", "8 calls of digest"),
    ),
    "whole beginnings as keys, and one digest for the first block": Wrong(
        changed_in(
            BEGINNINGS,
            ("self.size, self.known = block_size, {}", "self.size, self.digest, self.known = block_size, digest, {}"),
            (
                "            for end, block in zip",
                "            self.digest(salt, tokens[: self.size])\n            for end, block in zip",
            ),
            ("            found = []", "            found = []\n            self.digest(salt, tokens[: self.size])"),
        ),
        frozenset({CHAIN}),
        ("8 calls of digest", "tokens of each call: ["),
    ),
    "whole beginnings as keys, and the count set by hand": Wrong(
        changed_in(
            BEGINNINGS,
            ("self.size, self.known = block_size, {}", "self.size, self.digest, self.known = block_size, digest, {}"),
            (
                "            for end, block in zip",
                "            self.digest.given = len(tokens)\n            for end, block in zip",
            ),
            ("            found = []", "            found = []\n            self.digest.given = len(tokens)"),
        ),
        frozenset({CHAIN}),
        ("The digest was not used",),
    ),
    "digests of whole beginnings": Wrong(
        twice(DIGEST, "key = self.digest(salt, tokens[:end])"),
        frozenset({CHAIN}),
        ("the tokens of one block, once for each",),
    ),
    "each digest made from the first block on": Wrong(
        twice(
            DIGEST,
            """key = salt
                for at in range(0, end, self.size):
                    key = self.digest(key, tokens[at : at + self.size])""",
        ),
        frozenset({CHAIN}),
        ("once for each",),
    ),
    "how many tokens instead of which blocks": Wrong(
        changed(("            return found", "            return len(found) * self.size")),
        ALL,
        ("find returns a list of blocks",),
    ),
    "the numbers of the blocks in the text": Wrong(
        changed(
            ("found.append(block)", "found.append(len(found))"),
            ("found[-1] if found else None", "last"),
            ("key, found = salt, []", "key, found, last = salt, [], None"),
            (BREAK, BREAK + "                last = block\n"),
        ),
        ALL,
        ("holds no full block of a text",),
    ),
    "the last block alone": Wrong(
        changed(("            return found", "            return found[-1:]")), ALL - {TOKENS, WHOSE}, ()
    ),
    "the shortest text is no list": Wrong(
        changed(("            return found", "            return found or None")),
        ALL - {LISTS, TWICE, CHAIN},
        ("Did you forget `return`?",),
    ),
    "find returns nothing": Wrong(
        changed(("            return found", "            pass")), ALL, ("Did you forget `return`?",)
    ),
    "nothing is found": Wrong(changed((AGREES, "if False:")), ALL, ("one more holds",)),
}
