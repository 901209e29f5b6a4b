"""What benchmarks/quality.py works out, on a tiny model: bytes by hand, what is compared with what, and its figure.

The one idea: the benchmark's figures are shown to everybody, so each kind's bytes are counted here once more, from the
number of tokens and of bits alone. How long a step takes is asserted nowhere.
"""

import sys
from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Annotation

from benchmarks import quality
from benchmarks.quality import FULL, KINDS, LENGTH, LOOKS, Kind, figure, forgetting, measure, spread, step_ratio, table
from course_lib.caches import ContiguousCache
from course_lib.caches.policies import Window
from course_lib.checkpoints import random_model
from course_lib.model import ModelConfig, Transformer
from course_lib.quality.recall import TASK, Questions
from course_lib.study.style import DRAWN_DPI


def model_with(kv_heads: int) -> Transformer:
    return random_model(ModelConfig(TASK.vocabulary, 1, 32, 4, kv_heads, 32, 32, max_positions=256), seed=3)


MODELS = {"mha": model_with(4), "gqa": model_with(2), "mqa": model_with(1)}


def questions() -> Questions:
    return TASK.questions(quality.PAIRS, quality.QUERIES, 2, seed=0)


def by_bits(keys: int, values: int, waiting: int) -> float:
    """The share of float32's bytes: codes, 32 bits of scales for 32 numbers, and what waits as it came."""
    return ((LENGTH - waiting) * (keys + values + 2) / 64 + waiting) / LENGTH


BYTES = {
    "full, float32: GQA": 1.0, "full, float32: MHA": 2.0, "full, float32: MQA": 0.5,
    "floats: fp16": 1 / 2, "floats: bf16": 1 / 2, "floats: e4m3": 1 / 4, "floats: e5m2": 1 / 4,
    **{f"bits, per token: {bits}": by_bits(bits, bits, 0) for bits in (8, 4, 3, 2)},
    "bits, per token: K2 V4": by_bits(2, 4, 0), "bits, per token: K4 V2": by_bits(4, 2, 0),
    "bits, keys per channel: 4": by_bits(4, 4, 16), "bits, keys per channel: 2": by_bits(2, 2, 16),
    "bits, keys per channel: 4 + 32": by_bits(4, 4, 48), "bits, keys per channel: 2 + 32": by_bits(2, 2, 48),
    **{f"window: {window}": window / LENGTH for window in (128, 96, 64, 32)},
    "sinks + window: 4 + 124": 128 / LENGTH, "sinks + window: 4 + 60": 64 / LENGTH,
    "most seen: 128": 128 / LENGTH, "most seen: 64": 64 / LENGTH,
}  # fmt: skip


def test_every_kind_takes_the_bytes_that_its_tokens_and_bits_make() -> None:
    text, found = questions().tokens[:1], {}
    full = 2 * 2 * 32 * 4  # keys and values, 2 heads of 32 numbers, 4 bytes each
    for kind in KINDS:
        model, watched = MODELS[kind.model], quality.Watched(kind.cache_of)
        with torch.inference_mode():
            model(text, watched(model.config, 1, LENGTH))
        found[kind.name] = watched.bytes_per_token / full
    assert found == pytest.approx(BYTES)


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    asked = questions()
    kinds = (FULL, KINDS[2], KINDS[3], Kind("window", "all", forgetting(Window(LENGTH))), KINDS[-5])
    return measure(MODELS["gqa"], MODELS, asked.tokens, asked, 1, kinds)


def test_a_cache_that_keeps_all_changes_nothing_and_one_that_forgets_does(cases: list[dict[str, Any]]) -> None:
    full, _, half, window, short = cases
    assert full["kl_nats"] == full["nll_added_nats"] == 0 and full["same_choice"] == 1
    assert full["kl_nats_interval"] == [0, 0]
    assert window["kl_nats"] < 1e-9 < half["kl_nats"] < 1e-4 < short["kl_nats"]
    assert short["same_choice"] < half["same_choice"] <= 1
    assert {(case["texts"], case["tokens_judged"]) for case in (full, half)} == {(2, 2 * (LENGTH - quality.PROMPT - 1))}
    assert {case["recall_asked"] for case in cases} == {2 * quality.QUERIES}


