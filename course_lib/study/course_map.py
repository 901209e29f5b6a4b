"""The map of the course: which notebook answers which question, and which of them are here.

The one idea: what is here is looked up, never written down. What a learner did is on another map, `progress()`.
"""

from pathlib import Path

from IPython.display import Markdown

from course_lib.progress.course import QUESTIONS, notebooks_here, notebooks_in


def course_map(folder: Path | None = None) -> Markdown:
    """A table of all notebooks of the course; those that lie in `folder` are links, the others are still to come.

    By default that is where the running notebook lies, or else the notebooks folder of the course.
    """
    here = notebooks_here() if folder is None else notebooks_in(folder)
    lines = ["| notebook | the question it answers |", "|---|---|"]
    for name, question in QUESTIONS.items():
        lines.append(
            f"| [{name}]({name}.ipynb) | {question} |" if name in here else f"| {name} (to come) | {question} |"
        )
    return Markdown("\n".join(lines))
