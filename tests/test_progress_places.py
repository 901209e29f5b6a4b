"""What a learner is told when progress cannot be saved, and that nothing is lost by it: a full disk, a folder that is
read-only, a file held by another program.

A full disk is a real file system of a megabyte, and a read-only folder is a real read-only mount: permission bits mean
nothing to root, who runs tests in containers.
"""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from progress_crash import killed_while_writing

from course_lib.progress import NotSaved, Store, data_folder, one_file, store
from course_lib.progress.event import new_event
from course_lib.progress.faults import Fault, fault
from course_lib.progress.one_file import connect
from course_lib.progress.two_files import COPY, LOCK, MAIN

ALLOW = "Allow it, or name another folder in COURSE_DATA and start again."


def can_mount() -> bool:
    bwrap = shutil.which("bwrap")
    tried = bwrap and subprocess.run([bwrap, "--bind", "/", "/", "--size", "4096", "--tmpfs", "/tmp", "true"])
    return bool(tried) and tried.returncode == 0


needs_mounts = pytest.mark.skipif(not can_mount(), reason="needs bubblewrap with permission to mount")
PRELUDE = """
    import json, sys
    from pathlib import Path
    from course_lib.progress import NotSaved, Store
    from course_lib.progress.two_files import COPY, MAIN
    folder = Path(sys.argv[1])

    def record(size=10):
        try:
            return Store(folder).record("answer", "03.x", {"given": "x" * size, "right": True}).id
        except NotSaved as error:
            return str(error)

    def there():
        mine = Store(folder)
        return [event.id for event in mine.events()], mine.notices()
"""


