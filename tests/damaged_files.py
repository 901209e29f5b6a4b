"""What may happen to a progress file of 200 entries: used by the tests of damage and of repair."""

from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

from course_lib.progress import Event, Store
from course_lib.progress.one_file import FORMAT, connect, examine
from course_lib.progress.two_files import COPY, MAIN, NEW

ENTRIES = 200
PAGE = 4096
ASIDE = f"progress.damaged-{date.today()}-{{}}.sqlite"


def zeros_in_the_middle(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[3 * PAGE + 100 : 4 * PAGE] = bytes(PAGE - 100)
    path.write_bytes(content)


def zeros_at_the_head(path: Path) -> None:
    path.write_bytes(bytes(PAGE) + path.read_bytes()[PAGE:])


def one_letter_changed(path: Path) -> None:
    content = path.read_bytes()
    assert content.count(b'{"right":true}') == ENTRIES
    path.write_bytes(content.replace(b'{"right":true}', b'{"right":tru!}', 1))


def an_answer_turned(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("""UPDATE events SET data = '{"right":false}' WHERE arrival = 30""")


def truncated(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2 + 7])


def replaced_by_text(path: Path) -> None:
    path.write_text("Dear diary,\n" * 50)


def replaced_by_a_word(path: Path) -> None:
    path.write_text("x")


def replaced_by_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("kept")


def another_database(path: Path) -> None:
    path.unlink()
    with closing(connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


def table_dropped(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DROP TABLE events")


def column_dropped(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("ALTER TABLE events DROP COLUMN version")


def index_broken(path: Path) -> None:
    with closing(connect(path)) as db:
        ((root,),) = db.execute("SELECT rootpage FROM sqlite_schema WHERE type = 'index'").fetchall()
    content = bytearray(path.read_bytes())
    content[(root - 1) * PAGE + 500 : root * PAGE] = bytes(PAGE - 500)
    path.write_bytes(content)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def deleted(path: Path) -> None:
    path.unlink()


def rows_deleted(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DELETE FROM events WHERE arrival > 190")


def rows_deleted_in_the_middle(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("DELETE FROM events WHERE arrival BETWEEN 20 AND 29")


def trigger_added(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("CREATE TRIGGER quiet BEFORE INSERT ON events BEGIN SELECT RAISE(IGNORE); END")


def table_added(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute("CREATE TABLE recipes (name TEXT)")


def format_number_changed(path: Path) -> None:
    with closing(connect(path)) as db:
        db.execute(f"PRAGMA user_version = {FORMAT + 1}")


def letter_of_the_schema_changed(path: Path) -> None:
    """SQLite quotes it in the text of its error, which then is no UTF-8."""
    content = path.read_bytes()
    assert content.count(b"indexsqlite_autoindex_events_1") == 1
    path.write_bytes(content.replace(b"indexsqlite_autoindex_events_1", b"indexsqlite_autoinde\xb3_events_1"))


def write_version_changed(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(18)
        file.write(b"\xff")


Damage = Callable[[Path], None]
KEPT: list[Damage] = [  # what becomes of the file: kept aside
    zeros_in_the_middle, zeros_at_the_head, one_letter_changed, an_answer_turned, truncated, replaced_by_text,
    replaced_by_a_word, replaced_by_a_folder, another_database, table_dropped, column_dropped, index_broken,
    trigger_added, table_added, format_number_changed, letter_of_the_schema_changed, write_version_changed,
]  # fmt: skip
NAMES = {MAIN: "Your progress file", COPY: "The copy of your progress file"}


def content_of(path: Path) -> bytes:
    return (path / "inside").read_bytes() if path.is_dir() else path.read_bytes()


def assert_good_as_new(folder: Path, events: list[Event]) -> None:
    """Nothing more to tell, both files sound and equal, and more can be recorded."""
    again = Store(folder)
    assert again.events() == events and again.notices() == []
    more = again.record("answer", "03.more", {"right": True})
    for name in (MAIN, COPY):
        found = examine(folder / name)
        assert found.state == "sound"
        assert sorted(e.id for e in found.events) == sorted(e.id for e in [*events, more])
    assert again.notices() == [] and not (folder / NEW).exists()
