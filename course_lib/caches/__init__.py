"""Caches: one file a kind, all of them under the contract in `contract.py`."""

from course_lib.caches.contiguous import ContiguousCache
from course_lib.caches.contract import Cache, CacheFull, NoCache, Step, visible

__all__ = ["Cache", "CacheFull", "ContiguousCache", "NoCache", "Step", "visible"]
