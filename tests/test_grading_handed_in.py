"""Whose notebooks lie in a folder, and which of them is marked; the list of a class as spreadsheets save it."""

import json
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from small_assignment import RIGHT, code, notebook, text

from course_lib.grading.handed_in import Class, HandedIn, file_names, label
from course_lib.grading.sheets import BadSheet, class_list

NAME = "ex99_small"
KNOWN = (NAME, "ex98_other")


def lay(folder: Path, *places: str, made: Any = None) -> Path:
    """A folder with notebooks at some places, each newer than the one before."""
    for number, place in enumerate(places):
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made or notebook(RIGHT)))
        os.utime(path, (number, number))
    return folder


def found(*paths: Path, but: Path | None = None, names: Any = ()) -> dict[str, HandedIn]:
    handed_in = Class(paths, KNOWN, but).handed_in(NAME, dict.fromkeys(names))
    return {each.student: each for each in handed_in}


def taken(found: dict[str, HandedIn], folder: Path) -> dict[str, str]:
    return {name: each.path.relative_to(folder).as_posix() if each.path else "" for name, each in found.items()}


@pytest.mark.parametrize(
    "places",
    [
        {"ada": "ada.ipynb", "Bob B": "Bob B.ipynb"},
        {"ada": "ada/ex99_small.ipynb", "Bob B": "Bob B/work/mine.ipynb"},
        {"ada": "ada/ex99_small/ex99_small.ipynb", "Bob B": "Bob B/ex99_small/ex99_small.IPYNB"},
        {"ada": "ada.ipynb", "Bob B": "Bob B/ex99_small-Copy1.ipynb"},
    ],
    ids=["files", "folders", "nbgrader", "both"],
)
def test_a_class_has_a_notebook_or_a_folder_for_each_student(places: dict[str, str], tmp_path: Path) -> None:
    lay(tmp_path, *places.values(), "ada/.ipynb_checkpoints/ex99_small-checkpoint.ipynb")
    if "ada.ipynb" in places.values():
        os.rename(tmp_path / "ada", tmp_path / ".ada")
    came = found(tmp_path)
    assert taken(came, tmp_path) == places
    assert not any(each.said or each.trouble for each in came.values())


@pytest.mark.parametrize("path", ["ada/ex99_small.ipynb", "ada/ex99/ex99_small.ipynb", "ada/ex99_small (2).ipynb"])
def test_the_folder_of_one_student_and_one_notebook_are_that_students(path: str, tmp_path: Path) -> None:
    lay(tmp_path, path)
    assert taken(found(tmp_path / "ada"), tmp_path) == taken(found(tmp_path / path), tmp_path) == {"ada": path}
    lay(tmp_path, "bob/ex99_small.ipynb")
    assert taken(found(tmp_path / "bob", tmp_path / "ada"), tmp_path) == {"ada": path, "bob": "bob/ex99_small.ipynb"}


def test_a_new_version_that_was_laid_beside_a_learners_file_is_nobodys_work(tmp_path: Path) -> None:
    lay(tmp_path, "ex99_small/ex99_small.ipynb", "ex99_small/ex99_small.new-2026-10-02.ipynb")
    for folder in (tmp_path, tmp_path / "ex99_small"):
        (each,) = found(folder).values()
        assert each.path == tmp_path / "ex99_small/ex99_small.ipynb"


def test_what_lies_beside_the_students_is_nobodys(tmp_path: Path) -> None:
    lay(tmp_path, "ex99_small.ipynb", "ada.ipynb", "grades/feedback/x.ipynb")
    (tmp_path / "class.csv").write_text("student,name")
    looked = Class([tmp_path], KNOWN, tmp_path / "grades")
    assert list(looked.students) == ["ada"] and looked.ignored == ["class.csv", "ex99_small.ipynb"]


def test_of_two_notebooks_the_right_name_counts_before_the_newest_and_a_sentence_says_so(tmp_path: Path) -> None:
    lay(tmp_path, "ada/ex99_small.ipynb", "ada/z.ipynb", "bob/old.ipynb", "bob/new.ipynb", "bob/a/mid.ipynb")
    os.utime(tmp_path / "bob/a/mid.ipynb", (1, 1))
    came = found(tmp_path)
    assert taken(came, tmp_path) == {"ada": "ada/ex99_small.ipynb", "bob": "bob/new.ipynb"}
    assert came["ada"].said == (
        "Of 2 notebooks ada/ex99_small.ipynb was marked: it has the name of the assignment. Not marked: ada/z.ipynb.",
    )
    assert came["bob"].said == (
        "Of 3 notebooks bob/new.ipynb was marked: it is the newest. Not marked: bob/a/mid.ipynb, bob/old.ipynb.",
    )


