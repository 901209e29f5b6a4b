"""Submissions that attack whoever marks them, each with what it tries, what it earns, and what it ends in.

The one idea: an attack says itself whether it has worked. It raises `Reached` with its booty if it got anywhere; in the
sandbox that must never be among the notes. Those with `works_without_walls` are also run where there are no walls:
there they do get somewhere, so it is the walls that stop them. `{class_room}` is a folder on the host that everybody
may write to, `{port}` one that the host listens on, `{own}` a word in the command line of what is left behind.
"""

from dataclasses import dataclass

from small_assignment import RIGHT

SECRET = "the-answer-is-42-and-nobody-may-know"
PRELUDE = """
class Reached(Exception): pass
def attempt(act):
    "Raises Reached if act returns anything that is true, and what it raised if it raised."
    if got := act():
        raise Reached(repr(got)[:200])
"""


@dataclass(frozen=True)
class Hostile:
    """What is tried, in the cells of a notebook; what it earns of 4 points; words of the notes that say how it went."""

    tries: str
    cells: tuple[str, ...]
    earns: float
    says: str = ""
    works_without_walls: bool = False


STOPPED = "did not end within 2 s and was stopped"


def attack(tries: str, act: str, says: str = "", *, outside: bool = False) -> Hostile:
    """An attack in a cell of its own beside a right answer, which keeps its points: what works counts."""
    return Hostile(tries, (RIGHT, PRELUDE + act), 4, says, outside)


