"""The bug museum: right engines pass the whole proof, each exhibit fails a check of it and passes with its line mended,
and the four tools say of each exhibit what notebook 05 says they do.

The guide is trained when the tests begin, so nothing here counts on a particular word or loss, only on which logits,
layers, tokens and requests are off: these follow from the schedule of the day.
"""

from dataclasses import dataclass
from functools import lru_cache
from random import Random

import pytest
import torch
from batch_proof import CHECKS, Build, batch_proof, right_engines
from shapes import TOLERANCE, model_of, text_of, truth

from course_lib.caches import ContiguousCache
from course_lib.divergence import Divergence, record
from course_lib.museum import (
    EXHIBITS,
    Comparison,
    Exhibit,
    House,
    Visit,
    against_fresh,
    as_it_likes,
    compare,
    guide,
    museum_day,
    serve,
    where,
    with_other_neighbours,
    with_poison,
)
from course_lib.museum.collection import BLOCKS, COMPACTED, FORKS, PREFIXES, ROWS
from course_lib.museum.day import largest_difference
from course_lib.museum.exhibit import CHUNK, mended_part
from course_lib.museum.guide import TALK, words
from course_lib.museum.masks import ShortTable
from course_lib.museum.tools import FreshReport, NeighbourReport, PoisonReport, WhereReport, other_words, whole_text
from course_lib.serving import Engine, Request, Sequence

RIGHT = right_engines()
HOUSES = {"rows": ROWS, "compacted": COMPACTED, "blocks": BLOCKS, "prefixes": PREFIXES, "forks": FORKS}
every_exhibit = pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
every_house = pytest.mark.parametrize("house", HOUSES.values(), ids=HOUSES)

# Errors of an engine that does not run at all, and so teaches nothing.
BROKEN_DIFFERENTLY = (NameError, AttributeError, TypeError, SyntaxError, ImportError)


@dataclass(frozen=True)
class Signs:
    """What is known of an exhibit: the check of the proof that is meant to see it, and what the tools say.

    part: which part of layer 0 differs first: "position" (its keys alone), "token" (keys and values), "attention" (its
    output), or "" if no layer differs. tokens: where, see `FIRST`. alone: whether a request is off without company.
    """

    seen_by: str
    part: str
    tokens: str = ""
    alone: bool = False
    poison: bool = False
    neighbours: bool = False


SIGNS = {
    "stranger": Signs("other_neighbours", "", neighbours=True),
    "first-word": Signs("together", ""),
    "company": Signs("together", "position", "in the answer"),
    "long-question": Signs("alone", "attention", "the second chunk", alone=True),
    "long-talk": Signs("alone", "position", "the end of the table", alone=True),
    "every-word": Signs("alone", "attention", "the first decode", alone=True),
    "lost-thread": Signs("alone", "position", "the first decode", alone=True),
    "short-question": Signs("together", "position", "in the prompt"),
    "crowd": Signs("preempted_in_a_chunk", "token", "the beginning"),
    "bill": Signs("drawn_when_memory_is_short", ""),
    "dice": Signs("drawn", ""),
    "goodbye": Signs("rows_are_moved", "attention", neighbours=True),
    "reader": Signs("alone", "attention", "the second chunk", alone=True),
    "beginning": Signs("alone", "attention", "the beginning", alone=True, poison=True),
    "shade": Signs("apart", "attention", "in the answer"),
    "morning": Signs("rows_are_reused", "attention", "in the answer", poison=True, neighbours=True),
    "evening": Signs("forgotten_and_asked_again", "attention", "after what was reused", neighbours=True),
    "sharing": Signs("one_leaves_early", "attention", "within the answer", neighbours=True),
    "twins": Signs("nearly_the_same", "attention", "in the answer", neighbours=True),
    "return": Signs("the_next_question", "attention", "after what was reused"),
    "walls": Signs("tenants", ""),
}

# What the logits of a given text cannot show: how a word is drawn, and what is reused though it is right.
NOT_IN_LOGITS = {"dice", "walls"}