def mounted(folder: Path, mount: list[str], program: str) -> Any:
    """What a program says that sees `folder` mounted like that."""
    source = textwrap.dedent(PRELUDE) + textwrap.dedent(program)
    command = ["bwrap", "--bind", "/", "/", "--dev-bind", "/dev", "/dev", *mount, str(folder), "--die-with-parent"]
    done = subprocess.run([*command, sys.executable, "-c", source, str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def with_events(folder: Path, number: int = 5) -> list[str]:
    events = [new_event("answer", "03.x", {"right": True}) for _ in range(number)]
    Store(folder).add(events)
    return [event.id for event in events]


# --- a full disk ----------------------------------------------------------------------------------------------------


@needs_mounts
def test_full_disk_is_said_nothing_acknowledged_is_lost_and_room_helps(tmp_path: Path) -> None:
    found = mounted(
        tmp_path,
        ["--size", "1000000", "--tmpfs"],
        """
        (folder / "a film").write_bytes(bytes(300_000))
        said = [record(size) for size in [3000] * 300 + [10] * 50]
        before = there()
        (folder / "a film").unlink()
        later = record(3000)
        print(json.dumps([said, before, later, there()]))
        """,
    )
    said, (ids, notices), later, (ids_later, notices_later) = found
    acknowledged = [line for line in said if len(line) == 32]
    messages = set(said) - set(acknowledged)
    assert 20 < len(acknowledged) < 300
    assert messages == {f"The disk is full ({tmp_path}). Make room there, then do it again."}
    assert (ids, notices) == (acknowledged, [])
    assert len(later) == 32
    assert (ids_later, notices_later) == ([*acknowledged, later], [])


@needs_mounts
def test_damage_on_a_full_disk_is_read_from_the_other_file_and_repaired_when_there_is_room(tmp_path: Path) -> None:
    found = mounted(
        tmp_path,
        ["--size", "1000000", "--tmpfs"],
        """
        ids = [record() for _ in range(100)]
        for name, size in (("a film", 10**5), ("films", 10**6), ("more", 4096), ("yet more", 1)):
            try:
                (folder / name).write_bytes(bytes(size))
            except OSError:
                pass
        content = bytearray((folder / MAIN).read_bytes())
        content[8192:12288] = b"x" * 4096
        (folder / MAIN).write_bytes(content)
        full, said = there(), record()
        (folder / "a film").unlink()
        print(json.dumps([ids, full, said, there()]))
        """,
    )
    ids, (read, notices), said, (repaired, told) = found
    assert read == ids
    full = f"the disk is full ({tmp_path})."
    assert notices == [f"A progress file is damaged and could not be repaired: {full}"]
    assert said == f"T{full[1:]} Make room there, then do it again."
    assert repaired == ids
    assert len(told) == 1 and "was damaged and is kept as" in told[0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a process that can be forked")
def test_write_that_the_system_cuts_short_is_taken_back(tmp_path: Path) -> None:
    ids = with_events(tmp_path)
    limit = (tmp_path / MAIN).stat().st_size
    program = textwrap.dedent(PRELUDE) + "print(json.dumps([record(10) for _ in range(3)] + [record(9000)]))"

    resource = pytest.importorskip("resource")

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], preexec_fn=limited, capture_output=True, text=True, check=True
    )
    *small, large = json.loads(done.stdout)
    assert large == (
        f"The disk or your share of it (quota) is full, or the disk fails ({tmp_path}). Make room there, then do it "
        "again, or name a folder on another disk in COURSE_DATA and start again."
    )
    acknowledged = ids + [line for line in small if len(line) == 32]
    mine = Store(tmp_path)
    assert [event.id for event in mine.events()] == acknowledged and mine.notices() == []


# --- a folder that cannot be written --------------------------------------------------------------------------------


@needs_mounts
def test_read_only_home_shows_everything_and_says_that_nothing_is_saved(tmp_path: Path) -> None:
    ids = with_events(tmp_path)
    said, read, said_later = mounted(
        tmp_path, ["--ro-bind", str(tmp_path)], "print(json.dumps([record(), there(), record()]))"
    )
    assert said == said_later == f"Writing is not allowed ({tmp_path}). {ALLOW}"
    assert read == [ids, []]
    assert [event.id for event in Store(tmp_path).events()] == ids


@needs_mounts
def test_write_that_was_killed_before_the_home_became_read_only_does_not_hide_the_rest(tmp_path: Path) -> None:
    ids = with_events(tmp_path)
    killed_while_writing(tmp_path)
    journals = [tmp_path / f"{name}-journal" for name in (MAIN, COPY)]
    assert all(journal.stat().st_size > 512 for journal in journals), "something has to be rolled back"
    assert mounted(tmp_path, ["--ro-bind", str(tmp_path)], "print(json.dumps(there()))") == [ids, []]
    assert all(journal.exists() for journal in journals)
    mine = Store(tmp_path)
    assert [event.id for event in mine.events()] == ids and mine.notices() == []


@needs_mounts
def test_damaged_file_in_a_read_only_home_is_read_from_the_other(tmp_path: Path) -> None:
    ids = with_events(tmp_path)
    (tmp_path / MAIN).write_text("Dear diary")
    assert mounted(tmp_path, ["--ro-bind", str(tmp_path)], "print(json.dumps(there()))") == [
        ids,
        [f"A progress file is damaged and could not be repaired: writing is not allowed ({tmp_path})."],
    ]


@needs_mounts
def test_two_unreadable_files_in_a_read_only_home_are_said_to_be(tmp_path: Path) -> None:
    for name in (MAIN, COPY):
        (tmp_path / name).write_text("Dear diary")
    assert mounted(tmp_path, ["--ro-bind", str(tmp_path)], "print(json.dumps(there()))") == [
        [],
        [f"Your progress cannot be read. Writing is not allowed ({tmp_path}). {ALLOW}"],
    ]


@pytest.mark.parametrize("below", [[], ["data"], ["data", "more"]], ids=["file", "below a file", "further below"])
def test_file_in_the_place_of_the_folder_is_named(tmp_path: Path, below: list[str]) -> None:
    (tmp_path / "place").write_text("")
    folder = tmp_path.joinpath("place", *below)
    mine = Store(folder)
    assert mine.events() == [] and mine.notices() == []
    with pytest.raises(NotSaved) as refused:
        mine.record("answer", "03.x", {"right": True})
    assert str(refused.value).startswith(f"A file is in the place of the folder ({tmp_path / 'place'}")
    assert str(refused.value).endswith(f"). {ALLOW}")
    assert (refused.value.reason, refused.value.remedy) == ("a file is in the place of the folder", ALLOW)


# --- held by another program ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", [LOCK, MAIN, COPY])
def test_file_held_by_another_program_can_be_read_and_is_named_when_it_cannot_be_written(
    tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = with_events(tmp_path)
    monkeypatch.setattr(one_file, "WAIT_S", 0.1)
    with closing(connect(tmp_path / held)) as other:
        other.execute("BEGIN EXCLUSIVE" if held == LOCK else "BEGIN IMMEDIATE")
        mine = Store(tmp_path)
        with pytest.raises(NotSaved) as refused:
            mine.record("answer", "03.x", {"right": True})
        assert str(refused.value) == (
            f"Another program holds the file ({tmp_path}). Close that program, then do it again."
        )
        trouble = mine.trouble()
        assert trouble is not None and trouble.reason == "another program holds the file"
        assert [event.id for event in mine.events()] == ids and mine.notices() == []
    assert mine.trouble() is None
    more = mine.record("answer", "03.x", {"right": True})
    assert [event.id for event in mine.events()] == [*ids, more.id], "trying to save saves nothing"


@pytest.mark.parametrize("held", [LOCK, MAIN])
def test_answer_to_a_question_waits_at_most_ten_seconds_for_a_program_that_holds_the_files(
    tmp_path: Path, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in what SQLite is told to wait: a page asks four times to show one answer."""
    ids = with_events(tmp_path)
    mine, allowed = Store(tmp_path), []
    real = sqlite3.connect

    def noted(path: object, timeout: float, isolation_level: None) -> sqlite3.Connection:
        if Path(str(path)).parent == tmp_path:  # not a copy of the file, which nobody holds
            allowed.append(timeout)
        return real(path, timeout=timeout / 100, isolation_level=isolation_level)

    with closing(connect(tmp_path / held)) as other:
        other.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr(sqlite3, "connect", noted)
        with pytest.raises(NotSaved, match="Another program holds the file"):
            mine.record("answer", "03.x", {"right": True})
        for _ in range(3):
            mine.events()
        assert len(allowed) > 4 and max(allowed) == one_file.WAIT_S and sum(allowed) <= 13, allowed
    allowed.clear()
    assert [event.id for event in mine.events()] == ids
    mine.record("answer", "03.x", {"right": True})
    assert allowed[-1] == one_file.WAIT_S, "patient again"


# --- names ------------------------------------------------------------------------------------------------------------


def test_relative_data_folder_stays_where_it_was_when_the_current_folder_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"answers of {tmp_path.name}"  # the process remembers it
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_DATA", name)
    recorded = store().record("answer", "03.x", {"right": True})
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert data_folder() == tmp_path / name and store().events() == [recorded]
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_folder_whose_name_is_no_text_is_refused_in_words_also_by_the_doctor(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    reason = "the name of the folder is not UTF-8"
    sentence = f"T{reason[1:]} ({tmp_path}/caf\\udce9). Name another folder in COURSE_DATA and start again."
    mine = Store(folder)
    with pytest.raises(NotSaved) as refused:
        mine.record("answer", "03.x", {"right": True})
    assert str(refused.value) == sentence
    assert mine.events() == [] and mine.notices() == [f"Your progress cannot be read. {sentence}"]
    program = "from course_lib.commands.doctor import data_writable as look; print(look())"
    environment = {**os.environ, "COURSE_DATA": str(folder)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert "state='problem'" in done.stdout and reason in done.stdout


# --- the rest of what can be said -----------------------------------------------------------------------------------


def sqlite_error(code: int, text: str = "disk I/O error") -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorcode = code
    return error


OTHER_DISK = "Name a folder on another disk in COURSE_DATA and start again."
SENTENCES: dict[str, tuple[Exception, str]] = {
    "quota": (
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        "Your share of the disk (quota) is full, or a file may not become larger (/p). Make room there, then do it "
        "again, or name a folder on another disk in COURSE_DATA and start again.",
    ),
    "no memory": (MemoryError(), "There is not enough memory (/p). Close other programs, then do it again."),
    "failing disk": (
        OSError(errno.EIO, "Input/output error"),
        f"The disk reports a fault: Input/output error (/p). {OTHER_DISK}",
    ),
    "no permission": (
        PermissionError(errno.EACCES, "Permission denied", "/p/q"),
        f"Writing is not allowed (/p/q). {ALLOW}",
    ),
    "no locks": (sqlite_error(sqlite3.SQLITE_IOERR_LOCK), f"The disk cannot lock files (/p). {OTHER_DISK}"),
    "locks that deceive": (sqlite_error(sqlite3.SQLITE_PROTOCOL), f"The disk cannot lock files (/p). {OTHER_DISK}"),
    "damaged again": (
        sqlite_error(sqlite3.SQLITE_CORRUPT),
        f"The file was repaired and is damaged again (/p). {OTHER_DISK}",
    ),
}


@pytest.mark.parametrize(("error", "sentence"), SENTENCES.values(), ids=SENTENCES)
def test_fault_of_a_machine_that_no_test_has_is_said_in_words(error: Exception, sentence: str) -> None:
    found = fault(error, Path("/p"))
    assert isinstance(found, Fault) and str(found) == sentence