LOOK_AROUND = {
    "reads the solutions": attack(
        "opens the solved notebook at its place on the host",
        "attempt(lambda: open('{class_room}/solutions/ex99_small.ipynb').read())",
        "FileNotFoundError",
        outside=True,
    ),
    "reads other submissions": attack(
        "lists what others handed in",
        "import os\nattempt(lambda: os.listdir('{class_room}'))",
        "FileNotFoundError",
        outside=True,
    ),
    "looks for a judge": attack(
        "goes through everything that can be imported as course_lib, by name and by file",
        """
import os, pathlib, sys
found = [str(path) for root in ["/course", *sys.path] for path in pathlib.Path(root).glob("course_lib/**/*.py")
         if "def judge(" in path.read_text()]
import course_lib.checks
for name in ("checks.ex03_append", "checks.contract", "grading", "grading.mark", "quizzes", "cli"):
    try:
        __import__("course_lib." + name)
        found.append(name)
    except ImportError:
        pass
attempt(lambda: found)""",
    ),
    "reads the environment": attack(
        "reads the variables of this and of every other process",
        f"""
import glob, os
texts = [repr(dict(os.environ))]
for path in glob.glob("/proc/*/environ") + glob.glob("/proc/*/cmdline"):
    try:
        texts.append(open(path).read())
    except OSError:
        pass
attempt(lambda: [text for text in texts if {SECRET!r} in text])""",
        outside=True,
    ),
    "sees other processes": attack(
        "looks for processes that are not its own",
        """
import glob
texts = []
for path in glob.glob("/proc/[0-9]*/cmdline"):
    try:
        texts.append(open(path).read())
    except OSError:
        pass  # a process that has just ended
attempt(lambda: [text for text in texts if "pytest" in text])""",
        outside=True,
    ),
    "opens sockets": attack(
        "connects to a program on the host, and to the world",
        """
import socket
def connect(address):
    try:
        return socket.create_connection(address, timeout=1)
    except OSError:
        return None
attempt(lambda: [a for a in [("127.0.0.1", {port}), ("localhost", {port}), ("1.1.1.1", 53)] if connect(a)])""",
        outside=True,
    ),
    "speaks to the host without a network": attack(
        "connects to a socket that has a name and no address",
        """
import socket
attempt(lambda: socket.socket(socket.AF_UNIX).connect("\\0{own}") is None)""",
        "ConnectionRefusedError",
        outside=True,
    ),
    "steals the key from memory": attack(
        "searches the memory of every other process that it can open",
        f"""
import glob, os
def memory(process):
    for line in open(process + "/maps"):
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        try:
            os.lseek(file, first, os.SEEK_SET)
            yield os.read(file, last - first)
        except (OSError, OverflowError):
            continue
for process in glob.glob("/proc/[0-9]*"):
    try:
        file = os.open(process + "/mem", os.O_RDONLY)
        if int(process[6:]) != os.getpid():
            attempt(lambda: [process for part in memory(process) if {SECRET.encode()!r} in part])
    except OSError:
        pass""",
    ),
    "makes a world of its own": attack(
        "asks the kernel for namespaces in which it is root",
        """
import ctypes
call = ctypes.CDLL(None, use_errno=True).syscall
numbers = (272, 435, 165, 308, 101)  # unshare, clone3, mount, setns, ptrace
attempt(lambda: [n for n in numbers if call(n, 0x10020000, 0, 0, 0) >= 0] or call(56, 0x10000011, 0) >= 0)""",
    ),
}
DAMAGE = {
    "deletes outside its folder": attack(
        "removes a folder of the host, and all that it can find",
        """
import os, shutil
shutil.rmtree("{class_room}", ignore_errors=True)
attempt(lambda: not os.path.exists("{class_room}") and os.path.exists(os.path.dirname("{class_room}")))""",
        outside=True,
    ),
    "writes into the environment": attack(
        "changes the library and the packages that others will import",
        """
import course_lib, numpy, os, sys
def write(path):
    try:
        return open(path, "a")
    except OSError:
        return None
places = [course_lib.__file__, numpy.__file__, sys.executable, "/usr/lib/x", "/etc/ld.so.preload", "/dev/x", "/x"]
attempt(lambda: [place for place in places if write(place)])""",
    ),
    "forks a bomb": attack(
        "starts processes without end",
        """
import os, time
n = 0
while n < 5_000:
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    n += 1
raise Reached(n)""",
        "BlockingIOError",
    ),
    "starts threads without end": attack(
        "starts threads without end",
        """
import threading, time
for n in range(5_000):
    threading.Thread(target=time.sleep, args=(9,)).start()
raise Reached""",
        "RuntimeError",
    ),
    "leaves a daemon": attack(
        "leaves a process behind that has cut all ties",
        """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", "{own}"])
    os._exit(0)""",
    ),
    "fills the disk": attack(
        "writes files without end",
        "for n in range(500): open(f'/tmp/{{n}}', 'wb').write(bytes(8 << 20))\nraise Reached",
        "No space left on device",
    ),
    "writes one file without end": attack(
        "writes one file that is too large",
        "open('/dev/shm/x', 'wb').write(bytes(200 << 20))\nraise Reached",
        "OSError",
    ),
    "makes files without content": attack(
        "makes so many empty files that they fill memory",
        "import os\nfor n in range(10**7): os.close(os.open(f'/tmp/{{n}}', os.O_CREAT))\nraise Reached",
        "wrote more than 20,000 files",
    ),
    "fills memory": attack(
        "asks for more than there is", "kept = b'x' * (2 << 30)\nraise Reached", "MemoryError"
    ),
    "fills memory with many hands": attack(
        "shares the work among processes, none of which takes too much",
        """
import os, time
for n in range(20):
    if os.fork() == 0:
        kept = bytearray(b"x") * (200 << 20)
        time.sleep(30)
        os._exit(0)
time.sleep(30)
raise Reached""",
        "Code cell 3",  # used too much memory, or too much time: what comes first
    ),
    "hides memory": attack(
        "asks for memory that belongs to no process",
        """
import ctypes, mmap, os
call = ctypes.CDLL(None, use_errno=True).syscall
attempt(lambda: [n for n in (319, 29, 68, 425, 447) if call(n, 0, 4096, 0o1600) >= 0])""",
    ),
    "floods the output": attack(
        "prints until it is stopped", "while True: print('x' * 100_000)", STOPPED + " or raised MemoryError"
    ),
    "floods standard output behind Python": attack(
        "writes to every standard file until it is stopped",
        "import os\nwhile True: os.write(1, b'x' * 60_000), os.write(2, b'x' * 60_000)",
        "did not end within 2 s and was stopped",
    ),
    "ignores interrupts": attack(
        "goes on whatever comes",
        """
import signal, threading
for number in set(signal.Signals) - {{signal.SIGKILL, signal.SIGSTOP}}:
    signal.signal(number, signal.SIG_IGN)
while True:
    try:
        while True: pass
    except BaseException: pass""",
        "did not end within 2 s, and did not listen when it was interrupted",
    ),
    "ends the process": attack("ends the process under the driver", "import os\nos._exit(0)", "ended the process"),
    "hides behind a child": attack(
        "ends the process that answers, and leaves a child that keeps the pipes open",
        "import os\nif os.fork(): os._exit(0)\nwhile True: pass",
        "ended the process",
    ),
    "ends everything": attack("kills all that it may", "import os\nos.kill(-1, 9)\nos.kill(1, 9)"),
    "crashes the interpreter": attack(
        "recurses until the stack is gone",
        "import sys\nsys.setrecursionlimit(10**9)\nclass A: pass\nA.__repr__ = lambda self: repr(self)\nrepr(A())",
        "ended the process",
    ),
    "closes every file": attack(
        "closes the pipes to the driver and goes on",
        "import os\nos.closerange(0, 256)\nwhile True: pass",
        "Code cell 3 ended the process",
    ),
    "never comes back to the end": attack(
        "leaves threads and handlers that hold up the end of the process",
        """
import atexit, threading, time
atexit.register(time.sleep, 60)
threading.Thread(target=time.sleep, args=[60]).start()""",
    ),
}  # fmt: skip
ATTACKS = LOOK_AROUND | DAMAGE
