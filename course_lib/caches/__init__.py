"""Caches of keys and values: what all of them promise is in `contract.py`, each kind has a file of its own."""

from course_lib.caches.codecs import Floats, Integers
from course_lib.caches.contiguous import ContiguousCache
from course_lib.caches.contract import Cache, CacheFull, NoCache, Step, visible
from course_lib.caches.forgetting import ForgettingCache
from course_lib.caches.paged import PagedCache
from course_lib.caches.policies import MostSeen, Window
from course_lib.caches.pool import BlockPool
from course_lib.caches.prefix import PrefixCache
from course_lib.caches.rounded import RoundedCache

__all__ = [
    "BlockPool",
    "Cache",
    "CacheFull",
    "ContiguousCache",
    "Floats",
    "ForgettingCache",
    "Integers",
    "MostSeen",
    "NoCache",
    "PagedCache",
    "PrefixCache",
    "RoundedCache",
    "Step",
    "Window",
    "visible",
]
