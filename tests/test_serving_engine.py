"""The engine beside its logits: who runs when, what is refused, and what an interrupt leaves behind.

The one idea: whatever happens between submit and finish, every sequence ends with the tokens of its lone run, and the
cache with nothing in it. That the logits are right is proved in batch_proof.py for every kind of engine.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
import torch
from shapes import SHAPES, TOLERANCE, difference, model_of, text_of, truth

from course_lib.caches import CacheFull, ContiguousCache, PagedCache, PrefixCache
from course_lib.generation import Sampling, generate
from course_lib.serving import Engine, Request, Sequence

SHAPE, MODEL = "gqa", model_of("gqa")
CONFIG = SHAPES[SHAPE]
HOT = Sampling(temperature=2.0, top_k=20)


def contiguous(rows: int = 3, capacity: int = 40, **options: object) -> Engine:
    return Engine(MODEL, ContiguousCache(CONFIG, rows, capacity, torch.float64), **options)


def paged(rows: int = 3, blocks: int = 20, block_size: int = 4, share: bool = False, **options: object) -> Engine:
    cache = PagedCache(CONFIG, rows, blocks, block_size, torch.float64)
    return Engine(MODEL, cache, prefix=PrefixCache(cache) if share else None, **options)


ENGINES: dict[str, Callable[[], Engine]] = {
    "contiguous": contiguous,
    "compacted": lambda: contiguous(compact=True),
    "paged": paged,
    "paged, small pool": lambda: paged(blocks=9, chunk=3),
    "shared prefixes": lambda: paged(share=True, compact=True),
    "shared prefixes, small pool": lambda: paged(blocks=9, share=True),
}
every_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)


def requests(count: int = 6) -> list[Request]:
    """Prompts of 3 to 18 tokens that begin alike, greedy and drawn, answers of 1 to 11 tokens."""
    common = text_of(SHAPE, 9)
    return [
        Request(
            (*common[: 2 + 2 * (i % 4)], *text_of(SHAPE, 1 + 5 * i % 11, seed=i)),
            1 + (4 * i) % 11,
            sampling=HOT if i % 2 else Sampling(),
            seed=i,
            name=f"request {i}",
        )
        for i in range(count)
    ]


def lone_run(request: Request) -> list[int]:
    return list(
        generate(
            MODEL,
            request.prompt,
            max_new_tokens=request.max_new_tokens,
            sampling=request.sampling,
            stop_tokens=request.stop_tokens,
            seed=request.seed,
            warm_up=False,
        ).tokens
    )


def assert_all_as_alone(engine: Engine, sequences: list[Sequence]) -> None:
    for sequence in sequences:
        assert sequence.finished and sequence.row is None, sequence.name
        assert sequence.tokens == lone_run(sequence.request), sequence.name
    assert not engine.running and not engine.waiting
    assert set(engine.cache.lengths) == {0}
    if isinstance(engine.cache, PagedCache):
        assert engine.cache.pool.free == len(engine.cache.pool.references)


# --- Who runs when


@every_engine
def test_each_request_gets_the_tokens_of_its_lone_run(make: Callable[[], Engine]) -> None:
    engine = make()
    sequences = [engine.submit(request) for request in requests()]
    engine.run()
    assert_all_as_alone(engine, sequences)


@every_engine
def test_requests_may_come_at_any_time(make: Callable[[], Engine]) -> None:
    engine, sequences = make(), []
    for request in requests():
        sequences.append(engine.submit(request))
        engine.step()
    engine.run()
    assert_all_as_alone(engine, sequences)


def test_requests_are_admitted_in_the_order_in_which_they_came() -> None:
    engine = contiguous(rows=2)
    sequences = [engine.submit(Request((1, 2), 4 - i)) for i in range(4)]
    admitted: list[Sequence] = []
    while engine.waiting or engine.running:
        engine.step()
        admitted += [sequence for sequence in sequences if len(sequence.tokens) and sequence not in admitted]
    assert admitted == sequences


def test_a_row_is_reused_in_the_step_after_it_was_released() -> None:
    engine = contiguous(rows=1)
    first, second = engine.submit(Request((1, 2, 3), 2)), engine.submit(Request((4,), 1))
    assert engine.step() == [first] and first.row == 0 and second.row is None
    assert engine.step() == [first] and first.finished and first.row is None and engine.cache.lengths == (0,)
    assert engine.step() == [second] and second.finished


def test_a_step_reads_prompts_together_and_single_tokens_together() -> None:
    engine = contiguous()
    passes: list[tuple[list[str], list[int]]] = []
    engine.observers.append(lambda group, counts: passes.append(([s.name for s in group], counts)))
    for name, length in (("a", 5), ("b", 2)):
        engine.submit(Request(tuple(text_of(SHAPE, length)), 3, name=name))
    engine.step()
    engine.submit(Request(tuple(text_of(SHAPE, 7)), 2, name="c"))
    engine.step()
    assert passes == [(["a", "b"], [5, 2]), (["c"], [7]), (["a", "b"], [1, 1])]


def test_texts_share_a_pass_with_others_of_about_their_length() -> None:
    engine, passes = contiguous(rows=8, chunk=32), []
    engine.observers.append(lambda _, counts: passes.append(sorted(counts)))
    for count in (1, 2, 15, 16, 31, 32, 40, 1):
        engine.submit(Request(text_of(SHAPE, count), 1))
    engine.step()
    assert passes == [[32, 32], [16, 31], [2, 15], [1, 1]]


def test_a_chunk_bounds_what_a_sequence_reads_in_a_pass() -> None:
    engine = contiguous(chunk=4)
    counts: list[list[int]] = []
    engine.observers.append(lambda _, read: counts.append(read))
    sequence = engine.submit(Request(tuple(text_of(SHAPE, 9)), 2))
    assert [len(engine.step()) for _ in range(4)] == [0, 0, 1, 1]
    assert counts == [[4], [4], [1], [1]] and sequence.finished


def test_a_stop_token_ends_a_sequence_and_is_among_its_tokens() -> None:
    prompt = tuple(text_of(SHAPE, 6))
    tokens = lone_run(Request(prompt, 8))
    engine = paged()
    sequence = engine.submit(Request(prompt, 8, stop_tokens=(tokens[3],)))
    engine.run()
    assert sequence.stopped and sequence.tokens == tokens[: tokens.index(tokens[3]) + 1]


def test_compaction_keeps_the_running_in_the_first_rows() -> None:
    engine = contiguous(rows=4, compact=True)
    for i in range(4):
        engine.submit(Request((i + 1, 2), 2 + 3 * (i % 2)))
    while engine.waiting or engine.running:
        engine.step()
        rows = sorted(sequence.row for sequence in engine.running)
        assert rows == list(range(len(rows)))
        assert engine.given == set(rows), "a row that was left is nobody's: what others write there is not taken away"
        assert [length > 0 for length in engine.cache.lengths] == [row < len(rows) for row in range(4)]
    assert engine.cache.copied_bytes == 0, "rows side by side are read where they lie"


# --- A full cache


def test_the_youngest_makes_room_and_loses_nothing() -> None:
    engine = paged(rows=3, blocks=6, block_size=4)
    sequences = [engine.submit(Request(tuple(text_of(SHAPE, 7, seed=i)), 8, HOT, seed=i)) for i in range(3)]
    put_off: list[str] = []
    while engine.waiting or engine.running:
        before = list(engine.running)
        engine.step()
        for sequence in before:
            if not sequence.finished and sequence.row is None:
                put_off.append(sequence.name)
                assert engine.waiting[0] is sequence, "it is the next to run"
    assert put_off and sequences[0].preempted == 0 and sum(s.preempted for s in sequences) == len(put_off)
    assert_all_as_alone(engine, sequences)


@pytest.mark.parametrize("chunk", [1, 2, 3, None])
def test_preemption_in_the_middle_of_a_prompt(chunk: int | None) -> None:
    """The first sequence grows into the blocks that the second, still reading its prompt, has taken."""
    engine = paged(rows=2, blocks=6, block_size=4, chunk=chunk)
    first = engine.submit(Request(tuple(text_of(SHAPE, 3)), 20, HOT))
    second = engine.submit(Request(tuple(text_of(SHAPE, 17, seed=1)), 6, HOT, seed=1))
    engine.run()
    assert second.preempted > 0 == first.preempted
    assert_all_as_alone(engine, [first, second])


def test_a_sequence_as_long_as_the_whole_pool_runs_alone() -> None:
    engine = paged(rows=3, blocks=6, block_size=4)
    small, large = engine.submit(Request((1, 2, 3), 9)), engine.submit(Request(tuple(text_of(SHAPE, 20)), 5))
    engine.run()
    assert_all_as_alone(engine, [small, large])


def test_sharing_lets_more_run_at_once_and_needs_no_hit() -> None:
    common = tuple(text_of(SHAPE, 16))
    runs = {}
    for share in (False, True):
        engine = paged(rows=4, blocks=12, block_size=4, share=share)
        first = engine.submit(Request((*common, 1), 2))
        engine.run()
        others = [engine.submit(Request((*common, 2 + i), 4)) for i in range(4)]
        most = 0
        while engine.waiting or engine.running:
            engine.step()
            most = max(most, len(engine.running))
        assert_all_as_alone(engine, [first, *others])
        runs[share] = most
        assert [s.reused for s in others] == [16 * share] * 4
        if share:
            statistics = engine.prefix.statistics
            assert (statistics.lookups, statistics.hits, statistics.reused_tokens) == (5, 4, 64)
            assert engine.prefix.reused_bytes == 64 * engine.cache.token_bytes
    assert runs[True] > runs[False]


def test_a_request_that_cannot_run_yet_is_not_counted_as_a_lookup() -> None:
    engine = paged(rows=2, blocks=6, block_size=4, share=True)
    sequences = [engine.submit(Request(tuple(text_of(SHAPE, 17, seed)), 6)) for seed in (0, 1)]
    for _ in range(3):
        engine.step()
        assert engine.running == sequences[:1] and engine.prefix.statistics.lookups == 1
    engine.run()
    assert engine.prefix.statistics.lookups == 2
    assert_all_as_alone(engine, sequences)


# --- Interrupts


@every_engine
@pytest.mark.parametrize("where", ["admit", "unread", "forward", "choose", "preempt", "leave", "compact"])
def test_an_interrupt_at_any_moment_loses_nothing(
    make: Callable[[], Engine], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call in ten is interrupted before it does its work, one in ten after."""
    engine, random = make(), Random(where)
    sequences = [engine.submit(request) for request in requests()]
    original = getattr(Engine, where)

    def interrupted(self: Engine, *arguments: object) -> object:
        moment = random.choices(("before", "after", "never"), (1, 1, 8))[0]
        if moment == "before":
            raise KeyboardInterrupt
        result = original(self, *arguments)
        if moment == "after":
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(Engine, where, interrupted)
    interrupts = 0
    for _ in range(2000):
        if not (engine.waiting or engine.running):
            break
        try:
            engine.step()
        except KeyboardInterrupt:
            interrupts += 1
    assert interrupts or where in ("preempt", "compact"), "not every engine comes to these"
    assert_all_as_alone(engine, sequences)


