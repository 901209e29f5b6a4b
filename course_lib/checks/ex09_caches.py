"""The caches on which learners' tests are tried: right ones of many manners, and broken ones of some kinds.

The one idea: a mistake is a rule that differs, written here as a line such as `position = "i"`, and handed on as whole
numbers. Every cache, right ones included, carries as many mistakes as every other, each behind a question; in a right
one all of them sleep for ever. So the numbers of right and of broken caches look alike, and which is which is not
handed on at all: the judge finds out as a test does, by trying.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from course_lib.checks.runs.ex09_memory import CONSTANT, FILLS, FIRST_FORM, RULES, STYLE, VARIABLE, VARIABLES

Numbers: TypeAlias = Sequence[Sequence[int]]
ADD, SUBTRACT, MULTIPLY, LARGEST, SMALLEST, LESS, EQUAL, WHERE = range(FIRST_FORM, FIRST_FORM + 8)
OPERATIONS = {ast.Add: ADD, ast.Sub: SUBTRACT, ast.Mult: MULTIPLY, ast.Lt: LESS, ast.Eq: EQUAL}
FUNCTIONS = {"max": LARGEST, "min": SMALLEST, "where": WHERE}
RIGHT = {
    "used": "length", "tokens": "count", "column": "i", "to_layer": "layer", "to_row": "row", "slot": "length + i",
    "bits": "53", "position": "length + i", "grown": "length + count",
    "columns": "length", "from_part": "part", "from_layer": "layer", "from_row": "row", "token": "t",
    "shown": "(-1 < t) * (t < length)", "buffer": "reads + 3",
    "released": "where(row == target, 0, length)", "cut": "where(row == target, n, length)",
}  # fmt: skip
ALWAYS_KNOWN = ("length", "longest", "highest", "ever", "passes", "releases", "cuts", "row")
NEVER = ("highest < length", "longest < length", "passes < 0", "length < 0")
ALWAYS = ("length < highest + 1", "length < longest + 1", "0 < passes + 1", "0 < length + 1")
CARRIED, DETOURS = 4, 0.25  # mistakes in each cache, and the chance that something is written in a roundabout way
SMALL, LARGER = 32, (40, 1000)  # tokens that there is room for
OTHERS = 0.2  # the chance of each further manner
MANNERS = {  # what a learner reads about a right cache whose test is too strict
    "single": "keeps its numbers in float32",
    "fill": "has numbers, or NaN, in memory that holds no token",
    "fortran": "lays its arrays out in another order",
    "locked": "returns arrays that nobody may write into",
    "full": "raises ValueError when more than 32 tokens come",
    "listed": "returns positions as lists",
    "left": "keeps the tokens of a shorter row at the end of its columns, padding in front",
    "extra": "has more columns than the longest row has tokens",
}


@dataclass(frozen=True)
class Fault:
    """A mistake: the rules that differ. In them, {layer}, {row} and {other} (1 or 2), {many}, {bits} and {fine} are
    drawn: few binary digits, and nearly as many as were promised, so that an error of 1e-5 is left."""

    rules: dict[str, str]
    small: bool = False  # whether it shows only where memory is as small as promised


@dataclass(frozen=True)
class Kind:
    """Mistakes that belong together: a case. `says` is what such a cache does, `seen` whether its code is shown."""

    name: str
    says: str
    faults: tuple[Fault, ...]
    seen: bool = False


@dataclass(frozen=True)
class Family:
    """The caches of a task: their kinds, how the right ones differ from `RIGHT`, and what manners they have."""

    kinds: tuple[Kind, ...]
    manners: tuple[str, ...]
    rules: dict[str, str] = field(default_factory=dict)


def fault(small: bool = False, **rules: str) -> Fault:
    return Fault(rules, small)


def draw_caches(family: Family, seed: int) -> dict[str, list[tuple[Numbers, bool]]]:
    """Case by case, in a random order, the numbers of each cache and whether it is right."""
    rng = np.random.default_rng(seed)
    cases: dict[str, list[tuple[Numbers, bool]]] = {}
    turn = 0
    for kind in family.kinds:
        caches = []
        for each in kind.faults:
            caches.append((numbers_of(family, each, rng, str(rng.choice(family.manners))), False))
        for _ in range(int(rng.integers(1, 3))):
            manner = family.manners[turn % len(family.manners)]  # each of them comes again and again
            caches.append((numbers_of(family, None, rng, manner), True))
            turn += 1
        cases[kind.name] = [caches[place] for place in rng.permutation(len(caches))]
    return cases


def numbers_of(family: Family, broken: Fault | None, rng: np.random.Generator, manner: str) -> Numbers:
    """The numbers of a cache: `manner` and perhaps others, and its rules. No mistake makes a right one."""
    manners = {manner} | {each for each in family.manners if rng.random() < OTHERS}
    style = {name: int(name in manners) for name in STYLE}
    style["fill"] *= int(rng.integers(1, len(FILLS)))
    style["extra"] *= int(rng.integers(1, 4))
    style["room"] = SMALL if "full" in manners or (broken and broken.small) else int(rng.choice(LARGER))
    texts = RIGHT | family.rules
    faults = [each for kind in family.kinds for each in kind.faults]
    carried = [(faults[place], NEVER) for place in rng.choice(len(faults), CARRIED, replace=False)]
    if broken:
        carried[int(rng.integers(CARRIED))] = (broken, ALWAYS)
    for each, questions in carried:
        drawn = some_numbers(rng)
        question = str(rng.choice(questions))
        for name, text in each.rules.items():
            texts = texts | {name: f"where({question}, {text.format(**drawn)}, {texts[name]})"}
    if style["single"]:
        texts = texts | {"bits": f"min({texts['bits']}, 24)"}
    made = [listed(ast.parse(texts[name], mode="eval").body) for name in RULES]
    return [[style[name] for name in STYLE], *(roundabout(each, rng) for each in made)]


def some_numbers(rng: np.random.Generator) -> dict[str, int]:
    """What is drawn for a mistake."""
    row, other = rng.permutation([1, 2])
    layer, many, bits, fine = (rng.integers(*ends) for ends in ((1, 3), (10, 25), (10, 13), (14, 17)))
    named = {"layer": layer, "row": row, "other": other, "many": many, "bits": bits, "fine": fine}
    return {name: int(number) for name, number in named.items()}


def listed(node: ast.AST) -> list[Any]:
    """An expression as nested lists: [ADD, [VARIABLE, 9], [CONSTANT, 1]]."""
    if isinstance(node, ast.Constant):
        return [CONSTANT, node.value]
    if isinstance(node, ast.Name):
        return [VARIABLE, VARIABLES.index(node.id)]
    if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
        return [CONSTANT, -int(str(node.operand.value))]
    if isinstance(node, ast.BinOp):
        return [OPERATIONS[type(node.op)], listed(node.left), listed(node.right)]
    if isinstance(node, ast.Compare):
        return [OPERATIONS[type(node.ops[0])], listed(node.left), listed(node.comparators[0])]
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Name), ast.dump(node)
    return [FUNCTIONS[node.func.id], *map(listed, node.args)]


def roundabout(expression: list[Any], rng: np.random.Generator) -> list[int]:
    """The same in Polish notation, with detours here and there that change no result."""
    kind, *parts = expression
    if kind in (CONSTANT, VARIABLE):
        return [kind, *parts]
    plain = [kind, *(number for part in parts for number in roundabout(part, rng))]
    less = int(rng.integers(1, 30))
    detours = (
        [SUBTRACT, ADD, *plain, CONSTANT, less, CONSTANT, less],
        [LARGEST, *plain, SUBTRACT, *plain, CONSTANT, less],
        [SMALLEST, ADD, *plain, CONSTANT, less, *plain],
        [WHERE, *some_question(rng), *plain, *plain],
    )
    return detours[int(rng.integers(len(detours)))] if rng.random() < DETOURS else plain


def some_question(rng: np.random.Generator) -> list[int]:
    """A question that a mistake might hang on: whether a count is less than something, or equal to it."""
    about = VARIABLES.index(str(rng.choice(ALWAYS_KNOWN)))
    sides = [[VARIABLE, about], [CONSTANT, int(rng.integers(0, 25))]]
    return [int(rng.choice([LESS, EQUAL])), *(number for place in rng.permutation(2) for number in sides[place])]


def manners_of(family: Family, numbers: Numbers) -> list[str]:
    """What is special about a right cache, in words."""
    style = dict(zip(STYLE, numbers[0], strict=True))
    style["full"] = style["room"] == SMALL
    return [MANNERS[name] for name in family.manners if style[name]]


def sizes(rng: np.random.Generator, total: int) -> Sequence[int]:
    """Some chunks that add up to `total`."""
    cuts = sorted({0, total, *(int(cut) for cut in rng.integers(1, total, 6))})
    return [int(n) for n in np.diff(cuts)]
