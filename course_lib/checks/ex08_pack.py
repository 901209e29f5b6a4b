"""The check of ex08.pack: the learner's `Packer(bits)` puts codes into bytes and takes them out again.

The one idea: all codes together are one long number, whose digits in base 2^bits they are and whose digits in base 256
are the bytes. So the reference needs no shift and no mask, and a code that lies in two bytes is nothing special to it.
What is to be unpacked was packed here: whoever packs in another order can still unpack, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from course_lib.checks.compare import Case, Wrong, as_array, unchanged, verdict, what_came
from course_lib.checks.contract import Verdict, numbers, part
from course_lib.checks.plain import Plain
from course_lib.checks.runs.ex08_pack import as_bytes, run

__all__ = ["CALL", "FUNCTION", "NOT_CHECKED", "TOLERANCE", "draw", "judge", "run"]

FUNCTION, CALL = "Packer", "Packer(bits)"
TOLERANCE = "none. Codes and bytes are whole numbers."
NOT_CHECKED = "speed, codes that are too large, codes with more than one axis"
PACK_WHOLE, UNPACK_WHOLE = "packing: 4 and 2 bits", "unpacking: 4 and 2 bits"
PACK_ACROSS, UNPACK_ACROSS = "packing: 3 bits, some codes in two bytes", "unpacking: 3 bits, some codes in two bytes"
PACK_ANY, UNPACK_ANY = "packing: 1 to 8 bits", "unpacking: 1 to 8 bits"
PACK_REST, UNPACK_REST = "packing: bits are left in the last byte", "unpacking: as many codes as there are"
BOTH, INPUTS = "there and back", "what was handed in stays as it was"
# Each case: (bits, codes) of one call after the other. Then those of two packers in turn, a last call of BOTH.
WHOLE, ACROSS = ((4, 8), (2, 12), (4, 2)), ((3, 8), (3, 24))
TURNS = ((3, 9), (5, 7), (3, 12), (5, 4))
ANY, REST = ((5, 8), (1, 16), (7, 16), (6, 12), (8, 5)), ((4, 7), (2, 5), (3, 11), (1, 3), (3, 0))
CASES: dict[str, tuple[str, tuple[tuple[int, int], ...]]] = {
    PACK_WHOLE: ("pack", WHOLE),
    PACK_ACROSS: ("pack", ACROSS),
    PACK_ANY: ("pack", ANY),
    PACK_REST: ("pack", REST),
    UNPACK_WHOLE: ("unpack", WHOLE),
    UNPACK_ACROSS: ("unpack", ACROSS),
    UNPACK_ANY: ("unpack", ANY),
    UNPACK_REST: ("unpack", REST),
    BOTH: ("both", ((4, 9), (3, 17), (2, 6), (5, 7))),
    INPUTS: ("both", ((3, 8),)),
}


def draw(seed: int) -> dict[str, Any]:
    """The inputs of all cases: {"cases": {name: [{"do", "bits"} with {"codes"} or {"packed", "count"}, …]}}."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[dict[str, Any]]] = {}
    for name, (do, sizes) in CASES.items():
        cases[name] = []
        for bits, count in sizes:
            codes = drawn(rng, bits, count)
            packed = as_uint8(one_number(codes, bits))
            call = {"packed": packed, "count": count} if do == "unpack" else {"codes": as_uint8(codes)}
            cases[name].append({"do": do, "bits": bits} | call)
    codes_in_turn = [as_uint8(drawn(rng, bits, count)) for bits, count in TURNS]
    cases[BOTH].append({"do": "turns", "bits": [bits for bits, _ in TURNS[:2]], "codes": codes_in_turn})
    return {"cases": cases}


def drawn(rng: np.random.Generator, bits: int, count: int) -> list[int]:
    """Codes that are others back to front, the first and the last not 0, one as large as it can be, and all that lie
    in two bytes with bits in the second; where there are too few of them for that, any codes."""
    across = {place: 8 - place * bits % 8 for place in range(count) if place * bits % 8 + bits > 8}  # bits in the first
    while True:
        codes = [int(code) for code in rng.integers(0, 2**bits, count)]
        told_apart = codes and codes[0] and codes[-1] and max(codes) == 2**bits - 1 and codes != codes[::-1]
        if count < 4 or (told_apart and all(codes[place] >> first for place, first in across.items())):
            return codes


def as_uint8(found: Sequence[int]) -> np.ndarray:
    return np.array(found, dtype=np.uint8)


def one_number(codes: Sequence[int], bits: int) -> list[int]:
    """The bytes of codes: the first code is the lowest digit, the first byte, too."""
    number = sum(code * (2**bits) ** place for place, code in enumerate(codes))
    found = []
    for _ in range(0, len(codes) * bits, 8):
        number, byte = divmod(number, 256)
        found.append(byte)
    return found


