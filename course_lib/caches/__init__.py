"""Caches of keys and values: what all of them promise is in `contract.py`, each kind has a file of its own."""

from course_lib.caches.contiguous import ContiguousCache
from course_lib.caches.contract import Cache, CacheFull, NoCache, Step, visible
from course_lib.caches.paged import PagedCache
from course_lib.caches.pool import BlockPool
from course_lib.caches.prefix import PrefixCache

__all__ = [
    "BlockPool",
    "Cache",
    "CacheFull",
    "ContiguousCache",
    "NoCache",
    "PagedCache",
    "PrefixCache",
    "Step",
    "visible",
]
