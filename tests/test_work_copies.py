"""A learner's copies follow the course, and nothing that the learner wrote is ever lost.

Every combination of what the course did, what the learner did and what became of the manifest is played through on real
folders, and once more with the update cut off at each of its writes.
"""

import itertools
import json
import os
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from course_lib.commands import output, work_copies
from course_lib.commands.places import find_original
from course_lib.commands.work_copies import MANIFEST, Action, Version, laid, update_copies

TODAY = date(2025, 11, 29)
NAME = "notebooks/02_prefill_and_decode.ipynb"
LEARNED = "my_answer = 42  # written by the learner"


def notebook(source: str, result: str = "", picture: str | None = None) -> bytes:
    """A notebook of two cells; `result` stands as an output, as after a run."""
    outputs = [v4.new_output("stream", text=result)] if result else []
    cell = v4.new_code_cell(source, outputs=outputs, execution_count=1 if result else None, id="code")
    text = v4.new_markdown_cell("# Title", id="text")
    if picture:
        text.attachments = {"picture.png": {"image/png": picture}}
    return (nbformat.writes(v4.new_notebook(cells=[text, cell])) + "\n").encode()


ORIGINAL = notebook("first version", "an answer")
LAID = notebook("first version")
COURSE_DOES = {
    "nothing": ORIGINAL,
    "a new run": notebook("first version", "built again"),
    "a new text": notebook("second version", "another answer"),
    "what the learner does": notebook(LEARNED, "another answer"),
}
LEARNER_DOES = {
    "nothing": LAID,
    "nothing, long ago": ORIGINAL,  # copies used to come with outputs
    "a run": notebook("first version", "0.123 s"),
    "an answer": notebook(LEARNED),
    "an answer and a run": notebook(LEARNED, "0.123 s"),
    "a pasted picture": notebook("first version", picture="aGVsbG8="),
    "damage": b"{half a notebook: " + LEARNED.encode(),
    "another format": b'{"cells": [{"cell_type": "code"}], "note": "' + LEARNED.encode() + b'"}',
    "a deletion": None,
}
MANIFEST_IS = {
    "whole": None,
    "missing": b"",
    "half": b'{"copies": {"notebooks/02_pre',
    "of another shape": b'{"copies": [1, 2]}',
    "of wrong entries": json.dumps({"copies": {NAME: "abc"}}).encode(),
    "of a time when originals were laid executed": json.dumps(
        {"copies": {NAME: asdict(Version.of(ORIGINAL))}}
    ).encode(),
}
WRITTEN = ("an answer", "an answer and a run", "a pasted picture", "damage", "another format")
EVERYTHING = list(itertools.product(COURSE_DOES, LEARNER_DOES, MANIFEST_IS))


