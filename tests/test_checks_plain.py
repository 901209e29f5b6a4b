"""What may pass between a learner's code and the judge: plain data as it is, everything else by name and refused. A
class that is a kind of list, of dictionary or of error counts as what it is made from, whatever it says of itself."""

import builtins
import contextlib
import itertools
import json
import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
import torch
from variants import function, variants

from course_lib.checks import check_named
from course_lib.checks import plain as module
from course_lib.checks.beside import Went, called, pair, refusal
from course_lib.checks.contract import answer, words
from course_lib.checks.plain import DTYPES, NotPlain, pack, plain, unpack

PLAIN = (type(None), bool, int, float, str, np.ndarray, list, dict)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    return one == other or one != one


AS_THEY_ARE = [
    None, True, 0, -(2**63) + 1, 2**63 - 1, 0.1, -0.0, math.inf, math.nan, "", "é\n\ud800 \N{SNOWMAN}", [], {},
    [1, [2.5, "x", None]], {"array": [1, 2]}, {"dict": {"array": None}}, {"": np.arange(3)},
    np.zeros((0, 3)), np.zeros(()), np.array([math.nan, -0.0]),
    *(np.arange(6).reshape(2, 3).astype(dtype) for dtype in DTYPES.values()),
]  # fmt: skip


@pytest.mark.parametrize("data", AS_THEY_ARE, ids=repr)
def test_plain_data_survives_the_way_through_bytes(data: Any) -> None:
    assert same(plain(data), data)
    assert same(unpack(pack(data)), data)
    json.loads(pack(data))  # and is JSON


def test_what_comes_out_is_a_copy() -> None:
    array = np.zeros(3)
    copied: Any = plain({"a": array, "t": torch.from_numpy(array)})
    array[:] = 7
    assert copied["a"].tolist() == copied["t"].tolist() == [0, 0, 0]


Two = namedtuple("Two", "first second")

CONVERTED = {
    "a tuple": ((1, (2,)), [1, [2]]),
    "a named tuple": ([Two(1, Two(2, "x"))], [[1, [2, "x"]]]),
    "a shape": (torch.zeros(2, 3).shape, [2, 3]),
    "what torch.max returns": (torch.ones(1, 2).max(1), [np.ones(1, np.float32), np.zeros(1, np.int64)]),
    "a deque": (deque([1, deque()], maxlen=5), [1, []]),
    "an ordered dictionary": (OrderedDict(x=1), {"x": 1}),
    "a dictionary with defaults": (defaultdict(list, x=[1]), {"x": [1]}),
    "a counter": (Counter("aab"), {"a": 2, "b": 1}),
    "a whole fraction": (Fraction(6, 2), 3),
    "a fraction": (Fraction(-17, 16), -1.0625),
    "a fraction that a float rounds": (Fraction(10**30 + 1, 3 * 10**30), 1 / 3),
    "a fraction of NumPy's numbers": (Fraction(np.int64(3), np.int64(4)), 0.75),  # type: ignore[call-overload]
    "a whole decimal": (Decimal("4611686018427387905.0"), 2**62 + 1),
    "a decimal": (Decimal("0.1"), 0.1),
    "no decimal": (Decimal("NaN"), math.nan),
    "a decimal whose digits fill a disk": (Decimal("1E+999999999"), math.inf),
    "nothing, with as many digits": (Decimal("-0E+999999999"), 0),
    "a NumPy scalar": (np.float32(0.5), 0.5),
    "NumPy's bool": (np.bool_(True), True),
    "a tensor": (torch.arange(3), np.arange(3)),
    "a tensor with a gradient": (torch.ones(2, requires_grad=True) * 2, np.full(2, 2, np.float32)),
    "a parameter": (torch.nn.Parameter(torch.ones(2)), np.ones(2, np.float32)),
    "a transposed view": (torch.arange(6).view(2, 3).T, np.arange(6).reshape(2, 3).T.copy()),
    "a tensor stored with a minus": (torch._neg_view(torch.ones(2)), -np.ones(2, np.float32)),
    "the other byte order": (np.arange(3, dtype=">i4"), np.arange(3, dtype="int32")),
    "an array that is read-only": (np.broadcast_to(np.float32(1), (2, 2)), np.ones((2, 2), np.float32)),
    "inference": (torch.inference_mode()(torch.ones)(2), np.ones(2, np.float32)),
}


@pytest.mark.parametrize(("given", "wanted"), CONVERTED.values(), ids=CONVERTED)
def test_what_means_the_same_is_converted(given: Any, wanted: Any) -> None:
    assert same(plain(given), wanted)


