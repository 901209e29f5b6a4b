"""Who asks when: seeded, at the promised rate, and a loop of users that waits for answers."""

from collections.abc import Callable
from math import exp, inf, nan
from statistics import mean

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.serving.arrivals import ClosedLoop, bursts, poisson
from course_lib.serving.record import Arrival, RequestRecord
from course_lib.serving.request import Request

MANY = 4000


def asked(count: int) -> list[Request]:
    return [Request((1,), 1, name=f"r{number}") for number in range(count)]


def times(arrivals: list[Arrival]) -> list[float]:
    return [arrival.time_s for arrival in arrivals]


def ended(arrival: Arrival, after_s: float) -> RequestRecord:
    record = RequestRecord(arrival.request.name, arrival.time_s, 1, 1)
    record.ended_s, record.outcome = arrival.time_s + after_s, "finished"
    return record


# --- A Poisson process


def test_poisson_arrivals_come_at_the_rate() -> None:
    """The mean of n exponential gaps has a standard error of mean / √n; four of them are allowed."""
    for rate in (0.1, 7.0):
        gaps = np.diff([0.0, *times(poisson(asked(MANY), rate, seed=1))])
        assert mean(gaps) == pytest.approx(1 / rate, rel=4 / MANY**0.5)


def test_gaps_are_exponential_and_independent() -> None:
    """Kolmogorov and Smirnov's distance to the exponential distribution, below its 0.1 % quantile, 1.95 / √n; and the
    correlation of neighbours, with a standard error of 1 / √n; four of them are allowed."""
    gaps = np.sort(np.diff([0.0, *times(poisson(asked(MANY), 3.0, seed=2))]))
    below = 1 - np.exp(-3.0 * gaps)
    steps = np.arange(MANY + 1) / MANY
    distance = max(np.abs(steps[1:] - below).max(), np.abs(below - steps[:-1]).max())
    assert distance < 1.95 / MANY**0.5
    unsorted = np.diff(times(poisson(asked(MANY), 3.0, seed=2)))
    assert abs(np.corrcoef(unsorted[1:], unsorted[:-1])[0, 1]) < 4 / MANY**0.5


def test_in_equal_windows_the_number_of_arrivals_varies_as_much_as_its_mean() -> None:
    """What tells a Poisson process from even gaps, whose number varies by 1 at most; 400 windows of 10 on average."""
    counted = np.histogram(times(poisson(asked(MANY), 10.0, seed=3)), bins=np.arange(0, 401))[0][:390]
    assert counted.var() / counted.mean() == pytest.approx(1, abs=4 * (2 / 390) ** 0.5)


def test_the_same_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    assert poisson(asked(20), 2.0, seed=5) == poisson(asked(20), 2.0, seed=5) != poisson(asked(20), 2.0, seed=6)


@pytest.mark.parametrize(
    "arrive",
    [lambda r: poisson(r, 2.0, seed=1), lambda r: bursts(r, 4, 1.5)],
)
def test_more_requests_begin_as_fewer_do_in_order_and_each_comes_once(
    arrive: Callable[[list[Request]], list[Arrival]],
) -> None:
    many = arrive(asked(50))
    assert arrive(asked(13)) == many[:13] and arrive([]) == []
    assert [arrival.request for arrival in many] == asked(50)
    assert times(many) == sorted(times(many))


def test_a_higher_rate_tells_the_same_story_faster() -> None:
    slow, fast = times(poisson(asked(30), 1.0, seed=4)), times(poisson(asked(30), 8.0, seed=4))
    assert [8 * time for time in fast] == pytest.approx(slow)


# --- Bursts


def test_a_burst_comes_at_one_moment_and_the_next_a_while_later() -> None:
    assert times(bursts(asked(7), 3, 2.5)) == [0, 0, 0, 2.5, 2.5, 2.5, 5]
    assert times(bursts(asked(3), 1, 0.5)) == [0, 0.5, 1]


# --- A closed loop


def test_each_user_asks_again_only_after_an_answer_and_a_think_time() -> None:
    loop = ClosedLoop(asked(7), users=3, think_s=2.0, seed=1)
    first = loop.first
    assert sorted(arrival.request.name for arrival in first) == ["r0", "r1", "r2"] and times(first) == sorted(
        times(first)
    )
    for place, begin in ((0, 3), (1, 4), (2, 5)):
        record = ended(Arrival(1.0, asked(7)[place]), after_s=10.0)
        following = loop.follow(record)
        assert following is not None and following.request.name == f"r{begin}" and following.time_s > 11.0
    last = ended(Arrival(20.0, asked(7)[3]), after_s=1.0)
    assert (following := loop.follow(last)) is not None and following.request.name == "r6"
    assert loop.follow(ended(following, 1.0)) is None
    assert loop.follow(ended(Arrival(0.0, asked(7)[5]), 1.0)) is None, "the third user has no third request"


