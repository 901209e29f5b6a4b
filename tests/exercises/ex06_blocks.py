"""Solutions of ex06.blocks: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex06_blocks import BACK, CASES, DAY, FREE, FULL, NOBODY, SHARED, TWICE

ALL = frozenset(CASES)

PLAIN = """
    class Blocks:
        def __init__(self, count):
            self.counts = [0] * count

        def take(self, count):
            found = [block for block, n in enumerate(self.counts) if n == 0][:count]
            if len(found) < count:
                raise MemoryError(f"{count} blocks were asked for, {len(found)} are free")
            for block in found:
                self.counts[block] = 1
            return found

        def share(self, block):
            self.look(block)
            self.counts[block] += 1

        def give_back(self, block):
            self.look(block)
            self.counts[block] -= 1

        def free(self):
            return self.counts.count(0)

        def references(self, block):
            return self.counts[block]

        def look(self, block):
            if not 0 <= block < len(self.counts) or self.counts[block] == 0:
                raise ValueError(f"nobody refers to block {block}")
    """
STACK = """
    class Blocks:
        def __init__(self, count):
            self.stack = list(range(count))
            self.counts = {}

        def take(self, count):
            if count > len(self.stack):
                raise MemoryError("too few")
            taken = [self.stack.pop() for _ in range(count)]
            for block in taken:
                self.counts[block] = 1
            return taken

        def share(self, block):
            if block not in self.counts:
                raise ValueError(block)
            self.counts[block] += 1

        def give_back(self, block):
            if block not in self.counts:
                raise ValueError(block)
            self.counts[block] -= 1
            if self.counts[block] == 0:
                del self.counts[block]
                self.stack.append(block)

        def free(self):
            return len(self.stack)

        def references(self, block):
            return self.counts.get(block, 0)
    """

RIGHT = {
    "one count for each block": PLAIN,
    "a stack of free blocks, a dictionary of the others": STACK,
    "a kind of list, and errors of one's own": """
        class Table(list):
            def __repr__(self):
                return f"the blocks {', '.join(map(str, self))}"
        class OutOfBlocks(MemoryError):
            def __init__(self, asked, free):
                super().__init__(f"{asked} blocks were asked for, {free} are free")
        class NotHeld(ValueError, LookupError): ...
        class Blocks:
            def __init__(self, count):
                self.counts = Table([0] * count)
            def take(self, count):
                found = Table(block for block, n in enumerate(self.counts) if n == 0)
                if len(found) < count:
                    raise OutOfBlocks(count, len(found))
                for block in found[:count]:
                    self.counts[block] = 1
                return Table(found[:count])
            def change(self, block, more):
                if not self.references(block):
                    raise NotHeld(block)
                self.counts[block] += more
            def share(self, block):
                self.change(block, 1)
            def give_back(self, block):
                self.change(block, -1)
            def free(self):
                return self.counts.count(0)
            def references(self, block):
                return self.counts[block] if block in range(len(self.counts)) else 0
        """,
    "NumPy": """
        import numpy as np
        class Blocks:
            def __init__(self, count):
                self.n = np.zeros(count, dtype=np.int64)
            def take(self, count):
                free = np.flatnonzero(self.n == 0)
                if count > free.size:
                    raise MemoryError
                self.n[free[:count]] += 1
                return free[:count]
            def share(self, block, more=1):
                if block not in range(len(self.n)) or not self.n[block]:
                    raise ValueError("free")
                self.n[block] += more
            def give_back(self, block):
                self.share(block, -1)
            def free(self):
                return (self.n == 0).sum()
            def references(self, block):
                return self.n[block]
        """,
    "a queue: the one that is free for longest comes first": """
        from collections import Counter, deque
        class Blocks:
            def __init__(self, count):
                self.queue, self.holders = deque(range(count)), Counter()
            def free(self):
                return len(self.queue)
            def references(self, block):
                return self.holders[block]
            def take(self, count):
                if self.free() < count:
                    raise MemoryError("no room")
                found = tuple(self.queue.popleft() for _ in range(count))
                self.holders.update(found)
                return found
            def share(self, block):
                if not self.holders[block]:
                    raise ValueError("free")
                self.holders[block] += 1
            def give_back(self, block):
                if not self.holders[block]:
                    raise ValueError("free")
                self.holders[block] -= 1
                if not self.holders[block]:
                    self.queue.append(block)
        """,
    "a set of all references": """
        import torch
        class Blocks:
            def __init__(self, count):
                self.blocks, self.refs, self.next = range(count), set(), 0
            def held(self):
                return {block for block, _ in self.refs}
            def free(self):
                return len(self.blocks) - len(self.held())
            def references(self, block):
                return sum(one == block for one, _ in self.refs)
            def take(self, count):
                free = sorted(set(self.blocks) - self.held(), reverse=True)
                if len(free) < count:
                    raise MemoryError(count)
                for block in free[:count]:
                    self.add(block)
                return torch.tensor(free[:count], dtype=torch.long)
            def add(self, block):
                self.refs.add((block, self.next))
                self.next += 1
            def share(self, block):
                if not self.references(block):
                    raise ValueError(block)
                self.add(block)
            def give_back(self, block):
                mine = [ref for ref in self.refs if ref[0] == block]
                if not mine:
                    raise ValueError(block)
                self.refs.remove(mine[0])
        """,
}


def plain(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


def stack(*pairs: tuple[str, str]) -> str:
    return changed_in(STACK, *pairs)


ROOM = """            if count > len(self.stack):
                raise MemoryError("too few")
