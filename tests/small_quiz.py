"""Small files of questions for the tests of quizzes, and notebooks that show them.

The one idea: every text that must not reach a page before its answer contains the word "undisclosed", and every number
and order of a key is one that occurs nowhere else. So one search finds any leak.
"""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from course_lib.study import page, quiz

NOTEBOOK = "03_small"
OBJECTIVE = """
[[objective]]
text = "say what a cache holds"
section = "What is kept"
experiment = "03.keys_that_change"
"""
ONE = """
[[question]]
id = "kept"
objective = 1
type = "one"
text = "What does a layer keep of a token, so that `attention` need *not* compute it again?"
explanation = "undisclosed: the query is used once, `K` and `V` by every later token."
[[question.choice]]
text = "Its query, its key and its value"
why = "undisclosed: a query is used once, so keeping it saves nothing."
misconception = 1
[[question.choice]]
text = "Its key and its value"
right = true
why = "undisclosed: both are final."
[[question.choice]]
text = "Its row of attention weights"
why = "undisclosed: the weights are computed anew in each step."
misconception = 2
"""
SEVERAL = """
[[question]]
id = "grows"
objective = 1
type = "several"
text = "What makes the cache larger?"
explanation = "undisclosed: rows and layers, not heads of queries."
[[question.choice]]
text = "More tokens"
right = true
[[question.choice]]
text = "More query heads"
why = "undisclosed: queries are not kept."
misconception = 13
[[question.choice]]
text = "More layers"
right = true
"""
NUMBER = """
[[question]]
id = "size"
objective = 1
type = "number"
text = "How large is the cache?"
explanation = "undisclosed: two tensors."
answer = 1.4375
unit = "MiB"
tolerance = 0.01
[[question.trap]]
value = 0.71875
why = "undisclosed: the values were forgotten."
belief = "the cache holds keys only"
"""
ORDER = """
[[question]]
id = "steps"
objective = 1
type = "order"
text = "What happens in a step?"
explanation = "undisclosed: it is appended before it is read."
items = ["Compute K and V of the new token", "Append them to the cache", "Read all rows", "Choose the next token"]
wrong = "undisclosed: the new token looks at itself, too."
"""
HEAD = f'notebook = "{NOTEBOOK}"\n{OBJECTIVE}'
ALL = HEAD + ONE + SEVERAL + NUMBER + ORDER


def write_bank(folder: Path, text: str = ALL, name: str = NOTEBOOK) -> Path:
    """A file of questions in `folder`; whatever `text` says of its notebook, it says `name`."""
    path = folder / f"{name}.toml"
    path.write_text(text.replace(f'"{NOTEBOOK}"', f'"{name}"'), encoding="utf-8")
    return path


def write_notebook(path: Path, *cells: str) -> Path:
    """A notebook of code cells that was never run."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"display_name": "Python 3", "language": "python", "name": "python3"}
    nbformat.write(notebook, path)
    return path


def record_displays(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The outputs, by MIME type, of everything that is displayed from now on. Without a kernel there is no page."""
    outputs: list[dict[str, Any]] = []
    for module in (page, quiz):
        monkeypatch.setattr(module, "display", lambda data, **_: outputs.append(data))
    return outputs
