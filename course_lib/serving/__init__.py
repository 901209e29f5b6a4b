"""Many requests on one model: what is asked for in `request.py`, who reads what and when in `engine.py`."""

from course_lib.serving.engine import Engine
from course_lib.serving.request import Request, Sequence

__all__ = ["Engine", "Request", "Sequence"]
