"""`course fetch`: gets the weights of a model and says where they lie."""

from course_lib.checkpoints import MODELS, CheckpointError, fetch
from course_lib.commands.output import BAD_CALL, DONE, CommandError
from course_lib.commands.places import short


def fetch_weights(model: str) -> int:
    """Fetch `model` if it is not there already; the exit status."""
    if model not in MODELS:
        raise CommandError(f"no model called {model} can be fetched", f"there is: {', '.join(MODELS)}", BAD_CALL)
    try:
        path = fetch(model)
    except CheckpointError as error:
        raise CommandError(str(error)) from error
    print(f"{MODELS[model].title}: {short(path)} ({path.stat().st_size / 1e6:.0f} MB, SHA-256 verified)")
    return DONE
