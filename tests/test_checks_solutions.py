"""The check of ex03.append under test: what it says to a wrong solution, and that nobody talks it over. (That right
solutions pass and wrong ones fail is tried for all checks in test_exercise_mutants.)"""

import os
import shutil
import subprocess
import sys
from functools import reduce
from operator import getitem
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from forgery import places, some_plain_data
from variants import function, variants

import course_lib
from course_lib.checks import ex03_append
from course_lib.checks.contract import Line, Verdict, answer, details, first_difference
from course_lib.checks.plain import NotPlain, Plain, pack, unpack

APPEND = variants("ex03.append")
ALL, RIGHT, WRONG, changed = APPEND.ALL, APPEND.RIGHT, APPEND.WRONG, APPEND.changed
FIRST, CHUNK, EARLIER, INPUTS, PRECISION = (
    getattr(APPEND, name) for name in ("FIRST", "CHUNK", "EARLIER", "INPUTS", "PRECISION")
)


def judged(source: str, seed: int = 1) -> Verdict:
    return answer(ex03_append, function(source), seed)


def failed(verdict: Verdict) -> set[str]:
    return {line.case for line in verdict.lines if not line.passed}


def said(line: Line) -> str:
    return "\n".join((line.said, *(text for _, text in details(line))))


def test_every_case_is_needed_by_some_wrong_solution_or_is_the_simplest() -> None:
    """A case that no mistake fails alone, or with few others, would say nothing of its own."""
    fewest = {case: min(len(wrong.fails) for wrong in WRONG.values() if case in wrong.fails) for case in ALL}
    assert len(WRONG) >= 12
    assert all(count <= 3 for case, count in fewest.items() if case not in (FIRST, "one token after another")), fewest


def test_a_failed_line_says_what_went_in_what_was_expected_what_came_and_where() -> None:
    lines = {line.case: line for line in judged(WRONG["appended in front"].source).lines}
    line = lines["one token after another"]
    assert [label for label, _ in details(line)] == ["Went in", "Expected", "Came out", "Where"]
    inputs = ex03_append.draw(1)["cases"]["one token after another"]
    first, second = (inputs[call]["k"][0, 0] for call in (0, 1))  # [D]
    assert line.went_in == "k and v of shape [2, 1, 4] after 1 earlier token"
    assert line.expected == f"{[int(x) for x in first]}, the key of token 0 in head 0"
    assert line.came_out == f"{[int(x) for x in second]}, the key of token 1 in head 0"
    assert line.where == "call 2 of 4, layer 0, keys, head 0, token 0, entry 0"
    idle = lines[FIRST]  # right for whoever returns what was handed in: it tells what is wrong with the others
    assert (idle.said, idle.where) == (line.said, f"in the case “{line.case}”, {line.where}")


def test_the_first_difference_is_the_first_in_the_order_that_is_asked_for() -> None:
    expected, came = np.zeros((2, 3, 4)), np.zeros((2, 3, 4))
    came[0, 2, 1] = came[1, 1, 3] = np.nan
    assert first_difference(expected, came, order=(1, 0, 2)) == (1, 1, 3)  # token 1, although in the second head
    assert first_difference(expected, came, order=(0, 1, 2)) == (0, 2, 1)
    assert first_difference(expected, expected, order=(1, 0, 2)) is None


def test_an_error_is_shown_with_its_line_in_the_learners_code_not_ours_nor_a_librarys() -> None:
    source = """
        import torch
        def joined(parts):
            return torch.nn.functional.softmax(torch.cat(parts, dim=7), dim=0)
        def append(cache, layer, k, v):
            return joined([k, k]), v
        """
    line = judged(source).lines[0]
    assert line.said == "Your code raised an error in line 4 of joined."
    assert line.came_out.startswith("IndexError: Dimension out of range")
    inside_torch = source.replace("torch.cat(parts, dim=7)", '"no tensor"')
    assert judged(inside_torch).lines[0].said == "Your code raised an error in line 4 of joined."


@pytest.mark.parametrize(
    "body", ["...", "pass", '"""What it does."""', '"""What it does."""\n    ...', "raise NotImplementedError"]
)
def test_the_starter_is_not_solved_yet_and_not_wrong(body: str) -> None:
    verdict = judged(f"def append(cache, layer, k, v):\n    {body}")
    assert verdict == Verdict((), unsolved=True)
    assert not verdict.passed


