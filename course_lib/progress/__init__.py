"""What a learner did: answers, predictions, checks, finished notebooks, in files that survive mishaps.

The one idea: an event is written once and stays. Everything else (the map of the course, first attempts, an export) is
worked out from the events. Nothing here knows a widget.
"""

from course_lib.progress.event import Event, notebook_of
from course_lib.progress.faults import NotSaved
from course_lib.progress.store import Store, data_folder, store

__all__ = ["Event", "NotSaved", "Store", "data_folder", "notebook_of", "store"]
