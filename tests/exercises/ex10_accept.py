"""Solutions of ex10.accept: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex10_accept import (
    AGAIN,
    ALL,
    BUDGET,
    CASES,
    FIRST,
    INPUTS,
    NO_STOP,
    OFTEN,
    OWN,
    SHORT,
    SOME,
    STOP,
)

EVERY = frozenset(CASES)

PLAIN = """
    def accept(draft, choices, stop_tokens, most):
        new = []
        for guess, choice in zip([*draft, None], choices):
            new.append(choice)
            if guess != choice or choice in stop_tokens or len(new) == most:
                break
        return new
    """

STEPS = """
    def accept(draft, choices, stop_tokens, most):
        right = 0
        while right < len(draft) and draft[right] == choices[right]:
            right += 1
        new = draft[:right] + [choices[right]]
        for at, token in enumerate(new):
            if token in stop_tokens:
                new = new[: at + 1]
                break
        return new[:most]
    """

RIGHT = {
    "along the choices": PLAIN,
    "count, add, cut": STEPS,
    "torch: a running product of what agrees": """
        import torch
        def accept(draft, choices, stop_tokens, most):
            draft, choices = torch.tensor(draft, dtype=torch.long), torch.tensor(choices)
            right = int((draft == choices[:-1]).long().cumprod(0).sum())
            new = torch.cat((draft[:right], choices[right : right + 1]))
            stops = torch.isin(new, torch.tensor(stop_tokens)).nonzero().flatten()
            end = int(stops[0]) + 1 if len(stops) else len(new)
            return new[: min(end, most)]
        """,
    "NumPy: the first place that differs, as a tuple": """
        import numpy as np
        def accept(draft, choices, stop_tokens, most):
            a, c = np.array(draft, dtype=int), np.array(choices)
            ends = (np.append(a, -1) != c) | np.isin(c, stop_tokens)
            ends[min(most, len(c)) - 1] = True
            return tuple(c[: ends.argmax() + 1])
        """,
    "one after the other, as it calls itself": """
        def accept(draft, choices, stop_tokens, most):
            first, *rest = choices
            if not draft or draft[0] != first or first in set(stop_tokens) or most == 1:
                return [first]
            return [first] + accept(draft[1:], rest, stop_tokens, most - 1)
        """,
}


def plain(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


def steps(*pairs: tuple[str, str]) -> str:
    return changed_in(STEPS, *pairs)


NEW = "new = draft[:right] + [choices[right]]"
LOOP = "while right < len(draft) and draft[right] == choices[right]:"
REFUSED = frozenset({SOME, FIRST, AGAIN, SHORT, OWN, NO_STOP, OFTEN, INPUTS})  # something is refused

WRONG = {
    "the first draft token is not checked": Wrong(
        steps(("right = 0", "right = min(1, len(draft))")),
        frozenset({FIRST, AGAIN, SHORT, OWN, NO_STOP, OFTEN}),
        ("The first guess was not checked",),
    ),
    "everything is accepted": Wrong(steps((LOOP, "while right < len(draft):")), REFUSED, ("unchecked",)),
    "all that agree, wherever they stand": Wrong(
        steps(
            (NEW, "new = [d for d, c in zip(draft, choices) if d == c] + [choices[-1]]"),
        ),
        REFUSED,
        (),
    ),
    "those that agree are counted": Wrong(
        steps(
            (LOOP, "for d, c in zip(draft, choices):"),
            ("            right += 1", "            right += d == c"),
        ),
        frozenset({AGAIN, NO_STOP, OFTEN}),
        ("after a wrong one",),
    ),
    "compared with the choice after it": Wrong(
        steps((LOOP, "while right < len(draft) and draft[right] == choices[right + 1]:")),
        EVERY - {FIRST},
        ("compared with the wrong choices",),
    ),
    "the refused token stays": Wrong(
        steps((NEW, "new = draft[: right + 1] + [choices[right]] * (right == len(draft))")),
        REFUSED,
        ("The refused guess is still there",),
    ),
    "the refused token stays before the target's own": Wrong(
        steps((NEW, "new = draft[: right + 1] + [choices[right]]")), REFUSED, ("The refused guess is still there",)
    ),
    "the target's own token is forgotten": Wrong(
        steps((NEW, "new = draft[:right]")),
        EVERY - {STOP},
        ("The target's own token is missing",),
    ),
    "no token after a draft that stays": Wrong(
        steps((NEW, "new = draft[:right] + [choices[right]] * (right < len(draft))")),
        frozenset({ALL, SHORT, OWN, OFTEN, BUDGET, INPUTS}),
        ("comes for nothing",),
    ),
    "the last choice follows": Wrong(
        steps((NEW, "new = draft[:right] + [choices[-1]]")), REFUSED, ("The token that follows is choices[",)
    ),
    "the choice after the refused token follows": Wrong(
        steps((NEW, "new = draft[:right] + [choices[min(right + 1, len(draft))]]")),
        REFUSED,
        ("The token that follows is choices[",),
    ),
    "all choices": Wrong(steps((NEW, "new = list(choices)")), REFUSED - {OWN}, ("all the choices",)),
    "the target's own token only": Wrong(
        steps((NEW, "new = [choices[right]]")), EVERY - {FIRST}, ("they are new tokens, too",)
    ),
    "stop tokens are not looked for": Wrong(
        plain((" or choice in stop_tokens", "")), frozenset({STOP, BUDGET, OFTEN}), ("It ends the answer",)
    ),
    "only the last token is asked": Wrong(
        steps(
            ("for at, token in enumerate(new):", "for at, token in [(len(new) - 1, new[-1])]:"),
        ),
        frozenset({STOP, BUDGET, OFTEN}),
        ("It ends the answer",),
    ),
    "the first of the stop tokens that is there": Wrong(
        steps(
            (
                """        for at, token in enumerate(new):
            if token in stop_tokens:
                new = new[: at + 1]
                break