@pytest.mark.parametrize("value", ["0", "1.5", "False", "''", "'text'", "()", "(1, 2)", "(None, None)"])
def test_whoever_returns_a_constant_has_begun(value: str) -> None:
    verdict = judged(f"def append(cache, layer, k, v):\n    return {value}")
    assert failed(verdict) == ALL and not verdict.unsolved


def test_a_method_that_is_empty_is_a_starter_too() -> None:
    source = """
        class Mine:
            def append(self, cache, layer, k, v): ...
        append = Mine().append
        """
    assert judged(source).unsolved


@pytest.mark.parametrize(
    "answer", ["raise SystemExit(3)", "raise AttributeError(name)", "return (lambda: None).__code__"]
)
def test_a_callable_object_is_not_asked_what_it_is(answer: str) -> None:
    source = f"""
        class Append:
            def __getattr__(self, name): {answer}
            def __getattribute__(self, name): {answer}
            def __call__(self, cache, layer, k, v): return k[:0], v
        append = Append()
        """
    verdict = judged(source)
    assert not verdict.unsolved and verdict.lines[0].came_out == "shape [0, 1, 4]"


def test_no_lines_are_no_pass() -> None:
    assert not Verdict(()).passed and Verdict((Line("one", True),)).passed


def test_nearly_right_means_within_the_step_of_a_number_of_eight_bits() -> None:
    case = ex03_append.Case(FIRST, ex03_append.draw(1)["cases"], {})
    want = np.array([0.0, 5000.5, -1.0, 0.0])
    for off, sentence in ((1 / 130, "something has rounded it"), (1 / 126, "does not compute")):
        assert sentence in case.source(0, "keys", 0, want, want * (1 + off))[1]


def test_what_was_not_checked_names_the_sizes_that_were() -> None:
    calls = [call for case in ex03_append.draw(1)["cases"].values() for call in case]
    layers = max(call["layer"] for call in calls) + 1
    heads = {call["k"].shape[0] for call in calls}
    assert (layers, heads) == (32, {1, 2, 3, 4, 8})
    assert ex03_append.NOT_CHECKED == (
        "speed, memory, more than one row, sizes other than those tried (1, 2, 3, 4 and 8 heads, up to 32 layers, "
        "up to 140 tokens, up to 40 at once, float32, float64, float16)"
    )


@pytest.mark.parametrize("body", ["return None", "x = 1", "print('here')", "if cache: raise NotImplementedError"])
def test_an_attempt_that_returns_nothing_is_no_starter(body: str) -> None:
    verdict = judged(f"def append(cache, layer, k, v):\n    {body}")
    assert verdict.unsolved == (body == "return None")  # the same bytecode as an empty body
    assert verdict.unsolved or "Did you forget `return`?" in verdict.lines[0].said