def test_without_a_think_time_the_next_question_comes_with_the_answer() -> None:
    loop = ClosedLoop(asked(4), users=2, think_s=0)
    assert times(loop.first) == [0, 0]
    assert loop.follow(ended(loop.first[0], after_s=3.5)) == Arrival(3.5, asked(4)[2])


def test_think_times_are_exponential_with_their_mean() -> None:
    loop = ClosedLoop(asked(MANY), users=MANY, think_s=0.5)
    thought = times(loop.first)
    assert mean(thought) == pytest.approx(0.5, rel=4 / MANY**0.5)
    assert sum(time > 1.0 for time in thought) / MANY == pytest.approx(exp(-2), abs=4 * (0.14 * 0.86 / MANY) ** 0.5)


@given(st.integers(1, 6), st.integers(0, 25), st.floats(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_whatever_order_answers_come_in_every_request_comes_once_and_no_user_has_two_under_way(
    users: int, count: int, think: float, random: object
) -> None:
    """Answers take random times; the think time of a request is the same in whatever run."""
    loop = ClosedLoop(asked(count), users, think, seed=3)
    pending, seen, thought = list(loop.first), [], {}
    thought.update({arrival.request.name: arrival.time_s for arrival in pending})
    while pending:
        arrival = pending.pop(random.randrange(len(pending)))  # type: ignore[attr-defined]
        seen.append(arrival.request.name)
        record = ended(arrival, random.random())  # type: ignore[attr-defined]
        following = loop.follow(record)
        assert following == loop.follow(record), "asking twice changes nothing"
        if following is not None:
            assert int(following.request.name[1:]) == int(arrival.request.name[1:]) + users
            thought[following.request.name] = following.time_s - record.ended_s  # type: ignore[operator]
            pending.append(following)
    assert sorted(seen) == sorted(request.name for request in asked(count))
    alone = ClosedLoop(asked(count), max(count, 1), think, seed=3)
    assert thought == pytest.approx({arrival.request.name: arrival.time_s for arrival in alone.first})


def test_a_longer_loop_begins_as_a_shorter_one_does_and_the_seed_decides() -> None:
    short, long = ClosedLoop(asked(6), 3, 1.0), ClosedLoop(asked(60), 3, 1.0)
    assert short.first == long.first and short == ClosedLoop(asked(6), 3, 1.0)
    assert short.follow(ended(short.first[0], 1)) == long.follow(ended(long.first[0], 1))
    assert ClosedLoop(asked(6), 3, 1.0, seed=1).first != short.first


def test_a_loop_leaves_the_requests_of_others_alone() -> None:
    loop = ClosedLoop(asked(4), 2, 1.0)
    assert loop.follow(ended(Arrival(0.0, Request((1,), 1, name="somebody")), 1)) is None


@pytest.mark.parametrize(
    ("call", "said"),
    [(lambda: poisson(asked(2), 0.0), "the rate must be a number above 0, not 0.0"),
     (lambda: poisson([], nan), "not nan"), (lambda: poisson(asked(2), "often"), "not 'often'"),
     (lambda: ClosedLoop(asked(2), 1, 1.0, seed=nan), "the seed must be a whole number, not nan"),
     (lambda: poisson(asked(2), nan), "not nan"), (lambda: poisson(asked(2), inf), "not inf"),
     (lambda: poisson(asked(2), -1.0), "not -1.0"), (lambda: poisson(asked(2), 1.0, seed=0.5), "the seed"),
     (lambda: poisson(asked(2), 1e-320), "at which 'r0' arrives must be a number of at least 0, not inf"),
     (lambda: bursts(asked(2), 0, 1.0), "at least one request, not 0"), (lambda: bursts(asked(2), 1, 0.0), "every_s"),
     (lambda: bursts(asked(2), 1.5, 1.0), "size of a burst"), (lambda: ClosedLoop(asked(2), 0, 1.0), "not 0"),
     (lambda: ClosedLoop(asked(2), 1, -0.5), "think_s .* not -0.5"),
     (lambda: ClosedLoop(asked(2), 1, nan), "think_s .* not nan"),
     (lambda: ClosedLoop(asked(2) * 2, 1, 1.0), "two requests have one name"),
     (lambda: ClosedLoop(asked(2), 1, 1.0).follow(RequestRecord("r0", 0.0, 1, 1)), "'r0' is still under way")],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call: Callable[[], object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()