"""
GONE = """            if self.counts[block] == 0:
                del self.counts[block]
                self.stack.append(block)
"""
LOOK = """            if block not in self.counts:
                raise ValueError(block)
            self.counts[block] -= 1
"""
RANGE = "not 0 <= block < len(self.counts) or "

WRONG = {
    "given back by one, free for all": Wrong(
        stack(
            (
                LOOK + GONE,
                LOOK.replace("self.counts[block] -= 1", "self.stack.append(self.counts and block)")
                + "            del self.counts[block]\n",
            )
        ),
        frozenset({SHARED, DAY}),
        ("the block is not free yet",),
    ),
    "never free again while it was shared once": Wrong(
        plain(("            self.counts[block] -= 1", "            self.counts[block] -= self.counts[block] == 1")),
        frozenset({SHARED, DAY}),
        ("Giving back takes one reference",),
    ),
    "nothing is given back": Wrong(
        plain(("            self.counts[block] -= 1", "            pass")),
        frozenset({BACK, SHARED, FULL, TWICE, FREE, DAY}),
        ("so the block is free again",),
    ),
    "taken one by one until there is none": Wrong(
        stack((ROOM, ""), ("for _ in range(count)]", "for _ in range(count)]")),
        frozenset({FULL, DAY}),
        ("MemoryError", "IndexError"),
    ),
    "an error after some have been taken": Wrong(
        plain(
            ("            found = [block for block, n in enumerate(self.counts) if n == 0][:count]\n", ""),
            (
                """            if len(found) < count:
                raise MemoryError(f"{count} blocks were asked for, {len(found)} are free")
            for block in found:
                self.counts[block] = 1
""",
                """            found = []
            for _ in range(count):
                if 0 not in self.counts:
                    raise MemoryError("none left")
                found.append(self.counts.index(0))
                self.counts[found[-1]] = 1
""",
            ),
        ),
        frozenset({FULL, DAY}),
        ("It refused, but something had changed by then",),
    ),
    "what there is, and no error": Wrong(
        plain(("if len(found) < count:", "if False:")), frozenset({FULL, DAY}), ("raise MemoryError", "no error")
    ),
    "the last block is never taken": Wrong(
        plain(
            ("if len(found) < count:", "if len(found) < count or count and 0 not in self.counts[:-1]:"),
            ("if n == 0][:count]", "if n == 0 and block < len(self.counts) - 1][:count]"),
        ),
        frozenset({BACK, SHARED, FULL, TWICE, FREE, NOBODY, DAY}),
        ("nothing to refuse", "MemoryError"),
    ),
    "ValueError where there is no room": Wrong(
        plain(("raise MemoryError", "raise ValueError")), frozenset({FULL, DAY}), ("raise MemoryError", "ValueError")
    ),
    "given back twice, free twice": Wrong(
        stack(
            (
                LOOK + GONE,
                """            self.counts[block] = self.counts.get(block, 1) - 1
            if self.counts[block] == 0:
                self.counts.pop(block)
                self.stack.append(block)
""",
            )
        ),
        frozenset({TWICE, NOBODY, DAY}),
        ("handed to two texts", "ValueError"),
    ),
    "given back twice, ignored": Wrong(
        plain(
            (
                """            self.look(block)
            self.counts[block] -= 1
""",
                """            if 0 <= block < len(self.counts):
                self.counts[block] = max(0, self.counts[block] - 1)
