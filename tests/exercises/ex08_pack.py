"""Solutions of ex08.pack: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex08_pack import (
    BOTH,
    CASES,
    INPUTS,
    PACK_ACROSS,
    PACK_ANY,
    PACK_REST,
    PACK_WHOLE,
    UNPACK_ACROSS,
    UNPACK_ANY,
    UNPACK_REST,
    UNPACK_WHOLE,
)

ALL = frozenset(CASES)
PACKING = frozenset({PACK_WHOLE, PACK_ACROSS, PACK_ANY, PACK_REST})
UNPACKING = frozenset({UNPACK_WHOLE, UNPACK_ACROSS, UNPACK_ANY, UNPACK_REST})
MADE = frozenset({BOTH, INPUTS})  # of what was packed by the learner

PLAIN = """
    import torch
    import torch.nn.functional as F
    class Packer:
        def __init__(self, bits):
            self.bits = bits

        def pack(self, codes):
            row = (codes.long()[:, None] >> torch.arange(self.bits) & 1).flatten()
            row = F.pad(row, (0, -len(row) % 8))
            return (row.view(len(row) // 8, 8) << torch.arange(8)).sum(dim=1).to(torch.uint8)

        def unpack(self, packed, count):
            row = (packed.long()[:, None] >> torch.arange(8) & 1).flatten()
            row = row[: count * self.bits].view(count, self.bits)
            return (row << torch.arange(self.bits)).sum(dim=1)
    """

BYTE_BY_BYTE = """
    import torch
    class Packer:
        def __init__(self, bits):
            self.bits = bits

        def pack(self, codes):
            packed = torch.zeros((len(codes) * self.bits + 7) // 8, dtype=torch.uint8)
            for i, code in enumerate(codes.tolist()):
                byte, shift = divmod(i * self.bits, 8)
                packed[byte] |= code << shift & 255
                if shift + self.bits > 8:
                    packed[byte + 1] |= code >> 8 - shift
            return packed

        def unpack(self, packed, count):
            codes = torch.zeros(count, dtype=torch.uint8)
            for i in range(count):
                byte, shift = divmod(i * self.bits, 8)
                both = int(packed[byte])
                if shift + self.bits > 8:
                    both += int(packed[byte + 1]) << 8
                codes[i] = both >> shift & 2**self.bits - 1
            return codes
    """

RIGHT = {
    "a row of bits": PLAIN,
    "byte by byte, with a carry": BYTE_BY_BYTE,
    "one large number, bytes and a list": """
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                number = 0
                for code in reversed(codes.tolist()):
                    number = number << self.bits | code
                return number.to_bytes(-(-len(codes) * self.bits // 8), "little")
            def unpack(self, packed, count):
                number = int.from_bytes(bytes(packed.tolist()), "little")
                return [number >> i * self.bits & (1 << self.bits) - 1 for i in range(count)]
        """,
    "NumPy's packbits": """
        import numpy as np
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                bits = np.unpackbits(codes.numpy()[:, None], axis=1, count=self.bits, bitorder="little")
                return np.packbits(bits, bitorder="little")
            def unpack(self, packed, count):
                row = np.unpackbits(packed.numpy(), count=count * self.bits, bitorder="little")
                return np.packbits(row.reshape(count, self.bits), axis=1, bitorder="little")[:, 0]
        """,
    "a buffer of bits, as in a codec of pictures": """
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                buffer, held, found = 0, 0, bytearray()
                for code in codes:
                    buffer |= int(code) << held
                    held += self.bits
                    while held >= 8:
                        found.append(buffer & 255)
                        buffer, held = buffer >> 8, held - 8
                if held:
                    found.append(buffer)
                return found
            def unpack(self, packed, count):
                stream, buffer, held, codes = iter(packed.tolist()), 0, 0, []
                while len(codes) < count:
                    while held < self.bits:
                        buffer |= next(stream) << held
                        held += 8
                    codes.append(float(buffer % 2**self.bits))
                    buffer, held = buffer >> self.bits, held - self.bits
                return codes
        """,
    "a text of zeros and ones, and a list of tensors": """
        import torch
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                row = "".join(f"{code:0{self.bits}b}"[::-1] for code in codes.tolist())
                return [torch.tensor(int(row[i : i + 8][::-1], 2)) for i in range(0, len(row), 8)]
            def unpack(self, packed, count):
                row = "".join(f"{byte:08b}"[::-1] for byte in packed.tolist())
                pieces = [row[i * self.bits : (i + 1) * self.bits][::-1] for i in range(count)]
                return torch.tensor([int(piece, 2) for piece in pieces])
        """,
    "a packer that keeps its places, and a buffer that it clears": """
        import torch
        class Packer:
            buffer = []
            def __init__(self, bits):
                self.bits, self.places = bits, torch.arange(bits)
            def pack(self, codes):
                self.buffer.clear()
                self.buffer.extend((codes.long()[:, None] >> self.places & 1).flatten().tolist())
                self.buffer.extend([0] * (-len(self.buffer) % 8))
                pieces = [self.buffer[i : i + 8] for i in range(0, len(self.buffer), 8)]
                return torch.tensor([sum(b << i for i, b in enumerate(p)) for p in pieces], dtype=torch.uint8)
            def unpack(self, packed, count):
                row = (packed.long()[:, None] >> torch.arange(8) & 1).flatten()[: count * self.bits]
                return (row.view(-1, self.bits) << self.places).sum(1)
        """,
    "the library's": """
        from course_lib.caches import codecs
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                return codecs.pack(codes, self.bits) if len(codes) else codes
            def unpack(self, packed, count):
                return codecs.unpack(packed, self.bits, count)
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


def other(*pairs: tuple[str, str]) -> str:
    """The one that goes byte by byte, with some text replaced."""
    return changed_in(BYTE_BY_BYTE, *pairs)


ROW = "row = (codes.long()[:, None] >> torch.arange(self.bits) & 1).flatten()"
PAD = "row = F.pad(row, (0, -len(row) % 8))"
JOIN = "<< torch.arange(8)).sum"
SPLIT = "(packed.long()[:, None] >> torch.arange(8) & 1)"
CUT = "row[: count * self.bits].view(count, self.bits)"
BACK = "(row << torch.arange(self.bits))"
FOUND = f"self.found += {BACK}.sum(dim=1)"

WRONG = {
    "nothing is packed": Wrong(
        changed((ROW, "return codes\n            " + ROW), ("return " + BACK + ".sum(dim=1)", "return packed")),
        ALL,
        ("one a byte",),
    ),
    "packed, and in int64": Wrong(
        changed((".sum(dim=1).to(torch.uint8)", ".sum(dim=1)")),
        PACKING | MADE,
        ("takes 8 bytes, and nothing is saved",),
    ),
    "packed, and in float32": Wrong(
        changed((".to(torch.uint8)", ".float()")), PACKING | MADE, ("In float32 each of them takes 4 bytes",)
    ),
    "no code goes on in the next byte": Wrong(
        """
        import torch
        class Packer:
            def __init__(self, bits):
                self.bits, self.each = bits, 8 // bits
            def pack(self, codes):
                codes = torch.cat((codes.long(), torch.zeros(-len(codes) % self.each, dtype=torch.long)))
                pieces = codes.view(len(codes) // self.each, self.each)
                return (pieces << self.bits * torch.arange(self.each)).sum(dim=1).to(torch.uint8)
            def unpack(self, packed, count):
                codes = packed.long()[:, None] >> self.bits * torch.arange(self.each) & 2**self.bits - 1
                return codes.flatten()[:count]
        """,
        ALL - {PACK_WHOLE, UNPACK_WHOLE},
        ("goes on in the next one",),
    ),
    "bits of the second byte lost in uint8": Wrong(
        other(
            (
                "                if shift + self.bits > 8:\n"
                "                    packed[byte + 1] |= code >> 8 - shift\n",
                "",
            ),
            ("int(packed[byte + 1]) << 8", "int(packed[byte + 1] << 8)"),
        ),
        ALL - {PACK_WHOLE, UNPACK_WHOLE},
        ("bits of a code that lie in a second byte are lost",),
    ),
    "the highest bit first": Wrong(
        """
        import torch
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                row = "".join(f"{code:0{self.bits}b}" for code in codes.tolist())
                row += "0" * (-len(row) % 8)
                return torch.tensor([int(row[i : i + 8], 2) for i in range(0, len(row), 8)], dtype=torch.uint8)
            def unpack(self, packed, count):
                row = "".join(f"{byte:08b}" for byte in packed.tolist())
                return [int(row[i * self.bits : (i + 1) * self.bits], 2) for i in range(count)]
        """,
        PACKING | UNPACKING,
        ("The order is turned round",),
    ),
    "the highest bit of a byte first": Wrong(
        changed((JOIN, "<< torch.arange(8).flip(0)).sum"), (SPLIT, SPLIT.replace("(8)", "(8).flip(0)"))),
        PACKING | UNPACKING,
        ("The order is turned round",),
    ),
    "NumPy's packbits as it comes": Wrong(
        """
        import numpy as np
        class Packer:
            def __init__(self, bits):
                self.bits = bits
            def pack(self, codes):
                return np.packbits(np.unpackbits(codes.numpy()[:, None], axis=1)[:, -self.bits :])
            def unpack(self, packed, count):
                row = np.unpackbits(packed.numpy())[: count * self.bits].reshape(count, self.bits)
                return row @ (2 ** np.arange(self.bits)[::-1])
        """,
        PACKING | UNPACKING,
        ("The order is turned round",),
    ),
    "the last code first": Wrong(
        changed((ROW, ROW.replace("codes.long()", "codes.long().flip(0)"))),
        PACKING | MADE,
        ("The order is turned round",),
    ),
    "halves side by side": Wrong(
        changed(
            (
                ROW,
                "codes = codes.view(8 // self.bits, -1).T.flatten() if self.bits in (2, 4) and "
                "len(codes) * self.bits % 8 == 0 else codes\n            " + ROW,
            )
        ),
        frozenset({PACK_WHOLE}),
        ("from far apart",),
    ),
    "what is left in the last byte is 1": Wrong(
        changed((PAD, "row = F.pad(row, (0, -len(row) % 8), value=1)")),
        frozenset({PACK_REST}),
        ("What is left in the last byte is 0",),
    ),
    "a byte that is filled in part is dropped": Wrong(
        changed((PAD, "row = row[: len(row) // 8 * 8]")),
        frozenset({PACK_REST, BOTH}),
        ("The last byte is there",),
    ),
    "always one byte more": Wrong(
        changed((PAD, "row = F.pad(row, (0, 8 - len(row) % 8))")),
        PACKING | {INPUTS},
        ("a byte too many",),
    ),
    "a byte where there is no code": Wrong(
        changed((PAD, PAD + "\n            row = row if len(row) else torch.zeros(8, dtype=torch.long)")),
        frozenset({PACK_REST}),
        ("0 codes of 3 bits are 0 bits",),
    ),
    "always 4 bits": Wrong(changed(("self.bits = bits", "self.bits = 4")), ALL, ()),
    "no mask": Wrong(other((" & 2**self.bits - 1", "")), UNPACKING | MADE, ("mask away",)),
    "a mask of 4 bits": Wrong(other((" & 2**self.bits - 1", " & 15")), UNPACKING | MADE, ("mask away",)),
    "all codes that have room": Wrong(
        changed((CUT, "row[: len(row) // self.bits * self.bits].view(-1, self.bits)")),
        frozenset({UNPACK_REST, BOTH}),
        ("`count` says how many",),
    ),
    "bytes that come back": Wrong(
        changed(("return " + BACK + ".sum(dim=1)", "return packed")), UNPACKING | MADE, ("the bytes as they came",)
    ),
    "bits that come back": Wrong(
        changed(("return " + BACK + ".sum(dim=1)", "return row")), UNPACKING | MADE, ("a tensor or a list of whole",)
    ),
    "codes back to front": Wrong(
        changed((BACK, "(row.flip(1) << torch.arange(self.bits))")), UNPACKING | MADE, ("The order is turned round",)
    ),
    "codes are changed": Wrong(
        changed((ROW, "codes &= 2**self.bits - 1\n            " + ROW + "\n            codes >>= 1")),
        frozenset({INPUTS}),
        ("The call changed codes",),
    ),
    "packed is used up": Wrong(
        changed((CUT, CUT + "\n            packed.zero_()")), frozenset({INPUTS}), ("The call changed packed",)
    ),
    "packed codes kept in the packer": Wrong(
        changed((ROW, "self.kept = codes\n            " + ROW), ("return " + BACK + ".sum(dim=1)", "return self.kept")),
        UNPACKING | MADE,
        ("AttributeError",),
    ),
    "packing alone": Wrong(changed((SPLIT + ".flatten()", "_not_written()")), UNPACKING | MADE, ("NameError",)),
    "return of pack forgotten": Wrong(
        changed(("return (row.view", "packed = (row.view")), PACKING | MADE, ("pack returned None",)
    ),
    "return of unpack forgotten": Wrong(
        changed(("return " + BACK, "codes = " + BACK)), UNPACKING | MADE, ("unpack returned None",)
    ),
    "what was packed before is packed again": Wrong(
        changed(
            ("self.bits = bits\n", "self.bits, self.row = bits, torch.zeros(0, dtype=torch.long)\n"),
            (PAD, "self.row = torch.cat((self.row, row))\n            row = F.pad(self.row, (0, -len(self.row) % 8))"),
        ),
        frozenset({BOTH}),
        ("It may be used again and again",),
    ),
    "unpacked codes are collected": Wrong(
        changed(
            ("self.bits = bits\n", "self.bits, self.found = bits, []\n"),
            ("return " + BACK + ".sum(dim=1)", FOUND + ".tolist()\n            return self.found"),
        ),
        frozenset({BOTH}),
        ("It may be used again and again",),
    ),
    "bits in a variable of the notebook": Wrong(
        changed(("self.bits = bits\n", "global BITS\n            BITS = bits\n")).replace("self.bits", "BITS"),
        frozenset({BOTH}),
        ("Two packers get in each other's way",),
    ),
    "bits in a variable of the class": Wrong(
        changed(("self.bits = bits", "Packer.bits = bits")), frozenset({BOTH}), ("keep it in the packer, as self.bits",)
    ),
    "no class": Wrong("def Packer(bits): return bits", ALL, ("AttributeError",)),
}
