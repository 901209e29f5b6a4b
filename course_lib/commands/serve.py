"""`course serve`: starts a real serving engine on this machine, for `course loadtest` to measure.

The one idea: it is the server of `transformers`, not one of the course. What it needs is made first, once; it listens
for this machine only, and when this command ends, it has ended.
"""

from pathlib import Path

from rich.console import Console

from course_lib.commands.output import BAD_CALL, CommandError, program, say


def serve(
    folder: Path | None, *, dtype: str, port: int, continuous_batching: bool, block_size: int, blocks: int
) -> int:
    """Serve until Ctrl-C, which is raised as KeyboardInterrupt once nothing is left of the server."""
    from course_lib.serving.transformers_server import ServerError, check_installed, running_server

    try:
        check_installed()
        folder = folder if folder is not None else made_folder(dtype)
        waiting = Console(stderr=True).status("transformers serve is starting ...")
        waiting.start()
        try:
            with running_server(
                folder, continuous_batching=continuous_batching, block_size=block_size, blocks=blocks, port=port
            ) as server:
                waiting.stop()
                print(server.url, flush=True)
                how = f"in {blocks} blocks of {block_size} tokens" if continuous_batching else "one request at a time"
                say(f"transformers serves {server.model} there, {how}. Ctrl-C here stops it. In another terminal, try:")
                say(f"{program()} loadtest --url {server.url} --model {server.model}")
                status = server.process.wait()
                raise CommandError(f"transformers serve ended by itself (status {status}): {server.end_of_log()}")
        finally:
            waiting.stop()
    except ServerError as error:
        raise CommandError(str(error)) from None
    except ValueError as error:
        raise CommandError(str(error), f"{program()} serve --help shows an example", BAD_CALL) from None


def made_folder(dtype: str) -> Path:
    """The folder of SmolLM2, made if it is not there."""
    from course_lib.checkpoints import CheckpointError, fetch
    from course_lib.checkpoints.export import huggingface_folder

    try:
        fetch("smollm2")  # by itself, since a download shows its own progress
        with Console(stderr=True).status("looking after the folder of SmolLM2 ..."):
            return huggingface_folder("smollm2", dtype)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
