"""Solutions of ex10.look_up: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex10_look_up import (
    CASES,
    FEW,
    INPUTS,
    LATEST,
    NEARLY,
    NOTHING,
    OFTEN,
    ONCE,
    ONE,
    OVER,
    SHORT,
    START,
)

EVERY = frozenset(CASES)

PLAIN = """
    def look_up(text, n, draft_tokens):
        for start in range(len(text) - n - 1, -1, -1):
            if text[start : start + n] == text[-n:]:
                return text[start + n : start + n + draft_tokens]
        return []
    """

RIGHT = {
    "slices, from the back": PLAIN,
    "from the front, the latest kept": """
        def look_up(text, n, draft_tokens):
            ending, found = tuple(text[max(len(text) - n, 0) :]), None
            for end in range(n, len(text)):
                if tuple(text[end - n : end]) == ending:
                    found = end
            return () if found is None else tuple(text[found : found + draft_tokens])
        """,
    "torch windows": """
        import torch
        def look_up(text, n, draft_tokens):
            if len(text) <= n:
                return []
            tokens = torch.tensor(text)
            windows = tokens.unfold(0, n, 1)  # [T - n + 1, n]
            places = (windows[:-1] == windows[-1]).all(1).nonzero().flatten()
            if not len(places):
                return torch.empty(0, dtype=torch.long)
            start = int(places[-1]) + n
            return tokens[start : start + draft_tokens]
        """,
    "a dictionary of all places": """
        def look_up(text, n, draft_tokens):
            after = {}
            for i in range(len(text) - n):
                after[tuple(text[i : i + n])] = i + n
            start = after.get(tuple(text[len(text) - n :]) if len(text) >= n else None, len(text))
            return [text[i] for i in range(start, min(start + draft_tokens, len(text)))]
        """,
    "NumPy, token by token": """
        import numpy as np
        def look_up(text, n, draft_tokens):
            tokens, agrees = np.array(text), np.ones(max(len(text) - n, 0), dtype=bool)
            for i in range(n if len(agrees) else 0):
                agrees &= tokens[i : i + len(agrees)] == tokens[len(text) - n + i]
            places = np.flatnonzero(agrees)
            return tokens[places[-1] + n :][:draft_tokens] if places.size else np.array([], dtype=np.int32)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    return changed_in(PLAIN, *pairs)


RANGE = "range(len(text) - n - 1, -1, -1)"
IF = "if text[start : start + n] == text[-n:]:"
RETURN = "return text[start + n : start + n + draft_tokens]"
FOUND = EVERY - {SHORT}

