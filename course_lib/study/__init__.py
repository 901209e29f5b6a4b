"""What a notebook shows: quizzes, checks, predictions beside results, figures, widgets, the map of the course.

The one idea: everything here only shows. Figures are pure functions of data and a widget calls one again; what is
measured or computed comes from the engine, which knows nothing of this room; what a learner did is kept by
`course_lib.progress`.
"""

from course_lib.study.check import check, hint
from course_lib.study.course_map import course_map
from course_lib.study.diagnose import diagnose
from course_lib.study.examples import example
from course_lib.study.points import points
from course_lib.study.predictions import compare, predict
from course_lib.study.progress_view import progress
from course_lib.study.quiz import Quiz, warm_up
from course_lib.study.widgets import Choice, Knob, explore

__all__ = [
    "Choice",
    "Knob",
    "Quiz",
    "check",
    "compare",
    "course_map",
    "diagnose",
    "example",
    "explore",
    "hint",
    "points",
    "predict",
    "progress",
    "warm_up",
]
