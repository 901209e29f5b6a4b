"""Libraries with one bug in what sequences share: the pool, the tables, the prefix cache, the engine.

The one idea: as in `mutants_of_our_own.py`, each line that keeps one sequence's memory from another is taken out or
bent once. What sees it is a check of pages_proof.py or of batch_proof.py, run with the changed library.
"""

from mutants import Mutant, at

POOL, PAGED, PREFIX, ENGINE = "caches.pool", "caches.paged", "caches.prefix", "serving.engine"

OF_SHARING = (
    # --- the pool
    Mutant(
        None,
        "a block is free after the first of its holders",
        "two_continuations",
        at(
            POOL,
            (
                "        self.references[block] -= 1\n        if not self.references[block]:",
                "        self.references[block] = 0\n        if not self.references[block]:",
            ),
        ),
    ),
    Mutant(
        None,
        "sharing a block is not counted",
        "two_continuations",
        at(
            POOL,
            (
                "        self.references[block] += 1\n",
                "        self.references[block] = max(1, self.references[block])\n",
            ),
        ),
    ),
    Mutant(
        None,
        "a block that is given to others can still be found",
        "forgotten_and_asked_again",
        at(
            POOL,
            (
                "            self.lose(block)\n",
                "            del self.kept[block]\n            self.blank[block] = None\n",
            ),
        ),
    ),
    Mutant(
        None,
        "a kept block that is shared again stays in the queue of free ones",
        "one_leaves_early",
        at(POOL, ("+= 1\n        if block in self.kept:\n            del self.kept[block]\n", "+= 1\n")),
    ),
    # --- the tables
    Mutant(
        None,
        "a shared block is written in place",
        "two_continuations",
        at(PAGED, ("return partly_filled and self.pool.references[self.tables[row][-1]] > 1", "return False")),
    ),
    Mutant(
        None,
        "a block that was shared is copied without its values",
        "two_continuations",
        at(PAGED, ("            self.values[:, copy, :filled] = self.values[:, shared, :filled]\n", "")),
    ),
    Mutant(
        None,
        "new blocks hold what the last owner left",
        "poisoned_neighbours",
        at(PAGED, ("        self.clear(block, 0)\n        self.clean", "        self.clean")),
    ),
    Mutant(
        None,
        "the tail of a block counts as clean after it was freed",
        "cut_in_a_block",
        at(PAGED, ("        self.clean.difference_update(table[kept // self.block_size :])\n", "")),
    ),
    Mutant(
        None,
        "a released row keeps its table",
        "cut_in_a_block",
        at(PAGED, ("        self.set_table(row, table[:blocks])\n", "")),
    ),
    Mutant(
        None,
        "a released row's blocks are never given back",
        "rows_are_reused",
        at(
            PAGED,
            (
                "            self.pool.give_back(block)\n        self.torn = False\n\n    def copy",
                "            pass\n        self.torn = False\n\n    def copy",
            ),
        ),
    ),
    Mutant(
        None,
        "truncating gives back the block that is still partly filled",
        "cut_in_a_block",
        at(
            PAGED,
            (
                "table, blocks = self.tables[row], self.blocks_for(kept)",
                "table, blocks = self.tables[row], kept // self.block_size",
            ),
        ),
    ),
    Mutant(
        None,
        "a full block is written past its end",
        "poisoned_neighbours",
        at(PAGED, ("while len(table) * self.block_size < length:", "while len(table) * self.block_size < length - 1:")),
    ),
    Mutant(
        None,
        "a failed pass keeps the blocks that it took",
        "a_failed_pass",
        at(PAGED, ("        self.pool.recount(block for table in self.tables for block in table)\n", "")),
    ),
    Mutant(
        None,
        "shorter rows are filled up with block 0",
        "poisoned_neighbours",
        at(PAGED, ("nobody = (len(cache.pool.references),)", "nobody = (0,)")),
    ),
    Mutant(
        None,
        "one row is read where its first block lies, in one piece or not",
        "together",
        at(PAGED, ("side_by_side(table := self.planned[rows[0]])", "(table := self.planned[rows[0]])")),
    ),
    Mutant(
        None,
        "new tokens go to the slot of their position, whatever the table says",
        "two_continuations",
        at(PAGED, ("new = [slot_of(table, position, size) for", "new = [position % cache.slots for")),
    ),
    Mutant(
        None,
        "a full pool is noticed only by the first row of a pass",
        "one_row_of_a_pass_is_full",
        at(PAGED, ("            free -= needed\n", "")),
    ),
    Mutant(
        None,
        "a block that could be found is written and can still be found",
        "written_after_it_could_be_found",
        at(PAGED, ("            self.pool.lose(table[-1])  # it", "            pass  # it")),
    ),
    # --- the prefix cache
    Mutant(
        None,
        "a prompt that is found completely leaves nothing to read",
        "the_same_prompt",
        at(PREFIX, ("for piece in self.pieces(tokens[:-1]):", "for piece in self.pieces(tokens):")),
    ),
    Mutant(
        None,
        "a digest that collides is believed",
        "colliding_digests",
        at(
            PREFIX,
            ("if entry.parent is parent and entry.salt == salt and entry.tokens == piece:", "if entry.salt == salt:"),
        ),
    ),
    Mutant(
        None,
        "a block is found by its own tokens, whatever stood before",
        "colliding_digests",
        at(
            PREFIX,
            ("return self.digest(before + array", "return self.digest(before[:0] + array"),
            ("if entry.parent is parent and entry.salt", "if entry.salt"),
        ),
    ),
    Mutant(
        None,
        "the salt is forgotten",
        "tenants",
        at(
            PREFIX,
            ("return self.digest(salt.encode())", 'return self.digest(b"")'),
            ("and entry.salt == salt and", "and"),
        ),
    ),
    Mutant(
        None,
        "a block that is not full is shared",
        "only_full_blocks",
        at(
            PREFIX,
            (
                "for end in range(size, len(plain) + 1, size)]",
                "for end in range(size, len(plain) + size, size)]",
            ),
        ),
    ),
    Mutant(
        None,
        "what comes after a forgotten block can still be found",
        "what_came_after_is_forgotten_too",
        at(PREFIX, ("            later.extend(one.children)\n", "")),
    ),
    Mutant(
        None,
        "an answer is left behind without its salt",
        "tenants",
        at(
            ENGINE,
            (
                "self.prefix.publish(row_of(sequence), sequence.text, sequence.request.salt)",
                "self.prefix.publish(row_of(sequence), sequence.text)",
            ),
        ),
    ),
    Mutant(
        None,
        "blocks are published under tokens that the row has not read yet",
        "the_same_prompt",
        at(PREFIX, ("self.pieces(tokens[:held])", "self.pieces([0] + list(tokens[:held]))")),
    ),
    # --- the engine
    Mutant(
        None,
        "a row that moves leaves its sequence behind",
        "rows_are_moved",
        at(ENGINE, ("left, sequence.row = row_of(sequence), first_free", "left = row_of(sequence)")),
    ),
    Mutant(
        None,
        "a finished row is not released",
        "apart",
        at(ENGINE, ("        self.cache.release(row_of(sequence))\n        self.running", "        self.running")),
    ),
    Mutant(
        None,
        "a preempted sequence is lost",
        "preemption",
        at(ENGINE, ("        self.waiting.appendleft(sequence)  # before", "        pass  # before")),
    ),
    Mutant(
        16,
        "a preempted sequence is taken for one that decodes",
        "preemption",
        at(
            ENGINE,
            (
                "        return sequence.text[self.cache.lengths[row] :]",
                "        return sequence.text[-1 if sequence.preempted else self.cache.lengths[row] :]",
            ),
        ),
    ),
    Mutant(
        None,
        "the next token is chosen before a long prompt is read to its end",
        "alone",
        at(
            ENGINE,
            (
                "if lengths[i] == len(sequence.text)]",
                "if lengths[i]]",
            ),
        ),
    ),
    Mutant(
        None,
        "logits are handed to the sequences in the order of their arrival",
        "together",
        at(
            ENGINE,
            (
                "zip(group, likeliest(logits))",
                "zip(sorted(group, key=lambda s: self.running.index(s)), likeliest(logits))",
            ),
        ),
    ),
    Mutant(
        19,
        "all rows start with the same sampled token",
        "drawn",
        at("serving.request", ("torch.Generator().manual_seed(self.request.seed)", "torch.Generator().manual_seed(0)")),
    ),
    Mutant(
        None,
        "all requests draw from one generator",
        "drawn",
        at("serving.request", ("self.request.sampling, self.generator)", "self.request.sampling, None)")),
    ),
    Mutant(
        None,
        "sequences with one token are padded with the first of others",
        "together",
        at(
            ENGINE,
            ("counts=counts, rows=rows, last_only=True", "counts=[longest] * len(counts), rows=rows, last_only=True"),
        ),
    ),
)