""",
                """        for token in stop_tokens:
            if token in new:
                new = new[: new.index(token) + 1]
                break
""",
            )
        ),
        frozenset({STOP}),
        ("comes first in the text",),
    ),
    "token 0 is no guess": Wrong(
        plain(("if guess != choice or", "if not guess or guess != choice or")),
        frozenset({ALL}),
        ("Token 0 is a guess like any other",),
    ),
    "the same object": Wrong(plain(("guess != choice", "guess is not choice")), frozenset({ALL}), ("Compare with ==",)),
    "no more than eight guesses": Wrong(plain(("choices):", "choices[:9]):")), frozenset({ALL})),
    "the stop token is dropped": Wrong(
        steps(("new[: at + 1]", "new[:at]")), frozenset({STOP, OWN, BUDGET, OFTEN}), ("The stop token is missing",)
    ),
    "the target's own token after a stop token": Wrong(
        steps(
            (
                NEW,
                """for at, token in enumerate(draft[:right]):
            if token in stop_tokens:
                right = at + 1
                break
        return (draft[:right] + [choices[right]])[:most]
        """
                + NEW,
            )
        ),
        frozenset({STOP, BUDGET, OFTEN}),
        ("It ends the answer",),
    ),
    "a stop token that was refused ends the round": Wrong(
        steps(
            (
                "        right = 0",
                """        right = 0
        for at, token in enumerate(draft):
            if token in stop_tokens:
                return draft[: at + 1] if draft[: at + 1] == choices[: at + 1] else draft[:at]
        right = 0""",
            )
        ),
        frozenset({NO_STOP, OFTEN, BUDGET}),
        (),
    ),
    "the budget is not looked at": Wrong(
        plain((" or len(new) == most", "")), frozenset({BUDGET, OFTEN}), ("may still come",)
    ),
    "the budget counts accepted tokens only": Wrong(
        plain(("len(new) == most", "len(new) == most + 1")), frozenset({BUDGET, OFTEN}), ("may still come",)
    ),
    "one token less than there may be": Wrong(
        steps(("return new[:most]", "return new[: most - 1]")), frozenset({BUDGET, OFTEN}), ("Fewer tokens came back",)
    ),
    "cut first, and then the target's own": Wrong(
        steps(
            (LOOP, "while right < min(most, len(draft)) and draft[right] == choices[right]:"),
            ("return new[:most]", "return new"),
        ),
        frozenset({BUDGET, OFTEN}),
        ("may still come",),
    ),
    "an empty draft is not expected": Wrong(
        steps(("right = 0", "right = 0 * draft[0]")), frozenset({SHORT}), ("IndexError",)
    ),
    "the draft that was handed in grows": Wrong(
        steps((NEW, "new = draft; del new[right:]; new.append(choices[right])")),
        frozenset({INPUTS}),
        ("The call changed draft",),
    ),
    "nothing is returned": Wrong(plain(("        return new", "        pass")), EVERY, ("Did you forget `return`?",)),
    "as text": Wrong(plain(("return new", "return str(new)")), EVERY, ("a list of whole numbers",)),
}
