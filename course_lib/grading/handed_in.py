"""What a class handed in: whose it is, and which notebook of each student is to be marked.

The one idea: a folder is full of surprises, and none of them is passed over in silence. Links are not followed, so
nothing outside is ever read. Of two notebooks one is taken by a rule, and a sentence says which. What cannot be read
is told to a person, since it is not worth 0 points.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from course_lib.grading.sheets import one_line
from course_lib.grading.submission import Unreadable, cells_of, content, parsed

MOST_FILES = 5_000  # that are looked at in the folder of one student
DEEPEST = 8  # folders in each other
MOST_LOOKED_AT, MOST_OF_STUDENT = 16 << 20, 64 << 20  # bytes, to find out which assignment files are of
MOST_NAMED = 5
NOISE = ("__MACOSX", "__pycache__")
COPY = r"(-Copy\d+| ?\(\d+\)| copy( \d+)?|_\d+|\.new-[\d-]+)?"  # what is added to a name that is taken
GRADE_ID = re.compile(rb'"grade_id"\s*+:\s*+"(ex\d\d)(?=[_"])')
CALLS = [re.compile(name + rb"""\(\s*+(?:\\?"|')(ex\d\d)\.""") for name in (b"points", b"check", b"hint")]
PLAIN = re.compile(r"(?=.{1,64}$)(?!.*, *[+@-])[\w(][\w .,()@+-]*(?<![. ])")
RESERVED = {"CON", "PRN", "AUX", "NUL", *(f"{name}{digit}" for name in ("COM", "LPT") for digit in "0123456789")}


@dataclass(frozen=True)
class HandedIn:
    """What one student handed in. `path` is the notebook to be marked, and `digest` that of its bytes.

    Without a path there is nothing to mark; `trouble` says so if the reason is that it cannot be read. What is not a
    notebook gets no points, but a person should ask for it again, as `not_a_notebook` says.
    """

    student: str
    path: Path | None = None
    digest: str = ""
    said: tuple[str, ...] = ()
    trouble: str = ""
    not_a_notebook: str = ""


@dataclass(frozen=True)
class Notebook:
    """A notebook that was found: `says` is the name of the assignment that it is of, as far as it says that."""

    path: Path
    where: str  # for a reader, from the folder of the class on
    says: str
    modified: float


@dataclass
class Folder:
    """All that was found of one student."""

    notebooks: list[Notebook] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # files that are not notebooks
    files: int = 0
    looked_at: int = 0  # bytes