def other(number: str) -> dict[str, Any]:
    return json.loads(json.dumps(notebook(RIGHT)).replace("ex99", number))


def test_notebooks_of_other_assignments_are_not_marked_as_this_one(tmp_path: Path) -> None:
    lay(tmp_path, "ada/a.ipynb", "bob/ex99_small.ipynb", made=other("ex98"))
    lay(tmp_path, "ada/b.ipynb")
    looked = Class([tmp_path], KNOWN)
    assert looked.assignments() == {"ex98_other": 2, NAME: 1}
    came = found(tmp_path)
    assert taken(came, tmp_path) == {"ada": "ada/b.ipynb", "bob": ""} and not came["ada"].said
    assert came["bob"].said == ("There are only notebooks of other assignments: bob/ex99_small.ipynb.",)
    assert not came["bob"].trouble


@pytest.mark.parametrize(
    ("made", "name", "says"),
    [
        (notebook(RIGHT), "ex98_other.ipynb", NAME),
        ({"cells": [text('`hint("ex98.x")`')], "nbformat": 4}, "ex99_small.ipynb", "ex98_other"),
        ({"cells": [code(RIGHT)], "nbformat": 4}, "my_ex99.ipynb", "ex98_other"),
        ({"cells": [code(RIGHT)], "nbformat": 4}, "ex99-final.ipynb", NAME),
        ({"cells": [code(RIGHT)], "nbformat": 4}, "ex991.ipynb", "ex98_other"),
        (other("ex97"), "ex99_small.ipynb", ""),
        ("no notebook", "ex99.ipynb", NAME),
    ],
)
def test_a_notebook_says_which_it_is_by_its_cells_before_its_name(
    made: Any, name: str, says: str, tmp_path: Path
) -> None:
    lay(tmp_path, f"ada/ex98/{name}", made=made)
    assert list(Class([tmp_path], KNOWN).assignments()) == [says] * bool(says)


def test_nothing_handed_in_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "bob").mkdir()
    (tmp_path / "bob" / "answer.py").write_text(RIGHT)
    came = found(tmp_path, names=("ada", "cy"))
    assert {name: (each.said, each.path, each.trouble, each.not_a_notebook) for name, each in came.items()} == {
        "ada": (("Nothing was handed in.",), None, "", ""),
        "bob": ((), None, "", "answer.py is not a notebook: ask for it again."),
        "cy": (("Nothing was handed in.",), None, "", ""),
    }


def test_a_file_beside_the_notebooks_is_of_whom_it_is_called_after(tmp_path: Path) -> None:
    lay(tmp_path, "ada.ipynb")
    for name in ("ivy.pdf", "notes.txt"):
        (tmp_path / name).write_bytes(b"%PDF")
    looked = Class([tmp_path], KNOWN)
    assert looked.ignored == ["ivy.pdf", "notes.txt"]
    came = {each.student: each for each in looked.handed_in(NAME, {"ivy": 0})}
    assert came["ivy"].not_a_notebook == "ivy.pdf is not a notebook: ask for it again." and not came["ivy"].said
    assert looked.ignored == ["notes.txt"] and sorted(came) == ["ada", "ivy"]