def decoded_from(request: Request) -> int:
    """The first token that is read on its own: the first new one, or the last of a prompt that a chunk leaves over."""
    return len(request.prompt) - (len(request.prompt) % CHUNK == 1)


FIRST = {  # whether a token is there, in a request whose reading began at `start`
    "": lambda token, request, start: True,
    "the beginning": lambda token, request, start: token == 0,
    "the second chunk": lambda token, request, start: token == CHUNK,
    "the end of the table": lambda token, request, start: token == ShortTable.table,
    "the first decode": lambda token, request, start: token == decoded_from(request),
    "in the prompt": lambda token, request, start: token < len(request.prompt),
    "in the answer": lambda token, request, start: token >= decoded_from(request),
    "within the answer": lambda token, request, start: token > decoded_from(request),
    "after what was reused": lambda token, request, start: token == start > 0,
}

# Words of what is told about an exhibit, and the sign that they stand for.
PART_TOLD = {
    "keys of layer 0 differ while its values are right": "position",
    "keys and values of layer 0 differ": "token",
    "the output of layer 0 differs": "attention",
    "the output, mostly of layer 0": "attention",
    "no layer differs": "",
}
PLACE_TOLD = {
    "at tokens of decode": "in the answer",
    "the first token of decode": "the first decode",
    "the first token after the reused ones": "after what was reused",
    "at token 0": "the beginning",
    "from token 0 on": "the beginning",
    "the first token of the second chunk": "the second chunk",
    "from the same position on in every text": "the end of the table",
    "in the middle of an answer": "within the answer",
    "within the prompt": "in the prompt",
}
COMPANY_TOLD = {"in company only": False, "alone and in company": True, "even alone": True}


@lru_cache
def compared(name: str) -> Comparison:
    exhibit = exhibit_called(name)
    return compare(exhibit.engine, exhibit.right)


def exhibit_called(name: str) -> Exhibit:
    return next(exhibit for exhibit in EXHIBITS if exhibit.name == name)


def part_of(divergence: Divergence) -> str:
    if divergence.part == "output":
        return "attention"
    return "token" if "values" in divergence.parts else "position"


# --- The proof


@pytest.mark.parametrize("make", RIGHT.values(), ids=RIGHT)
def test_every_right_engine_passes_the_proof(make: Build) -> None:
    assert batch_proof(make) == {}


@every_exhibit
def test_an_exhibit_fails_the_check_that_is_meant_to_see_it(exhibit: Exhibit) -> None:
    failed = batch_proof(exhibit.engine, [SIGNS[exhibit.name].seen_by])
    assert failed
    assert not any(isinstance(error, BROKEN_DIFFERENTLY) for error in failed.values()), failed


@every_exhibit
def test_an_exhibit_with_its_one_line_mended_passes_the_proof(exhibit: Exhibit) -> None:
    checks = {SIGNS[exhibit.name].seen_by, "together", "rows_are_reused", "preemption"}
    assert batch_proof(exhibit.mended, sorted(checks, key=list(CHECKS).index)) == {}


# --- What the tools say


@every_house
def test_the_tools_find_nothing_in_a_right_engine(house: House) -> None:
    fresh = against_fresh(house.open)
    assert fresh.wrong == () and all(request.same_tokens for request in fresh.requests.values())
    assert set(where(house.open).found.values()) == {None}
    assert with_poison(house.open).reached == {}
    assert set(with_other_neighbours(house.open).changed.values()) == {0}
    comparison = compare(house.open)
    assert comparison.same_text and comparison.difference < 1e-4 and abs(comparison.loss_change) < 1e-4


