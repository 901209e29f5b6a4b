"""What may pass between a learner's code and the judge: plain data as it is, everything else by name and refused."""

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
import torch

from course_lib.checks import plain as module
from course_lib.checks.contract import words
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


CONVERTED = {
    "a tuple": ((1, (2,)), [1, [2]]),
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


class SubDict(dict[str, int]): ...


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
    "a kind of dict": (SubDict(), "SubDict, a kind of dict"),
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