HOSTILE = {
    "an object that equals everything": """
        class Yes:
            shape, dtype = (2, 1, 4), "float32"
            def __eq__(self, other): return True
            def __ne__(self, other): return False
            def __array__(self, *a, **k): raise SystemExit
            def __getattr__(self, name): return self
            def __len__(self): return 1
            __class__ = __import__("numpy").ndarray
        def append(cache, layer, k, v): return Yes(), Yes()
        """,
    "arrays of a class that equals everything": """
        import numpy as np
        class Yes(np.ndarray):
            def __eq__(self, other): return np.ones(self.shape, bool)
            def __ne__(self, other): return np.zeros(self.shape, bool)
        def append(cache, layer, k, v): return np.zeros((2, 1, 4)).view(Yes), np.zeros((2, 1, 4)).view(Yes)
        """,
    "tensors of a class that equals everything": """
        import torch
        class Yes(torch.Tensor):
            @classmethod
            def __torch_function__(cls, *a, **k): return True
        def append(cache, layer, k, v): return k.as_subclass(Yes), v.as_subclass(Yes)
        """,
    "a comparison exchanged": """
        import numpy, torch
        for name in ("allclose", "array_equal", "isclose", "equal", "not_equal", "argwhere", "nonzero"):
            setattr(numpy, name, lambda *a, **k: True)
        for name in ("allclose", "equal", "isclose"):
            setattr(torch, name, lambda *a, **k: True)
        numpy.testing.assert_array_equal = numpy.testing.assert_allclose = lambda *a, **k: None
        def append(cache, layer, k, v): return k * 0, v * 0
        """,
    "our judge exchanged": """
        import sys
        for name, module in list(sys.modules.items()):
            if name.startswith("course_lib.checks"):
                for what in ("judge", "first_difference", "reference", "is_unsolved", "same", "plain", "as_plain"):
                    if hasattr(module, what): setattr(module, what, lambda *a, **k: None)
        def append(cache, layer, k, v): return k * 0, v * 0
        """,
    "our way of writing it down exchanged": """
        import sys
        run = sys.modules["course_lib.checks.runs.ex03_append"]
        run.as_plain = lambda value, which: "right"
        def append(cache, layer, k, v): return k * 0, v * 0
        """,
    "an answer that claims to have passed": """
        import sys
        run = sys.modules["course_lib.checks.runs.ex03_append"]
        run.case = lambda code, calls: {"passed": True, "calls": [{"keys": True, "values": True}] * len(calls)}
        def append(cache, layer, k, v): return k * 0, v * 0
        """,
    "not a number": "def append(cache, layer, k, v): return k * float('nan'), v * float('nan')",
    "arrays of objects": """
        import numpy as np
        def append(cache, layer, k, v): return np.full((2, 1, 4), None), np.full((2, 1, 4), None)
        """,
    "no entries at all": "def append(cache, layer, k, v): return k[:0], v[:0]",
    "one entry for all": "def append(cache, layer, k, v): return k[:1, :1, :1], v[:1, :1, :1]",
    "more than the memory holds": """
        def append(cache, layer, k, v): return k[:, :, :1].expand(2, 1, 10**12), v
        """,
    "an error whose message is an error": """
        class Bad(Exception):
            def __str__(self): raise SystemExit
        def append(cache, layer, k, v): raise Bad
        """,
    "an error that looks like a starter, once": """
        def append(cache, layer, k, v):
            if layer: raise NotImplementedError
            return k * 0, v * 0
        """,
}


SANDBOX = """
import sys
from pathlib import Path
import course_lib
from course_lib.checks.plain import pack, unpack
from course_lib.checks.runs.ex03_append import run

folder = Path(course_lib.__file__).parents[1]
assert folder == Path(sys.argv[1]), folder
try:
    import course_lib.checks.ex03_append
    raise SystemExit("the judge is here")
except ModuleNotFoundError:
    pass
inputs = unpack((folder / "inputs").read_bytes())
for source in sorted(folder.glob("*.source")):
    cell = {"__name__": "__main__"}
    exec(compile(source.read_text(), "<cell>", "exec"), cell)
    source.with_suffix(".outputs").write_bytes(pack(run(cell["append"], inputs)))
"""
GOES_IN = ("__init__.py", "checks/__init__.py", "checks/plain.py", "checks/beside.py", "checks/runs")


def in_another_process(folder: Path, sources: dict[str, str], seed: int) -> dict[str, Plain]:
    """What `run` wrote down about each source in a process that has neither judge nor reference."""
    package = Path(course_lib.__file__).parent
    for name in GOES_IN:
        source, target = package / name, folder / "course_lib" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    (folder / "inputs").write_bytes(pack(ex03_append.draw(seed)))
    for number, source in enumerate(sources.values()):
        (folder / f"{number}.source").write_text(dedent(source))
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SANDBOX, str(folder)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: unpack((folder / f"{number}.outputs").read_bytes()) for number, name in enumerate(sources)}


def test_run_works_in_a_process_without_judge_and_reference_and_is_judged_here(tmp_path: Path) -> None:
    wrong = {name: WRONG[name] for name in list(WRONG)[:8]}
    answers = in_another_process(tmp_path, RIGHT | {name: each.source for name, each in wrong.items()}, seed=7)
    verdicts = {name: ex03_append.judge(ex03_append.draw(7), outputs) for name, outputs in answers.items()}
    assert [name for name in RIGHT if not verdicts[name].passed] == []
    assert {name: failed(verdicts[name]) for name in wrong} == {name: each.fails for name, each in wrong.items()}