@every_exhibit
def test_the_diagnosis_of_an_exhibit(exhibit: Exhibit) -> None:
    signs = SIGNS[exhibit.name]
    fresh, found = against_fresh(exhibit.engine), where(exhibit.engine).found
    assert any(request.in_company > fresh.tolerance for request in fresh.requests.values()) == (
        exhibit.name not in NOT_IN_LOGITS
    )
    assert any(request.alone > fresh.tolerance for request in fresh.requests.values()) == signs.alone
    assert bool(with_poison(exhibit.engine).reached) == signs.poison
    assert any(with_other_neighbours(exhibit.engine).changed.values()) == signs.neighbours

    divergences = [divergence for divergence in found.values() if divergence is not None]
    assert {part_of(divergence) for divergence in divergences} == ({signs.part} if signs.part else set())
    assert not divergences or min(divergence.layer for divergence in divergences) == 0
    if "mostly of layer 0" not in exhibit.tells:
        assert {divergence.layer for divergence in divergences} <= {0}
    starts = first_tokens_read(exhibit) if signs.tokens == "after what was reused" else {}
    requests = {visit.name: visit.request for visit in museum_day()}
    for one in divergences:
        assert FIRST[signs.tokens](one.token, requests[one.name], starts.get(one.name, 0)), str(one)


@every_exhibit
def test_what_is_told_of_an_exhibit_is_its_diagnosis(exhibit: Exhibit) -> None:
    signs, told = SIGNS[exhibit.name], exhibit.tells
    parts = [part for words, part in PART_TOLD.items() if words in told]
    places = [place for words, place in PLACE_TOLD.items() if words in told]
    assert parts in ([], [signs.part]) and places in ([], [signs.tokens])
    assert parts or places or "where:" not in told
    assert all(alone == signs.alone for words, alone in COMPANY_TOLD.items() if words in told)


def test_whoever_is_off_after_a_goodbye_was_moved() -> None:
    engine = exhibit_called("goodbye").engine(guide().model)
    move, moved = engine.cache.move_row, set()

    def noted(source: int, target: int) -> None:
        moved.add(next(sequence.request.name for sequence in engine.running if sequence.row == source))
        move(source, target)

    engine.cache.move_row = noted
    serve(engine, museum_day())
    found = where(exhibit_called("goodbye").engine).found
    assert {name for name, divergence in found.items() if divergence} <= moved < set(found)


def first_tokens_read(exhibit: Exhibit) -> dict[str, int]:
    """The position at which each request of the day began to read: what lies before was found in the cache."""
    engine = exhibit.engine(guide().model)
    with record(engine.model) as recorder:
        engine.observers.append(recorder.observe)
        serve(engine, museum_day())
    return {name: trace.positions[0] for name, trace in recorder.traces.items()}


def test_logits_of_the_first_word_are_off_alone() -> None:
    requests = against_fresh(exhibit_called("first-word").engine).requests
    assert {request.first for request in requests.values()} == {0, None}


def test_one_choice_too_many_is_seen() -> None:
    served = serve(exhibit_called("bill").engine(guide().model), museum_day())
    preempted = {name for name, sequence in served.items() if sequence.preempted}
    assert (
        {name for name, sequence in served.items() if len(sequence.logits) > len(sequence.tokens)} == preempted != set()
    )


def test_those_who_draw_say_something_else_in_company() -> None:
    requests = against_fresh(exhibit_called("dice").engine).requests
    changed = {name for name, request in requests.items() if not request.same_tokens}
    draws = {visit.name for visit in museum_day() if visit.request.sampling.temperature}
    assert changed and changed <= draws


def test_twins_change_each_other_and_nobody_else() -> None:
    changed = with_other_neighbours(exhibit_called("twins").engine).changed
    twins = [visit for visit in museum_day() if changed[visit.name]]
    assert len(twins) == 2
    first, second = (whole_text(visit.request) for visit in twins)
    common = next(i for i, (a, b) in enumerate(zip(first, second)) if a != b)
    assert common % 4, "they depart within a block"


def test_walls_show_in_what_is_reused_alone() -> None:
    answers = compared("walls").answers
    reused = {answer.name: (answer.right_reused, answer.reused) for answer in answers}
    assert [name for name, (right, broken) in reused.items() if broken > right] == ["ida"]
    assert max(answer.difference for answer in answers) < 1e-4
    assert "→" in str(compared("walls"))


