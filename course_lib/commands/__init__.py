"""What the commands of `course` do; `course_lib.cli` only names them and their options.

One module a command. They stand above the engine and below nothing: no lesson imports from here.
"""