PATCHING = {name for name, source in HOSTILE.items() if "setattr" in source or "run." in source}
SHARED = "our judge exchanged"  # in a kernel that both share this works, and fools only whoever does it


def test_hostile_answers_from_another_process_do_not_pass(tmp_path: Path) -> None:
    sources = {name: source for name, source in HOSTILE.items() if name not in PATCHING}
    for name, outputs in in_another_process(tmp_path, sources, seed=3).items():
        verdict = ex03_append.judge(ex03_append.draw(3), outputs)
        assert not verdict.passed and not verdict.unsolved, name
        assert all(line.said for line in verdict.lines if not line.passed), name


@pytest.mark.parametrize("name", sorted(PATCHING))
def test_whoever_exchanges_our_parts_in_another_process_does_not_pass(name: str, tmp_path: Path) -> None:
    outputs = in_another_process(tmp_path, {name: HOSTILE[name]}, seed=3)[name]
    verdict = ex03_append.judge(ex03_append.draw(3), outputs)
    assert not verdict.passed and not verdict.unsolved


@pytest.mark.parametrize("name", sorted(set(HOSTILE) - PATCHING))
def test_hostile_answers_in_the_kernel_itself_do_not_pass_either(name: str) -> None:
    verdict = judged(HOSTILE[name])
    assert not verdict.passed and not verdict.unsolved
    assert all(line.said for line in verdict.lines if not line.passed)


@pytest.mark.parametrize("name", sorted(PATCHING - {SHARED}))
def test_whoever_exchanges_parts_in_the_kernel_itself_does_not_pass_either(name: str) -> None:
    program = f"""
        from variants import function, variants
        from course_lib.checks import ex03_append
        from course_lib.checks.contract import answer
        assert answer(ex03_append, function(variants("ex03.append").RIGHT["NumPy"]), 2).passed
        verdict = answer(ex03_append, function({HOSTILE[name]!r}), 3)
        assert not verdict.passed and not verdict.unsolved
        print("judged")
        """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", dedent(program)], env=environment, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("judged\n", 0), done.stderr


def forged() -> list[Any]:
    """Outputs that no `run` writes: of wrong types, too short, with other names, with a claim."""
    outputs: dict[str, Any] = ex03_append.run(function(RIGHT["NumPy"]), ex03_append.draw(5))
    one = outputs["cases"][FIRST]
    odd: list[Any] = [None, True, 1.5, "passed", [], {}, {"cases": []}, {"cases": {FIRST: one}}, {"passed": True}]
    for call in (None, [], {}, "x", {"keys": 1, "values": 1}, {"keys": np.zeros(()), "values": np.zeros((0,))}):
        odd.append({"cases": {name: {"calls": [call] * 9, "ended": None} for name in ALL}})
    for ended in (None, 3, {}, {"kind": "raised", "line": "x"}, {"kind": ["none"]}, {"kind": "raised", "type": 1.0}):
        odd.append({"starter": "yes", "cases": {name: {"calls": None, "ended": ended} for name in ALL}})
    array: Any = np.arange(3.0)
    unlike_a_line = {"kind": "raised", "type": "TypeError", "message": "an argument is missing", "line": array}
    for ended in ({"kind": array}, {"kind": "raised", "type": array}, unlike_a_line):
        odd.append({"starter": array, "cases": {name: {"calls": [], "ended": ended} for name in ALL}})
    return odd


FEW = (FIRST, "one token after another", CHUNK, EARLIER, INPUTS)


def few_inputs() -> dict[str, Any]:
    """Those of a few short cases: enough to forge answers to, many times."""
    drawn = ex03_append.draw(5)["cases"]
    return {"cases": {name: drawn[name] for name in FEW}}


