"""Solutions of ex03.append: right ones, written in different ways, and named wrong ones.

The one idea: a check is itself under test. Each wrong one names the cases that it has to fail, no more and no fewer,
and a few words that the learner has to read; each right one has to pass. All are source text, as a cell of a notebook
is, so that the same text runs in this process and in another.
"""

from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

from course_lib.checks.ex03_append import CASES

FIRST, PROMPT, SINGLE, CHUNK, LAYERS, CACHES, EARLIER, INPUTS, PRECISION, LONGER = CASES
ALL = frozenset(CASES)
SEVERAL_CALLS = ALL - {FIRST, PROMPT}
MORE_AT_ONCE = frozenset({PROMPT, CHUNK, LONGER})  # the cases that append more than one token in a call


@dataclass(frozen=True)
class Wrong:
    """A wrong solution, the cases that it fails, and words of the first failed line."""

    source: str
    fails: frozenset[str]
    says: tuple[str, ...] = field(default=())


def function(source: str, name: str = "append") -> Any:
    """The function that a cell with this text defines."""
    cell: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(dedent(source), "<cell>", "exec"), cell)
    return cell[name]


RIGHT = {
    "torch.cat, a tuple for each layer": """
        import torch
        def append(cache, layer, k, v):
            if layer in cache:
                k, v = torch.cat([cache[layer][0], k], dim=1), torch.cat([cache[layer][1], v], dim=1)
            cache[layer] = (k, v)
            return k, v
        """,
    "lists of parts": """
        import torch
        def append(cache, layer, k, v):
            keys, values = cache.setdefault(("keys", layer), []), cache.setdefault(("values", layer), [])
            keys.append(k)
            values.append(v)
            return torch.cat(keys, dim=-2), torch.cat(values, dim=-2)
        """,
    "a buffer made beforehand, views returned": """
        import torch
        def append(cache, layer, k, v):
            H, n, D = k.shape
            if layer not in cache:
                cache[layer] = [0, k.new_empty(2, H, 256, D)]
            start, room = cache[layer]
            room[0, :, start:start + n], room[1, :, start:start + n] = k, v
            cache[layer][0] = start + n
            return room[0, :, :start + n], room[1, :, :start + n]
        """,
    "a buffer that doubles": """
        import torch
        def append(cache, layer, k, v):
            state = cache.setdefault(layer, {"n": 0, "room": k.new_empty(2, k.shape[0], 1, k.shape[2])})
            end = state["n"] + k.shape[1]
            while state["room"].shape[2] < end:
                state["room"] = torch.cat([state["room"], torch.empty_like(state["room"])], dim=2)
            state["room"][:, :, state["n"]:end] = torch.stack([k, v])
            state["n"] = end
            return [state["room"][0, :, :end], state["room"][1, :, :end]]
        """,
    "NumPy": """
        import numpy as np
        def append(cache, layer, k, v):
            k, v = k.numpy(), v.numpy()
            old = cache.get(layer, (k[:, :0], v[:, :0]))
            cache[layer] = np.concatenate([old[0], k], 1), np.concatenate([old[1], v], 1)
            return cache[layer]
        """,
    "a class of one's own inside, dtype kept": """
        import torch
        class Layer:
            def __init__(self): self.keys, self.values = [], []
            def add(self, k, v):
                self.keys += list(k.unbind(1))
                self.values += list(v.unbind(1))
                return torch.stack(self.keys, 1), torch.stack(self.values, 1)
        def append(cache, layer, k, v):
            return cache.setdefault(layer, Layer()).add(k, v)
        """,
    "a callable object that prints": """
        import torch
        class Append:
            def __call__(self, cache, layer, k, v):
                print("layer", layer)
                old = cache.setdefault(layer, [k[:, :0], v[:, :0]])
                cache[layer] = [torch.cat(pair, 1) for pair in zip(old, (k, v))]
                return cache[layer]
        append = Append()
        """,
    "tensors that want a gradient": """
        import torch
        def append(cache, layer, k, v):
            k, v = k.clone().requires_grad_(), v.clone().requires_grad_()
            old = cache.get(layer, (k[:, :0], v[:, :0]))
            cache[layer] = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            return cache[layer]
        """,
}

CAT = """
    import torch
    def append(cache, layer, k, v):
        if layer in cache:
            k, v = torch.cat([cache[layer][0], k], dim=1), torch.cat([cache[layer][1], v], dim=1)
        cache[layer] = (k, v)
        return k, v
    """


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    source = CAT
    for old, new in pairs:
        assert source.count(old) == 1, f"{source.count(old)} times: {old!r}"
        source = source.replace(old, new)
    return source


