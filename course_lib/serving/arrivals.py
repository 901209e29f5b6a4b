"""Who asks when: evenly at random, in bursts, or one question after the last answer. Everything is seeded.

The one idea: whom (a list of requests, such as `mix` makes) and when (the functions here) are two choices, so the same
requests can come at any rate. With one seed a higher rate is the same story told faster: the gaps shrink in proportion
and nothing else changes, so a sweep over rates compares like with like. A recorded day comes from `trace.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, repeat
from operator import attrgetter
from random import Random

from course_lib.caches.contract import real, whole
from course_lib.serving.record import Arrival, RequestRecord
from course_lib.serving.request import Request


def poisson(requests: Sequence[Request], rate_per_s: float, seed: int = 0) -> list[Arrival]:
    """Many people who know nothing of each other: independent exponential gaps, `rate_per_s` requests a second.

    A Poisson process. More requests begin as fewer do. ValueError for a rate that is not above 0.
    """
    rate = real(rate_per_s, "the rate", above=0)
    return arrive(requests, accumulate(gap / rate for gap in unit_gaps(seed)))


def bursts(requests: Sequence[Request], size: int, every_s: float) -> list[Arrival]:
    """`size` requests at one moment, again every `every_s` seconds, from 0 s on: a class that starts its exercise.

    With a size of 1 they come evenly. Nothing is drawn. ValueError for a size below 1 or a time that is not above 0.
    """
    if whole(size, "the size of a burst") < 1:
        raise ValueError(f"a burst has at least one request, not {size}")
    every = real(every_s, "every_s", above=0)
    return arrive(requests, (number // size * every for number in range(len(requests))))


@dataclass(frozen=True)
class ClosedLoop:
    """`users` people who take turns with the server: each waits for an answer, thinks, and only then asks again.

    So a slow server is asked less, which a Poisson process never does. User u sends requests u, u + users, u + 2 users
    and so on. `first` are those that come before anything has ended; whoever drives the run calls `follow` with each
    record that has ended. Think times are exponential with mean `think_s` (0: none) and depend on the request alone,
    not on the order in which answers come. Raises ValueError for what makes no sense.
    """

    requests: Sequence[Request]
    users: int
    think_s: float
    seed: int = 0
    places: dict[str, int] = field(init=False, repr=False, compare=False)  # of each name in the list of requests

    def __post_init__(self) -> None:
        object.__setattr__(self, "requests", tuple(self.requests))
        if whole(self.users, "the number of users") < 1:
            raise ValueError(f"a closed loop needs at least one user, not {self.users}")
        real(self.think_s, "think_s", least=0)
        object.__setattr__(self, "seed", whole(self.seed, "the seed"))
        places = {request.name: place for place, request in enumerate(self.requests)}
        if len(places) < len(self.requests):
            raise ValueError("two requests have one name: give each its own, or nobody can tell whose answer has come")
        object.__setattr__(self, "places", places)

    @property
    def first(self) -> list[Arrival]:
        """The first request of each user, in the order in which they come."""
        return sorted(
            (self.after(0.0, place) for place in range(len(self.requests))[: self.users]), key=attrgetter("time_s")
        )

    def follow(self, record: RequestRecord) -> Arrival | None:
        """What the same user asks next, now that a request has ended, whether finished, cancelled or refused.

        None if that was the user's last, or is nobody's of this loop. ValueError if it has not ended.
        """
        if record.name not in self.places:
            return None
        if record.ended_s is None:
            raise ValueError(f"{record.name!r} is still under way: its user asks again when it has ended")
        place = self.places[record.name] + self.users
        return self.after(record.ended_s, place) if place < len(self.requests) else None

    def after(self, time_s: float, place: int) -> Arrival:
        """The request at a place of the list, a think time after `time_s`."""
        thinking = Random(f"{self.seed} {place}").expovariate(1.0) * self.think_s
        return Arrival(time_s + thinking, self.requests[place])


def unit_gaps(seed: int) -> Iterator[float]:
    """Independent gaps of a Poisson process of one arrival a second, without end."""
    random = Random(whole(seed, "the seed"))
    return (random.expovariate(1.0) for _ in repeat(None))


def arrive(requests: Sequence[Request], times_s: Iterator[float]) -> list[Arrival]:
    return [Arrival(time, request) for request, time in zip(requests, times_s)]  # as many as there are requests