class Interrupted:
    """In a `with` block, call number `at` of a method of an object is Ctrl-C."""

    def __init__(self, owner: object, name: str, at: int) -> None:
        self.owner, self.name, self.at, self.calls = owner, name, at, 0

    def __enter__(self) -> None:
        self.original = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.call)

    def call(self, *arguments: object) -> object:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return self.original(*arguments)

    def __exit__(self, kind: type | None, *details: object) -> bool:
        delattr(self.owner, self.name)
        return kind is KeyboardInterrupt


def test_what_an_interrupted_admission_took_is_free_when_the_sequence_is_cancelled() -> None:
    """The survivor needs the whole pool, and the blocks that were found for the other one are part of it."""
    engine = paged(rows=2, blocks=6, share=True)
    prompt = tuple(text_of(SHAPE, 12))
    engine.submit(Request(prompt, 1))
    engine.run()
    survivor = engine.submit(Request(tuple(text_of(SHAPE, 5, seed=1)), 20))
    engine.step()
    other = engine.submit(Request((*prompt, 3), 2))
    with Interrupted(engine.cache, "fits", 1):
        engine.step()
    assert engine.cache.lengths[1] == 12, "it was interrupted after it found a beginning"
    engine.cancel(other)
    assert engine.cache.lengths[1] == 0
    engine.run()
    assert_all_as_alone(engine, [survivor])


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_move_that_is_interrupted_leaves_no_second_copy_in_the_way(at: int) -> None:
    engine = paged(rows=2, blocks=6, compact=True)
    engine.submit(Request(tuple(text_of(SHAPE, 2)), 1))
    survivor = engine.submit(Request(tuple(text_of(SHAPE, 2, seed=1)), 23))
    with Interrupted(engine.cache, "release", at):
        engine.step()
    engine.run()
    assert_all_as_alone(engine, [survivor])


