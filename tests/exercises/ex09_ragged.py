"""Solutions of ex09.ragged: tests that tell right caches from broken ones, and tests that do not."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex09_ragged import (
    FAMILY,
    FRONT,
    LATER,
    LONGEST,
    MANY,
    MASK,
    MIXED,
    NOTHING,
    POSITIONS,
)

ALL = frozenset(kind.name for kind in FAMILY.kinds)

PLAIN = """
    import numpy as np
    def test_ragged(make_cache):
        rng = np.random.default_rng(0)
        cache, texts = make_cache(), [np.zeros((2, 0, 4))] * 3
        for counts in [(5, 2, 7), (1, 1, 1), (3, 0, 6), (0, 4, 2), (20, 3, 9)]:
            k, v = rng.normal(size=(2, 3, max(counts), 4))
            positions = cache.append(k, v, counts)
            for row, n in enumerate(counts):
                T = texts[row].shape[1]
                assert list(positions[row]) == list(range(T, T + n))
                new = np.stack([k[row, :n], v[row, :n]])
                texts[row] = np.concatenate([texts[row], new], axis=1)
            keys, values, mask = cache.read()
            for row, text in enumerate(texts):
                for found, expected in zip((keys[row][mask[row]], values[row][mask[row]]), text):
                    assert found.shape == expected.shape
                    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    """


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right test with some text replaced."""
    return changed_in(PLAIN, *pairs)


STEPS, COMPARED = (
    "[(5, 2, 7), (1, 1, 1), (3, 0, 6), (0, 4, 2), (20, 3, 9)]",
    "np.allclose(found, expected, rtol=1e-6, atol=1e-6)",
)
PLACED, SHAPES = "assert list(positions[row]) == list(range(T, T + n))", "assert found.shape == expected.shape"
MASKED = "(keys[row][mask[row]], values[row][mask[row]])"

RIGHT = {
    "texts in arrays": PLAIN,
    "tokens in lists, compared one by one": """
        import random
        import numpy as np
        def test_ragged(make_cache):
            draw = random.Random(7)
            for most in (1, 3, 5):
                cache, tokens = make_cache(), [[], [], []]
                while min(map(len, tokens)) < 26:
                    counts = [min(draw.randint(0, most), 32 - len(row)) for row in tokens]
                    k, v = np.random.default_rng(len(tokens[0])).uniform(1, 9, (2, 3, most, 4))
                    positions = cache.append(k, v, counts)
                    for b, count in enumerate(counts):
                        assert len(positions[b]) == count
                        for i in range(count):
                            assert positions[b][i] == len(tokens[b])
                            tokens[b].append((k[b, i], v[b, i]))
                keys, values, mask = cache.read()
                for b in range(3):
                    columns = [s for s in range(mask.shape[1]) if mask[b, s]]
                    assert len(columns) == len(tokens[b])
                    for s, (key, value) in zip(columns, tokens[b]):
                        assert (abs(keys[b, s] - key) < 1e-5).all() and (abs(values[b, s] - value) < 1e-5).all()
        """,
    "attention of each row, and NaN as padding": """
        import numpy as np
        def attention(query, keys, values):
            weights = np.exp(keys @ query)
            return weights @ values / weights.sum()
        def test_ragged(make_cache):
            rng = np.random.default_rng(3)
            cache, rows, query = make_cache(), [([], []), ([], []), ([], [])], rng.normal(size=4)
            for counts in ((2, 4, 1), (3, 1, 5), (0, 2, 1), (1, 0, 4), (9, 4, 2), (7, 11, 9), (4, 6, 8)):
                k, v = rng.normal(size=(2, 3, 12, 4))
                for b, n in enumerate(counts):
                    k[b, n:], v[b, n:] = np.nan, np.nan
                positions = cache.append(k, v, np.array(counts))
                keys, values, mask = cache.read()
                for b, (n, row) in enumerate(zip(counts, rows)):
                    assert np.array_equal(positions[b], np.arange(len(row[0]), len(row[0]) + n))
                    row[0].extend(k[b, :n])
                    row[1].extend(v[b, :n])
                    shown = np.flatnonzero(mask[b])
                    assert len(shown) == len(row[0])
                    came = attention(query, keys[b, shown].astype(float), values[b, shown].astype(float))
                    assert abs(came - attention(query, np.array(row[0]), np.array(row[1]))).max() < 1e-5
        """,
}

