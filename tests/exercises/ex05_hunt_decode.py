"""Solutions of ex05.hunt_decode: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex05_hunt_decode import CASES, EQUAL, TWO

ALL = frozenset(CASES)
RAGGED = ALL - {EQUAL}

FOUND = """
    import torch
    def continue_together(model, prompts, new_tokens):
        rows, longest = torch.arange(len(prompts)), max(len(prompt) for prompt in prompts)
        notes = torch.zeros(len(prompts), longest + new_tokens, dtype=torch.long)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        for row, prompt in enumerate(prompts):
            positions = torch.arange(len(prompt))
            notes[row, : len(prompt)] = model.notes(torch.tensor(prompt), positions)
        answers = []
        for step in range(new_tokens):
            held = torch.arange(notes.shape[1]) < lengths[:, None]
            tokens = model.next_tokens((notes * held).sum(1))
            answers.append(tokens)
            positions = torch.full_like(lengths, longest + step)
            notes[rows, lengths] = model.notes(tokens, positions)
            lengths = lengths + 1
        return torch.stack(answers, 1).tolist()
    """
PLACE = "torch.full_like(lengths, longest + step)"


def changed(*pairs: tuple[str, str]) -> str:
    """The engine as it was found, with some text replaced."""
    return changed_in(FOUND, *pairs)


PLAIN = changed((PLACE, "lengths"))

RIGHT = {
    "as it was found, but for one at a time: how it is mended is up to the learner": changed(
        ("def continue_together(", "def found(")
    )
    + """
    def continue_together(model, prompts, new_tokens):
        return [found(model, [prompt], new_tokens)[0] for prompt in prompts]
    """,
    "the length of each row": PLAIN,
    "prompt and step": changed((PLACE, "torch.tensor([len(prompt) + step for prompt in prompts])")),
    "a tensor": changed((PLACE, "lengths.clone()"), (".tolist()", "")),
    "the difference to the longest": changed((PLACE, "longest + step - (lengths.max() - lengths)")),
    "one row after the other": """
        import torch
        def continue_together(model, prompts, new_tokens):
            answers = []
            for prompt in prompts:
                text = list(prompt)
                for _ in range(new_tokens):
                    seen = model.notes(torch.tensor(text), torch.arange(len(text))).sum()
                    text.append(int(model.next_tokens(seen)))
                answers.append(text[len(prompt):])
            return answers
        """,
    "NumPy notes, sums that grow": """
        import numpy as np
        import torch
        def continue_together(model, prompts, new_tokens):
            at = np.array([len(prompt) for prompt in prompts])
            seen = torch.stack([model.notes(torch.tensor(p), torch.arange(len(p))).sum() for p in prompts])
            answers = np.zeros((len(prompts), new_tokens), dtype=np.int64)
            for step in range(new_tokens):
                answers[:, step] = model.next_tokens(seen)
                seen = seen + model.notes(torch.from_numpy(answers[:, step]), torch.from_numpy(at + step))
            return answers
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, RAGGED, ("as it was found", "only right in the longest rows")),
    "positions of row 0": Wrong(changed((PLACE, "lengths[:1].expand(len(prompts))")), RAGGED, ("found",)),
    "positions of the shortest row": Wrong(
        changed((PLACE, "lengths.min().expand(len(prompts))")), RAGGED, ("positions of one row",)
    ),
    "the mean position": Wrong(
        changed((PLACE, "torch.full_like(lengths, int(lengths.float().mean()))")), RAGGED, ("gets alone",)
    ),
    "positions from 0": Wrong(changed((PLACE, "torch.full_like(lengths, step)")), ALL, ("began at 0 again",)),
    "one too far": Wrong(changed((PLACE, "lengths + 1")), ALL, ("one too far",)),
    "one too few": Wrong(changed((PLACE, "lengths - 1")), ALL, ("one too few",)),
    "counted twice": Wrong(changed((PLACE, "lengths + step")), ALL - {TWO}, ("counted twice",)),
    "the same position in each step": Wrong(changed((PLACE, "lengths - step")), ALL - {TWO}, ("at the same position",)),
    "everything in the cache is seen": Wrong(
        changed((PLACE, "lengths"), ("(notes * held)", "(notes + (1 - held.long()))")), ALL, ("gets alone",)
    ),
    "the longest row hides nothing": Wrong(
        changed((PLACE, "lengths"), ("notes[rows, lengths] =", "notes[rows, longest + step] =")),
        RAGGED,
        ("gets alone",),
    ),
    "lengths stay": Wrong(changed((PLACE, "lengths + step"), ("lengths = lengths + 1", "pass")), ALL, ("gets alone",)),
    "a step too few": Wrong(
        changed((PLACE, "lengths"), ("range(new_tokens)", "range(new_tokens - 1)")), ALL, ("gets alone",)
    ),
    "steps first, rows second": Wrong(
        changed((PLACE, "lengths"), ("answers, 1", "answers, 0")), ALL, ("for each sequence",)
    ),
    "return forgotten": Wrong(changed((PLACE, "lengths"), ("return ", "")), ALL, ("Did you forget `return`?",)),
}
