"""A program that kills writers of the progress store at random moments and counts what was lost.

Run by tests/test_progress_crash.py. It imports the store and nothing heavy, so a writer is a fork that costs a
millisecond, and 200 of them can be killed in seconds. Where it can, it works in memory: what a kill leaves behind does
not depend on the disk, and on a busy disk there would be few writes to kill. Prints one JSON object.
"""

import functools
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from course_lib.progress.event import new_event
from course_lib.progress.one_file import INSERT, examine, rows_of
from course_lib.progress.store import Store
from course_lib.progress.two_files import COPY, LOCK, MAIN, SCHEMAS, TwoFiles

WRITES = 1000  # that each writer tries
LONGEST_S = 0.08  # that a writer lives
FILES_FOR = 20  # writers; then others begin with new files, so that reading them all stays quick
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
BOTH = (MAIN, COPY)
ACCESSES = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "sqlite3.connect"}  # as Python's audit calls them
ANSWER = {"given": [0, 2], "right": True}


folder_for_tests = functools.partial(tempfile.TemporaryDirectory, prefix="course-crash-")


def fork(work: Callable[[int], None]) -> tuple[int, int]:
    """A child that runs work(pipe) and ends: its process id, and where its writing can be read."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            work(writer)
        finally:
            os._exit(0)
    os.close(writer)
    return child, reader


def write(folder: Path, pipe: int, writes: int = WRITES) -> None:
    """Record events; each id goes into the pipe after record() returned."""
    store = Store(folder)
    for number in range(writes):
        event = store.record("answer", f"03.question_{number}", ANSWER)
        os.write(pipe, event.id.encode() + b"\n")


def end(child: int, reader: int, after_s: float | None = None) -> list[str]:
    """Kill the child after a while, or let it come to its end; the ids that it acknowledged."""
    if after_s is not None:
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
    said = b""
    while block := os.read(reader, 65536):
        said += block
    os.close(reader)
    os.waitpid(child, 0)
    return [line.decode() for line in said.split(b"\n") if len(line) == 32]  # the last may be cut off


def kills(times: int, writers: int, on_disk: int = 0) -> dict[str, float]:
    """Kill one writer (of `writers` at once) `times` times; after each kill everything acknowledged must be there."""
    chance = random.Random(writers)
    result = {
        "kills": 0,
        "acknowledged": 0,
        "lost": 0,
        "only_in_one_file": 0,
        "cut_off": 0,
        "notices": 0,
        "left_over": 0,
    }
    began, longest_s = time.perf_counter(), LONGEST_S * (6 if on_disk else 1)
    while result["kills"] < times:
        with folder_for_tests(dir=None if on_disk else IN_MEMORY) as name:
            folder, acknowledged = Path(name), set()
            work = functools.partial(write, folder)
            for _ in range(min(FILES_FOR, times - int(result["kills"]))):
                children = [fork(work) for _ in range(writers)]
                for child, reader in children:
                    acknowledged |= set(end(child, reader, chance.uniform(0, longest_s) / writers))
                    result["kills"] += 1
                    result["cut_off"] += (folder / f"{MAIN}-journal").exists()
                store = Store(folder)
                there = {event.id for event in store.events()}
                result["lost"] += len(acknowledged - there)
                result["notices"] += len(store.notices())
            Store(folder).record("notebook", "03", {})  # a write replaces journals that hold nothing
            Store(folder).events()
            held = [{event.id for event in examine(folder / file).events} for file in (MAIN, COPY)]
            result["only_in_one_file"] += len(held[0] ^ held[1])
            result["acknowledged"] += len(acknowledged)
            result["left_over"] += len(set(os.listdir(folder)) - {MAIN, COPY, LOCK})
    return result | {"seconds": time.perf_counter() - began}


def side_by_side(writers: int, writes: int) -> dict[str, float]:
    """Several processes write at once, to the end, and one of them reads what is there."""
    with folder_for_tests(dir=IN_MEMORY) as name:
        folder = Path(name)
        began = time.perf_counter()
        children = [fork(lambda pipe: write(folder, pipe, writes)) for _ in range(writers)]
        said = [end(child, reader) for child, reader in children]
        took = time.perf_counter() - began
        events = Store(folder).events()
        place = {event.id: number for number, event in enumerate(events)}
        ordered = all([place[i] for i in ids] == sorted(place[i] for i in ids) for ids in said)
        return {"events": len(events), "acknowledged": sum(map(len, said)), "ordered": ordered, "seconds": took}


def kills_during_repair(times: int) -> dict[str, float]:
    """Damage the files, kill the repair at a random moment, and look whether the next one brings everything back."""
    chance = random.Random(3)
    result = {"kills": 0, "cut_off": 0, "lost": 0}
    with folder_for_tests(dir=IN_MEMORY) as name:
        sound, folder = Path(name) / "sound", Path(name) / "damaged"
        events = [new_event("answer", f"03.question_{number}", ANSWER) for number in range(150)]
        there = {event.id for event in events[: Store(sound).add(events)]}
        harm(sound, folder, BOTH)
        began = time.perf_counter()
        end(*fork(repair := functools.partial(read, folder)))
        repair_s = time.perf_counter() - began
        for _ in range(times):
            shutil.rmtree(folder)
            harm(sound, folder, chance.choice([(MAIN,), (COPY,), BOTH, BOTH]))
            end(*fork(repair), chance.uniform(0, repair_s))
            result["kills"] += 1
            store = Store(folder)
            result["lost"] += len(there - {event.id for event in store.events()})
            result["cut_off"] += bool(store.notices())
    return result


def kills_at_each_step() -> dict[str, float]:
    """Damage both files, and kill the repair at its first step, at its second, and so on until it comes to its end."""
    with folder_for_tests(dir=IN_MEMORY) as name:
        sound, folder = Path(name) / "sound", Path(name) / "damaged"
        events = [new_event("answer", f"03.question_{number}", ANSWER) for number in range(150)]
        Store(sound).add(events)
        for step in itertools.count(1):
            harm(sound, folder, BOTH)
            ended = bool(end(*fork(functools.partial(read_until, folder, step))))
            lost = len({event.id for event in events} - {event.id for event in Store(folder).events()})
            if lost or ended:
                return {"steps": step - 1, "lost": lost}
            shutil.rmtree(folder)
    raise AssertionError("the loop returns")


def read_until(folder: Path, step: int, pipe: int) -> None:
    """Read, and be killed before file access number `step`; if there are fewer, say so with a word of 32 letters."""
    steps = itertools.count(1)

    def on(event: str, _: object) -> None:
        if event in ACCESSES and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(on)
    read(folder, pipe)
    os.write(pipe, b"-" * 32)


def read(folder: Path, pipe: int) -> None:
    tempfile.tempdir = str(folder.parent)  # what a kill leaves there goes with it
    Store(folder).events()


def killed_while_writing(folder: Path) -> None:
    """A process that dies when half of what it wrote has reached the files: their journals have to be played back."""

    def work(pipe: int) -> None:
        db = TwoFiles(folder)._open()
        for schema in SCHEMAS:
            db.execute(f"PRAGMA {schema}.cache_size = 5")  # pages; the others go to the file, and before that the old
            events = [new_event("answer", "03.x", {"given": "x" * 3000, "right": True}) for _ in range(50)]
            db.executemany(INSERT.format(schema), rows_of(events, 1000))
        os.kill(os.getpid(), signal.SIGKILL)

    end(*fork(work))


def harm(sound: Path, folder: Path, files: tuple[str, ...]) -> None:
    """A copy of the files with a page of zeros in those named: not the same page, so the two together hold all."""
    shutil.copytree(sound, folder)
    for file in files:
        with (folder / file).open("r+b") as opened:
            opened.seek(4096 * (4 if file == MAIN else 7))
            opened.write(bytes(4096))


if __name__ == "__main__":
    what, *numbers = sys.argv[1:]
    programs = {"kills": kills, "side_by_side": side_by_side, "kills_during_repair": kills_during_repair,
                "kills_at_each_step": kills_at_each_step}  # fmt: skip
    print(json.dumps(programs[what](*map(int, numbers))))
