"""Solutions of ex07.plan: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex07_plan import (
    ADMIT,
    CASES,
    CHUNK,
    DAY,
    DECODE,
    FULL,
    INPUTS,
    LAST,
    ORDER,
    SHORT,
    SPENT,
)

ALL = frozenset(CASES)
JOINING = frozenset({LAST, ADMIT, SPENT, SHORT, INPUTS, DAY})  # cases in which somebody is admitted

PLAIN = """
    def plan(running, waiting, rows, budget):
        reads, left = {}, budget
        for name, unread in running.items():
            if unread == 1:
                reads[name] = 1
                left -= 1
        prompts = [each for each in running.items() if each[1] > 1]
        joining = list(waiting.items())[: rows - len(running)]
        for name, unread in prompts + joining:
            if left > 0:
                reads[name] = min(unread, left)
                left -= reads[name]
        return reads
    """

RIGHT = {
    "decodes, then a list of all others": PLAIN,
    "three loops": """
        def plan(running, waiting, rows, budget):
            reads, left = {}, budget
            for name, unread in running.items():
                if unread == 1:
                    reads[name] = 1
                    left -= 1
            for name, unread in running.items():
                if unread > 1 and left > 0:
                    reads[name] = min(unread, left)
                    left -= reads[name]
            free = rows - len(running)
            for name, unread in waiting.items():
                if free == 0 or left == 0:
                    break
                reads[name] = min(unread, left)
                left -= reads[name]
                free -= 1
            return reads
        """,
    "one list of turns": """
        def plan(running, waiting, rows, budget):
            free = max(0, rows - len(running))
            turns = sorted(running.items(), key=lambda each: each[1] > 1) + list(waiting.items())[:free]
            reads = {}
            for name, unread in turns:
                tokens = min(unread, budget - sum(reads.values()))
                if tokens:
                    reads[name] = tokens
            return reads
        """,
    "NumPy, differences of running sums": """
        import numpy as np
        def plan(running, waiting, rows, budget):
            names, unread = list(running), list(running.values())
            free = rows - len(names)
            names, unread = names + list(waiting)[:free], np.array(unread + list(waiting.values())[:free])
            first = (unread == 1) & (np.arange(len(names)) < len(running))
            order = np.argsort(~first, kind="stable")
            ends = np.minimum(np.cumsum(unread[order]), budget)
            tokens = np.diff(ends, prepend=0)
            return {names[i]: n for i, n in zip(order, tokens) if n > 0}
        """,
    "token by token, counted": """
        from collections import Counter
        from itertools import chain, islice
        def plan(running, waiting, rows, budget):
            decodes = (name for name, n in running.items() if n == 1)
            prompts = chain.from_iterable([name] * n for name, n in running.items() if n > 1)
            joining = islice(waiting, rows - len(running))
            new = chain.from_iterable([name] * waiting[name] for name in joining)
            return Counter(islice(chain(decodes, prompts, new), budget))
        """,
    "recursive, as floats": """
        def plan(running, waiting, rows, budget):
            def rest(turns, left):
                if not turns or left <= 0:
                    return {}
                (name, unread), *others = turns
                return {name: float(min(unread, left)), **rest(others, left - unread)}
            turns = [(name, n) for name, n in running.items() if n == 1]
            turns += [each for each in running.items() if each not in turns]
            return rest(turns + [*waiting.items()][: rows - len(running)], budget)
        """,
    "the dictionaries are copied, and emptied": """
        def plan(running, waiting, rows, budget):
            running, waiting, reads = dict(running), dict(waiting), {}
            places = rows - len(running)
            for name in [name for name in running if running[name] == 1]:
                reads[name] = running.pop(name)
            budget -= len(reads)
            while budget and (running or (waiting and places)):
                source = running or waiting
                places -= source is waiting
                name = next(iter(source))
                reads[name] = min(budget, source.pop(name))
                budget -= reads[name]
            return reads
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