WRONG = {
    "the ending itself is found": Wrong(
        changed((RANGE, "range(len(text) - n, -1, -1)")), FOUND | {SHORT}, ("was not drafted",)
    ),
    "the earliest place": Wrong(
        changed((RANGE, "range(len(text) - n)")), frozenset({LATEST, FEW, OVER, ONE, OFTEN}), ("the earliest place",)
    ),
    "a place at the beginning is missed": Wrong(
        changed((RANGE, "range(len(text) - n - 1, 0, -1)")),
        frozenset({START, SHORT}),
        ("at the very beginning of the text counts",),
    ),
    "no place that overlaps": Wrong(
        changed((RANGE, "range(len(text) - 2 * n, -1, -1)")), frozenset({OVER, OFTEN, INPUTS}), ("may overlap",)
    ),
    "begins with the place itself": Wrong(
        changed((RETURN, "return text[start : start + draft_tokens]")), FOUND | {SHORT}, ("that were looked for",)
    ),
    "the place and what follows": Wrong(changed((RETURN, "return text[start : start + n + draft_tokens]")), EVERY, ()),
    "one token too late": Wrong(
        changed((RETURN, "return text[start + n + 1 : start + n + 1 + draft_tokens]")), EVERY, ("one token too late",)
    ),
    "one token too early": Wrong(
        changed((RETURN, "return text[start + n - 1 : start + n - 1 + draft_tokens]")), EVERY, ()
    ),
    "all that follows": Wrong(
        changed((RETURN, "return text[start + n :]")), EVERY - {OVER, FEW, SHORT}, ("More than draft_tokens",)
    ),
    "up to the end of the place, counted from the start": Wrong(
        changed((RETURN, "return text[start + n : start + draft_tokens]")), EVERY - {SHORT}, ()
    ),
    "only where enough tokens follow": Wrong(
        changed((RANGE, "range(len(text) - n - draft_tokens, -1, -1)")),
        frozenset({OVER, FEW, SHORT, OFTEN}),
        ("draft these",),
    ),
    "padded to draft_tokens": Wrong(
        changed((RETURN, "return (text[start + n :] + [0] * draft_tokens)[:draft_tokens]")),
        frozenset({OVER, FEW, SHORT, OFTEN}),
        (),
    ),
    "a copy that runs on": Wrong(
        changed(
            (
                RETURN,
                """copied = list(text)
                for p in range(start + n, start + n + draft_tokens):
                    copied.append(copied[p])
                return copied[len(text) :]""",
            )
        ),
        frozenset({OVER, FEW, SHORT, OFTEN}),
        ("the draft ends where the text does",),
    ),
    "only the last token is compared": Wrong(
        changed((IF, "if text[start + n - 1] == text[-1]:")),
        frozenset({NEARLY, NOTHING, OFTEN}),
        ("All of the last n tokens",),
    ),
    "only the first token is compared": Wrong(
        changed((IF, "if text[start] == text[-n]:")), frozenset({NEARLY, NOTHING, OFTEN}), ("All of the last n tokens",)
    ),
    "in any order": Wrong(
        changed((IF, "if sorted(text[start : start + n]) == sorted(text[-n:]):")), frozenset({FEW, OFTEN}), ()
    ),
    "fewer tokens if all of them are not found": Wrong(
        changed(
            ("        return []", "        return look_up(text, n - 1, draft_tokens) if n > 1 else []"),
        ),
        frozenset({NOTHING, OFTEN}),
        ("All of the last n tokens",),
    ),
    "the last tokens where nothing is found": Wrong(
        changed(("        return []", "        return text[-draft_tokens:]")),
        frozenset({NOTHING, SHORT, OFTEN}),
        ("the last tokens of the text themselves",),
    ),
    "nothing found is None": Wrong(
        changed(("        return []", "        return None")), frozenset({NOTHING, SHORT, OFTEN}), ("an empty one",)
    ),
    "compared as text": Wrong(
        """
        def look_up(text, n, draft_tokens):
            if len(text) <= n:
                return []
            ending, joined = " ".join(map(str, text[-n:])), " ".join(map(str, text))
            at = joined.rfind(ending, 0, -1)
            start = joined[:at].count(" ") + n
            return text[start : start + draft_tokens] if at >= 0 else []
        """,
        frozenset({NEARLY}),
        ("Compare tokens as numbers, not their digits",),
    ),
    "ten bits of each token are compared": Wrong(
        changed(
            ("        for start", "        low = [token % 1024 for token in text]\n        for start"),
            (IF, "if low[start : start + n] == low[-n:]:"),
        ),
        frozenset({NEARLY}),
        ("were taken for the same",),
    ),
    "only the last 64 tokens are searched": Wrong(
        changed((RANGE, "range(len(text) - n - 1, max(-1, len(text) - 65), -1)")),
        frozenset({ONCE}),
        ("that is far back counts",),
    ),
    "the ending is taken off": Wrong(
        changed(
            (
                "        for start",
                "        ending = [text.pop() for _ in range(min(n, len(text)))][::-1]\n        for start",
            ),
            (RANGE, "range(len(text) - 1, -1, -1)"),
            (IF, "if (text + ending)[start : start + n] == ending:"),
            (RETURN, "return (text + ending)[start + n : start + n + draft_tokens]"),
        ),
        frozenset({INPUTS}),
        ("The text that was handed in has changed",),
    ),
}
