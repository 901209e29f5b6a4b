"""Solutions of ex05.hunt_prompts: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex05_hunt_prompts import BEHIND, CASES, EQUAL, HOLDS, MANY, ONE

ALL = frozenset(CASES)
RAGGED = ALL - {EQUAL}

FOUND = """
    import torch
    PAD = 0
    def read_prompts(model, prompts):
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        T = int(lengths.max())
        tokens = torch.tensor([prompt + [PAD] * (T - len(prompt)) for prompt in prompts])
        positions = torch.arange(T).expand_as(tokens)
        notes = model.notes(tokens, positions)
        seen = notes.cumsum(1)
        next_tokens = model.next_tokens(seen)
        return next_tokens[:, -1].tolist()
    """
LAST = "next_tokens[:, -1].tolist()"


def changed(*pairs: tuple[str, str]) -> str:
    """The engine as it was found, with some text replaced."""
    return changed_in(FOUND, *pairs)


def ending(code: str) -> str:
    """The engine as it was found, with another last line."""
    return changed((f"return {LAST}", code))


RIGHT = {
    "as it was found, but for one at a time: how it is mended is up to the learner": changed(
        ("def read_prompts(", "def found(")
    )
    + """
    def read_prompts(model, prompts):
        return [found(model, [prompt])[0] for prompt in prompts]
    """,
    "read at the last token of each": ending("return next_tokens[torch.arange(len(prompts)), lengths - 1].tolist()"),
    "gathered, a tensor": ending("return next_tokens.gather(1, lengths[:, None] - 1)"),
    "notes of padding taken out": changed(
        ("notes.cumsum(1)", "(notes * (torch.arange(T) < lengths[:, None])).cumsum(1)")
    ),
    "one prompt after the other": """
        import torch
        def read_prompts(model, prompts):
            answers = []
            for prompt in prompts:
                notes = model.notes(torch.tensor(prompt), torch.arange(len(prompt)))
                answers.append(model.next_tokens(notes.sum()))
            return answers
        """,
    "padding in front, positions of its own": """
        import torch
        def read_prompts(model, prompts):
            T = max(map(len, prompts))
            tokens = torch.tensor([[0] * (T - len(prompt)) + prompt for prompt in prompts])
            mask = torch.tensor([[0] * (T - len(prompt)) + [1] * len(prompt) for prompt in prompts])
            notes = model.notes(tokens, mask.cumsum(1) - 1) * mask
            return model.next_tokens(notes.sum(1)).numpy()
        """,
}

WRONG = {
    "as it was found": Wrong(FOUND, RAGGED, ("as it was found", "shorter ones are not", "right are those of [0]")),
    "as found, without a mask over later tokens": Wrong(
        ending("return model.next_tokens(notes.sum(1)).tolist()"), RAGGED, ("as it was found",)
    ),
    "one token too early": Wrong(
        ending("return next_tokens[torch.arange(len(prompts)), lengths - 2].tolist()"), ALL, ("one token too early",)
    ),
    "one token too far": Wrong(
        ending("return next_tokens[torch.arange(len(prompts)), lengths.clamp(max=T - 1)].tolist()"),
        RAGGED,
        ("One token of padding was read",),
    ),
    "the length of the first prompt": Wrong(
        ending("return next_tokens[:, lengths[0] - 1].tolist()"), RAGGED, ("as it was found",)
    ),
    "the shortest length": Wrong(
        ending("return next_tokens[:, lengths.min() - 1].tolist()"), RAGGED, ("at the same column",)
    ),
    "looks for padding": Wrong(
        ending("return next_tokens[torch.arange(len(prompts)), (tokens != PAD).sum(1) - 1].tolist()"),
        frozenset({HOLDS}),
        ("a prompt may hold it",),
    ),
    "takes notes of padding tokens out": Wrong(
        changed(("notes.cumsum(1)", "(notes * (tokens != PAD)).cumsum(1)")),
        frozenset({HOLDS}),
        ("a prompt may hold it",),
    ),
    "padding in front, positions as they were": Wrong(
        changed(("prompt + [PAD] * (T - len(prompt))", "[PAD] * (T - len(prompt)) + prompt")),
        RAGGED,
        ("the tokens that it gets alone",),
    ),
    "padding in front and hidden, positions as they were": Wrong(
        changed(
            ("prompt + [PAD] * (T - len(prompt))", "[PAD] * (T - len(prompt)) + prompt"),
            ("notes.cumsum(1)", "(notes * (torch.arange(T) >= T - lengths[:, None])).cumsum(1)"),
        ),
        RAGGED,
        ("positions that are not theirs",),
    ),
    "sorted by length": Wrong(
        changed(
            ("lengths = ", "prompts = sorted(prompts, key=len)\n        lengths = "),
            (LAST, "[next_tokens[i, n - 1] for i, n in enumerate(lengths)]"),
        ),
        frozenset({BEHIND, ONE, MANY, HOLDS}),
        ("the tokens that it gets alone",),
    ),
    "all columns": Wrong(ending("return next_tokens.tolist()"), ALL, ("the tokens that it gets alone",)),
    "only the first": Wrong(
        ending("return next_tokens[:1, lengths[0] - 1].tolist()"), ALL, ("one next token for each",)
    ),
    "return forgotten": Wrong(ending(LAST), ALL, ("Did you forget `return`?",)),
    "a column that is not there": Wrong(
        ending("return next_tokens[torch.arange(len(prompts)), lengths].tolist()"),
        ALL,
        ("raised an error", "IndexError"),
    ),
}
