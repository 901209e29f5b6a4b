"""Figures of speculative decoding: what each round read and what stayed, when it pays, and what is drawn how often.

The one idea: a guess has one of three fates, accepted, refused, or not judged since one before it was refused, and the
token that the model adds is none of them. Each fate has its own fill, line and mark: nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.patches import Patch, Rectangle

from course_lib.quality.measures import Rate
from course_lib.speculative import Round, speed_up
from course_lib.study.cache_figures import BARS, GONE, LEGEND, LINES
from course_lib.study.recall_figures import plain
from course_lib.study.style import DECODE, GREY, INK, PALE, VERMILION, Picture, picture, styled

ACCEPTED: dict[str, Any] = {"facecolor": "#cfe5f2", "edgecolor": INK, "linewidth": 0.9}
OWN: dict[str, Any] = DECODE | {"edgecolor": INK}
UNJUDGED: dict[str, Any] = {"facecolor": PALE, "edgecolor": GREY, "linewidth": 0.6, "linestyle": ":"}
MOST_ROUNDS, MOST_GUESSES, MOST_TOKENS = 14, 8, 8


@styled
def drafts(rounds: Sequence[Round], text_of: Callable[[int], str]) -> Picture:
    """A row for each round: its guesses in the order in which they were read, and on the right the model's own token.

    `text_of` gives the text of a token. ValueError for more rounds or guesses than can be read.
    """
    guesses = max((len(one.drafted) for one in rounds), default=0)
    if not 1 <= len(rounds) <= MOST_ROUNDS or guesses > MOST_GUESSES:
        raise ValueError(
            f"{len(rounds)} rounds of up to {guesses} guesses: draw 1 to {MOST_ROUNDS} of up to {MOST_GUESSES}"
        )
    figure, (axes,) = picture(1.35 + 0.36 * len(rounds), alt="Rounds of speculative decoding.")
    own_at, inches = guesses + 0.35, 5.9 / (guesses + 1.35)
    for row, one in enumerate(rounds):
        for at, token in enumerate(one.drafted):
            refused = at == one.accepted
            look = ACCEPTED if at < one.accepted else GONE if refused else UNJUDGED
            axes.add_patch(Rectangle((at + 0.04, row - 0.4), 0.92, 0.8, **look))
            axes.text(at + 0.5, row, fitting(text_of(token), 0.86 * inches), ha="center", va="center", fontsize=9.5)
            if refused:
                axes.plot([at + 0.1, at + 0.9], [row - 0.3, row + 0.3], color=VERMILION, linewidth=1.2)
        own = one.tokens[one.accepted :]
        if own:
            axes.add_patch(Rectangle((own_at + 0.04, row - 0.4), 0.92, 0.8, **OWN))
            axes.text(
                own_at + 0.5, row, fitting(text_of(own[0]), 0.86 * inches), ha="center", va="center", fontsize=9.5
            )
        figure.alt += f" {told(row, one, text_of)}"
    axes.set(xlim=(-0.02, own_at + 1), ylim=(len(rounds) - 0.5, -0.5))
    columns = [*(f"guess {at + 1}" for at in range(guesses)), "own token"]
    axes.set_xticks([*(at + 0.5 for at in range(guesses)), own_at + 0.5], labels=columns, fontsize=9.5)
    axes.set_yticks(range(len(rounds)), labels=["prefill" if not row else f"pass {row}" for row in range(len(rounds))])
    axes.tick_params(length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    looks = {"accepted": ACCEPTED, "refused": GONE, "not judged": UNJUDGED, "the model's own": OWN}
    figure.legend(handles=[Patch(label=name, **look) for name, look in looks.items()], ncols=4, **LEGEND)
    return figure


def fitting(text: str, inches: float) -> str:
    """As much of a token's text as there is room for."""
    return plain(text.strip().replace("\n", "↵")[: int(inches / 0.085)]) or "␣"


def told(row: int, one: Round, text_of: Callable[[int], str]) -> str:
    said = [repr(text_of(token)) for token in one.tokens]
    begun = "Prefill" if not row else f"Pass {row}, {len(one.drafted)} guesses, {one.accepted} accepted"
    return f"{begun}: {', '.join(said)}."


