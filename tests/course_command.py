"""The `course` command, called from tests: inside this process, or as a program of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from course_lib.cli import app
from course_lib.commands.output import program

os.environ.pop("COURSE_PROGRAM", None)  # which is set in a terminal of a JupyterLab that start.py opened

COURSE = Path(sys.executable).with_name("course")
ROOT = Path(__file__).resolve().parents[1]


def call(*words: str, text: bytes | None = None) -> Result:
    """The command inside this process, in a terminal of 80 columns."""
    return CliRunner(env={"COLUMNS": "80", "TERM": "dumb"}).invoke(app, list(words), input=text, prog_name=program())


def start(*words: str, **options: Any) -> subprocess.Popen[str]:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([str(COURSE), *words], **{"encoding": "utf-8"} | pipes | options)


def as_json(*words: str, text: bytes | None = None) -> dict[str, Any]:
    result = call(*words, "--json", "-", text=text)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)  # nothing else is on standard output
    return found