# --- Why logits


@every_exhibit
def test_every_exhibit_is_seen_by_logits_or_says_why_not(exhibit: Exhibit) -> None:
    assert (compared(exhibit.name).difference > 1e-2) == (exhibit.name not in NOT_IN_LOGITS)


def test_some_exhibits_change_neither_a_word_nor_the_loss_by_5_percent() -> None:
    hidden = {
        exhibit.name
        for exhibit in EXHIBITS
        if (seen := compared(exhibit.name)).same_text and abs(seen.loss_change) < 0.05 and seen.difference > 0.1
    }
    assert len(hidden) >= 3, hidden


# --- Exhibits are readable


def test_there_are_a_dozen_exhibits_or_more_and_each_has_signs() -> None:
    assert len(EXHIBITS) >= 12
    assert [exhibit.name for exhibit in EXHIBITS] == list(SIGNS)


@every_exhibit
def test_an_exhibit_is_short_and_has_its_wrong_line_once(exhibit: Exhibit) -> None:
    lines = exhibit.source.strip().split("\n")
    assert len(lines) <= 22
    assert [line.strip() for line in lines].count(exhibit.wrong) == 1
    assert exhibit.mend not in [line.strip() for line in lines]
    assert "wrong" not in exhibit.source.lower() and "bug" not in exhibit.source.lower()


@every_exhibit
def test_an_exhibit_has_all_that_is_told_about_it(exhibit: Exhibit) -> None:
    for text in (exhibit.title, exhibit.cause):
        assert text.endswith(".") and text[0].isupper()
    assert exhibit.seen_in and exhibit.tells.split(":")[0] in (
        "against_fresh", "where", "with_poison", "with_other_neighbours", "compare",
    )  # fmt: skip
    assert exhibit.cause not in exhibit.title


def test_titles_and_causes_are_unlike_each_other() -> None:
    for field in ("name", "title", "part", "cause", "wrong"):
        assert len({getattr(exhibit, field) for exhibit in EXHIBITS}) == len(EXHIBITS), field


def test_titles_name_no_part_of_the_machine() -> None:
    told = " ".join(exhibit.title.lower() for exhibit in EXHIBITS)
    for word in ("mask", "position", "row", "block", "slot", "pad", "key", "value", "generator", "chunk", "cache"):
        assert word not in words(told), word


def test_a_line_that_is_not_there_once_cannot_be_mended() -> None:
    with pytest.raises(ValueError, match="occurs 0 times in ShortTable"):
        mended_part(ShortTable, "last = 31", "last = 95")
    with pytest.raises(ValueError, match=r"occurs \d+ times in ContiguousCache"):
        mended_part(ContiguousCache, "@property", "@cached_property")


# --- The day and the guide


def test_the_guide_answers_every_question_with_the_usual_words() -> None:
    known = guide()
    for talk in TALK:
        question, answer = talk.split("? ")
        usual = [choice.split("|")[0].lstrip("{") for choice in words_of(answer)]
        tokens = known.encode(question + "?")
        with torch.inference_mode():
            for _ in usual:
                tokens.append(int(known.model(torch.tensor([tokens]))[0, -1].argmax()))
        assert words(known.decode(tokens)) == [*words(question + "?"), *usual]


def words_of(answer: str) -> list[str]:
    """The words of an answer, each choice between three as one."""
    found, inside = [], False
    for word in words(answer):
        if inside and word != "}":
            found[-1] += word
        elif word == "{":
            found.append("{")
        elif word != "}":
            found.append(word)
        inside = (inside or word == "{") and word != "}"
    return found


def test_the_guide_knows_its_words_and_no_others() -> None:
    known = guide()
    told = "where is the lift? behind the stairs. it stops at noon."
    assert known.decode(known.encode(told)) == told
    with pytest.raises(ValueError):
        known.encode("where is the exit?")