WRONG = {
    "keys and values swapped": Wrong(
        changed(("return k, v", "return v, k")), ALL, ("mixed up", "the value of token 0")
    ),
    "keys and values swapped in the store": Wrong(
        changed(("cache[layer] = (k, v)", "cache[layer] = (v, k)")), SEVERAL_CALLS, ("mixed up", "token 0")
    ),
    "the keys twice": Wrong(changed(("return k, v", "return k, k")), ALL, ("mixed up", "values", "the key of token 0")),
    "appended in front": Wrong(
        changed(("[cache[layer][0], k]", "[k, cache[layer][0]]"), ("[cache[layer][1], v]", "[v, cache[layer][1]]")),
        SEVERAL_CALLS,
        ("not in the order", "call 2 of 4", "head 0, token 0, entry 0", "the key of token 1"),
    ),
    "overwrites the last token": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            H, n, D = k.shape
            start, room = cache.setdefault(layer, [0, k.new_zeros(2, H, 256, D)])
            start = max(start - 1, 0)
            room[0, :, start:start + n], room[1, :, start:start + n] = k, v
            cache[layer][0] = start + n
            return room[0, :, :start + n], room[1, :, :start + n]
        """,
        SEVERAL_CALLS,
        ("call 2 of 4", "Only the new tokens", "shape [2, 1, 4]"),
    ),
    "one slot too far": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            H, n, D = k.shape
            state = cache.setdefault(layer, [0, k.new_zeros(2, H, 256, D)])
            start, end = state[0], state[0] + n
            room = state[1]
            if start:
                room[0, :, start + 1:end + 1], room[1, :, start + 1:end + 1] = k, v
            else:
                room[0, :, :end], room[1, :, :end] = k, v
            state[0] = end
            return room[0, :, :end], room[1, :, :end]
        """,
        SEVERAL_CALLS,
        ("zeros", "call 2 of 4", "head 0, token 1"),
    ),
    "the first token is never written": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            old = cache.get(layer, (torch.zeros_like(k[:, :1]), torch.zeros_like(v[:, :1])))
            new = (k, v) if layer in cache else (k[:, 1:], v[:, 1:])
            cache[layer] = tuple(torch.cat(pair, dim=1) for pair in zip(old, new))
            return cache[layer]
        """,
        ALL,
        ("zeros", "head 0, token 0, entry 0"),
    ),
    "one list for all caches": Wrong(
        """
        import torch
        kept = {}
        def append(cache, layer, k, v):
            if layer in kept:
                k, v = (torch.cat(pair, dim=1) for pair in zip(kept[layer], (k, v)))
            kept[layer] = (k, v)
            return k, v
        """,
        ALL - {FIRST},
        ("More tokens",),
    ),
    "a default dictionary that all objects share": Wrong(
        """
        import torch
        class Kept:
            def __init__(self, layers={}): self.layers = layers
        def append(cache, layer, k, v):
            kept = cache.setdefault("kept", Kept()).layers
            if layer in kept:
                k, v = (torch.cat(pair, dim=1) for pair in zip(kept[layer], (k, v)))
            kept[layer] = (k, v)
            return k, v
        """,
        ALL - {FIRST},
        ("More tokens",),
    ),
    "one store that every new cache empties": Wrong(
        """
        import torch
        kept = {}
        def append(cache, layer, k, v):
            if not cache:
                kept.clear()
                cache["used"] = True
            if layer in kept:
                k, v = (torch.cat(pair, dim=1) for pair in zip(kept[layer], (k, v)))
            kept[layer] = (k, v)
            return k, v
        """,
        frozenset({CACHES}),
        ("two caches share", "call 3 of 5, cache A, layer 0, keys, head 0, token 0", "in the other cache"),
    ),
    "layers mixed": Wrong(
        changed(
            ("if layer in cache:", "if 0 in cache:"),
            ("[cache[layer][0], k]", "[cache[0][0], k]"),
            ("[cache[layer][1], v]", "[cache[0][1], v]"),
            ("cache[layer] = (k, v)", "cache[0] = (k, v)"),
        ),
        frozenset({LAYERS, LONGER}),
        ("More tokens", "call 2 of 9", "layer 1"),
    ),
    "every layer reads the layer before": Wrong(
        changed(("[cache[layer][0], k]", "[cache[max(layer - 1, 0)][0][:, :cache[layer][0].shape[1]], k]")),
        frozenset({LAYERS, LONGER}),
        ("another layer", "call 5 of 9", "layer 1, keys, head 0, token 0", "in layer 0"),
    ),
    "only the new tokens returned": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            cache.setdefault(layer, []).append((k, v))
            return k, v
        """,
        SEVERAL_CALLS,
        ("Only the new tokens", "call 2 of 4"),
    ),
    "only the last token kept": Wrong(
        changed(("cache[layer] = (k, v)", "cache[layer] = (k[:, -1:], v[:, -1:])")),
        SEVERAL_CALLS - {PRECISION},
        ("Fewer tokens", "call 3 of 4"),
    ),
    "the average of old and new": Wrong(
        changed(
            (
                "return k, v",
                "return (k, v) if k.shape[1] == 1 else (k, v.cumsum(1) / torch.arange(1, v.shape[1] + 1)[:, None])",
            )
        ),
        ALL - {FIRST},
        ("A cache keeps, it does not compute", "values", "head 0, token 1"),
    ),
    "float16 inside": Wrong(
        changed(
            ("cache[layer] = (k, v)", "cache[layer] = (k.half(), v.half())"),
            ("return k, v", "return k.half().float(), v.half().float()"),
        ),
        frozenset({PRECISION}),
        ("rounded", "call 1 of 4", "cache A"),
    ),
    "float32 inside": Wrong(
        changed(("if layer in cache:", "k, v = k.float(), v.float()\n        if layer in cache:")),
        frozenset({PRECISION}),
        ("rounded", "call 3 of 4", "cache B"),
    ),
    "float64 for everything": Wrong(
        changed(("return k, v", "return k.double(), v.double()")),
        frozenset({PRECISION}),
        ("went in as float32", "float64"),
    ),
    "a view that a later call changes": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            H, n, D = k.shape
            state = cache.setdefault(layer, {"room": k.new_zeros(2, H, 256, D), "n": 0})
            room, end = state["room"], state["n"] + n
            kept = room[:, :, :state["n"]].clone()  # the newest always at the end of the room
            room[:, :, 256 - end:256 - n], room[0, :, 256 - n:], room[1, :, 256 - n:] = kept_of(state), k, v
            state["n"] = end
            return room[0, :, 256 - end:], room[1, :, 256 - end:]
        def kept_of(state):
            n = state["n"]
            return state["room"][:, :, 256 - n:].clone()
        """,
        frozenset({EARLIER}),
        ("a later call changed them", "call 1 of 3"),
    ),
    "the order of a chunk reversed": Wrong(
        changed(
            ("import torch", "import torch"),
            ("if layer in cache:", "k, v = k.flip(1), v.flip(1)\n        if layer in cache:"),
        ),
        MORE_AT_ONCE,
        ("not in the order", "call 1 of 1", "head 0, token 0", "the key of token 4"),
    ),
    "changes what it was given": Wrong(
        changed(
            ("return k, v", "new.zero_()\n        return k, v"),
            ("if layer in cache:", "new, k = k, k.clone()\n        if layer in cache:"),
        ),
        frozenset({INPUTS}),
        ("changed k", "call 1 of 3"),
    ),
    "right for one token at a time only": Wrong(
        changed(("if layer in cache:", "k, v = k[:, :1], v[:, :1]\n        if layer in cache:")),
        MORE_AT_ONCE,
        ("Fewer tokens", "shape [2, 1, 4]"),
    ),
    "a second chunk replaces the first": Wrong(
        changed(("if layer in cache:", "if layer in cache and k.shape[1] == 1:")),
        frozenset({CHUNK, LONGER}),
        ("Only the new tokens", "call 3 of 4"),
    ),
    "joined along the heads": Wrong(
        changed(("k], dim=1)", "k], dim=0)")), SEVERAL_CALLS, ("another axis", "shape [4, 1, 4]")
    ),
    "room for 32 tokens": Wrong(
        changed(("return k, v", "return k[:, -32:], v[:, -32:]")),
        frozenset({LONGER}),
        ("Fewer tokens", "call 5 of 6", "[3, 39, 2]"),
    ),
    "heads reversed": Wrong(changed(("return k, v", "return k, v.flip(0)")), ALL, ("heads are mixed up", "values")),
    "one head for all": Wrong(
        changed(("return k, v", "return k[:1].expand_as(k), v")), ALL, ("heads are mixed up", "head 1, token 0")
    ),
    "what a fixed seed would give": Wrong(
        """
        import torch
        from course_lib.checks.ex03_append import CASES, draw, reference
        cases = draw(0)["cases"].values()
        answers = [reference(calls, i, w) for calls in cases for i in range(len(calls)) for w in "kv"]
        answers = iter([torch.from_numpy(answer) for answer in answers])
        def append(cache, layer, k, v):
            return next(answers), next(answers)
        """,
        ALL,
        ("went in",),
    ),
    "return forgotten": Wrong(changed(("return k, v", "result = k, v")), ALL, ("Did you forget `return`?",)),
    "a list of parts": Wrong(
        """
        def append(cache, layer, k, v):
            cache.setdefault(layer, ([], []))
            cache[layer][0].append(k)
            cache[layer][1].append(v)
            return cache[layer]
        """,
        ALL,
        ("should be one tensor", "torch.cat"),
    ),
    "one tensor for both": Wrong(
        changed(("return k, v", "return torch.stack([k, v])")), ALL, ("two things, (keys, values)", "[2, 2, 1, 4]")
    ),
    "three arguments": Wrong(
        changed(("append(cache, layer, k, v)", "append(cache, k, v)"), ("if layer", "layer = 0\n        if layer")),
        ALL,
        ("could not be called. The check calls append(cache, layer, k, v)",),
    ),
    "raises at the second call": Wrong(
        changed(("cache[layer] = (k, v)", "cache[layer] = k")), SEVERAL_CALLS, ("raised an error in line 5 of append",)
    ),
    "leaves the program": Wrong(
        changed(("return k, v", "raise SystemExit(0)")), ALL, ("raised an error", "SystemExit")
    ),
    "yields instead of returning": Wrong(changed(("return k, v", "yield k, v")), ALL, ("a generator",)),
}
