"""The check of ex01.generate: the learner's greedy `generate`, which reads the whole text again for every token.

The one idea: the model's answer depends on every token that it reads and on their order, so the new tokens tell what
was read. Each case is one way for an answer to end. The reference is a loop over the same table, written here once
more; what was counted and what became of the prompt is judged in every case and told in the one named after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course_lib.checks.compare import Array, Case, Wrong, as_array, as_number, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex01_generate import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "generate", "generate(model, prompt, max_new_tokens, stop_tokens, max_positions)"
TOLERANCE = "none. The tokens are whole numbers, and no two logits of a position are alike."
NOT_CHECKED = "speed, sampling, batches, a prompt that is empty or too long, an answer of no token"
VOCABULARY, STATES = 29, 97  # of the models: V, and how many rows their table has
WIDE = 1000  # positions, where a model has enough of them
COUNT, PROMPT, BELOW = "the tokens that were read are counted", "the prompt stays as it was", "logits below zero"
FIRST, LATER, ONE_OF = (
    "the first new token is a stop token",
    "a stop token ends the answer",
    "one of several stop tokens",
)
ASKED, FULL = "a stop token in the prompt ends nothing", "the model can read no further"
# Each case: (tokens of the prompt, most new tokens, the new token that stops it or 0, positions of the model).
CASES: dict[str, tuple[tuple[int, int, int, int], ...]] = {
    "a short answer": ((5, 6, 0, WIDE),),
    "a single new token": ((4, 1, 0, WIDE),),
    "a prompt of one token": ((1, 5, 0, WIDE),),
    BELOW: ((4, 5, 0, WIDE),),
    LATER: ((5, 9, 4, WIDE),),
    ONE_OF: ((5, 9, 3, WIDE),),
    FIRST: ((5, 9, 1, WIDE),),
    ASKED: ((6, 6, 0, WIDE),),
    FULL: ((5, 12, 0, 9), (6, 12, 0, 6)),
    COUNT: ((7, 8, 0, WIDE), (3, 20, 7, WIDE)),
    PROMPT: ((5, 4, 0, WIDE),),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"table" [M, V], "prompt", "max_new_tokens", "stop_tokens",
    "max_positions"}, …]}}."""
    rng = np.random.default_rng(seed)
    return {"cases": {name: [drawn(rng, name, *sizes) for sizes in calls] for name, calls in CASES.items()}}


def drawn(rng: np.random.Generator, name: str, prompt: int, most: int, stops_at: int, positions: int) -> dict[str, Any]:
    """One call. It is drawn again until the answer ends as the case wants it to, and shows what it should show."""
    while True:
        table = rng.standard_normal((STATES, VOCABULARY)).astype(np.float32) - (9 if name == BELOW else 0)
        call = {
            "table": table,
            "prompt": rng.integers(0, VOCABULARY, prompt).tolist(),
            "max_new_tokens": most,
            "stop_tokens": [],
            "max_positions": positions,
        }
        tokens, _ = reference(call)
        unused = [token for token in range(1, VOCABULARY) if token not in {*tokens, *call["prompt"]}]
        call["stop_tokens"] = unused[:1]
        if stops_at:
            stop = tokens[stops_at - 1]
            if stop in {*tokens[: stops_at - 1], *call["prompt"]} or (name == ONE_OF) != (stop == 0):
                continue
            call["stop_tokens"] = {ONE_OF: [unused[0], stop, unused[1]], FIRST: [stop, unused[0]]}.get(name, [stop])
        elif name == ASKED:
            call["stop_tokens"] = [call["prompt"][-1], call["prompt"][2]]
            if set(call["stop_tokens"]) & {*tokens, call["prompt"][0]}:
                continue
        if tells_apart(call):
            return call