def test_what_does_not_apply_to_smollm2_is_none_and_the_ratios_are_to_the_full_cache(
    cases: list[dict[str, Any]],
) -> None:
    full, mqa, half, *_ = cases
    assert mqa.keys() == full.keys() and mqa["kl_nats"] is mqa["bytes_per_token"] is None
    assert (full["bytes_per_token"], half["bytes_per_token"]) == (512, 256)
    assert [case["ratio_bytes_vs_float32"] for case in cases[:3]] == [1, 0.5, 0.5]
    assert [case["ratio_bytes_vs_bfloat16"] for case in cases[:3]] == [2, 1, 1]


def test_a_step_is_compared_with_one_of_the_same_round_and_the_first_round_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds = iter([(1, 99), (2, 3), (2, 8), (4, 6)])  # seconds of a step: of the full cache, of the other

    def scripted(model: Transformer, cache: object, tokens: list[int]) -> Iterator[float]:
        if isinstance(cache, ContiguousCache):
            now[:] = next(rounds)
        return iter([now[0 if isinstance(cache, ContiguousCache) else 1]] * len(tokens))

    now: list[int] = []
    monkeypatch.setattr(quality, "step_times", scripted)
    model = MODELS["gqa"]
    assert step_ratio(model, model, questions().tokens[0], KINDS[-1], 3) == 1.5


def test_a_row_of_the_table_has_the_mean_and_half_its_interval(cases: list[dict[str, Any]]) -> None:
    case = {"kl_nats": 0.0031, "kl_nats_interval": [0.0027, 0.0035]}
    assert spread(case, "kl_nats", 1e3) == "3.1 ± 0.4"
    shown = table(cases)
    assert shown.row_count == len(cases)
    divergence = list(shown.columns[4].cells)
    assert divergence[:2] == ["0 ± 0", ""]


# --- The figure


def made_up(kinds: tuple[Kind, ...] = KINDS, right: float = 0.999) -> list[dict[str, Any]]:
    """A case for each kind with its true bytes, and quality that crowds: all answers right, all KL alike."""
    return [
        {"kind": k.name, "family": k.family, "label": k.label, "ratio_bytes_vs_float32": BYTES[k.name], "recall": right}
        | {"kl_nats": None if k.model != FULL.model else 0.0 if k is FULL else 0.01 * (1 + number % 5)}
        for number, k in enumerate(kinds)
    ]


def labels(kinds: tuple[Kind, ...]) -> list[str]:
    return [kind.label for kind in kinds]


def test_no_label_of_the_figure_lies_on_another_or_outside() -> None:
    drawn = figure(made_up())
    assert drawn.get_figwidth() * DRAWN_DPI >= 800
    drawn.set_dpi(DRAWN_DPI)
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    for axes in drawn.axes:
        texts = [child for child in axes.get_children() if isinstance(child, Annotation)]
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
        assert not [
            (a.get_text(), b.get_text())
            for (a, at), (b, there) in combinations(zip(texts, boxes, strict=True), 2)
            if at.overlaps(there)
        ]
        assert all(min(box.x0, box.y0, drawn.bbox.width - box.x1) >= 0 for box in boxes)
    upper, lower = ([t.get_text() for t in axes.get_children() if isinstance(t, Annotation)] for axes in drawn.axes)
    assert sorted(lower) == sorted(labels(KINDS))
    assert sorted(upper) == sorted(labels(tuple(kind for kind in KINDS if kind.model == FULL.model)))


def test_the_figure_shows_bytes_against_quality_and_a_kl_of_0_at_its_lowest_mark() -> None:
    some = (FULL, KINDS[3], KINDS[-1])
    upper, lower = figure(made_up(some, 0.75)).axes
    points = [tuple(point) for line in upper.get_lines() for point in line.get_xydata()]
    assert sorted(points) == sorted([(1.0, quality.LEAST_KL), (0.5, 0.02), (BYTES[KINDS[-1].name], 0.03)])
    assert {y for line in lower.get_lines() for _, y in line.get_xydata()} == {75}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [([], "there must be cases"), ([made_up()[0] | {"family": "magic"}], "of the families"),
     (made_up((FULL,)) * 40, "no room for the label")],
)  # fmt: skip
def test_what_cannot_be_drawn_is_refused_in_words(wrong: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        figure(wrong)


def test_every_family_has_its_own_look() -> None:
    looks = [(str(look["color"]), look["marker"]) for look in LOOKS.values()]
    assert len(set(looks)) == len(looks) and {kind.family for kind in KINDS} == set(LOOKS)


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--threads", "0"]])
def test_options_that_measure_nothing_are_refused(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["quality.py", *arguments])
    with pytest.raises(SystemExit):
        quality.options()
    assert "must be at least 1" in capsys.readouterr().err
