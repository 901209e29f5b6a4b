"""Notebooks of a few cells for tests, written to a folder of the test."""

from collections.abc import Callable
from pathlib import Path

import nbformat
from nbformat import NotebookNode, v4

Save = Callable[..., Path]


def code(source: str, *tags: str) -> NotebookNode:
    return v4.new_code_cell(source, metadata={"tags": list(tags)} if tags else {})


def saver(folder: Path) -> Save:
    """A function that writes a notebook of the cells that it is given (a text is a code cell) and returns its path."""

    def save(*cells: NotebookNode | str) -> Path:
        whole = [code(cell) if isinstance(cell, str) else cell for cell in cells]
        path = folder / "some.ipynb"
        nbformat.write(v4.new_notebook(cells=whole), path)
        return path

    return save


def nothing(done: int, total: int) -> None:
    """The progress of a run, not looked at."""