def test_no_link_is_followed(tmp_path: Path) -> None:
    secret = lay(tmp_path / "outside", "solution.ipynb")
    lay(tmp_path / "class", "ada/ex99_small.ipynb", "bob/x")
    links = {"ada/more": secret, "bob/y.ipynb": secret / "solution.ipynb", "bob/gone.ipynb": "nowhere", "cy": secret}
    for place, target in (links | {"dot.ipynb": secret / "solution.ipynb", "eve": ".."}).items():
        (tmp_path / "class" / place).symlink_to(target)
    came = found(tmp_path / "class")
    assert taken(came, tmp_path / "class") == {
        "ada": "ada/ex99_small.ipynb", "bob": "", "cy": "", "dot": "", "eve": ""
    }  # fmt: skip
    assert came["ada"].said == ("ada/more is a link; links are not followed.",) and came["ada"].trouble == ""
    assert came["dot"].trouble == "dot.ipynb is a link; links are not followed."
    assert all("link" in came[name].trouble for name in ("bob", "cy", "eve"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    os.mkfifo(tmp_path / "ada" / "ex99_small.ipynb")
    assert found(tmp_path)["ada"].trouble == "ada/ex99_small.ipynb is no file."


@pytest.fixture
def nobody() -> Iterator[Path]:
    """A folder. A test that gives up the rights of root has them back at its end."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
        if root:
            os.seteuid(0)


@pytest.mark.skipif(os.name != "posix", reason="the permissions of files are others")
def test_what_may_not_be_read_is_a_trouble_and_not_0_points(nobody: Path) -> None:
    lay(nobody, "ada/ex99_small.ipynb", "bob/ex99_small.ipynb", "cy/ex99_small.ipynb")
    (nobody / "ada/ex99_small.ipynb").chmod(0)
    (nobody / "bob").chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    troubles = {name: each.trouble for name, each in found(nobody).items()}
    assert troubles == {
        "ada": "ada/ex99_small.ipynb cannot be read: Permission denied.",
        "bob": "bob cannot be read: Permission denied.",
        "cy": "",
    }


def test_enormous_folders_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.grading.handed_in.MOST_FILES", 20)
    lay(tmp_path, "ada/ex99_small.ipynb", *(f"bob/{n}/x.txt" for n in range(15)), "cy/" + "d/" * 9 + "x.ipynb")
    came = found(tmp_path)
    assert came["ada"].path and not came["ada"].said
    assert came["bob"].trouble == "There are more than 20 files; not all were looked at."
    assert came["cy"].trouble == "cy/d/d/d/d/d/d/d/d lies too deep and was not looked at."


def test_files_that_are_not_notebooks_are_handed_in_and_asked_for_again(tmp_path: Path) -> None:
    contents = {"ada": b"", "bob": b"%PDF", "cy": b"[" * 9_999, "dot": b"\xff\xfe{", "eve": b'{"cells": 3}'}
    for name, content in contents.items():
        (tmp_path / f"{name}.ipynb").write_bytes(content)
    came = found(tmp_path)
    assert all(each.path and each.digest and not each.trouble for each in came.values())
    assert len({each.digest for each in came.values()}) == 5
    assert {name: each.not_a_notebook.partition(": ask for it again ")[2] for name, each in came.items()} == {
        "ada": "(the file is empty).",
        "bob": "(it cannot be read as JSON).",
        "cy": "(it cannot be read as JSON).",
        "dot": "(it cannot be read as JSON).",
        "eve": "(it has no cells).",
    }
    assert came["bob"].not_a_notebook.startswith("bob.ipynb is not a notebook: ask for it again")


ODD = ["<b>x</b>", "a\nb", "a\tb", "=1+1", "+x", "-x", "@x", "x" * 200, "CON", "nul.txt", "x.", "x ", " x", "x~1", "~",
       "\x1b[2J", "\u202eada", "a/b", "a\\b", "C:x", "x\udcff", "'=x", '"', "a;b", "[red]", "x~000000000000",
       "日本" * 40, "a,+1", "a, @x"]  # fmt: skip
SAFE = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_~-")


def test_every_name_gets_a_safe_one_of_its_own() -> None:
    plain = ["Ada, A", "ada", "Ada Löve", "日本", "s-1.2", "ada@uni.example", "o_(2)"]
    assert [label(name) for name in plain] == plain
    labels = [label(name) for name in ODD]
    assert len(set(labels)) == len(ODD) and not set(labels) & set(ODD)
    assert all(set(name) <= SAFE and name[0] != "-" and len(name) < 60 for name in labels)
    files = file_names([*plain, *ODD, "ADA", "Bob"])
    assert len({name.casefold() for name in files.values()}) == len(files)
    assert files["Bob"] == "Bob" and files["ada"].startswith("ada~") and files["ADA"].startswith("ADA~")


def test_odd_names_of_folders_do_no_harm(tmp_path: Path) -> None:
    odd = [name for name in ODD if "/" not in name and len(name.encode("utf-8", "surrogateescape")) < 250]
    lay(tmp_path, *(f"{name}/ex99_small.ipynb" for name in odd))
    came = found(tmp_path)
    assert sorted(came) == sorted(odd) and all(each.path and not each.trouble for each in came.values())


def test_a_name_is_the_same_however_a_system_writes_its_accents(tmp_path: Path) -> None:
    lay(tmp_path, "Ju\u0308rgen.ipynb")
    (tmp_path / "class.csv").write_text("student,name\nJ\u00fcrgen,J", "utf-8")
    assert list(found(tmp_path, names=class_list(tmp_path / "class.csv"))) == ["J\u00fcrgen"]


def test_names_that_differ_in_the_form_of_their_accents_alone_stay_two(tmp_path: Path) -> None:
    lay(tmp_path, "J\u00fcrgen/ex99_small.ipynb", "Ju\u0308rgen/ex99_small.ipynb", "A\u030a.ipynb")
    if len(os.listdir(tmp_path)) < 3:
        pytest.skip("this system takes both names for one")
    came = found(tmp_path, names=("J\u00fcrgen",))
    assert taken(came, tmp_path) == {name: f"{name}/ex99_small.ipynb" for name in ("Ju\u0308rgen", "J\u00fcrgen")} | {
        "\u00c5": "A\u030a.ipynb"
    }
    assert came["J\u00fcrgen"].said == (
        "Something else has this name with other signs of Unicode; this is 'J\\xfcrgen'.",
    )
    assert [label(name) for name in ("J\u00fcrgen", "\u00c5")] == ["J\u00fcrgen", "\u00c5"]
    for other in ("Ju\u0308rgen", "\u212b", "\u1112\u1161"):
        assert "~" in label(other)


# --- the list of a class ----------------------------------------------------------------------------------------------

GOOD = 'student,name,email\nada,Ada Löve,ada@x.org\nbob,"Bob, jr.",\n\n'


@pytest.mark.parametrize(
    "content",
    [
        GOOD.encode(),
        GOOD.encode("utf-8-sig"),
        GOOD.encode("utf-16"),
        GOOD.replace("\n", "\r\n").encode(),
        GOOD.replace("student,name,email", " Name ,STUDENT,E").replace("ada,Ada Löve", "Ada Löve,ada")
        .replace('bob,"Bob, jr."', '"Bob, jr.",bob').encode(),
        GOOD.replace("Bob, jr.", "Bob; jr.").replace(",", ";").replace("Bob; jr.", "Bob, jr.").encode(),
        GOOD.replace("Bob, jr.", "Bob; jr.").replace(",", ";").replace("email", "a, b, c, d")
        .replace("Bob; jr.", "Bob, jr.").encode(),
        GOOD.replace("Bob, jr.", "Bob\n  jr.").replace(",", "\t").replace("Bob\n  jr.", "Bob,\n  jr.").encode(),
        GOOD.replace("ada,", ",,\n ada ,").replace('jr.",\n', 'jr.",,,\n').encode(),
    ],
    ids=["plain", "mark", "utf-16", "crlf", "columns", "semicolons", "more commas", "tabs", "empty cells"],
)  # fmt: skip
def test_the_list_of_a_class_is_read_as_spreadsheets_save_it(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "class.csv").write_bytes(content)
    names = class_list(tmp_path / "class.csv")
    assert {name: each.name for name, each in names.items()} == {"ada": "Ada Löve", "bob": "Bob, jr."}


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "class.csv is empty; its first line should be student,name"),
    "nobody": (b"student,name\n", "class.csv has no students: below its first line there is nothing"),
    "missing column": (b"id,name\n1,x", "class.csv has no column student; its first line says: id, name"),
    "both missing": (b"id;nom\n1;x", "class.csv has no column student and no column name; its first line says: id"),
    "column twice": (b"student,name,Name\n1,x,y", "class.csv has the column name twice"),
    "student twice": (b"student,name\nada,A\nbob,B\nada,C", "class.csv, line 4: ada is in line 2, too"),
    "no student": (b"student,name\n,Ada", "class.csv, line 2: the student is missing; write what the folder is called"),
    "latin-1": ("student,name\nada,L\u00f6ve".encode("latin-1"), "class.csv, line 2: it is not UTF-8 text; save it"),
    "half of UTF-16": ("student,name".encode("utf-16") + b"x", "class.csv, line 1: it is not UTF-16 text"),
    "a workbook": (b"PK\x03\x04\0\0", "class.csv is not text; save it as “CSV UTF-8”"),
    "a comma": (b"student,name\nada,L, A", "class.csv, line 2: 3 cells in 2 columns; put a text with “,” in quotes"),
    "open quotes": (b'student,name\nada,"L', "class.csv, line 2: this is no CSV (unexpected end of data)"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_list_that_cannot_be_used_is_refused_with_the_line(why: str, tmp_path: Path) -> None:
    content, said = REFUSED[why]
    (tmp_path / "class.csv").write_bytes(content)
    with pytest.raises(BadSheet) as refused:
        class_list(tmp_path / "class.csv")
    assert said in str(refused.value)


@pytest.mark.parametrize("path", [lambda folder: folder / "none.csv", lambda folder: folder])
def test_a_list_that_is_not_there_is_named(path: Callable[[Path], Path], tmp_path: Path) -> None:
    with pytest.raises(BadSheet, match="cannot be read: "):
        class_list(path(tmp_path))
