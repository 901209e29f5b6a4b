"""Submissions that want points for an answer that is not right: forged results, forged equality, exchanged judges.

The one idea: whatever a submission does to its own process, what it sends is judged elsewhere. None of these earns more
than its answers do when they are judged alone; most of them destroy even that.
"""

from hostile_submissions import Hostile
from small_assignment import WRONG


def forgery(tries: str, *cells: str, earns: float = 0, says: str = "") -> Hostile:
    """An attempt to get points for an answer that is not right. `earns` is what the answer alone is worth, or less."""
    return Hostile(tries, cells, earns, says)


SEND = """
import json, os, struct
def send(data, length=None):
    "Write a frame to every pipe there is."
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and os.path.exists(f"/proc/self/fd/{name}"):
            try:
                os.write(int(name), struct.pack(">I", len(data) if length is None else length) + data)
            except OSError:
                pass
"""
CLAIM = """
def claim():
    "An answer that says that it has passed."
    cases = {name: {"dict": {"came": True, "passed": True}} for name in ("small", "negative", "many", "none")}
    outputs = {"dict": {"starter": False, "passed": True, "earned": 400, "cases": {"dict": cases}}}
    return json.dumps({"dict": {"elsewhere": "", "passed": True, "outputs": outputs}}).encode()
"""
OUR_PARTS = """
import sys
run = sys.modules["course_lib.checks.runs.ex99_double"]
beside, plain = sys.modules["course_lib.checks.beside"], sys.modules["course_lib.checks.plain"]
"""
CHANNEL = {
    "prints forged results": forgery(
        "prints what a marker might print",
        WRONG + "\nfor line in ('PASSED', '4 passed', '{\"earned\": 4}', 'points: 4/4'): print(line)",
        earns=1,
    ),
    "writes forged results to the channel": forgery(
        "finds the pipe of the answers and answers before it is asked, and twice",
        SEND + CLAIM + "def double(numbers):\n    send(claim())\n    send(claim())",
    ),
    "writes rubbish to the channel": forgery(
        "sends what cannot be read, a pickle among it",
        SEND + "def double(numbers):\n    send(b'\\x80\\x04.')\n    send(b'[' * 200_000)\n    send(b'{}' * 99)",
        says="sent something else than the answer",
    ),
    "writes something enormous to the channel": forgery(
        "announces 4 GB and sends what it can",
        SEND + "def double(numbers): send(b'[' * 50_000, 2**32 - 1)",
        says="sent something else than the answer",
    ),
    "writes many small things to the channel": forgery(
        "sends 8 million lists, which would take gigabytes to read",
        SEND + "def double(numbers): send(b'[[],[' + b'[],' * 8_000_000 + b'[]]]')",
        says="sent something else than the answer",
    ),
    "writes forged results to files": forgery(
        "leaves files that look like marks wherever it may write",
        WRONG
        + """
import os
for place in (".", "/tmp", "/dev/shm", os.environ["HOME"]):
    for name in ("marks.csv", "marks.json", "gradebook.db", "key"):
        open(f"{place}/{name}", "w").write("ex99,4,4")
""",
        earns=1,
    ),
    "leaves the answer to a child": forgery(
        "lets a forked child go on in place of its parent",
        WRONG + "\nimport os\nif os.fork(): os._exit(0)",
        says="ended the process",
    ),
}
PATCHES = {
    "patches builtins": forgery(
        "makes every comparison of the process say yes",
        WRONG
        + """
import builtins
builtins.isinstance = builtins.all = builtins.any = lambda *given: True
builtins.type = lambda *given: int
builtins.sum = builtins.len = lambda *given: 4
""",
    ),
    "patches numpy": forgery(
        "makes every comparison of numpy say yes",
        WRONG
        + """
import numpy
for name in dir(numpy):
    if "equal" in name or "close" in name:
        setattr(numpy, name, lambda *given, **named: True)
numpy.random.default_rng = numpy.array = lambda *given, **named: None
""",
        earns=1,
    ),
    "patches IPython": forgery(
        "rewrites asserts, results and errors of every cell",
        """
import ast
class Rewrite(ast.NodeTransformer):
    def visit_Assert(self, node): return ast.Pass()
shell = get_ipython()
shell.ast_transformers.append(Rewrite())
shell.events.register("post_run_cell", lambda result: setattr(result, "error_in_exec", None))
shell.run_cell = type(shell).run_cell = lambda *given, **named: None
type(shell).showtraceback = lambda *given, **named: None
""",
        WRONG,
    ),
    "patches the check": forgery(
        "replaces the part of the check that is inside",
        WRONG
        + OUR_PARTS
        + "run.run = lambda code, inputs: dict(starter=False, passed=True, cases=dict.fromkeys(inputs['cases'], True))",
    ),
    "patches the copying": forgery(
        "replaces what turns answers into plain data",
        WRONG
        + OUR_PARTS
        + """
run.as_plain = beside.as_plain = plain.plain = lambda *given: True
plain.Copier.copy = lambda self, value, depth=0: value
""",
    ),
    "patches the packing": forgery(
        "replaces what turns answers into bytes, by a pickle that would run a command",
        WRONG
        + OUR_PARTS
        + """
import json, os, pickle
class Command:
    def __reduce__(self): return os.system, ("touch /tmp/marks-were-here",)
plain.to_json = lambda data: data
json.dumps = lambda *given, **named: pickle.dumps(Command(), 0).decode("latin-1")
""",
        says="sent something else than the answer",
    ),
}
OBJECTS = {
    "equals everything": forgery(
        "returns an object that equals everything",
        """
class Yes(list):
    __eq__ = __ge__ = __le__ = lambda *given: True
    __ne__ = lambda *given: False
    __class__ = list
    __len__ = lambda self: 3
    __iter__ = lambda self: iter([self] * 3)
def double(numbers): return Yes([0.5])
""",
    ),
    "equals everything, number for number": forgery(
        "returns numbers that equal everything",
        """
class Yes(int):
    __eq__ = lambda *given: True
    __hash__ = int.__hash__
    bit_length = lambda self: 3
def double(numbers): return [Yes(1) for _ in numbers]
""",
        earns=1,
    ),
    "equals nothing": forgery(
        "returns no numbers", "def double(numbers): return [float('nan')] * len(numbers)", earns=1
    ),
    "is enormous": forgery(
        "returns numbers, lists, arrays and texts of any size",
        """
import numpy as np
def double(numbers):
    return [[10**5000], [0] * 10**6, np.broadcast_to(0.0, (10**9, 9)), "x" * 10**7][len(numbers) % 4]
""",
    ),
    "never ends": forgery(
        "returns lists that contain themselves",
        """
knot, ring = [], {}
knot.append(knot)
ring["a"] = ring
def double(numbers): return [knot, ring, {"a": knot}, (knot,)][len(numbers) % 4]
""",
    ),
    "goes off when it is touched": forgery(
        "returns and raises objects that fight back",
        """
class Trap(BaseException):
    def __getattribute__(self, name): raise SystemExit
    __str__ = __repr__ = __iter__ = lambda self: 1 / 0
def double(numbers):
    if len(numbers) > 3: raise Trap
    return Trap()
""",
    ),
    "claims to be the starter": forgery(
        "says that there is nothing to judge", "def double(numbers): raise NotImplementedError", says="Not solved yet"
    ),
}
GUESSES = {
    "guesses the seed": forgery(
        "knows how inputs are drawn, and answers right if one of many seeds is the right one",
        """
import numpy as np
def double(numbers):
    for seed in range(3_000):
        if np.random.default_rng(seed).integers(2, 9, 3).tolist()[:2] == numbers[:2] == [seed]:
            return [2 * each for each in numbers]
    return []
""",
        earns=1,
    ),
    "changes the question": forgery(
        "writes zeros into what it was given, in every list of the process, for zeros are easily doubled",
        """
import gc
def double(numbers):
    for each in gc.get_objects():
        if type(each) is list and each and each == numbers:
            each[:] = [0] * len(each)
    return [0] * len(numbers)
""",
        earns=1,
    ),
}
FORGERIES = CHANNEL | PATCHES | OBJECTS | GUESSES