def tells_apart(call: dict[str, Any]) -> bool:
    """Whether each wrong belief gives other tokens than the right ones, and than another one where the prompt and the
    answer are long enough for that."""
    expected, _ = reference(call)
    wrong = [tuple(tokens) for _, tokens in beliefs(call)]
    if len(expected) == 1:  # only what goes wrong in the first pass can show
        return all(
            tuple(expected) != wrong[number] for number in (IN_THE_FIRST_PASS if len(call["prompt"]) > 1 else ())
        )
    below = bool((call["table"] < 0).all())  # then the largest size is the smallest logit
    return tuple(expected) not in wrong and (len(call["prompt"]) == 1 or len(set(wrong)) == len(wrong) - below)


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the new tokens in `outputs` those of the reference?"""
    return verdict(GenerateCase, inputs, outputs)


Pick = Callable[[Array, list[int], list[int]], int]  # table, prompt, new tokens so far → the next token


def state_after(text: list[int]) -> int:
    """The row of the table that has the logits after the last token of a text."""
    state = 0
    for token in text:
        state = (31 * state + token + 1) % STATES
    return state


def greedy(table: Array, prompt: list[int], new: list[int]) -> int:
    return int(table[state_after(prompt + new)].argmax())


def reference(call: dict[str, Any], pick: Pick = greedy) -> tuple[list[int], int]:
    """The new tokens of a call, and how many tokens were read; beliefs go wrong about how to `pick`."""
    prompt, new, count = call["prompt"], [], 0  # type: list[int], list[int], int
    while len(new) < call["max_new_tokens"] and len(prompt) + len(new) <= call["max_positions"]:
        count += len(prompt) + len(new)
        new.append(pick(call["table"], prompt, new))
        if new[-1] in call["stop_tokens"]:
            break
    return new, count


def tokens_in(data: Plain) -> list[int] | None:
    """The tokens that came back as a list, an array or a tensor; None for anything else."""
    tokens = as_array(data)
    return tokens.tolist() if tokens is not None and tokens.ndim == 1 and tokens.dtype.kind in "iu" else None


class GenerateCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        P, limit, stops = len(call["prompt"]), call["max_new_tokens"], len(call["stop_tokens"])
        limits = f"max_new_tokens {limit}, max_positions {call['max_positions']}"
        return f"a prompt of {some(P, 'token')}, {limits}, {some(stops, 'stop token')}"

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, _ = reference(call)
        came = answer.get("tokens")
        tokens = [] if isinstance(came, list) and not came else tokens_in(came)
        if tokens is None:
            said = "The new tokens should come back as a list of whole numbers, or as a tensor of one axis."
            return Wrong(said, came=what_came(came))
        if tokens == expected:
            return None
        said = "" if tokens else about_nothing(call, answer)
        said = (
            said or about_length(call, tokens, expected) or next((s for s, new in beliefs(call) if new == tokens), "")
        )
        said = said or "Each new token is the one with the largest logit in the last row, after the whole text so far."
        return Wrong(said, listed(expected), listed(tokens))

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        expected, count = reference(call)
        if told_in == PROMPT and not unchanged(call["prompt"], answer.get("prompt")):
            return Wrong("The prompt that was given has been changed. Begin your text with a copy: list(prompt).")
        if told_in != COUNT or tokens_in(answer.get("tokens")) != expected:
            return None
        read = as_number(answer.get("read"))
        if read is None:
            return Wrong("The number of tokens read should be one whole number.", came=what_came(answer.get("read")))
        return None if read == count else Wrong(about_count(call, read), str(count), f"{read:g}")


def some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def listed(tokens: list[int]) -> str:
    short = tokens if len(tokens) <= 24 else [*tokens[:24], "…"]
    return f"[{', '.join(map(str, short))}]"


def about_nothing(call: dict[str, Any], answer: dict[str, Plain]) -> str:
    """A sentence about an answer without a token, if there is something to say about that."""
    if not unchanged(call["prompt"], answer.get("prompt")):
        return "No new token came back: the text that grew was the prompt itself. Begin with a copy: list(prompt)."
    if set(call["stop_tokens"]) & set(call["prompt"]):
        return "A stop token in the prompt ended the answer. Only a new token can end it."
    return ""


def about_length(call: dict[str, Any], tokens: list[int], expected: list[int]) -> str:
    """A sentence about an answer that begins right, or holds the right one, but ends too early or too late."""
    prompt, stop = call["prompt"], call["stop_tokens"]
    ends = "the limit" if len(expected) == call["max_new_tokens"] else "what the model can read"
    stopped = expected[-1] in stop
    if tokens == prompt + expected:
        return "The prompt came back, too. Asked are only the new tokens."
    if stopped and tokens == expected[:-1]:
        return "The stop token is missing. It is the last token of the answer."
    if tokens[: len(expected)] == expected:
        return "The answer went on after a stop token." if stopped else f"The answer went on beyond {ends}."
    if tokens != expected[: len(tokens)]:
        return ""
    if len(expected) < call["max_new_tokens"] and not stopped and len(tokens) == len(expected) - 1:
        return "The answer ended one token early. The last new token need not be read, so it needs no position."
    return "The answer ended too early."


def beliefs(call: dict[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Each way to go wrong: what there is to say, and the new tokens of it."""

    def after(read: Callable[[list[int], list[int]], list[int]]) -> list[int]:
        return reference(call, lambda table, prompt, new: int(table[state_after(read(prompt, new))].argmax()))[0]

    latest = "Each pass read only the latest token. This model keeps nothing: it has to read the whole text again."
    yield latest, after(lambda prompt, new: (prompt + new)[-1:])
    first = "The logits of the first position were taken. The next token is in those of the last."
    yield first, after(lambda prompt, new: prompt[:1])
    second = "The logits of the last position but one were taken: those of a token that is there already."
    yield second, after(lambda prompt, new: (prompt + new)[:-1] or prompt)
    yield (
        "The largest logit of all rows was taken. Only the last row is about the next token.",
        reference(call, of_all)[0],
    )
    yield "The token with the smallest logit was taken.", reference(call, smallest)[0]
    size = "The logit of the largest size was taken, without its sign: the largest logit is meant."
    yield size, reference(call, largest_size)[0]
    then = "After the prompt, each pass read only the latest token. This model keeps nothing: it has to read all again."
    yield then, after(lambda prompt, new: new[-1:] or prompt)
    forgot = "After the first pass the prompt was left out: each pass has to read prompt and new tokens."
    yield forgot, after(lambda prompt, new: new or prompt)
    yield "Each pass read the prompt alone, without the new tokens.", after(lambda prompt, new: prompt)
    yield "The new tokens went in front of the text.", after(lambda prompt, new: [*new[::-1], *prompt])


