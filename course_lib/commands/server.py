"""JupyterLab as `course lab` starts it: `python -m course_lib.commands.server`, with the options of `jupyter lab`.

The one idea: Ctrl-C means stop, at any moment. Jupyter itself tidies up after it only on a terminal, and shows a
traceback while it starts. So there is a handler before Jupyter is even imported, and once Jupyter knows how to stop
(at SIGTERM), Ctrl-C is handed to that.
"""

import logging
import os
import runpy
import signal

from course_lib.commands.output import STOPPED, say

# What Jupyter warns of at every start, though nothing is wrong: its own time limits; no browser (the address stands
# right below).
HARMLESS = ("websocket_ping_timeout", "No web browser found")


def stop(number: int, frame: object) -> None:
    if callable(signal.getsignal(signal.SIGTERM)):
        signal.raise_signal(signal.SIGTERM)
        return
    say("stopped")  # nothing was begun that would have to be tidied up
    os._exit(STOPPED)


def is_worth_a_line(record: logging.LogRecord) -> bool:
    message = record.getMessage()
    return not any(words in message for words in HARMLESS)


def main() -> None:
    signal.signal(signal.SIGINT, stop)
    if hasattr(signal, "pthread_sigmask"):  # whoever started us may have held Ctrl-C back until now
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    for name in ("ServerApp", "tornado.general"):
        logging.getLogger(name).addFilter(is_worth_a_line)
    runpy.run_module("jupyterlab", run_name="__main__")


if __name__ == "__main__":
    main()