def changed_answers() -> dict[str, tuple[set[str], Any]]:
    """Right outputs with one thing changed: what is changed → (the cases that have to fail, the outputs)."""
    outputs: dict[str, Any] = ex03_append.run(function(RIGHT["NumPy"]), few_inputs())
    changed: dict[str, tuple[set[str], Any]] = {}
    for case in FEW:
        for key in ("k", "v", "k_later", "v_later", "keys_later", "values_later"):
            about = EARLIER if key in ("keys_later", "values_later") else INPUTS
            for name, change in (("missing", None), ("NaN", np.nan), ("of another shape", 0)):
                forged: Any = unpack(pack(outputs))
                last = forged["cases"][case]["calls"][-1]
                kept = last.pop(key)
                if name != "missing":
                    last[key] = kept[:change] if change == 0 else kept * change
                changed[f"{key} {name} in {case}"] = ({about}, forged)
        for name, ended in (("raised", {"kind": "raised", "type": "E"}), ("none", {"kind": "none"}), ("true", True)):
            forged = unpack(pack(outputs))
            forged["cases"][case]["ended"] = ended
            changed[f"ended {name} in {case}"] = ({case}, forged)
        forged = unpack(pack(outputs))
        forged["cases"][case]["calls"].append(forged["cases"][case]["calls"][-1])
        changed[f"a call too many in {case}"] = ({case}, forged)
    return changed


def test_an_answer_with_one_thing_missing_or_changed_fails_in_the_case_of_that_thing() -> None:
    inputs = few_inputs()
    for name, (fails, outputs) in changed_answers().items():
        verdict = ex03_append.judge(inputs, outputs)
        assert failed(verdict) == fails, name
        assert all(said(line) for line in verdict.lines if not line.passed), name


@pytest.mark.filterwarnings("ignore:.*in cast:RuntimeWarning")  # of the random numbers themselves
def test_the_judge_takes_random_plain_data_in_random_places() -> None:
    rng, few = np.random.default_rng(11), few_inputs()
    honest = pack(ex03_append.run(function(RIGHT["NumPy"]), few))
    early = pack(ex03_append.run(function(WRONG["raises at the second call"].source), few))
    for number in range(1500):
        outputs: Any = unpack((honest, early)[number % 2])
        for _ in range(rng.integers(1, 4)):
            ways = places(outputs)
            *way, last = ways[rng.integers(len(ways))]
            reduce(getitem, way, outputs)[last] = some_plain_data(rng)
        verdict = ex03_append.judge(few, unpack(pack(outputs)))
        assert all(len(said(line)) < 2000 for line in verdict.lines)


@pytest.mark.parametrize("outputs", forged())
def test_the_judge_takes_any_outputs_and_passes_none_but_right_ones(outputs: Any) -> None:
    verdict = ex03_append.judge(ex03_append.draw(5), unpack(pack(outputs)))
    assert not verdict.passed
    assert all(isinstance(text, str) for line in verdict.lines for text in (line.said, line.came_out, line.where))


def test_numbers_of_any_size_are_judged_without_a_warning() -> None:
    source = changed(("return k, v", "return (k - k - 65504, v) if k.dtype == torch.half else (k, v)"))
    with np.errstate(all="raise"):
        verdict = judged(source)
    assert failed(verdict) == {PRECISION}


def test_the_judge_takes_the_outputs_of_its_own_inputs_only() -> None:
    outputs = ex03_append.run(function(RIGHT["NumPy"]), ex03_append.draw(5))
    assert ex03_append.judge(ex03_append.draw(5), outputs).passed
    assert failed(ex03_append.judge(ex03_append.draw(6), outputs)) == ALL


def test_inputs_are_plain_the_same_for_a_seed_and_other_for_another() -> None:
    assert pack(ex03_append.draw(4)) == pack(ex03_append.draw(4)) != pack(ex03_append.draw(5))
    for case in ex03_append.draw(4)["cases"].values():
        numbers = np.concatenate([call[which].ravel() for call in case for which in "kv"])
        assert len(set(numbers.tolist())) == len(numbers)  # so a wrong one can be traced


def test_the_reference_and_the_judge_use_nothing_of_the_librarys_caches() -> None:
    program = (
        "import sys, course_lib.checks.ex03_append\n"
        "print([name for name in sys.modules if name.startswith('course_lib.') and 'checks' not in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_what_is_too_much_to_compare_is_said() -> None:
    with pytest.raises(NotPlain, match="far more than what was asked for"):
        pack(np.broadcast_to(np.zeros(1), (10**6, 10**6)))
