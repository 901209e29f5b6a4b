"""Solutions of ex08.quantise: right ones, written in different ways, and named wrong ones."""

from variants import Wrong
from variants import changed as changed_in

from course_lib.checks.ex08_quantise import BITS, CASES, CHANNEL, EQUAL, FAR, INPUTS, ONE, SEVERAL, SHORT

ALL = frozenset(CASES)
BY_CHANNEL = frozenset({CHANNEL, SHORT, EQUAL})  # with axis = 0 in one of its calls

PLAIN = """
    import torch
    def quantise(x, bits, group, axis):
        parts = []
        for piece in x.split(group, dim=axis):
            low = piece.amin(dim=axis, keepdim=True)
            step = (piece.amax(dim=axis, keepdim=True) - low) / (2**bits - 1)
            codes = ((piece - low) / step.where(step > 0, 1)).round()
            parts.append((codes, low, step))
        codes, low, step = (torch.cat(part, dim=axis) for part in zip(*parts))
        return codes, low, step
    """

RIGHT = {
    "piece by piece": PLAIN,
    "number by number, in lists": """
        def quantise(x, bits, group, axis):
            rows = x.tolist() if axis == 1 else x.T.tolist()
            codes, lows, steps = [], [], []
            for row in rows:
                codes.append([]), lows.append([]), steps.append([])
                for start in range(0, len(row), group):
                    numbers = row[start : start + group]
                    low, step = min(numbers), (max(numbers) - min(numbers)) / (2**bits - 1)
                    lows[-1].append(low), steps[-1].append(step)
                    codes[-1] += [int((n - low) / step + 0.5) if step else 0 for n in numbers]
            turned = (lambda table: table) if axis == 1 else (lambda table: [list(row) for row in zip(*table)])
            return turned(codes), turned(lows), turned(steps)
        """,
    "NumPy, in another memory order, codes in uint8": """
        import numpy as np
        def quantise(x, bits, group, axis):
            x = np.moveaxis(np.asfortranarray(x.numpy()).astype(np.float64), axis, 0)
            starts = np.arange(0, len(x), group)
            low, high = (f.reduceat(x, starts, axis=0) for f in (np.minimum, np.maximum))
            step = (high - low) / (2**bits - 1)
            of = np.arange(len(x)) // group
            codes = np.divide(x - low[of], step[of], out=np.zeros_like(x), where=step[of] > 0)
            return tuple(np.moveaxis(p, 0, axis) for p in (np.rint(codes).astype(np.uint8), low, step))
        """,
    "padded with the last number, all groups at once": """
        import torch
        import torch.nn.functional as F
        def quantise(x, bits, group, axis):
            rows = x.transpose(axis, -1)
            groups = F.pad(rows[None], (0, -rows.shape[-1] % group), mode="replicate")[0].unflatten(-1, (-1, group))
            low, high = groups.aminmax(dim=-1, keepdim=True)
            step = (high - low) / (2**bits - 1)
            codes = ((groups - low) / step).nan_to_num(0).round().to(torch.int64)
            codes = codes.flatten(-2)[..., : rows.shape[-1]]
            return [part.transpose(axis, -1) for part in (codes, low[..., 0], step[..., 0])]
        """,
    "the nearest of all marks, in a named tuple": """
        import torch
        from typing import NamedTuple
        class Rounded(NamedTuple):
            codes: torch.Tensor
            low: torch.Tensor
            step: torch.Tensor
        def quantise(x, bits, group, axis):
            if axis == 0:
                return Rounded(*(part.mT.contiguous() for part in quantise(x.mT, bits, group, 1)))
            pieces = x.double().split(group, dim=1)
            low = torch.stack([piece.min(1).values for piece in pieces], 1)
            step = torch.stack([piece.max(1).values for piece in pieces], 1).sub(low).div(2**bits - 1)
            marks = low[..., None] + step[..., None] * torch.arange(2**bits)  # [T, groups, marks]
            of = torch.arange(x.shape[1]) // group
            return Rounded((x[..., None] - marks[:, of]).abs().argmin(-1).to(torch.uint8), low, step)
        """,
    "searched between the middles of the marks": """
        import numpy as np
        def quantise(x, bits, group, axis):
            def of_group(numbers):
                low, high = numbers.min(), numbers.max()
                marks = np.linspace(low, high, 2**bits)
                codes = np.searchsorted((marks[1:] + marks[:-1]) / 2, numbers, side="left") if high > low else 0
                return codes + np.zeros(len(numbers), int), low, marks[1] - marks[0]
            x = x.double().numpy()
            lines = x if axis else x.T
            found = [[of_group(part) for part in np.split(line, range(group, len(line), group))] for line in lines]
            codes = np.stack([np.concatenate([codes for codes, *_ in line]) for line in found])
            low, step = (np.array([[part[i] for part in line] for line in found]) for i in (1, 2))
            return tuple(part if axis else part.T for part in (codes, low, step))
        """,
    "the library's own bytes, taken apart": """
        import torch
        from course_lib.caches.codecs import Integers, unpack
        def quantise(x, bits, group, axis):
            if axis == 0:
                return tuple(part.T for part in quantise(x.T, bits, group, 1))
            codec, D = Integers(bits, group, scale_dtype=torch.float32), x.shape[1]
            packed = codec.encode(x)
            end = codec.code_bytes(D)
            low, step = packed[:, end:].clone().view(torch.float32).split(codec.groups(D), dim=1)
            return unpack(packed[:, :end], bits, D), low, step
        """,
}


