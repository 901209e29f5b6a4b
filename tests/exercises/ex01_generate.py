"""Solutions of ex01.generate: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex01_generate import CASES

SHORT, ONE, LONE, BELOW, LATER, ONE_OF, FIRST, ASKED, FULL, COUNT, PROMPT = CASES
ALL = frozenset(CASES)
STOPS = frozenset({LATER, ONE_OF, FIRST, COUNT})  # a stop token comes
SEVERAL = ALL - {ONE, FIRST}  # more than one pass
LIMITED = frozenset({SHORT, ONE, LONE, BELOW, ASKED, COUNT, PROMPT})  # ends with max_new_tokens

PLAIN = """
    def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
        text = list(prompt)
        tokens_read = 0
        while len(text) - len(prompt) < max_new_tokens and len(text) <= max_positions:
            logits = model(text)
            tokens_read += len(text)
            token = int(logits[-1].argmax())
            text.append(token)
            if token in stop_tokens:
                break
        return text[len(prompt):], tokens_read
    """

RIGHT = {
    "one list": PLAIN,
    "a named tuple, tokens in a deque": """
        from collections import deque
        from typing import NamedTuple
        class Generated(NamedTuple):
            tokens: deque
            read: int
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            done = Generated(deque(maxlen=max_new_tokens), 0)
            while len(done.tokens) < max_new_tokens and len(prompt) + len(done.tokens) <= max_positions:
                text = [*prompt, *done.tokens]
                done.tokens.append(int(model(text)[-1].argmax()))
                done = done._replace(read=done.read + len(text))
                if done.tokens[-1] in stop_tokens:
                    break
            return done
        """,
    "new tokens in a list of their own": """
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            new, lengths = [], []
            for _ in range(min(max_new_tokens, max_positions - len(prompt) + 1)):
                text = prompt + new
                lengths.append(len(text))
                new.append(model(text)[-1].argmax().item())
                if new[-1] in stop_tokens:
                    return new, sum(lengths)
            return new, sum(lengths)
        """,
    "a tensor of tokens": """
        import torch
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            text, read = torch.tensor(prompt), 0
            stop = torch.tensor(stop_tokens, dtype=torch.long)
            for step in range(max_new_tokens):
                if len(text) > max_positions:
                    break
                token = model(text)[-1].argmax(dim=-1, keepdim=True)
                read += len(text)
                text = torch.cat([text, token])
                if torch.isin(token, stop).any():
                    break
            return text[len(prompt):], torch.tensor(read)
        """,
    "NumPy, tokens at the end of a buffer": """
        import numpy as np
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            P = len(prompt)
            text = np.full(P + max_new_tokens, -1, dtype=np.int32)
            text[:P] = prompt
            end = P
            while True:
                text[end] = np.argmax(model(text[:end]).numpy()[end - 1])
                end += 1
                if text[end - 1] in stop_tokens or end == len(text) or end > max_positions:
                    break
            passes = np.arange(P, end)
            return text[P:end], passes.sum()
        """,
    "recursion": """
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            logits = model(prompt)[-1].tolist()
            token = logits.index(max(logits))
            if max_new_tokens == 1 or token in stop_tokens or len(prompt) == max_positions:
                return [token], len(prompt)
            rest, read = generate(model, [*prompt, token], max_new_tokens - 1, stop_tokens, max_positions)
            return [token, *rest], len(prompt) + read
        """,
    "a generator, the sum of a formula": """
        from itertools import islice
        def stream(model, text, stop_tokens, max_positions):
            while len(text) <= max_positions:
                text = (*text, model(text)[-1].softmax(-1).argmax().item())
                yield text[-1]
                if text[-1] in set(stop_tokens):
                    return
        def generate(model, prompt, max_new_tokens, stop_tokens, max_positions):
            new = tuple(islice(stream(model, tuple(prompt), stop_tokens, max_positions), max_new_tokens))
            n, P = len(new), len(prompt)
            return new, n * P + n * (n - 1) // 2
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


