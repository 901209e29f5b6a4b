"""The proof of an engine that serves many sequences: small checks, for any function that makes one.

The one idea: whoever else is served, and in whatever memory, the logits of a request are the oracle's for its text. So
each check makes the company, or the memory, as awkward as it can, and then asks for nothing else. All memory that
nobody may read is filled with NaN before the first step and after every other. A check raises whatever it raises; only
coming through without an error counts.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial
from types import ModuleType

import torch
from shapes import SHAPES, TOLERANCE, difference, model_of, text_of, truth
from torch import Tensor

import course_lib.caches
import course_lib.serving
from course_lib.generation import Sampling
from course_lib.model import Transformer
from course_lib.serving import Engine, Request
from course_lib.serving import Sequence as Served

Build = Callable[[Transformer], Engine]
Arrivals = Iterable[tuple[int, Request]]  # the step at which a request comes

MOST_STEPS, LONGEST = 500, 72
DRAWN = Sampling(temperature=1.5)

# --- What is asked, and what is right


@lru_cache
def text(seed: int, common: int = 0, shape: str = "gqa") -> tuple[int, ...]:
    """A text of its own, or one that begins with the first `common` tokens of text 0 and departs from it there."""
    own, other = text_of(shape, LONGEST, seed), text_of(shape, LONGEST, 0)
    if common and own[common] == other[common]:
        own[common] = (own[common] + 1) % SHAPES[shape].vocab_size
    return (*other[:common], *own[common:])


def ask(told: tuple[int, ...], prompt: int, new: int, name: str = "", **options: object) -> Request:
    """A request for `new` tokens after the first `prompt` of a text, which are those that follow there."""
    assert prompt + new <= len(told), f"{prompt} + {new} of {len(told)} tokens"
    WHOLE[told[: prompt + new]] = told
    return Request(told[:prompt], new, forced=told[prompt : prompt + new], name=name or f"{prompt}+{new}", **options)


WHOLE: dict[tuple[int, ...], tuple[int, ...]] = {}  # beginning -> the text: the oracle reads each text once


def right_logits(request: Request, shape: str = "gqa") -> Tensor:
    """The oracle's logits [new tokens, V]."""
    told = (*request.prompt, *request.forced)
    return truth(shape, WHOLE[told])[len(request.prompt) - 1 : len(told) - 1]


def serve(make: Build, arrivals: Arrivals, shape: str = "gqa", after: Callable[[Engine], None] | None = None) -> "Day":
    """Serve requests, free memory poisoned all the time; `after` is called after each step."""
    return Day(make(model_of(shape)), arrivals, after)


class Day:
    """An engine's answers by name, and how often each sequence was said to have got a token."""

    def __init__(self, engine: Engine, arrivals: Arrivals, after: Callable[[Engine], None] | None = None) -> None:
        self.engine, self.served, self.got = engine, {}, Counter()
        engine.cache.fill_free(torch.nan)
        todo = sorted(arrivals, key=lambda arrival: arrival[0])
        assert len({request.name for _, request in todo}) == len(todo), "two requests have the same name"
        for step in range(MOST_STEPS):
            while todo and todo[0][0] <= step:
                request = todo.pop(0)[1]
                self.served[request.name] = engine.submit(request)
            if not (todo or engine.waiting or engine.running):
                break
            self.got.update(sequence.name for sequence in engine.step())
            if after is not None:
                after(engine)
            engine.cache.fill_free(torch.nan)
        else:
            raise AssertionError(f"not finished after {MOST_STEPS} steps")
        assert not any(engine.cache.lengths), f"rows still hold {engine.cache.lengths} tokens"

    def __getitem__(self, name: str) -> Served:
        return self.served[name]

    def are_right(self, shape: str = "gqa") -> "Day":
        for sequence in self.served.values():
            is_right(sequence, shape)
            assert self.got[sequence.name] == len(sequence.tokens), f"{sequence.name}: a token was lost, or came twice"
        return self