def changed(*pairs: tuple[str, str]) -> str:
    """The plain right solution with some text replaced."""
    return changed_in(PLAIN, *pairs)


LOW = "low = piece.amin(dim=axis, keepdim=True)"
HIGH = "piece.amax(dim=axis, keepdim=True)"
STEP = "step = (piece.amax(dim=axis, keepdim=True) - low) / (2**bits - 1)"
CODES = "codes = ((piece - low) / step.where(step > 0, 1)).round()"
PIECES = "x.split(group, dim=axis)"
BACK = "return codes, low, step"

WRONG = {
    "cut down instead of rounded": Wrong(changed((".round()", ".add(1e-4).floor()")), ALL, ("cut down, not rounded",)),
    "made whole by a dtype": Wrong(
        changed((".round()", ".add(1e-4).to(torch.uint8)")), ALL, ("cut down, not rounded",)
    ),
    "rounded up from 0.6 on": Wrong(changed((".round()", ".add(0.4).floor()")), ALL, ("nearest",)),
    "rounded up": Wrong(changed((".round()", ".sub(1e-4).ceil()")), ALL, ("rounded up",)),
    "as many distances as marks": Wrong(
        changed(("(2**bits - 1)", "2**bits")), ALL, ("2^bits marks have 2^bits - 1 distances",)
    ),
    "as many distances as marks, and clamped": Wrong(
        changed(("(2**bits - 1)", "2**bits"), (".round()", ".round().clamp(max=2**bits - 1)")),
        ALL,
        ("2^bits marks have 2^bits - 1 distances",),
    ),
    "one distance too few": Wrong(
        changed(("(2**bits - 1)", "(2**bits - 2)"), (".round()", ".round().clamp(max=2**bits - 1)")),
        ALL,
        ("2^bits marks have 2^bits - 1 distances",),
    ),
    "alike on both sides of 0": Wrong(
        changed((LOW, "high = piece.abs().amax(dim=axis, keepdim=True); low = -high"), (HIGH, "high")),
        ALL,
        ("alike on both sides",),
    ),
    "signed codes, no low": Wrong(
        changed(
            (LOW, "low = piece.new_zeros(()).expand_as(piece.amin(dim=axis, keepdim=True))"),
            (STEP, "step = piece.abs().amax(dim=axis, keepdim=True) / (2**(bits - 1) - 1)"),
        ),
        ALL,
        ("low is the smallest number of its group",),
    ),
    "0 is always among the marks": Wrong(
        changed((LOW, LOW + ".clamp(max=0)"), (HIGH, HIGH + ".clamp(min=0)")),
        frozenset({FAR, EQUAL, SHORT}),
        ("Here it was always among them",),
    ),
    "marks from 0 on": Wrong(
        changed((LOW, "low = torch.zeros_like(piece.amin(dim=axis, keepdim=True))"), (".round()", ".round().clamp(0)")),
        ALL,
        ("Here they begin at 0",),
    ),
    "low is not subtracted": Wrong(
        changed(("(piece - low)", "piece"), (".round()", ".round().clamp(0, 2**bits - 1)")),
        ALL,
        ("low is missing from the codes",),
    ),
    "the span as the step": Wrong(
        changed((BACK, "return codes, low, step * (2**bits - 1)")), ALL, ("is the span of the group",)
    ),
    "step upside down": Wrong(changed((BACK, "return codes, low, 1 / step")), ALL, ("upside down",)),
    "the code of 0 instead of low": Wrong(
        changed((BACK, "return codes, (-low / step.where(step > 0, 1)).round(), step")), ALL, ("the zero point",)
    ),
    "codes from the middle": Wrong(
        changed((BACK, "return codes - 2**(bits - 1), low, step")), ALL, ("counted from the middle",)
    ),
    "half of the codes": Wrong(
        changed(("(2**bits - 1)", "(2**(bits - 1) - 1)")), ALL, ("Half of the codes are never used",)
    ),
    "scales in float16": Wrong(changed((BACK, "return codes, low.half(), step.half()")), ALL, ("rounded to float16",)),
    "always 4 bits": Wrong(
        changed(("    parts = []", "    bits = 4\n        parts = []")),
        frozenset({ONE, SEVERAL, CHANNEL, BITS, SHORT, EQUAL, FAR}),
        ("codes of 4 bits",),
    ),
    "always 8 bits": Wrong(changed(("    parts = []", "    bits = 8\n        parts = []")), ALL, ("codes of 8 bits",)),
    "one group for all": Wrong(
        changed(
            (LOW, "low = x.min().expand_as(piece.amin(dim=axis, keepdim=True))"),
            (HIGH, "x.max()"),
        ),
        ALL,
        ("scales of all numbers",),
    ),
    "one group a token": Wrong(
        changed((LOW, "low = x.amin(dim=axis, keepdim=True)"), (HIGH, "x.amax(dim=axis, keepdim=True)")),
        ALL - {ONE},
        ("Each group has its own",),
    ),
    "a single pair of scales": Wrong(changed((BACK, "return codes, low.min(), step.max()")), ALL, ("more groups",)),
    "axis turned round": Wrong(
        changed(("    parts = []", "    axis = 1 - axis\n        parts = []")), ALL, ("axis = 1: a group is",)
    ),
    "always per token": Wrong(
        changed(("    parts = []", "    axis = 1\n        parts = []")),
        BY_CHANNEL,
        ("axis = 0: a group is one channel",),
    ),
    "per channel, and not turned back": Wrong(
        changed(
            ("    parts = []", "    x, axis = (x if axis else x.T), 1\n        parts = []"),
        ),
        BY_CHANNEL,
        ("the shape of x",),
    ),
    "reshaped instead of turned": Wrong(
        changed(
            ("    parts = []", "    shape, was = x.shape, axis\n        parts = []"),
            (BACK, "return codes if was else codes.T.reshape(shape), low, step"),
        ),
        BY_CHANNEL,
        ("at the wrong places",),
    ),
    "numbers of a group far apart": Wrong(
        """
        import torch
        def quantise(x, bits, group, axis):
            rows = x if axis else x.T
            groups = rows.unfold(1, rows.shape[1], 1)[:, 0].reshape(len(rows), group, -1)
            low, high = groups.amin(1), groups.amax(1)
            step = (high - low) / (2**bits - 1)
            codes = ((groups - low[:, None]) / step.where(step > 0, 1)[:, None]).round().reshape(rows.shape)
            return tuple(part if axis else part.T for part in (codes, low, step))
        """,
        ALL - {ONE},
        ("A group is neighbours",),
    ),
    "zeros behind the last group": Wrong(
        """
        import torch
        import torch.nn.functional as F
        def quantise(x, bits, group, axis):
            rows = x if axis else x.T
            groups = F.pad(rows, (0, -rows.shape[1] % group)).unflatten(1, (-1, group))
            low, high = groups.amin(2), groups.amax(2)
            step = (high - low) / (2**bits - 1)
            codes = ((groups - low[..., None]) / step.where(step > 0, 1)[..., None]).round()
            codes = codes.flatten(1)[:, : rows.shape[1]]
            return tuple(part if axis else part.T for part in (codes, low, step))
        """,
        frozenset({SHORT, EQUAL}),
        ("Zeros were put behind",),
    ),
    "no short group": Wrong(
        changed((PIECES, PIECES.replace("x.", "x.narrow(axis, 0, x.shape[axis] // group * group).", 1))),
        frozenset({SHORT, EQUAL}),
        ("the shape of x",),
    ),
    "no scales for a short group": Wrong(
        changed(
            (
                BACK,
                "whole = x.shape[axis] // group\n        "
                "return codes, low.narrow(axis, 0, whole), step.narrow(axis, 0, whole)",
            )
        ),
        frozenset({SHORT, EQUAL}),
        ("The last group, of 4",),
    ),
    "divided by the step of equal numbers": Wrong(
        changed((".where(step > 0, 1)", "")), frozenset({EQUAL}), ("look before you divide",)
    ),
    "equal numbers have a step of 1": Wrong(
        changed(("    codes = (", "    step = step.where(step > 0, 1)\n            codes = (")),
        frozenset({EQUAL}),
        ("A group of equal numbers has step 0",),
    ),
    "a small number is added to each step": Wrong(
        changed(("step.where(step > 0, 1)", "(step + 5e-7)")), frozenset({EQUAL}), ("Only a step of exactly 0 needs",)
    ),
    "no step below a thousandth": Wrong(
        changed(("step.where(step > 0, 1)", "step.clamp(min=1e-3)")),
        frozenset({EQUAL}),
        ("close together, but they are not equal",),
    ),
    "nearly equal is equal": Wrong(
        changed((".round()", ".round() * (step * (2**bits - 1) > 1e-2)")),
        frozenset({EQUAL}),
        ("close together, but they are not equal",),
    ),
    "equal numbers have a tiny step": Wrong(
        changed(("    codes = (", "    step = step.clamp(min=1e-6)\n            codes = (")),
        frozenset({EQUAL}),
        ("A group of equal numbers has step 0",),
    ),
    "codes are not whole": Wrong(changed((".round()", "")), ALL, ("Codes are whole numbers",)),
    "x is changed": Wrong(changed(("(piece - low)", "piece.sub_(low)")), frozenset({INPUTS}), ("The call changed x",)),
    "the numbers that come back": Wrong(
        changed((BACK, "return low.repeat_interleave(group, axis).narrow(axis, 0, x.shape[axis]) + codes, low, step")),
        ALL,
        ("Codes are whole numbers",),
    ),
    "codes alone": Wrong(changed((BACK, "return codes")), ALL, ("three things",)),
    "a dictionary": Wrong(changed((BACK, "return dict(codes=codes, low=low, step=step)")), ALL, ("three things",)),
    "return forgotten": Wrong(changed(("        " + BACK, "")), ALL, ("Did you forget `return`?",)),
}
