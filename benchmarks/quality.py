"""What smaller caches save in bytes, and what that costs in quality and time: the kinds of notebook 08 in one table.

    python benchmarks/quality.py [--json FILE] [--figure FILE.png] [--rounds N] [--threads N] [--quick]

Every kind holds the same texts of 208 tokens, which are read 64 at once and then 8 by 8. 208 is six and a half groups
of 32, so that what still waits to be rounded along channels is neither none nor a whole group.

* bytes_per_token: keys and values, scales included, that SmolLM2's cache uses once it has read a text, over the tokens
  of the text; recall_bytes_per_token is that of the recall model. Ratios are those of the recall model, to its cache
  with 2 KV heads in float32 or bfloat16. Both models compute in float32, and a residual is kept in it.
* kl_nats, nll_added_nats, same_choice: SmolLM2 against itself with a full float32 cache, on texts of filler sentences
  written for the course, judged from the 65th token on. The sample is a text: means and 95 % intervals over the texts.
* recall: the share of 64 pairs' questions that the recall model answers right, each text asking 40, with its interval.
* ratio_step_vs_contiguous: seconds of a decode step, over those of one with a full float32 contiguous cache. The two
  take turns, step by step; the median within a round, then over the rounds. One row, at 192 tokens and more; SmolLM2,
  or for other numbers of heads the recall model. Rounding saves bytes here, not time: Python unpacks what a kernel
  would read as it is.
"""

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[1])  # not this folder: its cuda.py would hide the package `cuda`

import torch  # noqa: E402
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.transforms import Bbox  # noqa: E402
from rich.table import Table  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks import command  # noqa: E402
from course_lib import checkpoints  # noqa: E402
from course_lib.caches import Cache, ContiguousCache  # noqa: E402
from course_lib.caches.codecs import Codec, Floats, Integers  # noqa: E402
from course_lib.caches.forgetting import ForgettingCache  # noqa: E402
from course_lib.caches.policies import MostSeen, Policy, Window  # noqa: E402
from course_lib.caches.rounded import RoundedCache  # noqa: E402
from course_lib.checkpoints import Tokenizer  # noqa: E402
from course_lib.model import ModelConfig, Transformer  # noqa: E402
from course_lib.quality import recall  # noqa: E402
from course_lib.quality.measures import CacheOf, compare, read, step_times  # noqa: E402
from course_lib.quality.needle import DID, WHEN, WHO  # noqa: E402
from course_lib.study.cache_figures import LINES  # noqa: E402
from course_lib.study.style import BLUE, GREY, INK, ORANGE, VERMILION, Picture, picture, styled  # noqa: E402

PAIRS, QUERIES, GROUP, SINKS = 64, 40, 32, 4
LENGTH, PROMPT, CHUNK = 2 * (PAIRS + QUERIES), 64, 8  # tokens: of a text of either model, of its prompt, of a pass
READ, STEPS = 192, 4  # tokens before the first step that is timed; steps of a round


@dataclass(frozen=True)
class Kind:
    """A way to keep a cache small: its family, what sets it apart there, and the cache itself."""

    family: str
    label: str
    cache_of: CacheOf
    model: str = "gqa"  # of recall's; all others say nothing about SmolLM2, which has the heads it has

    @property
    def name(self) -> str:
        return f"{self.family}: {self.label}"


def rounded(keys: Codec, values: Codec, residual: int = 0) -> CacheOf:
    return lambda config, rows, capacity: RoundedCache(config, rows, capacity, keys, values, residual)


def forgetting(policy: Policy) -> CacheOf:
    return lambda config, rows, capacity: ForgettingCache(config, rows, policy)


def floats(dtype: torch.dtype) -> CacheOf:
    return rounded(Floats(dtype), Floats(dtype))


def per_token(bits: int) -> Integers:
    return Integers(bits, GROUP)


