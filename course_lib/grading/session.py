"""The half of the sandbox that is outside: it asks a process questions, with limits, and believes none of its answers.

The one idea: whatever that process does, this side goes on. A question has a time; when it is over the process is
interrupted, and if that does not help, killed with everything that it has started. What it uses and how long it lives
is watched while nobody asks, too. An answer is plain data of a bounded size, or none.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import psutil

from course_lib.checks.plain import NotPlain, Plain, pack, unpack

SAMPLE_S = 0.1
MOST_PARTS = 1_000_000  # entries of all lists and dictionaries of an answer; reading it takes some 100 bytes for each
MOST_FILES = 20_000  # in the folders of the sandbox: a file without content takes memory, too
FOLDERS = ("tmp", "dev/shm")  # of the sandbox, which lie in memory
COUNTED = ("RssAnon:", "RssShmem:", "Pss_Anon:", "Pss_Shmem:")


@dataclass(frozen=True)
class Limits:
    """How much a submission may use: seconds (`_s`), bytes, and how many. `cell_s` is for each cell, `task_s` for all
    cases of a task together, `total_s` for everything. A process that ends is started again `restarts` times."""

    start_s: float = 60
    cell_s: float = 30
    task_s: float = 60
    total_s: float = 300
    grace_s: float = 1  # between an interrupt and the end
    memory_bytes: int = 2 << 30
    folder_bytes: int = 128 << 20
    file_bytes: int = 64 << 20
    answer_bytes: int = 32 << 20
    processes: int = 64
    restarts: int = 8


class Ended(Exception):
    """The process is no more, or was ended; `said` completes the sentence "Your code …"."""

    def __init__(self, said: str) -> None:
        super().__init__(said)
        self.said = said


DIED = "ended the process that it ran in (by os._exit, for example, or by a crash)"
NO_ANSWER = "sent something else than the answer to what it was asked"


class Session:
    """One process, and the conversation with it. What is in `at_the_end` is closed with the session."""

    def __init__(
        self,
        command: Sequence[str],
        environment: dict[str, str],
        limits: Limits,
        *,
        walled: bool,
        at_the_end: contextlib.ExitStack,
        folder: str = "/",
        open_files: Sequence[int] = (),
        cpu: int | None = None,
        seconds: float | None = None,
    ) -> None:
        self.limits, self.walled, self.at_the_end = limits, walled, at_the_end
        self.until = time.monotonic() + (limits.total_s if seconds is None else seconds)
        self.why, self.peak_bytes = "", 0
        self.worker: psutil.Process | None = None  # the process inside that answers
        self.first: set[int] = set()  # the processes that were there before it was asked anything
        self.frames: queue.Queue[bytes | None] = queue.Queue(maxsize=2)
        with one_processor(cpu):
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                cwd=folder,
                start_new_session=True,
                pass_fds=open_files,
            )
        self.root = psutil.Process(self.process.pid)
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self.listen, self.watch)]
        for thread in self.threads:
            thread.start()
        try:
            self.received(limits.start_s)
            self.worker = self.innermost()
        except (Ended, TimeoutError) as reason:
            self.close()
            raise Ended(str(reason) or f"nothing came within {limits.start_s:g} s") from None
        except BaseException:
            self.close()
            raise

    def ask(self, question: dict[str, Plain], seconds: float) -> dict[str, Plain]:
        """The answer to a question: whatever dictionary came back. Raises Ended if the process has ended without one.

        After so many seconds the process is interrupted; if it does not answer then it is ended.
        """
        with contextlib.suppress(queue.Empty):
            while self.frames.get_nowait() is not None:  # said without having been asked
                pass
            self.end(DIED)
        if self.why:
            raise Ended(self.why)
        packed = pack(question)
        threading.Thread(target=self.tell, args=(len(packed).to_bytes(4) + packed,), daemon=True).start()
        try:
            packed = self.received(seconds)
        except TimeoutError:
            self.interrupt()
            try:
                packed = self.received(self.limits.grace_s)
            except TimeoutError:
                self.end(f"did not end within {seconds:g} s, and did not listen when it was interrupted")
                raise Ended(self.why) from None
        answer = self.opened(packed)
        if answer is None:
            self.end(NO_ANSWER)
            raise Ended(self.why)
        return answer

    @staticmethod
    def opened(packed: bytes) -> dict[str, Plain] | None:
        """The dictionary in what came back, if there is one."""
        if sum(packed.count(sign) for sign in (b",", b"[", b"{")) > MOST_PARTS:
            return None
        try:
            answer = unpack(packed)
        except (NotPlain, MemoryError):
            return None
        return answer if isinstance(answer, dict) else None

    def tell(self, frame: bytes) -> None:
        """Write to the process; a thread of its own does, for nobody has to read there."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self.process.stdin.write(frame)
            self.process.stdin.flush()

    def received(self, seconds: float) -> bytes:
        """The next frame. Raises TimeoutError, or Ended if the process has ended."""
        until = time.monotonic() + seconds
        while not self.why:
            try:
                frame = self.frames.get(timeout=max(0.0, min(SAMPLE_S, until - time.monotonic())))
            except queue.Empty:
                if time.monotonic() >= until:
                    raise TimeoutError from None
                continue
            if frame is not None:
                return frame
            self.end(DIED)
        raise Ended(self.why)

    def listen(self) -> None:
        """Read frames, never more than a few, none of more than `answer_bytes`. None stands for the end."""
        assert self.process.stdout is not None
        read = self.process.stdout.read
        with contextlib.suppress(OSError, ValueError):
            while len(head := read(4)) == 4:
                length = int.from_bytes(head)
                if length > self.limits.answer_bytes:
                    self.end(NO_ANSWER)
                    break
                frame = read(length)
                if len(frame) < length:
                    break
                self.frames.put(frame)
        self.frames.put(None)

    def watch(self) -> None:
        """End the process when it uses too much or lives too long, and what it has started when it has ended itself."""
        while not self.why and self.process.poll() is None:
            used, files = self.used()
            self.peak_bytes = max(self.peak_bytes, used)
            if used > self.limits.memory_bytes:
                self.end(f"used more than {self.limits.memory_bytes / 2**20:,.0f} MiB of memory")
            elif files > MOST_FILES:
                self.end(f"wrote more than {MOST_FILES:,} files")
            elif time.monotonic() > self.until:
                self.end("used up the time that there is for the whole notebook")
            time.sleep(SAMPLE_S)
        if not self.why:
            self.end(DIED)

    def used(self) -> tuple[int, int]:
        """Bytes of memory that all processes together hold, their folders included, and the files in those."""
        family, files = self.family(), 0
        held = sum(memory_of(process) for process in family)
        if held > self.limits.memory_bytes:  # what a process shares with those it was forked from was counted often
            held = sum(memory_of(process, "smaps_rollup") for process in family)
        if self.walled and self.worker is not None:
            for folder in FOLDERS:
                with contextlib.suppress(OSError):
                    state = os.statvfs(f"/proc/{self.worker.pid}/root/{folder}")
                    held += (state.f_blocks - state.f_bfree) * state.f_frsize
                    files += state.f_files - state.f_ffree
        return held, files

    def family(self) -> list[psutil.Process]:
        """The process and all that it has started, as far as they still hang together."""
        try:
            return [self.root, *self.root.children(recursive=True)]
        except psutil.Error:
            return []

    def innermost(self) -> psutil.Process:
        """The process that answers: with walls around it, the child of the child of the one that was started."""
        processes = [self.root]
        with contextlib.suppress(psutil.Error, IndexError):
            for _ in range(2 if self.walled else 0):
                processes.append(processes[-1].children()[0])
        self.first = {process.pid for process in processes}
        return processes[-1]

    def interrupt(self) -> None:
        """Interrupt what the process does, and end what it has started meanwhile."""
        others = [process for process in self.family() if process.pid not in self.first]
        if self.worker is not None:
            with contextlib.suppress(psutil.Error, OSError, ValueError):
                self.worker.send_signal(signal.SIGINT)
        for process in others:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()

    def end(self, why: str) -> None:
        """Kill everything. The first reason counts."""
        self.why = self.why or why
        family = self.family()  # within walls the second is the first process inside: with it go all, at once
        for process in family:
            with contextlib.suppress(psutil.Error, OSError):
                process.kill()
        if not self.walled and hasattr(os, "killpg"):
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        until = time.monotonic() + 5
        while any(map(alive, family)) and time.monotonic() < until:
            time.sleep(0.002)

    def close(self) -> None:
        """End the process if it has not ended; nothing of it is left."""
        self.end("was ended")
        with contextlib.suppress(queue.Empty):
            while self.threads[0].is_alive():
                self.frames.get(timeout=1)
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if stream is not None and not self.threads[0].is_alive():
                    stream.close()
        self.at_the_end.close()


@contextlib.contextmanager
def one_processor(cpu: int | None) -> Iterator[None]:
    """What this thread starts meanwhile runs on that processor, with all that it starts itself."""
    if cpu is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})
        yield
    finally:
        os.sched_setaffinity(0, before)


def alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def memory_of(process: psutil.Process, file: str = "status") -> int:
    """Bytes of memory that a process fills or shares by intention, so without its libraries.

    What several processes share counts whole for each in `status`, and in parts in `smaps_rollup`, which takes longer.
    """
    try:
        with open(f"/proc/{process.pid}/{file}", encoding="ascii", errors="replace") as lines:
            return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(COUNTED))
    except (OSError, ValueError, IndexError):
        try:
            return 0 if os.path.exists("/proc/self/status") else int(process.memory_info().rss)
        except psutil.Error:
            return 0
