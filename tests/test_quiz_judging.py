"""What an answer is worth, and what a learner may see after it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from small_quiz import write_bank

from course_lib.quizzes.bank import Number, Order, Question, load_bank
from course_lib.quizzes.judge import NotAnAnswer, Standing, judge, right_answer, standing
from course_lib.quizzes.quantities import parse
from course_lib.quizzes.repetition import Asked, Seen, due_at, due_names, last_asked


@pytest.fixture
def questions(tmp_path: Path) -> dict[str, Question]:
    return {question.id: question for question in load_bank(write_bank(tmp_path)).questions}


def right_order(question: Question) -> list[int]:
    assert isinstance(question, Order)
    return [question.shown.index(item) for item in question.items]


def test_one_choice(questions: dict[str, Question]) -> None:
    kept = questions["kept"]
    assert judge(kept, 1).right and judge(kept, 1).said == ("undisclosed: both are final.",)
    assert not judge(kept, 0).right
    assert judge(kept, 0).said == ("undisclosed: a query is used once, so keeping it saves nothing.",)
    wrong_kinds: list[object] = [None, 3, -1, True, "1", [1], 1.0, {}]
    for given in wrong_kinds:
        with pytest.raises(NotAnAnswer, match="Choose one of the answers first."):
            judge(kept, given)


def test_several_choices(questions: dict[str, Question]) -> None:
    grows = questions["grows"]
    assert judge(grows, [2, 0]).right
    assert judge(grows, [0]).said == ("What you chose is right, and something is missing.",)
    tempting = "“More query heads”: undisclosed: queries are not kept."
    assert judge(grows, [0, 1, 2]).said == (tempting,)
    for chosen in ([0, 1], [1]):  # one that is right is missing, or both: it does not tell how many
        assert judge(grows, chosen).said == (tempting, "Not all that are right are chosen yet.")
    assert not judge(grows, [1]).right and not judge(grows, [0, 1, 2]).right
    for given in (None, [], 0, "0", [0, 1, 2, 2], [3], [True], [[0]], [None]):
        with pytest.raises(NotAnAnswer, match="Choose"):
            judge(grows, given)


@pytest.mark.parametrize(
    ("typed", "right"),
    [
        ("1.4375", True), ("1.4375 MiB", True), ("1.44mib", True), ("+1.43", True), ("1472 KiB", True),
        ("1 472 KiB", True), ("1507328 bytes", True), ("1507328B", True), ("1.4475", True), ("1.4276", True),
        ("1.4476", False), ("1.4274", False), ("1.44 kB", False), ("1.4375 GiB", False), ("-1.4375", False),
        ("0", False), ("0.71875", False), ("736 KiB", False), ("1.4375e0", True), ("1.507328 MB", True),
    ],
)  # fmt: skip
def test_a_number_counts_within_its_tolerance_in_any_unit_of_bytes(
    questions: dict[str, Question], typed: str, right: bool
) -> None:
    assert judge(questions["size"], typed).right is right


def test_a_converted_number_says_so_and_a_trap_says_why(questions: dict[str, Question]) -> None:
    size = questions["size"]
    assert judge(size, "2 MB").said == ("You wrote 2 MB; that is 1.907 MiB.", "That is not the number.")
    assert judge(size, "736 KiB").said[1:] == ("undisclosed: the values were forgotten.",)
    assert judge(size, "0.72").said == ("undisclosed: the values were forgotten.",)


def number(answer: float, unit: str) -> Number:
    return Number("03_small", "size", 1, "number", "?", "!", answer, unit, None, 0.001, (), "")


@pytest.mark.parametrize(
    ("typed", "answer", "unit", "asked_for"),
    [
        ("64 MB", 64, "MiB", "MiB are asked for here (2^20 bytes)."),
        ("64.01mb", 64, "MiB", "MiB are asked for here (2^20 bytes)."),
        ("-3 GB", -3, "GiB", "GiB are asked for here (2^30 bytes)."),
        ("32 kB", 32, "KiB per token", "KiB are asked for here (2^10 bytes)."),
        ("32 kB / token", 32, "KiB/token", "KiB are asked for here (2^10 bytes)."),
        ("2 TiB", 2, "TB", "TB are asked for here (10^12 bytes)."),
    ],
)  # fmt: skip
def test_the_right_number_of_the_other_thousand_is_no_verdict(
    typed: str, answer: float, unit: str, asked_for: str
) -> None:
    with pytest.raises(NotAnAnswer) as caught:
        judge(number(answer, unit), typed)
    assert str(caught.value) == f"The number is right, the unit is not: {asked_for}"


@pytest.mark.parametrize(
    ("typed", "right"),
    [("67.11 MB", True), ("32 MB", False), ("64 GB", False), ("64 KiB", False), ("64 B", False), ("65536 KiB", True)],
)
def test_another_size_is_judged_as_what_it_is(typed: str, right: bool) -> None:
    assert judge(number(64, "MiB"), typed).right is right


def test_a_size_that_is_right_either_way_is_right() -> None:
    wide = Number("03_small", "size", 1, "number", "?", "!", 64, "MiB", 5.0, None, (), "")
    assert judge(wide, "64 MB").right  # 61.04 MiB, and near enough


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("", "Write a number first."), ("   ", "Write a number first."), (None, "Write a number first."),
        (1.4375, "Write a number first."), ([], "Write a number first."),
        ("1,4375", "A comma can mean two things. Write 1.5 with a point"),
        ("1,472 KiB", "A comma can mean two things."), ("12,5", "A comma"), ("1 472,5 KiB", "A comma"),
        ("1.4375 Mb", "“Mb” can mean bits. If you mean bytes, write MB."), ("12 Kb", "If you mean bytes, write kB."),
        ("1.4 Mibs", "If you mean bytes, write MiB."), ("12 Gbit", "“Gbit” is not a unit of this answer."),
        ("1.4375 s", "“s” is not a unit of this answer. It is wanted in MiB."),
        ("1.4375 apples", "“apples” is not a unit of this answer."),
        ("1.4375 MiB per token", "“MiB per token” is not a unit"),
        ("a lot", "“a lot” is not a number. Write one such as 12 or 1.5."),
        ("nan", "is not a number"), ("inf", "is not a number"), ("1e999", "too large to be read"),
        ("1.4375 ± 1", "is not a unit"), ("1.2.3", "is not a number"), ("12 34", "is not a number"),
        ("9" * 101, "too long"), ("x" * 1_000_000, "too long"), ("\ud800", "is not a number"),
    ],
)  # fmt: skip
def test_what_is_no_number_gets_a_sentence_and_no_verdict(
    questions: dict[str, Question], typed: object, sentence: str
) -> None:
    with pytest.raises(NotAnAnswer, match=sentence) as caught:
        judge(questions["size"], typed)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("typed", "unit", "value"),
    [
        ("64 mb", "MB", 64), ("64 gb per token", "GB/token", 64),
        ("128 KiB", "KiB per token", 128), ("0.125 MiB/token", "KiB per token", 128),
        ("131072 B / tokens", "KiB/token", 128), ("131.072 kB", "KiB", 128),
        ("12 tokens", "tokens", 12), ("1 token", "tokens", 1), ("4 passes", "passes", 4), ("1 pass", "passes", 1),
        ("50 %", "%", 50), ("50%", "%", 50), ("2.5 ms", "s", 0.0025), ("250 µs", "ms", 0.25), ("250 μs", "ms", 0.25),
        ("3", "", 3), ("−3", "", -3), (".5", "", 0.5), ("1_000", "", 1000), ("2e3 bytes", "kB", 2),
    ],
)  # fmt: skip
def test_units_are_read_as_people_write_them(typed: str, unit: str, value: float) -> None:
    assert parse(typed, unit)[0] == pytest.approx(value, rel=1e-12)  # conversions are one float product


def test_relative_tolerance_and_a_zero_tolerance_do_not_hang_on_the_last_digit(tmp_path: Path) -> None:
    size = load_bank(write_bank(tmp_path)).questions[2]
    assert isinstance(size, Number)
    third = Number(*(size.notebook, size.id, 1, "number", "?", "!"), 0.3, "", 0.0, None, (), "")
    assert third.near(0.1 + 0.2, 0.3) and not third.near(0.3001, 0.3)
    share = Number(*(size.notebook, size.id, 1, "number", "?", "!"), -200.0, "", None, 0.01, (), "")
    assert share.near(-202, -200) and share.near(-198, -200) and not share.near(-202.1, -200)


def test_an_order(questions: dict[str, Question]) -> None:
    steps = questions["steps"]
    assert judge(steps, right_order(steps)).right
    assert judge(steps, right_order(steps)[::-1]).said == ("undisclosed: the new token looks at itself, too.",)
    for given, sentence in [
        ([], "Give every item a place first."), (None, "Give every item a place first."),
        ([0, 1, 2], "Give every item a place first."), ([0, 1, 2, 2], "a place of its own"),
        ([0, 1, 2, 4], "a place of its own"), ([0, 1, 2, -1], "a place of its own"), ([0, 1, 2, True], "of its own"),
    ]:  # fmt: skip
        with pytest.raises(NotAnAnswer, match=sentence):
            judge(steps, given)


def test_the_answer_shows_only_when_it_was_found_or_asked_for(questions: dict[str, Question]) -> None:
    kept = questions["kept"]
    version = kept.version
    assert standing(kept, []) == Standing()
    once = standing(kept, [(version, 0)])
    assert (once.given, once.right, once.tries, once.may_ask) == (0, False, 1, False)
    assert (once.answer, once.explanation) == ((), "")
    twice = standing(kept, [(version, 0), (version, 2)])
    assert twice.may_ask and twice.said == ("undisclosed: the weights are computed anew in each step.",)
    assert (twice.answer, twice.explanation) == ((), "")
    asked = standing(kept, [(version, 0), (version, 2)], shown=True)
    assert not asked.may_ask and asked.answer == ("Its key and its value",) and asked.explanation == kept.explanation
    found = standing(kept, [(version, 0), (version, 1)])
    assert found.right and found.explanation == kept.explanation and found.tries == 2 and not found.may_ask
    after_all = standing(kept, [(version, 0), (version, 2), (version, 1)], shown=True)
    assert after_all.right and after_all.answer == (), "what they gave stands there already"
    assert standing(kept, [(version, 0), (version, 2), (version, 0)], shown=True).answer == asked.answer


def test_an_answer_to_another_version_opens_the_question_again(questions: dict[str, Question]) -> None:
    kept = questions["kept"]
    assert standing(kept, [("0" * 8, 1)]) == Standing(changed=True)
    again = standing(kept, [("0" * 8, 1), (kept.version, 0)])
    assert not again.changed and again.tries == 1
    assert standing(kept, [(kept.version, {"no": "answer"})]) == Standing(changed=True)


def test_the_key_in_words(questions: dict[str, Question]) -> None:
    assert right_answer(questions["size"]) == ("1.4375 MiB",)
    assert right_answer(questions["grows"]) == ("More tokens", "More layers")
    assert right_answer(questions["steps"])[1] == "Append them to the cache"


# When a question comes back.

START = datetime(2026, 3, 2, 9, tzinfo=UTC)


def after(*answers: tuple[float, bool]) -> list[Seen]:
    """Answers, each after so many days from the start."""
    return [Seen(START + timedelta(days=days), right) for days, right in answers]


def pause(*answers: tuple[float, bool]) -> float:
    """Days from the last answer until the question is due."""
    seen = after(*answers)
    return (due_at(seen)[0] - seen[-1].at) / timedelta(days=1)


def test_pauses_grow_with_each_right_answer_and_end_with_a_wrong_one() -> None:
    assert pause((0, True)) == 1
    assert pause((0, True), (1, True)) == 3
    assert pause((0, True), (1, True), (4, True)) == 7
    assert pause((0, True), (1, True), (4, True), (11, True), (32, True), (92, True), (152, True)) == 60
    assert pause((0, True), (1, True), (4, False)) == 0
    assert pause((0, True), (1, True), (4, False), (5, True)) == 1


def test_a_right_answer_before_it_was_due_changes_nothing() -> None:
    assert pause((0, True), (0.5, True)) == 0.5
    assert pause((0, True), (0.2, True), (0.4, True), (0.6, True)) == pytest.approx(0.4)


def test_a_right_answer_right_after_the_explanation_proves_nothing() -> None:
    minute = 1 / 24 / 60
    assert due_at(after((0, False), (minute, True))) == (START + timedelta(days=minute), False)
    assert pause((0, False), (59 * minute, True)) == 0
    assert pause((0, False), (61 * minute, True)) == 1
    assert pause((0, False), (minute, True), (61 * minute, True)) == 1


def test_missed_questions_come_first_then_what_is_overdue_for_longest() -> None:
    history = {
        "01.known": after((0, True)),
        "01.older": after((-3, True)),
        "02.missed": after((1.5, False)),
        "02.never": [],
        "02.fresh": after((1.9, True)),
        "02.future": after((9, False)),
    }
    now = START + timedelta(days=2)
    assert due_names(history.items(), now, 9) == ["02.missed", "01.older", "01.known"]
    assert due_names(reversed(history.items()), now) == ["02.missed", "01.older"]
    assert due_names({}.items(), now) == []


def test_among_missed_questions_those_of_the_nearest_notebook_come_first() -> None:
    """Missed long ago in 00, later in 01 and 02: a warm-up begins with 02, and goes back from there."""
    history = {
        "00.first": after((0, False)),
        "00.second": after((0.1, False)),
        "01.late": after((2.2, False)),
        "01.early": after((2.1, False)),
        "02.last": after((3, False)),
        "01.known": after((-9, True)),
    }
    now = START + timedelta(days=4)
    in_order = ["02.last", "01.early", "01.late", "00.first", "00.second", "01.known"]
    assert due_names(history.items(), now, 9) == in_order
    assert due_names(reversed(history.items()), now, 9) == in_order
    assert due_names([(name, seen) for name, seen in history.items() if name < "02"], now) == ["01.early", "01.late"]


def test_what_the_last_warm_up_asked_comes_last() -> None:
    """The example at the head of the module: three warm-ups, and every answer in them wrong."""
    history = {
        "01.a": after((0, False)),
        "01.b": after((0.1, False)),
        "01.d": after((0, True)),
        "02.c": after((1, False)),
    }
    warm_ups: list[Asked] = []
    expected = (["02.c", "01.a"], ["01.b", "01.d"], ["02.c", "01.a"])
    for number_of, names in enumerate(expected, 3):
        now = START + timedelta(days=number_of)
        assert due_names(history.items(), now, last=last_asked(warm_ups)) == names
        for name in names:
            history[name].append(Seen(now, False))
            warm_ups.append(Asked(now, f"{number_of:02}", (name,)))


def test_the_last_warm_up_is_one_sitting_of_one_notebook() -> None:
    def asked(day: float, warm_up: str, *names: str) -> Asked:
        return Asked(START + timedelta(days=day), warm_up, names)

    assert last_asked([]) == frozenset()
    both = [asked(1.1, "03", "01.b"), asked(1, "03", "01.a"), asked(0.9, "02", "01.x"), asked(0.2, "03", "01.y")]
    assert last_asked(both) == last_asked(reversed(both)) == {"01.a", "01.b"}
    assert last_asked([*both, asked(1.2, "04", "01.a", "02.z")]) == {"01.a", "02.z"}
    half_a_day = [asked(1.5, "03", "01.b"), asked(1, "03", "01.x"), asked(1 + 1e-6, "03", "01.a")]
    assert last_asked(half_a_day) == {"01.a", "01.b"}, "twelve hours are over after twelve hours"


def test_a_question_is_due_from_its_moment_on() -> None:
    history = [("01.known", after((0, True))), ("01.missed", after((1, False)))]
    a_day_later = START + timedelta(days=1)
    assert due_names(history, a_day_later) == ["01.missed", "01.known"]
    assert due_names(history, a_day_later - timedelta(microseconds=1)) == []
