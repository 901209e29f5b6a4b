"""Attention for the judges of ex03: the formula one query and one key at a time, and the ways in which it goes wrong.

The one idea: a wrong answer is often the right answer to another question. For each belief that leads astray the output
that it gives is computed as well, and if that is what came back, the learner is told the belief and not only the
difference. In NumPy and float64, sharing nothing with the library.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp, sqrt

import numpy as np

from course_lib.checks.contract import MOST_SHOWN, numbers
from course_lib.checks.plain import Plain

Array = np.ndarray
TOLERANCES = {"float32": 1e-4, "float64": 1e-9}
TOLERANCE = (
    "1e-4 in float32, 1e-9 in float64. Sums made in another order differ by a hundredth of that; "
    "a wrong weight, head or mask by far more."
)


def attention(q: Array, keys: Array, values: Array, seen: Array) -> Array:
    """softmax(q · k / √D) · v for q [H_q, n, D] over keys and values [H, S, D]; query i looks where seen [n, S] is True
    (Vaswani et al. 2017, section 3.2.1; query heads that share a KV head stand side by side, Ainslie et al. 2023).
    """
    (H_q, n, D), group = q.shape, q.shape[0] // keys.shape[0]
    q, keys, values = (part.astype(np.float64) for part in (q, keys, values))
    output = np.zeros((H_q, n, D))
    for head in range(H_q):
        for i in range(n):
            looked_at = [s for s in range(keys.shape[1]) if seen[i, s]]
            scores = [float(q[head, i] @ keys[head // group, s]) / sqrt(D) for s in looked_at]
            weights = [exp(score - max(scores)) for score in scores]
            for weight, s in zip(weights, looked_at, strict=True):
                output[head, i] += weight / sum(weights) * values[head // group, s]
    return output


def causal(earlier: int, n: int) -> Array:
    """[n, earlier + n]: n new tokens after `earlier` ones look at all up to themselves."""
    return np.array([[s <= earlier + i for s in range(earlier + n)] for i in range(n)])


def near(expected: Array, came: Array, tolerance: float) -> bool:
    return expected.shape == came.shape and bool((abs(expected - came) <= tolerance).all())


def same(before: Array, after: Plain) -> bool:
    """Whether an array that was handed in is as it was."""
    return isinstance(after, np.ndarray) and before.dtype == after.dtype and np.array_equal(before, after)


def beliefs(q: Array, k: Array, v: Array, seen: Array) -> Iterator[tuple[str, Callable[[], Array]]]:
    """Each way to go wrong in one place: what there is to say, and the output [H_q, n, D] of it."""
    (H_q, n, D), (H, S, _) = q.shape, k.shape
    q, k, v = (part.astype(np.float64) for part in (q, k, v))
    earlier = S - n
    shared = np.arange(H_q) // (H_q // H)  # the KV head of each query head
    mean = "These are plain averages of the values: the keys and the query play no part."
    yield mean, lambda: mixed(0 * q, k, v, seen, shared)
    yield "The scores were not divided by √D.", lambda: mixed(q * sqrt(D), k, v, seen, shared)
    yield "The scores were divided by D, not by √D.", lambda: mixed(q / sqrt(D), k, v, seen, shared)
    grouped = f"Query heads that share a KV head stand side by side: with {H_q} over {H}, head j uses KV head j // "
    yield f"{grouped}{H_q // H}, not j % {H}.", lambda: mixed(q, k, v, seen, np.arange(H_q) % H)
    first = "Every query head looked at the first KV head."
    yield first, lambda: mixed(q, k, v, seen, 0 * shared)
    yield "The keys were mixed, not the values.", lambda: mixed(q, k, k, seen, shared)
    yield "The roles of keys and values are exchanged.", lambda: mixed(q, v, k, seen, shared)
    yield "The softmax is missing: the scores themselves were the weights.", lambda: unweighted(q, k, v, seen, shared)
    heads = "The softmax ran over the heads. For each head, the weights of its tokens add up to 1."
    yield heads, lambda: mixed(q, k, v, seen, shared, axis=0)
    itself = "The new token is missing from its own attention: it looks at all up to itself, itself included."
    yield itself, lambda: mixed(q, k, v, seen & ~np.eye(n, S, earlier, dtype=bool), shared)
    nothing = np.zeros((n, S), dtype=bool)
    if earlier:
        old = "Only the new tokens were looked at; the earlier ones are missing."
        yield old, lambda: mixed(q, k, v, seen & (np.arange(S) >= earlier), shared)
    if earlier and n > 1:
        new = "Only the earlier tokens were looked at; the new ones are missing."
        yield new, lambda: mixed(q, k, v, ~nothing & (np.arange(S) < earlier), shared)
    oldest = "The oldest token is missing."
    yield oldest, lambda: mixed(q, k, v, seen & (np.arange(S) > 0), shared)
    if n > 1 and earlier:
        future = "A token of this chunk sees later ones: the mask is missing. A second chunk needs one too."
        yield future, lambda: mixed(q, k, v, ~nothing, shared)
        left = f"The mask begins at the first token: the first of these {n} tokens stands at position {earlier}, not 0."
        yield left, lambda: mixed(q, k, v, np.tri(n, S, dtype=bool), shared)
    if n > 1:
        yield "The mask is missing: a token sees later ones.", lambda: mixed(q, k, v, ~nothing, shared)
        later = "Each token sees one token that comes after it."
        yield later, lambda: mixed(q, k, v, np.tri(n, S, earlier + 1, dtype=bool), shared)
        zeroed = "Weights were set to 0 after the softmax, so they no longer add up to 1. Mask the scores before it."
        yield zeroed, lambda: mixed(q, k, v, ~nothing, shared, after=seen)
        fill = "What is hidden got a negative number, and there are scores below it. Only -inf is below all of them."
        kept = q @ k[shared].swapaxes(1, 2) / sqrt(q.shape[2])
        yield fill, lambda: mixed(q, k, v, ~nothing, shared, bonus=np.where(seen, 0, -500 - kept))
        turned = "The mask is upside down: tokens look at later ones, and not at earlier ones."
        yield turned, lambda: mixed(q, k, v, ~np.tri(n, S, earlier - 1, dtype=bool), shared)
        added = "The mask was added as zeros and ones, which hides nothing. What is hidden gets a score of -inf."
        yield added, lambda: mixed(q, k, v, ~nothing, shared, bonus=seen * 1.0)


def mixed(
    q: Array, k: Array, v: Array, seen: Array, head_of: Array, axis: int = -1, after: Array | None = None,
    bonus: Array | float = 0.0,
) -> Array:  # fmt: skip
    """Attention with all that can be got wrong as an argument; NaN where nothing is seen."""
    scores = np.where(seen, q @ k[head_of].swapaxes(1, 2) / sqrt(q.shape[2]) + bonus, -np.inf)  # [H_q, n, S]
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    weights /= weights.sum(axis=axis, keepdims=True)
    return np.asarray((weights if after is None else weights * after) @ v[head_of])


def unweighted(q: Array, k: Array, v: Array, seen: Array, head_of: Array) -> Array:
    return np.asarray(np.where(seen, q @ k[head_of].swapaxes(1, 2) / sqrt(q.shape[2]), 0) @ v[head_of])


def rounded(entries: Array) -> str:
    """A few numbers with the digits that matter here."""
    return numbers(np.array([float(f"{x:.5g}") for x in entries[: MOST_SHOWN + 1]]))


def unlike(expected: Array, came: Plain, dtype: str, name: str) -> tuple[str, str]:
    """What makes an answer no output at all, as (sentence, what came): no array, another shape, no numbers."""
    if came is None:
        return f"{name} returned None. Did you forget `return`?", "None"
    if not isinstance(came, np.ndarray):
        return f"{name} should return one tensor.", "a list" if isinstance(came, list) else "no tensor"
    if came.shape != expected.shape:
        return f"The output should be of shape {list(expected.shape)}.", f"shape {list(came.shape)}"
    if came.dtype.kind != "f":
        return f"The output should be of {dtype}, as q is.", str(came.dtype)
    return "", ""