def test_nothing_is_left_when_the_last_step_was_interrupted_as_it_ended() -> None:
    engine = paged(rows=2, compact=True)
    sequences = [engine.submit(Request(tuple(text_of(SHAPE, 4, seed=i)), 1)) for i in range(2)]
    with Interrupted(engine.cache, "release", 2):
        engine.step()
    engine.run()
    assert_all_as_alone(engine, sequences)


def test_a_planned_step_after_an_interrupt_needs_no_room_for_what_it_reads_again() -> None:
    engine = paged(rows=1, blocks=2)
    sequence = engine.submit(Request(tuple(text_of(SHAPE, 8)), 1))
    engine.admit()
    with Interrupted(engine, "choose", 1):
        engine.step()
    assert engine.cache.lengths == (8,) and not sequence.tokens
    engine.carry_out([], [], {sequence: 1})
    assert_all_as_alone(engine, [sequence])


@pytest.mark.parametrize("compact", [False, True])
def test_who_watches_a_pass_may_cancel_one_of_it(compact: bool) -> None:
    engine = paged(compact=compact)
    sequences = [engine.submit(Request(tuple(text_of(SHAPE, 4, seed=i)), 6)) for i in range(3)]
    engine.step()
    before = [list(sequence.tokens) for sequence in sequences]
    engine.observers.append(lambda group, counts: engine.cancel(sequences[0]))
    engine.run()
    assert sequences[0].tokens == before[0] and sequences[0].row is None
    assert_all_as_alone(engine, sequences[1:])


