"""The map of the course on a notebook's page: what you did in each notebook, and what to do next.

The one idea: a table that every reader of a page can read, with the numbers of `course progress`. It changes nothing
and needs no kernel once it stands there.
"""

from __future__ import annotations

import html

from course_lib.progress.course import way_to_notebooks
from course_lib.progress.store import store
from course_lib.progress.summary import Standing, day, standings, what_next

HEADINGS = (
    "Notebook", "Predictions made", "Questions answered", "Right at first try", "Checks passed",
    "Exercise parts passed", "What is next",
)  # fmt: skip


class Map:
    """Shows itself as the value of a cell: as a table, and as lines where there is only text."""

    def __init__(self, found: list[Standing], notices: list[str]) -> None:
        self.found, self.notices = found, notices

    def _repr_html_(self) -> str:
        cell = '<{0} scope="{1}" style="text-align: left; vertical-align: top">{2}</{0}>'
        heads = "".join(cell.format("th", "col", heading) for heading in HEADINGS)
        rows = ""
        for one in self.found:
            name = html.escape(one.notebook)
            head = linked(name) if one.here else name
            values = "".join(
                f'<td style="text-align: left; vertical-align: top">{html.escape(text)}</td>' for text in cells(one)
            )
            rows += f"<tr>{cell.format('th', 'row', head)}{values}</tr>"
        told = "".join(f'<p role="status">{html.escape(notice)}</p>' for notice in self.notices)
        return (
            f'{told}<div style="overflow-x: auto"><table><caption style="text-align: left; caption-side: top">'
            f"Your way through the course</caption><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
            f"<p><strong>Next:</strong> {self._next()}</p>"
        )

    def _next(self) -> str:
        """What to do next, with a link to the notebook that is meant."""
        name, colon, todo = what_next(self.found).partition(": ")
        here = any(one.notebook == name and one.here for one in self.found)
        return (linked(html.escape(name)) if here else html.escape(name)) + html.escape(colon + todo)

    def __repr__(self) -> str:
        lines = [*self.notices]
        for one in self.found:
            *counts, state = cells(one)
            said = [f"{heading.lower()}: {text}" for heading, text in zip(HEADINGS[1:], counts) if text]
            lines.append(f"{one.notebook}: {', '.join([*said, state])}")
        return "\n".join([*lines, f"Next: {what_next(self.found)}"])


def linked(name: str) -> str:
    """A link to a notebook, from the one that runs."""
    return f'<a href="{way_to_notebooks()[1]}{name}.ipynb">{name}</a>'


def progress() -> Map:
    """The map of the course with what you did in each notebook, as the value of a cell."""
    found = standings()
    return Map(found, store().notices())


def cells(one: Standing) -> tuple[str, ...]:
    """What stands in the columns after the name; empty where there is nothing to count."""
    state = f"finished on {day(one.finished_at)}" if one.finished_at else one.next
    if one.finished_at and one.next:
        state += f"; {one.next}"
    if one.problem:
        state = f"its questions cannot be counted: {one.problem}"
    return (
        str(one.predictions) if one.here or one.predictions else "",
        f"{one.answered} of {one.questions}" if one.questions else "",
        f"{one.right_first_try} of {one.answered}" if one.answered else "",
        f"{one.checks_passed} of {one.checks}" if one.checks else "",
        f"{one.exercises_passed} of {one.exercises}" if one.exercises else "",
        state,
    )
