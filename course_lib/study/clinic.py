"""The clinic: six pairs of runs of one prompt. In three of them only rounding differs, in the others there is a bug.

The one idea: what was done differently, the dtype, and the words are dealt out so that none of them decides: both
verdicts occur with each. Each change is there twice, once as rounding and once with an exhibit of the bug museum; runs
and cases have names that say nothing. The verdict lies in logits and layers, which `evidence` draws. Who reads on finds
out how a case is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from course_lib.departure import Run, common_traces, parting, run_alone, run_without_cache, runs_of, share
from course_lib.divergence import PARTS, shares
from course_lib.model import Transformer
from course_lib.museum.collection import EXHIBITS
from course_lib.museum.exhibit import Build, House
from course_lib.noise import tolerance
from course_lib.serving import Request
from course_lib.study.cache_figures import LINES
from course_lib.study.style import GREY, VERMILION, Picture, picture, styled

PROMPT, NEW = 13, 12  # tokens of a prompt, and new ones: the second piece of a prompt is shorter than the first
NEIGHBOURS = (5, 24, 11)  # tokens of the other prompts: one is longer
TRIES = 3  # prompts that rounding gets to lead to other words
FULL, HALF = torch.float32, torch.bfloat16
RUNS = ("run 1", "run 2")

Tokens = Sequence[int]
Make = Callable[[Transformer, Tokens, Sequence[Tokens]], Run]  # model, prompt and neighbours to a run


@dataclass(frozen=True)
class Case:
    """Two greedy runs of one prompt, and what was done differently. `bug` and `cause` are the answer."""

    name: str
    changed: str
    one: Run
    other: Run
    bug: bool = field(repr=False)
    cause: str = field(repr=False)

    @property
    def dtype(self) -> str:
        return str(self.one.dtype).removeprefix("torch.")

    @property
    def same_words(self) -> int:
        """How many new tokens are the same before the first that is not."""
        token = parting(self.one, self.other)
        return len(self.one.tokens) if token is None else token


# --- How the runs are made


def alone(build: Build, model: Transformer, prompt: Tokens, _: Sequence[Tokens], *, name: str) -> Run:
    """By an engine that serves nobody else, in pieces of 8 tokens."""
    return runs_of(build(model), [Request(tuple(prompt), NEW, name=name)])[name]


def in_company(build: Build, model: Transformer, prompt: Tokens, others: Sequence[Tokens], *, name: str) -> Run:
    """By an engine that serves others at the same time, two of whom came first."""
    first, second, last = (Request(tuple(text), NEW, name=f"other {n}") for n, text in enumerate(others))
    return runs_of(build(model), [first, second, Request(tuple(prompt), NEW, name=name), last])[name]


def without_cache(model: Transformer, prompt: Tokens, _: Sequence[Tokens]) -> Run:
    return run_without_cache(model, prompt, NEW, RUNS[0])


def in_one_piece(model: Transformer, prompt: Tokens, _: Sequence[Tokens]) -> Run:
    return run_alone(model, prompt, NEW, RUNS[0])


@dataclass(frozen=True)
class Change:
    """What is done differently in the second run; by dtype, the exhibits whose bug is larger than rounding there."""

    told: str
    plain: Make
    changed: Callable[..., Run]
    exhibits: Mapping[torch.dtype, Sequence[str]]


CHANGES = (
    Change(
        "run 1 without a cache, run 2 with one",
        without_cache,
        alone,
        {FULL: ("every-word", "lost-thread", "beginning"), HALF: ("lost-thread",)},
    ),
    Change(
        "run 1 alone, run 2 beside three other texts",
        partial(alone, House().open, name=RUNS[0]),
        in_company,
        {FULL: ("company", "short-question", "first-word", "shade"), HALF: ("company", "first-word")},
    ),
    Change(
        "run 1 reads the prompt in one piece, run 2 in pieces of 8 tokens",
        in_one_piece,
        alone,
        {FULL: ("long-question", "reader"), HALF: ("long-question",)},
    ),
)


def six(models: Mapping[torch.dtype, Transformer], prompts: Sequence[Tokens], seed: int = 0) -> tuple[Case, ...]:
    """Six cases, for one model in float32 and bfloat16. The same seed gives the same cases.

    ValueError for a dtype that is missing, or for fewer than six prompts of 13 tokens or more.
    """
    if missing := [dtype for dtype in (FULL, HALF) if dtype not in models]:
        raise ValueError(f"there is no model in {missing[0]}: the cases need it in {FULL} and in {HALF}")
    if len(prompts) < 6 or min(map(len, prompts)) < PROMPT:
        raise ValueError(f"{len(prompts)} prompts: give six or more, of at least {PROMPT} tokens each")
    random = Random(seed)
    rounded_in = random.sample((FULL, HALF, HALF), 3)  # the dtype of each change as rounding; as a bug it is the other
    made = []
    for change, rounded in zip(CHANGES, rounded_in):
        broken = HALF if rounded == FULL else FULL
        exhibit = random.choice([each for each in EXHIBITS if each.name in change.exhibits[broken]])
        for dtype, build, cause in ((rounded, House().open, ""), (broken, exhibit.engine, exhibit.cause)):
            own = Random(random.getrandbits(32))  # what is dealt out later does not hang on what comes of this pair
            tries = TRIES if not cause and dtype == HALF else 1  # float32 rounds too little for other words
            second = partial(change.changed, build, name=RUNS[1])
            made.append((change, pair(models[dtype], change.plain, second, prompts, own, tries), cause))
    random.shuffle(made)
    return tuple(
        Case(f"case {number}", change.told, *runs, bool(cause), cause)
        for number, (change, runs, cause) in enumerate(made, 1)
    )


def pair(
    model: Transformer, plain: Make, changed: Make, prompts: Sequence[Tokens], random: Random, tries: int
) -> tuple[Run, Run]:
    """Two runs of a prompt: of those tried, the first one that they answer with different words, or else the last."""
    order = random.sample(list(prompts), len(prompts))
    for number in range(tries):
        prompt, first, second, last = order[number : number + 4]
        neighbours = [text[:length] for text, length in zip((first, [*second, *last], last), NEIGHBOURS)]
        runs = plain(model, prompt[:PROMPT], neighbours), changed(model, prompt[:PROMPT], neighbours)
        if runs[0].tokens != runs[1].tokens:
            break
    return runs


# --- What is looked at


@styled
def evidence(one: Run, other: Run, title: str = "") -> Picture:
    """Two runs side by side: their logits at each new token, and what each layer made of the text that both have read.

    All numbers are shares: of the largest logit, or of the largest number that a layer made of a token. Differences of
    0 lie on the lower edge. Nothing is drawn after the first different word, for from there on the texts differ.
    """
    token = parting(one, other)
    drawn = min(len(one.logits), len(other.logits)) if token is None else token + 1
    left, right = one.logits[:drawn].double(), other.logits[:drawn].double()
    largest = left.abs().amax(-1)
    apart = ((left - right).abs().amax(-1) / largest).tolist()
    best = left.topk(2).values
    lead = ((best[:, 0] - best[:, 1]) / largest).tolist()
    layers = shares(*common_traces(one, other)).amax(0)  # [L, 3]
    allowed = tolerance(one.dtype), share(one.dtype)
    floor = torch.finfo(one.dtype).eps / 50

    words = "all words are the same" if token is None else f"the first different word is new token {token}"
    worst = ", ".join(f"{part} {much:.1e}" for part, much in zip(PARTS, layers.amax(0).tolist()))
    figure, (above, below) = picture(5.4, 2, alt="")
    figure.alt = (
        f"{title}. {words}. Logits differ by up to {max(apart):.1e} of the largest, the contract allows "
        f"{allowed[0]:.1e}; the likeliest token leads by {min(lead):.1e} or more. Layers differ by up to: {worst}; "
        f"allowed {allowed[1]:.1e}."
    )
    marks(above, range(drawn), {"logits apart": apart, "lead of the likeliest token": lead}, allowed[0], floor)
    if token is not None:
        above.axvline(token, color=GREY, linewidth=6, alpha=0.35, label="another word is chosen", zorder=0)
    above.set(xlim=(-0.5, max(len(one.tokens), len(other.tokens)) - 0.5), xlabel="new token")
    above.set_title(f"{title}: {words}" if title else words)
    columns = dict(zip(PARTS, layers.T.tolist()))
    marks(below, range(len(layers)), columns, allowed[1], floor)
    below.set(xlabel="layer", ylabel="largest share, all tokens")
    above.set_ylabel("share of the largest logit")
    for axes in (above, below):
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=9.5, borderaxespad=0.6)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def marks(
    axes: Axes, places: Sequence[int], columns: Mapping[str, Sequence[float]], allowed: float, floor: float
) -> None:
    """A series of marks on a logarithmic axis for each column, and the line of what is allowed."""
    for (name, values), look in zip(columns.items(), LINES):
        look = look | {"linestyle": "none", "markersize": 6}
        axes.plot(list(places), [min(max(value, floor), 1e6) for value in values], label=name, **look)
    axes.axhline(allowed, color=VERMILION, linewidth=1.5, label="allowed")
    axes.set_yscale("log")
    axes.set_ylim(bottom=floor / 1.5)
    axes.grid(axis="y", color="#dddddd")