def test_a_draw_that_is_interrupted_was_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = contiguous(keep_logits=True)
    sequence = engine.submit(Request((1, 2, 3), 8, HOT, seed=3))
    multinomial, moments = torch.multinomial, iter((0, 1, 0, 1, 1) + (0,) * 99)

    def interrupted(*arguments: object, **options: object) -> torch.Tensor:
        drawn = multinomial(*arguments, **options)
        if next(moments):
            raise KeyboardInterrupt
        return drawn

    with monkeypatch.context() as patched:
        patched.setattr(torch, "multinomial", interrupted)
        while not sequence.finished:
            with suppress(KeyboardInterrupt):
                engine.step()
    assert sequence.tokens == lone_run(sequence.request) and len(sequence.logits) == 8


def test_an_error_in_the_model_leaves_the_engine_as_it_was() -> None:
    engine = paged()
    sequences = [engine.submit(request) for request in requests(2)]
    engine.step()

    def fail(*_: object) -> None:
        raise MemoryError

    hook = MODEL.layers[1].register_forward_hook(fail)
    held = engine.cache.lengths
    with pytest.raises(MemoryError):
        engine.step()
    hook.remove()
    assert engine.cache.lengths == held
    engine.run()
    assert_all_as_alone(engine, sequences)


# --- What is refused