class Play:
    """A course and a work folder, up to the moment when the course is updated."""

    def __init__(self, folder: Path, course: str, learner: str, manifest: str) -> None:
        self.root, self.work = folder / "course", folder / "work"
        self.original, self.copy = self.root / NAME, self.work / NAME
        self.original.parent.mkdir(parents=True)
        self.original.write_bytes(ORIGINAL)
        update_copies(self.root, self.work, TODAY)
        self.original.write_bytes(COURSE_DOES[course])
        self.laid = laid(COURSE_DOES[course])
        self.learned = LEARNER_DOES[learner]
        if self.learned is None:
            self.copy.unlink()
        else:
            self.copy.write_bytes(self.learned)
        damage = MANIFEST_IS[manifest]
        if damage is not None:
            (self.work / MANIFEST).write_bytes(damage)
        if damage == b"":
            (self.work / MANIFEST).unlink()

    def update(self) -> work_copies.Change:
        (change,) = update_copies(self.root, self.work, TODAY)
        return change

    def contents(self) -> dict[str, bytes]:
        files = sorted(path for path in self.work.rglob("*") if path.is_file())
        return {path.relative_to(self.work).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(("course", "learner", "manifest"), EVERYTHING)
def test_nothing_that_a_learner_made_is_lost(tmp_path: Path, course: str, learner: str, manifest: str) -> None:
    play = Play(tmp_path, course, learner, manifest)
    change = play.update()
    files = play.contents()

    if learner in WRITTEN:
        assert play.copy.read_bytes() == play.learned, "a copy that the learner wrote in stays where it was"
    if learner == "a run":
        assert play.learned in files.values(), "the outputs of a run are kept somewhere"
    if learner == "a deletion":
        assert play.copy.read_bytes() == play.laid
    if course == "a new text":
        assert play.laid in files.values(), "the new version is there to read"
    made = (play.learned, (play.work / MANIFEST).read_bytes())
    assert all(b'"outputs": []' in data for data in files.values() if data not in made), "no answer is given away"
    assert not [name for name in files if output.TEMPORARY in name]

    before = play.contents()
    assert play.update().action is Action.KEEP, "a second update finds nothing to do"
    assert play.contents() == before
    assert "\n" not in change.line
    assert change.line or change.action in (Action.KEEP, Action.COPY), "what became of a copy is said"


@pytest.mark.parametrize(
    ("course", "learner", "action"),
    [
        ("nothing", "nothing", Action.KEEP),
        ("nothing", "a run", Action.KEEP),
        ("nothing", "an answer", Action.KEEP),
        ("nothing", "a deletion", Action.COPY),
        ("a new run", "nothing", Action.KEEP),
        ("a new run", "nothing, long ago", Action.KEEP),
        ("a new text", "nothing, long ago", Action.REPLACE),
        ("a new run", "a run", Action.KEEP),
        ("a new run", "an answer", Action.KEEP),
        ("a new text", "nothing", Action.REPLACE),
        ("a new text", "a run", Action.REPLACE),
        ("a new text", "an answer", Action.BESIDE),
        ("a new text", "a pasted picture", Action.BESIDE),
        ("a new text", "damage", Action.BESIDE),
        ("a new text", "a deletion", Action.COPY),
        ("what the learner does", "an answer and a run", Action.KEEP),
    ],
)
def test_each_case_is_met_in_the_way_that_the_help_describes(
    tmp_path: Path, course: str, learner: str, action: Action
) -> None:
    play = Play(tmp_path, course, learner, "whole")
    assert play.update().action is action
    if action is Action.REPLACE:
        assert play.copy.read_bytes() == play.laid


def test_copy_from_when_originals_were_laid_executed_is_cleared_unless_it_was_used(tmp_path: Path) -> None:
    for learner, action in (("nothing, long ago", Action.REPLACE), ("a run", Action.KEEP), ("an answer", Action.KEEP)):
        play = Play(tmp_path / learner, "nothing", learner, "of a time when originals were laid executed")
        assert play.update().action is action
        assert play.copy.read_bytes() == (LAID if action is Action.REPLACE else play.learned)
        assert set(play.contents()) == {NAME, MANIFEST}


def test_what_is_laid_is_the_original_but_for_what_running_it_left() -> None:
    original = v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "x"}, "widgets": {"state": "an answer"}},
        cells=[
            v4.new_markdown_cell("# Zürich", attachments={"picture.png": {"image/png": "aGVsbG8="}}),
            v4.new_code_cell(
                "1 + 1", execution_count=7, outputs=[v4.new_output("stream", text="2")],
                metadata={"tags": ["nbval-ignore-output"], "execution": {"iopub.execute_input": "2026"}},
            ),
            v4.new_raw_cell("raw"),
        ],
    )  # fmt: skip
    data = nbformat.writes(original).encode()
    bare = laid(data)
    del original.metadata["widgets"], original.cells[1].metadata["execution"]
    original.cells[1].update(outputs=[], execution_count=None)
    found = nbformat.reads(bare.decode(), as_version=4)
    nbformat.validate(found)
    assert found == original
    assert bare == (nbformat.writes(original) + "\n").encode(), "as Jupyter writes it"
    assert laid(bare) == bare == laid(json.dumps(json.loads(data)).encode()), "the layout of the file plays no part"


