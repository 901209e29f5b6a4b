"""More libraries with one bug, of our own making: what the tests should notice beside the mistakes of courses.

The one idea: each line that keeps rows apart, memory clean or a failure harmless is taken out or bent once.
"""

from mutants import CONTIGUOUS, CONTRACT, Mutant, at

OUR_OWN = (
    Mutant(None, "a query does not see its own position", "oracle", at(CONTRACT, ("(key <= query)", "(key < query)"))),
    Mutant(None, "a query sees one position ahead", "oracle", at(CONTRACT, ("(key <= query)", "(key <= query + 1)"))),
    Mutant(None, "empty slots count as filled", "ragged, no cache", at(CONTRACT, ("(key >= 0) & ", ""))),
    Mutant(
        None,
        "memory ahead of a shorter row is not cleared",
        "ragged prompts",
        at(CONTIGUOUS, ("if self.cleared[row] < stop:", "if False:")),
    ),
    Mutant(
        None,
        "memory counts as cleared after it was freed",
        "reuse",
        at(CONTIGUOUS, ("        self.cleared[row] = 0", "        pass")),
    ),
    Mutant(
        None,
        "a failed pass frees nothing",
        "failure",
        at(
            CONTRACT,
            ("            self.settle()\n            raise", "            self.unsettled = ()\n            raise"),
        ),
    ),
    Mutant(
        None,
        "a failed pass advances the lengths",
        "failure",
        at(
            CONTRACT,
            (
                "            self.settle()\n            raise",
                "            self.keep(rows)\n            self.lengths = lengths\n            raise",
            ),
        ),
    ),
    Mutant(
        None,
        "a failed pass leaves the cache locked",
        "failure",
        at(CONTRACT, ("        finally:\n            self.in_step = False\n", "        self.in_step = False\n")),
    ),
    Mutant(
        None,
        "what does not fit overwrites the last slots",
        "full",
        at(
            CONTIGUOUS,
            (
                "raise CacheFull(row, count, self.capacity - self.lengths[row])",
                "self.lengths = (*self.lengths[:row], self.capacity - count, *self.lengths[row + 1 :])",
            ),
        ),
    ),
    Mutant(
        None,
        "the first rows are written before a later one is found full",
        "full",
        at(
            CONTIGUOUS,
            (
                "            if self.lengths[row] + count > self.capacity:",
                "            self.keys[:, row, :, self.lengths[row] :] = 0\n"
                "            if self.lengths[row] + count > self.capacity:",
            ),
        ),
    ),
    Mutant(
        None,
        "values are written one slot early where rows are ragged",
        "ragged prompts",
        at(CONTIGUOUS, ("[self.row, self.slot] =", "[self.row, self.slot - 1] =")),
    ),
    Mutant(
        None,
        "ragged rows are written to the rows of the batch, not of the cache",
        "rows in any order",
        at(CONTIGUOUS, ("self.row, self.slot = row[:, None]", "self.row, self.slot = torch.arange(len(row))[:, None]")),
    ),
    Mutant(
        None,
        "any rows in ascending order count as side by side",
        "rows in any order",
        at(
            CONTIGUOUS,
            (
                "return rows == tuple(range(rows[0], rows[0] + len(rows)))",
                "return list(rows) == sorted(rows)",
            ),
        ),
    ),
    Mutant(
        None,
        "rows of equal counts count as rows of equal length",
        "ragged prompts",
        at(CONTIGUOUS, ("if len(set(ends)) == len(set(counts)) == 1 and", "if len(set(counts)) == 1 and")),
    ),
    Mutant(
        None,
        "a copied row has the keys and not the values",
        "reuse",
        at(CONTIGUOUS, ("        self.values[:, target, :, :held] = self.values[:, source, :, :held]", "        pass")),
    ),
    Mutant(
        None,
        "a copied row shares the length that its place had before",
        "reuse",
        at(CONTRACT, ("            self.set_length(target, self.lengths[source])\n", "")),
    ),
    Mutant(
        None,
        "query head h reads key head h modulo H",
        "oracle",
        at(
            "model",
            (
                "    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])  # [B, H, G * T, D]\n",
                "    B, _, T, D = q.shape\n"
                "    grouped = q.reshape(B, -1, k.shape[1], T, D).transpose(1, 2).reshape(B, k.shape[1], -1, D)\n",
            ),
            (
                "attn_mask=mask).reshape(q.shape)",
                "attn_mask=mask).reshape(B, k.shape[1], -1, T, D).transpose(1, 2).reshape(q.shape)",
            ),
        ),
    ),
    Mutant(
        None,
        "the mask of the grouped queries is repeated token by token",
        "oracle",
        at(
            "model",
            (
                "mask = mask.repeat(1, 1, self.config.n_heads // self.config.n_kv_heads, 1)",
                "mask = mask.repeat_interleave(self.config.n_heads // self.config.n_kv_heads, dim=2)",
            ),
        ),
    ),
    Mutant(
        None,
        "RoPE turns the other way",
        "oracle",
        at("model", ("cos, -sin, sin)", "cos, sin, -sin)")),
    ),
    Mutant(
        None,
        "rope factors multiply",
        "oracle",
        at(
            "model",
            ("turns / torch.tensor(config.rope_factors", "turns * torch.tensor(config.rope_factors"),
        ),
    ),
    Mutant(
        None,
        "a chunk's positions start at 0",
        "cuts",
        at(
            "model",
            (
                "step.positions, self.dtype",
                "step.positions if T == 1 else step.positions - step.positions[:, :1], self.dtype",
            ),
        ),
    ),
    Mutant(
        None,
        "decode positions are off by one",
        "cuts",
        at("model", ("step.positions, self.dtype", "step.positions + (T == 1), self.dtype")),
    ),
    Mutant(
        None,
        "rows that ended keep the logits of their padding",
        "ragged prompts",
        at("generation", ("torch.where(ends_here, last, logits)", "last")),
    ),
    Mutant(
        None,
        "a step may miss its last layer",
        "failure",
        at(CONTRACT, ("if step.written != self.n_layers:", "if step.written < self.n_layers - 1:")),
    ),
    Mutant(
        None,
        "used bytes are the reserved ones",
        "bytes",
        at(CONTIGUOUS, ("t[:, row, :, :held].nbytes", "t[:, row].nbytes")),
    ),
    Mutant(
        None,
        "the last new token is read once more",
        "generation",
        at(
            "generation",
            (
                "        if token in stop_tokens or len(text) == len(prompt) + max_new_tokens:\n            return\n",
                "",
            ),
            (
                "            logits = prefill(model, [text], None)[0]\n",
                "            logits = prefill(model, [text], None)[0]\n"
                "        if token in stop_tokens or len(text) == len(prompt) + max_new_tokens:\n            return\n",
            ),
        ),
    ),
    Mutant(
        None,
        "one generator for all requests",
        "sampling",
        at(
            "generation",
            (
                'generator = torch.Generator().manual_seed(whole(seed, "the seed"))',
                "generator = torch.default_generator",
            ),
        ),
    ),
)
