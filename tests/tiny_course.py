"""A course so small that start.py installs it in a second: for tests/test_start.py.

It has a build backend of its own and takes its libraries (empty ones) from a folder of wheels, so that a real pip does
real work without a network.
"""

import inspect
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def make_wheel(folder, name, version, files, metadata="", entry_points=""):
    """A wheel is a zip file with three notes inside. (No types: its source is also the tiny course's build backend.)"""
    notes = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{notes}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{metadata}",
        f"{notes}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{notes}/entry_points.txt": entry_points,
    }
    files[f"{notes}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{notes}/RECORD"])
    path = Path(folder) / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in files.items():
            archive.writestr(inner, text)
    return path.name


BACKEND = (
    "import os, time, zipfile\nfrom pathlib import Path\n\n"
    + inspect.getsource(make_wheel)
    + r"""
def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    while Path("block").exists():  # a test holds the installation here
        Path("blocked").write_text(str(os.getpid()))
        time.sleep(0.02)
    return make_wheel(
        wheel_directory, "kv_cache_course", "1.0", {"kv_cache_course.pth": os.getcwd() + "\n"},
        "Requires-Dist: torch\nProvides-Extra: test\nRequires-Dist: checker; extra == 'test'\n"
        "Provides-Extra: serve\nRequires-Dist: server; extra == 'serve'\n",
        "[console_scripts]\ncourse = tiny_cli:main\n",
    )
"""
)

CLI = """
import json, os, sys

def main():
    program = os.environ.get("COURSE_PROGRAM")
    print(json.dumps({"words": sys.argv[1:], "path": os.environ["PATH"].split(os.pathsep)[0], "program": program}))
    sys.exit(int(os.environ.get("FAIL_" + sys.argv[1].upper(), 0)))
"""

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "kv-cache-course"
dynamic = ["version", "dependencies", "optional-dependencies", "scripts"]
"""


@dataclass
class Course:
    """A copy of start.py beside a tiny course, and the folder of wheels that is its package index."""

    folder: Path
    wheels: Path

    def environment(self, **variables: str) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "COURSE_", "PYTHON"))}
        pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.wheels)}
        return {**kept, **pip, **variables}

    def popen(self, *words: str, program: str = "start.py", **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, program, *words],
            cwd=self.folder,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, program: str = "start.py", **variables: str) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words, program=program, **variables)
        output, errors = process.communicate(timeout=120)
        assert "Traceback" not in errors, errors
        return subprocess.CompletedProcess(words, process.returncode, output, errors)

    def installed(self, name: str) -> str:
        """The version of a package in .venv, read from pip's own notes; empty where it is not."""
        found = list((self.folder / ".venv").glob(f"[Ll]ib/**/{name}-*.dist-info"))
        return found[0].name.removeprefix(f"{name}-").removesuffix(".dist-info") if found else ""


def make_course(folder: Path) -> Course:
    wheels = folder / "wheels"
    wheels.mkdir(parents=True)
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "torch", version, {"torch.py": f"build = 'default {version}'"})
    for name in ("checker", "server"):
        make_wheel(wheels, name, "1.0", {f"{name}.py": ""})
    tree = folder / "course"
    (tree / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "start.py", tree)
    (tree / "pyproject.toml").write_text(PYPROJECT)
    (tree / "constraints.txt").write_text("torch==1.0\n")
    (tree / "backend.py").write_text(BACKEND)
    (tree / "tiny_cli.py").write_text(CLI)
    (tree / "tests" / "run_all.py").write_text("import checker, sys; print('tests', sys.argv[1:]); sys.exit(3)")
    return Course(tree, wheels)