EVERYBODY = "prompts + joining"
WRONG = {
    "decodes are not taken out of the budget": Wrong(
        changed(("                left -= 1\n", "")), ALL - {ADMIT}, ("take their tokens out of the budget",)
    ),
    "in the order of arrival, whoever decodes": Wrong(
        """
        def plan(running, waiting, rows, budget):
            reads = {}
            for name, unread in [*running.items(), *list(waiting.items())[: rows - len(running)]]:
                tokens = min(unread, budget - sum(reads.values()))
                if tokens > 0:
                    reads[name] = tokens
            return reads
        """,
        frozenset({DECODE, CHUNK, FULL, ORDER, DAY}),
        ("Decodes come first",),
    ),
    "prompts first": Wrong(
        """
        def plan(running, waiting, rows, budget):
            turns = sorted(running.items(), key=lambda each: each[1] == 1)
            reads = {}
            for name, unread in [*turns, *list(waiting.items())[: rows - len(running)]]:
                tokens = min(unread, budget - sum(reads.values()))
                if tokens > 0:
                    reads[name] = tokens
            return reads
        """,
        frozenset({DECODE, CHUNK, FULL, ORDER, SHORT, DAY}),
        ("Decodes come first",),
    ),
    "no piece of more than 512 tokens": Wrong(
        changed(("min(unread, left)", "min(unread, left, 512)")),
        frozenset({ADMIT}),
        ("Something of the budget is left",),
    ),
    "the budget is for each": Wrong(
        changed(("                left -= reads[name]\n", "")),
        frozenset({LAST, SPENT, ORDER, SHORT, INPUTS, DAY}),
        ("not for each",),
    ),
    "prompts are read whole": Wrong(
        changed(("min(unread, left)", "unread")), ALL - {ADMIT}, ("read whole, whatever the budget is",)
    ),
    "new prompts are read whole": Wrong(
        changed(("min(unread, left)", "unread if name in waiting else min(unread, left)")),
        frozenset({LAST, SPENT, INPUTS, DAY}),
        ("read whole, whatever the budget is",),
    ),
    "a prompt that does not fit whole waits": Wrong(
        changed(("if left > 0:", "if unread > left:\n                break\n            else:")),
        ALL - {ADMIT},
        ("read in pieces",),
    ),
    "a prompt that does not fit whole is overtaken": Wrong(
        changed(("left > 0", "unread <= left")), ALL - {ADMIT}, ("read in pieces",)
    ),
    "the shortest that waits first": Wrong(
        changed(("list(waiting.items())", "sorted(waiting.items(), key=lambda each: each[1])")),
        frozenset({ADMIT, SPENT, INPUTS, DAY}),
        ("Whoever came first is served first",),
    ),
    "the shortest prompt that runs first": Wrong(
        changed((EVERYBODY, "sorted(prompts, key=lambda each: each[1]) + joining")),
        frozenset({ORDER, DAY}),
        ("Whoever came first is served first",),
    ),
    "the queue by name": Wrong(
        changed(("list(waiting.items())", "sorted(waiting.items())")), JOINING, ("The last in the order was served",)
    ),
    "the last that came first": Wrong(
        changed(("list(waiting.items())", "list(waiting.items())[::-1]")),
        JOINING,
        ("The last in the order was served",),
    ),
    "rows that are taken are counted as free": Wrong(
        changed(("rows - len(running)", "rows")), frozenset({DECODE, ADMIT, FULL, DAY}), ("have theirs already",)
    ),
    "rows are not counted": Wrong(
        changed(("[: rows - len(running)]", "")), frozenset({DECODE, ADMIT, FULL, DAY}), ("have theirs already",)
    ),
    "only who decodes keeps its row": Wrong(
        changed(("rows - len(running)", "rows - len(reads)")), frozenset({FULL, DAY}), ("More requests are admitted",)
    ),
    "only one joins in a step": Wrong(
        changed(("rows - len(running)", "min(1, rows - len(running))")),
        frozenset({ADMIT, SPENT, INPUTS, DAY}),
        ("Only one request was admitted",),
    ),
    "no more than three join in a step": Wrong(
        changed(("rows - len(running)", "min(3, rows - len(running))")),
        frozenset({ADMIT}),
        ("Something of the budget is left",),
    ),
    "a piece of one token is not worth it": Wrong(
        changed(("if left > 0:", "if left > 1 or (left and (unread == 1 or name in running)):")),
        frozenset({SPENT, DAY}),
        ("a piece of one token is a piece",),
    ),
    "nobody joins": Wrong(changed((EVERYBODY, "prompts")), JOINING, ("Nobody was admitted, though a row is free",)),
    "nobody joins beside a prompt": Wrong(
        changed((EVERYBODY, "prompts or joining")), frozenset({LAST, SHORT, INPUTS, DAY}), ("holds nobody up",)
    ),
    "those that wait before prompts that run": Wrong(
        changed((EVERYBODY, "joining + prompts")),
        frozenset({LAST, ORDER, SHORT, INPUTS, DAY}),
        ("before a running request",),
    ),
    "one unread token is a decode, also of those that wait": Wrong(
        changed((EVERYBODY, "sorted(prompts + joining, key=lambda each: each[1] > 1)")),
        frozenset({SHORT, DAY}),
        ("Those that wait come after all that run",),
    ),
    "the budget is split evenly": Wrong(
        """
        def plan(running, waiting, rows, budget):
            reads = {name: 1 for name, unread in running.items() if unread == 1}
            prompts = [each for each in running.items() if each[1] > 1]
            prompts += list(waiting.items())[: rows - len(running)]
            if prompts:
                share = (budget - len(reads)) // len(prompts)
                reads.update({name: min(unread, share) for name, unread in prompts if share})
            return reads
        """,
        frozenset({LAST, SPENT, ORDER, SHORT, INPUTS, DAY}),
        ("split evenly",),
    ),
    "whoever reads nothing stands there with 0": Wrong(
        changed(("left > 0", "True")), frozenset({SPENT, ORDER, SHORT, DAY}), ("does not belong into",)
    ),
    "each that runs reads one token": Wrong(
        changed(("unread == 1", "True"), (EVERYBODY, "joining")), ALL - {ADMIT, SPENT}, ("read one token",)
    ),
    "one token of the budget is kept back": Wrong(
        changed(("{}, budget", "{}, budget - 1")), ALL - {ADMIT}, ("Something of the budget is left",)
    ),
    "who is admitted is taken out of the queue": Wrong(
        changed(("return reads", "[waiting.pop(name, None) for name in reads]\n        return reads")),
        frozenset({INPUTS}),
        ("changed a dictionary",),
    ),
    "what is read is taken off": Wrong(
        changed(("reads[name] = 1\n", "reads[name] = 1\n                running[name] -= 1\n")),
        frozenset({INPUTS}),
        ("changed a dictionary",),
    ),
    "who is admitted comes back, too": Wrong(
        changed(("return reads", "return reads, [name for name in reads if name in waiting]")), ALL, ("A dictionary",)
    ),
    "pairs": Wrong(changed(("return reads", "return list(reads.items())")), ALL, ("A dictionary",)),
    "nothing is returned": Wrong(changed(("return reads", "return None")), ALL, ("Did you forget",)),
}
