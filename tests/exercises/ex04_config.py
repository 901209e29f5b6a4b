"""Solutions of ex04.config: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex04_config import (
    BOTH,
    CASES,
    HEAD_DIM,
    INPUTS,
    NO_LAYER,
    NULLS,
    OFF,
    ONE_KIND,
    OWN_HEADS,
    REAL,
    SHARED,
)

ALL = frozenset(CASES)

PLAIN = """
    def read_config(config):
        kv_heads = config.get("num_key_value_heads")
        if kv_heads is None:
            kv_heads = config["num_attention_heads"]
        head_dim = config.get("head_dim")
        if head_dim is None:
            head_dim = config["hidden_size"] // config["num_attention_heads"]
        window = config.get("sliding_window")
        kinds = config.get("layer_types")
        if kinds is None:
            slides = window is not None and config.get("use_sliding_window") is not False
            kinds = ["sliding_attention" if slides else "full_attention"] * config["num_hidden_layers"]
        return [(kv_heads, head_dim, window if kind == "sliding_attention" else None) for kind in kinds]
    """

RIGHT = {
    "field by field": PLAIN,
    "without the fields that are null": """
        def read_config(config):
            c = {name: value for name, value in config.items() if value is not None}
            heads = c["num_attention_heads"]
            entry = c.get("num_key_value_heads", heads), c.get("head_dim", c["hidden_size"] // heads)
            every = None if c.get("use_sliding_window") is False else c.get("sliding_window")
            windows = [every] * c["num_hidden_layers"]
            if "layer_types" in c:
                windows = [c["sliding_window"] if "sliding" in kind else None for kind in c["layer_types"]]
            return [(*entry, window) for window in windows]
        """,
    "a loop over the layers, lists": """
        def read_config(config):
            layers = []
            for number in range(config["num_hidden_layers"]):
                heads = config.get("num_key_value_heads") or config["num_attention_heads"]
                length = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
                window = None
                if config.get("layer_types"):
                    if config["layer_types"][number] != "full_attention":
                        window = config["sliding_window"]
                elif config.get("use_sliding_window") in (None, True):
                    window = config.get("sliding_window")
                layers.append([heads, length, window])
            return layers
        """,
    "NumPy numbers": """
        import numpy as np
        def read_config(config):
            read = lambda name, other: other if config.get(name) is None else config[name]
            heads = np.int64(config["num_attention_heads"])
            kinds = read("layer_types", ["all"] * config["num_hidden_layers"])
            off = config.get("use_sliding_window", True) is False
            def window(kind):
                if kind == "full_attention" or (kind == "all" and off):
                    return None
                return config.get("sliding_window")
            rows = np.int32(read("num_key_value_heads", heads)), read("head_dim", config["hidden_size"] // heads)
            return tuple((*rows, window(kind)) for kind in kinds)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


TYPES = ('config.get("layer_types")', "None")
SLIDES = 'window is not None and config.get("use_sliding_window") is not False'
WINDOW = 'window if kind == "sliding_attention" else None'

WRONG = {
    "head_dim derived": Wrong(
        changed(('config.get("head_dim")', "None")),
        frozenset({HEAD_DIM, REAL, INPUTS}),
        ("Where the config names head_dim, that counts", "layer 0, head_dim"),
    ),
    "query heads": Wrong(
        changed(('config.get("num_key_value_heads")', "None")),
        ALL - {OWN_HEADS, NULLS},
        ("The query heads were taken",),
    ),
    "a sliding_window is a window": Wrong(
        changed((SLIDES, "window is not None")), frozenset({OFF, REAL}), ("use_sliding_window is false", "layer 0")
    ),
    "layer_types not read": Wrong(changed(TYPES), frozenset({BOTH, NO_LAYER, REAL, INPUTS}), ("to every layer",)),
    "a second argument of get": Wrong(
        """
        def read_config(config):
            heads = config["num_attention_heads"]
            kv_heads = config.get("num_key_value_heads", heads)
            head_dim = config.get("head_dim", config["hidden_size"] // heads)
            window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
            kinds = config.get("layer_types") or ["sliding_attention"] * config["num_hidden_layers"]
            return [(kv_heads, head_dim, window if kind == "sliding_attention" else None) for kind in kinds]
        """,
        frozenset({NULLS}),
        ("the *value* is None", "KV heads is None"),
    ),
    "no windows": Wrong(
        changed((WINDOW, "None")),
        frozenset({NULLS, ONE_KIND, BOTH, REAL, INPUTS}),
        ("use_sliding_window that is null",),
    ),
    "kinds exchanged": Wrong(
        changed(('if kind == "sliding', 'if kind != "sliding')),
        ALL - {OWN_HEADS, SHARED, HEAD_DIM},
        ("in every layer",),
    ),
    "a switch that has to be there": Wrong(
        changed(('config.get("use_sliding_window") is not False', 'config.get("use_sliding_window")')),
        frozenset({NULLS, ONE_KIND, REAL}),
        ("use_sliding_window that is null", "call 2 of 2"),
    ),
    "a switch that is null counts as off": Wrong(
        changed((SLIDES, 'window and config.get("use_sliding_window", True)')),
        frozenset({NULLS}),
        ("use_sliding_window that is null says nothing", "call 2 of 2"),
    ),
    "layer_types that are null are full": Wrong(
        changed(
            (
                "return [",
                'if config.get("layer_types", ()) is None:\n'
                '            kinds = ["full_attention"] * len(kinds)\n'
                "        return [",
            )
        ),
        frozenset({NULLS}),
        ("call 2 of 2",),
    ),
    "heads that share a KV head": Wrong(
        changed(("return [(kv_heads", 'return [(config["num_attention_heads"] // kv_heads')),
        ALL,
        ("every query head has a KV head of its own",),
    ),
    "hidden_size divided by KV heads": Wrong(
        changed(('// config["num_attention_heads"]', "// kv_heads")),
        frozenset({SHARED, ONE_KIND, OFF, BOTH, NO_LAYER, REAL}),
        ("divided by the KV heads",),
    ),
    "one KV head": Wrong(
        changed(('kv_heads = config["num_attention_heads"]', "kv_heads = 1")),
        frozenset({OWN_HEADS, NULLS}),
        ("every query head has a KV head",),
    ),
    "every other layer slides": Wrong(
        changed(
            ("return", 'kinds = (["sliding_attention", "full_attention"] * len(kinds))[: len(kinds)]\n        return')
        ),
        ALL - {OWN_HEADS, SHARED, HEAD_DIM},
        ("use_sliding_window that is null",),
    ),
    "the layers turned round": Wrong(
        changed(("kinds]", "kinds[::-1]]")), frozenset({BOTH, REAL, INPUTS}), ("wrong order",)
    ),
    "0 for no window": Wrong(changed((WINDOW, WINDOW.replace("None", "0"))), ALL - {ONE_KIND}, ("is None",)),
    "one entry for all": Wrong(changed(("in kinds]", "in kinds[:1]]")), ALL, ("an entry for each layer",)),
    "window and head_dim exchanged": Wrong(
        changed(("(kv_heads, head_dim, " + WINDOW, "(kv_heads, " + WINDOW + ", head_dim")),
        ALL,
        ("head_dim is None",),
    ),
    "no tuple": Wrong(changed(("(kv_heads, head_dim, " + WINDOW + ")", "kv_heads")), ALL, ("should be three things",)),
    "fields taken out": Wrong(
        changed(('config.get("head_dim")', 'config.pop("head_dim", None)')),
        frozenset({INPUTS}),
        ("changed the config",),
    ),
    "a field that is not always there": Wrong(
        changed(('config.get("sliding_window")', 'config["sliding_window"]')),
        frozenset({OWN_HEADS, SHARED, HEAD_DIM, REAL}),
        ("raised an error", "KeyError"),
    ),
    "the sum of all layers": Wrong(
        changed(("return [", "return sum(k for k, *_ in ["), ("in kinds]", "in kinds])")),
        ALL,
        ("A list should come back",),
    ),
    "return forgotten": Wrong(changed(("return [", "layers = [")), ALL, ("Did you forget `return`?",)),
}
