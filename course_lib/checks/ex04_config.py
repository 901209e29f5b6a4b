"""The check of ex04.config: the learner's `read_config(config)` says what each layer of a model keeps.

The one idea: every case is a shortcut that public calculators have taken. A config of one family does not show it, so
each case is a config of another. The reference reads field by field, in the order of the rules in the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_number, verdict, what_came
from course_lib.checks.contract import Verdict, part
from course_lib.checks.plain import Plain, pack
from course_lib.checks.runs.ex04_config import run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "read_config", "read_config(config)"
TOLERANCE = "none. Everything is counted."
NOT_CHECKED = "configs that contradict themselves, families with fields of their own, caches that keep a latent"
Layer: TypeAlias = "tuple[int, int, int | None]"  # KV heads, head_dim, window
Config: TypeAlias = "dict[str, Any]"
SLIDING, FULL = "sliding_attention", "full_attention"
OWN_HEADS, SHARED, HEAD_DIM = "no word about KV heads", "query heads share KV heads", "a head_dim of its own"
NULLS, ONE_KIND, OFF = "fields that are null", "a window in every layer", "a window that is switched off"
BOTH, NO_LAYER, REAL = "layers of both kinds", "a window, and no layer that slides", "models that there are"
INPUTS = "the config stays as it was"
CASES = (OWN_HEADS, SHARED, HEAD_DIM, NULLS, ONE_KIND, OFF, BOTH, NO_LAYER, REAL, INPUTS)
CALLS = {ONE_KIND: 2, NULLS: 2}
# Fields of published config.json files; what their caches take was measured with real tensors (notebook 04).
MODELS: tuple[Config, ...] = (
    {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
    {"num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8,
     "head_dim": 128, "sliding_window": None, "use_sliding_window": False},
    {"num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
     "sliding_window": 131_072, "use_sliding_window": False},
    {"num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "sliding_window": 4096},
    {"num_hidden_layers": 24, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
     "head_dim": 64, "sliding_window": 128, "layer_types": [SLIDING, FULL] * 12},
    {"num_hidden_layers": 26, "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1,
     "head_dim": 256, "sliding_window": 512, "layer_types": ([SLIDING] * 5 + [FULL]) * 4 + [SLIDING] * 2},
)  # fmt: skip


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"config": …}, …]}}."""
    rng = np.random.default_rng(seed)
    models = [{"config": MODELS[number]} for number in rng.permutation(len(MODELS))]
    return {
        "cases": {
            name: models
            if name == REAL
            else [{"config": made_up(rng, name, call)} for call in range(CALLS.get(name, 1))]
            for name in CASES
        }
    }