class Class:
    """All that lies at some paths. `known` are the names of assignments; what is in the folder `but` is left out.

    Raises OSError if one of the paths cannot be read; what cannot be read below them is a trouble of that student.
    """

    def __init__(self, paths: Sequence[Path], known: Sequence[str], but: Path | None = None) -> None:
        self.known, self.but = known, but.resolve() if but else None
        self.students: dict[str, Folder] = {}
        self.ignored: list[str] = []  # what lies beside the students' folders
        for path in dict.fromkeys(each.resolve() for each in paths):
            if path.is_file():
                self.add_notebook(self.student(owner(path, known)), path, path.name)
            else:
                self.add_class(path)

        self.students = called_alike_on_all_systems(self.students)

    def student(self, name: str) -> Folder:
        return self.students.setdefault(name, Folder())

    def add_class(self, top: Path) -> None:
        """A folder with one folder or one notebook for each student; or the folder of one student."""
        entries, own = self.entries(top), []
        for entry in list(entries):
            stem = os.path.splitext(entry.name)[0] if is_notebook(entry.name) else entry.name
            if is_called(stem, self.known):  # of nobody, unless there is nobody else
                own.append(entry)
                entries.remove(entry)
            elif not (entry.is_symlink() or entry.is_dir() or is_notebook(entry.name)):
                self.ignored.append(one_line(entry.name))
                entries.remove(entry)
        alone = own and not any(is_notebook(entry.name) or entry.is_dir(follow_symlinks=False) for entry in entries)
        if alone:
            self.add_folder(self.student(owner(Path(own[0].path), self.known)), top, "")
            return
        self.ignored += [one_line(entry.name) for entry in own]
        for entry in entries:
            stem = os.path.splitext(entry.name)[0] if is_notebook(entry.name) else entry.name
            if entry.is_dir(follow_symlinks=False):
                self.add_folder(self.student(entry.name), Path(entry.path), entry.name)
            else:
                self.add_entry(self.student(stem), entry, entry.name)

    def add_folder(self, student: Folder, folder: Path, where: str, depth: int = 1) -> None:
        """All notebooks in the folder of a student, however deep."""
        if student.files > MOST_FILES:
            return
        try:
            entries = self.entries(folder, MOST_FILES - student.files)
        except OSError as error:
            student.troubles.append(f"{one_line(where or folder.name)} cannot be read: {error.strerror}")
            return
        student.files += len(entries)
        if student.files > MOST_FILES:
            student.troubles.append(f"There are more than {MOST_FILES:,} files; not all were looked at")
            return
        for entry in entries:
            place = f"{where}/{entry.name}".lstrip("/")
            if not entry.is_dir(follow_symlinks=False):
                self.add_entry(student, entry, place)
            elif depth < DEEPEST:
                self.add_folder(student, Path(entry.path), place, depth + 1)
            else:
                student.troubles.append(f"{one_line(place)} lies too deep and was not looked at")

    def add_entry(self, student: Folder, entry: os.DirEntry[str], where: str) -> None:
        """Something in the folder of a student that is no folder."""
        if entry.is_symlink():
            student.troubles.append(f"{one_line(where)} is a link; links are not followed")
        elif is_notebook(entry.name):
            self.add_notebook(student, Path(entry.path), where)
        else:
            student.others.append(one_line(entry.name))

    def entries(self, folder: Path, most: int | None = None) -> list[os.DirEntry[str]]:
        """What is in a folder, in order, without what is hidden and without results; not many more than `most`."""
        with os.scandir(folder) as found:
            entries = sorted(islice(found, None if most is None else most + 1), key=lambda each: each.name)
        return [each for each in entries if is_shown(each.name) and Path(each.path) != self.but]

    def add_notebook(self, student: Folder, path: Path, where: str) -> None:
        where = one_line(where)
        try:
            state = path.lstat()
            if not stat.S_ISREG(state.st_mode):
                student.troubles.append(f"{where} is no file")
                return
            with path.open("rb") as file:
                begin = file.read(max(1, min(MOST_LOOKED_AT, MOST_OF_STUDENT - student.looked_at)))
        except OSError as error:
            student.troubles.append(f"{where} cannot be read: {error.strerror}")
            return
        if student.looked_at < MOST_OF_STUDENT <= student.looked_at + len(begin):
            said = f"There are more than {MOST_OF_STUDENT >> 20} MB; what the rest is of was told by names alone"
            student.troubles.append(said)
        student.looked_at += len(begin)
        student.notebooks.append(Notebook(path, where, self.says(begin, path), state.st_mtime))

    def says(self, begin: bytes, path: Path) -> str:
        """The assignment that a notebook is of: by how its cells begin, else by the names of the file and of its
        folders. Nothing is parsed for that."""
        numbers = {name.partition("_")[0]: name for name in self.known}
        if (encoding := json.detect_encoding(begin)) != "utf-8":
            begin = begin.decode(encoding, "replace").encode("utf-8", "replace")
        for patterns in ([GRADE_ID], CALLS):
            if counted := Counter(found for pattern in patterns for found in pattern.findall(begin)).most_common(1):
                number = counted[0][0].decode()
                return numbers.get(number, number)
        for part in (path.stem, *reversed(path.parts[-1 - DEEPEST : -1])):
            if (number := part[:4]) in numbers and not part[4:5].isdigit():
                return numbers[number]
        return ""

    def assignments(self) -> Counter[str]:
        """Of which known assignments there are notebooks, and of how many students."""
        said = ({each.says for each in folder.notebooks} & {*self.known} for folder in self.students.values())
        return Counter(name for names in said for name in sorted(names))

    def handed_in(self, assignment: str, names: Mapping[str, object]) -> list[HandedIn]:
        """One entry for each student, in order: those that were found, and those who are only in the list `names`."""
        for file in [each for each in self.ignored if not is_notebook(each)]:
            stem = unicodedata.normalize("NFC", os.path.splitext(file)[0])
            if stem in names:  # ivy.pdf beside the notebooks of others is what ivy handed in
                self.student(stem).others.append(file)
                self.ignored.remove(file)
        everybody = sorted({*self.students, *names}, key=lambda name: (name.casefold(), name))
        return [chosen(name, self.students.get(name, Folder()), assignment) for name in everybody]


