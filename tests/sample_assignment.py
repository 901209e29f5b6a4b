"""The assignment ex03 as a sample for tests: its source, and a checkout with nothing else in it."""

import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from course_lib.grading.assignment import sources

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sources(ROOT)
NAME = "ex03_kv_cache"
SAMPLE = next(path for path in SOURCES if path.stem == NAME)


def sample() -> NotebookNode:
    return nbformat.read(SAMPLE, as_version=4)


def cell(notebook: NotebookNode, grade_id: str) -> NotebookNode:
    return next(each for each in notebook.cells if each.metadata.nbgrader.grade_id == grade_id)


@pytest.fixture
def course(tmp_path: Path) -> Path:
    """A checkout with one assignment in it, not yet released."""
    shutil.copytree(SAMPLE.parent, tmp_path / "solutions" / NAME)
    return tmp_path


def source_of(course: Path) -> Path:
    return course / "solutions" / NAME / f"{NAME}.ipynb"


def release_of(course: Path) -> Path:
    return course / "exercises" / NAME / f"{NAME}.ipynb"
