"""Solutions of ex07.serve: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex07_serve import CASES, DAY, INPUTS, JOIN, ROWS

ALL = frozenset(CASES)

PLAIN = """
    def plan(running, waiting, rows, budget):
        reads = {i: 1 for i, unread in running.items() if unread == 1}
        left = budget - len(reads)
        for i, unread in [*running.items(), *list(waiting.items())[: rows - len(running)]]:
            if i not in reads and left > 0:
                reads[i] = min(unread, left)
                left -= reads[i]
        return reads

    def serve(requests, rows, slots, budget, cost):
        times, read = [[] for _ in requests], [0] * len(requests)
        coming, waiting, running, clock = list(range(len(requests))), [], [], 0.0

        def length(i):
            return requests[i]["prompt_tokens"] + len(times[i])

        while coming or waiting or running:
            while coming and requests[coming[0]]["arrival_s"] <= clock:
                waiting.append(coming.pop(0))
            if not waiting and not running:
                clock = requests[coming[0]]["arrival_s"]
                continue
            while sum(length(i) for i in running) > slots:
                i = running.pop()
                read[i] = 0
                waiting.insert(0, i)
            fits, used = {}, sum(length(i) for i in running)
            for i in waiting:
                used += length(i)
                if used > slots:
                    break
                fits[i] = length(i)
            reads = plan({i: length(i) - read[i] for i in running}, fits, rows, budget)
            clock += cost(sum(reads.values()))
            for i, tokens in reads.items():
                if i in waiting:
                    waiting.remove(i)
                    running.append(i)
                read[i] += tokens
                if read[i] == length(i):
                    times[i].append(clock)
            running = [i for i in running if len(times[i]) < requests[i]["new_tokens"]]
        return times
    """

RIGHT = {
    "three lists of numbers": PLAIN,
    "no decodes first: with this queue they are the first anyway": changed_in(
        PLAIN,
        ("reads = {i: 1 for i, unread in running.items() if unread == 1}", "reads = {}"),
    ),
    "no queue: the first so many that fit": """
        def serve(requests, rows, slots, budget, cost):
            n, now = len(requests), 0.0
            got, held = [[] for _ in range(n)], [0] * n
            while True:
                there = [i for i in range(n) if len(got[i]) < requests[i]["new_tokens"]]
                if not there:
                    return got
                there = [i for i in there if requests[i]["arrival_s"] <= now]
                if not there:
                    now = min(r["arrival_s"] for r, times in zip(requests, got) if not times)
                    continue
                inside, used = [], 0
                for i in there:
                    used += requests[i]["prompt_tokens"] + len(got[i])
                    if used <= slots and len(inside) < rows:
                        inside.append(i)
                    else:
                        used, held[i] = 10**9, 0
                left, done = budget, []
                unread = {i: requests[i]["prompt_tokens"] + len(got[i]) - held[i] for i in inside}
                for i in sorted(inside, key=lambda i: not (held[i] and unread[i] == 1)):
                    tokens = min(unread[i], left)
                    left, held[i] = left - tokens, held[i] + tokens
                    if tokens and tokens == unread[i]:
                        done.append(i)
                now += cost(budget - left)
                for i in done:
                    got[i].append(now)
        """,
    "objects, deques and a heap of arrivals": """
        import heapq
        from collections import deque
        class Job:
            def __init__(self, number, request):
                self.number, self.prompt, self.new = number, request["prompt_tokens"], request["new_tokens"]
                self.times, self.held = (), 0
            def text(self):
                return self.prompt + len(self.times)
            def unread(self):
                return self.text() - self.held
        def serve(requests, rows, slots, budget, cost):
            jobs = [Job(number, request) for number, request in enumerate(requests)]
            heap = [(request["arrival_s"], number) for number, request in enumerate(requests)]
            heapq.heapify(heap)
            queue, inside, clock = deque(), deque(), 0
            while heap or queue or inside:
                if not queue and not inside and heap[0][0] > clock:
                    clock = heap[0][0]
                while heap and heap[0][0] <= clock:
                    queue.append(jobs[heapq.heappop(heap)[1]])
                while sum(job.text() for job in inside) > slots:
                    out = inside.pop()
                    out.held = 0
                    queue.appendleft(out)
                reads = [(job, 1) for job in inside if job.unread() == 1]
                left = budget - len(reads)
                for job in inside:
                    if job.unread() > 1 and left:
                        reads.append((job, min(left, job.unread())))
                        left -= reads[-1][1]
                room = slots - sum(job.text() for job in inside)
                while queue and len(inside) < rows and left and queue[0].text() <= room:
                    job = queue.popleft()
                    inside.append(job)
                    room -= job.text()
                    reads.append((job, min(left, job.text())))
                    left -= reads[-1][1]
                clock += cost(sum(tokens for _, tokens in reads))
                for job, tokens in reads:
                    job.held += tokens
                    if not job.unread():
                        job.times += (clock,)
                inside = deque(job for job in inside if len(job.times) < job.new)
            return [job.times for job in jobs]
        """,
    "NumPy arrays, padded times cut off at the end": """
        import numpy as np
        def serve(requests, rows, slots, budget, cost):
            arrival = np.array([r["arrival_s"] for r in requests])
            prompt = np.array([r["prompt_tokens"] for r in requests])
            new = np.array([r["new_tokens"] for r in requests])
            got, held = np.zeros_like(new), np.zeros_like(new)
            times, clock = np.full((len(new), new.max()), np.nan), np.float64(0)
            while (got < new).any():
                there = np.flatnonzero((got < new) & (arrival <= clock))
                if not len(there):
                    clock = arrival[got < new].min()
                    continue
                text = prompt + got
                fit = int((np.cumsum(text[there]) <= slots).sum())
                inside = there[: min(fit, rows)]
                held[np.setdiff1d(there, inside)] = 0
                unread = (text - held)[inside]
                order = np.argsort(~((unread == 1) & (held[inside] > 0)), kind="stable")
                tokens = np.diff(np.minimum(np.cumsum(unread[order]), budget), prepend=0)
                inside = inside[order]
                held[inside] += tokens
                clock = clock + cost(int(tokens.sum()))
                done = inside[(tokens > 0) & (held[inside] == text[inside])]
                times[done, got[done]] = clock
                got[done] += 1
            return [row[:n] for row, n in zip(times, new)]
        """,
    "fractions, and the state in a dictionary for each": """
        from fractions import Fraction
        def serve(requests, rows, slots, budget, cost):
            states = [dict(r, number=n, where="away", held=0, times=[]) for n, r in enumerate(requests)]
            clock = Fraction(0)
            def those(where):
                return [s for s in states if s["where"] == where]
            def text(s):
                return s["prompt_tokens"] + len(s["times"])
            while those("away") or those("queue") or those("inside"):
                for s in those("away"):
                    if s["arrival_s"] <= clock:
                        s["where"] = "queue"
                if not those("queue") and not those("inside"):
                    clock = Fraction(those("away")[0]["arrival_s"])
                    continue
                while sum(map(text, those("inside"))) > slots:
                    those("inside")[-1].update(where="queue", held=0)
                turns = [s for s in those("inside") if text(s) - s["held"] == 1]
                turns += [s for s in those("inside") if s not in turns]
                left, reads = budget, []
                for s in turns:
                    reads.append((s, min(left, text(s) - s["held"])))
                    left -= reads[-1][1]
                for s in those("queue"):
                    there = those("inside")
                    if left == 0 or len(there) == rows or sum(map(text, there)) + text(s) > slots:
                        break
                    s["where"] = "inside"
                    reads.append((s, min(left, text(s))))
                    left -= reads[-1][1]
                clock += Fraction(cost(budget - left))
                for s, tokens in reads:
                    s["held"] += tokens
                    if s["held"] == text(s):
                        s["times"].append(clock)
                        if len(s["times"]) == s["new_tokens"]:
                            s["where"] = "gone"
            return [s["times"] for s in states]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