def is_right(sequence: Served, shape: str = "gqa") -> None:
    request = sequence.request
    assert sequence.finished and sequence.row is None, f"{sequence.name} is not finished"
    assert tuple(sequence.text) == (*request.prompt, *request.forced), f"{sequence.name} has another text"
    assert len(sequence.logits) == request.max_new_tokens, f"{sequence.name}: {len(sequence.logits)} choices"
    apart = difference(torch.stack(sequence.logits), right_logits(request, shape))
    assert apart <= TOLERANCE[torch.float64], f"{sequence.name}: {apart} from the oracle"


def block_of(make: Build) -> int:
    """How many tokens a block has; for a cache without blocks some number that tests it as well as any."""
    cache = make(model_of("gqa")).cache
    return cache.line if cache.line < cache.longest else 4


def shares(make: Build) -> bool:
    return make(model_of("gqa")).prefix is not None


# --- The checks: rows that come and go


def alone(make: Build) -> None:
    """One request at a time, in a new engine and after others in the same."""
    for shape in ("gqa", "mha", "mqa"):
        for prompt, new in ((1, 1), (1, 6), (2, 3), (17, 8), (40, 5)):
            serve(make, [(0, ask(text(1, shape=shape), prompt, new))], shape).are_right(shape)
    serve(make, [(20 * i, ask(text(i), 5 * i + 1, 6)) for i in range(4)]).are_right()


def together(make: Build) -> None:
    """Prompts of different lengths that are read in the same passes and finish at different times."""
    serve(make, [(0, ask(text(i), prompt, 8)) for i, prompt in enumerate((12, 3, 17, 1))]).are_right()
    serve(make, [(0, ask(text(i), 6, 1 + 3 * i, f"{i}")) for i in range(4)]).are_right()
    serve(make, [(0, ask(text(i), 7, 5, f"{i}")) for i in range(3)]).are_right()


def apart(make: Build) -> None:
    """Requests that come while others decode, with prompts shorter and longer than what those hold."""
    serve(make, [(3 * i, ask(text(i), prompt, 9)) for i, prompt in enumerate((9, 30, 2, 14))]).are_right()


def rows_are_reused(make: Build) -> None:
    """Three times as many requests as rows: each row is taken over at once, by shorter texts and by longer ones."""
    sizes = ((30, 2), (4, 9), (25, 6), (2, 3), (3, 30), (28, 3), (9, 4), (1, 12), (17, 5), (5, 5), (33, 2), (6, 7))
    requests = [ask(text(i % 6), prompt, new, f"{i}") for i, (prompt, new) in enumerate(sizes)]
    serve(make, [(0, request) for request in requests]).are_right()
    serve(make, [(2 * i, request) for i, request in enumerate(reversed(requests))]).are_right()