@styled
def speed_ups(draft_tokens: int, acceptance: float, draft_cost: float, token_cost: float, most: int = 16) -> Picture:
    """Tokens for each unit of time with 1 to `most` guesses, as `speed_up` gives them; a ring where `draft_tokens` are.

    1 is plain decoding; below it, drafting makes things slower. ValueError for a number of guesses beyond `most`.
    """
    if not 1 <= draft_tokens <= most:
        raise ValueError(f"{draft_tokens} guesses: choose 1 to {most}")
    gains = {K: speed_up(acceptance, K, draft_cost, token_cost) for K in range(1, most + 1)}
    best, here = max(gains, key=lambda K: gains[K]), gains[draft_tokens]
    verdict = "slower" if here < 0.995 else "faster" if here > 1.005 else "neither gain nor loss"
    figure, (axes,) = picture(3.9, alt="")
    axes.plot(list(gains), list(gains.values()), **LINES[0] | {"markersize": 6}, linewidth=2, label="with a draft")
    axes.axhline(1, color=INK, linestyle=":", linewidth=1.6, label="without")
    ring: dict[str, Any] = {"marker": "o", "s": 260, "facecolors": "none", "edgecolors": INK, "linewidths": 2}
    axes.scatter([draft_tokens], [here], zorder=5, **ring)
    said = f"K = {draft_tokens}: {here:.2f} times the tokens per second, {verdict}; the best K is {best}"
    axes.set_title(said)
    axes.set(xlabel="guesses in a draft (K)", ylabel="tokens per second, without a draft = 1")
    axes.set(xlim=(0.5, most + 0.5), ylim=(0, max(1.35, 1.15 * max(gains.values()))))
    axes.set_xticks(sorted({1, *range(2, most + 1, 2)}))
    axes.grid(axis="y", color="#dddddd")
    figure.legend(ncols=2, **LEGEND)
    shown = ", ".join(f"K = {K}: {gains[K]:.2f}" for K in (1, 2, 4, 8, 16) if K in gains)
    figure.alt = (
        f"{said}. {100 * acceptance:.0f} % of the guesses are accepted. In parts of a pass over a token, a guess costs "
        f"{100 * draft_cost:.0f} %, and each guess in a pass {100 * token_cost:.0f} %. {shown}."
    )
    return figure


@styled
def likelihoods(
    tokens: Sequence[str], said: Mapping[str, Sequence[float]], counted: Mapping[str, Sequence[Rate]]
) -> Picture:
    """How likely each token is: a bar for each name in `said`, and for each in `counted` a mark with its 95 % interval.

    ValueError for lists that are not as long as `tokens`, or more than can be told apart.
    """
    if not 1 <= len(tokens) <= MOST_TOKENS or len(said) > len(BARS) or len(counted) > len(LINES):
        raise ValueError(f"{len(tokens)} tokens, {len(said)} bars and {len(counted)} marks are not for one picture")
    for name, values in (*said.items(), *counted.items()):
        if len(values) != len(tokens):
            raise ValueError(f"{name}: {len(values)} numbers for {len(tokens)} tokens")
    figure, (axes,) = picture(3.9, alt="How likely each token is.")
    room = 0.84 / max(len(said) + len(counted), 1)
    place = 0.0
    for look, (name, shares) in zip(BARS, said.items()):
        xs = [number - 0.42 + place + room / 2 for number in range(len(tokens))]
        axes.bar(xs, [100 * share for share in shares], width=0.9 * room, label=name, **look)
        place += room
        figure.alt += f" {name}: " + ", ".join(f"{t} {100 * s:.1f} %" for t, s in zip(tokens, shares)) + "."
    for look, (name, rates) in zip(LINES[2:] + LINES[:2], counted.items()):
        xs = [number - 0.42 + place + room / 2 for number in range(len(tokens))]
        ys = [100 * rate.share for rate in rates]
        ends = [[100 * rate.interval[end] for rate in rates] for end in (0, 1)]
        around = [[y - low for y, low in zip(ys, ends[0])], [high - y for y, high in zip(ys, ends[1])]]
        line: dict[str, Any] = look | {"linestyle": "none", "markersize": 7, "elinewidth": 1.6, "capsize": 3}
        axes.errorbar(xs, ys, yerr=around, label=name, **line)
        place += room
        figure.alt += f" {name}: " + ", ".join(f"{t} {rate}" for t, rate in zip(tokens, rates)) + "."
    axes.set(ylabel="share of draws (%)", xlim=(-0.5, len(tokens) - 0.5))
    axes.set_ylim(bottom=0)
    axes.set_xticks(range(len(tokens)), labels=list(tokens))
    axes.tick_params(axis="x", length=0)
    figure.legend(ncols=3, **LEGEND)
    return figure
