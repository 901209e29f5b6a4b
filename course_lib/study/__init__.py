"""What a notebook shows: predictions beside results, figures, widgets, the map of the course.

The one idea: everything here only shows. Figures are pure functions of data and a widget calls one again; what is
measured or computed comes from the engine, which knows nothing of this room.
"""

from course_lib.study.course_map import course_map
from course_lib.study.predictions import compare, predict
from course_lib.study.widgets import Knob, explore

__all__ = ["Knob", "compare", "course_map", "explore", "predict"]