class Liar:
    """Claims to be an array that equals everything, and goes off when it is looked at."""

    __class__ = np.ndarray  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise AssertionError("somebody compared")

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"somebody asked for {name}")


class Named(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise AssertionError("somebody asked for the name")


class Misnamed(metaclass=Named):
    pass


class SubFloat(float):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = float.__hash__


class SubStr(str): ...


class SubArray(np.ndarray): ...


class SubTensor(torch.Tensor): ...


class SaysItIsTorchs(torch.Tensor): ...


SaysItIsTorchs.__module__ = "torch"


class Equal(type):
    """Of a class that says it is every other one."""

    def __eq__(cls, other: object) -> bool:
        return True

    def __hash__(cls) -> int:
        return hash(np.float64)

    def __instancecheck__(cls, instance: object) -> bool:
        return True


class EqualsEveryClass(metaclass=Equal): ...


class SubFraction(Fraction):
    numerator = property(lambda self: 1 / 0)

    def __float__(self) -> float:
        raise AssertionError("somebody converted it")


class SubDecimal(Decimal):
    __float__ = SubFraction.__float__


def forged(**inside: object) -> Fraction:
    fraction = Fraction(1, 2)
    for name, value in inside.items():
        setattr(fraction, name, value)
    return fraction


def endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def shadowed() -> torch.Tensor:
    tensor = torch.ones(1).expand(10**12)
    tensor.numel = lambda: 0  # type: ignore[method-assign]
    return tensor


REFUSED = {
    "a liar": (Liar(), "an object of class Liar"),
    "a class with a trap": (Misnamed(), "an object of class Misnamed"),
    "a kind of float": (SubFloat(1), "an object of class SubFloat, a kind of float"),
    "a kind of str": (SubStr("x"), "SubStr, a kind of str"),
    "a kind of array": (np.zeros(2).view(SubArray), "SubArray, a kind of ndarray"),
    "a masked array": (np.ma.array([1]), "MaskedArray, a kind of ndarray"),
    "a kind of tensor": (torch.zeros(2).as_subclass(SubTensor), "SubTensor, a kind of Tensor"),
    "one that says it is torch's": (torch.zeros(2).as_subclass(SaysItIsTorchs), "SaysItIsTorchs, a kind of Tensor"),
    "a parameter without shape": (torch.nn.UninitializedParameter(), "UninitializedParameter, a kind of Tensor"),
    "a class that equals each": (EqualsEveryClass(), "an object of class EqualsEveryClass"),
    "a kind of fraction": (SubFraction(1, 2), "an object of class SubFraction"),
    "a kind of decimal": (SubDecimal(1), "an object of class SubDecimal"),
    "a fraction with something in it": (forged(_numerator=Liar()), "Fraction that is no number"),
    "a fraction of floats": (forged(_denominator=2.0), "Fraction that is no number"),
    "a fraction of nothing": (forged(_denominator=0), "Fraction that is no number"),
    "a fraction that is too large": (Fraction(10**400, 3), "Fraction that is no number"),
    "a whole fraction that is too large": (Fraction(10**400), "more than 63 bits"),
    "a decimal that signals": (Decimal("sNaN"), "Decimal that is no number"),
    "a generator": ((x for x in "ab"), "a generator"),
    "a function": (print, "a builtin_function_or_method"),
    "a lambda": (lambda: 0, "a function"),
    "a class": (int, "a type"),
    "a set": ({1}, "a set"),
    "Ellipsis": (..., "`...`"),
    "bytes": (b"x", "a bytes"),
    "complex": (1j, "a complex"),
    "an array of objects": (np.array([None]), "an array of object"),
    "an array of texts": (np.array(["a"]), "an array of <U1"),
    "an array of records": (np.zeros(2, "i4,f4"), "an array of"),
    "an array of long doubles": (np.zeros(2, np.longdouble), "an array of float128"),
    "bfloat16": (torch.zeros(2, dtype=torch.bfloat16), "a tensor of bfloat16, which NumPy does not know"),
    "a sparse tensor": (torch.eye(2).to_sparse(), "without plain numbers"),
    "a tensor without memory": (torch.zeros(2, device="meta"), "without plain numbers"),
    "a dtype": (torch.float32, "an object of class dtype"),
    "a huge array": (np.broadcast_to(np.zeros(1), (10**6, 10**6)), "[1000000, 1000000], which is far more"),
    "a huge tensor": (torch.ones(1).expand(10**12), "far more"),
    "a huge tensor that hides it": (shadowed(), "far more"),
    "many that are huge together": ([np.zeros(10**6)] * 9, "far more"),
    "a long text": ("x" * 10**6, "a string of 1,000,000 characters"),
    "a long number": (10**400, "more than 63 bits"),
    "a list in itself": (endless(), "without end"),
    "far too many": ([0] * 10**6, "without end, or far too many"),
    "a number as a key": ({1: 2}, "with an int as a key"),
    "something deep inside": ([{"x": (1, Liar())}], "an object of class Liar"),
}


@pytest.mark.parametrize(("given", "said"), REFUSED.values(), ids=REFUSED)
def test_everything_else_is_refused_and_named(given: Any, said: str) -> None:
    with pytest.raises(NotPlain) as refused:
        plain(given)
    assert said in str(refused.value)
    with pytest.raises(NotPlain):
        pack(given)


def trap(*given: object) -> Any:
    raise AssertionError("somebody called a method of the class")


TRAPS: dict[str, Callable[..., Any]] = {
    "goes off": trap,
    "lies": lambda *given: iter([("x", 7)]),
    "never ends": lambda *given: itertools.cycle([("x", 7)]),
    "says there are two": lambda *given: 2,
}
METHODS = ("__iter__", "__len__", "__getitem__", "__bool__", "__contains__", "__reversed__", "__length_hint__",
           "__getattribute__", "items", "keys", "values", "get", "copy", "__copy__", "__reduce_ex__")  # fmt: skip


def hostile(base: type, does: Callable[..., Any]) -> Any:
    """A kind of `base` all of whose methods are `does`."""
    return type("Kind", (base,), dict.fromkeys(METHODS, does))


@pytest.mark.parametrize("does", TRAPS.values(), ids=TRAPS)
@pytest.mark.parametrize("base", [list, tuple, deque, OrderedDict, dict, defaultdict])
def test_what_lies_in_a_list_or_dictionary_counts_and_not_what_its_class_says(
    base: type, does: Callable[..., Any]
) -> None:
    kind = hostile(base, does)
    if issubclass(base, dict):
        made = kind()
        dict.update(made, a=1, b=(2,))
        assert same(plain([made]), [{"a": 1, "b": [2]}])
        dict.update(made, {1: 1})
        with pytest.raises(NotPlain, match="an int as a key"):
            plain(made)
        return
    first, second = object(), object()
    assert pair(kind([first, second]), ("a", "b")) == (first, second)
    for things in ([], [1], [1, 2, 3]):
        with pytest.raises(Went) as went:
            pair(kind(things), ("a", "b"))
        assert str(went.value.data["came"]).startswith(f"{len(things)} thing")
        assert same(plain({"x": kind(things)}), {"x": things})
    with pytest.raises(NotPlain, match="far too many"):
        plain(kind([0] * 100_001))


class OutOfBlocks(MemoryError): ...


class Both(OutOfBlocks, ValueError): ...


class SaysSo(Exception):
    __class__ = MemoryError  # type: ignore[assignment]
    __mro__ = (MemoryError,)
    __bases__ = (MemoryError,)


class Claims(Equal):
    __mro__ = (MemoryError, Exception)

    def __subclasscheck__(cls, other: type) -> bool:
        return True


class EqualsEveryError(Exception, metaclass=Claims): ...


NAMED_ALIKE = type("MemoryError", (Exception,), {})


def raises(error: Any) -> None:
    raise error("no room")


@pytest.mark.parametrize(
    ("error", "is_one"),
    [(MemoryError, True), (OutOfBlocks, True), (Both, True), (SaysSo, False), (EqualsEveryError, False),
     (NAMED_ALIKE, False), (ValueError, False), (SystemExit, False)],
)  # fmt: skip
def test_an_error_is_what_it_is_made_from_and_not_what_it_says_or_is_called(error: type, is_one: bool) -> None:
    with pytest.raises(Went) as went:
        called(raises, error)
    assert refusal(went.value, "MemoryError") == ("MemoryError" if is_one else "")
    kinds: Any = went.value.data["kinds"]
    assert kinds[-1] == "BaseException" and all(type(kind) is str and hasattr(builtins, kind) for kind in kinds)
    assert words(went.value.data["type"]) in ("MemoryError", error.__name__)


def test_of_an_error_that_is_two_the_one_that_is_asked_for_first_counts() -> None:
    with pytest.raises(Went) as went:
        called(raises, Both)
    assert refusal(went.value, "ValueError", "MemoryError") == "ValueError"
    assert refusal(went.value, "KeyError", "MemoryError") == "MemoryError"
    assert refusal(Went("not plain", which="x", came="y"), "ValueError") == ""


OF_ONES_OWN = """
import builtins
class {error}({base}): "an error of one's own"
"""
RAISED_AS_ONES_OWN = """
pools_write = write
def write(*given):
    try:
        return pools_write(*given)
    except builtins.MemoryError as error:
        raise MemoryError(*error.args) from error
"""


@pytest.mark.parametrize("name", ["ex05.rows", "ex06.blocks", "ex06.slots", "ex06.write"])
def test_an_error_of_ones_own_is_a_refusal_if_it_is_made_from_the_one_that_is_asked_for(name: str) -> None:
    check, source = check_named(name), dedent(next(iter(variants(name).RIGHT.values())))
    source += RAISED_AS_ONES_OWN * (name == "ex06.write")
    for made_from, passes in (("builtins.{}", True), ("Exception", False)):
        own = [OF_ONES_OWN.format(error=e, base=made_from.format(e)) for e in ("MemoryError", "ValueError")]
        assert answer(check, function("".join(own) + source, check.FUNCTION), 3).passed is passes


def array(dtype: object = "int32", shape: object = (1,), numbers: object = "AQAAAA==") -> bytes:
    return json.dumps({"array": [dtype, shape, numbers]}).encode()


FORGED = [
    b"", b"\xff\xfe", b"{", b'{"dict": 3}', b'{"other": 1}', b'{"array": 3}', b'{"array": [1, 2]}', b"[" * 10**5,
    b'{"dict": {}, "array": []}', b"1" * 5000, b'"\\ud800', b"9" * 40,
    array("object"), array("int64"), array(["int32"]), array(shape=[2]), array(shape=[-1]), array(shape=[True]),
    array(shape=[1.0]), array(shape=[2**40, 0]), array(shape=[1] * 65), array(shape="1"), array(numbers="!"),
    array(numbers=4), array(numbers=None), array(shape={"a": 1}), array("int32,int32"),
]  # fmt: skip


@pytest.mark.parametrize("packed", FORGED, ids=lambda packed: repr(packed[:60]))
def test_bytes_that_nobody_packed_are_refused(packed: bytes) -> None:
    with pytest.raises(NotPlain):
        unpack(packed)


def test_the_honest_form_of_those_bytes_is_taken() -> None:
    assert same(unpack(array()), np.array([1], "int32"))


def test_more_bytes_than_any_answer_are_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 10)
    with pytest.raises(NotPlain, match="21 bytes, which is far more than any answer"):
        unpack(b'"' + b"x" * 19 + b'"')