def digits(packed: Sequence[int], bits: int, count: int) -> list[int]:
    """The codes in bytes, the other way round."""
    number = sum(int(byte) * 256**place for place, byte in enumerate(packed))
    return [number // (2**bits) ** place % 2**bits for place in range(count)]


def judge(inputs: dict[str, Any], outputs: Plain) -> Verdict:
    """One line for each case of `inputs`: are the bytes and codes in `outputs` the right ones?"""
    return verdict(PackCase, inputs, outputs)


class PackCase(Case):
    CALL = CALL

    def went_in(self, call: dict[str, Any]) -> str:
        if call["do"] == "turns":
            bits = " and ".join(map(str, call["bits"]))
            return f"two packers in turn, for codes of {bits} bits: {' and '.join(str(len(c)) for c in call['codes'])}"
        count, bits = call["count"] if call["do"] == "unpack" else len(call["codes"]), call["bits"]
        several = f"{count} code{'s' * (count != 1)} of {bits} bit{'s' * (bits != 1)}"
        return f"{len(call['packed'])} bytes with {several}" if call["do"] == "unpack" else several

    def wrong(self, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        bits = call["bits"]
        if call["do"] == "turns":
            return wrong_turn(call, answer)
        if call["do"] == "unpack":
            return wrong_codes(digits(call["packed"], bits, call["count"]), bits, answer)
        codes = [int(code) for code in call["codes"]]
        if call["do"] == "pack":
            return wrong_bytes(codes, bits, answer.get("made"))
        return wrong_way_back(codes, bits, answer)

    def explains(self, call: dict[str, Any], answer: dict[str, Plain], about: str) -> Iterator[tuple[str, bool]]:
        bits, made, found = call["bits"], as_bytes(answer.get("made")), as_array(answer.get("found"))
        if about == "made" and made is not None:
            for said, belief in packings([int(code) for code in call["codes"]], bits):
                yield said, belief == made.tolist()
        packed = call.get("packed", made)
        if about == "found" and packed is not None and found is not None:
            for said, belief in unpackings(packed, bits, call.get("count", len(call.get("codes", ())))):
                yield said, np.array_equal(belief, found)

    def also(self, told_in: str, call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
        given = "packed" if call["do"] == "unpack" else "codes"
        if told_in != INPUTS or unchanged(call[given], answer.get(given)):
            return None
        return Wrong(f"The call changed {given}. Make something new of it instead.")


def wrong_way_back(codes: list[int], bits: int, answer: dict[str, Plain]) -> Wrong | None:
    """What is wrong with codes that went there and back, in whatever order, but in no more bytes than it takes."""
    made = as_bytes(answer.get("made"))
    if made is None or len(made) != len(one_number(codes, bits)):
        return wrong_bytes(codes, bits, answer.get("made"))
    return wrong_codes(codes, bits, answer)


def wrong_turn(call: dict[str, Any], answer: dict[str, Plain]) -> Wrong | None:
    """What is wrong with two packers that took turns. Each alone is judged by the calls before this one."""
    answers = answer.get("turns")
    answers = answers if isinstance(answers, list) else []
    for turn, given in enumerate(call["codes"]):
        came = part(answers[turn]) if turn < len(answers) else {}
        if wrong := wrong_way_back([int(code) for code in given], call["bits"][turn % 2], came):
            where = [f"turn {turn + 1} of {len(call['codes'])}", wrong.where]
            said = KEPT if turn > 1 else MIXED
            return replace(wrong, about="turns", said=said, where=", ".join(filter(None, where)))
    return None


def wrong_bytes(codes: list[int], bits: int, data: Plain) -> Wrong | None:
    """What is wrong with the bytes that came, if anything is."""
    expected, came = one_number(codes, bits), as_bytes(data)
    if data is None:
        return Wrong("pack returned None. Did you forget `return`?", came="None")
    if came is None:
        said, kind, array = "The bytes should come back as a tensor of dtype uint8, with one axis.", "", as_array(data)
        if array is not None and array.ndim == 1:
            if ((array >= 0) & (array < 256)).all():
                said += f" In {array.dtype} each of them takes {array.itemsize} bytes, and nothing is saved."
            else:
                said = "These are no bytes: a byte is a whole number from 0 to 255."
            kind = f" of {array.dtype}"
        return Wrong(said, f"{len(expected)} bytes", what_came(data) + kind)
    if list(came) == expected:
        return None
    if len(came) != len(expected):
        said = f"{len(codes)} codes of {bits} bits are {len(codes) * bits} bits, and a byte holds 8."
        return Wrong(said, f"{len(expected)} bytes", f"{len(came)} bytes", about="made")
    at = next(i for i, pair in enumerate(zip(expected, came)) if pair[0] != pair[1])
    said = "All bits in a row, of each code the lowest first: 8 of them are a byte, the lowest first again."
    return Wrong(said, f"{expected[at]:#010b}", f"{came[at]:#010b}", f"byte {at}, counted from 0", "made")


def wrong_codes(expected: list[int], bits: int, answer: dict[str, Plain]) -> Wrong | None:
    """What is wrong with the codes that were found in some bytes, if anything is."""
    data = answer.get("found")
    array = as_array(data)
    if data is None:
        return Wrong("unpack returned None. Did you forget `return`?", came="None")
    if array is None or array.ndim != 1:
        return Wrong("The codes should come back as a tensor or a list of whole numbers.", came=what_came(data))
    came = array.astype(np.float64)
    if np.array_equal(came, expected):
        return None
    if len(came) != len(expected):
        said = "`count` says how many codes there are."
        return Wrong(said, f"{len(expected)} codes", f"{len(came)} codes", about="found")
    at = int((came != expected).argmax())
    said = "Code number i begins at bit i · bits of all the bits in a row, and takes as many as it has."
    if came.min() < 0 or came.max() >= 2**bits:
        said = f"A code of {bits} bits is below {2**bits}: mask away what does not belong to it."
    return Wrong(said, str(expected[at]), numbers(came[at : at + 1]), f"code {at}, counted from 0", "found")


def in_row(values: Sequence[int], bits: int, highest_first: bool = False) -> list[int]:
    """The bits of some values, one value after the other."""
    order = range(bits)[::-1] if highest_first else range(bits)
    return [int(value) >> place & 1 for value in values for place in order]


def out_of_row(stream: list[int], bits: int, highest_first: bool = False) -> list[int]:
    """The values of so many bits each that stand in a row; what is missing at its end is 0."""
    order = range(bits)[::-1] if highest_first else range(bits)
    pieces = [stream[start : start + bits] for start in range(0, len(stream), bits)]
    return [sum(bit << place for bit, place in zip(piece, order)) for piece in pieces]


HIGH = (
    "The order is turned round: of each code the lowest bit comes first, and in a byte the lowest bit is filled first."
)
CROSS = "A code that does not fit into the rest of a byte goes on in the next one: no bit stays empty before the last."
KEPT = (
    "Something of what a packer did before is in what it does now. It may be used again and again: begin anew in each "
    "call."
)
MIXED = (
    "Two packers get in each other's way. Each has `bits` of its own: keep it in the packer, as self.bits, and not in "
    "a variable of the class or the notebook."
)
LOST = (
    "The bits of a code that lie in a second byte are lost. A shift within uint8 drops what goes beyond 8 bits: make "
    "whole numbers of more bits first, as with .long()."
)


def packings(codes: list[int], bits: int) -> Iterator[tuple[str, list[int]]]:
    """Each way to go wrong in packing: what there is to say, and the bytes of it."""
    right, per_byte = one_number(codes, bits), 8 // bits
    yield HIGH, out_of_row(in_row(codes, bits, True), 8, True)
    yield HIGH, out_of_row(in_row(codes, bits), 8, True)
    yield HIGH, out_of_row(in_row(codes, bits, True), 8)
    yield HIGH, right[::-1]
    yield HIGH, one_number(codes[::-1], bits)
    yield "These are the codes as they came, one a byte.", codes
    yield CROSS, [one_number(codes[i : i + per_byte], bits)[0] for i in range(0, len(codes), per_byte)]
    if len(codes) % per_byte == 0:
        rows = [codes[i :: len(codes) // per_byte] for i in range(len(codes) // per_byte)]
        yield (
            "Neighbours lie beside each other: these bytes hold codes from far apart.",
            [one_number(row, bits)[0] for row in rows],
        )
    if used := len(codes) * bits % 8:
        yield "The last byte is there, even if it is filled only in part.", right[:-1]
        yield "What is left in the last byte is 0.", [*right[:-1], right[-1] + 256 - 2**used]
    yield "There is a byte too many.", [*right, 0]
    lost = [0] * len(right)
    for place, code in enumerate(codes):
        lost[place * bits // 8] |= code << place * bits % 8 & 255
    yield LOST, lost


def unpackings(packed: Sequence[int], bits: int, count: int) -> Iterator[tuple[str, list[int]]]:
    """Each way to go wrong in unpacking: what there is to say, and the codes of it."""
    room, per_byte = len(packed) * 8 // bits, 8 // bits
    packed = [int(byte) for byte in packed]
    for highs in ((True, True), (True, False), (False, True)):
        yield HIGH, out_of_row(in_row(packed, 8, highs[0])[: count * bits], bits, highs[1])
    yield HIGH, digits(packed, bits, count)[::-1]
    yield "These are the bytes as they came.", packed
    said = "These are all codes that have room in the bytes. `count` says how many there are."
    for more in range(count + 1, room + 1):
        yield said, digits(packed, bits, more)
    apart = [byte >> place * bits & 2**bits - 1 for byte in packed for place in range(per_byte)]
    yield CROSS, apart[:count]
    yield CROSS, apart
    of_a_byte = [packed[i * bits // 8] >> i * bits % 8 & 2**bits - 1 for i in range(count)]
    yield LOST, of_a_byte
