"""Solutions of ex05.hunt_serve: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex05_hunt_serve import ALONE, ANSWER, CASES, ONE, SEVERAL, SHORTER

ALL = frozenset(CASES)
USED_AGAIN = ALL - {ALONE}

FOUND = """
    import torch
    def serve(model, requests, rows):
        slots = max(len(prompt) + new_tokens for prompt, new_tokens in requests)
        notes = torch.zeros(rows, slots, dtype=torch.long)
        filled = torch.zeros(rows, slots, dtype=torch.bool)
        waiting, running = list(range(len(requests))), {}
        answers = [[] for _ in requests]
        while waiting or running:
            for row in range(rows):
                if row not in running and waiting:
                    running[row] = waiting.pop(0)
                    prompt = torch.tensor(requests[running[row]][0])
                    notes[row, : len(prompt)] = model.notes(prompt, torch.arange(len(prompt)))
                    filled[row, : len(prompt)] = True
            for row, number in list(running.items()):
                prompt, new_tokens = requests[number]
                token = model.next_tokens((notes[row] * filled[row]).sum())
                end = torch.tensor(len(prompt) + len(answers[number]))
                notes[row, end], filled[row, end] = model.notes(token, end), True
                answers[number].append(int(token))
                if len(answers[number]) == new_tokens:
                    filled[row, : len(prompt)] = False
                    del running[row]
        return answers
    """
CLEAR = "filled[row, : len(prompt)] = False"


def changed(*pairs: tuple[str, str]) -> str:
    """The engine as it was found, with some text replaced."""
    return changed_in(FOUND, *pairs)


def clearing(code: str) -> str:
    """The engine as it was found, with another line where a row is released."""
    return changed((CLEAR, code))


RIGHT = {
    "as it was found, but for one at a time: how it is mended is up to the learner": changed(
        ("def serve(", "def found(")
    )
    + """
    def serve(model, requests, rows):
        return [found(model, [request], 1)[0] for request in requests]
    """,
    "all slots of the row": clearing("filled[row] = False"),
    "up to the last token": clearing("filled[row, : len(prompt) + new_tokens] = False"),
    "wiped instead": clearing("notes[row] = 0"),
    "cleared when the next one comes": changed(
        (CLEAR, "pass"),
        ("running[row] = waiting.pop(0)", "running[row] = waiting.pop(0)\n                    filled[row] = False"),
    ),
    "the prompt and the answer": clearing("filled[row, : end + 1] = False"),
    "one request after the other": """
        import torch
        def serve(model, requests, rows):
            answers = []
            for prompt, new_tokens in requests:
                seen, new = int(model.notes(torch.tensor(prompt), torch.arange(len(prompt))).sum()), []
                while len(new) < new_tokens:
                    new.append(int(model.next_tokens(torch.tensor(seen))))
                    at = torch.tensor(len(prompt) + len(new) - 1)
                    seen += int(model.notes(torch.tensor(new[-1]), at))
                answers.append(new)
            return answers
        """,
}

WRONG = {
    "as it was found": Wrong(
        FOUND, frozenset({SHORTER, ANSWER, ONE, SEVERAL}), ("as it was found", "right are those of [0]")
    ),
    "nothing is cleared": Wrong(clearing("pass"), frozenset({SHORTER, ANSWER, ONE, SEVERAL}), ("its whole content",)),
    "the prompt stays": Wrong(
        clearing("filled[row, len(prompt) :] = False"),
        frozenset({SHORTER, ANSWER, ONE, SEVERAL}),
        ("The prompt of the",),
    ),
    "the last token stays": Wrong(
        clearing("filled[row, : len(prompt) + new_tokens - 1] = False"),
        frozenset({SHORTER, ANSWER, ONE, SEVERAL}),
        ("The last token",),
    ),
    "as many slots as new tokens": Wrong(
        clearing("filled[row, :new_tokens] = False"), frozenset({SHORTER, ANSWER, ONE, SEVERAL}), ("gets alone",)
    ),
    "one slot": Wrong(
        clearing("filled[row, end] = False"), frozenset({SHORTER, ANSWER, ONE, SEVERAL}), ("gets alone",)
    ),
    "all rows are cleared": Wrong(clearing("filled[:] = False"), frozenset({ALONE, SEVERAL}), ("gets alone",)),
    "the first row is cleared": Wrong(clearing("filled[0] = False"), frozenset({ALONE, SEVERAL}), ("gets alone",)),
    "cleared before the last token": Wrong(
        changed(
            (CLEAR, "pass"),
            (
                "answers[number].append",
                "filled[row] &= len(answers[number]) + 1 < new_tokens\n                answers[number].append",
            ),
            (
                "filled[row, end] = model.notes(token, end), True",
                "filled[row, end] = model.notes(token, end), len(answers[number]) > 0",
            ),
        ),
        ALL - {ONE},
        ("gets alone",),
    ),
    "the prompt of the next is not filled": Wrong(
        changed(
            (CLEAR, "filled[row] = False\n                    filled[row, 0] = True"),
            ("filled[row, : len(prompt)] = True", "filled[row, : len(prompt)] ^= True"),
        ),
        USED_AGAIN,
        ("gets alone",),
    ),
    "positions of the row, not of the request": Wrong(
        changed(
            (CLEAR, "filled[row] = False"),
            ("end = torch.tensor(len(prompt) + len(answers[number]))", "end = filled.sum(1).max()"),
        ),
        frozenset({ALONE, SEVERAL}),
        ("gets alone",),
    ),
    "the last request first": Wrong(
        changed(
            (CLEAR, "filled[row] = False"),
            ("waiting.pop(0)", "waiting.pop()"),
            ("return answers", "return answers[::-1]"),
        ),
        ALL,
        ("gets alone",),
    ),
    "all answers in one list": Wrong(
        changed((CLEAR, "filled[row] = False"), ("return answers", "return sum(answers, [])")), ALL, ("in the order",)
    ),
    "return forgotten": Wrong(
        changed((CLEAR, "filled[row] = False"), ("return answers", "pass")), ALL, ("Did you forget `return`?",)
    ),
}
