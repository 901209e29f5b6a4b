"""Solutions of ex10.speculate: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex10_speculate import AGAIN, CASES, END, EVERY, FEW, SHORT, SOME, STOP, TWICE
from course_lib.checks.ex10_speculate import RIGHT as GOOD
from course_lib.checks.ex10_speculate import WRONG as POOR

ALL = frozenset(CASES)

ACCEPT = """
    def accept(draft, choices, stop_tokens, most):
        new = []
        for guess, choice in zip([*draft, None], choices):
            new.append(choice)
            if guess != choice or choice in stop_tokens or len(new) == most:
                break
        return new
    """

LOOP = """
    def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
        text, end = list(prompt), len(prompt) + max_new_tokens
        target_cache, draft_cache = target.new_cache(), draft.new_cache()
        guesses = []
        while True:
            choices = target(text[target_cache.length :] + guesses, target_cache)[-len(guesses) - 1 :]
            text += accept(guesses, choices, stop_tokens, end - len(text))
            if text[-1] in stop_tokens or len(text) == end:
                return text[len(prompt) :]
            target_cache.truncate(min(target_cache.length, len(text) - 1))
            draft_cache.truncate(min(draft_cache.length, len(text) - 1))
            guesses = []
            for _ in range(min(draft_tokens, end - len(text) - 1)):
                unread = (text + guesses)[draft_cache.length :]
                guesses.append(draft(unread, draft_cache)[-1])
    """

RIGHT = {
    "what is unread is worked out from the caches": ACCEPT + LOOP,
    "the draft begins, on the prompt": """
        def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
            text, new = list(prompt), []
            caches = target.new_cache(), draft.new_cache()
            while len(new) < max_new_tokens and not (new and new[-1] in stop_tokens):
                ahead = list(text)
                for _ in range(min(draft_tokens, max_new_tokens - len(new) - 1)):
                    ahead.append(draft(ahead[caches[1].length :], caches[1])[-1])
                held = caches[0].length
                choices = target(ahead[held:], caches[0])
                while True:
                    choice = choices[len(text) - 1 - held]
                    stands = len(ahead) > len(text) and ahead[len(text)] == choice
                    text.append(choice)
                    new.append(choice)
                    if not stands or choice in stop_tokens:
                        break
                for cache in caches:
                    if cache.length >= len(text):
                        cache.truncate(len(text) - 1)
            return tuple(new)
        """,
    "the draft reads its last token as well": """
        import numpy as np
        def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
            of_target, of_draft = target.new_cache(), draft.new_cache()
            new = [target(prompt, of_target)[-1]]
            behind = list(prompt)
            while new[-1] not in stop_tokens and len(new) < max_new_tokens:
                k = min(draft_tokens, max_new_tokens - len(new) - 1)
                guess, guesses = draft([*behind, new[-1]], of_draft)[-1], []
                while len(guesses) < k:
                    guesses.append(guess)
                    guess = draft([guess], of_draft)[-1]
                before = of_target.length
                choices = np.array(target(np.array([new[-1], *guesses]), of_target))
                wrong = np.flatnonzero(np.array(guesses, dtype=int) != choices[:k])
                stands = int(wrong[0]) if len(wrong) else k
                stops = [i for i, token in enumerate(choices[: stands + 1]) if token in stop_tokens]
                stands = min([stands, *stops])
                new += choices[: stands + 1].tolist()
                of_target.truncate(before + 1 + stands)
                of_draft.truncate(before + 1 + stands)
                behind = []
            return np.array(new)
        """,
    "all but the last token of the prompt first": """
        import torch
        def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
            old, new = [], list(prompt)  # what both caches hold, and what is behind
            end = len(prompt) + max_new_tokens
            tc, dc = target.new_cache(), draft.new_cache()
            if len(prompt) > 1:
                target(prompt[:-1], tc)
            while len(old) + len(new) < end and not (len(old) + len(new) > len(prompt) and new[-1] in stop_tokens):
                t = len(old) + len(new)
                drafted = torch.tensor([], dtype=torch.long)
                while len(drafted) < min(draft_tokens, end - t - 1):
                    known = torch.tensor(old + new + drafted.tolist())
                    drafted = torch.cat((drafted, torch.tensor(draft(known[dc.length :], dc)[-1:])))
                fed = torch.cat((torch.tensor(new[-1:]), drafted))
                choices = torch.tensor(target(fed, tc))
                stand = int((drafted == choices[:-1]).long().cumprod(0).sum())
                came = choices[: stand + 1].tolist()
                cut = [i + 1 for i, token in enumerate(came) if token in stop_tokens]
                came = came[: cut[0]] if cut else came
                old, new = old + new + came[:-1], came[-1:]
                tc.truncate(len(old))
                dc.truncate(min(dc.length, len(old)))
            return torch.tensor((old + new)[len(prompt) :])
        """,
    "a class for one model and its cache": """
        class Reader:
            def __init__(self, model):
                self.model, self.cache = model, model.new_cache()

            def choices(self, text, count):
                \"\"\"The last `count` choices after the whole text.\"\"\"
                return self.model(text[self.cache.length :], self.cache)[-count:]

            def keep(self, text):
                self.cache.truncate(min(self.cache.length, len(text) - 1))

        def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
            big, small, text = Reader(target), Reader(draft), list(prompt) + target.new_cache().length * [0]
            left = max_new_tokens
            text += big.choices(text, 1)
            left -= 1
            while left and text[-1] not in stop_tokens:
                ahead = list(text)
                for _ in range(min(draft_tokens, left - 1)):
                    ahead += small.choices(ahead, 1)
                for choice in big.choices(ahead, len(ahead) - len(text) + 1):
                    text.append(choice)
                    left -= 1
                    if choice in stop_tokens or ahead[: len(text)] != text:
                        break
                big.keep(text)
                small.keep(text)
            return text[len(prompt) :]
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The first right solution with some text of its loop replaced."""
    return ACCEPT + changed_in(LOOP, *pairs)


def accepting(*pairs: tuple[str, str]) -> str:
    """The first right solution with some text of its `accept` replaced."""
    return changed_in(ACCEPT, *pairs) + LOOP


NOT_READ = "text[target_cache.length :]"
READ = "choices = target(text[target_cache.length :] + guesses, target_cache)[-len(guesses) - 1 :]"
ADD = "text += accept(guesses, choices, stop_tokens, end - len(text))"
CUT = "target_cache.truncate(min(target_cache.length, len(text) - 1))"
CUT_DRAFT = "draft_cache.truncate(min(draft_cache.length, len(text) - 1))"
COUNT = "range(min(draft_tokens, end - len(text) - 1))"
UNREAD = "unread = (text + guesses)[draft_cache.length :]"
NEW = "target_cache, draft_cache = target.new_cache(), draft.new_cache()"
END_IF = "if text[-1] in stop_tokens or len(text) == end:"
REFUSES = frozenset({SOME, POOR, EVERY, STOP, END, FEW, TWICE, AGAIN})  # the cases in which guesses are refused

WRONG = {
    "one token a pass, without a draft": Wrong(
        changed(("for _ in " + COUNT, "for _ in range(0)")), ALL, ("each pass of the target read one token",)
    ),
    "drafted, and then read one by one": Wrong(
        changed(
            (
                READ,
                """choices = target(text[target_cache.length :], target_cache)[-1:]
            for guess in guesses:
                if guess != choices[-1]:
                    break
                choices += target([guess], target_cache)
            choices += [None] * (len(guesses) + 1 - len(choices))""",
            )
        ),
        ALL,
        ("read one token",),
    ),
    "everything is cleared after a refusal": Wrong(
        changed(
            (
                CUT,
                """if target_cache.length >= len(text):
                target_cache = target.new_cache()""",
            )
        ),
        frozenset({FEW, TWICE}),
        ("The target has read a token of the text again",),
    ),
    "everything is read again in each round": Wrong(
        changed((CUT, "target_cache.truncate(0)"), (CUT_DRAFT, "draft_cache.truncate(0)")),
        frozenset({FEW, TWICE, AGAIN}),
        ("The target has read a token of the text again",),
    ),
    "the draft has no cache": Wrong(
        changed((UNREAD, "unread, draft_cache = text + guesses, draft.new_cache()")),
        frozenset({FEW, AGAIN}),
        ("The draft has read",),
    ),
    "the draft forgets what it has proposed": Wrong(
        changed(
            (ADD, "before = len(text)\n            " + ADD),
            (CUT_DRAFT, "draft_cache.truncate(min(draft_cache.length, before))"),
        ),
        frozenset({FEW, AGAIN}),
        ("The draft has read",),
    ),
    "the last accepted token is missing in the draft's cache": Wrong(
        changed(
            (
                UNREAD,
                "unread = (text + guesses)[draft_cache.length :] if not draft_cache.length else (text + guesses)[-1:]",
            )
        ),
        frozenset({GOOD, FEW}),
        ("The last guess of a draft is made, but not read",),
    ),
    "the draft's cache keeps what was refused": Wrong(
        changed(
            (CUT_DRAFT, "pass"),
            (UNREAD, "unread = (text + guesses)[draft_cache.length :] or (text + guesses)[-1:]"),
        ),
        frozenset({END, FEW}),
        ("MemoryError: the cache has room",),
    ),
    "the target's cache keeps what was refused": Wrong(
        changed(
            (CUT, "pass"),
            (
                READ,
                READ.replace(NOT_READ, f"({NOT_READ} or text[-1:])"),
            ),
        ),
        REFUSES,
        ("A refused guess has to go",),
    ),
    "one refused token stays in the target's cache": Wrong(
        changed(
            (CUT, "target_cache.truncate(min(target_cache.length, len(text)))"),
            (
                READ,
                READ.replace(NOT_READ, f"({NOT_READ} or text[-1:])"),
            ),
        ),
        REFUSES,
        ("A refused guess has to go",),
    ),
    "truncated to one token less": Wrong(
        changed((CUT, "target_cache.truncate(min(target_cache.length, len(text) - 2))")),
        frozenset({FEW, TWICE}),
        ("The target has read a token of the text again",),
    ),
    "truncated to one token less, which is not read again": Wrong(
        changed(
            (CUT, "target_cache.truncate(min(target_cache.length, len(text) - 2))"),
            (
                READ,
                READ.replace(NOT_READ, "(text[-1:] if target_cache.length else text)"),
            ),
        ),
        ALL,
        ("was neither in it nor read",),
    ),
    "truncated to the text before the round": Wrong(
        changed(
            (ADD, "before = len(text)\n            " + ADD),
            (CUT, "target_cache.truncate(before)"),
        ),
        frozenset({FEW, TWICE}),
        ("The target has read a token of the text again",),
    ),
    "both caches to the length of the text": Wrong(
        changed((CUT, "target_cache.truncate(len(text))")), ALL, ("cannot be truncated",)
    ),
    "the draft's cache to the text, also if it is shorter": Wrong(
        changed((CUT_DRAFT, "draft_cache.truncate(len(text) - 1)")), ALL, ("cannot be truncated",)
    ),
    "one cache for both": Wrong(
        changed((NEW, "target_cache = draft_cache = target.new_cache()")), ALL, ("each model needs one of its own",)
    ),
    "everything is accepted": Wrong(
        accepting(
            ("guess != choice or", "guess is None or"),
            ("new.append(choice)", "new.append(choice if guess is None else guess)"),
        ),
        REFUSES,
        ("the target has chosen another one",),
    ),
    "the first guess is not checked": Wrong(
        accepting(
            ("new.append(choice)", "new.append(guess if not new and guess is not None else choice)"),
            ("guess != choice or choice in", "(guess != choice and (len(new) > 1 or guess is None)) or new[-1] in"),
        ),
        REFUSES,
        ("the target has chosen another one",),
    ),
    "the draft's own choices are compared": Wrong(
        changed((READ, READ + "\n            choices = guesses + choices[-1:]")),
        REFUSES,
        ("the target has chosen another one",),
    ),
    "what agrees is counted": Wrong(
        changed(
            (
                ADD,
                """agree = sum(g == c for g, c in zip(guesses, choices))
            guesses = guesses[:agree]
            text += accept(guesses, guesses + choices[agree : agree + 1], stop_tokens, end - len(text))""",
            )
        ),
        REFUSES - {POOR},
        (),
    ),
    "compared one place off": Wrong(
        changed(
            (
                ADD,
                """right = 0
            while right < len(guesses) and guesses[right] == choices[right + 1]:
                right += 1
            text += accept(guesses[:right], guesses[:right] + [choices[right]], stop_tokens, end - len(text))""",
            )
        ),
        ALL,
        ("decoding without a draft",),
    ),
    "no token of the target's own after a draft that stays": Wrong(
        changed(
            (
                ADD,
                """new = accept(guesses, choices, stop_tokens, end - len(text))
            text += new[:-1] if len(new) > len(guesses) > 0 else new""",
            )
        ),
        frozenset({GOOD, EVERY, SHORT, FEW, TWICE}),
        ("Here it took more passes",),
    ),
    "the answer of the draft": Wrong(
        changed((READ, "choices = guesses + draft((text + guesses)[draft_cache.length :], draft_cache)[-1:]")),
        ALL,
        (),
    ),
    "a draft that is one token short": Wrong(
        changed((COUNT, "range(min(draft_tokens - 1, end - len(text) - 1))")),
        frozenset({GOOD, EVERY, FEW}),
        ("no draft had 4 tokens",),
    ),
    "one guess in each round": Wrong(
        changed((COUNT, "range(min(1, end - len(text) - 1))")), frozenset({GOOD, FEW}), ("no draft had",)
    ),
    "one guess more than draft_tokens": Wrong(
        changed((COUNT, "range(min(draft_tokens + 1, end - len(text) - 1))")),
        frozenset({EVERY, FEW}),
        ("More guesses than `draft_tokens`",),
    ),
    "always eight guesses": Wrong(
        changed((COUNT, "range(min(8, end - len(text) - 1))")),
        frozenset({EVERY, FEW}),
        ("More guesses than `draft_tokens`",),
    ),
    "as many guesses as tokens may come": Wrong(
        changed((COUNT, "range(end - len(text) - 1)")), frozenset({EVERY, FEW}), ("More guesses than `draft_tokens`",)
    ),
    "the target's own numbers, taken out of it": Wrong(
        """
        import torch
        def speculate(target, draft, prompt, max_new_tokens, draft_tokens, stop_tokens):
            cells = [cell.cell_contents for cell in target._read.__closure__]
            toy = next(cell for cell in cells if type(cell).__name__ == "ToyModel")
            text = list(prompt)
            while len(text) < len(prompt) + max_new_tokens:
                seen = toy.notes(torch.tensor(text), torch.arange(len(text))).cumsum(0)
                text.append(int(toy.next_tokens(seen)[-1]))
                if text[-1] in stop_tokens:
                    break
            target(text[:-1], target.new_cache())
            return text[len(prompt) :]
        """,
        ALL,
        ("guesses that the draft did not make",),
    ),
    "the same guess again and again": Wrong(
        changed((UNREAD, "unread = text[draft_cache.length :] or text[-1:]")), frozenset({GOOD, FEW}), ()
    ),
    "drafts beyond the end": Wrong(changed((COUNT, "range(draft_tokens)")), frozenset({END}), ("MemoryError",)),
    "one token more than was asked for": Wrong(
        changed((NEW, NEW + "\n        end += 1")), ALL, ("new tokens came back",)
    ),
    "one token less than there may be": Wrong(
        changed((NEW, NEW + "\n        end -= end > len(prompt) + 1")), ALL, ("ended too early",)
    ),
    "only the last new token is asked whether it stops": Wrong(
        accepting((" or choice in stop_tokens", "")), frozenset({STOP}), ("went on after a stop token",)
    ),
    "the stop token is dropped": Wrong(
        changed(("return text[len(prompt) :]", "return [t for t in text[len(prompt) :] if t not in stop_tokens]")),
        frozenset({STOP}),
        ("The stop token is missing",),
    ),
    "stop tokens are not looked for": Wrong(
        accepting((" or choice in stop_tokens", "")).replace("text[-1] in stop_tokens or ", ""),
        frozenset({STOP}),
        ("went on after a stop token",),
    ),
    "a stop token in a refused draft ends the answer": Wrong(
        changed((END_IF, "if set(guesses) & set(stop_tokens) or " + END_IF[3:])),
        frozenset({STOP}),
        ("none that was refused",),
    ),
    "a stop token in the prompt ends the answer": Wrong(
        changed((END_IF, "if set(text) & set(stop_tokens) or " + END_IF[3:])), frozenset({STOP}), ("ended too early",)
    ),
    "the prompt comes back as well": Wrong(
        changed(("return text[len(prompt) :]", "return text")), ALL, ("The prompt came back",)
    ),
    "the prompt grows": Wrong(
        changed(("text, end = list(prompt)", "text, end = prompt")), ALL, ("No new token came back",)
    ),
    "the wrong choices are taken": Wrong(changed(("[-len(guesses) - 1 :]", "[: len(guesses) + 1]")), ALL, ()),
    "nothing is returned": Wrong(changed(("return text[len(prompt) :]", "return")), ALL, ("Did you forget `return`?",)),
    "it never ends": Wrong(
        changed(
            (END_IF, "if text[-1] in stop_tokens and len(text) > end:"),
            (ADD, "text += accept(guesses, choices, stop_tokens, 3)"),
        ),
        ALL,
        (),
    ),
}