def shown(belief: str) -> frozenset[str]:
    """The cases that are drawn so that a belief fails them."""
    return frozenset(case for case, beliefs in CASES.items() if belief in beliefs)


STAY = 'running = [i for i in running if len(times[i]) < requests[i]["new_tokens"]]'
TURNS = "[*running.items(), *list(waiting.items())[: rows - len(running)]]"
DECODES = "{i: 1 for i, unread in running.items() if unread == 1}"
TOKEN = """                if read[i] == length(i):
                    times[i].append(clock)
"""
PUT_OFF = "                waiting.insert(0, i)\n"
INTO_LINE = (PUT_OFF, "                waiting.append(i)\n                waiting.sort()\n")
SORTED = ("running.append(i)", "running.append(i)\n                    running.sort()")
AGAIN_FROM = "                read[i] = 0\n"
ARRIVAL = (
    "        while coming or",
    """\
        def arrival(i):
            return requests[i]["arrival_s"]

        while coming or""",
)
REST = ("fits[i] = length(i)", "fits[i] = length(i) - read[i]")
UNREAD = "length(i) - read[i] for i in running"
ONE_MORE = (UNREAD, "max(1, length(i) - read[i]) for i in running")
JUMP = 'clock = requests[coming[0]]["arrival_s"]\n'
HERE = 'requests[coming[0]]["arrival_s"] <= clock'
DONE = "        return times\n"