def test_random_bytes_never_give_anything_but_plain_data_or_a_refusal() -> None:
    """A good packet with a byte changed, a thousand times."""
    rng = np.random.default_rng(0)
    packed = pack({"keys": np.arange(4.0), "more": [1, "two", None, {"three": np.zeros((2, 1), bool)}]})
    kept = 0
    for _ in range(1000):
        damaged = bytearray(packed)
        damaged[rng.integers(len(packed))] = rng.integers(256)
        with contextlib.suppress(NotPlain):
            kept += type(unpack(bytes(damaged))) in PLAIN
    assert 0 < kept < 1000


def test_words_of_an_answer_stay_as_they_were_written_in_any_script() -> None:
    for text in (
        "Oui\N{NO-BREAK SPACE}: 2\N{NARROW NO-BREAK SPACE}n.",
        "علی\N{ZERO WIDTH NON-JOINER}رضا, क्\N{ZERO WIDTH JOINER}ष",
        "one\nline and another, 👩\N{ZERO WIDTH JOINER}🔬 é\N{IDEOGRAPHIC SPACE}鍵",
    ):
        assert words(text) == text
    assert words("a\tb\r\nc\N{LINE SEPARATOR}d\x1de") == "a   b\nc\nd\ne"


def test_words_of_an_answer_command_no_terminal_turn_no_line_around_and_are_not_too_long() -> None:
    commands = [chr(code) for code in (*range(9), *range(14, 28), 31, *range(127, 133), *range(134, 160))]
    commands += [
        chr(code) for code in (0x202A, 0x202D, 0x202E, 0x2066, 0x2069, 0x200E, 0x200B, 0xFEFF, 0xE0041, 0xD800)
    ]
    for letter in commands:
        assert words(f"a{letter}b") == "a\N{REPLACEMENT CHARACTER}b", ascii(letter)
    assert not set(words("".join(map(chr, range(300))))) & set(map(chr, (*range(10), *range(11, 32), *range(127, 160))))
    assert words("\t" * 9, 10) == " " * 9 + "…" and words("abc\r\ndef", 5) == "abc…" and words("x" * 5, 5) == "x" * 5
    assert words(5) == words(None) == words(["text"]) == ""