FULL = Kind("full, float32", "GQA", ContiguousCache)  # 2 KV heads: what all others are measured against
KINDS = (
    FULL,
    Kind("full, float32", "MHA", ContiguousCache, "mha"),
    Kind("full, float32", "MQA", ContiguousCache, "mqa"),
    Kind("floats", "fp16", floats(torch.float16)),
    Kind("floats", "bf16", floats(torch.bfloat16)),
    Kind("floats", "e4m3", floats(torch.float8_e4m3fn)),
    Kind("floats", "e5m2", floats(torch.float8_e5m2)),
    *(Kind("bits, per token", str(bits), rounded(per_token(bits), per_token(bits))) for bits in (8, 4, 3, 2)),
    Kind("bits, per token", "K2 V4", rounded(per_token(2), per_token(4))),
    Kind("bits, per token", "K4 V2", rounded(per_token(4), per_token(2))),
    *(
        Kind(
            "bits, keys per channel",
            f"{bits}{f' + {residual}' if residual else ''}",
            rounded(Integers(bits, GROUP, per_channel=True), per_token(bits), residual),
        )
        for bits, residual in product((4, 2), (0, 32))
    ),
    *(Kind("window", str(window), forgetting(Window(window))) for window in (128, 96, 64, 32)),
    *(Kind("sinks + window", f"{SINKS} + {slots - SINKS}", forgetting(Window(slots - SINKS, SINKS)))
      for slots in (128, 64)),
    *(Kind("most seen", str(slots), forgetting(MostSeen(slots, slots // 2))) for slots in (128, 64)),
)  # fmt: skip


def texts(tokenizer: Tokenizer, number: int, length: int = LENGTH) -> Tensor:
    """Token ids [number, length] of filler sentences, each text in another order."""
    lines = []
    for seed in range(number):
        sentences = Random(seed).sample([*product(WHO, DID, WHEN)], length // 4)
        lines.append(tokenizer.encode(" ".join(f"{' '.join(parts)}." for parts in sentences))[:length])
    return torch.tensor(lines)


class Watched:
    """Makes a cache and remembers it, so that its tensors can be asked once a text has been read."""

    def __init__(self, cache_of: CacheOf) -> None:
        self.cache_of = cache_of
        self.cache: Cache | None = None

    def __call__(self, config: ModelConfig, rows: int, capacity: int) -> Cache:
        self.cache = self.cache_of(config, rows, capacity)
        return self.cache

    @property
    def bytes_per_token(self) -> float:
        assert self.cache is not None
        return self.cache.used_bytes / sum(self.cache.lengths)  # seen, whether held or not


def language(model: Transformer, tokens: Tensor, reference: Tensor, kind: Kind) -> dict[str, Any]:
    """What reading texts [rows, T] through a cache of this kind changes of `reference`, the logits [rows, T, V]."""
    watched = Watched(kind.cache_of)
    changed = read(model, tokens, watched, prompt=PROMPT, chunk=CHUNK)
    found = compare(reference[:, PROMPT:], changed[:, PROMPT:], tokens[:, PROMPT:])
    measures = {"kl_nats": found.kl, "nll_added_nats": found.nll_added, "same_choice": found.same_choice}
    return {
        "bytes_per_token": watched.bytes_per_token,
        **{name: mean.value for name, mean in measures.items()},
        **{f"{name}_interval": [mean.low, mean.high] for name, mean in measures.items()},
        "texts": found.kl.samples,
        "tokens_judged": found.tokens,
    }


def recalled(model: Transformer, questions: recall.Questions, kind: Kind) -> dict[str, Any]:
    watched = Watched(kind.cache_of)
    rate = recall.ask(model, questions, watched, chunk=CHUNK).rate()
    return {
        "recall_bytes_per_token": watched.bytes_per_token,
        "recall": rate.share,
        "recall_interval": list(rate.interval),
        "recall_asked": rate.asked,
    }


@torch.inference_mode()
def step_ratio(model: Transformer, base: Transformer, text: Tensor, kind: Kind, rounds: int) -> float:
    """Seconds of a decode step of `model` with this kind of cache over those of `base` with a full one, which takes
    turns with it; the median over the rounds.
    """
    tokens, ratios = text[:READ].tolist(), []
    caches = [(base, ContiguousCache), (model, kind.cache_of)]
    held = [(each, cache_of(each.config, 1, READ + (rounds + 1) * STEPS)) for each, cache_of in caches]
    for each, cache in held:
        each(text[None, :READ], cache, last_only=True)
    for _ in range(rounds + 1):  # the first one does not count
        below, above = zip(*zip(*(step_times(each, cache, tokens[:STEPS]) for each, cache in held)))
        ratios.append(statistics.median(above) / statistics.median(below))
    return statistics.median(ratios[1:])


def measure(
    model: Transformer,
    recallers: Mapping[str, Transformer],
    tokens: Tensor,
    questions: recall.Questions,
    rounds: int,
    kinds: Sequence[Kind] = KINDS,
    tell: Callable[[str], None] = lambda name: None,
) -> list[dict[str, Any]]:
    """The cases, one for each kind, under the names of the JSON file. What does not apply is None."""
    reference, cases = read(model, tokens, FULL.cache_of, prompt=PROMPT, chunk=CHUNK), []
    full = recalled(recallers[FULL.model], questions, FULL)["recall_bytes_per_token"]
    spoken: tuple[str, ...] = ()
    for kind in kinds:
        tell(kind.name)
        reader, base, text = recallers[kind.model], recallers[FULL.model], questions.tokens[0]
        found: dict[str, Any] = dict.fromkeys(spoken)
        if kind.model == FULL.model:
            found = language(model, tokens, reference, kind)
            spoken, reader, base, text = tuple(found), model, model, tokens[0]
        memory = recalled(recallers[kind.model], questions, kind)
        ratio = memory["recall_bytes_per_token"] / full
        cases.append(
            {"kind": kind.name, "family": kind.family, "label": kind.label, "tokens": tokens.shape[1]}
            | {"ratio_bytes_vs_float32": ratio, "ratio_bytes_vs_bfloat16": 2 * ratio}
            | found
            | memory
            | {"ratio_step_vs_contiguous": step_ratio(reader, base, text, kind, rounds), "rounds": rounds}
            | {"threads": torch.get_num_threads()}
        )
    return cases


def table(cases: Sequence[dict[str, Any]]) -> Table:
    asked, n = cases[0]["recall_asked"], cases[0]["texts"]
    shown = Table(
        title=f"Smaller caches at {cases[0]['tokens']} tokens; n = {n} texts, {asked} questions; 95 % intervals"
    )
    shown.add_column("kind")
    for heading in ("bytes a\ntoken", "of\nfloat32", "of\nbf16", "KL\n(millinats)", "NLL added\n(millinats)",
                    "same\nchoice", "recall", "step\ntime"):  # fmt: skip
        shown.add_column(heading, justify="right")
    for case in cases:
        row = [case["kind"], "", f"{case['ratio_bytes_vs_float32']:.3f}", f"{case['ratio_bytes_vs_bfloat16']:.3f}"]
        row += ["", "", ""]
        if case["kl_nats"] is not None:
            row[1] = f"{case['bytes_per_token']:,.0f}"
            row[4:] = [spread(case, "kl_nats", 1e3), spread(case, "nll_added_nats", 1e3), f"{case['same_choice']:.1%}"]
        low, high = case["recall_interval"]
        row += [f"{case['recall']:.1%} ({low:.1%} to {high:.1%})", f"× {case['ratio_step_vs_contiguous']:.2f}"]
        shown.add_row(*row)
    return shown


def spread(case: dict[str, Any], name: str, times: float) -> str:
    """A mean with half the width of its interval, as 3.1 ± 0.4."""
    half = times * (case[f"{name}_interval"][1] - case[name])
    return f"{times * case[name]:.3g} ± {half:.2g}"


# --- The figure

BYTES, LEAST_KL = "ratio_bytes_vs_float32", 1e-6  # the x axis; nats: what is below is drawn there
LOOKS: dict[str, dict[str, Any]] = {
    "full, float32": {"color": INK, "marker": "*", "linestyle": "none"},
    "floats": {"color": GREY, "marker": "X", "linestyle": "none"},
    "bits, per token": LINES[0] | {"linestyle": "none"},
    "bits, keys per channel": {"color": BLUE, "marker": "P", "linestyle": "none", "markerfacecolor": "white"},
    "window": {"color": ORANGE, "marker": "s", "linestyle": "none"},
    "sinks + window": {"color": VERMILION, "marker": "^", "linestyle": "none"},
    "most seen": LINES[3] | {"linestyle": "none"},
}
TICKS = {2.0: "2", 1.0: "1", 1 / 2: "1/2", 1 / 4: "1/4", 1 / 8: "1/8"}
SIDES = ((7, 0), (-7, 0), (0, 9), (0, -9), (7, 8), (7, -8), (-7, 8), (-7, -8))
AWAY = [(far * dx, far * dy) for far in (1, 1.6, 2.4, 3.2) for dx, dy in SIDES]  # points, the nearest first


@styled
def figure(cases: Sequence[dict[str, Any]]) -> Picture:
    """Bytes against quality: KL on SmolLM2's texts above, recall below, each kind a mark with its label."""
    if not cases or not {case["family"] for case in cases} <= set(LOOKS):
        raise ValueError(f"there must be cases, all of the families {', '.join(LOOKS)}")
    drawn, (upper, lower) = picture(7.4, 2, alt="Bytes against KL and recall.", sharex=True)
    for family, look in LOOKS.items():
        look = {"markersize": 7.5, "zorder": 3, "clip_on": False} | look
        of = [case for case in cases if case["family"] == family]
        if of:
            lower.plot([c[BYTES] for c in of], [100 * c["recall"] for c in of], label=family, **look)
        of = [case for case in of if case["kl_nats"] is not None]
        if of:
            upper.plot([c[BYTES] for c in of], [max(c["kl_nats"], LEAST_KL) for c in of], **look)
    upper.set(xscale="log", yscale="log", ylabel="KL from full float32\n(nats a token, SmolLM2)")
    tens = range(-6, 2)
    upper.set_yticks([10.0**e for e in tens], ["≤ 1e-6", *(f"1e{e}" if e < -3 else f"{10.0**e:g}" for e in tens[1:])])
    upper.set_ylim(LEAST_KL / 2, 2 * max([1e-5, *(c["kl_nats"] for c in cases if c["kl_nats"] is not None)]))
    lower.set(ylim=(0, 114), yticks=range(0, 101, 20), ylabel="right answers\n(%, recall model, 64 pairs)")
    lower.set_xlabel("bytes for a text of 208 tokens, over those of float32 (logarithmic)")
    lower.set_xticks(list(TICKS), list(TICKS.values()))
    lower.minorticks_off()
    upper.minorticks_off()
    shares = [case[BYTES] for case in cases]
    lower.set_xlim(min(0.1, *shares) / 1.15, 1.3 * max(shares))
    for axes in (upper, lower):
        axes.grid(color="#e8e8e8", zorder=0)
    drawn.legend(loc="outside upper left", ncols=4, columnspacing=1.2, handletextpad=0.3)
    for axes, value in ((upper, "kl_nats"), (lower, "recall")):
        points = [(c, c[value]) for c in cases if c[value] is not None]
        at = [(c[BYTES], max(y, LEAST_KL) if axes is upper else 100 * y) for c, y in points]
        write(axes, [c["label"] for c, _ in points], at, [LOOKS[c["family"]]["color"] for c, _ in points])
    return drawn


def write(axes: Any, labels: Sequence[str], at: Sequence[tuple[float, float]], colors: Sequence[str]) -> None:
    """Write each label as near its mark as there is room: on no other mark, on no other label, beside no axes."""
    canvas = FigureCanvasAgg(axes.figure)
    canvas.draw()  # the layout decides where the marks are
    taken = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in axes.transData.transform(list(at))]
    inside = axes.bbox.padded(6)
    for label, point, color in zip(labels, at, colors, strict=True):
        color = INK if color in (ORANGE, GREY) else color  # these are too pale for letters
        for dx, dy in AWAY:
            ha = "left" if dx > 0 else "right" if dx < 0 else "center"
            va = "bottom" if dy > 0 else "top" if dy < 0 else "center"
            text = axes.annotate(
                label, point, (dx, dy), textcoords="offset points", ha=ha, va=va, fontsize=9, color=color
            )
            text.set_in_layout(False)  # the marks stay where they are
            box = text.get_window_extent(canvas.get_renderer())
            if all(inside.contains(*corner) for corner in box.corners()) and not any(map(box.overlaps, taken)):
                taken.append(box)
                break
            text.remove()
        else:
            raise ValueError(f"there is no room for the label {label}: draw fewer cases")


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there; - is standard output, without a table")
    parser.add_argument("--figure", metavar="FILE.png", help="draw bytes against quality there")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="2 texts, 4 rows of questions, 1 round: only a trial")
    chosen = parser.parse_args()
    if chosen.rounds < 1 or chosen.threads < 1:
        parser.error("--rounds and --threads must be at least 1")
    return chosen


def main() -> None:
    chosen = options()
    torch.set_num_threads(chosen.threads)
    smollm2 = checkpoints.load("smollm2")
    recallers = {kind: recall.load(kind) for kind in recall.KINDS}
    tokens = texts(smollm2.tokenizer, 2 if chosen.quick else 4)
    questions = recall.TASK.questions(PAIRS, QUERIES, 4 if chosen.quick else 16, seed=8)
    cases = measure(
        smollm2.model, recallers, tokens, questions, 1 if chosen.quick else chosen.rounds,
        tell=lambda name: print(f"measuring {name} …", file=sys.stderr, flush=True),
    )  # fmt: skip
    command.report(cases, [table(cases)], chosen.json)
    if chosen.figure:
        Path(chosen.figure).write_bytes(figure(cases).png())


if __name__ == "__main__":
    command.run(main)
