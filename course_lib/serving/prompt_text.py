"""Texts to send to a server whose tokenizer nobody here needs to know: as many short words as there are to be tokens.

The one idea: how long a prompt is, a request says; what stands in it does not matter, as long as no two are alike. The
server then says how many tokens it read, which is a few more: it lays the words out with a chat template.
"""

from __future__ import annotations

from random import Random

from course_lib.caches.contract import whole
from course_lib.serving.request import Request

BEGIN = ["Tell", "a", "long", "story", "with", "these", "words:"]
COMMON = """
    apple bird boat book bread bridge car cat child city cloud coat corn cup day dog door dream earth egg eye farm
    field fire fish flower food forest friend game garden gate girl glass gold grass green hand hat heart hill home
    horse house ice island key king lake lamp land leaf letter light line lion milk moon morning mother mountain
    mouse music name night ocean orange paper park path pen picture plant queen rain ring river road rock room rose
    sand school sea seed ship shoe sky snow song star stone street sugar summer sun table tea tower town train tree
    valley village wall water wave wind window winter wood word world year
"""
WORDS = COMMON.split()


def questions(count: int, prompt_tokens: int, new_tokens: int, seed: int = 0) -> list[Request]:
    """`count` requests of the same lengths, named r0, r1, …, each with a seed of its own for its words.

    The prompts hold token 0 only: they have a length, and `prompt_text` has the words. ValueError for a count below 1.
    """
    for value, name in ((count, "the number of requests"), (prompt_tokens, "the number of prompt tokens")):
        if whole(value, name) < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    seeds = Random(seed)
    return [Request((0,) * prompt_tokens, new_tokens, seed=seeds.getrandbits(32), name=f"r{n}") for n in range(count)]


def prompt_text(request: Request) -> str:
    """As many short words as the prompt has tokens, drawn with its seed: most tokenizers make one token of each.

    Two seeds give two texts that share their first words at most, so a server finds next to nothing to reuse.
    """
    length, random = len(request.prompt), Random(request.seed)
    begin = BEGIN if length > 2 * len(BEGIN) else []
    return " ".join([*begin, *(random.choice(WORDS) for _ in range(length - len(begin)))])
