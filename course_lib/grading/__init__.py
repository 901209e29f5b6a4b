"""For those who teach: assignments and their release, and marks for what was handed in.

The one idea: what a learner wrote runs in another process, never here. What comes out of it is plain data, and it is
judged on this side. Nothing of the engine, of the notebooks or of a learner's progress knows this room.
"""
