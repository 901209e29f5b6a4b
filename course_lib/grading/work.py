"""One submission at work in its sandbox: its cells are run in order, then its functions are called.

The one idea: what works counts. A cell that raises or is too slow stops no other. A cell that takes the whole process
with it is left out when the notebook is run again in a new sandbox; a function that does so in one case is asked for
the other cases one by one. All of that has an end: the time for the whole notebook, and a number of restarts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from course_lib.checks.contract import in_line, part, words
from course_lib.checks.plain import Plain
from course_lib.grading.sandbox import Limits, NoSandbox, Sandbox
from course_lib.grading.session import NO_ANSWER, Ended, Session
from course_lib.grading.submission import Cell

STUB = "# YOUR CODE HERE"  # what nbgrader and `course release` leave where an answer belongs, then an error
SHORTEST_CASE_S = 2.0
HOPELESS = 3  # cases without an answer before a first one with one
PRINTED = 1_000_000  # characters that a cell may print before it is mentioned


class Work:
    """The code cells of a submission and the sandbox that they are in at the moment. Close it at the end.

    `stems` are the names of the checks' files. `imports` and `defines` say of each cell what it imports and defines;
    they are read before anything is run.
    """

    def __init__(self, cells: Sequence[Cell], stems: Sequence[str], sandbox: Sandbox, limits: Limits) -> None:
        self.cells, self.stems, self.sandbox, self.limits = list(cells), list(stems), sandbox, limits
        self.until = time.monotonic() + limits.total_s
        self.session: Session | None = None
        self.starts = self.peak_bytes = 0
        self.imports: dict[int, list[str]] = {}
        self.defines: dict[int, list[str]] = {}
        self.left_out: set[int] = set()  # places of cells that are not run (again)
        self.said: dict[int, str] = {}  # about a cell; the latest run counts
        self.over = ""  # why nothing is run any more

    def notes(self) -> list[str]:
        return [self.said[place] for place in sorted(self.said) if self.said[place]] + (
            [self.over] if self.over else []
        )

    def close(self) -> None:
        if self.session is not None:
            self.session.close()
            self.peak_bytes = max(self.peak_bytes, self.session.peak_bytes)

    def ready(self) -> Session | None:
        """A sandbox in which all cells were run but those that end it; None when there is nothing to be had any more.

        Raises NoSandbox if the machine gives none.
        """
        while self.session is None or self.session.why:
            self.close()
            left = self.until - time.monotonic()
            if left <= 0:
                self.over = (
                    f"The whole notebook may take {self.limits.total_s:g} s; what was not reached by then is lost."
                )
            elif self.starts > self.limits.restarts:
                self.over = f"The process was ended {self.starts} times; the notebook was not run again."
            if self.over:
                return None
            self.starts += 1
            try:
                self.session = self.sandbox.start(self.limits, left)
                prepared = self.session.ask({"do": "prepare", "stems": list(self.stems)}, self.limits.start_s)
            except (Ended, OSError) as reason:
                if self.starts > 1 and time.monotonic() > self.until - 0.5:  # it is the time that has ended it
                    self.until = 0
                    continue
                raise NoSandbox(f"The sandbox did not start: {reason}.") from None
            if prepared:  # a check that needs what its exercise rules out, for example
                raise NoSandbox(f"The checks cannot be run in the sandbox: {words(prepared.get('broke'))}.")
            if not self.imports:
                self.read_cells(self.session)
            self.run_cells(self.session)
        return self.session

    def read_cells(self, session: Session) -> None:
        """Look at every cell before any is run: by then nothing in there can have been changed."""
        for place, cell in enumerate(self.cells):
            if place not in self.left_out and place not in self.imports:
                try:
                    answer = session.ask({"do": "read", "source": cell.source}, self.limits.cell_s)
                except Ended:
                    self.leave_out(place, "could not be read: it is no Python that a person wrote.")
                    return
                self.imports[place], self.defines[place] = texts(answer.get("imports")), texts(answer.get("defines"))
        self.leave_out_copies_of_starters()

    def leave_out_copies_of_starters(self) -> None:
        """Somebody who answers in a copy of the cell leaves the empty one behind; it would undo the answer."""
        empty = {place for place, cell in enumerate(self.cells) if STUB in map(str.strip, cell.source.splitlines())}
        answered = {name for place, found in self.defines.items() if place not in empty for name in found}
        for place in empty:
            if twice := [name for name in self.defines.get(place, []) if name in answered]:
                self.leave_out(place, f"was not run: it is empty, and `{twice[0]}` is defined in another cell, too.")

    def leave_out(self, place: int, said: str) -> None:
        self.left_out.add(place)
        self.said[place] = f"{self.cells[place]} {said}"

    def run_cells(self, session: Session) -> None:
        """Run the cells in half of the time that is left: the other half is for what is judged."""
        began = time.monotonic()
        until = (began + self.until) / 2
        for place, cell in enumerate(self.cells):
            if session.why:
                return
            if place in self.left_out:
                continue
            if time.monotonic() > until:
                self.said[place] = f"{cell} was not run: those before it took {time.monotonic() - began:.0f} s."
                continue
            try:
                answer = session.ask({"do": "run", "source": cell.source}, self.limits.cell_s)
            except Ended as reason:
                self.leave_out(place, f"{reason.said}; the notebook was run again without it.")
                return
            self.said[place] = self.about(cell, answer)

    def about(self, cell: Cell, answer: dict[str, Plain]) -> str:
        """What is to be said of a cell that has been run; nothing if all went well."""
        if answer.get("stopped"):
            return f"{cell} did not end within {self.limits.cell_s:g} s and was stopped."
        raised, printed = part(answer, "raised"), answer.get("printed")
        if raised:
            message = words(raised.get("message")).split("\n")[0]
            kind = words(raised.get("type"), 60) or "an error"
            return f"{cell} raised {kind}{in_line(raised)}" + (f": {message}" if message else "") + "."
        if type(printed) is int and printed > PRINTED:
            return f"{cell} printed {printed:,} characters; nobody read them."
        return ""

    def task(self, stem: str, function: str, inputs: dict[str, Any]) -> tuple[dict[str, Plain], list[str]]:
        """What the run of a check wrote down about a function, as {"outputs": …} or {"missing": True} and so on, and
        what happened. Empty if nothing came back."""
        answer, said = self.call(stem, function, inputs, self.limits.task_s)
        cases = inputs.get("cases")
        sabotage = self.session is not None and self.session.why == NO_ANSWER
        if not said or sabotage or not isinstance(cases, dict) or len(cases) < 2:
            return answer, said
        each_s = max(SHORTEST_CASE_S, self.limits.task_s / len(cases))
        outputs: dict[str, Plain] = {}
        found: dict[str, Plain] = {}
        failed = 0
        for name, case in cases.items():
            one, _ = self.call(stem, function, inputs | {"cases": {name: case}}, each_s)
            came = part(one, "outputs")
            outputs |= {key: value for key, value in came.items() if key != "cases"}
            if name in part(came, "cases"):
                found[name] = part(came, "cases")[name]
            failed += not came
            if failed >= HOPELESS and not found:
                return {}, said
        if not found:
            return {}, said
        said.append("Each case was then tried on its own.")
        return {"outputs": outputs | {"cases": found}}, said

    def call(
        self, stem: str, function: str, inputs: dict[str, Any], seconds: float
    ) -> tuple[dict[str, Plain], list[str]]:
        """One call, and what prevented an answer to it if anything did."""
        session = self.ready()
        if session is None:
            return {}, [self.over]
        question: dict[str, Plain] = {"do": "task", "stem": stem, "function": function, "inputs": inputs}
        try:
            answer = session.ask(question, seconds)
        except Ended as reason:
            return {}, [f"`{function}` {reason.said}."]
        if answer.get("stopped"):
            return {}, [f"`{function}` did not end within {seconds:g} s and was stopped."]
        if "too much" in answer:
            return {}, [f"`{function}` returned too much to compare: {words(answer['too much'], 120)}."]
        if "broke" in answer:
            return {}, [f"`{function}` could not be called: {words(answer['broke'], 60)}."]
        return answer, []


def texts(found: Plain) -> list[str]:
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