def test_what_is_no_notebook_is_laid_as_it_is() -> None:
    cell = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": [1]}
    strange: list[object] = [
        {"cells": [cell]}, {"cells": [cell], "nbformat": 3, "metadata": {}}, {"cells": [cell], "nbformat": 4},
        {"cells": [{**cell, "metadata": None}], "nbformat": 4, "metadata": {}}, {"cells": [1]}, [1], "text",
        {"cells": [{**cell, "source": "\ud800"}], "nbformat": 4, "metadata": {}},
    ]  # fmt: skip
    for data in (b"", b"\x89PNG", b"{", b"[" * 100_000, *(json.dumps(item).encode() for item in strange)):
        assert laid(data) == data


def test_committed_notebooks_are_laid_without_outputs_and_otherwise_whole() -> None:
    paths = sorted(Path(__file__).parents[1].glob("notebooks/*.ipynb"))
    assert paths
    for path in paths:
        original = nbformat.read(path, as_version=4)
        copy = nbformat.reads(laid(path.read_bytes()).decode(), as_version=4)
        assert [(c.id, c.source, c.metadata) for c in copy.cells] == [
            (c.id, c.source, c.metadata) for c in original.cells
        ]
        assert copy.metadata == original.metadata
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in copy.cells)


def test_every_exercise_is_copied_as_it_was_released_and_a_word_like_ex03_means_it(tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    update_copies(root, tmp_path)
    paths = sorted(root.glob("exercises/*/*.ipynb"))
    assert len(paths) >= 5
    for path in paths:
        assert find_original(path.stem.split("_")[0], root) == path
        assert (tmp_path / path.relative_to(root)).read_bytes() == path.read_bytes()


def test_new_version_lies_beside_an_answer_and_one_line_says_so(tmp_path: Path) -> None:
    play = Play(tmp_path, "a new text", "an answer", "whole")
    change = play.update()
    beside = play.copy.with_name("02_prefill_and_decode.new-2025-11-29.ipynb")
    assert beside.read_bytes() == play.laid
    assert beside.name in change.line and "\n" not in change.line
    # A learner may work in that file as well; the next version on the same day does not touch it.
    beside.write_bytes(notebook("the learner works on in the new version"))
    play.original.write_bytes(notebook("third version"))
    play.update()
    assert beside.read_bytes() == notebook("the learner works on in the new version")
    second = play.copy.with_name("02_prefill_and_decode.new-2025-11-29-2.ipynb")
    assert second.read_bytes() == notebook("third version")
    assert play.copy.read_bytes() == play.learned


def test_copy_that_was_only_run_is_renewed_and_the_run_is_kept(tmp_path: Path) -> None:
    play = Play(tmp_path, "a new text", "a run", "whole")
    change = play.update()
    kept = play.work / ".old/notebooks/02_prefill_and_decode.2025-11-29.ipynb"
    assert play.copy.read_bytes() == play.laid
    assert kept.read_bytes() == play.learned
    assert ".old/notebooks/02_prefill_and_decode.2025-11-29.ipynb" in change.line


def test_copy_that_was_never_touched_is_renewed_without_a_remainder(tmp_path: Path) -> None:
    play = Play(tmp_path, "a new text", "nothing", "whole")
    play.update()
    assert set(play.contents()) == {NAME, MANIFEST}


def test_what_is_saved_while_the_copy_is_being_renewed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play = Play(tmp_path, "a new text", "nothing", "whole")
    decide = work_copies.decide

    def decide_and_then_jupyter_saves(*versions: Version) -> Action:
        action = decide(*versions)
        play.copy.write_bytes(notebook(LEARNED))
        return action

    monkeypatch.setattr(work_copies, "decide", decide_and_then_jupyter_saves)
    play.update()
    assert notebook(LEARNED) in play.contents().values()


@pytest.mark.parametrize("learner", ["nothing", "a run", "an answer", "a deletion"])
def test_update_that_is_broken_off_loses_nothing_and_the_next_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, learner: str
) -> None:
    for broken_off_at in itertools.count():
        play = Play(tmp_path / str(broken_off_at), "a new text", learner, "whole")
        steps = itertools.count()

        def breaking(method, at=broken_off_at, steps=steps):  # type: ignore[no-untyped-def]
            def step(self, *arguments, **options):  # type: ignore[no-untyped-def]
                if next(steps) == at:
                    raise KeyboardInterrupt
                return method(self, *arguments, **options)

            return step

        with monkeypatch.context() as patched:
            for name in ("open", "replace", "mkdir", "unlink"):  # whatever changes the folder goes through one of these
                patched.setattr(Path, name, breaking(getattr(Path, name)))
            try:
                play.update()
                completed = True
            except KeyboardInterrupt:
                completed = False
        made = play.learned if learner in ("a run", "an answer") else None
        whole = {LAID, play.laid, play.learned}
        files = play.contents()
        assert made is None or made in files.values()
        assert {data for name, data in files.items() if name != MANIFEST and output.TEMPORARY not in name} <= whole
        play.update()
        files = play.contents()
        assert made is None or made in files.values()
        assert play.laid in files.values()
        if completed:
            assert broken_off_at > 8, "it was broken off at each of its steps"
            return


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on file size stands for a full disk")
@pytest.mark.parametrize("learner", ["nothing", "a run", "an answer", "a deletion"])
def test_full_disk_leaves_no_half_file(tmp_path: Path, learner: str) -> None:
    import resource

    play = Play(tmp_path, "a new text", learner, "whole")
    play.original.write_bytes(notebook("a long text " * 10_000))
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, usual[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            play.update()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    files = play.contents()
    assert {data for name, data in files.items() if name != MANIFEST} <= {LAID, play.learned}
    if learner in ("a run", "an answer"):
        assert play.learned in files.values()
    play.update()
    assert laid(play.original.read_bytes()) in play.contents().values()


def test_half_a_file_of_a_killed_run_is_removed_later(tmp_path: Path) -> None:
    play = Play(tmp_path, "nothing", "nothing", "whole")
    old, young = (play.copy.with_name(output.TEMPORARY + name) for name in ("old", "young"))
    for left in (old, young):
        left.write_bytes(b"half")
    os.utime(old, (0, 0))
    play.update()
    assert not old.exists()
    assert young.exists(), "it may belong to an update that runs at the same time"


def test_pictures_and_exercises_are_copied_hidden_files_are_not(tmp_path: Path) -> None:
    root, work = tmp_path / "course", tmp_path / "deep/work"
    for name in ("notebooks/figures/cache.png", "exercises/03.ipynb", "notebooks/.ipynb_checkpoints/00.ipynb"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x")
    (root / "other.txt").write_bytes(b"x")
    changes = update_copies(root, work)
    assert [change.name for change in changes] == ["exercises/03.ipynb", "notebooks/figures/cache.png"]
    assert {path.relative_to(work).as_posix() for path in work.rglob("*") if path.is_file()} == {
        "exercises/03.ipynb", "notebooks/figures/cache.png", MANIFEST,
    }  # fmt: skip


def test_learners_own_files_are_left_alone(tmp_path: Path) -> None:
    play = Play(tmp_path, "a new text", "an answer", "whole")
    own = play.work / "notebooks/my notes.ipynb"
    own.write_bytes(b"mine")
    play.original.unlink()  # the course drops a notebook
    assert update_copies(play.root, play.work, TODAY) == []
    assert (own.read_bytes(), play.copy.read_bytes()) == (b"mine", play.learned)
