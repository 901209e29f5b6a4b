"""The questions at the end of each notebook: the files that hold them, and what an answer to one is worth.

The one idea: a question is data and judging is a pure function of a question and what was given. Nothing here shows,
asks or saves; that is done in `course_lib.study`. One TOML file for each notebook lies beside these modules.
"""
