"""Solutions of ex03.append: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex03_append import CASES

FIRST, PROMPT, SINGLE, CHUNK, LAYERS, CACHES, EARLIER, INPUTS, PRECISION, LONGER = CASES
ALL = frozenset(CASES)
MORE_AT_ONCE = frozenset({PROMPT, CHUNK, PRECISION, LONGER})  # the cases that append more than one token in a call

RIGHT = {
    "torch.cat, a tuple for each layer": """
        import torch
        def append(cache, layer, k, v):
            if layer in cache:
                k, v = torch.cat([cache[layer][0], k], dim=1), torch.cat([cache[layer][1], v], dim=1)
            cache[layer] = (k, v)
            return k, v
        """,
    "a named tuple for each layer": """
        import torch
        from collections import namedtuple
        Layer = namedtuple("Layer", "keys values")
        def append(cache, layer, k, v):
            old = cache.get(layer, Layer(k[:, :0], v[:, :0]))
            cache[layer] = Layer(torch.cat([old.keys, k], dim=1), torch.cat([old.values, v], dim=1))
            return cache[layer]
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
    "a list with a place for each layer, filled in their order": """
        import torch
        def append(cache, layer, k, v):
            kept = cache.setdefault("layers", [])
            if layer == len(kept):
                kept.append((k, v))
            else:
                kept[layer] = tuple(torch.cat(pair, dim=1) for pair in zip(kept[layer], (k, v)))
            return kept[layer]
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
    return changed_in(CAT, *pairs)


IN_A_CHUNK = (
    "import torch",
    """
    import torch
    def after(given, keys, values):
        for tensor in given:
            if tensor.shape[1] > 1:
                tensor.zero_()
        return keys, values
    """,
)

NEW = ("if layer in cache:", "new, k, v = (k, v), k.clone(), v.clone()\n        if layer in cache:")


def rounded(when: str) -> str:
    """The plain right solution, but new numbers pass through float16 where `when` is true."""
    through = "k, v = (t.half().to(t.dtype) for t in (k, v))"
    return changed(("if layer in cache:", f"if {when}: {through}\n        if layer in cache:"))


WRONG = {
    "kept elsewhere, under the number of the dictionary": Wrong(
        """
        import torch
        STORE = {}
        def append(cache, layer, k, v):
            _, parts = STORE.setdefault((id(cache), layer), (cache, []))
            parts.append((k.clone(), v.clone()))
            return tuple(torch.cat(each, dim=1) for each in zip(*parts))
        """,
        ALL,
        ("the earlier ones are missing",),
    ),
    "keys and values swapped": Wrong(
        changed(("return k, v", "return v, k")), ALL, ("mixed up", "the value of token 0")
    ),
    "keys and values swapped in the store": Wrong(
        changed(("cache[layer] = (k, v)", "cache[layer] = (v, k)")), ALL, ("mixed up", "token 0")
    ),
    "the keys twice": Wrong(changed(("return k, v", "return k, k")), ALL, ("mixed up", "values", "the key of token 0")),
    "appended in front": Wrong(
        changed(("[cache[layer][0], k]", "[k, cache[layer][0]]"), ("[cache[layer][1], v]", "[v, cache[layer][1]]")),
        ALL,
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
        ALL,
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
        ALL,
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
        ALL,
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
        ALL,
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
        ("two caches share", "call 9 of 20, cache A, layer 0, keys, head 0, token 0", "in the other cache"),
    ),
    "layers mixed": Wrong(
        changed(
            ("if layer in cache:", "if 0 in cache:"),
            ("[cache[layer][0], k]", "[cache[0][0], k]"),
            ("[cache[layer][1], v]", "[cache[0][1], v]"),
            ("cache[layer] = (k, v)", "cache[0] = (k, v)"),
        ),
        frozenset({LAYERS, CACHES, PRECISION, LONGER}),
        ("More tokens", "call 2 of 64", "layer 1"),
    ),
    "every layer reads the layer before": Wrong(
        changed(("[cache[layer][0], k]", "[cache[max(layer - 1, 0)][0][:, :cache[layer][0].shape[1]], k]")),
        frozenset({LAYERS, CACHES, PRECISION, LONGER}),
        ("another layer", "call 34 of 64", "layer 1, keys, head 0, token 0", "in layer 0"),
    ),
    "only the new tokens returned": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            cache.setdefault(layer, []).append((k, v))
            return k, v
        """,
        ALL,
        ("Only the new tokens", "call 2 of 4"),
    ),
    "only the last token kept": Wrong(
        changed(("cache[layer] = (k, v)", "cache[layer] = (k[:, -1:], v[:, -1:])")),
        ALL - {FIRST, PROMPT, LAYERS},
        ("Fewer tokens", "call 3 of 4"),
    ),
    "the average of old and new": Wrong(
        changed(
            (
                "return k, v",
                "return (k, v) if k.shape[1] == 1 else (k, v.cumsum(1) / torch.arange(1, v.shape[1] + 1)[:, None])",
            )
        ),
        ALL,
        ("A cache keeps, it does not compute", "values", "head 0, token 1"),
    ),
    "float16 inside": Wrong(
        changed(
            ("cache[layer] = (k, v)", "cache[layer] = (k.half(), v.half())"),
            ("return k, v", "return k.half().float(), v.half().float()"),
        ),
        frozenset({PRECISION}),
        ("rounded", "call 1 of 60", "cache A"),
    ),
    "float32 inside": Wrong(
        changed(("if layer in cache:", "k, v = k.float(), v.float()\n        if layer in cache:")),
        frozenset({PRECISION}),
        ("rounded", "call 16 of 60", "cache B"),
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
        frozenset({CHUNK, PRECISION, LONGER}),
        ("Only the new tokens", "call 3 of 8"),
    ),
    "joined along the heads": Wrong(changed(("k], dim=1)", "k], dim=0)")), ALL, ("another axis", "shape [4, 1, 4]")),
    "room for 32 tokens": Wrong(
        changed(("return k, v", "return k[:, -32:], v[:, -32:]")),
        frozenset({LONGER}),
        ("Fewer tokens", "call 5 of 26", "[3, 39, 2]"),
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
        changed(("cache[layer] = (k, v)", "cache[layer] = k")), ALL, ("raised an error in line 5 of append",)
    ),
    "leaves the program": Wrong(
        changed(("return k, v", "raise SystemExit(0)")), ALL, ("raised an error", "SystemExit")
    ),
    "yields instead of returning": Wrong(changed(("return k, v", "yield k, v")), ALL, ("a generator",)),
    "zeroes what it was given, in a chunk": Wrong(
        changed(("return k, v", "return after(new, k, v)"), NEW, IN_A_CHUNK),
        frozenset({INPUTS}),
        ("changed k", "in the case “a prompt into an empty cache”, call 1 of 1"),
    ),
    "zeroes the values that it was given, in a chunk": Wrong(
        changed(("return k, v", "return after(new[1:], k, v)"), NEW, IN_A_CHUNK),
        frozenset({INPUTS}),
        ("changed v", "in the case “a prompt into an empty cache”, call 1 of 1, layer 0, values"),
    ),
    "zeroes what it was given, one call later": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            for tensor in cache.pop("given", ()):
                tensor.zero_()
            cache["given"] = k, v
            old = cache.get(layer, (k[:, :0], v[:, :0]))
            cache[layer] = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            return cache[layer]
        """,
        frozenset({INPUTS}),
        ("A later call changed the k of this one", "call 1 of 3"),
    ),
    "one tensor for each shape, shared by layers": Wrong(
        changed(
            ("return k, v", "return shared(cache, 'k', k), shared(cache, 'v', v)"),
            (
                "import torch",
                """
    import torch
    def shared(cache, name, tensor):
        return cache.setdefault((name, tuple(tensor.shape)), tensor.clone()).copy_(tensor)
    """,
            ),
        ),
        frozenset({EARLIER}),
        ("a later call changed them", "in the case “layers stay apart”, call 1 of 64"),
    ),
    "zeroes the earlier tensors on a chunk": Wrong(
        changed(
            ("k, v = torch.cat", "before = cache[layer]; k, v = torch.cat"),
            (
                "cache[layer] = (k, v)",
                """cache[layer] = (k, v)
        if len(cache) and "before" in locals() and before[0].shape[1] < k.shape[1] - 1:
            [tensor.zero_() for tensor in before]""",
            ),
        ),
        frozenset({EARLIER, INPUTS}),
        ("a later call changed them", "in the case “a chunk after single tokens”"),
    ),
    "float16 inside, in a prompt": Wrong(
        rounded("k.shape[1] > 1"), frozenset({PRECISION}), ("rounded", "call 1 of 60, cache A", "as the first tokens")
    ),
    "float16 inside, in a long prompt": Wrong(
        rounded("k.shape[1] > 16"), frozenset({PRECISION}), ("rounded", "call 1 of 60, cache A")
    ),
    "float16 inside, above the first layer": Wrong(
        rounded("layer > 0"), frozenset({PRECISION}), ("rounded", "cache A, layer 1, keys")
    ),
    "float64 for float32, in a prompt": Wrong(
        changed(
            ("return k, v", "return (k.double(), v.double()) if n == 5 else (k, v)"),
            ("if layer in", "n = k.shape[1]\n        if layer in"),
        ),
        frozenset({PRECISION}),
        ("went in as float32", "float64", "in the case “a prompt into an empty cache”"),
    ),
    "float64 for the values, in another model": Wrong(
        changed(("return k, v", "return k, v.double() if k.shape[0] == 8 else v")),
        frozenset({PRECISION}),
        ("The values went in as float32", "float64", "in the case “other models, a longer text”", "cache D"),
    ),
    "float32 for float16": Wrong(
        changed(("return k, v", "return (k.float(), v.float()) if k.dtype == torch.half else (k, v)")),
        frozenset({PRECISION}),
        ("went in as float16", "float32", "cache C"),
    ),
    "layers above the first in one store that every new cache empties": Wrong(
        """
        import torch
        kept = {}
        def append(cache, layer, k, v):
            if not cache:
                kept.clear()
            cache["used"] = True
            store = kept if layer else cache
            if layer in store:
                k, v = (torch.cat(pair, dim=1) for pair in zip(store[layer], (k, v)))
            store[layer] = (k, v)
            return k, v
        """,
        frozenset({CACHES}),
        ("two caches share", "cache A, layer 1", "in the other cache"),
    ),
    "three layers, then from the first again": Wrong(
        changed(("if layer in cache:", "layer %= 3\n        if layer in cache:")),
        frozenset({LAYERS, CACHES, PRECISION}),
        ("More tokens", "layer 3"),
    ),
    "room for 64 tokens": Wrong(
        changed(("return k, v", "return k[:, -64:], v[:, -64:]")), frozenset({LONGER}), ("Fewer tokens", "[3, 64, 2]")
    ),
    "stops at 39 tokens": Wrong(
        changed(("return k, v", "return k[:, :39], v[:, :39]")), frozenset({LONGER}), ("Fewer tokens", "[3, 39, 2]")
    ),
    "room for 4 layers of 64 tokens": Wrong(
        """
        import torch
        def append(cache, layer, k, v):
            H, n, D = k.shape
            room = cache.setdefault("room", k.new_zeros(2, 4, H, 64, D))
            start = cache.get(layer, 0)
            cache[layer] = end = start + n
            room[0, layer, :, start:end], room[1, layer, :, start:end] = k, v
            return room[0, layer, :, :end], room[1, layer, :, :end]
        """,
        frozenset({LAYERS, PRECISION, LONGER}),
        ("raised an error", "IndexError", "layer 4"),
    ),
    "chunks of 4 reversed": Wrong(
        changed(
            (
                "if layer in cache:",
                "k, v = (k.flip(1), v.flip(1)) if k.shape[1] == 4 else (k, v)\n        if layer in cache:",
            )
        ),
        frozenset({CHUNK, PRECISION}),
        ("not in the order", "call 5 of 8"),
    ),
    "keys and values swapped for one head": Wrong(
        changed(("return k, v", "return (v, k) if len(k) == 1 else (k, v)")),
        frozenset({LONGER}),
        ("mixed up", "cache B"),
    ),
    "keys and values swapped for more than 3 heads": Wrong(
        changed(("return k, v", "return (v, k) if len(k) > 3 else (k, v)")),
        frozenset({LONGER}),
        ("mixed up", "cache C"),
    ),
    "the second head lacks the first token of a chunk, the first head the others": Wrong(
        changed(
            (
                "if layer in cache:",
                "k = k.clone()\n        if k.shape[1] > 1: k[0, 1:], k[1:, 0] = 0, 0\n        if layer in cache:",
            )
        ),
        MORE_AT_ONCE,
        ("zeros", "head 1, token 0"),
    ),
    "the order of a prompt reversed": Wrong(
        changed(
            (
                "cache[layer] = (k, v)",
                "k, v = (k, v) if layer in cache else (k.flip(1), v.flip(1))\n        cache[layer] = (k, v)",
            )
        ),
        frozenset({PROMPT, PRECISION, LONGER}),
        ("not in the order", "call 1 of 1", "the key of token 4"),
    ),
}
