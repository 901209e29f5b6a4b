"""The widget that shows a sheet of questions; its page side is quiz.js and quiz.css beside this file.

The one idea: the synchronised state holds the open questions and nothing else, so neither a page nor a saved notebook
ever carries a key. Answers and what may be said to them travel as messages, of which no file keeps a copy.
"""

from __future__ import annotations

import weakref
from pathlib import Path

import anywidget
import traitlets

from course_lib.study.page import page_side
from course_lib.study.quiz_sheet import Message, Sheet, for_page

HERE = Path(__file__).parent
shown: weakref.WeakSet[QuestionsWidget] = weakref.WeakSet()  # so that two displays of one question tell the same


class QuestionsWidget(anywidget.AnyWidget):
    """Shows the questions of `sheet` under `title`; `sources` says where each question is from, by its name."""

    _esm = page_side("quiz.js")
    _css = HERE / "quiz.css"
    title = traitlets.Unicode().tag(sync=True)
    questions: traitlets.List[Message] = traitlets.List().tag(sync=True)
    can_skip = traitlets.Bool().tag(sync=True)

    def __init__(self, sheet: Sheet, title: str, sources: dict[str, str] | None = None) -> None:
        asked = [for_page(question, (sources or {}).get(name, "")) for name, question in sheet.questions.items()]
        super().__init__(title=title, questions=asked, can_skip=bool(sheet.warm_up))
        self.sheet = sheet
        self.on_msg(lambda _, message, __: self.answer(message))
        shown.add(self)

    def answer(self, message: object) -> None:
        reply = self.sheet.receive(message)
        if reply is None:
            return
        self.send(reply)
        if reply["kind"] in ("state", "skipped") and isinstance(message, dict) and message.get("kind") != "hello":
            for other in list(shown):
                if other is not self and other.sheet.warm_up == self.sheet.warm_up:
                    other.repeat(reply)

    def repeat(self, reply: Message) -> None:
        """Tell the page what was answered or skipped elsewhere."""
        names = reply.get("questions", {})
        mine = [question for name, question in self.sheet.questions.items() if name in names]
        if mine:
            self.send({"kind": "state", "questions": self.sheet.states(*mine), **self.sheet.left()})
        elif reply["kind"] == "skipped":
            self.send({"kind": "skipped", "problem": "", **self.sheet.left()})

    def set_state(self, sync_data: Message) -> None:
        """A page has nothing to set: what it sends as state is not read."""
