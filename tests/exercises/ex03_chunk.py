"""Solutions of ex03.chunk: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex03_chunk import CASES

PROMPT, SINGLE, DECODE, SECOND, CHUNKS, GROUPED, LAYERS, CACHES, INPUTS = CASES
ALL = frozenset(CASES)
SECOND_CHUNKS = frozenset({SECOND, CHUNKS, GROUPED, LAYERS, CACHES, INPUTS})  # several tokens after earlier ones
SEVERAL_CALLS = ALL - {PROMPT}
MORE_AT_ONCE = ALL - {SINGLE}

PLAIN = """
    import torch
    def read_chunk(cache, layer, q, k, v):
        T = cache[layer][0].shape[1] if layer in cache else 0
        if layer in cache:
            k, v = torch.cat([cache[layer][0], k], dim=1), torch.cat([cache[layer][1], v], dim=1)
        cache[layer] = k, v
        (H_q, n, D), (H, S, _) = q.shape, k.shape
        k, v = k.repeat_interleave(H_q // H, dim=0), v.repeat_interleave(H_q // H, dim=0)
        mask = torch.arange(S) <= torch.arange(T, S)[:, None]
        scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ v
    """

RIGHT = {
    "torch.cat and a mask of positions": PLAIN,
    "one token after another": """
        import torch
        def read_chunk(cache, layer, q, k, v):
            keys, values = cache.setdefault(layer, ([], []))
            outputs = []
            for i in range(q.shape[1]):
                keys.append(k[:, i].clone())
                values.append(v[:, i].clone())
                K, V = torch.stack(keys, 1), torch.stack(values, 1)
                grouped = q[:, i].reshape(len(k), -1, q.shape[2])
                weights = (grouped @ K.mT / q.shape[2] ** 0.5).softmax(-1)
                outputs.append((weights @ V).reshape(len(q), -1))
            return torch.stack(outputs, dim=1)
        """,
    "a buffer made beforehand, a triangle": """
        import torch
        def read_chunk(cache, layer, q, k, v):
            H, n, D = k.shape
            state = cache.setdefault(layer, {"T": 0, "room": torch.full((2, H, 64, D), torch.nan)})
            T = state["T"]
            state["room"][0, :, T:T + n], state["room"][1, :, T:T + n] = k, v
            state["T"] = T + n
            k, v = state["room"][:, :, :T + n]
            hidden = torch.ones(n, T + n).triu(T + 1) * -1e9
            group = q.shape[0] // H
            scores = torch.einsum("hgnd,hsd->hgns", q.view(H, group, n, D), k) / D**0.5 + hidden.nan_to_num()
            return torch.einsum("hgns,hsd->hgnd", scores.softmax(-1), v).reshape(q.shape)
        """,
    "the library's attention with a mask": """
        import torch
        import torch.nn.functional as F
        def read_chunk(cache, layer, q, k, v):
            old = cache.get(layer, (k[:, :0], v[:, :0]))
            cache[layer] = k, v = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(k.shape[1] - q.shape[1])
            return F.scaled_dot_product_attention(q[None], k[None], v[None], mask, enable_gqa=True)[0]
        """,
    "NumPy, tokens first": """
        import numpy as np
        def read_chunk(cache, layer, q, k, v):
            q, k, v = (t.numpy().swapaxes(0, 1) for t in (q, k, v))
            old_k, old_v = cache.get(layer, (k[:0], v[:0]))
            k, v = np.concatenate([old_k, k]), np.concatenate([old_v, v])
            cache[layer] = k, v
            group = q.shape[1] // k.shape[1]
            scores = np.einsum("njd,sjd->jns", q, k.repeat(group, 1)) / q.shape[2] ** 0.5
            position = np.arange(len(k))
            scores[:, position[None, :] > position[len(k) - len(q):, None]] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            return np.einsum("jns,sjd->jnd", weights, v.repeat(group, 1)).astype(np.float32)
        """,
    "parts, and a mask only where it hides something": """
        import torch
        def read_chunk(cache, layer, q, k, v):
            parts = cache.setdefault(layer, [])
            parts.append((k, v))
            k, v = (torch.cat(each, dim=1) for each in zip(*parts))
            n, S = q.shape[1], k.shape[1]
            k, v = (t[torch.arange(len(q)) // (len(q) // len(t))] for t in (k, v))
            scores = q @ k.mT * q.shape[2] ** -0.5
            if n > 1:
                scores += torch.full((n, S), -torch.inf).triu(S - n + 1)
            return scores.softmax(-1) @ v
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


MASK = "mask = torch.arange(S) <= torch.arange(T, S)[:, None]"
SCORES = "scores = (q @ k.transpose(1, 2) / D**0.5).masked_fill(~mask, -torch.inf)"
KEPT = "cache[layer] = k, v"
NO_MASK = "mask = torch.ones(n, S, dtype=torch.bool)"

WRONG = {
    "-100 for hidden keys": Wrong(
        changed(("-torch.inf", "-100.0")), frozenset({CHUNKS}), ("Only -inf is below all of them", "call 4 of 6")
    ),
    "-1000 for hidden keys": Wrong(
        changed(("-torch.inf", "-1e3")), frozenset({CHUNKS}), ("Only -inf is below all of them", "call 4 of 6")
    ),
    "layers from the third on share a memory": Wrong(
        changed(
            (
                "T = cache[layer][0].shape[1] if layer in cache else 0",
                "layer = min(layer, 2)\n        T = cache[layer][0].shape[1] if layer in cache else 0",
            ),
        ),
        frozenset({LAYERS}),
        ("another layer", "call 4 of 24"),
    ),
    "a mask only while the cache is empty": Wrong(
        changed((MASK, f"{MASK}\n        if T: {NO_MASK}")),
        SECOND_CHUNKS,
        ("A second chunk needs one too", "call 2 of 2", "head 0, token 0 of the chunk"),
    ),
    "a mask of the chunk alone, only while the cache is empty": Wrong(
        """
        import torch
        import torch.nn.functional as F
        def read_chunk(cache, layer, q, k, v):
            first = layer not in cache
            old = cache.get(layer, (k[:, :0], v[:, :0]))
            cache[layer] = k, v = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            return F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=first, enable_gqa=True)[0]
        """,
        SECOND_CHUNKS,
        ("A second chunk needs one too",),
    ),
    "a mask that begins at the first token": Wrong(
        changed((MASK, "mask = torch.ones(n, S, dtype=torch.bool).tril()")),
        SEVERAL_CALLS,
        ("new token is missing from its own attention", "call 2 of 4"),
    ),
    "no mask": Wrong(changed((MASK, NO_MASK)), MORE_AT_ONCE, ("mask is missing: a token sees later ones",)),
    "a mask that reaches one too far": Wrong(
        changed((MASK, MASK.replace("<=", "<") + " + 2")), MORE_AT_ONCE, ("one token that comes after it",)
    ),
    "a mask that hides the token itself": Wrong(
        changed((MASK, MASK.replace("<=", "<"))), ALL, ("NaN", "may look at nothing", "token 0")
    ),
    "a mask upside down": Wrong(changed((MASK, MASK.replace("<=", ">="))), ALL, ("",)),
    "weights set to 0 after the softmax": Wrong(
        changed(
            (SCORES, "scores = q @ k.transpose(1, 2) / D**0.5"),
            ("scores.softmax(dim=-1)", "(scores.softmax(dim=-1) * mask)"),
        ),
        MORE_AT_ONCE,
        ("no longer add up to 1",),
    ),
    "a mask of ones and zeros added": Wrong(
        changed((".masked_fill(~mask, -torch.inf)", " + mask")), MORE_AT_ONCE, ("added as zeros and ones",)
    ),
    "scores of hidden keys set to 0": Wrong(
        changed(("-torch.inf", "0.0")), MORE_AT_ONCE, ("not the outputs of one pass",)
    ),
    "only the new tokens are looked at": Wrong(
        """
        import torch
        def read_chunk(cache, layer, q, k, v):
            cache.setdefault(layer, []).append((k, v))
            (H_q, n, D), H = q.shape, k.shape[0]
            k, v = k.repeat_interleave(H_q // H, dim=0), v.repeat_interleave(H_q // H, dim=0)
            hidden = torch.ones(n, n, dtype=torch.bool).triu(1)
            return (q @ k.mT / D**0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        """,
        SEVERAL_CALLS,
        ("the earlier ones are missing",),
    ),
    "attends before it appends": Wrong(
        changed(
            (KEPT, "new = k, v"),
            ("T = cache", "old = cache.get(layer)\n        T = cache"),
            (
                "k, v = k.repeat_interleave",
                "cache[layer] = k, v\n        if old: k, v = old; S = T\n        k, v = k.repeat_interleave",
            ),
            (MASK, "mask = torch.ones(n, S, dtype=torch.bool) if T else torch.ones(n, n, dtype=torch.bool).tril()"),
        ),
        SEVERAL_CALLS,
        ("new token is missing from its own attention", "call 2 of 4"),
    ),
    "the first token is never written": Wrong(
        changed((KEPT, "cache[layer] = (k, v) if T else (torch.zeros_like(k), torch.zeros_like(v))")),
        SEVERAL_CALLS,
        ("not the outputs of one pass", "call 2 of 4"),
    ),
    "layers mixed": Wrong(
        changed(("T = cache", "layer = 0\n        T = cache")),
        frozenset({LAYERS, CACHES}),
        ("another layer", "call 2 of 24", "layer 1"),
    ),
    "one store for all caches": Wrong(
        """
        import torch
        kept = {}
        def read_chunk(cache, layer, q, k, v):
            old = kept.get(layer, (k[:, :0], v[:, :0]))
            kept[layer] = k, v = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            (H_q, n, D), (H, S, _) = q.shape, k.shape
            k, v = k.repeat_interleave(H_q // H, dim=0), v.repeat_interleave(H_q // H, dim=0)
            hidden = torch.ones(n, S, dtype=torch.bool).triu(S - n + 1)
            return (q @ k.mT / D**0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        """,
        ALL - {PROMPT},
        ("not the outputs of one pass",),
    ),
    "one store that every new case empties": Wrong(
        """
        import torch
        kept = {}
        def read_chunk(cache, layer, q, k, v):
            if not cache and layer == 0 and q.shape[1] != 4: kept.clear()
            cache["used"] = True
            old = kept.get(layer, (k[:, :0], v[:, :0]))
            kept[layer] = k, v = tuple(torch.cat(pair, 1) for pair in zip(old, (k, v)))
            (H_q, n, D), (H, S, _) = q.shape, k.shape
            k, v = k.repeat_interleave(H_q // H, dim=0), v.repeat_interleave(H_q // H, dim=0)
            hidden = torch.ones(n, S, dtype=torch.bool).triu(S - n + 1)
            return (q @ k.mT / D**0.5).masked_fill(hidden, -torch.inf).softmax(-1) @ v
        """,
        frozenset({SECOND, CACHES}),
        ("",),
    ),
    "not divided by the root of D": Wrong(changed((" / D**0.5", "")), ALL, ("not divided by √D",)),
    "KV heads in turn": Wrong(
        changed(
            (
                "k, v = k.repeat_interleave(H_q // H, dim=0), v.repeat_interleave(H_q // H, dim=0)",
                "k, v = k.repeat(H_q // H, 1, 1), v.repeat(H_q // H, 1, 1)",
            )
        ),
        frozenset({GROUPED}),
        ("stand side by side", "not j % 2", "cache A"),
    ),
    "repeated heads are stored": Wrong(
        changed(
            (
                KEPT,
                "k, v = k.repeat_interleave(len(q) // len(k), dim=0), v.repeat_interleave(len(q) // len(v), dim=0)"
                "\n        cache[layer] = k, v",
            ),
        ),
        frozenset({GROUPED}),
        ("raised an error", "call 2 of 6"),
    ),
    "keys and values of a chunk reversed": Wrong(
        changed(("T = cache", "k, v = k.flip(1), v.flip(1)\n        T = cache")), MORE_AT_ONCE, ("",)
    ),
    "a mask of as many rows as columns": Wrong(
        changed((MASK, "mask = torch.ones(S, S, dtype=torch.bool).tril()")),
        SEVERAL_CALLS,
        ("should be of shape [2, 1, 4]",),
    ),
    "the first chunk only": Wrong(
        changed(
            ("        if layer in cache:\n", "        if False:\n"), ("if layer in cache else 0", "if False else 0")
        ),
        SEVERAL_CALLS,
        ("the earlier ones are missing",),
    ),
    "the query scaled where it lies": Wrong(
        changed((" / D**0.5", ""), ("T = cache", "q.div_(q.shape[2] ** 0.5)\n        T = cache")),
        frozenset({INPUTS}),
        ("The call changed q",),
    ),
    "values cleared afterwards": Wrong(
        changed(
            ("T = cache", "given = v\n        if layer not in cache: v = v.clone()\n        T = cache"),
            (
                "return scores.softmax(dim=-1) @ v",
                "out = scores.softmax(dim=-1) @ v\n        given.zero_()\n        return out",
            ),
        ),
        frozenset({INPUTS}),
        ("The call changed v",),
    ),
    "only the last token's output": Wrong(
        changed(("return scores.softmax(dim=-1) @ v", "return (scores.softmax(dim=-1) @ v)[:, -1:]")),
        MORE_AT_ONCE,
        ("should be of shape [2, 6, 4]", "[2, 1, 4]"),
    ),
    "return forgotten": Wrong(changed(("return scores", "scores")), ALL, ("Did you forget `return`?",)),
    "output and cache": Wrong(
        changed(("return scores.softmax(dim=-1) @ v", "return scores.softmax(dim=-1) @ v, cache")), ALL, ("cannot be",)
    ),
    "room for 8 tokens": Wrong(
        changed((KEPT, "cache[layer] = k[:, -8:], v[:, -8:]")), frozenset({CHUNKS}), ("call 5 of 6",)
    ),
}
