"""Wrong beliefs about serving, for the judge of ex07.serve: each is the loop of ex07_loop with one rule changed.

The one idea: whoever holds a belief gets exactly the times that its loop gives, and can be told so. Drawing uses them,
too: a case is drawn again until the beliefs that it is about give other times than the rules do.
"""

from __future__ import annotations

from typing import Any

from course_lib.checks.ex07_loop import Loop, Times


class LastInLine(Loop):
    SAID = "Who was preempted went to the end of the queue. Its place is that of its arrival."

    def put_off(self, request: int) -> None:
        self.held[request] = 0
        self.waiting.append(request)


class KeepsMemory(Loop):
    SAID = "Who was preempted has lost its memory, so it reads its whole text again, prompt and new tokens."

    def put_off(self, request: int) -> None:
        self.waiting = sorted([*self.waiting, request])


class KeepsChunk(Loop):
    SAID = "Who was preempted in the middle of its prompt has lost what it had read of it, too, and begins again."

    def put_off(self, request: int) -> None:
        self.held[request] *= not self.times[request]
        self.waiting = sorted([*self.waiting, request])


class BehindEquals(Loop):
    SAID = "Of two that arrived at the same moment, the first in the list came first, also when it waits again."

    def put_off(self, request: int) -> None:
        self.held[request] = 0
        self.waiting = sorted([*self.waiting, request], key=lambda one: self.arrivals[one])


class PromptAgain(Loop):
    SAID = "Who was preempted read its prompt again, but not the new tokens that it already had."

    def admit(self, requests: Any) -> None:
        requests = list(requests)
        for request in requests:
            self.held[request] += len(self.times[request])
        super().admit(requests)

    def unread(self, request: int) -> int:
        had = len(self.times[request]) if request in self.waiting else 0
        return self.length(request) - self.held[request] - had


class LosesTokens(Loop):
    SAID = "Who was preempted lost its new tokens. It keeps them, and their times, and goes on behind them."

    def put_off(self, request: int) -> None:
        super().put_off(request)
        self.times[request] = []


class Fresh(Loop):
    SAID = "Who was preempted needs room for its new tokens, too, when it is admitted again."

    def room(self, request: int) -> int:
        return self.prompts[request]


class Longest(Loop):
    SAID = "The longest was preempted. It is the one that came last."

    def victim(self) -> int:
        return max(range(len(self.running)), key=lambda place: self.length(self.running[place]))


class Oldest(Loop):
    SAID = "The oldest was preempted. It is the one that came last."

    def victim(self) -> int:
        return 0


class OnlyOne(Loop):
    SAID = "One was preempted in a step, but that was not enough: go on until all others have their slots."

    def preempt(self) -> None:
        if sum(map(self.needs, self.running)) > self.slots:
            self.put_off(self.running.pop())


class TooSoon(Loop):
    SAID = "Somebody was preempted although all texts had room. A full memory is enough, if it is not exceeded."

    def preempt(self) -> None:
        while sum(map(self.needs, self.running)) >= self.slots and len(self.running) > 1:
            self.put_off(self.running.pop())


class Reserved(Loop):
    SAID = "Room for all tokens that may still come was set aside. A request needs slots for its text so far."

    def needs(self, request: int) -> int:
        return self.prompts[request] + self.wanted[request] - 1


class LastRead(Loop):
    SAID = "A slot was kept for a token that has not come yet. A text needs slots for the tokens that it has."

    def needs(self, request: int) -> int:
        return self.length(request) + 1


class Unreserved(Loop):
    SAID = "Who waits was admitted without room for its text. It is admitted when there are slots for all of it."

    def joining(self) -> list[int]:
        return self.waiting[: max(0, self.rows - len(self.running))]


class HeldOnly(Loop):
    SAID = "The token that is read in this step needs a slot, too: count the whole text, not what was read before."

    def needs(self, request: int) -> int:
        return self.held[request] if request in self.running else self.length(request)


class PromptOnly(Loop):
    SAID = "New tokens need slots as well as the prompt does."

    def needs(self, request: int) -> int:
        return self.prompts[request]


class Overtaken(Loop):
    SAID = "Somebody was admitted before another who had come earlier and did not fit. Nobody overtakes."

    def joining(self) -> list[int]:
        found: list[int] = []
        for request in self.waiting:
            there = [*self.running, *found, request]
            if len(there) <= self.rows and sum(map(self.needs, there)) <= self.slots:
                found.append(request)
        return found


class NoSlots(Loop):
    SAID = "The memory was not looked at: all texts that run need a slot for each token together."

    def needs(self, request: int) -> int:
        return 0


class Early(Loop):
    SAID = "Who arrives at the very moment at which a step begins takes part in it."

    def arrive(self) -> None:
        while self.coming and (self.arrivals[self.coming[0]] < self.clock or self.first_of_idle()):
            self.waiting.append(self.coming.pop(0))

    def first_of_idle(self) -> bool:
        return not self.waiting and not self.running and self.arrivals[self.coming[0]] <= self.clock


class OnlyWhenIdle(Loop):
    SAID = "Who arrived was only seen when nobody ran any more. It may join the next step."

    def arrive(self) -> None:
        if not self.running:
            super().arrive()


class AllThere(Loop):
    SAID = "Requests were served before they had arrived."

    def arrive(self) -> None:
        self.waiting += self.coming
        self.coming = []