def rows_are_moved(make: Build) -> None:
    """Sequences move to the first free rows after every step, also in the middle of a prompt, and take all along."""
    sizes = ((3, 2), (9, 8), (21, 4), (5, 14), (31, 3), (2, 9), (12, 12))
    arrivals = [(i // 2, ask(text(i % 6), *size)) for i, size in enumerate(sizes)]

    def move(engine: Engine) -> None:
        before = [engine.cache.lengths[sequence.row] for sequence in engine.running]
        engine.compact()
        assert [engine.cache.lengths[sequence.row] for sequence in engine.running] == before, "a text stayed behind"

    serve(make, arrivals, after=move).are_right()


def other_neighbours(make: Build) -> None:
    """With neighbours of the same shapes but other content, not one bit of a row's logits changes."""
    sizes = ((21, 4), (3, 12), (9, 9), (14, 5), (2, 10), (30, 2))
    own = ask(text(0), 11, 9, "own")
    for place in (0, 4):
        seen = []
        for seeds in ((1, 2, 3, 4, 5, 6), (6, 5, 4, 3, 2, 1)):
            others = [(i, ask(text(seed), *size)) for i, (seed, size) in enumerate(zip(seeds, sizes))]
            day = serve(make, [*others[:place], (place, own), *((s + 1, r) for s, r in others[place:])])
            seen.append(torch.stack(day["own"].logits))
        assert torch.equal(*seen), f"neighbours change logits by {difference(*seen)}"


# --- The checks: memory that runs out


def preemption(make: Build) -> None:
    """More tokens than memory: sequences are put off between the chunks of their prompts and while they decode."""
    cache = make(model_of("gqa")).cache
    sizes = ((LONGEST - 30, 25), (LONGEST // 2, 30), (LONGEST - 12, 10), (8, 40), (LONGEST - 20, 15), (3, 50))
    sizes = [(min(prompt, cache.longest - new), new) for prompt, new in sizes]
    day = serve(make, [(2 * i, ask(text(i), *size, f"{i}")) for i, size in enumerate(sizes)]).are_right()
    if cache.longest == cache.slots:
        assert any(sequence.preempted for sequence in day.served.values()), "memory never ran out"


def preempted_in_a_chunk(make: Build) -> None:
    """A sequence is put off when it has read a part of its prompt, and one that has read all but not chosen."""
    for when in (2, 3, 5):
        engine = make(model_of("gqa"))
        arrivals = [(0, ask(text(0), 5, 12)), (1, ask(text(1), 25, 6)), (2, ask(text(2), 31, 3))]
        steps = iter(range(MOST_STEPS))

        def put_off(engine: Engine, when: int = when, steps: Iterable[int] = steps) -> None:
            if next(steps) in (when, when + 1, when + 6) and engine.running:
                engine.preempt()

        assert sum(sequence.preempted for sequence in Day(engine, arrivals, put_off).are_right().served.values()) > 0


def finished_and_put_off(make: Build) -> None:
    """Memory runs out between the pass in which the youngest sequence got its last token and the next."""
    engine = make(model_of("gqa"))
    forward = engine.forward

    def forward_or_full(group: list[Served], pieces: list[list[int]]) -> Tensor:
        if engine.running[-1].finished:
            engine.cache.check_room((0,), (10**6,))  # raises CacheFull
        return forward(group, pieces)

    engine.forward = forward_or_full
    arrivals = [(0, ask(text(0), 3, 20, "old")), *((3 + 8 * i, ask(text(1), 7 + i, 1)) for i in range(3))]
    day = Day(engine, arrivals).are_right()
    assert not any(sequence.preempted for sequence in day.served.values()), "a finished sequence was put off"


def forgotten_and_asked_again(make: Build) -> None:
    """A text is read, its memory is needed for others, and somebody begins as it did; again while others are served."""
    block = block_of(make)
    again = [(0, ask(text(0), 5 * block % 40 + 20, 3, "first"))]
    again += [(20 + 12 * i, ask(text(i), LONGEST - 12 - i, 6, f"{i}")) for i in range(1, 6)]
    for i, step in enumerate((50, 90, 130, 135)):
        again.append((step, ask(text(10 + i, common=17 + 5 * i), 30 + i, 4, f"again {i}")))
    serve(make, again).are_right()


# --- The checks: shared beginnings


def common_beginnings(make: Build) -> None:
    """Texts that agree up to every place around the boundaries of blocks, one after the other and side by side."""
    block = block_of(make)
    for common in sorted({1, max(block - 1, 1), block, block + 1, 2 * block}):
        for later in (0, 4, 40):
            first = ask(text(0), min(3 * block + 2, 40), 6, "first")
            prompt = min(max(common + 1, 3 * block), 44)
            second = ask(text(1, common), prompt, 6, "second")
            day = serve(make, [(0, first), (later, second)]).are_right()
            reused = day["second"].reused
            assert reused <= common, f"{reused} tokens reused, {common} agree"
            if shares(make) and later:
                assert reused >= common // block * block, f"{reused} tokens reused, {common} agree"


def the_same_prompt(make: Build) -> None:
    """All of a prompt was read before, of lengths around every multiple of a block: its last token is read again."""
    block = block_of(make)
    for prompt in sorted({1, max(block - 1, 1), block, block + 1, 2 * block}):
        requests = [
            ask(text(0), prompt, 5, "first"),
            ask(text(0), prompt, 7, "second"),
            ask(text(0), prompt, 3, "third"),
        ]
        day = serve(make, list(zip((0, 10, 11), requests))).are_right()
        for name in ("second", "third"):
            assert day[name].reused < prompt
            if shares(make):
                assert day[name].reused >= (prompt - 1) // block * block


def the_next_question(make: Build) -> None:
    """A prompt that goes on where an answer ended, with answers that end around the end of a block."""
    block = block_of(make)
    full = 2 * block if block > 2 else 8
    for end in (full - 1, full, full + 1):
        day = serve(make, [(0, ask(text(0), 3, end - 3, "first")), (45, ask(text(0), end + 2, 5, "next"))]).are_right()
        if shares(make):
            assert day["next"].reused < end, "the last token of an answer was never read"


def one_leaves_early(make: Build) -> None:
    """Of those who share a beginning one leaves, others need memory, and the rest go on with theirs."""
    begun = [(0, ask(text(0), 18, 9, "short")), (5, ask(text(1, 17), 20, 45, "long"))]
    begun.append((6, ask(text(2, 13), 19, 40, "other")))
    others = [(9 + 6 * i, ask(text(3 + i), LONGEST - 30 - i, 5, f"{i}")) for i in range(6)]
    serve(make, [*begun, *others]).are_right()


def nearly_the_same(make: Build) -> None:
    """Texts that agree in the middle of a block are read and continued side by side."""
    for common in (5, 6, 18):
        requests = [ask(text(i, common) if i else text(0), common + 1 + i, 9, f"{i}") for i in range(3)]
        for later in (1, 4):
            serve(make, [(later * i, request) for i, request in enumerate(requests)]).are_right()


def tenants(make: Build) -> None:
    """The same text with other salts: nothing is reused, whatever the salts have in common, and whether a block was
    filled by a prompt or by an answer.
    """
    block = block_of(make)
    prompt = min(2 * block + 2, 40)
    salts = ("", "a", "b", "a/b", "b/b", "a/a", "A")
    day = serve(make, [(12 * i, ask(text(0), prompt, 4, f"salt {salt}", salt=salt)) for i, salt in enumerate(salts)])
    assert all(not sequence.reused for sequence in day.are_right().served.values()), "tenants share a prefix"
    answered = [(0, ask(text(0), 2, prompt, "answered", salt="a"))]
    others = [salt for salt in salts if salt != "a"]
    asked = [(50 + 12 * i, ask(text(0), prompt, 4, f"salt {salt}", salt=salt)) for i, salt in enumerate(others)]
    day = serve(make, answered + asked)
    assert all(not sequence.reused for sequence in day.are_right().served.values()), "tenants share an answer"
    day = serve(make, [(12 * i, ask(text(0), prompt, 4, f"{i}", salt="a/b")) for i in range(2)]).are_right()
    assert bool(day["1"].reused) == shares(make)


# --- The checks: what is chosen


def drawn(make: Build) -> None:
    """What a request draws depends on its seed, not on its neighbours, their number, or the order of arrival."""
    requests = [
        replace(ask(text(i), 4 + 5 * i, 9, f"{i}"), forced=None, sampling=DRAWN, seed=seed)
        for i, seed in enumerate((3, 3, 8, 2**40))
    ]
    lone = [serve(make, [(0, request)])[request.name].tokens for request in requests]
    arrivals = list(enumerate(requests))
    for company in (arrivals, [(0, r) for r in requests], [(i, r) for i, r in enumerate(reversed(requests))]):
        day = serve(make, company)
        for request, tokens in zip(requests, lone):
            assert day[request.name].tokens == tokens, f"request {request.name} draws other tokens in company"
    twins = [replace(requests[0], name=f"seed {seed}", seed=seed) for seed in (3, 4, 5, 3)]
    twins[-1] = replace(twins[-1], name="seed 3 again")
    tokens = [tuple(sequence.tokens) for sequence in serve(make, [(0, twin) for twin in twins]).served.values()]
    assert tokens[0] == tokens[3] and len(set(tokens)) == 3


def drawn_when_memory_is_short(make: Build) -> None:
    """A sequence that is put off draws no token twice."""
    request = replace(ask(text(0), 9, 12, "own"), forced=None, sampling=DRAWN, seed=5)
    lone = serve(make, [(0, request)])["own"].tokens
    steps = iter(range(MOST_STEPS))

    def put_off(engine: Engine) -> None:
        if next(steps) in (3, 6, 7, 11) and engine.running:
            engine.preempt()

    day = serve(make, [(0, request)], after=put_off)
    assert day["own"].tokens == lone and len(day["own"].logits) == 12 == day.got["own"]


def likeliest(make: Build) -> None:
    """A greedy request gets the oracle's likeliest token each time, and stops where it is told to."""
    requests = [replace(ask(text(i), 3 + 4 * i, 8, f"{i}"), forced=None) for i in range(3)]
    day = serve(make, [(i, request) for i, request in enumerate(requests)])
    for request in requests:
        told = day[request.name].text
        right = truth("gqa", tuple(told[:-1]))[len(request.prompt) - 1 :]
        assert right.argmax(-1).tolist() == day[request.name].tokens
    stop = day["1"].tokens[3]
    stopped = serve(make, [(0, replace(requests[1], stop_tokens=(stop,)))])["1"]
    assert stopped.stopped and stopped.tokens == day["1"].tokens[: day["1"].tokens.index(stop) + 1]


# --- The engines that have to pass


def right_engines(caches: ModuleType = course_lib.caches, serving: ModuleType = course_lib.serving) -> dict[str, Build]:
    """Every kind of engine, made of the given modules: those of the library, or of a library with a bug in it."""

    def contiguous(chunk: int | None, compact: bool) -> Build:
        def make(model: Transformer) -> Engine:
            cache = caches.ContiguousCache(model.config, 3, LONGEST, model.dtype)
            return serving.Engine(model, cache, chunk=chunk, compact=compact, keep_logits=True)

        return make

    def paged(block_size: int, share: bool, chunk: int | None, compact: bool) -> Build:
        def make(model: Transformer) -> Engine:
            cache = caches.PagedCache(model.config, 3, 80 // block_size, block_size, model.dtype)
            prefix = caches.PrefixCache(cache) if share else None
            return serving.Engine(model, cache, prefix=prefix, chunk=chunk, compact=compact, keep_logits=True)

        return make

    kinds: dict[str, Callable[[int | None, bool], Build]] = {"contiguous": contiguous}
    for share in (False, True):
        for size in (1, 4, 16):
            kinds[f"blocks of {size}{', shared' * share}"] = partial(paged, size, share)
    ways = {"at once": (None, False), "chunks, compacted": (5, True)}
    found = {f"{kind}, {way}": make(*ways[way]) for kind, make in kinds.items() for way in ways}
    ways = {"chunks": (5, False), "compacted": (None, True)}
    return found | {
        f"{kind}, {way}": kinds[kind](*ways[way]) for kind in ("contiguous", "blocks of 4, shared") for way in ways
    }


CHECKS = {
    check.__name__: check
    for check in (
        alone, together, apart, rows_are_reused, rows_are_moved, other_neighbours, preemption, preempted_in_a_chunk,
        finished_and_put_off, forgotten_and_asked_again, common_beginnings, the_same_prompt, the_next_question,
        one_leaves_early, nearly_the_same, tenants, drawn, drawn_when_memory_is_short, likeliest,
    )
}  # fmt: skip


def batch_proof(make: Build, checks: Iterable[str] = CHECKS) -> dict[str, Exception]:
    """Run the checks; return the error of each that fails."""
    failed: dict[str, Exception] = {}
    for name in checks:
        try:
            CHECKS[name](make)
        except Exception as error:
            failed[name] = error
    return failed
