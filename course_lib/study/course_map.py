"""The map of the course: which notebook answers which question, and which of them and of the exercises are here.

The one idea: what is here is looked up, never written down. What a learner did is on another map, `progress()`.
"""

from posixpath import normpath

from IPython.display import Markdown

from course_lib.progress.course import QUESTIONS, exercises_near, notebooks_in, way_to_notebooks


def course_map() -> Markdown:
    """A table of all notebooks of the course; those that are here are links, the others are still to come.

    Beside each stand the exercises that belong to it.
    """
    folder, way = way_to_notebooks()
    here, exercises = notebooks_in(folder), exercises_near(folder)
    lines = ["| notebook | the question it answers | exercise |", "|---|---|---|"]
    for name, question in QUESTIONS.items():
        notebook = f"[{name}]({way}{name}.ipynb)" if name in here else f"{name} (to come)"
        links = [
            f"[{each[:4]}]({normpath(f'{way}../exercises/{each}/{each}.ipynb')})"
            for each in exercises.get(name[:2], [])
        ]
        lines.append(f"| {notebook} | {question} | {', '.join(links)} |")
    return Markdown("\n".join(lines))