class Newest(Loop):
    SAID = "Who came last was admitted first. The queue is in the order of arrival."

    def arrive(self) -> None:
        while self.coming and self.arrivals[self.coming[0]] <= self.clock:
            self.waiting.insert(0, self.coming.pop(0))


class Static(Loop):
    SAID = "Whoever is finished gives its row back at once. Here nobody joined before all that ran were finished."

    def joining(self) -> list[int]:
        return [] if self.running else super().joining()


class OneByOne(Loop):
    SAID = "One request was admitted in a step. As many are as find a row, room and something of the budget."

    def joining(self) -> list[int]:
        return super().joining()[:1]


class EmptyHanded(Loop):
    SAID = "Somebody was admitted in a step in which nothing was left to read. Only who reads at least one token is."

    def share(self, joining: list[int]) -> dict[int, int]:
        reads = super().share(joining)
        self.admit(request for request in joining if request in self.waiting)
        return reads


class NoRows(Loop):
    SAID = "More requests ran than there are rows."

    def joining(self) -> list[int]:
        self.rows = 10**6
        return super().joining()


class Ticks(Loop):
    SAID = "With nothing to do, time went by in steps. The next one begins at the moment of the next arrival."

    def idle(self) -> None:
        while self.clock < self.arrivals[self.coming[0]]:
            self.clock += self.pass_s


class FromFirst(Loop):
    SAID = "Times are those of the clock, which is at 0 before anybody has arrived, and not the time since an arrival."

    def times_of_all(self) -> Times | None:
        times = super().times_of_all()
        return times and [[time - self.arrivals[0] for time in each] for each in times]


class SinceArrival(Loop):
    SAID = FromFirst.SAID

    def times_of_all(self) -> Times | None:
        times = super().times_of_all()
        return times and [[time - arrival for time in each] for each, arrival in zip(times, self.arrivals)]


class AtBegin(Loop):
    SAID = "A token comes at the end of its step, not at the beginning."

    def read(self, request: int, tokens: int, begin: float) -> None:
        end, self.clock = self.clock, begin
        super().read(request, tokens, begin)
        self.clock = end


class NoFirst(Loop):
    SAID = "Reading a prompt to its end gives the first new token. Here it gave none, and the first decode did."

    def unread(self, request: int) -> int:
        return max(1, super().unread(request))

    def read(self, request: int, tokens: int, begin: float) -> None:
        if self.held[request] < self.length(request):
            self.held[request] += tokens
        else:
            self.times[request].append(self.clock)
            self.held[request] = self.length(request)


class TwoAtOnce(Loop):
    SAID = "A newcomer decoded in the same step in which it read its prompt. A step gives one token to each."

    def read(self, request: int, tokens: int, begin: float) -> None:
        super().read(request, tokens, begin)
        if len(self.times[request]) == 1 and not self.finished(request):
            self.held[request] += 1
            self.times[request].append(self.clock)


class TokenAPiece(Loop):
    SAID = "A piece of a prompt gives no token. The first new one comes when the last piece has been read."

    def read(self, request: int, tokens: int, begin: float) -> None:
        self.held[request] += tokens
        self.times[request].append(self.clock)


class NoBudget(Loop):
    SAID = "Prompts were read whole, whatever the budget is."

    def share(self, joining: list[int]) -> dict[int, int]:
        self.budget = 10**6
        return super().share(joining)


class DecodesFree(Loop):
    SAID = "What decodes read is taken from the budget, too."

    def share(self, joining: list[int]) -> dict[int, int]:
        left, reads = self.budget, {request: 1 for request in self.running if self.unread(request) == 1}
        for request in [*self.running, *joining]:
            if request not in reads and (tokens := min(self.unread(request), left)) > 0:
                reads[request] = tokens
                left -= tokens
        self.admit(request for request in reads if request in joining)
        return reads


class PromptsFirst(Loop):
    SAID = "Prompts took what was needed to decode. Those that run and have one unread token come first."

    def share(self, joining: list[int]) -> dict[int, int]:
        decodes = [request for request in self.running if self.unread(request) == 1]
        left, reads = self.budget, {}
        for request in [*(request for request in self.running if request not in decodes), *joining, *decodes]:
            if (tokens := min(self.unread(request), left)) > 0:
                reads[request] = tokens
                left -= tokens
        self.admit(request for request in reads if request in joining)
        return reads


class ByRequests(Loop):
    SAID = "cost is asked about tokens: all that are read in the step, those of prompts included."

    def cost(self, reads: dict[int, int]) -> float:
        return float(self.pass_s + self.token_s * len(reads))


class CostEach(Loop):
    SAID = "A step costs once for all its tokens. Here each request was charged for a step of its own."

    def cost(self, reads: dict[int, int]) -> float:
        return float(sum(self.pass_s + self.token_s * tokens for tokens in reads.values()))


class LastTokenRead(Loop):
    SAID = "The last new token is not read: whoever has all of its tokens is finished at the end of that step."

    def finished(self, request: int) -> bool:
        return super().finished(request) and self.held[request] >= self.length(request)

    def read(self, request: int, tokens: int, begin: float) -> None:
        self.held[request] += tokens
        if self.held[request] >= self.length(request) and not super().finished(request):
            self.times[request].append(self.clock)


BELIEFS: dict[str, type[Loop]] = {kind.__name__: kind for kind in Loop.__subclasses__()}
