"""Solutions of ex09.reuse: tests that tell right caches from broken ones, and tests that do not."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex09_reuse import (
    AFTER,
    AGAIN,
    EVERY,
    FAMILY,
    FEWER,
    OLD,
    ONE_MORE,
    OTHERS,
    POSITIONS,
    ROOM,
)

ALL = frozenset(kind.name for kind in FAMILY.kinds)

PLAIN = """
    import numpy as np
    def test_reuse(make_cache):
        rng = np.random.default_rng(0)
        cache, texts = make_cache(), [np.zeros((2, 0, 4))] * 3
        day = [("append", row, 9 + row) for row in range(3)]
        for row in range(3):
            day += [("release", row, 0), ("append", row, 3), ("release", row, 0), ("append", row, 32)]
            day += [("truncate", row, 5), ("append", row, 27), ("truncate", row, 0), ("append", row, 4)]
        for do, row, n in day:
            T = texts[row].shape[1]
            if do == "append":
                new = rng.normal(size=(2, n, 4))
                assert list(cache.append(row, *new)) == list(range(T, T + n))
                texts[row] = np.concatenate([texts[row], new], axis=1)
            elif do == "truncate":
                cache.truncate(row, n)
                texts[row] = texts[row][:, :n]
            else:
                cache.release(row)
                texts[row] = texts[row][:, :0]
            for other, text in enumerate(texts):
                for found, expected in zip(cache.read(other), text):
                    assert found.shape == expected.shape
                    assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    """


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right test with some text replaced."""
    return changed_in(PLAIN, *pairs)


RELEASES = '("release", row, 0), ("append", row, 3), ("release", row, 0), ("append", row, 32)'
TRUNCATES = '("truncate", row, 5), ("append", row, 27), ("truncate", row, 0), ("append", row, 4)'
FIRST = "for row in range(3)]"
PLACED, SHAPES = "== list(range(T, T + n))", "assert found.shape == expected.shape"
COMPARED = "np.allclose(found, expected, rtol=1e-6, atol=1e-6)"

RIGHT = {
    "a day as a list of calls": PLAIN,
    "drawn calls": """
        import random
        import numpy as np
        def test_reuse(make_cache):
            draw, rng = random.Random(11), np.random.default_rng(11)
            cache, tokens = make_cache(), {0: [], 1: [], 2: []}
            for _ in range(80):
                row = draw.randrange(3)
                held = tokens[row]
                do = draw.choice(["append", "append", "truncate", "release", "fill"])
                if do == "truncate":
                    n = draw.choice([0, len(held), draw.randint(0, len(held))])
                    cache.truncate(row, n)
                    del held[n:]
                elif do == "release":
                    cache.release(row)
                    held.clear()
                elif len(held) < 32:
                    n = 32 - len(held) if do == "fill" else draw.randint(1, min(5, 32 - len(held)))
                    k, v = rng.normal(size=(2, n, 4))
                    for came in cache.append(row, k, v):
                        assert came == len(held)
                        held.append(np.stack([k[0], v[0]]))
                        k, v = k[1:], v[1:]
                for other in tokens:
                    expected = np.array(tokens[other]).reshape(-1, 2, 4)
                    keys, values = cache.read(other)
                    assert len(keys) == len(values) == len(expected)
                    np.testing.assert_allclose(keys, expected[:, 0], rtol=1e-6)
                    np.testing.assert_allclose(values, expected[:, 1], rtol=1e-6)
        """,
    "each promise by itself": """
        import numpy as np
        RNG = np.random.default_rng(4)
        def tokens(n):
            return RNG.uniform(1, 2, size=(2, n, 4))
        def put(cache, row, text, start):
            assert [int(p) for p in cache.append(row, *text)] == [*range(start, start + text.shape[1])]
        def holds(cache, row, text):
            came = np.stack(cache.read(row))
            assert came.shape == text.shape and (came - text).max(initial=0) < 1e-5 > (text - came).max(initial=0)
        def test_reuse(make_cache):
            for row in range(3):
                cache, texts = make_cache(), [tokens(8 + 3 * i) for i in range(3)]
                for other in range(3):
                    put(cache, other, texts[other], 0)
                for n in (2, 32, 5, 0, 1):  # released again and again
                    cache.release(row)
                    holds(cache, row, tokens(0))
                    texts[row] = tokens(n)
                    put(cache, row, texts[row], 0)
                    for other in range(3):
                        holds(cache, other, texts[other])
                cache.release(row)
                texts[row] = tokens(20)
                put(cache, row, texts[row], 0)
                for n in (20, 19, 7, 1, 0):  # shorter and shorter, and filled up in between
                    cache.truncate(row, n)
                    texts[row] = texts[row][:, :n]
                    for other in range(3):
                        holds(cache, other, texts[other])
                    more = tokens(32 - n)
                    put(cache, row, more, n)
                    holds(cache, row, np.concatenate([texts[row], more], 1))
                    cache.truncate(row, n)
        """,
}

