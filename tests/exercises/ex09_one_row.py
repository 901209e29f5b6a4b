"""Solutions of ex09.one_row: tests that tell right caches from broken ones, and tests that do not."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex09_one_row import (
    CHUNK,
    COUNT,
    DIGITS,
    EARLIER,
    FAMILY,
    LAST,
    MANY,
    ONE_LAYER,
    POSITIONS,
    RESTART,
    SHARED,
    VALUES,
)

ALL = frozenset(kind.name for kind in FAMILY.kinds)

PLAIN = """
    import numpy as np
    def test_one_row(make_cache):
        rng = np.random.default_rng(0)
        for chunks in ([1] * 6, [5, 3, 1, 7, 2, 8, 6], [32]):
            cache, T, earlier = make_cache(), 0, []
            k, v = rng.normal(size=(2, 3, sum(chunks), 4))
            for n in chunks:
                positions = cache.append(k[:, T : T + n], v[:, T : T + n])
                T += n
                assert list(positions) == list(range(T - n, T))
                for layer in range(3):
                    keys, values = cache.read(layer)
                    earlier += [(keys, k[layer, :T]), (values, v[layer, :T])]
            for found, expected in earlier:
                assert found.shape == expected.shape
                assert np.allclose(found, expected, rtol=1e-6, atol=1e-6)
    """


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right test with some text replaced."""
    return changed_in(PLAIN, *pairs)


FED, COMPARED = "([1] * 6, [5, 3, 1, 7, 2, 8, 6], [32])", "np.allclose(found, expected, rtol=1e-6, atol=1e-6)"
SHAPES = "assert found.shape == expected.shape"
PLACED = "assert list(positions) == list(range(T - n, T))"
LAST_LINE = f"assert {COMPARED}"
RIGHT = {
    "pairs that are compared at the end": PLAIN,
    "one long text in chunks, compared at once and again": """
        import numpy as np
        def test_one_row(make_cache):
            tokens = np.random.default_rng(1).uniform(-3, 3, (32, 2, 3, 4))
            cache, read = make_cache(), {}
            begin = 0
            for end in (2, 3, 4, 10, 13, 14, 19, 27, 32):
                k, v = tokens[begin:end].transpose(1, 2, 0, 3)
                for came, position in zip(cache.append(k, v), range(begin, end), strict=True):
                    if came != position:
                        raise AssertionError(f"position {came} instead of {position}")
                for layer in range(3):
                    read[layer, end] = cache.read(layer)
                begin = end
                for (layer, T), parts in read.items():
                    for part in range(2):
                        np.testing.assert_allclose(parts[part], tokens[:T, part, layer], rtol=2e-6)
        """,
    "another cache, written plainly, as the oracle": """
        import random
        import numpy as np
        class Plain:
            def __init__(self):
                self.tokens = []
            def append(self, k, v):
                start = len(self.tokens)
                self.tokens += [(k[:, i], v[:, i]) for i in range(k.shape[1])]
                return range(start, len(self.tokens))
            def read(self, layer):
                return [np.array([token[part][layer] for token in self.tokens]) for part in (0, 1)]
        def test_one_row(make_cache):
            draw = random.Random(5)
            for most in (1, 3, 9, 32):
                cache, oracle, left, pairs = make_cache(), Plain(), 32, []
                while left:
                    n = draw.randint(1, min(most, left))
                    left -= n
                    k, v = np.random.normal(0, 10, (2, 3, n, 4))
                    assert [int(p) for p in cache.append(k, v)] == [*oracle.append(k, v)]
                    for layer in range(3):
                        pairs.append((cache.read(layer), oracle.read(layer)))
                for found, expected in pairs:
                    for a, b in zip(found, expected):
                        assert a.shape == b.shape and (np.abs(a - b) / np.abs(b)).max() < 1e-6
        """,
    "torch, and errors instead of assertions": """
        import torch
        def test_one_row(make_cache):
            k, v = torch.randn(2, 3, 30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
            cache, ends, first = make_cache(), [4, 5, 9, 16, 24, 30], None
            for start, end in zip([0, *ends], ends):
                came = cache.append(*(part[:, start:end].numpy() for part in (k, v)))
                positions = torch.tensor([int(position) for position in came])
                if not torch.equal(positions, torch.arange(start, end)):
                    raise ValueError(positions)
                layers = [cache.read(layer) for layer in range(3)]
                first = first or layers
                for layer, (keys, values) in enumerate(layers):
                    torch.testing.assert_close(torch.tensor(keys).double(), k[layer, :end], rtol=1e-6, atol=1e-9)
                    torch.testing.assert_close(torch.tensor(values).double(), v[layer, :end], rtol=1e-6, atol=1e-9)
        """,
}
UNTIL_FULL = """
            try:
                for _ in range(50):
                    cache.append(*np.ones((2, 3, 1, 4)))
            except ValueError:
                continue
            raise AssertionError("it is never full")
"""