IN_THE_FIRST_PASS = range(6)  # the beliefs that show there


def of_all(table: Array, prompt: list[int], new: list[int]) -> int:
    text = prompt + new
    rows = np.stack([table[state_after(text[: end + 1])] for end in range(len(text))])
    return int(rows.argmax()) % rows.shape[1]


def smallest(table: Array, prompt: list[int], new: list[int]) -> int:
    return int(table[state_after(prompt + new)].argmin())


def largest_size(table: Array, prompt: list[int], new: list[int]) -> int:
    return int(abs(table[state_after(prompt + new)]).argmax())


def about_count(call: dict[str, Any], read: float) -> str:
    """A sentence about a wrong number of tokens read."""
    expected, count = reference(call)
    prompt, passes = len(call["prompt"]), len(expected)
    if read == passes:
        return "These are the passes. Each pass reads the whole text; count its tokens."
    if read in (prompt + passes, prompt + passes - 1):
        return (
            "Each token was counted once, as if something were kept. Without a cache every pass reads the whole text."
        )
    if read == passes * prompt:
        return "Each pass was counted with the prompt alone. It reads the new tokens as well."
    if read == count + passes:
        return "One too many in each pass: the token that a pass chooses is read by the next one, not by itself."
    if read == count + prompt + passes:
        return "The last new token was counted as read. Nothing comes after it, so no pass reads it."
    if read == count - prompt:
        return "The first pass, which reads the prompt, was not counted."
    return "Add up how many tokens each pass reads: all of the prompt, and the new tokens so far."
