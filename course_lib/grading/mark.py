"""Marks for one submission: its functions are called in a sandbox, and what comes out is judged here.

The one idea: a mark depends on nothing that a submission can reach. The tasks and their points are those of the
assignment, the inputs come from a secret, the judge sits on this side and reads plain data. Whatever happens on the way
becomes a sentence, and what works earns its points all the same.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.checks import check_named, exercise, file_stem
from course_lib.checks.contract import Check, Line, words
from course_lib.checks.plain import Plain
from course_lib.checks.ruled_out import ruled_out
from course_lib.grading.assignment import Assignment, Question, Task, role
from course_lib.grading.release import ANSWER_STUB
from course_lib.grading.sandbox import Limits, Sandbox
from course_lib.grading.submission import Cell, Submission, read_submission
from course_lib.grading.work import Work

MOST_NOTES = 60
UNREAD = re.compile(
    r"\braised ((?:Syntax|Indentation|Tab)Error)\b"
)  # what Python says of a text that is none of its own
MOST_WRITTEN = 20_000  # characters of a written answer


@dataclass(frozen=True)
class TaskMarks:
    """What a task earned; the judge's lines, and sentences about what else there is to know."""

    check: str
    title: str
    points: float
    earned: float
    lines: tuple[Line, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """A written answer, for a person to mark. `text` is empty if nothing was written."""

    cell: str
    title: str
    points: float
    text: str
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Marks:
    """All there is to say about one submission. `points` and `earned` are those of the tasks, without the written
    answers; `peak_bytes` is the most memory that was seen in use in the sandbox."""

    assignment: str
    submission: str
    tasks: tuple[TaskMarks, ...]
    answers: tuple[Answer, ...]
    notes: tuple[str, ...]
    seconds: float
    peak_bytes: int

    @property
    def points(self) -> float:
        return sum(task.points for task in self.tasks)

    @property
    def earned(self) -> float:
        return sum(task.earned for task in self.tasks)


def rules_of(assignment: Assignment) -> tuple[str, ...]:
    """The modules that any task of an assignment rules out: what its sandbox is made without."""
    return tuple(sorted({name for task in assignment.tasks for name in exercise(task.check).rules_out}))


def mark(
    path: Path,
    assignment: Assignment,
    key: bytes,
    limits: Limits | None = None,
    sandbox: Sandbox | None = None,
    name: str = "",
) -> Marks:
    """The marks of the file at `path`. The hidden inputs come from `key`, the `name` of the submission (that of the
    file if none is given) and what it says: the same file gets the same marks again, a changed one other inputs.

    `sandbox` should be made with `rules_of(assignment)`; without one, one is made for this submission. Raises NoSandbox
    if the machine has none, whatever the file is; nothing that a submission does raises anything.
    """
    if sandbox is None:
        with Sandbox(rules_of(assignment)) as own:
            return mark(path, assignment, key, limits, own, name)
    missing = set(rules_of(assignment)) - set(sandbox.rules_out)
    if missing or not key:
        raise ValueError(f"this sandbox does not rule out {', '.join(missing)}" if missing else "the key is empty")
    began = time.monotonic()
    name = name or path.stem
    submission = read_submission(path)
    for task in assignment.tasks:
        check_named(task.check)  # what a judge imports does not take a submission's time
    stems = [file_stem(task.check) for task in assignment.tasks]
    work = Work(submission.code, stems, sandbox, limits or Limits())
    try:
        tasks = tuple(
            marked(task, work, seed(key, assignment.name, task.check, name, submission)) for task in assignment.tasks
        )
    finally:
        work.close()
    notes = [*submission.notes, *about_cells(submission, assignment)]
    notes += forbidden_imports(rules_of(assignment), work)
    notes += [in_words(note, submission, assignment) for note in work.notes()]
    if len(notes) > MOST_NOTES:
        notes[MOST_NOTES:] = [f"… and {len(notes) - MOST_NOTES} more."]
    answers = tuple(written(question, submission) for question in assignment.questions)
    return Marks(assignment.name, name, tasks, answers, tuple(notes), time.monotonic() - began, work.peak_bytes)


def seed(key: bytes, assignment: str, check: str, name: str, submission: Submission) -> int:
    """Where the hidden inputs come from: whoever does not have the key can neither guess it nor know it from before."""
    about = json.dumps([assignment, check, name, submission.digest]).encode()
    return int.from_bytes(hmac.digest(key, about, hashlib.sha256)[:8])


def marked(task: Task, work: Work, seed: int) -> TaskMarks:
    """The marks of one task."""
    check = check_named(task.check)
    if not work.cells:
        return TaskMarks(task.check, task.title, task.points, 0.0, said=("There is no code in what was handed in.",))
    inputs = check.draw(seed)
    answer, said = work.task(file_stem(task.check), check.FUNCTION, inputs)
    earned, lines = 0.0, ()  # type: float, tuple[Line, ...]
    if "outputs" not in answer:
        said += why_not_judged(answer, check, work)
    elif from_elsewhere(answer, check, work):
        said.append(
            f"`{check.FUNCTION}` is from {words(answer['elsewhere'], 80)}; an answer must be defined in the notebook."
        )
    else:
        try:
            verdict = check.judge(inputs, answer["outputs"])
        except Exception as error:  # a defect of the judge; it costs nobody else anything
            said.append(f"What came back could not be judged ({type(error).__name__}). Please look at it yourself.")
        else:
            earned, lines = verdict.earned(task.points), verdict.lines
            if verdict.unsolved:
                said.append(f"Not solved yet: `{check.FUNCTION}` is still the starter.")
    return TaskMarks(task.check, task.title, task.points, earned, lines, tuple(dict.fromkeys(said)))


def forbidden_imports(rules: Sequence[str], work: Work) -> list[str]:
    """What cells import against the rules. None of it works in the sandbox; this says why, once for all tasks."""
    return [
        f"{work.cells[place]} imports {rule}, which this exercise rules out; where marks are given it does not exist."
        for place, names in sorted(work.imports.items())
        for rule in rules
        if any(ruled_out(name, [rule]) for name in names)
    ]


def from_elsewhere(answer: dict[str, Plain], check: Check, work: Work) -> bool:
    """Whether the function is one of a library, and no cell defines any of that name."""
    return bool(answer.get("elsewhere")) and not any(check.FUNCTION in names for names in work.defines.values())


def why_not_judged(answer: dict[str, Plain], check: Check, work: Work) -> list[str]:
    """Why there was nothing to judge, as far as the answer says; nothing if that has been said already."""
    if "no function" in answer:
        return [f"`{check.FUNCTION}` is {words(answer['no function'], 80)}, not a function."]
    if "missing" not in answer:
        return [] if not answer else [f"What came back from `{check.FUNCTION}` is no answer."]
    places = [place for place, names in sorted(work.defines.items()) if check.FUNCTION in names]
    said = f"`{check.FUNCTION}` was not defined."
    if not places:  # in a cell that Python cannot read nothing is defined
        begins = re.compile(rf"^[ \t]*(?:def|class) +{check.FUNCTION}\b", re.MULTILINE)
        places = [place for place, cell in enumerate(work.cells) if UNREAD.search(work.said.get(place, ""))]
        places = [place for place in places if begins.search(work.cells[place].source)]
        said = f"There is no `{check.FUNCTION}` in the notebook."
        if places and (kind := UNREAD.search(work.said[places[0]])):
            said = f"The cell that defines `{check.FUNCTION}` has {'an' if kind[1][0] == 'I' else 'a'} {kind[1]}."
    return [said] + [work.said[place] for place in places if work.said.get(place)]


def in_words(note: str, submission: Submission, assignment: Assignment) -> str:
    """A sentence about a cell, which is named by what it is if it is one with examples of a task."""
    number = re.match(r"Code cell (\d+) ", note)
    titles = {f"{task.cell}_examples": task.title for task in assignment.tasks if task.title}
    cells = [cell for cell in submission.code if number and cell.number == int(number[1])]
    if number and cells and (title := titles.get(cells[0].grade_id)):
        return f"The examples of “{title}” (code cell {number[1]}) {note[number.end() :]}"
    return note


def about_cells(submission: Submission, assignment: Assignment) -> list[str]:
    """Which cells of the assignment are missing, are there twice, or say other points than the assignment."""
    if not submission.cells:
        return []
    counts = Counter(cell.grade_id for cell in submission.cells)
    notes = []
    titles = {task.cell: task.title for task in assignment.tasks}
    titles |= {question.cell: question.title for question in assignment.questions}
    for grade_id, title in titles.items():
        cell_for = f"The cell for “{title or grade_id}”"
        if not counts[grade_id]:
            notes.append(f"{cell_for} is missing: deleted, or its metadata lost or changed.")
        elif counts[grade_id] > 1:
            notes.append(f"{cell_for} is there {counts[grade_id]} times.")
    points = {task.check_cell: task.points for task in assignment.tasks}
    points |= {question.cell: question.points for question in assignment.questions}
    for cell in submission.cells:
        if cell.points is not None and cell.grade_id in points and cell.points != points[cell.grade_id]:
            notes.append(f"The points of the cell {cell.grade_id} were changed in the file; the assignment's count.")
    return list(dict.fromkeys(notes))


def written(question: Question, submission: Submission) -> Answer:
    """What was written in answer to a question. If its cell is not there, all texts that belong to nothing else."""
    found, said = texts(cell for cell in submission.text if cell.grade_id == question.cell), []
    if not any(cell.grade_id == question.cell for cell in submission.text) and submission.text:
        found = texts(cell for cell in submission.text if not role(cell.grade_id)[1])
        said = ["Its cell is missing."] + ["This is what was found in cells without a name."] * bool(found)
    elif len(found) > 1:
        said = [f"This is the text of {len(found)} cells."]
    return Answer(question.cell, question.title, question.points, "\n\n".join(found), tuple(said))


def texts(cells: Iterable[Cell]) -> list[str]:
    """What stands in cells, as far as anybody wrote it, with nothing that commands a terminal."""
    stripped = [words(cell.source.strip().expandtabs(4), MOST_WRITTEN) for cell in cells]
    return [text for text in stripped if text and text != ANSWER_STUB]