def test_what_could_never_fit_is_refused_when_it_is_submitted() -> None:
    for engine, most in ((contiguous(capacity=12), 12), (paged(blocks=3, block_size=4), 12)):
        with pytest.raises(ValueError, match=r"9 prompt tokens and 5 new ones need 13 positions, a row can have 12"):
            engine.submit(Request((1,) * 9, 5))
        engine.submit(Request((1,) * 9, most - 8))
        engine.run()
    with pytest.raises(ValueError, match="need 257 positions, the model knows 256"):
        contiguous(capacity=300).submit(Request((1,) * 200, 58))
    assert not engine.waiting


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: Request((), 1), "the prompt is empty"),
        (lambda: Request("abc", 1), "a token of the prompt must be a whole number, not 'a'"),
        (lambda: Request((1.5,), 1), "must be a whole number, not 1.5"),
        (lambda: Request((1,), 0), "max_new_tokens must be at least 1, not 0"),
        (lambda: Request((1,), 1.5), "max_new_tokens must be a whole number"),
        (lambda: Request((1,), 1, seed=-1), "the seed must be a whole number from 0"),
        (lambda: Request((1,), 1, salt=None), "the salt must be a printable text, not None"),
        (lambda: Request((1,), 1, salt="\ud800"), "the salt must be a printable text"),
        (lambda: Request((1,), 1, sampling=None), "sampling must be a Sampling"),
        (lambda: Request((1,), 1, stop_tokens=5), "stop_tokens must be a collection of token ids, not 5"),
        (lambda: Request((1,), 1, stop_tokens="ab"), "a stop token must be a whole number, not '"),
        (lambda: contiguous(chunk=2.5), "the chunk must be a whole number"),
        (lambda: Request((1,), 3, forced=(1, 2)), "2 forced tokens for 3 new ones"),
        (lambda: contiguous().submit(Request((31,), 1)), "the prompt holds token 31, the model has 0 to 30"),
        (lambda: contiguous().submit(Request((1,), 1, forced=(99,))), "the forced tokens holds token 99"),
        (lambda: contiguous(chunk=0), "a chunk has at least one token, not 0"),
        (
            lambda: Engine(MODEL, ContiguousCache(CONFIG, 1, 8), prefix=PrefixCache(paged().cache)),
            "finds blocks of another cache",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


def test_a_request_keeps_what_was_asked_for() -> None:
    """Tensors and lists that somebody changes later change nothing."""
    tokens = lone_run(Request((1, 2, 3), 6))
    new, stops, seed = torch.tensor(6), [torch.tensor(tokens[4])], torch.tensor(0)
    request = Request((1, 2, 3), new, stop_tokens=stops, seed=seed)
    new += 5
    stops.clear()
    engine = contiguous()
    sequence = engine.submit(request)
    engine.run()
    assert sequence.tokens == tokens[: tokens.index(tokens[4]) + 1]


def test_two_engines_on_one_cache_are_noticed_before_a_row_is_lost() -> None:
    cache = ContiguousCache(CONFIG, 2, 40, torch.float64)
    first, second = Engine(MODEL, cache), Engine(MODEL, cache)
    sequence = first.submit(Request((1, 2, 3, 4), 12))
    first.step()
    second.submit(Request((5, 6), 4))
    with pytest.raises(ValueError, match="row 0 of the cache holds 4 tokens that are not this engine's"):
        second.step()
    first.run()
    assert sequence.tokens == lone_run(sequence.request)
    second.run()  # now the rows are free


def test_a_prefix_cache_serves_one_model() -> None:
    engine = paged(share=True)
    other = model_of("gqa", torch.float32)
    with pytest.raises(ValueError, match="keys and values of another model"):
        Engine(other, engine.cache, prefix=engine.prefix)


def test_who_waits_for_room_that_somebody_else_holds_is_told_so() -> None:
    engine = paged(rows=2, blocks=4, block_size=4)
    MODEL(torch.tensor([[1] * 13]), engine.cache, rows=[1])
    engine.submit(Request((5,) * 6, 3))
    with pytest.raises(CacheFull):
        engine.run()
    engine.cache.release(1)
    engine.run()


def test_a_cache_that_holds_something_is_refused() -> None:
    cache = ContiguousCache(CONFIG, 2, 8, torch.float64)
    MODEL(torch.tensor([[1, 2]]), cache, rows=[1])
    with pytest.raises(ValueError, match=r"hold \(0, 2\) tokens of other texts: release them first"):
        Engine(MODEL, cache)


def test_a_pool_that_others_use_is_full_at_last() -> None:
    """Somebody else's row in the same cache cannot be preempted: the error says so instead of an endless loop."""
    engine = paged(rows=2, blocks=2, block_size=4)
    sequence = engine.submit(Request((1, 2, 3), 6))
    engine.step()
    engine.cache.pool.take()
    with pytest.raises(CacheFull):
        engine.run()
    assert sequence.tokens == lone_run(sequence.request)[: len(sequence.tokens)]


# --- Logits


def test_logits_are_kept_for_each_new_token_and_equal_the_oracle() -> None:
    engine = contiguous(keep_logits=True)
    sequence = engine.submit(Request(tuple(text_of(SHAPE, 5)), 4, forced=(1, 2, 3, 4)))
    engine.run()
    assert sequence.tokens == [1, 2, 3, 4]
    got = torch.stack(sequence.logits)
    assert difference(got, truth(SHAPE, tuple(sequence.text))[4:8]) <= TOLERANCE[torch.float64]