def made_up(rng: np.random.Generator, name: str, call: int) -> Config:
    """A config for a call of a case; `name` says what is special about it."""
    layers, kv_heads, D = int(rng.integers(6, 10)), int(rng.choice((3, 5, 6))), int(rng.choice((32, 48, 80)))
    group = 1 if name in (OWN_HEADS, NULLS) else int(rng.choice((2, 4, 8)))
    window = int(rng.choice((96, 512, 640)))
    config: Config = {
        "num_hidden_layers": layers,
        "hidden_size": kv_heads * group * D,
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "vocab_size": int(rng.integers(1000, 9000)),
        "max_position_embeddings": 4096,
    }
    if name == OWN_HEADS:
        del config["num_key_value_heads"]
    elif name in (HEAD_DIM, INPUTS):
        config["head_dim"] = D * int(rng.choice((2, 4)))
    elif name == NULLS:
        config |= {"num_key_value_heads": None, "head_dim": None, "sliding_window": None, "layer_types": None}
        config |= {"sliding_window": window, "use_sliding_window": None} if call else {}  # null switches nothing off
    elif name == ONE_KIND:
        config |= {"sliding_window": window} | ({"use_sliding_window": True} if call else {})
    elif name == OFF:
        config |= {"sliding_window": window, "use_sliding_window": False}
    elif name == NO_LAYER:
        config |= {"sliding_window": window, "layer_types": [FULL] * layers}
    if name in (BOTH, INPUTS):
        kinds = [SLIDING] * layers  # more slide than not, and turned round it is another list
        kinds[int(rng.integers(1, layers - 2))] = kinds[-1] = FULL
        config |= {"sliding_window": window, "layer_types": kinds}
    return config


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the layers in `outputs` those of the config?"""
    return verdict(ConfigCase, inputs, outputs)


def reference(config: Config) -> list[Layer]:
    """What each layer keeps: rules 1, 2 and 4 of notebook 04."""
    kv_heads, head_dim, kinds = (config.get(name) for name in ("num_key_value_heads", "head_dim", "layer_types"))
    if kv_heads is None:
        kv_heads = config["num_attention_heads"]
    if head_dim is None:
        head_dim = config["hidden_size"] // config["num_attention_heads"]
    if kinds is None:
        slides = config.get("sliding_window") is not None and config.get("use_sliding_window") is not False
        kinds = [SLIDING if slides else FULL] * config["num_hidden_layers"]
    return [(kv_heads, head_dim, config["sliding_window"] if kind == SLIDING else None) for kind in kinds]


class ConfigCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        config = dict(call["config"])
        if isinstance(kinds := config.get("layer_types"), list):
            config["layer_types"] = f"{kinds.count(SLIDING)} sliding, {kinds.count(FULL)} full"
        return ", ".join(f"{name}: {value}" for name, value in config.items())

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        config, came = call["config"], answer.get("layers")
        expected = reference(config)
        if came is None:
            return Wrong(f"{FUNCTION} returned None. Did you forget `return`?", came="None")
        if isinstance(came, np.ndarray) and came.ndim == 2:
            came = [list(row) for row in came]
        if not isinstance(came, list):
            return Wrong("A list should come back, with an entry for each layer.", came=what_came(came))
        if len(came) != len(expected):
            said = "The list should have an entry for each layer."
            return Wrong(said, f"{len(expected)} entries", f"{len(came)} entries")
        for number, (right, layer) in enumerate(zip(expected, came, strict=True)):
            if wrong := unlike(config, number, right, layer, came):
                return wrong
        return None

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        if told_in != INPUTS or as_bytes(part(answer, "config")) == as_bytes(call["config"]):
            return None
        return Wrong("The call changed the config that it was given. Read from it, and leave it as it is.")


def unlike(config: Config, number: int, right: Layer, layer: Plain, every: list[Plain]) -> Wrong | None:
    """What is wrong with the entry of a layer, if anything is."""
    if not isinstance(layer, list) or len(layer) != 3:
        said = "Each entry should be three things: (KV heads, head_dim, window)."
        return Wrong(said, came=what_came(layer), where=f"layer {number}")
    for field, expected, data in zip(BELIEFS, right, layer, strict=True):
        came = None if data is None else as_number(data)
        if came == expected and (data is None) == (expected is None):
            continue
        said = next((said for said, holds in BELIEFS[field](config, came, every) if holds), OTHERWISE[field])
        if data is None and field != "window":
            said = f"{field} is None. A field may be there and hold null: ask whether the *value* is None."
        return Wrong(said, str(expected), what_came(data) if came is None else str(came), f"layer {number}, {field}")
    return None


OTHERWISE = {
    "KV heads": "Rows are kept for num_key_value_heads heads. Where that says nothing, each query head has its own.",
    "head_dim": "head_dim is read. Only where it says nothing it is hidden_size // num_attention_heads.",
    "window": "layer_types says which layers slide; without it all do, if a window is there and not switched off.",
}


def about_heads(config: Config, came: float | None, every: list[Plain]) -> Iterator[tuple[str, bool]]:
    heads, kv_heads = config["num_attention_heads"], config.get("num_key_value_heads")
    yield (
        "The query heads were taken. Where num_key_value_heads says something, it counts.",
        bool(kv_heads) and came == heads,
    )
    groups = "This is the number of query heads that share a KV head. Asked is how many KV heads there are."
    yield groups, bool(kv_heads) and came == heads // (kv_heads or 1)
    said = "Where nothing is said of KV heads, every query head has a KV head of its own."
    yield said, not kv_heads and came == 1


def about_head_dim(config: Config, came: float | None, every: list[Plain]) -> Iterator[tuple[str, bool]]:
    hidden, heads, kv_heads = (config.get(f) for f in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    assert hidden and heads
    derived = "hidden_size // num_attention_heads was taken. Where the config names head_dim, that counts."
    yield derived, config.get("head_dim") is not None and came == hidden // heads
    by_kv = "hidden_size was divided by the KV heads. Its parts are those of the query heads."
    yield by_kv, bool(kv_heads) and came == hidden // (kv_heads or 1)
    yield "hidden_size is what all query heads have together.", came == hidden


def window_of(layer: Plain) -> float | str | None:
    """The window of an entry that came back; "?" for anything that is none."""
    if not isinstance(layer, list) or len(layer) != 3:
        return "?"
    number = as_number(layer[2])
    return "?" if number is None and layer[2] is not None else number


def as_bytes(config: dict[str, Plain]) -> bytes:
    """A config in a form that can be compared, whatever lies in it."""
    return pack({name: config[name] for name in sorted(config)})


def about_window(config: Config, came: float | None, every: list[Plain]) -> Iterator[tuple[str, bool]]:
    window, kinds = config.get("sliding_window"), config.get("layer_types")
    windows = [window_of(layer) for layer in every]
    off = "A sliding_window stands there, but use_sliding_window is false: no layer has a window."
    yield off, came == window and config.get("use_sliding_window") is False
    if kinds:
        everywhere = "A window was given to every layer. layer_types says which layers slide."
        yield everywhere, came == window and all(each == window for each in windows)
        yield "No layer got its window. layer_types says which layers slide.", windows.count(None) == len(windows)
        turned = "The kinds are exchanged: sliding_attention has the window, full_attention keeps every token."
        exchanged = [None if kind == SLIDING else window for kind in kinds]
        yield turned, windows == exchanged
        yield (
            "The layers are in the wrong order: layer_types names them from the first on.",
            sorted(map(str, windows)) == sorted("None" if kind == FULL else str(window) for kind in kinds),
        )
    silent = "A use_sliding_window that is null says nothing: the window that stands there is in every layer."
    unsaid = "use_sliding_window" in config and config["use_sliding_window"] is None
    yield silent, came is None and bool(window) and unsaid and not kinds
    yield "There is a window here, in every layer.", came is None and bool(window)
    zero = "A layer without a window keeps every token: its window is None."
    yield zero, came == 0 or (not window and came == config.get("max_position_embeddings"))
    yield "The window is as large as sliding_window says.", came is not None and bool(window)


BELIEFS: dict[str, Callable[[Config, float | None, list[Plain]], Iterator[tuple[str, bool]]]] = {
    "KV heads": about_heads,
    "head_dim": about_head_dim,
    "window": about_window,
}