def chosen(student: str, folder: Folder, assignment: str) -> HandedIn:
    """The notebook to be marked: one with the name of the assignment before others, a newer one before older ones."""
    own = [each for each in folder.notebooks if each.says == assignment]
    own = own or [each for each in folder.notebooks if not each.says]
    troubles = [f"{said}." for said in folder.troubles[:MOST_NAMED]]
    if own:
        best = max(own, key=lambda each: (each.path.stem == assignment, each.modified, each.where))
        others = sorted(each.where for each in own if each is not best)
        if others:
            why = "it has the name of the assignment" if best.path.stem == assignment else "it is the newest"
            troubles.append(f"Of {len(own)} notebooks {best.where} was marked: {why}. Not marked: {listed(others)}.")
        digest, why = examined(best.path)
        ask = asked_again(best.where, why) if why else ""
        return HandedIn(student, best.path, digest, tuple(troubles), not_a_notebook=ask)
    if troubles:
        return HandedIn(student, trouble=" ".join(troubles))
    if folder.notebooks:
        said = f"There are only notebooks of other assignments: {listed([each.where for each in folder.notebooks])}."
        return HandedIn(student, said=(said,))
    if folder.others:
        return HandedIn(student, not_a_notebook=asked_again(listed(folder.others)))
    return HandedIn(student, said=("Nothing was handed in.",))


def examined(path: Path) -> tuple[str, str]:
    """The digest of the one file of a student that is to be marked, and why it is not a notebook after all."""
    raw, why = b"", ""
    try:
        raw = content(path)
        cells_of(parsed(raw))
    except Unreadable as reason:  # that is marked, too
        why = str(reason).replace("the notebook has", "it has").rpartition("not a notebook: ")[2]
    return hashlib.sha256(raw or why.encode()).hexdigest(), why


def asked_again(files: str, why: str = "") -> str:
    """What to do about files that are not notebooks."""
    return f"{files} is not a notebook: ask for it again" + (f" ({why})." if why else ".")


def called_alike_on_all_systems(students: Mapping[str, Folder]) -> dict[str, Folder]:
    """Students by their names in one form of Unicode. Names that differ in their form alone stay two: whether one
    person or two handed that in, a person has to find out."""
    alike = Counter(unicodedata.normalize("NFC", name) for name in students)
    named = {}
    for name, folder in students.items():
        plain = unicodedata.normalize("NFC", name)
        if alike[plain] > 1:
            folder.troubles.append(f"Something else has this name with other signs of Unicode; this is {name!a}")
        named[plain if alike[plain] == 1 else name] = folder
    return named


def is_notebook(name: str) -> bool:
    return name.lower().endswith(".ipynb")


def is_shown(name: str) -> bool:
    return not name.startswith(".") and name not in NOISE


def is_called(stem: str, known: Sequence[str]) -> bool:
    """Whether something is called as an assignment (ex03, ex03_kv_cache), or is a copy of that."""
    return any(name.partition("_")[0] == stem or re.fullmatch(re.escape(name) + COPY, stem) for name in known)


def owner(path: Path, known: Sequence[str]) -> str:
    """Whose a single notebook is: called as the file, or as the first folder above it that is no assignment's."""
    names = [path.stem, *(part.name for part in path.parents if part.name)]
    return next((name for name in names if not is_called(name, known)), path.stem)


def listed(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def label(student: str) -> str:
    """A name for a student that is safe in tables and as the name of a file on any system, another one for everybody.

    Usually that is the name itself; one with odd characters gets a digest, as no plain name has it.
    """
    plain = PLAIN.fullmatch(student) and unicodedata.is_normalized("NFC", student)
    if plain and student.partition(".")[0].upper() not in RESERVED:
        return student
    return f"{re.sub(r'[^A-Za-z0-9-]+', '_', student)[:40].lstrip('-') or '_'}~{mark_of(student)}"


def file_names(students: Sequence[str]) -> dict[str, str]:
    """The name of each student's files without the ending: also apart where upper and lower case are the same."""
    labels = {student: label(student) for student in students}
    counts = Counter(each.casefold() for each in labels.values())
    return {
        student: each if counts[each.casefold()] == 1 or "~" in each else f"{each}~{mark_of(student)}"
        for student, each in labels.items()
    }


def mark_of(student: str) -> str:
    return hashlib.sha256(student.encode("utf-8", "surrogatepass")).hexdigest()[:12]
