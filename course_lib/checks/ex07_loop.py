"""Serving step by step with a queue, as the statement of ex07.serve tells it: a class with a method for each rule.

The one idea: a wrong belief about serving is one rule that differs, so it is this class with one method of its own (see
ex07_beliefs). The judge's reference is not here, and shares nothing with it.
"""

from __future__ import annotations

from typing import Any

MOST_STEPS = 500
Times = list[list[float]]


class Loop:
    """The rules, a method each. Requests are numbers; `held` tokens of a text have been read."""

    SAID = ""  # what there is to say to whoever believes it

    def __init__(self, call: dict[str, Any]) -> None:
        self.rows, self.slots, self.budget = call["rows"], call["slots"], call["budget"]
        self.pass_s, self.token_s = call["pass_s"], call["token_s"]
        self.arrivals = [request["arrival_s"] for request in call["requests"]]
        self.prompts = [request["prompt_tokens"] for request in call["requests"]]
        self.wanted = [request["new_tokens"] for request in call["requests"]]
        self.coming = list(range(len(self.arrivals)))
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.held = [0] * len(self.arrivals)
        self.times: Times = [[] for _ in self.arrivals]
        self.clock = 0.0

    def times_of_all(self) -> Times | None:
        """When everybody gets tokens; None if it never ends."""
        for _ in range(MOST_STEPS):
            self.arrive()
            if not self.waiting and not self.running:
                if not self.coming:
                    return self.times
                self.idle()
                continue
            self.preempt()
            reads = self.share(self.joining())
            if not reads:
                return None
            begin, self.clock = self.clock, self.clock + self.cost(reads)
            for request, tokens in reads.items():
                self.read(request, tokens, begin)
            self.leave()
        return None

    def arrive(self) -> None:
        while self.coming and self.arrivals[self.coming[0]] <= self.clock:
            self.waiting.append(self.coming.pop(0))

    def idle(self) -> None:
        self.clock = self.arrivals[self.coming[0]]

    def length(self, request: int) -> int:
        return self.prompts[request] + len(self.times[request])

    def needs(self, request: int) -> int:
        """Slots that a request has to have to run."""
        return self.length(request)

    def room(self, request: int) -> int:
        """Slots that have to be free for a request to join."""
        return self.needs(request)

    def preempt(self) -> None:
        while sum(map(self.needs, self.running)) > self.slots:
            self.put_off(self.running.pop(self.victim()))

    def victim(self) -> int:
        return -1

    def put_off(self, request: int) -> None:
        self.held[request] = 0
        self.waiting = sorted([*self.waiting, request])

    def joining(self) -> list[int]:
        """Those of the queue for whom there is a row and room, in order."""
        found: list[int] = []
        for request in self.waiting:
            joined = [*found, request]
            taken = sum(map(self.needs, self.running)) + sum(map(self.room, joined))
            if len(self.running) + len(joined) > self.rows or taken > self.slots:
                break
            found.append(request)
        return found

    def share(self, joining: list[int]) -> dict[int, int]:
        """How much each reads; those that join and read are admitted."""
        reads = {request: 1 for request in self.running if self.unread(request) == 1}
        left = self.budget - len(reads)
        for request in [*self.running, *joining]:
            if request not in reads and (tokens := min(self.unread(request), left)) > 0:
                reads[request] = tokens
                left -= tokens
        self.admit(request for request in reads if request in joining)
        return reads

    def unread(self, request: int) -> int:
        return self.length(request) - self.held[request]

    def admit(self, requests: Any) -> None:
        for request in requests:
            self.waiting.remove(request)
            self.running.append(request)
        self.running.sort()

    def cost(self, reads: dict[int, int]) -> float:
        return float(self.pass_s + self.token_s * sum(reads.values()))

    def read(self, request: int, tokens: int, begin: float) -> None:
        self.held[request] += tokens
        if self.held[request] >= self.length(request):
            self.times[request].append(self.clock)

    def finished(self, request: int) -> bool:
        return len(self.times[request]) >= self.wanted[request]

    def leave(self) -> None:
        self.running = [request for request in self.running if not self.finished(request)]
