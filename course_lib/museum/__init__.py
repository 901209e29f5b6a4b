"""The bug museum: engines with one wrong line each, a day to run them through, and tools to find out what is wrong."""

from course_lib.museum.collection import EXHIBITS
from course_lib.museum.day import Comparison, Day, Visit, as_it_likes, compare, museum_day, serve
from course_lib.museum.exhibit import Build, Exhibit, House
from course_lib.museum.guide import Guide, guide
from course_lib.museum.tools import against_fresh, where, with_other_neighbours, with_poison

__all__ = [
    "EXHIBITS", "Build", "Comparison", "Day", "Exhibit", "Guide", "House", "Visit", "against_fresh", "as_it_likes",
    "compare", "guide", "museum_day", "serve", "where", "with_other_neighbours", "with_poison",
]  # fmt: skip
