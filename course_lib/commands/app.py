"""How the `course` command behaves whatever it is told to do: faults in one line, exit statuses, options that recur.

The one idea: a command returns its exit status or raises, and everything else about ending is here. Exit status: 0
done, 1 the work found something wrong, 2 the call was wrong, 130 stopped by Ctrl-C.
"""

import errno
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from course_lib.commands.output import BAD_CALL, DONE, STOPPED, WRONG, CommandError, dash_if_stdout, program, say


class Course(TyperGroup):
    """A group of commands that return their exit status, and whose expected faults are one line."""

    def main(self, *args: Any, **options: Any) -> Any:
        for part in (self, *_below(self)):  # the texts say `course` for the program, whatever its name
            part.help = (part.help or "").replace("`course ", f"`{program()} ")
            part.epilog = (part.epilog or "").replace("`course ", f"`{program()} ")
        try:
            status = super().main(*args, **options | {"standalone_mode": False})
        except CommandError as error:
            status = _fault(str(error), error.status)
        except OSError as error:
            remedy = " (make room, or name a place on another disk)" if error.errno == errno.ENOSPC else ""
            status = _fault(f"{error.filename or ''}: {error.strerror or error}".lstrip(": ") + remedy, WRONG)
        except typer.Abort:
            status = STOPPED
        except Exception as error:
            if not hasattr(error, "format_message"):  # how the command-line library marks a wrong call
                raise
            status = _wrong_call(error)
        if status == STOPPED:
            say("stopped")
        sys.exit(status or DONE)


def _below(group: Any) -> list[Any]:
    """The commands of a group, and theirs."""
    found = list(group.commands.values())
    return found + [command for part in found if hasattr(part, "commands") for command in _below(part)]


class WithExtra(TyperCommand):
    """A command that hands over what stands after `--`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.obj = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def _fault(message: str, status: int) -> int:
    say(f"error: {message}")
    return status


def _wrong_call(error: Any) -> int:
    context = getattr(error, "ctx", None)
    message = error.format_message().strip().rstrip(".")
    if not message:  # no command was named, and the help was shown
        return BAD_CALL
    where = context.command_path if context else program()
    return _fault(f"{' '.join(message.split())} ({where} --help shows what there is)", BAD_CALL)


app = typer.Typer(
    cls=Course,
    help="A hands-on course on the KV cache of language models.",
    epilog="`course COMMAND --help` says more about a command and shows an example.",
    rich_markup_mode="markdown",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Json = Annotated[
    str | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write the result as JSON; - prints it, and nothing else.",
        callback=dash_if_stdout,
    ),
]
Notebooks = Annotated[
    list[str] | None,
    typer.Argument(metavar="NOTEBOOK", help="Files, folders, or how names begin (02).", show_default="all"),
]
Timeout = Annotated[int, typer.Option(min=1, max=86_400, metavar="SECONDS", help="The longest that one cell may take.")]