def test_the_day_has_what_the_exhibits_need() -> None:
    day = museum_day()
    prompts = [len(visit.request.prompt) for visit in day]
    assert min(prompts) < CHUNK < max(prompts) > ShortTable.table
    assert len({visit.step for visit in day}) > 3 and len(day) > 2 * 4  # rows are reused more than once
    blocks = serve(BLOCKS.open(guide().model), day)
    assert any(sequence.preempted for sequence in blocks.values())
    shared = serve(PREFIXES.open(guide().model), day)
    assert sum(sequence.reused for sequence in shared.values()) > 20
    assert {visit.request.salt for visit in day} == {"", "north/desk", "south/desk"}
    assert all(visit.request.forced is None for visit in as_it_likes(day))


def test_other_neighbours_keep_shapes_common_beginnings_and_what_is_reused() -> None:
    day, vocab_size = museum_day(), guide().model.config.vocab_size
    before = serve(PREFIXES.open(guide().model), day)
    for own in day:
        others = [visit if visit is own else other_words(visit, own, vocab_size) for visit in day]
        after = serve(PREFIXES.open(guide().model), others)
        for visit, other in zip(day, others, strict=True):
            assert (len(other.request.prompt), len(other.request.forced)) == (
                len(visit.request.prompt), len(visit.request.forced),
            )  # fmt: skip
            assert after[visit.name].reused == before[visit.name].reused
            if common(visit, own) < len(whole_text(visit.request)):
                assert whole_text(other.request) != whole_text(visit.request)
                assert common(other, own) == common(visit, own)


def common(a: Visit, b: Visit) -> int:
    texts = whole_text(a.request), whole_text(b.request)
    return next((i for i, (x, y) in enumerate(zip(*texts)) if x != y), min(map(len, texts)))


def test_a_day_that_does_not_end_is_given_up() -> None:
    class Silent(Engine):
        def choose(self, group: list[Sequence], logits: torch.Tensor) -> list[Sequence]:
            return []

    with pytest.raises(RuntimeError, match=r"after 400 steps ann, .* still had no answer"):
        serve(House(engine=Silent).open(guide().model), museum_day())


def test_a_day_of_another_model_can_be_compared() -> None:
    """What the tools are given is a model and requests; the guide is only what they take if they get nothing."""
    model, random = model_of("gqa"), Random(0)
    day = tuple(
        Visit(
            2 * i,
            Request(tuple(text_of("gqa", n, i)), 4, forced=tuple(random.randrange(31) for _ in range(4)), name=f"{n}"),
        )
        for i, n in enumerate((20, 3, 11, 7, 2))
    )
    served = serve(ROWS.open(model), day)
    for visit in day:
        right = truth("gqa", tuple(whole_text(visit.request)))[len(visit.request.prompt) - 1 : -1]
        assert largest_difference(served[visit.name].logits, list(right)) < TOLERANCE[torch.float64]
    broken = exhibit_called("reader").engine
    assert against_fresh(ROWS.open, model, day).wrong == ()
    assert against_fresh(broken, model, day).wrong == ("20", "11")
    assert [name for name, divergence in where(broken, model, day).found.items() if divergence] == ["20", "11"]
    assert with_poison(exhibit_called("beginning").engine, model, day).reached["20"] == (0, 0)
    assert set(with_other_neighbours(broken, model, day).changed.values()) == {0}
    assert not compare(exhibit_called("stranger").engine, model=model, day=day).same_text


def test_reports_say_what_they_found() -> None:
    broken = exhibit_called("morning").engine
    reports = (against_fresh(broken), where(broken), with_poison(broken), with_other_neighbours(broken))
    fresh, place, poison, neighbours = map(str, reports)
    assert [type(report) for report in reports] == [FreshReport, WhereReport, PoisonReport, NeighbourReport]
    assert "in company" in fresh and "equal" in fresh
    assert "ann     no layer differs" in place and "first difference at token 7 of eva, layer 0, output" in place
    assert "eva     is not a number from token 7, layer 0 on" in poison
    assert "ann     the same, bit for bit" in neighbours and "eva     changes by" in neighbours
    assert str(with_poison(ROWS.open)) == "nobody reads what is free"
