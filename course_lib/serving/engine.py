"""Many sequences on one model and one cache: they come and go at any time, and each gets the tokens of its lone run.

The one idea: a sequence reads what its row has not read yet, and when it has read everything its next token is chosen.
So prefill, decode, the chunks of a long prompt and the second reading of a preempted text are one rule, and nothing has
to remember which of them a sequence is in. This is the iteration-level scheduling of Orca (Yu et al. 2022), first come,
first served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Many

import torch
from torch import Tensor

from course_lib.caches import Cache, CacheFull, PrefixCache
from course_lib.caches.contract import whole
from course_lib.generation import likeliest, token_ids
from course_lib.model import Transformer
from course_lib.serving.request import Request, Sequence

Observer = Callable[[list[Sequence], list[int]], None]  # the sequences of a pass, and how many tokens each read


class Engine:
    """Serves requests on `model` with the rows of `cache`, which must be empty.

    `prefix` finds shared prefixes in the same cache (off by default). `chunk` is the most tokens that a sequence reads
    in one pass. `compact` moves sequences to the first rows whenever one finishes. `keep_logits` keeps those that
    chose each new token. `observers` are called after every pass, before tokens are chosen; they may submit and cancel.
    """

    def __init__(
        self,
        model: Transformer,
        cache: Cache,
        *,
        prefix: PrefixCache | None = None,
        chunk: int | None = None,
        compact: bool = False,
        keep_logits: bool = False,
    ) -> None:
        if any(cache.lengths):
            raise ValueError(f"the rows of the cache hold {cache.lengths} tokens of other texts: release them first")
        if prefix is not None and prefix.cache is not cache:
            raise ValueError("the prefix cache finds blocks of another cache: make it from this one")
        if prefix is not None and prefix.model not in (None, model):
            raise ValueError("the prefix cache finds keys and values of another model: make one for each model")
        if chunk is not None and whole(chunk, "the chunk") < 1:
            raise ValueError(f"a chunk has at least one token, not {chunk}")
        self.model, self.cache, self.prefix, self.chunk = model, cache, prefix, chunk
        self.compacts, self.keep_logits = compact, keep_logits
        if prefix is not None:
            prefix.model = model
        self.given: set[int] = set()  # rows that belong to sequences of this engine
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in the order in which they were admitted
        self.observers: list[Observer] = []

    def submit(self, request: Request) -> Sequence:
        """Put a request at the end of the queue. Raises ValueError if it could never fit model or cache."""
        token_ids(self.model, request.prompt, "the prompt")
        if request.forced is not None:
            token_ids(self.model, request.forced, "the forced tokens")
        request.check_room(self.model.config.max_positions, self.cache.longest)
        sequence = Sequence(request)
        self.waiting.append(sequence)
        return sequence

    def run(self) -> None:
        """Step until every sequence is finished."""
        while self.waiting or self.running:
            self.step()

    @torch.inference_mode()
    def step(self) -> list[Sequence]:
        """Admit who fits, let every running sequence read, and return those that got a token.

        Padding takes as long as tokens, so those that have about equally many to read share a pass; those that have
        one come last. Whoever finishes gives its row back at once.
        """
        self.dismiss()  # whom an interrupted step left here
        self.admit()
        return self.read_all({sequence: self.unread(sequence)[: self.chunk] for sequence in self.running})

    @torch.inference_mode()
    def carry_out(self, preempt: Many[Sequence], admit: Many[Sequence], counts: Mapping[Sequence, int]) -> None:
        """One step that somebody else has planned, see `scheduler.py`: who is preempted, who of the waiting gets a row,
        and how many of its unread tokens each reads. Raises CacheFull, before anything is read, if that needs more
        room than there is.
        """
        self.dismiss()
        for sequence in preempt:
            self.put_off(sequence)
        for sequence in admit:
            row = self.free_rows()[0]
            self.take_row(row)
            sequence.row = row
            self.running.append(sequence)
            self.waiting.remove(sequence)
        pieces = {sequence: self.unread(sequence)[:count] for sequence, count in counts.items()}
        self.cache.check_room(tuple(map(row_of, pieces)), tuple(map(len, pieces.values())))
        self.read_all(pieces)

    def unread(self, sequence: Sequence) -> list[int]:
        """The tokens of a running sequence that its row has not read. Never none: the newest token is read last."""
        row = row_of(sequence)
        if self.cache.lengths[row] == len(sequence.text):  # a step was interrupted before it chose
            try:
                self.cache.truncate(row, len(sequence.text) - 1)
            except ValueError:  # a cache that forgets or rounds cannot always go back: it reads all again
                self.cache.release(row)
        return sequence.text[self.cache.lengths[row] :]

    # --- Who runs

    def admit(self) -> None:
        """Give free rows to those that wait, in order, while the cache has room for all that the running must read."""
        while self.waiting and (rows := self.free_rows()):
            sequence = self.waiting[0]
            self.take_row(rows[0])
            sequence.row = rows[0]
            if self.prefix is not None:
                sequence.reused = self.prefix.reuse(rows[0], sequence.text, sequence.request.salt)
            together = [*self.running, sequence]
            if not self.cache.fits([row_of(s) for s in together], [len(self.unread(s)) for s in together]):
                if self.prefix is not None:
                    self.prefix.cancel(rows[0], sequence.text)
                sequence.row = None
                if not self.running:  # nobody here will make room: somebody else holds it
                    self.cache.check_room((rows[0],), (len(sequence.text),))
                return
            self.running.append(sequence)
            self.waiting.popleft()  # after that: an interrupt in between must not lose it

    def take_row(self, row: int) -> None:
        """Make a free row this engine's. It is empty, unless an interrupted step of ours has left something there."""
        if row in self.given:
            self.cache.release(row)
        elif self.cache.lengths[row]:
            raise ValueError(
                f"row {row} of the cache holds {self.cache.lengths[row]} tokens that are not this engine's: "
                "give each engine a cache of its own"
            )
        self.given.add(row)

    def free_rows(self) -> list[int]:
        held = {sequence.row for sequence in self.running}
        return [row for row in range(self.cache.rows) if row not in held]

    def dismiss(self) -> None:
        """Let those leave that are finished, or that were put off when a step was interrupted."""
        put_off = self.waiting[0] if self.waiting else None
        leaving = [sequence for sequence in self.running if sequence.finished or sequence is put_off]
        for sequence in leaving:
            self.leave(sequence)
        self.release_leftovers()
        if leaving and self.compacts:
            self.compact()

    def release_leftovers(self) -> None:
        """Empty the rows that nobody runs in: what an interrupted step took, or was moving, would be in others' way."""
        if len(self.given) > len(self.running):  # all that run have theirs among these
            for row in self.given.difference(map(row_of, self.running)):
                self.cache.release(row)
                self.given.discard(row)

    def cancel(self, sequence: Sequence) -> None:
        """Give up a sequence, if it runs or waits; others are not affected. Its text so far stays."""
        if sequence in self.running:
            self.leave(sequence)
            if self.compacts:
                self.compact()
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        self.release_leftovers()

    def leave(self, sequence: Sequence) -> None:
        """Take a sequence's row away. What it has read can be found again if prefixes are shared."""
        if self.prefix is not None:
            self.prefix.publish(row_of(sequence), sequence.text, sequence.request.salt)
        self.cache.release(row_of(sequence))
        self.running.remove(sequence)
        self.given.discard(row_of(sequence))
        sequence.row = None

    def preempt(self) -> Sequence:
        """Put the youngest sequence off."""
        return self.put_off(self.running[-1])

    def put_off(self, sequence: Sequence) -> Sequence:
        """Put a sequence off, to the front of the queue. It keeps its text, and reads it again later."""
        sequence.preempted += 1
        self.waiting.appendleft(sequence)  # before it leaves: an interrupt in between must not lose it
        self.leave(sequence)
        return sequence

    def compact(self) -> None:
        """Move the running sequences to the first rows, so that they lie side by side."""
        for sequence in sorted(self.running, key=row_of):
            first_free = min(self.free_rows(), default=self.cache.rows)
            if first_free < row_of(sequence):
                self.take_row(first_free)
                self.cache.move_row(row_of(sequence), first_free)
                left, sequence.row = row_of(sequence), first_free
                self.given.discard(left)

    # --- What they read

    def read_all(self, pieces: Mapping[Sequence, list[int]]) -> list[Sequence]:
        """The passes of a step in which each sequence reads its piece; return those that got a token."""
        passes: dict[int, list[Sequence]] = {}
        for sequence, piece in pieces.items():
            passes.setdefault(pass_for(len(piece)), []).append(sequence)
        got = []
        for number in sorted(passes, reverse=True):
            got += self.read(passes[number], pieces)
            self.dismiss()  # before the next pass, which may need room: whoever has finished is not put off
        return got

    def read(self, group: list[Sequence], pieces: Mapping[Sequence, list[int]]) -> list[Sequence]:
        """One pass over the pieces of a group; return those that have read everything and got a token.

        If the cache is full, the youngest sequence makes room, whether or not it is in the group.
        """
        while group := [sequence for sequence in group if sequence.row is not None]:
            group.sort(key=row_of)
            try:
                logits = self.forward(group, [pieces[sequence] for sequence in group])  # [B, V]
            except CacheFull:
                if len(self.running) == 1:
                    raise
                self.preempt()
                continue
            for observer in self.observers:
                observer(group, [len(pieces[sequence]) for sequence in group])
            return self.choose(group, logits)
        return []

    def forward(self, group: list[Sequence], pieces: Many[list[int]]) -> Tensor:
        """The logits [B, V] after the last token of each piece, which follows what its sequence has read."""
        counts = [len(piece) for piece in pieces]
        longest = max(counts)
        padded = [piece + [0] * (longest - len(piece)) for piece in pieces]  # [B, T], padding on the right
        tokens = torch.tensor(padded, device=self.model.device)
        rows = [row_of(sequence) for sequence in group]
        return self.model(tokens, self.cache, counts=counts, rows=rows, last_only=True)[:, 0]

    def choose(self, group: list[Sequence], logits: Tensor) -> list[Sequence]:
        """Choose the next token of each sequence of the group that has read its whole text."""
        lengths = [0 if sequence.row is None else self.cache.lengths[sequence.row] for sequence in group]
        done = [i for i, sequence in enumerate(group) if lengths[i] == len(sequence.text)]
        if len(done) < len(group):
            group, logits = [group[i] for i in done], logits[done]
        if not group:
            return []
        for index, (sequence, token) in enumerate(zip(group, likeliest(logits))):
            request = sequence.request
            if self.prefix is not None and not sequence.tokens:
                self.prefix.publish(row_of(sequence), sequence.text, request.salt)
            if request.forced is not None:
                sequence.text.append(request.forced[len(sequence.tokens)])
            elif request.sampling.temperature == 0:
                sequence.text.append(token)
            else:
                sequence.draw(logits[index])
            if self.keep_logits:
                sequence.logits.append(logits[index])
        return group


def row_of(sequence: Sequence) -> int:
    """The row of a running sequence."""
    assert sequence.row is not None, f"sequence {sequence.name!r} has no row: it is not running"
    return sequence.row


def pass_for(count: int) -> int:
    """Which pass of a step reads `count` tokens: 0 for 1, 1 for 2 to 15, 2 for 16 to 31, 3 for 32 to 63, and so on."""
    return 0 if count == 1 else 1 + (count // 16).bit_length()