WRONG = {
    "accepts everything": Wrong(
        "def test_one_row(make_cache):\n    make_cache()", ALL, ("accepts a broken cache that you have seen",)
    ),
    "rejects everything": Wrong("def test_one_row(make_cache):\n    assert False", ALL, ("rejects a right cache",)),
    "shapes only": Wrong(
        changed((LAST_LINE, "pass")),
        frozenset({SHARED, ONE_LAYER, CHUNK, MANY, VALUES, DIGITS, EARLIER}),
        ("accepts a broken cache that you have seen", "layers 1 and 2 in the same memory", "no error"),
    ),
    "the last token only": Wrong(
        changed((COMPARED, "np.allclose(found[-1], expected[-1], rtol=1e-6)"), (SHAPES, "pass")),
        frozenset({CHUNK}),
        ("of a kind that you have not seen", "when a second chunk of several tokens comes"),
    ),
    "all at once only": Wrong(
        changed((FED, "([32],)")), frozenset({LAST, RESTART, CHUNK, POSITIONS}), ("over the newest token",)
    ),
    "token by token only": Wrong(
        changed((FED, "([1] * 32,)")), frozenset({CHUNK, POSITIONS}), ("when a second chunk of several tokens comes",)
    ),
    "two chunks only": Wrong(
        changed((FED, "([20, 12],)")), frozenset({POSITIONS}), ("to later tokens or after chunks",)
    ),
    "bitwise equality": Wrong(
        changed((COMPARED, "np.array_equal(found, expected)")),
        ALL,
        ("rejects a right cache", "float32", "AssertionError in line"),
    ),
    "a tolerance that hides mistakes": Wrong(
        changed((COMPARED, "np.allclose(found, expected, rtol=1e-2, atol=1e-2)")),
        frozenset({DIGITS}),
        ("fewer digits than was promised",),
    ),
    "a tolerance of a hundred times what was promised": Wrong(
        changed((COMPARED, "np.allclose(found, expected, rtol=3e-4, atol=1e-4)")),
        frozenset({DIGITS}),
        ("fewer digits than was promised",),
    ),
    "the first layer only": Wrong(
        changed(("range(3)", "range(1)")), frozenset({SHARED, ONE_LAYER, EARLIER}), ("layers 1 and 2",)
    ),
    "values that are the keys": Wrong(
        changed(("k, v = rng.normal(size=(2, 3, sum(chunks), 4))", "k = v = rng.normal(size=(3, sum(chunks), 4))")),
        frozenset({VALUES}),
        ("right keys and wrong values",),
    ),
    "small whole numbers": Wrong(
        changed(("rng.normal(size=", "rng.integers(-9, 9, ")), frozenset({DIGITS}), ("fewer digits",)
    ),
    "nine tokens": Wrong(changed((FED, "([1] * 6, [2, 1, 3, 3], [9])")), frozenset({MANY}), ("after many tokens",)),
    "positions are not looked at": Wrong(changed((PLACED, "pass")), frozenset({RESTART, POSITIONS}), ("begin at 0",)),
    "compared at once and never again": Wrong(
        changed(
            (
                "            for found, expected in earlier:\n",
                "                    for found, expected in earlier[-2:]:\n",
            ),
            (f"    {SHAPES}", f"            {SHAPES}"),
            (f"    {LAST_LINE}", f"            {LAST_LINE}"),
        ),
        frozenset({EARLIER}),
        ("changes arrays that it returned earlier",),
    ),
    "zip ends with the shorter one": Wrong(
        changed((SHAPES, "pass"), (COMPARED, "all(np.allclose(a, b, rtol=1e-6) for a, b in zip(found, expected))")),
        frozenset({MANY, COUNT}),
        (),
    ),
    "the dtype is compared": Wrong(
        changed((SHAPES, SHAPES + " and found.dtype == expected.dtype")), ALL, ("rejects a right cache", "float32")
    ),
    "it writes into what it read": Wrong(
        changed(("earlier += ", "keys[:] = keys; earlier += ")), ALL, ("arrays that nobody may write into", "read-only")
    ),
    "a full cache has to raise": Wrong(
        changed((f"                {LAST_LINE}", f"                {LAST_LINE}\n{UNTIL_FULL}")),
        ALL,
        ("rejects a right cache", "AssertionError"),
    ),
    "more than there is room for": Wrong(
        changed(("[32]", "[40]")), ALL, ("when more than 32 tokens come", "no room for 40")
    ),
    "positions compared as an array": Wrong(
        changed((PLACED, "assert positions == list(range(T - n, T))")), ALL, ("rejects a right cache", "ambiguous")
    ),
    "private things": Wrong(
        changed((LAST_LINE, LAST_LINE + "\n            assert cache.length == T")),
        ALL,
        ("rejects a right cache", "AttributeError"),
    ),
    "the token that would follow": Wrong(
        """
        import numpy as np
        def test_one_row(make_cache):
            k, v = np.random.default_rng(0).normal(size=(2, 3, 12, 4))
            whole, parts = make_cache(), make_cache()
            whole.append(k, v)
            for start, end in ((0, 5), (5, 9), (9, 12)):
                parts.append(k[:, start:end], v[:, start:end])
            def token(cache):
                seen = np.zeros(4)
                for layer in range(3):
                    keys, values = cache.read(layer)
                    weights = np.exp(keys @ k[layer, -1])
                    seen = seen + weights @ values / weights.sum()
                return int(np.argmax(seen))
            assert token(whole) == token(parts)
        """,
        ALL - {LAST},
        (),
    ),
    "a cache compared with itself": Wrong(
        """
        import numpy as np
        def test_one_row(make_cache):
            k, v = np.random.default_rng(0).normal(size=(2, 3, 30, 4))
            whole, parts = make_cache(), make_cache()
            positions, came = list(whole.append(k, v)), []
            for start, end in ((0, 5), (5, 9), (9, 30)):
                came += list(parts.append(k[:, start:end], v[:, start:end]))
            assert positions == came
            for layer in range(3):
                for one, other in zip(whole.read(layer), parts.read(layer)):
                    assert np.allclose(one, other, rtol=1e-6)
        """,
        frozenset({SHARED, ONE_LAYER, MANY, VALUES, DIGITS, EARLIER, COUNT}),
        (),
    ),
    "it returns what it found": Wrong(
        """
        import numpy as np
        def test_one_row(make_cache):
            cache = make_cache()
            k, v = np.random.default_rng(0).normal(size=(2, 3, 30, 4))
            cache.append(k, v)
            return all(np.allclose(cache.read(layer)[0], k[layer]) for layer in range(3))
        """,
        ALL - {COUNT},
        ("Your test returned a bool", "by raising an error"),
    ),
    "the first call decides": Wrong(
        """
        calls = []
        def test_one_row(make_cache):
            calls.append(make_cache)
            assert len(calls) % 2
        """,
        ALL,
        (),
    ),
    "the name of the class": Wrong(
        """
        def test_one_row(make_cache):
            cache = make_cache()
            names = (type(cache).__name__, type(cache).__qualname__, type(cache).__module__, str(type(cache).__doc__))
            names += make_cache.__name__, make_cache.__qualname__, str(make_cache.__doc__), repr(cache)
            said = " ".join(names).lower()
            assert not any(word in said for word in ("broken", "wrong", "fault", "bug", "mistake", "shared"))
        """,
        ALL,
        (),
    ),
    "the text of the code": Wrong(
        """
        import inspect
        texts = set()
        def test_one_row(make_cache):
            cache = make_cache()
            texts.add(inspect.getsource(type(cache)) + inspect.getsource(make_cache) + inspect.getsource(cache.append))
            assert len(texts) == 1
        """,
        ALL,
        (),
    ),
    "modules that were loaded": Wrong(
        """
        import sys
        def test_one_row(make_cache):
            for name, module in list(sys.modules.items()):
                for label in ("is_right", "broken", "faults", "labels") if "runs.ex09" in name else ():
                    assert not getattr(module, label, ())
        """,
        ALL,
        (),
    ),
    "attributes and closures": Wrong(
        """
        def test_one_row(make_cache):
            seen = [make_cache()] + [cell.cell_contents for cell in make_cache.__closure__ or ()]
            for thing in seen:
                for name, value in list(getattr(thing, "__dict__", {}).items()):
                    assert not (name in ("fault", "broken", "kind", "label") and value)
                    seen.append(value) if hasattr(value, "__dict__") else None
        """,
        ALL,
        (),
    ),
    "the longest rules": Wrong(
        """
        def test_one_row(make_cache):
            rules = make_cache()._memory.says.__self__.numbers
            assert sum(map(len, rules.values())) < 260
        """,
        ALL,
        (),
    ),
    "rules that count passes": Wrong(
        """
        def test_one_row(make_cache):
            rules = make_cache()._memory.says.__self__.numbers
            assert not any(14 in rules[name] for name in ("column", "slot", "position"))
        """,
        ALL,
        (),
    ),
    "what hangs together in memory": Wrong(
        """
        import gc
        def test_one_row(make_cache):
            things = [make_cache]
            for _ in range(5):
                things = [thing for thing in gc.get_referents(*things) if type(thing).__name__ != "module"]
                words = [thing for thing in things if type(thing) is str]
                assert not {"right", "wrong", "broken", "fault", "label"} & {*words} and len(things) < 50000
        """,
        ALL,
        (),
    ),
    "who calls": Wrong(
        """
        import sys
        def test_one_row(make_cache):
            frame = sys._getframe(1)
            while frame is not None:
                for name, value in list(frame.f_locals.items()):
                    if name == "call" and type(value) is dict:
                        assert len(value) == 1 and len(str(value)) < 900
                frame = frame.f_back
        """,
        ALL,
        (),
    ),
}