WRONG = {
    "nobody joins before all that run are finished": Wrong(
        changed(("if used > slots:", "if used > slots or running:")),
        shown("Static"),
        ("Whoever is finished gives its row back",),
    ),
    "whoever is finished keeps its row until all are": Wrong(
        changed(
            ("[], [], 0.0", "[], [], 0.0\n        gone = 0"),
            ("fits, rows, budget)", "fits, rows - gone, budget)"),
            (STAY, f"""gone += len(running)
            {STAY}
            gone = gone - len(running) if running else 0"""),
        ),
        frozenset({ROWS, DAY}),
        ("Whoever is finished gives its row back",),
    ),
    "a newcomer decodes in the step in which it reads its prompt": Wrong(
        changed((TOKEN, TOKEN + """\
                    if len(times[i]) == 1 < requests[i]["new_tokens"]:
                        read[i] += 1
                        times[i].append(clock)
""")),
        shown("TwoAtOnce"),
        ("decoded in the same step",),
    ),
    "reading the prompt gives no token": Wrong(
        changed(ONE_MORE, ("                read[i] += tokens\n" + TOKEN, """\
                if read[i] == length(i):
                    times[i].append(clock)
                    tokens = 1
                read[i] += tokens
""")),
        shown("NoFirst"),
        ("gives the first new token",),
    ),
    "a token for each piece of a prompt": Wrong(
        changed(ONE_MORE, ("if read[i] == length(i):", "if True:")), shown("TokenAPiece"), ("gives no token",)
    ),
    "the budget is not looked at": Wrong(
        changed(("fits, rows, budget)", "fits, rows, 10**9)")), shown("NoBudget"), ("read whole",)
    ),
    "decodes are not taken out of the budget": Wrong(
        changed(("budget - len(reads)", "budget")), shown("DecodesFree"), ("is taken from the budget",)
    ),
    "prompts take what is needed to decode": Wrong(
        changed((DECODES, "{}"), (TURNS, f"sorted({TURNS}, key=lambda each: each[1] == 1 and each[0] in running)")),
        shown("PromptsFirst"),
        ("Prompts took what was needed",),
    ),
    "rows are not counted": Wrong(
        changed(("[: rows - len(running)]", "")), shown("NoRows"), ("More requests ran than there are rows",)
    ),
    "the memory is not looked at": Wrong(
        changed(("while sum(length(i) for i in running) > slots", "while False"), ("if used > slots", "if False")),
        shown("NoSlots"),
    ),
    "admission without memory, preemption in the next step": Wrong(
        changed(("if used > slots", "if False")), shown("Unreserved"), ("admitted without room for its text",)
    ),
    "memory is counted for what was read, without the token that is read now": Wrong(
        changed(
            ("fits, used = {}, sum(length(i) for", "fits, used = {}, sum(read[i] for"),
            ("while sum(length(i) for", "while sum(read[i] for"),
        ),
        shown("HeldOnly"),
    ),
    "who does not fit is skipped": Wrong(
        changed(
            ("                    break\n", "                    used -= length(i)\n                    continue\n"),
            SORTED,
            INTO_LINE,
        ),
        shown("Overtaken"),
        ("Nobody overtakes",),
    ),
    "room for all that may come is set aside": Wrong(
        changed(
            ("sum(length(i) for i in running)\n", "sum(most(i) for i in running)\n"),
            ("used += length(i)", "used += most(i)"),
            ("        while coming or", """\
        def most(i):
            return requests[i]["prompt_tokens"] + requests[i]["new_tokens"] - 1

        while coming or"""),
        ),
        shown("Reserved"),
        ("set aside",),
    ),
    "room for the next token is kept": Wrong(
        changed(
            ("in running) > slots", "in running) + len(running) > slots and len(running) > 1"),
            ("sum(length(i) for i in running)\n", "sum(length(i) + 1 for i in running)\n"),
            ("used += length(i)", "used += length(i) + bool(running or fits)"),
        ),
        shown("LastRead"),
    ),
    "preempted when the memory is full, before it is too small": Wrong(
        changed(("in running) > slots", "in running) >= slots and len(running) > 1")),
        shown("TooSoon"),
        ("although all texts had room",),
    ),
    "only one is preempted in a step": Wrong(
        changed(("while sum(length(i)", "if sum(length(i)")), shown("OnlyOne"), ("that was not enough",)
    ),
    "the oldest is preempted": Wrong(
        changed(("running.pop()", "running.pop(0)"), INTO_LINE, SORTED), shown("Oldest"), ("The oldest was preempted",)
    ),
    "the longest is preempted": Wrong(
        changed(
            ("i = running.pop()", "i = max(running, key=length)\n                running.remove(i)"),
            INTO_LINE,
            SORTED,
        ),
        shown("Longest"),
        ("The longest was preempted",),
    ),
    "whoever is preempted goes to the end of the queue": Wrong(
        changed((PUT_OFF, "                waiting.append(i)\n"), SORTED), shown("LastInLine"), ("end of the queue",)
    ),
    "of two that came at once, the preempted one goes behind": Wrong(
        changed(
            (PUT_OFF, "                waiting.append(i)\n                waiting.sort(key=arrival)\n"), SORTED, ARRIVAL
        ),
        shown("BehindEquals"),
        ("Of two that arrived at the same moment",),
    ),
    "a piece of a prompt that was read is kept": Wrong(
        changed((AGAIN_FROM, "                read[i] = 0 if times[i] else read[i]\n"), REST),
        shown("KeepsChunk"),
        ("in the middle of its prompt",),
    ),
    "admitted, though nothing is left to read": Wrong(
        changed(
            ("            clock += cost(", """\
            for i in list(fits)[: rows - len(running)]:
                waiting.remove(i)
                running.append(i)
            clock += cost("""),
        ),
        shown("EmptyHanded"),
        ("in which nothing was left to read",),
    ),
    "cost is asked twice": Wrong(
        changed(("            clock += cost(", "            cost(sum(reads.values()))\n            clock += cost(")),
        frozenset({DAY}),
        ("cost was not asked once in each step",),
    ),
    "cost is asked about no token first": Wrong(
        changed(("        while coming or", "        cost(0)\n        while coming or")),
        frozenset({DAY}),
        ("cost was not asked once in each step", "question 1 of"),
    ),
    "times in whole milliseconds": Wrong(
        changed(("append(clock)", "append(round(clock, 3))")), frozenset({JOIN}), ("comes at another time",)
    ),
    "whoever is preempted need not read again": Wrong(
        changed((AGAIN_FROM, ""), REST), shown("KeepsMemory"), ("reads its whole text again",)
    ),
    "whoever is preempted reads its prompt again only": Wrong(
        changed((AGAIN_FROM, "                read[i] = len(times[i])\n"), REST),
        shown("PromptAgain"),
        ("but not the new tokens",),
    ),
    "whoever is preempted begins anew": Wrong(
        changed((AGAIN_FROM, AGAIN_FROM + "                times[i].clear()\n")),
        shown("LosesTokens"),
        ("lost its new tokens",),
    ),
    "whoever is preempted is forgotten": Wrong(
        changed((PUT_OFF, "")), shown("KeepsMemory"), ("did not get all",)
    ),
    "a preempted text needs room for its prompt only": Wrong(
        changed(("used += length(i)", "used += requests[i]['prompt_tokens']")),
        shown("Fresh"),
        ("when it is admitted again",),
    ),
    "who arrives as a step begins comes too late for it": Wrong(
        changed((HERE, HERE.replace("<=", "<")), (JUMP, JUMP + "                waiting.append(coming.pop(0))\n"),
                ("                continue\n            while sum", "            while sum")),
        shown("Early"),
        ("takes part in it",),
    ),
    "arrivals are seen only when nobody runs": Wrong(
        changed(("while coming and", "while not running and coming and")),
        shown("OnlyWhenIdle"),
        ("only seen when nobody ran",),
    ),
    "all are there from the beginning": Wrong(
        changed((HERE, "True")), shown("AllThere"), ("before they had arrived",)
    ),
    "an idle machine takes steps": Wrong(
        changed((JUMP, "clock += cost(0)\n")), shown("Ticks"), ("went by in steps",)
    ),
    "an idle machine waits until all have come": Wrong(
        changed((JUMP, JUMP.replace("coming[0]", "-1"))), shown("Ticks"), ("comes at another time",)
    ),
    "an idle machine never goes on": Wrong(
        changed((JUMP, "clock = 0.0 * cost(0)\n")), shown("Ticks"), ("Endless", "would it ever end")
    ),
    "time since the first arrival": Wrong(
        changed((DONE, '        return [[t - requests[0]["arrival_s"] for t in each] for each in times]\n')),
        shown("FromFirst"),
        ("Times are those of the clock",),
    ),
    "time since each one's arrival": Wrong(
        changed((DONE, '        return [[t - r["arrival_s"] for t in each] for r, each in zip(requests, times)]\n')),
        shown("SinceArrival"),
        ("Times are those of the clock",),
    ),
    "tokens come when their step begins": Wrong(
        changed(("clock += cost(", "begin, clock = clock, clock + cost("), ("append(clock)", "append(begin)")),
        shown("AtBegin"),
        ("at the end of its step",),
    ),
    "a step is charged for requests": Wrong(
        changed(("sum(reads.values())", "len(reads)")), shown("ByRequests"), ("about tokens",)
    ),
    "a step is charged for each request": Wrong(
        changed(("cost(sum(reads.values()))", "sum(map(cost, reads.values()))")),
        shown("CostEach"),
        ("charged for a step of its own",),
    ),
    "prompts are not charged": Wrong(
        changed(("sum(reads.values())", "sum(n for n in reads.values() if n == 1)")),
        ALL,
        ("should read", "cost was asked about 0 tokens"),
    ),
    "what the texts hold is charged, not what is read": Wrong(
        changed(("sum(reads.values())", "sum(length(i) for i in reads)")), ALL, ("cost was asked about",)
    ),
    "the last new token is read, too": Wrong(
        changed(
            (STAY, STAY[:-1] + " or read[i] < length(i)]"),
            ("if read[i] == length(i):", 'if read[i] == length(i) and len(times[i]) < requests[i]["new_tokens"]:'),
        ),
        shown("LastTokenRead"),
        ("The last new token is not read",),
    ),
    "one token too many": Wrong(changed((STAY, STAY.replace("<", "<="))), ALL, ("more new tokens than it asked for",)),
    "the last that came is admitted first": Wrong(
        changed(("waiting.append(coming.pop(0))", "waiting.insert(0, coming.pop(0))"), SORTED),
        shown("Newest"),
        ("Who came last was admitted first",),
    ),
    "one joins in a step": Wrong(
        changed(("for i in waiting:", "for i in waiting[:1]:")), shown("OneByOne"), ("One request was admitted",)
    ),
    "requests are taken out of the caller's list": Wrong(
        changed((DONE, f"        requests.clear()\n{DONE}")), frozenset({INPUTS}), ("changed the requests",)
    ),
    "what is read is noted in the requests": Wrong(
        changed(("read[i] += tokens\n", "read[i] += tokens\n                requests[i]['read'] = read[i]\n")),
        frozenset({INPUTS}),
        ("changed the requests",),
    ),
    "only the last times": Wrong(
        changed((DONE, "        return [each[-1] for each in times]\n")), ALL, ("should be a list of numbers",)
    ),
    "a dictionary": Wrong(
        changed((DONE, "        return {str(i): each for i, each in enumerate(times)}\n")),
        ALL,
        ("A list is asked for",),
    ),
    "nothing is returned": Wrong(changed((DONE, "        return None\n")), ALL, ("Did you forget",)),
}  # fmt: skip