WHILE = "while len(text) - len(prompt) < max_new_tokens and len(text) <= max_positions:"
CHOSEN = "token = int(logits[-1].argmax())"
READ = "logits = model(text)"
COUNTED = "tokens_read += len(text)"
RETURNED = "return text[len(prompt):], tokens_read"
STOP = "if token in stop_tokens:"

WRONG = {
    "the prompt comes back, too": Wrong(
        changed((RETURNED, "return text, tokens_read")), ALL, ("The prompt came back, too",)
    ),
    "the stop token is left out": Wrong(
        changed(
            ("            text.append(token)\n", ""),
            ("                break\n", "                break\n            text.append(token)\n"),
        ),
        STOPS,
        ("The stop token is missing",),
    ),
    "stop tokens are not looked at": Wrong(changed((STOP, "if False:")), STOPS, ("went on after a stop token",)),
    "only the first stop token is looked at": Wrong(
        changed((STOP, "if token == stop_tokens[0]:")), frozenset({ONE_OF}), ("went on after a stop token",)
    ),
    "token 0 cannot stop": Wrong(
        changed((STOP, "if token and token in stop_tokens:")), frozenset({ONE_OF}), ("went on after a stop token",)
    ),
    "the first new token cannot stop": Wrong(
        changed((STOP, "if len(text) > len(prompt) + 1 and token in stop_tokens:")),
        frozenset({FIRST}),
        ("went on after a stop token",),
    ),
    "a stop token in the prompt stops before the first pass": Wrong(
        changed(
            (WHILE, WHILE.replace(":", " and not set(text) & set(stop_tokens):")),
        ),
        frozenset({ASKED}),
        ("in the prompt ended the answer", "[]"),
    ),
    "a stop token in the prompt stops after the first pass": Wrong(
        changed((STOP, "if any(token in stop_tokens for token in text):")), frozenset({ASKED}), ("ended too early",)
    ),
    "one new token too many": Wrong(
        changed(("< max_new_tokens", "<= max_new_tokens")), LIMITED, ("went on beyond the limit",)
    ),
    "one new token too few": Wrong(
        changed(("< max_new_tokens", "< max_new_tokens - 1")), LIMITED, ("ended too early",)
    ),
    "the limit counts the prompt": Wrong(
        changed(("len(text) - len(prompt) < max", "len(text) < max")),
        ALL - {FIRST, ONE_OF, LATER, FULL},
        ("ended too early",),
    ),
    "reads one token less than the model can": Wrong(
        changed(("len(text) <= max_positions", "len(text) < max_positions")), frozenset({FULL}), ("need not be read",)
    ),
    "reads more than the model can": Wrong(
        changed((" and len(text) <= max_positions", "")), frozenset({FULL}), ("raised an error", "can read at most 9")
    ),
    "the text is cut where the model can read no further": Wrong(
        changed(
            (" and len(text) <= max_positions", ""),
            (READ, "logits = model(text[-max_positions:])"),
        ),
        frozenset({FULL}),
        ("went on beyond what the model can read",),
    ),
    "each pass reads only the latest token": Wrong(
        changed((READ, "logits = model(text[-1:])")), ALL, ("only the latest token", "keeps nothing")
    ),
    "after the prompt, each pass reads only the latest token": Wrong(
        changed((READ, "logits = model(text[-1:] if len(text) > len(prompt) else text)")),
        SEVERAL,
        ("After the prompt, each pass read only",),
    ),
    "the prompt is left out after the first pass": Wrong(
        changed((READ, "logits = model(text[len(prompt):] or text)")), SEVERAL, ("the prompt was left out",)
    ),
    "each pass reads the prompt alone": Wrong(
        changed((READ, "logits = model(prompt)")), SEVERAL, ("the prompt alone",)
    ),
    "new tokens go in front": Wrong(
        changed(
            ("text.append(token)", "text.insert(0, token)"), (RETURNED, "return text[:-len(prompt)][::-1], tokens_read")
        ),
        SEVERAL,
        ("in front of the text",),
    ),
    "the first row of logits": Wrong(changed((CHOSEN, "token = int(logits[0].argmax())")), ALL, ("first position",)),
    "the row of the last prompt token, always": Wrong(
        changed((CHOSEN, "token = int(logits[len(prompt) - 1].argmax())")), SEVERAL, ("the prompt alone",)
    ),
    "the last row but one": Wrong(
        changed((CHOSEN, "token = int(logits[max(len(text) - 2, 0)].argmax())")), ALL, ("last position but one",)
    ),
    "the largest logit of all rows": Wrong(
        changed((CHOSEN, "token = int(logits.argmax()) % logits.shape[1]")), ALL, ("of all rows", "Only the last row")
    ),
    "an index into all rows": Wrong(changed((CHOSEN, "token = int(logits.argmax())")), ALL, ("",)),
    "the smallest logit": Wrong(changed(("argmax", "argmin")), ALL, ("smallest logit",)),
    "the largest size of a logit": Wrong(
        changed((CHOSEN, "token = int(logits[-1].abs().argmax())")), ALL, ("without its sign",)
    ),
    "the best so far begins at 0": Wrong(
        changed(
            (
                CHOSEN,
                "token, best = 0, 0.0\n"
                "            for i, logit in enumerate(logits[-1].tolist()):\n"
                "                if logit > best: token, best = i, logit",
            )
        ),
        frozenset({BELOW}),
        ("largest logit in the last row",),
    ),
    "the second largest logit": Wrong(
        changed((CHOSEN, "token = int(logits[-1].topk(2).indices[1])")), ALL, ("largest logit in the last row",)
    ),
    "passes are counted": Wrong(changed((COUNTED, "tokens_read += 1")), frozenset({COUNT}), ("These are the passes",)),
    "each token is counted once": Wrong(
        changed((COUNTED, "tokens_read = len(text)")), frozenset({COUNT}), ("counted once", "as if something were kept")
    ),
    "prompt and new tokens are counted once": Wrong(
        changed((RETURNED, "return text[len(prompt):], len(text)")), frozenset({COUNT}), ("counted once",)
    ),
    "the prompt alone is counted": Wrong(
        changed((COUNTED, "tokens_read += len(prompt)")), frozenset({COUNT}), ("the prompt alone",)
    ),
    "counted after the token was added": Wrong(
        changed((f"            {COUNTED}\n", ""), ("text.append(token)", f"text.append(token)\n            {COUNTED}")),
        frozenset({COUNT}),
        ("One too many in each pass",),
    ),
    "one pass more than is needed": Wrong(
        changed((RETURNED, "return text[len(prompt):], tokens_read + len(text)")),
        frozenset({COUNT}),
        ("counted as read",),
    ),
    "the prompt is not counted": Wrong(
        changed((RETURNED, "return text[len(prompt):], tokens_read - len(prompt)")),
        frozenset({COUNT}),
        ("which reads the prompt, was not counted",),
    ),
    "a list of lengths": Wrong(
        changed(("tokens_read = 0", "tokens_read = []"), (COUNTED, "tokens_read.append(len(text))")),
        frozenset({COUNT}),
        ("should be one whole number", "a list of"),
    ),
    "the prompt grows": Wrong(
        changed(("text = list(prompt)", "text, prompt = prompt, tuple(prompt)")),
        frozenset({PROMPT}),
        ("has been changed",),
    ),
    "the prompt grows, and nothing is new": Wrong(
        changed(("text = list(prompt)", "text = prompt"), (WHILE, "for _ in range(max_new_tokens):")),
        ALL,
        ("No new token came back", "[]"),
    ),
    "the new tokens as text": Wrong(
        changed((RETURNED, 'return " ".join(map(str, text[len(prompt):])), tokens_read')),
        ALL,
        ("list of whole numbers", "a text"),
    ),
    "the tokens alone": Wrong(changed((RETURNED, "return text[len(prompt):]")), ALL, ("should return two things",)),
    "return forgotten": Wrong(
        changed((RETURNED, "text[len(prompt):], tokens_read")), ALL, ("Did you forget `return`?",)
    ),
    "a loop that never ends": Wrong(
        changed((WHILE, "while True:"), ("                break", "                continue")),
        ALL,
        ("raised an error", "where does your loop end?"),
    ),
}