""",
            )
        ),
        frozenset({TWICE, NOBODY, DAY}),
        ("raise ValueError", "no error"),
    ),
    "counts below zero": Wrong(
        plain((" or self.counts[block] == 0", "")), frozenset({TWICE, FREE, DAY}), ("cannot be given back",)
    ),
    "an assert instead of an error": Wrong(
        plain(
            (
                """            if not 0 <= block < len(self.counts) or self.counts[block] == 0:
                raise ValueError(f"nobody refers to block {block}")
""",
                "            assert 0 <= block < len(self.counts) and self.counts[block]\n",
            )
        ),
        frozenset({TWICE, FREE, NOBODY, DAY}),
        ("AssertionError", "ValueError", "free already"),
    ),
    "KeyError of the dictionary": Wrong(
        stack((LOOK, "            self.counts[block] -= 1\n")),
        frozenset({TWICE, NOBODY, DAY}),
        ("KeyError", "raise ValueError"),
    ),
    "-1 is the last block of a list": Wrong(plain((RANGE, "")), frozenset({NOBODY}), ("Python reads -1", "no error")),
    "a number that is too large is an IndexError": Wrong(
        plain((RANGE, "block < 0 or ")), frozenset({NOBODY}), ("IndexError", "no block of this number")
    ),
    "a free block can be shared": Wrong(
        plain(
            (
                """            self.look(block)
            self.counts[block] += 1
""",
                """            if not 0 <= block < len(self.counts):
                raise ValueError
            self.counts[block] += 1
""",
            )
        ),
        frozenset({FREE, DAY}),
        ("A free block holds nothing",),
    ),
    "sharing takes another block": Wrong(
        plain(("            self.counts[block] += 1", "            self.counts[self.take(1)[0]] = 1")),
        frozenset({SHARED, DAY}),
        ("Sharing takes no block",),
    ),
    "sharing counts to two and no further": Wrong(
        plain(("            self.counts[block] += 1", "            self.counts[block] = 2")),
        frozenset({SHARED, DAY}),
        ("Sharing adds one reference",),
    ),
    "a block that is taken has no reference yet": Wrong(
        plain(("                self.counts[block] = 1\n", "                pass\n")), ALL, ("is free no more",)
    ),
    "held blocks are handed out": Wrong(
        plain(("if n == 0][:count]", "][:count]"), ("if len(found) < count:", "if self.counts.count(0) < count:")),
        frozenset({BACK, SHARED, FULL, TWICE, FREE, DAY}),
        ("somebody still refers to",),
    ),
    "the same block again and again": Wrong(
        plain(("            return found", "            return found[:1] * count")),
        ALL,
        ("handed out twice in one call",),
    ),
    "numbered from 1": Wrong(
        plain(
            ("            return found", "            return [block + 1 for block in found]"),
            (
                "self.look(block)\n            self.counts[block] += 1",
                "block -= 1\n            self.look(block)\n            self.counts[block] += 1",
            ),
            (
                "self.look(block)\n            self.counts[block] -= 1",
                "block -= 1\n            self.look(block)\n            self.counts[block] -= 1",
            ),
        ),
        ALL,
        ("has one reference",),
    ),
    "a single block without a list": Wrong(
        plain(("            return found", "            return found if len(found) != 1 else found[0]")),
        frozenset({BACK, FULL, DAY}),
        ("for a single block as well",),
    ),
    "take returns nothing": Wrong(
        plain(("            return found", "            pass")), ALL, ("Did you forget `return`?",)
    ),
    "one pool for all": Wrong(
        plain(
            (
                """        def __init__(self, count):
            self.counts = [0] * count
""",
                """        counts = []
        def __init__(self, count):
            self.counts.extend([0] * (count - len(self.counts)))
""",
            )
        ),
        ALL - {BACK},
        ("Is something kept in the class",),
    ),
    "free counts references": Wrong(
        plain(("return self.counts.count(0)", "return len(self.counts) - sum(self.counts)")),
        frozenset({SHARED, DAY}),
        ("Sharing takes no block",),
    ),
    "references says whether": Wrong(
        plain(
            (
                "            return self.counts[block]\n\n        def look",
                "            return self.counts[block] > 0\n\n        def look",
            )
        ),
        ALL,
        ("how many refer to a block",),
    ),
    "no share": Wrong(plain(("def share", "def add")), frozenset({SHARED, FREE, NOBODY, DAY}), ("AttributeError",)),
}
