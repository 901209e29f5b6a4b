"""The one error that reading a checkpoint raises.

Whatever is wrong with a file, a folder or a download (absent, cut short, altered, of a kind that the model does not
know), the caller sees a `CheckpointError` that names the thing, what was expected, what was found and what to do. It
is a ValueError, so code that knows nothing of checkpoints can still catch it.
"""


class CheckpointError(ValueError):
    """A checkpoint that cannot be fetched, read or understood; the message says which part, and the remedy."""