WRONG = {
    "accepts everything": Wrong(
        "def test_ragged(make_cache):\n    make_cache()", ALL, ("accepts a broken cache that you have seen", "padding")
    ),
    "rejects everything": Wrong("def test_ragged(make_cache):\n    assert False", ALL, ("rejects a right cache",)),
    "rows of one length": Wrong(
        changed((STEPS, "[(5, 5, 5), (1, 1, 1), (3, 3, 3), (20, 20, 20)]")),
        ALL - {MIXED, MANY},
        ("padding of a step as tokens",),
    ),
    "one step only": Wrong(
        changed((STEPS, "[(30, 4, 12)]")),
        frozenset({LONGEST, LATER, POSITIONS, NOTHING, FRONT}),
        ("positions of the longest",),
    ),
    "decode steps after a prompt": Wrong(
        changed((STEPS, "[(9, 4, 27), (1, 1, 1), (1, 1, 1)]")),
        frozenset({LATER, NOTHING, FRONT}),
        ("in the second step",),
    ),
    "no row gets nothing": Wrong(
        changed((STEPS, "[(5, 2, 7), (1, 1, 1), (3, 4, 2), (20, 3, 9)]")),
        frozenset({NOTHING}),
        ("gets no token in a step",),
    ),
    "few tokens": Wrong(
        changed((STEPS, "[(3, 2, 4), (1, 1, 1), (2, 0, 1), (0, 1, 1)]")),
        frozenset({MANY}),
        ("after many tokens in a row",),
    ),
    "row 0 only": Wrong(
        changed(("in enumerate(texts):", "in enumerate(texts[:1]):")), frozenset({MIXED}), ("mixes up rows",)
    ),
    "positions are not looked at": Wrong(
        changed((PLACED, "pass")), frozenset({LONGEST, POSITIONS}), ("positions of the longest",)
    ),
    "positions of row 0 only": Wrong(
        changed((PLACED, f"{PLACED} or row")), frozenset({POSITIONS}), ("wrong positions to some rows",)
    ),
    "as many columns as tokens, from the left": Wrong(
        changed((MASKED, "(keys[row, : text.shape[1]], values[row, : text.shape[1]])")),
        ALL,
        ("rejects a right cache", "padding in front"),
    ),
    "columns of the longest row": Wrong(
        changed((SHAPES, f"{SHAPES} and mask.shape[1] == max(t.shape[1] for t in texts)")),
        ALL,
        ("rejects a right cache", "more columns"),
    ),
    "zeros where nothing lies": Wrong(
        changed((SHAPES, f"{SHAPES} and (keys[row][~mask[row]] == 0).all()")), ALL, ("rejects a right cache",)
    ),
    "bitwise equality": Wrong(
        changed((COMPARED, "np.array_equal(found, expected)")), ALL, ("rejects a right cache", "float32")
    ),
    "as many as shown": Wrong(
        changed((SHAPES, "pass"), (COMPARED, "np.allclose(found, expected[: len(found)])")),
        frozenset({MASK, MANY}),
        ("too many or too few in its mask",),
    ),
    "the number of tokens only": Wrong(
        changed((f"assert {COMPARED}", "pass")), frozenset({LATER, MIXED, FRONT}), ("in the second step",)
    ),
    "the keys only": Wrong(changed((MASKED, "(keys[row][mask[row]],)")), frozenset({MIXED}), ("mixes up rows",)),
    "more than there is room for": Wrong(
        changed((STEPS, "[(5, 2, 7), (1, 40, 1)]")), ALL, ("rejects a right cache", "no room for 40")
    ),
    "another shape for the counts": Wrong(
        changed(("k, v, counts)", "k, v, max(counts))")), ALL, ("rejects a right cache", "TypeError")
    ),
    "the questions of its rules": Wrong(
        """
        def test_ragged(make_cache):
            rules = make_cache()._memory.says.__self__.numbers
            assert len(rules["grown"]) < 20 and len(rules["shown"]) < 20
        """,
        ALL,
    ),
    "the name of the class, and where it is from": Wrong(
        """
        import inspect
        def test_ragged(make_cache):
            cache = make_cache()
            assert type(cache).__qualname__ == "Cache" and "broken" not in inspect.getsource(type(cache)).lower()
        """,
        ALL,
    ),
}
