"""The library of the KV-cache course: a small transformer, its caches, and what measures them.

The notebooks import from here what a lesson does not ask the learner to write. It is for reading and measuring, not a
serving engine.
"""

__version__ = "0.1.0"