WRONG = {
    "accepts everything": Wrong(
        "def test_reuse(make_cache):\n    make_cache()", ALL, ("accepts a broken cache that you have seen", "truncate")
    ),
    "rejects everything": Wrong("def test_reuse(make_cache):\n    assert False", ALL, ("rejects a right cache",)),
    "release only": Wrong(
        changed((TRUNCATES, "")), frozenset({ONE_MORE, FEWER, AFTER, OTHERS, ROOM}), ("token too many in truncate",)
    ),
    "truncate only": Wrong(
        changed((f"day += [{RELEASES}]", "pass")),
        frozenset({EVERY, OLD, POSITIONS, OTHERS, AGAIN}),
        ("empties every row in release",),
    ),
    "one release": Wrong(
        changed((RELEASES, '("release", row, 0), ("append", row, 32)')),
        frozenset({POSITIONS, AGAIN}),
        ("released once or more",),
    ),
    "nothing is ever full": Wrong(
        changed(('("append", row, 32)', '("append", row, 6)'), ('("append", row, 27)', '("append", row, 2)')),
        frozenset({ROOM}),
        ("no room for 32 tokens in a row that was released",),
    ),
    "the other rows are not read": Wrong(
        changed(("in enumerate(texts):", "in [(row, texts[row])]:")), frozenset({EVERY, OTHERS}), ("empties every row",)
    ),
    "never truncated to nothing": Wrong(
        changed(('("truncate", row, 0)', '("truncate", row, 1)')),
        frozenset({FEWER}),
        ("another number of tokens in truncate",),
    ),
    "positions are not looked at": Wrong(
        changed((PLACED, "or True")), frozenset({POSITIONS, AFTER}), ("wrong positions",)
    ),
    "positions only": Wrong(
        changed((SHAPES, "pass"), (f"assert {COMPARED}", "pass")),
        frozenset({EVERY, OLD, AFTER, OTHERS, AGAIN}),
        ("empties every row",),
    ),
    "shapes only": Wrong(
        changed((f"assert {COMPARED}", "pass")), frozenset({AFTER}), ("tokens that come after truncate",)
    ),
    "bitwise equality": Wrong(
        changed((COMPARED, "np.array_equal(found, expected)")), ALL, ("rejects a right cache", "float32")
    ),
    "the text that would follow": Wrong(
        changed((SHAPES, "pass"), (COMPARED, "found.sum(0).argmax() == expected.sum(0).argmax()"), (PLACED, "or True")),
        frozenset({POSITIONS, AFTER}),
        ("wrong positions",),
    ),
    "zip ends with the shorter one": Wrong(
        changed((SHAPES, "pass"), (COMPARED, "all(np.allclose(a, b, rtol=1e-6) for a, b in zip(found, expected))")),
        frozenset({EVERY, OLD, OTHERS, AGAIN}),
        ("empties every row",),
    ),
    "one row of three": Wrong(
        changed(("    for row in range(3):", "    for row in range(1):")),
        frozenset({OTHERS}),
        ("another row than the one",),
    ),
    "what was read earlier is written over": Wrong(
        changed((SHAPES, f"{SHAPES}; found[:] = found")), ALL, ("nobody may write into", "read-only")
    ),
    "more than there is room for": Wrong(
        changed(('("append", row, 27)', '("append", row, 28)')), ALL, ("rejects a right cache", "more than 32 tokens")
    ),
    "a release that asks for a number": Wrong(
        changed(("cache.release(row)", "cache.release(row, n)")), ALL, ("rejects a right cache", "TypeError")
    ),
    "private things": Wrong(
        changed((SHAPES, f"{SHAPES} and cache.lengths[row] >= 0")), ALL, ("rejects a right cache", "AttributeError")
    ),
    "the room of its style": Wrong(
        """
        def test_reuse(make_cache):
            assert make_cache()._memory.style["room"] != 32
        """,
        ALL,
    ),
    "calls are counted": Wrong(
        """
        calls = []
        def test_reuse(make_cache):
            calls.append(0)
            assert len(calls) % 4 < 2
        """,
        ALL,
    ),
}
