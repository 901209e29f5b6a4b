"""Points that a person typed into marks.csv, in a gradebook of nbgrader: entered only where nbgrader has none."""

from pathlib import Path

from test_grading_gradebook import APPEND, CLASS, COST, EX03, NAMES, SAMPLE, by_hand, everything, grade, write, written

__all__ = ["written"]  # a fixture


def test_points_of_a_table_are_entered_where_nobody_marked_in_nbgrader(written: Path) -> None:
    by_hand(written, "bob", COST, 0.5)
    before = grade(written, "bob", APPEND)
    given = {"ada": {COST: 2.5, APPEND: 1.0}, "bob": {COST: 0.5}, "eve": {COST: 3.0}}
    assert write(written, SAMPLE, CLASS, NAMES, by_hand=given) == []
    assert (grade(written, "ada", COST), grade(written, "bob", COST)) == ((None, 2.5, False), (0, 0.5, False))
    assert (grade(written, "ada", APPEND), grade(written, "bob", APPEND)) == ((5, None, False), before)
    once = everything(written)
    assert write(written, SAMPLE, CLASS, NAMES, by_hand=given) == [] and everything(written) == once


def test_a_score_in_nbgrader_is_never_replaced_and_a_line_says_where_two_differ(written: Path) -> None:
    by_hand(written, "ada", COST, 2.5)
    before = everything(written)
    (said,) = write(written, SAMPLE, CLASS, NAMES, by_hand={"ada": {COST: 1.0}, "bob": {COST: None}})
    title = next(each.title for each in EX03.questions if each.cell == COST)
    assert said == f"ada: {title}: gradebook.db has 2.5, marks.csv 1; each keeps its own"
    assert everything(written) == before


def test_points_for_an_answer_that_was_changed_since_are_entered_and_looked_at_again(written: Path) -> None:
    write(written, SAMPLE, CLASS, NAMES, changed=["ada"], by_hand={"ada": {COST: 2.0}})
    assert grade(written, "ada", COST) == (None, 2.0, True)
