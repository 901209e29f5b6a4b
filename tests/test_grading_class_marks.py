"""The table of a class: what a run writes into marks.csv and what a person does, and that neither loses anything."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.grading.assignment import Assignment, Question, Task
from course_lib.grading.class_marks import Row, as_data, as_sheet, by_hand, rows_of, write_class
from course_lib.grading.group import Result
from course_lib.grading.handed_in import HandedIn
from course_lib.grading.mark import Answer, Marks, TaskMarks
from course_lib.grading.sheets import BadSheet, Name, as_text, as_typed, one_line

ASSIGNMENT = Assignment(
    "ex99_small", "Small", 5, (Task("ex99.double", 4.0, "Double"),), (Question("ex99_why_answer", 2.0, "Why"),)
)
HEADINGS = (
    "student,name,email,result,ex99.double (of 4),tasks (of 4),ex99_why_answer (of 2),total (of 6),"
    "notes,notebook,version"
)


def marked(student: str, earned: float = 4, text: str = "Because.", digest: str = "1" * 64) -> Result:
    tasks = (TaskMarks("ex99.double", "Double", 4.0, earned),)
    answers = (Answer("ex99_why_answer", "Why", 2.0, text),)
    marks = Marks("ex99_small", student, tasks, answers, (), 1.25, 1000)
    return Result(HandedIn(student, Path(f"/class/{student}.ipynb"), digest), marks)


def run(folder: Path, *results: Result, names: dict[str, Name] | None = None) -> list[Row]:
    """What a run writes at its end; `said` is on the file marks.said."""
    before = by_hand(folder / "marks.csv", ASSIGNMENT)
    rows = rows_of(results, ASSIGNMENT, names or {}, before)
    data = {"submissions": [as_data(row) for row in rows]}
    said = write_class(folder, as_sheet(rows, ASSIGNMENT, before), data, before, rows)
    (folder / "marks.said").write_text("\n".join(said))
    return rows


def text_of(folder: Path, name: str = "marks.csv") -> str:
    """What a file says, with the ends of its lines as they are."""
    return (folder / name).read_bytes().decode("utf-8-sig")


def table(folder: Path, delimiter: str = ",") -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text_of(folder), newline=""), delimiter=delimiter))


def edit(folder: Path, *pairs: tuple[str, str]) -> str:
    """A person changes marks.csv."""
    text = text_of(folder)
    for old, new in pairs:
        assert text.count(old) == 1, text
        text = text.replace(old, new)
    (folder / "marks.csv").write_bytes(text.encode())
    return text


def test_a_row_for_each_student_and_a_column_for_each_task_and_question(tmp_path: Path) -> None:
    names = {"ada": Name("ada", "Ada Löve", "ada@x.org")}
    absent = Result(HandedIn("cy", said=("Nothing was handed in.",)))
    run(tmp_path, marked("ada"), marked("bob", 1.5, ""), absent, Result(HandedIn("dot"), why_not="It is."), names=names)
    assert text_of(tmp_path).splitlines() == [
        HEADINGS,
        "ada,Ada Löve,ada@x.org,graded,4,4,,,,ada.ipynb,v-111111111111",
        "bob,bob,,graded,1.5,1.5,,1.5,Why: nothing written.,bob.ipynb,v-111111111111",
        "cy,cy,,nothing handed in,,,,,Nothing was handed in.,,",
        "dot,dot,,not graded,,,,,It is.,,",
    ]
    data = json.loads((tmp_path / "marks.json").read_bytes())["submissions"]
    assert [(each["result"], each["total"], each.get("earned")) for each in data] == [
        ("graded", None, 4), ("graded", 1.5, 1.5), ("nothing handed in", None, None), ("not graded", None, None)
    ]  # fmt: skip
    assert (data[0]["seconds"], data[0]["peak_bytes"]) == (1.25, 1000)


def test_points_that_a_person_typed_stay_and_are_added_up(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob", 1))
    typed = edit(tmp_path, ("graded,4,4,,,", "graded,4,4,1.5,,"), ("graded,1,1,,,", 'graded,1,1,"0,5",,'))
    for _ in range(2):  # and again
        run(tmp_path, marked("ada"), marked("bob", 3))
        assert [(row["ex99_why_answer (of 2)"], row["total (of 6)"]) for row in table(tmp_path)] == [
            ("1.5", "5.5"), ("0.5", "3.5")
        ]  # fmt: skip
    assert text_of(tmp_path, "marks-by-hand-1.csv") == typed
    assert not (tmp_path / "marks-by-hand-2.csv").exists()  # nobody changed what the first run wrote


def test_whatever_a_person_changed_is_kept_as_it_was(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"))
    first = edit(tmp_path, ("graded,4,4", "graded,3,3"))
    run(tmp_path, marked("ada"))
    assert table(tmp_path)[0]["ex99.double (of 4)"] == "4"
    assert "as it was it is kept in marks-by-hand-1.csv" in (tmp_path / "marks.said").read_text()
    second = edit(tmp_path, ("graded,4,4", "graded,2,2"))
    run(tmp_path, marked("ada"))
    assert [text_of(tmp_path, f"marks-by-hand-{n}.csv") for n in (1, 2)] == [first, second]


def test_columns_of_ones_own_and_rows_of_others_stay(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob"))
    edit(
        tmp_path,
        ("version\r\n", "version,Comment\r\n"),
        ("graded,4,4,,,,ada.ipynb,v-111111111111", "graded,4,4,,,,ada.ipynb,v-111111111111,'=well done"),
        (
            "graded,4,4,,,,bob.ipynb,v-111111111111\r\n",
            "graded,4,4,2,6,,bob.ipynb,v-111111111111,late\r\n,mean,,,4\r\n",
        ),
    )
    run(tmp_path, marked("ada"), marked("cy"))
    rows = table(tmp_path)
    assert [(row["student"], row["Comment"]) for row in rows] == [
        ("ada", "'=well done"),
        ("cy", ""),
        ("bob", "late"),
        ("", ""),
    ]
    assert (rows[2]["ex99_why_answer (of 2)"], rows[2]["total (of 6)"], rows[3]["name"]) == ("2", "6", "mean")
    said = (tmp_path / "marks.said").read_text()
    assert "2 more of an earlier run, who were not looked at now: bob, (no name)" in said
    before = (tmp_path / "marks.csv").read_bytes()
    run(tmp_path, marked("ada"), marked("cy"))
    assert (tmp_path / "marks.csv").read_bytes() == before


def test_a_spreadsheet_may_save_it_with_semicolons(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"))
    text = text_of(tmp_path).replace(",", ";").replace("4;4;;", "4;4;1,5;")
    (tmp_path / "marks.csv").write_bytes(text.encode("utf-16"))
    run(tmp_path, marked("ada"))
    assert "graded;4;4;1,5;5,5;" in text_of(tmp_path)
    before = (tmp_path / "marks.csv").read_bytes()
    run(tmp_path, marked("ada"))
    assert (tmp_path / "marks.csv").read_bytes() == before


@pytest.mark.parametrize(("saved", "written"), [("1,5", "2,5"), ("1.5", "2.5"), ("", "2,5")])
def test_numbers_are_written_as_the_spreadsheet_writes_them(saved: str, written: str, tmp_path: Path) -> None:
    run(tmp_path, marked("ada"))
    text = text_of(tmp_path).replace(",", ";").replace("4;4;;", f"4;4;{saved};")
    (tmp_path / "marks.csv").write_bytes(text.encode())
    run(tmp_path, marked("ada", 2.5))
    assert f"graded;{written};{written};{saved};" in text_of(tmp_path)


def test_names_and_addresses_stay_if_the_list_of_the_class_is_left_out(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob"), names={"ada": Name("ada", "=Ada Löve", "ada@x.org")})
    before = (tmp_path / "marks.csv").read_bytes()
    rows = run(tmp_path, marked("ada"), marked("bob"))
    assert (tmp_path / "marks.csv").read_bytes() == before and b"'=Ada" in before
    assert [(row.name.name, row.name.email) for row in rows] == [("=Ada Löve", "ada@x.org"), ("bob", "")]
    (row, _) = run(tmp_path, marked("ada"), marked("bob"), names={"ada": Name("ada", "Ada King")})
    assert (row.name.name, row.name.email) == ("Ada King", "")


def test_what_is_not_a_notebook_has_no_total_until_a_person_decides(tmp_path: Path) -> None:
    asked = "x.ipynb is not a notebook: ask for it again (the file is empty)."
    text = marked("eve", 0, "")
    text = replace(text, handed_in=replace(text.handed_in, not_a_notebook=asked))
    (row, pdf) = run(tmp_path, text, Result(HandedIn("ivy", not_a_notebook="ivy.pdf is not a notebook.")))
    assert [(each.state, each.total, each.result.in_order) for each in (row, pdf)] == [
        ("not a notebook", None, False)
    ] * 2
    assert f"eve,eve,,not a notebook,0,0,,,{asked},eve.ipynb," in text_of(tmp_path)
    assert row.about == [asked]


def test_everything_that_cannot_be_points_is_named_at_once(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob"), marked("cy"))
    edit(tmp_path, ("4,4,,,,ada", "4,4,7,,,ada"), ("4,4,,,,bob", "4,4,x,,,bob"))
    with pytest.raises(BadSheet) as refused:
        by_hand(tmp_path / "marks.csv", ASSIGNMENT)
    assert str(refused.value) == (
        "marks.csv, line 2 (ada): '7' for ex99_why_answer should be a number from 0 to 2, or empty; "
        "line 3 (bob): 'x' for ex99_why_answer should be a number from 0 to 2, or empty"
    )


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (
            "graded,4,4,7,",
            "marks.csv, line 2 (ada): '7' for ex99_why_answer should be a number from 0 to 2",
        ),
        ("graded,4,4,-1,", "'-1' for ex99_why_answer should be"),
        ("graded,4,4,good,", "'good' for ex99_why_answer should be"),
        ("graded,4,4,nan,", "'nan' for ex99_why_answer should be"),
    ],
)
def test_what_cannot_be_points_is_refused_and_stays_where_it_is(new: str, said: str, tmp_path: Path) -> None:
    run(tmp_path, marked("ada"))
    typed = edit(tmp_path, ("graded,4,4,,", new))
    with pytest.raises(BadSheet) as refused:
        by_hand(tmp_path / "marks.csv", ASSIGNMENT)
    assert said in str(refused.value)
    assert text_of(tmp_path) == typed


def test_a_student_who_is_there_twice_is_refused(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob"))
    edit(tmp_path, ("\r\nbob,", "\r\nada,"))
    with pytest.raises(BadSheet, match="line 3: ada is there twice; delete one line"):
        by_hand(tmp_path / "marks.csv", ASSIGNMENT)


def test_who_hands_in_anew_after_being_marked_by_hand_is_named(tmp_path: Path) -> None:
    run(tmp_path, marked("ada"), marked("bob"))
    edit(tmp_path, ("graded,4,4,,,,ada", "graded,4,4,2,,,ada"))
    rows = run(tmp_path, marked("ada", digest="2" * 64), marked("bob", digest="2" * 64))
    assert [row.anew for row in rows] == [True, True]
    assert [bool(row.about) for row in rows] == [True, False]  # nobody had marked bob's answer
    assert "look at them again" in table(tmp_path)[0]["notes"] and rows[0].total == 6


PARTS = ["x;=1+2;", "x; =1", "x\t+1", "x,=1,", ';"@x"', "a;-1;'=2", "\uff1d;\uff1d"]
HOSTILE = ["=1+1", "+1", "-1", "@x", "\t=1", "＝1", " =1", "'=1", "''=1", "'t Hooft", 'a"b', "a,b", "a;b", "a\nb"]


def test_no_name_and_no_note_is_a_formula(tmp_path: Path) -> None:
    results = [marked(name) for name in HOSTILE if "/" not in name]
    results = [replace(each, handed_in=replace(each.handed_in, said=('=HYPERLINK("x")',))) for each in results]
    names = {name: Name(name, name, name) for name in HOSTILE}
    run(tmp_path, *results, names=names)
    for row in csv.reader(io.StringIO(text_of(tmp_path), newline="")):
        assert all(cell.lstrip(" '")[:1] not in "=+-@\t＝" or cell.startswith("'") for cell in row if cell)
    assert len({row["student"] for row in table(tmp_path)}) == len(HOSTILE)
    assert [as_typed(as_text(name)) for name in HOSTILE] == HOSTILE and len(set(map(as_text, HOSTILE))) == len(HOSTILE)
    assert as_text("'t Hooft") == "'t Hooft"
    before = (tmp_path / "marks.csv").read_bytes()
    run(tmp_path, *results, names=names)
    assert (tmp_path / "marks.csv").read_bytes() == before


@pytest.mark.parametrize("delimiter", ",;\t")
@pytest.mark.parametrize("other", ",;\t")
def test_no_part_of_a_cell_is_a_formula_for_whoever_separates_cells_by_another_sign(
    delimiter: str, other: str, tmp_path: Path
) -> None:
    run(tmp_path, marked("ada"))
    mine = text_of(tmp_path).replace("version", "version,mine").replace("v-111111111111", "v-111111111111,x; -1")
    lines = csv.reader(io.StringIO(mine, newline=""))
    with (tmp_path / "marks.csv").open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(lines)
    results = [marked(name) for name in ("ada", *PARTS)]
    results = [replace(each, handed_in=replace(each.handed_in, said=(each.handed_in.student,))) for each in results]
    names = {name: Name(name, one_line(name), one_line(name)) for name in PARTS}
    run(tmp_path, *results, names=names)
    rows = list(csv.reader(io.StringIO(text_of(tmp_path), newline=""), delimiter=other))
    cells = [cell.strip(' "') for row in rows[2:] for cell in row]
    assert len(rows) == len(PARTS) + 2 and not [cell for cell in cells if cell.startswith(tuple("=+-@\uff1d"))]
    assert table(tmp_path, delimiter)[0]["mine"] == "x; -1"
    before = (tmp_path / "marks.csv").read_bytes()
    run(tmp_path, *results, names=names)
    run(tmp_path, *results)  # the names are now those of marks.csv
    assert (tmp_path / "marks.csv").read_bytes() == before
