"""Solutions of ex06.write: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex06_write import CASES, FEW, FULL, INPUTS, MANY, NEED, NOTHING, ROOM, SHARED

ALL = frozenset(CASES)

PLAIN = """
    def write(memory, table, length, new, blocks):
        size = memory.shape[1]
        filled, end = length % size, length + len(new)
        copy = len(new) > 0 and filled > 0 and blocks.references(table[-1]) > 1
        taken = blocks.take(-(-end // size) - len(table) + copy)
        table = list(table)
        if copy:
            old, table[-1] = table[-1], taken.pop()
            memory[table[-1], :filled] = memory[old, :filled]
            blocks.give_back(old)
        table = table + taken
        for p, token in enumerate(new, start=length):
            memory[table[p // size], p % size] = token
        return table
    """

RIGHT = {
    "all blocks at once, then token by token": PLAIN,
    "one block after the other, and back if there are too few": """
        def write(memory, table, length, new, blocks):
            table, size, taken, old = list(table), memory.shape[1], [], None
            try:
                if len(new) and length % size and blocks.references(table[-1]) > 1:
                    taken += blocks.take(1)
                    old, table[-1] = table[-1], taken[0]
                while len(table) * size < length + len(new):
                    taken += blocks.take(1)
                    table.append(taken[-1])
            except MemoryError:
                for block in taken:
                    blocks.give_back(block)
                raise
            if old is not None:
                memory[table[length // size]] = memory[old]
                blocks.give_back(old)
            for i in range(len(new)):
                memory[table[(length + i) // size], (length + i) % size] = new[i]
            return table
        """,
    "all slots at once, asked before": """
        import torch
        def write(memory, table, length, new, blocks):
            size, n = memory.shape[1], len(new)
            if n == 0:
                return table
            own, needed = len(table), (length + n + size - 1) // size
            copy = own * size > length and blocks.references(table[-1]) != 1
            if blocks.free() < needed - own + copy:
                raise MemoryError("too few blocks")
            copies = blocks.take(1) if copy else []
            result = table[: own - copy] + copies + blocks.take(needed - own)
            for block in copies:
                memory[block].copy_(memory[table[-1]])
                blocks.give_back(table[-1])
            p = torch.arange(length, length + n)
            memory[torch.tensor(result)[p // size], p % size] = new
            return result
        """,
    "NumPy on the same memory, the copy taken last": """
        import numpy as np
        def write(memory, table, length, new, blocks):
            array, result = memory.numpy(), np.array(table, dtype=int)
            size = array.shape[1]
            copy = bool(len(new)) and length % size != 0 and blocks.references(int(result[-1])) > 1
            more = -(-(length + len(new)) // size) - len(result)
            taken = blocks.take(more + int(copy))
            if copy:
                array[taken[-1]] = array[result[-1]]
                blocks.give_back(int(result[-1]))
                result[-1] = taken[-1]
            result = np.concatenate((result, np.array(taken[:more], dtype=int)))
            flat = (result[:, None] * size + np.arange(size)).reshape(-1)[length : length + len(new)]
            array.reshape(-1, array.shape[2])[flat] = new.numpy()
            return result
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


COPY = "copy = len(new) > 0 and filled > 0 and blocks.references(table[-1]) > 1"
TAKE = "taken = blocks.take(-(-end // size) - len(table) + copy)"
BACK = "            blocks.give_back(old)\n"
MOVE = "            memory[table[-1], :filled] = memory[old, :filled]\n"
LIST = "        table = list(table)\n"
TOKEN = "memory[table[p // size], p % size] = token"

WRONG = {
    "a shared block is written into": Wrong(
        changed((COPY, "copy = False")), frozenset({SHARED, FEW, INPUTS}), ("Copy it into a block of your own",)
    ),
    "it is copied, and written into all the same": Wrong(
        changed((MOVE, MOVE + "            memory[old, filled] = new[0]\n")),
        frozenset({SHARED, INPUTS}),
        ("and then written into all the same",),
    ),
    "full blocks are copied, too": Wrong(
        changed(
            (COPY, "copy = len(new) > 0 and length > 0 and blocks.references(table[-1]) > 1"),
            (":filled] = memory[old, :filled]", ":] = memory[old]"),
        ),
        frozenset({FULL}),
        ("The last block was replaced",),
    ),
    "always copied": Wrong(
        changed((COPY, "copy = len(new) > 0 and filled > 0")),
        frozenset({ROOM, NEED, MANY, FEW, NOTHING}),
        ("only if it is shared",),
    ),
    "copied for no token": Wrong(
        changed((COPY, "copy = filled > 0 and blocks.references(table[-1]) > 1")),
        frozenset({NOTHING}),
        ("The last block was replaced",),
    ),
    "shared by two is not shared": Wrong(
        changed(("table[-1]) > 1", "table[-1]) > 2")), frozenset({SHARED, FEW, INPUTS}), ("Copy it into",)
    ),
    "the first block is looked at": Wrong(
        changed(("blocks.references(table[-1])", "blocks.references(table[0])")), ALL - {FULL}, ()
    ),
    "the copy is empty": Wrong(
        changed((MOVE, "")), frozenset({SHARED, INPUTS}), ("its earlier tokens have to come along",)
    ),
    "one token too few is copied": Wrong(
        changed((MOVE, "            memory[table[-1], : filled - 1] = memory[old, : filled - 1]\n")),
        frozenset({SHARED, INPUTS}),
        ("its earlier tokens have to come along",),
    ),
    "the old block is not given back": Wrong(
        changed((BACK, "")), frozenset({SHARED, INPUTS}), ("the block is never freed",)
    ),
    "the old block is given back twice": Wrong(
        changed((BACK, BACK * 2)), frozenset({SHARED, INPUTS}), ("given back more than once",)
    ),
    "given back before there is another": Wrong(
        changed(
            (BACK, ""),
            (
                "        taken = blocks",
                "        if copy:\n            blocks.give_back(table[-1])\n        taken = blocks",
            ),
        ),
        frozenset({FEW}),
        ("Take first, give back later",),
    ),
    "every block is given back": Wrong(
        changed((BACK, "            for block in [*table[:-1], old]:\n                blocks.give_back(block)\n")),
        frozenset({SHARED, INPUTS}),
        ("A block was given back that the text still has",),
    ),
    "a block ahead": Wrong(
        changed(("-(-end // size)", "(end // size + 1)")),
        ALL - {INPUTS},
        ("no other number",),
    ),
    "a block for each token": Wrong(changed((TAKE, "taken = blocks.take(len(new) + copy)")), ALL, ("no other number",)),
    "taken, and not used": Wrong(
        changed(("        return table", "        blocks.take(1)\n        return table")),
        ALL,
        ("More blocks were taken",),
    ),
    "room of the last block is forgotten": Wrong(
        changed((TAKE, "taken = blocks.take(-(-len(new) // size) + copy)")),
        frozenset({ROOM, SHARED, FEW, NOTHING, INPUTS}),
        ("no other number",),
    ),
    "one block at most": Wrong(
        changed((TAKE, "taken = blocks.take(int(end > len(table) * size) + copy)")),
        frozenset({MANY, SHARED, FEW}),
        ("IndexError",),
    ),
    "always into a new block": Wrong(
        changed(
            (COPY, "copy = False"),
            (TAKE, "taken = blocks.take(-(-len(new) // size))"),
            ("enumerate(new, start=length)", "enumerate(new, start=len(table) * size - len(taken) * size)"),
        ),
        frozenset({ROOM, NEED, MANY, SHARED, FEW, NOTHING, INPUTS}),
        (),
    ),
    "one by one, and kept when there are too few": Wrong(
        changed(
            (
                TAKE,
                """taken = []
        for _ in range(-(-end // size) - len(table) + copy):
            taken += blocks.take(1)""",
            )
        ),
        frozenset({FEW}),
        ("kept blocks that it had taken",),
    ),
    "written as far as it goes": Wrong(
        changed(
            (
                "        taken = blocks",
                """        fit = len(table) * size - length
        for i, token in enumerate(new[:fit] if not copy else ()):
            memory[table[-1], filled + i] = token
        taken = blocks""",
            ),
        ),
        frozenset({FEW}),
        ("something had been written by then",),
    ),
    "what fits, and no error": Wrong(
        changed(
            (
                "        taken = blocks.take(-(-end // size) - len(table) + copy)",
                "        taken = blocks.take(min(blocks.free(), -(-end // size) - len(table) + copy))",
            ),
            (
                "            old, table[-1] = table[-1], taken.pop()",
                "            old, table[-1] = table[-1], taken.pop() if taken else table[-1]",
            ),
            (f"            {TOKEN}", f"            if p < len(table) * size:\n                {TOKEN}"),
        ),
        frozenset({FEW}),
        ("let the MemoryError of the pool through",),
    ),
    "another error": Wrong(
        changed(
            (
                TAKE,
                "try:\n            "
                + TAKE
                + "\n        except MemoryError:\n            raise ValueError('full') from None",
            )
        ),
        frozenset({FEW}),
        ("ValueError", "let the MemoryError of the pool through"),
    ),
    "counted from the last block": Wrong(
        changed((TOKEN, "memory[table[-1], p % size] = token")), frozenset({MANY, NEED, SHARED}), ("A new token",)
    ),
    "one slot too far": Wrong(
        changed(
            ("start=length", "start=length + 1"),
            (TOKEN, "memory[table[min(p // size, len(table) - 1)], p % size] = token"),
        ),
        ALL,
        ("lies at place",),
    ),
    "over the first tokens": Wrong(changed(("start=length", "start=0")), ALL, ("was written over",)),
    "through no table": Wrong(
        changed((TOKEN, "memory[min(table[0] + p // size, len(memory) - 1), p % size] = token")), ALL, ()
    ),
    "a memory of its own": Wrong(
        changed(("        size = memory.shape[1]", "        memory = memory.clone()\n        size = memory.shape[1]")),
        ALL,
        ("is nowhere in this memory",),
    ),
    "the table is changed in place": Wrong(
        changed((LIST, ""), ("table = table + taken", "table += taken")), frozenset({INPUTS}), ("return a new list",)
    ),
    "only the new blocks are returned": Wrong(changed(("        return table", "        return taken")), ALL, ()),
    "the table that came": Wrong(
        changed(
            (LIST, "        given, table = table, list(table)\n"), ("        return table", "        return given")
        ),
        ALL - {ROOM, NOTHING, FEW},
        ("no other number",),
    ),
    "nothing is returned": Wrong(changed(("        return table", "        pass")), ALL, ("Did you forget `return`?",)),
    "an empty table is not expected": Wrong(
        changed((COPY, "copy = blocks.references(table[-1]) > 1 and len(new) > 0 and filled > 0")),
        frozenset({NEED, MANY, FEW, NOTHING}),
        ("IndexError",),
    ),
}
